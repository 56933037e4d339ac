"""Records of a real Kafka broker become a stream.

The jars of the broker and of Spark's connector come from Maven's repository; where they cannot be had, the tests are
skipped.  They take a minute: `make kafka`.
"""

from __future__ import annotations

import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from cqels import lift
from cqels.model.errors import CqelsError
from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_lifts import Lifting
from cqels.spark import App, sources, start, stop
from cqels.spark.lift.dataframe_lift import DataFrameLift
from cqels.spark.session.kafka_connector import session_settings
from cqels.spark.sinks import Memory

from .broker import Broker, Unavailable

pytestmark = pytest.mark.kafka

STREAM = "http://ex.org/obs"
ALL = PushedPatterns(frozenset([ANYTHING]))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with no other nodes, until the tests are done."""
    try:
        broker = Broker(tmp_path_factory.mktemp("kafka"))
    except Unavailable as error:
        pytest.skip(str(error))
    with broker:
        yield broker.servers


@pytest.fixture(scope="module")
def spark(servers: str) -> Iterator[SparkSession]:
    try:
        settings = session_settings({})
    except CqelsError as error:
        pytest.skip(str(error))
    session = start(master="local[2]", partitions=1, settings=settings)
    yield session
    stop(session)


def send(spark: SparkSession, servers: str, topic: str, values: list[str], partition: int) -> None:
    rows = spark.createDataFrame([(value, partition) for value in values], "value string, partition int").coalesce(1)
    rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def quad(number: int) -> str:
    return f'<http://ex.org/s{number % 3}> <http://ex.org/p> "{number}" <http://ex.org/g{number}> .'


class Killed(Exception):
    """Ends a run in the middle of a micro-batch."""


def test_records_are_elements_at_their_own_time(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """Each once, also across a restart, with the order and the places of their partitions."""
    before = time.time()
    send(spark, servers, "quads", [quad(number) for number in range(50)], 0)
    send(spark, servers, "quads", [*(quad(number) for number in range(100, 150)), "odd"], 1)
    batches: dict[int, list[Any]] = {}

    def keep(frame: Any, number: int) -> None:
        found = frame.collect()
        if number == 1 and 0 not in killed:
            killed.append(0)
            raise Killed
        batches[number] = found

    killed: list[int] = []
    for attempt in range(2):
        rows = sources.kafka(spark, servers, "quads", most=40)
        blocks = DataFrameLift(Lifting(STREAM, 0, lift.nquads(time="kafka"), (ALL,))).apply(rows)
        query = blocks.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        running = query.trigger(availableNow=True).start()
        if attempt == 0:
            with pytest.raises(StreamingQueryException):
                running.awaitTermination(120)
        else:
            assert running.awaitTermination(120)
    found = [row for batch in batches.values() for row in batch]
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    for partition, first in ((0, 0), (1, 100)):
        mine = [row for row in found if row.kind == "block" and row.place == f"quads-{partition}"]
        elements = [
            (at, str(terms.decode(triples[0][2])))
            for row in sorted(mine, key=lambda row: (row.position, row.number))
            for at, _, triples in unpack(bytes(row.block), terms.dictionary).rows()
        ]
        assert [value for _, value in elements] == [f'"{number}"' for number in range(first, first + 50)]
        assert all(before - 1 < at / 1e9 < time.time() + 1 for at, _ in elements)
    assert [row.place for row in found if row.kind == "rejected"] == ["quads-1@50"]


def test_a_query_over_a_topic(spark: SparkSession, servers: str) -> None:
    app = App(spark)
    send(spark, servers, "lines", [f'<http://ex.org/a> <http://ex.org/p> "{n}" {n} .' for n in range(20)], 0)
    app.stream(STREAM, sources.kafka(spark, servers, "lines"), lift=lift.ntriples())
    app.add(f"SELECT ?v WHERE {{ STREAM <{STREAM}> [NOW] {{ ?s <http://ex.org/p> ?v }} }}", name="values")
    memory = Memory()
    run = app.run(memory)
    limit = time.monotonic() + 120
    while len(memory.results("values")) < 20 and time.monotonic() < limit:
        assert not run.wait(0.2)
    run.stop()
    assert [str(result.values[0]) for result in memory.results("values")] == [f'"{n}"' for n in range(20)]


def test_a_declared_topic(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """As on the command line, and the same rows as the embedded source has: keys, headers and times in a template."""
    (tmp_path / "t.toml").write_text(
        'subject = "http://ex.org/{sensor}"\n[predicates]\n'
        '"http://ex.org/p" = { column = "t" }\n"http://ex.org/topic" = { column = "@topic" }\n'
    )
    send(spark, servers, "declared", [f'{{"sensor": "a", "t": {n}}}' for n in range(20)], 0)
    app = App(spark)
    app.source(f"<{STREAM}>=kafka://{servers}/declared?template={tmp_path}/t.toml&time=source")
    pattern = "?s <http://ex.org/p> ?v ; <http://ex.org/topic> ?t"
    app.add(f"SELECT ?v ?t WHERE {{ STREAM <{STREAM}> [NOW] {{ {pattern} }} }}", name="values")
    memory = Memory()
    run = app.run(memory)
    limit = time.monotonic() + 120
    while len(memory.results("values")) < 20 and time.monotonic() < limit:
        assert not run.wait(0.2)
    run.stop()
    found = [(int(each.values[0].value), each.values[1].value) for each in memory.results("values")]
    assert found == [(n, "declared") for n in range(20)]


def test_the_example(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """`examples/kafka` gives what `examples/json` gives of the same records."""
    examples = Path(__file__).parents[2] / "examples"
    example = runpy.run_path(str(examples / "kafka" / "parcels.py"))
    send(spark, servers, "parcels", (examples / "json" / "parcels.jsonl").read_text().splitlines(), 0)
    memory = Memory()
    run = example["application"](spark, servers, "parcels", str(tmp_path / "state")).run(memory)
    run.query.processAllAvailable()
    run.stop()
    found = [(row.nanoseconds // 10**9, row.city.value, int(row.parcels.value)) for row in memory.results()]
    assert found == [(60, "Cork", 1), (60, "Galway", 3), (120, "Cork", 1)]
