"""The queries in one arena: blocks of elements in order of time go in, changes of solutions come out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, NoReturn, TypeAlias
from weakref import WeakSet, proxy

import numpy as np
from pyoxigraph import NamedNode

from cqels.engine.answers import Answers
from cqels.engine.batch import Batch, Words
from cqels.engine.budgets import Budget, Guard, Stop, run_guarded, stop, stop_uncompiled, within
from cqels.engine.feeding import Feeding, Fit
from cqels.engine.published import PublishedAnswers, without_slide
from cqels.engine.running import Running
from cqels.engine.sharing import Share
from cqels.engine.tables import Tables
from cqels.engine.terms import Terms
from cqels.flow.calls import Calls
from cqels.flow.compile import Compiler
from cqels.flow.obstacles import times_matter
from cqels.flow.ordering import orders_matter
from cqels.flow.times import tell_times
from cqels.kernels import dictionary as dictionary_kernels
from cqels.kernels import machine
from cqels.kernels.lore import tell
from cqels.kernels.memory import FIRST, HEAP, ROOTS, SHARED, Arena, give
from cqels.kernels.rows import COUNT, DATA, DONE, FULL, NUMBER, PAUSED, WIDTH, clear
from cqels.kernels.select import PROGRAM
from cqels.kernels.terms import ArenaDictionary
from cqels.model.errors import QueryError
from cqels.model.interrupts import Working, between_steps
from cqels.model.terms import Triple
from cqels.plan import algebra
from cqels.plan.algebra import Query, Service, Source, transform_plan, walk_plan
from cqels.plan.rules import rewrite
from cqels.plan.scope import variables
from cqels.plan.templates import constants_of, general
from cqels.store.dataset import Store
from cqels.store.dependencies import ANY, graphs_of

if TYPE_CHECKING:
    from cqels.engine.recompute import Recomputation

Job: TypeAlias = Generator[BaseException | None]
"""Work that may be left and gone on with, wherever it gives something: an exception to be raised, or nothing."""

DICTIONARY_ROOT, MEMO_ROOT = ROOTS, ROOTS + 1
STEP = 1 << 16
"""Between the numbers of elements that come: so these do not depend on what is made of them here."""
_LEAST_RELEASE = 1 << 16
"""Terms that a dictionary has at least before those that nothing refers to are looked for."""
_PAUSE = 50_000_000
"""Nanoseconds after which it is time to look whether something else is wanted."""
_LARGE = 1 << 10
"""Words of a free block from which on it is not searched for terms."""


class Core:
    """Runs queries over the streams it is told of, each element in its turn."""

    watch: Callable[[], None] = staticmethod(lambda: None)
    """Raises an exception where the query that is worked for is to be stopped in the middle of a step."""

    def __init__(self, store: Store, arena: Arena, *, start: int = 0, share: bool = True) -> None:
        self.store = store
        self.share = share
        """Queries share what they can."""
        self.arena = arena
        self.dictionary = ArenaDictionary(arena)
        self.calls = Calls(self.dictionary)
        arena.words[DICTIONARY_ROOT], arena.words[MEMO_ROOT] = self.dictionary.place, self.calls.memo
        self.terms = Terms(self.dictionary)
        self.start = start
        self.number = STEP
        """Of the next element that comes, in order of arrival over all streams, in steps."""
        self.made = 0
        """Elements that queries made since the last one came: their numbers are between its own and the next."""
        self.last: int | None = None
        """The time of the last event."""
        self.streams: dict[str, int] = {}
        """The streams that there are, with their numbers."""
        self.gone: dict[str, int] = {}
        """Streams whose queries were dropped."""
        self.running: list[Running] = []
        """The queries."""
        self.makers: dict[str, Running] = {}
        """Those that make streams, by the names of these."""
        self.shares: list[Share] = []
        self.feeding = Feeding(proxy(self))  # which does not keep it: a store is let go with its engine
        self._open: dict[str, Running | Share] = {}
        """What a query that is registered now may share a pipeline with, by what they have in common."""
        self._waiting: list[Running] = []
        """Queries that were registered since something happened, and may share with others that will be."""
        self._uncompiled: deque[tuple[list[Running], Callable[[], None]]] = deque()
        """What there is to compile before anything else happens, and the queries that it is for."""
        self.judging = True
        """Queries that take more than their budgets are stopped; False while what was done before is done again."""
        self.stops: dict[str, Stop] = {}
        """The ends that queries had when it was done before, by their names."""
        self.ended: list[Running] = []
        """Queries that were stopped, which nobody has been told of yet."""
        self.dropped: WeakSet[Running] = WeakSet()
        """Queries that work was begun for and is not to be gone on with."""
        self._jobs: deque[Job] = deque()
        self._is_full = False
        """There was not enough memory in the middle of something."""
        self.released = 0
        self.holders: list[Callable[[], Iterable[Words]]] = []
        """Give words outside the arena that must not be forgotten: of elements that wait to be brought here."""
        self._release_at = _LEAST_RELEASE
        itself = proxy(self)
        self._steps = machine.Steps(lambda: bool(itself.is_abandoned()))
        self._is_alone = False
        """What is worked for is a query that no other has a part in."""
        self._abandoned: BaseException | None = None
        """Why a step was not gone on with."""
        self._tables = Tables(arena, store, self.terms)
        self.block = (0, 0)
        """Place and words of the block that elements are written to."""

    @cached_property
    def _recomputation(self) -> Recomputation:
        """What computes parts of plans anew; most queries have none."""
        from cqels.engine.recompute import Recomputation

        return Recomputation(self.dictionary, self.store)

    @property
    def elements(self) -> int:
        """How many elements have come."""
        return self.elements_at(self.number) - 1

    @staticmethod
    def elements_at(number: int) -> int:
        """How many elements have come when one with a number has."""
        return number // STEP

    # ------------------------------------------------------------ streams and queries

    def add_stream(self, iri: str) -> int:
        if iri not in self.streams:
            self.streams[iri] = self.gone.pop(iri, len(self.streams) + len(self.gone))
        return self.streams[iri]

    def register(self, query: Query, name: str, budget: Budget | None = None) -> Running:
        """Add a query. It sees the elements that come from now on. One with a budget has a pipeline of its own."""
        output = name if query.form == "construct" and ":" in name else None
        self._check_streams(query, output)
        for node in walk_plan(query.plan):
            if isinstance(node, algebra.Service):
                self.store.services.table(node)  # what is not there is said now, and not when something happens
        for each in self.makers.values():
            each.make()  # what has been made so far is not for this query
        if self.share and output is None and budget is None:
            running = self._shared(query, name) or self.planned(query, name, dict(self.streams))
            self._waiting.append(running)
        else:
            running = self.planned(query, name, dict(self.streams))
            running.guard = None if budget is None else Guard(budget)
            self.compile(running)
            self.begin(running)
        if output is not None:
            running.output = self.add_stream(output)
            self.makers[output] = running
        running.began = self.number
        self.running.append(running)
        return running

    def _refresh(self, running: Running) -> bool:
        """Bring the tables of a query up to date: has one changed?"""
        moved: list[bool] = []
        with within(self, running):
            moved += [self._tables.refresh(running, table) for table in running.pipeline.tables]
        return any(moved)

    def begin(self, running: Running) -> None:
        """Let a new pipeline know what time it is, and what the dataset says."""
        if self.last is not None:
            self.arena.words[running.pipeline.place + machine.LAST] = self.last
        self._refresh(running)

    def planned(self, query: Query, name: str, streams: dict[str, int]) -> Running:
        """A query that can be compiled, as one that was registered when there were these streams."""
        published = query.policy == "cqels-1"
        if published:
            query = replace(query, plan=transform_plan(query.plan, without_slide))
        plan = rewrite(query).plan
        return Running(
            query,
            name,
            (PublishedAnswers if published else Answers)(query, name, variables(plan)),
            self.terms,
            plan,
            streams,
            frozenset(number for iri, number in streams.items() if _reads(query, iri)),
            graphs_of(query.plan, default_graphs=query.default_graphs, named_graphs=query.named_graphs),
            times_matter(plan) or orders_matter(plan, whole=_is_whole(query)),
        )

    def compile(self, running: Running, fit: Fit | None = None) -> None:
        """Give a query a pipeline in a heap of its own; `fit` among others."""
        query = running.query
        if fit is not None:
            running.plan, running.fresh = fit.plan, fit.fresh
        closing = machine.CLOSING if query.policy == "window-close" else 0
        always = machine.ALWAYS_SENT if query.emit == "rstream" else 0
        if always and query.form != "ask":
            always = machine.silent_when_empty(always)
        apart = machine.EXPIRY_APART if query.policy == "cqels-1" else 0
        self.calls.asked = []
        compiler = Compiler(self.arena, self.calls, running.known, running.fresh, bool(always), running.name)
        every = 0
        if fit is not None:
            compiler.logs, compiler.slides, every = fit.logs, list(fit.slides), machine.EVERY_ELEMENT
        flags, logged = closing | always | apart | every, fit is not None and fit.logged
        heap = self.arena.make_heap()
        try:
            with self.arena.heap(heap):
                pipeline = compiler.pipeline(query, running.plan, whole=_is_whole(query), flags=flags, logged=logged)
        except BaseException:
            self.calls.release(self.calls.asked)
            self.arena.dissolve(heap)
            raise
        pipeline.heap = heap
        for kind in sorted(compiler.steps):
            self._steps.need(kind)
        running.pipeline, running.functions = pipeline, self.calls.asked
        running.answers.columns = pipeline.columns

    def recompile(self, running: Running, streams: dict[str, int], *, compile: bool = True) -> None:
        """Give a query a new plan and a pipeline of its own, or none if it is not to run."""
        self._replan(running, streams)
        if compile:
            self.compile(running)

    def _replan(self, running: Running, streams: dict[str, int]) -> None:
        """Let a query have a plan of its own, for these streams."""
        again = self.planned(running.query, running.name, streams)
        running.plan, running.known, running.fresh = again.plan, again.known, again.fresh
        running.member, running.uses, running.compiled = None, (), None

    def drop(self, running: Running) -> None:
        """Forget a query, and give its memory back."""
        self.running.remove(running)
        self.stops.pop(running.name, None)
        if running.output is not None:
            del self.makers[running.name]
            self.gone[running.name] = self.streams.pop(running.name)
        self._waiting = [each for each in self._waiting if each is not running]
        share = running.member
        if share is not None:
            share.leave(running)
            if share.classes:
                return
            self.shares.remove(share)
            if share.made is not None:
                self.let_go(share.running)
        else:
            self.let_go(running)
        self.feeding.let_go()
        self._open = {key: each for key, each in self._open.items() if each not in (running, share)}

    def let_go(self, running: Running) -> None:
        """Give the memory and the functions of a pipeline back."""
        if running.compiled is not None and running.stopped is None:
            self.calls.release(running.functions)
            self.arena.dissolve(running.compiled.heap)
            running.functions, running.compiled = [], None

    # ------------------------------------------------------------ queries that share a pipeline

    @property
    def pipelines(self) -> list[Running]:
        """What there is to run: what others need comes before them."""
        return [*self.feeding.feeders.values(), *(each for each in self.units if each.compiled is not None)]

    @property
    def units(self) -> list[Running]:
        """What has a pipeline, or will have one, and sends something."""
        made = (each.made.running for each in self.shares if each.made is not None)
        own = (each for each in self.running if each.member is None)
        return [each for each in (*own, *made) if each.stopped is None]

    def _shared(self, query: Query, name: str) -> Running | None:
        """A query that will have a pipeline with others, or that others may have one with later; None for neither."""
        constants = constants_of(query)
        made = {NamedNode(each) for each in self.makers}
        if constants is None or any(source.stream in made for source in sources_of(query)):
            return None
        key = repr(replace(general(query, range(len(constants))).query, name=None))
        there = self._open.get(key)
        if there is None:
            running = self.planned(query, name, dict(self.streams))
            if not running.is_recomputed:
                self._open[key] = running
            return running
        if isinstance(there, Running):
            there = self._open[key] = self._opened(there)
        running = next(there.members).alike(query, name)
        there.add(running, constants)
        return running

    def _opened(self, running: Running) -> Share:
        """Let others have a part in what a query would have alone."""
        constants = constants_of(running.query)
        assert constants is not None
        share = Share(self)
        share.add(running, constants)
        self.shares.append(share)
        return share

    def settle(self) -> None:
        """Something happens: compile what was registered since.

        Who is registered later sees less, and shares nothing with those who are there now.  What fails is stopped, and
        the others go on; what is interrupted goes on the next time.
        """
        if self._waiting:
            tasks = self.feeding.settle(self._settled())
            self.close_shares()
            self._uncompiled.extend(tasks)
        while self._uncompiled:
            queries, compile = self._uncompiled[0]
            try:
                compile()
            except Exception as error:
                for running in queries:
                    stop_uncompiled(self, running, error)
            self._uncompiled.popleft()

    def _settled(self) -> list[Running]:
        """What is to have a pipeline of all that waits: a query, or several that share one."""
        for share in [each for each in self._open.values() if isinstance(each, Share)]:
            members = [*share.members]
            if len(members) > 1:
                share.plan()
            if len(members) < 2 or share.running.is_recomputed:
                self.shares = [each for each in self.shares if each is not share]
                for running in members:
                    self._replan(running, running.known)
        return [*dict.fromkeys(each if each.member is None else each.member.running for each in self._waiting)]

    def separated(self, unit: Running) -> list[Running]:
        """The queries that were to share a pipeline, which have none now."""
        share = unit.share
        if share is None:
            return [unit]
        self.shares = [each for each in self.shares if each is not share]
        members = [*share.members]
        for member in members:
            member.member, member.compiled = None, None
        return members

    def make(self, unit: Running, fit: Fit | None = None) -> None:
        """Compile what waits, and let it begin."""
        self.compile(unit, fit)
        if unit.share is not None:
            unit.share.fit()
            unit.share.tell()
        self.begin(unit)

    def close_shares(self) -> None:
        """Let nobody have a part in what is there, and nothing wait to be compiled."""
        self._open.clear()
        self._waiting.clear()
        self._uncompiled.clear()

    # ------------------------------------------------------------ queries that read others

    def readers(self, running: Running) -> list[Running]:
        """The queries that read what a query makes."""
        if running.output is None:
            return []
        return [each for each in self.running if running.output in each.streams]

    def named_readers(self, running: Running) -> list[Running]:
        """Those of them that name it."""
        return [
            each
            for each in self.readers(running)
            if any(source.stream == NamedNode(running.name) for source in sources_of(each.query))
        ]

    def _check_streams(self, query: Query, output: str | None) -> None:
        for source in sources_of(query):
            if not isinstance(source.stream, NamedNode):
                continue
            if source.stream.value == output:
                raise QueryError("the query reads the stream that it makes", span=source.span)
            if source.stream.value not in self.streams:
                known = ", ".join(f"<{iri}>" for iri in self.streams)
                raise QueryError(
                    f"stream {source.stream} is not registered",
                    span=source.span,
                    hint=f"the streams are {known}" if known else "no stream is registered",
                )
        if output is not None and output in self.streams:
            raise QueryError(f"there is a stream <{output}> already", hint="register the query under another name")
        if output in self.gone and self._reaches(self.gone[output], query):
            raise QueryError("the query would feed itself: what it makes is read by a query that it reads")

    def _reaches(self, stream: int, query: Query) -> bool:
        """What comes on a stream reaches a query, directly or through others."""
        if any(_reads(query, iri) for iri, number in self.streams.items() if number == stream):
            return True
        made = [each.output for each in self.running if stream in each.streams and each.output is not None]
        return any(self._reaches(each, query) for each in made)

    # ------------------------------------------------------------ input

    def proceed(self, batch: Batch) -> None:
        """Elements and heartbeats, in order of time."""
        self.add(batch)
        self.resume()

    def add(self, batch: Batch) -> None:
        """Have elements and heartbeats, which `resume` works off."""
        self._check_room()
        if len(batch):
            self._jobs.append(self._proceeding(batch))

    @property
    def has_work(self) -> bool:
        """Something was begun, or is to be, that not all queries have."""
        return bool(self._jobs)

    def resume(self) -> None:
        """Work off what there is to do. An exception leaves the rest of it to be done at the next time."""
        with Working():
            while self._jobs:
                try:
                    for error in self._jobs[0]:
                        if error is not None:
                            raise error
                        between_steps()
                except MemoryError:  # in the middle of a tick, which cannot be gone on with
                    self._is_full = True
                    self.abandon()
                    raise
                self._jobs.popleft()

    def _check_room(self) -> None:
        if self._is_full:
            raise MemoryError("the arena is full")

    def abandon(self) -> None:
        """Let go what there is to do."""
        self._jobs.clear()

    def _proceeding(self, batch: Batch) -> Job:
        self.settle()
        makers = [each for each in self.makers.values() if each.stopped is None]
        made = {each.output for each in makers}
        linked, alone = [], self.pipelines
        if any(self.readers(each) for each in makers):
            linked = [each for each in alone if each.output is not None or each.streams & made]
            alone = [each for each in alone if each not in linked]
        for part, numbers, readers in self._parted(batch, alone):
            block = self._block(part, numbers)
            self.feeding.align(readers)
            for running in readers:
                yield from self._run(running, block)
            self.feeding.clear(readers)
        if linked:
            yield from self._chained(linked, batch)
        else:
            self.number += STEP * int(np.count_nonzero(batch.streams >= 0))
            self.made = 0
        self.last = int(batch.times[-1])
        self.arena.trim()
        if len(self.dictionary) > self._release_at:
            self.collect()

    def _parted(self, batch: Batch, pipelines: list[Running]) -> Iterator[tuple[Batch, Words, list[Running]]]:
        """The elements that some pipelines read, with their numbers, and these pipelines: all of them, each once.

        All are told when the first one comes, and the last.
        """
        if len(batch) == 1:
            numbers: Words = np.array([self.number])
        else:
            elements = batch.streams >= 0
            numbers = np.cumsum(elements, dtype=np.int64) * STEP
            numbers += self.number - STEP * elements
        there = _different(batch.streams) - {machine.HEARTBEAT}
        groups: dict[frozenset[int], list[Running]] = {}
        for each in pipelines:
            groups.setdefault(each.streams & there, []).append(each)
        if groups.keys() == {there}:
            yield batch, numbers, pipelines
            return
        order = np.argsort(batch.streams, kind="stable")
        ordered = batch.streams[order]
        for streams, readers in groups.items():
            places = [
                order[slice(*np.searchsorted(ordered, [stream, stream + 1]))]
                for stream in (machine.HEARTBEAT, *streams)
            ]
            chosen = np.sort(np.concatenate(places))
            first, last = (_event(int(batch.times[end]), machine.ADVANCE) for end in (0, -1))
            part = Batch.concatenate([first, batch.take(chosen), last])
            yield part, np.concatenate([numbers[:1], numbers[chosen], numbers[-1:]]), readers

    def changed(self, graphs: set[NamedNode | None], services: frozenset[Service] = frozenset()) -> None:
        """The dataset has changed: the queries that read these graphs, or ask these services, have a tick.

        `resume` takes it.
        """
        self._check_room()
        self._jobs.append(self._changing(graphs, services))

    def _changing(self, graphs: set[NamedNode | None], services: frozenset[Service]) -> Job:
        self.settle()
        self.feeding.align(self.pipelines)
        made: deque[tuple[int, int, tuple[Triple, ...]]] = deque()
        for running in self.pipelines:
            read = running.graphs
            if not (read & graphs or (ANY in read and graphs - {None}) or _asks(running, services)):
                continue
            self._refresh(running)
            if running.stopped is not None:
                continue
            if running.pipeline.recomputed:
                self._recomputation.changed(running.pipeline)
            self.arena.words[running.pipeline.place + machine.PENDING] = 1
            block = self._block(_event(self.last or 0, machine.UPDATE), np.array([self.number]))
            yield from self._run(running, block)
            made.extend(self._made(running))
        self.feeding.clear(self.pipelines)
        yield from self._deliver(self.pipelines, made)

    def refresh(self) -> None:
        """Bring all tables up to date with a dataset that may have changed unseen."""
        for running in self.pipelines:
            if self._refresh(running):
                if running.pipeline.recomputed:
                    self._recomputation.changed(running.pipeline)
                self.arena.words[running.pipeline.place + machine.PENDING] = 1

    # ------------------------------------------------------------ queries that feed others

    def _makers(self, running: Running) -> list[Running]:
        return [each for each in self.running if each.output in running.streams]

    def _chained(self, linked: list[Running], batch: Batch) -> Job:
        """One event after the other: what a query makes of it arrives before the next one."""
        made: deque[tuple[int, int, tuple[Triple, ...]]] = deque()
        for place in range(len(batch)):
            one = batch[place : place + 1]
            time = int(one.times[0])
            yield from self._close_boundaries(linked, time)
            self.last = time
            if one.streams[0] >= 0:
                self.number += STEP
                self.made = 0
                yield from self._arrive(linked, one, self.number - STEP, made)
            else:
                for running in linked:
                    yield from self._run(running, self._block(one, np.array([self.number])))
                    made.extend(self._made(running))
            yield from self._deliver(linked, made)

    def _arrive(
        self, linked: list[Running], one: Batch, number: int, made: deque[tuple[int, int, tuple[Triple, ...]]]
    ) -> Job:
        block = self._block(one, np.array([number]))
        for running in linked:
            yield from self._run(running, block)
            made.extend(self._made(running))

    def _deliver(self, linked: list[Running], made: deque[tuple[int, int, tuple[Triple, ...]]]) -> Job:
        while made:
            stream, time, triples = made.popleft()
            readers = [each for each in linked if stream in each.streams]
            one = Batch.of([(time, stream, [self.terms.encode_all(triple) for triple in triples])])
            self.made = min(self.made + 1, STEP - 1)
            yield from self._arrive(readers, one, self.number - STEP + self.made, made)

    def _made(self, running: Running) -> Iterator[tuple[int, int, tuple[Triple, ...]]]:
        """What a query has just made, if it is a stream; it is sent as well."""
        if running.output is None:
            return
        for result in running.make():
            if result.sign != "-" and not result.empty:
                yield running.output, result.nanoseconds, result.triples

    def _close_boundaries(self, linked: list[Running], before: int) -> Job:
        """Every boundary that time passes is a tick, in the order of time, producers before consumers.

        Those at which nothing happens are passed when something does.
        """
        if self.last is None:
            return
        made: deque[tuple[int, int, tuple[Triple, ...]]] = deque()
        depths = {place: self._depth(running) for place, running in enumerate(linked)}
        while due := [(self._due(running, before), depths[place], place) for place, running in enumerate(linked)]:
            boundary, _, place = min(due)
            if boundary == before:
                return
            block = self._block(_event(boundary + 1, machine.ADVANCE), np.array([self.number]))
            yield from self._run(linked[place], block)
            made.extend(self._made(linked[place]))
            yield from self._deliver(linked, made)

    def _due(self, running: Running, before: int) -> int:
        """The first boundary at which something happens to a query; `before` if there is none before that."""
        if running.stopped is not None:
            return before
        return int(machine.next_due(self.arena.base, running.pipeline.place, self.start, before))

    def _depth(self, running: Running) -> int:
        return 1 + max((self._depth(each) for each in self._makers(running)), default=0)

    def replay(self, running: Running, batch: Batch, numbers: Words) -> None:
        """Give elements with their numbers to one query, whatever others have seen; what it sends is nobody's."""
        for error in self._run(running, self._block(batch, numbers)):
            if error is not None:
                raise error
        running.raw = []

    # ------------------------------------------------------------ the machine

    def _block(self, batch: Batch, numbers: Words) -> int:
        """Write a block of elements for the machine: its place, the same one for every block."""
        count = len(batch)
        words = machine.BLOCK_WORDS + machine.ELEMENT_WORDS * count + len(batch.triples)
        place, room = self.block
        if words > room:
            if place:
                give(self.arena.base, place, room)
            room = 1 << max(words - 1, 1023).bit_length()
            place = self.arena.take(room)
            self.block = place, room
        elements = place + machine.BLOCK_WORDS
        triples = elements + machine.ELEMENT_WORDS * count
        block = self.arena.array(place, words)
        block[: machine.BLOCK_WORDS] = count, elements, triples, self.start
        rows = block[machine.BLOCK_WORDS : triples - place].reshape(count, machine.ELEMENT_WORDS)
        rows[:, 0], rows[:, 1], rows[:, 2] = batch.times, numbers, batch.streams
        rows[:, 3] = 0 if count == 1 else np.cumsum(batch.counts) - batch.counts
        rows[:, 4] = batch.counts
        block[triples - place :] = batch.triples
        return place

    def _run(self, running: Running, block: int) -> Iterable[BaseException | None]:
        """Run a pipeline over a block. Most often that is done before anything is given."""
        if running.guard is not None:
            return run_guarded(self, running, block)
        self.arena.words[running.pipeline.place + machine.NEXT] = 0
        work = partial(self._work_in_heap, running, block)
        outcome = _outcome(work)
        return () if outcome is DONE else self.going_on(running, work, outcome)

    def _work_in_heap(self, running: Running, block: int) -> bool:
        """`work` for a query without a budget."""
        words = self.arena.words
        try:
            words[HEAP] = running.pipeline.heap
            return self.work(running, block)
        finally:
            words[HEAP] = SHARED

    def going_on(self, running: Running, work: Callable[[], bool], outcome: BaseException | int = PAUSED) -> Job:
        """Work until it is done; not if the query has been dropped, which an exception may have been the cause of."""
        while outcome is not DONE:
            if running.broken:
                stop(self, running, "it was interrupted in the middle of a tick", self.elements, self.last)
            yield outcome if isinstance(outcome, BaseException) else None
            gone = running in self.dropped or running.stopped is not None
            outcome = DONE if gone else _outcome(work)

    def work(self, running: Running, block: int, most: int | None = None) -> bool:
        """Go on with a block, for a while: is it done? Of what that sends, only the results of so many ticks count."""
        words, pipeline = self.arena.words, running.pipeline
        self._is_alone = running.share is None and not running.uses and pipeline.sends
        began = perf_counter_ns()
        while (status := self._stretch(running, block)) != DONE:
            if status == PAUSED:
                took = perf_counter_ns() - began
                running.patience = max(running.patience >> 1, 1) if took > 2 * _PAUSE else running.patience << 1
                if took > _PAUSE:
                    break
                continue
            if status == FULL:
                self._raise_full(running)
            number = int(words[pipeline.place + machine.AT])
            if number == 0:  # the windows come before all operators
                tell_times(self.dictionary, pipeline.place)
            elif number in pipeline.groups:
                from cqels.kernels.folds import serve

                serve(self.dictionary, pipeline.groups[number])
            elif number in pipeline.recomputed:
                self._recomputation.serve(pipeline, pipeline.recomputed[number], running.name)
            elif asking := pipeline.asking(number):
                self.calls.answer(int(words[asking + PROGRAM]))
            else:  # an operator that orders
                tell(self.dictionary, pipeline.terms)
        self.gather(running, most)
        return status == DONE

    def is_abandoned(self) -> bool:
        """In the middle of a long step: is it not to be gone on with, since there was a signal or too much time?

        What others depend on is gone on with: signals wait until the tick is over.
        """
        try:
            self.watch()
            if self._is_alone:
                between_steps()
        except BaseException as error:
            self._abandoned = error
        return self._abandoned is not None

    def _raise_full(self, running: Running) -> NoReturn:
        error, self._abandoned = self._abandoned, None
        if error is None:
            raise MemoryError("the arena is full")
        running.broken = True
        raise error

    def _stretch(self, running: Running, block: int) -> int:
        """Let the machine work until it has to ask, or has done enough at once."""
        return int(machine.run(self.arena.base, running.pipeline.place, block, self._steps.address, running.patience))

    def gather(self, running: Running, most: int | None = None) -> None:
        """Take what a pipeline has sent, at its first so many ticks or at all of them; what it logs is not for us."""
        words = self.arena.words
        queue = int(words[running.pipeline.place + machine.RESULTS])
        if (count := int(words[queue + COUNT])) and running.pipeline.sends:
            width, data = int(words[queue + WIDTH]), int(words[queue + DATA])
            rows = words[data : data + count * width].reshape(count, width).copy()
            clear(self.arena.base, queue)
            if most is not None:
                later = np.flatnonzero(rows[:, NUMBER] > most)
                rows = rows[: later[0]] if len(later) else rows  # what is behind may have no number yet
            if not len(rows):
                return
            if running.share is None:
                running.raw.append(rows)
            else:
                running.share.route(rows)

    # ------------------------------------------------------------ memory

    def collect(self) -> int:
        """Forget the terms that nothing refers to, in the arena or where elements wait: how many.

        Whatever word of the arena could be the number of a term is taken for one, but for the elements that came last
        and what large free blocks were left with: nothing in use is ever forgotten, and what is kept in vain is bounded
        by the size of the arena.
        """
        base, place, words = self.arena.base, self.dictionary.place, self.arena.words
        self.calls.forget()
        self.terms.forget()
        for running in self.pipelines:
            if running.pipeline.terms:
                from cqels.kernels.sorting import forget_lore

                with within(self, running):
                    forget_lore(base, running.pipeline.terms)
        if not dictionary_kernels.clear_marks(base, place):
            raise MemoryError("the arena is full")
        left_out = [
            (int(words[place + at]), int(words[place + size]) * scale)
            for at, size, scale in (
                (dictionary_kernels.ENTRIES, dictionary_kernels.ENTRY_ROOM, dictionary_kernels.ENTRY_WORDS),
                (dictionary_kernels.TABLE, dictionary_kernels.SLOTS, 1),
                (dictionary_kernels.MARKS, dictionary_kernels.MARK_WORDS, 1),
            )
        ]
        left_out += [self.block, *self.arena.free_blocks(least=_LARGE)]  # the elements of the block are worked off
        at = FIRST
        for start, size in [*sorted(left_out), (self.arena.used, 0)]:
            dictionary_kernels.mark_column(base, place, at, max(start - at, 0), 1)
            at = max(at, start + size)
        waiting = (words for held in self.holders for words in held())
        for outside in (*waiting, *(rows for running in self.running for rows in running.raw)):
            flat = np.ascontiguousarray(outside, np.int64).reshape(-1)
            dictionary_kernels.mark_column(base, place, (flat.ctypes.data - base) // 8, len(flat), 1)
        gone = int(dictionary_kernels.sweep(base, place))
        self.released += gone
        self._release_at = max(2 * len(self.dictionary), _LEAST_RELEASE)
        return gone


def _outcome(work: Callable[[], bool]) -> BaseException | int:
    """What comes of a stretch of work: DONE, PAUSED, or an exception, after which it can be gone on with."""
    try:
        return DONE if work() else PAUSED
    except MemoryError:
        raise
    except BaseException as error:
        return error


def sources_of(query: Query) -> list[Source]:
    """The streams with their windows that a query reads."""
    return [source for node in walk_plan(query.plan) if isinstance(node, algebra.Stream) for source in node.sources]


def _reads(query: Query, iri: str) -> bool:
    return any(not isinstance(source.stream, NamedNode) or source.stream.value == iri for source in sources_of(query))


def _is_whole(query: Query) -> bool:
    """It sends all solutions, not their changes."""
    return query.emit == "rstream" or (query.emit == "snapshot" and query.form != "ask")


def _different(streams: Words) -> frozenset[int]:
    """The numbers that there are; mostly it is one."""
    if len(streams) == 1:
        return frozenset((int(streams[0]),))
    least, most = int(streams.min()), int(streams.max())
    return frozenset({least} if least == most else np.unique(streams).tolist())


def _event(time: int, kind: int) -> Batch:
    return Batch.of([(time, kind, ())])


def _asks(running: Running, services: frozenset[Service]) -> bool:
    return bool(services) and any(node in services for node in walk_plan(running.plan) if isinstance(node, Service))
