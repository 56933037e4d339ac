"""Streams as they are declared and registered: files, format, order in time; the reading itself lives in `read`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import unquote

from pyoxigraph import NamedNode

from cqels.ingest.source_options import Check, Scheme, scheme_of
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

    `path` is a file, a glob pattern, a directory, or the URL of a live source. `element` and `format` are None
    where the file's extension and content decide. `time` is the predicate whose object is an element's time; with
    `own_time` it is the time that a live source has for a message. `lateness` and `idle` are nanoseconds for the clock
    that orders the stream; with the clock `arrival` an element's time is when it is read. `template` says how records
    (CSV, JSON, Parquet) become triples, `columns` are the names of those of CSV that has no header. An element further
    beyond the wall clock than `future` is rejected; None is no limit for files that end, and a day where more is waited
    for. `source` has the options of a live source as they are written, which may be secret. A stream that is
    `punctuated` has promises about subjects (`punctuations.py`).
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
    own_time: bool = False
    columns: tuple[str, ...] = ()
    source: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    punctuated: bool = False


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """A registered stream: how long it is waited for after a later element, and how long its silence holds others.

    With `arrival` an element's time is when it arrives, whatever time it carries.  `unit` is what the times of promises
    count (`punctuations.py`), where these are integers; a stream that is `punctuated` has promises about subjects.
    """

    iri: str
    lateness: int = 0
    idle: int = 0
    arrival: bool = False
    unit: str = "ms"
    punctuated: bool = False


def settings_of(declarations: Iterable[StreamDeclaration]) -> dict[str, StreamSettings]:
    """The declared streams by their IRIs, in the order in which each is first declared.

    A stream may have several sources, each declared by itself; what orders its elements is declared the same each time.
    """
    streams: dict[str, StreamSettings] = {}
    for each in declarations:
        settings = StreamSettings(
            each.iri, each.lateness, each.idle, each.clock == "arrival", each.unit, each.punctuated
        )
        check_same(streams.setdefault(each.iri, settings), settings)
    return streams


def check_same(before: StreamSettings, now: StreamSettings) -> None:
    """Refuse a stream that is declared again in another way."""
    for name in ("lateness", "idle", "arrival", "punctuated"):
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


def _time(text: str) -> NamedNode | None:
    return None if text in OWN_TIME else _predicate(text)


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len({*names}) < len(names):
        raise ValueError(f"'{text}' are not names of columns, write for example time,sensor,value")
    return names


def _unit(text: str) -> str:
    if unit_nanoseconds(text) is None:
        raise ValueError(f"'{text}' is not a unit of time, the units are ns, us, ms, s, m, h, d, w")
    return text.lower()


def _clock(text: str) -> str:
    if text not in ("event", "arrival"):
        raise ValueError(f"'{text}' is not a clock, it is event or arrival")
    return text


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"'{text}' is neither true nor false")
    return text == "true"


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "element": _element,
    "time": _time,
    "unit": _unit,
    "lateness": parse_duration,
    "idle": parse_duration,
    "clock": _clock,
    "format": _format,
    "template": Path,
    "future": parse_duration,
    "punctuated": _flag,
    "columns": _columns,
}
OWN_TIME = ("source", "kafka")
"""Words for a time that is the message's own."""
_HINT = re.compile(r", (?=it is |the units |write |did you |there are )")
"""Where the hint of a sentence begins."""
_OPTION = re.compile(r"(?P<name>[^=&]*)(?:=(?P<value><[^>]*>|[^&]*))?(?P<end>&|$)")


def declare(iri: str, path: str | os.PathLike[str], **options: Any) -> StreamDeclaration:
    """A declaration from the words of the command line as keyword arguments: texts are read, other values kept.

    Options of a live source are texts, or a list of texts where one may be given several times.

    >>> declare("http://ex.org/s", "trips.nt", lateness="2s").lateness
    2000000000
    >>> declare("http://ex.org/s", "mqtt://localhost/a/+", qos="1").source
    (('qos', '1'),)
    """
    place = os.fspath(path)
    try:
        scheme = scheme_of(place)
    except ValueError as error:
        raise CqelsError(f"stream <{iri}>: {error}") from None
    values, source = {}, []
    for word, value in options.items():
        name = word if word in _OPTIONS else word.replace("_", "-")
        try:
            if name in _OPTIONS:
                values[name] = _OPTIONS[name](value) if isinstance(value, str) else value
            elif (check := scheme.check_of(name)) is None:
                raise CqelsError(f"stream option '{word}' does not exist", hint=_meant(word, scheme))
            else:
                source += _checked_source(name, value, check)
        except ValueError as error:
            raise CqelsError(f"the {name} of stream <{iri}> cannot be read: {error}") from None
    try:
        NamedNode(iri)
    except ValueError:
        raise CqelsError(f"stream '{iri}' is not an IRI", hint="write it in full, as in http://example.org/s") from None
    own = options.get("time") in OWN_TIME
    if own and not is_live_path(place):
        raise CqelsError(f"stream <{iri}>: {_NO_OWN_TIME}", hint=_NO_OWN_TIME_HINT)
    return StreamDeclaration(iri, place, **values, own_time=own, source=tuple(source))


