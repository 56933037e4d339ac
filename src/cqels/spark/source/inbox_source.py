"""An inbox as a data source of Spark: what receivers in the driver have made durable, as arriving rows.

Offsets are those of the inbox, which Spark records before a micro-batch begins: the same rows come when it is repeated.
Workers read the segments themselves and lift the messages, so the folder has to be one that all machines see.  The
driver's reader is a process of its own: it learns from marks (`inbox_marks.py`) how far the inbox goes, and tells by
another how far the micro-batches that are done have come.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxBytes

from cqels.pipeline.lift.block_writer import table
from cqels.pipeline.lift.lift_worker import lift_worker_of
from cqels.pipeline.lift.row_lifts import Lifting
from cqels.pipeline.lift.row_schemas import ARRIVING_COLUMNS
from cqels.pipeline.source.inbox_format import rows_of
from cqels.pipeline.source.inbox_marks import COMMITTED, END, ENDED, Mark, read_mark
from cqels.pipeline.source.inbox_segments import boundary, cuts, damaged, read_frames, segments_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit

LEAST_TASK = 1 << 18
"""Bytes below which one more task does not pay."""
_PIECE = 4 << 20
"""Bytes that are lifted at a time."""
_NAME = "cqels-inbox"

InboxOffset: TypeAlias = dict[str, int]
"""How far the inbox has been read, `offset`; and whether it has ended, `ended`."""


def inbox_rows(
    spark: SparkSession, folder: Path, place: str, lifting: Lifting, *, batch_bytes: int, tasks: int
) -> DataFrame:
    """The messages of an inbox as arriving rows: a streaming DataFrame."""
    spark.dataSource.register(InboxSource)
    reader = spark.readStream.format(_NAME).option("folder", str(folder.absolute())).option("place", place)
    reader = reader.option("lifting", b64encode(pickle.dumps(lifting)).decode())
    return reader.option("batch_bytes", batch_bytes).option("tasks", tasks).load()


class InboxSource(DataSource):
    """The data source as it is registered with Spark."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> str:
        return ARRIVING_COLUMNS

    def streamReader(self, schema: Any) -> InboxStreamReader:  # noqa: N802
        options = self.options
        return InboxStreamReader(
            Path(options["folder"]),
            options["place"],
            options["lifting"],
            int(options["batch_bytes"]),
            int(options["tasks"]),
        )


@dataclass(frozen=True)
class InboxRange(InputPartition):
    """What one worker reads in a micro-batch; or the end of the source."""

    start: int
    end: int
    ends: bool = False


class InboxStreamReader(DataSourceStreamReader):
    """In the driver it chooses the offsets of a micro-batch; in a worker it reads and lifts."""

    def __init__(self, folder: Path, place: str, lifting: str, batch_bytes: int, tasks: int) -> None:
        self._folder, self._place, self._lifting = folder, place, lifting
        self._batch_bytes, self._tasks = batch_bytes, tasks
        self._committed: Mark | None = None

    # ------------------------------------------------------------ in the driver

    def initialOffset(self) -> InboxOffset:  # noqa: N802
        return {"offset": next(iter(segments_of(self._folder)), 0), "ended": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._batch_bytes)

    def latestOffset(self, start: InboxOffset, limit: ReadLimit) -> InboxOffset:  # noqa: N802
        ended = read_mark(self._folder, ENDED)
        end = read_mark(self._folder, END)
        if end < start["offset"]:
            raise damaged(self._folder, f"it ends at byte {end:,}, and has been read to byte {start['offset']:,}")
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else end
        end = boundary(self._folder, start["offset"], end, most)
        return {"offset": end, "ended": int(start["ended"] or end + 1 == ended)}

    def partitions(self, start: InboxOffset, end: InboxOffset) -> list[InboxRange]:  # type: ignore[override]
        size = end["offset"] - start["offset"]
        parts = min(self._tasks, max(size // LEAST_TASK, 1))
        ranges = [InboxRange(*each) for each in cuts(self._folder, start["offset"], end["offset"], parts)]
        return [*ranges, InboxRange(0, 0, ends=True)] if end["ended"] > start["ended"] else ranges

    def commit(self, end: InboxOffset) -> None:
        if self._committed is None:
            self._committed = Mark(self._folder, COMMITTED)
        self._committed.write(end["offset"])

    # ------------------------------------------------------------ in a worker

    def read(self, partition: InboxRange) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[override]
        from cqels.spark.worker_start import prepare_worker

        prepare_worker()
        lifting: Lifting = pickle.loads(b64decode(self._lifting))
        if partition.ends:
            yield table(lift_worker_of(lifting).ends())
        yield from lifting.blocks(self._rows(partition))

    def _rows(self, partition: InboxRange) -> Iterator[pyarrow.RecordBatch]:
        at = partition.start
        while at < partition.end:
            frames, at = read_frames(self._folder, at, partition.end, _PIECE)
            yield rows_of(frames, self._place)
