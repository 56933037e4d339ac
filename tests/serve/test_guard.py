"""What the guard lets through and what it refuses, before a small application that says what has reached it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from cqels.serve.access import GRANTED, Access, Right
from cqels.serve.guard import LOOPBACK, SOCKET, Guard, Limits
from cqels.serve.problems import MEDIA_TYPE

TOKENS = {right: f"{right}-0123456789abcdef" for right in ("read", "push", "register")}
ACCESS = Access(tuple((token.encode(), frozenset({right})) for right, token in TOKENS.items()))
ALL = frozenset({"read", "push", "register", "admin"})
ROUTES: list[tuple[str, str, Right | None]] = [
    ("GET", "/", "read"),
    ("GET", "/health", None),
    ("POST", "/sparql", "read"),
    ("GET", "/streams/{name:path}", "read"),
    ("POST", "/streams/{name:path}", "push"),
    ("GET", "/queries/{name:path}/results", "read"),
    ("GET", "/queries/{name:path}", "read"),
    ("PUT", "/queries/{name:path}", "register"),
    (SOCKET, "/queries/{name:path}/results", "read"),
    (SOCKET, "/streams/{name:path}", "push"),
]


class Echo:
    """An application that reads what it gets and says what that was."""

    def __init__(self, *, reads: bool = True) -> None:
        self.reads, self.wait = reads, asyncio.Event()
        self.wait.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.wait.wait()
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": scope["query_string"].decode()})
            return
        size, more = 0, self.reads
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        told = {"size": size, "query": scope["query_string"].decode(), "rights": sorted(scope[GRANTED])}
        body = json.dumps(told).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"yes")]})
        await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, slots=True)
class Answer:
    """What has been sent."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent: list[Message]

    @property
    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def detail(self) -> str:
        assert self.headers["content-type"] == MEDIA_TYPE
        assert self.content["status"] == self.status
        return str(self.content["detail"])


def guard(access: Access | None = None, app: Echo | None = None, **limits: Any) -> Guard:
    return Guard(app or Echo(), access or Access(), Limits(**limits), ROUTES)


async def asked(
    guard: Guard,
    method: str,
    path: str,
    headers: Sequence[tuple[str, str]] = (("host", "h"),),
    body: Sequence[bytes] = (b"",),
    *,
    query: bytes = b"",
    client: str = "1.2.3.4",
    ends: bool = True,
) -> Answer:
    """The answer to a request; a body that does not end leaves the guard waiting for more."""
    is_socket = method == SOCKET
    scope: Scope = {
        "type": "websocket" if is_socket else "http",
        "http_version": "1.1",
        "path": path,
        "query_string": query,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "client": (client, 1),
        "extensions": {"websocket.http.response": {}},
    } | ({} if is_socket else {"method": method})
    sent: list[Message] = []
    left = [*body]

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left) or not ends}

    async def send(message: Message) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    start = sent[0]
    found = {name.decode(): value.decode("latin-1") for name, value in start.get("headers", ())}
    return Answer(start.get("status", 101), found, b"".join(each.get("body", b"") for each in sent[1:]), sent)


def ask(guard: Guard, method: str, path: str, *arguments: Any, **options: Any) -> Answer:
    return asyncio.run(asked(guard, method, path, *arguments, **options))


def bearer(token: str) -> list[tuple[str, str]]:
    return [("host", "h"), ("authorization", f"Bearer {token}")]


# ---------------------------------------------------------------- rights


@pytest.mark.parametrize("right", [*TOKENS])
@pytest.mark.parametrize(("method", "path", "needed"), ROUTES)
def test_each_route_needs_its_right(right: str, method: str, path: str, needed: str | None) -> None:
    place = path.replace("{name:path}", "http://ex.org/a")
    found = ask(guard(ACCESS), method, place, bearer(TOKENS[right]))
    if needed in (None, right):
        assert found.status == (101 if method == SOCKET else 200)
        return
    assert found.status == 403
    assert found.detail == f"the token does not have the right {needed}"
    assert f'scope="{needed}"' in found.headers["www-authenticate"]


