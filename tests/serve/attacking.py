"""A service that is attacked, as a process of its own: what would end it, and what it logs, is seen, too."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

from cqels.serve.problems import MEDIA_TYPE

TOKEN, READER = "admin-0123456789abcdef", "reader-0123456789abcdef"
BODY, HEAD = 1 << 20, 16 << 10
SLOW = 0.5
"""Seconds that this service waits for heads and bodies."""
CONNECTIONS = 200
PATIENCE = 20.0
_SERVICE = """
import sys
from pathlib import Path
from cqels.live.live_run import LiveSettings
from cqels.serve.access import read_access
from cqels.serve.backend import Pipeline
from cqels.serve.guard import LOOPBACK, Limits
from cqels.serve.http_app import HttpSettings
from cqels.serve.logs import log_to
from cqels.serve.server import Address, Server
from cqels.serve.service import Service
from cqels.store.dataset import Store

service = Service(Pipeline(store=Store(), settings=LiveSettings(follow=True, lasting=True)), Path(sys.argv[1]))
limits = Limits(hosts=LOOPBACK, **eval(sys.argv[2]))
settings = HttpSettings(access=read_access(None), limits=limits)
with log_to(sys.stderr), Server(service, Address(port=0), settings) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A service that runs."""

    process: subprocess.Popen[str]
    port: int
    log: Path
    checked: list[float] = field(default_factory=lambda: [0.0])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    @property
    def memory(self) -> int:
        """Bytes that the process has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer as it was read from a socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def detail(self) -> str:
        assert self.headers["content-type"] == MEDIA_TYPE, self.body
        return str(json.loads(self.body)["detail"])


@contextmanager
def serving(folder: Path, **limits: float) -> Iterator[Served]:
    log = folder / "log"
    environment = os.environ | {"CQELS_TOKENS": f"{TOKEN} admin; {READER} read"}
    with log.open("wb") as stderr:
        command = [sys.executable, "-c", _SERVICE, str(folder / "state"), repr(limits)]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process, process.stdout as output:
            try:
                line = output.readline()
                assert line, log.read_text()
                yield Served(process, int(line), log)
            finally:
                process.stdin.close()
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise


@contextmanager
def attacked_service(folder: Path) -> Iterator[Served]:
    """A service with small limits, which at the end has logged no fault and no token."""
    limits = {"body": BODY, "bodies": 8 * BODY, "url": HEAD, "head": 4 * HEAD, "connections": CONNECTIONS}
    slow = {"head_seconds": SLOW, "body_seconds": SLOW, "body_rate": 2000.0}
    with serving(folder, **limits, **slow) as served:
        yield served
        check_that_it_serves(served)
        log = served.log.read_text()
    assert "Traceback" not in log
    assert " error " not in log
    assert TOKEN not in log
    assert READER not in log
    assert served.process.returncode == 0


def check_soon(served: Served) -> None:
    """Check that others are served, but not as often as there are attacks: that takes longer than most of them."""
    assert served.process.poll() is None
    if time.monotonic() > served.checked[0] + 0.25:
        check_that_it_serves(served)
        served.checked[0] = time.monotonic()


def check_that_it_serves(served: Served) -> None:
    """Push an element, and ask for something, as anybody would."""
    assert served.process.poll() is None
    connection = HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/turtle"}
    connection.request("POST", "/streams/others", "<http://ex.org/a> <http://ex.org/b> 1 .", headers)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"accepted": 1, "rejected": 0})
    connection.request("GET", "/sparql?query=ASK%20%7B%7D", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["boolean"]) == (200, True)
    connection.close()


def head(
    method: str = "POST", target: str | bytes = "/streams/a", *lines: str, host: str = "localhost", token: str = TOKEN
) -> bytes:
    """The head of a request."""
    path = target if isinstance(target, bytes) else target.encode()
    more = [f"Host: {host}", *([f"Authorization: Bearer {token}"] if token else []), *lines]
    return b"%s %s HTTP/1.1\r\n" % (method.encode(), path) + "".join(f"{line}\r\n" for line in more).encode() + b"\r\n"


def read(plain: socket.socket, method: str = "POST") -> Seen:
    """The next answer."""
    with closing(HTTPResponse(plain, method=method)) as response:
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Seen(response.status, headers, b"" if response.status == 101 else response.read())


def sent(served: Served, *parts: bytes, pause: float = 0.0) -> Seen:
    """Send something, as long as it is taken, and read the answer."""
    with served.connect() as plain:
        for part in parts:
            try:
                plain.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(pause)
        return read(plain)
