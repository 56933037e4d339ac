"""A topic has each result exactly once: processes are killed between write and commit, brokers too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("confluent_kafka", reason="pip install 'cqels[kafka]'")
pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from confluent_kafka import Consumer, TopicPartition

from cqels.model.errors import CqelsError
from cqels.pipeline.sink.kafka_sink import KafkaTopic
from cqels.pipeline.sink.retried_delivery import Patience
from cqels.pipeline.sink.sink_protocol import DeliveryStopped
from cqels.pipeline.sinks import sink_of
from cqels.spark import App, start, stop

from .broker import Broker, Unavailable
from .sending import SELECT, batch

pytestmark = pytest.mark.kafka

BATCHES = range(60)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        made = Broker(tmp_path_factory.mktemp("kafka"))
    except Unavailable as error:
        pytest.skip(str(error))
    with made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"hot-{uuid4().hex}"


def records(broker: Broker, topic: str) -> list[Any]:
    """What a reader of committed records sees, partition by partition."""
    settings = {"bootstrap.servers": broker.servers, "group.id": uuid4().hex, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    try:
        partitions = [*consumer.list_topics(topic, timeout=20).topics[topic].partitions]
        found = []
        for each in partitions:
            place = TopicPartition(topic, each, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=20)
            consumer.assign([place])
            while consumer.position([place])[0].offset < end:
                record = consumer.poll(1.0)
                if record is None and consumer.position([place])[0].offset < 0 and end == 0:
                    break
                if record is not None:
                    assert record.error() is None
                    found.append(record)
        return found
    finally:
        consumer.close()


def keys(numbers: range = BATCHES) -> list[str]:
    return [f"hot/{each.number + n}" for number in numbers for each in batch(number).values() for n in range(len(each))]


def keys_in(found: list[Any]) -> list[str]:
    return [record.key().decode() for record in found]


def test_records_have_keys_and_headers(broker: Broker, topic: str) -> None:
    sink = sink_of(f"kafka:{broker.servers}/{topic}")
    sink.open([SELECT], run=topic)
    for number in (0, 1, 1, 3):
        sink.write(number, batch(number))
    sink.close()
    found = records(broker, topic)
    assert keys_in(found) == [f"hot/{n}" for start in (0, 10, 30) for n in range(start, start + 4)]
    assert json.loads(found[1].value())["bindings"]["n"] == {"type": "literal", "value": "1"}
    assert dict(found[1].headers()) == {"query": b"hot", "time": b"1ms", "tick": b"0", "sign": b"-"}


@pytest.mark.parametrize("at", ["begin", "produced", "offsets", "committed"])
def test_a_crash_between_any_two_steps_changes_nothing(
    broker: Broker, topic: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink of another process goes on with the batch that was on its way."""

    class Crash(BaseException):
        pass

    class Dying:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            steps = {
                "begin": "begin_transaction",
                "produced": "send_offsets_to_transaction",
                "offsets": "commit_transaction",
                "committed": "commit_transaction",
            }
            if name != steps[at]:
                return getattr(self._real, name)
            if at == "committed":
                self._real.commit_transaction(20)
            raise Crash

    first = KafkaTopic(broker.servers, topic)
    first.open([SELECT], run=topic)
    first.write(0, batch(0))
    first._producer = Dying(first._producer)
    with pytest.raises(Crash):
        first.write(1, batch(1))
    second = KafkaTopic(broker.servers, topic)
    second.open([SELECT], run=topic)
    for number in (1, 3):
        second.write(number, batch(number))
    second.close()
    assert keys_in(records(broker, topic)) == [f"hot/{n}" for start in (0, 10, 30) for n in range(start, start + 4)]


def test_a_process_that_was_thought_dead_is_fenced(broker: Broker, topic: str) -> None:
    first, second = (KafkaTopic(broker.servers, topic) for _ in range(2))
    first.open([SELECT], run=topic)
    first.write(0, batch(0))
    second.open([SELECT], run=topic)
    second.write(1, batch(1))
    with pytest.raises(CqelsError, match="another process writes the results of this run"):
        first.write(1, batch(1))
    second.close()
    assert keys_in(records(broker, topic)) == [f"hot/{n}" for start in (0, 10) for n in range(start, start + 4)]


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cqels.pipeline.sink.kafka_sink import KafkaTopic
from tests.spark.sending import SELECT, batch
folder, servers, topic = Path(sys.argv[1]), sys.argv[3], sys.argv[4]
commits = folder / "commits"
done = int(commits.read_text()) if commits.exists() else -1
sink = KafkaTopic(servers, topic)
sink.open([SELECT], run=topic)
for number in range(done + 1, 60):
    sink.write(number, batch(number))
    new = commits.with_suffix(".new")
    new.write_text(str(number))
    new.rename(commits)
