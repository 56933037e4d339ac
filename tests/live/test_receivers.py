"""WebSocket, server-sent events, sockets and standard input: real servers, which are restarted in the middle."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cqels.ingest import parse_declaration
from cqels.model.errors import CqelsError
from cqels.pipeline.source.connection import Connection
from cqels.pipeline.source.inbox import Inbox
from cqels.pipeline.source.lines import LineMessages
from cqels.pipeline.source.source_registry import MODULES, source_name
from cqels.pipeline.source.sse_receiver import EventReader

from .servers import eventually, free_port, opened, rows_of, values_of

# ---------------------------------------------------------------- WebSocket


@contextmanager
def websocket_server(handle: Callable[[Any], None], port: int = 0) -> Iterator[int]:
    server = pytest.importorskip("websockets.sync.server", reason="pip install 'cqels[websocket]'")
    connections: list[Any] = []

    def handled(connection: Any) -> None:
        connections.append(connection)
        with suppress(Exception):  # the client goes
            handle(connection)

    with server.serve(handled, "127.0.0.1", port) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving.socket.getsockname()[1]
        serving.shutdown()
        thread.join()
        for connection in connections:
            connection.close()


def test_messages_of_a_websocket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server sends some and closes; it is asked again, from the same declaration."""
    asked: list[tuple[str, str | None, str]] = []

    def handle(connection: Any) -> None:
        first = connection.recv()
        asked.append((connection.request.path, connection.request.headers.get("X-Key"), first))
        number = len(asked) * 10
        connection.send(f"{number}")
        connection.send(f"{number + 1}".encode())
        if len(asked) == 2:
            connection.recv()  # stays open

    with (
        caplog.at_level(logging.WARNING, "cqels"),
        websocket_server(handle) as port,
        opened(f"ws://127.0.0.1:{port}/feed?city=x?header=X-Key: k&send=subscribe", tmp_path) as source,
    ):
        assert values_of(source, 4) == ["10", "11", "20", "21"]
        assert asked == [("/feed?city=x", "k", "subscribe")] * 2
        eventually(lambda: "connected after" in caplog.text)
    assert "the server has closed the connection; trying again" in caplog.text


def test_a_websocket_server_that_is_restarted(tmp_path: Path) -> None:
    def handle(connection: Any) -> None:
        for number in range(2000):
            connection.send(str(number))
        connection.recv()

    port = free_port()
    with opened(f"ws://127.0.0.1:{port}/", tmp_path) as source:
        for attempt in (1, 2):
            with websocket_server(handle, port):
                assert len(values_of(source, 2000 * attempt)) == 2000 * attempt


def test_a_path_that_a_websocket_server_does_not_have(tmp_path: Path) -> None:
    with (
        server_of(Missing) as port,
        opened(f"ws://127.0.0.1:{port}/", tmp_path) as source,
        pytest.raises(CqelsError, match="refuses the connection: 404"),
    ):
        rows_of(source, 1)


# ---------------------------------------------------------------- server-sent events


class Silent(BaseHTTPRequestHandler):
    """A server that has nothing."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Missing(Silent):
    protocol_version = "HTTP/1.1"


class Events(Silent):
    """Sends ten events behind the last one that the client has, and ends its answer."""

    asked: ClassVar[list[str | None]] = []
    last: ClassVar[int] = 30

    def do_GET(self) -> None:
        before = self.headers.get("Last-Event-ID")
        self.asked.append(before)
        first = int(before or -1) + 1
        if first >= self.last:
            self.send_response(204)
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"retry: 10\n\n")
        for number in range(first, first + 10):
            kind = "odd" if number % 2 else "even"
            self.wfile.write(f"id: {number}\nevent: {kind}\ndata: {number}\ndata: x\n\n".encode())
        self.wfile.write(b"id: 99\ndata: cut off")


@contextmanager
def server_of(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_events_go_on_behind_the_last_one(tmp_path: Path) -> None:
    """Also in another run, because the identifier is kept; until the server says that it is the end."""
    Events.asked.clear()
    Events.last = 20
    with server_of(Events) as port:
        with opened(f"http://127.0.0.1:{port}/events", tmp_path) as source:
            rows = rows_of(source, 20)
            eventually(lambda: source.has_ended({"offset": 1 << 60}))
        Events.last = 30
        with opened(f"http://127.0.0.1:{port}/events", tmp_path) as source:
            assert values_of(source, 30) == [f"{number}\nx" for number in range(30)]
            eventually(lambda: source.has_ended({"offset": 1 << 60}))
    assert Events.asked == [None, "9", "19", "19", "29"]
    assert [(row["key"], row["topic"]) for row in rows[:2]] == [(b"0", "even"), (b"1", "odd")]


def test_events_of_some_types(tmp_path: Path) -> None:
    Events.last = 10
    with server_of(Events) as port, opened(f"sse+http://127.0.0.1:{port}/?event=odd", tmp_path) as source:
        assert values_of(source, 5) == [f"{number}\nx" for number in range(1, 10, 2)]


def test_an_idle_answer_ends_with_the_run(tmp_path: Path) -> None:
    class Idle(Silent):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: 1\n\n")
            self.wfile.flush()
            ended.wait(20)

    ended = threading.Event()
    with server_of(Idle) as port:
        with opened(f"http://127.0.0.1:{port}/", tmp_path) as source:
            assert values_of(source, 1) == ["1"]
            begun = time.monotonic()
        assert time.monotonic() - begun < 3
        ended.set()


def test_what_is_no_stream_of_events(tmp_path: Path) -> None:
    class Page(Silent):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

    for handler, message in ((Page, "it sends text/html, and not"), (Silent, "answers with 404")):
        with (
            server_of(handler) as port,
            opened(f"http://127.0.0.1:{port}/", tmp_path / handler.__name__) as source,
            pytest.raises(CqelsError, match=message),
        ):
            rows_of(source, 1)


def test_events_however_they_are_cut() -> None:
    text = "\ufeffdata: a\r\ndata:  b\r\n\r\n: comment\rid: 7\rdata\r\r"
    data = (text + "retry: 1500\nevent: e\nid: x\0\ndata: ü\n\n").encode()
    for size in range(1, len(data)):
        reader = EventReader("1")
        found = [each for at in range(0, len(data), size) for each in reader.events(data[at : at + size], 0)]
        assert [(each.value, each.key, each.topic) for each in found] == [
            (b"a\n b", b"1", "message"),
            (b"", b"7", "message"),
            ("ü".encode(), b"7", "e"),
        ]
        assert reader.pause == 1.5


# ---------------------------------------------------------------- lines


def test_lines_of_a_socket_that_is_closed_and_opened_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with opened(f"tcp://127.0.0.1:{port}", tmp_path) as source:
            for pieces in ([b"one\ntw", b"o\r\n\nthree"], [b"four\n"]):
                connection, _ = server.accept()
                with connection:
                    for piece in pieces:
                        connection.sendall(piece)
                        time.sleep(0.02)
            assert values_of(source, 4) == ["one", "two", "three", "four"]


def test_half_a_line_is_none_when_the_run_is_stopped(tmp_path: Path) -> None:
    """It would be a record with another value."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with opened(address, tmp_path) as source:
            connection, _ = server.accept()
            connection.sendall(b"1,10\n2,1")
            assert values_of(source, 1) == ["1,10"]
        connection.close()
        with opened(address, tmp_path) as source:
            connection, _ = server.accept()
            connection.sendall(b"3,30\n")
            assert values_of(source, 2)[-1] == "3,30"
            assert "2,1" not in values_of(source, 2)
        connection.close()


