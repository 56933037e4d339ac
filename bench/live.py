"""Live sources: messages a second into the inbox, and from there through lifting, for each way in.

    python bench/live.py --messages 200000 --ways csv json websocket mqtt
    python bench/live.py --ways kafka --kafka localhost:9092
    python bench/live.py --minutes 60          # a run at full rate: is its memory level? (bench/live_soak.py)

A message is a reading of a sensor, 70 to 90 bytes of JSON or 40 of CSV, of which a template makes two triples.  A
server on this machine has all of them before the clock starts, so a rate is that of receiving: up to the moment when
the last message is durable.  MQTT is a mosquitto of its own, with quality of service 1 and the session of a client that
was away.  JSON lines and CSV come over a socket.  For Kafka, which needs no inbox, the first rate is that of reading.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
from live_soak import quarters, soak
from measure import CONSOLE, machine, per_second, progress
from rich.table import Table

from cqels.ingest import parse_declaration
from cqels.pipeline.lift.declared_lift import lift_of
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_lifts import Lifting
from cqels.pipeline.source.live_source import ReplayableSource
from cqels.pipeline.source.source_registry import open_source

STREAM = "http://example.org/readings"
TEMPLATE = """
subject = "http://example.org/sensor/{sensor}"

[time]
column = "at"

