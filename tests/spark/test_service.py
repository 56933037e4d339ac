"""SERVICE on Spark: the driver asks, again from time to time, and engines and later runs know the same answers."""

from __future__ import annotations

import csv
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyoxigraph import Literal, NamedNode
from pyspark.sql import SparkSession

from cqels.ingest import StreamSettings
from cqels.ingest.element_batch import Batch
from cqels.model.errors import CqelsError, Damaged, QueryError
from cqels.pipeline.instance.engine_instance import Instance
from cqels.pipeline.instance.instance_commands import Arrival, answers_command, registration
from cqels.pipeline.instance.program import Program, ShippedBytes
from cqels.pipeline.lift.block_format import pack
from cqels.pipeline.lift.block_writer import new_terms
from cqels.pipeline.sink.result_batch import Sent
from cqels.plan.algebra import Service, Values, walk_plan
from cqels.plan.prepare import prepare
from cqels.spark.driver.app import App
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.run import Run
from cqels.spark.operator.instance_rows import read_update
from cqels.spark.sinks import Memory
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions
from cqels.store.service_answers import key_of, write_answers

from ..golden.make import portions
from ..unit.test_permissions import ROOMS, Server, answer, query, server

__all__ = ["server"]

OBS = "http://ex.org/obs"
SENSOR = NamedNode("http://ex.org/s1")


def made(spark: SparkSession, folder: Path, url: str, checkpoint: Path | None = None) -> App:
    app = App(spark, allow_service=["127.0.0.1"], checkpoint=checkpoint)
    app.files(f"<{OBS}>={folder}/obs.nt")
    app.add(query(url), name="rooms")
    return app


def test_an_endpoint_is_asked_by_the_driver_alone(
    spark: SparkSession, tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f'<http://ex.org/s1> <http://ex.org/temp> "{number}" {number} .\n' for number in range(9)]
    (tmp_path / "obs.nt").write_text("".join(lines))
    url = server.url().replace("http://", "http://me:pa55word@") + "?token=t0ken"
    first, memory = made(spark, tmp_path, url, tmp_path / "c"), Memory()
    assert len(server.headers) == 1
    first.run(memory).wait()
    assert [result.values[1].value for result in memory.results("rooms")] == ["hall"] * 9
    assert len(server.headers) == 1
    for path in (tmp_path / "c").rglob("*"):
        if path.is_file():
            assert b"pa55word" not in path.read_bytes(), path
            assert b"t0ken" not in path.read_bytes(), path
    server.paths["/sparql"] = lambda handler: handler.send_error(503)
    with pytest.raises(QueryError, match="HTTP 503"):
        made(spark, tmp_path, url, tmp_path / "c")
    server.paths["/sparql"] = lambda handler: answer(handler, ROOMS.replace(b"hall", b"attic"))
    again = made(spark, tmp_path, url.replace("pa55word", "an0ther"), tmp_path / "c")
    again.run(Memory()).wait()
    assert again.answers == first.answers
    assert "pa55word" not in caplog.text
    assert "an0ther" not in caplog.text


def test_what_spark_does_not_allow(spark: SparkSession, tmp_path: Path, server: Server) -> None:
    app = App(spark)
    app.files(f"<{OBS}>={tmp_path}/obs.nt")
    with pytest.raises(QueryError, match="is a loopback address"):
        app.add(query(server.url()))
    with pytest.raises(QueryError, match="is not loaded"):
        app.add("SELECT ?s FROM <urn:g> WHERE { STREAM <http://ex.org/obs> { ?s ?p ?o } }")
    assert server.headers == []
    with pytest.raises(CqelsError, match="not longer than 0"):
        App(spark, service_refresh="0s")


# ---------------------------------------------------------------- while it runs


