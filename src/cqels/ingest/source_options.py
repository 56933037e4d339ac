"""Which live sources can be declared, by the schemes of their URLs, and the options that each takes.

What a source does with them lives in `cqels.pipeline.source`: a module for each, and a line in `source_registry.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

from cqels.model.time import parse_duration

STANDARD_INPUT = "-"
"""The path that means it; `./-` is a file of that name."""
Check: TypeAlias = Callable[[str], object]
"""Raises a ValueError if a text is not a value of an option."""
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://")


@dataclass(frozen=True, slots=True)
class Scheme:
    """A kind of source: what it is called, its options, and those of them that may be given several times.

    With `query` its URLs may have a query of their own.  With `prefix` all options that begin so are taken.
    """

    name: str
    options: Mapping[str, Check]
    repeated: tuple[str, ...] = ()
    query: bool = False
    prefix: str = ""

    def check_of(self, option: str) -> Check | None:
        if self.prefix and option.startswith(self.prefix):
            return _text
        return self.options.get(option)


def _text(text: str) -> None:
    if not text:
        raise ValueError("there is no value, write one behind '='")


def _one_of(*words: str) -> Check:
    def check(text: str) -> None:
        if text not in words:
            raise ValueError(f"'{text}' is not taken, it is {' or '.join((', '.join(words[:-1]), words[-1]))}")

    return check


def _header(text: str) -> None:
    name, colon, _ = text.partition(":")
    if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip()):
        raise ValueError(f"'{name}' is not a header, write for example 'header=Accept-Language: en'")


_LOGIN: dict[str, Check] = {"user": _text, "password": _text, "password-file": _text}
_TLS: dict[str, Check] = {
    "ca": _text,
    "certificate": _text,
    "key": _text,
    "insecure": _one_of("true", "false"),
}
_MQTT = Scheme(
    "MQTT",
    {
        **_LOGIN,
        **_TLS,
        "qos": _one_of("0", "1"),
        "client": _text,
        "version": _one_of("3.1.1", "5"),
        "retained": _one_of("take", "ignore"),
        "session": parse_duration,
        "keepalive": parse_duration,
    },
)
_KAFKA = Scheme(
    "Kafka",
    {
        **_LOGIN,
        **_TLS,
        "start": _one_of("earliest", "latest"),
        "group": _text,
        "security": _one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        "mechanism": _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    },
    prefix="kafka.",
)
_WEBSOCKET = Scheme(
    "WebSocket",
    {**_LOGIN, **_TLS, "header": _header, "subprotocol": _text, "send": _text, "ping": parse_duration},
    repeated=("header", "send"),
    query=True,
)
_SSE = Scheme(
    "server-sent events",
    {**_LOGIN, **_TLS, "header": _header, "event": _text},
    repeated=("header", "event"),
    query=True,
)
_SOCKET = Scheme("a socket", {})
_STANDARD_INPUT = Scheme("standard input", {})
_FILES = Scheme("files", {})

SCHEMES: dict[str, Scheme] = {
    "mqtt": _MQTT,
    "mqtts": _MQTT,
    "kafka": _KAFKA,
    "ws": _WEBSOCKET,
    "wss": _WEBSOCKET,
    "http": _SSE,
    "https": _SSE,
    "sse+http": _SSE,
    "sse+https": _SSE,
    "tcp": _SOCKET,
    STANDARD_INPUT: _STANDARD_INPUT,
}


def scheme_name(path: str) -> str | None:
    """The word in `SCHEMES` by which a declared path is known, None if it is one of files."""
    if path == STANDARD_INPUT:
        return STANDARD_INPUT
    found = _SCHEME.match(path)
    return None if found is None else found["scheme"].lower()


def scheme_of(path: str) -> Scheme:
    """What a declared path is; raises a ValueError if there is no such source."""
    name = scheme_name(path)
    if name is None:
        return _FILES
    if name not in SCHEMES:
        known = [each for each in SCHEMES if each != STANDARD_INPUT]
        near = get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}://?" if near else f"there are {', '.join(f'{each}://' for each in known)}"
        raise ValueError(f"there is no source {name}://, {meant}")
    return SCHEMES[name]
