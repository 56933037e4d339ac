"""Server-sent events: `http://host/path`, `https://…` (or `sse+http://…`), as WHATWG's HTML standard §9.2 has them.

The identifier of the last event in the inbox is kept beside it and sent with the next request: a server that knows it
goes on there.  An event's data is the message, its identifier the key, its type the topic.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import time_ns
from typing import Any

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_address import address_of
from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.pipeline.source.connection import Connection, Note, tls_context
from cqels.pipeline.source.live_source import Accept, Message
from cqels.pipeline.source.websocket_receiver import headers_of

_PATIENCE = 10.0
"""Seconds that a server has to answer."""
_ENDED = 204
"""The answer of a server that does not want to be asked again."""
_MARK = "\ufeff".encode()


def source_of(declaration: StreamDeclaration, folder: Path) -> SseReceiver:
    return SseReceiver(declaration, folder)


class SseReceiver:
    """Asks a server for its events, again and again from where it was."""

    def __init__(self, declaration: StreamDeclaration, folder: Path) -> None:
        self._httpx = optional("httpx", "http")
        self._address = address = address_of(declaration)
        self.place = address.place
        self.connection = Connection(self.place)
        self._url = address.url.removeprefix("sse+")
        self._types = frozenset(address.options.get("event", ()))
        self._note = Note(folder, "sse")
        self._is_secure = self._url.startswith("https")

    def run(self, accept: Accept, stop: Event) -> None:
        reader = EventReader(self._note.read().get("id", ""))
        timeout = self._httpx.Timeout(_PATIENCE, read=None)
        verify = tls_context(self._address) if self._is_secure else False
        with self._httpx.Client(timeout=timeout, verify=verify, follow_redirects=True) as client:
            while not stop.is_set():
                try:
                    if self._ask(client, reader, accept, stop):
                        return
                    if not stop.is_set():
                        self.connection.lost("the server has ended its answer")
                except self._httpx.InvalidURL as error:
                    raise CqelsError(f"{self.place}: {error}") from None
                except self._httpx.HTTPError as error:
                    if not stop.is_set():
                        self.connection.lost(error)
                self.connection.pause(stop, reader.pause)

    def _ask(self, client: Any, reader: EventReader, accept: Accept, stop: Event) -> bool:
        """Take the events of one answer: whether the server says that there will be no more."""
        headers = [("Accept", "text/event-stream"), ("Cache-Control", "no-store"), *headers_of(self._address)]
        if reader.id:
            headers.append(("Last-Event-ID", reader.id))
        with client.stream("GET", self._url, headers=headers) as answer:
            if answer.status_code == _ENDED:
                return True
            self._check(answer)
            self.connection.opened()
            reader.begin()
            noted = reader.id
            ended = Event()
            Thread(target=_cut, args=(answer, stop, ended), daemon=True).start()
            try:
                for data in answer.iter_bytes():
                    found = reader.events(data, time_ns())
                    accept([each for each in found if not self._types or each.topic in self._types])
                    if found and reader.id != noted:
                        self._note.write({"id": reader.id})
                        noted = reader.id
            finally:
                ended.set()
        return False

    def _check(self, answer: Any) -> None:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status_code == 200 and kind == "text/event-stream":
            return
        told = f"the server answers with {answer.status_code} {answer.reason_phrase.lower()}"
        if answer.status_code == 200:
            raise CqelsError(
                f"{self.place}: it sends {kind or 'nothing'}, and not text/event-stream",
                hint="a source http://… is one of server-sent events",
            )
        if answer.status_code in (408, 425, 429) or answer.status_code >= 500 or self.connection.was_open:
            raise self._httpx.HTTPError(told)
        raise CqelsError(f"{self.place}: {told}")


def _cut(answer: Any, stop: Event, ended: Event) -> None:
    """End an answer that somebody waits for, when the receiver is to stop."""
    while not ended.is_set() and not stop.wait(0.1):
        pass
    if ended.is_set():
        return
    with suppress(Exception):
        answer.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class EventReader:
    """Takes a stream of events apart, which comes in pieces."""

    def __init__(self, id: str = "") -> None:
        self.id = id
        """Of the last event."""
        self.pause = 0.0
        """Seconds that the server wants to have before the next request."""
        self.begin()

    def begin(self) -> None:
        """Another answer begins; what was left of an event is dropped, as the standard has it."""
        self._rest = b""
        self._is_first = True
        self._after_return = False
        self._new_id = self.id
        self._type = ""
        self._data: list[bytes] = []

    def events(self, data: bytes, time: int) -> list[Message]:
        """The events that a piece of bytes completes.

        >>> [each.value for each in EventReader().events(b"data: a\\ndata: b\\n\\ndata: c", 0)]
        [b'a\\nb']
        """
        if self._is_first and len(self._rest) + len(data) >= len(_MARK):
            data, self._rest, self._is_first = (self._rest + data).removeprefix(_MARK), b"", False
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
        self._after_return = data.endswith(b"\r") if data else self._after_return
        *lines, self._rest = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        found = []
        for line in lines:
            if line:
                self._field(line)
            elif (event := self._event(time)) is not None:
                found.append(event)
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._type = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._new_id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit():
                self.pause = int(value) / 1000

    def _event(self, time: int) -> Message | None:
        self.id = self._new_id
        kind, self._type = self._type or "message", ""
        data, self._data = self._data, []
        if not data:
            return None
        return Message(b"\n".join(data), time, self.id.encode() or None, kind)