class Asking:
    """A pipeline that follows a folder, beside an endpoint whose answer changes."""

    def __init__(self, spark: SparkSession, folder: Path, server: Server, **options: Any) -> None:
        self.spark, self.folder, self.server, self.options = spark, folder, server, options
        (folder / "in").mkdir(exist_ok=True)
        self.memory = Memory()
        self.runs: list[Run] = []
        self.parts = 0

    def start(self, sink: Memory | None = None) -> Run:
        app = App(
            self.spark,
            checkpoint=self.folder / "checkpoint",
            follow=True,
            allow_service=["127.0.0.1"],
            service_refresh="50ms",
        )
        app.files(f"<{OBS}>={self.folder}/in/*.nt")
        app.add(prepare(query(self.server.url()), name="rooms", emit="changes"), **self.options)
        self.runs.append(app.run(sink or self.memory))
        return self.runs[-1]

    def answers(self, room: str) -> None:
        self.server.paths["/sparql"] = lambda handler: answer(handler, ROOMS.replace(b"hall", room.encode()))

    def fails(self) -> None:
        self.server.paths["/sparql"] = lambda handler: handler.send_error(503)

    def push(self, name: str = "s1") -> None:
        (self.folder / "new").write_text(f'<http://ex.org/{name}> <http://ex.org/temp> "{self.parts}" {self.parts} .\n')
        (self.folder / "new").rename(self.folder / "in" / f"{self.parts}.nt")
        self.parts += 1

    def seen(self) -> list[str]:
        return [f"{each.sign}{each.values[1].value}" for each in self.memory.results("rooms")]

    def wait_for(self, *expected: str) -> None:
        self.wait(lambda: len(self.seen()) >= len(expected))
        assert self.seen() == [*expected]

    def wait(self, ready: Callable[[], bool]) -> None:
        limit = monotonic() + 60
        while not ready():
            assert not self.runs[-1].wait(0.05)
            assert monotonic() < limit

    def asked(self, times: int = 2) -> None:
        """Wait until the endpoint has been asked some more times."""
        before = len(self.server.headers)
        self.wait(lambda: len(self.server.headers) >= before + times)


@pytest.fixture
def asking(spark: SparkSession, tmp_path: Path, server: Server) -> Iterator[Asking]:
    made = Asking(spark, tmp_path, server)
    yield made
    for run in made.runs:
        with suppress(CqelsError):
            run.stop()


