"""A server that speaks the service's interface and answers as a test says: what a real service rarely does."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request that has come."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What is sent: all at once, or in chunks; then the connection may be lost, or nothing come any more."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] | None = None
    is_cut: bool = False
    hangs: bool = False


CUT = Answer(status=0)
"""No answer: the connection is lost."""
SILENT = Answer(status=0, hangs=True)
"""No answer, on a connection that stays."""


class ScriptedService:
    """Each path has its answers, of which each is given once, and the last one for ever."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[Answer]] = {}
        self.asked: list[Asked] = []
        self.ends = Event()
        methods = {f"do_{method}": _Handler.handle_request for method in ("GET", "PUT", "POST", "DELETE")}
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"service": self, **methods}))
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedService:
        self._thread.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self.ends.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self.answers[method, path] = [*answers]

    def requests(self, method: str, path: str) -> list[Asked]:
        return [each for each in self.asked if (each.method, each.path) == (method, path)]

    def answer(self, method: str, path: str) -> Answer:
        answers = self.answers.get((method, path), [problem(404, f"there is nothing at {path}")])
        return answers.pop(0) if len(answers) > 1 else answers[0]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: ScriptedService

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_request(self) -> None:
        address = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        params = dict(parse_qsl(address.query, keep_blank_values=True))
        self.service.asked.append(Asked(self.command, address.path, params, headers, body))
        answer = self.service.answer(self.command, address.path)
        with suppress(OSError):
            if answer.status:
                self._send(answer)
            if answer.hangs:
                self.service.ends.wait(30)
            if answer.is_cut or not answer.status:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.chunks is None:
            self.send_header("Content-Length", str(len(answer.body)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(answer.body)
        for chunk in answer.chunks or ():
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if answer.chunks is not None and not answer.is_cut and not answer.hangs:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *words: Any) -> None:
        pass


def said(content: object, status: int = 200, **headers: str) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json", **headers})


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
    return said({"status": status, "detail": detail, **more}, status, **headers or {})


def page(text: str, status: int = 200) -> Answer:
    """What is no service answers."""
    return Answer(status, text.encode(), {"Content-Type": "text/html"})


def info(results: int, **more: Any) -> Answer:
    """What the service says of the query."""
    return said({"name": "hot", "form": "select", "variables": ["n"], "results": results, "stopped": None, **more})


def record(number: int) -> dict[str, Any]:
    """A result as the service sends it."""
    value = {"type": "literal", "value": str(number), "datatype": "http://www.w3.org/2001/XMLSchema#integer"}
    return {"id": f"hot/{number}", "query": "hot", "time": "1s", "tick": number, "bindings": {"n": value}}


def line(number: int) -> bytes:
    return json.dumps(record(number)).encode() + b"\n"


def lines(*chunks: bytes, cut: bool = False, hang: bool = False) -> Answer:
    """Results as they come, and then the end of the answer, or of the connection, or nothing."""
    return Answer(headers={"Content-Type": "application/x-ndjson"}, chunks=chunks, is_cut=cut, hangs=hang)


def part(*of: int, last: int, missed: int = 0) -> Answer:
    """Results as they are polled for."""
    return said({"results": [record(number) for number in of], "last": last, "missed": missed})


def numbers(results: Sequence[Any]) -> list[int]:
    assert [int(each.n.value) for each in results] == [each.number for each in results]
    return [each.number for each in results]
