"""Budgets: a query that takes more than it may is stopped, and the others never notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cqels import Engine, QueryStopped, StandingQuery
from cqels.engine import budget_enforcement, budgets
from cqels.engine.engine_state import EngineState
from cqels.engine.running_query import Running
from cqels.kernels.memory.arena import LIMIT
from cqels.model.errors import CqelsError
from cqels.model.sizes import format_size, parse_size
from cqels.plan.algebra import Query
from cqels.results import Result

from ..incremental import Incremental
from ..properties.test_engine import COMPANY, FEATURES
from ..random_queries import scenarios
from ..random_stars import stars
from ..scenarios import NAME, Scenario, run

STREAM = "http://ex.org/s"
PREFIX = "PREFIX : <http://ex.org/> "
GREEDY = PREFIX + "SELECT ?x ?y { STREAM :s [ALL] { ?x :p ?y } }"
MODEST = PREFIX + "SELECT ?x (SUM(?y) AS ?sum) { STREAM :s [RANGE 100ms] { ?x :p ?y } } GROUP BY ?x"
CROSS = PREFIX + "SELECT * { STREAM :s [ALL] { ?a :p ?b } STREAM :s [ALL] { ?c :p ?d } STREAM :s [ALL] { ?e :p ?f } }"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(budget_enforcement, "SLICE", 64)
    with Engine() as made:
        yield made


def lines(count: int, start: int = 0) -> str:
    kind = "<http://www.w3.org/2001/XMLSchema#integer>"
    return "".join(
        f'<http://ex.org/a{number % 7}> <http://ex.org/p> "{number}"^^{kind} {number} .\n'
        for number in range(start, start + count)
    )


def alone(text: str, *parts: str, **options: Any) -> list[Result]:
    """What a query sends that is alone in its engine."""
    with Engine() as engine:
        query = engine.register(text, name="modest", **options)
        for part in parts:
            engine.push(STREAM, part)
        return query.take()


# ---------------------------------------------------------------- memory


def test_a_window_that_grows_for_ever(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    greedy = engine.register(GREEDY, name="hot", memory="1MB")
    modest = engine.register(MODEST, name="modest")
    engine.push(STREAM, lines(5000))
    assert greedy.stopped is None
    engine.push(STREAM, lines(5000, 5000))
    assert greedy.stopped == "query hot was stopped at element 8,193, 8192ms: its state takes more than 1 MB"
    assert caplog.messages == [greedy.stopped]
    engine.push(STREAM, lines(10, 10000))
    assert modest.take() == alone(MODEST, lines(10000), lines(10, 10000))
    assert len(greedy.take()) == 8192
    with pytest.raises(QueryStopped, match="more than 1 MB") as error:
        greedy.take()
    assert error.value.hint is not None
    assert caplog.messages == [greedy.stopped]


def test_a_join_that_explodes_within_an_element(engine: Engine) -> None:
    """Its complete ticks have their results, and the arena is hardly larger than the budget."""
    cross = engine.register(CROSS, memory="4MB")
    modest = engine.register(MODEST, name="modest")
    engine.push(STREAM, lines(1000))
    assert cross.stopped is not None
    assert "at element 26," in cross.stopped
    assert 8 * engine.internals.arena.used < parse_size("8MB")
    assert modest.take() == alone(MODEST, lines(1000))
    found = cross.take()
    assert found == [each._replace(query=cross.name) for each in alone(CROSS, lines(25))]


def test_its_memory_is_given_back(engine: Engine) -> None:
    before = engine.internals.arena.held
    greedy = engine.register(CROSS, memory="4MB")
    engine.push(STREAM, lines(1000))
    assert greedy.stopped is not None
    assert engine.internals.arena.used - before > parse_size("2MB") // 8
    assert engine.internals.arena.held - before < parse_size("200kB") // 8, "terms, and the block that elements come in"


def test_what_is_counted_is_what_is_held(engine: Engine) -> None:
    """Dropping a query gives back exactly the words that were counted; terms and what others hold are not."""
    engine.register(MODEST)
    query = engine.register(
        PREFIX + "SELECT ?x (CONCAT(STR(?x), STR(?y)) AS ?t) (MAX(?y) AS ?m) { STREAM :s [RANGE 1s] { ?x :p ?y } "
        "STREAM :s [RANGE 1s] { ?x :p ?z } } GROUP BY ?x ?y ORDER BY ?t LIMIT 9",
        memory="1GB",
    )
    for part in range(4):
        engine.push(STREAM, lines(700, 700 * part))
    before, heap = engine.internals.arena.held, query.running.pipeline.heap
    counted = engine.internals.arena.held_in(heap)
    assert engine.internals.arena.words[heap + LIMIT] == 0, "it is for what is done for the query"
    query.drop()
    assert before - engine.internals.arena.held - 64 == counted > 0, "and the block of its heap"


def test_static_data_counts(engine: Engine, tmp_path: Path) -> None:
    """Even where it is too much at the beginning, or becomes too much."""
    text = PREFIX + "SELECT ?x ?z { STREAM :s [NOW] { ?x :p ?y } ?x :q ?z }"
    (tmp_path / "much.ttl").write_text(
        "".join(f"<http://ex.org/a1> <http://ex.org/q> {each} .\n" for each in range(9000))
    )
    grown = engine.register(text, name="grown", memory="100kB")
    engine.load(tmp_path / "much.ttl")
    assert grown.stopped == "query grown was stopped at element 0: its state takes more than 100 kB"
    new = engine.register(text, name="new", memory="100kB")
    assert new.stopped is not None
    free = engine.register(text)
    engine.push(STREAM, lines(2))
    assert len(free.take()) == 9000
    with pytest.raises(QueryStopped):
        new.take()


def test_an_engine_that_has_no_more_memory_stops_the_query_that_asks_for_it() -> None:
    with Engine(size=1 << 23, stopped=lambda query: None) as engine:
        greedy = engine.register(BILLIONS, name="greedy", memory="1GB", policy="window-close")
        modest = engine.register(PREFIX + "SELECT ?x { STREAM :s [NOW] { ?x :p ?y } }", emit="rstream")
        for number in range(3):
            engine.push(STREAM, TWO, time=f"{number}s")
        assert greedy.stopped is not None
        assert "the engine has no more memory: the arena is full, and it holds" in greedy.stopped
        assert len(modest.take()) == 6


def test_without_a_budget_an_engine_that_has_no_more_memory_says_so_and_takes_no_more() -> None:
    with Engine(size=1 << 23) as engine:
        engine.register(BILLIONS, policy="window-close")
        engine.push(STREAM, TWO, time="0s")
        for _ in range(2):
            with pytest.raises(CqelsError, match="full") as raised:
                engine.push(STREAM, TWO, time="1s")
            assert isinstance(raised.value, MemoryError)
            assert raised.value.hint is not None


BILLIONS = PREFIX + "SELECT ?x ?y { STREAM :s [RANGE 10s SLIDE 1ns] { ?x :p ?y } }"
"""Asks for a result at every nanosecond of ten seconds."""
TWO = "<http://ex.org/a> <http://ex.org/p> 1, 2 ."

# ---------------------------------------------------------------- time


class Slow:
    """A processor that takes so long for each slice, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.seconds, self._time = seconds, 0.0
        monkeypatch.setattr(budget_enforcement, "now", self)

    def __call__(self) -> int:
        self._time += self.seconds
        return int(self._time * 10**9)


