"""Numbered elements by file, Kafka and MQTT at the same time, and what queries make of those that were acknowledged.

Element n of each stream is `<stream/n> :number n`, at about 10·n ms.  What must come of them is computed by arithmetic,
which `test_killed_under_load.py` compares with the reference.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from time import sleep
from typing import Any

import paho.mqtt.client as paho
from confluent_kafka import Consumer, Producer, TopicPartition

from cqels.model.terms import CQ

from ..spark.broker import Broker
from .kills import ROOT
from .mqtt_broker import MqttBroker
from .servers import eventually

EX = "http://ex.org/"
STREAMS = {"file": 1, "kafka": 4, "mqtt": 7}
"""The milliseconds by which the times of a stream are behind 10·n."""
STEP = 10
"""Elements of each stream that are sent at a time."""
ROUND = 100
"""There are so many elements, or a multiple of that: whole seconds."""
QUERIES = {
    **{name: f"SELECT ?n WHERE {{ STREAM :{name} [NOW] {{ ?s :number ?n }} }}" for name in STREAMS},
    "both": "SELECT ?n WHERE { STREAM :file [RANGE 2s] { ?a :number ?n } STREAM :kafka [RANGE 2s] { ?b :number ?n } }",
    "all": """SELECT DISTINCT ?n WHERE { STREAM :file [RANGE 2s] { ?a :number ?n }
        STREAM :kafka [RANGE 2s] { ?b :number ?n } STREAM :mqtt [RANGE 2s] { ?c :number ?n } }""",
    "sum": """SELECT (COUNT(*) AS ?count) (SUM(?n) AS ?sum) WHERE {
        { STREAM :file [RANGE 2s SLIDE 1s] { ?s :number ?n } } UNION
        { STREAM :kafka [RANGE 2s SLIDE 1s] { ?s :number ?n } } }""",
}
"""In `mqtt` messages may be twice; the others must be exact, also `all`, which such messages do not change."""
_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
_SENT_AGAIN = re.compile(r"Sending PUBLISH to cqels-\S+ \(d1, q1, r0, m\d+, 'readings/(\d+)'")


def line_of(stream: str, number: int) -> str:
    time = 10 * number + STREAMS[stream]
    return f'<{EX}{stream}/{number}> <{EX}number> "{number}"^^<{_INTEGER}> "{time}" .'


def promise(stream: str, count: int) -> str:
    """No more than so many elements come."""
    return f'<{EX}{stream}> <{CQ}noElementBefore> {10 * count + 500} "{10 * count + 500}" .'


def expected(count: int) -> dict[str, list[Any]]:
    """What queries send of so many elements of each stream."""
    sums = []
    for end in range(0, count + 1, ROUND):
        window = range(max(0, end - 2 * ROUND), end)
        sums.append([2 * len(window), 2 * sum(window)])
    return {name: sums if name == "sum" else [[number] for number in range(count)] for name in QUERIES}


def rows_of(lines: list[str]) -> list[list[int]]:
    return [[int(each["value"]) for each in json.loads(line)["bindings"].values()] for line in lines]


def write_queries(folder: Path) -> list[str]:
    for name, text in QUERIES.items():
        (folder / f"{name}.rq").write_text(f"PREFIX : <{EX}> {text}")
    return [f"{folder}/{name}.rq" for name in QUERIES]


def reference(folder: Path, count: int) -> dict[str, list[Any]]:
    """What the reference sends of so many elements."""
    arguments = ["run", *write_queries(folder), "--engine", "reference", "--out", f"{folder}/reference/"]
    for name in STREAMS:
        lines = [*(line_of(name, number) for number in range(count)), promise(name, count)]
        (folder / f"{name}.nt").write_text("\n".join(lines) + "\n")
        arguments += ["--stream", f"<{EX}{name}>={folder}/{name}.nt?idle=1h"]
    command = [sys.executable, "-m", "tests.live.live_job", *arguments, "--format", "jsonl"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    written = {name: (folder / "reference" / f"{name}.jsonl").read_text().splitlines() for name in QUERIES}
    return {name: rows_of(lines) for name, lines in written.items()}


def lasting_broker(folder: Path) -> MqttBroker:
    """A broker of MQTT that keeps any number of messages, and whose log has what it sends."""
    folder.mkdir()
    return MqttBroker(
        folder,
        f"allow_anonymous true\npersistence true\npersistence_location {folder}/\nmax_queued_messages 0\n"
        f"max_inflight_messages 1000\nlog_dest file {folder}/log\nlog_type debug\n",
    )


@dataclass
class Load:
    """What is sent to a run without a pause, and what the run has delivered."""

    folder: Path
    mqtt: MqttBroker
    kafka: Broker
    is_enough: Callable[[], bool]
    rate: int = 100
    """Elements of each stream in a second."""
    sent: int = 0
    acknowledged: Counter[str] = field(default_factory=Counter)
    is_complete: bool = False
    """All are sent and acknowledged."""
    last_rows: dict[str, list[Any]] = field(default_factory=dict)
    random: Random = field(default_factory=lambda: Random(7))

    def arguments(self) -> list[str]:
        """Of `cqels`, but for the engine."""
        (self.folder / "file.nt").write_text("")
        places = {
            "file": f"{self.folder}/file.nt",
            "kafka": f"kafka://{self.kafka.servers}/in",
            "mqtt": f"mqtt://127.0.0.1:{self.mqtt.port}/readings/+",
        }
        streams = [word for name, place in places.items() for word in ("--stream", f"<{EX}{name}>={place}?idle=1h")]
        return [
            *("run", *write_queries(self.folder), *streams, "--follow", "--state", f"{self.folder}/state"),
            *("--out", f"{self.folder}/results/", "--out", f"kafka://{self.kafka.servers}/out", "--format", "jsonl"),
            *("--rejects", f"{self.folder}/rejected.tsv"),
        ]

    # ------------------------------------------------------------ in

    def feed(self, stop: Event) -> None:
        """Send elements until it is enough, and wait until all are acknowledged."""
        log = self.folder / "mqtt" / "log"
        while not stop.is_set() and not (log.exists() and "Sending SUBACK" in log.read_text(errors="replace")):
            sleep(0.1)  # before that the broker keeps nothing
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.max_inflight_messages_set(1000)
        client.on_publish = lambda *_: self.acknowledged.update(mqtt=1)
        client.connect("127.0.0.1", self.mqtt.port)
        client.loop_start()
        producer = Producer({"bootstrap.servers": self.kafka.servers, "enable.idempotence": True})
        with (self.folder / "file.nt").open("ab", buffering=0) as file:
            while not stop.is_set() and not (self.is_enough() and self.sent % ROUND == 0 and self.sent):
                self._send(range(self.sent, self.sent + STEP), file, producer, client)
                sleep(STEP / self.rate)
            for name, give in self._ways(file, producer, client).items():
                give(promise(name, self.sent), self.sent)
            assert producer.flush(60) == 0
            eventually(lambda: stop.is_set() or self.acknowledged["mqtt"] > self.sent, within=60)
        client.disconnect()
        client.loop_stop()
        self.last_rows = {name: rows[-1:] for name, rows in expected(self.sent).items()}
        self.is_complete = True

    def _send(self, numbers: range, file: Any, producer: Producer, client: paho.Client) -> None:
        ways = self._ways(file, producer, client)
        for number in numbers:
            for name, give in ways.items():
                give(line_of(name, number), number)
        producer.poll(0)
        self.sent = numbers.stop

    def _ways(self, file: Any, producer: Producer, client: paho.Client) -> dict[str, Callable[[str, int], object]]:
        return {
            "file": lambda line, _: self._append(file, f"{line}\n".encode()),
            "kafka": lambda line, _: producer.produce("in", line, on_delivery=self._delivered),
            "mqtt": lambda line, number: client.publish(f"readings/{number}", line, 1),
        }

    def _append(self, file: Any, line: bytes) -> None:
        """Write a line in two pieces."""
        at = self.random.randrange(len(line))
        file.write(line[:at])
        file.write(line[at:])
        self.acknowledged["file"] += 1

    def _delivered(self, error: Any, record: Any) -> None:
        assert error is None, error
        self.acknowledged["kafka"] += 1

    # ------------------------------------------------------------ out

    def size(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "results").glob("*.jsonl"))

    def is_done(self) -> bool:
        """Whether the last results are there."""
        return self.is_complete and all(rows_of(self._last(name)) == rows for name, rows in self.last_rows.items())

    def _last(self, name: str) -> list[str]:
        """The last line that is written of a query."""
        path = self.folder / "results" / f"{name}.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 1000))
            *_, last, rest = [b"", *file.read().split(b"\n")]
        return [last.decode()] if last and not rest else []

    def written(self, name: str) -> list[str]:
        path = self.folder / "results" / f"{name}.jsonl"
        return path.read_text().splitlines() if path.exists() else []

    def records(self) -> dict[str, list[str]]:
        """The committed records of the topic of results, by queries, in order; their keys have no gap."""
        options = {"bootstrap.servers": self.kafka.servers, "group.id": "check", "isolation.level": "read_committed"}
        consumer = Consumer({**options, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        found: dict[str, list[str]] = {name: [] for name in QUERIES}
        try:
            place = TopicPartition("out", 0, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=20)
            consumer.assign([place])
            while consumer.position([place])[0].offset < end:
                for record in consumer.consume(10_000, 1.0):
                    assert record.error() is None
                    name, _, number = record.key().decode().partition("/")
                    assert int(number) == len(found[name]), f"{name} has {number} behind {len(found[name])} results"
                    found[name].append(record.value().decode())
        finally:
            consumer.close()
        return found

    def check(self) -> str:
        """Nothing is lost, nothing is twice but what the broker of MQTT sent again; in a sentence."""
        count = self.sent
        assert self.acknowledged == dict.fromkeys(STREAMS, count + 1)
        rows, records = expected(count), self.records()
        for name in QUERIES:
            written = self.written(name)
            assert records[name] == written, name
            if name != "mqtt":
                assert rows_of(written) == rows[name], name
        messages = [number for (number,) in rows_of(self.written("mqtt"))]
        assert [*dict.fromkeys(messages)] == [*range(count)]
        again = self._again(Counter(messages))
        return f"{count:,} elements of each stream, lost 0, twice 0, {again:,} messages that MQTT sent again"

    def _again(self, taken: Counter[int]) -> int:
        """How many messages were taken again, in time or late; all of them were sent again by the broker, with DUP."""
        rejected = (self.folder / "rejected.tsv").read_text().splitlines()
        late = [found for line in rejected if (found := re.search(rf"{EX}mqtt/(\d+)>", line))]
        assert len(late) == len(rejected), rejected[:3]
        taken = taken + Counter(int(found[1]) for found in late)
        sent_again = Counter(
            int(number) for number in _SENT_AGAIN.findall((self.folder / "mqtt" / "log").read_text(errors="replace"))
        )
        for number, times in taken.items():
            assert times <= 1 + sent_again[number], f"message {number} was taken {times} times"
        return sum(taken.values()) - len(taken)
