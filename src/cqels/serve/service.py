"""The service without HTTP: streams, queries and data by their names, over a live run; its methods wait."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2s
from math import ceil
from pathlib import Path
from threading import Lock
from time import time
from typing import Any

from pyoxigraph import NamedNode, Quad

from cqels.engine.budgets import Budget
from cqels.engine.engine import Engine
from cqels.ingest import settings_of
from cqels.lang.syntax import Dataset
from cqels.live.live_run import PushedStream
from cqels.live.run_measures import BatchDone, Measured, Measures
from cqels.model.durable_files import write_durably
from cqels.model.errors import CqelsError
from cqels.model.release import RELEASE
from cqels.model.time import format_time
from cqels.pipeline.lift.row_lifts import BLOCKS
from cqels.pipeline.sink.result_log import LIMIT, ResultLog
from cqels.pipeline.source.inbox import InboxFull
from cqels.pipeline.source.live_source import Message
from cqels.plan.algebra import Query, sources_of
from cqels.plan.prepare import prepare
from cqels.results import Result
from cqels.serve.backend import Backend, MakeBackend, Pipeline, embedded
from cqels.serve.memory import MemoryLimit
from cqels.serve.names import Names
from cqels.serve.push_formats import PushFormats, check_template
from cqels.serve.reception import Counts, Reception
from cqels.serve.served_stream import ServedStream
from cqels.store.dataset import Store
from cqels.store.script import execute

_LOG = logging.getLogger("cqels")
_SAMPLED, _FEWEST = 0.5, 1000
"""How full an inbox is when a sample begins to be taken, and of how many elements at least one is kept."""
_THREADS = 8
"""Threads in which pushes are lifted and written."""


class NotFound(CqelsError):
    """What a request names is not there."""


class Conflict(CqelsError):
    """What a request asks for does not go together with what is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What a service is told besides its pipeline."""

    base: str = "http://localhost:7070/"
    """Names without a scheme are below it."""
    stream: ServedStream = field(default_factory=ServedStream)
    """How a stream is that is declared by its first use."""
    streams: Mapping[str, ServedStream] = field(default_factory=dict)
    """Those that are declared before anybody asks, by their names."""
    most_queries: int = 1000
    most_streams: int = 1000
    memory: int | None = None
    """Bytes that the process may have."""
    memory_per_query: str | None = None
    time_per_query: str | None = None
    results: int = LIMIT
    """Bytes of results that subscriptions can go back to."""


class Service:
    """A live run and those who use it."""

    def __init__(
        self,
        pipeline: Pipeline,
        state: Path,
        settings: ServiceSettings | None = None,
        *,
        make: MakeBackend = embedded,
    ) -> None:
        """`state` is the folder of all that a service with the same folder goes on from; `make` makes its run."""
        self.settings = settings or ServiceSettings()
        self._pipeline, self._folder = pipeline, state / "service"
        self._file = self._folder / "service.json"
        self._lock = Lock()
        self.began = time()
        known = self._read()
        self.names = Names.below(known["base"])
        self._streams = {iri: ServedStream.read(words) for iri, words in known["streams"].items()}
        self._streams |= {self.names.full(name): words for name, words in self.settings.streams.items()}
        self._ended: dict[str, str] = known.get("ended", {})
        """Queries that were dropped though nobody asked for it, and why."""
        self._told_stopped: set[str] = set()
        self._pool = ThreadPoolExecutor(_THREADS, "cqels push")
        self._receptions: dict[str, Reception] = {}
        self.notify: Callable[[Sequence[str]], None] = lambda names: None
        """Called with the queries that have more results, or have ended, by another thread."""
        self.ending: Callable[[], None] = lambda: None
        """Called before the service stops, by another thread: those who wait for results are told."""
        self.dropped: Counter[str] = Counter()
        """Elements of each stream that newer ones have replaced, since the service was started."""
        self._declared = settings_of(pipeline.streams)
        self._own = {query.name or "" for query in pipeline.queries}
        there = {*self._streams, *self._declared, *self._own}
        read = (iri for query in pipeline.queries for iri in _streams_of(query))
        self._streams |= {iri: self.settings.stream for iri in read if iri not in there}
        self._folder.mkdir(parents=True, exist_ok=True)
        self.results = ResultLog(
            self._folder / "results",
            limit=self.settings.results,
            shown=self.names.short,
            notify=lambda names: self.notify(names),
        )
        pushed = [self._pushed(iri) for iri in self._known_streams()]
        limit = self.settings.memory
        self.memory = None if limit is None else MemoryLimit(limit, self._query_bytes, self._drop_for)
        self.run: Backend = make(pipeline, state, pushed, [*pipeline.sinks, self.results])

    # ------------------------------------------------------------ beginning and end

    def start(self) -> None:
        """Recover the state, and go on."""
        try:
            for name, words in self.settings.streams.items():
                if words.template is not None:
                    check_template(words.template, self._template(self.names.full(name)))
            self._write()
        except BaseException:
            self.discard()
            raise
        if isinstance(self.run, Measured):
            self.run.follow(self._look_at_stopped)
        self.run.start()
        if self.memory is not None:
            self.memory.start()

    def discard(self) -> None:
        """Close what is open of a service that is not started."""
        self._pool.shutdown()
        self.results.close()

    def stop(self) -> None:
        if self.memory is not None:
            self.memory.stop()
        self._pool.shutdown(wait=True)
        self.run.stop()

    def _read(self) -> dict[str, Any]:
        try:
            known: dict[str, Any] = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {"base": self.settings.base, "streams": {}}
        if known["base"] != self.settings.base:
            _LOG.warning("the names of this state are below %s, and stay there", known["base"])
        return known

    def _write(self) -> None:
        streams = {iri: each.written() for iri, each in self._streams.items()}
        content = {"version": 1, "base": self.names.base, "streams": streams, "ended": self._ended}
        write_durably(self._file, json.dumps(content, indent=1).encode())

    # ------------------------------------------------------------ streams

    def _known_streams(self) -> list[str]:
        """Those that elements can be pushed to: all that are declared."""
        return [*self._streams, *(iri for iri in self._declared if iri not in self._streams)]

    def _stream_words(self, iri: str) -> ServedStream:
        if iri in self._streams:
            return self._streams[iri]
        settings = self._declared[iri]
        return ServedStream(
            clock="arrival" if settings.arrival else "event",
            lateness=f"{settings.lateness}ns",
            idle=f"{settings.idle}ns",
            unit=settings.unit,
        )

    def _pushed(self, iri: str) -> PushedStream:
        words = self._stream_words(iri)
        return PushedStream(
            settings=self._declared.get(iri) or words.settings(iri),
            lift=BLOCKS,
            limit=words.inbox_bytes,
            when_full="drop" if words.overflow == "drop-oldest" else "refuse",
            dropped=lambda count: self._note_dropped(iri, count),
            future=None,  # what is too far ahead was rejected when it was pushed
        )

    def _note_dropped(self, iri: str, count: int) -> None:
        """Elements were dropped for newer ones, by a thread that pushes."""
        if not self.dropped[iri]:
            _LOG.warning("stream <%s> gets more than is processed: the oldest elements that wait are dropped", iri)
        self.dropped[iri] += count

    def declare(self, name: str, words: ServedStream) -> bool:
        """Have a stream: whether it is new."""
        iri = self.names.full(name)
        with self._lock:
            if iri in self._declared:
                raise Conflict(f"stream <{iri}> is declared in the pipeline file", hint="change it there")
            if iri in self._streams:
                if self._streams[iri] != words:
                    raise Conflict(f"stream <{iri}> is declared in another way", hint="a stream stays as it is")
                return False
            if iri in self.run.queries:
                raise Conflict(f"<{iri}> is a query, whose results are the stream")
            self._declare(iri, words)
            return True

    def _declare(self, iri: str, words: ServedStream) -> None:
        if len(self._streams) >= self.settings.most_streams:
            raise Conflict(f"there are {len(self._streams)} streams, and no more are taken", hint="--max-streams")
        if words.template is not None:
            check_template(words.template, self._template(iri))
        PushFormats(words, None if words.template is None else self._template(iri))  # which refuses what does not fit
        self._streams[iri] = words
        try:
            self._write()
            self.run.declare(self._pushed(iri))
        except BaseException:
            del self._streams[iri]
            self._write()
            raise

    def _template(self, iri: str) -> Path:
        return self._folder / "templates" / f"{blake2s(iri.encode(), digest_size=6).hexdigest()}.toml"

    def known_reception(self, name: str) -> Reception | None:
        """Where pushes to a stream go if any has come before: it does not wait."""
        return self._receptions.get(self.names.full(name))

    def reception(self, name: str, *, declare: bool = True) -> Reception:
        """Where pushes to a stream go; the stream is declared if it is not there."""
        iri = self.names.full(name)
        if (known := self._receptions.get(iri)) is not None:
            return known
        with self._lock:
            if iri not in self._streams and iri not in self._declared:
                if not declare:
                    raise NotFound(f"there is no stream <{iri}>")
                if iri in self.run.queries:
                    raise Conflict(f"<{iri}> is a query: nothing else can be pushed to its results")
                self._declare(iri, self.settings.stream)
            if iri not in self._receptions:
                words = self._stream_words(iri)
                template = self._template(iri) if words.template is not None else self._declared_template(iri)
                self._receptions[iri] = Reception(
                    iri,
                    PushFormats(words, template),
                    lambda messages: self._accept(iri, messages),
                    future=words.future,
                    pool=self._pool,
                    sample=(lambda: self._sample(iri, words)) if words.overflow == "sample" else None,
                )
            return self._receptions[iri]

    def _accept(self, iri: str, messages: Sequence[Message]) -> None:
        if self.memory is not None and self.memory.is_close:
            raise InboxFull("the service has nearly all of its memory", hint="the sender has to wait")
        self.run.push(iri, messages)

    def _sample(self, iri: str, words: ServedStream) -> int:
        """Of how many elements one is kept: of all, until half of the inbox is full."""
        filled = self.run.inbox(iri).uncommitted / words.inbox_bytes
        if filled < _SAMPLED:
            return 1
        return min(_FEWEST, ceil((1 - _SAMPLED) / (1 - filled))) if filled < 1 else _FEWEST

    def _declared_template(self, iri: str) -> Path | None:
        return next((each.template for each in self._pipeline.streams if each.iri == iri), None)

    def streams(self) -> list[dict[str, Any]]:
        return [self.stream(iri) for iri in self._known_streams()]

    def stream(self, name: str) -> dict[str, Any]:
        """What a stream is, and what has come to it."""
        iri = self.names.full(name)
        if iri not in self._streams and iri not in self._declared:
            raise NotFound(f"there is no stream <{iri}>")
        words = {key: value for key, value in self._stream_words(iri).written().items() if value is not None}
        reception, inbox = self._receptions.get(iri), self.run.inbox(iri)
        counts = asdict(Counts() if reception is None else reception.counts) | {"dropped": self.dropped[iri]}
        return {"name": self.names.short(iri), "iri": iri, **words, "waiting": inbox.uncommitted, "counts": counts}

    # ------------------------------------------------------------ queries

    def _query_name(self, name: str) -> str:
        """What the run knows a query by: one of the pipeline file may have a name without a scheme."""
        running = self.run.queries
        return name if name in running else self.names.full(name)

    def register(self, name: str, text: str, **options: Any) -> dict[str, Any]:
        """Run a query, instead of one that has the name: what it is, and what happens to the state."""
        memory, spent = options.pop("memory", None), options.pop("time", None)
        query = prepare(text, source=name, name=self._query_name(name), base=self.names.base, **options)
        budget = Budget.of(
            self.settings.memory_per_query if memory is None else memory,
            self.settings.time_per_query if spent is None else spent,
        )
        with self._lock:
            before = self.run.queries.get(query.name or "")
            if before is None and query.name in {*self._streams, *self._declared}:
                raise Conflict(f"<{query.name}> is a stream", hint="a query has a name of its own")
            if before is None and len(self.run.queries) >= self.settings.most_queries:
                raise Conflict(f"there are {len(self.run.queries)} queries, and no more are taken", hint="drop some")
            if before is not None and query.name in self._own:
                raise Conflict(f"query {name} is in the pipeline file", hint="change it there, and restart the service")
            if query.name in _streams_of(query):
                raise Conflict(f"{name} would be the query and a stream that it reads", hint="give it another name")
            declared, number = self._declare_streams(query), self.results.end(query.name or "")
            if self._ended.pop(query.name or "", None) is not None:
                self._write()
            if before is None:
                self.run.register(query, budget)
                state = "new"
            elif _written(before) == _written(query):
                state = "kept"
            else:
                self.run.replace(query, budget)
                state = "anew"
        warnings = [str(each) for each in query.warnings]
        more = {"results": number, "state": state, "declared": declared, "warnings": warnings}
        return self.query(name) | more  # what it has sent meanwhile is behind that number

    def _declare_streams(self, query: Query) -> list[str]:
        """Have the streams that a query reads: which of them are new."""
        there = {*self._streams, *self._declared, *self.run.queries, query.name}
        new = [iri for iri in _streams_of(query) if iri not in there]
        for iri in new:
            self._declare(iri, self.settings.stream)
        return [self.names.short(iri) for iri in new]

    def drop(self, name: str) -> None:
        known = self._query_name(name)
        with self._lock:
            if known not in self.run.queries:
                raise NotFound(f"there is no query {name}")
            if known in self._own:
                raise Conflict(f"query {name} is in the pipeline file", hint="remove it there, and restart the service")
            self.run.drop(known)
        self.notify([known])

    def _query_bytes(self) -> dict[str, int]:
        measures = self.run.measures if isinstance(self.run, Measured) else Measures()
        return {name: each.bytes for name, each in measures.queries.items() if name in self.run.queries}

    def _drop_for(self, name: str, reason: str) -> None:
        """Drop a query that nobody has asked to be dropped."""
        with self._lock:
            if name not in self.run.queries:
                return
            _LOG.warning("query %s is dropped: %s", self.names.short(name), reason)
            self.run.drop(name)
            self._ended[name] = reason
            self._write()
        self.notify([name])

    def end_of(self, name: str) -> str:
        """Why there will be no more results of a query that does not run."""
        return self._ended.get(name) or self.run.stopped.get(name) or "the query was dropped"

    def _look_at_stopped(self, done: BatchDone) -> None:
        """Wake the readers of queries that took more than their budgets in a batch."""
        stopped = {*self.run.stopped}
        if stopped != self._told_stopped:
            new, self._told_stopped = stopped - self._told_stopped, stopped
            self.notify([*new])

    def queries(self) -> list[dict[str, Any]]:
        return [self.query(name) for name in self.run.queries]

    def query(self, name: str) -> dict[str, Any]:
        """What a query is, and how many results it has sent."""
        known = self._query_name(name)
        query = self.run.queries.get(known)
        if query is None:
            raise self._no_query(name)
        text = None if query.text is None else query.text.text
        return {
            "name": self.names.short(known),
            "iri": known,
            "form": query.form,
            "variables": [*query.variables] if query.form == "select" else [],
            "emit": query.emit,
            "policy": query.policy,
            "dialect": query.dialect,
            "text": text,
            "streams": [self.names.short(iri) for iri in _streams_of(query)],
            "results": self.results.end(known),
            "stopped": self.run.stopped.get(known),
        }

    def runs(self, name: str) -> bool:
        """Whether a query goes on, by the name that the run knows it by."""
        return name in self.run.queries and name not in self.run.stopped

    def result_name(self, name: str) -> str:
        """What the results of a query that runs are known by."""
        known = self._query_name(name)
        if known not in self.run.queries:
            raise self._no_query(name)
        return known

    def _no_query(self, name: str) -> NotFound:
        ended = self._ended.get(self._query_name(name))
        if ended is not None:
            return NotFound(f"query {name} was dropped: {ended}", hint="register it again with smaller windows")
        return NotFound(f"there is no query {name}", hint=self._hint(name))

    def _hint(self, name: str) -> str | None:
        from difflib import get_close_matches

        known = [self.names.short(each) for each in self.run.queries]
        close = get_close_matches(name, known, 1)
        return f"did you mean {close[0]}?" if close else f"the queries are {', '.join(known[:10])}" if known else None

    def explain(self, name: str, format: str = "text") -> str:
        """The plan of a query as it is now."""
        known = self.result_name(name)
        return self.run.explain(known, format)

    # ------------------------------------------------------------ static data

    @property
    def store(self) -> Store:
        return self.run.store

    def update(self, text: str, default: Sequence[str] = (), named: Sequence[str] = ()) -> None:
        """Change the static data; when this returns, queries have seen it.

        `default` and `named` are the graphs that WHERE is about, if they are said beside the update.
        """
        if not default and not named:
            self.run.update(text)
            return
        dataset = Dataset(tuple(map(NamedNode, default)), tuple(map(NamedNode, named)))
        self.run.update(lambda store: execute(store, text, dataset=dataset))

    def change(self, change: Callable[[Store], object]) -> None:
        self.run.update(change)

    def replace_graph(self, graph: NamedNode | None, quads: Sequence[Quad], *, add: bool) -> bool:
        """Put triples into a graph, instead of what it has or beside it: whether it is new."""
        is_new = not self.store.has_graph(graph)

        def change(store: Store) -> None:
            if not add and store.has_graph(graph):
                store.clear_graph(graph)
            if graph is not None:
                store.create_graph(graph)
            store.add(quads)

        self.change(change)
        return is_new

    def drop_graph(self, graph: NamedNode | None) -> None:
        if not self.store.has_graph(graph):
            raise NotFound(f"there is no graph {graph}")
        self.change(lambda store: store.clear_graph(graph, drop=graph is not None))

    def ask(self, text: str, default: Sequence[str] = (), named: Sequence[str] = ()) -> tuple[Query, list[Result]]:
        """The answer of a query over the static data, now."""
        query = prepare(text, source="query", name="query", emit="rstream", base=self.names.base)
        if sources_of(query):
            raise CqelsError(
                "this query reads a stream, and is asked once", hint="register it: PUT /queries/NAME, then its results"
            )
        if default or named:
            query = replace(
                query,
                default_graphs=tuple(map(NamedNode, default)),
                named_graphs=tuple(map(NamedNode, named)),
            )
        with Engine(store=self.store) as engine:
            handle = engine.register(query, check_graphs=False)
            engine.heartbeat(0)
            return query, handle.take()

    # ------------------------------------------------------------ seen from outside

    def is_ready(self) -> bool:
        return self.run.is_running

    def status(self) -> dict[str, Any]:
        metrics = self.run.metrics
        watermark = metrics["watermark"]
        return {
            "release": RELEASE,
            "base": self.names.base,
            "uptime": round(time() - self.began, 1),
            "queries": len(self.run.queries),
            "streams": len(self._known_streams()),
            **metrics,
            "watermark": None if watermark is None else format_time(watermark),
        }

    def checkpoint(self) -> dict[str, Any]:
        """Have a snapshot of the state on the disk, now."""
        self.run.snapshot()
        return {"batch": self.run.metrics["batch"], "snapshot_bytes": self.run.metrics["snapshot_bytes"]}


def _written(query: Query) -> tuple[object, ...]:
    """What whoever registers a query says of it."""
    return query.text, query.emit, query.policy, query.dialect


def _streams_of(query: Query) -> list[str]:
    """The streams that a query names."""
    named = (each.stream for each in sources_of(query))
    return [*dict.fromkeys(each.value for each in named if isinstance(each, NamedNode))]
