"""Messages that a server sends over a WebSocket: `ws://host/path`, `wss://…`.

The protocol has no acknowledgements: what a server sends while nobody is connected is lost, unless it sends it again.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from threading import Event
from time import time_ns
from typing import Any

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_address import Address, address_of
from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.pipeline.source.connection import STEP, Connection, tls_context
from cqels.pipeline.source.live_source import Accept, Message

MOST_AT_ONCE = 1000
"""Messages that are written to the inbox together."""
_LARGEST = 64 << 20
"""Bytes of a message."""
_PING = 20.0
"""Seconds between pings, and in which they are answered."""
_REFUSED = (400, 401, 403, 404, 405, 410)
"""Answers that will not change by asking again."""


def source_of(declaration: StreamDeclaration, folder: Path) -> WebSocketReceiver:
    return WebSocketReceiver(declaration)


def headers_of(address: Address) -> list[tuple[str, str]]:
    """The headers of a request: those that are declared, and who asks."""
    pairs = [each.partition(":") for each in address.options.get("header", ())]
    headers = [(name.strip(), value.strip()) for name, _, value in pairs]
    if address.user is not None:
        secret = b64encode(f"{address.user}:{address.password or ''}".encode()).decode()
        headers.append(("Authorization", f"Basic {secret}"))
    return headers


class WebSocketReceiver:
    """Connects to a server, sends what is declared, and takes the messages."""

    def __init__(self, declaration: StreamDeclaration) -> None:
        self._library = optional("websockets.sync.client", "websocket")
        self._faults = optional("websockets.exceptions", "websocket")
        self._address = address = address_of(declaration)
        self.place = address.place
        self.connection = Connection(self.place)
        ping = address.seconds("ping", _PING)
        self._options: dict[str, Any] = {
            "additional_headers": headers_of(address),
            "ping_interval": ping or None,
            "ping_timeout": ping or None,
            "max_size": _LARGEST,
            "max_queue": MOST_AT_ONCE,
            "close_timeout": 1,
        }
        if protocol := address.get("subprotocol"):
            self._options["subprotocols"] = [protocol]
        if address.scheme == "wss":
            self._options["ssl"] = tls_context(address)

    def run(self, accept: Accept, stop: Event) -> None:
        while not stop.is_set():
            try:
                with self._library.connect(self._address.url, **self._options) as opened:
                    for text in self._address.options.get("send", ()):
                        opened.send(text)
                    self.connection.opened()
                    self._receive(opened, accept, stop)
            except self._faults.InvalidURI as error:
                raise CqelsError(f"{self.place}: {error}") from None
            except self._faults.InvalidStatus as error:
                code = error.response.status_code
                told = f"the server refuses the connection: {code} {error.response.reason_phrase.lower()}"
                if code in _REFUSED and not self.connection.was_open:
                    raise CqelsError(f"{self.place}: {told}") from None
                self.connection.lost(told)
            except self._faults.ConnectionClosed as error:
                self.connection.lost("the server has closed the connection" if error.rcvd else "the connection is lost")
            except (OSError, EOFError, self._faults.WebSocketException) as error:
                self.connection.lost(error)
            self.connection.pause(stop)

    def _receive(self, opened: Any, accept: Accept, stop: Event) -> None:
        while not stop.is_set():
            found: list[Message] = []
            try:
                found.append(_message(opened.recv(STEP)))
                while len(found) < MOST_AT_ONCE:
                    found.append(_message(opened.recv(0)))
            except TimeoutError:
                pass
            finally:
                accept(found)


def _message(data: str | bytes) -> Message:
    return Message(data.encode() if isinstance(data, str) else data, time_ns())
