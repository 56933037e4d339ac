"""Laws of the reference engine on random scenarios: a few in every run, FUZZ_EXAMPLES of each with `-m fuzz`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyoxigraph import DefaultGraph, Quad

from cqels.ingest import Element
from cqels.model.errors import CqelsError
from cqels.model.time import SECOND
from cqels.plan.algebra import Plan, Query
from cqels.plan.prepare import prepare
from cqels.plan.scope import variables
from cqels.reference.as_one_query import Comparable, NotExpressible, comparable, whole
from cqels.reference.event_time import StreamSettings
from cqels.reference.plan_evaluation import World
from cqels.reference.reference_engine import Reference, Registered, naive
from cqels.reference.solutions import Bag
from cqels.results import Result
from cqels.store.dataset import Store

from ..cases import read_case
from ..random_expressions import Features
from ..random_queries import Choices, queries, scenario, scenarios, shuffled
from ..scenarios import EX, GRAPHS, NAME, PREFIX, Beat, Event, Register, Scenario, Snapshot, play, run
from ..test_cases import play as play_case

MANY = int(os.environ.get("FUZZ_EXAMPLES", "5000"))

EXPRESSIBLE = Features(
    time=False, partitions=False, freshness=False, median=False, draws=False, other_forms=False, contested=False
)
"""What SPARQL can say, and Oxigraph says as SPARQL does. Numbers in other forms are one term to Oxigraph; the other
switches tell their reasons."""
SELECT = Features(forms=("select",), policies=("cqels", "window-close"))
IN_ORDER = Features(lateness=False, heartbeats=False, updates=False)
COMPANY = Features(comings=True, derived=True, snapshots=True, patterns=4, elements=6)
"""Queries that come, go and read each other; small ones, for what one makes is many ticks of another."""


def for_all(*strategies: st.SearchStrategy[Any], examples: int) -> Callable[[Callable[..., None]], None]:
    """Check a law at once."""

    def check(law: Callable[..., None]) -> None:
        settings(max_examples=examples)(given(*strategies)(law))()

    return check


def some_or_many(some: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "examples", [pytest.param(some, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]
    )


# ---------------------------------------------------------------- two evaluators


def by_value(plan: Plan, bag: Bag) -> Counter[Comparable]:
    names = variables(plan)
    return Counter(comparable(each.bindings.get(name) for name in names) for each in bag)


def both(plan: Plan, world: World) -> Bag:
    """The naive solutions, once Oxigraph has found the same ones."""
    found = naive(plan, world)
    try:
        expected = whole(plan, world)
    except NotExpressible:
        return found
    assert by_value(plan, found) == by_value(plan, expected)
    return found


@st.composite
def expressible(draw: Any) -> Scenario:
    """Oxigraph writes the double 1.0 as `1`, so a scenario has doubles or functions that see texts, not both."""
    choices = Choices.drawn(draw)
    texts = choices.chance(50)
    return scenario(choices, replace(EXPRESSIBLE, texts=texts, doubles=not texts))


@some_or_many(60)
def test_naive_solutions_are_those_of_one_sparql_query(examples: int) -> None:
    """For every tick, `naive(plan, world) = whole(plan, world)` as bags of values."""

    @for_all(expressible(), examples=examples)
    def law(scenario: Scenario) -> None:
        run(scenario, solve=both)


# ---------------------------------------------------------------- emissions


def by_tick(results: Iterable[Result]) -> dict[int, list[Result]]:
    ticks: dict[int, list[Result]] = {}
    for each in results:
        ticks.setdefault(each.tick, []).append(each)
    return ticks


def rows(results: Iterable[Result]) -> Counter[object]:
    return Counter(each.values for each in results if not each.empty)


@some_or_many(30)
def test_emissions_tell_the_same_story(examples: int) -> None:
    """`R(i) = R(i−1) + istream(i) − dstream(i)`; `rstream(i) = R(i)` and `snapshot(i) = R(i)` where they are sent;
    `changes(i) = {+ istream(i), − dstream(i)}`; and where no snapshot is sent, R has not changed."""

    @for_all(scenarios(replace(SELECT, time=False)), examples=examples)
    def law(scenario: Scenario) -> None:
        sent = {
            emit: by_tick(run(scenario.emitting(emit))[NAME])
            for emit in ("istream", "dstream", "rstream", "changes", "snapshot")
        }
        now: Counter[object] = Counter()
        for tick in sorted(set().union(*sent.values())):
            appeared, vanished = rows(sent["istream"].get(tick, [])), rows(sent["dstream"].get(tick, []))
            before, now = now, now + appeared
            assert vanished <= now
            now = now - vanished
            assert not appeared & vanished
            changes = sent["changes"].get(tick, [])
            assert rows(each for each in changes if each.sign == "+") == appeared
            assert rows(each for each in changes if each.sign == "-") == vanished
            if tick in sent["rstream"]:
                assert rows(sent["rstream"][tick]) == now
            if tick in sent["snapshot"]:
                assert rows(sent["snapshot"][tick]) == now
            else:
                assert now == before


# ---------------------------------------------------------------- time


@some_or_many(40)
def test_order_of_arrival_within_the_lateness_does_not_matter(examples: int) -> None:
    """Elements that arrive in any order, none later than `lateness`, give what they give in order."""
    lateness = 3 * SECOND

    @for_all(scenarios(IN_ORDER), st.integers(0, 2**32), examples=examples)
    def law(scenario: Scenario, seed: int) -> None:
        ordered = replace(scenario, streams=tuple(StreamSettings(each.iri, lateness) for each in scenario.streams))
        assert run(shuffled(Choices.seeded(seed), ordered, lateness)) == run(ordered)
        assert run(ordered) == run(scenario)


# ---------------------------------------------------------------- plans and neighbours


@some_or_many(60)
def test_rewritten_plans_mean_the_same(examples: int) -> None:
    """`run(rewrite(query)) = run(query)`, in all that is sent and its order."""
    rewrite = pytest.importorskip("cqels.plan.optimizer.rules").rewrite

    @for_all(scenarios(), examples=examples)
    def law(scenario: Scenario) -> None:
        assert run(scenario, change_plan=rewrite) == run(scenario)


@some_or_many(25)
def test_queries_do_not_see_each_other(examples: int) -> None:
    """A query sends the same alone and beside others, which come and go, unless it reads the streams that they make."""

    @for_all(scenarios(replace(COMPANY, snapshots=False), beside=3), examples=examples)
    def law(scenario: Scenario) -> None:
        assume(not any(touches(each, scenario.derived) for each in scenario.registrations if each.name == NAME))
        assert run(scenario)[NAME] == run(scenario.alone())[NAME]


class Again(Reference):
    """To go on from a snapshot is, for this one, to do in a new engine what was done so far."""

    def __init__(self, store: Store, streams: Iterable[StreamSettings]) -> None:
        super().__init__(store, streams)
        graphs = (None, *store.named_graphs())
        self._opening = [Quad(*each, name or DefaultGraph()) for name in graphs for each in store.triples(name)]
        self._done: list[Callable[[Reference], object]] = []

    def register(self, query: Query) -> Registered:
        self._done.append(lambda engine: engine.register(query))
        return super().register(query)

    def drop(self, query: Registered | str) -> None:
        self._done.append(lambda engine: engine.drop(query))
        super().drop(query)

    def push(self, element: Element, *, arrived: int | None = None) -> None:
        self._done.append(lambda engine: engine.push(element))
        super().push(element, arrived=arrived)

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        self._done.append(lambda engine: engine.heartbeat(time, stream))
        super().heartbeat(time, stream)

    def update(self, change: Callable[[Store], object]) -> None:
        self._done.append(lambda engine: engine.update(change))
        super().update(change)

    def snapshotted(self) -> Again:
        store = Store()
        store.add(self._opening)
        for name in GRAPHS:
            store.create_graph(name)
        again = Again(store, self._settings)
        for step in self._done:
            step(again)
        for each in again._queries:
            each.take()  # taken before
        return again


@some_or_many(25)
def test_a_snapshot_is_invisible(examples: int) -> None:
    """What is sent with snapshots on the way is what is sent without."""

    @for_all(scenarios(COMPANY, beside=1), examples=examples)
    def law(scenario: Scenario) -> None:
        assert run(scenario, engine=Again) == run(scenario.without(Snapshot))


@some_or_many(40)
def test_a_derived_stream_is_what_one_would_push_by_hand(examples: int) -> None:
    """A query that reads what another constructs sends what it sends when these elements are pushed, each after what
    it was made of."""
    features = replace(COMPANY, comings=False, snapshots=False, any_stream=False, lateness=False)

    @for_all(scenarios(features), examples=examples)
    def law(scenario: Scenario) -> None:
        read = [name for name in scenario.derived if scenario.main.reads(name)]
        assume(len(read) == 1)  # elements of several would come in the order of their making, which results do not tell
        assume(not scenario.events or isinstance(scenario.events[0], Element))  # time begins with an element
        (stream,) = read
        assert run(by_hand(scenario, stream))[NAME] == run(scenario)[NAME]


def by_hand(scenario: Scenario, stream: str) -> Scenario:
    """The main query alone, with the elements of a derived stream among the events."""
    store = scenario.store()
    makers = Reference(store, scenario.streams)
    for each in scenario.others:
        makers.register(each.prepared())
    events: list[Event] = []
    for event in scenario.events:
        play(makers, [event])
        sent = [each for each in makers.query(stream).take() if each.triples and each.sign != "-"]
        elements = [Element(stream, each.nanoseconds, each.triples) for each in sent]
        closed = [each for each in elements if isinstance(event, Element | Beat) and each.time < event.time]
        events += [*closed, event, *elements[len(closed) :]]
    streams = (*scenario.streams, StreamSettings(stream))
    return replace(scenario, streams=streams, events=tuple(events), others=())


def touches(query: Register, streams: set[str]) -> bool:
    """The query reads one of these streams, by name or because it reads all that are there."""
    return any(query.reads(stream) for stream in streams) or (bool(streams) and "STREAM ?" in query.text)


@some_or_many(20)
def test_a_scenario_is_a_case(examples: int, tmp_path: Path) -> None:
    """A scenario printed as a case file, and read again, sends the same."""

    @for_all(scenarios(COMPANY, beside=1), examples=examples)
    def law(scenario: Scenario) -> None:
        path = tmp_path / "printed.cqt"
        path.write_text(repr(scenario).lstrip("\n"), encoding="utf-8")
        found: dict[str, list[Result]] = {name: [] for name in run(scenario)}
        for sent in play_case(read_case(path), Reference).sent.values():
            assert not isinstance(sent, CqelsError)
            found[str(sent[0].name)] += sent[1]
        assert found == run(scenario)


# ---------------------------------------------------------------- registration


def broken(text: str, choices: Choices) -> str:
    """The text with some of its words left out, doubled, exchanged or put elsewhere."""
    words = text.split(" ")
    for _ in range(choices.number(1, 3)):
        place, other = choices.number(0, len(words) - 1), choices.number(0, len(words) - 1)
        match choices.pick(["drop", "double", "swap", "cut"]):
            case "drop":
                words[place] = ""
            case "double":
                words[place] += " " + words[other]
            case "swap":
                words[place], words[other] = words[other], words[place]
            case _:
                words[place] = words[place][: choices.number(0, len(words[place]))]
    return " ".join(words)


@some_or_many(60)
def test_registration_raises_only_errors_of_users(examples: int) -> None:
    """Whatever the text, `prepare` and `register` give a query or a CqelsError."""

    @for_all(queries(), st.integers(0, 2**32), examples=examples)
    def law(query: str, seed: int) -> None:
        text = f"{PREFIX} {broken(query, Choices.seeded(seed))}"
        engine = Reference(Store(), [StreamSettings(f"{EX}s1"), StreamSettings(f"{EX}s2")])
        with suppress(CqelsError):
            engine.register(prepare(text))
