"""Applications on Spark: they send what the embedded engine sends, and go on from their checkpoints."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels.engine.file_replay import replay
from cqels.ingest import Rejected, parse_declaration
from cqels.model.errors import CqelsError, DataError, QueryError
from cqels.pipeline.lift.row_lifts import ntriples
from cqels.pipeline.sink.reject_files import Rejects
from cqels.plan.prepare import prepare
from cqels.results import Result
from cqels.spark.driver import pipeline_builder
from cqels.spark.driver.app import App
from cqels.spark.driver.metrics import Metrics
from cqels.spark.driver.placement import _hash, keys, placed
from cqels.spark.session.class_archive import archive_path
from cqels.spark.session.java import find_java
from cqels.spark.session.spark_home import spark_home
from cqels.spark.sinks import Callback, Memory
from cqels.spark.worker_start import prepare_worker
from cqels.store.dataset import Store

PREFIX = "PREFIX : <http://ex.org/> "
JOIN = (
    PREFIX
    + """SELECT ?s ?v ?o ?room WHERE {
  STREAM :a [RANGE 100ms] { ?s :p ?v } STREAM :b [RANGE 200ms] { ?s :q ?o } ?s :in ?room }"""
)
COUNT = PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :a [RANGE 1s SLIDE 500ms] { ?s :p ?v } } GROUP BY ?s"
MADE = PREFIX + "CONSTRUCT { ?s :seen ?v } WHERE { STREAM :a [NOW] { ?s :p ?v } FILTER(?v = 3) }"
READER = PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :made [ELEMENTS 10] { ?s :seen ?v } } GROUP BY ?s"
SIZE = 2000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    kind = "http://www.w3.org/2001/XMLSchema#integer"
    first = [f'<http://ex.org/s{i % 9}> <http://ex.org/p> "{i % 7}"^^<{kind}> {i * 10} .\n' for i in range(SIZE)]
    second = [
        f"<http://ex.org/s{i % 9}> <http://ex.org/q> <http://ex.org/o{i % 3}> {i * 25} .\n" for i in range(SIZE // 3)
    ]
    (folder / "a1.nt").write_text("".join(first[: SIZE // 2]))
    (folder / "a2.nt").write_text("".join(first[SIZE // 2 :]) + "this is no triple\n")
    (folder / "b.nt").write_text("".join(second))
    (folder / "rooms.ttl").write_text(
        "@prefix : <http://ex.org/> . " + " ".join(f":s{i} :in :r{i % 2} ." for i in range(9))
    )
    return folder


def streams(data: Path) -> list[str]:
    return [f"<http://ex.org/a>={data}/a*.nt", f"<http://ex.org/b>={data}/b.nt"]


def made(spark: SparkSession, data: Path, queries: dict[str, str], **options: Any) -> App:
    app = App(spark, **options)
    for each in streams(data):
        app.files(each)
    app.load(data / "rooms.ttl")
    for name, text in queries.items():
        app.add(text, name=name)
    return app


def embedded(data: Path, queries: dict[str, str], **options: Any) -> dict[str, list[Result]]:
    store = Store()
    store.load(data / "rooms.ttl")
    sent: dict[str, list[Result]] = {name: [] for name in queries}
    prepared = [prepare(text, name=name) for name, text in queries.items()]
    for query, result in replay(prepared, [parse_declaration(each) for each in streams(data)], store, **options):
        sent[query.name or ""].append(result)
    return sent


@pytest.mark.parametrize("size", [None, 20_000])
def test_the_same_results(spark: SparkSession, data: Path, size: int | None) -> None:
    queries = {"join": JOIN, "count": COUNT, "http://ex.org/made": MADE, "reader": READER}
    memory, rejected = Memory(), list[Rejected]()
    app = made(spark, data, queries, batch_bytes=size, until="60s")
    metrics = Metrics()
    assert app.run(memory, rejects=Rejects(rejected.append), metrics=metrics).wait(600)
    assert metrics.totals.rebuilt == 0, "whichever process gets a task attaches the engine"
    expected = embedded(data, queries, until=60 * 10**9)
    assert {name: memory.results(name) for name in queries} == expected
    assert all(expected.values())
    assert [each.place for each in rejected] == [f"{data}/a2.nt:{SIZE // 2 + 1}"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_sink_that_fails_ends_the_run_and_is_told(
    spark: SparkSession, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, waits: bool
) -> None:
    """To whoever waits, to whoever only stops it later, and in the log; once it is mended the run goes on."""
    said = "the sink Callback failed: TypeError: unsupported operand"
    results: list[Result] = []

    def fail(result: Result) -> None:
        results.append(result.time / "no number")  # type: ignore[operator]

    run = made(spark, data, {"count": COUNT}, checkpoint=tmp_path, until="60s").run(Callback(fail))
    limit = monotonic() + 600
    while not waits and said not in caplog.text and monotonic() < limit:
        sleep(0.05)
    with pytest.raises(CqelsError, match=said) as told:
        run.wait(600) if waits else run.stop()
    assert isinstance(told.value.__cause__, TypeError)
    assert said in caplog.text
    memory = Memory()
    assert made(spark, data, {"count": COUNT}, checkpoint=tmp_path, until="60s").run(memory).wait(600)
    assert memory.results("count") == embedded(data, {"count": COUNT}, until=60 * 10**9)["count"]


@pytest.mark.parametrize("declared", [["<http://ex.org/a>={}/*.nt"], ["<http://ex.org/a>={}/1.nt"] * 2])
def test_one_stream_from_several_files_is_merged_by_time(
    spark: SparkSession, data: Path, tmp_path: Path, declared: list[str]
) -> None:
    """Files that overlap, in one declaration or in two; also where one run ends in the middle and another goes on."""
    lines = (data / "a1.nt").read_text().splitlines(keepends=True)
    folders = [tmp_path / name for name in "ab"]
    for place, folder in enumerate(folders):
        folder.mkdir()
        (folder / "1.nt").write_text("".join(lines[place::4]))
        (folder / "2.nt").write_text("".join(lines[place + 2 :: 4]))
        (folder / "3.nt").write_text("no element\n")
    files = [each.format(folder) for folder, each in zip(folders, declared, strict=False)]
    queries = {"count": COUNT, "all": PREFIX + "SELECT ?s ?v WHERE { STREAM :a [RANGE 30ms] { ?s :p ?v } }"}

    def app() -> App:
        made = App(spark, checkpoint=tmp_path / "c", batch_bytes=4_000)
        for each in files:
            made.files(each)
        for name, text in queries.items():
            made.add(text, name=name)
        return made

    memory, rejected = Memory(), list[Rejected]()
    first = app().run(memory, rejects=Rejects(rejected.append))
    while not memory.results("all"):
        assert not first.wait(0.1)
    first.stop()
    assert app().run(memory, rejects=Rejects(rejected.append)).wait(600)
    expected = list(
        replay([prepare(text, name=name) for name, text in queries.items()], map(parse_declaration, files), Store())
    )
    for name in queries:
        assert memory.results(name) == [result for query, result in expected if query.name == name]
    assert len(memory.results("all")) >= SIZE // 4
    assert {each.reason.partition(" ")[0] for each in rejected} <= {"expected"}


def test_a_checkpoint_goes_on(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    """Stopped after some batches and started again, with one more query: nothing twice, nothing lost.

    The session asks for another number of partitions by then; the state stays where it is.  The checksums of its
    files are those of others, as if a process had been killed between writing the one and the other.
    """
    memory = Memory()
    queries = {"join": JOIN, "count": COUNT}
    first = made(spark, data, queries, checkpoint=tmp_path / "c", batch_bytes=20_000).run(memory)
    while not (memory.results("join") and memory.results("count")):
        assert not first.wait(0.1)
    first.stop()
    known = len(memory.results("join"))
    checksums = list((tmp_path / "c" / "spark" / "state").glob("**/.*.changelog.crc"))
    for path in checksums:
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert checksums
    more = {**queries, "http://ex.org/made": MADE}
    spark.conf.set("spark.sql.shuffle.partitions", 3)
    try:
        again = made(spark, data, more, checkpoint=tmp_path / "c", batch_bytes=40_000)
        assert again.run(memory).wait(600)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
    assert {name: memory.results(name) for name in queries} == embedded(data, queries)
    assert known < len(memory.results("join"))
    assert memory.results("http://ex.org/made")
    nothing = made(spark, data, more, checkpoint=tmp_path / "c").run(Memory())
    assert nothing.wait(5)

    with pytest.raises(CqelsError, match="query count has changed"):
        made(spark, data, {**more, "count": COUNT + " LIMIT 1"}, checkpoint=tmp_path / "c").run(Memory())
    with pytest.raises(CqelsError, match="there is no query join any more"):
        made(spark, data, {"count": COUNT}, checkpoint=tmp_path / "c").run(Memory())
    changed = made(spark, data, more, checkpoint=tmp_path / "c")
    (tmp_path / "more.ttl").write_text("<http://ex.org/s1> <http://ex.org/in> <http://ex.org/r7> .")
    changed.load(tmp_path / "more.ttl")
    with pytest.raises(CqelsError, match="the static data has changed"):
        changed.run(Memory())


def test_a_data_frame_of_results(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    rows = spark.readStream.text(str(data / "a*.nt"))
    app = App(spark)
    app.stream("http://ex.org/a", rows, lift=ntriples())
    frame = app.register(PREFIX + "SELECT ?s ?v WHERE { STREAM :a [NOW] { ?s :p ?v } }", types={"v": "integer"})
    assert dict(frame.dtypes) == {"time": "timestamp", "tick": "bigint", "sign": "string", "s": "string", "v": "bigint"}
    query = frame.writeStream.format("memory").queryName("results").trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None
    found = spark.sql("SELECT count(*), max(v), min(s) FROM results").first()
    assert found is not None
    assert tuple(found) == (SIZE, 6, "http://ex.org/s0")


def test_much_static_data_is_a_file(spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_builder, "LARGEST_CARRIED", 10)
    memory = Memory()
    assert made(spark, data, {"join": JOIN}).run(memory).wait(600)
    assert memory.results("join") == embedded(data, {"join": JOIN})["join"]


def test_what_no_sink_takes_is_in_the_log(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that no parser takes, and what is late."""
    poison = b'<http://ex.org/s> <http://ex.org/p> "x\\n\xff" 1 .\n'
    late = '<http://ex.org/s> <http://ex.org/p> "b" 5 .\n<http://ex.org/s> <http://ex.org/p> "a" 1 .\n'
    (tmp_path / "a.nt").write_bytes(poison * 7 + late.encode())
    app, memory = App(spark), Memory()
    app.files(f"<http://ex.org/a>={tmp_path}/a.nt")
    app.add(PREFIX + "SELECT ?v WHERE { STREAM :a [RANGE 1s] { ?s :p ?v } }", name="all")
    assert app.run(memory).wait(600)
    assert [result.values[0].value for result in memory.results("all") if result.values[0]] == ["b"]
    assert caplog.messages == [
        *(f"rejected: {tmp_path}/a.nt:{line}: the text is not UTF-8" for line in range(1, 6)),
        "rejected: 8 elements of stream <http://ex.org/a> were rejected or late",
    ]


