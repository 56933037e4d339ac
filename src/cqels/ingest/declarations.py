"""Streams as they are declared and registered: files, format, order in time; the reading itself lives in `read`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from pyoxigraph import NamedNode

from cqels.model.errors import CqelsError, Source, Span
from cqels.model.time import parse_duration, unit_nanoseconds

ElementKind: TypeAlias = Literal["line", "time", "subject", "document", "graph"]
FormatName: TypeAlias = Literal["ntriples", "turtle", "trig", "jsonld", "csv", "json", "parquet"]

FORMATS: dict[str, FormatName] = {
    "nt": "ntriples",
    "nq": "ntriples",
    "n3t": "ntriples",
    "ntriples": "ntriples",
    "nquads": "ntriples",
    "ttl": "turtle",
    "turtle": "turtle",
    "n3": "turtle",
    "trig": "trig",
    "jsonld": "jsonld",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "parquet": "parquet",
}
"""Every name of a format, the file extensions among them. N-Quads are N-Triples lines with a graph in the place of the
time, so one reader takes both.  A file named `.n3` may also have lines with times."""

ELEMENTS: dict[FormatName, tuple[ElementKind, ...]] = {
    "ntriples": ("line", "time", "subject", "graph"),
    "turtle": ("document", "line", "subject"),
    "trig": ("graph", "document", "line"),
    "jsonld": ("document", "line", "graph", "subject"),
    "csv": ("line", "time", "subject"),
    "json": ("line", "time", "subject"),
    "parquet": ("line", "time", "subject"),
}
"""What may be an element in a format; the first is the default."""
RECORDS: tuple[FormatName, ...] = ("csv", "json", "parquet")
"""The formats that need a template."""
FUTURE = 86_400 * 10**9
"""How far beyond the wall clock the times of live sources may be, in nanoseconds, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """A stream and where its elements come from.

    `path` is a file, a glob pattern, a directory, or the name of a live source. `element` and `format` are None
    where the file's extension and content decide. `time` is the predicate whose object is an element's time. `lateness`
    and `idle` are nanoseconds for the clock that orders the stream; with the clock `arrival` an element's time is when
    it is read. `template` says how records (CSV, JSON, Parquet) become triples. An element further beyond the wall
    clock than `future` is rejected; None is no limit for files that end, and a day where more is waited for.
    """

    iri: str
    path: str
    element: ElementKind | None = None
    time: NamedNode | None = None
    unit: str = "ms"
    lateness: int = 0
    idle: int = 0
    clock: str = "event"
    format: FormatName | None = None
    template: Path | None = None
    future: int | None = None


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """A registered stream: how long it is waited for after a later element, and how long its silence holds others.

    With `arrival` an element's time is when it arrives, whatever time it carries.
    """

    iri: str
    lateness: int = 0
    idle: int = 0
    arrival: bool = False


def settings_of(declarations: Iterable[StreamDeclaration]) -> dict[str, StreamSettings]:
    """The declared streams by their IRIs, in the order in which each is first declared.

    A stream may have several sources, each declared by itself; what orders its elements is declared the same each time.
    """
    streams: dict[str, StreamSettings] = {}
    for each in declarations:
        settings = StreamSettings(each.iri, each.lateness, each.idle, each.clock == "arrival")
        check_same(streams.setdefault(each.iri, settings), settings)
    return streams


def check_same(before: StreamSettings, now: StreamSettings) -> None:
    """Refuse a stream that is declared again in another way."""
    for name in ("lateness", "idle", "arrival"):
        if getattr(before, name) != getattr(now, name):
            word = "clock" if name == "arrival" else name
            hint = f"all sources of a stream have the same {word}: give it with each of them, or with none"
            raise CqelsError(f"stream <{now.iri}> is declared twice, with another {word}", hint=hint)


def _element(text: str) -> ElementKind:
    for kind in get_args(ElementKind):
        if text == kind:
            return kind  # type: ignore[no-any-return]
    raise ValueError(f"'{text}' is not a kind of element, it is one of {', '.join(get_args(ElementKind))}")


def _format(text: str) -> FormatName:
    name = text.lower().lstrip(".").replace("-", "")
    if name not in FORMATS:
        raise ValueError(f"'{text}' is not a format, it is one of {', '.join(get_args(FormatName))}")
    return FORMATS[name]


