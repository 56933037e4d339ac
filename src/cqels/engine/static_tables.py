"""The static parts of queries: tables of words in the arena whose changes flow like those of windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from cqels.ingest.element_batch import Words
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena, give
from cqels.model.terms import Term
from cqels.physical.pipeline import Table, WholeGraph, put_rows
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query
from cqels.plan.functions import Context
from cqels.plan.scope import mentioned, variables
from cqels.plan.sharing.query_templates import is_own, particular
from cqels.store.dataset import Store

if TYPE_CHECKING:
    from cqels.engine.running_query import Running

_FEW_KEYS = 64
"""Constants for which the dataset is asked one by one rather than for all at once."""


class Tables:
    """Brings tables up to date with the dataset."""

    def __init__(self, arena: Arena, store: Store, terms: Terms) -> None:
        self._arena = arena
        self._store = store
        self._terms = terms

    def refresh(self, running: Running, table: Table) -> bool:
        """Put the difference between a table and the dataset as it is now into the table's queue: is there one?"""
        pipeline = running.pipeline
        identity = mentioned(table.plan) | frozenset(variables(table.plan))
        context = Context(seed=running.name, identity=identity - pipeline.computed)  # for draws, as those of RAND()
        width = len(table.stage.columns)
        encode = self._terms.encode
        found = [encode(term) for row in self._rows(running, table, context) for term in (row or (None,))]
        new = np.array(found, np.int64).reshape(-1, max(width, 1))
        old = self._arena.array(table.offset, table.count * max(width, 1)).reshape(-1, max(width, 1))
        rows, weights = _difference(old, new)
        put_rows(self._arena, table.stage.queue, rows[:, :width], weights)
        if len(rows):
            self._keep(table, new)
        return bool(len(rows))

    def _keep(self, table: Table, rows: Words) -> None:
        if table.offset:
            give(self._arena.base, table.offset, table.room)
        table.room, table.count = max(rows.size, 2), len(rows)
        table.offset = self._arena.take(table.room)
        self._arena.array(table.offset, rows.size)[:] = rows.reshape(-1)

    def _rows(self, running: Running, table: Table, context: Context) -> Iterator[tuple[Term | None, ...]]:
        match table.plan:
            case algebra.Unit():
                yield ()
            case algebra.Values(rows=rows):
                yield from rows
            case WholeGraph(name=name):
                yield from self._store.triples(name)
            case algebra.Static(input=inner):
                names, keys = ((), []) if running.share is None else running.share.keys(inner)
                if not names:
                    yield from self._selected(running.query, inner, variables(inner), context)
                elif len(keys) > _FEW_KEYS or not all(map(is_own, names)):
                    joined = algebra.Join((inner, algebra.Values(names, tuple(keys))))
                    yield from self._selected(running.query, joined, variables(inner), context)
                else:
                    for key in keys:
                        yield from self._particular(running.query, inner, dict(zip(names, key, strict=True)), context)
            case _:
                raise AssertionError(f"{table.plan} is not static")

    def _particular(
        self, query: Query, plan: Plan, values: dict[str, Term], context: Context
    ) -> Iterator[tuple[Term | None, ...]]:
        """The rows of a static part that have these values."""
        inner = particular(plan, values)
        others = variables(inner)
        for row in self._selected(query, inner, others, context):
            row_values = {**dict(zip(others, row, strict=True)), **values}
            yield tuple(row_values[name] for name in variables(plan))

    def _selected(
        self, query: Query, plan: Plan, names: tuple[str, ...], context: Context
    ) -> Iterable[tuple[Term | None, ...]]:
        return self._store.select(
            plan, names, default_graphs=query.default_graphs, named_graphs=query.named_graphs, context=context
        )


def _difference(old: Words, new: Words) -> tuple[Words, Words]:
    """The rows whose numbers differ, and by how much."""
    if not len(old):
        return new, np.ones(len(new), np.int64)
    both = np.concatenate([old, new])
    signs = np.concatenate([-np.ones(len(old), np.int64), np.ones(len(new), np.int64)])
    rows, indexes = np.unique(both, axis=0, return_inverse=True)
    weights = np.bincount(indexes.reshape(-1), signs, len(rows)).astype(np.int64)
    changed = weights != 0
    return rows[changed], weights[changed]
