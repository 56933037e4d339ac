"""Streams in files through the engine, as fast as they can be read: bytes, batches, results."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from cqels.engine.batch import Batch, Words
from cqels.engine.engine import Engine
from cqels.engine.intake import Intake
from cqels.engine.reading import file_batches
from cqels.engine.standing import StandingQuery
from cqels.io import Rejected, Rejects, Result, StreamDeclaration, StreamSettings, Tally
from cqels.io.files import files_of
from cqels.io.read import check_files
from cqels.plan.algebra import Query
from cqels.store.dataset import Store


def replay(
    queries: Iterable[Query],
    declarations: Iterable[StreamDeclaration],
    store: Store,
    *,
    start: int = 0,
    until: int | None = None,
    reject: Callable[[Rejected], None] = lambda rejected: None,
    strict: bool = False,
    tally: Tally | None = None,
    analysed: Callable[[str], object] | None = None,
) -> Iterator[tuple[Query, Result]]:
    """Send the streams' elements through the queries in the order of time; results as they come.

    `until` is the time of a last heartbeat, which closes the windows that end before it.  With `strict` the first
    rejected element ends the run.  With no streams there is one tick, at `start`.  `analysed` is called at the end
    with the plan of each query and what it did.
    """
    declared = tuple(declarations)
    tally = tally or Tally()
    rejects = Rejects(tally, reject, strict)
    with Engine(store=store, start=start, reject=rejects.late) as engine:
        for each in declared:
            engine.declare(StreamSettings(each.iri, each.lateness, each.idle, each.clock == "arrival"))
        running: list[tuple[Query, StandingQuery]] = []
        for query in queries:
            running.append((query, engine.register(query, declare=False)))

        def taken() -> Iterator[tuple[Query, Result]]:
            rejects.check()
            sent = [[(query, result) for result in standing.take()] for query, standing in running]
            for pair in heapq.merge(*sent, key=lambda pair: pair[1].time):
                tally.results += 1
                yield pair

        sources = [batches(each, number, engine.intake, rejects.malformed) for number, each in enumerate(declared)]
        for batch in merged(sources, engine.hold):
            tally.elements += len(batch)
            tally.time = int(batch.times[-1])
            engine.push_batch(batch)
            yield from taken()
            tally.watch(tally)
        engine.finish()
        yield from taken()
        if until is not None:
            engine.heartbeat(until)
        elif not declared:
            engine.heartbeat(start)
        yield from taken()
        if analysed is not None:
            for _, standing in running:
                analysed(standing.explain())


def batches(
    declaration: StreamDeclaration, stream: int, intake: Intake, reject: Callable[[Rejected], None]
) -> Iterator[Batch]:
    """The elements of a stream as batches."""
    files = files_of(declaration.path)
    template = check_files(declaration, files)
    for path in files:
        yield from file_batches(declaration, path, template, stream, intake, reject)


def merged(
    streams: Iterable[Iterator[Batch]], hold: Callable[[Callable[[], list[Words]]], None] | None = None
) -> Iterator[Batch]:
    """Merge by time; at equal times the earlier stream goes first. Each stream keeps its own order, sorted or not.

    So an element goes as if its time were the largest so far of its stream.  `hold` is told what waits here.
    """
    sources = [_Source(each) for each in streams]
    if hold is not None:
        hold(lambda: [each.batch.triples for each in sources])
    if len(sources) == 1:
        while sources[0].fill():
            yield sources[0].take(len(sources[0].batch))
        return
    while sum(each.fill() for each in sources):
        # what is before this time, of all streams, is here: a stream that can still give more goes no further
        limit = min((each.keys[-1] for each in sources if not each.ended), default=None)
        parts, keys = [], []
        for each in sources:
            size = len(each.keys) if limit is None else int(np.searchsorted(each.keys, limit, side="left"))
            keys.append(each.keys[:size])
            parts.append(each.take(size))
        if any(len(part) for part in parts):
            order = np.argsort(np.concatenate(keys), kind="stable")
            yield Batch.concatenate(parts).take(order)
        else:
            for each in sources:
                each.more()  # all that is here has one time: more of it may come


class _Source:
    """What of a stream has been read and not yet been merged."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.batch = Batch.empty()
        self.keys: Words = self.batch.times
        self.ended = False
        self._latest = -(2**63)

    def fill(self) -> bool:
        """Read on if all is taken: is there anything?"""
        if not len(self.batch):
            self.more()
        return len(self.batch) > 0

    def more(self) -> None:
        if self.ended:
            return
        following = next(self._batches, None)
        if following is None:
            self.ended = True
            return
        keys = np.maximum(np.maximum.accumulate(following.times), self._latest)
        self._latest = int(keys[-1])
        self.keys = np.concatenate([self.keys, keys])
        self.batch = Batch.concatenate([self.batch, following])

    def take(self, size: int) -> Batch:
        taken = self.batch[:size]
        self.batch, self.keys = self.batch[size:], self.keys[size:]
        return taken
