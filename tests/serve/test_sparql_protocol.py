"""The static data over HTTP, section by section of SPARQL 1.1 Protocol and of SPARQL 1.1 Graph Store HTTP Protocol.

W3C's own tests of the two are sequences of requests for a server of its own, with graphs on its web site.  What they
send is here, but for three things: the graph of a request's own URL and a graph that is made without a name (the
service has one path for all graphs), DESCRIBE (which has no continuous meaning, and is refused), and bodies of
several parts (which are optional).
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import httpx
import pytest
from pyoxigraph import Literal, NamedNode, Quad, RdfFormat, parse

from cqels.live.live_run import LiveSettings
from cqels.serve.server import Address, Server
from cqels.serve.service import Pipeline, Service
from cqels.store.dataset import Store

EX = "http://ex.org/"
DATA, GRAPHS = "/data", ("http://ex.org/g1", "http://ex.org/g2")
FORM, QUERY, UPDATE = "application/x-www-form-urlencoded", "application/sparql-query", "application/sparql-update"
JSON, XML, CSV, TSV = (
    "application/sparql-results+json",
    "application/sparql-results+xml",
    "text/csv",
    "text/tab-separated-values",
)
ALL = "SELECT ?s ?p ?o WHERE { ?s ?p ?o }"
RDF = {
    "text/turtle": RdfFormat.TURTLE,
    "application/n-triples": RdfFormat.N_TRIPLES,
    "application/rdf+xml": RdfFormat.RDF_XML,
    "application/ld+json": RdfFormat.JSON_LD,
}


@dataclass(frozen=True, slots=True)
class Served:
    """A service, and who asks it."""

    http: httpx.Client
    service: Service

    def ask(self, query: str, **parameters: Any) -> list[str]:
        """The values of a query's first variable."""
        found = self.http.get("/sparql", params={"query": query, **parameters}, headers={"Accept": JSON})
        assert found.status_code == 200, found.text
        rows = found.json()["results"]["bindings"]
        return sorted(next(iter(row.values()))["value"] for row in rows)

    def objects(self, graph: str | None = None) -> list[str]:
        pattern = "?s ?p ?o" if graph is None else f"GRAPH <{graph}> {{ ?s ?p ?o }}"
        return self.ask(f"SELECT ?o WHERE {{ {pattern} }}")

    def update(self, text: str, **parameters: Any) -> None:
        done = self.http.post("/sparql", params=parameters, content=text, headers={"Content-Type": UPDATE})
        assert done.status_code == 204, done.text


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    service = Service(Pipeline(store=Store(), settings=LiveSettings(lasting=True)), tmp_path_factory.mktemp("state"))
    with Server(service, Address(port=0)) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        yield Served(http, service)


@pytest.fixture
def served(running: Served) -> Served:
    """With a triple in the default graph, and one in each of two others."""
    zero, one, two = (f"<{EX}s> <{EX}p> {number} ." for number in range(3))
    one, two = f"GRAPH <{GRAPHS[0]}> {{ {one} }}", f"GRAPH <{GRAPHS[1]}> {{ {two} }}"
    running.update(f"DROP ALL; INSERT DATA {{ {zero} {one} {two} }}")
    return running


def is_problem(found: Any, status: int, *words: str) -> bool:
    """Whether an answer is an error with some words in its sentence, and tells nothing of the inside."""
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/problem+json"
    told = found.json()
    assert told["status"] == status
    assert "Traceback" not in found.text
    return all(word in told["detail"] for word in words)


# ---------------------------------------------------------------- protocol, 2.1: query


def test_query_by_get(served: Served) -> None:
    found = served.http.get("/sparql", params={"query": ALL})
    assert (found.status_code, found.headers["content-type"]) == (200, JSON)
    assert found.json()["results"]["bindings"][0]["o"]["value"] == "0"


def test_query_by_a_form(served: Served) -> None:
    found = served.http.post("/sparql", data={"query": ALL}, headers={"Accept": JSON})
    assert len(found.json()["results"]["bindings"]) == 1


@pytest.mark.parametrize("media", [QUERY, f"{QUERY}; charset=utf-8", QUERY.upper()])
def test_query_as_the_body(served: Served, media: str) -> None:
    found = served.http.post("/sparql", content=ALL, headers={"Content-Type": media})
    assert len(found.json()["results"]["bindings"]) == 1


