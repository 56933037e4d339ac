"""The client and a real service: what the engine does in one process, over HTTP, awaited or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyoxigraph import BlankNode, Literal, NamedNode, Quad, Triple

import cqels
from cqels.client import AccessDenied, Conflict, NotFound, Pushed
from cqels.ingest import Rejected
from cqels.model.errors import CqelsError, DataError, QueryError, QueryStopped
from cqels.serve.access import Access
from cqels.serve.http_app import HttpSettings
from cqels.serve.server import Server

from .clients import KINDS, Reader, connected, ended, eventually
from .served import EX, OBS, PREFIX, served

HOT = PREFIX + "SELECT ?s ?t { STREAM :obs [RANGE 10s] { ?s :temp ?t } FILTER(?t > 30) }"
QUERIES = {
    "hot": (HOT, "changes"),
    "all": (PREFIX + "SELECT ?s ?t ?r { STREAM :obs [RANGE 5s] { ?s :temp ?t } OPTIONAL { ?s :in ?r } }", "rstream"),
    "mean": (PREFIX + "SELECT ?s (AVG(?t) AS ?mean) { STREAM :obs [RANGE 10s] { ?s :temp ?t } } GROUP BY ?s", None),
    "alert": (PREFIX + "CONSTRUCT { ?s :is :hot } { STREAM :obs [NOW] { ?s :temp ?t } FILTER(?t > 30) }", None),
    "any": (PREFIX + "ASK { STREAM :obs [RANGE 3s] { ?s :temp ?t } FILTER(?t > 35) }", None),
}
TEMPLATE = """subject = "ex:{sensor}"
[prefixes]
ex = "http://ex.org/"
[time]
column = "at"
[predicates]
"ex:temp" = { column = "degrees", datatype = "xsd:integer" }
"""
Connect = Callable[..., Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path / "state") as made:
        yield made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(kind: str, server: Server) -> Iterator[Connect]:
    """What makes clients of the service, of each kind."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        made.append(connected(kind, server.url, **options))
        return made[-1]

    yield make
    for each in made:
        ended(each)


@pytest.fixture
def client(connect: Connect) -> Any:
    return connect()


def reading(sensor: int, degrees: int, seconds: float | None = None) -> str:
    """What a sensor says, with the time where that is on the line."""
    time = "" if seconds is None else f' "{round(1000 * seconds)}"'
    integer = "<http://www.w3.org/2001/XMLSchema#integer>"
    return f'<{EX}s{sensor}> <{EX}temp> "{degrees}"^^{integer}{time} .\n'


def triple(sensor: int, degrees: int) -> Triple:
    return Triple(NamedNode(f"{EX}s{sensor}"), NamedNode(f"{EX}temp"), Literal(degrees))


# ---------------------------------------------------------------- the same as the engine


def push_all(to: Any) -> None:
    """Elements in every way that the engine and the client have."""
    to.push(OBS, f"@prefix : <{EX}> . :s1 :temp 31 .", time="1s")
    to.push(NamedNode(OBS), triple(2, 33), datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
    to.push(OBS, [triple(1, 36), triple(3, 20)], 3 * 10**9)
    to.push(OBS, [[triple(1, 20)], reading(2, 40), [triple(3, 31)]], ["4s", "4s", "5500ms"])
    to.push(OBS, "".join(reading(number % 4, 28 + number % 9, 6 + number / 10) for number in range(60)))
    to.update(PREFIX + "INSERT DATA { :s1 :in :kitchen }")
    to.push(OBS, reading(1, 50), time="13s")
    to.push(OBS, reading(2, 51), time="10s")  # which is late
    to.heartbeat("20s")
    to.heartbeat(timedelta_seconds(40), OBS)


def timedelta_seconds(count: int) -> int:
    return timedelta(seconds=count) // timedelta(microseconds=1) * 1000


def test_results_are_those_of_the_engine(client: Any) -> None:
    """Of each form of query, in each field: times, ticks, signs and terms."""
    with cqels.Engine() as engine:
        for each in (client, engine):
            each.load([(NamedNode(EX + "s2"), NamedNode(EX + "in"), NamedNode(EX + "office"))])
        asked = {name: client.register(text, name=name, emit=emit) for name, (text, emit) in QUERIES.items()}
        wanted = {name: engine.register(text, name=name, emit=emit) for name, (text, emit) in QUERIES.items()}
        push_all(client)
        push_all(engine)
        for name, query in wanted.items():
            results = query.take()
            assert len(results) > 1
            followed = [list(islice(each, len(results))) for each in (client.results(name, after=-1), asked[name])]
            for found in (*followed, client.take(name)):
                assert [each.__getnewargs__()[:9] for each in found] == [each.__getnewargs__() for each in results]
                assert [each.number for each in found] == [*range(len(results))]
            assert asked[name].take() == []  # it has moved with what was read
            assert asked[name].variables == query.variables


def test_results_are_rows(client: Any) -> None:
    query = client.register(HOT, name="hot", emit="changes")
    client.push(OBS, reading(1, 35), time="4s")
    (row,) = query.take(wait=10)
    assert row.python() == {"s": f"{EX}s1", "t": 35}
    assert (row.s, row["t"], row[1], row.sign) == (NamedNode(f"{EX}s1"), Literal(35), Literal(35), "+")
    assert row.time == datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC)
    assert row._replace(sign="-").number == row.number == 0


