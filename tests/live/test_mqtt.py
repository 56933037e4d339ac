"""Messages of a real MQTT broker reach the inbox at least once, whatever is restarted or killed meanwhile."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("paho.mqtt", reason="pip install 'cqels[mqtt]'")

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cqels.model.errors import CqelsError
from cqels.pipeline.source.inbox import Inbox

from .mqtt_broker import MOSQUITTO, MqttBroker
from .servers import eventually, opened, rows_of, rows_so_far, values_of

VERSIONS = ["3.1.1"] if MOSQUITTO is None else ["5", "3.1.1"]
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")


def lasting(folder: Path, settings: str = "allow_anonymous true") -> MqttBroker:
    """A broker that keeps sessions on its disk, with any number of messages."""
    kept = f"persistence true\npersistence_location {folder}/\nmax_queued_messages 0\n"
    return MqttBroker(folder, f"{kept}{settings}\n")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttBroker]:
    with lasting(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


class Publisher:
    """A client that publishes with quality of service 1, and waits until the broker has it."""

    def __init__(self, broker: MqttBroker) -> None:
        kind = paho.MQTTv5 if VERSIONS[0] == "5" else paho.MQTTv311
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=kind)
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()

    def send(self, topic: str, *values: str, retain: bool = False, **headers: str) -> None:
        properties = Properties(PacketTypes.PUBLISH) if VERSIONS[0] == "5" else None
        if headers and properties is not None:
            properties.UserProperty = [*headers.items()]
        sent = [self._client.publish(topic, value, 1, retain, properties) for value in values]
        for each in sent:
            each.wait_for_publish(10)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *fault: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def connected(source: Any) -> None:
    eventually(lambda: source._receiver.connection.was_open)


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_with_wildcards_and_headers(broker: MqttBroker, version: str, tmp_path: Path) -> None:
    topic = f"building{version}"
    before = time.time_ns()
    with Publisher(broker) as publisher:
        publisher.send(f"{topic}/k/temp", "kept", retain=True)
        with opened(f"mqtt://127.0.0.1:{broker.port}/{topic}/+/temp?version={version}", tmp_path) as source:
            connected(source)
            publisher.send(f"{topic}/a/temp", "21", unit="C")
            publisher.send(f"{topic}/a/humidity", "50")
            publisher.send(f"{topic}/b/temp", "22")
            rows = rows_of(source, 3)
        publisher.send(f"{topic}/k/temp", "", retain=True)
    assert [(row["topic"], row["value"]) for row in rows] == [
        (f"{topic}/k/temp", b"kept"),
        (f"{topic}/a/temp", b"21"),
        (f"{topic}/b/temp", b"22"),
    ]
    assert [dict(row["headers"]) for row in rows] == [{}, {"unit": b"C"} if version == "5" else {}, {}]  # type: ignore[call-overload]
    assert all(before < row["time"].value < time.time_ns() for row in rows)  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_keeps_messages_while_nobody_is_there(broker: MqttBroker, version: str, tmp_path: Path) -> None:
    declared = f"mqtt://127.0.0.1:{broker.port}/away{version}/#?version={version}"
    with Publisher(broker) as publisher:
        publisher.send(f"away{version}/r", "retained", retain=True)
        with opened(declared, tmp_path) as source:
            connected(source)
            publisher.send(f"away{version}/a", "1")
            assert values_of(source, 2) == ["retained", "1"]
        publisher.send(f"away{version}/a", "2", "3")
        with opened(declared, tmp_path) as source:
            publisher.send(f"away{version}/a", "4")
            assert values_of(source, 5) == ["retained", "1", "2", "3", "4"]
        with opened(declared.replace("#", "b"), tmp_path) as source:  # another topic: another session
            connected(source)
            publisher.send(f"away{version}/a", "no")
            publisher.send(f"away{version}/b", "yes")
            assert values_of(source, 6)[5:] == ["yes"]


@needs_mosquitto
def test_a_broker_that_is_restarted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "broker").mkdir()
    broker = lasting(tmp_path / "broker")
    with (
        caplog.at_level(logging.WARNING, "cqels"),
        opened(f"mqtt://127.0.0.1:{broker.port}/t", tmp_path / "inbox") as source,
    ):
        eventually(lambda: "connection refused; trying again" in caplog.text)
        broker.start()
        connected(source)
        with Publisher(broker) as publisher:
            publisher.send("t", *map(str, range(500)))
        broker.stop()
        eventually(lambda: "trying again" in caplog.records[-1].getMessage())
        with broker, Publisher(broker) as publisher:
            publisher.send("t", *map(str, range(500, 1000)))
            eventually(lambda: "connected after" in caplog.records[-1].getMessage())
            rows, expected = rows_so_far(source), {str(number).encode() for number in range(1000)}
            eventually(lambda: {row["value"] for row in rows()} == expected)  # some may come twice
    assert len(caplog.records) <= 6  # however often it was tried


_RECEIVER = """
import sys, time
from pathlib import Path
from cqels.ingest import parse_declaration
from cqels.pipeline.source.source_registry import open_source

