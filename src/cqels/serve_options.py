"""The options of `cqels serve`: the words of the table `serve` of a pipeline file, and of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cqels.model.choices import LogFormat, Overflow
from cqels.option_values import (
    Naming,
    Reader,
    Told,
    choice_of,
    count_of,
    flag_of,
    hosts_of,
    path_of,
    read_words,
    refused,
    several,
    size_of,
    text_of,
)

TABLE = "serve"


def port_of(option: str, value: object) -> int:
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 16:
        raise refused(option, value, "the number of a port, as 7070, or 0 for any that is free")
    return number


def streams_of(option: str, value: object) -> tuple[Mapping[str, object], ...]:
    """Tables `[[serve.streams]]`; what their words mean is known to `cqels.serve.served_stream`."""
    entries = value if isinstance(value, list | tuple) else [value]
    for each in entries:
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
            raise refused(option, each, 'a table with a name, [[serve.streams]] and name = "obs"')
    return tuple(entries)


def _option(read: Reader, default: Any = None, *, place: bool = False) -> Any:
    """A field that `read` reads; the value of a `place` is a file."""
    return field(default=default, metadata={"read": read, "place": place})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where a service listens, who may use it, and how much it takes."""

    host: str = _option(text_of, "127.0.0.1")
    """The address that it listens at; 0.0.0.0 is all of this machine."""
    port: int = _option(port_of, 7070)
    """0 is any that is free."""
    base: str | None = _option(text_of)
    """The IRI that names without a scheme are below; None is http://localhost:7070/."""
    streams: tuple[Mapping[str, object], ...] = _option(streams_of, ())
    """The streams that elements are pushed to, as far as they are not like others."""
    tokens: Path | None = _option(path_of, place=True)
    """A file with tokens and their rights; None is the variable CQELS_TOKENS."""
    open: bool = _option(flag_of, False)
    """Everybody may do everything, though other machines reach it."""
    tls_cert: Path | None = _option(path_of, place=True)
    tls_key: Path | None = _option(path_of, place=True)
    proxy: tuple[str, ...] = _option(hosts_of, ())
    """Addresses of proxies, whose words about clients are believed."""
    allow_origin: tuple[str, ...] = _option(several(text_of), ())
    """Web sites whose pages may use the service."""
    allow_host: tuple[str, ...] = _option(hosts_of, ())
    """Names that the service is called by; any, where other machines reach it."""
    max_body: int = _option(size_of, 64 << 20)
    """Bytes of a request."""
    max_queries: int = _option(count_of, 1000)
    max_streams: int = _option(count_of, 1000)
    max_connections: int = _option(count_of, 4096)
    """Requests and WebSockets at the same time."""
    max_requests: int | None = _option(count_of)
    """Requests of one client in a second."""
    memory: int | None = _option(size_of)
    """Bytes that the process may have; None is three quarters of the machine's."""
    results: int = _option(size_of, 256 << 20)
    """Bytes of results that readers can go back to."""
    inbox: str = _option(text_of, "1GB")
    """Bytes of elements that wait to be processed, of each stream."""
    overflow: Overflow = _option(choice_of(Overflow), "block")
    """What to do with more of them."""
    log_format: LogFormat = _option(choice_of(LogFormat), "text")


WORDS: dict[str, Reader] = {each.name: each.metadata["read"] for each in fields(ServeOptions)}
PLACES = frozenset(each.name for each in fields(ServeOptions) if each.metadata["place"])
"""Those whose values are files."""


def read_serve_options(mapping: Mapping[str, object], named: Naming, told: Told) -> ServeOptions:
    """The table of a pipeline file; words that are left out have their defaults."""
    return ServeOptions(**read_words(TABLE, mapping.get(TABLE, {}), WORDS, named, (TABLE,), told))
