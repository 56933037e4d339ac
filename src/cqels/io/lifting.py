"""Streams of CSV and of JSON lines, made into triples by a lifting template.

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

import csv
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from pyoxigraph import Literal, NamedNode

from cqels.io.declare import StreamDeclaration
from cqels.io.element import Element, Rejected
from cqels.io.faults import reason_of
from cqels.io.files import extension_of, lines_of
from cqels.io.gather import Gap, Piece, Reject, gather
from cqels.model.errors import DataError, Source, Span
from cqels.model.terms import RDF, RDF_TYPE, XSD, XSD_BOOLEAN, XSD_DOUBLE, XSD_INTEGER, Term, Triple
from cqels.model.time import parse_time, time_of

Value: TypeAlias = str | int | float | bool | None
Record: TypeAlias = Callable[[str], Value]
"""Gives the value of a column, None if it is absent; raises ValueError if it is not a single value."""

_PLACE = re.compile(r"\{([^{}]+)\}")
_TOP = ("subject", "delimiter", "prefixes", "time", "predicates")
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
    time_column: str
    time_format: str | None
    predicates: tuple[tuple[NamedNode, ObjectTemplate], ...]
    delimiter: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it names, in order."""
        names = [*_PLACE.findall(self.subject), self.time_column]
        for _, template in self.predicates:
            names += [template.column] if template.column is not None else []
            names += _PLACE.findall(template.iri or template.text or "")
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
        value = record(self.time_column)
        if value is None or value == "":
            raise ValueError("the record has no timestamp")
        if self.time_format is not None:
            try:
                return parse_time(datetime.strptime(str(value), self.time_format))
            except ValueError:
                raise ValueError(f"the timestamp '{value}' does not have the form {self.time_format}") from None
        time = time_of(Literal(str(value)), unit)
        if time is None:
            raise ValueError(f"the timestamp '{value}' is neither a dateTime nor an integer")
        return time


def read_template(path: Path) -> Template:
    """Read a template file; a DataError says what does not fit."""
    try:
        source = Source(path.read_text("utf-8"), str(path))
        table = tomllib.loads(source.text)
    except OSError as error:
        raise DataError(f"the template cannot be read: {error.strerror}", source=Source("", str(path))) from None
    except ValueError as error:  # TOML or UTF-8
        raise DataError(f"the template is not TOML: {reason_of(error)}", source=Source("", str(path))) from None
    try:
        return _template(table)
    except _TemplateFault as fault:
        start = source.text.find(fault.word) if fault.word else -1
        span = Span(start, start + len(fault.word)) if start >= 0 else None
        hint = "a template has subject, [time] with a column, and [predicates]"
        raise DataError(fault.message, source=source, span=span, hint=hint) from None


def read_records(declaration: StreamDeclaration, path: Path, template: Template, reject: Reject) -> Iterator[Element]:
    """The elements of a CSV file or a file of JSON lines."""
    lifted = _lifted(declaration, path, template, reject)
    if declaration.element in ("time", "subject"):
        return gather(declaration.iri, lifted, reject)
    return (
        Element(declaration.iri, piece.time, piece.triples)
        for piece in lifted
        if isinstance(piece, Piece) and piece.time is not None
    )


def _lifted(declaration: StreamDeclaration, path: Path, template: Template, reject: Reject) -> Iterator[Piece | Gap]:
    tabular = (declaration.format or extension_of(path)) in ("csv", "tsv")
    for line, text, record in _csv_records(path, template) if tabular else _json_records(path):
        place = f"{path}:{line}"
        try:
            if isinstance(record, str):
                raise ValueError(record)
            time = template.time(record, declaration.unit)
            triples = template.triples(record)
        except ValueError as error:
            reject(Rejected(declaration.iri, place, reason_of(error, text), text))
            yield Gap()
        else:
            key = (time, triples[0][0]) if declaration.element == "subject" else time
            yield Piece(key, time, triples, place, text)


def _csv_records(path: Path, template: Template) -> Iterator[tuple[int, str, Record | str]]:
    """Line, text and record (or why it is none) of each row after the header."""
    delimiter = template.delimiter or ("\t" if ".tsv" in path.suffixes else ",")
    texts: list[str] = []

    def lines() -> Iterator[str]:
        for _, line in lines_of(path):
            texts.append(line)
            yield line + "\n"

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    header = next(rows, [])
    missing = [name for name in template.columns if name not in header]
    if missing:
        hint = f"the columns are {', '.join(header)}"
        raise DataError(f"the file has no column '{missing[0]}'", source=Source("", str(path)), hint=hint)
    while True:
        texts.clear()
        start = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield start, "\n".join(texts), f"the record is not CSV: {error}"
            continue
        if row is None:
            return
        if not row:
            continue
        if len(row) != len(header):
            yield start, "\n".join(texts), f"the record has {len(row)} columns, the header has {len(header)}"
        else:
            yield start, "\n".join(texts), dict(zip(header, row, strict=True)).__getitem__


def _json_records(path: Path) -> Iterator[tuple[int, str, Record | str]]:
    for number, line in lines_of(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_constant=_no_constant)
        except ValueError as error:
            yield number, line, f"the record is not JSON: {reason_of(error)}"
            continue
        if isinstance(record, dict):
            yield number, line, _members(record)
        else:
            yield number, line, "the record is not a JSON object"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _members(record: dict[str, Any]) -> Record:
    def value(name: str) -> Value:
        found: Any = record
        for step in [name] if name in record else name.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, dict | list):
            raise ValueError(f"member '{name}' is not a single value")
        return found  # type: ignore[no-any-return]

    return value


def _filled(template: str, record: Record, *, encode: bool = False) -> str | None:
    """The template with its values, None if one of them is absent."""
    values: dict[str, str] = {}
    for name in _PLACE.findall(template):
        value = record(name)
        if value is None or value == "":
            return None
        text, _ = _lexical(value)
        values[name] = quote(text, safe="") if encode else text
    return _PLACE.sub(lambda place: values[place[1]], template)


def _lexical(value: str | int | float | bool) -> tuple[str, NamedNode | None]:
    match value:
        case bool():
            return str(value).lower(), XSD_BOOLEAN
        case int():
            return str(value), XSD_INTEGER
        case float():
            return repr(value), XSD_DOUBLE
        case _:
            return value, None


def _template(table: dict[str, Any]) -> Template:
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
    if not isinstance(time.get("column"), str):
        raise _TemplateFault("the template has no column for the time")
    if not isinstance(time.get("format", ""), str):
        raise _TemplateFault("the format of the time is not a text", "format")
    if not isinstance(table.get("delimiter", ","), str) or len(table.get("delimiter", ",")) != 1:
        raise _TemplateFault("the delimiter is not one character", "delimiter")
    if not predicates:
        raise _TemplateFault("the template has no predicates")
    return Template(
        _expanded(subject, prefixes),
        time["column"],
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
