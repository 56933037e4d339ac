"""The incremental engine gives what the reference gives, on random scenarios and whatever the size of the blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode

from cqels.engine.engine import Engine
from cqels.engine.query_handle import StandingQuery
from cqels.ingest import Element, StreamSettings
from cqels.kernels.containers import row_buffer, row_storage
from cqels.kernels.operators import join
from cqels.model.time import SECOND
from cqels.plan.algebra import Query
from cqels.results import Result

from ..incremental import Incremental
from ..random_expressions import Choices, Features
from ..random_joins import joins
from ..random_lookups import lookups
from ..random_orders import ordered_scenarios
from ..random_queries import scenarios
from ..random_shapes import shapes
from ..random_stars import star, stars
from ..random_variants import variants
from ..scenarios import EX, Scenario, run

MANY = int(os.environ.get("FUZZ_EXAMPLES", "5000"))
FEATURES = Features()
ORDERED = Features(elements=12)
IN_ORDER = Features(lateness=False, heartbeats=False, updates=False)
COMPANY = replace(FEATURES, patterns=4, elements=6, comings=True, derived=True, snapshots=True)
"""Queries beside each other: they come and go, read each other and are saved."""
SIZES = [pytest.param(40, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]


MADE = {
    "any": scenarios(FEATURES),
    "ordered": ordered_scenarios(ORDERED),
    "shapes": shapes(FEATURES),  # windows are merged, EXISTS stands inside expressions, sides may be unbound …
    "stars": stars(),  # most elements are whole solutions of a star, and some are not
    "company": scenarios(COMPANY, beside=2),  # queries beside others, those that go, those that read another
    "variants": variants(),  # queries differ in constants, so that they share what they can
    "widths": variants(wide=True),  # and in the widths of their windows
    "thresholds": variants(compared=True, wide=True),  # and in the numbers that they compare with
    "lookups": lookups(),  # static parts that share nothing, conditions over several windows and tables
    "joins": joins(),  # queries of different shapes have joins of streams in common
}


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())
def test_the_engine_agrees_with_the_reference(made: st.SearchStrategy[Scenario], examples: int) -> None:
    """engine(s) = reference(s), results of all queries and their order."""

    @settings(max_examples=examples)
    @given(made)
    def law(scenario: Scenario) -> None:
        assert run(scenario, engine=Incremental) == run(scenario)

    law()


@pytest.mark.parametrize("whole", [0, 40, 70, 95])
@pytest.mark.parametrize("subjects", [5, 1000])
def test_the_engine_agrees_on_long_stars(subjects: int, whole: int) -> None:
    """The same of stars for as many elements as it takes to give one up, or what is remembered."""
    for seed in range(2):
        scenario = star(Choices.seeded(seed), 200, subjects, whole)
        assert run(scenario, engine=Incremental) == run(scenario), seed


def test_a_star_writes_within_its_ring() -> None:
    """The third element has the last of three triples alone, when the ring has room for two more."""
    whole = [(name, str(number)) for number, name in enumerate("abc")]
    told = [("t1", whole), ("t2", whole), ("t3", whole[2:]), ("t4", whole)]
    events = tuple(
        Element(
            EX + "s1",
            10 * number * SECOND // 3,
            tuple((NamedNode(EX + subject), NamedNode(EX + name), Literal(value)) for name, value in triples),
        )
        for number, (subject, triples) in enumerate(told)
    )
    query = "SELECT ?x ?a ?b ?c WHERE { STREAM :s1 [RANGE 9s] { ?x :a ?a ; :b ?b ; :c ?c } }"
    scenario = Scenario((), (StreamSettings(EX + "s1"),), events, query, emit="changes")
    assert run(scenario, engine=Incremental) == run(scenario)


class Forgetting(Incremental):
    """Looks for what nothing refers to after every event."""

    def push(self, element: Element) -> None:
        super().push(element)
        self.engine.collect()

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        super().heartbeat(time, stream)
        self.engine.collect()


@pytest.mark.parametrize("examples", SIZES)
def test_forgetting_is_not_seen(examples: int) -> None:
    """An engine that forgets the terms that nothing refers to after each event sends the same."""

    @settings(max_examples=examples)
    @given(scenarios(COMPANY, beside=1))
    def law(scenario: Scenario) -> None:
        assert run(scenario, engine=Forgetting) == run(scenario)

    law()


class Turning(Incremental):
    """Lets the rings of joins be bags after some events, as they become when rows leave in another order."""

    turned = 0

    def push(self, element: Element) -> None:
        super().push(element)
        words = self.engine.internals.arena.words
        for heap, ring in self._rings() if element.time >= 3 * SECOND else ():
            with self.engine.internals.arena.heap(heap):
                assert row_buffer.become_bag(self.engine.internals.arena.base, ring)
            assert words[ring + row_storage.KIND] == row_storage.BAG
            Turning.turned += 1

    def _rings(self) -> Iterator[tuple[int, int]]:
        words = self.engine.internals.arena.words
        pipelines = (each.pipeline for each in self.engine.internals.core.registry.pipelines)
        for heap, trace in ((each.heap, trace) for each in pipelines for trace in each.joins):
            for source in words[trace.offset + join.INPUT :][: int(words[trace.offset + join.INPUTS])]:
                if words[words[source + join.BUFFER] + row_storage.KIND] == row_storage.RING:
                    yield heap, int(words[source + join.BUFFER])


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize("kind", ["any", "company", "widths", "joins"])
def test_the_discipline_of_a_buffer_is_not_seen(kind: str, examples: int) -> None:
    """What joins send does not depend on whether the rows of their windows are in rings or in bags."""
    before = Turning.turned

    @settings(max_examples=examples)
    @given(MADE[kind])
    def law(scenario: Scenario) -> None:
        assert run(scenario, engine=Turning) == run(scenario)

    law()
    assert Turning.turned > before


@pytest.mark.parametrize("examples", SIZES)
def test_blocks_do_not_matter(examples: int) -> None:
    """push(a + b) = push(a); push(b)"""

    @settings(max_examples=examples)
    @given(scenarios(IN_ORDER), st.lists(st.integers(0, 30), max_size=3))
    def law(scenario: Scenario, cuts: list[int]) -> None:
        elements = sorted((each for each in scenario.events if isinstance(each, Element)), key=lambda each: each.time)
        results = []
        for places in ([], cuts, range(len(elements))):
            store = scenario.store()
            engine = Engine(store=store, size=1 << 26)
            for each in scenario.streams:
                engine.internals.declare(each)
            running = engine.register(scenario.prepared())
            ends = [*sorted(place for place in places if place < len(elements)), len(elements)]
            for start, end in zip([0, *ends], ends, strict=False):
                engine.internals.push_elements(elements[start:end])
            results.append(running.take())
        assert results[0] == results[1] == results[2]

    law()


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize("kind", ["variants", "widths", "thresholds", "joins"])
def test_sharing_is_not_seen(kind: str, examples: int) -> None:
    """Queries that share, given all elements at once, send what each sends alone, given one by one."""

    @settings(max_examples=examples)
    @given(MADE[kind])
    def law(scenario: Scenario) -> None:
        elements = sorted((each for each in scenario.events if isinstance(each, Element)), key=lambda each: each.time)
        results = []
        for share in (True, False):
            store = scenario.store()
            engine = Engine(store=store, size=1 << 26, share=share)
            for stream in scenario.streams:
                engine.stream(stream.iri)
            running = [engine.register(each.prepared()) for each in (*scenario.others, scenario.main)]
            for block in [elements] if share else [[each] for each in elements]:
                engine.internals.push_elements(block)
            engine.heartbeat(max((each.time for each in elements), default=0) + 3 * SECOND)
            results.append([query.take() for query in running])
        assert results[0] == results[1]

    law()


# ---------------------------------------------------------------- results as columns


@dataclass
class Otherwise:
    """A query whose results are taken in another way."""

    query: StandingQuery
    way: Callable[[StandingQuery], list[Any]]

    def take(self) -> list[Any]:
        return self.way(self.query)


def taking(way: Callable[[StandingQuery], list[Any]]) -> type[Incremental]:
    """The engine whose results are taken so."""

    class Taking(Incremental):
        def register(self, query: Query) -> Any:
            return Otherwise(super().register(query), way)

        def query(self, name: str) -> Any:
            return Otherwise(super().query(name), way)

    return Taking


def told(query: StandingQuery) -> list[Any]:
    """The results as rows of `terms`."""

    def body(result: Result) -> dict[str, Any]:
        match query.query.form:
            case "ask":
                return {"answer": result.boolean}
            case "construct":
                triples = " ".join(" ".join(map(str, triple)) + " ." for triple in result.triples)
                return {"triples": None if result.empty else triples}
        values = result.values if not result.empty else (None,) * len(query.variables)
        texts = [None if term is None else str(term) for term in values]
        return {f"?{name}": text for name, text in zip(query.variables, texts, strict=True)}

    return [
        {"time": each.nanoseconds, "tick": each.tick, "sign": each.sign or None, "empty": each.empty, **body(each)}
        for each in query.take()
    ]


def typed(query: StandingQuery) -> list[Any]:
    """The columns of `arrow`: names, types and values."""
    table = query.arrow()
    plain = [column.cast("int64") if str(column.type).startswith("timestamp") else column for column in table.columns]
    return [(name, str(column.type)) for name, column in zip(table.column_names, table.columns, strict=True)] + [
        repr(column.to_pylist()) for column in plain
    ]


def typed_of_results(query: StandingQuery) -> list[Any]:
    """The same of results that have been made."""
    query.running.make()
    return typed(query)


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize("made", [scenarios(COMPANY, beside=1), ordered_scenarios(ORDERED)], ids=["any", "ordered"])
def test_columns_have_what_results_have(made: st.SearchStrategy[Scenario], examples: int) -> None:
    """terms() is take() in N-Triples, and arrow() is the same whether of words or of results."""
    pytest.importorskip("pyarrow")

    @settings(max_examples=examples)
    @given(made)
    def law(scenario: Scenario) -> None:
        assert run(scenario, engine=taking(lambda query: query.terms().to_pylist())) == run(
            scenario, engine=taking(told)
        )
        assert run(scenario, engine=taking(typed)) == run(scenario, engine=taking(typed_of_results))

    law()