def test_strict_stops_with_the_place(spark: SparkSession, data: Path) -> None:
    run = made(spark, data, {"count": COUNT}, strict=True).run(Memory())
    with pytest.raises(DataError, match=f"a2.nt:{SIZE // 2 + 1}"):
        run.wait(600)


def test_what_cannot_run_is_refused(spark: SparkSession, data: Path) -> None:
    app = made(spark, data, {"count": COUNT})
    with pytest.raises(QueryError, match=r"stream <http://ex.org/none> is not declared"):
        app.add("SELECT * WHERE { STREAM <http://ex.org/none> [NOW] { ?s ?p ?o } }")
    with pytest.raises(CqelsError, match="there is a query count already"):
        app.add(COUNT, name="count")
    with pytest.raises(CqelsError, match="is declared twice, with another lateness"):
        app.files(streams(data)[0] + "?lateness=2s")
    with pytest.raises(CqelsError, match="has no query"):
        made(spark, data, {}).run()


def test_keys_are_spread_as_spark_does(spark: SparkSession) -> None:
    row = spark.sql("SELECT " + ", ".join(f"hash({key})" for key in range(-3, 20))).first()
    assert row is not None
    assert list(row) == [_hash(key) for key in range(-3, 20)]
    assert len({_hash(key) % 4 for key in keys(4, 4)}) == 4


