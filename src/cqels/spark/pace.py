"""Replay at the pace of the data: which bytes of a file are due at a time. Files have lines that end with their times.

A file's times should not decrease.  Where they do, an element may come with a later one before it, never earlier than
its own time asks for by more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import IO

from cqels.io.files import reading
from cqels.io.ntriples import parse_timed_line
from cqels.spark.catalog import Catalog, Place

_NEAR = 1 << 16
"""Bytes within which lines are looked at one by one."""


class Pace:
    """Tells how far streams are due: what is `t` after the first element at `t / speed` after that was read.

    The first micro-batch has the elements of the first time alone: it may take long, and nothing is to wait behind it.
    """

    def __init__(self, speed: float, units: dict[int, str]) -> None:
        """The units in which each stream counts its times."""
        self._speed = speed
        self._units = units
        self._first: int | None = None
        self._started: int | None = None
        self._next: int | None = None

    def due(self, catalog: Catalog, start: dict[int, Place], end: dict[int, Place]) -> dict[int, Place]:
        """How far of what is between two places, in each stream, may be delivered now."""
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

    def _earliest(self, catalog: Catalog, start: dict[int, Place]) -> int | None:
        times = (next(self._times(catalog, stream, place), None) for stream, place in start.items())
        return min((found for found in times if found is not None), default=None)

    def _times(self, catalog: Catalog, stream: int, start: Place) -> Iterator[int]:
        for each in catalog.between(stream, start, (len(catalog.files[stream]), 0)):
            with reading(Path(each.file.path)), open(each.file.path, "rb") as file:
                yield from (found for _, found in timed_lines(file, each.start, each.end, self._units[stream]))

    def _due(self, catalog: Catalog, stream: int, start: Place, end: Place, reached: int) -> Place:
        for each in catalog.between(stream, start, end):
            with reading(Path(each.file.path)), open(each.file.path, "rb") as file:
                byte = first_after(file, each.start, each.end, reached, self._units[stream])
            if byte < each.end:
                return each.number, byte
        return end


def first_after(file: IO[bytes], start: int, end: int, limit: int, unit: str) -> int:
    """The byte at which the first line between two bytes begins that is later than `limit`, or the end.

    Lines that are malformed or have no time go with the one before them.
    """
    low, high = start, end
    while high - low > _NEAR:
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
