"""A service on an address: uvicorn in a thread, from `start` to `stop`."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import uvicorn

from cqels.model.errors import CqelsError
from cqels.serve.connections import SocketConnection, http_protocol
from cqels.serve.http_app import HttpSettings, application
from cqels.serve.ordered_pushes import BYTES
from cqels.serve.service import Service

HOST, PORT = "127.0.0.1", 7070
_BACKLOG = 4096
_GRACE = 5
"""Seconds that requests have to end when the service stops; readers of results are ended at once."""
_IDLE = 30
"""Seconds that a connection without a request is kept open."""
_FRAME_QUEUE = 16
"""Messages of a WebSocket that are read before the first of them is taken."""
_LOG = logging.getLogger("cqels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a service listens."""

    host: str = HOST
    port: int = PORT
    """0 is any that is free."""
    certificate: Path | None = None
    key: Path | None = None
    forwarded: str | None = None
    """Addresses of proxies whose words about the client are believed, with commas between."""

    @property
    def scheme(self) -> str:
        return "https" if self.certificate is not None else "http"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


class Server:
    """Answers requests to a service, which is started and stopped with it."""

    def __init__(self, service: Service, address: Address | None = None, http: HttpSettings | None = None) -> None:
        self.service, self.address = service, address or Address()
        try:
            if self.address.certificate is not None:
                _context(self.address)  # what is wrong with the files is said now
            self._socket = _bound(self.address)
        except BaseException:
            service.discard()
            raise
        self._server = uvicorn.Server(_config(service, self.address, http or HttpSettings()))
        self._fault: BaseException | None = None
        self._ended = Event()
        self._thread = Thread(target=self._run, name="cqels http", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        host = self.address.host
        shown = f"[{host}]" if ":" in host else host
        return f"{self.address.scheme}://{shown}:{self.port}"

    def start(self) -> None:
        """Recover the state, then listen."""
        try:
            self.service.start()
        except BaseException:
            self._socket.close()
            raise
        self._thread.start()
        while not self._server.started and not self._ended.wait(0.01):
            pass
        if self._fault is not None:
            self.stop()
            raise self._fault

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the run or of the server; False if neither has come. What ended it is raised."""
        if self.service.run.wait(timeout):
            return True
        if self._ended.is_set():
            raise self._fault or CqelsError("the server has ended")
        return False

    def stop(self) -> None:
        """Answer no more, and end the run; the next service with the same state goes on from there."""
        self.service.ending()
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        self.service.stop()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._server.run([self._socket])
        except BaseException as error:
            self._fault = error
            _LOG.error("the server has failed: %s", error)
        finally:
            self._ended.set()


def _config(service: Service, address: Address, http: HttpSettings) -> uvicorn.Config:
    return uvicorn.Config(
        application(service, http),
        http=http_protocol(http.limits),
        ws=SocketConnection,
        ws_max_size=min(http.limits.body, BYTES),
        ws_max_queue=_FRAME_QUEUE,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=address.forwarded is not None,
        forwarded_allow_ips=address.forwarded,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=_GRACE,
        ssl_context_factory=None if address.certificate is None else lambda *_: _context(address),
    )


def _bound(address: Address) -> socket.socket:
    """A socket that listens; what is wrong with the address is said."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        return socket.create_server((place[0], place[1]), family=family, backlog=_BACKLOG)
    except OSError as error:
        where = f"{address.host}:{address.port}"
        if error.errno == errno.EADDRINUSE:
            hint = "another service runs there; choose another with --port, 0 for any that is free"
            raise CqelsError(f"the address {where} is in use", hint=hint) from None
        reason = (error.strerror or str(error)).lower()
        raise CqelsError(f"the service cannot listen at {where}: {reason}", hint="--host 127.0.0.1") from None


def _context(address: Address) -> ssl.SSLContext:
    """TLS with the files of the address."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    assert address.certificate is not None
    for path in (address.certificate, address.key):
        if path is not None and not path.is_file():
            raise CqelsError(f"there is no file {path}", hint="--tls-cert cert.pem --tls-key key.pem")
    try:
        made.load_cert_chain(address.certificate, address.key)
    except (OSError, ssl.SSLError) as error:
        reason = str(getattr(error, "reason", None) or error).replace("_", " ").lower()
        hint = "the certificate and its key as PEM, in one file or in two"
        raise CqelsError(f"the certificate {address.certificate} cannot be used: {reason}", hint=hint) from None
    return made
