"""A broker for MQTT has each result at least once, also when it is killed in the middle of a batch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("paho.mqtt.client", reason="pip install 'cqels[mqtt]'")
pytest.importorskip("pyarrow", reason="pip install 'cqels[mqtt]'")

import paho.mqtt.client as mqtt
from pyoxigraph import Literal

from cqels.model.errors import CqelsError
from cqels.pipeline.sink import mqtt_sink
from cqels.pipeline.sink.mqtt_sink import MqttTopic
from cqels.pipeline.sink.retried_delivery import Patience
from cqels.pipeline.sink.sink_protocol import DeliveryStopped
from cqels.pipeline.sinks import sink_of
from cqels.results import Result

from ..spark.sending import SELECT, batch, sent_of
from .mqtt_broker import MOSQUITTO, VERSION, MqttBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqttBroker]:
    with MqttBroker(tmp_path) as started:
        yield started


class Listener:
    """Keeps what is published to all topics."""

    def __init__(self, port: int) -> None:
        self.messages: list[Any] = []
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5 if VERSION == "5" else mqtt.MQTTv311
        )
        self.client.on_message = lambda client, data, message: self.messages.append(message)
        self.ready = threading.Event()
        self.client.on_subscribe = lambda *given: self.ready.set()
        self.client.on_connect = lambda *given: self.client.subscribe("#", 1)
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self.ready.wait(10)

    def wait_for(self, ids: set[str]) -> list[Any]:
        limit = time.monotonic() + 20
        while not ids <= {json.loads(each.payload)["id"] for each in self.messages} and time.monotonic() < limit:
            time.sleep(0.01)
        self.client.disconnect()
        self.client.loop_stop()
        return self.messages


@pytest.mark.parametrize("version", sorted({"3.1.1", VERSION}))
def test_results_are_messages(broker: MqttBroker, version: str) -> None:
    listener = Listener(broker.port)
    sink = sink_of(f"mqtt://127.0.0.1:{broker.port}/of/{{query}}/{{?room}}?version={version}")
    sink.open([SELECT], run="r")
    for number in (0, 1, 1):
        sink.write(number, batch(number))
    sink.close()
    found = listener.wait_for({*(f"hot/{n}" for n in range(4)), *(f"hot/{n}" for n in range(10, 14))})
    assert [json.loads(each.payload)["id"] for each in found] == [f"hot/{n}" for n in [*range(4), *range(10, 14)]]
    assert found[0].topic == "of/hot/http:%2F%2Fex.org%2F0"
    assert found[-1].topic == "of/hot/http:%2F%2Fex.org%2F1"
    if version == "5":
        known = dict(found[1].properties.UserProperty)
        assert known == {"id": "hot/1", "query": "hot", "time": "1ms", "tick": "0", "sign": "-"}


def test_a_broker_that_is_killed_gets_the_batch_again(broker: MqttBroker) -> None:
    """What was not acknowledged waits, and is sent when the broker is back."""
    sink = MqttTopic("127.0.0.1", "hot", port=broker.port, version=VERSION)
    sink.open([SELECT], run="r")
    sink.write(0, batch(0))
    broker.kill()
    writing = threading.Thread(target=sink.write, args=[1, batch(1)])
    writing.start()
    writing.join(0.5)
    assert writing.is_alive()
    broker.start()
    listener = Listener(broker.port)
    writing.join(30)
    assert not writing.is_alive()
    sink.write(3, batch(3))
    sink.close()
    found = listener.wait_for({f"hot/{n}" for n in range(30, 34)})
    ids = {json.loads(each.payload)["id"] for each in found}
    assert {f"hot/{n}" for n in range(30, 34)} <= ids  # those of batch 1 may have come before anybody listened


def test_a_run_that_ends_does_not_wait(broker: MqttBroker) -> None:
    sink = MqttTopic("127.0.0.1", "hot", port=broker.port, version=VERSION)
    sink.open([SELECT], run="r")
    broker.kill()
    threading.Timer(0.3, sink.stop_waiting).start()
    with pytest.raises(DeliveryStopped):
        sink.write(0, batch(0))
    sink.close()


def test_what_cannot_be_published_is_refused_before_it_comes(tmp_path: Path, broker: MqttBroker) -> None:
    with pytest.raises(CqelsError, match=r"has \{\?floor\}, and query hot has \{\?room\} \{\?n\}"):
        MqttTopic("127.0.0.1", "x/{?floor}", port=broker.port, version=VERSION).open([SELECT])
    with pytest.raises(CqelsError, match=r"has \{room\}"):
        MqttTopic("127.0.0.1", "x/{room}", port=broker.port, version=VERSION).open([SELECT])
    broker.kill()
    with pytest.raises(CqelsError, match="it cannot be reached"):
        MqttTopic("127.0.0.1", "x", port=broker.port, patience=Patience(0.05, first_pause=0.01)).open([SELECT])


def test_many_messages(broker: MqttBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than may be on their way at once."""
    monkeypatch.setattr(mqtt_sink, "_MOST", 1000)
    results = [Result("hot", n, n, "+", (Literal(str(n)), None), variables=SELECT.variables) for n in range(2_500)]
    sink = MqttTopic("127.0.0.1", "hot", port=broker.port, version=VERSION)
    sink.open([SELECT], run="r")
    began = time.monotonic()
    sink.write(0, {"hot": sent_of(SELECT, results)})
    assert time.monotonic() - began < 20
    sink.close()
    assert sink.refused == sink.dropped == 0


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
def test_users_and_what_they_may_not_publish(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic read #\ntopic write ok/#\n")
    with MqttBroker(tmp_path, f"allow_anonymous true\nacl_file {tmp_path / 'acl'}\n") as broker:
        sink = MqttTopic("127.0.0.1", "no/{?n}", port=broker.port, version=VERSION)
        sink.open([SELECT], run="r")
        sink.write(0, batch(0))
        sink.close()
        assert sink.refused == 4
        assert {each.reason for each in sink.take_refused()} == {"the broker answers Not authorized"}
    with (
        MqttBroker(tmp_path, "allow_anonymous false\n") as broker,
        pytest.raises(CqelsError, match="does not let us in: Not authorized"),
    ):
        sink_of(f"mqtt://me:secret@127.0.0.1:{broker.port}/x").open([SELECT])
