"""Reading a declared stream, whatever its format, and merging several streams by time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from cqels.ingest.declarations import ELEMENTS, FORMATS, RECORDS, FormatName, StreamDeclaration
from cqels.ingest.documents import RDF_FORMATS, read_document, read_graphs, read_subjects
from cqels.ingest.element import Element, Rejected, future_reason
from cqels.ingest.element_grouping import Reject
from cqels.ingest.format_detection import beginning, kind_of
from cqels.ingest.input_files import extension_of, files_of, lines_of, numbered_lines
from cqels.ingest.line_formats import line_format
from cqels.ingest.live_sources import live_declaration, live_format, source_of
from cqels.ingest.parse_errors import UnreadableFile
from cqels.ingest.protocols import Source
from cqels.ingest.timed_lines import check_lines
from cqels.model import errors
from cqels.model.time import EARLIEST

if TYPE_CHECKING:
    from cqels.ingest.lifting_template import Template


def read_stream(declaration: StreamDeclaration, reject: Callable[[Rejected], None]) -> Iterator[Element]:
    """The elements of a stream, its files merged by time, read as they are asked for; of a live source as they come.

    What cannot become an element goes to `reject`, and reading goes on unless that raises. A declaration that can give
    no element is refused here, before anything is read.
    """
    if (source := source_of(declaration)) is not None:
        return read_source(live_declaration(declaration), source, reject)
    files = files_of(declaration.path)
    template = check_files(declaration, files)
    begun = in_time(declaration, files, template)

    def opened(number: int) -> Iterator[Element]:
        return read_file(declaration, begun[number].path, template, reject)

    return _merged([each.first for each in begun], opened)


def read_source(declaration: StreamDeclaration, source: Source, reject: Reject) -> Iterator[Element]:
    """The elements of a live source; an UnreadableFile if its lines are not what is declared."""
    format, template = check_source(declaration, source)
    reader = line_format(declaration, format, live=True)
    assert reader is not None
    elements = reader(declaration, source.place, numbered_lines(source.chunks()), template, reject)
    return elements if declaration.future is None else _near(elements, declaration.future, reject)


def check_source(declaration: StreamDeclaration, source: Source) -> tuple[FormatName, Template | None]:
    """Refuse a declaration with which a live source gives no element: its format, and its template if it has one."""
    format = live_format(declaration, source.place)
    check_format(declaration, format, source.place)
    return format, _template(declaration)


@dataclass(frozen=True, slots=True)
class Begun:
    """A file, and the time of its first element: EARLIEST if it is the only one of its stream and nobody has asked."""

    path: Path
    first: int


def in_time(declaration: StreamDeclaration, files: Sequence[Path], template: Template | None) -> list[Begun]:
    """Files in the order of the times of their first elements, those of the same time in the order given.

    A file without elements stays behind the one before it. So the parts of a stream, each of which begins when the one
    before it has ended, are in order, and only the next one is to be read.
    """
    if len(files) < 2:
        return [Begun(path, EARLIEST) for path in files]
    found: list[Begun] = []
    for path in files:
        first = next(read_file(declaration, path, template, lambda rejected: None), None)
        before = found[-1].first if found else EARLIEST
        found.append(Begun(path, before if first is None else first.time))
    return sorted(found, key=lambda each: each.first)


def check_files(declaration: StreamDeclaration, files: Iterable[Path]) -> Template | None:
    """Refuse a declaration with which these files give no element; its template, if it has one."""
    paths = list(files)
    for path in paths:
        check_file(declaration, path)
    template = _template(declaration)
    check_content(declaration, paths, template)
    return template


def _template(declaration: StreamDeclaration) -> Template | None:
    if declaration.template is None:
        return None
    from cqels.ingest.lifting_template import read_template

    return read_template(declaration.template)


def check_content(declaration: StreamDeclaration, files: Iterable[Path], template: Template | None) -> None:
    """Refuse a declaration that fits what none of its files holds. If one fits, the others are rejected when read."""
    fault: UnreadableFile | None = None
    for path in files:
        try:
            if path.is_file():  # a pipe can be read once
                _look_into(declaration, path, template)
            return
        except UnreadableFile as error:
            fault = fault or error
    if fault is not None:
        raise fault


def _look_into(declaration: StreamDeclaration, path: Path, template: Template | None) -> None:
    match format_of(declaration, path):
        case "ntriples":
            check_lines(declaration, path)
        case "csv" | "parquet" as format:
            from cqels.ingest.lifting_template import check_records

            assert template is not None
            check_records(path, format, template)


def read_file(
    declaration: StreamDeclaration, path: Path, template: Template | None, reject: Reject
) -> Iterator[Element]:
    """The elements of one file; a file that cannot be read, or not to its end, is rejected."""
    try:
        elements = _elements(declaration, path, template, reject)
        yield from elements if declaration.future is None else _near(elements, declaration.future, reject)
    except UnreadableFile as error:
        reject(Rejected(declaration.iri, error.source.name if error.source else str(path), error.reason, ""))


def _near(elements: Iterator[Element], future: int, reject: Reject) -> Iterator[Element]:
    """The elements that are not too far beyond the wall clock, which is looked at where one seems to be."""
    limit = EARLIEST
    for each in elements:
        if each.time > limit:
            limit = time_ns() + future
        if each.time <= limit:
            yield each
        else:
            text = " ".join(" ".join(map(str, triple)) + " ." for triple in each.triples)
            reject(Rejected(each.stream, f"<{each.stream}>", future_reason(each.time, future), text))


def _elements(
    declaration: StreamDeclaration, path: Path, template: Template | None, reject: Reject
) -> Iterator[Element]:
    format = check_file(declaration, path)
    if (reader := line_format(declaration, format)) is not None:
        return reader(declaration, str(path), lines_of(path), template, reject)
    if format in RDF_FORMATS:
        read = {"document": read_document, "graph": read_graphs, "subject": read_subjects}
        return read[declaration.element or ELEMENTS[format][0]](declaration, path, RDF_FORMATS[format], reject)
    from cqels.ingest.lifting_template import lift_records
    from cqels.ingest.record_readers import parquet_records

    assert template is not None
    return lift_records(declaration, str(path), parquet_records(path, template.columns), template, reject)


def merge(streams: Iterable[Iterator[Element]]) -> Iterator[Element]:
    """Merge by time; at equal times the earlier stream goes first. Each stream keeps its own order, sorted or not."""
    sources = list(streams)
    return _merged([EARLIEST] * len(sources), sources.__getitem__)


def _merged(firsts: Sequence[int], opened: Callable[[int], Iterator[Element]]) -> Iterator[Element]:
    """Merge by time what begins at these times and is opened only then."""
    sources: dict[int, Iterator[Element]] = {}
    heads: list[tuple[int, int, Element | None]] = [(first, number, None) for number, first in enumerate(firsts)]
    heapq.heapify(heads)
    while heads:
        _, number, element = heads[0]
        if element is None:
            sources[number] = opened(number)
        else:
            yield element
        following = next(sources[number], None)
        if following is None:
            heapq.heappop(heads)
            del sources[number]
        else:
            heapq.heapreplace(heads, (following.time, number, following))


def format_of(declaration: StreamDeclaration, path: Path) -> FormatName:
    """The format that is declared, or that the extension tells, or the content."""
    named = FORMATS.get(extension_of(path))
    if declaration.format is not None:
        return declaration.format
    if named is not None and extension_of(path) != "n3":
        return named
    format = _by_content(declaration, path) or named
    if format is None:
        hint = f"declare it with format=, one of {', '.join(ELEMENTS)}"
        source = errors.Source("", str(path))
        raise UnreadableFile("the file's extension does not tell its format", source=source, hint=hint)
    return format


def _by_content(declaration: StreamDeclaration, path: Path) -> FormatName | None:
    if not path.is_file():  # a pipe can be read once
        return None
    match kind_of(beginning(path)):
        case "timed" | "nquads":
            return "ntriples"
        case "turtle":
            return "turtle"
        case "trig" | "jsonld" | "parquet" as format:
            return format
        case "json":
            return "jsonld" if declaration.template is None else "json"
        case _:
            return None if declaration.template is None else "csv"


def check_file(declaration: StreamDeclaration, path: Path) -> FormatName:
    """Refuse a declaration with which a file gives no element: the file's format."""
    format = format_of(declaration, path)
    check_format(declaration, format, str(path))
    return format


def check_format(declaration: StreamDeclaration, format: FormatName, place: str) -> None:
    """Refuse a declaration that does not fit the format of what is at a place."""
    source = errors.Source("", place)
    element = declaration.element or ELEMENTS[format][0]
    if element not in ELEMENTS[format]:
        hint = f"an element of this format is one of {', '.join(ELEMENTS[format])}"
        raise UnreadableFile(f"element={element} does not fit the format {format}", source=source, hint=hint)
    if format in ("turtle", "trig", "jsonld") and element != "graph" and declaration.time is None:
        hint = "declare the predicate that has the time of an element: time=<iri>"
        raise UnreadableFile(f"stream <{declaration.iri}> has no time", source=source, hint=hint)
    if format in RECORDS and declaration.template is None:
        hint = "declare a lifting template: template=file.toml"
        if Path(place).suffix.lower() == ".json":
            hint += "; or format=jsonld if it is JSON-LD"
        raise UnreadableFile(
            f"nothing says how the records of stream <{declaration.iri}> become triples", source=source, hint=hint
        )
    if format in RECORDS and declaration.time is not None:
        hint = "name the column of the time in the template and remove time="
        raise UnreadableFile("the time of a record is a column, not a predicate", source=source, hint=hint)
