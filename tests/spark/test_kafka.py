"""Records of a real Kafka broker become a stream.

The jars of the broker and of Spark's connector come from Maven's repository; where they cannot be had, the tests are
skipped.  They take a minute: `make kafka`.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cqels.engine.terms import Terms
from cqels.kernels.memory import Arena
from cqels.kernels.terms import ArenaDictionary
from cqels.model.errors import CqelsError

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from cqels import lift
from cqels.spark import App, sources, start, stop
from cqels.spark.blocks import unpack
from cqels.spark.java import find_java
from cqels.spark.lift import Lifting
from cqels.spark.sinks import Memory
from cqels.spark.wanted import ANYTHING, Wanted

pytestmark = pytest.mark.kafka

BROKER = "3.9.1"
CONNECTORS = (pyspark.__version__, pyspark.__version__), ("4.2.0", "4.1.0-preview1")
"""Versions of the connector and of its part for tokens: that of Spark, else the newest that have been published."""
STREAM = "http://ex.org/obs"
ALL = Wanted(frozenset([ANYTHING]))
PATIENCE = 60
"""Seconds that a broker has to start."""


def java() -> str:
    try:
        return str(find_java().home / "bin" / "java")
    except CqelsError as error:
        pytest.skip(str(error))


def fetched(folder: Path, *dependencies: tuple[str, str, str], alone: bool) -> list[Path] | None:
    """The jars of some packages; with all that they need, unless they come alone. None if they cannot be had."""
    folder.mkdir()
    wanted = "".join(
        f'<dependency org="{owner}" name="{name}" rev="{version}" '
        + ('transitive="false" conf="default->master"/>' if alone else 'conf="default->default"/>')
        for owner, name, version in dependencies
    )
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="cqels" module="kafka"/><configurations><conf name="default"/>'
        f"</configurations><dependencies>{wanted}</dependencies></ivy-module>"
    )
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = [java(), "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(folder / "ivy.xml")]
    command += ["-types", "jar", "bundle", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    with suppress(subprocess.TimeoutExpired):
        if subprocess.run(command, capture_output=True, timeout=300).returncode == 0:
            return list(folder.glob("*.jar"))
    return None


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with no other nodes, until the tests are done."""
    folder = tmp_path_factory.mktemp("kafka")
    jars = fetched(folder / "jars", ("org.apache.kafka", "kafka_2.13", BROKER), alone=False)
    if jars is None:
        pytest.skip(f"Kafka {BROKER} cannot be fetched from Maven's repository")
    port, control = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(
        f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
log.dirs={folder / "logs"}
num.partitions=2
offsets.topic.replication.factor=1
"""
    )
    command = [java(), "-Xmx300m", "-cp", f"{folder / 'jars'}/*"]
    identity = "MkU3OEVBNTcwNTJENDM2Qg"
    subprocess.run(
        [*command, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)],
        check=True,
        capture_output=True,
    )
    with (folder / "log").open("wb") as log:
        broker = subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        wait_for(port)
        yield f"127.0.0.1:{port}"
    finally:
        broker.terminate()
        try:
            broker.wait(20)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    pytest.fail("the broker does not answer")


@pytest.fixture(scope="module")
def spark(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("connector")
    for number, (version, tokens) in enumerate(CONNECTORS):
        jars = fetched(
            folder / str(number),
            ("org.apache.spark", "spark-sql-kafka-0-10_2.13", version),
            ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", tokens),
            ("org.apache.kafka", "kafka-clients", BROKER),
            ("org.apache.commons", "commons-pool2", "2.12.0"),
            alone=True,
        )
        if jars is not None:
            break
    else:
        pytest.skip("Spark's connector for Kafka cannot be fetched from Maven's repository")
    session = start(master="local[2]", partitions=1, settings={"spark.jars": ",".join(map(str, jars))})
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
        blocks = Lifting(STREAM, 0, lift.nquads(time="kafka"), (ALL,)).apply(rows)
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
