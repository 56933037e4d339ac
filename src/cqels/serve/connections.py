"""Connections of a service as uvicorn has them: as many as may be, with heads of requests that come in time and are not
too large, and readers that read. What requests ask for is the business of `guard.py`."""

from __future__ import annotations

import json
import logging
from asyncio import BaseTransport, TimerHandle, Transport
from typing import cast

import httptools
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from cqels.serve.guard import Limits
from cqels.serve.problems import MEDIA_TYPE, TITLES

_MORE = 256
"""Connections beside those with open requests: `/health` is answered when there are no more of the latter."""
_FILES = 512
"""Files that are open besides."""
_READ_SECONDS = 60.0
"""Seconds in which a reader has to take something of what waits for it."""
_SOCKET_HEADERS, _SOCKET_LINE = 100, 8000
"""Headers that begin a WebSocket, and bytes of each."""
_FRAGMENTS = 16_384
"""Frames that a message of a WebSocket comes in at most; empty ones would make no message too large."""
_LOG = logging.getLogger("cqels")


def http_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """What uvicorn takes as `http`; the process may have as many files open as that needs."""
    most = _possible(limits.connections + _MORE)
    return type("LimitedConnection", (HttpConnection,), {"limits": limits, "most": most})


def _possible(connections: int) -> int:
    """As many connections as the system lets a process have beside its files."""
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return connections
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _FILES
    if now != resource.RLIM_INFINITY and now < wanted:
        now = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))
    if now != resource.RLIM_INFINITY and now < wanted:
        possible = max(now - _FILES, now // 2)
        _LOG.warning(
            "the system allows %s open files, so there are %s connections at most", f"{now:,}", f"{possible:,}"
        )
        return possible
    return connections


class HttpConnection(HttpToolsProtocol):
    """A connection of which every request has to begin in time."""

    limits = Limits()
    most = limits.connections + _MORE
    _head_timer: TimerHandle | None = None
    _reader_timer: TimerHandle | None = None
    _in_head = _is_socket = _is_broken = False
    _head_size = 0

    def connection_made(self, transport: BaseTransport) -> None:
        plain = cast(Transport, transport)
        if len(self.connections) >= self.most:
            self.transport = plain
            hint = "the service's option --max-connections says how many there may be"
            plain.write(_answer(503, f"there are {len(self.connections):,} connections", hint, b"retry-after: 1\r\n"))
            plain.close()
            return
        super().connection_made(plain)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        self._cancel_reader_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_broken:
            return
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > self.limits.head:
                detail = f"the head of the request has more than {self.limits.head:,} bytes"
                self._end(_answer(431, detail, "a long query is sent as the body of a POST"))
                return
        self._parse(data)
        if self._is_socket:
            return
        if self._in_head or self.cycle is None or self.cycle.response_complete:
            # not restarted by bytes that come: neither one each second nor the rest of a body keeps a connection open
            self._await_head()
        elif self._head_timer is not None:
            self._cancel_head_timer()

    def _parse(self, data: bytes) -> None:
        """Like that of uvicorn, whose parser takes no body of a request that asks for HTTP/2, as those of Java's client
        do: here it is parsed once more without that wish."""
        self._unset_keepalive_if_required()
        while data and not self._is_broken:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserError:
                self.send_400_response("")
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                    return
                head = [self.parser.get_method() + b" " + self.url + b" HTTP/1.1"]
                head += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
                self.parser = httptools.HttpRequestParser(self)
                data = b"\r\n".join([*head, b"", b""]) + data[upgrade.args[0] :]

    # ------------------------------------------------------------ heads

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_size = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what comes behind a chunked body is not looked at, and would be kept
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.parser.should_upgrade():
            self.url.decode("ascii")  # what fails here is answered with 400
        if not self._asks_for_another():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._asks_for_another():
            super().on_message_complete()

    def _asks_for_another(self) -> bool:
        """Whether a request is to go on in another protocol than WebSocket."""
        return self.parser.should_upgrade() and self._get_upgrade() not in (None, b"websocket")

    def handle_websocket_upgrade(self) -> None:
        self._is_socket = True
        self._cancel_head_timer()
        lines = [len(name) + len(value) for name, value in self.headers]
        if len(lines) > _SOCKET_HEADERS or max([len(self.url), *lines]) > _SOCKET_LINE:
            self._end(_answer(431, "the head of the request is too large to begin a WebSocket", None))
            return
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        self._end(_answer(400, "this is not a request of HTTP/1.1", None))

    def _await_head(self) -> None:
        if self._head_timer is None and self.transport is not None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.limits.head_seconds, self._head_is_late)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        detail = f"the head of the request has not come within {self.limits.head_seconds:g} s"
        self._end(_answer(408, detail, None) if self._in_head else b"")

    def _end(self, answer: bytes) -> None:
        """Close the connection, with an answer to what was wrong with it; the request before is answered first."""
        self._cancel_head_timer()
        self._is_broken = True
        cycle = self.cycle
        if self.transport.is_closing():
            return
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False
                return
            if cycle.response_started:
                answer = b""
        self.transport.write(answer)
        self.transport.close()

    # ------------------------------------------------------------ readers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel_reader_timer()
        self._reader_timer = self.loop.call_later(_READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_reader_timer()
        super().resume_writing()

    def _cancel_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket whose messages come in so many parts, and are texts where they say so."""

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            self.frames = [b"".join(self.frames)]
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:  # uvicorn would log it as a fault of its own
                self.conn.fail(1007, "a text that is not UTF-8")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # it was refused: uvicorn would log that the application has not answered

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= _FRAGMENTS:
            self.conn.fail(1009, "too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)


def _answer(status: int, detail: str, hint: str | None, more: bytes = b"") -> bytes:
    content = {"type": "about:blank", "title": TITLES[status], "status": status, "detail": detail}
    body = json.dumps(content | ({"hint": hint} if hint else {})).encode()
    head = b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n%s\r\n"
    return head % (status, TITLES[status].encode(), MEDIA_TYPE.encode(), len(body), more) + body
