"""Signals and exceptions in the middle of a push: every query has the block in the end, or none has it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from random import Random
from threading import Event, Thread
from time import sleep
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode, Quad

from cqels import Engine, QueryStopped
from cqels.engine import budgets, executor, runtime
from cqels.ingest import Element
from cqels.model import interrupts
from cqels.model.deadlines import watched
from cqels.model.time import SECOND
from cqels.plan.functions import regular_expressions
from cqels.store.dataset import Store

from ..incremental import Incremental
from ..properties.test_engine import COMPANY, MANY
from ..random_queries import scenarios
from ..scenarios import Scenario, run

STREAM = "http://ex.org/s"
PREFIX = "PREFIX : <http://ex.org/> "
ALL = PREFIX + "SELECT ?s ?v { STREAM :s [RANGE 100d] { ?s :p ?v } }"
COUNTED = PREFIX + "SELECT (COUNT(*) AS ?n) { STREAM :s [RANGE 100d] { ?s :p ?v } }"
ENDLESS = PREFIX + 'SELECT ?s { STREAM :s [NOW] { ?s :p ?v } FILTER(REGEX(STR(?v), "^(a|a)*$")) }'
SIZES = [pytest.param(30, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]


class Interrupted(Incremental):
    """An engine that is interrupted at some of the places where that is possible, and goes on at the next call."""

    def push(self, element: Element) -> None:
        self._interrupted(lambda: Incremental.push(self, element))

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        self._interrupted(lambda: Incremental.heartbeat(self, time, stream))

    def update(self, change: Callable[[Store], object]) -> None:
        self._interrupted(lambda: Incremental.update(self, change))

    def _interrupted(self, call: Callable[[], None]) -> None:
        try:
            call()
        except KeyboardInterrupt:
            return


@pytest.mark.parametrize("examples", SIZES)
def test_interrupted_work_is_completed(examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is interrupted, the engine sends what the reference sends."""
    monkeypatch.setattr(executor, "_PAUSE", -1)  # a pause after every tick

    @settings(max_examples=examples)
    @given(scenarios(COMPANY, beside=2), st.integers(0, 2**32))
    def law(scenario: Scenario, seed: int) -> None:
        random, left = Random(seed), count(200, -1)

        def between_steps() -> None:
            if random.random() < 0.3 and next(left) > 0:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            for module in (executor, runtime):
                patch.setattr(module, "between_steps", between_steps)
            sent = run(scenario, engine=Interrupted)
        assert sent == run(scenario)

    law()


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Rings after some seconds: Ctrl-C."""
    before = signal.signal(signal.SIGALRM, raise_interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def block(first: int) -> bytes:
    kind = "<http://www.w3.org/2001/XMLSchema#integer>"
    lines = (f'<{STREAM}{n % 7}> <http://ex.org/p> "{n}"^^{kind} {n} .\n' for n in range(first, first + 500))
    return "".join(lines).encode()


@pytest.mark.parametrize("trials", [pytest.param(8, id="some"), pytest.param(500, id="many", marks=pytest.mark.fuzz)])
def test_a_signal_leaves_all_queries_with_a_block_or_none(alarm: Callable[[float], None], trials: int) -> None:
    blocks = [block(500 * number) for number in range(20)]
    for trial in range(trials):
        with Engine() as engine:
            rows, counted = engine.register(ALL), engine.register(COUNTED, emit="changes")
            hit, number = 0, 0
            try:
                alarm(Random(trial).uniform(0.001, 0.05))
                for number in range(20):
                    engine.push(STREAM, blocks[number])
            except KeyboardInterrupt:
                hit = 1
            alarm(0)
            for later in range(number + 1, 20):
                engine.push(STREAM, blocks[later])
            there = len(rows.take())
            assert there in (10_000, 10_000 - 500 * hit)
            assert counted.take()[-1].values[0].value == str(there)


def test_a_query_that_does_not_come_back_can_be_interrupted_and_dropped(alarm: Callable[[float], None]) -> None:
    with Engine() as engine:
        before = engine.register(ALL)
        endless = engine.register(ENDLESS)
        after = engine.register(COUNTED, emit="changes")
        alarm(0.3)
        with pytest.raises(KeyboardInterrupt):
            engine.push(STREAM, f'<{STREAM}> <http://ex.org/p> "{"a" * 40}b" .', time=1)
        alarm(0.3)
        with pytest.raises(KeyboardInterrupt):  # it goes on with the same
            before.take()
        endless.drop()
        engine.push(STREAM, f'<{STREAM}> <http://ex.org/p> "b" .', time=2)
        assert len(before.take()) == 2
        assert [result.values[0].value for result in after.take() if result.sign == "+"][-1] == "2"


def test_handlers_wait_while_the_engine_works_and_only_then(alarm: Callable[[float], None]) -> None:
    called: list[str] = []
    signal.signal(signal.SIGALRM, lambda number, frame: called.append("handler"))
    mine = signal.getsignal(signal.SIGALRM)
    with Engine() as engine:
        engine.register(ALL, callback=lambda result: signal.raise_signal(signal.SIGALRM) or called.append("callback"))
        engine.push(STREAM, f"<{STREAM}> <http://ex.org/p> 1 .", time=1)
        assert called == ["handler", "callback"]  # a callback is not part of the work
        with interrupts.Working():
            signal.raise_signal(signal.SIGALRM)
            assert called == ["handler", "callback"]
            assert interrupts.exposed(lambda: len(called)) == 3
            signal.raise_signal(signal.SIGALRM)
        assert called == ["handler", "callback", "handler", "handler"]
    assert signal.getsignal(signal.SIGALRM) is mine


def test_an_error_of_the_reject_sink_loses_nothing() -> None:
    def refuse(rejected: object) -> None:
        raise RuntimeError("the sink is closed")

    with Engine(reject=refuse) as engine:
        query = engine.register(ALL)
        lines = [f"<{STREAM}> <http://ex.org/p> {number} ." for number in range(3)]
        with pytest.raises(RuntimeError, match="closed"):
            engine.push(STREAM, lines, [5, 1, 6])
        assert len(query.take()) == 2


def test_an_update_that_fails_halfway_is_seen_as_far_as_it_went() -> None:
    with Engine() as engine:
        query = engine.register(PREFIX + "SELECT ?v { STREAM :s [ALL] { ?s :p ?o } ?s :in ?v }", emit="changes")
        engine.push(STREAM, "<http://ex.org/a> <http://ex.org/p> 1 .", time=1)

        def change(store: Store) -> None:
            store.add([Quad(NamedNode("http://ex.org/a"), NamedNode("http://ex.org/in"), Literal(1))])
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError):
            engine.update(change)
        assert len(query.take()) == 1


def test_a_full_engine_stays_full() -> None:
    with Engine(size=1 << 21) as engine:
        engine.register(PREFIX + "SELECT * { STREAM :s [ALL] { ?s ?p ?o } }")
        texts = [f"<{STREAM}{number}> <http://ex.org/p> {number} ." for number in range(20_000)]
        for _ in range(2):
            with pytest.raises(MemoryError, match="the arena is full"):
                engine.push(STREAM, texts, list(range(20_000)))


# ---------------------------------------------------------------- in the middle of an element

CROSS = PREFIX + "SELECT * { STREAM :s [ALL] { ?a :p ?b } STREAM :s [ALL] { ?c :p ?d } STREAM :s [ALL] { ?e :p ?f } }"
PATHS = PREFIX + "SELECT * { STREAM :s [ALL] { ?a :p+ ?b } }"
MANY_AT_ONCE = " ".join(f"<{STREAM}{n}> <http://ex.org/p> <{STREAM}{n + 1}> ." for n in range(150))
"""An element of which a join of three makes 3,375,000 rows in one step, and a path 11,325."""


@pytest.mark.parametrize("text", [CROSS, PATHS], ids=["join", "closure"])
def test_a_long_step_is_stopped_by_a_budget_of_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "STRETCH", 0)
    with Engine(stopped=lambda query: None) as engine:
        query, other = engine.register(text, time=1), engine.register(COUNTED)
        engine.push(STREAM, MANY_AT_ONCE, time=1)
        assert query.stopped is not None
        assert "an element takes it" in query.stopped
        assert query.running.stopped == replace(query.running.stopped, ticks=0)  # in the middle of the first tick
        assert [result.values[0].value for result in other.take()] == ["150"]


@pytest.mark.parametrize("text", [CROSS, PATHS], ids=["join", "closure"])
def test_a_signal_in_a_long_step_stops_the_query(
    text: str, alarm: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the middle of a step cannot be gone on with: the query is stopped, and says so; others are whole."""
    with Engine(stopped=lambda query: None) as engine:
        before, query, after = engine.register(COUNTED), engine.register(text), engine.register(ALL)
        monkeypatch.setattr(engine.internals.core.executor, "watch", lambda: signal.raise_signal(signal.SIGALRM))
        with pytest.raises(KeyboardInterrupt):
            engine.push(STREAM, MANY_AT_ONCE, time=1)
        monkeypatch.undo()
        assert [result.values[0].value for result in before.take()] == ["150"]
        assert len(after.take()) == 150
        assert "interrupted in the middle of a tick" in str(query.stopped)
        with pytest.raises(QueryStopped):
            query.take()
        query.drop()
        engine.push(STREAM, MANY_AT_ONCE, time=2)
        assert [result.values[0].value for result in before.take()] == []


