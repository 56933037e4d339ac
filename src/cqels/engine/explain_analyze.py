"""EXPLAIN ANALYZE: the plan of a running query with what its operators have done and what they hold now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cqels.ingest.element_batch import Words
from cqels.kernels.containers.delta_queue import COUNT, DATA, TOTAL
from cqels.kernels.memory.arena import SHARED, Arena
from cqels.kernels.operators.join import CONDITIONS
from cqels.kernels.operators.join_conditions import read_conditions
from cqels.kernels.operators.join_setup import read_orders
from cqels.kernels.operators.star_window import PATTERNS, ROWS_ENTERED, ROWS_LEFT
from cqels.kernels.operators.window import ENTERED, LEFT, STAR
from cqels.physical.pipeline import JoinTrace, Pipeline, Trace
from cqels.plan import algebra
from cqels.plan.algebra import Plan
from cqels.plan.explain import explain
from cqels.plan.plan_text import Show
from cqels.store.service import ServiceCache

SHOWN_ORDERS = 4


Flags: TypeAlias = npt.NDArray[np.bool_]


def analysed(
    arena: Arena, pipeline: Pipeline, plan: Plan, format: str = "text", services: ServiceCache | None = None
) -> str:
    """The plan with its counters: rows sent, what windows and tables hold, bytes of state, orders of joins.

    Of `services`, how often each endpoint is asked, when it last was, and whether it failed.
    """
    analysis = _Analysis(arena, pipeline)

    def notes(node: Plan) -> Iterator[tuple[str, str]]:
        yield from analysis.notes(node)
        if services is not None and isinstance(node, algebra.Service):
            yield from services.notes(node)

    return explain(replace(pipeline.query, plan=plan), format, rewritten=False, notes=notes)


class _Analysis:
    def __init__(self, arena: Arena, pipeline: Pipeline) -> None:
        self._arena = arena
        self._pipeline = pipeline
        self._show = Show(dict(pipeline.query.prefixes))
        self._traces = {id(trace.plan): trace for trace in pipeline.traces}
        self._indexes = {id(trace): index for index, trace in enumerate(pipeline.traces)}
        self._tables = {id(table.plan): table for table in pipeline.tables}
        self._reasons = {id(part.plan): part.reason for part in pipeline.recomputed.values()}
        self._starts, self._sizes = arena.blocks(pipeline.heap)

    def notes(self, plan: Plan) -> Iterator[tuple[str, str]]:
        reason = self._reasons.get(id(plan))
        if reason is not None:
            yield "computed anew", reason
        table = self._tables.get(id(plan))
        if table is not None:
            yield "rows", f"{table.count:,}"
        trace = self._traces.get(id(plan))
        if trace is None:
            return
        if table is None and not isinstance(plan, algebra.Stream):
            yield "changes", f"{self._total(trace):,}"
        yield from self._held(plan, trace)
        for join in self._pipeline.joins:
            if join.queue == trace.queue and isinstance(plan, algebra.Join | algebra.Triples):
                yield from self._orders(join.offset, join.inputs)
                yield from self._early(join)

    def _total(self, trace: Trace) -> int:
        words = self._arena.words
        return int(words[trace.counted] if trace.counted else words[trace.queue + TOTAL] + words[trace.queue + COUNT])

    def _held(self, plan: Plan, trace: Trace) -> Iterator[tuple[str, str]]:
        known: set[int] = set()
        own_operators = set(trace.operators)
        for other in reversed(self._pipeline.traces[: self._indexes[id(trace)]]):  # each comes after those below it
            # what was made for a part is in a row, so one operator tells whether it is below, or below what is known
            inside = not other.operators or (other.operators[0] in own_operators and other.operators[0] not in known)
            if inside and other.plan is not plan:
                known.update(other.operators, other.windows)
        windows = [offset for offset in trace.windows if isinstance(plan, algebra.Stream)]
        if windows:
            counts = [_triples(self._arena, offset) for offset in windows]
            left, entered = (sum(each) for each in zip(*counts, strict=True))
            yield "window", f"{entered - left:,} triples of {entered:,}"
        own = [offset for offset in (*trace.operators, *windows) if offset not in known]
        size = self._bytes(own)
        if size:
            yield "state", _size(size)

    def _orders(self, offset: int, inputs: tuple[int, ...]) -> Iterator[tuple[str, str]]:
        found = sorted(read_orders(self._arena, offset).items(), key=lambda item: -item[1])
        texts = [
            f"{' → '.join(self._input(inputs[number]) for number in order)} ({count:,} times)"
            for order, count in found[:SHOWN_ORDERS]
        ]
        if len(found) > SHOWN_ORDERS:
            texts.append(f"{len(found) - SHOWN_ORDERS} more")
        if texts:
            yield "orders", "; ".join(texts)

    def _early(self, join: JoinTrace) -> Iterator[tuple[str, str]]:
        """What conditions have discarded on the way through a join."""
        counts = read_conditions(self._arena, int(self._arena.words[join.offset + CONDITIONS]))
        for condition, (applied, discarded) in zip(join.conditions, counts, strict=True):
            yield "on the way", f"{self._show.expression(condition)} discards {discarded:,} of {applied:,}"

    def _input(self, queue: int) -> str:
        triple = self._pipeline.matches.get(queue)
        if triple is not None:
            return self._show.triple(triple)
        for trace in self._pipeline.traces:
            if trace.queue == queue:
                inner = trace.plan.input if isinstance(trace.plan, algebra.Static) else trace.plan
                if isinstance(inner, algebra.Triples):
                    return " . ".join(self._show.triple(each) for each in inner.patterns)
                return type(inner).__name__
        return "…"

    # ------------------------------------------------------------ bytes

    def _bytes(self, offsets: list[int]) -> int:
        """The bytes of the blocks that belong to operators and windows, and to nothing else."""
        reached = self._shared.copy()
        words = self._arena.words
        waiting = np.searchsorted(self._starts, np.array(offsets, np.int64)).tolist()
        total = 0
        while waiting:
            block = waiting.pop()
            start, size = int(self._starts[block]), int(self._sizes[block])
            total += size * 8
            waiting += self._reach(words[start : start + size], reached)
        return total

    @cached_property
    def _shared(self) -> Flags:
        """The blocks that are free, or belong to the pipeline and not to one of its operators."""
        reached = np.zeros(len(self._starts), np.bool_)
        words = self._arena.words
        shared = [offset for trace in self._pipeline.traces for offset in (*trace.operators, *trace.windows)]
        queues = {trace.queue for trace in self._pipeline.traces} | set(self._pipeline.matches)
        queues |= {queue for join in self._pipeline.joins for queue in (*join.inputs, join.queue)}
        shared += [offset for queue in queues for offset in (queue, int(words[queue + DATA]))]
        shared += [self._pipeline.offset, *self._pipeline.programs, *self._arena.words[:SHARED].tolist()]
        self._reach(np.array(list(dict.fromkeys(shared)), np.int64), reached)
        reached[np.isin(self._starts, [offset for offset, _ in self._arena.free_blocks()])] = True
        return reached

    def _reach(self, words: Words, reached: Flags) -> list[int]:
        at = np.searchsorted(self._starts, words)
        at[at == len(self._starts)] = 0
        found = np.unique(at[self._starts[at] == words])
        new = found[~reached[found]]
        reached[new] = True
        return [int(block) for block in new]


def _triples(arena: Arena, window: int) -> tuple[int, int]:
    """How many triples have left a window, and how many have entered it."""
    words = arena.words
    left, entered, star = (int(words[window + word]) for word in (LEFT, ENTERED, STAR))
    if star == 0:
        return left, entered
    rows_left, rows_entered, patterns = (int(words[star + word]) for word in (ROWS_LEFT, ROWS_ENTERED, PATTERNS))
    return left + rows_left * patterns, entered + rows_entered * patterns


def _size(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}"
        count = round(count / 1000)
    return f"{count:,} GB"