[predicates]
"http://example.org/temperature" = { column = "t" }
"http://example.org/room" = { iri = "http://example.org/room/{room}" }
"""
_PATIENCE = 600.0


def objects(count: int) -> list[str]:
    return [
        f'{{"sensor": "s{n % 1000}", "room": "r{n % 50}", "t": {20 + n % 70 / 10}, "at": {1_700_000_000_000 + n}}}'
        for n in range(count)
    ]


def records(count: int) -> list[str]:
    return [f"s{n % 1000},r{n % 50},{20 + n % 70 / 10},{1_700_000_000_000 + n}" for n in range(count)]


# ---------------------------------------------------------------- servers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def over_a_socket(lines: list[str], options: str) -> Iterator[str]:
    data = "".join(f"{line}\n" for line in lines).encode()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(data)
            ended.wait()

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}?{options}"
        ended.set()


@contextmanager
def over_a_websocket(lines: list[str], options: str) -> Iterator[str]:
    """Its server is another process, with an event loop: the fastest that the library has."""
    port = free_port()
    code = (
        "import asyncio, sys, websockets\n"
        "lines = sys.stdin.read().split('\\n')\n"
        "async def handle(connection):\n"
        "    for line in lines:\n"
        "        await connection.send(line)\n"
        "    await connection.wait_closed()\n"
        "async def main():\n"
        f"    async with websockets.serve(handle, '127.0.0.1', {port}, compression=None):\n"
        "        await asyncio.Future()\n"
        "asyncio.run(main())\n"
    )
    import sys

    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        server.stdin.write("\n".join(lines).encode())
        server.stdin.close()
        _await_port(port)
        yield f"ws://127.0.0.1:{port}/?{options}"
        server.kill()


@contextmanager
def over_mqtt(lines: list[str], options: str) -> Iterator[str]:
    import paho.mqtt.client as paho

    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SystemExit("mosquitto is not installed")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "mosquitto.conf"
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 1000\n"
        )
        with subprocess.Popen([program, "-c", str(settings)], stderr=subprocess.DEVNULL) as broker:
            _await_port(port)
            away = paho.Client(
                paho.CallbackAPIVersion.VERSION2, client_id="bench", clean_session=False, protocol=paho.MQTTv311
            )
            subscribed = threading.Event()
            away.on_subscribe = lambda *_: subscribed.set()
            away.connect("127.0.0.1", port)
            away.loop_start()
            away.subscribe("bench", 1)
            subscribed.wait(10)
            away.disconnect()
            away.loop_stop()
            publish(port, "bench", lines)
            yield f"mqtt://127.0.0.1:{port}/bench?client=bench&version=3.1.1&{options}"
            broker.kill()


def publish(port: int, topic: str, lines: list[str]) -> None:
    """Publish with quality of service 1 in the fewest bytes: libraries take longer than what is measured."""
    with socket.create_connection(("127.0.0.1", port)) as broker:
        broker.sendall(b"\x10\x13\x00\x04MQTT\x04\x02\x00\x00\x00\x07sending")
        _read(broker, 4)
        for at in range(0, len(lines), 1000):
            part = lines[at : at + 1000]
            broker.sendall(b"".join(_packet(topic, number, line) for number, line in enumerate(part, 1)))
            _read(broker, 4 * len(part))  # the acknowledgements


def _packet(topic: str, number: int, line: str) -> bytes:
    name, value = topic.encode(), line.encode()
    body = len(name).to_bytes(2, "big") + name + number.to_bytes(2, "big") + value
    size, digits = len(body), bytearray()
    while not digits or size:
        digits.append(size % 128 | (128 if size >= 128 else 0))
        size //= 128
    return b"\x32" + digits + body


def _read(broker: socket.socket, size: int) -> None:
    while size:
        size -= len(broker.recv(size))


@contextmanager
def over_kafka(lines: list[str], options: str, servers: str) -> Iterator[str]:
    from confluent_kafka import Producer

    topic = f"bench-{time.time_ns()}"
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 10_000_000})
    for line in lines:
        producer.produce(topic, line)
    producer.flush(_PATIENCE)
    yield f"kafka://{servers}/{topic}?{options}"


def _await_port(port: int) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("a server does not answer")


# ---------------------------------------------------------------- measuring


def received(source: ReplayableSource, count: int, changed: threading.Event) -> tuple[list[pyarrow.RecordBatch], float]:
    """The rows of so many messages, and the seconds that receiving took, from the first of them on."""
    rows: list[pyarrow.RecordBatch] = []
    limit = time.monotonic() + _PATIENCE
    position = source.start()
    if (inbox := getattr(source, "inbox", None)) is not None:
        while inbox.count < count and time.monotonic() < limit:
            changed.wait(0.05)
            changed.clear()
        ended = time.time_ns()
        while position["offset"] < inbox.end:
            batch, position = source.read(position, 4 << 20)
            rows.append(batch)
        first = rows[0].column("time").cast(pyarrow.int64())[0].as_py()
        return rows, (ended - first) / 1e9
    found, begun = 0, 0.0
    while found < count and time.monotonic() < limit:
        changed.wait(0.05)
        changed.clear()
        batch, position = source.read(position, 4 << 20)
        if batch.num_rows:
            begun = begun or time.perf_counter()
            rows.append(batch)
            found += batch.num_rows
    return rows, time.perf_counter() - begun


def measured(way: Any, count: int) -> tuple[float, float, int]:
    """Messages a second into the inbox and through lifting, and what was rejected."""
    with tempfile.TemporaryDirectory() as folder, way as declared:
        declaration = parse_declaration(f"<{STREAM}>={declared}")
        changed = threading.Event()
        source = open_source(declaration, Path(folder) / "inbox", notify=changed.set)
        try:
            rows, seconds = received(source, count, changed)
        finally:
            source.close()
        lifting = Lifting(STREAM, 0, lift_of(declaration), (PushedPatterns(frozenset([ANYTHING])),))
        for batch in lifting.blocks(iter(rows[:1])):
            batch.num_rows  # noqa: B018  kernels are loaded
        begun = time.perf_counter()
        rejected = sum(row == "rejected" for each in lifting.blocks(iter(rows)) for row in each["kind"].to_pylist())
        return count / seconds, count / (time.perf_counter() - begun), rejected


def ways(count: int, servers: str, template: Path) -> dict[str, Callable[[], Any]]:
    options = f"template={template}"
    return {
        "csv": lambda: over_a_socket(records(count), f"{options}&columns=sensor,room,t,at"),
        "json": lambda: over_a_socket(objects(count), options),
        "websocket": lambda: over_a_websocket(objects(count), options),
        "mqtt": lambda: over_mqtt(objects(count), options),
        "kafka": lambda: over_kafka(objects(count), options, servers),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument(
        "--ways", nargs="+", choices=["csv", "json", "websocket", "mqtt", "kafka"], default=["csv", "json"]
    )
    parser.add_argument("--kafka", default="localhost:9092", help="a broker of Kafka")
    parser.add_argument("--minutes", type=float, help="run so long at full rate instead, and look at the memory")
    arguments = parser.parse_args()
    if arguments.minutes is not None:
        CONSOLE.print(quarters(soak(arguments.minutes)))
        CONSOLE.print(machine())
        return
    table = Table("way in", "received", "lifted", "rejected", title=f"{arguments.messages:,} messages")
    with tempfile.TemporaryDirectory() as folder, progress() as shown:
        template = Path(folder) / "template.toml"
        template.write_text(TEMPLATE)
        made = ways(arguments.messages, arguments.kafka, template)
        task = shown.add_task("measuring", total=len(arguments.ways))
        for name in arguments.ways:
            shown.update(task, description=name)
            into, lifted, rejected = measured(made[name](), arguments.messages)
            table.add_row(name, per_second(into), per_second(lifted), str(rejected))
            shown.advance(task)
    CONSOLE.print(table)
    CONSOLE.print(machine())


if __name__ == "__main__":
    main()