def test_lines_of_csv_go_with_their_header() -> None:
    declaration = parse_declaration("<x:s>=tcp://h:1?format=csv&template=t.toml")
    lines = LineMessages(declaration)
    assert lines.of(b"\xef\xbb\xbfa,b", 1) == []
    assert [each.value for each in lines.of(b"\n1,2\n3,4\n5", 1)] == [b"a,b\n1,2\n3,4"]
    assert [each.value for each in lines.last(1)] == [b"a,b\n5"]
    named = LineMessages(parse_declaration("<x:s>=tcp://h:1?columns=a,b&template=t.toml"))
    assert [each.value for each in named.of(b"1,2\n3,4\n", 1)] == [b"1,2", b"3,4"]


_READER = """
import sys, time
from pathlib import Path
from cqels.ingest import parse_declaration
from cqels.pipeline.source.source_registry import open_source

source = open_source(parse_declaration("<x:s>=-"), Path(sys.argv[1]))
while not source.has_ended({"offset": 1 << 60}):
    time.sleep(0.01)
source.close()
"""


def test_standard_input_until_its_end(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(10_000)) + "last"
    subprocess.run([sys.executable, "-c", _READER, str(tmp_path)], input=text.encode(), check=True)
    with Inbox(tmp_path) as inbox:
        rows, end = inbox.read(0, 1 << 30)
        assert end == inbox.end
        assert [value.decode() for value in rows.column("value").to_pylist()] == text.split("\n")


# ---------------------------------------------------------------- all of them


def test_a_connection_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection("ws://h")
    with caplog.at_level(logging.WARNING, "cqels"):
        for _ in range(5):
            connection.lost(ConnectionRefusedError(111, "Connection refused"))
        connection.lost(TimeoutError())
        connection.opened()
        connection.opened()
    assert [each.getMessage().partition(" in ")[0] for each in caplog.records] == [
        "ws://h: connection refused; trying again",
        "ws://h: it does not answer; trying again",
        "ws://h: connected after 7 attempts",
    ]
    assert connection.lost_count == 6


def test_names_of_sources_do_not_depend_on_passwords() -> None:
    one, other = (
        source_name(parse_declaration(f"<x:s>=mqtt://me:{secret}@h/t?password={secret}")) for secret in ("a", "b")
    )
    assert one == other
    assert one != source_name(parse_declaration("<x:s>=mqtt://h/t"))


def test_every_source_has_its_module() -> None:
    from importlib import import_module

    from cqels.ingest.source_options import SCHEMES

    assert MODULES.keys() == SCHEMES.keys()
    for name in MODULES.values():
        assert callable(import_module(f"cqels.pipeline.source.{name}").source_of)


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for url, library, extra in (
        ("mqtt://h/t", "paho.mqtt.client", "mqtt"),
        ("kafka://h/t", "confluent_kafka", "kafka"),
        ("ws://h", "websockets.sync.client", "websocket"),
        ("http://h", "httpx", "http"),
    ):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(CqelsError) as caught, opened(url, tmp_path):
            pass
        assert f"pip install 'cqels[{extra}]'" in str(caught.value)