@pytest.mark.parametrize(("method", "path", "needed"), ROUTES)
def test_without_a_token_there_is_no_way_in(method: str, path: str, needed: str | None) -> None:
    place = path.replace("{name:path}", "a")
    found = ask(guard(ACCESS), method, place)
    if needed is None:
        assert found.status == 200
        return
    assert found.status == 401
    assert found.detail == "this needs a token"
    assert found.headers["www-authenticate"] == 'Bearer realm="cqels"'


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ("Bearer nobody-0123456789", "the token is not known"),
        ("Bearer " + "x" * 10_000, "the token is too long"),
        ("Bearer", "the token is not known"),
        ("Bearer ü", "the token is not known"),
        ("Basic YTpi", "the header Authorization has no token"),
        (TOKENS["read"], "the header Authorization has no token"),
    ],
)
def test_other_tokens_are_not_known(given: str, detail: str) -> None:
    found = ask(guard(ACCESS), "GET", "/", [("host", "h"), ("authorization", given)])
    assert (found.status, found.detail) == (401, detail)
    assert TOKENS["read"] not in found.body.decode()


def test_the_application_is_told_the_rights() -> None:
    assert ask(guard(ACCESS), "POST", "/sparql", bearer(TOKENS["read"])).content["rights"] == ["read"]
    assert ask(guard(), "POST", "/sparql").content["rights"] == sorted(ALL)


def test_head_is_get_and_other_methods_are_the_applications_business() -> None:
    assert ask(guard(ACCESS), "HEAD", "/", bearer(TOKENS["read"])).status == 200
    assert ask(guard(ACCESS), "HEAD", "/", bearer(TOKENS["push"])).status == 403
    assert ask(guard(ACCESS), "PATCH", "/").status == 401
    assert ask(guard(ACCESS), "PATCH", "/", bearer(TOKENS["push"])).headers["x-app"] == "yes"
    assert ask(guard(ACCESS), "GET", "/nothing").status == 401


def test_the_longest_path_that_matches_counts() -> None:
    # as for the application: PUT is not for results, so this is a query whose name ends with /results
    assert ask(guard(ACCESS), "PUT", "/queries/a/results", bearer(TOKENS["register"])).status == 200
    assert ask(guard(ACCESS), "GET", "/queries/a/results", bearer(TOKENS["register"])).status == 403


def test_browsers_give_the_token_as_a_parameter_where_they_cannot_send_headers() -> None:
    query = f"after=3&access_token={TOKENS['read']}&limit=2".encode()
    found = ask(guard(ACCESS), "GET", "/queries/a/results", query=query)
    assert (found.status, found.content["query"]) == (200, "after=3&limit=2")
    socket = ask(guard(ACCESS), SOCKET, "/queries/a/results", query=query)
    assert socket.sent[1]["text"] == "after=3&limit=2"
    escaped = f"access%5Ftoken={TOKENS['read']}".encode()
    assert ask(guard(ACCESS), "GET", "/queries/a/results", query=escaped).content["query"] == ""
    assert ask(guard(), "GET", "/queries/a/results", query=query).content["query"] == "after=3&limit=2"


def test_elsewhere_a_token_is_no_parameter() -> None:
    query = f"access_token={TOKENS['read']}".encode()
    assert ask(guard(ACCESS), "GET", "/queries/a", query=query).status == 401
    assert ask(guard(ACCESS), "POST", "/sparql", query=query).status == 401
    twice = ask(guard(ACCESS), "GET", "/queries/a/results", query=query + b"&" + query)
    assert (twice.status, twice.detail) == (400, "the parameter access_token is given 2 times")


