"""The Kafka sink: a record for each result in a topic, exactly once by Kafka's transactions.

The records of a batch and its number are committed together: the number is the offset of a consumer group that belongs
to the run, on the first partition of the topic.  It is read when the sink is opened, and after every failure, so that a
batch that was committed is not sent again; and the transactional id of the run fences a process that was thought dead.
Readers see committed records only with `isolation.level=read_committed`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any
from uuid import uuid4
from zlib import crc32

from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.model.time import format_time
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.retried_delivery import Delivery, Patience, TryAgain, patience_of
from cqels.pipeline.sink.sink_protocol import AT_LEAST_ONCE, EXACTLY_ONCE, Sink
from cqels.pipeline.sink.sink_settings import Settings, SinkAddress
from cqels.pipeline.sink.text_formats import MESSAGE_FORMATS, check, messages
from cqels.plan.algebra import Query

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ANSWER = 15.0
"""Seconds that a call of a broker may take, before it is made again over a new connection."""
_METADATA = 5.0
"""Those of a question for a topic."""
_TURN = 0.5
"""Seconds between looks at whether the run ends."""
_QUEUE = 1_000_000
"""Records that wait in this process for a broker."""
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_UNSUPPORTED = ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION", "UNSUPPORTED_FOR_MESSAGE_FORMAT")


class KafkaTopic:
    """Records in a topic: the key is `<query>/<number>`, headers have query, time, tick and sign.

    The records of a query are in one partition, in order, or with `ordered=False` spread by their keys.  `options` are
    those of librdkafka, such as `{"security.protocol": "SASL_SSL"}`.  Without `exactly_once`, for brokers that have no
    transactions, a batch that is repeated after a crash is there twice, with the same keys.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        format: str = "jsonl",
        *,
        exactly_once: bool = True,
        ordered: bool = True,
        options: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        number: str = "",
    ) -> None:
        if format not in MESSAGE_FORMATS:
            known = ", ".join(MESSAGE_FORMATS)
            raise CqelsError(f"records of Kafka have no format '{format}'", hint=f"the formats are {known}")
        if not _TOPIC.fullmatch(topic):
            raise CqelsError(f"'{topic}' is not the name of a topic", hint="it has letters, digits, '.', '_' and '-'")
        self._servers, self._topic, self._format = servers, topic, format
        self._exactly_once, self._ordered, self._number = exactly_once, ordered, number
        self._options, self._patience = dict(options or {}), patience or Patience()
        self.place = f"kafka://{servers}/{topic}"
        self._delivery = Delivery(self.place, self._patience)
        self._run = ""
        self._producer: Any = None
        self._group: Any = None
        self._partitions = 1
        self._done = -1
        """The last batch that is in the topic."""
        self._failed: list[str] = []

    @property
    def promise(self) -> str:
        return EXACTLY_ONCE if self._exactly_once else AT_LEAST_ONCE

    @property
    def dropped(self) -> int:
        """Results that were not delivered since no broker answered for too long."""
        return self._delivery.dropped

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        for query in queries:
            check(query, self._format)
        if self._producer is None:
            self._run = run or self._run or uuid4().hex
            kafka = optional("confluent_kafka", "kafka")
            at_once = Delivery(self.place, Patience(min(self._patience.limit, 30.0), "stop"))
            at_once.deliver(lambda: self._attempt(kafka, self._connect), 0)

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if batch <= self._done:
            return
        if not any(map(len, sent.values())):
            return
        kafka = optional("confluent_kafka", "kafka")
        count = sum(map(len, sent.values()))

        def attempt() -> None:
            if self._producer is None:
                self._connect(kafka)  # which tells whether the batch was committed after all
            if batch > self._done:
                self._send(kafka, batch, sent)

        self._delivery.deliver(lambda: self._attempt(kafka, lambda _: attempt()), count)
        self._done = batch

    @property
    def task_writer(self) -> KafkaTaskWriter | None:
        """Without transactions tasks of Spark write, each for itself."""
        if self._exactly_once:
            return None
        return KafkaTaskWriter(
            self._servers, self._topic, self._format, self._ordered, tuple(self._options.items()), self._patience
        )

    def commit(self, batch: int, written: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """What tasks have written is there."""

    def append(self, sent: Sent) -> None:
        """Send the results of a query, whatever was sent before: at least once."""
        kafka = optional("confluent_kafka", "kafka")

        def attempt() -> None:
            if self._producer is None:
                self._connect(kafka)
            self._send(kafka, 0, {sent.name: sent})

        self._delivery.deliver(lambda: self._attempt(kafka, lambda _: attempt()), len(sent))

    def stop_waiting(self) -> None:
        self._delivery.stop_waiting()

    def close(self) -> None:
        if self._producer is not None:
            self._drop(optional("confluent_kafka", "kafka"))

    # ------------------------------------------------------------ a broker

    def _attempt(self, kafka: Any, work: Any) -> None:
        """Do something with a broker; where that fails, the next try begins with a new connection."""
        try:
            work(kafka)
        except (kafka.KafkaException, TryAgain) as failed:
            error = failed.args[0]
            self._drop(kafka)
            name = "" if isinstance(error, str) else error.name()
            if name in _FENCED and error.fatal():
                raise CqelsError(
                    f"{self.place}: another process writes the results of this run", hint="stop one of the two"
                ) from None
            if name in _UNSUPPORTED:
                hint = f"{self.place}?exactly-once=false writes at least once"
                raise CqelsError(f"{self.place} has no transactions: {error.str()}", hint=hint) from None
            raise TryAgain(error if isinstance(error, str) else error.str()) from None

    def _connect(self, kafka: Any) -> None:
        """Have a producer, and with transactions the last batch that was committed."""
        common = {"bootstrap.servers": self._servers, "log_level": 2, **self._options}
        settings: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 2, "queue.buffering.max.messages": _QUEUE}
        name = f"cqels-{self._run}{f'-{self._number}' if self._number else ''}-{self._topic}"
        if self._exactly_once:
            settings["transactional.id"] = name
        self._producer = kafka.Producer(common | settings, logger=_silent())
        self._partitions = self._count_partitions()
        if not self._exactly_once:
            return
        self._call(kafka, self._producer.init_transactions)
        consumer = kafka.Consumer(common | {"group.id": name, "enable.auto.commit": False}, logger=_silent())
        try:
            (there,) = consumer.committed([kafka.TopicPartition(self._topic, 0)], timeout=_ANSWER)
            self._done = max(self._done, there.offset - 1)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def _count_partitions(self) -> int:
        limit = monotonic() + _ANSWER
        while True:
            found = self._producer.list_topics(self._topic, timeout=_METADATA).topics[self._topic]
            if found.error is None and found.partitions:
                return len(found.partitions)
            if monotonic() > limit or self._delivery.stopped:
                raise TryAgain(f"there is no topic {self._topic}: {found.error}")
            self._producer.poll(0.1)  # a broker may be making it

    def _send(self, kafka: Any, batch: int, sent: Mapping[str, Sent]) -> None:
        self._failed.clear()
        if self._exactly_once:
            self._producer.begin_transaction()
        for record in self._records(sent):
            self._produce(record)
        self._flush()  # where no broker answers, this is what can be ended
        if self._exactly_once:
            number = [kafka.TopicPartition(self._topic, 0, batch + 1)]
            self._call(kafka, partial(self._producer.send_offsets_to_transaction, number, self._group))
            self._call(kafka, self._producer.commit_transaction)

    def _call(self, kafka: Any, call: Callable[[float], Any]) -> None:
        """A call of a transaction: one that takes long is taken up again, unless the run ends."""
        limit = monotonic() + _ANSWER
        while True:
            try:
                call(_TURN)
                return
            except kafka.KafkaException as failed:
                if not failed.args[0].retriable() or self._delivery.stopped or monotonic() > limit:
                    raise

    def _flush(self) -> None:
        limit = monotonic() + _ANSWER
        while left := self._producer.flush(_TURN):
            if self._delivery.stopped or monotonic() > limit:
                raise TryAgain(f"{left:,} records were not acknowledged")
        if self._failed:
            raise TryAgain(self._failed[0])

    def _produce(self, record: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(self._topic, **record)
                return
            except BufferError:
                self._producer.poll(0.1)
                if self._delivery.stopped:
                    raise TryAgain("the queue of records is full") from None

    def _records(self, sent: Mapping[str, Sent]) -> Iterator[dict[str, Any]]:
        for name, each in sent.items():
            more: dict[str, Any] = {"partition": crc32(name.encode()) % self._partitions} if self._ordered else {}
            if not self._exactly_once:  # a transaction fails as a whole
                more["on_delivery"] = self._delivered
            texts = messages(each, self._format) if len(each) else []
            columns = (each.columns[column].to_pylist() for column in ("time", "tick", "sign"))
            for number, (text, time, tick, sign) in enumerate(zip(texts, *columns, strict=True), each.number):
                headers = {"query": name, "time": format_time(time), "tick": str(tick), "sign": sign or ""}
                yield {"key": f"{name}/{number}", "value": text.encode(), "headers": headers, **more}

    def _delivered(self, error: Any, record: Any) -> None:
        if error is not None:
            self._failed.append(error.str())

    def _drop(self, kafka: Any) -> None:
        """Forget the connection: what was not committed is aborted when the run connects again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            with suppress(kafka.KafkaException):  # it is raised once more
                producer.poll(0)


@dataclass(frozen=True, slots=True)
class KafkaTaskWriter:
    """Writes records at least once, in any process; it has one producer there."""

    servers: str
    topic: str
    format: str
    ordered: bool
    options: tuple[tuple[str, str], ...]
    patience: Patience

    def __call__(self, batch: int, sent: Sent) -> dict[str, Any]:
        if self not in _PRODUCERS:
            _PRODUCERS[self] = KafkaTopic(
                self.servers,
                self.topic,
                self.format,
                exactly_once=False,
                ordered=self.ordered,
                options=dict(self.options),
                patience=self.patience,
            )
        _PRODUCERS[self].append(sent)
        return {"results": len(sent)}


_PRODUCERS: dict[KafkaTaskWriter, KafkaTopic] = {}
"""Those of this process."""


def _silent() -> Any:
    """Errors of librdkafka are told by what they make fail, not on standard error as well."""
    logger = logging.getLogger("cqels.kafka")
    logger.addFilter(lambda record: False)
    return logger


def kafka_of(address: SinkAddress, settings: Settings, format: str | None, number: str) -> Sink:
    """The topic of `kafka://host:9092,host/topic`."""
    servers, separator, topic = address.rest.partition("/")
    if not separator or not topic or not servers.strip(","):
        raise CqelsError(f"'{address.place}' does not name a topic", hint="write kafka://host:9092/topic")
    if "@" in servers:
        raise CqelsError(
            f"{address.place}: a broker takes no user in its address",
            hint=f"kafka://host:9092/{topic}?security.protocol=SASL_SSL&sasl.mechanism=PLAIN&sasl.username=me"
            "&sasl.password-env=NAME",
        )
    return KafkaTopic(
        ",".join(each if ":" in each else f"{each}:9092" for each in servers.split(",") if each),
        topic,
        format or "jsonl",
        exactly_once=settings.flag("exactly-once", default=True),
        ordered=settings.flag("ordered", default=True),
        patience=patience_of(settings),
        options=settings.dotted(),
        number=number,
    )
