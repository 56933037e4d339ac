"""SERVICE against a real endpoint: an HTTP server on this machine that answers from a store of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pyoxigraph
import pytest
from pyoxigraph import BlankNode, Literal, NamedNode, Quad, QueryResultsFormat

from cqels import Engine
from cqels.lang.expressions import Call, Constant, Exists, Var
from cqels.model.dictionary import Dictionary
from cqels.model.errors import CqelsError
from cqels.model.terms import XSD_INTEGER
from cqels.plan.algebra import Filter, Join, LeftJoin, Service, Triple, Triples, Unit
from cqels.store.dataset import Store
from cqels.store.id_table import materialise
from cqels.store.permissions import Permissions
from cqels.store.service import ServiceCache, ServiceFailure

EX = "http://example.org/"
A, B, C, P, Q = (NamedNode(EX + name) for name in "abcpq")
X, Y, Z = Var("x"), Var("y"), Var("z")
AGES = Filter(Triples((Triple(X, P, Y), Triple(X, Q, Var("_:b")))), Call("GT", (Y, Constant(Literal(5)))))


class Endpoint(ThreadingHTTPServer):
    """Answers queries; `asked` has their texts, `broken` makes it fail."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.graphs = pyoxigraph.Store()
        self.asked: list[str] = []
        self.broken = False
        self.open = Event()
        """While it is not set, nobody gets an answer."""
        self.open.set()

    @property
    def iri(self) -> NamedNode:
        return NamedNode(f"http://127.0.0.1:{self.server_port}/sparql")


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:  # the name that http.server calls
        query = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(query)
        assert self.headers["Accept"] == "application/sparql-results+json"
        assert self.server.open.wait(30)
        found = self.server.graphs.query(query)
        assert isinstance(found, pyoxigraph.QuerySolutions)
        body = found.serialize(format=QueryResultsFormat.JSON)
        assert body is not None
        self.send_response(503 if self.server.broken else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    server.graphs.extend([Quad(A, P, Literal(7)), Quad(A, Q, B), Quad(B, P, Literal(3)), Quad(B, Q, BlankNode("n"))])
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def test_solutions_come_from_the_endpoint_and_join(endpoint: Endpoint) -> None:
    store = Store(permissions=Permissions.of("127.0.0.1"))
    store.add([Quad(C, P, A)])
    plan = Join((Triples((Triple(Z, P, X),)), Service(endpoint.iri, AGES, False)))
    assert list(store.select(plan)) == [(C, A, Literal("7", datatype=XSD_INTEGER))]
    assert len(endpoint.asked) == 1
    nodes = Service(endpoint.iri, Triples((Triple(X, Q, Y),)), False)
    assert {type(value) for _, value in store.select(nodes)} == {NamedNode, BlankNode}
    tested = Filter(Triples((Triple(Z, P, X),)), Exists(Service(endpoint.iri, AGES, False), False))
    assert list(store.select(tested)) == [(C, A)]
    assert len(endpoint.asked) == 2  # the third found its answer in the cache


def test_an_answer_is_kept_until_it_is_too_old(endpoint: Endpoint) -> None:
    clock, service = Clock(), Service(endpoint.iri, AGES, False)
    cache = ServiceCache(refresh=10, clock=clock)
    store, dictionary = Store(services=cache), Dictionary()
    table = materialise(store, service, None, dictionary)
    endpoint.graphs.add(Quad(B, P, Literal(9)))
    clock.now = 9
    assert len(list(store.select(service))) == 1
    assert cache.refresh_due() == ()
    assert not table.stale(store)
    clock.now = 10
    assert cache.refresh_due() == (service,)
    assert cache.refreshed_at(service) == 10
    assert table.stale(store)
    assert len(materialise(store, service, None, dictionary).rows) == 2
    assert len(endpoint.asked) == 2


def test_a_failure_names_the_endpoint_unless_silence_is_asked_for(endpoint: Endpoint) -> None:
    endpoint.broken = True
    store = Store(permissions=Permissions.of("127.0.0.1"))
    with pytest.raises(ServiceFailure, match=r"127\.0\.0\.1:\d+/sparql> gave no answer: HTTP 503"):
        store.select(Service(endpoint.iri, AGES, False))
    silent = Service(endpoint.iri, AGES, True)
    assert list(store.select(LeftJoin(Unit(), silent, None))) == [(None, None)]
    assert store.services.failure(silent) == "HTTP 503 Service Unavailable"
    with pytest.raises(ServiceFailure, match="not an HTTP address"):
        store.select(Service(NamedNode("urn:x"), AGES, False))
    with pytest.raises(ServiceFailure, match="refused"):
        store.select(Service(NamedNode("http://127.0.0.1:1/sparql"), AGES, False))


def test_a_refresh_that_fails_keeps_the_former_answer(endpoint: Endpoint) -> None:
    clock, service = Clock(), Service(endpoint.iri, AGES, False)
    cache = ServiceCache(refresh=10, clock=clock)
    former = cache.table(service)
    endpoint.broken, clock.now = True, 20
    assert cache.refresh_due() == ()
    assert cache.table(service) == former
    assert cache.failure(service) == "HTTP 503 Service Unavailable"


# ---------------------------------------------------------------- asked again while streams run


def joined(endpoint: Endpoint, silent: str = "") -> str:
    return (
        f"PREFIX : <{EX}> SELECT ?x ?y WHERE {{ STREAM :s [RANGE 1h] {{ ?x :seen ?t }} "
        f"SERVICE {silent} {endpoint.iri} {{ ?x :p ?y }} }}"
    )


def push(engine: Engine, number: int) -> None:
    engine.push(f"{EX}s", f"<{EX}a> <{EX}seen> {number} .", time=f"{number}s")


class Still(ServiceCache):
    """Endpoints are asked again when the test says so, and not in the background."""

    def begin(self) -> None:
        pass


def kept(refresh: int, clock: Clock) -> Engine:
    return Engine(store=Store(services=Still(refresh, clock)))


def values(query: Any) -> list[tuple[str, str]]:
    return [(each.sign, each.values[1].value) for each in query.take()]


def wait_for(condition: Callable[[], bool]) -> None:
    limit = monotonic() + 30
    while not condition():
        assert monotonic() < limit
        sleep(0.005)


def change(endpoint: Endpoint, before: int, after: int) -> None:
    endpoint.graphs.remove(Quad(A, P, Literal(before)))
    endpoint.graphs.add(Quad(A, P, Literal(after)))


@pytest.mark.parametrize(
    ("emit", "expected"),
    [
        ("changes", [("-", "7"), ("+", "8"), ("+", "8")]),
        ("istream", [("", "8"), ("", "8")]),
        ("dstream", [("", "7")]),
        ("rstream", [("", "8"), ("", "8"), ("", "8")]),
    ],
)
def test_an_answer_that_differs_is_an_update_between_two_ticks(
    endpoint: Endpoint, emit: str, expected: list[tuple[str, str]]
) -> None:
    """As if the dataset had been updated before the next element."""
    clock = Clock()
    with kept(10, clock) as engine, Engine() as static:
        query = engine.register(joined(endpoint), emit=emit)
        text = f"PREFIX : <{EX}> SELECT ?x ?y WHERE {{ STREAM :s [RANGE 1h] {{ ?x :seen ?t }} ?x :p ?y }}"
        static.update(f"INSERT DATA {{ <{EX}a> <{EX}p> 7 }}")
        other = static.register(text, emit=emit)
        push(engine, 1)
        push(static, 1)
        values(query), values(other)
        change(endpoint, 7, 8)
        clock.now = 10
        assert len(engine.internals.store.services.refresh_due()) == 1
        static.update(f"DELETE DATA {{ <{EX}a> <{EX}p> 7 }} ; INSERT DATA {{ <{EX}a> <{EX}p> 8 }}")
        push(engine, 2)
        push(static, 2)
        found = query.take()
        assert found == other.take()
        assert [(each.sign, each.values[1].value) for each in found] == expected


def test_endpoints_are_asked_again_in_the_background(endpoint: Endpoint) -> None:
    with Engine(allow_service="127.0.0.1", service_refresh="10ms") as engine:
        query = engine.register(joined(endpoint), emit="changes")
        push(engine, 1)
        change(endpoint, 7, 8)
        asked = len(endpoint.asked)
        wait_for(lambda: len(endpoint.asked) > asked + 1)
        assert values(query) == [("+", "7"), ("-", "7"), ("+", "8")]  # taking is enough
        told: list[str] = []
        query.on_result(lambda result: told.append(f"{result.sign}{result.values[1].value}"))
        change(endpoint, 8, 9)
        asked = len(endpoint.asked)
        wait_for(lambda: len(endpoint.asked) > asked + 1)
        engine.refresh()  # and so is a call
        assert told == ["-8", "+9"]


def test_no_stream_waits_for_an_endpoint(endpoint: Endpoint) -> None:
    with Engine(allow_service="127.0.0.1", service_refresh="10ms") as engine:
        query = engine.register(joined(endpoint), emit="changes")
        change(endpoint, 7, 8)
        endpoint.open.clear()
        asked = len(endpoint.asked)
        wait_for(lambda: len(endpoint.asked) > asked)
        push(engine, 1)
        first = values(query)
        assert len(first) == 1
        endpoint.open.set()
        asked = len(endpoint.asked)
        wait_for(lambda: len(endpoint.asked) > asked + 1)
        push(engine, 2)
        assert values(query)[-1] == ("+", "8")


def test_a_failure_in_the_background_is_told_and_tried_again(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with kept(100 * 10**9, clock) as engine:
        services = engine.internals.store.services
        query = engine.register(joined(endpoint), emit="changes")
        push(engine, 1)
        endpoint.broken = True
        for number, wait in enumerate((100, 1, 2, 4), start=1):
            clock.now += wait * 10**9 - 1
            assert services.due() == ()
            clock.now += 1
            assert len(services.due()) == 1
            assert services.refresh_due() == ()
            assert services.failures == number
        assert "failed: 4 times, HTTP 503 Service Unavailable" in query.explain()
        assert "its last answer is kept" in caplog.text
        endpoint.broken = False
        change(endpoint, 7, 8)
        clock.now += 8 * 10**9
        assert len(services.refresh_due()) == 1
        assert values(query) == [("+", "7"), ("-", "7"), ("+", "8")]
        assert "asked: every 100s   last: 115s   rows: 2" in query.explain()


def test_who_is_silent_at_first_is_heard_later(endpoint: Endpoint) -> None:
    clock = Clock()
    with kept(10**11, clock) as engine:
        endpoint.broken = True
        query = engine.register(joined(endpoint, "SILENT"), emit="changes")
        push(engine, 1)
        assert [each.values[1] for each in query.take()] == [None]
        endpoint.broken, clock.now = False, 10**9
        assert len(engine.internals.store.services.refresh_due()) == 1
        assert [(each.sign, each.values[1]) for each in query.take()] == [("-", None), ("+", Literal(7))]


def test_only_queries_that_ask_have_a_tick_and_only_they_are_followed(endpoint: Endpoint) -> None:
    clock = Clock()
    with kept(10, clock) as engine:
        query = engine.register(joined(endpoint), emit="rstream")
        other = engine.register(f"SELECT ?x WHERE {{ STREAM <{EX}s> [RANGE 1h] {{ ?x ?p ?t }} }}", emit="rstream")
        push(engine, 1)
        query.take(), other.take()
        change(endpoint, 7, 8)
        clock.now = 10
        engine.internals.store.services.refresh_due()
        engine.heartbeat("1s")
        assert [len(query.take()), len(other.take())] == [1, 0]
        asked = len(endpoint.asked)
        query.drop()
        clock.now = 20
        assert not engine.internals.store.services._watched()
        push(engine, 2)
        assert len(endpoint.asked) == asked


def test_an_interval_is_a_duration() -> None:
    for wrong in ("0s", "often"):
        with pytest.raises(CqelsError):
            Engine(service_refresh=wrong)
