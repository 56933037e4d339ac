"""Streams of records (CSV, JSON lines, Parquet), made into triples by a lifting template.

A template is a TOML file. `{name}` stands for the value of a column or of a JSON member (`{place.city}` for a member
inside another); in an IRI it is percent-encoded. A record without a value for a predicate has no triple of it.

    subject = "http://example.org/trip/{id}"
    delimiter = ";"                             # of CSV, a comma if absent

    [prefixes]
    ex = "http://example.org/"

    [time]
    column = "pickup"                           # a dateTime, or an integer in the stream's unit
    format = "%d/%m/%Y %H:%M"                   # unless it is written otherwise, as strptime reads it (UTC)

    [predicates]
    a = { iri = "ex:Trip" }
    "ex:fare" = { column = "fare", datatype = "xsd:decimal" }
    "ex:driver" = { iri = "http://example.org/driver/{driver}" }
    "ex:label" = { text = "trip {id}", language = "en" }
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyoxigraph import Literal, NamedNode

from cqels.ingest.declarations import FormatName, StreamDeclaration
from cqels.ingest.element import Element, Rejected
from cqels.ingest.element_grouping import Gap, Piece, Reject, gather
from cqels.ingest.input_files import lines_of
from cqels.ingest.parse_errors import UNREADABLE, reason_of
from cqels.ingest.record_readers import (
    Instant,
    Numbered,
    Record,
    check_columns,
    csv_names,
    parquet_records,
)
from cqels.model.errors import DataError, Source, Span
from cqels.model.terms import (
    RDF,
    RDF_TYPE,
    XSD,
    XSD_BOOLEAN,
    XSD_DATE,
    XSD_DATE_TIME,
    XSD_DECIMAL,
    XSD_DOUBLE,
    XSD_INTEGER,
    Term,
    Triple,
)
from cqels.model.time import format_date_time, no_time_reason, parse_time, time_of

PLACE = re.compile(r"\{([^{}]+)\}")
"""Where a template has the value of a column."""
_TOP = ("subject", "delimiter", "prefixes", "time", "predicates")
_UNBOUNDED = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
_OBJECT = ("column", "iri", "text", "datatype", "language")


class _TemplateFault(Exception):
    """What does not fit in a template, and a word of the file that shows the place."""

    def __init__(self, message: str, word: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.word = word


@dataclass(frozen=True, slots=True)
class ObjectTemplate:
    """Where an object comes from: exactly one of a column, an IRI template and a text template."""

    column: str | None = None
    iri: str | None = None
    text: str | None = None
    datatype: NamedNode | None = None
    language: str | None = None

    def term(self, record: Record) -> Term | None:
        """The object in this record, None if one of its values is absent."""
        if self.iri is not None:
            iri = _filled(self.iri, record, encode=True)
            return None if iri is None else NamedNode(iri)
        value = record(self.column) if self.column is not None else _filled(self.text or "", record)
        if value is None or value == "":
            return None
        text, datatype = _lexical(value)
        if self.language is not None:
            return Literal(text, language=self.language)
        return Literal(text, datatype=self.datatype or datatype)


@dataclass(frozen=True, slots=True)
class Template:
    """How a record becomes an element."""

    subject: str
    time_column: str | None
    time_format: str | None
    predicates: tuple[tuple[NamedNode, ObjectTemplate], ...]
    delimiter: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it names, in order."""
        names = [*PLACE.findall(self.subject)]
        names += [self.time_column] if self.time_column is not None else []
        for _, template in self.predicates:
            names += [template.column] if template.column is not None else []
            names += PLACE.findall(template.iri or template.text or "")
        return tuple(dict.fromkeys(names))

    def triples(self, record: Record) -> tuple[Triple, ...]:
        iri = _filled(self.subject, record, encode=True)
        if iri is None:
            raise ValueError("the record has no value for the subject")
        subject = NamedNode(iri)
        objects = ((predicate, template.term(record)) for predicate, template in self.predicates)
        triples = tuple((subject, predicate, term) for predicate, term in objects if term is not None)
        if not triples:
            raise ValueError("the record has no value for any predicate")
        return triples

    def time(self, record: Record, unit: str) -> int:
        value = None if self.time_column is None else record(self.time_column)
        if value is None or value == "":
            raise ValueError("the record has no timestamp")
        if isinstance(value, Instant):
            return parse_time(value.nanoseconds)
        if isinstance(value, date):
            return parse_time(datetime.combine(value, time(), UTC))
        if self.time_format is not None:
            try:
                moment = datetime.strptime(str(value), self.time_format)
            except UNREADABLE:
                raise ValueError(f"the timestamp '{value}' does not have the form {self.time_format}") from None
            return parse_time(moment)
        literal = Literal(str(value))
        if (found := time_of(literal, unit)) is None:
            raise ValueError(no_time_reason(literal, "'"))
        return found


def read_template(path: Path, *, timed: bool = True) -> Template:
    """Read a template file; a DataError says what does not fit. Unless `timed`, it may leave out the time."""
    try:
        source = Source(path.read_text("utf-8"), str(path))
        table = tomllib.loads(source.text)
    except OSError as error:
        raise DataError(f"the template cannot be read: {error.strerror}", source=Source("", str(path))) from None
    except ValueError as error:  # TOML or UTF-8
        raise DataError(f"the template is not TOML: {reason_of(error)}", source=Source("", str(path))) from None
    try:
        return _template(table, timed=timed)
    except _TemplateFault as fault:
        start = source.text.find(fault.word) if fault.word else -1
        span = Span(start, start + len(fault.word)) if start >= 0 else None
        hint = "a template has subject, [time] with a column, and [predicates]"
        raise DataError(fault.message, source=source, span=span, hint=hint) from None


