"""Lines that a server sends over TCP: `tcp://host:port`.

Nothing is acknowledged in this protocol: what is sent while nobody is connected is lost.
"""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Event
from time import time_ns

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_address import address_of
from cqels.model.errors import CqelsError
from cqels.pipeline.source.connection import STEP, Connection
from cqels.pipeline.source.lines import LineMessages
from cqels.pipeline.source.live_source import Accept

_SIZE = 1 << 20
_PATIENCE = 10.0
"""Seconds that a server has to answer."""


def source_of(declaration: StreamDeclaration, folder: Path) -> SocketReceiver:
    return SocketReceiver(declaration)


class SocketReceiver:
    """Connects to a server and takes its lines."""

    def __init__(self, declaration: StreamDeclaration) -> None:
        address = address_of(declaration)
        if address.hosts[0][1] is None or address.path not in ("", "/"):
            raise CqelsError(
                f"{address.place} is not a host with a port", hint="write for example tcp://localhost:9999"
            )
        self._declaration = declaration
        self._to = address.host, address.port(0)
        self.place = address.place
        self.connection = Connection(self.place)

    def run(self, accept: Accept, stop: Event) -> None:
        while not stop.is_set():
            lines = LineMessages(self._declaration)
            try:
                with socket.create_connection(self._to, _PATIENCE) as opened:
                    self.connection.opened()
                    self._receive(opened, lines, accept, stop)
                    if stop.is_set():
                        return  # a line that has begun is none
                    accept(lines.last(time_ns()))
                self.connection.lost("the server has closed the connection")
            except OSError as error:
                cut = f", and {lines.unfinished} bytes of a line are lost" if lines.unfinished else ""
                self.connection.lost(f"{(error.strerror or 'it does not answer').lower()}{cut}")
            self.connection.pause(stop)

    def _receive(self, opened: socket.socket, lines: LineMessages, accept: Accept, stop: Event) -> None:
        opened.settimeout(STEP)
        while not stop.is_set():
            try:
                if not (data := opened.recv(_SIZE)):
                    return
            except TimeoutError:
                continue
            accept(lines.of(data, time_ns()))
