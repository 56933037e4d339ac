"""Files as a data source of Spark, the first stage of a pipeline: all file streams are read in step by one reader.

The driver decides how far a micro-batch goes in each stream.  Workers read the bytes themselves
(`file_range_reader.py`), lift them to arriving rows (`row_schemas.py`) for the shuffle, and then read ahead what the
next micro-batch is expected to have.  The same offsets always give the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from math import ceil, inf
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxBytes, SupportsTriggerAvailableNow

from cqels.pipeline.lift.block_writer import table
from cqels.pipeline.lift.row_schemas import ARRIVING, ARRIVING_COLUMNS
from cqels.pipeline.source.batch_size import BatchSizer
from cqels.pipeline.source.file_catalog import Catalog, FileRange, Offsets
from cqels.pipeline.source.file_range_reader import range_readers
from cqels.pipeline.source.file_source_settings import Settings, read_settings
from cqels.pipeline.source.file_steps import advance_all
from cqels.spark.source import read_ahead
from cqels.spark.worker_start import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit

LEAST_TASK = 1 << 20
"""Bytes below which one more task does not pay."""
LEAST_AHEAD = 1 << 20
"""Bytes of a task below which reading ahead does not pay."""
_ARRIVED = "arrived"
"""Beside the offsets of streams: when the driver found what a micro-batch reads, if a stream is in arrival time."""
REFRESH_SECONDS = 0.2
"""Seconds between two searches for new files and appended lines."""
_NAME = "cqels-files"

SparkOffset: TypeAlias = dict[str, Any]
"""The offsets of all streams as the JSON that Spark keeps in its checkpoint."""


def file_rows(spark: SparkSession, settings: Settings) -> DataFrame:
    """The streams' files as arriving rows: a streaming DataFrame."""
    spark.dataSource.register(FileSource)
    return spark.readStream.format(_NAME).option("settings", settings.text()).load()


