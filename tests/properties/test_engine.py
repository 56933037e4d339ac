"""The incremental engine gives what the reference gives, on random scenarios and whatever the size of the blocks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cqels.engine.engine import Engine
from cqels.flow.compile import NotIncremental
from cqels.io import Element
from cqels.reference.clock import StreamSettings
from cqels.store.dataset import Store

from ..incremental import Incremental
from ..random_expressions import Features
from ..random_queries import scenarios
from ..scenarios import Register, Scenario, run

MANY = int(os.environ.get("FUZZ_EXAMPLES", "5000"))
FEATURES = Features(time=False, partitions=False, policies=("cqels", "window-close"))
IN_ORDER = Features(time=False, partitions=False, policies=("cqels",), lateness=False, heartbeats=False, updates=False)
COMPANY = replace(
    FEATURES,
    patterns=4,
    elements=6,
    comings=hasattr(Incremental, "drop"),
    derived=hasattr(Incremental, "streams"),
    snapshots=hasattr(Incremental, "snapshotted"),
)
"""Queries beside each other; they come and go, read each other and are saved once the engine has the methods for it."""
SIZES = [pytest.param(60, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]


@pytest.mark.parametrize("examples", SIZES)
def test_the_engine_agrees_with_the_reference(examples: int) -> None:
    """engine(s) = reference(s), results and their order, for every shape that has incremental operators."""

    @settings(max_examples=examples)
    @given(scenarios(FEATURES))
    def law(scenario: Scenario) -> None:
        try:
            found = run(scenario, engine=Incremental)
        except NotIncremental:
            assume(False)
        assert found == run(scenario)

    law()


@pytest.mark.parametrize("examples", SIZES)
def test_the_engine_agrees_where_queries_come_and_go(examples: int) -> None:
    """engine(s) = reference(s) for all queries of s: those beside others, those that go, those that read another."""

    @settings(max_examples=examples)
    @given(scenarios(COMPANY, beside=2))
    def law(scenario: Scenario) -> None:
        kept = scenario.keeping(incremental(scenario))
        assume(kept is not None)
        try:
            found = run(kept, engine=Incremental)
        except NotIncremental:
            assume(False)
        assert found == run(kept)

    law()


def incremental(scenario: Scenario) -> Callable[[Register], bool]:
    """Whether a query of the scenario has incremental operators."""
    engine = Incremental(Store(), (*scenario.streams, *map(StreamSettings, sorted(scenario.derived))))

    def accepted(query: Register) -> bool:
        try:
            engine.register(replace(query.prepared(), name=None))
        except NotIncremental:
            return False
        return True

    return accepted


@pytest.mark.parametrize("examples", SIZES)
def test_blocks_do_not_matter(examples: int) -> None:
    """push(a + b) = push(a); push(b)"""

    @settings(max_examples=examples)
    @given(scenarios(IN_ORDER), st.lists(st.integers(0, 30), max_size=3))
    def law(scenario: Scenario, cuts: list[int]) -> None:
        elements = sorted((each for each in scenario.events if isinstance(each, Element)), key=lambda each: each.time)
        results = []
        for places in ([], cuts, range(len(elements))):
            store = Store()
            store.add(scenario.static)
            engine = Engine(store, [each.iri for each in scenario.streams], size=1 << 26)
            try:
                running = engine.register(scenario.prepared())
            except NotIncremental:
                assume(False)
            ends = [*sorted(place for place in places if place < len(elements)), len(elements)]
            for start, end in zip([0, *ends], ends, strict=False):
                engine.push(elements[start:end])
            results.append(running.take())
        assert results[0] == results[1] == results[2]

    law()
