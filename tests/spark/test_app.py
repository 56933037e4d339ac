"""Queries on Spark give what the embedded engine gives, whatever the size of the micro-batches and across restarts."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqels.engine.engine import Engine
from cqels.model.errors import CqelsError

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from pyspark.sql import DataFrame, SparkSession

from cqels.spark import App, start, stop
from cqels.spark.lift import Lift, ntriples
from cqels.spark.sources import lines, whole_files

OBS, DOORS = "http://ex.org/obs", "http://ex.org/doors"
FILES = 3
QUERIES = {
    "join": f"""
        PREFIX : <http://ex.org/>
        SELECT ?room (COUNT(*) AS ?n) WHERE {{
          STREAM <{OBS}> [RANGE 3s] {{ ?s :temp ?t }} ?s :in ?room FILTER(?t > 30)
        }} GROUP BY ?room""",
    "slide": f"PREFIX : <http://ex.org/> SELECT ?s ?t WHERE {{ STREAM <{OBS}> [RANGE 2s SLIDE 1s] {{ ?s :temp ?t }} }}",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    try:
        session = start(master="local[2]", partitions=1)
    except CqelsError as error:
        pytest.skip(str(error))
    yield session
    stop(session)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Readings in some files, one after the other, some lines malformed; and a file of rooms."""
    draw = random.Random(7)
    folder = tmp_path_factory.mktemp("data")
    (folder / "rooms.ttl").write_text(
        "".join(f"<http://ex.org/s{n}> <http://ex.org/in> <http://ex.org/room{n % 3}> .\n" for n in range(10))
    )
    for stream in ("obs", "doors"):
        (folder / stream).mkdir()
        time = 0
        for number in range(FILES):
            texts = []
            for _ in range(60):
                time += draw.choice([0, 0, 20, 150])
                subject = f"<http://ex.org/s{draw.randrange(12)}>"
                value = f'"{draw.randrange(20, 40)}"^^<http://www.w3.org/2001/XMLSchema#integer>'
                predicate = draw.choice(["temp", "temp", "other"]) if stream == "obs" else "open"
                texts.append(f"{subject} <http://ex.org/{predicate}> {value} {time} .")
            texts.append("malformed")
            path = folder / stream / f"{number}.nt"
            path.write_text("\n".join(texts) + "\n")
            os.utime(path, (1000 + number, 1000 + number))  # Spark reads the oldest file first
    return folder


def rows(spark: SparkSession, folder: Path, per_batch: int, *, whole: bool = True) -> DataFrame:
    return (whole_files if whole else lines)(spark, str(folder), most=per_batch)


def embedded(text: str, files: Path, emit: str, streams: dict[str, str], idle: str = "0s") -> list[tuple[Any, ...]]:
    """What the engine in this process sends, all given to it at once."""
    from cqels.engine.batch import Batch
    from cqels.engine.replay import merged

    with Engine(reject=lambda rejected: None) as engine:
        for iri in streams:
            engine.stream(iri, idle=idle)
        engine.load(files / "rooms.ttl")
        query = engine.register(text, emit=emit)
        batches = []
        for number, name in enumerate(streams.values()):
            data = b"".join(path.read_bytes() for path in sorted((files / name).iterdir()))
            batches.append(engine.intake.lines(number, data, reject=lambda line, reason, text: None)[0])
        engine.push_batch(Batch.concatenate(merged(iter([each]) for each in batches)))
        return [
            (each.time, each.tick, each.sign, [None if term is None else str(term) for term in each.values])
            for each in query.results()
        ]


def run(results: DataFrame, folder: Path) -> None:
    """Run until all that is there is read, writing files."""
    writing = results.writeStream.format("json").option("checkpointLocation", str(folder / "checkpoint"))
    query = writing.trigger(availableNow=True).start(str(folder / "out"))
    try:
        assert query.awaitTermination(90)
    finally:
        query.stop()


def written(spark: SparkSession, folder: Path) -> tuple[list[tuple[Any, ...]], int]:
    """The results in the order of their numbers, which have no gap and no repetition; how many lines were rejected."""
    found = spark.read.json(str(folder / "out")).collect()
    results = sorted((row for row in found if row.kind == "result"), key=lambda row: row.number)
    assert [row.number for row in results] == list(range(len(results)))
    assert not [row for row in found if row.kind == "late"]
    return (
        [(row.time, row.tick, row.sign, row["values"]) for row in results],
        sum(row.kind == "rejected" for row in found),
    )


def app(spark: SparkSession, files: Path, per_batch: int, lift: Lift | None = None, **options: Any) -> App:
    made = App(spark)
    made.stream(OBS, rows(spark, files / "obs", per_batch, **options), lift=lift or ntriples())
    made.load(files / "rooms.ttl")
    return made


@pytest.mark.parametrize("per_batch", [1, 100])
def test_the_size_of_micro_batches_does_not_matter(
    spark: SparkSession, files: Path, tmp_path: Path, per_batch: int
) -> None:
    run(app(spark, files, per_batch).register(QUERIES["join"], emit="changes"), tmp_path)
    expected = embedded(QUERIES["join"], files, "changes", {OBS: "obs"})
    assert len(expected) > 20
    assert written(spark, tmp_path) == (expected, FILES)


def test_lines_of_text_and_a_sliding_window(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    run(app(spark, files, 2, whole=False).register(QUERIES["slide"], emit="istream"), tmp_path)
    expected = embedded(QUERIES["slide"], files, "istream", {OBS: "obs"})
    assert len(expected) > 20
    assert written(spark, tmp_path) == (expected, FILES)


def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """A new application has a new name, so that no engine in a worker is that of the one before."""
    folder = tmp_path / "data"
    (folder / "obs").mkdir(parents=True)
    (folder / "rooms.ttl").write_bytes((files / "rooms.ttl").read_bytes())
    paths = sorted((files / "obs").iterdir())
    for part in (paths[:2], paths[2:]):
        for path in part:
            (folder / "obs" / path.name).write_bytes(path.read_bytes())
        run(app(spark, folder, 100).register(QUERIES["join"], emit="changes"), tmp_path)
    assert written(spark, tmp_path) == (embedded(QUERIES["join"], files, "changes", {OBS: "obs"}), FILES)


def test_what_is_missing_is_told(spark: SparkSession, files: Path) -> None:
    with pytest.raises(CqelsError, match="no stream"):
        App(spark).register(QUERIES["join"])
    with pytest.raises(CqelsError, match="is not declared") as caught:
        app(spark, files, 1).register(QUERIES["join"].replace(OBS, DOORS))
    assert caught.value.source is not None
    made = App(spark)
    made.stream(OBS, rows(spark, files / "obs", 1).withColumnRenamed("value", "content"), lift=ntriples())
    with pytest.raises(CqelsError, match="no column 'value'"):
        made.register(QUERIES["join"])