def test_an_answer_that_changes_reaches_the_engines(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cqels")
    run = asking.start()
    asking.push()
    asking.wait_for("+hall")
    spark_query = run.query
    asking.asked()  # the same answer changes nothing
    asking.answers("attic")
    asking.wait_for("+hall", "-hall", "+attic")  # without an element
    asking.push()
    asking.wait_for("+hall", "-hall", "+attic", "+attic")
    assert run.query is spark_query
    assert "an endpoint has other solutions, 1 of them" in caplog.text
    assert [(each["asked"], each["rows"]) for each in run.services] == [("every 50ms", "1")]
    for room in ("cellar", "porch"):
        asking.answers(room)
        asking.wait(lambda room=room: asking.seen()[-1] == f"+{room}")  # type: ignore[misc]
    asking.push("s2")
    asking.push()
    asking.wait(lambda: asking.seen()[-1] == "+porch" and len(asking.seen()) == 13)
    there = asking.folder / "checkpoint" / "updates"
    asking.push()
    asking.wait(
        lambda: len([*there.glob("*.json")]) == 1
    )  # the others are read, and forgotten with a later micro-batch
    run.stop()
    asked = len(asking.server.headers)
    sleep(0.2)
    assert asked == len(asking.server.headers)


def test_an_endpoint_that_fails_for_a_while_keeps_its_answer(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    run = asking.start()
    asking.push()
    asking.wait_for("+hall")
    asking.fails()
    asking.asked()
    asking.push()
    asking.wait_for("+hall", "+hall")
    asking.wait(lambda: "its last answer is kept" in caplog.text)
    assert "HTTP 503" in run.services[0]["failed"]
    asking.answers("attic")
    asking.wait_for("+hall", "+hall", "-hall", "-hall", "+attic", "+attic")
    assert "failed" not in run.services[0]


def test_a_later_run_goes_on_with_what_engines_knew(asking: Asking) -> None:
    asking.start()
    asking.push()
    asking.wait_for("+hall")
    asking.answers("attic")
    asking.wait_for("+hall", "-hall", "+attic")
    asking.runs[-1].stop()
    asking.start()
    asking.push()
    asking.wait_for("+hall", "-hall", "+attic", "+attic")
    asking.runs[-1].stop()
    asking.answers("hall")  # as at the very beginning
    asking.start()
    asking.wait_for("+hall", "-hall", "+attic", "+attic", "-attic", "-attic", "+hall", "+hall")


class Failing(Memory):
    """Fails as long as a micro-batch is the one that brings something."""

    def __init__(self, room: str) -> None:
        super().__init__()
        self.room, self.failed = room, 0

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if any(each.values[1].value == self.room for some in sent.values() for each in some.results()):
            self.failed = batch
            raise OSError("no room")
        super().write(batch, sent)


def test_a_micro_batch_that_is_repeated_has_the_same_answer(asking: Asking) -> None:
    """Whatever the endpoint answers by then."""
    sink = Failing("attic")
    asking.memory = sink
    run = asking.start()
    asking.push()
    asking.wait_for("+hall")
    asking.answers("attic")
    with pytest.raises(CqelsError):
        run.wait(60)
    asking.answers("cellar")
    asking.memory = Memory()
    asking.start()
    asking.wait_for("-hall", "+attic", "-attic", "+cellar")
    assert min(asking.memory._batches["rooms"]) == sink.failed


def test_parts_of_a_query_have_the_same_answer(spark: SparkSession, tmp_path: Path, server: Server) -> None:
    asking = Asking(spark, tmp_path, server, spread=True)
    try:
        run = asking.start()
        assert len(run.placed) == 2
        asking.push()
        asking.wait_for("+hall")
        asking.answers("attic")
        asking.wait_for("+hall", "-hall", "+attic")
        run.change(move={next(iter(run.placed)): None})
        asking.push()
        asking.wait_for("+hall", "-hall", "+attic", "+attic")
    finally:
        asking.runs[-1].stop()


def test_queries_that_come_and_go(asking: Asking) -> None:
    """One that comes again knows what endpoints answer by then; what no query asks is not asked."""
    run = asking.start()
    other = "SELECT ?s WHERE { STREAM <http://ex.org/obs> [RANGE 1h] { ?s ?p ?o } }"
    asking.push()
    asking.wait_for("+hall")
    run.change(add=[prepare(other, name="other")], drop=["rooms"])
    assert run.services == []
    asking.answers("attic")
    run.change(add=[prepare(query(asking.server.url()), name="rooms", emit="changes")])
    asking.asked()
    asking.push()
    asking.wait(lambda: asking.seen()[-1] == "+attic")
    with pytest.raises(CqelsError):
        run.change(add=["SELECT * WHERE { STREAM <http://ex.org/none> [NOW] { ?s ?p ?o } }"])
    asking.answers("cellar")
    asking.wait(lambda: asking.seen()[-1] == "+cellar")


APPLICATION = """
import sys
from pathlib import Path
from cqels.spark import App, start
from cqels.spark.sinks import Files

folder, text = Path(sys.argv[1]), sys.argv[2]
app = App(
    start(master="local[2]", partitions=2),
    checkpoint=folder / "checkpoint",
    follow=True,
    allow_service=["127.0.0.1"],
    service_refresh="20ms",
)
app.files(f"<http://ex.org/obs>={folder}/in/*.nt")
app.add(text, name="rooms", emit="changes")
app.run(Files(folder / "results", "csv")).wait()
"""


@pytest.mark.cluster
def test_whoever_is_killed_tells_each_answer_once(tmp_path: Path, server: Server) -> None:
    """At each tick the room of all readings changes: results that lack a tick, or have one twice, do not add up."""
    (tmp_path / "in").mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", APPLICATION, str(tmp_path), query(server.url())]
    results, step, lives = tmp_path / "results" / "rooms.csv", 0, 3
    for life in range(lives):
        process = subprocess.Popen(command, env=environment)
        try:
            size = results.stat().st_size if results.exists() else 0
            limit, changes = monotonic() + 300, 0
            while changes < 6 + 2 * life:
                assert process.poll() is None
                assert monotonic() < limit
                room, step = f"room{step}", step + 1
                server.paths["/sparql"] = partial(answer, content=ROOMS.replace(b"hall", room.encode()))
                line = f'<http://ex.org/s1> <http://ex.org/temp> "{step}" {step} .\n'
                (tmp_path / "in" / f".{step}.nt").write_text(line)
                (tmp_path / "in" / f".{step}.nt").rename(tmp_path / "in" / f"{step}.nt")
                sleep(0.5)
                changes += results.exists() and results.stat().st_size > size
            while life == lives - 1 and added_up(results) != {room: step}:
                assert process.poll() is None
                assert monotonic() < limit
                sleep(0.2)
        finally:
            process.kill()
            process.wait()
    assert results.read_text().count("\n") > 20


def added_up(results: Path) -> dict[str, int]:
    """How many readings have which room, by all results; the last line may not be complete."""
    rooms = Counter[str]()
    for row in csv.DictReader(results.read_text().rpartition("\n")[0].splitlines()):
        rooms[row["r"]] += 1 if row["sign"] == "+" else -1
        assert rooms[row["r"]] >= 0
    return {room: number for room, number in rooms.items() if number}


# ---------------------------------------------------------------- without Spark

URL = "http://ex.org/sparql"


def table(*rooms: str) -> Values:
    return Values(("s", "r"), tuple((SENSOR, Literal(room)) for room in rooms))


def program(emit: str = "changes") -> tuple[Program, str]:
    """A query that asks, and the key of what it does."""
    asks = prepare(query(URL), name="rooms", emit=emit)
    key = next(key_of(node) for node in walk_plan(asks.plan) if isinstance(node, Service))
    services = ShippedBytes(write_answers({key: table("hall")}))
    return Program.of("test", [asks], [StreamSettings(OBS)], services=services), key


def element(time: int) -> Arrival:
    terms = new_terms()
    triple = (SENSOR, NamedNode("http://ex.org/temp"), Literal(str(time)))
    return Arrival(0, "", pack(Batch.of([(time, 0, [tuple(map(terms.encode, triple))])]), terms.dictionary))


def begun(emit: str = "changes") -> tuple[Instance, str]:
    """An engine that has had an element."""
    made, key = program(emit)
    instance = Instance(made)
    commands = [Arrival(command=registration(asks, print)) for print, asks in made.read().values()]
    instance.advance([*commands, element(0)])
    assert sent(instance) == ["+hall"]
    return instance, key


def sent(instance: Instance) -> list[str]:
    rows = [row for *_, rows in portions(instance) for row in rows]
    return [f"{row['sign'] or '+'}{row['?r'][1:-1]}" for row in rows]


def told(key: str, *rooms: str) -> Arrival:
    return Arrival(command=answers_command({key: table(*rooms)}))


def test_an_engine_that_is_made_again_knows_what_it_was_told() -> None:
    instance, key = begun()
    commands, saved = instance.compact(), instance.saved()
    log = [(1, *told(key, "attic")), (2, *element(1)), (3, *told(key, "cellar", "porch"))]
    for _, *arrived in log:
        instance.advance([Arrival(*arrived)])
    expected = ["-hall", "+attic", "+attic", *["-attic"] * 2, "+cellar", "+cellar", "+porch", "+porch"]
    assert sorted(sent(instance)) == sorted(expected)
    again = Instance.rebuild(instance.program, commands, saved, log)
    assert sent(again) == []
    shorter = Instance.rebuild(instance.program, instance.compact(), instance.saved())
    assert len(instance.compact()) == 2
    for each in (instance, again, shorter):
        each.advance([element(2), told(key)])
        assert sorted(sent(each)) == ["+cellar", "+porch", *["-cellar"] * 3, *["-porch"] * 3]


def test_an_answer_with_the_same_solutions_is_no_tick() -> None:
    instance, key = begun("rstream")
    instance.advance([told(key, "hall"), told("0" * 64, "hall")])
    assert sent(instance) == []
    instance.advance([told(key, "attic")])
    assert sent(instance) == ["+attic"]


def test_a_store_without_data_has_its_permissions(tmp_path: Path, server: Server) -> None:
    """As the command line makes one."""
    spark: Any = None
    app = App(spark, store=Store(permissions=Permissions.of("127.0.0.1")))
    app.files(f"<{OBS}>={tmp_path}/obs.nt")
    app.add(query(server.url()))
    assert len(server.headers) == 1


def test_updates_are_numbered_files(tmp_path: Path) -> None:
    updates = Updates(tmp_path / "updates")
    for key, room in (("a", "hall"), ("b", "attic"), ("a", "cellar"), ("a", "porch")):
        updates.answer(key, table(room))
    assert updates.answers() == {"a": table("porch"), "b": table("attic")}

    def there() -> list[str]:
        return sorted(path.name[10:] for path in updates.folder.iterdir())

    updates.forget(2)  # the last one may be of a micro-batch that is repeated
    assert there() == ["01-b.json", "02-a.json", "03-a.json"]
    updates = Updates(tmp_path / "updates")
    updates.answer("b", table())
    updates.forget(4)
    assert there() == ["03-a.json", "04-b.json"]
    assert updates.answers() == {"a": table("porch"), "b": table()}
    path = updates.folder / "000000000003-a.json"
    assert json.loads(read_update(path.read_text()))["answers"].keys() == {"a"}
    path.write_text(path.read_text().replace("porch", "perch"))
    with pytest.raises(Damaged, match="other values than were written"):
        updates.answers()
    with pytest.raises(Damaged, match="other values than were written"):
        read_update(path.read_text())
