"""Bad input through an application: the stream goes on, what is bad is told once, and nothing that is right is lost."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels.engine.file_replay import replay
from cqels.ingest import Rejected, Tally, parse_declaration
from cqels.pipeline.sink.reject_files import Rejects
from cqels.plan.prepare import prepare
from cqels.results import Result
from cqels.spark.driver.app import App
from cqels.spark.driver.metrics import Metrics
from cqels.spark.sinks import Memory
from cqels.store.dataset import Store

PREFIX = "PREFIX : <http://ex.org/> "
QUERIES = {
    "count": PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :a [RANGE 1s SLIDE 500ms] { ?s :p ?v } } GROUP BY ?s",
    "join": PREFIX
    + """SELECT ?s ?v (STRLEN(?w) AS ?length) WHERE {
  STREAM :a [RANGE 50ms] { ?s :p ?v } STREAM :a [RANGE 200ms] { ?s :q ?w } }""",
}
SIZE = 4000
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Damaged:
    """A file, the same without what is damaged, and how many lines that is."""

    whole: Path
    clean: Path
    count: int


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    """One line in a hundred is damaged, in every way in turn; besides, some are late and a few are very long."""
    draw = random.Random(5)
    faults = [
        lambda line: line[: draw.randrange(1, line.rindex(b" "))],  # cut
        lambda line: line.replace(b'"', b'"\xff\xfe', 1),  # not UTF-8
        lambda line: line.replace(b'"', b'"\\x', 1),  # no such escape
        lambda line: line.replace(b'"', b'"\\uD800', 1),  # half a character
        lambda line: line[: line.rindex(b" ", 0, -2)] + b" .",  # no time
        lambda line: line[: line.rindex(b" ", 0, -2)] + b" noon .",
        lambda line: line.replace(b'"', b'"' + b"x" * draw.randrange(MEGABYTE, 2 * MEGABYTE), 1).replace(b'" ', b" "),
    ]
    whole, clean = [], []
    for number in range(SIZE):
        at = 10 * number - draw.choice([0, 0, 0, 80]) - (3000 if draw.random() < 0.005 else 0)
        value = "long " * MEGABYTE if number in (700, 2900) else str(draw.randrange(40))
        line = f'<http://ex.org/s{number % 7}> <http://ex.org/{"pq"[number % 2]}> "{value}" {max(0, at)} .'.encode()
        if number % 100 == 99:
            whole.append(faults[number // 100 % len(faults)](line))
        else:
            whole.append(line)
            clean.append(line)
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "whole.nt").write_bytes(b"\n".join(whole) + b"\n")
    (folder / "clean.nt").write_bytes(b"\n".join(clean) + b"\n")
    return Damaged(folder / "whole.nt", folder / "clean.nt", len(whole) - len(clean))


def declared(path: Path) -> str:
    return f"<http://ex.org/a>={path}?lateness=200ms"


def embedded(path: Path) -> tuple[dict[str, list[Result]], list[Rejected], Tally]:
    sent: dict[str, list[Result]] = {name: [] for name in QUERIES}
    rejected: list[Rejected] = []
    tally = Tally()
    queries = [prepare(text, name=name) for name, text in QUERIES.items()]
    streams = [parse_declaration(declared(path))]
    for query, result in replay(queries, streams, Store(), reject=rejected.append, tally=tally):
        sent[query.name or ""].append(result)
    return sent, rejected, tally


def told(rejected: list[Rejected]) -> list[tuple[str, str]]:
    return sorted((each.place, each.reason) for each in rejected)


@pytest.mark.parametrize("batches", [pytest.param(1, marks=pytest.mark.fuzz), 6])
def test_one_percent_of_damage_loses_nothing_else(spark: SparkSession, damaged: Damaged, batches: int) -> None:
    """In one micro-batch, or in some that are as large as a line; with two engines, each of which sees all elements."""
    memory, metrics, rejected = Memory(), Metrics(), list[Rejected]()
    app = App(spark, batch_bytes=damaged.whole.stat().st_size // batches + 1, instances=2)
    app.files(declared(damaged.whole))
    for name, text in QUERIES.items():
        app.add(text, name=name)
    assert app.run(memory, rejects=Rejects(rejected.append), metrics=metrics).wait(600)

    expected, bad, tally = embedded(damaged.whole)
    clean, late, _ = embedded(damaged.clean)
    assert {name: memory.results(name) for name in QUERIES} == expected == clean
    assert all(expected.values())
    assert told(rejected) == told(bad)
    assert len(rejected) == damaged.count + len(late)
    totals = metrics.totals
    assert (totals.elements, totals.rejected, totals.late) == (tally.elements, tally.rejected, tally.late)
    assert totals.rejected == damaged.count
    assert totals.late == len(late) > 0
    assert max(len(each.text) for each in rejected) <= 2000
