"""Files as a source of a live run: followed, or read to their end; positions mean what they mean on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic, time_ns
from typing import Any

from cqels.pipeline.lift.block_writer import table
from cqels.pipeline.lift.predicate_pushdown import PushedPatterns
from cqels.pipeline.source.file_catalog import Offsets
from cqels.pipeline.source.file_range_reader import range_readers
from cqels.pipeline.source.file_source_settings import Settings
from cqels.pipeline.source.file_steps import advance_all

POLL = 0.02
"""Seconds between two searches for new files and appended lines, where these take no time."""
_SHARE = 0.1
"""The part of a processor's time that searches take at most."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """What was read of files: arriving rows (`cqels.pipeline.lift.row_schemas`), and how far that goes."""

    rows: list[dict[str, Any]]
    offsets: Offsets
    size: int
    """Bytes that were read."""


class FileStreams:
    """The files of one stream that are followed, or of all that end, which are read in step."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalog = settings.catalog()
        self._rate = settings.replay_rate()
        self._searched = self._pause = 0.0

    @property
    def sources(self) -> list[int]:
        """The numbers of the sources."""
        return [number for number, *_ in self._settings.streams]

    def start(self) -> Offsets:
        return dict.fromkeys(self.sources, (0, 0))

    def firsts(self) -> dict[int, tuple[int, ...]]:
        """The first times of the files of streams that end and have several."""
        return self._settings.firsts()

    def want(self, patterns: Mapping[str, PushedPatterns]) -> None:
        """Read the triples from now on that these match, by streams."""
        streams = tuple(
            (number, declaration, (patterns[declaration.iri],), template)
            for number, declaration, _, template in self._settings.streams
        )
        self._settings = replace(self._settings, streams=streams)

    def search(self, offsets: Offsets) -> None:
        """Look for new files and appended lines, if the last time is long enough ago."""
        began = monotonic()
        if not self._settings.follow or began < self._searched + self._pause:
            return
        self._catalog.refresh(offsets, self._settings.changed)
        self._settings.check(self._catalog)
        self._searched = monotonic()
        self._pause = max(POLL, (self._searched - began) / _SHARE)

    @property
    def due(self) -> float | None:
        """When it searches next, by the monotonic clock; None if all files are known."""
        if self._rate is not None:
            return monotonic() + POLL
        return self._searched + self._pause if self._settings.follow else None

    def read(self, offsets: Offsets, most: int) -> FileRows:
        """About `most` bytes from offsets on. The same offsets give the same rows, but for times of arrival."""
        end = advance_all(self._catalog, offsets, most, follow=self._settings.follow)
        if self._rate is not None:
            end = self._rate.due(self._catalog, offsets, end)
        rows: list[dict[str, Any]] = []
        size = 0
        readers = range_readers(self._settings.text()) if end != offsets else {}
        numbers, arrived = iter(range(1 << 62)), time_ns()
        for number in end:
            ranges = list(self._catalog.ranges(number, offsets[number], end[number]))
            size += sum(each.end - each.start for each in ranges)
            if ranges:
                for batch in readers[number].read(ranges, numbers, arrived):
                    rows += batch.to_pylist()
            if not self._settings.follow and offsets[number] < end[number] == (len(self._catalog.files[number]), 0):
                rows += table(readers[number].writer.ends()).to_pylist()
        return FileRows(rows, end, size)

    def has_ended(self, offsets: Offsets) -> bool:
        """Whether all is read that there will ever be."""
        ends = all(offsets[number] == (len(self._catalog.files[number]), 0) for number in self.sources)
        return not self._settings.follow and ends
