"""An engine in several threads, in callbacks, in signal handlers, in the child of a fork, and after it was closed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cqels
from cqels.engine import executor
from cqels.ingest import Rejected
from cqels.results import Result

EX = "http://ex.org/"
OBS = EX + "obs"
ALL = f"SELECT ?s ?v WHERE {{ STREAM <{OBS}> [NOW] {{ ?s <{EX}p> ?v }} }}"
COUNTS = f"SELECT ?s (COUNT(*) AS ?n) WHERE {{ STREAM <{OBS}> [RANGE 1s] {{ ?s <{EX}p> ?v }} }} GROUP BY ?s"


def text(subject: str, value: int) -> str:
    return f"<{EX}{subject}> <{EX}p> {value} ."


def numbers(results: list[Result]) -> list[int]:
    return [int(str(result.values[-1]).split('"')[1]) for result in results]


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[], None]) -> None:
    """Do these at the same time, each in a thread; an exception of one is the caller's."""
    failures: list[BaseException] = []

    def done(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=done, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize(
    ("times", "count"), [(1, 500), pytest.param(100, 2000, marks=pytest.mark.fuzz)], ids=["once", "often"]
)
def test_what_threads_push_is_what_another_one_takes(times: int, count: int, impatient: None) -> None:
    for _ in range(times):
        push_and_take(count)


def push_and_take(count: int) -> None:
    with cqels.Engine() as engine:
        query, counts = engine.register(ALL), engine.register(COUNTS)
        taken: list[Result] = []
        pushed = threading.Semaphore(0)

        def push(name: str) -> None:
            try:
                for number in range(count):
                    engine.push(OBS, text(name, number), time="5s")
            finally:
                pushed.release()

        def take() -> None:
            for _ in range(4):
                while not pushed.acquire(blocking=False):
                    taken.extend(query.take())
                    taken.extend(query)

        together(take, *(partial(push, f"t{number}") for number in range(4)))
        taken += query.take()
        assert sorted(numbers(taken)) == sorted(4 * [*range(count)])
        assert len(set(taken)) == 4 * count
        assert sorted(numbers(counts.take())) == sorted(4 * [*range(1, count + 1)])


def test_queries_come_and_go_while_others_push(impatient: None) -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL)

        def push(name: str) -> None:
            for number in range(200):
                engine.push(OBS, text(name, number), time="5s")

        def change() -> None:
            for _ in range(10):
                engine.register(COUNTS, name="counts")
                engine.update(f"INSERT DATA {{ <{EX}a> <{EX}in> <{EX}kitchen> }}")
                engine.snapshot()
                assert engine.query("counts").explain()
                engine.drop("counts")

        together(partial(push, "a"), partial(push, "b"), change)
        assert sorted(numbers(query.take())) == sorted(2 * [*range(200)])


def test_engines_do_not_wait_for_each_other() -> None:
    def run() -> None:
        with cqels.Engine() as engine:
            query = engine.register(COUNTS)
            for number in range(50):
                engine.push(OBS, text("a", number), time="5s")
            assert numbers(query.take()) == [*range(1, 51)]

    together(run, run, run)


# ---------------------------------------------------------------- one by one


def test_a_loop_takes_what_it_is_given_and_no_more() -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        for number in range(10):
            engine.push(OBS, text("a", number), time="5s")
        unread = query.results()
        assert numbers([next(query.results())]) == [0]
        for result in query:
            if numbers([result]) == [3]:
                break
        engine.push(OBS, text("a", 10), time="6s")
        assert numbers([next(unread)]) == [4]
        assert query.arrow()["v"].to_pylist() == [5, 6, 7, 8, 9, 10]
        assert list(unread) == []
        engine.push(OBS, text("a", 11), time="7s")
        engine.push(OBS, text("a", 12), time="7s")
        assert numbers([*unread, next(iter(query)), *query.take()]) == [11, 12], "an iterator ends once"


