"""Gaps: the engine passes boundaries at which nothing happens without working them off, and gives what the reference
gives, which works off each of them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqels import Engine
from cqels.ingest import Element
from cqels.kernels.memory.arena import Arena, write_words
from cqels.kernels.operators.gap_skipping import boundary_number, passed_between, periods_of
from cqels.model.time import SECOND
from cqels.reference.windows import boundaries

from ..incremental import Incremental
from ..random_expressions import Features
from ..random_joins import joins
from ..random_queries import scenarios
from ..random_shapes import shapes
from ..random_variants import variants
from ..scenarios import Beat, Event, Scenario, run
from .test_engine import COMPANY, MANY

SIZES = [pytest.param(25, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]
MADE = {
    "any": scenarios(Features()),
    "company": scenarios(COMPANY, beside=2),
    "shapes": shapes(Features()),
    "variants": variants(wide=True),
    "joins": joins(),
}
YEAR = 365 * 86400 * SECOND


def with_gaps(scenario: Scenario, gaps: list[tuple[int, int]]) -> Scenario:
    """The same, but that from each of some times on all comes so much later."""

    def moved(event: Event) -> Event:
        if isinstance(event, Element | Beat):
            later = sum(gap for since, gap in gaps if event.time >= since)
            return replace(event, time=event.time + later)
        return event

    return replace(scenario, events=tuple(map(moved, scenario.events)))


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())
def test_a_gap_changes_nothing_but_what_it_costs(made: st.SearchStrategy[Scenario], examples: int) -> None:
    """engine(s) = reference(s) where time goes on without events: results, and the numbers of their ticks."""
    lengths = st.integers(0, 20).map(lambda count: count * SECOND) | st.integers(0, 20 * SECOND)
    places = st.integers(0, 9).map(lambda count: count * SECOND)

    @settings(max_examples=examples)
    @given(made, st.lists(st.tuples(places, lengths), min_size=1, max_size=2), st.sampled_from([0, 1, -7 * SECOND]))
    def law(scenario: Scenario, gaps: list[tuple[int, int]], start: int) -> None:
        scenario = with_gaps(scenario, gaps)
        assert run(scenario, engine=Incremental, start=start) == run(scenario, start=start)

    law()


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5, unique=True), st.data())
def test_boundaries_are_counted(slides: list[int], data: st.DataObject) -> None:
    """Those of any slides, from any start: as many as there are, and the one of each number."""
    start, first = data.draw(st.integers(-20, 20)), data.draw(st.integers(-60, 60))
    end = first + data.draw(st.integers(0, 90))
    there = sorted({each for slide in slides for each in boundaries(slide, start, first, end)})
    with closing(Arena(size=1 << 20)) as arena:
        periods = periods_of(slides)
        place = write_words(arena, [word for period in periods for word in period])
        asked = arena.base, place, len(periods), start, first, end
        assert passed_between(*asked) == len(there)
        assert [boundary_number(*asked, number) for number in range(1, len(there) + 2)] == [*there, end]


def test_periods_beyond_all_times_have_the_start_in_common() -> None:
    slides = [3**30, 5**20, 7**15]
    with closing(Arena(size=1 << 20)) as arena:
        periods = periods_of(slides)
        place = write_words(arena, [word for period in periods for word in period])
        assert (0, 1) not in periods
        assert any(period == 0 for period, _ in periods)
        assert passed_between(arena.base, place, len(periods), 5, 5, 6) == 1
        end = 2 * 3**30 + 6
        alone = sum((end - 6) // slide for slide in slides)
        assert passed_between(arena.base, place, len(periods), 5, 0, end) == 1 + alone


QUERIES = {
    "range": "SELECT ?s { STREAM :s [RANGE 10s SLIDE 1ms] { ?s :p ?v } }",
    "tumbling": "SELECT (COUNT(*) AS ?n) { STREAM :s [RANGE 1ms TUMBLING] { ?s :p ?v } }",
    "star": "SELECT * { STREAM :s [RANGE 1s SLIDE 1ms] { ?s :p ?v ; :q ?w } }",
    "slides": "SELECT * { STREAM :s [RANGE 1h SLIDE 1ms] { ?s :p ?v } STREAM :s [RANGE 1s SLIDE 3ms] { ?s :p ?w } }",
    "kinds": "SELECT * { STREAM :s [RANGE 1d SLIDE 1ms] { ?s :p ?v } STREAM :s [RANGE 1h] { ?s :p ?w } "
    "STREAM :s [TRIPLES 2] { ?s :p ?x } }",
    "empty beside what stays": "SELECT ?s { STREAM :s [RANGE 1s SLIDE 1ms] { ?s :p ?v } STREAM :s [ALL] { ?s :q ?w } }",
    "told": "SELECT ?s { STREAM :s [RANGE 1d SLIDE 1ms @:q] { ?s :p ?v } }",
    "now": "SELECT ?s ?t { STREAM :s [RANGE 20ms SLIDE 1ms] { ?s :p ?v } BIND(cq:now() AS ?t) }",
    "told, anew": "SELECT ?s { STREAM :s [RANGE 20ms SLIDE 1ms @:q] { ?s :p ?v } FILTER(cq:now() != ?v) }",
    "ask": "ASK { STREAM :s [RANGE 1s SLIDE 1ms] { ?s :p ?v } }",
    "order": "SELECT ?s { STREAM :s [RANGE 1s SLIDE 1ms] { ?s :p ?v } } ORDER BY ?v LIMIT 3",
}


@pytest.mark.parametrize("policy", ["cqels", "window-close", "cqels-1"])
@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES.keys())
def test_a_year_is_passed_at_once(text: str, policy: str) -> None:
    """31,536,000,000 boundaries, and as many ticks."""
    emissions = ["istream", "dstream", "rstream", "changes"] if not text.startswith("ASK") else ["istream", "rstream"]
    if policy == "window-close" and ("1h" in text or "1d" in text):
        emissions.remove("rstream")  # which sends a window at each boundary for as long as it holds something
    with Engine() as engine:
        queries = [engine.register(f"PREFIX : <http://ex.org/> {text}", emit=emit, policy=policy) for emit in emissions]
        for time in (0, SECOND, YEAR, YEAR + SECOND):
            told = f"<http://ex.org/q> {time // 1_000_000}"  # in milliseconds
            engine.push("http://ex.org/s", f"<http://ex.org/a> <http://ex.org/p> 1 ; {told} .", time=time)
        last = [query.take() for query in queries]
        if policy == "cqels":
            assert max(result.tick for results in last for result in results) > 31_536_000_000


def test_a_year_is_passed_at_once_by_queries_that_read_each_other() -> None:
    prefix = "PREFIX : <http://ex.org/> "
    with Engine() as engine:
        engine.register(
            prefix + "CONSTRUCT { ?s :q ?v } { STREAM :s [RANGE 1s SLIDE 1ms] { ?s :p ?v } }",
            name="http://ex.org/made",
            emit="dstream",
        )
        query = engine.register(prefix + "SELECT ?s { STREAM :made [RANGE 1m SLIDE 2ms] { ?s :q ?v } }", emit="changes")
        for time in (0, YEAR):
            engine.push("http://ex.org/s", "<http://ex.org/a> <http://ex.org/p> 1 .", time=time)
        sent = [(result.nanoseconds, result.sign, result.tick) for result in query.take()]
        # the stream made has its element at 1s, which the window of the reader has from that boundary on
        assert sent == [(SECOND, "+", 502), (61 * SECOND, "-", 30502)]


def test_shared_queries_pass_a_year_at_once() -> None:
    prefix = "PREFIX : <http://ex.org/> "
    texts = [
        f"SELECT ?s {{ STREAM :s [RANGE {width}s] {{ ?s :p {value} }} STREAM :s [RANGE 1s SLIDE 1ms] {{ ?s :p ?v }} }}"
        for width, value in ((1, 1), (5, 1), (5, 2))
    ]
    with Engine() as engine:
        queries = [engine.register(prefix + text, emit="changes") for text in texts]
        for time in (0, YEAR):
            engine.push("http://ex.org/s", "<http://ex.org/a> <http://ex.org/p> 1 .", time=time)
        assert [len(query.take()) for query in queries] == [2, 2, 0]
