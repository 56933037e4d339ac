"""Records of Kafka, embedded: `kafka://host:9092,host2/topic`; on Spark they are read by Spark's own connector.

Kafka keeps its records, so they need no inbox.  How far each partition has been read is part of the run's state; a
consumer group is told of it, for tools that show the lag, only if one is declared.  Records of transactions are read
when these are committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from threading import Condition, Event, Thread
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_address import Address, address_of
from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.pipeline.source.connection import STEP, Connection
from cqels.pipeline.source.live_source import ROWS, Position

MOST_AT_ONCE = 10_000
"""Records that are taken from the client at a time."""
MOST_AHEAD = 32 << 20
"""Bytes of records that wait to be read before no more are taken."""
REFRESH_SECONDS = 5.0
"""Seconds between searches for new partitions."""
_PATIENCE = 10.0
_BEGUN = "begun"
"""In a position: the topics have been seen, so a partition that is not in it is new and read from its beginning."""
_LOG = logging.getLogger("cqels")

Partition: TypeAlias = tuple[str, int]


def source_of(
    declaration: StreamDeclaration, folder: Path, *, notify: Callable[[], None] = lambda: None
) -> KafkaSource:
    return KafkaSource(declaration, notify)


def topics_of(address: Address) -> list[str]:
    """The topics that are declared."""
    topics = [unquote(each) for each in address.path.strip("/").split(",") if each]
    if not topics:
        raise CqelsError(f"{address.place} has no topic", hint="write for example kafka://localhost:9092/readings")
    return topics


def servers_of(address: Address) -> str:
    return ",".join(
        f"[{host}]:{port or 9092}" if ":" in host else f"{host}:{port or 9092}" for host, port in address.hosts
    )


def security_of(address: Address) -> tuple[str, str]:
    """The protocol and the mechanism by which a client shows who it is."""
    is_known = address.user is not None
    is_safe = any(address.get(each) for each in ("ca", "certificate", "insecure"))
    protocol = address.get("security") or f"{'sasl_' if is_known else ''}{'ssl' if is_safe else 'plaintext'}"
    return protocol.upper(), address.get("mechanism", "PLAIN")


def client_settings(address: Address) -> dict[str, Any]:
    """The settings of librdkafka that a declaration means."""
    protocol, mechanism = security_of(address)
    settings: dict[str, Any] = {
        "bootstrap.servers": servers_of(address),
        "security.protocol": protocol,
        "ssl.ca.location": address.get("ca"),
        "ssl.certificate.location": address.get("certificate"),
        "ssl.key.location": address.get("key"),
        "sasl.username": address.user,
        "sasl.password": address.password,
    }
    if protocol.startswith("SASL"):
        settings["sasl.mechanism"] = mechanism
    if address.get("insecure") == "true":
        settings["enable.ssl.certificate.verification"] = False
    settings |= {
        name.removeprefix("kafka."): values[0] for name, values in address.options.items() if name.startswith("kafka.")
    }
    return {name: value for name, value in settings.items() if value not in (None, "")}


@dataclass(slots=True)
class _Ahead:
    """Records that have been taken from the client and not been read yet."""

    parts: deque[tuple[list[Any], int]] = field(default_factory=deque)
    size: int = 0


class KafkaSource:
    """Reads all partitions of some topics, by a thread that keeps some records ahead."""

    def __init__(self, declaration: StreamDeclaration, notify: Callable[[], None]) -> None:
        self._library = optional("confluent_kafka", "kafka")
        self._address = address = address_of(declaration)
        self.place = address.place
        self.connection = Connection(self.place)
        self.topics = topics_of(address)
        self._group = address.get("group")
        self._latest = address.get("start") == "latest"
        self._notify = notify
        self._changed = Condition()
        self._stop = Event()
        self._ahead = _Ahead()
        self._position: Position | None = None
        """Behind what was read last; None until somebody reads."""
        self._found: Position = {}
        """Where partitions begin that were found meanwhile."""
        self._processed: Position | None = None
        """What the group has not been told of yet."""
        self._failure: CqelsError | None = None
        self._thread: Thread | None = None
        self._consumer: Any = None

    def start(self) -> Position:
        return {}

    def read(self, position: Position, most: int) -> tuple[pyarrow.RecordBatch, Position]:
        if position != self._position:
            self._seek(position)
        records: list[Any] = []
        with self._changed:
            while self._ahead.parts and most > 0:
                part, size = self._ahead.parts.popleft()
                records += part
                most -= size
                self._ahead.size -= size
            end, self._found = {**self._found, **position}, {}
            if not records and self._failure is not None:
                raise self._failure
            self._changed.notify_all()
        for each in records:
            end[f"{each.topic()}-{each.partition()}"] = each.offset() + 1
        self._position = end
        return rows_of(records), dict(end)

    def has_ended(self, position: Position) -> bool:
        return False

    def commit(self, position: Position) -> None:
        """Tell the consumer group how far the records have been processed, if one is declared."""
        self._processed = position if self._group else None

    def _tell_group(self) -> None:
        """By the thread that reads: the client of Kafka is not to be used by two at once."""
        position, self._processed = self._processed, None
        offsets = [
            self._library.TopicPartition(topic, partition, offset)
            for (topic, partition), offset in _offsets(position or {}).items()
        ]
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except self._library.KafkaException as error:
                _LOG.warning("%s: the group %s is not told: %s", self.place, self._group, _said(error.args[0]))

    def close(self) -> None:
        self._end()

    # ------------------------------------------------------------ reading ahead

    def _seek(self, position: Position) -> None:
        """Begin to read at a position."""
        self._end()
        self._stop = Event()
        self._ahead, self._found, self._failure = _Ahead(), {}, None
        self._thread = Thread(
            target=self._run, args=(dict(position), self._stop), name=f"cqels {self.place}", daemon=True
        )
        self._thread.start()

    def _end(self) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, position: Position, stop: Event) -> None:
        try:
            self._consumer = self._library.Consumer(
                {
                    **client_settings(self._address),
                    "group.id": self._group or "cqels",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "error_cb": self._on_error,
                    "logger": logging.getLogger("cqels.kafka"),
                    "log_level": 0,
                }
            )
        except self._library.KafkaException as error:
            self._failure = CqelsError(f"{self.place}: {_said(error.args[0])}")
            self._notify()
            return
        try:
            self._consume(position, stop)
        except CqelsError as error:
            self._failure = error
            self._notify()
        finally:
            self._tell_group()
            self._consumer.close()

    def _consume(self, position: Position, stop: Event) -> None:
        assigned: dict[Partition, int] = {}
        refreshed = 0.0
        while not stop.is_set():
            if monotonic() >= refreshed:
                found = self._partitions(position, assigned, stop)
                refreshed = monotonic() + (REFRESH_SECONDS if found is not None and assigned else 0.5)
                if found:
                    assigned |= found
                    self._consumer.incremental_assign(
                        [self._library.TopicPartition(*each, at) for each, at in found.items()]
                    )
            self._tell_group()
            records = self._consumer.consume(MOST_AT_ONCE, STEP)
            taken = [each for each in records if self._is_record(each)]
            if taken:
                self.connection.opened()
                size = sum(len(each) for each in taken)
                with self._changed:
                    self._ahead.parts.append((taken, size))
                    self._ahead.size += size
                self._notify()
                with self._changed:
                    self._changed.wait_for(lambda: self._ahead.size < MOST_AHEAD or stop.is_set())

    def _is_record(self, record: Any) -> bool:
        error = record.error()
        if error is None:
            return True
        codes = self._library.KafkaError
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            raise CqelsError(
                f"{self.place}: records of {record.topic()}-{record.partition()} are gone before they were read: "
                f"{error.str().lower()}",
                hint="the topic keeps its records for too short a time; begin with a new state",
            )
        if error.code() in (codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED):
            raise CqelsError(f"{self.place}: {_said(error)}")
        self.connection.lost(_said(error))
        return False

    def _partitions(self, position: Position, known: dict[Partition, int], stop: Event) -> dict[Partition, int] | None:
        """The partitions that are not known yet, and where to begin in each; None if the broker does not answer."""
        new: list[Partition] = []
        for topic in self.topics:
            try:
                there = self._consumer.list_topics(topic, _PATIENCE if not known else 1.0).topics[topic]
            except self._library.KafkaException as error:
                self.connection.lost(_said(error.args[0]))
                return None
            codes = self._library.KafkaError
            if there.error is not None:
                if there.error.code() == codes.TOPIC_AUTHORIZATION_FAILED:
                    raise CqelsError(f"{self.place}: {_said(there.error)}")
                self.connection.lost(
                    f"there is no topic {topic} yet" if _is_missing(there.error, codes) else _said(there.error)
                )
                continue
            self.connection.opened()
            new += [(topic, number) for number in sorted(there.partitions) if (topic, number) not in known]
        offsets = _offsets(position)
        begun = _BEGUN in position
        found: dict[Partition, int] = {}
        for each in new:
            if stop.is_set():
                return None
            try:
                low, high = self._consumer.get_watermark_offsets(self._library.TopicPartition(*each), _PATIENCE)
            except self._library.KafkaException as error:
                self.connection.lost(_said(error.args[0]))
                return None
            found[each] = self._begin(each, offsets.get(each), low, high, begun=begun)
        position[_BEGUN] = True
        with self._changed:
            self._found |= {f"{topic}-{number}": at for (topic, number), at in found.items()} | {_BEGUN: True}
        return found

    def _begin(self, partition: Partition, offset: int | None, low: int, high: int, *, begun: bool) -> int:
        if offset is None:
            return high if self._latest and not begun else low
        if low <= offset <= high:
            return offset
        name = f"{partition[0]}-{partition[1]}"
        if offset > high:
            raise CqelsError(
                f"{self.place}: {name} ends at offset {high:,}, and has been read to {offset:,}",
                hint="was the topic made anew? then begin with a new state",
            )
        raise CqelsError(
            f"{self.place}: the records {offset:,} to {low - 1:,} of {name} are gone before they were read",
            hint="the topic keeps its records for too short a time; begin with a new state",
        )

    def _on_error(self, error: Any) -> None:
        codes = self._library.KafkaError
        if error.code() == codes._AUTHENTICATION and not self.connection.was_open:
            self._failure = CqelsError(f"{self.place}: {_said(error)}", hint="user= and password=${NAME}")
            self._notify()
        elif error.code() in (codes._ALL_BROKERS_DOWN, codes._TRANSPORT, codes._RESOLVE):
            self.connection.lost(_said(error))


def _is_missing(error: Any, codes: Any) -> bool:
    return error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC, codes.LEADER_NOT_AVAILABLE)


def _said(error: Any) -> str:
    text = error.str() if hasattr(error, "str") else str(error)
    return text.rpartition("]: ")[2].partition(" (after ")[0].lower()


def _offsets(position: Position) -> dict[Partition, int]:
    found = {}
    for name, offset in position.items():
        topic, dash, number = name.rpartition("-")
        if dash and number.isdigit():
            found[topic, int(number)] = offset
    return found


def rows_of(records: Sequence[Any]) -> pyarrow.RecordBatch:
    """Records as rows (`ROWS`), those of a partition one behind the other."""
    places = [f"{each.topic()}-{each.partition()}" for each in records]
    if len(names := dict.fromkeys(places)) > 1:
        by_place: dict[str, list[Any]] = {name: [] for name in names}
        for place, each in zip(places, records, strict=True):
            by_place[place].append(each)
        records = [each for part in by_place.values() for each in part]
        places = [place for place, part in by_place.items() for _ in part]
    times = [time * 1_000_000 if kind else None for kind, time in map(methodcaller("timestamp"), records)]
    columns = [
        pyarrow.array([each.value() for each in records], pyarrow.binary()),
        pyarrow.array(times, pyarrow.int64()).cast(pyarrow.timestamp("ns")),
        pyarrow.array(places, pyarrow.string()),
        pyarrow.array([each.offset() for each in records], pyarrow.int64()),
        pyarrow.array([each.key() for each in records], pyarrow.binary()),
        pyarrow.array([each.topic() for each in records], pyarrow.string()),
        pyarrow.array([each.headers() or [] for each in records], ROWS.field("headers").type),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=ROWS)
