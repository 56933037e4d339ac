"""A service that is attacked with requests: each is answered with an error, and others are served as before."""

from __future__ import annotations

import gzip
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from http.client import HTTPException

import pytest

from .attacking import BODY, HEAD, PATIENCE, READER, SLOW, TOKEN, Served, attacked_service, check_soon, head, read, sent


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with attacked_service(tmp_path_factory.mktemp("attacked")) as served:
        yield served


@pytest.fixture
def attacked(service: Served) -> Iterator[Served]:
    yield service
    check_soon(service)


def closed(plain: socket.socket) -> bool:
    """Whether the other side closes, without a word."""
    with suppress(ConnectionResetError):
        return plain.recv(1000) == b""
    return True


# ---------------------------------------------------------------- bodies


def test_a_body_that_is_too_large(attacked: Served) -> None:
    says = head("POST", "/streams/a", f"Content-Length: {BODY + 1}")
    found = sent(attacked, says)
    assert (found.status, found.detail) == (413, f"the body has more than {BODY:,} bytes")
    assert found.headers["connection"] == "close"
    assert sent(attacked, says, b"x" * (BODY + 1)).status == 413
    assert sent(attacked, head("POST", "/streams/a", f"Content-Length: {'9' * 18}"), b"x" * 4096).status == 413
    assert (
        sent(attacked, head("POST", "/streams/a", f"Content-Length: {BODY + 1}", "Expect: 100-continue")).status == 413
    )


def test_chunks_that_are_too_many_or_too_large(attacked: Served) -> None:
    begin = head("POST", "/streams/a", "Transfer-Encoding: chunked")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    assert sent(attacked, begin, *[chunk] * 17).status == 413
    assert sent(attacked, begin, b"7fffffff\r\n" + b"x" * (BODY + 1)).status == 413
    assert sent(attacked, head("PUT", "/queries/a", "Transfer-Encoding: chunked"), *[chunk] * 17).status == 413
    assert (
        sent(
            attacked,
            head("POST", "/sparql", "Transfer-Encoding: chunked", "Content-Type: application/sparql-update"),
            *[chunk] * 17,
        ).status
        == 413
    )


def test_a_body_that_nobody_wants_does_not_hide_the_answer(attacked: Served) -> None:
    parts = [b"x" * 0x10000] * 8
    begin = head("POST", "/streams/a", f"Content-Length: {len(parts) << 16}", token="nobody-0123456789")
    assert sent(attacked, begin, *parts).status == 401
    begin = head("PUT", "/nothing", f"Content-Length: {len(parts) << 16}")
    assert sent(attacked, begin, *parts).status == 404


def test_a_body_that_stops(attacked: Served) -> None:
    began = time.monotonic()
    found = sent(attacked, head("POST", "/streams/a", "Content-Length: 100"), b"<http://")
    assert (found.status, found.detail) == (408, f"nothing more of the body has come for {SLOW:g} s")
    assert time.monotonic() - began < SLOW + 3


def test_a_body_that_drips(attacked: Served) -> None:
    began = time.monotonic()
    with attacked.connect() as plain:
        plain.sendall(head("POST", "/streams/a", "Content-Length: 100000"))
        plain.settimeout(0.1)
        while not (found := _soon(plain)):
            plain.sendall(b"x")
            assert time.monotonic() - began < PATIENCE
        plain.settimeout(PATIENCE)
        while b"}" not in found:
            found += plain.recv(10_000)
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b"less than 2,000 bytes in a second" in found
    assert time.monotonic() - began < SLOW + 3


def _soon(plain: socket.socket) -> bytes:
    try:
        return plain.recv(10_000)
    except TimeoutError:
        return b""


def test_bodies_that_are_never_complete_take_no_more_memory_than_is_allowed(attacked: Served) -> None:
    before = attacked.memory
    with ExitStack() as stack:
        held = [stack.enter_context(attacked.connect()) for _ in range(60)]
        for plain in held:
            with suppress(BrokenPipeError, ConnectionResetError):  # it is refused before all of it is sent
                plain.sendall(head("POST", "/streams/a", f"Content-Length: {BODY}") + b"x" * (BODY - 1000))
        statuses = [read(plain).status for plain in held]
    assert set(statuses) == {408, 429}  # those that were taken wait for more in vain
    assert attacked.memory - before < 60 * BODY


def test_bodies_are_not_unpacked(attacked: Served) -> None:
    bomb = gzip.compress(bytes(10 << 20))
    lines = ("Content-Encoding: gzip", f"Content-Length: {len(bomb)}")
    found = sent(attacked, head("POST", "/streams/a", *lines), bomb)
    assert (found.status, found.headers["accept-encoding"]) == (415, "identity")


# ---------------------------------------------------------------- heads