def test_a_query_is_utf_8(served: Served) -> None:
    for sent in ({"params": {"query": 'SELECT ("ü" AS ?u) {}'}}, {"params": {"query": 'SELECT ("\\u00fc" AS ?u) {}'}}):
        assert served.http.get("/sparql", **sent).json()["results"]["bindings"][0]["u"]["value"] == "ü"
    found = served.http.post("/sparql", content=b'SELECT ("\xff" AS ?u) {}', headers={"Content-Type": QUERY})
    assert is_problem(found, 400, "not UTF-8")
    found = served.http.post("/sparql", content=b"query=%FF", headers={"Content-Type": FORM})
    assert is_problem(found, 400, "not a form")


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("GET", {"params": {}}),
        ("GET", {"params": [("query", "ASK {}"), ("query", "SELECT * {}")]}),
        ("GET", {"params": {"query": "ASK {"}}),
        ("GET", {"params": {"query": ""}}),
        ("GET", {"params": {"query": "INSERT DATA { <a:a> <a:b> 1 }"}}),
        ("GET", {"params": {"update": "CLEAR ALL"}}),
        ("GET", {"params": {"query": "ASK {}", "qurey": ""}}),
        ("GET", {"params": {"query": "ASK {}", "default-graph-uri": "g1"}}),
        ("GET", {"params": {"query": "ASK {}", "named-graph-uri": "<http://ex.org/g1>"}}),
        ("GET", {"params": {"query": "DESCRIBE <http://ex.org/s>"}}),
        ("GET", {"params": {"query": "ASK { STREAM <obs> [RANGE 1s] { ?s ?p ?o } }"}}),
        ("POST", {"content": urlencode([("query", "ASK {}"), ("query", "ASK {}")]), "headers": {"Content-Type": FORM}}),
        ("POST", {"content": urlencode([("query", "ASK {}"), ("update", "")]), "headers": {"Content-Type": FORM}}),
        ("POST", {"content": "", "headers": {"Content-Type": FORM}}),
        ("POST", {"content": "query=" + "&a=1" * 1000, "headers": {"Content-Type": FORM}}),
        ("POST", {"content": "ASK {}", "params": {"query": "ASK {}"}, "headers": {"Content-Type": QUERY}}),
        ("POST", {"content": "CLEAR ALL", "headers": {"Content-Type": QUERY}}),
        ("POST", {"content": "ASK {}", "headers": {"Content-Type": UPDATE}}),
        ("POST", {"content": urlencode([("update", "")] * 2), "headers": {"Content-Type": FORM}}),
        ("POST", {"content": "DELETE { ?s", "headers": {"Content-Type": UPDATE}}),
    ],
)
def test_malformed_requests(served: Served, method: str, given: dict[str, Any]) -> None:
    assert is_problem(served.http.request(method, "/sparql", **given), 400)
    assert served.objects() == ["0"]


def test_other_media_types_and_methods(served: Served) -> None:
    for media in ("text/plain", "application/json", "text/turtle", ""):
        found = served.http.post("/sparql", content="ASK {}", headers={"Content-Type": media})
        assert is_problem(found, 415, "not taken")
    found = served.http.request("PUT", "/sparql", content="ASK {}")
    assert is_problem(found, 405)
    assert {"GET", "POST"} <= set(found.headers["allow"].replace(" ", "").split(","))


# ---------------------------------------------------------------- protocol, 2.1.4: the dataset


def test_the_dataset_of_a_query_is_said_beside_it(served: Served) -> None:
    assert served.ask("SELECT ?o { ?s ?p ?o }") == ["0"]
    assert served.ask("SELECT ?o { ?s ?p ?o }", **{"default-graph-uri": GRAPHS[0]}) == ["1"]
    assert served.ask("SELECT ?o { ?s ?p ?o }", **{"default-graph-uri": [*GRAPHS]}) == ["1", "2"]
    assert served.ask("SELECT ?o { GRAPH ?g { ?s ?p ?o } }", **{"named-graph-uri": GRAPHS[1]}) == ["2"]
    assert served.ask("SELECT ?o { ?s ?p ?o }", **{"named-graph-uri": GRAPHS[1]}) == []
    both = {"default-graph-uri": GRAPHS[0], "named-graph-uri": GRAPHS[1]}
    assert served.ask("SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }", **both) == ["1", "2"]


