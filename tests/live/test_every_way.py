"""One scenario over every source and every sink: the same rows everywhere, and they are those of the reference."""

from __future__ import annotations

import json
import random
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cqels.ingest import parse_declaration
from cqels.live.live_run import LiveRun
from cqels.model.terms import CQ
from cqels.pipeline.sinks import sink_of
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.reference.reference_replay import replay
from cqels.results import Result
from cqels.store.dataset import Store
from cqels.store.script import execute

from .mqtt_broker import MOSQUITTO, MqttBroker
from .servers import eventually

EX = "http://ex.org/"
SOURCES = ("file", "tcp", "ws", "sse", "mqtt")
LAST = 90
"""Seconds up to which each stream promises to have sent all."""
DATA = f"INSERT DATA {{ {' '.join(f'<{EX}s{number}> <{EX}in> <{EX}room{number % 2}> .' for number in range(4))} }}"
PREFIX = f"PREFIX : <{EX}>"
QUERIES = {
    "rooms": f"""{PREFIX} SELECT ?room (COUNT(*) AS ?n) (MAX(?t) AS ?most) WHERE {{
        {" UNION ".join(f"{{ STREAM :{name} [RANGE 20s] {{ ?s :temp ?t }} }}" for name in SOURCES)}
        ?s :in ?room }} GROUP BY ?room""",
    "pairs": f"""{PREFIX} SELECT ?s ?a ?b WHERE {{
        STREAM :mqtt [RANGE 8s] {{ ?s :temp ?a }} STREAM :ws [RANGE 6s SLIDE 3s] {{ ?s :temp ?b }}
        FILTER(?a > ?b) }}""",
    "silent": f"""{PREFIX} SELECT ?s WHERE {{
        STREAM :file [RANGE 30s] {{ ?s :temp ?t }}
        FILTER NOT EXISTS {{ STREAM :sse [RANGE 10s] {{ ?s :temp ?u }} }} }}""",
}


def lines_of(name: str) -> list[str]:
    """The readings of a stream, in the order of time, and the promise that no others come."""
    draw = random.Random(name)
    times = sorted(draw.randrange(0, LAST * 1000) for _ in range(40))
    readings = [f'<{EX}s{draw.randrange(4)}> <{EX}temp> {draw.randrange(15, 40)} "{time}" .' for time in times]
    return [*readings, f'<{EX}{name}> <{CQ}noElementBefore> {LAST * 1000} "{LAST * 1000}" .']


def queries() -> list[Query]:
    return [prepare(text, name=name, emit="changes") for name, text in QUERIES.items()]


def dataset() -> Store:
    store = Store()
    execute(store, DATA)
    return store


Rows = dict[str, list[tuple[Any, ...]]]


def row(result: Result) -> tuple[Any, ...]:
    return (result.nanoseconds, result.sign, *(None if each is None else str(each) for each in result.values))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What the reference computes of the same lines in files."""
    folder = tmp_path_factory.mktemp("reference")
    declared = []
    for name in SOURCES:
        (folder / f"{name}.nt").write_text("\n".join(lines_of(name)) + "\n")
        declared.append(parse_declaration(f"<{EX}{name}>={folder}/{name}.nt?idle=1h"))
    rows: Rows = {name: [] for name in QUERIES}
    for query, result in replay(queries(), declared, dataset()):
        rows[query.name or ""].append(row(result))
    assert all(len(each) > 10 for each in rows.values())
    return rows


# ---------------------------------------------------------------- servers


@contextmanager
def in_a_thread(server: Any) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def line_server() -> Iterator[int]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall("".join(line + "\n" for line in lines_of("tcp")).encode())
            self.request.recv(1)  # until the client goes

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server, in_a_thread(server) as port:
        yield port


@contextmanager
def event_server() -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for number, line in enumerate(lines_of("sse")):
                self.wfile.write(f"id: {number}\ndata: {line}\n\n".encode())
            self.rfile.read(1)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with in_a_thread(server) as port:
        yield port


@contextmanager
def websocket_server() -> Iterator[int]:
    from websockets.sync.server import serve

    def handle(connection: Any) -> None:
        for line in lines_of("ws"):
            connection.send(line)
        connection.recv()

    with serve(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()


class Hook:
    """A webhook that keeps what it is sent."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def serving(self) -> Iterator[int]:
        rows = self.rows

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                rows.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
            yield port


@contextmanager
def subscribed(port: int) -> Iterator[list[dict[str, Any]]]:
    """What is published to the topics of results."""
    import paho.mqtt.client as mqtt

    found: list[dict[str, Any]] = []
    ready = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.on_message = lambda _, __, message: found.append(json.loads(message.payload))
    client.on_subscribe = lambda *_: ready.set()
    client.connect("127.0.0.1", port)
    client.subscribe("results/#", qos=1)
    client.loop_start()
    assert ready.wait(10)
    yield found
    client.loop_stop()
    client.disconnect()


