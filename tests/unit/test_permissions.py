"""What SERVICE and LOAD may reach, against real servers on this machine: hosts, redirects, limits of time and size."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyoxigraph import Literal, NamedNode
from typer.testing import CliRunner

import cqels
from cqels.cli.app import app
from cqels.model.errors import CqelsError, QueryError
from cqels.store.dataset import Store
from cqels.store.http import NoAnswer, fetch
from cqels.store.permissions import NotAllowed, Permissions
from cqels.store.script import execute
from cqels.store.service import ServiceCache

_ROOM = {"s": {"type": "uri", "value": "http://ex.org/s1"}, "r": {"type": "literal", "value": "hall"}}
ROOMS = json.dumps({"head": {"vars": ["s", "r"]}, "results": {"bindings": [_ROOM]}}).encode()
PUBLIC = "93.184.216.34"


class Server(ThreadingHTTPServer):
    """Does at each path what it was told, and keeps the headers of requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paths: dict[str, Callable[[Handler], None]] = {"/sparql": answer}
        self.headers: list[dict[str, str]] = []
        self.over = Event()

    def url(self, path: str = "/sparql", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:  # the name that http.server calls
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.headers.append(dict(self.headers.items()))
        self.server.paths[self.path.partition("?")[0]](self)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def answer(handler: Handler, content: bytes = ROOMS, kind: str = "application/sparql-results+json") -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def redirect(to: str, status: int = 307) -> Callable[[Handler], None]:
    def act(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Location", to)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return act


def drip(handler: Handler) -> None:
    """A byte from time to time, without an end: each of them in time."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.over.wait(0.02):
        try:
            handler.wfile.write(b" ")
        except OSError:
            return


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.over.set()
    made.shutdown()
    thread.join()
    made.server_close()


def got(url: str, permissions: Permissions, *, timeout: float = 10.0, limit: int = 1 << 20) -> bytes:
    return fetch(url, permissions, headers={}, timeout=timeout, limit=limit).content


HERE = Permissions.of("127.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "[::ffff:127.0.0.1]"])
def test_this_machine_is_not_asked_unless_it_is_allowed(server: Server, host: str) -> None:
    with pytest.raises(NotAllowed, match="is a loopback address") as caught:
        got(server.url(host=host), Permissions())
    assert "--allow-service" in (caught.value.hint or "")
    assert server.headers == []


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("10.1.2.3", "private"),
        ("192.168.0.1", "private"),
        ("172.16.5.5", "private"),
        ("169.254.169.254", "link-local"),
        ("0.0.0.0", "private"),
        ("::1", "loopback"),
        ("fe80::1%eth0", "link-local"),
        ("fd00::1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::a00:1", "private"),
        ("2002:7f00:1::", "loopback"),
        ("224.0.0.1", "special"),
        ("100.64.0.1", "special"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str, kind: str) -> None:
    with pytest.raises(NotAllowed, match=f"{kind} address"):
        Permissions().check_host("ex.org", 80, [PUBLIC, address])
    Permissions.of("ex.org").check_host("EX.org.", 80, [address])


def test_hosts_that_are_allowed_are_allowed_and_no_others() -> None:
    Permissions().check_host("ex.org", 80, [PUBLIC])
    permissions = Permissions.of(["ex.org:3030", "10.0.0.0/8", "https://sparql.ex.org/query", "::1"])
    permissions.check_host("ex.org", 3030, ["127.0.0.1"])
    permissions.check_host("other.org", 80, ["10.7.7.7"])
    permissions.check_host("sparql.ex.org", 443, [PUBLIC])
    permissions.check_host("ip6-localhost", 80, ["::1"])
    for host, port, address in (("ex.org", 80, PUBLIC), ("other.org", 80, PUBLIC), ("sub.ex.org", 3030, PUBLIC)):
        with pytest.raises(NotAllowed, match="not one of those that are allowed"):
            permissions.check_host(host, port, [address])
    Permissions.of("*").check_host("anything", 1, ["127.0.0.1"])
    with pytest.raises(CqelsError, match="is not a host"):
        Permissions.of("a/b c")
    given: Any
    for given in (3, [3], [None], [b"ex.org"]):
        with pytest.raises(CqelsError, match="allow_service= does not take a value of type"):
            Permissions.of(given)
        with pytest.raises(CqelsError, match="allow_load= does not take a value of type"):
            Permissions.of(None, given)


def test_a_name_is_resolved_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is to the address that was checked, whatever a second look at the name would give."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host: str, *rest: object, **more: object) -> object:
        asked.append(host)
        return real("127.0.0.1" if host == "rebound.org" else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert got(server.url(host="rebound.org"), Permissions.of("127.0.0.0/8")) == ROOMS
    assert asked.count("rebound.org") == 1
    with pytest.raises(NotAllowed):
        got(server.url(host="rebound.org"), Permissions())
    assert server.headers[0]["Host"].startswith("rebound.org:")


def test_redirects_stay_on_the_host(server: Server) -> None:
    server.paths |= {
        "/same": redirect("/sparql"),
        "/loop": redirect("/loop"),
        "/other": redirect(server.url(host="localhost")),
        "/file": redirect("file:///etc/passwd"),
        "/port": redirect("http://127.0.0.1:1/sparql"),
    }
    assert got(server.url("/same"), HERE) == ROOMS
    for path, reason in (
        ("/loop", "redirects more than 5 times"),
        ("/other", "redirects to another host, localhost"),
        ("/file", "redirects to what is not an HTTP address"),
    ):
        with pytest.raises(NoAnswer, match=reason):
            got(server.url(path), Permissions.of("*"))
    with pytest.raises(NotAllowed):  # the same host is checked again
        got(server.url("/port"), Permissions.of(f"127.0.0.1:{server.server_port}"))


def test_a_slow_endpoint_has_a_limit_of_time(server: Server) -> None:
    server.paths["/slow"] = drip
    with pytest.raises(NoAnswer, match=r"it took longer than 0\.3 s"):
        got(server.url("/slow"), HERE, timeout=0.3)


def test_an_answer_has_a_limit_of_size(server: Server) -> None:
    server.paths["/long"] = drip
    with pytest.raises(NoAnswer, match="larger than 5 B"):
        got(server.url(), HERE, limit=5)
    with pytest.raises(NoAnswer, match="larger than 3 B"):
        got(server.url("/long"), HERE, limit=3)  # which does not say how long it is

    def short(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"[")

    server.paths["/short"] = short
    with pytest.raises(NoAnswer, match="ended before its answer did"):
        got(server.url("/short"), HERE)


def test_only_http_is_spoken() -> None:
    for url in ("file:///etc/passwd", "ftp://ex.org/", "gopher://ex.org/", "http:///x"):
        with pytest.raises(NoAnswer, match="not an HTTP address"):
            got(url, Permissions.of("*"))


def query(url: str, silent: str = "") -> str:
    return (
        "PREFIX : <http://ex.org/> SELECT ?s ?r WHERE { STREAM :obs [RANGE 1h] { ?s :temp ?t }\n"
        f"  SERVICE {silent} <{url}> {{ ?s :in ?r }} }}"
    )


def test_an_engine_says_which_option_allows_it(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with cqels.Engine() as engine:
        with pytest.raises(QueryError, match=r"127\.0\.0\.1 is a loopback address") as caught:
            engine.register(query(server.url()))
        shown = str(caught.value)
        assert "--> <query>:2:12" in shown
        assert "--allow-service 127.0.0.1, or Engine(allow_service=['127.0.0.1'])" in shown
        engine.register(query(server.url(), "SILENT"))
        assert "the query goes on without it" in caplog.text
    assert server.headers == []
    with cqels.Engine(allow_service=["127.0.0.1"]) as engine:
        standing = engine.register(query(server.url()))
        engine.push("http://ex.org/obs", "<http://ex.org/s1> <http://ex.org/temp> 1 .", time="1s")
        assert [result.values[1] for result in standing.take()] == [Literal("hall")]


def test_the_command_line_has_the_same_words(server: Server, tmp_path: Path) -> None:
    (tmp_path / "q.rq").write_text(query(server.url()))
    (tmp_path / "obs.nt").write_text('<http://ex.org/s1> <http://ex.org/temp> "1" 1000 .\n')
    stream = f"<http://ex.org/obs>={tmp_path}/obs.nt"
    command = ["run", str(tmp_path / "q.rq"), "--stream", stream]
    embedded = [*command, "--engine", "embedded"]
    refused = CliRunner().invoke(app, embedded).exception
    assert isinstance(refused, QueryError)
    assert "--allow-service 127.0.0.1" in str(refused)
    for allowed in (["--allow-service", "127.0.0.1"], ["--allow-service", "ex.org,127.0.0.1"]):
        done = CliRunner().invoke(app, [*embedded, *allowed, "--service-refresh", "1m", "--allow-load", str(tmp_path)])
        assert done.exit_code == 0
        assert "hall" in done.output
    for wrong, reason in (("0s", "not longer than 0"), ("often", "--service-refresh")):
        error = CliRunner().invoke(app, [*embedded, "--service-refresh", wrong]).exception
        assert reason in str(error)


def test_a_cache_that_a_program_makes_may_ask_this_machine(server: Server) -> None:
    with cqels.Engine(store=Store(services=ServiceCache())) as engine:
        engine.register(query(server.url()))
    with cqels.Engine(store=Store(services=ServiceCache(allow=["ex.org"]))) as engine, pytest.raises(QueryError):
        engine.register(query(server.url()))


def test_load_from_the_web(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.paths |= {
        "/rooms": lambda handler: answer(handler, b"<a> <http://ex.org/in> <b> .", "text/turtle"),
        "/rooms.nt": lambda handler: answer(handler, b"<x:a> <x:in> <x:b> .", "application/octet-stream"),
        "/page": lambda handler: answer(handler, b"<html>", "text/html"),
        "/bad": lambda handler: answer(handler, b"<a> <b>", "text/turtle"),
    }
    store = Store()
    with pytest.raises(NotAllowed, match=r"is not loaded: the host 127\.0\.0\.1 is not allowed"):
        execute(store, f"LOAD <{server.url('/rooms')}>")
    execute(store, f"LOAD SILENT <{server.url('/rooms')}>")
    assert "LOAD SILENT goes on without it" in caplog.text
    store = Store(permissions=HERE)
    execute(store, f"LOAD <{server.url('/rooms')}> INTO GRAPH <http://ex.org/g>; LOAD <{server.url('/rooms.nt')}>")
    ((subject, _, _),) = store.triples(NamedNode("http://ex.org/g"))
    assert subject == NamedNode(server.url("/a"))
    assert len(list(store.triples())) == 1
    for path, reason in (("/page", "text/html is not a format of RDF"), ("/bad", "expected")):
        with pytest.raises(CqelsError, match=reason):
            execute(store, f"INSERT DATA {{ <x:c> <x:p> 1 }}; LOAD <{server.url(path)}>")
    assert len(store) == 2


def test_a_password_is_sent_and_not_shown(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    url = server.url().replace("http://", "http://me:pa55word@") + "?token=t0ken"
    with cqels.Engine(allow_service="127.0.0.1") as engine:
        standing = engine.register(query(url))
        assert server.headers[0]["Authorization"] == "Basic bWU6cGE1NXdvcmQ="
        shown = [standing.explain(format) for format in ("text", "json", "mermaid")]
    server.shutdown()
    server.paths["/sparql"] = lambda handler: handler.send_error(503)
    for silent in ("", "SILENT"):
        with cqels.Engine() as engine:
            try:
                engine.register(query(url, silent))
            except CqelsError as error:
                shown += [str(error), error.message, repr(error)]
    shown.append(caplog.text)
    assert all("pa55word" not in text and "t0ken" not in text for text in shown)
