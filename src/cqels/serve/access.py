"""Who may do what: bearer tokens, each with rights."""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2s
from pathlib import Path
from typing import Literal as OneOf
from typing import get_args

from cqels.model.errors import CqelsError

Right = OneOf["read", "push", "register", "admin"]
RIGHTS: tuple[str, ...] = get_args(Right)
GRANTED = "cqels.rights"
"""Where the scope of a request has the rights of who sends it."""
VARIABLE = "CQELS_TOKENS"
"""The variable of the environment that has tokens, if there is no file."""
_LEAST = 16
"""Characters that a token has at least."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What a header can have as a token (RFC 6750)."""
_HINT = "a line has a token and its rights: 3kd…9x read push"
_KEY = os.urandom(32)


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens that there are. Without any, everybody may do everything."""

    tokens: tuple[tuple[bytes, frozenset[str]], ...] = field(default=(), repr=False)
    _digests: tuple[tuple[bytes, frozenset[str]], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_digests", tuple((_digest(token), rights) for token, rights in self.tokens))

    def __bool__(self) -> bool:
        return bool(self.tokens)

    def rights_of(self, token: str | None) -> frozenset[str] | None:
        """The rights of a token, None if it is not known.

        All are compared, each in constant time, by their digests: how long it takes tells nothing of lengths either.
        """
        if not self.tokens:
            return _ALL
        if token is None:
            return None
        given = _digest(token.encode("utf-8", "surrogateescape"))
        found: frozenset[str] | None = None
        for known, rights in self._digests:
            if hmac.compare_digest(known, given):
                found = rights
        return found


_ALL = frozenset(RIGHTS)


def _digest(token: bytes) -> bytes:
    return blake2s(token, key=_KEY).digest()


def read_access(path: Path | None) -> Access:
    """The tokens of a file, or of the environment."""
    if path is None:
        return _parsed(os.environ.get(VARIABLE, "").replace(";", "\n").splitlines(), VARIABLE)
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise CqelsError(f"others can reach the tokens in {path}", hint=f"chmod 600 {path}")
            lines = file.read().splitlines()
    except OSError as error:
        raise CqelsError(f"the tokens in {path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise CqelsError(f"the tokens in {path} are not a text", hint=_HINT) from None
    found = _parsed(lines, str(path))
    if not found:
        raise CqelsError(f"there is no token in {path}", hint=_HINT)
    return found


def _parsed(lines: Iterable[str], place: str) -> Access:
    tokens: dict[bytes, frozenset[str]] = {}
    for number, line in enumerate(lines, 1):
        token, *rights = line.partition("#")[0].split() or [""]
        if not token:
            continue
        where = f"{place}, line {number}"
        if len(token) < _LEAST:
            raise CqelsError(f"{where}: a token has at least {_LEAST} characters", hint=_HINT)
        if not _TOKEN.fullmatch(token):
            raise CqelsError(f"{where}: a token has only letters, digits and - . _ ~ + /", hint=_HINT)
        for right in rights:
            if right not in RIGHTS:
                raise CqelsError(f"{where}: there is no right '{right}'", hint=f"{', '.join(RIGHTS)}")
        if not rights:
            raise CqelsError(f"{where}: a token without rights", hint=_HINT)
        if token.encode() in tokens:
            raise CqelsError(f"{where}: the token is there twice", hint="give it all its rights in one line")
        tokens[token.encode()] = _ALL if "admin" in rights else frozenset(rights)
    return Access(tuple(tokens.items()))
