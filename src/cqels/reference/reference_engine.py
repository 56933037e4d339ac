"""The reference engine: at every tick all windows and the whole query are computed anew, then differences are taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from time import time_ns

from pyoxigraph import BlankNode, NamedNode

from cqels.ingest import Element, Rejected
from cqels.lang.syntax import Range
from cqels.model.errors import CqelsError, QueryError
from cqels.model.terms import Triple
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query, Source, transform_plan, walk_plan
from cqels.plan.construct import constructed
from cqels.plan.scope import is_ordered, variables
from cqels.reference.emission import Row, differences, without_expiry
from cqels.reference.event_time import Heartbeat, StreamSettings, Watermarks
from cqels.reference.graphs import StampedGraph
from cqels.reference.plan_evaluation import Evaluator, World
from cqels.reference.solutions import Bag, Solution
from cqels.reference.windows import Arrival, Boundary, Moment, boundaries, content
from cqels.results import Result
from cqels.store.dataset import Store
from cqels.store.dependencies import ANY, AnyGraph, GraphName, graphs_of

Solve = Callable[[Plan, World], Bag]
"""How the solutions of a plan in a world are found: by the naive evaluator, or by another way to check it."""


def naive(plan: Plan, world: World) -> Bag:
    return Evaluator(world).solutions(plan)


MOST_BOUNDARIES = 10_000_000
"""How often windows may close between two elements: a set of more takes the memory of a machine."""


class TooManyBoundaries(CqelsError):
    """Time has passed more boundaries than can be worked off one by one."""


@dataclass(eq=False)
class Registered:
    """A query that runs: what it read and sent so far."""

    query: Query
    name: str
    plan: Plan
    since: int
    streams: tuple[str, ...] = ()
    """The streams that were there when it came: those that it reads where it names none."""
    ticks: int = 0
    rows: list[Row] = field(default_factory=list)
    answer: bool = False
    closed: dict[int, Boundary | None] = field(default_factory=dict)
    contents: tuple[object, ...] = ()
    results: list[Result] = field(default_factory=list)

    @property
    def sources(self) -> list[Source]:
        return [source for node in walk_plan(self.plan) if isinstance(node, algebra.Stream) for source in node.sources]

    @property
    def graphs(self) -> frozenset[GraphName | AnyGraph]:
        """The graphs of the dataset that it reads."""
        query = self.query
        return graphs_of(self.plan, default_graphs=query.default_graphs, named_graphs=query.named_graphs)

    @property
    def output(self) -> str | None:
        """The IRI under which a CONSTRUCT's result is itself a stream."""
        if self.query.form != "construct" or ":" not in self.name:
            return None
        return self.name

    def take(self) -> list[Result]:
        """What was sent and not yet taken."""
        taken, self.results = self.results, []
        return taken


