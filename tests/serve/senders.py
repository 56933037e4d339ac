"""Who pushes numbered elements to a service that is killed: by HTTP and by WebSocket, each until it is answered."""

from __future__ import annotations

import json
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from cqels.model.terms import CQ

from .serving import tried

EX, BASE = "http://ex.org/", "http://localhost:7070/"
_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
_AHEAD = 20
"""Messages of a WebSocket that are sent before the first of them is acknowledged."""


class Sending(Protocol):
    """What senders have in common."""

    url: str
    stop: Event

    def is_enough(self, sent: int) -> bool: ...

    def pause(self, count: int) -> None: ...


def line_of(stream: str, number: int) -> str:
    time = 10 * number + 4  # not at the bounds of windows
    return f'<{EX}{stream}/{number}> <{EX}number> "{number}"^^<{_INTEGER}> "{time}" .'


def promise(stream: str, count: int) -> str:
    """No more than so many elements come."""
    return f'<{BASE}{stream}> <{CQ}noElementBefore> {10 * count + 500} "{10 * count + 500}" .'


@dataclass
class Elements:
    """Numbers of elements: how often each may have come to the service, and those that it has acknowledged."""

    attempts: Counter[int] = field(default_factory=Counter)
    acknowledged: set[int] = field(default_factory=set)
    rejected: int = 0


class Sender:
    """Sends numbered elements of a stream until it is told that there are enough, and each until it is answered."""

    def __init__(self, load: Sending, stream: str, first: int, step: int) -> None:
        self.load, self.stream = load, stream
        self.elements = Elements()
        self._first, self._step = first, step
        self.sent = 0

    def line(self, number: int) -> str:
        return line_of(self.stream, number)

    def numbers(self, count: int) -> list[int]:
        """The next numbers of this sender: several of one stream have each their own."""
        found = [self._first + self._step * at for at in range(self.sent, self.sent + count)]
        self.sent += count
        return found

    def run(self) -> None:
        raise NotImplementedError


class HttpSender(Sender):
    """Pushes so many elements with a request, one request after the other."""

    def __init__(self, load: Sending, stream: str, first: int = 0, step: int = 1, *, size: int, chunked: bool = False):
        super().__init__(load, stream, first, step)
        self._size, self._chunked = size, chunked

    def run(self) -> None:
        with httpx.Client(base_url=self.load.url, timeout=10) as client:
            while not self.load.is_enough(self.sent):
                self._push(client, self.numbers(self._size))
                self.load.pause(self._size)

    def _push(self, client: httpx.Client, numbers: list[int]) -> None:
        text = "\n".join(map(self.line, numbers)).encode()
        answer = tried(lambda: self._post(client, text, numbers), self.load.stop.is_set)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"accepted": len(numbers), "rejected": 0}
        self.elements.acknowledged.update(numbers)

    def _post(self, client: httpx.Client, text: bytes, numbers: list[int]) -> httpx.Response:
        content = iter([text[:50], text[50:]]) if self._chunked else text
        try:
            answer = client.post(f"/streams/{self.stream}", content=content)
        except httpx.ConnectError:
            raise  # it has not come to the service
        except httpx.HTTPError:
            self.elements.attempts.update(numbers)
            raise
        if answer.status_code == 200:
            self.elements.attempts.update(numbers)
        return answer


class SocketSender(Sender):
    """Pushes an element with each message of a WebSocket, some ahead of their answers."""

    def run(self) -> None:
        waiting: deque[int] = deque()
        while not (self.load.is_enough(self.sent) and not waiting):
            assert not self.load.stop.is_set()
            with suppress(OSError, WebSocketException, TimeoutError):
                self._converse(waiting)
            self.load.stop.wait(0.05)

    def _converse(self, waiting: deque[int]) -> None:
        """Send what has no answer again, then the next ones."""
        address = f"{self.load.url.replace('http', 'ws')}/streams/{self.stream}"
        with connect(address, open_timeout=5, close_timeout=1, max_size=None) as socket:
            for number in waiting:
                self._send(socket, number)
            while not (self.load.is_enough(self.sent) and not waiting):
                if len(waiting) < _AHEAD and not self.load.is_enough(self.sent):
                    (number,) = self.numbers(1)
                    waiting.append(number)
                    self._send(socket, number)
                    self.load.pause(1)
                    if len(waiting) < _AHEAD // 2:
                        continue
                answer = json.loads(socket.recv(timeout=10))
                assert answer == {"accepted": 1}
                self.elements.acknowledged.add(waiting.popleft())

    def _send(self, socket: Any, number: int) -> None:
        self.elements.attempts[number] += 1
        socket.send(self.line(number))