def test_it_wins_over_that_of_the_query(served: Served) -> None:
    query = f"SELECT ?o FROM <{GRAPHS[1]}> {{ ?s ?p ?o }}"
    assert served.ask(query) == ["2"]
    assert served.ask(query, **{"default-graph-uri": GRAPHS[0]}) == ["1"]


def test_it_is_taken_by_post_too(served: Served) -> None:
    words = [("default-graph-uri", each) for each in GRAPHS]
    form = served.http.post("/sparql", content=urlencode([("query", ALL), *words]), headers={"Content-Type": FORM})
    direct = served.http.post("/sparql", content=ALL, params=words, headers={"Content-Type": QUERY})
    assert len(form.json()["results"]["bindings"]) == len(direct.json()["results"]["bindings"]) == 2


# ---------------------------------------------------------------- protocol, 2.1.5 and 2.1.6: what comes back

TERMS = """SELECT ?iri ?plain ?tagged ?number ?none ?blank WHERE { BIND(<http://ex.org/ü> AS ?iri)
  BIND("a,\\"b\\"\\r\\n<&>\\t" AS ?plain) BIND("x"@en-gb AS ?tagged) BIND(1.50 AS ?number)
  OPTIONAL { <a:a> <a:b> ?none } BIND(BNODE() AS ?blank) }"""
PLAIN = 'a,"b"\r\n<&>\t'


def answer(served: Served, query: str, media: str) -> Any:
    found = served.http.get("/sparql", params={"query": query}, headers={"Accept": media})
    assert found.status_code == 200, found.text
    assert found.headers["content-type"].partition(";")[0] == media
    return found


@pytest.mark.parametrize("media", [JSON, "application/json"])
def test_a_table_in_json(served: Served, media: str) -> None:
    found = answer(served, TERMS, media).json()
    (row,) = found["results"]["bindings"]
    assert found["head"]["vars"] == ["iri", "plain", "tagged", "number", "none", "blank"]
    assert row["iri"] == {"type": "uri", "value": "http://ex.org/ü"}
    assert row["plain"] == {"type": "literal", "value": PLAIN}
    assert row["tagged"] == {"type": "literal", "value": "x", "xml:lang": "en-gb"}
    assert row["number"]["value"] == "1.50"
    assert row["number"]["datatype"].endswith("#decimal")
    assert "none" not in row
    assert row["blank"]["type"] == "bnode"


def test_a_table_in_xml(served: Served) -> None:
    root = ElementTree.fromstring(answer(served, TERMS, XML).content)
    space = "{http://www.w3.org/2005/sparql-results#}"
    names = [each.get("name") for each in root.iter(f"{space}variable")]
    found = {each.get("name"): each[0] for each in root.iter(f"{space}binding")}
    assert names == ["iri", "plain", "tagged", "number", "none", "blank"]
    assert [*found] == ["iri", "plain", "tagged", "number", "blank"]
    assert (found["iri"].tag, found["iri"].text) == (f"{space}uri", "http://ex.org/ü")
    assert found["plain"].text == PLAIN
    assert found["tagged"].get("{http://www.w3.org/XML/1998/namespace}lang") == "en-gb"
    assert (found["number"].text, found["blank"].tag) == ("1.50", f"{space}bnode")


def test_a_table_in_csv(served: Served) -> None:
    header, row = csv.reader(io.StringIO(answer(served, TERMS, CSV).content.decode(), newline=""))
    assert header == ["iri", "plain", "tagged", "number", "none", "blank"]
    assert row[:5] == ["http://ex.org/ü", PLAIN, "x", "1.50", ""]
    assert row[5].startswith("_:")


def test_a_table_in_tsv(served: Served) -> None:
    header, row, end = answer(served, TERMS, TSV).content.decode().split("\n")
    assert (header, end) == ("?iri\t?plain\t?tagged\t?number\t?none\t?blank", "")
    values = row.split("\t")
    assert len(values) == 6
    assert values[0] == "<http://ex.org/ü>"
    (quad,) = parse(f"<a:a> <a:b> {values[1]} .".encode(), RdfFormat.TURTLE)
    assert quad.object == Literal(PLAIN)
    assert (values[2], values[4]) == ('"x"@en-gb', "")


