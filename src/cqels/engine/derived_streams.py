"""Derived streams: queries whose results are elements that others read; queries that no other reads run elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
from pyoxigraph import NamedNode

from cqels.engine.engine_state import STEP, EngineState
from cqels.engine.executor import Executor, Job, event
from cqels.engine.running_query import Running
from cqels.ingest.element_batch import Batch
from cqels.kernels import scheduler
from cqels.model.terms import Triple
from cqels.plan.algebra import sources_of

Derived: TypeAlias = tuple[int, int, tuple[Triple, ...]]
"""An element that a query derived: its stream, its time and its triples."""


class DerivedStreams:
    """Runs the queries that feed others, and those that they feed, one event after the other."""

    def __init__(self, state: EngineState, executor: Executor) -> None:
        self._state = state
        self._executor = executor

    # ------------------------------------------------------------ who reads whom

    def readers(self, running: Running) -> list[Running]:
        """The queries that read the stream that a query produces."""
        if running.output is None:
            return []
        return [each for each in self._state.running if running.output in each.streams]

    def named_readers(self, running: Running) -> list[Running]:
        """Those of them that name it."""
        return [
            each
            for each in self.readers(running)
            if any(source.stream == NamedNode(running.name) for source in sources_of(each.query))
        ]

    def linked(self, pipelines: Iterable[Running]) -> list[Running]:
        """The pipelines that produce or read derived streams, if any of these is read."""
        producers = [each for each in self._state.producers.values() if each.stopped is None]
        if not any(self.readers(each) for each in producers):
            return []
        produced = {each.output for each in producers}
        return [each for each in pipelines if each.output is not None or each.streams & produced]

    def _depth(self, running: Running) -> int:
        """One more than the depth of the deepest query whose stream it reads."""
        producers = (each for each in self._state.running if each.output in running.streams)
        return 1 + max((self._depth(each) for each in producers), default=0)

    # ------------------------------------------------------------ events

    def advance(self, linked: list[Running], batch: Batch) -> Job:
        """One event after the other: what a query derives from it arrives before the next one."""
        state = self._state
        derived: deque[Derived] = deque()
        for index in range(len(batch)):
            one = batch[index : index + 1]
            time = int(one.times[0])
            yield from self._close_boundaries(linked, time)
            state.last = time
            if one.streams[0] >= 0:
                state.number += STEP
                state.derived = 0
                yield from self._arrive(linked, one, state.number - STEP, derived)
            else:
                for running in linked:
                    yield from self.run(running, one, derived)
            yield from self.deliver(linked, derived)

    def run(self, running: Running, event: Batch, derived: deque[Derived]) -> Job:
        """Run a pipeline over an event that is no element, and add what it derives."""
        block = self._executor.write_block(event, np.array([self._state.number]))
        yield from self._executor.run(running, block)
        derived.extend(self._results(running))

    def deliver(self, linked: list[Running], derived: deque[Derived]) -> Job:
        """Let derived elements arrive, and those that are derived from them, until there are none."""
        state = self._state
        while derived:
            stream, time, triples = derived.popleft()
            readers = [each for each in linked if stream in each.streams]
            one = Batch.of([(time, stream, [state.terms.encode_all(triple) for triple in triples])])
            state.derived = min(state.derived + 1, STEP - 1)
            yield from self._arrive(readers, one, state.number - STEP + state.derived, derived)

    def _arrive(self, readers: list[Running], one: Batch, number: int, derived: deque[Derived]) -> Job:
        block = self._executor.write_block(one, np.array([number]))
        for running in readers:
            yield from self._executor.run(running, block)
            derived.extend(self._results(running))

    def _results(self, running: Running) -> Iterator[Derived]:
        """What a query has just sent, as elements of the stream that it produces, if it does."""
        if running.output is None:
            return
        for result in running.make():
            if result.sign != "-" and not result.empty:
                yield running.output, result.nanoseconds, result.triples

    # ------------------------------------------------------------ boundaries

    def _close_boundaries(self, linked: list[Running], before: int) -> Job:
        """Every window boundary that time passes is a tick, in the order of time, producers before consumers.

        Those at which nothing happens are passed when something does.
        """
        if self._state.last is None:
            return
        derived: deque[Derived] = deque()
        depths = [self._depth(running) for running in linked]
        while due := [(self._due(running, before), depths[index], index) for index, running in enumerate(linked)]:
            boundary, _, index = min(due)
            if boundary == before:
                return
            yield from self.run(linked[index], event(boundary + 1, scheduler.ADVANCE), derived)
            yield from self.deliver(linked, derived)

    def _due(self, running: Running, before: int) -> int:
        """The first boundary at which something happens to a query; `before` if there is none before that."""
        if running.stopped is not None:
            return before
        state = self._state
        return int(scheduler.next_due(state.arena.base, running.pipeline.offset, state.start, before))