def test_many_results_are_taken_in_parts(client: Any) -> None:
    """More than one answer of the service has."""
    query = client.register(PREFIX + "SELECT ?t { STREAM :obs [NOW] { ?s :temp ?t } }", name="each")
    count = 12_000
    pushed = client.push_many(OBS, (reading(1, number, number) for number in range(count)), batch=5_000)
    assert pushed == Pushed(count)
    eventually(lambda: client.query("each").number == count)
    assert [int(each.t.value) for each in query.take(limit=3)] == [0, 1, 2]
    assert [int(each.t.value) for each in query.take()] == [*range(3, count)]
    assert [each.number for each in client.take("each", after=count - 3)] == [count - 2, count - 1]
    assert len(client.take(query)) == count
    assert query.take(wait=0.01) == []
    with pytest.raises(CqelsError, match="a limit of 0 results"):
        query.take(limit=0)
    with pytest.raises(CqelsError, match="'-2' is not the number of a result"):
        query.results(after=-2)
    with pytest.raises(CqelsError, match="results begin at one place"):
        query.results(after=2, from_start=True)


# ---------------------------------------------------------------- what is pushed


def test_records_are_lifted_by_the_template_of_the_stream(client: Any, tmp_path: Path) -> None:
    (tmp_path / "readings.toml").write_text(TEMPLATE)
    for number, template in enumerate((TEMPLATE, tmp_path / "readings.toml", str(tmp_path / "readings.toml"))):
        assert client.stream(f"readings-{number}", template=template, lateness="0s")["template"] == TEMPLATE
    query = client.register(f"PREFIX : <{EX}> SELECT * {{ STREAM <readings-0> [NOW] {{ ?s :temp ?t }} }}", name="each")
    made = [{"sensor": "s1", "degrees": number, "at": number} for number in range(9)]
    assert client.push("readings-0", made[0]).accepted == 1
    assert client.push("readings-0", made[1:3]).accepted == 2
    assert client.push_many("readings-0", made[3:7], batch=2).accepted == 4
    assert client.push("readings-0", "sensor,degrees,at\ns1,7,7\n", format="csv").accepted == 1
    assert client.push("readings-0", {"sensor": "s1", "degrees": 8}, time="8s").accepted == 1
    found = list(islice(query.results(), 9))
    assert [each.python() for each in found] == [{"s": f"{EX}s1", "t": number} for number in range(9)]


def test_formats(client: Any) -> None:
    """A format is said, known by the kind of data, or told by the service from the first bytes."""
    query = client.register(PREFIX + "SELECT ?s ?t { STREAM :obs [NOW] { ?s :temp ?t } }", name="each")
    linked = {"@id": f"{EX}s1", f"{EX}temp": 3}
    client.push(OBS, f"<{EX}s1> <{EX}temp> 1 .", "1s", format="turtle")
    client.push(OBS, f"<{EX}s1> <{EX}temp> 2 .".encode(), "2s", format="text/turtle")
    client.push(OBS, linked, "3s")
    client.push(OBS, f'{{"@id": "{EX}s1", "{EX}temp": 4}}', "4s", format="jsonld")
    client.push_many(OBS, [(triple(1, 5), "5s"), (reading(1, 6), "6s"), reading(1, 7, 7), reading(1, 8, 8).encode()])
    assert [each.t.value for each in islice(query.results(), 8)] == [str(number) for number in range(1, 9)]
    with pytest.raises(CqelsError, match="'excel' is not a format"):
        client.push(OBS, "", format="excel")
    with pytest.raises(CqelsError, match="a format is that of a text"):
        client.push(OBS, [triple(1, 1)], format="turtle")
    with pytest.raises(CqelsError, match="3 elements and 2 times"):
        client.push(OBS, [reading(1, 1)] * 3, ["1s", "2s"])
    with pytest.raises(CqelsError, match="an element of type int is not taken"):
        client.push_many(OBS, [7])
    with pytest.raises(CqelsError, match="blocks of several streams are not taken at once"):
        client.push({OBS: reading(1, 1, 1)}, reading(1, 1, 1))


def raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(CqelsError) as caught:
        call()
    return caught.value


def test_lines_of_each_format_are_elements(client: Any) -> None:
    """However they are put together into requests."""
    client.stream("readings", template=TEMPLATE)
    query = client.register(PREFIX + "SELECT ?s ?t { STREAM <readings> [NOW] { ?s :temp ?t } }", name="each")
    table = ["sensor,degrees,at\n", *(f"s1,{number},{number}" for number in range(5))]
    assert client.push_many("readings", table, format="csv", batch=2).accepted == 5
    texts = (f'{{"sensor": "s1", "degrees": {number}, "at": {number}}}' for number in range(5, 10))
    assert client.push_many("readings", texts, format="ndjson", batch=2).accepted == 5
    documents = [f"<{EX}s1> <{EX}temp> 10 .", "\n", f"@prefix : <{EX}> . :s1 :temp 11 , 12 ."]
    assert client.push_many("readings", documents).accepted == 2
    assert [each.t.value for each in islice(query.results(), 13)] == [str(number) for number in range(13)]
    eventually(lambda: client.status()["elements"] == 12)


def test_rejected_elements(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    """They are counted and told of; a push of which nothing is taken is an error."""
    rejected: list[Rejected] = []
    client = connect(reject=rejected.append)
    lines = [reading(1, 1, 1), f"<{EX}s> nothing\n", reading(1, 2, 2)]
    assert (pushed := client.push(OBS, "".join(lines))) == Pushed(2, 1, pushed.errors)
    assert [each.place for each in rejected] == [f"<{OBS}>: line 2"]
    assert rejected[0].stream == OBS
    assert "nothing" in rejected[0].text
    with pytest.raises(DataError):
        client.push(OBS, f"<{EX}s> nothing", "1s")
    pushed = client.push_many(OBS, [*lines, *(f"<{EX}s> nothing\n" for _ in range(30))], batch=3, format="ntriples")
    assert (pushed.accepted, pushed.rejected, len(pushed.errors)) == (2, 31, 10)
    assert len(rejected) == 32
    connect().push(OBS, "".join(lines))
    assert [each.message for each in caplog.records][-1].startswith(f"rejected: <{OBS}>: line 2")


def test_heartbeats(client: Any) -> None:
    """On one stream or on all, known by their IRIs or by their short names."""
    query = client.register(
        PREFIX + "SELECT * { STREAM <one> [RANGE 5s] { ?s :temp ?a } STREAM <two> [RANGE 5s] { ?s :temp ?b } }",
        name="pairs",
        emit="changes",
    )
    client.push("one", reading(1, 1), "1s")
    client.push("two", reading(1, 2), "2s")
    client.heartbeat("3s", "one")
    client.heartbeat("20s")
    found = [(each.sign, each.nanoseconds // 10**9) for each in islice(query.results(), 2)]
    assert found[0] == ("+", 2)
    assert found[1][0] == "-"
    client.push("two", reading(1, 2), "4s")
    eventually(lambda: client.status()["late"] == 1)


# ---------------------------------------------------------------- queries


def test_queries_by_their_names(client: Any, tmp_path: Path) -> None:
    (tmp_path / "warm.rq").write_text("\ufeff" + HOT.replace("30", "20"), encoding="utf-8")
    warm = client.register(tmp_path / "warm.rq", emit="changes")
    assert (warm.name, warm.info["state"], repr(warm)) == ("warm", "new", "<query warm>")
    text = client.register(HOT)
    assert text.name.startswith("query-")
    assert client.register(HOT).name == text.name
    assert client.register(HOT, emit="changes").name != text.name
    assert client.register(str(tmp_path / "warm.rq"), emit="changes").info["state"] == "kept"
    assert client.register(HOT, name="warm", emit="changes").info["state"] == "anew"
    assert client.query("warm").info["text"] == HOT
    assert len(client.queries()) == 3
    assert client.query(f"{client.status()['base']}warm").name == "warm"
    for name in ("späte Gäste"[:5], "http://ex.org/q?a=b#c", "a/b"):
        made = client.register(HOT, name=name)
        assert made.name == name
        assert "Filter ?t > 30" in made.explain()
        made.drop()
    client.drop(text)
    client.drop("warm")
    assert len(client.queries()) == 1
    with pytest.raises(NotFound, match="there is no query warm"):
        client.query("warm")


def test_plans(client: Any) -> None:
    query = client.register(HOT, name="hot")
    assert "Filter ?t > 30" in query.explain()
    assert query.explain("json").startswith("{")
    assert query.explain("mermaid").startswith(("flowchart", "graph"))
    assert query.explain() == client.explain("hot") == client.explain(query)
    with pytest.raises(CqelsError, match="there is no format 'pdf'"):
        query.explain("pdf")


def test_errors_have_their_places_in_the_query(client: Any, tmp_path: Path) -> None:
    text = "PREFIX : <http://ex.org/>\nSELECT ?s {\n  WINDOW :w { ?s :temp ?t }\n}"
    wanted = raised(lambda: cqels.Engine().register(text, name="hot"))
    for query in (text, tmp_path / "hot.rq"):
        (tmp_path / "hot.rq").write_text(text)
        found = raised(lambda query=query: client.register(query, name="hot"))  # type: ignore[misc]
        assert isinstance(found, QueryError)
        assert (found.message, found.span, found.hint) == (wanted.message, wanted.span, wanted.hint)  # type: ignore[attr-defined]
        assert str(found) == str(wanted).replace("<query>", "<query>" if query == text else str(query))
    with pytest.raises(CqelsError, match="cannot be read: no such file"):
        client.register(tmp_path / "none.rq")
    with pytest.raises(QueryError, match="a query of type int is not taken"):
        client.register(7)
    with pytest.raises(CqelsError, match="is no policy"):
        client.register(HOT, name="hot", policy="both")


def test_conflicts_and_what_is_not_there(client: Any) -> None:
    client.stream("obs", clock="arrival", lateness=timedelta(seconds=2))
    assert client.streams()[0]["lateness"] == "2s"
    with pytest.raises(Conflict, match="is declared in another way"):
        client.stream("obs", clock="event")
    with pytest.raises(CqelsError, match="'sundial' is no clock"):
        client.stream("other", clock="sundial")
    client.register(HOT, name="cold")
    with pytest.raises(NotFound) as caught:
        client.results("colt").__next__()
    assert caught.value.hint == "did you mean cold?"
    with pytest.raises(NotFound, match="there is no query none"):
        client.drop("none")


def test_dropping_a_query_ends_its_readers(client: Any, connect: Connect) -> None:
    query = client.register(HOT, name="hot")
    readers = [Reader(client.results("hot", after=-1)), Reader(iter(connect().query("hot")))]
    client.push(OBS, reading(1, 35), time="4s")
    for reader in readers:
        eventually(lambda reader=reader: len(reader.results) == 1)  # type: ignore[misc]
    query.drop()
    for reader in readers:
        reader.join()
        assert reader.error is None
        assert len(reader.results) == 1


def test_a_query_that_takes_more_than_its_budget(client: Any) -> None:
    text = PREFIX + "SELECT ?s ?t { STREAM :obs [RANGE 1h] { ?s :temp ?t } }"
    query = client.register(text, name="all", emit="changes", memory="200KB")
    lines = [reading(number, number, number / 1000) for number in range(20_000)]
    client.push_many(OBS, lines)
    eventually(lambda: client.query("all").info["stopped"])
    reader = Reader(query.results())
    reader.join()
    assert isinstance(reader.error, QueryStopped)
    assert "its state takes more than 200 kB" in reader.error.message
    assert 0 < len(reader.results) < 20_000
    with pytest.raises(QueryStopped):
        query.take()


# ---------------------------------------------------------------- static data


def test_static_data(client: Any, tmp_path: Path) -> None:
    """What is loaded and changed is what running queries see, and what is asked for once."""
    (tmp_path / "rooms.ttl").write_text(f"@prefix : <{EX}> . :s1 :in :kitchen . :s2 :in :hall .")
    query = client.register(
        PREFIX + "SELECT ?s ?r { STREAM :obs [ALL] { ?s :temp ?t } ?s :in ?r }", name="rooms", emit="changes"
    )
    client.push(OBS, reading(1, 35), time="4s")
    assert client.load(tmp_path / "rooms.ttl") == 2
    client.update(PREFIX + "DELETE DATA { :s1 :in :kitchen } ; INSERT DATA { :s1 :in :office }")
    found = [(each.sign, each.r.value.removeprefix(EX)) for each in islice(query.results(), 3)]
    assert found == [("+", "kitchen"), ("-", "kitchen"), ("+", "office")]
    rows = client.select(PREFIX + "SELECT ?r ?s { ?s :in ?r } ORDER BY ?r")
    assert [row.python() for row in rows] == [{"r": f"{EX}hall", "s": f"{EX}s2"}, {"r": f"{EX}office", "s": f"{EX}s1"}]
    assert [row.asdict() for row in client.select("SELECT ?a ?b { VALUES (?a ?b) { (1 UNDEF) } }")] == [
        {"a": Literal(1), "b": None}
    ]
    assert client.ask(PREFIX + "ASK { :s2 :in :hall }") is True
    assert client.ask(PREFIX + "ASK { :s2 :in :office }" + 3000 * " ") is False  # too long for a URL
    assert client.construct(PREFIX + "CONSTRUCT { ?r :has ?s } { ?s :in ?r FILTER(?r = :hall) }") == [
        (NamedNode(EX + "hall"), NamedNode(EX + "has"), NamedNode(EX + "s2"))
    ]


def test_loading_into_graphs(client: Any, tmp_path: Path) -> None:
    one, two, blank = NamedNode(EX + "g1"), NamedNode(EX + "g2"), BlankNode("b")
    triples = [(NamedNode(EX + "a"), NamedNode(EX + "p"), Literal("é\n", language="fr"))]
    assert client.load(triples, one) == 1
    assert client.load([Quad(blank, NamedNode(EX + "p"), Literal(each), graph) for each, graph in ((1, one), (2, two))])
    count = "SELECT ?g (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g ORDER BY ?g"
    assert [row.python()["n"] for row in client.select(count)] == [2, 1]
    assert len(client.select("SELECT ?s { GRAPH ?g { ?s ?p 1 } GRAPH ?h { ?s ?p 2 } }")) == 1
    (tmp_path / "data").write_text(f"<{EX}a> <{EX}p> <{EX}b> <{EX}g2> .")
    assert client.load(str(tmp_path / "data"), format="nquads") == 1
    assert [row.python()["n"] for row in client.select(count)] == [2, 2]
    assert client.load([], EX + "g3") == 0
    for bad, message in ((tmp_path / "none.ttl", "no such file"), (7, "is not taken")):
        with pytest.raises(CqelsError, match=message):
            client.load(bad)


def test_what_is_asked_for_in_the_wrong_way(client: Any) -> None:
    for method, query, right in (
        (client.select, "ASK {}", "client.ask"),
        (client.select, "CONSTRUCT WHERE { ?s ?p ?o }", "client.construct"),
        (client.ask, "SELECT * {}", "client.select"),
        (client.construct, "SELECT * {}", "client.select"),
        (client.construct, "ASK {}", "client.ask"),
    ):
        with pytest.raises(CqelsError) as caught:
            method(query)
        assert caught.value.hint == f"{right}(…) has its answer"
    with pytest.raises(QueryError, match="reads a stream"):
        client.select(HOT)
    found = raised(lambda: client.update("INSERT DATA { ?s <x:p> 1 }"))
    assert isinstance(found, QueryError)
    with pytest.raises(CqelsError, match="an update of type int is not taken"):
        client.update(7)


# ---------------------------------------------------------------- the service


def test_the_service_itself(client: Any, tmp_path: Path) -> None:
    client.push("obs", reading(1, 35, 1))
    assert client.status()["service"] == "cqels"
    assert client.checkpoint()["snapshot_bytes"] > 0


def test_tokens_have_rights(kind: str, tmp_path: Path) -> None:
    tokens = {right: f"the-token-of-those-who-{right}" for right in ("read", "admin")}
    access = Access(tuple((token.encode(), frozenset({right})) for right, token in tokens.items()))
    with served(tmp_path, http=HttpSettings(access=access)) as server:
        for token, allowed in ((None, False), ("a-token-that-is-not-known", False), (tokens["read"], True)):
            client = connected(kind, server.url, token=token)
            if allowed:
                assert client.streams() == []
            with pytest.raises(AccessDenied):
                client.push(OBS, reading(1, 1, 1))
            ended(client)
        with pytest.raises(CqelsError, match="the token is not a text of ASCII characters"):
            connected(kind, server.url, token="tokén")
