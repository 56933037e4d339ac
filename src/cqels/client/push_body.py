"""What a program pushes, made into the bodies of requests: texts as they are, RDF as N-Triples, records as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from pyoxigraph import RdfFormat

from cqels.ingest.parse_errors import UNREADABLE, parsed, reason_of, triple_of
from cqels.ingest.rdf_objects import triples_of
from cqels.model.errors import CqelsError, DataError
from cqels.model.terms import XSD_DATE_TIME, Triple
from cqels.model.time import format_date_time, parse_time

Time: TypeAlias = datetime | int | str
"""A datetime, in UTC unless it has a zone, nanoseconds since 1970, or a text such as `4s`."""
MEDIA_TYPES = {
    "turtle": "text/turtle",
    "ntriples": "application/n-triples",
    "nquads": "application/n-quads",
    "trig": "application/trig",
    "jsonld": "application/ld+json",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
}
"""The formats of what is pushed."""
BATCH = 1_000
"""Elements of one request of `push_many`."""
_BYTES = 1 << 20
"""Bytes after which a request of `push_many` has enough."""
_TERM = rb'(?:<[^>]*>|_:[^\s<]+|"(?:[^"\\]|\\.)*"(?:\^\^<[^>]*>|@[\w-]+)?)'
_TIMED = re.compile(
    rb"\s*" + _TERM + rb"\s*<[^>]*>\s*(?:" + _TERM + rb'|[-+\d.]+)\s*(?:"(?:[^"\\]|\\.)*"[^\s.]*|\d+)\s*\.'
)
"""A triple with a time behind it, which is an element by itself."""
_TIMES = "a time is a datetime (in UTC unless it has a zone), an int of nanoseconds since 1970, or a text such as '4s'"


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a push, its media type where that is known, and the time of its element where it does not have it."""

    content: bytes
    media_type: str | None = None
    time: str | None = None


def body_of(data: Any, time: Time | Iterable[Time] | None = None, format: str | None = None) -> Body:
    """The body of one push; with a list of times it is a block of elements, one for each."""
    if time is not None and not isinstance(time, str | int | datetime) and isinstance(time, Iterable):
        return _block(data, time, format)
    moment = None if time is None else format_date_time(nanoseconds(time))
    if isinstance(data, str | bytes):
        return Body(_bytes(data), media_type_of(format), moment)
    if isinstance(data, Mapping) or _are_records(data):
        return Body(_json(data), media_type_of(format) or _kind_of_json(data), moment)
    if format is not None:
        raise CqelsError("a format is that of a text or of records", hint="leave out format= for triples and graphs")
    lines = "".join(f"{s} {p} {o} .\n" for s, p, o in triples_of(data))
    if not lines:
        raise DataError("an element has at least one triple")
    return Body(lines.encode(), MEDIA_TYPES["ntriples"], moment)


def media_type_of(format: str | None) -> str | None:
    """The media type of a format; one that is a media type is itself."""
    if format is None or "/" in format:
        return format
    if format not in MEDIA_TYPES:
        hint = f"it is one of {', '.join(MEDIA_TYPES)}, or a media type"
        raise CqelsError(f"'{format}' is not a format", hint=hint)
    return MEDIA_TYPES[format]


def nanoseconds(time: Time) -> int:
    """A time that a user gives; one of NumPy tells what it is in Python."""
    try:
        return parse_time(time.item() if hasattr(time, "item") else time)
    except ValueError as error:
        raise CqelsError(str(error), hint=_TIMES) from None


# ---------------------------------------------------------------- blocks


def _block(data: Any, times: Iterable[Time], format: str | None) -> Body:
    """Elements with their times: a line of timed N-Triples for each."""
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise CqelsError("there is one element and a list of times", hint="give a list of elements")
    elements, moments = list(data), list(times)
    if len(elements) != len(moments):
        raise CqelsError(f"there are {len(elements)} elements and {len(moments)} times")
    if not elements:
        raise CqelsError("the block has no element")
    lines = (timed_line(*each, format=format) for each in zip(elements, moments, strict=True))
    return Body(b"".join(lines), MEDIA_TYPES["ntriples"])