def test_what_a_loop_left_is_in_a_snapshot() -> None:
    with cqels.Engine() as engine, cqels.Engine() as other:
        query, again = engine.register(ALL, name="q"), other.register(ALL, name="q")
        for number in range(3):
            engine.push(OBS, text("a", number), time="5s")
        next(query.results())
        other.restore(engine.snapshot())
        assert numbers([next(again.results())]) == [1]
        assert again.terms()["?v"].to_pylist() == [str(each.values[1]) for each in query][1:]


@pytest.mark.parametrize("ask", [False, True], ids=["select", "ask"])
@pytest.mark.parametrize("way", ["take", "arrow", "terms"])
def test_what_is_not_taken_wholly_stays(way: str, ask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL.replace("SELECT ?s ?v WHERE", "ASK") if ask else ALL)
        for number in range(20):
            engine.push(OBS, text("a", number), time=number)
            engine.heartbeat(number + 1)
        next(query.results())
        engine.push(OBS, text("a", 20), time=20)
        with monkeypatch.context() as patch:
            making = "cqels.engine.running_query.list" if way == "take" else "cqels.engine.output.arrow_columns._heads"
            patch.setattr(making, stop, raising=False)
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    getattr(query, way)()
        assert len(query.take()) == (40 if ask else 20)


def stop(things: Any) -> None:
    """A signal comes when all has been made."""
    for _ in things:
        pass
    raise KeyboardInterrupt


def test_a_reject_sink_cannot_use_the_engine_in_the_middle_of_a_block() -> None:
    with cqels.Engine(reject=lambda _: engine.push(OBS, text("b", 1), time="5s")) as engine:
        query = engine.register(ALL)
        with pytest.raises(cqels.CqelsError, match="middle"):
            engine.push(OBS, f"<{EX}a> <{EX}p> 1 .\n")
        engine.push(OBS, text("a", 1), time="5s")
        assert numbers(query.take()) == [1]


# ---------------------------------------------------------------- callbacks


def test_a_callback_may_use_the_engine_and_gets_results_in_order() -> None:
    seen: list[int] = []
    with cqels.Engine() as engine:

        def tell(result: Result) -> None:
            (number,) = numbers([result])
            seen.append(number)
            if number < 4:
                engine.push(OBS, text("b", number + 10), time="5s")
                seen.extend(numbers(kept.take()))

        engine.register(ALL, callback=tell)
        kept = engine.register(f"SELECT ?v WHERE {{ STREAM <{OBS}> [NOW] {{ <{EX}b> <{EX}p> ?v }} }}")
        engine.push(OBS, [text("a", number) for number in range(3)], time=["5s"] * 3)
    assert seen == [0, 10, 1, 11, 2, 12, 10, 11, 12]


def test_a_callback_that_raises_loses_nothing() -> None:
    first: list[Result] = []
    second: list[Result] = []

    def fail(result: Result) -> None:
        first.append(result)
        raise ValueError(f"result {numbers([result])[0]}")

    with cqels.Engine() as engine:
        query = engine.register(ALL, callback=fail)
        engine.register(COUNTS, callback=second.append)
        with pytest.raises(ValueError, match="result 0") as raised:
            engine.push(OBS, [text("a", number) for number in range(3)], time=["5s"] * 3)
        assert raised.value.__notes__ == ["2 more results raised exceptions"]
        assert (numbers(first), numbers(second)) == ([0, 1, 2], [1, 2, 3])
        query.on_result(None)
        engine.push(OBS, text("a", 3), time="6s")
        assert numbers(query.take()) == [3]