class Reference:
    """Runs queries over streams and a store, in event time."""

    def __init__(
        self,
        store: Store,
        streams: Iterable[StreamSettings] = (),
        *,
        start: int = 0,
        reject: Callable[[Rejected], None] = lambda rejected: None,
        solve: Solve = naive,
    ) -> None:
        self.store = store
        self.start = start
        self.late = 0
        self._reject = reject
        self._solve = solve
        self._settings = list(streams)
        self._watermarks = Watermarks(self._settings, self._count_late)
        self._queries: list[Registered] = []
        self._count = 0
        self._gone: set[str] = set()
        """Streams whose queries were dropped; what they brought is still in the windows of those who read them."""
        self._history: dict[str, list[Arrival]] = {each.iri: [] for each in self._settings}
        self._number = 0
        self._now: int | None = None
        self._graphs: dict[tuple[NamedNode | None, int], StampedGraph] = {}
        self._made: deque[tuple[str, int, tuple[Triple, ...]]] = deque()

    # ------------------------------------------------------------ what a user does

    @property
    def streams(self) -> tuple[str, ...]:
        """Those that there are, those that queries make among them."""
        return tuple(iri for iri in self._history if iri not in self._gone)

    def register(self, query: Query) -> Registered:
        """Add a query. It sees the elements that arrive from now on."""
        plan = transform_plan(query.plan, _without_slide) if query.policy == "cqels-1" else query.plan
        registered = Registered(query, query.name or self._unused_name(), plan, self._number, self.streams)
        try:
            self.store.check_graphs(query)
            self._check(registered)
        except QueryError as error:
            error.query = query
            raise
        for source in registered.sources:
            if isinstance(source.window, Range) and source.window.slide is not None:
                registered.closed[source.window.slide] = None
        self._count += 1
        self._queries.append(registered)
        if registered.output is not None:
            self._history.setdefault(registered.output, [])
            self._gone.discard(registered.output)
        return registered

    def query(self, name: str) -> Registered:
        """The query that runs under this name."""
        for each in self._queries:
            if each.name == name:
                return each
        running = ", ".join(each.name for each in self._queries)
        hint = f"the queries are {running}" if running else "no query is registered"
        raise CqelsError(f"there is no query {name}", hint=hint)

    def drop(self, query: Registered | str) -> None:
        """End a query. What it has sent can still be taken; the stream that it made is gone.

        A query whose stream another one names cannot go before that one. `STREAM ?s` names none: it goes on without.
        """
        dropped = query if isinstance(query, Registered) else self.query(query)
        if dropped not in self._queries:
            raise CqelsError(f"query {dropped.name} has been dropped already")
        if dropped.output is not None:
            stream = NamedNode(dropped.output)
            readers = [each.name for each in self._queries if any(source.stream == stream for source in each.sources)]
            if readers:
                raise CqelsError(
                    f"query {dropped.name} makes a stream that is read by {', '.join(readers)}",
                    hint=f"drop {readers[0]} first",
                )
            self._gone.add(dropped.output)
        self._queries.remove(dropped)

    def push(self, element: Element, *, arrived: int | None = None) -> None:
        """An element arrives: now, or at the time `arrived`, which only a stream in arrival time looks at."""
        if any(each.arrival for each in self._settings if each.iri == element.stream):
            time = time_ns() if arrived is None else arrived
            promised = self._watermarks.promised(element.stream)
            element = replace(element, time=time if promised is None else max(time, promised))
        self._proceed(self._watermarks.arrive(element))

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        self._proceed(self._watermarks.heartbeat(time, stream))

    def punctuate(self, time: int, stream: str, subject: NamedNode | BlankNode) -> None:
        """No element of a stream with a triple of this subject will come before a time."""
        self._proceed(self._watermarks.punctuate(time, stream, subject))

    def finish(self) -> None:
        """The input ends: what was held back for order's sake is processed. No boundary closes by this alone."""
        self._proceed(self._watermarks.flush())

    def update(self, change: Callable[[Store], object]) -> None:
        """Change the dataset between two ticks; the queries that read what changed have a tick."""
        changed: set[NamedNode | None] = set()
        end = self.store.subscribe(changed.update)
        try:
            change(self.store)
        finally:
            end()
        for each in list(self._queries):
            read = each.graphs
            if read & changed or (ANY in read and changed - {None}):
                self._tick(each, self._now or 0)
        self._deliver()

    # ------------------------------------------------------------ time

    def _count_late(self, rejected: Rejected) -> None:
        self.late += 1
        self._reject(rejected)

    def _proceed(self, released: Iterator[Element | Heartbeat]) -> None:
        for what in released:
            self._close_boundaries(what.time)
            self._now = what.time
            if isinstance(what, Heartbeat):
                for each in list(self._queries):
                    self._tick(each, what.time, heartbeat=True)
            else:
                self._made.append((what.stream, what.time, what.triples))
            self._deliver()

    def _close_boundaries(self, before: int) -> None:
        """Every boundary that time passes on its way is a tick, in the order of time, producers before consumers."""
        if self._now is None:
            return
        passed: list[tuple[int, int, int]] = []
        for index, each in enumerate(self._queries):
            found: set[int] = set()
            for slide in each.closed:
                closing = boundaries(slide, self.start, self._now, before)
                if (count := (closing.stop - closing.start) // slide) > MOST_BOUNDARIES:
                    raise TooManyBoundaries(
                        f"a window of query {each.name} closes {count:,} times at once",
                        hint="the reference engine works off each time; --engine embedded does not",
                    )
                found.update(closing)
            passed += [(boundary, self._depth(each), index) for boundary in found]
        for boundary, _, index in sorted(passed):
            each = self._queries[index]
            for slide in each.closed:
                if (boundary - self.start) % slide == 0:
                    each.closed[slide] = Boundary(boundary, self._number)
            self._tick(each, boundary, boundary=True)
            self._deliver()

    def _depth(self, registered: Registered) -> int:
        """How many queries the stream of a source has come through."""
        producers = [each for each in self._queries if each.output is not None and self._reads(registered, each.output)]
        return 1 + max((self._depth(each) for each in producers), default=0)

    def _deliver(self) -> None:
        """The elements that wait arrive, one by one; what queries make of one comes after it, at every reader."""
        while self._made:
            stream, time, triples = self._made.popleft()
            arrival = Arrival(time, self._number, triples)
            self._number += 1
            self._history[stream].append(arrival)
            for each in list(self._queries):
                if self._reads(each, stream):
                    self._tick(each, time, arrival=arrival)

    def _streams_of(self, registered: Registered, source: Source) -> list[str]:
        """The streams a source reads. Where it names none they are all that are registered, but not the query's own."""
        if isinstance(source.stream, NamedNode):
            return [source.stream.value]
        return list(registered.streams)

    def _unused_name(self) -> str:
        names = {each.name for each in self._queries}
        return next(name for number in count(self._count + 1) if (name := f"query-{number}") not in names)

    def _check(self, registered: Registered) -> None:
        """Refuse a query whose name is taken, that reads what is not there, or that would feed itself."""
        if any(each.name == registered.name for each in self._queries):
            raise QueryError(
                f"there is a query {registered.name} already",
                hint="drop it first, or register the query under another name",
            )
        for source in registered.sources:
            self._check_stream(source, registered)
        if registered.output in self.streams:
            raise QueryError(
                f"there is a stream <{registered.output}> already", hint="register the query under another name"
            )
        if self._feeds(registered, registered):
            raise QueryError("the query would feed itself: what it makes is read by a query that it reads")

    def _feeds(self, producer: Registered, reader: Registered) -> bool:
        """What `producer` makes reaches `reader`, which comes next to be registered, directly or through others."""
        if producer.output is None:
            return False
        readers = [each for each in (*self._queries, reader) if self._reads(each, producer.output)]
        return reader in readers or any(self._feeds(each, reader) for each in readers)

    def _reads(self, registered: Registered, stream: str) -> bool:
        return any(stream in self._streams_of(registered, source) for source in registered.sources)

    def _check_stream(self, source: Source, registered: Registered) -> None:
        if not isinstance(source.stream, NamedNode):
            return
        if source.stream.value == registered.output:
            raise QueryError("the query reads the stream that it makes", span=source.span)
        if source.stream.value not in self.streams:
            known = ", ".join(f"<{iri}>" for iri in self.streams)
            raise QueryError(
                f"stream {source.stream} is not registered",
                span=source.span,
                hint=f"the streams are {known}" if known else "no stream is registered",
            )

    # ------------------------------------------------------------ a tick

    def _tick(
        self,
        each: Registered,
        now: int,
        *,
        arrival: Arrival | None = None,
        boundary: bool = False,
        heartbeat: bool = False,
    ) -> None:
        if each.query.policy == "window-close" and each.closed and not boundary:
            return  # evaluated when a window closes, and only then
        each.ticks += 1
        rows = self._rows(each, now, without=None)
        contents = self._contents(each, now, without=None)
        changed = contents != each.contents
        unmoved: list[Row] | None = None
        match each.query.policy:
            case "cqels-1" if heartbeat:
                unmoved, changed = rows, False  # nothing came, so all that differs is due to expiry alone
            case "cqels-1" if arrival is not None:
                unmoved = self._rows(each, now, without=arrival)
                changed = contents != self._contents(each, now, without=arrival)
            case "window-close":
                changed = any(contents[:-1]) and (boundary or changed)
        if each.query.form == "ask":
            sent = self._answer(each, now, bool(rows), unmoved, changed)
        else:
            sent = self._difference(each, now, rows, unmoved, changed)
        each.rows, each.contents = rows, contents
        each.results += sent
        if each.output is not None:
            self._made.extend(
                (each.output, now, result.triples) for result in sent if result.triples and result.sign != "-"
            )

    def _answer(
        self, each: Registered, now: int, answer: bool, unmoved: list[Row] | None, changed: bool
    ) -> list[Result]:
        send = changed if each.query.emit == "rstream" else answer != each.answer
        if unmoved is not None and bool(unmoved) == answer and each.query.emit != "rstream":
            send = False
        each.answer = answer
        return [Result(each.name, now, each.ticks, "", (), boolean=answer)] if send else []

    def _difference(
        self, each: Registered, now: int, rows: list[Row], unmoved: list[Row] | None, changed: bool
    ) -> list[Result]:
        query = each.query
        signed = differences(query.emit, each.rows, rows, changed=changed, ordered=is_ordered(each.plan))
        if unmoved is not None:
            signed = without_expiry(query.emit, signed, each.rows, rows, unmoved, ordered=is_ordered(each.plan))
        if signed is None:
            return [Result(each.name, now, each.ticks, "", (), empty=True, variables=query.selected)]
        sent: list[Result] = []
        for sign, row in signed:
            shown = sign if query.emit == "changes" else ""
            if query.form == "select":
                sent.append(Result(each.name, now, each.ticks, shown, row, variables=query.variables))
            else:
                triples = constructed(query, variables(each.plan), row, f"{each.name} {each.ticks} {len(sent)}")
                if triples:
                    sent.append(Result(each.name, now, each.ticks, shown, (), triples))
        return sent

    # ------------------------------------------------------------ what a query sees

    def _rows(self, each: Registered, now: int, *, without: Arrival | None) -> list[Row]:
        names = variables(each.plan)
        bag = self._solve(each.plan, self._world(each, now, without))
        return [tuple(solution.bindings.get(name) for name in names) for solution in bag]

    def _world(self, each: Registered, now: int, without: Arrival | None) -> World:
        query = each.query
        named = self.store.named_graphs() if query.named_graphs is None else query.named_graphs

        def window(sources: tuple[Source, ...], graphs: tuple[NamedNode, ...]) -> StampedGraph:
            graph = StampedGraph((triple, None) for iri in graphs for triple in self.store.triples(iri))
            for source in sources:
                moment = Moment(now, each.closed)
                for triple, stamp in content(source.window, self._arrivals(each, source, without), moment):
                    graph.add(triple, stamp)
            return graph

        return World(
            default=self._default(query),
            named={name: self._graph(name) for name in named},
            streams=tuple(NamedNode(iri) for iri in each.streams),
            window=window,
            service=self._service,
            now=now,
            seed=each.name,
        )

    def _contents(self, each: Registered, now: int, *, without: Arrival | None) -> tuple[object, ...]:
        """What the windows hold and, last, how new the graphs are that are read: to tell whether anything changed."""
        moment = Moment(now, each.closed)
        windows = [
            tuple(stamp for _, stamp in content(source.window, self._arrivals(each, source, without), moment))
            for source in each.sources
        ]
        return (*windows, {graph: self.store.version(graph) for graph in each.graphs})

    def _arrivals(self, each: Registered, source: Source, without: Arrival | None) -> list[Arrival]:
        found = [
            arrival
            for stream in self._streams_of(each, source)
            for arrival in self._history[stream]
            if arrival.number >= each.since and arrival is not without
        ]
        return sorted(found, key=lambda arrival: arrival.number)

    def _default(self, query: Query) -> StampedGraph:
        if query.default_graphs is None:
            return self._graph(None)
        merged = StampedGraph()
        for name in query.default_graphs:
            for triple in self._graph(name).stamps:
                merged.add(triple, None)
        return merged

    def _graph(self, name: NamedNode | None) -> StampedGraph:
        key = (name, self.store.version(name))
        if key not in self._graphs:
            self._graphs[key] = StampedGraph((triple, None) for triple in self.store.triples(name))
        return self._graphs[key]

    def _service(self, plan: algebra.Service) -> Bag:
        table = self.store.services.table(plan)
        return [
            Solution({name: term for name, term in zip(table.variables, row, strict=True) if term is not None})
            for row in table.rows
        ]


def _without_slide(plan: Plan) -> Plan:
    if not isinstance(plan, algebra.Stream):
        return plan
    sources = tuple(
        replace(source, window=replace(source.window, slide=None)) if isinstance(source.window, Range) else source
        for source in plan.sources
    )
    return replace(plan, sources=sources)


__all__ = ["Reference", "Registered", "StreamSettings", "naive"]
