"""The low-latency mode: the engine in the driver sends what the embedded engine and the reference send, each once."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels.engine.file_replay import replay
from cqels.ingest import Rejected, parse_declaration
from cqels.model.errors import CqelsError
from cqels.options import AppOptions
from cqels.pipeline.lift.row_lifts import ntriples
from cqels.pipeline.sink.reject_files import Rejects
from cqels.plan.prepare import prepare
from cqels.reference.reference_replay import replay as judged
from cqels.results import Result
from cqels.spark.driver.app import App
from cqels.spark.driver.driver_instance import DriverInstance
from cqels.spark.driver.metrics import Metrics
from cqels.spark.sinks import Memory
from cqels.store.dataset import Store

from .jobs import Job, Settings, kill, outcome, write_data

PREFIX = "PREFIX : <http://ex.org/> "
JOIN = (
    PREFIX
    + """SELECT ?s ?v ?o ?room WHERE {
  STREAM :a [RANGE 100ms] { ?s :p ?v } STREAM :b [RANGE 200ms] { ?s :q ?o } ?s :in ?room }"""
)
COUNT = PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :a [RANGE 1s SLIDE 500ms] { ?s :p ?v } } GROUP BY ?s"
LAST = PREFIX + "SELECT ?s ?v WHERE { STREAM :a [ELEMENTS 2] { ?s :p ?v } }"
QUERIES = {"join": JOIN, "count": COUNT, "last": LAST}
SIZE = 300


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    kind = "http://www.w3.org/2001/XMLSchema#integer"
    first = [f'<http://ex.org/s{i % 9}> <http://ex.org/p> "{i % 7}"^^<{kind}> {i * 10} .\n' for i in range(SIZE)]
    second = [
        f"<http://ex.org/s{i % 9}> <http://ex.org/q> <http://ex.org/o{i % 3}> {i * 25} .\n" for i in range(SIZE // 3)
    ]
    (folder / "a.nt").write_text("".join(first[:100]) + "this is no triple\n" + "".join(first[100:]))
    (folder / "b.nt").write_text("".join(second))
    (folder / "rooms.ttl").write_text(
        "@prefix : <http://ex.org/> . " + " ".join(f":s{i} :in :r{i % 2} ." for i in range(9))
    )
    return folder


def streams(data: Path) -> list[str]:
    return [f"<http://ex.org/a>={data}/a.nt", f"<http://ex.org/b>={data}/b.nt"]


def made(spark: SparkSession, data: Path, queries: dict[str, str], **options: Any) -> App:
    app = App(spark, **{"latency": "low", "batch_bytes": 4000} | options)
    for each in streams(data):
        app.files(each)
    app.load(data / "rooms.ttl")
    for name, text in queries.items():
        app.add(text, name=name)
    return app


def replayed(data: Path, queries: dict[str, str], by: Any = replay) -> dict[str, list[Result]]:
    store = Store()
    store.load(data / "rooms.ttl")
    sent: dict[str, list[Result]] = {name: [] for name in queries}
    prepared = [prepare(text, name=name) for name, text in queries.items()]
    for query, result in by(prepared, [parse_declaration(each) for each in streams(data)], store, until=60 * 10**9):
        sent[query.name or ""].append(result)
    return sent


def test_the_same_results(spark: SparkSession, data: Path) -> None:
    memory, rejected, metrics = Memory(), list[Rejected](), Metrics()
    run = made(spark, data, QUERIES, until="60s").run(memory, rejects=Rejects(rejected.append), metrics=metrics)
    assert run.wait(600)
    expected = replayed(data, QUERIES)
    assert {name: memory.results(name) for name in QUERIES} == expected
    assert expected == replayed(data, QUERIES, judged)
    assert all(expected.values())
    assert [each.place.rpartition("/")[2] for each in rejected] == ["a.nt:101"]
    totals = metrics.totals
    assert (totals.elements, totals.rejected, totals.rebuilt) == (SIZE + SIZE // 3, 1, 0)
    assert totals.results == sum(map(len, expected.values()))


def test_rows_of_a_data_frame_are_lifted_by_the_driver(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    """Without a Python process of Spark; what is malformed is rejected as ever."""
    memory, rejected = Memory(), list[Rejected]()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes((data / "a.nt").read_bytes())
    app = App(spark, checkpoint=tmp_path / "c", latency="low")
    app.stream("http://ex.org/a", spark.readStream.text(str(tmp_path / "in")), lift=ntriples())
    app.add(LAST, name="last")
    run = app.run(memory, rejects=Rejects(rejected.append))
    expected = replayed(data, {"last": LAST})["last"]
    while len(memory.results("last")) < len(expected):
        assert not run.wait(0.05)
    _, _, liftings = app.in_driver("again", run._manifest, run._dataset, run._checkpoint)
    run.stop()
    assert [*liftings] == [0]
    assert memory.results("last") == expected
    assert [(each.place, each.text) for each in rejected] == [("<source>:101", "this is no triple")]


def test_a_checkpoint_goes_on_with_other_queries(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    """Stopped, changed while it runs, and started again: nothing twice, nothing lost; the other mode is refused."""
    memory, options = Memory(), {"checkpoint": tmp_path / "c", "until": "60s", "changing": True}
    first = made(spark, data, {"join": JOIN}, **options).run(memory, trigger="1 second")
    while not memory.results("join"):
        assert not first.wait(0.05)
    with pytest.raises(CqelsError, match="nothing can be moved"):
        first.change(move={"join": None})
    first.change(add=[prepare(COUNT, name="count"), prepare(LAST, name="last")])
    while not memory.results("last"):
        assert not first.wait(0.05)
    first.change(drop=["last"], add=[prepare(LAST, name="last")])
    first.stop()
    with pytest.raises(CqelsError, match="is of a run with low latency") as refused:
        made(spark, data, QUERIES, **options | {"latency": "normal"}).run(Memory())
    assert "latency low" in str(refused.value.hint)
    metrics = Metrics()
    assert made(spark, data, QUERIES, **options).run(memory, metrics=metrics).wait(600)
    assert metrics.totals.rebuilt == 1
    expected = replayed(data, QUERIES)
    assert memory.results("join") == expected["join"]
    ticks = [each.tick for each in memory.results("last")]
    assert any(one > other for one, other in pairwise(ticks)), "it was another query then"
    assert memory.results("count")[-1].values == expected["count"][-1].values


def test_what_is_done_is_not_done_again(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    """A micro-batch that is given again has the results of its record, and its rows are not asked for."""
    memory = Memory()
    app = made(spark, data, {"join": JOIN}, checkpoint=tmp_path / "c")
    run = app.run(memory)
    assert run.wait(600)
    known = run._checkpoint.done
    (run._checkpoint.folder / "spark" / "commits" / str(known)).unlink()
    _, program, _ = app.in_driver("again", run._manifest, run._dataset, run._checkpoint)
    instance = DriverInstance(run._checkpoint.instance, program, 0)
    instance.open(known - 1)
    nothing: Any = None
    *_, report = instance.rows(nothing, known)
    assert json.loads(report.text)["ended"]
    instance.close()
    with pytest.raises(CqelsError, match=rf"is of micro-batch {known}, and Spark has done {known - 2}"):
        instance.open(known - 2)


def test_a_low_latency_is_of_one_instance() -> None:
    with pytest.raises(CqelsError, match="one engine instance, not 2"):
        AppOptions(latency="low", instances=2)
    app = App(lambda: pytest.fail("Spark is not needed"), latency="low")
    app.files("<http://ex.org/a>=a.nt")
    with pytest.raises(CqelsError, match="nothing is spread"):
        app.add(LAST, spread=True)


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """The driver and its Java are killed once, and the next run goes on: the files of one that nobody disturbed."""
    write_data(tmp_path / "data", 900)
    settings = Settings(str(tmp_path / "data"), "", master="local[2,4]", batch_bytes=8000, latency="low")
    quiet, disturbed = (replace(settings, folder=str(tmp_path / name)) for name in ("quiet", "disturbed"))
    assert Job(quiet).wait() == 0
    job = Job(disturbed)
    try:
        assert job.wait_until(2)
        for each in job.workers():
            kill(each)
        assert job.wait_until(4)
        assert job.kill()
        job = Job(disturbed)
        assert job.wait() == 0, job.said
    finally:
        job.end()
    assert outcome(tmp_path / "disturbed") == outcome(tmp_path / "quiet")
