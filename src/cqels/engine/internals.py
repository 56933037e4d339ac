"""What an engine is made of, for the code that drives it: Spark's operator, replays of files, benchmarks.

`Engine` is the interface for users; it checks what it is given, and calls this.  Here elements are batches of encoded
terms, streams are declared by their settings, and state is handed from process to process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np
from pyoxigraph import NamedNode

from cqels.engine.access import Access, synchronized, while_open, while_open_at_once
from cqels.engine.arguments import path_of
from cqels.engine.budget_enforcement import obeying
from cqels.engine.budgets import Budget, Stop
from cqels.engine.event_time.wall_clock import WallClock
from cqels.engine.event_time.watermark import Arrived, Watermarks
from cqels.engine.running_query import Running
from cqels.engine.runtime import Core
from cqels.engine.state.snapshot import Aside, State
from cqels.ingest import Element, Rejected, RejectLog, StreamSettings, late_reason, promise_reason
from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.encode import Intake
from cqels.ingest.punctuations import PromiseFinder, has_promises
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.checksummed import Bytes
from cqels.model.errors import CqelsError
from cqels.model.interrupts import Working, uninstall
from cqels.model.terms import Term
from cqels.plan.algebra import Query, Service, sources_of, walk_plan
from cqels.store.dataset import Store

if TYPE_CHECKING:
    from cqels.engine.query_handle import StandingQuery


class EngineInternals:
    """The parts of one engine, and the calls that only code which drives an engine needs.

    Its methods take the engine's lock, as those of `Engine` do.
    """

    def __init__(
        self,
        store: Store,
        arena: Arena,
        *,
        start: int,
        share: bool,
        now: Callable[[], int],
        reject: Callable[[Rejected], None] | None,
        stopped: Callable[[StandingQuery], None] | None,
    ) -> None:
        self._access = Access()
        self.store = store
        self.core = Core(store, arena, start=start, share=share)
        self.watermarks = Watermarks(now=now)
        self.settings: dict[str, StreamSettings] = {}
        """The streams that elements can be pushed to, by their IRIs."""
        self.state = State(self.core, self.watermarks, self.settings)
        self.hold(lambda: [self.watermarks.state()[1].triples, self.aside.elements.triples])
        self.intake = Intake(self.core.state.terms)
        """Encodes elements for `push_batch`."""
        self.promises = PromiseFinder(self.core.state.terms)
        """Tells promises from elements."""
        self.hold(self._held_by_promises)
        self._late: list[Words] = []
        """Words of batches that have late elements, which are told of when the others have been processed."""
        self.hold(lambda: self._late)
        self.wall_clock = WallClock(tick=0)
        """For `tick`."""
        self.queries: dict[str, StandingQuery] = {}
        self.listening: dict[StandingQuery, None] = {}
        """The queries whose results are given to a function, in the order in which they were."""
        self._services = store.services.watch()
        self._asked: dict[str, list[Service]] = {}
        """What queries ask of endpoints, by their names."""
        self._now = now
        self._reject = reject
        self._unseen = RejectLog()
        self._stopped = stopped or _warn
        self._delivering = False

    @property
    def access(self) -> Access:
        """The lock of the engine and of its queries."""
        return self._access

    @property
    def arena(self) -> Arena:
        """The memory that all state is in."""
        return self.core.state.arena

    @property
    def dictionary(self) -> ArenaDictionary:
        """The encoding of terms, in which elements are given to `push_batch`."""
        return self.core.state.dictionary

    @property
    def number(self) -> int:
        """Of the next element that arrives: elements are numbered in their order, in steps."""
        return self.core.state.number

    # ------------------------------------------------------------ streams and queries

    @while_open
    def declare(self, settings: StreamSettings) -> None:
        """Declare a stream that elements can be pushed to."""
        self.settings[settings.iri] = settings
        self.core.registry.add_stream(settings.iri)
        self.watermarks.add(settings)
        self.wall_clock.add(settings)

    def register(self, planned: Query, name: str, budget: Budget | None, *, declare: bool) -> Running:
        """Add a planned query under a name that is free, with the streams that it names if `declare` says so."""
        for source in sources_of(planned) if declare else ():
            named = source.stream
            if isinstance(named, NamedNode) and named.value not in self.core.state.streams and named.value != name:
                self.declare(StreamSettings(named.value))
        running = self.core.registry.register(planned, name, budget)
        if running.output is not None and running.output == len(self.watermarks):
            self.watermarks.add(StreamSettings(name))
            self.wall_clock.add(StreamSettings(name))
        return running

    def add_query(self, standing: StandingQuery) -> None:
        """Know a query that was registered by its name, and have the endpoints that it asks asked again."""
        self.queries[standing.name] = standing
        if services := [node for node in walk_plan(standing.running.plan) if isinstance(node, Service)]:
            self._asked[standing.name] = services
            self._follow()

    @while_open_at_once
    def drop(self, standing: StandingQuery) -> None:
        """Stop a query. What it has sent can still be taken."""
        if standing._access is not self._access:
            raise CqelsError(f"query {standing.name} is one of another engine")
        if self.queries.get(standing.name) is not standing:
            raise CqelsError(f"query {standing.name} has been dropped already")
        if readers := [each.name for each in self.core.derived_streams.named_readers(standing.running)]:
            raise CqelsError(
                f"query {standing.name} makes a stream that is read by {', '.join(readers)}",
                hint=f"drop {readers[0]} first",
            )
        if self.core.has_work:
            # what was begun may never end for it, which may be why it goes
            self.core.executor.dropped.add(standing.running)
            self.go_on()
        with Working():  # a query is dropped, or it is not
            standing.running.make()
            self.core.registry.drop(standing.running)
            del self.queries[standing.name]
            if standing.name in self._asked:
                self._follow()
            self.listening.pop(standing, None)

    @while_open
    def describe_shared_joins(self, running: Running) -> str:
        """What joins a query has in common with which others, in a line."""
        return self.core.registry.shared_joins.describe(running)

    # ------------------------------------------------------------ input

    @while_open
    def push_elements(self, elements: Iterable[Element]) -> None:
        """Elements of any streams, in the order of their arrival."""
        parts = [self.intake.triples(self.number_of(each.stream), each.time, each.triples) for each in elements]
        self.push_batch(Batch.concatenate(parts))

    @while_open
    def push_batch(self, batch: Batch, *, lifted: bool = False) -> None:
        """Encoded elements, in the order of their arrival.

        Where they were `lifted`, promises are marked (`PromiseFinder.marked`), and what is in arrival time has the time
        at which it arrived: else that is now.
        """
        self.take_up_answers()
        arrived: Arrived | None = None
        if not lifted:
            batch = self.promises.marked(batch)
        if has_promises(batch):
            batch = self.promises.resolved(batch, self._numbered_settings(), self._reject_promise)
        try:
            with Working():
                arrived = self.watermarks.arrive(batch, recorded=lifted)
                self._late.append(_late_words(batch, arrived))
                self.core.add(arrived.released)
                self.work()
            self.deliver()
        finally:
            if arrived is not None:
                try:
                    self._reject_all(batch, arrived)
                finally:
                    self._late.pop()

    @while_open
    def promise(self, time: int, stream: int | None = None, subject: Term | None = None) -> None:
        """No element before this time will come: on one stream or on all, or of one subject on one stream."""
        self.take_up_answers()
        with Working():
            if subject is None or stream is None:
                released = self.watermarks.heartbeat(time, stream)
            else:
                released = self.watermarks.punctuate(time, stream, self.core.state.terms.encode(subject))
            self.core.add(released)
            self.work()
        self.deliver()

    @while_open
    def tick(self, now: int) -> None:
        """Let time pass on streams that follow the wall clock."""
        for time, stream in self.wall_clock.due(now):
            self.promise(time, stream)

    def _numbered_settings(self) -> list[StreamSettings]:
        """The settings of all streams by their numbers, those that are gone among them."""
        state = self.core.state
        numbered = sorted((number, iri) for iri, number in (state.streams | state.dropped_streams).items())
        return [self.settings.get(iri, StreamSettings(iri)) for _, iri in numbered]

    def _held_by_promises(self) -> list[Words]:
        """Words that punctuations refer to; asked for before terms are collected."""
        self.promises.forget()
        return [np.array([subject for _, subject, _ in self.watermarks.punctuations()], np.int64)]

    def number_of(self, stream: str) -> int:
        """The number of a stream that elements can be pushed to."""
        if stream not in self.settings:
            if stream in self.core.state.streams:
                raise CqelsError(f"stream <{stream}> is made by a query: nothing else can be pushed to it")
            known = ", ".join(f"<{iri}>" for iri in self.settings)
            raise CqelsError(
                f"stream <{stream}> is not registered",
                hint=f"the streams are {known}" if known else "register a query that reads it, or declare it",
            )
        return self.core.state.streams[stream]

    def go_on(self) -> None:
        """Do the work that there is, and deliver the results."""
        self.work()
        self.deliver()

    def work(self) -> None:
        """Do the work that there is; the next call does the rest if it is interrupted."""
        self._access.unfinished = self.go_on
        try:
            with self._access:
                self.core.resume()
        finally:
            if not self.core.has_work:
                self._access.unfinished = None

    # ------------------------------------------------------------ the dataset

    def changed(self, graphs: set[NamedNode | None]) -> None:
        """These graphs of the dataset have changed: `go_on` gives the queries that read them a tick."""
        self.core.changed(graphs)
        self._access.unfinished = self.go_on

    def renew(self) -> None:
        """Take up what endpoints have answered, unless the engine is closed or in the middle of something.

        Streams in arrival time come to the present, unless others follow the clock only when they are idle.
        """
        if self._access.refusal is not None:
            return
        if self._services.has_news:
            self.take_up_answers()
            self.deliver()
        if self.wall_clock.is_present and not self._delivering:
            self.tick(self._now())

    def take_up_answers(self) -> None:
        """What endpoints have answered since is an update between two ticks."""
        if not self._services.has_news:
            return
        with Working():
            if changed := self._services.take_up():
                self.core.changed(set(), changed)
                self.work()

    def _follow(self) -> None:
        """Have the endpoints of the queries that there are asked again from time to time."""
        self._asked = {name: services for name, services in self._asked.items() if name in self.queries}
        self._services.follow(service for services in self._asked.values() for service in services)

    # ------------------------------------------------------------ output

    def reject(self, rejected: Rejected) -> None:
        """Give what is malformed or late to the user's function, or to the log."""
        (self._reject or self._unseen)(rejected)

    def _reject_all(self, batch: Batch, arrived: Arrived) -> None:
        """Reject all elements that were late; then raise what the user's function raised first."""
        first: Exception | None = None
        late = zip(arrived.late.tolist(), arrived.times, arrived.limits, arrived.own, arrived.subjects, strict=True)
        for index, time, limit, own, subject in late:
            try:
                self._reject_late(batch, index, time, limit, subject, own=own)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    def _reject_promise(self, stream: int, reason: str, words: Words) -> None:
        iri = self._numbered_settings()[stream].iri
        self.reject(Rejected(iri, f"<{iri}>", reason, self._text_of(words)))

    def _text_of(self, words: Words) -> str:
        triples = self.core.state.terms.decode_rows(words.reshape(-1, 3))
        return " ".join(" ".join(map(str, triple)) + " ." for triple in triples)

    def _reject_late(self, batch: Batch, index: int, time: int, limit: int, subject: int, *, own: bool) -> None:
        self.state.late += 1
        stream = self._numbered_settings()[int(batch.streams[index])].iri

        def rejected() -> Rejected:
            if subject:
                reason = promise_reason(time, limit, self.core.state.terms.decode(subject))
            else:
                reason = late_reason(time, limit, own=own)
            return Rejected(stream, f"<{stream}>", reason, self._text_of(batch[index : index + 1].triples))

        if self._reject is None:
            self._unseen.add(stream, rejected)
        else:
            self._reject(rejected())

    def deliver(self) -> None:
        """Give results to the callbacks that wait for them, in order: the first call delivers what these push."""
        if self._delivering:
            return
        if not self.listening:
            self.report_stopped()
            return
        first, failures = None, 0
        self._delivering = True
        try:
            while any(standing.running.has_sent for standing in self.listening):
                for standing in tuple(self.listening):
                    for error in standing.deliver():
                        first, failures = error if first is None else first, failures + 1
        finally:
            self._delivering = False
        self.report_stopped()
        if first is not None:
            if failures > 1:
                first.add_note(f"{failures - 1} more results raised exceptions")
            raise first

    def report_stopped(self) -> None:
        """Report queries that were stopped since."""
        while self.core.state.ended:
            standing = self.queries.get(self.core.state.ended.pop(0).name)
            if standing is not None:
                self._stopped(standing)

    # ------------------------------------------------------------ state

    @while_open
    def snapshot_parts(self, *, most: int | None = None) -> list[list[Bytes]]:
        """A snapshot (`Engine.snapshot`) in parts, for `restore_parts`; they share the engine's memory."""
        return self.state.parts(most=most)

    @while_open
    def restore_parts(self, page: bytes, arena: memoryview, history: bytes) -> None:
        """Go on where the parts of a snapshot were taken: with the same queries, under the same names."""
        self.state.read_parts(page, arena, history)
        self.report_stopped()

    @while_open
    def keep(self) -> None:
        """Have all state in the engine's memory, for another process to `attach` it."""
        self.state.write()

    @while_open
    def attach(self, memory: str | os.PathLike[str]) -> None:
        """Go on in the memory of an engine that was kept: with the same queries, and the same dataset."""
        self.state.attach(path_of("memory", memory))
        self._begin_again()

    def obeying(self, stops: Mapping[str, Stop]) -> AbstractContextManager[None]:
        """Do again what was done before, while time passed otherwise: queries are stopped where they were then."""
        return obeying(self.core.state, stops)

    @while_open
    def restore(self, data: bytes) -> None:
        """Go on from a snapshot: with the same queries."""
        self.state.read(data)
        self._begin_again()
        self.report_stopped()

    def _begin_again(self) -> None:
        """What is not state is as in a new engine."""
        self.promises.forget()
        self.wall_clock = WallClock(self._numbered_settings(), tick=0)

    @property
    def aside(self) -> Aside:
        """What the code that feeds the engine keeps with its state."""
        return self.state.aside

    @aside.setter
    def aside(self, aside: Aside) -> None:
        self.state.aside = aside

    def hold(self, words: Callable[[], Iterable[Words]]) -> None:
        """Do not collect the terms of these words, which the engine has encoded and is still to be given."""
        self.core.collector.holders.append(words)

    @synchronized
    def close(self) -> None:
        """Let everything go but what queries have sent, which can still be taken from them."""
        if not self._access.close():
            return
        self._unseen.close()
        self.queries.clear()
        self._follow()
        self.listening.clear()
        self.core.abandon()
        self._access.unfinished = None
        uninstall()
        self.core.state.running.clear()
        self.core.registry.shares.clear()
        self.core.registry.shared_joins.feeders.clear()
        # holders know this engine: without them it goes at once, and its store with it
        self.core.collector.holders.clear()
        self.arena.close()


def _warn(query: StandingQuery) -> None:
    logging.getLogger("cqels").warning("%s", query.stopped)


def _late_words(batch: Batch, arrived: Arrived) -> Words:
    """The words that are needed to tell of late elements; those of a whole batch, if it has some."""
    if not len(arrived.late):
        return np.empty(0, np.int64)
    return np.concatenate([batch.triples, np.array(arrived.subjects, np.int64)])
