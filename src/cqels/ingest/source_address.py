"""Where a live source is and how one gets in: the declared URL and its options, with what the environment has for them.

Secrets are read here, when a connection is to be made, and nowhere kept: `${NAME}` stands for a variable of the
environment, `password-file` for a file's first line.  `place` is what may be shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_options import scheme_name
from cqels.model.errors import CqelsError
from cqels.model.redact import redacted_url
from cqels.model.time import SECOND, parse_duration

_URL = re.compile(r"(?P<scheme>[^:]+)://(?:(?P<user>[^/?#]*)@)?(?P<hosts>[^/?#]*)(?P<path>/.*|\?.*)?", re.DOTALL)
_HOST = re.compile(r"(?P<host>\[[^\]]+\]|[^:]+)(?::(?P<port>\d{1,5}))?")
_VARIABLE = re.compile(r"\$\{(?P<name>[^}]*)\}")


@dataclass(frozen=True, slots=True)
class Address:
    """A declared source, taken apart."""

    place: str
    """What it is called in messages for people."""
    scheme: str
    hosts: tuple[tuple[str, int | None], ...]
    path: str
    """What is behind the hosts, with the slash and as it is written."""
    user: str | None = field(repr=False)
    password: str | None = field(repr=False)
    options: Mapping[str, Sequence[str]] = field(repr=False)

    @property
    def host(self) -> str:
        return self.hosts[0][0]

    def port(self, otherwise: int) -> int:
        return self.hosts[0][1] or otherwise

    def get(self, option: str, otherwise: str = "") -> str:
        values = self.options.get(option)
        return values[0] if values else otherwise

    def seconds(self, option: str, otherwise: float) -> float:
        text = self.get(option)
        return parse_duration(text) / SECOND if text else otherwise

    @property
    def url(self) -> str:
        """The URL without user and password."""
        hosts = ",".join(host if port is None else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.scheme}://{hosts}{self.path}"


def address_of(declaration: StreamDeclaration) -> Address:
    """Where the source of a declaration is; one that cannot be is refused."""
    place = shown_place(declaration)
    options: dict[str, list[str]] = {}
    for name, value in declaration.source:
        options.setdefault(name, []).append(_filled(value, declaration))
    found = _URL.fullmatch(declaration.path)
    if found is None:
        assert scheme_name(declaration.path) is not None
        return Address(place, declaration.path, (), "", None, None, options)
    hosts = tuple(_host(each, declaration) for each in _filled(found["hosts"], declaration).split(","))
    user, password = options.get("user", [None])[0], options.get("password", [None])[0]
    if found["user"] is not None:
        name, colon, secret = _filled(found["user"], declaration).partition(":")
        user, password = user or unquote(name), password or (unquote(secret) if colon else None)
    if "password-file" in options:
        password = _first_line(Path(options["password-file"][0]), declaration)
    scheme = found["scheme"].lower()
    return Address(place, scheme, hosts, _filled(found["path"] or "", declaration), user, password, options)


def shown_place(declaration: StreamDeclaration) -> str:
    """What a source is called in messages for people: its URL without secrets."""
    return redacted_url(declaration.path)


def _host(text: str, declaration: StreamDeclaration) -> tuple[str, int | None]:
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65535:
        raise CqelsError(
            f"stream <{declaration.iri}>: '{text}' is not a host with a port", hint="write for example localhost:1883"
        )
    return found["host"].strip("[]"), int(found["port"]) if found["port"] else None


def _filled(text: str, declaration: StreamDeclaration) -> str:
    """A text with the values of the variables that it names."""

    def value(found: re.Match[str]) -> str:
        if (known := os.environ.get(found["name"])) is None:
            raise CqelsError(
                f"stream <{declaration.iri}>: the environment has no variable {found['name']}",
                hint=f"export {found['name']}=…",
            )
        return known

    return _VARIABLE.sub(value, text)


def _first_line(path: Path, declaration: StreamDeclaration) -> str:
    try:
        return path.read_text().partition("\n")[0].removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = (getattr(error, "strerror", None) or "it is not text").lower()
        raise CqelsError(f"stream <{declaration.iri}>: {path} cannot be read: {reason}") from None
