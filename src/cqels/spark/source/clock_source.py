"""The wall clock as a data source of Spark: heartbeats of the streams that follow it, as commands for all instances.

Its offsets are the times of the streams' last heartbeats, which the driver decides on (`run_clock.py`) and writes to a
file.  Spark keeps offsets before a micro-batch begins, so the same heartbeats come when that is repeated.  They are
commands, so that they come after all elements of the micro-batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from cqels.pipeline.lift.row_schemas import ARRIVING, ARRIVING_COLUMNS, COMMAND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = "cqels-clock"

ClockOffset: TypeAlias = dict[str, int]
"""The times of heartbeats, by the numbers of streams."""


def clock_rows(spark: SparkSession, file: Path, instances: Sequence[int]) -> DataFrame:
    """The heartbeats that a file tells as arriving rows: a streaming DataFrame."""
    spark.dataSource.register(ClockSource)
    reader = spark.readStream.format(_NAME).option("file", str(file.absolute()))
    return reader.option("instances", json.dumps(list(instances))).load()


class ClockSource(DataSource):
    """The data source as it is registered with Spark."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> str:
        return ARRIVING_COLUMNS

    def streamReader(self, schema: Any) -> ClockReader:  # noqa: N802
        return ClockReader(Path(self.options["file"]), json.loads(self.options["instances"]))


@dataclass(frozen=True)
class Beats(InputPartition):
    """The heartbeats of a micro-batch: streams and times."""

    beats: tuple[tuple[int, int], ...]


class ClockReader(DataSourceStreamReader):
    """In the driver it reads the file; in a worker it makes rows."""

    def __init__(self, file: Path, instances: Sequence[int]) -> None:
        self._file, self._instances = file, tuple(instances)

    def initialOffset(self) -> ClockOffset:  # noqa: N802
        return {}

    def latestOffset(self, start: ClockOffset, limit: Any) -> ClockOffset:  # noqa: N802
        try:
            beats: ClockOffset = json.loads(self._file.read_text())["beats"]
        except (OSError, ValueError, KeyError):  # none has been told yet
            return start
        return start | {stream: time for stream, time in beats.items() if time > start.get(stream, time - 1)}

    def partitions(self, start: ClockOffset, end: ClockOffset) -> list[Beats]:  # type: ignore[override]
        told = sorted((int(stream), time) for stream, time in end.items() if start.get(stream) != time)
        return [Beats(tuple(told))] if told else []

    def read(self, partition: Beats) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[override]
        rows = [
            {
                "instance": instance,
                "stream": -1,
                "kind": COMMAND,
                "place": "",
                "position": 0,
                "number": number,
                "text": json.dumps({"heartbeat": time, "stream": stream}),
            }
            for number, (stream, time) in enumerate(partition.beats)
            for instance in self._instances
        ]
        yield pyarrow.RecordBatch.from_pylist(rows, ARRIVING)