def test_a_callback_that_is_interrupted_leaves_the_rest() -> None:
    def interrupted(result: Result) -> None:
        raise KeyboardInterrupt

    with cqels.Engine() as engine:
        query = engine.register(ALL, callback=interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.push(OBS, [text("a", number) for number in range(3)], time=["5s"] * 3)
        query.on_result(None)
        assert numbers(query.take()) == [1, 2]


def test_a_reject_sink_that_raises_loses_nothing() -> None:
    def fail(rejected: Rejected) -> None:
        raise ValueError("no sink")

    with cqels.Engine(reject=fail) as engine:
        query = engine.register(ALL)
        with pytest.raises(ValueError, match="no sink"):
            engine.push(OBS, [text("a", 0), text("a", 1), text("a", 2)], time=["5s", "4s", "6s"])
        assert numbers(query.take()) == [0, 2]


def test_a_signal_handler_cannot_use_the_engine_that_it_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    def handle(*_: object) -> None:
        for use in (engine.close, lambda: engine.push(OBS, text("b", 1), time="5s")):
            with pytest.raises(cqels.CqelsError, match="middle") as raised:
                use()
            refused.append(str(raised.value))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with cqels.Engine() as engine:
            query = engine.register(ALL)
            settle = engine.internals.core.registry.settle
            monkeypatch.setattr(
                engine.internals.core.registry, "settle", lambda: (settle(), os.kill(os.getpid(), signal.SIGUSR1))
            )
            monkeypatch.setattr(executor, "_PAUSE", -1)
            query.running.patience = 1  # so that the handler is called in the middle
            engine.push(OBS, [text("a", 1), text("a", 2)], time=["5s", "6s"])
            assert len(refused) == 2
            assert numbers(query.take()) == [1, 2]
    finally:
        signal.signal(signal.SIGUSR1, before)


# ---------------------------------------------------------------- forks


def in_child(work: Callable[[], bool]) -> bool:
    """What this gives in a copy of this process."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_copies_an_engine_between_two_pushes(impatient: None) -> None:
    with cqels.Engine() as engine:
        query, counts = engine.register(ALL), engine.register(COUNTS)
        ended = threading.Event()

        def push() -> None:
            number = 0
            while not ended.is_set():
                engine.push(OBS, text("a", number), time="5s")
                number += 1

        def whole() -> bool:
            engine.push(OBS, text("a", 0), time="5s")
            found = numbers(query.take())
            return found[:-1] == [*range(len(found) - 1)] and numbers(counts.take())[-1] == len(found)

        def fork() -> None:
            try:
                assert all(in_child(whole) for _ in range(10))
            finally:
                ended.set()

        together(push, fork)
        found = numbers(query.take())
        assert found == [*range(len(found))]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_memory_in_a_file_stays_with_the_parent(tmp_path: Path) -> None:
    with cqels.Engine(memory=tmp_path / "memory", size=1 << 24) as engine:
        query = engine.register(ALL)

        def refused() -> bool:
            with pytest.raises(cqels.CqelsError, match="forked"):
                engine.push(OBS, text("a", 0), time="5s")
            engine.close()
            return True

        assert in_child(refused)
        engine.push(OBS, text("a", 1), time="5s")
        assert numbers(query.take()) == [1]


# ---------------------------------------------------------------- closed


def test_after_close_results_can_be_taken_and_nothing_else_done() -> None:
    engine = cqels.Engine()
    query = engine.register(ALL)
    engine.push(OBS, [text("a", number) for number in range(20)], time=["5s"] * 20)
    engine.close()
    engine.close()
    assert numbers([next(query.results())]) == [0]
    assert query.arrow()["v"].to_pylist() == [*range(1, 20)]
    uses: list[Callable[[], object]] = [
        lambda: engine.push(OBS, text("a", 1), time="6s"),
        lambda: engine.heartbeat("6s"),
        engine.finish,
        lambda: engine.register(ALL),
        lambda: engine.stream(EX + "more"),
        lambda: engine.update("CLEAR ALL"),
        lambda: engine.load("rooms.ttl"),
        lambda: engine.query("query-1"),
        engine.snapshot,
        engine.collect,
        engine.__enter__,
        query.explain,
        query.drop,
    ]
    for use in uses:
        with pytest.raises(cqels.CqelsError, match="the engine is closed"):
            use()


def test_a_signal_at_the_end_of_a_change_leaves_an_engine_that_goes_on() -> None:
    """The handler may raise before the engine is told that the change is over."""
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        engine.internals.access.__enter__()
        engine.push(OBS, text("a", 1), time="1s")
        engine.internals.access.__enter__()
        assert numbers(query.take()) == [1]
        engine.push(OBS, text("a", 2), time="1s")
        assert numbers(query.take()) == [2]
        engine.internals.access.__enter__()