@pytest.mark.parametrize(("query", "truth"), [("ASK { ?s ?p 0 }", True), ("ASK { ?s ?p 7 }", False)])
def test_yes_or_no(served: Served, query: str, truth: bool) -> None:
    assert answer(served, query, JSON).json() == {"head": {}, "boolean": truth}
    root = ElementTree.fromstring(answer(served, query, XML).content)
    assert root[1].text == str(truth).lower()


@pytest.mark.parametrize("media", RDF)
def test_triples(served: Served, media: str) -> None:
    query = f"CONSTRUCT {{ ?s <{EX}made> ?o, 'ü' }} WHERE {{ ?s ?p ?o }}"
    found = {quad.object.value for quad in parse(answer(served, query, media).content, RDF[media])}
    assert found == {"0", "ü"}


def test_what_is_accepted_is_weighed(served: Served) -> None:
    weighed = {
        "text/csv;q=0.5, application/sparql-results+xml": XML,
        "text/csv, */*;q=0.1": CSV,
        "*/*": JSON,
        "text/*": CSV,
        "application/sparql-results+json;q=0, */*": "application/json",
    }
    for header, media in weighed.items():
        found = served.http.get("/sparql", params={"query": ALL}, headers={"Accept": header})
        assert found.headers["content-type"].partition(";")[0] == media
    for query, media in ((ALL, "text/turtle"), ("CONSTRUCT WHERE { ?s ?p ?o }", JSON), (ALL, "image/png")):
        found = served.http.get("/sparql", params={"query": query}, headers={"Accept": media})
        assert is_problem(found, 406, media)


def test_xml_does_not_have_all_characters(served: Served) -> None:
    query = 'SELECT ("a\\u0001" AS ?x) {}'
    found = served.http.get("/sparql", params={"query": query}, headers={"Accept": XML})
    assert is_problem(found, 406, "U+0001")
    assert served.ask(query) == ["a\x01"]


def test_a_fault_of_a_query_has_its_place(served: Served) -> None:
    found = served.http.get("/sparql", params={"query": "SELECT ?x WHERE {\n ?s ?p }"})
    assert is_problem(found, 400)
    assert ":2:" in found.json()["text"]


# ---------------------------------------------------------------- protocol, 2.2: update


def test_update_by_a_form_and_as_the_body(served: Served) -> None:
    done = served.http.post("/sparql", data={"update": f"INSERT DATA {{ <{EX}s> <{EX}p> 10 }}"})
    assert done.status_code == 204
    served.update(f"INSERT DATA {{ <{EX}s> <{EX}p> 11 }}; DELETE DATA {{ <{EX}s> <{EX}p> 0 }}")
    assert served.objects() == ["10", "11"]


def test_an_update_that_fails_changes_nothing(served: Served) -> None:
    text = f"INSERT DATA {{ <{EX}s> <{EX}p> 10 }}; CREATE GRAPH <{GRAPHS[0]}>"
    found = served.http.post("/sparql", content=text, headers={"Content-Type": UPDATE})
    assert is_problem(found, 400, "exists")
    assert served.objects() == ["0"]


def test_an_update_may_not_read_files(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "secret.nt"
    file.write_text("<a:a> <a:b> 1 .")
    found = served.http.post("/sparql", content=f"LOAD <{file.as_uri()}>", headers={"Content-Type": UPDATE})
    assert is_problem(found, 400)
    assert served.objects() == ["0"]


# ---------------------------------------------------------------- protocol, 2.2.3: the dataset of an update

COPY = f"INSERT {{ ?s <{EX}copied> ?o }} WHERE {{ ?s ?p ?o }}"
COPY_NAMED = f"INSERT {{ ?s <{EX}copied> ?o }} WHERE {{ GRAPH ?g {{ ?s ?p ?o }} }}"


def copied(served: Served) -> list[str]:
    return served.ask(f"SELECT ?o {{ ?s <{EX}copied> ?o }}")


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        (COPY, {}, ["0"]),
        (COPY, {"using-graph-uri": GRAPHS[0]}, ["1"]),
        (COPY, {"using-graph-uri": [*GRAPHS]}, ["1", "2"]),
        (COPY_NAMED, {}, ["1", "2"]),
        (COPY_NAMED, {"using-named-graph-uri": GRAPHS[1]}, ["2"]),
        (COPY_NAMED, {"using-graph-uri": GRAPHS[0]}, []),
        (COPY, {"using-named-graph-uri": GRAPHS[1]}, []),
        (f"{COPY}; {COPY}", {"using-graph-uri": GRAPHS[0]}, ["1"]),
    ],
)
def test_the_dataset_of_an_update_is_said_beside_it(
    served: Served, text: str, words: dict[str, Any], found: list[str]
) -> None:
    served.update(text, **words)
    assert copied(served) == found
    assert served.objects(GRAPHS[0]) == ["1"]