sink.close()
"""


def test_killed_processes_and_a_killed_broker(broker: Broker, topic: str, tmp_path: Path) -> None:
    """kill -9 at moments that differ, then of the broker in the middle of a batch: each result is there once."""
    commits, root = tmp_path / "commits", str(Path(__file__).parents[2])
    command = [sys.executable, "-c", KILLED, str(tmp_path), root, broker.servers, topic]
    for number, kill in enumerate((2, 9, 17, 26, 36, None)):
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        try:
            while kill is not None and process.poll() is None:
                if commits.exists() and int(commits.read_text()) >= kill:
                    time.sleep(0.003 * number)
                    break
                time.sleep(0.0005)
            if kill is None:
                broker.kill()
                time.sleep(0.5)
                broker.start()
                assert process.wait(90) == 0
            else:
                process.send_signal(signal.SIGKILL)
                process.wait()
        finally:
            process.kill()
            process.wait()
    assert keys_in(records(broker, topic)) == keys()


def test_a_run_that_is_killed_again_and_again(broker: Broker, topic: str, tmp_path: Path) -> None:
    """`cqels run` in one process, killed at random moments: each of its results is a record, in order, once."""
    (tmp_path / "a.nt").write_text("".join(f'<x:s{n % 7}> <x:p> "{n}" {n} .\n' for n in range(20_000)))
    (tmp_path / "q.rq").write_text("SELECT ?s ?v WHERE { STREAM <x:a> [NOW] { ?s <x:p> ?v } }")
    program = "from cqels.cli import main; main()"
    words = ["run", "q.rq", "--engine", "embedded", "--stream", "<x:a>=a.nt", "--batch", "10KB", "--state", "state"]
    command = [sys.executable, "-c", program, *words, "--out", f"kafka://{broker.servers}/{topic}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    draw, kills = Random(5), 0
    while True:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
        try:
            _, told = process.communicate(timeout=draw.uniform(1.5, 4.0) if kills < 8 else 120)
            assert process.returncode == 0, told.decode()
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    assert kills
    found = records(broker, topic)
    assert keys_in(found) == [f"q/{n}" for n in range(20_000)]
    assert [json.loads(each.value())["bindings"]["v"]["value"] for each in found] == [str(n) for n in range(20_000)]


def test_at_least_once_without_transactions(broker: Broker, topic: str) -> None:
    for _ in range(2):
        sink = sink_of(f"kafka://{broker.servers}/{topic}?exactly-once=false&ordered=false&linger.ms=0")
        assert "at least once" in sink.promise
        sink.open([SELECT], run=topic)
        for number in (0, 1):
            sink.write(number, batch(number))
        sink.close()
    found = records(broker, topic)
    assert sorted(keys_in(found)) == sorted([*keys(range(2)), *keys(range(2))])
    assert {record.partition() for record in found} == {0, 1}


def test_tasks_of_spark_and_its_driver_write_the_same_records(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Tasks at least once, the driver exactly once; the connector is not needed."""
    (tmp_path / "a.nt").write_text("".join(f'<x:s> <x:p> "{n}" {n} .\n' for n in range(300)))
    session = start(master="local[2]", partitions=1)
    try:
        app = App(session, batch_bytes=3000)
        app.files(f"<x:a>={tmp_path / 'a.nt'}")
        app.add("SELECT ?v WHERE { STREAM <x:a> [NOW] { ?s <x:p> ?v } }", name="all")
        servers = broker.servers
        assert app.run(
            sink_of(f"kafka://{servers}/{topic}"), sink_of(f"kafka://{servers}/{topic}-tasks?exactly-once=false")
        ).wait(120)
    finally:
        stop(session)
    once, tasks = records(broker, topic), records(broker, f"{topic}-tasks")
    assert keys_in(once) == [f"all/{n}" for n in range(300)]
    assert [(each.key(), each.value(), each.headers()) for each in tasks] == [
        (each.key(), each.value(), each.headers()) for each in once
    ]


def test_a_broker_that_does_not_answer(broker: Broker, topic: str) -> None:
    with pytest.raises(CqelsError, match="has not taken results"):
        KafkaTopic("127.0.0.1:1", topic, patience=Patience(0.1)).open([SELECT])
    sink = KafkaTopic(broker.servers, topic)
    sink.open([SELECT], run=topic)
    broker.kill()  # for good: this is the last test
    threading.Timer(0.3, sink.stop_waiting).start()
    with pytest.raises(DeliveryStopped):
        sink.write(0, batch(0))
