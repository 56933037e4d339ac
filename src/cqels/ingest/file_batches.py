"""The elements of files as batches of words: timed lines, N-Quads and CSV are read as bytes, other formats as terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO

from cqels.ingest import Rejected, StreamDeclaration
from cqels.ingest.element_batch import Batch
from cqels.ingest.encode import Intake
from cqels.ingest.grouped_lines import ELEMENTS, run_batches
from cqels.ingest.input_files import (
    FileSource,
    is_compressed,
    numbered_lines,
    open_bytes,
    reading,
)
from cqels.ingest.lifted_batches import lifted_batches, lifted_objects, object_layout
from cqels.ingest.lifting_template import Template, delimiter_of
from cqels.ingest.line_formats import line_format
from cqels.ingest.parse_errors import UnreadableFile
from cqels.ingest.protocols import Source
from cqels.ingest.record_readers import csv_header
from cqels.ingest.stream_files import check_file, check_source, format_of, read_file
from cqels.ingest.timed_lines import LineKind, blank_scope, line_kind, live_line_kind


def has_timed_lines(declaration: StreamDeclaration, path: Path) -> bool:
    """Each line of the file is an element and ends with its time."""
    if declaration.element not in (None, "line") or declaration.time is not None:
        return False
    return format_of(declaration, path) == "ntriples" and line_kind(declaration, path) == "timed"


def has_timed_records(declaration: StreamDeclaration, path: Path) -> bool:
    """Each record of the file is an element, a column has its time, and the file can be cut between records."""
    return declaration.element in (None, "line") and format_of(declaration, path) == "csv" and not is_compressed(path)


def file_batches(
    declaration: StreamDeclaration,
    path: Path,
    template: Template | None,
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
) -> Iterator[Batch]:
    """The elements of one file of a stream; a batch may be empty, where lines were rejected.

    A file that cannot be read, or not to its end, is rejected.
    """
    try:
        yield from _batches(declaration, path, template, stream, intake, reject)
    except UnreadableFile as error:
        reject(Rejected(declaration.iri, error.source.name if error.source else str(path), error.reason, ""))


def _batches(
    declaration: StreamDeclaration,
    path: Path,
    template: Template | None,
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
) -> Iterator[Batch]:
    format = check_file(declaration, path)
    kind = line_kind(declaration, path) if format == "ntriples" else None
    if kind == "timed" or kind == "quads":
        source = FileSource(path)
        yield from _kind_batches(declaration, source.place, source.chunks(), kind, stream, intake, reject)
    elif format == "csv":
        assert template is not None
        with open_bytes(path) as file, reading(path):
            yield from lifted_batches(declaration, path, template, file, stream, intake, reject)
    elif format == "json":
        assert template is not None
        with open_bytes(path) as file, reading(path):
            yield from lifted_objects(declaration, str(path), template, file, stream, intake, reject)
    else:
        elements = read_file(declaration, path, template, reject)
        while some := list(islice(elements, ELEMENTS)):
            yield intake.elements(stream, some)


def source_batches(
    declaration: StreamDeclaration,
    source: Source,
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
) -> Iterator[Batch]:
    """The elements of a live source: a batch is of what arrived together, or of one element."""
    format, template = check_source(declaration, source)
    chunks = source.chunks()
    if format == "ntriples":
        kind, chunks = live_line_kind(declaration, source.place, chunks)
        if kind != "plain":
            yield from _kind_batches(declaration, source.place, chunks, kind, stream, intake, reject)
            return
    if template is not None and format == "json":
        layout = object_layout(declaration, source.place, template)
        if layout is not None:
            lift = partial(lifted_objects, declaration, source.place, template, layout=layout)
            done = 0
            for chunk in chunks:
                yield from lift(BytesIO(chunk), stream, intake, reject, line=done)
                done += chunk.count(b"\n")
            return
    reader = line_format(declaration, format, live=True)
    assert reader is not None
    for each in reader(declaration, source.place, numbered_lines(chunks), template, reject):
        yield intake.triples(stream, each.time, each.triples)


def _kind_batches(
    declaration: StreamDeclaration,
    place: str,
    chunks: Iterator[bytes],
    kind: LineKind,
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
) -> Iterator[Batch]:
    """Lines that end with their times or their graphs, read as bytes."""

    def malformed(line: int, reason: str, text: str) -> None:
        reject(Rejected(declaration.iri, f"{place}:{line + 1}", reason, text))

    if kind == "timed" and declaration.element in (None, "line"):
        yield from line_batches(declaration, place, chunks, stream, intake, malformed)
    else:
        yield from run_batches(declaration, place, kind, chunks, stream, intake, reject)


def line_batches(
    declaration: StreamDeclaration,
    place: Path | str,
    chunks: Iterable[bytes],
    stream: int,
    intake: Intake,
    reject: Callable[[int, str, str], None],
) -> Iterator[Batch]:
    """Chunks of lines that end with their times; each is a batch, empty if there is no element in it.

    What is no such line goes to `reject`: its number from 0, the reason, the line.
    """
    scope = blank_scope(declaration, place)
    done = 0
    for data in chunks:

        def malformed(line: int, reason: str, text: str, done: int = done) -> None:
            reject(done + line, reason, text)

        batch, _, lines = intake.lines(stream, data, unit=declaration.unit, scope=scope, reject=malformed)
        done += lines
        yield batch


def record_batches(
    declaration: StreamDeclaration,
    path: Path,
    template: Template,
    file: IO[bytes],
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
    *,
    start: int,
    end: int,
    lines_before: Callable[[int], int],
) -> Iterator[Batch]:
    """The records of a CSV file between two bytes, where records begin, or the file itself does."""
    names, behind = csv_header(file, delimiter_of(template, path))
    begin = max(start, behind)
    file.seek(begin)
    lines, size = lines_before(begin), max(0, end - begin)
    yield from lifted_batches(
        declaration, path, template, file, stream, intake, reject, header=names, line=lines, size=size
    )


def object_batches(
    declaration: StreamDeclaration,
    path: Path,
    template: Template,
    file: IO[bytes],
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
    *,
    start: int,
    end: int,
    lines_before: Callable[[int], int],
) -> Iterator[Batch]:
    """The records of a file of JSON lines between two bytes, where lines begin."""
    file.seek(start)
    lines, size = lines_before(start), max(0, end - start)
    yield from lifted_objects(declaration, str(path), template, file, stream, intake, reject, line=lines, size=size)
