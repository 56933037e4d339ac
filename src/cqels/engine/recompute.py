"""The parts of a query that have no incremental operators: evaluated as the reference does, over what the arena holds.

Nothing is remembered here from one tick to the next but the graphs of the dataset, which follow the store's versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import groupby
from typing import Any

import numpy as np
from pyoxigraph import Literal, NamedNode

from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import ALWAYS, COUNT, DATA, NEVER, WIDTH, clear
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators import window
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.lang.syntax import Range
from cqels.model.dictionary import decode, encode
from cqels.model.interrupts import exposed
from cqels.model.terms import XSD_INTEGER, Term, Triple
from cqels.physical.pipeline import Kept, Pipeline, Recomputed, has_payload_time, put_row
from cqels.plan import algebra
from cqels.plan.algebra import Source
from cqels.reference.graphs import StampedGraph
from cqels.reference.plan_evaluation import Evaluator, World
from cqels.reference.solutions import Bag, Solution, Stamp
from cqels.reference.windows import Arrival, Boundary, Moment, content, timed
from cqels.store.dataset import Store
from cqels.store.dependencies import ANY, graphs_of

Content = list[tuple[Triple, Stamp]]
Row = tuple[int, ...]


class Recomputation:
    """Computes parts of queries anew, and writes what has changed into their queues."""

    def __init__(self, dictionary: ArenaDictionary, store: Store) -> None:
        self._arena: Arena = dictionary.arena
        self._dictionary = dictionary
        self._store = store
        self._graphs: dict[NamedNode | None, tuple[int, StampedGraph]] = {}

    def serve(self, pipeline: Pipeline, part: Recomputed, seed: str) -> None:
        """Compute a part at the tick that its pipeline is in."""
        now = int(self._arena.words[pipeline.offset + scheduler.NOW])
        contents = {source: self._content(pipeline, source, kept, now) for source, kept in part.windows.items()}
        self._notice(pipeline, part, contents)
        self._arena.words[part.offset + scheduler.UNTIL] = self._until(pipeline, part, contents, now)
        evaluator = Evaluator(self._world(pipeline, part, contents, now, seed))
        bag = exposed(lambda: evaluator.solutions(part.plan, computed=pipeline.computed, events=part.events))
        after = Counter(self._row(part, solution, index, fresh=pipeline.fresh) for index, solution in enumerate(bag))
        before = self._before(part)
        for row in dict.fromkeys((*before, *after)):
            if weight := after[row] - before[row]:
                put_row(self._arena, part.stage.queue, (weight, *row))
        clear(self._arena.base, part.before)
        for row, weight in after.items():
            put_row(self._arena, part.before, (weight, *row))

    def changed(self, pipeline: Pipeline) -> None:
        """The dataset has changed: what reads it is computed anew at the next tick."""
        for part in pipeline.recomputed.values():
            self._arena.words[part.offset + scheduler.CHANGED] = 1

    # ------------------------------------------------------------ rows

    def _row(self, part: Recomputed, solution: Solution, index: int, *, fresh: bool) -> Row:
        stamps = (*solution.newest, ALWAYS if solution.oldest is None else solution.oldest)
        names = part.stage.columns[:-1] if part.ranked else part.stage.columns
        columns = [self._encode(solution.bindings.get(name)) for name in names]
        if part.ranked:
            columns.append(self._encode(Literal(str(index), datatype=XSD_INTEGER)))
        return (*(stamps if fresh else (NEVER, -1, ALWAYS)), *columns)

    def _before(self, part: Recomputed) -> Counter[Row]:
        words, queue = self._arena.words, part.before
        width, data = int(words[queue + WIDTH]), int(words[queue + DATA])
        rows = words[data : data + int(words[queue + COUNT]) * width].reshape(-1, width).tolist()
        return Counter({tuple(row): weight for weight, *row in rows})

    def _encode(self, term: Term | None) -> int:
        return 0 if term is None else int(encode(term, self._dictionary))

    # ------------------------------------------------------------ windows

    def _until(self, pipeline: Pipeline, part: Recomputed, contents: Mapping[Source, Content], now: int) -> int:
        """The time from which on a part may be other than it is now, though nothing comes."""
        if part.timely and not (part.needs_windows and not any(contents.values())):
            return NEVER
        return min((self._changes(pipeline, source, kept, now) for source, kept in part.timed), default=ALWAYS)

    def _changes(self, pipeline: Pipeline, source: Source, kept: Kept, now: int) -> int:
        """The first time at which a window over payload times may be other than it is now."""
        assert isinstance(source.window, Range)
        arrivals = self._arrivals(kept)
        if source.window.slide is not None:
            boundary = self._closed(pipeline, source, kept, arrivals)[source.window.slide]
            if arrivals and (boundary is None or arrivals[-1].number >= boundary.number):
                return now  # what came since the last boundary waits for the next
            now = now if boundary is None else boundary.time
        times = [each.time for each in timed(arrivals, source.window.time)]
        bounds = (bound for time in times for bound in (time, time + source.window.width))
        return min((min(max(bound, now + 1), ALWAYS) for bound in bounds if bound >= now), default=ALWAYS)

    def _arrivals(self, kept: Kept) -> list[Arrival]:
        return [
            Arrival(time, number, tuple(triple for triple, _ in members))
            for (time, number), members in groupby(self._entries(kept), key=lambda entry: entry[1])
        ]

    def _content(self, pipeline: Pipeline, source: Source, kept: Kept, now: int) -> Content:
        if not has_payload_time(source):
            return list(self._entries(kept))
        arrivals = self._arrivals(kept)
        return content(source.window, arrivals, Moment(now, self._closed(pipeline, source, kept, arrivals)))

    def _entries(self, kept: Kept) -> Content:
        """The triples that a window has let in, in the order in which they came."""
        words, offset = self._arena.words, kept.offset
        room, width = int(words[offset + window.ROOM]), window.ENTRY_WORDS
        ring = self._arena.array(int(words[offset + window.RING]), room * width).reshape(room, width)
        numbers = np.arange(words[offset + window.LEFT], words[offset + window.ENTERED]) & (room - 1)
        entries = ring[numbers, : window.ENTRY_FLAGS]
        terms: dict[int, Any] = {word: decode(word, self._dictionary) for word in np.unique(entries[:, :3]).tolist()}
        return [
            ((terms[subject], terms[predicate], terms[value]), (time, number))
            for subject, predicate, value, time, number in entries.tolist()
        ]

    def _closed(
        self, pipeline: Pipeline, source: Source, kept: Kept, arrivals: list[Arrival]
    ) -> dict[int, Boundary | None]:
        """The last boundary that has closed: what is later than it arrived after that."""
        assert isinstance(source.window, Range)
        if source.window.slide is None:
            return {}
        words = self._arena.words
        closed = int(words[int(words[pipeline.offset + scheduler.SLIDES_AT]) + 2 * kept.slide + 1])
        if closed == NEVER:
            return {source.window.slide: None}
        after = (each.number for each in arrivals if each.time > closed)
        return {source.window.slide: Boundary(closed, next(after, ALWAYS))}

    def _notice(self, pipeline: Pipeline, part: Recomputed, contents: Mapping[Source, Content]) -> None:
        """Let the scheduler know of changes of payload-time windows, which it cannot see."""
        words = self._arena.words
        for source, kept in part.timed:
            stamps = [stamp for _, stamp in contents[source]]
            digest = int.from_bytes(blake2b(repr(stamps).encode(), digest_size=8).digest(), signed=True)
            if digest != int(words[kept.seen_at]):
                words[kept.seen_at] = digest
                words[pipeline.offset + scheduler.PENDING] = 1
            if stamps:
                words[pipeline.offset + scheduler.FILLED] = 1

    # ------------------------------------------------------------ the world

    def _world(
        self, pipeline: Pipeline, part: Recomputed, contents: Mapping[Source, Content], now: int, seed: str
    ) -> World:
        query = pipeline.query
        read = graphs_of(part.plan)
        named = self._store.named_graphs() if query.named_graphs is None else query.named_graphs
        return World(
            default=self._default(query.default_graphs) if None in read else StampedGraph(),
            named={name: self._graph(name) for name in named if name in read or ANY in read},
            streams=tuple(NamedNode(iri) for iri in pipeline.streams),
            window=self._windows(contents),
            service=self._service,
            now=now,
            seed=seed,
        )

    def _windows(
        self, contents: Mapping[Source, Content]
    ) -> Callable[[tuple[Source, ...], tuple[NamedNode, ...]], StampedGraph]:
        made: dict[tuple[tuple[Source, ...], tuple[NamedNode, ...]], StampedGraph] = {}

        def merged(sources: tuple[Source, ...], graphs: tuple[NamedNode, ...]) -> StampedGraph:
            key = sources, graphs
            if key not in made:
                made[key] = StampedGraph((triple, None) for name in graphs for triple in self._store.triples(name))
                for source in sources:
                    for triple, stamp in contents[source]:
                        made[key].add(triple, stamp)
            return made[key]

        return merged

    def _default(self, names: tuple[NamedNode, ...] | None) -> StampedGraph:
        if names is None:
            return self._graph(None)
        return StampedGraph((triple, None) for name in names for triple in self._graph(name).stamps)

    def _graph(self, name: NamedNode | None) -> StampedGraph:
        version = self._store.version(name)
        known = self._graphs.get(name)
        if known is None or known[0] != version:
            known = version, StampedGraph((triple, None) for triple in self._store.triples(name))
            self._graphs[name] = known
        return known[1]

    def _service(self, plan: algebra.Service) -> Bag:
        table = self._store.services.table(plan)
        return [
            Solution({name: term for name, term in zip(table.variables, row, strict=True) if term is not None})
            for row in table.rows
        ]
