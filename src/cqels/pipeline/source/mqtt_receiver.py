"""Messages of an MQTT broker, 3.1.1 or 5: `mqtt://host/topic/+`, `mqtts://…`.

A message of quality of service 1 is acknowledged when the inbox has it.  The broker keeps a session for this client, so
it keeps messages while nobody is connected.  What was not acknowledged when a connection was lost comes again: each
message at least once.  Messages are taken with a quality of at most 1: with 2, the client would have to answer for a
message before it is in the inbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from threading import Condition, Event
from time import time_ns
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_address import Address, address_of
from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.pipeline.source.connection import STEP, Connection, Note, tls_context
from cqels.pipeline.source.live_source import Accept, Message

MOST_WAITING = 20_000
"""Messages that wait for the inbox before no more are taken from the broker."""
_SESSION = 7 * 86_400.0
"""Seconds that a broker of MQTT 5 is to keep a session of which it hears nothing."""
_KEEPALIVE = 30.0
PATIENCE = 5.0
"""Seconds that a broker has to answer."""
_REFUSED = ("bad user name or password", "not authorized", "client identifier not valid", "banned")
"""Answers that will not change by asking again."""
_OTHER_VERSION = "unsupported protocol version"


def source_of(declaration: StreamDeclaration, folder: Path) -> MqttReceiver:
    return MqttReceiver(declaration, folder)


class MqttReceiver:
    """Subscribes to topics of a broker."""

    def __init__(self, declaration: StreamDeclaration, folder: Path) -> None:
        optional("paho.mqtt.client", "mqtt")
        self._address = address = address_of(declaration)
        self.place = address.place
        self.connection = Connection(self.place)
        self.topic = unquote(address.path.removeprefix("/"))
        if not self.topic:
            raise CqelsError(f"{self.place} has no topic", hint="write for example mqtt://localhost/building/+/temp")
        self.qos = int(address.get("qos", "1"))
        self._note = Note(folder, "mqtt")
        self._versions = [address.get("version")] if address.get("version") else ["5", "3.1.1"]
        self._tls = tls_context(address) if address.scheme == "mqtts" else None

    def run(self, accept: Accept, stop: Event) -> None:
        while not stop.is_set():
            session = self._session()
            try:
                name, is_known = self._client()
                session.open(name, is_known=is_known)
                self.connection.opened()
                self._note.write({**self._note.read(), "topic": self.topic, "qos": self.qos})
                session.receive(accept, stop)
                if not stop.is_set():
                    self.connection.lost(session.reason or "the connection is lost")
            except OSError as error:
                self.connection.lost(error)
            except _OtherVersion as error:
                self._versions.reverse()
                self.connection.lost(error)
            except _Refused as error:
                if not self.connection.was_open:
                    hint = "give the options user and password; ${NAME} stands for a variable of the environment"
                    raise CqelsError(f"{self.place}: {error}", hint=hint) from None
                self.connection.lost(error)
            finally:
                session.close()
            self.connection.pause(stop)

    def _session(self) -> _Session:
        return _Session(self._address, self.topic, self.qos, self._versions[0], self._tls)

    def _client(self) -> tuple[str, bool]:
        """The name of this client, the same in every run, and whether its session at the broker has this topic.

        A session that has another one is ended.
        """
        note = self._note.read()
        name = self._address.get("client") or note.get("client") or f"cqels-{uuid4().hex[:16]}"
        if note.get("client") != name:
            self._note.write(note := {"client": name})
        is_known = note == {"client": name, "topic": self.topic, "qos": self.qos}
        if "topic" in note and not is_known:
            former = self._session()
            try:
                former.connect(name, anew=True)
            finally:
                former.close()
            self._note.write({"client": name})
        return name, is_known


class _OtherVersion(Exception):
    """The broker does not speak this version, or says nothing to it."""


class _Refused(Exception):
    """The broker does not let this client in."""


class _Session:
    """One connection to a broker, whose network is served by a thread of paho."""

    def __init__(self, address: Address, topic: str, qos: int, version: str, tls: Any) -> None:
        self._address, self._topic, self._qos, self._tls = address, topic, qos, tls
        self._is_5 = version == "5"
        self._ignores_retained = address.get("retained") == "ignore"
        self._client: Any = None
        self._changed = Condition()
        self._waiting: deque[Any] = deque()
        self._answer: Any = None
        """What the broker said to the connection."""
        self._subscribed: Any = None
        self._is_lost = False
        self._is_closed = False
        self.reason = ""

    # ------------------------------------------------------------ in the thread of the receiver

    def open(self, name: str, *, is_known: bool) -> None:
        """Connect, and subscribe unless the broker has a session that is known to have the topic."""
        if not self.connect(name) or not is_known:
            self._subscribe()

    def connect(self, name: str, *, anew: bool = False) -> bool:
        """Connect: whether the broker has a session of this client; with `anew` it forgets that."""
        paho = optional("paho.mqtt.client", "mqtt")
        options: dict[str, Any] = {}
        if self._is_5:
            properties = optional("paho.mqtt.properties", "mqtt")
            made = properties.Properties(optional("paho.mqtt.packettypes", "mqtt").PacketTypes.CONNECT)
            made.SessionExpiryInterval = 0 if anew else int(self._address.seconds("session", _SESSION))
            options = {"clean_start": anew, "properties": made}
        client = self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=paho.MQTTv5 if self._is_5 else paho.MQTTv311,
            clean_session=None if self._is_5 else anew,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = PATIENCE
        if self._address.user is not None:
            client.username_pw_set(self._address.user, self._address.password)
        if self._tls is not None:
            client.tls_set_context(self._tls)
        client.on_connect, client.on_subscribe = self._on_connect, self._on_subscribe
        client.on_message, client.on_disconnect = self._on_message, self._on_disconnect
        port = self._address.port(1883 if self._tls is None else 8883)
        client.connect(self._address.host, port, int(self._address.seconds("keepalive", _KEEPALIVE)), **options)
        client.loop_start()
        flags, code = self._answered(lambda: self._answer, "the broker does not answer")
        if code.is_failure:
            said = str(code).lower()
            if said == _OTHER_VERSION:
                raise _OtherVersion(f"the broker does not speak MQTT {'5' if self._is_5 else '3.1.1'}")
            raise (_Refused if said in _REFUSED else ConnectionError)(f"the broker refuses the connection: {said}")
        return bool(flags.session_present)

    def _subscribe(self) -> None:
        client = self._client
        try:
            if self._is_5:
                kind = optional("paho.mqtt.subscribeoptions", "mqtt").SubscribeOptions
                client.subscribe(self._topic, options=kind(qos=self._qos, retainHandling=kind.RETAIN_SEND_ON_SUBSCRIBE))
            else:
                client.subscribe(self._topic, self._qos)
        except ValueError:
            hint = "+ stands for one level, # for all that follow"
            raise CqelsError(f"'{self._topic}' is not a topic of MQTT", hint=hint) from None
        codes = self._answered(lambda: self._subscribed, "the broker does not answer to the subscription")
        if any(code.is_failure for code in codes):
            raise _Refused(f"the broker refuses the topic '{self._topic}': {str(codes[0]).lower()}")

    def _answered(self, answer: Any, otherwise: str) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: answer() is not None or self._is_lost, PATIENCE)
            if (found := answer()) is None:
                told = self.reason or otherwise
                raise _OtherVersion(told) if self._answer is None else ConnectionError(told)
            return found

    def receive(self, accept: Accept, stop: Event) -> None:
        """Take messages until the connection is lost."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_lost or stop.is_set(), STEP)
                if not self._waiting and (self._is_lost or stop.is_set()):
                    return
                found = [*self._waiting]
                self._waiting.clear()
                self._changed.notify_all()
            accept(self._messages(found))
            if not self._is_lost:
                for each, _ in found:
                    self._client.ack(each.mid, each.qos)

    def _messages(self, found: Sequence[tuple[Any, int]]) -> list[Message]:
        return [
            Message(bytes(each.payload), time, None, each.topic, self._headers(each))
            for each, time in found
            if not (each.retain and self._ignores_retained)
        ]

    def _headers(self, message: Any) -> tuple[tuple[str, bytes], ...]:
        pairs = getattr(message.properties, "UserProperty", ()) if self._is_5 else ()
        return tuple((name, value.encode()) for name, value in pairs)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()

    # ------------------------------------------------------------ in the thread of paho

    def _on_connect(self, client: Any, data: Any, flags: Any, code: Any, properties: Any) -> None:
        self._set("_answer", (flags, code))

    def _on_subscribe(self, client: Any, data: Any, mid: int, codes: Any, properties: Any) -> None:
        self._set("_subscribed", codes)

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        time = time_ns()
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                self._changed.wait_for(lambda: len(self._waiting) < MOST_WAITING or self._is_closed)
            self._waiting.append((message, time))
            self._changed.notify_all()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, code: Any, properties: Any) -> None:
        self.reason = "the broker has closed the connection" if code == 0 else f"the connection is lost: {code}".lower()
        self._set("_is_lost", True)

    def _set(self, name: str, value: object) -> None:
        with self._changed:
            setattr(self, name, value)
            self._changed.notify_all()
