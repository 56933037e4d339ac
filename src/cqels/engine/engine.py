"""The engine that people use: queries come and go while streams run, all in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import count
from time import time_ns
from types import TracebackType
from typing import Any

import numpy as np
from pyoxigraph import BlankNode, NamedNode

from cqels.engine.access import synchronized, while_open, while_open_at_once
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
from cqels.engine.budgets import Budget
from cqels.engine.event_time.future_limit import is_beyond, limit_of, near
from cqels.engine.event_time.stream_merge import Merge
from cqels.engine.internals import EngineInternals
from cqels.engine.query_handle import StandingQuery, check_callback
from cqels.ingest import Rejected, StreamSettings
from cqels.ingest.declarations import FUTURE
from cqels.ingest.element_batch import Batch
from cqels.ingest.encode import Data, StreamBlock, Time, bytes_of, nanoseconds
from cqels.ingest.rdf_objects import quads_of, triples_of
from cqels.kernels.memory.arena import Arena
from cqels.model.errors import CqelsError, QueryError
from cqels.model.interrupts import Working
from cqels.model.time import EARLIEST, LATEST
from cqels.plan.algebra import Query
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
        if not isinstance(store, Store):
            store = Store(None if store is None else path_of("store", store))
        if allow_service is not None or allow_load is not None:
            store.services.permissions = Permissions.of(allow_service, allow_load)
        if service_refresh is not None:
            store.services.refresh = interval(service_refresh)
        arena = Arena(None if memory is None else emptied(path_of("memory", memory)), size=size_of(size))
        self.internals = EngineInternals(
            store, arena, start=nanoseconds(start), share=share, now=now, reject=reject, stopped=stopped
        )
        """For code that drives an engine, as Spark's operator does: no part of the public interface."""
        self._access = self.internals.access
        self._access.in_file = memory is not None
        self._core = self.internals.core
        self._settings = self.internals.settings
        self._queries = self.internals.queries
        self._futures: dict[str, int | None] = {}
        self._limits: dict[str, int] = {}
        """The latest time of each stream that is known to be near the wall clock."""
        self._now = now
        self._count = 0

    @property
    def late(self) -> int:
        """How many elements came too late."""
        return self.internals.state.late

    @property
    def time(self) -> int | None:
        """The time that the queries have come to."""
        return self._core.state.last

    @property
    @synchronized
    def held(self) -> int:
        """How many elements wait for others that may be earlier."""
        return len(self.internals.watermarks.state()[1])

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
        punctuated: bool = False,
    ) -> None:
        """Declare a stream. One that a query names is declared by that, with nothing waited for.

        Elements are held back for `lateness` and sorted; a stream that is silent holds others back for its `idle` time.
        With the clock `arrival` an element's time is when it comes.  An element that is pushed with a time further
        beyond the wall clock than `future` is rejected, with None never.  Only a stream that is `punctuated` has
        punctuations (`punctuate`): its subjects are kept in mind.
        """
        check_text("clock", clock, "it is event or arrival")
        if clock not in ("event", "arrival"):
            raise CqelsError(f"'{clock}' is not a clock", hint="it is event or arrival")
        iri = checked_iri("stream", iri)
        settings = StreamSettings(
            iri, duration(lateness), duration(idle), clock == "arrival", punctuated=bool(punctuated)
        )
        limit = None if future is None else duration(future)
        if iri in self._core.state.streams:
            if self._settings.get(iri) == settings and self._futures.get(iri, FUTURE) == limit:
                return
            raise CqelsError(f"there is a stream <{iri}> already", hint="declare a stream before queries that read it")
        self._futures[iri] = limit
        self.internals.declare(settings)

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
        store, changed = self.internals.store, set[NamedNode | None]()
        end = store.subscribe(changed.update)
        try:
            if not isinstance(change, str) and not callable(change):
                raise CqelsError(
                    f"an update of type {type(change).__name__} is not taken",
                    hint="it is a SPARQL Update as a text, or a function of the store",
                )
            if isinstance(change, str):
                from cqels.store.script import execute

                result: Any = None
                execute(store, change)
            else:
                result = change(store)
        finally:
            end()
            if changed:
                self.internals.changed(changed)
        if changed:
            self.internals.go_on()
        return result

    @while_open
    def refresh(self) -> None:
        """Take up what endpoints have answered since: an update between two ticks. Pushing and taking do so, too."""
        self.internals.renew()

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
                self.internals.store.check_graphs(planned)
            running = self.internals.register(planned, chosen, budget, declare=declare)
        except QueryError as error:
            error.query = planned
            if text is not None:
                error.locate(text)
            raise
        standing = StandingQuery(self.internals, running)
        self.internals.add_query(standing)
        standing.on_result(callback)
        self.internals.report_stopped()
        return standing

    def _unused_name(self) -> str:
        self._count += 1
        return next(name for number in count(self._count) if (name := f"query-{number}") not in self._queries)

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

    @while_open_at_once
    def drop(self, query: str | StandingQuery) -> None:
        """Stop a query. What it has sent can still be taken."""
        standing = self._queries.get(query) or self.query(query) if isinstance(query, str) else query
        if not isinstance(standing, StandingQuery):
            raise refused("query", query, "give what register returned, or its name")
        self.internals.drop(standing)

    @while_open
    def prepare(self) -> None:
        """Compile the queries that are registered, and make their static tables: else the first element waits for that.

        Queries that are registered afterwards share no windows and joins with these.
        """
        with Working():
            self._core.registry.settle()
        self.internals.report_stopped()

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
            self.internals.push_batch(self._arriving(iri, self._block(iri, data, time)), lifted=True)
            return
        if data is not None or time is not None:
            raise CqelsError(
                "blocks of several streams have their data and times", hint="push({stream: (data, times)})"
            )
        merge = Merge(len(stream))
        for number, (key, block) in enumerate(stream.items()):
            iri = self._iri(key)
            content, times = block if isinstance(block, tuple) and len(block) == 2 else (block, None)
            merge.add(number, self._arriving(iri, self._block(iri, content, times)))
        self.internals.push_batch(merge.due(), lifted=True)

    def _arriving(self, iri: str, batch: Batch) -> Batch:
        """What is taken of elements that arrive now, with that as their time if their stream is in arrival time."""
        settings = self._settings[iri]
        if not settings.arrival and not settings.idle:
            return self._near(iri, batch)
        now = self._now()
        if settings.arrival:
            batch = replace(batch, times=np.full(len(batch), now))
        batch = self._near(iri, batch, now)
        if len(batch):
            self.internals.wall_clock.observe(self._core.state.streams[iri], int(batch.times.max()), now)
        return batch

    def _near(self, iri: str, batch: Batch, now: int | None = None) -> Batch:
        """What is not too far beyond the wall clock: decided here, where it is pushed, and not where it is repeated.

        The clock is read only where something is beyond what was near when it was read last.
        """
        promised = None
        if self.internals.promises.has_any:
            batch = self.internals.promises.marked(batch)
            promised = self.internals.promises.latest(batch, self._settings[iri].unit)
        if promised is None and not is_beyond(batch, self._limits.get(iri, EARLIEST)):
            return batch
        future = self._futures.get(iri, FUTURE)
        self._limits[iri] = limit = LATEST if future is None else limit_of(future, self._now() if now is None else now)

        def reject(reason: str, text: str) -> None:
            self.internals.reject(Rejected(iri, f"<{iri}>", reason, text))

        return near(batch, future, limit, self._core.state.terms, reject, promised)

    def _block(self, stream: str, data: Data, time: Time | Iterable[Time] | None) -> Batch:
        number = self.internals.number_of(stream)
        if time is None:
            if self._settings[stream].arrival and data is not None:
                time = 0  # it is stamped on arrival
            elif not isinstance(data, str | bytes):
                next(iter(triples_of(data)), None)  # what is no element would need no time either
                raise CqelsError("the element has no time", hint="push(stream, data, time='4s')")
        if time is None:
            with self._access:  # a reject sink that pushed would change the dictionary in between
                return self.internals.intake.lines(number, bytes_of(data), reject=self._malformed(stream))[0]
        if not isinstance(time, str | int | datetime) and isinstance(time, Iterable):
            return self.internals.intake.several(number, data, time)
        return self.internals.intake.one(number, data, time)

    @while_open
    def heartbeat(self, time: Time, stream: str | NamedNode | None = None) -> None:
        """No element before this time will come, on one stream or on all."""
        number = None if stream is None else self.internals.number_of(self._iri(stream))
        self.internals.promise(nanoseconds(time), number)

    @while_open
    def punctuate(self, stream: str | NamedNode, subject: str | NamedNode | BlankNode, time: Time) -> None:
        """No element of this stream with a triple of this subject will come before this time: one that does is late.

        When all subjects that the stream has had have promised as much, it is a heartbeat of the stream.  The stream is
        declared `punctuated`.
        """
        iri = self._iri(stream)
        number = self.internals.number_of(iri)
        if not self._settings[iri].punctuated:
            raise CqelsError(
                f"stream <{iri}> has no punctuations", hint="declare it before: engine.stream(iri, punctuated=True)"
            )
        term = subject if isinstance(subject, BlankNode) else NamedNode(checked_iri("subject", subject))
        self.internals.promise(nanoseconds(time), number, term)

    @while_open
    def tick(self) -> None:
        """Let time pass by the wall clock, on streams that follow it: windows expire, boundaries close.

        Those are the streams with the clock `arrival`, whose time is the present, and those with an `idle` time to
        which nothing has been pushed for longer than that: their time goes on from their newest element's, as fast as
        the wall clock.  Call it as often as results may wait, from one thread or a timer; it does nothing where no
        stream follows the clock.  Taking results calls it too, for streams with the clock `arrival`.
        """
        self.internals.tick(self._now())

    @while_open
    def finish(self) -> None:
        """The input ends: what was held back for order's sake is processed. No boundary closes by this alone."""
        self.internals.take_up_answers()
        with Working():
            self._core.add(self.internals.watermarks.flush())
            self.internals.work()
        self.internals.deliver()

    def _iri(self, stream: object) -> str:
        """The stream that a user names."""
        return stream if type(stream) is str and stream in self._settings else iri_of("stream", stream)

    def _malformed(self, stream: str) -> Callable[[int, str, str], None]:
        reject = self.internals.reject
        return lambda line, reason, text: reject(Rejected(stream, f"<{stream}>:{line + 1}", reason, text))

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
        data = self.internals.state.written(most=most)
        if target is not None:
            write_bytes(target, data)
        return data

    @while_open
    def restore(self, data: bytes | str | os.PathLike[str]) -> None:
        """Go on where the snapshot was taken: the same queries must be registered, under the same names."""
        self.internals.restore(data if isinstance(data, bytes) else read_bytes(path_of("snapshot", data)))

    @while_open
    def collect(self) -> int:
        """Forget terms that nothing refers to any more: how many. The engine does so itself from time to time."""
        return self._core.collect()

    def close(self) -> None:
        """Let everything go but what queries have sent, which can still be taken from them."""
        self.internals.close()

    @while_open
    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
