"""The static parts of queries: tables of words in the arena whose changes flow like those of windows (SPEC §5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cqels.engine.batch import Words
from cqels.engine.terms import Terms
from cqels.flow.stages import Pipeline, Table, WholeGraph, put_rows
from cqels.kernels.memory import Arena, give
from cqels.model.terms import Term
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query
from cqels.plan.functions import Context
from cqels.plan.scope import mentioned, variables
from cqels.store.dataset import Store


class Tables:
    """Brings tables up to date with the dataset."""

    def __init__(self, arena: Arena, store: Store, terms: Terms) -> None:
        self._arena = arena
        self._store = store
        self._terms = terms

    def refresh(self, pipeline: Pipeline, seed: str, table: Table) -> bool:
        """Put the difference between a table and the dataset as it is now into the table's queue: is there one?

        `seed` is what draws, such as those of RAND(), begin with.
        """
        identity = mentioned(table.plan) | frozenset(variables(table.plan))
        context = Context(seed=seed, identity=identity - pipeline.computed)
        width = len(table.stage.columns)
        encode = self._terms.encode
        found = [encode(term) for row in self._rows(pipeline.query, table.plan, context) for term in (row or (None,))]
        new = np.array(found, np.int64).reshape(-1, max(width, 1))
        old = self._arena.array(table.place, table.count * max(width, 1)).reshape(-1, max(width, 1))
        rows, weights = _difference(old, new)
        put_rows(self._arena, table.stage.queue, rows[:, :width], weights)
        if len(rows):
            self._keep(table, new)
        return bool(len(rows))

    def _keep(self, table: Table, rows: Words) -> None:
        if table.place:
            give(self._arena.base, table.place, table.room)
        table.room, table.count = max(rows.size, 2), len(rows)
        table.place = self._arena.take(table.room)
        self._arena.array(table.place, rows.size)[:] = rows.reshape(-1)

    def _rows(self, query: Query, plan: Plan, context: Context) -> Iterator[tuple[Term | None, ...]]:
        match plan:
            case algebra.Unit():
                yield ()
            case algebra.Values(rows=rows):
                yield from rows
            case WholeGraph(name=name):
                yield from self._store.triples(name)
            case algebra.Static(input=inner):
                yield from self._store.select(
                    inner,
                    variables(inner),
                    default_graphs=query.default_graphs,
                    named_graphs=query.named_graphs,
                    context=context,
                )
            case _:
                raise AssertionError(f"{plan} is not static")


def _difference(old: Words, new: Words) -> tuple[Words, Words]:
    """The rows whose numbers differ, and by how much."""
    if not len(old):
        return new, np.ones(len(new), np.int64)
    both = np.concatenate([old, new])
    signs = np.concatenate([-np.ones(len(old), np.int64), np.ones(len(new), np.int64)])
    rows, places = np.unique(both, axis=0, return_inverse=True)
    weights = np.bincount(places.reshape(-1), signs, len(rows)).astype(np.int64)
    changed = weights != 0
    return rows[changed], weights[changed]