def test_it_is_taken_in_a_form_too(served: Served) -> None:
    fields = [("update", COPY), ("using-graph-uri", GRAPHS[0]), ("using-graph-uri", GRAPHS[1])]
    done = served.http.post("/sparql", content=urlencode(fields), headers={"Content-Type": FORM})
    assert done.status_code == 204
    assert copied(served) == ["1", "2"]


def test_what_is_inserted_goes_where_the_update_says(served: Served) -> None:
    served.update(
        f"INSERT {{ GRAPH <{GRAPHS[1]}> {{ ?s ?p ?o }} }} WHERE {{ ?s ?p ?o }}", **{"using-graph-uri": GRAPHS[0]}
    )
    assert served.objects(GRAPHS[1]) == ["1", "2"]


@pytest.mark.parametrize(
    "text",
    [
        f"WITH <{GRAPHS[0]}> {COPY}",
        f"INSERT {{ ?s ?p 7 }} USING <{GRAPHS[0]}> WHERE {{ ?s ?p ?o }}",
        f"INSERT {{ ?s ?p 7 }} USING NAMED <{GRAPHS[0]}> WHERE {{ ?s ?p ?o }}",
        f"INSERT DATA {{ <a:a> <a:b> 7 }}; WITH <{GRAPHS[0]}> {COPY}",
    ],
)
@pytest.mark.parametrize("word", ["using-graph-uri", "using-named-graph-uri"])
def test_it_is_said_once(served: Served, text: str, word: str) -> None:
    found = served.http.post("/sparql", content=text, params={word: GRAPHS[1]}, headers={"Content-Type": UPDATE})
    assert is_problem(found, 400, "USING or WITH")
    assert served.objects() == ["0"]


def test_it_names_graphs_by_iris(served: Served) -> None:
    found = served.http.post("/sparql", content=COPY, params={"using-graph-uri": "g"}, headers={"Content-Type": UPDATE})
    assert is_problem(found, 400, "not an IRI")


# ---------------------------------------------------------------- updates and running queries


def test_updates_reach_running_queries(served: Served) -> None:
    """By every way there is: a query joins a stream with what the updates have written."""
    http, kitchen = served.http, f"<{EX}in> <{EX}kitchen>"
    query = f"SELECT ?t WHERE {{ STREAM <obs> [NOW] {{ ?s <{EX}temp> ?t }} ?s <{EX}in> <{EX}kitchen> }}"
    assert http.put("/queries/kitchen", content=query).status_code in (200, 201)

    def seen(number: int) -> list[str]:
        """The sensors of which the query has this measurement: it is made of five."""
        lines = [
            f'<{EX}s{sensor}> <{EX}temp> "{number}{sensor}" "2026-01-01T00:00:{number:02}Z" .' for sensor in range(5)
        ]
        before = served.service.results.end(served.service.names.full("kitchen"))
        pushed = http.post("/streams/obs", content="\n".join(lines), headers={"Content-Type": "application/n-triples"})
        assert pushed.json() == {"accepted": 5, "rejected": 0}
        deadline = time.monotonic() + 20
        while served.service.run.metrics["elements"] < 5 * number and time.monotonic() < deadline:
            time.sleep(0.005)
        assert http.post("/checkpoint").status_code == 200  # which comes behind the batch that has them
        after = {"after": before - 1} if before else {"from": "start"}
        found = http.get(
            "/queries/kitchen/results", params={**after, "wait": "0s"}, headers={"Accept": "application/json"}
        )
        values = (each["bindings"]["t"]["value"] for each in found.json()["results"])
        return sorted(value[1] for value in values if value[0] == str(number))  # an update has results of the last, too

    served.update(f"INSERT DATA {{ <{EX}s0> {kitchen} }}")
    assert seen(1) == ["0"]
    http.post("/sparql", data={"update": f"INSERT DATA {{ <{EX}s1> {kitchen} }}"})
    assert seen(2) == ["0", "1"]
    http.post(DATA, params={"default": ""}, content=f"<{EX}s2> {kitchen} .", headers={"Content-Type": "text/turtle"})
    assert seen(3) == ["0", "1", "2"]
    served.update(f"INSERT {{ <{EX}s3> {kitchen} }} WHERE {{ ?s ?p 1 }}", **{"using-graph-uri": GRAPHS[0]})
    assert seen(4) == ["0", "1", "2", "3"]
    http.put(DATA, params={"default": ""}, content=f"<{EX}s4> {kitchen} .", headers={"Content-Type": "text/turtle"})
    assert seen(5) == ["4"]
    served.http.delete(DATA, params={"default": ""})
    served.update(f"INSERT DATA {{ <{EX}s1> {kitchen} }}")
    assert seen(6) == ["1"]
    assert http.delete("/queries/kitchen").status_code == 204