@pytest.mark.parametrize(
    "parts",
    [
        [b"POST"],
        [b"POST /streams/a HTTP/1.1\r\nHost: localhost\r\n"],
        [b"POST /streams/a HTTP/1.1\r\nX: ", *[b"x"] * 20],
        [b"GET /", *[b"x"] * 20],
    ],
)
def test_heads_that_do_not_come(attacked: Served, parts: Sequence[bytes]) -> None:
    began = time.monotonic()
    found = sent(attacked, *parts, pause=0.05)
    assert (found.status, found.detail) == (408, f"the head of the request has not come within {SLOW:g} s")
    assert time.monotonic() - began < 2 * SLOW + 3


def test_connections_on_which_nothing_comes(attacked: Served) -> None:
    with attacked.connect() as silent, attacked.connect() as blank, attacked.connect() as later:
        later.sendall(head("GET", "/health") + b"GET /he")
        assert read(later).status == 200
        for _ in range(20):
            with suppress(BrokenPipeError, ConnectionResetError):
                blank.sendall(b"\r\n")
            time.sleep(0.05)
        assert closed(silent)
        assert closed(blank)
        assert read(later).status == 408


def test_what_follows_a_body_that_was_refused_does_not_hold_a_connection(attacked: Served) -> None:
    with attacked.connect() as plain:
        plain.sendall(head("POST", "/streams/a", "Transfer-Encoding: chunked", token=""))
        assert read(plain).status == 401
        began = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - began < PATIENCE:
                plain.sendall(b"1\r\nx\r\n")
                time.sleep(0.05)
        assert time.monotonic() - began < 5


def test_half_a_request(attacked: Served) -> None:
    for part in (
        b"",
        b"GET",
        head("POST", "/streams/a", "Content-Length: 10"),
        head("GET", "/queries/none/results")[:-2],
    ):
        with attacked.connect() as plain:
            plain.sendall(part)
        with attacked.connect() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, and not closed
            plain.sendall(part)


def test_heads_that_are_too_large(attacked: Served) -> None:
    assert sent(attacked, head("GET", "/?a=" + "x" * HEAD)).status == 414
    assert sent(attacked, head("GET", "/", "X: " + "x" * 600_000)).status == 431
    assert sent(attacked, head("GET", "/", *[f"X-{number}: x" for number in range(60_000)])).status == 431
    assert sent(attacked, head("GET", "/?" + "x" * 600_000)).status in (414, 431)


def test_headers_behind_a_body_are_not_kept(attacked: Served) -> None:
    before = attacked.memory
    more = b"".join(b"X-%d: x\r\n" % number for number in range(50_000))
    begin = head("POST", "/streams/a", "Transfer-Encoding: chunked", "Content-Type: text/turtle")
    body = b"27\r\n<http://ex.org/a> <http://ex.org/b> 1 .\r\n0\r\n"
    evil = head("POST", "/streams/a", "Transfer-Encoding: chunked", token="")
    assert sent(attacked, begin, body, more, b"\r\n").status == 200
    assert sent(attacked, evil, body + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()).status == 401
    assert attacked.memory - before < 100 << 20


# ---------------------------------------------------------------- paths and parameters