class FileSource(DataSource):
    """The data source as it is registered with Spark."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> str:
        return ARRIVING_COLUMNS

    def streamReader(self, schema: Any) -> FileReader:  # noqa: N802
        return FileReader(self.options["settings"])


@dataclass(frozen=True)
class Task(InputPartition):
    """What one worker reads in a micro-batch, and the streams that end after it."""

    ranges: tuple[FileRange, ...]
    ends: tuple[int, ...] = ()
    arrived: int | None = None
    """The time of elements in arrival time."""
    following: Task | None = None
    """What the worker reads ahead afterwards, for the next micro-batch."""

    @property
    def size(self) -> int:
        return sum(each.end - each.start for each in self.ranges)

    def name(self, settings: str) -> str:
        """A name for what is read ahead; tasks with the same rows have the same."""
        return sha256(repr((settings, self.ranges, self.ends)).encode()).hexdigest()


class FileReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the driver it chooses the offsets of a micro-batch and divides it into tasks; in a worker it reads a task."""

    def __init__(self, settings: str) -> None:
        self._text = settings
        self._settings = read_settings(settings)
        self._has_arrival = any(each.clock == "arrival" for _, each, *_ in self._settings.streams)
        self._catalog: Catalog | None = None
        self._rate = self._settings.replay_rate()
        self._refreshed = -inf
        self._catalog_is_final = not self._settings.follow
        self._is_last_refresh = False
        self._sizer = BatchSizer()
        self._expected: tuple[Offsets, Offsets] | None = None
        """Where the next micro-batch starts and ends, if it is the one that is read ahead."""

    # ------------------------------------------------------------ in the driver

    def initialOffset(self) -> SparkOffset:  # noqa: N802
        return _spark_offset({number: (0, 0) for number, *_ in self._settings.streams})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._settings.batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_last_refresh = True

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        offsets = _stream_offsets(start)
        if not self._catalog_is_final and (
            self._is_last_refresh or time.monotonic() > self._refreshed + REFRESH_SECONDS
        ):
            self._open_catalog().refresh(offsets, self._settings.changed)
            self._settings.check(self._open_catalog())
            self._refreshed = time.monotonic()
            self._catalog_is_final = self._is_last_refresh
        self._sizer.observe(self._done(offsets), time.monotonic())
        if self._expected is not None and self._expected[0] == offsets:
            return _spark_offset(self._expected[1])
        end = self._advance(offsets, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)
        if self._rate is not None:
            end = self._rate.due(self._open_catalog(), offsets, end)
        if not self._has_arrival:
            return _spark_offset(end)
        return start if end == offsets else _spark_offset(end) | {_ARRIVED: time.time_ns()}

    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[Task]:
        first, last = _stream_offsets(start), _stream_offsets(end)
        tasks = self._tasks(first, last)
        if self._has_arrival:
            return [replace(task, arrived=end.get(_ARRIVED)) for task in tasks]
        if self._settings.follow or self._rate is not None:
            return tasks
        self._expected = last, self._advance(last, self._settings.batch_bytes)
        following = self._tasks(*self._expected)
        return [
            replace(task, following=next) if next is not None and next.size >= LEAST_AHEAD else task
            for task, next in zip_longest(tasks, following[: len(tasks)])
        ]

    def _tasks(self, first: Offsets, last: Offsets) -> list[Task]:
        catalog = self._open_catalog()
        ranges = [each for number in last for each in catalog.ranges(number, first[number], last[number])]
        tasks = [Task(each) for each in split_into_tasks(ranges, self._settings.tasks)]
        ends = tuple(
            number
            for number, files in catalog.files.items()
            if not self._settings.follow and first[number] < last[number] == (len(files), 0)
        )
        if ends:
            tasks = [*tasks[:-1], replace(tasks[-1], ends=ends)] if tasks else [Task((), ends)]
        return tasks

    def _open_catalog(self) -> Catalog:
        if self._catalog is None:
            self._catalog = self._settings.catalog()
        return self._catalog

    def _advance(self, start: Offsets, size: int | None) -> Offsets:
        """The offsets `size` bytes on in all streams together, or fewer if these would take too long."""
        if size is not None:
            size = min(size, self._sizer.size)
        return advance_all(self._open_catalog(), start, size, follow=self._settings.follow)

    def _done(self, offsets: Offsets) -> int:
        return sum(self._open_catalog().size(number, offset) for number, offset in offsets.items())

    # ------------------------------------------------------------ in a worker

    def read(self, partition: Task) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[override]
        prepare_worker()
        found = read_ahead.taken(partition.name(self._text)) if partition.size >= LEAST_AHEAD else None
        yield from self._read(partition) if found is None else found
        following = partition.following
        if following is not None:
            read_ahead.begin(following.name(self._text), lambda: self._read(following), ARRIVING)

    def _read(self, task: Task) -> Iterator[pyarrow.RecordBatch]:
        with _READING:
            readers = range_readers(self._text)
            numbers = iter(range(1 << 62))
            for stream in dict.fromkeys(each.stream for each in task.ranges):
                ranges = [each for each in task.ranges if each.stream == stream]
                yield from readers[stream].read(ranges, numbers, task.arrived)
            for stream in task.ends:
                yield table(readers[stream].writer.ends())


_READING = Lock()
"""A process reads one task at a time, be it due or ahead."""


def split_into_tasks(ranges: list[FileRange], tasks: int) -> Iterator[tuple[FileRange, ...]]:
    """The same bytes in the same order, divided into about `tasks` parts of about the same size."""
    size = max(ceil(sum(each.end - each.start for each in ranges) / tasks), LEAST_TASK)
    part: list[FileRange] = []
    room = size
    for each in ranges:
        left = each
        while left.file.lines and left.end - left.start > room:
            yield (*part, replace(left, end=left.start + room))
            left, part, room = replace(left, start=left.start + room), [], size
        part.append(left)
        room -= left.end - left.start
        if room <= 0:
            yield tuple(part)
            part, room = [], size
    if part:
        yield tuple(part)


def _stream_offsets(offset: SparkOffset) -> Offsets:
    return {int(number): (each[0], each[1]) for number, each in offset.items() if number != _ARRIVED}


def _spark_offset(offsets: Offsets) -> SparkOffset:
    return {str(number): [*offset] for number, offset in offsets.items()}
