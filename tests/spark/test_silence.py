"""Time that goes on on Spark: heartbeats by a clock that is given, and promises in files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels.ingest import StreamSettings
from cqels.model.time import MINUTE, SECOND
from cqels.pipeline.lift.row_schemas import COMMAND
from cqels.plan.prepare import prepare
from cqels.spark.driver.app import App
from cqels.spark.driver.run import Run
from cqels.spark.driver.run_clock import BEHIND, RunClock
from cqels.spark.sinks import Memory
from cqels.spark.source.clock_source import ClockReader

from ..unit.test_silence import BEFORE, OBS, SILENT, Wall

DOOR = "http://ex.org/door"
SILENT_TEXT = (
    f"SELECT ?s {{ ?s a <http://ex.org/Sensor> FILTER NOT EXISTS {{ STREAM <{OBS}> [RANGE 5s] {{ ?s ?p ?o }} }} }}"
)


def until(found: Callable[[], bool], seconds: float = 60) -> None:
    limit = monotonic() + seconds
    while not found():
        assert monotonic() < limit, "it did not come in time"
        sleep(0.05)


class Following:
    """A pipeline that follows a folder, with a clock that is set."""

    def __init__(self, spark: SparkSession, folder: Path, options: str) -> None:
        self.spark, self.folder, self.options = spark, folder, options
        (folder / "in").mkdir()
        self.wall, self.memory, self.parts = Wall(), Memory(), 0

    def start(self) -> Run:
        app = App(self.spark, checkpoint=self.folder / "c", follow=True, now=self.wall, tick="100ms")
        app.files(f"<{OBS}>={self.folder}/in/*.nt?{self.options}")
        app.update(
            "INSERT DATA { <http://ex.org/s1> a <http://ex.org/Sensor> . <http://ex.org/s2> a <http://ex.org/Sensor> }"
        )
        app.add(prepare(SILENT_TEXT, name="silent", emit="changes"))
        return app.run(self.memory)

    def push(self, *lines: str) -> None:
        (self.folder / "new").write_text("".join(f"{line}\n" for line in lines))
        (self.folder / "new").rename(self.folder / "in" / f"{self.parts}.nt")
        self.parts += 1

    def seen(self) -> list[str]:
        return [
            f"{each.sign}{each.values[0].value[-2:]}@{each.nanoseconds // SECOND}"
            for each in self.memory.results("silent")
        ]


def test_an_absence_is_told_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Through a restart, after which nothing arrives; promises in files come to the engines as well."""
    following = Following(spark, tmp_path, "idle=2s&punctuated=true")
    run = following.start()
    try:
        following.push('<http://ex.org/s1> <http://ex.org/temp> "1" "1000" .')
        until(lambda: following.seen() == ["+s2@1"])
        following.push('<http://ex.org/s2> <http://ex.org/temp> "1" "2000" .')
        until(lambda: following.seen() == ["+s2@1", "-s2@2"])
        sleep(1)
        assert len(following.seen()) == 2
        run.stop()
        run = following.start()
        following.wall.go_on(4.6)  # the clock is half a second behind
        until(lambda: len(following.seen()) == 3)
        assert following.seen()[2] == "+s1@6"
        following.wall.go_on(20)
        until(lambda: len(following.seen()) == 4)
        following.push(f'<{OBS}> {BEFORE} "40000" "30000" .', '<http://ex.org/s1> <http://ex.org/temp> "1" "41000" .')
        until(lambda: len(following.seen()) == 5)
        assert following.seen()[3:] == ["+s2@26", "-s1@41"]
    finally:
        run.stop()


def test_a_clock_says_what_is_due(tmp_path: Path) -> None:
    wall, file = Wall(), tmp_path / "clock.json"
    streams = [StreamSettings(OBS, idle=2 * SECOND), StreamSettings(DOOR, arrival=True)]
    reader = ClockReader(file, [0, 2])
    assert reader.latestOffset({}, None) == {}
    clock = RunClock(file, streams, now=wall)
    clock.set_queries([prepare(SILENT)])
    clock.observe([{"0": 7 * SECOND}, {"0": 6 * SECOND, "1": wall.now}])
    began = wall.now
    wall.go_on(10)
    clock.look(has_read_all=False)
    assert reader.latestOffset({}, None) == {}
    clock.look(has_read_all=True)
    told = reader.latestOffset({}, None)
    assert told == {"0": 17 * SECOND - BEHIND, "1": began + 10 * SECOND - BEHIND}
    assert reader.latestOffset(told, None) == told
    assert reader.partitions(told, told) == []
    (partition,) = reader.partitions({}, told)
    (rows,) = reader.read(partition)
    found = rows.to_pylist()
    assert [row["instance"] for row in found] == [0, 2, 0, 2]
    assert {row["kind"] for row in found} == {COMMAND}
    assert json.loads(found[0]["text"]) == {"heartbeat": told["0"], "stream": 0}
    again = RunClock(file, streams, now=wall)
    wall.go_on(MINUTE // SECOND)
    again.look(has_read_all=True)
    assert reader.latestOffset(told, None)["0"] == told["0"] + MINUTE