def _predicate(text: str) -> NamedNode:
    try:
        return NamedNode(text[1:-1] if text.startswith("<") and text.endswith(">") else text)
    except ValueError:
        example = "<http://www.w3.org/ns/prov#generatedAtTime>"
        raise ValueError(f"'{text}' is not an IRI, write it in full, as in {example}") from None


def _unit(text: str) -> str:
    if unit_nanoseconds(text) is None:
        raise ValueError(f"'{text}' is not a unit of time, the units are ns, us, ms, s, m, h, d, w")
    return text.lower()


def _clock(text: str) -> str:
    if text not in ("event", "arrival"):
        raise ValueError(f"'{text}' is not a clock, it is event or arrival")
    return text


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "element": _element,
    "time": _predicate,
    "unit": _unit,
    "lateness": parse_duration,
    "idle": parse_duration,
    "clock": _clock,
    "format": _format,
    "template": Path,
    "future": parse_duration,
}
_OPTIONS_HINT = f"the options are {', '.join(_OPTIONS)}"
_HINT = re.compile(r", (?=it is |the units |write )")
"""Where the hint of a sentence begins."""
_OPTION = re.compile(r"(?P<name>[^=&]*)(?:=(?P<value><[^>]*>|[^&]*))?(?P<end>&|$)")


def declare(iri: str, path: str | os.PathLike[str], **options: Any) -> StreamDeclaration:
    """A declaration from the words of the command line as keyword arguments: texts are read, other values kept.

    >>> declare("http://ex.org/s", "trips.nt", lateness="2s").lateness
    2000000000
    """
    values = {}
    for name, value in options.items():
        if name not in _OPTIONS:
            raise CqelsError(f"stream option '{name}' does not exist", hint=_OPTIONS_HINT)
        try:
            values[name] = _OPTIONS[name](value) if isinstance(value, str) else value
        except ValueError as error:
            raise CqelsError(f"the {name} of stream <{iri}> cannot be read: {error}") from None
    try:
        NamedNode(iri)
    except ValueError:
        raise CqelsError(f"stream '{iri}' is not an IRI", hint="write it in full, as in http://example.org/s") from None
    return StreamDeclaration(iri, os.fspath(path), **values)


def parse_declaration(text: str) -> StreamDeclaration:
    """Read `<iri>=path?option=value&option=value`.

    The brackets may be left out if the IRI has neither `=` nor `?`; options begin at the path's first `?`.
    """
    source = Source(text, "<stream>")

    def error(message: str, start: int, end: int, hint: str) -> CqelsError:
        return CqelsError(message, span=Span(start, end), source=source, hint=hint)

    form = "write '<iri>=path?option=value&option=value'"
    if text.startswith("<"):
        close = text.find(">")
        if close < 0 or text[close + 1 : close + 2] != "=":
            raise error("a stream is declared as '<iri>=path'", 0, len(text), form)
        iri, iri_start, rest = text[1:close], 1, close + 2
    else:
        equals = text.find("=")
        if equals < 0:
            raise error("a stream is declared as '<iri>=path'", 0, len(text), form)
        if "?" in text[:equals]:
            raise error("the stream's IRI does not show where it ends", 0, equals, "write the IRI in angle brackets")
        iri, iri_start, rest = text[:equals], 0, equals + 1
    try:
        NamedNode(iri)
    except ValueError:
        hint = "write it in full, as in <http://example.org/s>"
        raise error(f"stream '{iri}' is not an IRI", iri_start, iri_start + len(iri), hint) from None
    path, _, _ = text[rest:].partition("?")
    if not path:
        raise error("the stream has no path", 0, len(text), form)

    values: dict[str, Any] = {}
    position = rest + len(path) + 1
    while position < len(text):
        option = _OPTION.match(text, position)
        if option is None or option["value"] is None:
            end = option.end("name") if option else len(text)
            raise error(f"'{text[position:end]}' is not an option with a value", position, end, _OPTIONS_HINT)
        name, value = option["name"], option["value"]
        if name not in _OPTIONS:
            raise error(f"stream option '{name}' does not exist", option.start(), option.end("name"), _OPTIONS_HINT)
        if name in values:
            raise error(f"stream option '{name}' is given twice", option.start(), option.end("name"), "remove one")
        try:
            values[name] = _OPTIONS[name](value)
        except ValueError as problem:
            message, *hints = _HINT.split(str(problem), maxsplit=1)
            raise error(message, option.start("value"), option.end("value"), *(hints or [_OPTIONS_HINT])) from None
        position = option.end()
    return StreamDeclaration(iri, path, **values)