def in_another_thread(call: Callable[[], None]) -> None:
    faults: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as fault:
            faults.append(fault)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert faults == []


THREADS = pytest.mark.parametrize("call", [lambda call: call(), in_another_thread], ids=["main thread", "another"])
ELEMENT = f'<{STREAM}> <http://ex.org/p> "{"a" * 40}b" .'


def stopped_by_its_budget(text: str) -> None:
    """A query is stopped in the middle of an element, and another one has it."""
    with Engine(stopped=lambda query: None) as engine:
        endless, other = engine.register(text, name="endless", time="5ms"), engine.register(COUNTED)
        engine.push(STREAM, ELEMENT, time=1)
        assert "5ms is the most" in str(endless.stopped)
        assert [result.values[0].value for result in other.take()] == ["1"]


@THREADS
@pytest.mark.parametrize(
    "condition",
    [
        'REGEX(?v, "^(a|aa)+$")',
        'REGEX(?v, "^(a+?)+?$")',
        'REGEX(?v, "^(A|aA)+$", "i")',
        'REGEX(?v, "^((a|a)*?)+?$")',
        'REGEX(?v, "^(a|a){1,1000}$")',
        'REPLACE(?v, "^(a|aa)+c", "$1") = "b"',
    ],
)
def test_a_regular_expression_is_stopped_by_a_budget_of_time(
    condition: str, call: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "STRETCH", SECOND // 10)
    call(lambda: stopped_by_its_budget(PREFIX + f"SELECT ?s {{ STREAM :s [NOW] {{ ?s :p ?v }} FILTER({condition}) }}"))


@THREADS
def test_what_python_computes_is_stopped_by_a_budget_of_time(
    call: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def matches(*arguments: Any) -> bool:
        while True:
            pass

    monkeypatch.setattr(budgets, "STRETCH", SECOND // 10)
    monkeypatch.setattr(regular_expressions, "matches", matches)
    call(lambda: stopped_by_its_budget(ENDLESS))


def test_what_came_back_is_not_interrupted_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often an exception is about to come in the last moment: it comes from the computation or never."""

    def work() -> None:
        outcomes = set[str]()
        with watched(lambda time: True, KeyboardInterrupt):
            for _ in range(20_000):
                try:
                    outcomes.add(interrupts.exposed(lambda: "computed"))
                except KeyboardInterrupt:
                    outcomes.add("interrupted")
        assert "computed" in outcomes

    monkeypatch.setattr("cqels.model.deadlines.TICK", 0)
    in_another_thread(work)


def test_a_regular_expression_does_not_keep_other_threads_waiting() -> None:
    ended, outcomes = Event(), list[bool]()

    def match() -> None:
        with pytest.raises(KeyboardInterrupt), watched(lambda time: ended.is_set(), KeyboardInterrupt):
            regular_expressions.matches("a" * 40 + "b", "^(a|a)*$")
        outcomes.append(ended.is_set())

    thread = Thread(target=match, daemon=True)
    thread.start()
    for _ in range(20):
        sleep(0.01)
    ended.set()
    thread.join(60)
    assert outcomes == [True]


def test_a_signal_is_heard_while_a_query_is_registered(alarm: Callable[[float], None]) -> None:
    static = PREFIX + 'SELECT ?z { STREAM :s [NOW] { ?s :p ?v } ?x :q ?z FILTER(REGEX(?z, "^(a|a)*$")) }'
    bad = Literal("a" * 40 + "b")
    with Engine() as engine:
        engine.update(lambda store: store.add([Quad(NamedNode(STREAM), NamedNode("http://ex.org/q"), bad)]))
        other = engine.register(ALL)
        alarm(0.3)
        with pytest.raises(KeyboardInterrupt):
            engine.register(static, memory="1GB")  # with a budget it is compiled at once
        assert engine.queries == (other,)
        engine.push(STREAM, f"<{STREAM}> <http://ex.org/p> 2 .", time=2)
        assert len(other.take()) == 1


def test_a_function_that_does_not_come_back_is_stopped_by_a_budget_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "STRETCH", SECOND // 10)
    with Engine(stopped=lambda query: None) as engine:
        endless, other = engine.register(ENDLESS, name="endless", time="5ms"), engine.register(COUNTED)
        element = f'<{STREAM}> <http://ex.org/p> "{"a" * 40}b" .'
        engine.push(STREAM, element, time=1)
        assert "5ms is the most" in str(endless.stopped)
        assert len(other.take()) == 1
        assert signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL
    stop = endless.running.stopped
    assert stop is not None
    with Engine() as engine, engine.internals.obeying({"endless": stop}):  # what is done again is not begun
        again = engine.register(ENDLESS, name="endless", time="5ms")
        engine.push(STREAM, element, time=1)
        assert again.stopped == stop.reason


def test_a_signal_while_kernels_are_loaded_waits() -> None:
    """In a process of its own, in which nothing has been loaded: an object of LLVM that is half made would end it."""
    code = """if True:
        import signal, sys
        from cqels.kernels.compiler import kernel
        from cqels.kernels.readers import line_tokenizer

        def handle(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, handle)
        plain, struck = kernel._engine, []

        def disturbed():
            if not struck:
                struck.append(signal.raise_signal(signal.SIGALRM))
            return plain()

        kernel._engine = disturbed
        try:
            kernel.load_unit("cqels.kernels.readers.line_tokenizer")
        except KeyboardInterrupt:
            assert struck
            assert kernel._LOADED, "it was not interrupted in the middle"
            kernel.load_unit("cqels.kernels.readers.line_tokenizer")
            sys.stdout.write("heard")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "heard"), done.stderr