def publish(port: int, name: str) -> None:
    import paho.mqtt.client as mqtt

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for line in lines_of(name):
        client.publish(f"readings/{name}", line, qos=1).wait_for_publish(10)
    client.loop_stop()
    client.disconnect()


# ---------------------------------------------------------------- the scenario


class World:
    """The servers of all sources and sinks, and what the sinks have got."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        pytest.importorskip("paho.mqtt.client", reason="pip install 'cqels[mqtt]'")
        pytest.importorskip("websockets", reason="pip install 'cqels[websocket]'")
        pytest.importorskip("httpx", reason="pip install 'cqels[http]'")
        if MOSQUITTO is None:
            pytest.skip("mosquitto is not installed, whose log says when a client has subscribed")
        (folder / "broker").mkdir()
        self._broker_log = folder / "broker" / "log"
        settings = f"allow_anonymous true\nlog_type subscribe\nlog_dest file {self._broker_log}\n"
        self.broker = stack.enter_context(MqttBroker(folder / "broker", settings))
        self.published = stack.enter_context(subscribed(self.broker.port))
        self.hook = Hook()
        hook = stack.enter_context(self.hook.serving())
        self.file = folder / "readings.nt"
        self.file.write_text("")
        self.results = folder / "results"
        places = {
            "file": str(self.file),
            "tcp": f"tcp://127.0.0.1:{stack.enter_context(line_server())}",
            "ws": f"ws://127.0.0.1:{stack.enter_context(websocket_server())}/",
            "sse": f"sse+http://127.0.0.1:{stack.enter_context(event_server())}/",
            "mqtt": f"mqtt://127.0.0.1:{self.broker.port}/readings/mqtt",
        }
        self.streams = [parse_declaration(f"<{EX}{name}>={place}?idle=1h") for name, place in places.items()]
        self.sinks = [
            f"{self.results}/",
            f"http://127.0.0.1:{hook}/hook",
            f"mqtt://127.0.0.1:{self.broker.port}/results/{{query}}",
        ]

    def send(self) -> None:
        """Let the file grow and publish to the broker; servers send by themselves."""
        eventually(lambda: "readings/mqtt" in self._broker_log.read_text(), within=60)  # which keeps nothing before
        publish(self.broker.port, "mqtt")
        for line in lines_of("file"):
            with self.file.open("a") as stream:
                stream.write(line + "\n")
            time.sleep(0.001)

    def check(self, expected: Rows) -> None:
        """All sinks have what the reference computes, each row once, in order."""
        count = sum(map(len, expected.values()))
        eventually(lambda: len(self.published) >= count and len(self.hook.rows) >= count, within=60)
        for name, rows in expected.items():
            written = [line.split(",") for line in (self.results / f"{name}.csv").read_text().splitlines()[1:]]
            assert len(written) == len(rows), name
            for found in (self.published, self.hook.rows):
                mine = [each for each in found if each["query"] == name]
                assert [each["id"] for each in mine] == [f"{name}/{number}" for number in range(len(rows))]
                assert [each.get("sign", "") for each in mine] == [sign for _, sign, *_ in rows]


def test_embedded(tmp_path: Path, expected: Rows) -> None:
    with ExitStack() as stack:
        world = World(tmp_path, stack)
        memory = sink_of("memory")
        sinks = [memory, *map(sink_of, world.sinks)]
        run = LiveRun(world.streams, queries(), dataset(), sinks, state=tmp_path / "state")
        run.start()
        stack.callback(run.stop)
        world.send()
        eventually(lambda: run.tally.results >= sum(map(len, expected.values())), within=60)
        world.check(expected)
        run.stop()
        assert run.wait()
        assert (run.tally.rejected, run.tally.late) == (0, 0)
    assert {name: [*map(row, memory.results(name))] for name in QUERIES} == expected


@pytest.fixture
def session() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    from cqels.spark import start, stop

    made = start(master="local[2]", partitions=1)
    yield made
    stop(made)


def test_on_spark(tmp_path: Path, expected: Rows, session: Any) -> None:
    """The same streams, queries and sinks: receivers in the driver, inboxes below the checkpoint."""
    from cqels.spark import App

    with ExitStack() as stack:
        world = World(tmp_path, stack)
        memory = sink_of("memory")
        app = App(session, checkpoint=tmp_path / "state", follow=True, instances=1, store=dataset())
        for each in world.streams:
            app.source(each)
        for query in queries():
            app.add(query)
        run = app.run(memory, *map(sink_of, world.sinks))
        stack.callback(run.stop)
        world.send()
        world.check(expected)
        run.stop()
    assert {name: [*map(row, memory.results(name))] for name in QUERIES} == expected