# ---------------------------------------------------------------- Graph Store Protocol

TURTLE = {"Content-Type": "text/turtle"}
NEW = {"graph": "http://ex.org/new"}


def graph(served: Served, params: dict[str, str], media: str = "text/turtle") -> set[Quad]:
    found = served.http.get(DATA, params=params, headers={"Accept": media})
    assert found.status_code == 200, found.text
    assert found.headers["content-type"].partition(";")[0] == media
    return set(parse(found.content, RDF[media]))


@pytest.mark.parametrize("media", RDF)
def test_get_a_graph(served: Served, media: str) -> None:
    for params, number in (({"default": ""}, 0), ({"graph": GRAPHS[0]}, 1)):
        expected = next(iter(parse(f"<{EX}s> <{EX}p> {number} .".encode(), RdfFormat.TURTLE)))
        assert graph(served, params, media) == {expected}


def test_head_says_the_same_without_the_triples(served: Served) -> None:
    for params, status in (({"default": ""}, 200), ({"graph": GRAPHS[0]}, 200), (NEW, 404)):
        whole, head = served.http.get(DATA, params=params), served.http.head(DATA, params=params)
        assert (head.status_code, head.content) == (status, b"")
        assert head.headers.get("content-type") == whole.headers.get("content-type")
        assert head.headers["content-length"] == str(len(whole.content))


def test_put_makes_a_graph_and_replaces_it(served: Served) -> None:
    assert served.http.put(DATA, params=NEW, content=f"<{EX}s> <{EX}p> 5 .", headers=TURTLE).status_code == 201
    assert served.objects(NEW["graph"]) == ["5"]
    assert served.http.put(DATA, params=NEW, content=f"<{EX}s> <{EX}p> 6 .", headers=TURTLE).status_code == 204
    assert served.objects(NEW["graph"]) == ["6"]
    assert served.objects(GRAPHS[0]) == ["1"]


def test_put_into_the_default_graph(served: Served) -> None:
    done = served.http.put(DATA, params={"default": ""}, content=f"<{EX}s> <{EX}p> 5 .", headers=TURTLE)
    assert (done.status_code, served.objects(), served.objects(GRAPHS[0])) == (204, ["5"], ["1"])


def test_put_nothing_makes_an_empty_graph(served: Served) -> None:
    assert served.http.put(DATA, params=NEW, content="", headers=TURTLE).status_code == 201
    assert graph(served, NEW) == set()
    assert served.http.put(DATA, params=NEW, content="", headers=TURTLE).status_code == 204


def test_post_adds_to_a_graph_and_makes_it(served: Served) -> None:
    assert served.http.post(DATA, params=NEW, content=f"<{EX}s> <{EX}p> 5 .", headers=TURTLE).status_code == 201
    assert served.http.post(DATA, params=NEW, content=f"<{EX}s> <{EX}p> 5, 6 .", headers=TURTLE).status_code == 204
    assert served.objects(NEW["graph"]) == ["5", "6"]
    assert served.http.post(DATA, params={"default": ""}, content="", headers=TURTLE).status_code == 204
    assert served.objects() == ["0"]


def test_blank_nodes_of_several_posts_are_kept_apart(served: Served) -> None:
    for _ in range(2):
        served.http.post(DATA, params=NEW, content=f"_:b <{EX}p> 5 .", headers=TURTLE)
    assert len(graph(served, NEW)) == 2


