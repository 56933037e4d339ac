"""The parser: what the field writes is accepted, dialects give the same plan, errors point at their place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cqels.lang.parser import MAX_LENGTH, parse, parse_update
from cqels.lang.syntax import Clear, Count, DeleteData, InsertData, Modify, Range, Window
from cqels.model.errors import CqelsError
from cqels.plan.algebra import Query, Stream, walk_plan
from cqels.plan.optimizer.rules import rewrite
from cqels.plan.prepare import prepare

S = 1_000_000_000
PREFIX = "PREFIX : <http://ex.org/>\n"


def window_of(text: str) -> Window:
    plan = prepare(f"{PREFIX} SELECT * {{ {text} {{ ?s :p ?o }} }}").plan
    return next(node for node in walk_plan(plan) if isinstance(node, Stream)).sources[0].window


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("STREAM :s [RANGE 3s]", Range(3 * S)),
        ("STREAM [RANGE 3s] :s", Range(3 * S)),
        ("stream :s [range 3000ms ]", Range(3 * S)),
        ("STREAM :s [RANGE 30 minutes]", Range(1800 * S)),
        ("STREAM :s [RANGE PT2H]", Range(7200 * S)),
        ("STREAM :s [RANGE 1m 30s]", Range(90 * S)),
        ("STREAM :s [RANGE 10s SLIDE 5s]", Range(10 * S, 5 * S)),
        ("STREAM :s [RANGE 10s STEP 5s]", Range(10 * S, 5 * S)),
        ("STREAM :s [RANGE 10s TUMBLING]", Range(10 * S, 10 * S)),
        ("STREAM :s [TRIPLES 3]", Count(3, "triples")),
        ("STREAM :s [ELEMENTS 3]", Count(3, "elements")),
        ("STREAM :s [COUNT 3]", Count(3, "elements")),
        ("STREAM :s [PARTITION BY ?s TRIPLES 3]", Count(3, "solutions", ("s",))),
    ],
)
def test_windows(written: str, window: Window) -> None:
    assert window_of(written) == window


SAME = {
    "cqels-ql": "SELECT ?s { STREAM <http://ex.org/s> [RANGE 10s SLIDE 5s] { ?s :p ?o } FILTER(?o > 1) }",
    "c-sparql": "SELECT ?s FROM STREAM <http://ex.org/s> [RANGE 10s STEP 5s] WHERE { ?s :p ?o FILTER(?o > 1) }",
    "rsp-ql": """SELECT ?s FROM NAMED WINDOW :w ON <http://ex.org/s> [RANGE PT10S STEP PT5S]
                 WHERE { WINDOW :w { ?s :p ?o } FILTER(?o > 1) }""",
    "sparqlstream": """SELECT ?s FROM NAMED STREAM <http://ex.org/s> [NOW - 10 S SLIDE 5 S]
                       WHERE { ?s :p ?o FILTER(?o > 1) }""",
    "streaming-sparql": """SELECT ?s FROM STREAM <http://ex.org/s> WINDOW RANGE 10 S SLIDE 5 S
                           WHERE { ?s :p ?o FILTER(?o > 1) }""",
}


@pytest.mark.parametrize("dialect", SAME)
def test_dialects_give_the_same_plan(dialect: str) -> None:
    def plan(text: str) -> Query:
        return rewrite(prepare(PREFIX + text))

    query = plan(SAME[dialect])
    assert query.dialect == dialect
    assert query.plan == plan(SAME["cqels-ql"]).plan
    assert prepare(PREFIX + SAME[dialect], dialect=dialect) == prepare(PREFIX + SAME[dialect])


REGISTRATIONS = [
    ("REGISTER QUERY q AS PREFIX : <u:> SELECT ?s { STREAM :s { ?s :p ?o } }", "istream", "cqels", "q"),
    ("PREFIX : <u:> REGISTER DSTREAM :o AS SELECT ?s { STREAM :s { ?s :p ?o } }", "dstream", "cqels", "u:o"),
    (
        "REGISTER STREAM q AS SELECT * FROM STREAM <u:s> [RANGE 1s STEP 1s] { ?s ?p ?o }",
        "rstream",
        "window-close",
        "q",
    ),
    ("SELECT ?s { STREAM <u:s> { ?s ?p ?o } } LIMIT 3", "snapshot", "cqels", None),
]


@pytest.mark.parametrize(("text", "emit", "policy", "name"), REGISTRATIONS)
def test_registration(text: str, emit: str, policy: str, name: str | None) -> None:
    query = prepare(text)
    assert (query.emit, query.policy, query.name) == (emit, policy, name)


def test_rsp_ql_counts_milliseconds_and_names_streams() -> None:
    text = "SELECT ?s FROM NAMED WINDOW :w ON STREAM :s [RANGE 10000 STEP 5000] { WINDOW :w { ?s :p ?o } }"
    written = "SELECT ?s FROM NAMED WINDOW :w ON :s [RANGE PT10S STEP PT5S] { WINDOW :w { ?s :p ?o } }"
    assert prepare(PREFIX + text).plan == prepare(PREFIX + written).plan


def test_aggregates_as_the_papers_print_them() -> None:
    bare = "SELECT ?l count(distinct ?x) as ?n { ?x :at ?l } GROUP BY ?l"
    assert prepare(PREFIX + bare).plan == prepare(PREFIX + bare.replace("count", "(COUNT").replace("?n", "?n)")).plan
    average, avg = (f"SELECT ({word}(?x) AS ?n) {{ ?x :at ?l }}" for word in ("AVERAGE", "avg"))
    assert prepare(PREFIX + average).plan == prepare(PREFIX + avg).plan


def test_a_name_that_select_computes_can_be_grouped_by() -> None:
    alias = "SELECT (ROUND(?x) AS ?c) (COUNT(*) AS ?n) { ?t :x ?x } GROUP BY ?c HAVING (?c > 0 && ?n > 1)"
    plain = "SELECT ?c (COUNT(*) AS ?n) { ?t :x ?x } GROUP BY (ROUND(?x) AS ?c) HAVING (?c > 0 && COUNT(*) > 1)"
    assert prepare(PREFIX + alias).plan == prepare(PREFIX + plain).plan


ERRORS = [
    ("SELECT * { ?s foaf:name ?o }", "prefix foaf: is not declared", (2, 15)),
    ("SELECT * { ?s <rel> ?o }", "<rel> is a relative IRI and the query has no BASE", (2, 15)),
    ("SELECT * { STREAM :s [RANGE 5x] { ?s :p ?o } }", "'x' is not a unit of time", (2, 29)),
    ("SELECT * { STREAM :s [RANGE 5] { ?s :p ?o } }", "this duration has no unit", (2, 29)),
    ("SELECT * { STREAM :s [RANGE P1M] { ?s :p ?o } }", None, (2, 29)),
    ("SELECT * { STREAM :s [TRIPLES 0] { ?s :p ?o } }", "a window must hold at least one", (2, 31)),
    ("SELECT * { WINDOW :v { ?s :p ?o } }", "window <http://ex.org/v> does not exist", (2, 19)),
    ("SELECT * { ?s :p ?o FILTER(COUNT(*) > 1) }", "an aggregate cannot stand in a FILTER", (2, 28)),
    ("SELECT (SUM(COUNT(?o)) AS ?x) { ?s :p ?o }", "an aggregate cannot stand inside another", (2, 13)),
    ("SELECT ?o (COUNT(*) AS ?n) { ?s :p ?o }", "?o is neither grouped by nor inside an aggregate", (2, 8)),
    ("SELECT * { STREAM :s { GRAPH :g { ?s :p ?o } } }", "GRAPH cannot stand inside STREAM", (2, 30)),
    ("SELECT * { STREAM :s { STREAM :t { ?s :p ?o } } }", "STREAM cannot stand inside STREAM", (2, 31)),
    ("DESCRIBE ?s { ?s :p ?o }", "DESCRIBE has no continuous meaning", (2, 1)),
    ("SELECT * { SERVICE ?x { ?s :p ?o } }", "SERVICE needs the IRI of an endpoint, not a variable", (2, 20)),
    ("SELECT * { ?s :p ?o FILTER(:f(?o)) }", "there is no function <http://ex.org/f>", (2, 28)),
    ("SELECT * { ?s :p ?o FILTER(STRLEN(?o, 1)) }", "STRLEN takes 1 argument, not 2", (2, 28)),
    ("SELECT * { ?s :p ?o", "the end of the text is not expected here", (2, 20)),
    ("SELECT * { ?s :p }", "'}' is not expected here", (2, 18)),
    ("SELECT (COUNT(?s) AS ?n) { ?s :p ?o } VALUES ?n { 1 }", "?n has a value already", (2, 22)),
    ("SELECT * { VALUES (?a ?b) { (1) } }", "this row has 1 values for 2 variables", (2, 29)),
    ("SELECT * { _:a :p ?o OPTIONAL { _:a :q ?x } }", "blank node _:a is used in two graph patterns", (2, 33)),
    ("SELECT * { STREAM :s [PARTITION BY ?z TRIPLES 1] { ?s :p ?o } }", None, (2, 12)),
    ("SELECT * FROM STREAM :s [NOW] { STREAM :t { ?s :p ?o } }", None, (2, 10)),
    ("SELECT * FROM NAMED WINDOW :w ON :s [NOW] { ?s :p ?o }", None, (2, 10)),
    ("SELECT ?ｎ\U000f0000 { ?s :p ?o }", None, (2, 8)),
]


@pytest.mark.parametrize(("text", "message", "place"), ERRORS, ids=[text for text, _, _ in ERRORS])
def test_errors_have_their_place(text: str, message: str | None, place: tuple[int, int]) -> None:
    with pytest.raises(CqelsError) as caught:
        prepare(PREFIX + text)
    error = caught.value
    assert error.source is not None
    assert error.span is not None
    assert error.source.position(error.span.start) == place
    assert message is None or error.message == message
    assert error.message[0].islower() or not error.message[0].isalpha() or error.message.split()[0].isupper()
    assert f"<query>:{place[0]}:{place[1]}" in str(error)


@pytest.mark.parametrize("form", ["SELECT ?x ?o", "CONSTRUCT { ?x :p ?o }"])
def test_what_nothing_binds_is_warned_of(form: str) -> None:
    query = prepare(f"{PREFIX}{form} WHERE {{ STREAM :s {{ ?s :p ?o }} }}", lenient=True)
    (warning,) = query.warnings
    assert "no pattern binds it" in str(warning)
    assert "<query>:2:" in str(warning)


def test_a_query_too_long_or_too_deep_is_refused() -> None:
    with pytest.raises(CqelsError, match="characters long"):
        parse("SELECT * { " + "?s ?p ?o . " * (MAX_LENGTH // 10) + "}")
    with pytest.raises(CqelsError, match="nested too deeply"):
        prepare("SELECT * " + "{" * 5000 + "}" * 5000)


def test_an_unknown_dialect_or_a_wrong_one_is_refused() -> None:
    with pytest.raises(CqelsError, match="this is written in c-sparql, not in rsp-ql"):
        prepare(PREFIX + SAME["c-sparql"], dialect="rsp-ql")
    with pytest.raises(CqelsError, match="there is no dialect"):
        prepare(PREFIX + SAME["c-sparql"], dialect="sql")


def test_an_operator_may_follow_an_iri() -> None:
    """`+`, `*` and `?` after an IRI are operators in an expression and repetitions in a path."""
    prepare(PREFIX + "SELECT * { ?s :p+/:q*|:r? ?o FILTER(:b + 1 = :c * 2 - :d / 3) }")


def test_expressions_equal_wherever_they_stand() -> None:
    one, other = (prepare(f"{PREFIX}{space}SELECT * {{ ?s :p ?o FILTER(?o + 1 > 2) }}") for space in ("", "   \n"))
    assert one.plan == other.plan


def test_updates() -> None:
    update = parse_update(
        PREFIX + 'INSERT DATA { :a :p "007"^^<http://www.w3.org/2001/XMLSchema#integer> GRAPH :g { :a :p 1 } } ;'
        "DELETE DATA { :a :p 1 } ; WITH :g DELETE { ?s :p ?o } INSERT { ?s :q ?o } WHERE { ?s :p ?o } ; CLEAR ALL"
    )
    insert, delete, modify, clear = update.operations
    assert isinstance(insert, InsertData)
    assert [str(quad.graph) for quad in insert.quads] == ["None", "<http://ex.org/g>"]
    assert isinstance(delete, DeleteData)
    assert isinstance(modify, Modify)
    assert [graph.value for graph in modify.dataset.default] == ["http://ex.org/g"]
    assert clear == Clear(None, "all", drop=False, silent=False)
    with pytest.raises(CqelsError, match="not allowed in DATA"):
        parse_update(PREFIX + "INSERT DATA { ?s :p 1 }")


def test_the_same_query_replaced_is_equal() -> None:
    query = prepare(PREFIX + SAME["cqels-ql"])
    assert replace(query, prefixes=()) == query
