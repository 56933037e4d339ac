"""The MQTT sink: a message for each result, at least once: a batch is done when the broker has acknowledged them all.

Each message has its id, `<query>/<number>`, in its JSON, and in version 5 as a property.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from threading import Event
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from cqels.ingest import Rejected
from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.model.time import format_time
from cqels.pipeline.sink.result_batch import Sent, terms
from cqels.pipeline.sink.retried_delivery import Delivery, Patience, TryAgain, patience_of
from cqels.pipeline.sink.sink_protocol import AT_LEAST_ONCE, Sink, query_name
from cqels.pipeline.sink.sink_settings import Settings, SinkAddress
from cqels.pipeline.sink.text_formats import MESSAGE_FORMATS, check, messages
from cqels.plan.algebra import Query
from cqels.results.result import lexical

_LOG = logging.getLogger("cqels")
_HOLE = re.compile(r"\{(\??)([^{}]*)\}")
_RESERVED = re.compile(r"[/+#%\x00-\x1f\x7f]")
_MOST = 10_000
"""Messages that wait for their acknowledgement: their numbers have 16 bits."""
_ANSWER = 10.0
"""Seconds that a broker has to accept a connection."""
_TURN = 1.0
"""Seconds that acknowledgements are waited for, before it is asked whether to go on waiting."""
_VERSIONS = ("3.1.1", "5")
UNBOUND = "_"
"""The level of a topic whose variable is unbound."""


class _Message(NamedTuple):
    query: str
    topic: str
    text: str
    properties: list[tuple[str, str]]


class MqttTopic:
    """Messages in a topic, which may have `{query}` and variables of the row: `rooms/{?room}/alert`.

    What stands in a variable's place is its lexical form, in which `/`, `+`, `#` and `%` are written `%2F` and so on;
    an unbound one is `_`.  `qos` is 1 or 2, or 0: then nothing is acknowledged, and what is on its way when the
    connection breaks is lost.
    """

    def __init__(
        self,
        host: str,
        topic: str,
        format: str = "jsonl",
        *,
        port: int | None = None,
        user: str | None = None,
        password: str | None = None,
        tls: bool = False,
        version: str = "5",
        qos: int = 1,
        retain: bool = False,
        patience: Patience | None = None,
        number: str = "",
    ) -> None:
        if format not in MESSAGE_FORMATS:
            known = ", ".join(MESSAGE_FORMATS)
            raise CqelsError(f"messages of MQTT have no format '{format}'", hint=f"the formats are {known}")
        if not topic or re.search(r"[+#\0]", _HOLE.sub("", topic)):
            raise CqelsError(f"results cannot be published to the topic '{topic}'", hint="it has no + and no #")
        self._host, self._port = host, port or (8883 if tls else 1883)
        self._topic, self._format, self._number = topic, format, number
        self._user, self._password, self._tls = user, password, tls
        self._version, self._qos, self._retain = version, qos, retain
        self._patience = patience or Patience()
        self.place = f"mqtt{'s' if tls else ''}://{host}:{self._port}/{topic}"
        self._delivery = Delivery(self.place, self._patience)
        self._client: Any = None
        self._connected, self._all_acknowledged = Event(), Event()
        self._expected = 0
        self._refusal = ""
        self._answers: dict[int, str] = {}
        """The messages that were acknowledged, and what was said of those that were not taken."""
        self._last = -1
        self._refused: list[Rejected] = []
        self.refused = 0
        """Results that the broker did not take, and that were not sent again."""

    @property
    def promise(self) -> str:
        return AT_LEAST_ONCE if self._qos else "each result arrives at most once: what is on its way is lost in a crash"

    @property
    def dropped(self) -> int:
        """Results that were not delivered since the broker did not answer for too long."""
        return self._delivery.dropped

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        for query in queries:
            check(query, self._format)
            _check_topic(self._topic, query)
        if self._client is None:
            client = self._make_client(f"{run or uuid4().hex}/{self.place}/{self._number}")
            at_once = Delivery(self.place, Patience(min(self._patience.limit, 30.0), "stop"))
            at_once.deliver(lambda: self._connect(client), 0)

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if batch <= self._last:
            return
        rows = (message for each in sent.values() if len(each) for message in self._messages(each))
        while some := list(islice(rows, _MOST)):
            self._publish(some)
        self._last = batch

    def take_refused(self) -> list[Rejected]:
        taken, self._refused = self._refused, []
        return taken

    def stop_waiting(self) -> None:
        self._delivery.stop_waiting()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.loop_stop()

    # ------------------------------------------------------------ messages

    def _messages(self, sent: Sent) -> list[_Message]:
        columns = sent.columns
        texts = messages(sent, self._format, ids=True)
        topics = self._topics(sent)
        marks = (columns[name].to_pylist() for name in ("time", "tick", "sign"))
        made = []
        for number, (text, topic, time, tick, sign) in enumerate(zip(texts, topics, *marks, strict=True), sent.number):
            properties = [("id", f"{sent.name}/{number}"), ("query", sent.name)]
            properties += [("time", format_time(time)), ("tick", str(tick)), ("sign", sign or "")]
            made.append(_Message(sent.name, topic, text, [each for each in properties if each[1]]))
        return made

    def _topics(self, sent: Sent) -> list[str]:
        """The topic of each result."""
        topic = self._topic.replace("{query}", _level(sent.name))
        names = {name for mark, name in _HOLE.findall(topic) if mark}
        if not names:
            return [topic] * len(sent)
        values = [[UNBOUND if term is None else _level(lexical(term)) for term in terms(sent.columns[f"?{name}"])]
                  for name in names]  # fmt: skip
        rows = (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
        return [_HOLE.sub(lambda found, row=row: row[found[2]], topic) for row in rows]  # type: ignore[misc]

    def _publish(self, some: list[_Message]) -> None:
        """Publish messages, and wait until all are acknowledged."""
        self._answers.clear()
        self._all_acknowledged.clear()
        self._expected = len(some)
        pending = {}
        for each in some:
            sent = self._client.publish(
                each.topic, each.text.encode(), self._qos, self._retain, self._properties(each.properties)
            )
            if sent.rc not in (_SENT, _NOT_CONNECTED):
                raise CqelsError(f"{self.place} takes no more messages: error {sent.rc}")
            pending[sent.mid] = each

        def attempt() -> None:
            before = -1
            while before < len(self._answers) and not self._delivery.stopped:
                before = len(self._answers)
                if self._all_acknowledged.wait(_TURN):
                    self._settle(pending)
                    return
            why = "" if self._client.is_connected() else ", and is not connected"
            left = len(some) - len(self._answers)
            raise TryAgain(f"it has not acknowledged {left:,} messages{why}{self._refusal}")

        if not self._delivery.deliver(attempt, len(some)):
            self._settle(pending)

    def _settle(self, pending: dict[int, _Message]) -> None:
        """Find the messages that were refused."""
        refused = {mid: reason for mid, reason in self._answers.copy().items() if reason and mid in pending}
        for mid, reason in refused.items():
            message = pending[mid]
            self._refused.append(Rejected(message.query, self.place, f"the broker answers {reason}", message.text))
        if refused:
            self.refused += len(refused)
            reasons = ", ".join(sorted({*refused.values()}))
            _LOG.warning("%s refused %s results: %s", self.place, f"{len(refused):,}", reasons)

    # ------------------------------------------------------------ a broker

    def _make_client(self, identity: str) -> Any:
        mqtt = optional("paho.mqtt.client", "mqtt")
        name = f"cqels-{sha256(identity.encode()).hexdigest()[:16]}"  # a process that was thought dead is disconnected
        protocol = mqtt.MQTTv5 if self._version == "5" else mqtt.MQTTv311
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=protocol)
        client.max_inflight_messages_set(1000)
        client.max_queued_messages_set(0)
        client.reconnect_delay_set(1, 30)
        if self._user is not None:
            client.username_pw_set(self._user, self._password)
        if self._tls:
            client.tls_set()
        client.on_connect, client.on_publish = self._on_connect, self._on_publish
        client.on_socket_open = _send_at_once
        return client

    def _connect(self, client: Any) -> None:
        self._connected.clear()
        self._refusal = ""
        try:
            client.connect(self._host, self._port)
        except OSError as error:
            raise TryAgain(f"it cannot be reached: {error.strerror or error}") from None
        client.loop_start()
        answered = self._connected.wait(_ANSWER)
        if answered and not self._refusal:
            self._client = client
            return
        client.loop_stop()
        if answered and re.search(r"(?i)not authori[sz]ed|bad user", self._refusal):
            raise CqelsError(
                f"{self.place} does not let us in{self._refusal}",
                hint="give the options user and password; ${NAME} stands for a variable of the environment",
            )
        if answered and "protocol version" in self._refusal:
            raise CqelsError(f"{self.place} does not know version {self._version}", hint="add ?version=3.1.1")
        raise TryAgain(f"it does not accept the connection{self._refusal}")

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._refusal = f": {reason}" if reason.is_failure else ""
        self._connected.set()

    def _on_publish(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        """In the thread of the client, which has a lock: nothing here may wait."""
        self._answers[mid] = str(reason) if reason.is_failure else ""
        if len(self._answers) >= self._expected:
            self._all_acknowledged.set()

    def _properties(self, given: list[tuple[str, str]]) -> Any:
        if self._version != "5":
            return None
        properties = optional("paho.mqtt.properties", "mqtt")
        made = properties.Properties(optional("paho.mqtt.packettypes", "mqtt").PacketTypes.PUBLISH)
        made.UserProperty = given
        return made


_SENT, _NOT_CONNECTED = 0, 4
"""What `publish` returns: a message that is sent, or that waits for the connection."""


def _send_at_once(client: Any, data: Any, connection: Any) -> None:
    """Small packets do not wait for each other."""
    with suppress(OSError, AttributeError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _level(text: str) -> str:
    """A text as a level of a topic."""
    return _RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", text) or UNBOUND


def _check_topic(topic: str, query: Query) -> None:
    """Refuse a topic with variables that a query does not have."""
    for mark, name in _HOLE.findall(topic):
        if mark and name not in query.variables:
            known = " ".join(f"{{?{each}}}" for each in query.variables) or "no variables"
            raise CqelsError(f"the topic {topic} has {{?{name}}}, and query {query_name(query)} has {known}")
        if not mark and name != "query":
            raise CqelsError(f"the topic {topic} has {{{name}}}", hint=f"{{query}}, or a variable: {{?{name}}}")


def mqtt_of(address: SinkAddress, settings: Settings, format: str | None, number: str) -> Sink:
    """The topic of `mqtt://user:password@host:1883/topic`; `mqtts` has TLS."""
    where, separator, topic = address.rest.partition("/")
    try:
        server = urlsplit(f"mqtt://{where}")
        host, port = server.hostname, server.port
    except ValueError:
        host, port = None, None
    if not separator or not topic or host is None:
        raise CqelsError(f"'{address.place}' does not name a topic", hint="write mqtt://host/topic")
    password = settings.secret("password")
    return MqttTopic(
        host,
        topic,
        format or "jsonl",
        port=port,
        user=unquote(server.username) if server.username else settings.text("user") or None,
        password=password if password is not None else unquote(server.password or "") or None,
        tls=address.scheme == "mqtts",
        version=settings.choice("version", _VERSIONS, "5"),
        qos=settings.number("qos", 1, least=0, most=2),
        retain=settings.flag("retain", default=False),
        patience=patience_of(settings),
        number=number,
    )
