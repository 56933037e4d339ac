"""One request over HTTP, to a host that is allowed, within limits of time and size."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Thread, Timer
from time import monotonic
from types import TracebackType
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from cqels.model.sizes import format_size
from cqels.store.permissions import Permissions

MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
_PART = 1 << 16
_SAFE = "/%:@!$&'()*+,;=~-._?"


class NoAnswer(Exception):
    """Why there is no answer, in a few words."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The body of an answer, and what it is said to be."""

    content: bytes
    media_type: str


def fetch(
    url: str,
    permissions: Permissions,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    timeout: float,
    limit: int,
) -> Fetched:
    """Ask a URL, with a POST if there is a body. NoAnswer or NotAllowed, if there is no answer to be had.

    The `timeout` in seconds is that of the whole exchange, however slowly the other side sends; `limit` is the most
    bytes that an answer may have.  A redirect is followed on the same host only, and checked as the first address was.
    The connection is to the address that was checked: a name that is resolved differently afterwards changes nothing.
    """
    with _Deadline(timeout) as deadline:
        for _ in range(MOST_REDIRECTS + 1):
            try:
                response = _sent(url, permissions, headers, body, deadline)
                deadline.ends.callback(response.close)
                if response.status not in _REDIRECTS or not (place := response.getheader("Location")):
                    return _received(response, limit, deadline)
            except (OSError, HTTPException, ValueError) as error:
                deadline.check()
                raise NoAnswer(str(error) or type(error).__name__) from error
            url = _redirected(url, place)
            body = None if response.status == _SEE_OTHER else body
        raise NoAnswer(f"it redirects more than {MOST_REDIRECTS} times")


class _Deadline:
    """The end of an exchange: whatever waits for the other side then is woken up."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = monotonic() + seconds
        self._socket: socket.socket | None = None
        self._timer = Timer(seconds, self._stop)
        self._timer.daemon = True
        self.ends = ExitStack()
        """Closes what was opened."""

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self.ends.close()

    @property
    def left(self) -> float:
        """Seconds, more than none."""
        self.check()
        return max(self._end - monotonic(), 0.001)

    def check(self) -> None:
        if monotonic() >= self._end:
            raise NoAnswer(f"it took longer than {self._seconds:g} s")

    def watch(self, connection: socket.socket) -> None:
        self._socket = connection
        self.ends.callback(connection.close)

    def _stop(self) -> None:
        if self._socket is not None:
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # under TLS, too: nothing is said any more
            except OSError:
                return


class _Connection(HTTPConnection):
    """A connection to an address that is known."""

    def __init__(self, parts: SplitResult, address: tuple[str, int], deadline: _Deadline) -> None:
        super().__init__(parts.hostname or "", address[1])
        self._secure = parts.scheme == "https"
        self.default_port = 443 if self._secure else 80
        self._address, self._deadline = address, deadline

    def connect(self) -> None:
        made = socket.create_connection(self._address, self._deadline.left)
        self._deadline.watch(made)
        if self._secure:
            made = ssl.create_default_context().wrap_socket(made, server_hostname=self.host)
            self._deadline.watch(made)
        made.settimeout(self._deadline.left)
        self.sock = made


def _sent(
    url: str, permissions: Permissions, headers: Mapping[str, str], body: bytes | None, deadline: _Deadline
) -> HTTPResponse:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoAnswer("it is not an HTTP address")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = _resolved(parts.hostname, port, deadline)
    permissions.check_host(parts.hostname, port, addresses)
    more = dict(headers)
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        more["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
    connection = _connected(parts, port, addresses, deadline)
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    connection.request("GET" if body is None else "POST", target, body, more)
    return connection.getresponse()


def _connected(parts: SplitResult, port: int, addresses: list[str], deadline: _Deadline) -> _Connection:
    """A connection to the first address that takes one."""
    failure: OSError | None = None
    for each in addresses:
        connection = _Connection(parts, (each, port), deadline)
        try:
            connection.connect()
            return connection
        except OSError as error:
            deadline.check()
            failure = failure or error
    raise failure or OSError("it has no address")


def _resolved(host: str, port: int, deadline: _Deadline) -> list[str]:
    """The addresses of a host; a resolver that does not answer is not waited for."""
    found: list[str] = []
    failed: list[Exception] = []

    def look() -> None:
        try:
            found.extend(str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:
            failed.append(error)

    looking = Thread(target=look, daemon=True)
    looking.start()
    looking.join(deadline.left)
    if looking.is_alive():
        raise NoAnswer(f"the name {host} was not resolved in time")
    if failed or not found:
        raise NoAnswer(f"the name {host} is not known") from (failed[0] if failed else None)
    return list(dict.fromkeys(found))


def _received(response: HTTPResponse, limit: int, deadline: _Deadline) -> Fetched:
    if not 200 <= response.status < 300:
        raise NoAnswer(f"HTTP {response.status} {_printable(response.reason)}".strip())
    too_large = NoAnswer(f"its answer is larger than {format_size(limit)}")
    if response.length is not None and response.length > limit:
        raise too_large
    parts, size = [], 0
    while part := response.read1(_PART):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise too_large
    deadline.check()
    if response.length:
        raise NoAnswer("it ended before its answer did")
    return Fetched(b"".join(parts), response.headers.get_content_type())


def _redirected(url: str, place: str) -> str:
    """Where a redirect leads, if it is followed."""
    after = urljoin(url, place)
    old, new = urlsplit(url), urlsplit(after)
    if new.scheme not in ("http", "https"):
        raise NoAnswer("it redirects to what is not an HTTP address")
    if new.hostname != old.hostname:
        raise NoAnswer(f"it redirects to another host, {_printable(new.hostname or '')}")
    if old.scheme == "https" != new.scheme:
        raise NoAnswer("it redirects to an address that is not encrypted")
    if "@" not in new.netloc and "@" in old.netloc:
        after = new._replace(netloc=f"{old.netloc.rpartition('@')[0]}@{new.netloc}").geturl()
    return after


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:100]
