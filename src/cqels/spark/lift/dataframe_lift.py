"""Lifting the rows of a DataFrame, batch or streaming: `pipeline/lift/row_lifts.py` by Spark's `mapInArrow`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute

from cqels.model.errors import CqelsError
from cqels.pipeline.lift.row_lifts import Batches, Lifting
from cqels.pipeline.lift.row_schemas import ARRIVING, ARRIVING_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


LEFT = "row"
"""The kind of arriving rows that are not lifted yet."""


@dataclass(frozen=True, slots=True)
class DataFrameLift:
    """The function that `mapInArrow` calls with the rows of a task."""

    lifting: Lifting

    def __call__(self, batches: Batches) -> Batches:
        from cqels.spark.worker_start import prepare_worker

        prepare_worker()
        return self.lifting.blocks(batches, _task())

    def apply(self, rows: DataFrame) -> DataFrame:
        """The blocks of a DataFrame's rows, batch or streaming."""
        return self._chosen(rows).mapInArrow(self, ARRIVING_COLUMNS)

    def left_to_driver(self, rows: DataFrame) -> DataFrame | None:
        """The rows themselves as arriving rows, for `lifted_by_driver`; None if they have more than text and a time.

        Their time is one more column, and their number the partition that they come from.
        """
        from pyspark.sql import functions

        chosen = self._chosen(rows)
        kinds = {field.name: field.dataType.simpleString() for field in chosen.schema}
        if not kinds.keys() <= {"value", "time", "place", "position"} or kinds["value"] not in ("string", "binary"):
            return None
        absent = functions.lit(None)
        return chosen.select(
            functions.lit(0).alias("instance"),
            functions.lit(self.lifting.number).alias("stream"),
            functions.lit(LEFT).alias("kind"),
            (functions.col("place") if "place" in kinds else absent).cast("string").alias("place"),
            (functions.col("position") if "position" in kinds else absent).cast("long").alias("position"),
            functions.spark_partition_id().cast("long").alias("number"),
            functions.col("value").cast("binary").alias("block"),
            absent.cast("string").alias("reason"),
            absent.cast("string").alias("text"),
            (functions.col("time") if "time" in kinds else absent).cast("timestamp").alias("time"),
        )

    def _chosen(self, rows: DataFrame) -> DataFrame:
        """The columns that lifting needs."""
        from pyspark.sql import functions

        names = {field.name for field in rows.schema}
        chosen = [self._value(names).alias("value")]
        template = self.lifting.lift.template
        around = template.surroundings if template is not None else ()
        if self.lifting.lift.own_time or self.lifting.arrival or "@arrival" in around:
            chosen.append(functions.col(self._time(rows, names)).alias("time"))
        if self.lifting.lift.form != "columns":
            named = {name.removeprefix("@").partition(".")[0] for name in around}
            columns = [name for name in ("key", "topic", "headers") if name.removesuffix("s") in named]
            chosen += [functions.col(name) for name in columns if name in names]
        if {"topic", "partition", "offset"} <= names:
            chosen.append(functions.concat_ws("-", "topic", "partition").alias("place"))
            chosen.append(functions.col("offset").alias("position"))
        elif self.lifting.lift.form != "columns":
            chosen += [functions.col(name) for name in ("place", "position") if name in names]
        return rows.select(*chosen)

    def _value(self, names: set[str]) -> Column:
        from pyspark.sql import functions

        if self.lifting.lift.template is not None and self.lifting.lift.form == "columns":
            wanted = dict.fromkeys(_top(name, names) for name in self.lifting.lift.template.columns)
            self._check(list(wanted), names)
            return functions.struct(*(functions.col(f"`{name}`") for name in wanted))
        self._check(["value"], names)
        return functions.col("value")

    def _time(self, rows: DataFrame, names: set[str]) -> str:
        """The column with the row's own time."""
        name = "time" if "time" in names else "timestamp"
        if name not in names:
            raise CqelsError(
                f"the source of stream <{self.lifting.stream}> has no column 'time' or 'timestamp'",
                hint=f"its columns are {', '.join(sorted(names))}",
            )
        kind = rows.schema[name].dataType.simpleString()
        if not kind.startswith("timestamp"):
            raise CqelsError(
                f"the column '{name}' of stream <{self.lifting.stream}> is an {kind}, not a timestamp",
                hint=f".withColumn('{name}', …cast('timestamp'))",
            )
        return name

    def _check(self, wanted: list[str], names: set[str]) -> None:
        for name in wanted:
            if name not in names:
                raise CqelsError(
                    f"the source of stream <{self.lifting.stream}> has no column '{name}'",
                    hint=f"its columns are {', '.join(sorted(names))}; rename one: .withColumnRenamed(…, '{name}')",
                )


def lifted_by_driver(rows: pyarrow.Table, liftings: Mapping[int, Lifting]) -> list[pyarrow.Table]:
    """The arriving rows of a micro-batch, in which those that were left to the driver are lifted."""
    left = pyarrow.compute.equal(rows["kind"], LEFT)
    made = [rows.filter(pyarrow.compute.invert(left)).select(ARRIVING.names)]
    rows = rows.filter(left)
    for stream, lifting in liftings.items():
        mine = rows.filter(pyarrow.compute.equal(rows["stream"], stream))
        for task in pyarrow.compute.unique(mine["number"]).to_pylist():
            some = mine.filter(pyarrow.compute.equal(mine["number"], task))
            chosen = {"value": some["block"], "place": some["place"], "position": some["position"]}
            if some["time"].null_count < len(some):
                chosen["time"] = some["time"]
            batches = pyarrow.table(chosen).combine_chunks().to_batches()
            made += [pyarrow.Table.from_batches([batch]) for batch in lifting.blocks(iter(batches), str(task))]
    return made


def _top(name: str, names: set[str]) -> str:
    """The column that has what a template names, which may be a member of a struct."""
    return name if name in names else name.partition(".")[0]


def _task() -> str:
    """The partition of the task, which a repeated batch has again; nothing outside Spark."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return "" if context is None else str(context.partitionId())
