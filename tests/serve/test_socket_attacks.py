"""A service that is attacked over WebSockets, and with more requests and connections than there may be."""

from __future__ import annotations

import json
import resource
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from .attacking import (
    BODY,
    CONNECTIONS,
    PATIENCE,
    READER,
    TOKEN,
    Seen,
    Served,
    attacked_service,
    check_soon,
    check_that_it_serves,
    head,
    read,
    sent,
    serving,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with attacked_service(tmp_path_factory.mktemp("attacked")) as served:
        yield served


@pytest.fixture
def attacked(service: Served) -> Iterator[Served]:
    yield service
    check_soon(service)


# ---------------------------------------------------------------- WebSockets


def opened(
    served: Served, target: str = "/streams/socket", *lines: str, token: str = TOKEN
) -> tuple[socket.socket, Seen]:
    """A WebSocket, or why there is none."""
    wanted = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", *lines]
    plain = served.connect()
    plain.sendall(head("GET", target, *wanted, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", token=token))
    return plain, read(plain, "GET")


def frame(code: int, data: bytes, *, last: bool = True, length: bytes | None = None) -> bytes:
    """A frame as clients send it, masked with zeros."""
    size = len(data)
    if length is None:
        length = (
            bytes([0x80 | size])
            if size < 126
            else bytes([0xFE]) + size.to_bytes(2)
            if size < 1 << 16
            else bytes([0xFF]) + size.to_bytes(8)
        )
    return bytes([code | (0x80 if last else 0)]) + length + bytes(4) + data


def close_code(plain: socket.socket) -> int:
    """The code with which the service closes."""
    with plain, plain.makefile("rb") as stream:
        while True:
            code, size = stream.read(2)
            size = int.from_bytes(stream.read(2)) if size == 126 else size
            data = stream.read(size)
            if code & 0x0F == 8:
                return int.from_bytes(data[:2])


def test_a_socket_takes_elements(attacked: Served) -> None:
    plain, seen = opened(attacked)
    assert seen.status == 101
    with plain:
        plain.sendall(frame(1, b"<http://ex.org/a> <http://ex.org/b> 1 ."))
        code, size = plain.recv(2)
        assert (code, json.loads(plain.recv(size))) == (0x81, {"accepted": 1})


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x03abc", 1002),  # not masked
        (frame(3, b"abc"), 1002),
        (frame(0, b"abc"), 1002),
        (frame(0x41, b"abc"), 1002),
        (frame(1, b"\xff\xfe"), 1007),
        (frame(9, b"x" * 126), 1002),
        (frame(9, b"x", last=False), 1002),
        (frame(8, b"\x03"), 1002),
        (frame(8, b"\x00\x01"), 1002),
        (frame(2, b"x" * 100, length=b"\xff" + (1 << 62).to_bytes(8)), 1009),
        (frame(2, b"x" * (BODY + 1)), 1009),
        (frame(2, b"x" * (BODY // 2), last=False) + frame(0, b"x" * (BODY // 2 + 1)), 1009),
        (frame(1, b"", last=False) + frame(0, b"", last=False) * 40_000, 1009),
        (b"\xff" * 1000, 1002),
    ],
)
def test_frames_that_are_none(attacked: Served, data: bytes, code: int) -> None:
    plain, seen = opened(attacked)
    assert seen.status == 101
    with suppress(BrokenPipeError, ConnectionResetError):
        plain.sendall(data)
    assert close_code(plain) == code


def test_what_is_sent_to_a_socket_without_sense_is_answered(attacked: Served) -> None:
    plain, _ = opened(attacked)
    with plain:
        for data in (b"", b"\x00\xff", b"[" * 100_000, b"nothing of RDF"):
            plain.sendall(frame(2, data))
            code, size = plain.recv(2)
            size = int.from_bytes(plain.recv(2)) if size == 126 else size
            answer = json.loads(plain.recv(size, socket.MSG_WAITALL))
            assert (code, answer["accepted"]) == (0x81, 0)
            assert answer.get("error") or answer["errors"]


@pytest.mark.parametrize(
    ("target", "lines", "token", "statuses"),
    [
        ("/streams/a", [], "", {401}),
        ("/streams/a", [], "nobody-0123456789", {401}),
        ("/streams/a", [], READER, {403}),
        ("/streams/a?access_token=nobody-0123456789", [], "", {401}),
        ("/streams/a", ["Origin: http://evil.example"], TOKEN, {403}),
        ("/streams/..%2fa", [], TOKEN, {400}),
        ("/streams/a%0d%0aX-Evil:%20yes", [], TOKEN, {400}),
        ("/queries/none/results", [], TOKEN, {403, 404}),
        ("/nothing", [], TOKEN, {403, 404}),
        ("/streams/a", [f"X-{number}: x" for number in range(200)], TOKEN, {431}),
        ("/streams/a", ["X: " + "x" * 9000], TOKEN, {431}),
        ("/streams/a?" + "x" * 9000, [], TOKEN, {431}),
    ],
)
def test_sockets_that_are_refused(
    attacked: Served, target: str, lines: Sequence[str], token: str, statuses: set[int]
) -> None:
    plain, seen = opened(attacked, target, *lines, token=token)
    plain.close()
    assert seen.status in statuses
    assert "x-evil" not in seen.headers


@pytest.mark.parametrize(
    "lines",
    [
        ["Sec-WebSocket-Version: 13"],
        ["Sec-WebSocket-Key: short", "Sec-WebSocket-Version: 13"],
        ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 99"],
        ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="],
    ],
)
def test_sockets_that_begin_in_another_way(attacked: Served, lines: Sequence[str]) -> None:
    found = sent(attacked, head("GET", "/streams/a", "Upgrade: websocket", "Connection: Upgrade", *lines))
    assert found.status in (400, 426)
    target = b"/streams/\xc3\xbc"
    assert sent(attacked, head("GET", target, "Upgrade: websocket", "Connection: Upgrade", *lines)).status == 400


def test_a_browser_gives_its_token_as_a_parameter(attacked: Served) -> None:
    plain, seen = opened(attacked, f"/streams/a?access_token={TOKEN}", token="")
    plain.close()
    assert seen.status == 101


# ---------------------------------------------------------------- many


def test_many_requests_at_once_on_one_connection(attacked: Served) -> None:
    with attacked.connect() as plain:
        plain.sendall(head("GET", "/health") * 500)
        found = b""
        while found.count(b"HTTP/1.1 200 OK") < 500 or not found.endswith(b"ok\n"):
            part = plain.recv(1 << 16)
            assert part
            found += part


def test_more_open_requests_than_there_may_be(attacked: Served) -> None:
    query = b"SELECT * { STREAM <others> [RANGE 1s] { ?s ?p ?o } }"
    assert sent(attacked, head("PUT", "/queries/many", f"Content-Length: {len(query)}"), query).status in (200, 201)
    follow = head("GET", "/queries/many/results", "Accept: text/event-stream")
    with ExitStack() as stack:
        held = [stack.enter_context(attacked.connect()) for _ in range(CONNECTIONS)]
        for plain in held:
            plain.sendall(follow)
        begins = [plain.recv(12) for plain in held]
        assert begins == [b"HTTP/1.1 200"] * CONNECTIONS
        found = sent(attacked, head("GET", "/"))
        assert (found.status, found.detail) == (503, f"there are {CONNECTIONS} open requests")
        assert found.headers["retry-after"] == "1"
        assert sent(attacked, head("GET", "/health", token="")).status == 200
    _until_served(attacked)


def _until_served(served: Served) -> None:
    """Wait until those that were there have gone."""
    limit = time.monotonic() + PATIENCE
    while sent(served, head("GET", "/")).status != 200:
        assert time.monotonic() < limit
        time.sleep(0.05)


def _flooded(served: Served, count: int, part: bytes, stack: ExitStack) -> list[socket.socket]:
    """So many connections at once, each with the beginning of a request."""
    held = []
    for _ in range(count):
        plain = stack.enter_context(served.connect())
        with suppress(BrokenPipeError, ConnectionResetError):
            plain.sendall(part)
        held.append(plain)
    return held


def _answers(held: Sequence[socket.socket]) -> list[bytes]:
    """How each connection is answered until it is closed."""
    found: dict[socket.socket, bytes] = dict.fromkeys(held, b"")
    limit = time.monotonic() + PATIENCE + len(held) / 100
    with selectors.DefaultSelector() as selector:
        for plain in held:
            plain.setblocking(False)
            selector.register(plain, selectors.EVENT_READ)
        while selector.get_map():
            assert time.monotonic() < limit, f"{len(selector.get_map()):,} connections are open"
            for key, _ in selector.select(1.0):
                plain = key.fileobj
                assert isinstance(plain, socket.socket)
                part = b""
                with suppress(ConnectionResetError):
                    part = plain.recv(4096)
                found[plain] += part
                if not part:
                    selector.unregister(plain)
    return [*found.values()]


def test_more_connections_than_there_may_be(attacked: Served) -> None:
    with ExitStack() as stack:
        held = _flooded(attacked, CONNECTIONS + 400, b"GET / HTTP/1.1\r\n", stack)
        found = _answers(held)
    refused = [each for each in found if b" 503 " in each]
    assert len(refused) >= 100
    assert b"connections" in refused[0]
    assert all(each.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 503 ")) for each in found)


@pytest.mark.chaos
def test_ten_thousand_connections(tmp_path: Path) -> None:
    """Half-open requests, silent ones, and others in between that are served all the time."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 12_000:
        pytest.skip(f"the system allows {most:,} open files")
    with serving(tmp_path, connections=9_000, head_seconds=20.0) as served, ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (12_000, most))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (now, most))
        before = served.memory
        held: list[socket.socket] = []
        for part in (b"", b"GET / HTTP/1.1\r\nX: ", head("POST", "/streams/a", "Content-Length: 10"), b"GET /") * 2:
            held += _flooded(served, 1_125, part, stack)
            check_that_it_serves(served)
        held += _flooded(served, 1_000, b"GET / HTTP/1.1\r\n", stack)
        assert served.memory - before < 1 << 30
        found = _answers(held)
        assert len(found) == 10_000
        assert {each[9:12] for each in found} <= {b"", b"408", b"503"}
        assert sum(b" 503 " in each for each in found) >= 500
        check_that_it_serves(served)
        assert "Traceback" not in served.log.read_text()
