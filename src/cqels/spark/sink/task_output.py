"""Results that the tasks of Spark write themselves, in the pass that computes them: they do not come to the driver.

Sinks that can be written so are `TaskWritten`.  The driver gets a row of what was written instead of the results,
unless another sink needs them too, and commits the batch when all tasks are done.  Results of partitioned queries,
which are put together in the driver, go to such a sink as to any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow

from cqels.pipeline.lift.row_schemas import RESULTS, WRITTEN
from cqels.pipeline.sink.fan_out import ForQueries
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import Sink, TaskWriter, TaskWritten
from cqels.plan.algebra import Query

if TYPE_CHECKING:
    from pyspark.sql import Row


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """A function of batches of rows for `DataFrame.mapInArrow`: it writes the results of a micro-batch."""

    batch: int
    queries: Mapping[str, Query]
    """Those of which a task has all results of an instance."""
    writers: tuple[tuple[TaskWriter, frozenset[str]], ...]
    """Each with the names of its queries."""
    collected: frozenset[str]
    """Queries whose results the driver needs as well."""

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            rows = [made for row in batch.to_pylist() for made in self._written(row)]
            yield pyarrow.RecordBatch.from_pylist(rows, batch.schema)

    def _written(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        query = self.queries.get(row["query"]) if row["kind"] == RESULTS else None
        if query is None:
            yield row
            return
        sent = Sent.read(query, row["number"], [row["payload"]])
        for number, (writer, names) in enumerate(self.writers):
            if row["query"] in names:
                said = json.dumps(writer(self.batch, sent))
                yield row | {"kind": WRITTEN, "payload": None, "place": str(number), "text": said}
        if row["query"] in self.collected:
            yield row


class TaskSinks:
    """The sinks of a run that tasks write to."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._mine: list[tuple[Sink, TaskWritten, TaskWriter]] = []
        for sink in sinks:
            inner = sink.sink if isinstance(sink, ForQueries) else sink
            if isinstance(inner, TaskWritten) and (writer := inner.task_writer) is not None:
                self._mine.append((sink, inner, writer))

    def output(self, batch: int, queries: Mapping[str, Query]) -> TaskOutput | None:
        """What tasks do with the results of these queries; None if that is nothing."""
        if not self._mine or not queries:
            return None
        others = [sink for sink in self._sinks if all(sink is not mine for mine, _, _ in self._mine)]
        return TaskOutput(
            batch,
            queries,
            tuple((writer, _names(sink, queries)) for sink, _, writer in self._mine),
            frozenset().union(*(_names(sink, queries) for sink in others)),
        )

    def left(self, sink: Sink, sent: Mapping[str, Sent], queries: Iterable[str]) -> Mapping[str, Sent]:
        """The results that a sink has not got from tasks, which write those of these queries."""
        if all(sink is not mine for mine, _, _ in self._mine):
            return sent
        return {name: each for name, each in sent.items() if name not in queries}

    def commit(self, batch: int, rows: Iterable[Row]) -> None:
        """All tasks have written a micro-batch."""
        found: list[dict[str, list[Any]]] = [{} for _ in self._mine]
        for row in sorted((row for row in rows if row.kind == WRITTEN), key=lambda row: (row.number, row.instance)):
            found[int(row.place)].setdefault(row.query, []).append(json.loads(row.text))
        for (_, sink, _), written in zip(self._mine, found, strict=True):
            sink.commit(batch, written)


def _names(sink: Sink, queries: Mapping[str, Query]) -> frozenset[str]:
    """The queries of a sink, among these."""
    return frozenset(name for name in queries if not isinstance(sink, ForQueries) or name in sink.names)
