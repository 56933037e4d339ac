"""Services for tests: in this process, or `cqels serve` as a process that can be killed; and those who read results."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import httpx

from cqels.live.live_run import LiveSettings
from cqels.serve.backend import Pipeline
from cqels.serve.server import Address, Server
from cqels.serve.service import Service, ServiceSettings
from cqels.store.dataset import Store

PATIENCE = 240.0
"""Seconds in which anything here happens, on Spark and a busy machine too."""
_PORTS = range(20_000, 32_000)
"""Those that the system gives to no client: one that tries a port until it is open would sometimes reach itself."""
_PAUSE = 0.05
"""Seconds between attempts to reach a service that is not there."""


@contextmanager
def served(state: Path, pipeline: Pipeline | None = None, **settings: Any) -> Iterator[Server]:
    """A service in this process, on a free port."""
    given = pipeline or Pipeline(store=Store(), settings=LiveSettings(lasting=True))
    service = Service(given, state, ServiceSettings(**settings))
    with Server(service, Address(port=0)) as server:
        yield server


def lasting_port() -> int:
    """A free port that stays free while a service is started anew."""
    draw = Random()
    while True:
        port = draw.choice(_PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def serve_process(folder: Path, *arguments: str, port: int = 0) -> Iterator[ServeProcess]:
    """`cqels serve` as a process, which is ready; it is ended by a signal if the test has not killed it."""
    made = ServeProcess(folder, arguments, port or lasting_port())
    made.start()
    try:
        made.await_ready()
        yield made
    finally:
        made.end()


class ServeProcess:
    """`cqels serve` on a port of its own, with its state in `state` below a folder and what it says in `said.txt`."""

    def __init__(self, folder: Path, arguments: Sequence[str], port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        self._arguments = ["serve", *arguments, "--port", f"{port}", "--state", f"{folder}/state"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "said.txt").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from cqels.cli import main; main()", *self._arguments],
                cwd=self.folder,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def await_ready(self, within: float = PATIENCE) -> None:
        assert self.process is not None
        limit = monotonic() + within
        while not is_ready(self.url):
            assert self.process.poll() is None, self.said()
            assert monotonic() < limit, self.said()
            sleep(_PAUSE)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE)

    def kill(self) -> None:
        """End it at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End it as Ctrl-C does, if it runs; it must have nothing against that."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE)
        finally:
            self.kill()
        assert code == 0, self.said()
        assert "Traceback" not in self.said(), self.said()

    def said(self) -> str:
        return (self.folder / "said.txt").read_text()


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


# ---------------------------------------------------------------- readers


class EventReader:
    """Reads the results of a query as server-sent events in a thread, and goes on with Last-Event-ID when it must.

    What it gets has to have the numbers 0, 1, 2 …; whatever else comes is in `faults`.
    """

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        """The results by their numbers, as they were sent."""
        self.faults: list[str] = []
        self.connections = 0
        self._url = f"{url}/queries/{name}/results"
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"events of {name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        """Wait for the end of the thread, which comes with the end of the connection."""
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in [*self.lines]]

    def _run(self) -> None:
        with httpx.Client(timeout=httpx.Timeout(10, read=1)) as client:  # so that it looks at whether to stop
            while not self._stop.is_set() and not self.faults:
                with suppress(httpx.HTTPError):
                    self._follow(client)
                self._stop.wait(_PAUSE)

    def _follow(self, client: httpx.Client) -> None:
        headers = {"Accept": "text/event-stream"}
        if self.lines:
            headers["Last-Event-ID"] = f"{len(self.lines) - 1}"
        with client.stream("GET", self._url, params={} if self.lines else {"from": "start"}, headers=headers) as answer:
            if answer.status_code != 200:
                return
            self.connections += 1
            event: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    word, _, value = line.partition(": ")
                    event[word] = value
                    continue
                self._take(event)
                event = {}
                if self._stop.is_set() or self.faults:
                    return

    def _take(self, event: dict[str, str]) -> None:
        if "event" in event:
            if event["event"] != "end":
                self.faults.append(f"{self.name}: {event}")
        elif "data" in event:
            number, expected = event["id"], f"{len(self.lines)}"
            if number != expected or json.loads(event["data"])["id"] != f"{self.name}/{number}":
                self.faults.append(f"{self.name}: instead of {expected} came {event}")
            else:
                self.lines.append(event["data"])


class ClientReader:
    """Reads the results of a query with the client of Python in a thread."""

    def __init__(self, url: str, name: str) -> None:
        import cqels

        self.results: list[Any] = []
        self.fault: BaseException | None = None
        self._name = name
        self._client = cqels.connect(url)
        self._thread = Thread(target=self._run, name=f"client of {name}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._client.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for result in self._client.results(self._name, from_start=True):
                self.results.append(result)
        except Exception as error:
            self.fault = error


def tried(request: Callable[[], httpx.Response], stop: Callable[[], bool] = lambda: False) -> httpx.Response:
    """The answer to a request that is repeated until there is one, whatever becomes of the service meanwhile."""
    limit = monotonic() + PATIENCE
    while True:
        try:
            answer = request()
        except httpx.HTTPError:
            assert monotonic() < limit
        else:
            if answer.status_code not in (429, 503):
                return answer
        assert not stop(), "the load was stopped"
        sleep(_PAUSE)
