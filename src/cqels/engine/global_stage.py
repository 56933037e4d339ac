"""The global stage of a partitioned query: merges the changes of all partitions into GROUP BY, DISTINCT, ORDER BY.

It runs on the driver of Spark (`spark.driver.global_stages`); `plan.partitioning` decides whether a query needs one.

It is a pipeline like any other, but for its input: not elements of streams but rows, as of a log that another pipeline
wrote (`kernels.operators.shared_input`).  A tick without deltas of any partition changes nothing here either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cqels.engine.output.arrow_columns import terms_of
from cqels.engine.runtime import Core
from cqels.engine.sharing.shared_joins import Fit
from cqels.ingest.element_batch import Batch, Words
from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import (
    ALWAYS,
    COLUMNS,
    DATA,
    NEVER,
    NUMBER,
    OLDEST,
    TIME,
    WEIGHT,
    WIDTH,
    add_rows,
    make_queue,
)
from cqels.kernels.memory.arena import Arena
from cqels.model.dictionary import term_of
from cqels.model.errors import ArenaFull
from cqels.physical.incremental_support import times_matter
from cqels.physical.order_by import orders_matter
from cqels.plan.algebra import Query, Reused, walk_plan
from cqels.plan.partitioning import FIRST_NAME
from cqels.store.dataset import Store

if TYPE_CHECKING:
    import pyarrow

_CHANGES = "urn:cqels:changes"
_FIRST = f"?{FIRST_NAME}"


class GlobalStage:
    """Computes the global stage of a query from tick to tick; `close` it at the end."""

    def __init__(self, query: Query) -> None:
        """`query` is the global stage of a partitioned query, and has a name (`plan.partitioning`)."""
        self._core = Core(Store(), Arena(), share=False)
        stream = self._core.registry.add_stream(_CHANGES)
        self._columns = next(node.columns for node in walk_plan(query.plan) if isinstance(node, Reused))
        self._log = int(make_queue(self._core.state.arena.base, len(self._columns) + 1))
        fresh = times_matter(query.plan) or orders_matter(query.plan, whole=query.emit == "snapshot")
        self._running = self._core.registry.planned(query, query.name or "", dict(self._core.state.streams))
        self._running.streams = frozenset({stream})
        self._core.state.running.append(self._running)
        self._core.registry.make(self._running, Fit(query.plan, fresh, {0: self._log}, ()))

    def apply(self, changes: pyarrow.Table) -> pyarrow.RecordBatch:
        """What is sent after these deltas of solutions, as columns of `engine.output.arrow_columns.terms_of`.

        The columns are `tick`, `time` and `weight`, those of solutions (`?name`, texts of N-Triples), and
        `newest` if it matters how fresh they are; ticks are in order.  What is no solution but says which is the first
        tick counts as that alone.
        """
        if changes.num_rows == 0:
            return terms_of(self._running)
        ticks, first, which = np.unique(_numbers(changes["tick"]), return_index=True, return_inverse=True)
        times = _numbers(changes["time"])[first]
        if _FIRST in changes.column_names:
            solutions = changes[_FIRST].is_null().combine_chunks()
            changes, which = changes.filter(solutions), which[solutions.to_numpy(zero_copy_only=False)]
        arena = self._core.state.arena
        before = int(arena.words[self._running.pipeline.offset + scheduler.TICKS])
        rows = np.empty((changes.num_rows, int(arena.words[self._log + WIDTH])), np.int64)
        rows[:, WEIGHT] = _numbers(changes["weight"])
        rows[:, [TIME, NUMBER, OLDEST]] = NEVER, -1, ALWAYS
        if self._running.pipeline.fresh:
            rows[:, [TIME, NUMBER, OLDEST]] = _numbers(changes["newest"])[:, np.newaxis]
        for number, name in enumerate(self._columns):
            rows[:, COLUMNS + number] = self._words(changes[f"?{name}"])
        rows[:, -1] = before + 1 + which
        if len(rows) and add_rows(arena.base, self._log, len(rows)) == 0:
            raise ArenaFull
        start = int(arena.words[self._log + DATA])
        arena.words[start : start + rows.size] = rows.reshape(-1)
        nothing = np.zeros(len(times), np.int64)
        self._core.proceed(Batch(times, nothing, nothing, np.empty(0, np.int64)))
        for sent in self._running.raw:
            sent[:, NUMBER] = ticks[sent[:, NUMBER] - before - 1]
        return terms_of(self._running)

    def _words(self, column: Any) -> Words:
        """The words of a column of texts."""
        whole = column.combine_chunks().dictionary_encode()
        words = [self._core.state.terms.encode(term_of(text)) for text in whole.dictionary.to_pylist()]
        indexes: Words = whole.indices.fill_null(len(words)).to_numpy()
        return np.array([*words, 0], np.int64)[indexes]

    def close(self) -> None:
        self._core.state.running.clear()
        self._core.state.arena.close()


def _numbers(column: Any) -> Words:
    return np.asarray(column.to_numpy(), np.int64)
