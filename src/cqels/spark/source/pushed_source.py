"""What is pushed to streams as a data source of Spark: all inboxes of an application that is served, as one source.

A stream that is new is one more folder here, and no other source, so that Spark's query goes on.  Offsets are those of
the inboxes by the numbers of their sources, which Spark records before a micro-batch begins: the same blocks come when
it is repeated.  The messages are blocks already; all instances get them as they are, since a query that comes later may
match what no query matches now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxBytes

from cqels.pipeline.lift.row_schemas import ARRIVING, ARRIVING_COLUMNS, BLOCK, PUSHED
from cqels.pipeline.source.inbox_format import rows_of
from cqels.pipeline.source.inbox_marks import END, read_mark
from cqels.pipeline.source.inbox_segments import boundary, cuts, damaged, read_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit

BATCH_BYTES = 64 << 20
"""Bytes of a micro-batch, where nothing else is asked for."""
LEAST_TASK = 1 << 20
"""Bytes below which one more task does not pay."""
_PIECE = 4 << 20
"""Bytes that are read at a time."""
_NAME = "cqels-pushed"

Offsets: TypeAlias = dict[str, int]
"""How far inboxes have been read, by the numbers of their sources."""


def pushed_rows(spark: SparkSession, folder: Path, instances: int, *, batch_bytes: int | None, tasks: int) -> DataFrame:
    """The blocks of the inboxes in a folder as arriving rows for so many instances: a streaming DataFrame."""
    spark.dataSource.register(PushedSource)
    reader = spark.readStream.format(_NAME).option("folder", str(folder.absolute())).option("instances", instances)
    return reader.option("batch_bytes", batch_bytes or BATCH_BYTES).option("tasks", tasks).load()


class PushedSource(DataSource):
    """The data source as it is registered with Spark."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> str:
        return ARRIVING_COLUMNS

    def streamReader(self, schema: Any) -> PushedReader:  # noqa: N802
        options = self.options
        numbers = (int(options[name]) for name in ("instances", "batch_bytes", "tasks"))
        return PushedReader(Path(options["folder"]), *numbers)


@dataclass(frozen=True)
class InboxRanges(InputPartition):
    """What one worker reads in a micro-batch: sources, and from where to where their inboxes."""

    ranges: tuple[tuple[int, int, int], ...]


class PushedReader(DataSourceStreamReader):
    """In the driver it chooses the offsets of a micro-batch; in a worker it reads."""

    def __init__(self, folder: Path, instances: int, batch_bytes: int, tasks: int) -> None:
        self._folder, self._instances = folder, instances
        self._batch_bytes, self._tasks = batch_bytes, tasks

    # ------------------------------------------------------------ in the driver

    def initialOffset(self) -> Offsets:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._batch_bytes)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        ends = self._ends(start)
        waiting = sum(end - start.get(number, 0) for number, end in ends.items())
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else waiting
        if waiting <= most:
            return start | ends
        share = most / waiting  # each goes forward by the same part of itself, so that none waits long for another
        found = {}
        for number, end in ends.items():
            begin = start.get(number, 0)
            found[number] = boundary(self._folder / number, begin, end, max(int(share * (end - begin)), 1))
        return start | found

    def _ends(self, start: Offsets) -> Offsets:
        """Where those inboxes end in which there is more."""
        ends = {}
        for folder in self._folder.iterdir():
            if not folder.name.isdigit():
                continue
            begin, end = start.get(folder.name, 0), read_mark(folder, END)
            if end < begin:
                raise damaged(folder, f"it ends at byte {end:,}, and has been read to byte {begin:,}")
            if end > begin:
                ends[folder.name] = end
        return ends

    def partitions(self, start: Offsets, end: Offsets) -> list[InboxRanges]:  # type: ignore[override]
        ranges = [(int(number), start.get(number, 0), to) for number, to in sorted(end.items())]
        ranges = [(number, begin, to) for number, begin, to in ranges if to > begin]
        total = sum(to - begin for _, begin, to in ranges)
        parts = min(self._tasks, max(total // LEAST_TASK, 1))
        if parts == 1:
            return [InboxRanges(tuple(ranges))] if ranges else []
        size = total // parts
        pieces = [(number, *cut) for number, begin, to in ranges for cut in self._cuts(number, begin, to, size)]
        tasks: list[list[tuple[int, int, int]]] = [[] for _ in range(parts)]
        sizes = [0] * parts
        for piece in sorted(pieces, key=lambda piece: piece[1] - piece[2]):
            least = sizes.index(min(sizes))
            tasks[least].append(piece)
            sizes[least] += piece[2] - piece[1]
        return [InboxRanges(tuple(sorted(each))) for each in tasks if each]

    def _cuts(self, number: int, begin: int, end: int, size: int) -> list[tuple[int, int]]:
        return cuts(self._folder / str(number), begin, end, -(-(end - begin) // size))

    def commit(self, end: Offsets) -> None:
        """The driver removes what was processed (`cqels.spark.driver.pushed_inboxes`), sooner than this is called."""

    # ------------------------------------------------------------ in a worker

    def read(self, partition: InboxRanges) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[override]
        from cqels.spark.worker_start import prepare_worker

        prepare_worker()
        for number, at, end in partition.ranges:
            folder = self._folder / str(number)
            while at < end:
                begin = at
                frames, at = read_frames(folder, begin, end, _PIECE)
                counts = [head.messages for head, _ in frames]
                ends = begin + np.cumsum([head.whole for head, _ in frames])
                blocks = rows_of(frames, PUSHED).column("value")
                yield _rows(number, self._instances, counts, ends, blocks)


def _rows(number: int, instances: int, counts: list[int], ends: Any, blocks: pyarrow.Array) -> pyarrow.RecordBatch:
    """The rows of some blocks for each instance; a position is where the frame of a block ends."""
    size = len(blocks)
    total = size * instances
    columns: Mapping[str, Any] = {
        "instance": np.repeat(np.arange(instances, dtype=np.int32), size),
        "stream": np.full(total, number, np.int32),
        "kind": pyarrow.repeat(pyarrow.scalar(BLOCK), total),
        "place": pyarrow.repeat(pyarrow.scalar(PUSHED), total),
        "position": np.tile(np.repeat(ends, counts), instances),
        "number": np.tile(np.concatenate([np.arange(count, dtype=np.int64) for count in counts]), instances),
        "block": pyarrow.concat_arrays([blocks] * instances),
        "reason": pyarrow.nulls(total, pyarrow.string()),
        "text": pyarrow.nulls(total, pyarrow.string()),
    }
    return pyarrow.RecordBatch.from_arrays([pyarrow.array(columns[name]) for name in ARRIVING.names], schema=ARRIVING)
