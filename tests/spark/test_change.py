"""Queries that come, go and move while a pipeline runs on Spark: each sends what it sends in an engine of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels import Engine
from cqels.ingest import StreamSettings
from cqels.model.errors import CqelsError, QueryError
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.results import Result
from cqels.spark.driver.app import App
from cqels.spark.driver.metrics import Metrics
from cqels.spark.driver.placement import Load, another_key, checked, partition, placed
from cqels.spark.driver.run import Run
from cqels.spark.sinks import Memory

S = "http://ex.org/s"
PREFIX = "PREFIX : <http://ex.org/> "
ALL = PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :s [ALL] { ?s :p ?v } } GROUP BY ?s"
JOIN = PREFIX + "SELECT ?s ?t WHERE { STREAM :s [RANGE 200ms] { ?s :p ?v . ?t :q ?v } }"
LAST = PREFIX + "SELECT ?s ?v WHERE { STREAM :s [TRIPLES 20] { ?s :q ?v } FILTER(?v = 4) }"
MADE = PREFIX + "CONSTRUCT { ?s :seen ?v } WHERE { STREAM :s [NOW] { ?s :p ?v } FILTER(?v = 4) }"
READER = PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :made [ALL] { ?s :seen ?v } } GROUP BY ?s"
COMING, READING = "http://ex.org/made", "reader"
PART = 300


def lines(part: int) -> str:
    """Some elements, all of them after those of the part before."""
    kind = "http://www.w3.org/2001/XMLSchema#integer"
    return "".join(
        f'<http://ex.org/s{i % 9}> <http://ex.org/{"pq"[i % 2]}> "{i * i % 7}"^^<{kind}> {i * 10} .\n'
        for i in range(part * PART, (part + 1) * PART)
    )


class Both:
    """A pipeline on Spark and an engine here, to which the same happens."""

    def __init__(self, spark: SparkSession, folder: Path, queries: dict[str, str], **options: Any) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        self.memory, self.metrics = Memory(), Metrics()
        self.app = App(spark, checkpoint=folder / "checkpoint", follow=True, batch_bytes=16_000, **options)
        self.app.files(f"<{S}>={folder}/in/*.nt")
        self.engine = Engine()
        self.engine.internals.declare(StreamSettings(S))
        self.sent: dict[str, list[Result]] = {}
        self.parts = 0
        for name, text in queries.items():
            self._expect(self.app.add(text, name=name))
        self.run: Run = self.app.run(self.memory, metrics=self.metrics)

    def _expect(self, query: Query) -> None:
        self.sent.setdefault(query.name or "", [])
        self.engine.register(query, callback=self.sent[query.name or ""].append)

    def go_on(self, *, wait: bool = True) -> None:
        """Another part comes; without waiting, something else happens while it does."""
        text = lines(self.parts)
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.folder / "in" / f"{self.parts}.nt")
        self.parts += 1
        self.engine.push(S, text.encode())
        limit = monotonic() + 120
        while wait and self.metrics.totals.elements < self.parts * PART:
            assert not self.run.wait(0.05)
            assert monotonic() < limit

    def change(self, *, add: dict[str, str] | None = None, drop: tuple[str, ...] = (), **options: Any) -> None:
        for name in drop:
            self.engine.drop(name)
        queries = [prepare(text, name=name) for name, text in (add or {}).items()]
        self.run.change(add=queries, drop=drop, **options)
        for query in queries:
            self._expect(query)

    def check(self) -> None:
        found = {name: self.memory.results(name) for name in self.sent}
        assert found == self.sent
        assert all(found.values())


@pytest.fixture
def stopped() -> Iterator[list[Both]]:
    made: list[Both] = []
    yield made
    for each in made:
        each.run.stop()
        each.engine.close()


def test_queries_come_go_and_move(spark: SparkSession, tmp_path: Path, stopped: list[Both]) -> None:
    both = Both(spark, tmp_path, {"all": ALL, "join": JOIN})
    stopped.append(both)
    assert sorted(both.run.placed.values()) == [0, 1]
    both.go_on()
    both.change(move={"all": None})
    assert both.run.placed["all"] == 2
    both.go_on()
    both.change(add={"last": LAST, COMING: MADE, READING: READER}, move={"join": 2, "all": 0})
    assert both.run.placed[COMING] == both.run.placed[READING]
    both.go_on()
    both.change(add={"join": JOIN}, drop=("join",), move={READING: None, "last": None})
    both.change(move={COMING: None}, drop=("all",))
    assert both.run.placed[COMING] == both.run.placed[READING]
    both.go_on()
    both.check()
    limit = monotonic() + 60
    while len(list((tmp_path / "checkpoint").glob("origin-*"))) > 2:  # they go when a micro-batch has been delivered
        assert not both.run.wait(0.05)
        assert monotonic() < limit


def test_moving_while_elements_come(spark: SparkSession, tmp_path: Path, stopped: list[Both]) -> None:
    both = Both(spark, tmp_path, {"all": ALL, "join": JOIN, "last": LAST}, placement="rotation")
    stopped.append(both)
    for name in ("all", "join", "all"):
        both.go_on(wait=False)
        both.change(move={name: None})
    both.go_on()
    both.check()


def test_another_process_goes_on_where_queries_have_moved(spark: SparkSession, tmp_path: Path) -> None:
    """The run is left right after a change, before the next micro-batch."""
    both = Both(spark, tmp_path, {"all": ALL, "join": JOIN})
    both.go_on()
    both.change(add={"last": LAST}, move={"all": None})
    both.run.stop()
    again = App(spark, checkpoint=tmp_path / "checkpoint", follow=True, batch_bytes=16_000)
    again.files(f"<{S}>={tmp_path}/in/*.nt")
    for name, text in {"all": ALL, "join": JOIN, "last": LAST}.items():
        again.add(text, name=name)
    both.metrics = Metrics()
    both.metrics.totals.elements = PART
    where = both.run.placed
    both.run = again.run(both.memory, metrics=both.metrics)
    try:
        assert both.run.placed == where
        both.go_on()
        both.check()
    finally:
        both.run.stop()
        both.engine.close()


def test_what_cannot_be_changed(spark: SparkSession, tmp_path: Path, stopped: list[Both]) -> None:
    both = Both(spark, tmp_path, {"all": ALL, "join": JOIN})
    stopped.append(both)
    both.go_on()
    with pytest.raises(CqelsError, match="there is no query none"):
        both.run.change(drop=["none"])
    with pytest.raises(CqelsError, match="query none does not run"):
        both.run.change(move={"none": None})
    with pytest.raises(CqelsError, match="there is no instance 7"):
        both.run.change(move={"all": 7})
    with pytest.raises(CqelsError, match="no query would be left"):
        both.run.change(drop=["all", "join"])
    with pytest.raises(QueryError, match="is not declared"):
        both.run.change(add=[LAST, "SELECT * WHERE { STREAM <http://ex.org/none> [NOW] { ?s ?p ?o } }"])
    both.go_on()
    both.check()
    assert set(both.run.placed) == {"all", "join"}
    both.run.stop()
    with pytest.raises(CqelsError, match="does not run"):
        both.run.change(drop=["all"])


def test_elements_that_are_held_back(spark: SparkSession, tmp_path: Path) -> None:
    """They have the triples that the queries can match: a query that comes may want others."""
    (tmp_path / "in").mkdir()
    for changing in (False, True):
        app = App(spark, follow=True, changing=changing)
        app.files(f"<{S}>={tmp_path}/in/*.nt?lateness=1s")
        app.add(ALL, name="all")
        run = app.run(Memory())
        try:
            if changing:
                assert [query.name for query in run.change(add=[LAST])] == ["query-1"]
                continue
            with pytest.raises(CqelsError, match="held back"):
                run.change(add=[LAST])
        finally:
            sleep(0.1)
            run.stop()


# ---------------------------------------------------------------- where queries go


def named(texts: dict[str, str]) -> list[Query]:
    return [prepare(text, name=name) for name, text in texts.items()]


def asking(value: int) -> str:
    return PREFIX + f"SELECT ?s WHERE {{ STREAM :s [RANGE 1s] {{ ?s :p :o{value} }} }}"


@pytest.mark.parametrize("strategy", ["buffers", "latency"])
def test_queries_of_one_kind_are_together(strategy: str) -> None:
    queries = named({f"{kind}{number}": text for number in range(5) for kind, text in (("t", asking(number)),)})
    where = placed([*queries, *named({"all": ALL, "join": JOIN})], 3, strategy=strategy)
    assert len({where[f"t{number}"] for number in range(5)}) == 1
    assert len({*where.values()}) == 3
    rotated = placed(queries, 3, strategy="rotation")
    assert [rotated[f"t{number}"] for number in range(5)] == [0, 1, 2, 0, 1]


def test_a_query_goes_where_there_is_least_to_do() -> None:
    queries = named({"all": ALL, "join": JOIN, "last": LAST})
    before = {"all": 0, "join": 1}
    loads = {0: Load(bytes=9000, seconds=0.1), 1: Load(bytes=100, seconds=0.9)}
    assert placed(queries, 2, before, strategy="buffers", loads=loads)["last"] == 1
    assert placed(queries, 2, before, strategy="latency", loads=loads)["last"] == 0
    assert placed(queries, 2, before, strategy="buffers", loads=loads, closed={1})["last"] == 0
    with pytest.raises(CqelsError, match="no placement 'luck'"):
        checked("luck")


def test_among_equals_one_that_has_the_streams() -> None:
    other = PREFIX + "SELECT ?s WHERE { STREAM :other [NOW] { ?s ?p ?v } }"
    queries = named({"other": other, "all": ALL, "last": LAST})
    loads = {0: Load(bytes=1000), 1: Load(bytes=1100)}
    assert placed(queries, 2, {"other": 0, "all": 1}, strategy="buffers", loads=loads)["last"] == 1


def test_makers_on_different_instances_have_no_reader() -> None:
    texts = {"http://ex.org/one": MADE, "http://ex.org/two": MADE}
    both = PREFIX + "SELECT * WHERE { STREAM :one [NOW] { ?s ?p ?o } STREAM :two [NOW] { ?s ?p ?o } }"
    where = placed(named(texts), 2)
    with pytest.raises(CqelsError, match="different engine instances"):
        placed(named({**texts, "both": both}), 2, where)


def test_another_key_is_in_the_partition() -> None:
    found = another_key([0, 1, 2], 1, 4)
    assert found > 2
    assert partition(found, 4) == 1
