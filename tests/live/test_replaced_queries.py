"""A query that replaces another of its name: the results of each are its own, also where both are of one batch."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest

from cqels.ingest import StreamSettings
from cqels.live.change_requests import RunEnded
from cqels.live.live_run import LiveRun, LiveSettings, PushedStream
from cqels.model.time import SECOND
from cqels.pipeline.instance.durable_instance import DurableInstance
from cqels.pipeline.instance.instance_commands import Arrival, registration
from cqels.pipeline.lift.row_lifts import ntriples
from cqels.pipeline.sink.result_log import ResultLog
from cqels.pipeline.source.live_source import Message
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.store.dataset import Store

from .driving import EX, OBS, opened, query, reading, readings, texts
from .servers import eventually


def asked(variable: str) -> Query:
    return query(f"PREFIX : <{EX}> SELECT ?{variable} WHERE {{ STREAM :obs [NOW] {{ ?s :temp ?{variable} }} }}", "q")


def test_the_last_results_of_a_replaced_query_are_told_from_those_of_the_next(tmp_path: Path) -> None:
    def delivered(instance: DurableInstance, outcome: Any) -> dict[str, list[str]]:
        assert outcome.dropped["q"].variables == ("old",)
        return texts(_WithQueries(instance, outcome), outcome)

    instance = opened(tmp_path)
    instance.advance(0, [Arrival(command=registration(asked("old"), ""))])
    commands = [json.dumps({"drop": "q"}), registration(asked("new"), "")]
    outcome = instance.advance(1, [*readings(0), *(Arrival(command=each) for each in commands)])
    found = delivered(instance, outcome)
    instance.close()
    again = opened(tmp_path)
    assert delivered(again, again.last) == found
    assert len(found["q"]) == 3
    outcome = again.advance(2, readings(1))
    assert outcome.chunks[0].number == 3
    assert outcome.dropped == {}
    again.close()


class _WithQueries:
    """Knows the queries as a delivery does."""

    def __init__(self, instance: DurableInstance, outcome: Any) -> None:
        self.queries = instance.instance.registered | outcome.dropped


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A run whose batches have what comes in a quarter of a second."""
    log = ResultLog()
    stream = PushedStream(settings=StreamSettings(OBS), lift=ntriples())
    settings = LiveSettings(lasting=True, trigger=SECOND // 4)
    made = LiveRun([], [], Store(), [log], state=tmp_path / "state", pushed=[stream], settings=settings)
    made.start()
    yield made, log
    made.stop()
    made.wait()


def test_queries_that_are_replaced_and_dropped_under_load(run: tuple[LiveRun, ResultLog]) -> None:
    live, log = run
    live.register(asked("v0"))
    number = 0

    def push() -> None:
        nonlocal number
        for _ in range(5):
            live.push(OBS, [Message(reading(1, number, number).encode(), 0)])
            number += 1
            sleep(0.01)

    def drop() -> None:
        live.drop("q")
        live.register(asked("w"))

    changes = [lambda: live.replace(asked("v1")), drop, lambda: live.replace(asked("v2"))]
    for change in changes:
        push()
        threads = [Thread(target=each) for each in (change, lambda: live.update("INSERT DATA { <x:s> <x:p> 1 }"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    push()
    eventually(lambda: live.metrics["elements"] == number)
    eventually(lambda: log.end("q") > 5)
    assert live.is_running
    lines = [json.loads(line) for part in log.read("q", 0).parts for line in part.lines]
    assert [line["id"] for line in lines] == [f"q/{at}" for at in range(len(lines))]
    found = [next(iter(line["bindings"])) for line in lines]
    assert found[0] == "v0"
    assert found[-5:] == ["v2"] * 5
    assert found == sorted(found, key=["v0", "v1", "w", "v2"].index)


def test_a_push_to_a_run_that_has_ended(run: tuple[LiveRun, ResultLog]) -> None:
    live, _ = run
    live.stop()
    with pytest.raises(RunEnded, match="the run has ended"):
        live.push(OBS, [Message(reading(1, 2, 3).encode(), 0)])
    with pytest.raises(RunEnded, match="the run has ended"):
        live.register(prepare("SELECT ?s WHERE { STREAM <x:s> [NOW] { ?s ?p ?o } }", name="more"))
