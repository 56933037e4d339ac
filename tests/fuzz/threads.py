"""Threads and signals: whatever happens at the same time or in the middle, counts are exact."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import cqels
from cqels.model.terms import XSD

from .harness import Kind, interrupted

EX = "http://ex.org/"
S = EX + "s"
ALL = f"SELECT ?s ?v {{ STREAM <{S}> [NOW] {{ ?s <{EX}p> ?v }} }}"
COUNT = f"SELECT ?s (COUNT(*) AS ?n) {{ STREAM <{S}> [RANGE 1s] {{ ?s <{EX}p> ?v }} }} GROUP BY ?s"
JOINED = f"SELECT ?s ?v ?n {{ STREAM <{S}> [NOW] {{ ?s <{EX}p> ?v }} ?s <{EX}n> ?n }}"


# ---------------------------------------------------------------- threads


def draw_threads(random: Random) -> bytes:
    return json.dumps(
        {
            "pushers": random.randint(1, 5),
            "takers": random.randint(1, 3),
            "changers": random.randint(0, 2),
            "count": random.choice([20, 100, 300]),
            "block": random.choice([1, 1, 7]),
            "switch": random.choice([1e-6, 1e-4, 5e-3]),
            "drawn": random.randrange(1 << 32),
        }
    ).encode()


def check_threads(case: bytes) -> None:
    """What some threads push is what others take, all of it and once, while queries come and go."""
    told = json.loads(case)
    with cqels.Engine() as engine, switching(told["switch"]):
        queries = [engine.register(ALL), engine.register(ALL, name="again"), engine.register(COUNT)]
        taken: list[list[Any]] = [[], [], []]
        pushed = threading.Event()

        def push(number: int) -> None:
            for start in range(0, told["count"], told["block"]):
                values = range(start, min(start + told["block"], told["count"]))
                texts = [f"<{EX}t{number}> <{EX}p> {value} ." for value in values]
                engine.push(
                    S, texts if len(texts) > 1 else texts[0], time=["5s"] * len(texts) if len(texts) > 1 else "5s"
                )

        def take() -> None:
            while not pushed.is_set():
                for query, results in zip(queries, taken, strict=True):
                    results.extend(query.take())

        def change(number: int) -> None:
            random = Random(told["drawn"] + number)
            while not pushed.is_set():
                own = engine.register(random.choice([ALL, COUNT, JOINED]), name=f"own-{number}")
                for _ in range(random.randrange(4)):
                    match random.randrange(5):
                        case 0:
                            engine.update(f"INSERT DATA {{ <{EX}t{number}> <{EX}n> {random.randrange(9)} }}")
                        case 1:
                            engine.snapshot()
                        case 2:
                            own.explain()
                        case 3:
                            engine.heartbeat("5s")
                        case _:
                            own.take()
                own.drop()

        pushing = [partial(push, number) for number in range(told["pushers"])]
        beside = [*[take] * told["takers"], *(partial(change, number) for number in range(told["changers"]))]
        together(pushing, beside, pushed)
        for query, results in zip(queries, taken, strict=True):
            results.extend(query.take())
    expected = sorted(
        (f"<{EX}t{number}>", value) for number in range(told["pushers"]) for value in range(told["count"])
    )
    for results in taken[:2]:
        assert sorted((str(result.values[0]), number_of(result)) for result in results) == expected
    counts = sorted((str(result.values[0]), number_of(result) - 1) for result in taken[2])
    assert counts == expected


def together(works: list[Callable[[], None]], beside: list[Callable[[], None]], done: threading.Event) -> None:
    """Do these at the same time, and some beside them until all are done; an exception of one is the caller's."""
    failures: list[BaseException] = []

    def tried(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [[threading.Thread(target=tried, args=(work,), daemon=True) for work in some] for some in (works, beside)]
    for thread in (*threads[1], *threads[0]):
        thread.start()
    for thread in threads[0]:
        thread.join()
    done.set()
    for thread in threads[1]:
        thread.join()
    for failure in failures:
        raise failure


@contextmanager
def switching(interval: float) -> Iterator[None]:
    """Threads take turns so often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    yield
    sys.setswitchinterval(before)


def number_of(result: Any) -> int:
    return int(result.values[-1].value)


THREADS = Kind("threads", draw_threads, check_threads)


# ---------------------------------------------------------------- signals

KEPT = f"SELECT ?s ?v {{ STREAM <{S}> [RANGE 100d] {{ ?s <{EX}p> ?v }} }}"
ALL_COUNT = f"SELECT (COUNT(*) AS ?n) {{ STREAM <{S}> [RANGE 100d] {{ ?s <{EX}p> ?v }} }}"
JOIN = (
    f"SELECT ?s ?v ?w {{ STREAM <{S}> [RANGE 9d] {{ ?s <{EX}p> ?v }} STREAM <{EX}r> [RANGE 9d] {{ ?s <{EX}q> ?w }} }}"
)


def draw_signals(random: Random) -> bytes:
    interrupts = [10 ** random.uniform(-4.5, -1.5) for _ in range(random.randint(1, 6))]
    return json.dumps({"block": random.choice([1, 50, 500]), "blocks": 12, "interrupts": interrupts}).encode()


def check_signals(case: bytes) -> None:
    """A push that a signal interrupts is done or not, for all queries alike, and the engine goes on."""
    told = json.loads(case)
    with cqels.Engine() as engine:
        engine.stream(EX + "r")
        names = ["all", "count", "join"]
        for name, text in zip(names, (KEPT, ALL_COUNT, JOIN), strict=True):
            engine.register(text, name=name, emit="changes")
        engine.push(EX + "r", f"<{EX}s0> <{EX}q> 7 .", time=0)
        interrupts, hits = list(told["interrupts"]), list[int]()
        for number in range(told["blocks"]):
            data = block(number, told["block"])
            if interrupted(partial(engine.push, S, data), interrupts.pop() if interrupts else 0):
                hits.append(number)
            interrupted_life(engine, interrupts)
        engine.heartbeat("1d")
        check_counts(engine, told, hits)


def interrupted_life(engine: cqels.Engine, interrupts: list[float]) -> None:
    """A query comes and goes; a signal may interrupt either: it is there or not."""
    interrupted(partial(engine.register, COUNT, name="other"), interrupts.pop() if interrupts else 0)
    if "other" in {query.name for query in engine.queries}:
        interrupted(partial(engine.drop, "other"), interrupts.pop() if interrupts else 0)
    if "other" in {query.name for query in engine.queries}:
        engine.drop("other")


def block(number: int, size: int) -> bytes:
    values = range(number * size, (number + 1) * size)
    return "".join(f'<{EX}s{value % 7}> <{EX}p> "{value}"^^<{XSD}integer> {value} .\n' for value in values).encode()


def check_counts(engine: cqels.Engine, told: dict[str, Any], hits: list[int]) -> None:
    values = sorted(number_of(result) for result in engine.query("all").take())
    there = {value // told["block"] for value in values}
    assert there >= {*range(told["blocks"])} - {*hits}, (sorted(there), hits)
    assert values == [
        value for number in sorted(there) for value in range(number * told["block"], (number + 1) * told["block"])
    ]
    counts = [number_of(result) for result in engine.query("count").take() if result.sign == "+"]
    assert (counts or [0])[-1] == len(values)
    joined = sorted(int(result["v"].value) for result in engine.query("join").take())  # type: ignore[union-attr]
    assert joined == [value for value in values if value % 7 == 0]


SIGNALS = Kind("signals", draw_signals, check_signals)
