"""A scenario: data, what happens in which order, and queries over it; how to run one, and how to print it as a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pyoxigraph import NamedNode, Quad

from cqels.ingest import Element
from cqels.model.time import format_time
from cqels.model.turtle_text import Notation
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.reference.event_time import StreamSettings
from cqels.reference.reference_engine import Reference
from cqels.results import Result
from cqels.store.dataset import Store

EX = "http://ex.org/"
PREFIX = f"PREFIX : <{EX}> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>"
NAME = "q"
GRAPHS = [NamedNode(EX + "g1"), NamedNode(EX + "g2")]
"""The named graphs that queries choose among."""
"""The query that a scenario is about."""
ChangePlan: TypeAlias = Callable[[Query], Query]
_NOTATION = Notation({"": EX, "xsd": "http://www.w3.org/2001/XMLSchema#"})


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, of one stream or (None) of all."""

    time: int
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """An update of the dataset."""

    removed: tuple[Quad, ...]
    added: tuple[Quad, ...]


@dataclass(frozen=True, slots=True)
class Register:
    """A query comes. Its name may be that of one that has gone."""

    name: str
    text: str
    emit: str | None = None
    policy: str | None = None

    def prepared(self) -> Query:
        return prepare(f"{PREFIX} {self.text}", name=self.name, emit=self.emit, policy=self.policy, lenient=True)

    def reads(self, stream: str) -> bool:
        """The text names this stream (a `STREAM ?s` names none); REGISTER names the one that it makes itself."""
        return stream != self.name and f"STREAM {_name(stream)} " in self.text


@dataclass(frozen=True, slots=True)
class Drop:
    """A query goes."""

    name: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An engine that can is saved here, thrown away, and a new one goes on from what was saved."""


Event: TypeAlias = Element | Beat | Change | Register | Drop | Snapshot
Results: TypeAlias = dict[str, list[Result]]
"""What each query has sent, by its name; if several had one name, one after the other."""


@dataclass(frozen=True, repr=False)
class Scenario:
    """What is there, what comes in which order, and what is asked. `repr` is the scenario as a case."""

    static: tuple[Quad, ...]
    streams: tuple[StreamSettings, ...]
    events: tuple[Event, ...]
    query: str
    emit: str | None = None
    policy: str | None = None
    others: tuple[Register, ...] = ()
    """Queries that are there before it."""

    def __repr__(self) -> str:
        return "\n" + case(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would list the fields

    def store(self) -> Store:
        """The static data; the graphs that queries may choose among are there, though nothing may be in them."""
        store = Store()
        store.add(self.static)
        for name in GRAPHS:
            store.create_graph(name)
        return store

    @property
    def main(self) -> Register:
        return Register(NAME, self.query, self.emit, self.policy)

    def prepared(self) -> Query:
        return self.main.prepared()

    def emitting(self, emit: str) -> Scenario:
        return replace(self, emit=emit)

    @property
    def registrations(self) -> list[Register]:
        """All the queries, in the order in which they come."""
        return [*self.others, self.main, *(each for each in self.events if isinstance(each, Register))]

    @property
    def derived(self) -> set[str]:
        """The streams that queries make, now or then."""
        return {each.name for each in self.registrations if ":" in each.name}

    def alone(self) -> Scenario:
        """The same without any other query."""
        events = (each for each in self.events if not isinstance(each, Register | Drop) or each.name == NAME)
        return replace(self, events=tuple(events), others=())

    def without(self, *kinds: type[Event]) -> Scenario:
        """The same without events of these kinds."""
        return replace(self, events=tuple(each for each in self.events if not isinstance(each, kinds)))

    def keeping(self, wanted: Callable[[Register], bool]) -> Scenario | None:
        """The same without the queries that are not wanted and those that read what these would make.

        None where the main query is one of them.
        """
        derived, running = self.derived, set[str]()

        def stays(event: Event) -> bool:
            if isinstance(event, Register):
                stay = wanted(event) and not any(event.reads(stream) for stream in derived - running)
                running.update({event.name} if stay else ())
            elif isinstance(event, Drop):
                stay = event.name in running
                running.discard(event.name)
            else:
                stay = True
            return stay

        others = tuple(filter(stays, self.others))
        if not stays(self.main):
            return None
        return replace(self, others=others, events=tuple(filter(stays, self.events)))


def run(
    scenario: Scenario,
    *,
    change_plan: ChangePlan = lambda query: query,
    engine: Callable[..., Any] = Reference,
    **options: Any,
) -> Results:
    """What the scenario's queries send. `engine` is made from a store, streams and the options."""
    store = scenario.store()
    running = engine(store, scenario.streams, **options)
    return play(running, (*scenario.others, scenario.main, *scenario.events), change_plan=change_plan)