def test_a_socket_is_refused_as_a_request_is_and_without_that_it_is_closed() -> None:
    found = ask(guard(ACCESS), SOCKET, "/streams/a", bearer(TOKENS["read"]))
    assert (found.status, found.detail) == (403, "the token does not have the right push")

    async def closed() -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "websocket.connect"}

        scope = {"type": "websocket", "path": "/streams/a", "query_string": b"", "headers": [(b"host", b"h")]}
        await guard(ACCESS)(scope, receive, send)
        return sent

    assert asyncio.run(closed()) == [{"type": "websocket.close", "code": 1008, "reason": "this needs a token"}]


# ---------------------------------------------------------------- what is not well formed


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/streams/../queries/a", "the path has a part that is . or .."),
        ("/streams/a/..", "the path has a part that is . or .."),
        ("/./streams", "the path has a part that is . or .."),
        ("/streams/a\x00", "the path has a control character"),
        ("/streams/a\r\nset-cookie: x", "the path has a control character"),
        ("/health\n", "the path has a control character"),
        ("/streams/\ufffd\ufffd", "the path has bytes that are not UTF-8"),
        ("//streams/a", "the path has an empty part"),
        ("/streams//a", "the path has an empty part"),
    ],
)
def test_paths_that_are_tricks(path: str, detail: str) -> None:
    found = ask(guard(), "GET", path)
    assert (found.status, found.detail) == (400, detail)


@pytest.mark.parametrize(
    "path", ["/streams/http://ex.org/a", "/streams/a..b", "/streams/.a", "/streams/ü/…", "/streams/"]
)
def test_paths_that_are_names(path: str) -> None:
    assert ask(guard(), "GET", path).status == 200


def test_a_path_of_any_length() -> None:
    found = ask(guard(url=100), "GET", "/streams/" + "a" * 92)
    assert (found.status, found.detail) == (414, "the path and its parameters have more than 100 bytes")
    assert ask(guard(url=100), "GET", "/streams/a", query=b"q=" + b"a" * 90).status == 414
    assert ask(guard(url=101), "GET", "/streams/" + "a" * 92).status == 200


def test_parameters_are_ascii() -> None:
    assert ask(guard(), "GET", "/", query=b"a=\xc3\xbc").detail == "the parameters are not ASCII"


@pytest.mark.parametrize("name", ["host", "authorization", "origin", "content-length", "content-encoding"])
def test_headers_that_there_is_one_of(name: str) -> None:
    found = ask(guard(), "GET", "/", [("host", "h"), (name, "1"), (name, "2")][-2 if name == "host" else 0 :])
    assert (found.status, found.detail) == (400, f"the header {name.title()} is given more than once")


@pytest.mark.parametrize(
    "host", ["", "a b", "a/b", "a\x00", "[", "[::1", "a:b", "a@b", "a:123456", "ex.org:80:80", "ü"]
)
def test_hosts_that_are_none(host: str) -> None:
    assert ask(guard(), "GET", "/", [("host", host)]).detail == "the header Host is not the name of a host"


def test_a_request_has_a_host() -> None:
    assert ask(guard(), "GET", "/", []).detail == "the request has no header Host"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:7070", 200),
        ("127.0.0.1:7070", 200),
        ("[::1]:7070", 200),
        ("cqels.example.org", 200),
        ("[fd00::1]:7070", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.2", 421),
    ],
)
def test_pages_do_not_reach_a_local_service_by_a_name_of_their_own(host: str, status: int) -> None:
    local = guard(hosts=(*LOOPBACK, "CQELS.example.org:7070", "fd00::1"))
    found = ask(local, "GET", "/", [("host", host)])
    assert found.status == status
    assert ask(guard(hosts=("*",)), "GET", "/", [("host", host)]).status == 200


# ---------------------------------------------------------------- pages of other origins


def test_without_allowed_origins_there_is_no_word_of_sharing() -> None:
    found = ask(guard(), "POST", "/streams/a")
    assert [name for name in found.headers if name.startswith("access-control") or name == "vary"] == []
    assert found.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["GET", "POST", SOCKET])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://h.evil.example", "h"])