def check_records(path: Path, format: FormatName, template: Template) -> None:
    """Refuse a file without the columns that the template names."""
    if format == "csv":
        names = csv_names((line for _, line in lines_of(path)), delimiter_of(template, path), str(path))
        check_columns(template.columns, names, str(path))
    else:
        next(parquet_records(path, template.columns), None)


def delimiter_of(template: Template, path: Path) -> str:
    """What is between two values in a CSV file."""
    return template.delimiter or ("\t" if ".tsv" in path.suffixes else ",")


def lift_records(
    declaration: StreamDeclaration, place: str, records: Iterable[Numbered], template: Template, reject: Reject
) -> Iterator[Element]:
    """The elements of records, which are at a place with their numbers."""
    lifted = _lifted(declaration, place, records, template, reject)
    if declaration.element in ("time", "subject"):
        return gather(declaration.iri, lifted, reject)
    return (
        Element(declaration.iri, piece.time, piece.triples)
        for piece in lifted
        if isinstance(piece, Piece) and piece.time is not None
    )


def _lifted(
    declaration: StreamDeclaration, place: str, records: Iterable[Numbered], template: Template, reject: Reject
) -> Iterator[Piece | Gap]:
    for number, text, record in records:
        at = f"{place}:{number}"
        try:
            if isinstance(record, str):
                raise ValueError(record)
            time = template.time(record, declaration.unit)
            triples = template.triples(record)
        except UNREADABLE as error:
            reject(Rejected(declaration.iri, at, reason_of(error, text), text))
            yield Gap()
        else:
            key = (time, triples[0][0]) if declaration.element == "subject" else time
            yield Piece(key, time, triples, at, text)


def _filled(template: str, record: Record, *, encode: bool = False) -> str | None:
    """The template with its values, None if one of them is absent."""
    values: dict[str, str] = {}
    for name in PLACE.findall(template):
        value = record(name)
        if value is None or value == "":
            return None
        text, _ = _lexical(value)
        values[name] = quote(text, safe="") if encode else text
    return PLACE.sub(lambda place: values[place[1]], template)


def _lexical(value: str | int | float | bool | Decimal | date | Instant) -> tuple[str, NamedNode | None]:
    match value:
        case bool():
            return str(value).lower(), XSD_BOOLEAN
        case int():
            return str(value), XSD_INTEGER
        case float():
            return repr(value) if math.isfinite(value) else _UNBOUNDED[str(value)], XSD_DOUBLE
        case Decimal():
            return f"{value:f}", XSD_DECIMAL
        case Instant():
            return format_date_time(value.nanoseconds), XSD_DATE_TIME
        case date():
            return value.isoformat(), XSD_DATE
        case _:
            return value, None


def _template(table: dict[str, Any], *, timed: bool) -> Template:
    for name in table:
        if name not in _TOP:
            raise _TemplateFault(f"a template has no '{name}'", name)
    prefixes = {"xsd": XSD, "rdf": RDF} | _table(table, "prefixes")
    for prefix, namespace in prefixes.items():
        if not isinstance(namespace, str):
            raise _TemplateFault(f"prefix '{prefix}' does not stand for a text", prefix)
    subject, time, predicates = table.get("subject"), _table(table, "time"), _table(table, "predicates")
    if not isinstance(subject, str):
        raise _TemplateFault("the template has no subject")
    if not isinstance(time.get("column"), str) and (timed or "column" in time):
        raise _TemplateFault("the template has no column for the time")
    if not isinstance(time.get("format", ""), str):
        raise _TemplateFault("the format of the time is not a text", "format")
    if not isinstance(table.get("delimiter", ","), str) or len(table.get("delimiter", ",")) != 1:
        raise _TemplateFault("the delimiter is not one character", "delimiter")
    if not predicates:
        raise _TemplateFault("the template has no predicates")
    return Template(
        _expanded(subject, prefixes),
        time.get("column"),
        time.get("format"),
        tuple((_predicate(name, prefixes), _object(name, value, prefixes)) for name, value in predicates.items()),
        table.get("delimiter"),
    )


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise _TemplateFault(f"'{name}' is not a table", name)
    return value


def _predicate(name: str, prefixes: dict[str, str]) -> NamedNode:
    return RDF_TYPE if name == "a" else _named(name, prefixes)


def _object(name: str, value: Any, prefixes: dict[str, str]) -> ObjectTemplate:
    parts = {"column": value} if isinstance(value, str) else value
    if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
        raise _TemplateFault(f"'{name}' is neither the name of a column nor a table of texts", name)
    for part in parts:
        if part not in _OBJECT:
            raise _TemplateFault(f"an object has no '{part}', only {', '.join(_OBJECT)}", part)
    if len(parts.keys() & {"column", "iri", "text"}) != 1:
        raise _TemplateFault(f"'{name}' needs one of column, iri and text", name)
    return ObjectTemplate(
        parts.get("column"),
        _expanded(parts["iri"], prefixes) if "iri" in parts else None,
        parts.get("text"),
        _named(parts["datatype"], prefixes) if "datatype" in parts else None,
        parts.get("language"),
    )


def _named(name: str, prefixes: dict[str, str]) -> NamedNode:
    try:
        return NamedNode(_expanded(name, prefixes))
    except ValueError:
        raise _TemplateFault(f"'{name}' is not an IRI", name) from None


def _expanded(name: str, prefixes: dict[str, str]) -> str:
    prefix, colon, local = name.partition(":")
    return prefixes[prefix] + local if colon and prefix in prefixes else name