def timed_line(data: Any, time: Time, *, format: str | None = None) -> bytes:
    """An element as a line of timed N-Triples, each of its triples with the time.

    >>> timed_line("<http://ex.org/a> <http://ex.org/p> 1 .", "4s").decode()  # doctest: +ELLIPSIS
    '<http://ex.org/a> <http://ex.org/p> "1"^^<...integer> "1970-01-01T00:00:04Z"^^<...dateTime> .\\n'
    """
    stamp = f'"{format_date_time(nanoseconds(time))}"^^{XSD_DATE_TIME}'
    triples = _parsed(data, format) if isinstance(data, str | bytes) else triples_of(data)
    parts = [f"{s} {p} {o} {stamp} ." for s, p, o in triples]
    if not parts:
        raise DataError("an element has at least one triple")
    return " ".join(parts).encode() + b"\n"


def _parsed(text: str | bytes, format: str | None) -> list[Triple]:
    kinds = {None: RdfFormat.TURTLE, "turtle": RdfFormat.TURTLE, "ntriples": RdfFormat.N_TRIPLES}
    if format not in kinds:
        raise CqelsError(f"a block has no texts of the format {format}", hint="turtle, ntriples, or objects of RDF")
    try:
        return [triple_of(quad) for quad in parsed(_bytes(text), kinds[format])]
    except UNREADABLE as error:
        raise DataError(f"the data is neither N-Triples nor Turtle: {reason_of(error)}") from None


# ---------------------------------------------------------------- many


@dataclass
class Batcher:
    """Puts elements together into bodies, each of elements of one kind.

    An element is a pair of data and time, a record, or a text: timed N-Triples, a line of JSON or CSV, or a document.
    What the service would take as one element, were it in one body with others, has a body of its own.
    """

    format: str | None = None
    size: int = BATCH
    _lines: list[bytes] = field(default_factory=list)
    _kind: str | None = None
    _bytes: int = 0
    _header: bytes = b""
    """The first line of CSV, which each body begins with."""

    def add(self, element: Any) -> list[Body]:
        """Add an element: the bodies that are full, or cannot take it."""
        match element:
            case str() | bytes():
                return self._add_text(_bytes(element).removesuffix(b"\n") + b"\n")
            case Mapping():
                return self._add_line(_json(element) + b"\n", MEDIA_TYPES["ndjson"])
            case (data, time):
                return self._add_line(timed_line(data, time, format=self.format), MEDIA_TYPES["ntriples"])
            case _:
                raise CqelsError(
                    f"an element of type {type(element).__name__} is not taken",
                    hint="give pairs of data and time, records, or lines of timed N-Triples",
                )

    def flush(self) -> list[Body]:
        """What there is, as a body."""
        if not self._lines:
            return []
        made = Body(self._header + b"".join(self._lines), self._kind)
        self._lines, self._bytes = [], 0
        return [made]

    def _add_text(self, text: bytes) -> list[Body]:
        match self.format:
            case None | "ntriples" | "nquads" if _TIMED.match(text):
                return self._add_line(text, MEDIA_TYPES["ntriples"])
            case "json" | "ndjson" | "jsonl":
                return self._add_line(text, MEDIA_TYPES["ndjson"])
            case "csv" if not self._header:
                self._header = text
                return []
            case "csv":
                return self._add_line(text, MEDIA_TYPES["csv"])
            case _ if not text.strip():
                return []
            case _:
                return [*self.flush(), Body(text, media_type_of(self.format))]

    def _add_line(self, line: bytes, kind: str) -> list[Body]:
        made = self.flush() if kind != self._kind else []
        self._lines.append(line)
        self._bytes += len(line)
        self._kind = kind
        return made + self.flush() if len(self._lines) >= self.size or self._bytes >= _BYTES else made


def _are_records(data: Any) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(each, Mapping) for each in data)


def _kind_of_json(data: Any) -> str:
    """Records are lifted by the stream's template, unless they have keywords of JSON-LD."""
    first = data if isinstance(data, Mapping) else data[0]
    is_linked = any(str(key).startswith("@") for key in first)
    return MEDIA_TYPES["jsonld" if is_linked else "json"]


def _json(data: Any) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"the record cannot be written as JSON: {error}") from None


def _plain(value: object) -> object:
    """What JSON has no type for."""
    if isinstance(value, datetime):
        return format_date_time(nanoseconds(value))
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of type {type(value).__name__} is not taken")


def _bytes(text: str | bytes) -> bytes:
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise DataError(f"character {error.start + 1} of the text is half a character: it is not Unicode") from None