@pytest.mark.parametrize(
    "target",
    [
        "/../../etc/passwd",
        "/streams/../../etc/passwd",
        "/streams/%2e%2e/%2e%2e/etc/passwd",
        "/streams/..%2f..%2fetc%2fpasswd",
        "/streams/a%00b",
        "/streams/a%0d%0aSet-Cookie:%20a=b",
        "/streams/a%0aSet-Cookie:%20a=b",
        "/streams/%1b[2J",
        "/streams/%c0%ae%c0%ae/",
        "/streams/%e0%80%af",
        "/streams/%ff",
        "/streams/%ed%a0%80",
        "//evil.example/streams/a",
        "/streams//a",
        "/streams/",
        "/streams",
        "/streams/%zz",
        "/streams/%",
        "/streams/a b",
        "/streams/<a>",
        "/streams/a\\..\\b",
        "/streams/%5c..%5c",
        "/streams/javascript:alert(1)",
        "/streams/a?time=%00",
        "/streams/a?time=1&time=2",
        "/streams/a?access_token=" + TOKEN,
        "/queries/%0d%0a/results",
        "/queries/" + "a/" * 5000 + "results",
        "/data?graph=%0d%0a",
        "/data?graph=file:///etc/passwd&default",
        "/nothing/%2e",
        "*",
        "streams/a",
        "",
        b"/streams/\xff\xfe",
        b"/streams/a\x00",
        b"/streams/a?b=\xc3\xbc",
        b"/streams/a\tb",
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_paths_that_are_tricks(attacked: Served, method: str, target: str | bytes) -> None:
    found = sent(attacked, head(method, target, "Content-Length: 2") + b"[]")
    assert 400 <= found.status < 500, (found.status, found.body)
    assert found.detail
    assert "set-cookie" not in found.headers
    assert b"root:" not in found.body


@pytest.mark.parametrize(
    "target",
    [
        "/queries/a/results?from=%0d%0aX-Evil:%20yes",
        "/queries/a/results?after=%EF%BC%91",
        "/queries/a/results?limit=" + "9" * 30,
        "/queries/a/results?wait=1e999s",
        "/queries/a/results?" + "&".join(f"x{number}=1" for number in range(1000)),
        "/queries/a%22b/explain",
        "/queries/a/explain?format=%0d%0aX-Evil:%20yes",
        "/sparql?query=%00",
        "/sparql?query=SELECT&query=ASK",
        "/sparql?query=" + "%28" * 3000,
        "/sparql?query=SELECT%20*%20%7B%20SERVICE%20%3Chttp://127.0.0.1:1/%3E%20%7B%7D%20%7D",
    ],
)
def test_parameters_that_are_tricks(attacked: Served, target: str) -> None:
    found = sent(attacked, head("GET", target))
    assert 400 <= found.status < 500, (found.status, found.body)
    assert found.detail
    assert "x-evil" not in found.headers


@pytest.mark.parametrize(
    "lines",
    [
        ["X-Evil: a\x00b"],
        ["X-Evil: a\rb"],
        ["X Evil: a"],
        [": a"],
        ["Content-Length: -1"],
        ["Content-Length: 1", "Content-Length: 2"],
        ["Content-Length: 0x10"],
        ["Content-Length: 1,1"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Host: evil.example"],
        ["Origin: http://evil.example"],
        ["Authorization: Bearer " + READER],
        ["Content-Type: text/evil\x7f", "Content-Length: 1"],
        ["Content-Type: " + "x" * 5000, "Content-Length: 1"],
    ],
)
def test_headers_that_are_tricks(attacked: Served, lines: Sequence[str]) -> None:
    found = sent(attacked, head("POST", "/streams/a", *lines), b"0\r\n\r\n")
    assert 400 <= found.status < 500, (found.status, found.body)
    assert found.detail


def test_a_client_that_asks_for_another_protocol_is_answered_in_this_one(attacked: Served) -> None:
    lines = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk", "Content-Length: 39")
    request = head("POST", "/streams/a", *lines, "Content-Type: text/turtle")
    request += b"<http://ex.org/a> <http://ex.org/b> 1 ."
    with attacked.connect() as plain:
        plain.sendall(request)
        assert read(plain).status == 200
        plain.sendall(request * 3)
        found = b""
        while found.count(b'{"accepted":1') < 3:
            part = plain.recv(1 << 16)
            assert part
            found += part


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "localhost:7070@evil.example", "[", "a/b", ""]
)
def test_names_that_are_not_the_services(attacked: Served, host: str) -> None:
    assert sent(attacked, head("GET", "/", host=host)).status == (
        421 if host.endswith("e") and "@" not in host else 400
    )


@pytest.mark.parametrize(
    "noise",
    [
        b"\x00" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\nHost: localhost\n Authorization: x\n\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_request(attacked: Served, noise: bytes) -> None:
    found = sent(attacked, noise)
    assert (found.status, bool(found.detail)) == (400, True)


@pytest.mark.parametrize(
    "chunks", [b"zz\r\nab\r\n", b"-1\r\n", b"1\r\nabc\r\n0\r\n\r\n", b"1" * 40 + b"\r\n", b"\r\n\r\n", b"1;\x00\r\n"]
)
def test_chunks_that_are_none(attacked: Served, chunks: bytes) -> None:
    with attacked.connect() as plain:
        plain.sendall(head("POST", "/streams/a", "Transfer-Encoding: chunked") + chunks)
        with suppress(HTTPException, ConnectionResetError):
            assert 400 <= read(plain).status < 500


def test_methods_that_there_are_not(attacked: Served) -> None:
    for method in ("PATCH", "TRACE", "DELETE", "PROPFIND"):
        found = sent(attacked, head(method, "/streams/a"))
        assert (found.status, bool(found.detail)) == (405, True)
        assert found.headers["allow"]


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer nobody-0123456789",
        "Authorization: Bearer " + TOKEN[:-1],
        "Authorization: Bearer " + TOKEN + "\xff",
        "Authorization: Bearer " + "x" * 8000,
        "Authorization: Basic YWRtaW46YWRtaW4=",
        "Authorization: " + TOKEN,
        "Authorization:",
        "Cookie: access_token=" + TOKEN,
        "X-Forwarded-For: 127.0.0.1",
    ],
)
def test_tokens_that_are_none(attacked: Served, line: str) -> None:
    for method, path in (("GET", "/"), ("POST", "/streams/a"), ("PUT", "/queries/a"), ("GET", "/nothing")):
        found = sent(attacked, head(method, path, line, token=""))
        assert (found.status, bool(found.detail)) == (401, True)
        assert found.headers["www-authenticate"].startswith("Bearer")


def test_a_token_does_only_what_it_may(attacked: Served) -> None:
    update, query = "Content-Type: application/sparql-update", "Content-Type: application/sparql-query"
    form = "Content-Type: application/x-www-form-urlencoded"

    def answered(line: str, body: bytes, target: str = "/sparql", token: str = READER) -> int:
        return sent(attacked, head("POST", target, line, f"Content-Length: {len(body)}", token=token), body).status

    assert answered(query, b"ASK {}") == 200
    assert answered(form, b"query=ASK+%7B%7D") == 200
    assert answered(update, b"INSERT DATA { <http://a> <http://b> 1 }") == 403
    assert answered(update.upper().replace("CONTENT-TYPE", "content-type"), b"CLEAR ALL") == 403
    assert answered(form, b"update=CLEAR+ALL") == 403
    assert answered(form, b"query=ASK+%7B%7D&update=CLEAR+ALL") == 403
    assert answered(form, b"%75pdate=CLEAR+ALL") == 403
    assert answered(form, b"query=ASK+%7B%7D", "/sparql?update=CLEAR+ALL") == 403
    assert answered(query, b"CLEAR ALL") == 400
    assert answered(update, b"INSERT DATA { <http://a> <http://b> 1 }", token=TOKEN) == 204
    for method, path in (
        ("POST", "/streams/a"),
        ("PUT", "/streams/a"),
        ("DELETE", "/queries/a"),
        ("PUT", "/data?default"),
    ):
        assert sent(attacked, head(method, path, "Content-Length: 0", token=READER)).status == 403


# ---------------------------------------------------------------- what is in a body


_DEEP = 100_000


@pytest.mark.parametrize(
    ("method", "target", "media", "body"),
    [
        ("PUT", "/streams/deep", "application/json", b"[" * _DEEP),
        ("PUT", "/streams/deep", "application/json", b'{"clock":' * _DEEP),
        ("POST", "/streams/deep", "application/ld+json", b"[" * _DEEP + b"]" * _DEEP),
        ("POST", "/streams/deep", "application/ld+json", b'{"http://a":' * (_DEEP // 2) + b"1" + b"}" * (_DEEP // 2)),
        ("POST", "/streams/deep", "application/json", b"[" * _DEEP + b"]" * _DEEP),
        ("POST", "/streams/deep", "", b"[" * _DEEP),
        ("POST", "/streams/deep", "text/turtle", b"<http://a> <http://b> " + b"[ <http://b> " * (_DEEP // 2)),
        ("POST", "/streams/deep", "text/turtle", b"<http://a> <http://b> " + b"(" * _DEEP),
        ("POST", "/streams/deep", "application/trig", b"{" * _DEEP),
        ("PUT", "/data?default", "text/turtle", b"<http://a> <http://b> " + b"(" * (_DEEP // 5)),
        ("PUT", "/data?default", "application/ld+json", b"[" * _DEEP + b"]" * _DEEP),
        ("PUT", "/data?default", "application/rdf+xml", b"<a>" * _DEEP),
        ("PUT", "/queries/deep", "", b"SELECT * WHERE " + b"{" * 20_000),
        ("PUT", "/queries/deep", "", b"SELECT * WHERE " + b"{" * 2000 + b"}" * 2000),
        ("POST", "/sparql", "application/sparql-query", b"SELECT * WHERE " + b"{" * 20_000),
        ("POST", "/sparql", "application/sparql-update", b"DELETE WHERE " + b"{" * 20_000),
        ("POST", "/sparql", "application/sparql-update", b"INSERT DATA { <http://a> <http://b> " + b"(" * 20_000),
        ("POST", "/sparql", "application/x-www-form-urlencoded", b"&query" * 100_000),
    ],
)
def test_bodies_that_are_deep(attacked: Served, method: str, target: str, media: str, body: bytes) -> None:
    lines = [f"Content-Type: {media}"] if media else []
    found = sent(attacked, head(method, target, *lines, f"Content-Length: {len(body)}"), body)
    assert 400 <= found.status < 500, (found.status, found.body[:1000])
    assert found.detail


def test_entities_of_xml_do_not_grow(attacked: Served) -> None:
    entities = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))
    xml = f'<!DOCTYPE x [<!ENTITY a0 "{"x" * 100}">{entities}<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    xml += '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
    xml += '<rdf:Description rdf:about="http://a"><e:p>&a9;&e;</e:p></rdf:Description></rdf:RDF>'
    before = attacked.memory
    line = "Content-Type: application/rdf+xml"
    found = sent(attacked, head("PUT", "/data?default", line, f"Content-Length: {len(xml)}"), xml.encode())
    assert found.status == 400
    assert attacked.memory - before < 100 << 20
