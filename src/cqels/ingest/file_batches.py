"""The elements of files as batches of words: timed lines, N-Quads and CSV are read as bytes, other formats as terms."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from cqels.ingest import Rejected, StreamDeclaration
from cqels.ingest.csv_batches import lifted_batches
from cqels.ingest.element_batch import Batch
from cqels.ingest.encode import Intake
from cqels.ingest.grouped_lines import ELEMENTS, run_batches
from cqels.ingest.input_files import MARK, is_compressed, open_bytes, reading
from cqels.ingest.lifting_template import Template, delimiter_of, lift_records
from cqels.ingest.parse_errors import UnreadableFile
from cqels.ingest.record_readers import csv_header, json_records
from cqels.ingest.stream_files import check_file, format_of, read_file
from cqels.ingest.timed_lines import blank_scope, line_kind

CHUNK = 1 << 21
"""Bytes that are read at a time."""


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
    if kind == "timed" and declaration.element in (None, "line"):

        def malformed(line: int, reason: str, text: str) -> None:
            reject(Rejected(declaration.iri, f"{path}:{line + 1}", reason, text))

        with open_bytes(path) as file, reading(path):
            yield from line_batches(declaration, path, file, stream, intake, malformed)
    elif kind == "timed" or kind == "quads":
        with open_bytes(path) as file, reading(path):
            yield from run_batches(declaration, path, kind, _chunks(file), stream, intake, reject)
    elif format == "csv":
        assert template is not None
        with open_bytes(path) as file, reading(path):
            yield from lifted_batches(declaration, path, template, file, stream, intake, reject)
    else:
        elements = read_file(declaration, path, template, reject)
        while some := list(islice(elements, ELEMENTS)):
            yield Batch.concatenate(intake.triples(stream, each.time, each.triples) for each in some)


def line_batches(
    declaration: StreamDeclaration,
    path: Path,
    file: IO[bytes],
    stream: int,
    intake: Intake,
    reject: Callable[[int, str, str], None],
    *,
    start: int = 0,
    size: int | None = None,
) -> Iterator[Batch]:
    """Lines that end with their times, from `start`, where the file stands; those that begin in the next `size` bytes.

    A chunk of lines is a batch, empty if there is no element in it.  What is no such line goes to `reject`: its number
    from 0, the reason, the line.
    """
    scope = blank_scope(declaration, path)
    done = 0
    for data in _chunks(file, start=start, size=size):

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
    before = lines_before(start)
    lines = (
        line for data in _chunks(file, start=start, size=end - start) for line in data.removesuffix(b"\n").split(b"\n")
    )
    texts = (
        (number, line.decode("utf-8", "surrogateescape").rstrip("\r")) for number, line in enumerate(lines, before + 1)
    )
    elements = lift_records(declaration, str(path), json_records(texts), template, reject)
    while some := list(islice(elements, ELEMENTS)):
        yield Batch.concatenate(intake.triples(stream, each.time, each.triples) for each in some)


def _chunks(file: IO[bytes], *, start: int = 0, size: int | None = None) -> Iterator[bytes]:
    """Whole lines from `start`, where the file stands, those that begin in the next `size` bytes."""
    left = sys.maxsize if size is None else size
    first = start == 0
    while left > 0 and (data := file.read(min(CHUNK, left))):
        if not data.endswith(b"\n"):
            data += file.readline()
        left -= len(data)
        yield data.removeprefix(MARK) if first else data
        first = False
