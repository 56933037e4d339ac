"""What every request passes before the application: is it well formed, from whom, how much, and with which right?

Connections, and heads of requests that are slow or too large, are the business of `connections.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address
from time import monotonic
from urllib.parse import unquote

from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cqels.serve.access import GRANTED, RIGHTS, Access, Right
from cqels.serve.problems import Problem
from cqels.serve.requests import forbidden, too_large, too_slow

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""What a service that only this machine reaches is called."""
SOCKET = "WEBSOCKET"
"""Stands for the method where a request begins a WebSocket."""
TOKEN = "access_token"
"""The parameter with the token, for what browsers send without headers of one's own: EventSource and WebSocket."""
_CLIENTS = 10_000
"""Clients whose requests are counted at once."""
_LINGER = 2.0
"""Seconds in which the rest of a body is read that nobody wants: who still sends would not see the answer."""
_LONGEST_TOKEN = 4096
_PREFLIGHT_SECONDS = b"600"
_BAD_PATH = re.compile(r"[\x00-\x1f\x7f]|(?:^|/)\.\.?(?:/|$)|^/(?:[^/]*/)?/|\ufffd")
_HOST = re.compile(r"([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
_ONCE = frozenset({b"host", b"authorization", b"origin", b"content-length", b"content-encoding", b"transfer-encoding"})
"""Headers that are looked at here, each of which a request has at most once."""
_ALLOWED_HEADERS = b"Authorization, Content-Type, Last-Event-ID"
_EXPOSED_HEADERS = b"Cqels-Last-Id, Cqels-Missed, Retry-After, WWW-Authenticate"
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may come, and from where."""

    body: int = 64 << 20
    """Bytes of the body of a request, or of a message of a WebSocket."""
    bodies: int = 512 << 20
    """Bytes of all bodies that are in memory at once; one is taken whatever its size."""
    body_seconds: float = 30.0
    """Seconds in which the next bytes of a body have to come."""
    body_rate: float = 4096.0
    """Bytes that come in a second on average, at least, after those: a body that drips would be held for ever."""
    url: int = 16 << 10
    """Bytes of the path and the parameters."""
    head: int = 64 << 10
    """Bytes of a head that comes in several parts."""
    head_seconds: float = 10.0
    """Seconds in which the head of a request has to come, from its first byte or from the beginning of a connection."""
    connections: int = 4096
    """Requests and WebSockets that are open at once."""
    requests: float | None = None
    """Requests in a second from one address; for a moment as many as in two seconds."""
    origins: tuple[str, ...] = ()
    """Where pages are from whose scripts may use the service, besides its own address; * is anywhere."""
    hosts: tuple[str, ...] | None = None
    """What requests may call the service (`Host`); any if there are none."""


class Guard:
    """ASGI: lets requests through to an application; each that it refuses is answered, and counted."""

    def __init__(
        self, app: ASGIApp, access: Access, limits: Limits, rights: Sequence[tuple[str, str, Right | None]]
    ) -> None:
        """`rights` are methods (`SOCKET` for WebSockets), paths as Starlette has them, and what right each needs."""
        self._app, self._access, self.limits = app, access, limits
        self.rights = tuple(rights)
        self._paths: dict[str, list[tuple[re.Pattern[str], str, Right | None]]] = {}
        for method, path, right in rights:
            self._paths.setdefault(method, []).append((compile_path(path)[0], path, right))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in limits.origins)
        known = None if limits.hosts is None or "*" in limits.hosts else limits.hosts
        self._hosts = None if known is None else frozenset(map(_host_name, known))
        self._rates = None if limits.requests is None else _Rates(limits.requests)
        self.open = 0
        """Requests and WebSockets that are being answered, those that need no right aside."""
        self.bytes = 0
        """Bytes of the bodies of them."""
        self.refused: Counter[int] = Counter()
        """Requests that were refused here, by the status of the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, receive, send)
        try:
            answer, is_counted = self._looked_at(scope, exchange)
        except Problem as refusal:
            self.refused[refusal.status] += 1
            await exchange.refuse(refusal)
            return
        if answer is not None:
            await exchange.answer(answer)
            return
        self.open += is_counted
        try:
            if scope["type"] == "websocket":
                await self._app(scope, receive, send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        finally:
            self.open -= is_counted
            exchange.release()

    # ------------------------------------------------------------ what a request has to pass

    def _looked_at(self, scope: Scope, exchange: _Exchange) -> tuple[_Answer | None, bool]:
        """The answer to what is only a question about a path, and whether a request counts; else it is refused."""
        is_socket = scope["type"] == "websocket"
        self._check_url(scope)
        headers = _headers(scope)
        host = self._check_host(scope, headers)
        if (origin := headers.get(b"origin")) is not None:
            self._check_origin(origin.decode("latin-1").lower(), host)
        exchange.more_headers = self._sharing(origin)
        method = SOCKET if is_socket else scope["method"]
        if method == "OPTIONS":
            return self._options(scope, is_preflight=origin is not None), False
        found = self._found("GET" if method == "HEAD" else method, scope["path"])
        right = None if found is None else found[1]
        if found is None or right is not None:
            self._check_load(scope)
        scope[GRANTED] = self._granted(scope, headers, None if found is None else found[0], right)
        if not is_socket:
            self._check_body(headers, exchange)
        return None, right is not None

    def _check_url(self, scope: Scope) -> None:
        path, query = scope["path"], scope["query_string"]
        if len(path) + len(query) > self.limits.url:
            raise Problem(
                414,
                f"the path and its parameters have more than {self.limits.url:,} bytes",
                hint="a long query is sent as the body of a POST",
            )
        if (bad := _BAD_PATH.search(path)) is not None:
            raise Problem(400, f"the path has {_fault(bad[0])}")
        if not query.isascii():
            raise Problem(400, "the parameters are not ASCII", hint="other characters are written as %C3%BC")

    def _check_host(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """The authority that a request is to."""
        if (given := headers.get(b"host")) is None:
            if scope.get("http_version") == "1.0" and self._hosts is None:
                return ""
            raise Problem(400, "the request has no header Host")
        host = given.decode("latin-1").lower()
        match = _HOST.fullmatch(host)
        if match is None:
            raise Problem(400, "the header Host is not the name of a host")
        if self._hosts is not None and match[1] not in self._hosts:
            hint = "allow the name with --allow-host, if it is one of this service"
            raise Problem(421, f"this service is not called {match[1][:100]}", hint=hint)
        return host

    def _check_origin(self, origin: str, host: str) -> None:
        """Refuse what scripts of other pages send: a browser would let them push, although not read the answer."""
        if origin.partition("://")[2] == host or "*" in self._origins or origin in self._origins:
            return
        hint = "allow it with --allow-origin, if it is to use this service"
        raise Problem(403, f"requests from pages of {origin[:100]} are not taken", hint=hint)

    def _check_load(self, scope: Scope) -> None:
        if self._rates is not None and (after := self._rates.wait(_client(scope), monotonic())):
            hint = f"try again in {after} s"
            raise Problem(429, "too many requests come from this address", hint=hint, headers=_after(after))
        if self.open >= self.limits.connections:
            hint = "the service's option --max-connections says how many there may be"
            raise Problem(503, f"there are {self.open:,} open requests", hint=hint, headers=_after(1))

    def _check_body(self, headers: dict[bytes, bytes], exchange: _Exchange) -> None:
        encoding = headers.get(b"content-encoding", b"").strip().lower()
        if encoding not in (b"", b"identity"):
            shown = encoding.decode("latin-1")[:40]
            raise Problem(
                415,
                f"bodies are not taken as {shown}",
                hint="send it as it is",
                headers={"Accept-Encoding": "identity"},
            )
        length = headers.get(b"content-length", b"")
        exchange.has_body = b"transfer-encoding" in headers or length not in (b"", b"0")
        if length.isdigit() and (len(length) > 18 or int(length) > self.limits.body):
            raise too_large(self.limits.body)

    def _granted(
        self, scope: Scope, headers: dict[bytes, bytes], path: str | None, right: Right | None
    ) -> frozenset[str]:
        """The rights of who asks, which the one that is needed is among."""
        is_known_path = path is not None
        token = _token_of(headers)
        if is_known_path and _takes_parameter(scope, path or ""):
            given = _without_token(scope)
            token = given if token is None else token
        if is_known_path and right is None:
            return frozenset()
        rights = self._access.rights_of(token)
        if rights is None:
            raise _unknown(token)
        if right is not None and right not in rights:
            raise forbidden(right)
        return rights

    # ------------------------------------------------------------ paths

    def _found(self, method: str, path: str) -> tuple[str, Right | None] | None:
        """The path that a request is to, and the right that it needs."""
        for pattern, template, right in self._paths.get(method, ()):
            if pattern.match(path):
                return template, right
        return None

    def _options(self, scope: Scope, *, is_preflight: bool) -> _Answer:
        """What may be done at a path; with what a browser asks before it sends what a script wants to."""
        found = {method: self._found(method, scope["path"]) for method in self._paths if method != SOCKET}
        paths = {method: each[0] for method, each in found.items() if each is not None}
        # what is below a query is not a query with a longer name
        methods = [method for method, path in paths.items() if len(path) == max(map(len, paths.values()))]
        if not methods:
            raise Problem(404, f"there is nothing at {scope['path'][:200]}", hint="GET / says what there is")
        names = ", ".join([*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"]).encode()
        headers = [(b"allow", names)]
        if (
            is_preflight
            and self._origins
            and any(name == b"access-control-request-method" for name, _ in scope["headers"])
        ):
            headers += [
                (b"access-control-allow-methods", names),
                (b"access-control-allow-headers", _ALLOWED_HEADERS),
                (b"access-control-max-age", _PREFLIGHT_SECONDS),
            ]
        return _Answer(204, headers)

    def _sharing(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        """Headers that let a page of another origin read the answer. There are none unless some are allowed."""
        if not self._origins:
            return [_NO_SNIFFING]
        if "*" in self._origins:
            origin, vary = origin and b"*", []
        else:
            vary = [(b"vary", b"Origin")]
        if origin is None:
            return [_NO_SNIFFING, *vary]
        allowed = [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSED_HEADERS)]
        return [_NO_SNIFFING, *vary, *allowed]

    def takes(self, size: int, own: int) -> bool:
        """Whether all bodies together are few enough with more of one; one that is alone always is."""
        self.bytes += size
        return self.bytes <= max(self.limits.bodies, own)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer without a body."""

    status: int
    headers: list[tuple[bytes, bytes]]


class _Exchange:
    """A request and its answer as they pass."""

    __slots__ = (
        "_began",
        "_guard",
        "_receive",
        "_scope",
        "_send",
        "_started",
        "has_body",
        "is_complete",
        "more_headers",
        "size",
    )

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._scope, self._receive, self._send = guard, scope, receive, send
        self._started = False
        self._began: float | None = None
        self.has_body = self.is_complete = False
        self.more_headers: list[tuple[bytes, bytes]] = [_NO_SNIFFING]
        self.size = 0

    async def receive(self) -> Message:
        waits_for_body = self.has_body and not (self.is_complete or self._started)
        message = await (self._in_time() if waits_for_body else self._receive())
        if message["type"] != "http.request":
            self.is_complete = True
            return message
        self.is_complete = not message.get("more_body", False)
        if not self._started and (size := len(message.get("body", b""))):
            self.size += size
            if not self._guard.takes(size, self.size):
                self.release()
                hint = "try again in 1 s"
                raise Problem(429, "more is sent than there is memory for", hint=hint, headers=_after(1))
        return message

    def release(self) -> None:
        """The body is no more in memory."""
        self._guard.bytes -= self.size
        self.size = 0

    async def _in_time(self) -> Message:
        """More of the body, if it does not take too long."""
        limits, now = self._guard.limits, asyncio.get_running_loop().time()
        began = self._began = now if self._began is None else self._began
        due = began + self.size / limits.body_rate
        try:
            async with asyncio.timeout_at(min(now, due) + limits.body_seconds):
                return await self._receive()
        except TimeoutError:
            raise too_slow(limits.body_seconds, limits.body_rate, drips=due < now) from None

    async def send(self, message: Message) -> None:
        is_cut = self.has_body and not self.is_complete
        if message["type"] == "http.response.start":
            self._started = True
            self.release()
            headers = [*message.get("headers", ()), *self.more_headers]
            if is_cut and all(name != b"connection" for name, _ in headers):
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        elif is_cut and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._skip_body()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _skip_body(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                while not self.is_complete:
                    await self.receive()

    async def answer(self, answer: _Answer) -> None:
        await self.send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await self.send({"type": "http.response.body", "body": b""})

    async def refuse(self, refusal: Problem) -> None:
        response = refusal.response()
        if self._scope["type"] == "http":
            if not self.has_body:
                self.has_body = any(
                    name in (b"content-length", b"transfer-encoding") for name, _ in self._scope["headers"]
                )
            await response(self._scope, self.receive, self.send)
        elif "websocket.http.response" in self._scope.get("extensions", {}):
            headers = [*response.raw_headers, *self.more_headers]
            await self._send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
            await self._send({"type": "websocket.http.response.body", "body": response.body})
        else:
            await self._send({"type": "websocket.close", "code": 1008, "reason": str(refusal)[:120]})


class _Rates:
    """Requests of each client: a bucket of as many as may come in two seconds, which fills all the time."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(2 * rate, 1.0)
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait(self, client: str, now: float) -> int:
        """Seconds until a client may ask, 0 if it may now."""
        left, then = self._buckets.get(client, (self._most, now))
        left = min(self._most, left + (now - then) * self._rate)
        if left < 1:
            self._buckets[client] = left, now
            return max(1, round((1 - left) / self._rate + 0.5))
        if client not in self._buckets and len(self._buckets) >= _CLIENTS:
            self._forget(now)
        self._buckets[client] = left - 1, now
        return 0

    def _forget(self, now: float) -> None:
        """Drop those whose bucket is full again; if there are none, all of them."""
        full = self._most / self._rate
        self._buckets = {client: each for client, each in self._buckets.items() if now - each[1] < full}
        if len(self._buckets) >= _CLIENTS:
            self._buckets.clear()


def _headers(scope: Scope) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _ONCE:
            if name in found:
                raise Problem(400, f"the header {name.decode().title()} is given more than once")
            found[name] = value
    return found


def _token_of(headers: dict[bytes, bytes]) -> str | None:
    """The token of a request, None if there is none."""
    if (given := headers.get(b"authorization")) is None:
        return None
    scheme, _, token = given.decode("latin-1").strip().partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthorized("the header Authorization has no token", "Authorization: Bearer TOKEN")
    return token.strip()


def _takes_parameter(scope: Scope, path: str) -> bool:
    """Whether a token may be among the parameters: browsers let scripts set no headers there."""
    return scope["type"] == "websocket" or (scope["method"] == "GET" and path.endswith("/results"))


def _without_token(scope: Scope) -> str | None:
    """Take the token out of the parameters, so that nothing logs it."""
    if not scope["query_string"]:
        return None
    found, others = [], []
    for each in scope["query_string"].split(b"&"):
        name, _, value = each.partition(b"=")
        if unquote(name.decode("ascii")) == TOKEN:
            found.append(unquote(value.decode("ascii")))
        else:
            others.append(each)
    scope["query_string"] = b"&".join(others)
    if len(found) > 1:
        raise Problem(400, f"the parameter {TOKEN} is given {len(found)} times")
    return found[0] if found else None


def _unknown(token: str | None) -> Problem:
    if token is None:
        return _unauthorized("this needs a token", "Authorization: Bearer TOKEN")
    if len(token) > _LONGEST_TOKEN:
        return _unauthorized("the token is too long", None, error="invalid_token")
    return _unauthorized("the token is not known", "is it one of this service?", error="invalid_token")


def _unauthorized(detail: str, hint: str | None, error: str | None = None) -> Problem:
    told = 'Bearer realm="cqels"' + (f', error="{error}"' if error else "")
    return Problem(401, detail, hint=hint, headers={"WWW-Authenticate": told})


def _client(scope: Scope) -> str:
    """Who sends a request. Of IPv6 it is the network: one client has all addresses of it."""
    host = (scope.get("client") or ("",))[0]
    if ":" not in host:
        return str(host)
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return str(host)
    return str(address.ipv4_mapped or (int(address) >> 64))


def _host_name(host: str) -> str:
    """A name as it is in `Host`, without a port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return f"[{host}]" if host.count(":") > 1 else host.partition(":")[0]


def _fault(found: str) -> str:
    if found == "\ufffd":
        return "bytes that are not UTF-8"
    if "." in found:
        return "a part that is . or .."
    return "an empty part" if found.endswith("//") else "a control character"


def _after(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


__all__ = ["LOOPBACK", "RIGHTS", "SOCKET", "Guard", "Limits"]
