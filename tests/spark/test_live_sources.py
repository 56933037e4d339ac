"""Live sources on Spark: receivers in the driver, inboxes below the checkpoint, each message once through a restart."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from cqels.model.errors import CqelsError
from cqels.pipeline.source.inbox import Inbox
from cqels.pipeline.source.live_source import Message
from cqels.spark import App
from cqels.spark.sinks import Memory
from cqels.spark.source.inbox_source import InboxStreamReader

OBS = "http://ex.org/obs"
QUERY = f"SELECT ?v WHERE {{ STREAM <{OBS}> [NOW] {{ ?s <http://ex.org/p> ?v }} }}"


class Missing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Server:
    """Sends lines to whoever connects."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._connection: socket.socket | None = None

    def send(self, numbers: range) -> None:
        if self._connection is None:
            self._connection, _ = self._server.accept()
        lines = [f'<http://ex.org/s> <http://ex.org/p> "{number}" {number} .\n' for number in numbers]
        self._connection.sendall("".join(lines).encode())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()
        self._server.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


def running(spark: Any, server: Server, checkpoint: Path) -> tuple[Any, Memory]:
    app = App(spark, checkpoint=checkpoint)
    app.source(f"<{OBS}>=tcp://127.0.0.1:{server.port}")
    app.add(QUERY, name="values")
    memory = Memory()
    return app.run(memory), memory


def values(memory: Memory) -> list[int]:
    return [int(result.values[0].value) for result in memory.results("values")]


def until(run: Any, memory: Memory, count: int) -> None:
    limit = time.monotonic() + 60
    while len(values(memory)) < count:
        assert not run.wait(0.1)
        assert time.monotonic() < limit, f"there are {len(values(memory))} of {count}"


def test_messages_once_through_a_restart(spark: Any, server: Server, tmp_path: Path) -> None:
    run, memory = running(spark, server, tmp_path / "state")
    server.send(range(500))
    until(run, memory, 500)
    run.stop()
    server.close()
    (folder,) = (tmp_path / "state" / "inbox").iterdir()
    with Inbox(folder) as inbox:  # which came while nobody read
        inbox.append([Message(b'<http://ex.org/s> <http://ex.org/p> "500" 500 .', 1)])
    again, more = running(spark, server, tmp_path / "state")
    server.send(range(501, 1000))
    until(again, more, 500)
    again.stop()
    assert values(memory) + values(more) == [*range(1000)]


def test_a_source_that_cannot_be_had_ends_the_run(spark: Any, tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Missing)
    Thread(target=server.serve_forever, daemon=True).start()
    app = App(spark)
    app.source(f"<{OBS}>=http://127.0.0.1:{server.server_address[1]}/")
    app.add(QUERY)
    run = app.run(Memory())
    with pytest.raises(CqelsError, match="the server answers with 404"):
        run.wait(60)
    server.shutdown()
    server.server_close()


def test_offsets_and_tasks_of_an_inbox(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        reader = InboxStreamReader(tmp_path, "p", "", 1 << 30, 4)
        first = reader.initialOffset()
        assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first
        for number in range(200):
            inbox.append([Message(b"x" * 10_000, number)])
        end = reader.latestOffset(first, reader.getDefaultReadLimit())
        assert end == {"offset": inbox.end, "ended": 0}
        parts = reader.partitions(first, end)
        assert len(parts) == 4
        assert parts[0].start == 0
        assert parts[-1].end == inbox.end
        small = InboxStreamReader(tmp_path, "p", "", 50_000, 4)
        middle = small.latestOffset(first, small.getDefaultReadLimit())
        assert 50_000 <= middle["offset"] < 62_000
        assert len(small.partitions(first, middle)) == 1


def test_a_data_frame_has_no_receiver(spark: Any) -> None:
    app = App(spark)
    app.source(f"<{OBS}>=tcp://127.0.0.1:1")
    with pytest.raises(CqelsError, match="is received by a run, not by a DataFrame"):
        app.register(QUERY)
