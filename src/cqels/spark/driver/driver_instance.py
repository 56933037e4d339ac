"""The engine instance of the low-latency mode, in the driver: the arriving rows of micro-batches in, sent rows out.

A micro-batch then has one stage, that of sources and lifting; the shuffle, the state store and its Python process fall
away, which is most of a small micro-batch.  The instance and its log are `DurableInstance`, in a folder of the
checkpoint, and its batches are Spark's micro-batches under their numbers.

Exactly once: Spark writes down what a micro-batch has before that begins, and gives it again under the same number as
long as it has not written down that it is done.  A micro-batch is in the log of the instance before any of its results
leaves the driver, with what was rejected in it.  If it is given again, its rows are not even asked for: the log has
led to the same results, and the sinks know its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cqels.ingest import Rejected
from cqels.model.errors import Damaged
from cqels.pipeline.instance.durable_instance import DurableInstance, Outcome
from cqels.pipeline.instance.program import Program
from cqels.pipeline.lift.row_lifts import Lifting
from cqels.spark.lift.dataframe_lift import lifted_by_driver
from cqels.spark.operator.instance_rows import (
    arrivals_in,
    in_order,
    offsets_in,
    rejected_in_order,
    report_row,
    sent_rows,
    updates_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


class DriverInstance:
    """One instance, driven by the micro-batches of one run."""

    def __init__(self, folder: Path, program: Program, key: int, liftings: Mapping[int, Lifting] | None = None) -> None:
        """`key` is what the instance is known by in rows; `liftings` are those of sources that are lifted here."""
        self._liftings = liftings or {}
        self._folder, self._program, self._key = folder, program, key
        self._durable = DurableInstance(folder, program, changing=True)
        self._rebuilt = False

    def open(self, done: int) -> None:
        """Be what the checkpoint has; `done` is the last micro-batch that Spark knows to be done."""
        last = self._durable.recover()
        self._rebuilt = last is not None
        if self._durable.batch not in (done, done + 1):
            self.close()
            raise Damaged(
                f"{self._folder} is of micro-batch {self._durable.batch}, and Spark has done {done}",
                hint="restore both from one copy of the checkpoint, or begin with a new one",
            )

    def rows(self, frame: DataFrame, batch: int) -> list[Row]:
        """What the instance sends in a micro-batch: at once if it is in the log."""
        outcome = self._durable.last
        if outcome is None or outcome.batch != batch:
            outcome = self._advanced(frame, batch)
        rejected = [Rejected(*each) for each in outcome.note["rejected"]]
        rows = [*sent_rows(self._key, rejected, outcome.late, outcome.chunks)]
        report = report_row(
            self._key,
            outcome.report,
            self._durable.instance,
            rejected=len(rejected),
            updates=outcome.note["updates"],
            offsets=outcome.note.get("offsets", {}),
            log_bytes=self._durable.log_bytes,
            snapshot_bytes=self._durable.snapshot_bytes,
            rebuilt=self._rebuilt,
        )
        self._rebuilt = False
        return [*rows, report]

    def _advanced(self, frame: DataFrame, batch: int) -> Outcome:
        received = in_order(_collected(frame, self._liftings))
        rejected = rejected_in_order(received, self._program)
        note = {
            "rejected": [[each.stream, each.place, each.reason, each.text] for each in rejected],
            "updates": updates_in(received),
            "offsets": offsets_in(received),
        }
        return self._durable.advance(batch, arrivals_in(received), note)

    def explain(self, name: str, format: str) -> str:
        """The plan of a query, with what it has done."""
        return self._durable.instance.explain(name, format)

    def snapshot(self) -> None:
        """Have a snapshot of the state on the disk."""
        self._durable.finish_snapshot()
        self._durable.maintain(now=True)
        self._durable.finish_snapshot()

    def close(self) -> None:
        self._durable.close()


class _Arriving(NamedTuple):
    """An arriving row (`cqels.pipeline.lift.row_schemas`)."""

    instance: int
    stream: int
    kind: str
    place: str
    position: int
    number: int
    block: Any
    reason: str | None
    text: str | None


def _collected(frame: DataFrame, liftings: Mapping[int, Lifting]) -> list[_Arriving]:
    """The rows of a micro-batch, as columns on their way."""
    table = frame.toArrow()
    tables = lifted_by_driver(table, liftings) if liftings else [table]
    return [row for each in tables for row in _rows_of(each.select(_Arriving._fields))]


def _rows_of(table: Any) -> Iterator[_Arriving]:
    return map(_Arriving._make, zip(*(column.to_pylist() for column in table.columns), strict=True))