def test_scripts_of_other_pages_are_refused(method: str, origin: str) -> None:
    found = ask(guard(), method, "/streams/a", [("host", "h"), ("origin", origin)])
    assert (found.status, found.detail) == (403, f"requests from pages of {origin} are not taken")
    assert "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize("origin", ["http://h:7070", "https://h:7070"])
def test_pages_of_the_service_itself_are_not_others(origin: str) -> None:
    assert ask(guard(), "POST", "/streams/a", [("host", "h:7070"), ("origin", origin)]).status == 200


def test_an_allowed_origin_may_read_answers() -> None:
    some = guard(ACCESS, origins=("https://app.example/", "http://other.example"))
    headers = [("host", "h"), ("origin", "https://app.example")]
    refused = ask(some, "GET", "/", headers)
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example"
    found = ask(some, "GET", "/", [*headers, ("authorization", f"Bearer {TOKENS['read']}")])
    assert found.headers["access-control-allow-origin"] == "https://app.example"
    assert found.headers["vary"] == "Origin"
    assert "Cqels-Last-Id" in found.headers["access-control-expose-headers"]
    assert ask(some, "GET", "/health").headers["vary"] == "Origin"
    assert ask(some, "GET", "/health", [("host", "h"), ("origin", "https://evil.example")]).status == 403


def test_any_origin_may_be_allowed() -> None:
    found = ask(guard(origins=("*",)), "GET", "/", [("host", "h"), ("origin", "https://any.example")])
    assert found.headers["access-control-allow-origin"] == "*"
    assert "vary" not in found.headers


def test_what_a_browser_asks_first_needs_no_token() -> None:
    asks = [
        ("host", "h"),
        ("origin", "https://app.example"),
        ("access-control-request-method", "PUT"),
        ("access-control-request-headers", "authorization"),
    ]
    found = ask(guard(ACCESS, origins=("https://app.example",)), "OPTIONS", "/queries/a", asks)
    assert (found.status, found.body) == (204, b"")
    assert found.headers["access-control-allow-methods"] == "GET, PUT, HEAD, OPTIONS"
    assert "Authorization" in found.headers["access-control-allow-headers"]
    assert found.headers["access-control-allow-origin"] == "https://app.example"
    assert ask(guard(ACCESS), "OPTIONS", "/queries/a", asks).status == 403


def test_options_says_what_may_be_done() -> None:
    found = ask(guard(), "OPTIONS", "/streams/a")
    assert (found.status, found.headers["allow"]) == (204, "GET, POST, HEAD, OPTIONS")
    assert "access-control-allow-methods" not in found.headers
    assert ask(guard(), "OPTIONS", "/nothing").status == 404


# ---------------------------------------------------------------- how much


def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    headers = [("host", "h"), ("content-length", "101")]
    found = ask(guard(body=100), "POST", "/streams/a", headers, [b"x" * 101])
    assert (found.status, found.detail) == (413, "the body has more than 100 bytes")
    assert found.headers["connection"] == "close"
    assert ask(guard(body=100), "POST", "/streams/a", [("host", "h"), ("content-length", "9" * 5000)]).status == 413
    assert ask(guard(body=101), "POST", "/streams/a", headers, [b"x" * 101]).content["size"] == 101


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "gzip\x00"])
def test_bodies_are_not_unpacked(encoding: str) -> None:
    found = ask(guard(), "POST", "/streams/a", [("host", "h"), ("content-encoding", encoding)])
    assert (found.status, found.headers["accept-encoding"]) == (415, "identity")
    assert ask(guard(), "POST", "/streams/a", [("host", "h"), ("content-encoding", "identity")]).status == 200