def test_a_query_that_is_slow(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stretch of work is not judged: kernels are loaded in it."""
    Slow(monkeypatch, 0.64)
    slow = engine.register(MODEST, name="slow", time="5ms")
    fast = engine.register(MODEST, name="fast", time="11ms")
    modest = engine.register(MODEST, name="modest")
    engine.push(STREAM, lines(960))
    assert slow.stopped == "query slow was stopped at element 128, 127ms: an element takes it 10ms, and 5ms is the most"
    assert fast.stopped is None
    assert slow.take() == [each._replace(query="slow") for each in alone(MODEST, lines(128))]
    assert modest.take() == alone(MODEST, lines(960))
    assert [each._replace(query="modest") for each in fast.take()] == alone(MODEST, lines(960))


def test_only_recent_work_counts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    processor = Slow(monkeypatch, 0.1)
    query = engine.register(MODEST, time="5ms")
    engine.push(STREAM, lines(6400))
    assert query.stopped is None
    processor.seconds = 0.4
    engine.push(STREAM, lines(640, 6400))
    assert query.stopped is not None


def test_budgets_are_read() -> None:
    assert budgets.Budget.of(None, None) is None
    assert budgets.Budget.of("1.5kB", "5ms") == budgets.Budget(1536, 5_000_000) == budgets.Budget.of(1536, 5_000_000)
    for memory, time in (("much", None), (None, "soon"), (0, None), (None, "0s")):
        with pytest.raises(CqelsError, match="the budget of a query"):
            budgets.Budget.of(memory, time)
    assert [format_size(parse_size(text)) for text in ("200MB", "1.5 GiB", "7b")] == ["200 MB", "1.5 GB", "7 B"]


# ---------------------------------------------------------------- a query that was stopped


def test_results_end_with_an_error(engine: Engine) -> None:
    greedy = engine.register(GREEDY, memory="100kB")
    engine.push(STREAM, lines(5000))
    taken: list[Result] = []
    with pytest.raises(QueryStopped):
        taken.extend(greedy.results())
    assert 100 < len(taken) < 5000
    for take in (greedy.take, greedy.arrow, greedy.terms):
        with pytest.raises(QueryStopped):
            take()


def test_those_who_listen_are_told(caplog: pytest.LogCaptureFixture) -> None:
    told: list[StandingQuery] = []
    heard: list[Result] = []
    with Engine(stopped=told.append) as engine:
        greedy = engine.register(GREEDY, memory="100kB", callback=heard.append)
        engine.push(STREAM, lines(5000))
        assert told == [greedy]
        assert heard[-1].tick == len(heard) < 5000
        text = greedy.explain()
        assert text.startswith(f"{greedy.stopped}\n# ")
        assert "Stream :s [ALL]" in text
    assert not caplog.messages


def test_it_can_be_dropped_and_come_again(engine: Engine) -> None:
    greedy = engine.register(GREEDY, name="greedy", memory="100kB")
    engine.push(STREAM, lines(5000))
    assert engine.query("greedy") is greedy
    engine.drop("greedy")
    assert greedy.take()
    again = engine.register(GREEDY, name="greedy", memory="1MB")
    engine.push(STREAM, lines(100, 5000))
    assert len(again.take()) == 100


def test_who_reads_what_it_makes_has_no_more(engine: Engine) -> None:
    """What it made in its complete ticks has arrived there."""
    made = PREFIX + "CONSTRUCT { ?x :made ?y } { STREAM :s [ALL] { ?x :p ?y } }"
    reader = PREFIX + "SELECT ?x ?y { STREAM :m [NOW] { ?x :made ?y } }"
    maker = engine.register(made, name="http://ex.org/m", memory="50kB")
    read = engine.register(reader, name="reader")
    both = engine.register(PREFIX + "SELECT * { STREAM :s [NOW] { ?x :p ?y } }", name="both")
    engine.push(STREAM, lines(2000))
    assert maker.stopped is not None
    count = len(maker.take())
    assert 10 < count < 2000
    assert len(read.take()) == count
    engine.push(STREAM, lines(10, 2000))
    assert read.take() == []
    assert len(both.take()) == 2010


def test_a_query_with_a_budget_shares_nothing(engine: Engine) -> None:
    text = PREFIX + "SELECT ?x { STREAM :s [NOW] { ?x :p %d } }"
    free = [engine.register(text % each) for each in range(3)]
    guarded = engine.register(text % 3, memory="1MB")
    assert guarded.running.member is None
    assert len({each.running.member for each in free}) == 1
    engine.push(STREAM, lines(10))
    assert [len(each.take()) for each in (*free, guarded)] == [1, 1, 1, 1]


def test_explain_says_the_same(engine: Engine) -> None:
    free, guarded = engine.register(CROSS, name="q"), engine.register(CROSS, name="p", memory="1GB")
    engine.push(STREAM, lines(12))
    assert "state: " in guarded.explain()
    assert guarded.explain() == free.explain().replace("# name q,", "# name p,")


# ---------------------------------------------------------------- state


@pytest.mark.parametrize("again", ["1MB", "2MB", None])
def test_a_snapshot_has_budgets_and_stops(engine: Engine, again: str | None) -> None:
    """Whatever those are registered with that are restored."""

    def queries(made: Engine, memory: str | None) -> list[StandingQuery]:
        return [
            made.register(GREEDY, name="greedy", memory=memory),
            made.register(GREEDY.replace("?x ?y", "?y ?x"), name="other", memory=memory and "10kB"),
            made.register(MODEST, name="modest"),
            made.register(PREFIX + "SELECT (UCASE(STR(?y)) AS ?u) { STREAM :s [RANGE 1s] { ?x :p ?y } }", name="asks"),
        ]

    before = queries(engine, "1MB")
    engine.push(STREAM, lines(5000))
    assert [each.stopped is None for each in before] == [True, False, True, True]
    data = engine.snapshot()
    assert engine.snapshot() == data
    with Engine() as other:
        after = queries(other, again)
        other.restore(data)
        for each in (engine, other):
            each.push(STREAM, lines(5000, 5000))
        assert before[0].stopped is not None
        assert [each.stopped for each in after] == [each.stopped for each in before]
        assert [each.running.take() for each in after] == [each.running.take() for each in before]
        other.drop("other")
        other.register(PREFIX + "SELECT (LCASE(STR(?y)) AS ?u) { STREAM :s [RANGE 1s] { ?x :p ?y } }", name="more")
        once_more = other.snapshot()
        for each in (engine, other):
            each.push(STREAM, lines(10, 10_000))
        expected = [each.take() for each in after[2:]]
        assert expected == [each.take() for each in before[2:]]
        with Engine() as last:
            for each in other.queries:
                last.register(replace(each.query, name=each.name))
            last.restore(once_more)
            last.push(STREAM, lines(10, 10_000))
            assert [last.query(name).take() for name in ("modest", "asks")] == expected
            assert len(last.query("more").take()) == 10


def test_a_query_goes_on_from_before_it_was_stopped(engine: Engine) -> None:
    """And is stopped again at the same element."""
    asks = PREFIX + "SELECT ?x (UCASE(STR(?y)) AS ?u) { STREAM :s [ALL] { ?x :p ?y } }"
    query = engine.register(asks, memory="100kB")
    engine.push(STREAM, lines(100))
    data = engine.snapshot()
    engine.push(STREAM, lines(5000, 100))
    reason, sent = query.stopped, query.take()
    assert reason is not None
    engine.restore(data)
    assert query.stopped is None
    engine.push(STREAM, lines(5000, 100))
    assert (query.stopped, query.take()) == (reason, sent)


def test_memory_that_is_a_file_has_them_too(tmp_path: Path) -> None:
    with Engine(memory=tmp_path / "one") as engine, Engine(memory=tmp_path / "two") as other:
        greedy, modest = engine.register(GREEDY, name="greedy", memory="50kB"), engine.register(MODEST, name="modest")
        engine.push(STREAM, lines(2000))
        modest.take()
        engine.internals.keep()
        queries = [other.register(GREEDY, name="greedy"), other.register(MODEST, name="modest")]
        other.internals.attach(tmp_path / "one")
        assert queries[0].stopped == greedy.stopped is not None
        other.push(STREAM, lines(10, 2000))
        assert {result.tick for result in queries[1].take()} == {*range(2001, 2011)}


# ---------------------------------------------------------------- laws


class Taker:
    """What is taken of a query that may be stopped."""

    def __init__(self, query: StandingQuery) -> None:
        self.take = query.running.take


class Guarded(Incremental):
    """An engine in which queries have a budget: the main one, or all of them."""

    def __init__(self, *parts: Any, memory: int, every: bool = False, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._options |= {"memory": memory, "every": every}
        self._memory, self._every = memory, every

    def register(self, query: Query) -> Any:
        guarded = self._every or query.name == NAME
        made = self.engine.register(query, declare=False, memory=self._memory if guarded else None, time="1h")
        self.main = made if query.name == NAME else getattr(self, "main", None)
        return Taker(made)

    def query(self, name: str) -> Any:
        return Taker(self.engine.query(name))


@settings(max_examples=60)
@given(st.one_of(scenarios(COMPANY, beside=2), scenarios(FEATURES), stars()))
def test_a_budget_that_is_large_enough_is_not_seen(scenario: Scenario) -> None:
    """engine(s) with budgets = reference(s)."""
    assert run(scenario, engine=Guarded, memory=1 << 25, every=True) == run(scenario)


def generous() -> Callable[[EngineState, Running], int | None]:
    """A query has its whole budget for what comes after its registration: else most of small ones end there."""
    begun: dict[Running, int] = {}
    plain = budget_enforcement._most

    def most(state: EngineState, running: Running) -> int | None:
        before = begun.setdefault(running, state.arena.held_in(running.pipeline.heap))
        found = plain(state, running)
        return None if found is None else found + before

    return most


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scenarios(replace(COMPANY, comings=False, snapshots=False), beside=2), st.integers(200, 6_000))
def test_others_do_not_notice(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, memory: int) -> None:
    """All other queries send what they would send without it, and it what it would send at its first ticks."""
    made: list[Guarded] = []

    def engine(*parts: Any) -> Guarded:
        made.append(Guarded(*parts, memory=memory))
        return made[0]

    with monkeypatch.context() as patched:
        patched.setattr(budget_enforcement, "_most", generous())
        found = run(scenario, engine=engine)
    expected = run(scenario)
    stopped = made[0].main.running.stopped
    if stopped is not None:
        expected[NAME] = [each for each in expected[NAME] if each.tick <= stopped.ticks]
    assert found == expected
