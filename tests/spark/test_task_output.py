"""Tasks write results themselves: the same ones, each once through failures, and they do not come to the driver."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels.engine.file_replay import replay
from cqels.ingest import parse_declaration
from cqels.model.errors import CqelsError
from cqels.pipeline.lift.row_schemas import RESULTS
from cqels.pipeline.sink.part_sink import committed_parts
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.text_formats import body
from cqels.plan.prepare import prepare
from cqels.results import Result
from cqels.spark import App
from cqels.spark.driver.batch_results import BatchResults
from cqels.spark.driver.run import Run
from cqels.spark.sinks import ForQueries, Memory, Webhook, sink_of
from cqels.store.dataset import Store

from .sending import sent_of

SIZE = 1500
ALL = "PREFIX : <http://ex.org/> SELECT ?s ?v WHERE { STREAM :a [NOW] { ?s :p ?v } }"
COUNT = "PREFIX : <http://ex.org/> SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :a [RANGE 1s] { ?s :p ?v } } GROUP BY ?s"
QUERIES = {"all": ALL, "count": COUNT}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "a.nt"
    path.write_text("".join(f'<http://ex.org/s{i % 9}> <http://ex.org/p> "{i}" {i * 10} .\n' for i in range(SIZE)))
    return f"<http://ex.org/a>={path}"


def application(spark: SparkSession, stream: str, checkpoint: Path, *, spread: bool = False) -> App:
    app = App(spark, checkpoint=checkpoint, instances=2, batch_bytes=20_000)
    app.files(stream)
    app.add(ALL, name="all")
    app.add(COUNT, name="count", spread=spread)
    return app


def expected(stream: str) -> dict[str, list[str]]:
    prepared = [prepare(text, name=name) for name, text in QUERIES.items()]
    sent: dict[str, list[Result]] = {name: [] for name in QUERIES}
    for query, result in replay(prepared, [parse_declaration(stream)], Store()):
        sent[query.name or ""].append(result)
    return {
        query.name or "": body(sent_of(query, sent[query.name or ""]), "csv")[0].decode().splitlines()
        for query in prepared
    }


def rows(place: Path, query: str) -> list[str]:
    parts = committed_parts(place / query)
    assert {*parts} == {*(place / query).glob("part-*")}
    return [line for part in parts for line in part.read_text().splitlines()[1:]]


class Once:
    """A sink that fails at its third batch, once for all."""

    place, promise = "here", "nothing"
    failed = False

    def open(self, *given: Any, **more: Any) -> None: ...

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if batch == 2 and not Once.failed:
            Once.failed = True
            raise RuntimeError("not now")

    def close(self) -> None: ...


def test_parts_are_written_by_tasks(
    spark: SparkSession, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink fails between the tasks and the commit; a partitioned query is written by the driver."""
    came: set[str] = set()
    read = BatchResults.read

    def counted(results: BatchResults, batch: int, rows: Any, reports: Any) -> Any:
        came.update(row.query for row in rows if row.kind == RESULTS)
        return read(results, batch, rows, reports)

    monkeypatch.setattr(BatchResults, "read", counted)
    place = tmp_path / "results"

    def start() -> Run:
        app = application(spark, stream, tmp_path / "state", spread=True)
        return app.run(ForQueries(Once(), []), sink_of(f"{place}/?parts"))

    with pytest.raises(CqelsError, match="not now"):
        start().wait(300)
    assert start().wait(300)
    assert {name: rows(place, name) for name in QUERIES} == expected(stream)
    assert len(committed_parts(place / "all")) > 3
    assert "all" not in came
    assert came


def test_a_run_is_stopped_while_a_sink_waits(spark: SparkSession, stream: str, tmp_path: Path) -> None:
    """Nobody listens there; the next run begins with the batch that was not delivered."""
    run = application(spark, stream, tmp_path / "state").run(Webhook("http://127.0.0.1:9/", timeout=1))
    assert not run.wait(5)
    began = monotonic()
    stopper = threading.Thread(target=run.stop)
    stopper.start()
    stopper.join(60)
    assert not stopper.is_alive()
    assert monotonic() - began < 30
    memory = Memory()
    app = application(spark, stream, tmp_path / "state")
    assert app.run(memory, ForQueries(sink_of(f"{tmp_path}/results/?parts"), ["all"])).wait(300)
    assert rows(tmp_path / "results", "all") == expected(stream)["all"]
    assert {name: len(memory.results(name)) for name in QUERIES} == {
        name: len(lines) for name, lines in expected(stream).items()
    }
