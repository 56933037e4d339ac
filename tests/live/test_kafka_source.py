"""Records of a real Kafka broker, read embedded: every one, from where a run was, through restarts of the broker.

The broker's jars come from Maven's repository; where they cannot be had, the tests are skipped: `make kafka`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="pip install 'cqels[kafka]'")
pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")  # whose Ivy fetches the broker

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from cqels.model.errors import CqelsError

from ..spark.broker import Broker, Unavailable
from .servers import PATIENCE, eventually, opened, rows_of

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        made = Broker(tmp_path_factory.mktemp("kafka"))
    except Unavailable as error:
        pytest.skip(str(error))
    with made:
        yield made


def send(broker: Broker, topic: str, values: range, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.servers})
    for value in values:
        producer.produce(topic, str(value), **options)
    assert producer.flush(PATIENCE) == 0


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


def read(source: Any, position: dict[str, Any], count: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    found: list[dict[str, Any]] = []
    limit = time.monotonic() + PATIENCE
    while len(found) < count:
        rows, position = source.read(position, 1 << 20)
        found += rows.to_pylist()
        assert time.monotonic() < limit, f"there are {len(found)} of {count}"
        time.sleep(0.01)
    return found, position


def test_records_with_keys_headers_and_times(broker: Broker, tmp_path: Path) -> None:
    before = time.time_ns() - 10**9
    send(broker, "full", range(3), key="k", headers={"unit": b"C"}, partition=1)
    with opened(f"kafka://{broker.servers}/full", tmp_path) as source:
        rows = rows_of(source, 3)
    assert [(row["value"], row["position"]) for row in rows] == [(b"0", 0), (b"1", 1), (b"2", 2)]
    assert {(row["place"], row["topic"], row["key"]) for row in rows} == {("full-1", "full", b"k")}
    assert rows[0]["headers"] == [("unit", b"C")]
    assert before < rows[0]["time"].value < time.time_ns()  # type: ignore[attr-defined]


def test_positions_are_where_a_run_goes_on(broker: Broker, tmp_path: Path) -> None:
    send(broker, "going", range(1000))
    with opened(f"kafka://{broker.servers}/going?group=lag", tmp_path) as source:
        rows, position = read(source, source.start(), 1000)
        assert numbers(rows) == [*range(1000)]
        send(broker, "going", range(1000, 1500))
        first, later = read(source, position, 500)
        again, _ = read(source, position, 500)
        assert numbers(first) == numbers(again) == [*range(1000, 1500)]
        source.commit(later)
    with opened(f"kafka://{broker.servers}/going", tmp_path) as source:
        send(broker, "going", range(1500, 1600))
        assert numbers(read(source, later, 100)[0]) == [*range(1500, 1600)]


def test_only_the_latest(broker: Broker, tmp_path: Path) -> None:
    send(broker, "late", range(10))
    with opened(f"kafka://{broker.servers}/late?start=latest", tmp_path) as source:
        position = source.start()
        while "begun" not in position:
            _, position = source.read(position, 1)
            time.sleep(0.01)
    send(broker, "late", range(10, 20))
    with opened(f"kafka://{broker.servers}/late?start=latest", tmp_path) as source:
        assert numbers(read(source, position, 10)[0]) == [*range(10, 20)]


def test_a_topic_and_partitions_that_come_later(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqels.pipeline.source.kafka_source.REFRESH_SECONDS", 0.5)
    admin = AdminClient({"bootstrap.servers": broker.servers})
    with (
        caplog.at_level(logging.WARNING, "cqels"),
        opened(f"kafka://{broker.servers}/coming?start=latest", tmp_path) as source,
    ):
        _, position = source.read(source.start(), 1)
        eventually(lambda: "there is no topic coming yet; trying again" in caplog.text)
        while "begun" not in position:
            _, position = source.read(position, 1)
        admin.create_topics([NewTopic("coming", 1, 1)])["coming"].result()
        send(broker, "coming", range(10))
        rows, position = read(source, position, 10)
        admin.create_partitions([NewPartitions("coming", 3)])["coming"].result()
        send(broker, "coming", range(10, 20), partition=2)
        more, position = read(source, position, 10)
    assert numbers(rows + more) == [*range(20)]
    assert {row["place"] for row in more} == {"coming-2"}


def test_a_broker_that_is_restarted(broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    send(broker, "restarted", range(100))
    with (
        caplog.at_level(logging.WARNING, "cqels"),
        opened(f"kafka://{broker.servers}/restarted", tmp_path) as source,
    ):
        rows, position = read(source, source.start(), 100)
        broker.kill()
        eventually(lambda: "trying again" in caplog.text)
        broker.start()
        send(broker, "restarted", range(100, 200))
        more, _ = read(source, position, 100)
    assert numbers(rows + more) == [*range(200)]


def test_transactions_are_read_when_they_are_committed(broker: Broker, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": "t"})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("transactions", "1")
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce("transactions", "2")
    producer.commit_transaction()
    with opened(f"kafka://{broker.servers}/transactions", tmp_path) as source:
        assert numbers(rows_of(source, 1)) == [2]


def test_records_that_are_gone(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    send(broker, "gone", range(10), partition=0)
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for future in admin.delete_records([TopicPartition("gone", 0, 5)]).values():
        future.result()
    with (
        opened(f"kafka://{broker.servers}/gone", tmp_path) as source,
        pytest.raises(CqelsError, match="the records 2 to 4 of gone-0 are gone before they were read"),
    ):
        read(source, {"gone-0": 2}, 1)
