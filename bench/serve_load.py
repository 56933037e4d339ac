"""A service in a process of its own, and clients that cost little: raw sockets in one loop, which know what comes back.

What is measured with them is the business of `serve.py` and `serve_soak.py`.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as PipeEnd
from pathlib import Path

BASE = "http://localhost:7070/"
"""Names of streams and queries are below it."""
_PATIENCE = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")
_EVENT = re.compile(rb'"n": \{[^}]*?"value": "(\d+)"')
"""The number that an event of the queries here has."""
_TAKEN = b'"rejected":0}'
_ACKNOWLEDGED = b'{"accepted": 1}'


@dataclass
class Served:
    """A service that runs."""

    port: int
    process: subprocess.Popen[bytes]
    state: Path

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The answer to a request, which has to be a good one."""
        with Connection(self.port) as connection:
            status, answer = connection.ask(method, path, body)
        if status >= 400:
            raise SystemExit(f"{method} {path} gives {status}: {answer.decode(errors='replace')[:500]}")
        return answer

    def declare(self, stream: str, **words: str) -> None:
        self.ask("PUT", f"/streams/{stream}", json.dumps(words).encode())

    def register(self, name: str, text: str) -> None:
        self.ask("PUT", f"/queries/{name}", text.encode())

    @property
    def elements(self) -> int:
        """How many have been processed."""
        return int(json.loads(self.ask("GET", "/"))["elements"])

    @property
    def processor(self) -> float:
        """Seconds of processor time that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def resident(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(engine: str = "embedded", *options: str) -> Iterator[Served]:
    """`cqels serve` with a state of its own, from its beginning to its end."""
    command = [sys.executable, "-c", "from cqels.cli import main; main()", "serve", "--port", "0"]
    with tempfile.TemporaryDirectory(prefix="cqels-serve-") as name:
        folder = Path(name)
        command += ["--engine", engine, "--state", str(folder / "state"), *options]
        with (
            (folder / "said").open("wb") as said,
            subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said) as process,
        ):
            try:
                yield Served(_port(process, folder / "said"), process, folder / "state")
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()


def _port(process: subprocess.Popen[bytes], said: Path) -> int:
    limit = time.monotonic() + _PATIENCE
    while time.monotonic() < limit and process.poll() is None:
        if (match := re.search(rb"address +http://127\.0\.0\.1:(\d+)\s", said.read_bytes())) is not None:
            return int(match[1])
        time.sleep(0.02)
    raise SystemExit(f"the service has not begun: {said.read_text(errors='replace')[-2000:]}")


class Connection:
    """A connection that is kept open; who asks waits."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, path: str, body: bytes = b"", media: str = "") -> tuple[int, bytes]:
        self.socket.sendall(head(method, path, len(body), media))
        self.socket.sendall(body)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        start, _, content = received.partition(b"\r\n\r\n")
        size = re.search(rb"content-length: *(\d+)", start, re.IGNORECASE)
        while size is not None and len(content) < int(size[1]):
            content += self._more()
        return int(start.split(b" ", 2)[1]), content

    def _more(self) -> bytes:
        if not (data := self.socket.recv(1 << 16)):
            raise SystemExit("the service has closed a connection")
        return data

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *fault: object) -> None:
        self.socket.close()


def head(method: str, path: str, size: int, media: str = "", more: str = "") -> bytes:
    kind = f"Content-Type: {media}\r\n" if media else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {size}\r\n{more}\r\n".encode()


def pushed(stream: str, body: bytes, media: str = "application/n-triples") -> bytes:
    """A push as it is sent."""
    return head("POST", f"/streams/{stream}", len(body), media) + body


