"""The formats whose elements are lines or runs of lines, each a `cqels.ingest.protocols.Format`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyoxigraph import RdfFormat

from cqels.ingest.declarations import FormatName, StreamDeclaration
from cqels.ingest.documents import RDF_FORMATS, read_document_lines
from cqels.ingest.element import Element
from cqels.ingest.element_grouping import Reject
from cqels.ingest.protocols import Format
from cqels.ingest.timed_lines import read_texts

if TYPE_CHECKING:
    from cqels.ingest.lifting_template import Template

Lines = Iterable[tuple[int, str]]


def line_format(declaration: StreamDeclaration, format: FormatName, *, live: bool = False) -> Format | None:
    """What reads the lines of a declared stream; None if its elements are not lines."""
    if format in RDF_FORMATS:
        return partial(_read_rdf, RDF_FORMATS[format]) if declaration.element == "line" else None
    return partial(_read_ntriples, live) if format == "ntriples" else _RECORD_READERS.get(format)


def _read_ntriples(
    live: bool,
    declaration: StreamDeclaration,
    place: str,
    lines: Lines,
    template: Template | None,
    reject: Reject,
) -> Iterator[Element]:
    return read_texts(declaration, place, lines, reject, live=live)


def _read_rdf(
    format: RdfFormat,
    declaration: StreamDeclaration,
    place: str,
    lines: Lines,
    template: Template | None,
    reject: Reject,
) -> Iterator[Element]:
    return read_document_lines(declaration, place, lines, format, reject)


def _read_csv(
    declaration: StreamDeclaration, place: str, lines: Lines, template: Template | None, reject: Reject
) -> Iterator[Element]:
    from cqels.ingest.lifting_template import delimiter_of, lift_records
    from cqels.ingest.record_readers import csv_records

    assert template is not None
    texts = (line for _, line in lines)
    delimiter = delimiter_of(template, Path(place))
    records = csv_records(texts, template.columns, delimiter=delimiter, place=place)
    return lift_records(declaration, place, records, template, reject)


def _read_json(
    declaration: StreamDeclaration, place: str, lines: Lines, template: Template | None, reject: Reject
) -> Iterator[Element]:
    from cqels.ingest.lifting_template import lift_records
    from cqels.ingest.record_readers import json_records

    assert template is not None
    return lift_records(declaration, place, json_records(lines), template, reject)


_RECORD_READERS: dict[FormatName, Format] = {"csv": _read_csv, "json": _read_json}
