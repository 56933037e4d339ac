"""SERVICE against a real endpoint: an HTTP server on this machine that answers from a store of its own."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pyoxigraph
import pytest
from pyoxigraph import BlankNode, Literal, NamedNode, Quad, QueryResultsFormat

from cqels.lang.expressions import Call, Constant, Exists, Var
from cqels.model.dictionary import Dictionary
from cqels.model.terms import XSD_INTEGER
from cqels.plan.algebra import Filter, Join, LeftJoin, Service, Triple, Triples, Unit
from cqels.store.dataset import Store
from cqels.store.service import ServiceCache, ServiceFailure
from cqels.store.table import materialise

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

    @property
    def iri(self) -> NamedNode:
        return NamedNode(f"http://127.0.0.1:{self.server_port}/sparql")


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:  # the name that http.server calls
        query = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(query)
        assert self.headers["Accept"] == "application/sparql-results+json"
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
    store = Store()
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
    store = Store()
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
