"""A scenario: data, what happens in which order, and a query over it; how to run one, and how to print it as a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pyoxigraph import NamedNode, Quad

from cqels.io import Element, Result
from cqels.model.notation import Notation
from cqels.model.time import format_time
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.reference.clock import StreamSettings
from cqels.reference.engine import Reference, Registered
from cqels.store.dataset import Store

EX = "http://ex.org/"
PREFIX = f"PREFIX : <{EX}> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>"
NAME = "q"
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


Event: TypeAlias = Element | Beat | Change


@dataclass(frozen=True, repr=False)
class Scenario:
    """What is there, what comes in which order, and what is asked. `repr` is the scenario as a case."""

    static: tuple[Quad, ...]
    streams: tuple[StreamSettings, ...]
    events: tuple[Event, ...]
    query: str
    emit: str | None = None
    policy: str | None = None
    others: tuple[str, ...] = field(default=())
    """Queries that run beside it."""

    def __repr__(self) -> str:
        return "\n" + case(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would list the fields

    def prepared(self) -> Query:
        return prepare(f"{PREFIX} {self.query}", name=NAME, emit=self.emit, policy=self.policy)

    def emitting(self, emit: str) -> Scenario:
        return replace(self, emit=emit)


def run(
    scenario: Scenario,
    *,
    change_plan: Callable[[Query], Query] = lambda query: query,
    engine: Callable[..., Any] = Reference,
    **options: Any,
) -> list[Result]:
    """What the scenario's query sends. `engine` is made from a store, streams and the options."""
    store = Store()
    store.add(scenario.static)
    running = engine(store, scenario.streams, **options)
    registered: Registered = running.register(change_plan(scenario.prepared()))
    for place, text in enumerate(scenario.others):
        running.register(prepare(f"{PREFIX} {text}", name=f"other-{place}"))
    play(running, scenario.events)
    return registered.take()


def play(engine: Any, events: Iterable[Event]) -> None:
    for event in events:
        match event:
            case Element():
                engine.push(event)
            case Beat(time=time, stream=stream):
                engine.heartbeat(time, stream)
            case Change(removed=removed, added=added):
                engine.update(lambda store, gone=removed, new=added: store.change(gone, new))
    engine.finish()


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
    for arrival, event in arrivals:
        lines += _beside_streams(arrival, event)
    policy = scenario.policy and f"policy={scenario.policy}"
    lines.append(" ".join(filter(None, ("query", f"name={NAME}", scenario.emit, policy))))
    lines.append(f"  {scenario.query}")
    for text in scenario.others:
        lines += ["query", f"  {text}"]
    return "\n".join([*lines, "----", ""])


def _graphs(quads: Iterable[Quad]) -> list[object]:
    return sorted({quad.graph_name for quad in quads}, key=str)


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


def _arrivals(events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """Each event with a time of arrival that no other has: its own time, or the least after those before it."""
    clock = -1
    for event in events:
        clock += 1
        if not isinstance(event, Change):
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
        case _:
            return
