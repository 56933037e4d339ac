"""The workers' side of a file source: reads ranges of files and lifts them to arriving rows (`row_schemas.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow

from cqels.ingest import Rejected, StreamDeclaration
from cqels.ingest.declarations import FUTURE
from cqels.ingest.element_batch import Batch
from cqels.ingest.element_grouping import Reject
from cqels.ingest.file_batches import file_batches, line_batches, object_batches, record_batches
from cqels.ingest.input_files import chunks_of, reading
from cqels.ingest.lifting_template import Template
from cqels.ingest.parse_errors import UnreadableFile
from cqels.ingest.stream_files import format_of
from cqels.model.time import EARLIEST
from cqels.pipeline.lift.block_writer import BlockWriter, Row, new_terms, table
from cqels.pipeline.lift.row_schemas import sequence_of
from cqels.pipeline.source.file_catalog import Changed, FileRange, refuse_change
from cqels.pipeline.source.file_source_settings import read_settings
from cqels.pipeline.source.replay_rate import seek_line

BLOCK_SIZE = 1 << 17
"""Elements and triples together with which a block is full."""
MOST_REJECTED = 1 << 12
"""Rejected lines that are kept before they are sent."""
_COUNTED = 1 << 22
"""Bytes whose line breaks are counted at a time."""


@lru_cache(maxsize=4)
def range_readers(text: str) -> dict[int, FileRangeReader]:
    """The reader of each stream, made once in a process, which Spark uses for many tasks."""
    settings = read_settings(text)
    terms = new_terms()
    return {
        number: FileRangeReader(
            declaration,
            template,
            BlockWriter(
                number,
                patterns,
                iri=declaration.iri,
                future=declaration.future if declaration.future is not None or not settings.follow else FUTURE,
                strict=settings.strict,
                terms=terms,
                unit=declaration.unit,
            ),
            changed=settings.changed[number],
            follow=settings.follow,
        )
        for number, declaration, patterns, template in settings.streams
    }


class FileRangeReader:
    """Reads ranges of one stream."""

    def __init__(
        self,
        declaration: StreamDeclaration,
        template: Template | None,
        writer: BlockWriter,
        *,
        changed: Changed = "stop",
        follow: bool = False,
    ) -> None:
        self._changed = changed
        self._follow = follow
        self._declaration = declaration
        self._template = template
        self.writer = writer
        self._counted: dict[str, tuple[int, int]] = {}

    def read(
        self, ranges: list[FileRange], numbers: Iterator[int], arrived: int | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """The rows of consecutive ranges. Small files share a block, if in time each begins where another ends.

        The sequence of a block is the files that it has elements of (`row_schemas.py`).  `arrived` is when they were
        found, which is the time of all elements of a stream in arrival time.
        """
        parts: list[Batch] = []
        size, latest = 0, EARLIEST
        first = last = ranges[0]
        rejected: list[Row] = []

        def rows() -> Iterator[pyarrow.RecordBatch]:
            sequence = sequence_of(first.sequence, last.sequence)
            blocks = self.writer.blocks(Batch.concatenate(parts), sequence, first.position, next(numbers))
            if made := [*blocks, *rejected]:
                yield table(made)
            parts.clear()
            rejected.clear()
            self.writer.tidy()

        for file_range in ranges:

            def reject(each: Rejected, at: int = file_range.position) -> None:
                rejected.append(self.writer.rejected(each, at, next(numbers)))

            if not self._is_there(file_range, reject):
                continue
            for batch in self._batches(file_range, reject):
                if not len(batch):
                    continue
                if self._declaration.clock == "arrival" and arrived is not None:
                    batch = replace(batch, times=np.full(len(batch), arrived))
                if parts and file_range.sequence != last.sequence:
                    is_next = file_range.sequence > last.sequence and last.is_whole and file_range.is_whole
                    if not is_next or int(batch.times.min()) < latest:
                        yield from rows()
                if not parts:
                    size, latest, first = 0, EARLIEST, file_range
                last = file_range
                parts.append(batch)
                size += len(batch) + len(batch.triples) // 3
                latest = max(latest, int(batch.times.max()))
                if size >= BLOCK_SIZE or len(rejected) >= MOST_REJECTED:
                    yield from rows()
        yield from rows()

    def _is_there(self, file_range: FileRange, reject: Reject) -> bool:
        """Whether a range can be read; a change of its file is reported among the rejected input."""
        file = file_range.file
        if file.note and file_range.start == file.start:
            reject(Rejected(self._declaration.iri, file.path, file.note, ""))
        if file_range.start == file_range.end:
            return False
        change = file.change()
        if change is None:
            return True
        if self._changed == "stop":
            raise refuse_change(file.path, change)
        again = self._changed == "reread" and not self._follow and Path(file.path).exists()
        what = (
            "it is read as it is now" if again else f"bytes {file_range.start} to {file_range.end} of it are left out"
        )
        reject(Rejected(self._declaration.iri, file.path, f"{change}: {what}", ""))
        return again

    def _batches(self, file_range: FileRange, reject: Reject) -> Iterator[Batch]:
        path = Path(file_range.file.path)
        stream, intake = self.writer.stream, self.writer.intake
        if not file_range.file.lines:
            yield from self._whole_or_part(file_range, reject)
            return
        with reading(path), path.open("rb") as file:
            begin = seek_line(file, file_range.start)

            def malformed(line: int, reason: str, text: str) -> None:
                place = f"{path}:{self._lines_before(path, begin) + line + 1}"
                reject(Rejected(self._declaration.iri, place, reason, text))

            size = max(0, file_range.end - begin)
            found = line_batches(
                self._declaration, path, chunks_of(file, start=begin, size=size), stream, intake, malformed
            )
            yield from found

    def _whole_or_part(self, file_range: FileRange, reject: Reject) -> Iterator[Batch]:
        """Of a file that is not cut between lines: all of it, or the records of a replay or of an append."""
        path = Path(file_range.file.path)
        stream, intake = self.writer.stream, self.writer.intake
        if file_range.file.kind == "whole" and file_range.is_whole:
            yield from file_batches(self._declaration, path, self._template, stream, intake, reject)
            return
        assert self._template is not None
        read = record_batches if format_of(self._declaration, path) == "csv" else object_batches
        try:
            with reading(path), path.open("rb") as file:
                yield from read(
                    self._declaration,
                    path,
                    self._template,
                    file,
                    stream,
                    intake,
                    reject,
                    start=file_range.start,
                    end=file_range.end,
                    lines_before=lambda byte: self._lines_before(path, byte),
                )
        except UnreadableFile as error:
            reject(Rejected(self._declaration.iri, str(path), error.reason, ""))

    def _lines_before(self, path: Path, byte: int) -> int:
        """The number of lines that end before a byte, counted on from the last count."""
        at, lines = self._counted.get(str(path), (0, 0))
        if at > byte:
            at, lines = 0, 0
        with path.open("rb") as file:
            file.seek(at)
            while at < byte:
                data = file.read(min(_COUNTED, byte - at))
                lines += data.count(b"\n")
                at += len(data)
        self._counted = {str(path): (at, lines)}
        return lines