def option_names(path: str, words: Iterable[str] = ()) -> list[str]:
    """The options of a stream with a path, those of its source among them, and those of some words that it takes."""
    scheme = scheme_of(path)
    return [*_OPTIONS, *scheme.options, *(word for word in words if scheme.prefix and word.startswith(scheme.prefix))]


def is_live_path(path: str) -> bool:
    """Whether a path is the URL of a live source or standard input, and not one of files."""
    return scheme_of(path) is not scheme_of("")


_NO_OWN_TIME = "files have no time of their own"
_NO_OWN_TIME_HINT = "time=<iri> names the predicate that has it; clock=arrival takes the time at which it is read"


def _checked_source(name: str, value: object, check: Check) -> list[tuple[str, str]]:
    texts = [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
    for text in texts:
        check(text)
    return [(name, text) for text in texts]


def _meant(word: str, scheme: Scheme) -> str:
    known = [*_OPTIONS, *scheme.options]
    near = [each for each in known if word and each.startswith(word)] or get_close_matches(word, known, n=1)
    told = f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}"
    if scheme.query:
        told += "; a query of the URL itself ends with a second '?': http://host/path?its=query?format=json"
    return told


def parse_declaration(text: str) -> StreamDeclaration:
    """Read `<iri>=path?option=value&option=value`.

    The brackets may be left out if the IRI has neither `=` nor `?`; options begin at the path's first `?`.  The URL of
    a live source may have a query of its own: then they begin at the second `?`.
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
    try:
        scheme = scheme_of(path)
    except ValueError as problem:
        message, *hints = _HINT.split(str(problem), maxsplit=1)
        raise error(message, rest, rest + len(path), *hints) from None
    if scheme.query:
        path = _with_query(text[rest:], path)

    values: dict[str, Any] = {}
    own = False
    options: list[tuple[str, str]] = []
    given: set[str] = set()
    position = rest + len(path) + 1
    while position < len(text):
        option = _OPTION.match(text, position)
        if option is None or option["value"] is None:
            end = option.end("name") if option else len(text)
            raise error(f"'{text[position:end]}' is not an option with a value", position, end, _meant("", scheme))
        name, value = option["name"], option["value"]
        check = _OPTIONS.get(name) or scheme.check_of(name)
        if check is None:
            message = f"stream option '{name}' does not exist"
            raise error(message, option.start(), option.end("name"), _meant(name, scheme))
        if name in given and name not in scheme.repeated:
            raise error(f"stream option '{name}' is given twice", option.start(), option.end("name"), "remove one")
        given.add(name)
        try:
            if name in _OPTIONS:
                values[name] = check(value)
            else:
                value = unquote(value)
                check(value)
                options.append((name, value))
            if name == "time" and value in OWN_TIME:
                own = True
                if not is_live_path(path):
                    raise ValueError(_NO_OWN_TIME)
        except ValueError as problem:
            message, *hints = _HINT.split(str(problem), maxsplit=1)
            if message == _NO_OWN_TIME:
                hints = [_NO_OWN_TIME_HINT]
            hint = hints[0] if hints else _meant("", scheme)
            raise error(message, option.start("value"), option.end("value"), hint) from None
        position = option.end()
    return StreamDeclaration(iri, path, **values, own_time=own, source=tuple(options))


def _with_query(text: str, path: str) -> str:
    """The URL that a text begins with, and its query if another `?` ends it."""
    query = text[len(path) + 1 :]
    plain = re.sub(r"<[^>]*>", lambda found: "_" * len(found[0]), query)
    return text[: len(path) + 1 + plain.index("?")] if "?" in plain else path
