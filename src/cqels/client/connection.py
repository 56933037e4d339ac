"""What both clients know of a service: its address, the token, how long to wait; and the words for what httpx says."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from time import monotonic
from typing import TYPE_CHECKING, Any

from cqels.client.calls import Call, Pushed, Reply
from cqels.client.client_errors import ConnectionLost, ServiceBusy, ServiceUnavailable
from cqels.ingest import Rejected, RejectLog
from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.model.release import RELEASE

if TYPE_CHECKING:
    import httpx

URL = "http://127.0.0.1:7070"
TIMEOUT = 30.0
"""Seconds in which an answer has to come."""
PATIENCE = 30.0
"""Seconds for which a request is repeated."""
TRIED_AGAIN = (ConnectionLost, ServiceBusy, ServiceUnavailable)
"""What a request may be repeated after."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
_REUSED = 2.0
"""Seconds after which a connection is not used again, before any server closes it: a push just then would be lost."""
_DISTRUST = re.compile(r"certificate verify failed: ([^(]*[^( ])")
_LAST_PORT = 65_535
_ADDRESS = re.compile(r"https?://[^/\s?#]+[^\s?#]*")


class Connection:
    """A service as a client knows it."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout: float,
        patience: float,
        reject: Callable[[Rejected], None] | None,
    ) -> None:
        if not isinstance(url, str) or not _ADDRESS.fullmatch(url):
            raise CqelsError(f"'{url}' is not the address of a service", hint=f"as in {URL}")
        if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable()):
            raise CqelsError("the token is not a text of ASCII characters")
        if iscoroutinefunction(reject):
            raise CqelsError("reject cannot be a coroutine: nothing would await it", hint="give a plain function")
        self.httpx = optional("httpx", "http")
        self.url = url.rstrip("/")
        try:
            port = self.httpx.URL(url).port
        except self.httpx.InvalidURL as error:
            raise CqelsError(f"'{url}' is not the address of a service: {str(error).lower()}") from None
        if port is not None and port > _LAST_PORT:
            raise CqelsError(f"'{url}' is not the address of a service: there is no port {port}")
        self.timeout, self.patience = timeout, patience
        self._token = token
        self._reject = reject or RejectLog()
        self.is_closed = False
        self.has_answered = False
        """Whether there is a service at the address: then it is worth waiting for it."""

    def options(self) -> dict[str, Any]:
        """What an httpx client is made with."""
        headers = {"User-Agent": f"cqels/{RELEASE}"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        limits = self.httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_REUSED)
        verify = self.url.startswith("https:")  # to read the certificates takes longer than all else
        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": self.timeout,
            "limits": limits,
            "verify": verify,
        }

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """What httpx raises; a RuntimeError where the client is closed meanwhile."""
        return self.httpx.HTTPError, RuntimeError

    def lost(self, error: Exception, method: str = "GET") -> CqelsError:
        """The error of a request that got no answer."""
        if self.is_closed:
            return _closed()
        if isinstance(error, RuntimeError):
            raise error
        if isinstance(error, self.httpx.ConnectError | self.httpx.ConnectTimeout):
            if (reason := _DISTRUST.search(str(error))) is not None:
                told = f"the certificate of {self.url} is not trusted: {reason[1].lower()}"
                return ConnectionLost(told, hint="SSL_CERT_FILE names the file of its authority", is_sent=False)
            told = f"no service answers at {self.url}"
            return ConnectionLost(told, hint="`cqels serve` starts one", is_sent=False)
        hint = None if method == "GET" else "it is not known whether the service has done what was asked"
        if isinstance(error, self.httpx.TimeoutException):
            told = f"the service at {self.url} has not answered within {self.timeout:g} s"
            return ConnectionLost(told, hint=hint)
        return ConnectionLost(f"the connection to {self.url} was lost", hint=hint)

    def check_open(self) -> None:
        if self.is_closed:
            raise _closed()

    def answered(self, response: httpx.Response) -> Reply:
        """What was answered, all of it."""
        self.has_answered = True
        return Reply(response.status_code, response.headers, response.content)

    def report(self, stream: object, pushed: Pushed) -> Pushed:
        """Tell of what was rejected."""
        place = f"<{stream}>"
        for each in pushed.errors:
            at = f"{place}: {each['at']}" if each.get("at") else place
            self._reject(Rejected(str(stream), at, each["reason"], each.get("text", "")))
        for _ in range(pushed.rejected - len(pushed.errors)):
            self._reject(Rejected(str(stream), place, "it was rejected; the service shows the first ten", ""))
        return pushed

    def end(self) -> None:
        self.is_closed = True
        if isinstance(self._reject, RejectLog):
            self._reject.close()


class Attempts:
    """How often a request is repeated: for a while, where nothing was done, or where it may be done twice."""

    def __init__(self, connection: Connection, method: str, *, retry: bool) -> None:
        self._connection, self._retry = connection, retry
        self._is_safe = method == "GET"
        self._until = monotonic() + connection.patience
        self._wait = 0.0

    def wait(self, error: CqelsError) -> float:
        """How many seconds to wait before the next attempt; the error, if there is none."""
        seconds = self._wait = min(max(2 * self._wait, _FIRST_WAIT), _LONGEST_WAIT)
        if isinstance(error, ServiceBusy):
            seconds = max(error.after, _FIRST_WAIT)
        elif not (self._retry or self._is_harmless(error)):
            raise error
        if monotonic() + seconds > self._until:
            raise error
        return seconds

    def _is_harmless(self, error: CqelsError) -> bool:
        """Whether there is a service, which has not done what was asked, or has only to say something."""
        is_sent = not isinstance(error, ConnectionLost) or error.is_sent
        return self._connection.has_answered and (self._is_safe or not is_sent)


def request_of(call: Call[Any]) -> dict[str, Any]:
    """The arguments of httpx for a call."""
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.params) or None,
        "headers": dict(call.headers),
        "content": call.content,
    }


def hang_up(stream: Any) -> None:
    """End a connection that another thread reads from, which closing it would not."""
    if (found := stream.get_extra_info("socket")) is not None:
        with suppress(OSError):
            socket.socket.shutdown(found, socket.SHUT_RDWR)


def _closed() -> CqelsError:
    return CqelsError("the client is closed")