source = open_source(parse_declaration(sys.argv[1]), Path(sys.argv[2]))
print("open", flush=True)
time.sleep(60)
"""


def test_nothing_is_lost_by_kills_of_the_receiving_process(broker: MqttBroker, tmp_path: Path) -> None:
    declared = f"<http://ex.org/s>=mqtt://127.0.0.1:{broker.port}/killed"
    with opened(f"mqtt://127.0.0.1:{broker.port}/killed", tmp_path / "inbox") as source, Publisher(broker) as publisher:
        connected(source)  # so that there is a session
    command = [sys.executable, "-c", _RECEIVER, declared, str(tmp_path / "inbox")]
    with Publisher(broker) as publisher:
        for attempt in range(3):
            with subprocess.Popen(command, stdout=subprocess.PIPE) as receiver:
                assert receiver.stdout is not None
                receiver.stdout.readline()
                publisher.send("killed", *(str(attempt * 1000 + number) for number in range(1000)))
                time.sleep(0.05 * attempt)
                receiver.kill()
    with opened(f"mqtt://127.0.0.1:{broker.port}/killed", tmp_path / "inbox") as source:
        eventually(lambda: len({*_all(source)}) == 3000)


def _all(source: Any) -> list[str]:
    inbox: Inbox = source.inbox
    found: list[str] = []
    at = inbox.first
    while at < inbox.end:
        rows, at = inbox.read(at, 1 << 20)
        found += [value.decode() for value in rows.column("value").to_pylist()]
    return found


@needs_mosquitto
def test_a_password_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hidden")
    (tmp_path / "passwords").write_text("")
    with lasting(tmp_path, f"allow_anonymous false\npassword_file {tmp_path}/passwords") as broker:
        declared = f"mqtt://127.0.0.1:{broker.port}/t?user=me&password=${{SECRET}}"
        with (
            opened(declared, tmp_path / "inbox") as source,
            pytest.raises(CqelsError, match="refuses the connection") as caught,
        ):
            rows_of(source, 1)
    assert "hidden" not in str(caught.value)


def test_topics_that_are_none(broker: MqttBroker, tmp_path: Path) -> None:
    with (
        opened(f"mqtt://127.0.0.1:{broker.port}/a/b%23c", tmp_path) as source,
        pytest.raises(CqelsError, match="'a/b#c' is not a topic of MQTT"),
    ):
        rows_of(source, 1)
    with pytest.raises(CqelsError, match="has no topic"), opened("mqtt://localhost", tmp_path / "other"):
        pass


def test_a_broker_that_speaks_only_the_older_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of amqtt: nobody says which version it has."""
    pytest.importorskip("amqtt", reason="pip install amqtt")
    monkeypatch.setattr("cqels.pipeline.source.mqtt_receiver.PATIENCE", 1.0)
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    with (
        MqttBroker(tmp_path, program=None) as broker,
        opened(f"mqtt://127.0.0.1:{broker.port}/old/+", tmp_path / "inbox") as source,
    ):
        connected(source)
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        client.publish("old/a", "1", 1).wait_for_publish(10)
        assert values_of(source, 1) == ["1"]
        client.disconnect()
        client.loop_stop()


@needs_mosquitto
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves a refused socket to Python
def test_encrypted(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=tmp_path, check=True, capture_output=True)
    settings = f"allow_anonymous true\ncertfile {tmp_path}/cert.pem\nkeyfile {tmp_path}/key.pem"
    with lasting(tmp_path, settings) as broker:
        declared = f"mqtts://127.0.0.1:{broker.port}/t"
        with opened(f"{declared}?ca={tmp_path}/cert.pem", tmp_path / "inbox") as source:
            connected(source)
        with opened(f"{declared}?insecure=true", tmp_path / "other") as source:
            connected(source)
        refused: Any
        with opened(declared, tmp_path / "third") as refused:
            eventually(lambda: refused._receiver.connection.lost_count)
            assert not refused._receiver.connection.was_open
    with pytest.raises(CqelsError, match="its certificates cannot be read"), opened(f"{declared}?ca=none", tmp_path):
        pass
