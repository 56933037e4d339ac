"""The engine that people use: queries come and go while streams run, all in this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import count
from time import time_ns
from types import TracebackType
from typing import Any

from pyoxigraph import NamedNode

from cqels.engine.access import Access, synchronized, while_open, while_open_at_once
from cqels.engine.arguments import (
    Duration,
    check_function,
    check_text,
    checked_iri,
    duration,
    emptied,
    interval,
    iri_of,
    path_of,
    read_bytes,
    refused,
    size_of,
    write_bytes,
)
from cqels.engine.event_time.future_limit import is_beyond, limit_of, near
from cqels.engine.event_time.stream_merge import Merge
from cqels.engine.event_time.watermark import Arrived, Clock
from cqels.engine.query_handle import StandingQuery, check_callback
from cqels.engine.running_query import Running
from cqels.engine.runtime import Core
from cqels.engine.state.budgets import Budget, Stop, obeying
from cqels.engine.state.snapshot import Aside, State
from cqels.ingest import Element, Rejected, RejectLog, StreamSettings, late_reason
from cqels.ingest.declarations import FUTURE
from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.encode import Data, Intake, StreamBlock, Time, bytes_of, nanoseconds
from cqels.ingest.rdf_objects import quads_of, triples_of
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import CqelsError, QueryError
from cqels.model.interrupts import Working, uninstall
from cqels.model.time import EARLIEST, LATEST
from cqels.plan.algebra import Query, Service, sources_of, walk_plan
from cqels.plan.prepare import planned as as_planned
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions


class Engine:
    """Continuous queries over streams and a dataset.

    An engine and its queries can be used from several threads: a call waits until the one before it has ended, so each
    push is seen by all queries before the next one is.  The child of a fork has a copy that goes on by itself; only an
    engine whose `memory` is a file stays with the parent.  After `close` results can be taken, and nothing else done.

    Examples:
        >>> engine = Engine()
        >>> query = engine.register("SELECT ?s WHERE { STREAM <http://ex.org/obs> [RANGE 10s] { ?s ?p ?o } }")
        >>> engine.push("http://ex.org/obs", "<http://ex.org/a> <http://ex.org/p> 1 .", time="4s")
        >>> [result.values[0].value for result in query.results()]
        ['http://ex.org/a']
    """

    def __init__(
        self,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        start: Time = 0,
        memory: str | os.PathLike[str] | None = None,
        size: int | None = None,
        reject: Callable[[Rejected], None] | None = None,
        stopped: Callable[[StandingQuery], None] | None = None,
        now: Callable[[], int] = time_ns,
        share: bool = True,
        allow_service: str | Iterable[str] | None = None,
        allow_load: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        service_refresh: Duration | None = None,
    ) -> None:
        """`store` keeps static data in a directory instead of memory; `memory` is a file for the engine's own state.

        Boundaries of sliding windows are counted from `start`.  `size` limits the engine's memory, in bytes.  `reject`
        is called with what is malformed or late, `stopped` with a query that was stopped because it took more than its
        budget; where nothing is, the log has warnings.  Queries that differ in constants and widths of windows alone
        share their windows and joins, unless `share` is False: results are the same.

        SERVICE and LOAD <http…> reach the hosts of `allow_service`, as `ex.org` or `localhost:3030`, and no others;
        without it the public Internet, and no loopback, private or link-local address.  LOAD <file:…> reads in the
        folders of `allow_load` alone.  An endpoint is asked again every `service_refresh` (5m if not said), in the
        background; an answer that differs is taken up at the next push, heartbeat or taking of results.
        """
        for what, value in (("reject", reject), ("stopped", stopped), ("now", now)):
            check_function(f"{what} function", value, f"Engine({what}=…) is a function")
        self.access = Access()
        self.store = store if isinstance(store, Store) else Store(None if store is None else path_of("store", store))
        services = self.store.services
        if allow_service is not None or allow_load is not None:
            services.permissions = Permissions.of(allow_service, allow_load)
        if service_refresh is not None:
            services.refresh = interval(service_refresh)
        self._services = services.watch()
        self._asked: dict[str, list[Service]] = {}
        """What queries ask of endpoints, by their names."""
        arena = Arena(None if memory is None else emptied(path_of("memory", memory)), size=size_of(size))
        self.access.in_file = memory is not None
        self._core = Core(self.store, arena, start=nanoseconds(start), share=share)
        self._clock = Clock(now=now)
        self._settings: dict[str, StreamSettings] = {}
        self._futures: dict[str, int | None] = {}
        self._limits: dict[str, int] = {}
        """The latest time of each stream that is known to be near the wall clock."""
        self._now = now
        self._state = State(self._core, self._clock, self._settings)
        self.hold(lambda: [self._clock.state()[1].triples, self.aside.elements.triples])
        self.intake = Intake(self._core.state.terms)
        self._reject = reject
        self._unseen = RejectLog()
        self._stopped = stopped or _warn
        self._queries: dict[str, StandingQuery] = {}
        self.listening: dict[StandingQuery, None] = {}
        """The queries whose results are given to a function, in the order in which they were."""
        self._count = 0
        self._telling = False

    @property
    def late(self) -> int:
        """How many elements came too late."""
        return self._state.late

    @property
    def dictionary(self) -> ArenaDictionary:
        """The words of terms, in which elements are given to `push_batch`."""
        return self._core.state.dictionary

    @property
    def time(self) -> int | None:
        """The time that the queries have come to."""
        return self._core.state.last

    @property
    def number(self) -> int:
        """Of the next element that comes: elements have them in their order, in steps."""
        return self._core.state.number

    @property
    @synchronized
    def held(self) -> int:
        """How many elements wait for others that may be earlier."""
        return len(self._clock.state()[1])

    @property
    def arena(self) -> Arena:
        """The memory that all state is in."""
        return self._core.state.arena

    # ------------------------------------------------------------ streams and data

    @property
    @synchronized
    def streams(self) -> tuple[str, ...]:
        """The streams that there are, those that queries make among them."""
        return tuple(self._core.state.streams)

    @while_open
    def stream(
        self,
        iri: str | NamedNode,
        *,
        lateness: Duration = 0,
        idle: Duration = 0,
        clock: str = "event",
        future: Duration | None = FUTURE,
    ) -> None:
        """Declare a stream. One that a query names is declared by that, with nothing waited for.

        Elements are held back for `lateness` and sorted; a stream that is silent holds others back for its `idle` time.
        With the clock `arrival` an element's time is when it comes.  An element that is pushed with a time further
        beyond the wall clock than `future` is rejected, with None never.
        """
        check_text("clock", clock, "it is event or arrival")
        if clock not in ("event", "arrival"):
            raise CqelsError(f"'{clock}' is not a clock", hint="it is event or arrival")
        iri = checked_iri("stream", iri)
        settings = StreamSettings(iri, duration(lateness), duration(idle), clock == "arrival")
        limit = None if future is None else duration(future)
        if iri in self._core.state.streams:
            if self._settings.get(iri) == settings and self._futures.get(iri, FUTURE) == limit:
                return
            raise CqelsError(f"there is a stream <{iri}> already", hint="declare a stream before queries that read it")
        self._futures[iri] = limit
        self.declare(settings)

    @while_open
    def declare(self, settings: StreamSettings) -> None:
        self._settings[settings.iri] = settings
        self._core.registry.add_stream(settings.iri)
        self._clock.add(settings)

    @while_open
    def load(self, source: Any, graph: str | NamedNode | None = None, *, format: str | None = None) -> int:
        """Add triples to the dataset, to the default graph or to a named one: how many the source has.

        That is the path of a file, or a graph, a dataset or a list of triples of pyoxigraph or of rdflib; the named
        graphs of a dataset stay what they are.  A file's name tells its `format` (turtle, ntriples, nquads, trig,
        jsonld, rdfxml) unless it is given, its content where the name does not.
        """
        name = None if graph is None else NamedNode(checked_iri("graph", graph))
        check_text("format", format, "it is a text, as in format='turtle'")
        if isinstance(source, str | os.PathLike):
            path = path_of("source", source)
            return int(self.update(lambda store: store.load(path, name, format=format)))
        quads = list(quads_of(source, name))
        self.update(lambda store: store.add(quads))
        return len(quads)

    @while_open
    def update(self, change: str | Callable[[Store], Any]) -> Any:
        """Change the dataset between two ticks: by a SPARQL Update, or by a function of the store."""
        changed: set[NamedNode | None] = set()
        end = self.store.subscribe(changed.update)
        try:
            if not isinstance(change, str) and not callable(change):
                raise CqelsError(
                    f"an update of type {type(change).__name__} is not taken",
                    hint="it is a SPARQL Update as a text, or a function of the store",
                )
            if isinstance(change, str):
                from cqels.store.script import execute

                result: Any = None
                execute(self.store, change)
            else:
                result = change(self.store)
        finally:
            end()
            if changed:
                self._core.changed(changed)
                self.access.unfinished = self._go_on
        if changed:
            self._go_on()
        return result

    @while_open
    def refresh(self) -> None:
        """Take up what endpoints have answered since: an update between two ticks. Pushing and taking do so, too."""
        self.renew()

    def renew(self) -> None:
        """`refresh`, unless the engine is closed or in the middle of something."""
        if self._services.has_news and self.access.refusal is None:
            self._take_up()
            self._tell()

    def _take_up(self) -> None:
        if not self._services.has_news:
            return
        with Working():
            if changed := self._services.take_up():
                self._core.changed(set(), changed)
                self._work()

    def _follow(self) -> None:
        """Have the endpoints of the queries that there are asked again from time to time."""
        self._asked = {name: services for name, services in self._asked.items() if name in self._queries}
        self._services.follow(service for services in self._asked.values() for service in services)

    # ------------------------------------------------------------ queries

    @while_open
    def register(
        self,
        query: str | os.PathLike[str] | Query,
        *,
        name: str | None = None,
        emit: str | None = None,
        policy: str | None = None,
        dialect: str | None = None,
        callback: Callable[..., None] | None = None,
        memory: int | str | None = None,
        time: int | str | None = None,
        declare: bool = True,
        check_graphs: bool = True,
        lenient: bool = False,
    ) -> StandingQuery:
        """Add a query: its text, or the path of a file with it. It sees what arrives from now on.

        It is stopped, and the others go on, if its state takes more `memory` than this, as in `200MB`, or if an element
        takes more of the processor's `time`, as in `5ms`, on average over half a second of its work.

        With a `callback` results are given to it as they come, one by one, instead of being kept.  Streams that the
        query names and that are not there are declared, unless `declare` is False: then that is an error.  A graph of
        FROM or FROM NAMED that is not loaded is an error, too, unless `check_graphs` is False.

        A variable that is selected, ordered or grouped by and bound nowhere is an error, unless the query is read
        `lenient`: then its plan has a warning of it.
        """
        check_callback(callback)
        for what, value in (("name", name), ("emission", emit), ("policy", policy), ("dialect", dialect)):
            check_text(what, value, "give it as a text")
        budget = Budget.of(memory, time)
        planned, text = as_planned(query, name=name, emit=emit, policy=policy, dialect=dialect, lenient=lenient)
        chosen = planned.name or self._unused_name()
        try:
            if chosen in self._queries:
                raise QueryError(
                    f"there is a query {chosen} already", hint="drop it first, or register the query under another name"
                )
            if check_graphs:
                self.store.check_graphs(planned)
            running = self._registered(planned, chosen, budget, declare=declare)
        except QueryError as error:
            error.query = planned
            if text is not None:
                error.locate(text)
            raise
        standing = self._queries[chosen] = StandingQuery(self, running)
        standing.on_result(callback)
        if services := [node for node in walk_plan(running.plan) if isinstance(node, Service)]:
            self._asked[chosen] = services
            self._follow()
        self._tell_stopped()
        return standing

    def _unused_name(self) -> str:
        self._count += 1
        return next(name for number in count(self._count) if (name := f"query-{number}") not in self._queries)

    def _registered(self, planned: Query, name: str, budget: Budget | None, *, declare: bool) -> Running:
        for source in sources_of(planned) if declare else ():
            named = source.stream
            if isinstance(named, NamedNode) and named.value not in self._core.state.streams and named.value != name:
                self.declare(StreamSettings(named.value))
        running = self._core.registry.register(planned, name, budget)
        if running.output is not None and running.output == len(self._clock):
            self._clock.add(StreamSettings(name))
        return running

    @while_open
    def query(self, name: str) -> StandingQuery:
        """The query of a name."""
        check_text("name", name, "give it as a text")
        try:
            return self._queries[name]
        except KeyError:
            known = ", ".join(self._queries)
            hint = f"the queries are {known}" if known else "no query is registered"
            raise CqelsError(f"there is no query {name}", hint=hint) from None

    @property
    @synchronized
    def queries(self) -> tuple[StandingQuery, ...]:
        return tuple(self._queries.values())

    @while_open
    def told(self, running: Running) -> str:
        """What joins a query has in common with which others, in a line."""
        return self._core.registry.feeding.told(running)

    @while_open_at_once
    def drop(self, query: str | StandingQuery) -> None:
        """Stop a query. What it has sent can still be taken."""
        standing = self._queries.get(query) or self.query(query) if isinstance(query, str) else query
        if not isinstance(standing, StandingQuery):
            raise refused("query", query, "give what register returned, or its name")
        if standing.access is not self.access:
            raise CqelsError(f"query {standing.name} is one of another engine")
        if self._queries.get(standing.name) is not standing:
            raise CqelsError(f"query {standing.name} has been dropped already")
        if readers := [each.name for each in self._core.derived_streams.named_readers(standing.running)]:
            raise CqelsError(
                f"query {standing.name} makes a stream that is read by {', '.join(readers)}",
                hint=f"drop {readers[0]} first",
            )
        if self._core.has_work:
            # what was begun may never end for it, which may be why it goes
            self._core.executor.dropped.add(standing.running)
            self._go_on()
        with Working():  # a query is dropped, or it is not
            standing.running.make()
            self._core.registry.drop(standing.running)
            del self._queries[standing.name]
            if standing.name in self._asked:
                self._follow()
            self.listening.pop(standing, None)

    @while_open
    def prepare(self) -> None:
        """Compile the queries that are registered, and make their static tables: else the first element waits for that.

        Queries that are registered afterwards share no windows and joins with these.
        """
        with Working():
            self._core.registry.settle()
        self._tell_stopped()

    # ------------------------------------------------------------ input

    @while_open
    def push(
        self,
        stream: str | NamedNode | Mapping[str, StreamBlock],
        data: Data = None,
        time: Time | Iterable[Time] | None = None,
    ) -> None:
        """Elements arrive on a stream.

        `data` is N-Triples or Turtle text, or of pyoxigraph or rdflib a triple, a list of triples or a graph, where a
        triple may be a tuple of terms: one element at one time.  With a list of times it is a list of such: a block of
        elements.  Without a time it is lines of timed N-Triples (`s p o time .`, integers in milliseconds), each line
        an element.  A time is a datetime, in UTC unless it has a zone, an int of nanoseconds, or a text such as `4s`.

        Blocks of several streams come together as `{stream: lines, stream: (data, times)}`: they are merged by time,
        while each call by itself makes what is older than its newest element late on other streams.
        """
        if isinstance(stream, str) or not isinstance(stream, Mapping):
            iri = self._iri(stream)
            self.push_batch(self._near(iri, self._block(iri, data, time)))
            return
        if data is not None or time is not None:
            raise CqelsError(
                "blocks of several streams have their data and times", hint="push({stream: (data, times)})"
            )
        merge = Merge(len(stream))
        for number, (key, block) in enumerate(stream.items()):
            iri = self._iri(key)
            content, times = block if isinstance(block, tuple) and len(block) == 2 else (block, None)
            merge.add(number, self._near(iri, self._block(iri, content, times)))
        self.push_batch(merge.due())

    def _near(self, iri: str, batch: Batch) -> Batch:
        """What is not too far beyond the wall clock: decided here, where it is pushed, and not where it is repeated.

        The clock is read only where something is beyond what was near when it was read last.
        """
        if not is_beyond(batch, self._limits.get(iri, EARLIEST)):
            return batch
        future = None if self._settings[iri].arrival else self._futures.get(iri, FUTURE)
        self._limits[iri] = limit = LATEST if future is None else limit_of(future, self._now())

        def reject(reason: str, text: str) -> None:
            (self._reject or self._unseen)(Rejected(iri, f"<{iri}>", reason, text))

        return near(batch, future, limit, self._core.state.terms, reject)

    def _block(self, stream: str, data: Data, time: Time | Iterable[Time] | None) -> Batch:
        number = self._number(stream)
        if time is None:
            if self._settings[stream].arrival and data is not None:
                time = 0  # the clock knows
            elif not isinstance(data, str | bytes):
                next(iter(triples_of(data)), None)  # what is no element would need no time either
                raise CqelsError("the element has no time", hint="push(stream, data, time='4s')")
        if time is None:
            with self.access:  # a reject sink that pushed would change the dictionary in between
                return self.intake.lines(number, bytes_of(data), reject=self._malformed(stream))[0]
        if not isinstance(time, str | int | datetime) and isinstance(time, Iterable):
            return self.intake.several(number, data, time)
        return self.intake.one(number, data, time)

    @while_open
    def push_elements(self, elements: Iterable[Element]) -> None:
        """Elements of any streams, in the order of their arrival."""
        parts = [self.intake.triples(self._number(each.stream), each.time, each.triples) for each in elements]
        self.push_batch(Batch.concatenate(parts))

    @while_open
    def push_batch(self, batch: Batch) -> None:
        """Elements as words, in the order of their arrival."""
        self._take_up()
        arrived: Arrived | None = None
        try:
            with Working():
                arrived = self._clock.arrive(batch)
                self._core.add(arrived.released)
                self._work()
            self._tell()
        finally:
            if arrived is not None:
                self._reject_all(batch, arrived)

    @while_open
    def heartbeat(self, time: Time, stream: str | NamedNode | None = None) -> None:
        """No element before this time will come, on one stream or on all."""
        number = None if stream is None else self._number(self._iri(stream))
        until = nanoseconds(time)
        self._take_up()
        with Working():
            self._core.add(self._clock.heartbeat(until, number))
            self._work()
        self._tell()

    @while_open
    def finish(self) -> None:
        """The input ends: what was held back for order's sake is processed. No boundary closes by this alone."""
        self._take_up()
        with Working():
            self._core.add(self._clock.flush())
            self._work()
        self._tell()

    def _go_on(self) -> None:
        """Work off what there is to do, and tell what came of it."""
        self._work()
        self._tell()

    def _work(self) -> None:
        """Work off what there is to do; the next call does the rest if it is interrupted."""
        self.access.unfinished = self._go_on
        try:
            with self.access:
                self._core.resume()
        finally:
            if not self._core.has_work:
                self.access.unfinished = None

    def _iri(self, stream: object) -> str:
        """The stream that a user names."""
        return stream if type(stream) is str and stream in self._settings else iri_of("stream", stream)

    def _number(self, stream: str) -> int:
        if stream not in self._settings:
            if stream in self._core.state.streams:
                raise CqelsError(f"stream <{stream}> is made by a query: nothing else can be pushed to it")
            known = ", ".join(f"<{iri}>" for iri in self._settings)
            raise CqelsError(
                f"stream <{stream}> is not registered",
                hint=f"the streams are {known}" if known else "register a query that reads it, or declare it",
            )
        return self._core.state.streams[stream]

    def _reject_all(self, batch: Batch, arrived: Arrived) -> None:
        """Tell of all elements that were late; then what the first call raised comes out."""
        first: Exception | None = None
        late = zip(arrived.late.tolist(), arrived.times, arrived.limits, arrived.own, strict=True)
        for place, time, limit, own in late:
            try:
                self._reject_late(batch, place, time, limit, own=own)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    def _reject_late(self, batch: Batch, place: int, time: int, limit: int, *, own: bool) -> None:
        self._state.late += 1
        stream = self.streams[int(batch.streams[place])]

        def rejected() -> Rejected:
            one = batch[place : place + 1]
            triples = self._core.state.terms.decode_rows(one.triples.reshape(-1, 3))
            text = " ".join(" ".join(map(str, triple)) + " ." for triple in triples)
            reason = late_reason(time, limit, own=own)
            return Rejected(stream, f"<{stream}>", reason, text)

        if self._reject is None:
            self._unseen.add(stream, rejected)
        else:
            self._reject(rejected())

    def _malformed(self, stream: str) -> Callable[[int, str, str], None]:
        reject = self._reject or self._unseen
        return lambda line, reason, text: reject(Rejected(stream, f"<{stream}>:{line + 1}", reason, text))

    def _tell(self) -> None:
        """Give results to the functions that wait for them, in order: what these push is told by the first call."""
        if self._telling:
            return
        if not self.listening:
            self._tell_stopped()
            return
        first, failures = None, 0
        self._telling = True
        try:
            while any(standing.running.has_sent for standing in self.listening):
                for standing in tuple(self.listening):
                    for error in standing.tell():
                        first, failures = error if first is None else first, failures + 1
        finally:
            self._telling = False
        self._tell_stopped()
        if first is not None:
            if failures > 1:
                first.add_note(f"{failures - 1} more results raised exceptions")
            raise first

    def _tell_stopped(self) -> None:
        while self._core.state.ended:
            standing = self._queries.get(self._core.state.ended.pop(0).name)
            if standing is not None:
                self._stopped(standing)

    # ------------------------------------------------------------ state

    @while_open
    def snapshot(self, path: str | os.PathLike[str] | None = None, *, most: int | None = None) -> bytes:
        """All that the queries know, as bytes, and in a file if a path is given. The dataset is not part of it.

        What windows hold is there in a form that does not depend on the release too; where the engine's memory has more
        than `most` words in use it is left out.
        """
        target = None if path is None else path_of("path", path)
        if most is not None and not isinstance(most, int):
            raise refused("number of words", most, "most= is an int")
        data = self._state.written(most=most)
        if target is not None:
            write_bytes(target, data)
        return data

    @while_open
    def restore(self, data: bytes | str | os.PathLike[str]) -> None:
        """Go on where the snapshot was taken: the same queries must be registered, under the same names."""
        self._state.read(data if isinstance(data, bytes) else read_bytes(path_of("snapshot", data)))
        self._tell_stopped()

    @while_open
    def keep(self) -> None:
        """Have all that the queries know in the engine's memory, for another process to `attach` it."""
        self._state.write()

    @while_open
    def attach(self, memory: str | os.PathLike[str]) -> None:
        """Go on in the memory of an engine that was kept: with the same queries, and the same dataset."""
        self._state.attach(path_of("memory", memory))

    def obeying(self, stops: Mapping[str, Stop]) -> AbstractContextManager[None]:
        """Do again what was done before, while time passed otherwise: queries are stopped where they were then."""
        return obeying(self._core.state, stops)

    @property
    def aside(self) -> Aside:
        """What the one who feeds the engine keeps with its state."""
        return self._state.aside

    @aside.setter
    def aside(self, aside: Aside) -> None:
        self._state.aside = aside

    @while_open
    def collect(self) -> int:
        """Forget terms that nothing refers to any more: how many. The engine does so itself from time to time."""
        return self._core.collect()

    def hold(self, words: Callable[[], Iterable[Words]]) -> None:
        """Do not forget the terms of these words, which the engine has encoded and is still to be given."""
        self._core.collector.holders.append(words)

    @synchronized
    def close(self) -> None:
        """Let everything go but what queries have sent, which can still be taken from them."""
        if not self.access.close():
            return
        self._unseen.close()
        self._queries.clear()
        self._follow()
        self.listening.clear()
        self._core.abandon()
        self.access.unfinished = None
        uninstall()
        self._core.state.running.clear()
        self._core.registry.shares.clear()
        self._core.registry.feeding.feeders.clear()
        # holders know this engine: without them it goes at once, and its store with it
        self._core.collector.holders.clear()
        self._core.state.arena.close()

    @while_open
    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _warn(query: StandingQuery) -> None:
    logging.getLogger("cqels").warning("%s", query.stopped)
