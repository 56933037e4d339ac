"""The core of an engine: its parts, and how batches and changes of the dataset go through the pipelines of its queries.

Which pipelines there are is the registry's; how one of them runs over a block is the executor's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from pyoxigraph import NamedNode

from cqels.engine.derived_streams import Derived, DerivedStreams
from cqels.engine.engine_state import STEP, EngineState
from cqels.engine.executor import Executor, Job, event
from cqels.engine.registry import Registry
from cqels.engine.running_query import Running
from cqels.engine.term_gc import TermCollector
from cqels.ingest.element_batch import Batch, Words
from cqels.kernels import scheduler
from cqels.kernels.memory.arena import Arena
from cqels.model.errors import ArenaFull
from cqels.model.interrupts import Working, between_steps
from cqels.plan.algebra import Service, walk_plan
from cqels.store.dataset import Store
from cqels.store.dependencies import ANY


class Core:
    """Runs queries over streams: batches of elements in order of time go in, changes of solutions come out."""

    def __init__(self, store: Store, arena: Arena, *, start: int = 0, share: bool = True) -> None:
        """The core of an engine without streams and queries; these share pipelines if `share` says so."""
        self.state = EngineState(store, arena, start=start)
        self.executor = Executor(self.state)
        self.registry = Registry(self.state, self.executor.steps, share=share)
        self.derived_streams = DerivedStreams(self.state, self.executor)
        self.collector = TermCollector(self.state)
        self._jobs: deque[Job] = deque()
        self._is_full = False
        """The arena was full in the middle of a tick."""

    # ------------------------------------------------------------ jobs

    def proceed(self, batch: Batch) -> None:
        """Process elements and heartbeats, in order of time."""
        self.add(batch)
        self.resume()

    def add(self, batch: Batch) -> None:
        """Take elements and heartbeats, which `resume` processes."""
        self._check_room()
        if len(batch):
            self._jobs.append(self._advance(batch))

    def changed(self, graphs: set[NamedNode | None], services: frozenset[Service] = frozenset()) -> None:
        """The dataset has changed: the queries that read these graphs, or ask these services, have a tick.

        `resume` takes it.
        """
        self._check_room()
        self._jobs.append(self._update(graphs, services))

    @property
    def has_work(self) -> bool:
        """There are jobs that are not done."""
        return bool(self._jobs)

    def resume(self) -> None:
        """Do all jobs. An exception leaves the rest to be done the next time."""
        with Working():
            while self._jobs:
                try:
                    for error in self._jobs[0]:
                        if error is not None:
                            raise error
                        between_steps()
                except MemoryError:  # in the middle of a tick, which cannot be resumed
                    self._is_full = True
                    self.abandon()
                    raise
                self._jobs.popleft()

    def abandon(self) -> None:
        """Drop all jobs."""
        self._jobs.clear()

    def _check_room(self) -> None:
        if self._is_full:
            raise ArenaFull

    # ------------------------------------------------------------ batches

    def _advance(self, batch: Batch) -> Job:
        """Bring all pipelines to the end of a batch."""
        state, executor, registry = self.state, self.executor, self.registry
        registry.settle()
        alone = registry.pipelines
        linked = self.derived_streams.linked(alone)
        if linked:
            alone = [each for each in alone if each not in linked]
        for part, numbers, readers in self._parted(batch, alone):
            block = executor.write_block(part, numbers)
            registry.shared_joins.align(readers)
            for running in readers:
                yield from executor.run(running, block)
            registry.shared_joins.clear(readers)
        if linked:
            yield from self.derived_streams.advance(linked, batch)
        else:
            state.number += STEP * int(np.count_nonzero(batch.streams >= 0))
            state.derived = 0
        state.last = int(batch.times[-1])
        state.arena.trim()
        if self.collector.is_due:
            self.collect()

    def _parted(self, batch: Batch, pipelines: list[Running]) -> Iterator[tuple[Batch, Words, list[Running]]]:
        """The elements that some pipelines read, with their numbers, and these pipelines: all of them, each once.

        All advance to the times of the first and of the last one.
        """
        if len(batch) == 1:
            numbers: Words = np.array([self.state.number])
        else:
            elements = batch.streams >= 0
            numbers = np.cumsum(elements, dtype=np.int64) * STEP
            numbers += self.state.number - STEP * elements
        there = _different(batch.streams) - {scheduler.HEARTBEAT}
        groups: dict[frozenset[int], list[Running]] = {}
        for each in pipelines:
            groups.setdefault(each.streams & there, []).append(each)
        if groups.keys() == {there}:
            yield batch, numbers, pipelines
            return
        order = np.argsort(batch.streams, kind="stable")
        ordered = batch.streams[order]
        for streams, readers in groups.items():
            ranges = [
                order[slice(*np.searchsorted(ordered, [stream, stream + 1]))]
                for stream in (scheduler.HEARTBEAT, *streams)
            ]
            chosen = np.sort(np.concatenate(ranges))
            first, last = (event(int(batch.times[end]), scheduler.ADVANCE) for end in (0, -1))
            part = Batch.concatenate([first, batch.take(chosen), last])
            yield part, np.concatenate([numbers[:1], numbers[chosen], numbers[-1:]]), readers

    # ------------------------------------------------------------ the dataset

    def _update(self, graphs: set[NamedNode | None], services: frozenset[Service]) -> Job:
        """Let the pipelines that read what has changed in the dataset have a tick."""
        registry = self.registry
        registry.settle()
        registry.shared_joins.align(registry.pipelines)
        derived: deque[Derived] = deque()
        for running in registry.pipelines:
            if not _is_affected(running, graphs, services):
                continue
            registry.refresh_tables(running)
            if running.stopped is not None:
                continue
            registry.tables_changed(running)
            update = event(self.state.last or 0, scheduler.UPDATE)
            yield from self.derived_streams.run(running, update, derived)
        registry.shared_joins.clear(registry.pipelines)
        yield from self.derived_streams.deliver(registry.pipelines, derived)

    # ------------------------------------------------------------ memory

    def collect(self) -> int:
        """Remove the terms that nothing refers to: how many."""
        return self.collector.collect(self.registry.pipelines, self.executor.block)


def _different(streams: Words) -> frozenset[int]:
    """The numbers that there are; mostly it is one."""
    if len(streams) == 1:
        return frozenset((int(streams[0]),))
    least, most = int(streams.min()), int(streams.max())
    return frozenset({least} if least == most else np.unique(streams).tolist())


def _is_affected(running: Running, graphs: set[NamedNode | None], services: frozenset[Service]) -> bool:
    """A query reads one of these graphs, or asks one of these services."""
    read = running.graphs
    return bool(read & graphs) or (ANY in read and bool(graphs - {None})) or _asks(running, services)


def _asks(running: Running, services: frozenset[Service]) -> bool:
    return bool(services) and any(node in services for node in walk_plan(running.plan) if isinstance(node, Service))