def play(
    engine: Any, events: Iterable[Event], *, change_plan: Callable[[Query], Query] = lambda query: query
) -> Results:
    """What the queries send that come with the events.

    An engine has `register`, `drop`, `push`, `heartbeat`, `update` and `finish`, as the reference has.  If it has
    `snapshotted`, that gives the engine to go on with, and `query` finds a query there by its name.
    """
    running: dict[str, Any] = {}
    sent: Results = {}
    for event in events:
        match event:
            case Element():
                engine.push(event)
            case Beat(time=time, stream=stream):
                engine.heartbeat(time, stream)
            case Change(removed=removed, added=added):
                engine.update(lambda store, gone=removed, new=added: store.change(gone, new))
            case Register(name=name):
                running[name] = engine.register(change_plan(event.prepared()))
                sent.setdefault(name, [])
            case Drop(name=name):
                engine.drop(name)
                sent[name] += running.pop(name).take()
            case Snapshot() if hasattr(engine, "snapshotted"):
                for name, query in running.items():
                    sent[name] += query.take()
                engine = engine.snapshotted()
                running = {name: engine.query(name) for name in running}
            case Snapshot():
                pass
    engine.finish()
    for name, query in running.items():
        sent[name] += query.take()
    return sent


# ---------------------------------------------------------------- as a case file


def case(scenario: Scenario) -> str:
    """The scenario as a case file (docs/testing.md), what is expected left for `REWRITE=1` to fill in.

    A case gives its events in order of arrival, so each has a time of arrival here, a little after the one before.
    """
    lines = [line for graph in _graphs(scenario.static) for line in _graph(graph, scenario.static)]
    arrivals = list(_arrivals(scenario.events))
    for stream in scenario.streams:
        lines.append("stream " + " ".join(_settings(stream)))
        for arrival, event in arrivals:
            lines += _on_stream(stream, arrival, event)
    for query in (*scenario.others, scenario.main):
        lines += _query(query)
    for arrival, event in arrivals:
        lines += _beside_streams(arrival, event)
    return "\n".join([*lines, "----", ""])


def _graphs(quads: Iterable[Quad]) -> list[object]:
    return sorted({*GRAPHS, *(quad.graph_name for quad in quads)}, key=str)


def _graph(graph: object, quads: Sequence[Quad]) -> Iterator[str]:
    yield f"static {_NOTATION.iri(graph)}" if isinstance(graph, NamedNode) else "static"
    yield from (f"  {_triple(quad)}" for quad in quads if quad.graph_name == graph)


def _triple(triple: Any) -> str:
    subject, predicate, value, *_ = triple
    return f"{_NOTATION.triple((subject, predicate, value))} ."


def _settings(settings: StreamSettings) -> Iterator[str]:
    yield _NOTATION.iri(NamedNode(settings.iri))
    if settings.lateness:
        yield f"lateness={format_time(settings.lateness)}"
    if settings.idle:
        yield f"idle={format_time(settings.idle)}"


def _query(query: Register, *options: str) -> Iterator[str]:
    policy = query.policy and f"policy={query.policy}"
    yield " ".join(filter(None, ("query", f"name={_name(query.name)}", query.emit, policy, *options)))
    yield f"  {query.text}"


def _name(name: str) -> str:
    return _NOTATION.iri(NamedNode(name)) if ":" in name else name


def _arrivals(events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """Each event with a time of arrival that no other has: its own time, or the least after those before it."""
    clock = -1
    for event in events:
        clock += 1
        if isinstance(event, Element | Beat):
            clock = max(clock, event.time)
        yield clock, event


def _time(time: int, arrival: int) -> str:
    return format_time(time) if arrival == time else f"{format_time(time)}@{format_time(arrival)}"


def _on_stream(stream: StreamSettings, arrival: int, event: Event) -> Iterator[str]:
    match event:
        case Element(stream=stream.iri, time=time, triples=triples):
            yield f"  {_time(time, arrival)} " + " ".join(map(_triple, triples))
        case Beat(time=time, stream=stream.iri):
            yield f"  {_time(time, arrival)} heartbeat"
        case _:
            return


def _beside_streams(arrival: int, event: Event) -> Iterator[str]:
    match event:
        case Beat(time=time, stream=None):
            yield f"heartbeat {_time(time, arrival)}"
        case Change(removed=removed, added=added):
            yield f"update {format_time(arrival)}"
            for word, quads in (("delete", removed), ("insert", added)):
                for quad in quads:
                    graph = f"graph {_NOTATION.iri(quad.graph_name)} " if isinstance(quad.graph_name, NamedNode) else ""
                    yield f"  {word} {graph}{_triple(quad)}"
        case Register():
            yield from _query(event, f"at={format_time(arrival)}")
        case Drop(name=name):
            yield f"drop {format_time(arrival)} {_name(name)}"
        case Snapshot():
            yield f"snapshot {format_time(arrival)}"
        case _:
            return