def test_java_uses_the_archive_of_its_classes_where_there_is_one(spark: SparkSession) -> None:
    """It would go on without a word if it did not fit."""
    path = archive_path(find_java(), spark_home())
    process = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}")
    if path is None or not process.exists():
        pytest.skip("there is no cache, or no /proc")
    started_with = str(path).encode() in (process / "cmdline").read_bytes()  # the archive may have come since
    assert (str(path) in (process / "maps").read_text()) == started_with


def test_a_worker_looks_at_no_module_for_garbage(spark: SparkSession) -> None:
    """PySpark collects garbage after every task."""

    def frozen(rows: Iterator[Any]) -> Iterator[int]:
        prepare_worker()
        yield gc.get_freeze_count()

    assert gc.get_freeze_count() < 50_000, "it is not done in the driver"
    assert min(spark.sparkContext.parallelize(range(2), 2).mapPartitions(frozen).collect()) > 50_000


def test_queries_that_read_each_other_are_together() -> None:
    queries = [prepare(text, name=name) for name, text in {"a": COUNT, "http://ex.org/made": MADE, "r": READER}.items()]
    where = placed(queries, 2)
    assert where["http://ex.org/made"] == where["r"] != where["a"]
    more = placed([*queries, prepare(JOIN, name="j"), prepare(JOIN, name="k")], 2, where)
    assert {name: more[name] for name in where} == where
    assert more["j"] != more["k"]


def test_ten_thousand_queries_are_placed_at_once() -> None:
    planned = prepare(COUNT)
    queries = [replace(planned, name=f"{number}") for number in range(10_000)]
    where = placed(queries, 3)
    assert sorted(where.values()) == sorted(number % 3 for number in range(10_000))
