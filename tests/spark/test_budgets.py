"""Budgets on Spark: a query that was stopped stays so, whatever is lost, and nothing is lost for the others."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyoxigraph import Literal, NamedNode
from pyspark.sql import SparkSession

from cqels.engine import budget_enforcement
from cqels.engine.budgets import Budget
from cqels.engine.file_replay import replay
from cqels.ingest import Element, StreamSettings, parse_declaration
from cqels.model.errors import CqelsError
from cqels.plan.prepare import prepare
from cqels.results import Result
from cqels.spark.driver.app import App
from cqels.spark.driver.metrics import Metrics, status_line
from cqels.spark.operator import stateful_processor
from cqels.spark.sinks import Memory
from cqels.store.dataset import Store

from ..properties.test_engine import COMPANY
from ..random_queries import scenarios
from ..scenarios import Scenario, run
from ..unit.test_budgets import generous
from .piped import Piped

PREFIX = "PREFIX : <http://ex.org/> "
GREEDY = PREFIX + "SELECT ?s ?v { STREAM :a [ALL] { ?s :p ?v } }"
MODEST = PREFIX + "SELECT ?s (COUNT(*) AS ?n) { STREAM :a [RANGE 1s] { ?s :p ?v } } GROUP BY ?s"
MADE = PREFIX + "CONSTRUCT { ?s :seen ?v } { STREAM :a [NOW] { ?s :p ?v } }"
OTHER = PREFIX + "SELECT ?v { STREAM :a [NOW] { ?s :p ?v } }"
READER = PREFIX + "SELECT ?s ?v { STREAM :made [NOW] { ?s :seen ?v } }"
LOSSES = ("", "", "process", "memory", "batch", "move")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are taken after a few batches, and queries are looked at often."""
    monkeypatch.setattr(stateful_processor, "LEAST_LOG", 600)
    monkeypatch.setattr(budget_enforcement, "SLICE", 2)
    monkeypatch.setattr(budget_enforcement, "_most", generous())


@settings(max_examples=20)
@given(scenarios(COMPANY, beside=2), st.integers(1, 6), st.integers(), st.integers(200, 8_000))
def test_memory_is_the_same_whatever_is_lost(scenario: Scenario, size: int, seed: int, most: int) -> None:
    """All queries end where they would have ended, those that others read among them."""
    made: list[Piped] = []

    def engine(*parts: Any, **options: Any) -> Piped:
        made.append(Piped(*parts, budget=lambda name: Budget(most), **options))
        return made[-1]

    random = Random(seed)
    found = run(scenario, engine=engine, size=size, lose=lambda: random.choice(LOSSES))
    assert found == run(scenario, engine=engine, size=size)
    assert made[0].stopped == made[1].stopped


def element(time: int) -> Element:
    subject, predicate = NamedNode("http://ex.org/x"), NamedNode("http://ex.org/p")
    return Element("http://ex.org/a", time * 10**9, ((subject, predicate, Literal(time)),))


@pytest.mark.parametrize("lost", ["", "process", "memory"])
@pytest.mark.parametrize("logged", [0, 1 << 20])
def test_time_is_not_judged_again(lost: str, logged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads a stream that a stopped query made has the same when all of it is done again, much faster."""
    monkeypatch.setattr(stateful_processor, "LEAST_LOG", logged)
    cost = 1
    ticks = iter(range(10**9))
    monkeypatch.setattr(budget_enforcement, "now", lambda: next(ticks) * cost * 10**9)
    losses = [""]
    piped = Piped(
        Store(),
        [StreamSettings("http://ex.org/a")],
        size=10,
        lose=lambda: losses[0],
        budget=lambda name: Budget(time=2 * 10**9) if name == "http://ex.org/made" else None,
    )
    made = piped.register(prepare(MADE, name="http://ex.org/made"))
    reader, other = (piped.register(prepare(text, name=name)) for name, text in (("r", READER), ("o", OTHER)))
    for time in range(20):
        piped.push(element(time))
    assert not piped.stopped
    cost = 5
    for time in range(20, 30):
        piped.push(element(time))
    assert list(piped.stopped) == ["http://ex.org/made"]
    reason = piped.stopped["http://ex.org/made"]
    sent = made.take()
    assert [result.nanoseconds for result in reader.take()] == [result.nanoseconds for result in sent]
    cost, losses[0] = 0, lost
    for time in range(30, 50):
        piped.push(element(time))
    assert piped.stopped == {"http://ex.org/made": reason}
    assert (made.take(), reader.take()) == ([], [])
    assert len(other.take()) == 50
    assert piped.rebuilt == (2 if lost == "memory" else 0)


# ---------------------------------------------------------------- on Spark


SIZE = 4000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    kind = "http://www.w3.org/2001/XMLSchema#integer"
    path = tmp_path_factory.mktemp("data") / "a.nt"
    path.write_text(
        "".join(f'<http://ex.org/s{i % 9}> <http://ex.org/p> "{i}"^^<{kind}> {i * 10} .\n' for i in range(SIZE))
    )
    return f"<http://ex.org/a>={path}"


def embedded(data: str, text: str, name: str) -> list[Result]:
    return [result for _, result in replay([prepare(text, name=name)], [parse_declaration(data)], Store())]


def made(spark: SparkSession, data: str, checkpoint: Path, memory: str = "100kB") -> App:
    app = App(spark, checkpoint=checkpoint, batch_bytes=20_000, instances=2)
    app.files(data)
    app.add(GREEDY, name="greedy", memory=memory)
    app.add(MODEST, name="modest", time="1s")
    return app


def test_one_is_stopped_and_the_other_goes_on(
    spark: SparkSession, data: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And so it is when the run goes on from its checkpoint, in engines that are made again."""
    memory, metrics = Memory(), Metrics(tmp_path / "metrics.jsonl")
    first = made(spark, data, tmp_path / "c").run(memory, metrics=metrics)
    while not first.stopped:
        assert not first.wait(0.1)
    first.stop()
    reason = first.stopped["greedy"]
    assert reason.startswith("query greedy was stopped at element ")
    assert reason.endswith(": its state takes more than 100 kB")
    assert [each.getMessage() for each in caplog.records if each.name == "cqels"] == [reason]
    assert "1 stopped" in status_line(metrics)
    assert 'cqels_query_stopped{query="greedy"} 1' in metrics.prometheus()
    assert 'cqels_query_stopped{query="modest"} 0' in metrics.prometheus()
    assert reason in (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(CqelsError, match="the memory of query greedy was 100 kB and is 200 kB"):
        made(spark, data, tmp_path / "c", "200kB").run(memory)
    second = made(spark, data, tmp_path / "c").run(memory)
    assert second.stopped == {"greedy": reason}
    assert second.wait(600)
    assert second.stopped == {"greedy": reason}
    greedy = memory.results("greedy")
    assert 100 < len(greedy) < SIZE
    assert greedy == embedded(data, GREEDY, "greedy")[: len(greedy)]
    assert memory.results("modest") == embedded(data, MODEST, "modest")