def test_the_rest_of_a_body_is_read_so_that_the_answer_is_seen() -> None:
    headers = [("host", "h"), ("transfer-encoding", "chunked")]
    began = perf_counter()
    found = ask(guard(app=Echo(reads=False)), "POST", "/streams/a", headers, [b"x"] * 3)
    assert perf_counter() - began < 1
    assert found.headers["connection"] == "close"
    assert [each["more_body"] for each in found.sent[1:]] == [True, False]
    endless = ask(guard(app=Echo(reads=False)), "POST", "/streams/a", headers, [b"x"] * 3, ends=False)
    assert endless.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_all_bodies_together_have_a_limit() -> None:
    async def run() -> tuple[list[Answer], Guard]:
        app = Echo()
        full = guard(app=app, bodies=100)
        alone = await asked(full, "POST", "/streams/a", body=[b"x" * 1000])
        never = asyncio.create_task(asked(full, "POST", "/streams/a", body=[b"x" * 60], ends=False))
        await asyncio.sleep(0)
        small = await asked(full, "POST", "/streams/a", body=[b"x" * 40])
        with pytest.raises(Exception, match="more is sent than there is memory for"):
            await asked(full, "POST", "/streams/a", body=[b"x" * 30, b"x" * 30])
        assert full.bytes == 60
        never.cancel()
        await asyncio.gather(never, return_exceptions=True)
        return [alone, small], full

    answers, full = asyncio.run(run())
    assert [each.content["size"] for each in answers] == [1000, 40]
    assert (full.bytes, full.open) == (0, 0)


def test_open_requests_have_a_limit_and_health_is_seen_beyond_it() -> None:
    async def run() -> tuple[Answer, Answer, Guard]:
        app = Echo()
        full = guard(app=app, connections=2)
        app.wait.clear()
        open_ones = [asyncio.create_task(asked(full, method, "/streams/a")) for method in ("GET", SOCKET)]
        await asyncio.sleep(0)
        refused = await asked(full, "GET", "/")
        healthy = asyncio.create_task(asked(full, "GET", "/health"))
        app.wait.set()
        await asyncio.gather(*open_ones)
        return refused, await healthy, full

    refused, healthy, full = asyncio.run(run())
    assert (refused.status, refused.detail, refused.headers["retry-after"]) == (503, "there are 2 open requests", "1")
    assert healthy.status == 200
    assert (full.open, full.refused) == (0, {503: 1})


def test_requests_of_an_address_have_a_rate() -> None:
    some = guard(requests=5)
    found = [ask(some, "GET", "/").status for _ in range(12)]
    assert found == [200] * 10 + [429] * 2
    refused = ask(some, "GET", "/nothing")
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert ask(some, "GET", "/health").status == 200
    assert ask(some, "GET", "/", client="1.2.3.5").status == 200
    assert ask(some, "GET", "/", client="::ffff:1.2.3.4").status == 429
    network = [ask(some, "GET", "/", client=f"2001:db8::{number:x}").status for number in range(11)]
    assert network == [200] * 10 + [429]


def test_clients_that_are_remembered_have_a_limit() -> None:
    from cqels.serve.guard import _CLIENTS, _Rates

    rates = _Rates(0.5)
    assert [rates.wait("first", 0.0), rates.wait("first", 0.0), rates.wait("first", 1.0)] == [0, 2, 2]
    for number in range(3 * _CLIENTS):
        rates.wait(str(number), number / _CLIENTS)
    assert len(rates._buckets) <= _CLIENTS
    assert rates.wait("first", 100.0) == 0


def test_passing_the_guard_costs_little() -> None:
    """Pushes one by one come at some thousands in a second, each of which passes."""

    async def run() -> float:
        some = guard(ACCESS, requests=1e9)
        headers = [*bearer(TOKENS["push"]), ("content-length", "3"), ("accept", "*/*"), ("user-agent", "x")]
        began = perf_counter()
        for _ in range(2000):
            await asked(some, "POST", "/streams/a", headers, [b"abc"])
        return (perf_counter() - began) / 2000

    assert min(asyncio.run(run()) for _ in range(3)) < 500e-6