def test_delete_a_graph(served: Served) -> None:
    assert served.http.delete(DATA, params={"graph": GRAPHS[0]}).status_code == 204
    assert is_problem(served.http.get(DATA, params={"graph": GRAPHS[0]}), 404, GRAPHS[0])
    assert is_problem(served.http.delete(DATA, params={"graph": GRAPHS[0]}), 404)
    assert served.http.delete(DATA, params={"default": ""}).status_code == 204
    assert graph(served, {"default": ""}) == set()
    assert served.objects(GRAPHS[1]) == ["2"]


@pytest.mark.parametrize("media", [*RDF, "application/trig", "application/n-quads"])
def test_bodies_of_every_kind(served: Served, media: str) -> None:
    texts = {
        "application/rdf+xml": f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:ex="{EX}">
            <rdf:Description rdf:about="{EX}s"><ex:p>ü</ex:p></rdf:Description></rdf:RDF>""",
        "application/ld+json": json.dumps({"@id": f"{EX}s", f"{EX}p": "ü"}),
        "application/trig": f'<{NEW["graph"]}> {{ <{EX}s> <{EX}p> "ü" }}',
        "application/n-quads": f'<{EX}s> <{EX}p> "ü" <{NEW["graph"]}> .',
    }
    text = texts.get(media, f'<{EX}s> <{EX}p> "ü" .')
    done = served.http.put(DATA, params=NEW, content=text.encode(), headers={"Content-Type": f"{media}; charset=UTF-8"})
    assert (done.status_code, served.objects(NEW["graph"])) == (201, ["ü"])


def test_relative_iris_are_those_of_the_graph(served: Served) -> None:
    served.http.put(DATA, params=NEW, content=f"<#s> <{EX}p> <other> .", headers=TURTLE)
    (quad,) = graph(served, NEW)
    assert (quad.subject, quad.object) == (NamedNode("http://ex.org/new#s"), NamedNode("http://ex.org/other"))


@pytest.mark.parametrize(
    ("media", "text", "words"),
    [
        ("text/turtle", f"<{EX}s> <{EX}p> 1 .\n<{EX}s> <{EX}p .", "line 2"),
        ("application/n-triples", "x", "line 1"),
        ("application/ld+json", "{", "application/ld+json"),
        ("application/ld+json", "[" * 100_000, "nested too deeply"),
        ("application/ld+json", '{"@context": "http://localhost:1/c"}', "remote contexts"),
        ("text/turtle", "<<" * 100_000, "a triple inside a triple"),
        ("text/turtle", "<< <a:a> <a:b> <a:c> >> <a:b> <a:c> .", ""),
        ("application/rdf+xml", "<rdf:RDF", "application/rdf+xml"),
        ("application/trig", "<a:g> { <a:a> <a:b> 1 }", "another graph"),
        ("application/trig", "_:g { <a:a> <a:b> 1 }", "another graph"),
        ("text/turtle", b"<a:a> <a:b> '\xff' .", "text/turtle"),
    ],
)
def test_bodies_that_are_none(served: Served, media: str, text: str | bytes, words: str) -> None:
    for method in ("PUT", "POST"):
        found = served.http.request(method, DATA, params=NEW, content=text, headers={"Content-Type": media})
        assert is_problem(found, 400, words)
    assert is_problem(served.http.get(DATA, params=NEW), 404)


def test_requests_that_are_none(served: Served) -> None:
    for params in ({}, {"graph": "g"}, {"graph": ""}, {"default": "", **NEW}, {"grahp": "x"}, {"graph": "a b:c"}):
        for method in ("GET", "PUT", "POST", "DELETE"):
            assert is_problem(served.http.request(method, DATA, params=params), 400)
    assert is_problem(served.http.get(DATA, params=[("graph", each) for each in GRAPHS]), 400, "one graph")
    assert is_problem(served.http.get(DATA, params={"default": ""}, headers={"Accept": "image/png"}), 406)
    for media in ("image/png", FORM, "multipart/form-data; boundary=x", QUERY):
        found = served.http.post(DATA, params=NEW, content="x", headers={"Content-Type": media})
        assert is_problem(found, 415, "not taken")
    assert is_problem(served.http.patch(DATA, params=NEW, content="CLEAR ALL", headers={"Content-Type": UPDATE}), 405)
    assert served.objects() == ["0"]
