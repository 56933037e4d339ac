"""Replay of files at the rate of their timestamps: up to which offset a file source may read at a time.

Files have lines that end with their times, or are CSV with a column of them.  A file's times should not decrease.
Where they do, an element may come with a later one before it, never earlier than its own time asks for by more than
that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import IO

from cqels.ingest.input_files import reading, text_of_line
from cqels.ingest.lifting_template import Template, delimiter_of
from cqels.ingest.parse_errors import UNREADABLE
from cqels.ingest.record_readers import csv_header, csv_records
from cqels.ingest.timed_lines import parse_timed_line
from cqels.pipeline.source.file_catalog import Catalog, FileRange, Offsets, StreamOffset

_CHUNK = 1 << 16
"""Bytes within which lines are looked at one by one."""


class ReplayRate:
    """Limits micro-batches to what is due: an element `t` after the first one is due `t / speed` after that was read.

    The first micro-batch has the elements of the first time alone: it may take long, and nothing is to wait behind it.
    """

    def __init__(self, speed: float, times: dict[int, TimeReader]) -> None:
        """How the times of each stream are found."""
        self._speed = speed
        self._times = times
        self._first: int | None = None
        self._started: int | None = None
        self._next: int | None = None

    def due(self, catalog: Catalog, start: Offsets, end: Offsets) -> Offsets:
        """The offset between two others, in each stream, up to which elements may be delivered now."""
        now = monotonic_ns()
        if self._first is None:
            self._first = reached = self._earliest(catalog, start)
            if reached is None:
                return end  # there is no time to wait for
        else:
            self._started = now if self._started is None else self._started
            reached = self._first + int((now - self._started) * self._speed)
        if self._next is not None and reached < self._next:
            return start
        due = {stream: self._due(catalog, stream, start[stream], end[stream], reached) for stream in start}
        self._next = self._earliest(catalog, start) if due == start else None
        return due

    def _earliest(self, catalog: Catalog, start: Offsets) -> int | None:
        times = (next(self._from(catalog, stream, offset), None) for stream, offset in start.items())
        return min((found for found in times if found is not None), default=None)

    def _from(self, catalog: Catalog, stream: int, start: StreamOffset) -> Iterator[int]:
        for each in catalog.ranges(stream, start, (len(catalog.files[stream]), 0)):
            if each.start < each.end:
                yield from self._times[stream].all(each)

    def _due(self, catalog: Catalog, stream: int, start: StreamOffset, end: StreamOffset, reached: int) -> StreamOffset:
        for each in catalog.ranges(stream, start, end):
            byte = self._times[stream].first_after(each, reached) if each.start < each.end else each.end
            if byte < each.end:
                return each.number, byte - each.file.start
        return end


@dataclass(frozen=True, slots=True)
class TimeReader:
    """Finds the times in the files of a stream: integers count `unit`, a `template` names their column in CSV."""

    unit: str
    template: Template | None = None

    def all(self, each: FileRange) -> Iterator[int]:
        """The times of the lines or records that begin in a range, in their order."""
        with reading(Path(each.file.path)), open(each.file.path, "rb") as file:
            if each.file.lines:
                found = timed_lines(file, each.start, each.end, self.unit)
            else:
                found = self._records(file, each)
            yield from (time for _, time in found)

    def first_after(self, each: FileRange, limit: int) -> int:
        """The byte at which the first line or record of a range begins that is later than `limit`, or its end.

        Those that are malformed or have no time go with the one before them.
        """
        with reading(Path(each.file.path)), open(each.file.path, "rb") as file:
            if each.file.lines:
                return first_after(file, each.start, each.end, limit, self.unit)
            return next((at for at, time in self._records(file, each) if time > limit), each.end)

    def _records(self, file: IO[bytes], each: FileRange) -> Iterator[tuple[int, int]]:
        assert self.template is not None
        return timed_records(file, each.start, each.end, self.template, Path(each.file.path), self.unit)


def first_after(file: IO[bytes], start: int, end: int, limit: int, unit: str) -> int:
    """The byte at which the first line between two bytes begins that is later than `limit`, or the end."""
    low, high = start, end
    while high - low > _CHUNK:
        middle = (low + high) // 2
        at, found = next(timed_lines(file, middle, high, unit), (high, limit))
        if at == high or found > limit:
            high = middle
        else:
            low = at
    return next((at for at, found in timed_lines(file, low, high, unit) if found > limit), high)


def timed_lines(file: IO[bytes], start: int, end: int, unit: str) -> Iterator[tuple[int, int]]:
    """Where the lines that begin between two bytes begin, and their times."""
    for at, line in _lines(file, start, end):
        with suppress(ValueError):
            found = parse_timed_line(line.decode("utf-8", "surrogateescape"), unit)
            if found is not None:
                yield at, found[0]


def timed_records(
    file: IO[bytes], start: int, end: int, template: Template, path: Path, unit: str
) -> Iterator[tuple[int, int]]:
    """Where the records of CSV between two bytes begin, and their times; the first byte is where one does, or the file.

    A record may have several lines, so they are taken from the first one on.  The header is a part of the first.
    """
    delimiter = delimiter_of(template, path)
    header, behind = csv_header(file, delimiter)
    at = start
    file.seek(max(start, behind))
    lines = _Lines(file)
    found = csv_records(
        lines, template.columns, delimiter=delimiter, place=str(path), header=header, give_back=lines.give_back
    )
    for _, _, record in found:
        if at >= end:
            return
        lines.begins.clear()
        if not isinstance(record, str):
            with suppress(*UNREADABLE):
                yield at, template.time(record, unit)
        at = file.tell()


class _Lines:
    """The lines of a file, from where it stands, without their ends; the last ones can be given back."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.begins: list[int] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        begin = self._file.tell()
        if not (line := self._file.readline()):
            raise StopIteration
        self.begins.append(begin)
        return text_of_line(line)

    def give_back(self, lines: list[str]) -> None:
        if lines:
            self._file.seek(self.begins[-len(lines)])


def _lines(file: IO[bytes], start: int, end: int) -> Iterable[tuple[int, bytes]]:
    at = seek_line(file, start)
    while at < end and (line := file.readline()):
        yield at, line
        at += len(line)


def seek_line(file: IO[bytes], start: int) -> int:
    """Go to the first line that begins at a byte or behind it: where that is."""
    if start == 0:
        file.seek(0)
        return 0
    file.seek(start - 1)
    return start - 1 + len(file.readline())
