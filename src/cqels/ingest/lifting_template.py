"""Streams of records (CSV, JSON lines, Parquet), made into elements by a lifting template.

What a template says is in `template_model.py`, how it is written in `template_file.py` (TOML) and `yarrrml.py`:

    subject = "http://example.org/trip/{id}"

    [prefixes]
    ex = "http://example.org/"

    [time]
    column = "pickup"                           # a dateTime, or an integer in the stream's unit

    [predicates]
    a = { iri = "ex:Trip" }
    "ex:fare" = { column = "fare", datatype = "xsd:decimal" }
    "ex:driver" = { iri = "http://example.org/driver/{driver}" }
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from cqels.ingest.declarations import FormatName, StreamDeclaration
from cqels.ingest.element import Element, Rejected
from cqels.ingest.element_grouping import Gap, Piece, Reject, gather
from cqels.ingest.input_files import lines_of
from cqels.ingest.parse_errors import UNREADABLE, reason_of
from cqels.ingest.record_readers import Numbered, check_columns, csv_names, csv_records, json_records, parquet_records
from cqels.ingest.template_file import TemplateFault, TemplateReader
from cqels.ingest.template_model import NodeTemplate, ObjectTemplate, Template
from cqels.ingest.template_times import TimeTemplate
from cqels.ingest.template_values import ALONE, Surroundings
from cqels.ingest.timed_lines import blank_scope
from cqels.model.errors import DataError, Source, Span

__all__ = [
    "NodeTemplate",
    "ObjectTemplate",
    "Template",
    "TimeTemplate",
    "check_records",
    "delimiter_of",
    "lift_records",
    "lifted_pieces",
    "read_template",
    "records_of",
]


def read_template(path: Path, *, timed: bool = True) -> Template:
    """Read a template file; a DataError says what does not fit. Unless `timed`, it may leave out the time."""
    try:
        source = Source(path.read_text("utf-8"), str(path))
    except OSError as error:
        raise DataError(f"the template cannot be read: {error.strerror}", source=Source("", str(path))) from None
    except ValueError as error:
        raise DataError(f"the template is not UTF-8: {reason_of(error)}", source=Source("", str(path))) from None
    if path.suffix.lower() in (".yml", ".yaml"):
        from cqels.ingest.yarrrml import read_yarrrml

        return read_yarrrml(source, path.parent, timed=timed)
    try:
        table = tomllib.loads(source.text)
    except ValueError as error:
        raise DataError(f"the template is not TOML: {reason_of(error)}", source=Source("", str(path))) from None
    try:
        return TemplateReader(path.parent).template(table, timed=timed)
    except TemplateFault as fault:
        raise DataError(fault.message, source=source, span=_span(source.text, fault.words), hint=fault.hint) from None


def _span(text: str, words: tuple[str, ...]) -> Span | None:
    """Where the last of some words is that follow each other in a text; where that is not there, the one before."""
    found, start = None, 0
    for word in words:
        at = text.find(word, start)
        if at < 0:
            at = text.find(word)
        if at >= 0:
            found, start = Span(at, at + len(word)), at
    return found


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


def records_of(path: Path, format: FormatName, template: Template) -> Iterator[Numbered]:
    """The records of a file."""
    match format:
        case "csv":
            lines = (line for _, line in lines_of(path))
            return csv_records(lines, template.columns, delimiter=delimiter_of(template, path), place=str(path))
        case "json":
            return json_records(lines_of(path))
        case _:
            return parquet_records(path, template.columns)


def lift_records(
    declaration: StreamDeclaration, place: str, records: Iterable[Numbered], template: Template, reject: Reject
) -> Iterator[Element]:
    """The elements of records, which are at a place with their numbers."""
    lifted = lifted_pieces(declaration, place, records, template, reject)
    if declaration.element in ("time", "subject"):
        return gather(declaration.iri, lifted, reject)
    return (
        Element(declaration.iri, piece.time, piece.triples)
        for piece in lifted
        if isinstance(piece, Piece) and piece.time is not None
    )


def lifted_pieces(
    declaration: StreamDeclaration,
    place: str,
    records: Iterable[Numbered],
    template: Template,
    reject: Reject,
    around: Surroundings = ALONE,
) -> Iterator[Piece | Gap]:
    """The same, before they are joined to elements; all have the same surroundings."""
    scope = blank_scope(declaration, place) if template.has_blank_nodes else ""
    for number, text, record in records:
        at = f"{place}:{number}"
        if scope:
            around = replace(around, scope=f"{scope}{number}")
        try:
            if isinstance(record, str):
                raise ValueError(record)
            time = template.time(record, declaration.unit, around)
            triples = template.triples(record, around)
        except UNREADABLE as error:
            reject(Rejected(declaration.iri, at, reason_of(error, text), text))
            yield Gap()
        else:
            key = (time, triples[0][0]) if declaration.element == "subject" else time
            yield Piece(key, time, triples, at, text)