def open_files() -> None:
    """Let this process have as many connections as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# ---------------------------------------------------------------- one by one


@dataclass
class Load:
    """What a client has done."""

    count: int
    seconds: float
    processor: float
    """Seconds of processor time that the client took."""
    times: list[float] = field(default_factory=list)
    """Seconds from a push to its answer, or to its result."""


def one_by_one(port: int, request: Callable[[int], bytes], connections: int, seconds: float) -> Load:
    """Push so many elements at once, each on a connection of its own; the next one when one is acknowledged."""
    epoll, clock = select.epoll(), time.perf_counter
    sockets: dict[int, socket.socket] = {}
    sent_at: dict[int, float] = {}
    times: list[float] = []
    received: dict[int, bytes] = {}
    number, spent, began = 0, time.process_time(), clock()
    for _ in range(connections):
        made = Connection(port).socket
        made.setblocking(False)
        sockets[made.fileno()] = made
        epoll.register(made, select.EPOLLIN)
        sent_at[made.fileno()] = clock()
        made.send(request(number))
        number += 1
    while (now := clock()) < began + seconds:
        for file, _ in epoll.poll(0.1):
            answer = received.pop(file, b"") + sockets[file].recv(1 << 16)
            if not answer.endswith(_TAKEN):
                received[file] = _checked(answer)
                continue
            times.append(clock() - sent_at[file])
            sent_at[file] = clock()
            sockets[file].send(request(number))
            number += 1
    load = Load(len(times), now - began, time.process_time() - spent, times)
    _close(sockets.values())
    return load


def by_websocket(port: int, stream: str, message: Callable[[int], bytes], sockets: int, seconds: float) -> Load:
    """Push so for some time by WebSockets, each of which has up to 64 messages without an answer."""
    epoll, clock = select.epoll(), time.perf_counter
    opened = {made.fileno(): made for made in (_websocket(port, stream) for _ in range(sockets))}
    number, done, spent, began = 0, 0, time.process_time(), clock()

    def messages(count: int) -> bytes:
        nonlocal number
        number += count
        return b"".join(_masked(message(each)) for each in range(number - count, number))

    for made in opened.values():
        epoll.register(made, select.EPOLLIN)
        made.sendall(messages(64))
    rest = dict.fromkeys(opened, b"")
    while (now := clock()) < began + seconds:
        for file, _ in epoll.poll(0.1):
            data = rest[file] + opened[file].recv(1 << 16)
            answered = data.count(_ACKNOWLEDGED)
            rest[file] = data[data.rfind(_ACKNOWLEDGED) + len(_ACKNOWLEDGED) :] if answered else data
            if b'"error' in data or b'"rejected' in data or not data:
                raise SystemExit(f"not taken: {data[-500:]!r}")
            done += answered
            opened[file].sendall(messages(answered))
    load = Load(done, now - began, time.process_time() - spent)
    _close(opened.values())
    return load


def _websocket(port: int, stream: str) -> socket.socket:
    made = Connection(port).socket
    more = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    more += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    path = f"/streams/{stream}?format=application/n-triples"
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
    answer = made.recv(1 << 16)
    if b" 101 " not in answer:
        raise SystemExit(f"no WebSocket: {answer!r}")
    return made


def _masked(content: bytes) -> bytes:
    """A text as a frame of a client; the mask is zero, which changes nothing."""
    size = len(content)
    length = bytes([128 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + content


def _checked(answer: bytes) -> bytes:
    if not answer or (len(answer) > 12 and not answer.startswith(b"HTTP/1.1 200")):
        raise SystemExit(f"not taken: {answer[-500:]!r}")
    return answer


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()


# ---------------------------------------------------------------- readers


class Reader:
    """A connection on which the results of a query come as events."""

    def __init__(self, port: int, query: str, *, after: int | None = None, buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(_PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        last = "" if after is None else f"Last-Event-ID: {after}\r\n"
        path = f"/queries/{query}/results"
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{last}\r\n".encode()
        )
        self._rest = b""

    def connected(self) -> None:
        """Wait until what comes from now on will be sent."""
        received = b""
        while b": connected\n\n" not in received:
            received += self._received()
        self._rest = received.partition(b": connected\n\n")[2]

    def numbers(self) -> list[int]:
        """The numbers of events that have come."""
        data = self._rest + self._received()
        if b"event: " in data:
            raise SystemExit(f"a reader was told: {data[data.find(b'event: ') :][:300]!r}")
        whole, mark, self._rest = data.rpartition(b"\n\n")
        return [*map(int, _EVENT.findall(whole + mark))]

    def _received(self) -> bytes:
        if not (data := self.socket.recv(1 << 18)):
            raise SystemExit("a reader was disconnected")
        return data


def at_a_rate(
    port: int,
    request: Callable[[int], bytes],
    query: str | None,
    rate: float,
    seconds: float,
    *,
    began: float | None = None,
    connections: int = 64,
) -> Load:
    """Push elements when they are due, whatever becomes of others: from then on their results are waited for.

    Without a query others read.  `began` is when the first is due, by the monotonic clock.
    """
    epoll, clock, count = select.epoll(), time.monotonic, round(rate * seconds)
    free: deque[socket.socket] = deque()
    sockets: dict[int, socket.socket] = {}
    received: dict[int, bytes] = {}
    for _ in range(connections):
        made = Connection(port).socket
        made.setblocking(False)
        sockets[made.fileno()] = made
        free.append(made)
        epoll.register(made, select.EPOLLIN)
    reader = None
    if query is not None:
        reader = Reader(port, query)
        reader.connected()
        epoll.register(reader.socket, select.EPOLLIN)
    requests = [request(number) for number in range(count)]
    times, found, number, answered = [0.0] * count, 0, 0, 0
    began = clock() + 0.05 if began is None else began
    spent = time.process_time()
    while answered < count or (reader is not None and found < count):
        now = clock()
        while number < count and now >= began + number / rate and free:
            free.popleft().send(requests[number])
            number += 1
            now = clock()
        if now > began + seconds + 25:
            raise SystemExit(f"of {count:,} results {found:,} have come")
        wait = began + number / rate - now if number < count and free else 0.1
        for file, _ in epoll.poll(max(wait, 0)):
            if file in sockets:
                answer = received.pop(file, b"") + sockets[file].recv(1 << 16)
                if answer.endswith(_TAKEN):
                    answered += 1
                    free.append(sockets[file])
                else:
                    received[file] = _checked(answer)
                continue
            assert reader is not None
            fresh = reader.numbers()
            came = clock()
            for each in fresh:
                times[each] = came - began - each / rate
            found += len(fresh)
    load = Load(count, clock() - began, time.process_time() - spent, times)
    _close([*sockets.values(), *([] if reader is None else [reader.socket])])
    return load


def many_readers(port: int, query: str, count: int, orders: PipeEnd) -> None:
    """Have so many readers of a query, in a process of their own.

    An order is how many results are to come, when the first is due and how many a second, or None for the last.  The
    answer is when all readers have all of them, the delays of all, and the processor time that reading took.
    """
    open_files()
    epoll, readers = select.epoll(), dict[int, Reader]()
    for _ in range(count):
        reader = Reader(port, query)
        readers[reader.socket.fileno()] = reader
        epoll.register(reader.socket, select.EPOLLIN)
    for reader in readers.values():
        reader.connected()
    orders.send(None)
    while (order := orders.recv()) is not None:
        wanted, began, rate = order
        found, left, delays, spent = dict.fromkeys(readers, 0), count, array("d"), time.process_time()
        while left:
            for file, _ in epoll.poll(1):
                numbers = readers[file].numbers()
                came = time.monotonic() - began
                delays.extend(came - number / rate for number in numbers)
                found[file] += len(numbers)
                left -= bool(numbers) and found[file] == wanted
        orders.send((time.monotonic(), delays, time.process_time() - spent))
    _close([each.socket for each in readers.values()])
