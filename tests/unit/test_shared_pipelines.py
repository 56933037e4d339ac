"""Queries that differ in constants and widths of windows alone have one pipeline, and each what it would have alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyoxigraph import Literal, NamedNode

from cqels.engine.engine import Engine
from cqels.ingest import Element
from cqels.ingest.element_batch import Batch, Words
from cqels.model.time import SECOND
from cqels.plan.algebra import Thresholds, walk_plan
from cqels.plan.prepare import prepare
from cqels.plan.sharing.query_templates import CLASS, constants_of, general

PREFIX = "PREFIX : <http://ex.org/> "
AT = "SELECT ?p ?l WHERE { STREAM :s [RANGE 3s] { ?p :at ?l } ?p :name %s }"
STREAM = "http://ex.org/s"


def ex(name: str) -> NamedNode:
    return NamedNode("http://ex.org/" + name)


def go(engine: Engine, person: str, place: str, time: int) -> None:
    engine.push(STREAM, [(ex(person), ex("at"), ex(place))], time=f"{time}s")


@pytest.fixture
def engine() -> Engine:
    made = Engine()
    names = " ".join(f':{each} :name "{each.upper()}" .' for each in "abc")
    made.update(f"{PREFIX} INSERT DATA {{ {names} }}")
    return made


def pipelines(engine: Engine) -> int:
    """How many there are when something happens: then nobody else can have a part in them."""
    engine.internals.core.registry.settle()
    return len(engine.internals.core.registry.pipelines)


def seen(query: object) -> list[tuple[int, str]]:
    return [(each.tick, each.values[1].value.removeprefix("http://ex.org/")) for each in query.take()]  # type: ignore[attr-defined]


# ---------------------------------------------------------------- who shares


def test_queries_that_differ_in_constants_share(engine: Engine) -> None:
    queries = {name: engine.register(PREFIX + AT % f'"{name}"', name=name) for name in "ABC"}
    again = engine.register(PREFIX + AT % '"A"', name="again")
    assert pipelines(engine) == 1
    go(engine, "a", "x", 1)
    go(engine, "b", "y", 2)
    go(engine, "a", "z", 3)
    assert seen(queries["A"]) == seen(again) == [(1, "x"), (3, "z")]
    assert seen(queries["B"]) == [(2, "y")]
    assert seen(queries["C"]) == []


def test_a_query_alone_has_its_constants_in_its_patterns(engine: Engine) -> None:
    query = engine.register(PREFIX + AT % '"A"')
    assert query.running.member is None
    assert "constant" not in query.explain()


@pytest.mark.parametrize("share", [True, False])
def test_an_engine_that_shares_nothing_sends_the_same(share: bool) -> None:
    with Engine(share=share) as engine:
        texts = [f"SELECT ?p WHERE {{ STREAM :s [RANGE 9s] {{ ?p :at :{each} }} }}" for each in "xyx"]
        queries = [engine.register(PREFIX + text) for text in texts]
        assert pipelines(engine) == (1 if share else 3)
        go(engine, "a", "x", 1)
        assert [len(query.take()) for query in queries] == [1, 0, 1]


@pytest.mark.parametrize(
    "others",
    [
        "SELECT ?p ?l WHERE { STREAM :s [RANGE 3s SLIDE 1s] { ?p :at ?l } ?p :name 'A' }",
        "SELECT ?p ?l WHERE { STREAM :s [RANGE 3s] { ?p :in ?l } ?p :name 'A' }",
        "SELECT ?l ?p WHERE { STREAM :s [RANGE 3s] { ?p :at ?l } ?p :name 'A' }",
        "SELECT DISTINCT ?p ?l WHERE { STREAM :s [RANGE 3s] { ?p :at ?l } ?p :name 'A' }",
    ],
)
def test_other_queries_do_not(engine: Engine, others: str) -> None:
    engine.register(PREFIX + AT % '"A"')
    engine.register(PREFIX + others)
    assert pipelines(engine) == 2


def test_who_comes_later_has_seen_less(engine: Engine) -> None:
    first = engine.register(PREFIX + AT % '"A"', emit="changes")
    go(engine, "a", "x", 1)
    second = engine.register(PREFIX + AT % '"A"', emit="changes")
    third = engine.register(PREFIX + AT % '"B"', emit="changes")
    assert pipelines(engine) == 2
    assert second.running.member is third.running.member is not None
    go(engine, "a", "y", 9)
    assert seen(first) == [(1, "x"), (2, "x"), (2, "y")]
    assert seen(second) == [(1, "y")]


def test_constants_that_are_all_the_same_do_not_vary(engine: Engine) -> None:
    text = "SELECT ?p WHERE { STREAM :s [RANGE 3s] { ?p :at :%s . ?p :with :%s . ?p a :Person } }"
    for one, other in (("x", "y"), ("x", "z")):
        engine.register(PREFIX + text % (one, other))
    (share,) = engine.internals.core.registry.shares
    assert share.general.numbers == (1,)
    engine.register(PREFIX + text % ("y", "z"))
    (share,) = engine.internals.core.registry.shares
    assert share.general.numbers == (0, 1)
    assert len(list(share.members)) == 3


# ---------------------------------------------------------------- widths of windows

TEXTS = [
    "SELECT ?p ?l WHERE { STREAM :s [RANGE %ds] { ?p :at ?l } ?p :name 'A' }",
    "SELECT ?p ?l WHERE { STREAM :s [RANGE %ds] { ?p :at ?l } STREAM :s [NOW] { ?p :at ?k } }",
    "SELECT ?p ?l WHERE { STREAM :s [RANGE %ds] { ?p :at ?l } STREAM :s [RANGE %ds] { ?q :at ?l } FILTER(?p != ?q) }",
    "SELECT ?l (COUNT(?p) AS ?n) (SAMPLE(?p) AS ?one) WHERE { STREAM :s [RANGE %ds] { ?p :at ?l } } GROUP BY ?l",
    "SELECT DISTINCT ?l ?n WHERE { STREAM :s [RANGE %ds] AT ?t { ?p :at ?l } OPTIONAL { ?p :name ?n } }",
    "SELECT ?p ?l (getSTARTTIME() AS ?t) WHERE { STREAM :s [RANGE %ds] { ?p :at ?l } MINUS { ?p :name 'B' } }",
]


def told(share: bool, text: str, emit: str) -> tuple[int, list[list[tuple[object, ...]]]]:
    """The number of pipelines, and what queries of several widths send while people go about."""
    with Engine(share=share) as engine:
        engine.update(PREFIX + "INSERT DATA { :a :name 'A' . :b :name 'B' }")
        texts = [text.replace("%d", str(width)) for width in (9, 12, 17, 5, 9)]
        queries = [engine.register(PREFIX + each, emit=emit) for each in texts]
        for time, (person, place) in enumerate(["ax", "bx", "ay", "ax", "cz", "az", "bx", "by"]):
            go(engine, person, place, 3 * time)
        engine.update(PREFIX + "INSERT DATA { :c :name 'A' }")
        go(engine, "a", "z", 30)
        engine.heartbeat("36s")
        engine.heartbeat("60s")
        sent = [[(each.tick, each.nanoseconds, each.sign, each.values) for each in query.take()] for query in queries]
        return len(engine.internals.core.registry.pipelines), sent


@pytest.mark.parametrize("emit", ["istream", "dstream", "changes"])
@pytest.mark.parametrize("text", TEXTS)
def test_windows_of_several_widths_are_one(text: str, emit: str) -> None:
    (count, sent), (apart, wanted) = told(True, text, emit), told(False, text, emit)
    assert (count, apart) == (1, 5)
    assert sent == wanted
    assert all(sent[:3])
    assert emit == "istream" or len({str(each) for each in sent}) > 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { STREAM :s [RANGE 3s SLIDE 1s] { ?x :p ?y } }",
        "SELECT * { STREAM :s [RANGE 3s @:time] { ?x :p ?y } }",
        "SELECT * { STREAM :s [NOW] { ?x :p ?y } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } STREAM :t [RANGE 4s] { ?x :p ?y } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } STREAM :t [ALL] { ?x :p ?y } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } STREAM :t [TRIPLES 3] { ?x :p ?y } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y OPTIONAL { ?x :q ?z } } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y MINUS { ?x :q ?z } } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y FILTER NOT EXISTS { ?x :q ?z } } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p+ ?y } }",
        "SELECT * { STREAM :s [RANGE 3s] { SELECT ?x (COUNT(*) AS ?n) { ?x :p ?y } GROUP BY ?x } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } OPTIONAL { STREAM :s [RANGE 3s] { ?x :q ?z } } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } MINUS { STREAM :s [RANGE 3s] { ?x :q ?z } } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } FILTER NOT EXISTS { STREAM :s [RANGE 3s] { ?x :q ?z } } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } { SELECT DISTINCT ?x { STREAM :s [RANGE 3s] { ?x :q ?z } } } }",
        "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } BIND(EXISTS { STREAM :s [RANGE 3s] { ?x :q ?z } } AS ?e) }",
        "SELECT * FROM STREAM :s [RANGE 3s] FROM :g WHERE { ?x :p ?y }",
        "SELECT * { STREAM :s [RANGE 100000d] { ?x :p ?y } }",
    ],
)
def test_some_windows_are_not_as_wide_as_others(text: str) -> None:
    """Where a wider window may have fewer solutions, or its solutions do not tell when they go."""
    query = prepare(PREFIX + text, emit="changes", policy="cqels")
    assert constants_of(query) == ()


@pytest.mark.parametrize(
    ("pattern", "count"), [("?x :p :a", 1), ("?x :p ?y . ?y :p :a", 3), ("?x :p ?y } STREAM :s [NOW] { ?y :p :a", 3)]
)
def test_where_elements_are_joined_windows_are_of_about_one_width(pattern: str, count: int) -> None:
    """Or most solutions would be made in vain; if each element makes its own, any width will do."""
    with Engine() as engine:
        for width in ("1ms", "5s", "6s", "10s", "1d"):
            engine.register(PREFIX + f"SELECT ?x {{ STREAM :s [RANGE {width}] {{ {pattern} }} }}", name=width)
        assert pipelines(engine) == count
        assert engine.query("5s").running.member is engine.query("10s").running.member is not None


def test_the_policy_says_how_windows_go() -> None:
    text = PREFIX + "SELECT * { STREAM :s [RANGE 3s] { ?x :p ?y } }"
    for policy, constants in (("cqels", (Literal(3 * SECOND),)), ("window-close", ())):
        assert constants_of(prepare(text, emit="changes", policy=policy)) == constants


def test_the_widest_goes_and_what_is_saved_is_as_wide(engine: Engine) -> None:
    text = "SELECT ?p ?l WHERE { STREAM :s [RANGE %ds] { ?p :at ?l } }"
    widths = {f"{width}": text % width for width in (9, 2, 4)}
    for name in widths:
        engine.register(PREFIX + widths[name], name=name, emit="changes")
    go(engine, "a", "x", 1)
    before = engine.internals.core.registry.pipelines[0].pipeline.query
    engine.drop("9")
    go(engine, "b", "y", 2)
    other = Engine(store=engine.internals.store)
    for name in ("4", "2"):
        other.register(PREFIX + widths[name], name=name, emit="changes")
    other.restore(engine.snapshot())
    (running,) = other.internals.core.registry.pipelines
    assert running.pipeline.query == before
    for each in (engine, other):
        go(each, "a", "z", 4)
        each.heartbeat("6s")
        each.drop("4")
        go(each, "c", "z", 7)
    assert other.snapshot() == engine.snapshot()
    sent = [(each.sign, each.values[1]) for each in other.query("2").take()]
    assert sent == [(sign, ex(place)) for sign, place in ("+x", "+y", "-x", "+z", "-y", "-z", "+z")]


# ---------------------------------------------------------------- thresholds

HOT = "SELECT ?p ?v WHERE { STREAM :s [RANGE %ds] { ?p :temp ?v } FILTER(?v > %s) }"


def warm(engine: Engine, person: str, value: str, time: int, kind: str = "integer") -> None:
    number = Literal(value, datatype=NamedNode("http://www.w3.org/2001/XMLSchema#" + kind))
    engine.push(STREAM, [(ex(person), ex("temp"), number)], time=f"{time}s")


def values(query: object) -> list[str]:
    return [f"{each.sign}{each.values[-1].value}" for each in query.take()]  # type: ignore[attr-defined]


COMPARED = [
    ("SELECT * { STREAM :s [RANGE 9s] { ?p :temp ?v } FILTER(?v > %s) }", ["1", "2", "2.0", "15e-1", "-3"]),
    ("SELECT * { STREAM :s [RANGE 9s] { ?p :temp ?v FILTER(%s >= ?v) } }", ["1", "2", "2.0", "15e-1", "4"]),
    ("SELECT * { STREAM :s [RANGE 9s] { :%s :temp ?v } FILTER(?v < %s && ?v >= %s) }", ["a 3 1", "b 4 2", "a 4 2"]),
    ("SELECT * { STREAM :s [RANGE %ss] { ?p :temp ?v } FILTER(%s < ?v) }", ["9 1", "3 2", "3 1"]),
    ("SELECT * { STREAM :s [RANGE %ss] { :%s :temp ?v } FILTER(%s < ?v) }", ["9 a 1", "3 a 2", "3 b 1", "9 b 1"]),
    (
        "SELECT ?p (COUNT(*) AS ?n) { STREAM :s [RANGE 9s] { ?p :temp ?v OPTIONAL { ?v :p ?o } } FILTER(?v > %s) } "
        "GROUP BY ?p",
        ["1", "2", "0"],
    ),
    (
        "SELECT ?p ?v ?w { STREAM :s [RANGE 9s] { ?p :temp ?v FILTER(?v > %s) } "
        "STREAM :s [RANGE 9s] { ?p :temp ?w FILTER(?w < %s) } }",
        ["1 3", "2 4", "0 2"],
    ),
]


@pytest.mark.parametrize("emit", ["istream", "dstream", "changes"])
@pytest.mark.parametrize(("text", "variants"), COMPARED)
def test_thresholds_are_compared_with_in_one_place(text: str, variants: list[str], emit: str) -> None:
    sent = []
    for share in (True, False):
        with Engine(share=share) as engine:
            queries = [engine.register(PREFIX + text % tuple(each.split()), emit=emit) for each in variants]
            assert pipelines(engine) == (1 if share else len(variants))
            readings = [("1", "integer"), ("2.0", "decimal"), ("x", "string"), ("2.5", "double"), ("3", "float")]
            readings += [("9" * 40, "integer"), ("x", "integer"), ("NaN", "double"), ("2", "integer"), ("3", "byte")]
            for time, (value, kind) in enumerate(readings * 2):
                warm(engine, "ab"[time % 2 ^ time // 10], value, time, kind)
            engine.heartbeat("60s")
            sent.append([[(each.nanoseconds, each.sign, each.values) for each in query.take()] for query in queries])
    assert sent[0] == sent[1]
    assert all(sent[0])


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y } FILTER(?y > 1 && 2.5 >= ?y) }", ["1", "2.5"]),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y FILTER(?y > 1 && ?y != 3) } FILTER(?y < 2) }", ["2", "1"]),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y } FILTER(?y > 1 || ?y < 0) }", []),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y } FILTER(?y > 'a' && ?y > 'x'^^<http://ex.org/t>) }", []),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y } FILTER(?y > 'INF'^^<http://www.w3.org/2001/XMLSchema#double>) }", []),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y } FILTER(?y > 'x'^^<http://www.w3.org/2001/XMLSchema#integer>) }", []),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y OPTIONAL { ?x :q ?z } } FILTER(?z > 1) }", []),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y } BIND(?y + 1 AS ?z) FILTER(?z > 1) }", []),
        ("SELECT * { { SELECT ?x { STREAM :s [NOW] { ?x :p ?y } } } FILTER(?y > 1) }", []),
        ("SELECT ?x (COUNT(*) AS ?n) { STREAM :s [NOW] { ?x :p ?y } } GROUP BY ?x HAVING(?n > 1)", []),
        ("SELECT * { STREAM :s [PARTITION BY ?x TRIPLES 1] { ?x :p ?y FILTER(?y > 1) } }", []),
        ("SELECT * { ?x :p ?y FILTER(?y > 1) OPTIONAL { STREAM :s [NOW] { ?x :q ?z } } }", []),
    ],
)
def test_the_thresholds_of_a_query(text: str, constants: list[str]) -> None:
    query = prepare(PREFIX + text)
    assert [term.value for term in constants_of(query) or ()] == constants
    made = general(query, range(len(constants)))
    assert made.thresholds == made.varying == (*range(len(constants)),)
    assert [isinstance(each, Thresholds) for each in walk_plan(made.query.plan)].count(True) == bool(constants)


def test_thresholds_of_dropped_queries_are_passed_over() -> None:
    with Engine() as engine:
        queries = {each: engine.register(PREFIX + HOT % (3, each), name=each, emit="changes") for each in "1234"}
        warm(engine, "a", "9", 1)
        for each in "13":
            engine.drop(each)
        warm(engine, "b", "3", 2)
        engine.heartbeat("9s")
        assert values(queries["2"]) == ["+9", "+3", "-9", "-3"]
        assert values(queries["4"]) == ["+9", "-9"]
        assert values(queries["3"]) == ["+9"]


def test_a_group_goes_with_its_last_query() -> None:
    text = "SELECT ?v WHERE { STREAM :s [ALL] { :%s :temp ?v } FILTER(?v > %d) }"
    with Engine() as engine:
        for name, threshold in (("a", 1), ("a", 2), ("b", 1), ("b", 3)):
            engine.register(PREFIX + text % (name, threshold), name=f"{name}{threshold}")
        warm(engine, "a", "9", 1)
        for value, name in zip("567", ("a1", "a2", "b1"), strict=True):
            engine.drop(name)
            for person in "ab":
                warm(engine, person, value, 2)
        assert values(engine.query("b3")) == ["5", "6", "7"]
        compared = next(line for line in engine.query("b3").explain().splitlines() if "Pass the thresholds" in line)
        assert "changes: 18 " in compared  # three of a came for two and went, three of b stay for two


@pytest.mark.parametrize("dropped", [[], ["0"], ["0", "2"]])
def test_thresholds_are_saved(engine: Engine, dropped: list[str], tmp_path: Path) -> None:
    """What is compared with first stays what it was, also if the query that it was the threshold of has gone."""
    text = "SELECT ?v WHERE { STREAM :s [RANGE %ds] { :%s :temp ?v } FILTER(?v > %s && ?v <= %s) }"
    told = [(9, "a", "1", "8"), (4, "a", "2.5", "9e0"), (9, "b", "3", "7"), (6, "b", "3e0", "8"), (6, "a", "4", "9")]
    texts = {f"{number}": text % each for number, each in enumerate(told)}
    for name in texts:
        engine.register(PREFIX + texts[name], name=name, emit="changes")
    warm(engine, "a", "5", 1)
    warm(engine, "b", "7", 2)
    for name in dropped:
        engine.drop(name)
        del texts[name]
    other = Engine(store=engine.internals.store)
    for name in reversed(texts):
        other.register(PREFIX + texts[name], name=name, emit="changes")
    other.restore(engine.snapshot())
    for each in (engine, other):
        assert pipelines(each) == 1
        warm(each, "a", "4", 4)
        warm(each, "b", "5", 5)
        each.drop("3")
        warm(each, "b", "6", 6)
        each.heartbeat("90s")
    for name in texts:
        if name != "3":
            assert other.query(name).take() == engine.query(name).take() != []
    assert other.snapshot() == engine.snapshot()


def test_explain_says_what_is_compared() -> None:
    with Engine() as engine:
        queries = [engine.register(PREFIX + HOT % (width, each)) for width, each in ((3, 4), (5, "2.5"), (3, 3))]
        first, *lines = queries[0].explain().splitlines()
        assert first == "shared with query-2, query-3, told apart by the width of windows, ?v > …"
        assert "      Pass the thresholds of each query: ?v > …" in lines
        assert any("Filter ?v > 2.5" in line for line in lines)
        assert '"operator": "Thresholds"' in queries[0].explain("json")
        warm(engine, "a", "9", 1)
        assert any(
            "Pass the thresholds of each query: ?v > …   changes: 3   state: " in line
            for line in queries[0].explain().splitlines()
        )


def test_a_join_of_the_dataset_alone_is_told_nothing(engine: Engine) -> None:
    """Its constants are part of a table, so queries that differ in them share nothing."""
    text = "SELECT ?p ?l WHERE { ?p :name '%s' OPTIONAL { STREAM :s [NOW] { ?p :at ?l } } }"
    queries = [engine.register(PREFIX + text % name) for name in "ABA"]
    assert pipelines(engine) == 2
    go(engine, "a", "x", 1)
    assert [[each.values for each in query.take()] for query in queries] == [
        [(ex("a"), ex("x"))],
        [(ex("b"), None)],
        [(ex("a"), ex("x"))],
    ]


# ---------------------------------------------------------------- coming and going


def test_who_goes_before_anything_happens(engine: Engine) -> None:
    queries = {name: engine.register(PREFIX + AT % f'"{name}"', name=name) for name in "ABC"}
    engine.drop("A")
    queries["D"] = engine.register(PREFIX + AT % '"D"', name="D")
    assert queries["B"].running.member is queries["D"].running.member is not None
    for name in "BD":
        engine.drop(name)
    assert pipelines(engine) == 1
    assert queries["C"].running.member is None
    go(engine, "c", "x", 1)
    assert seen(queries["C"]) == [(1, "x")]
    assert [queries[name].take() for name in "ABD"] == [[], [], []]


def test_all_go_before_anything_happens(engine: Engine) -> None:
    held = []
    for _ in range(2):
        for name in "ABC":
            engine.register(PREFIX + AT % f'"{name}"', name=name)
        for name in "ABC":
            engine.drop(name)
        assert pipelines(engine) == 0
        held.append(engine.internals.arena.held)
    assert held[1] < held[0] + 500
    query = engine.register(PREFIX + AT % '"A"')
    go(engine, "a", "x", 1)
    assert seen(query) == [(1, "x")]


def test_a_variable_that_is_wanted_twice() -> None:
    """The constants keep their numbers, whichever of them vary."""
    text = PREFIX + "SELECT ?x { STREAM :s [RANGE 9s] { ?x :at :%s } FILTER(?x = :%s && ?x = :a) }"
    with Engine() as engine:
        queries = [engine.register(text % each) for each in (("x", "a"), ("y", "a"), ("x", "b"))]
        assert pipelines(engine) == 1
        go(engine, "a", "x", 1)
        assert [len(query.take()) for query in queries] == [1, 0, 0]


def test_blank_nodes_may_have_any_name() -> None:
    text = PREFIX + "SELECT ?x { STREAM :s [RANGE %ds] { ?x :at :%s . ?x :with _:class . ?x :in _:width } }"
    with Engine() as engine:
        queries = [engine.register(text % each, emit="dstream") for each in ((5, "x"), (5, "y"), (6, "y"))]
        assert pipelines(engine) == 1
        engine.push(STREAM, [(ex("a"), ex(name), ex("y")) for name in ("at", "with", "in")], time="1s")
        for time in ("7s", "8s"):
            engine.heartbeat(time)
        assert [[each.nanoseconds // SECOND for each in query.take()] for query in queries] == [[], [7], [8]]


def test_more_variables_than_a_join_can_share() -> None:
    """With the constants as variables there would be: so each has its own pipeline."""
    patterns = " . ".join(f"?x :p{number} ?v{number}" for number in range(60))
    texts = [f"SELECT ?x {{ STREAM :s [RANGE 9s] {{ {patterns} . ?x :a :{each} . ?x :b :{each} }} }}" for each in "xy"]
    with Engine() as engine:
        queries = [engine.register(PREFIX + text) for text in texts]
        assert pipelines(engine) == 2
        values = [(ex("s"), ex(f"p{number}"), ex("v")) for number in range(60)]
        engine.push(STREAM, [*values, *((ex("s"), ex(name), ex("y")) for name in "ab")], time="1s")
        assert [len(query.take()) for query in queries] == [0, 1]


def test_one_goes_and_the_others_stay(engine: Engine) -> None:
    queries = {name: engine.register(PREFIX + AT % f'"{name}"', name=name) for name in "AB"}
    again = engine.register(PREFIX + AT % '"A"', name="again")
    go(engine, "a", "x", 1)
    engine.drop("A")
    go(engine, "a", "y", 2)
    assert seen(queries["A"]) == [(1, "x")]
    assert seen(again) == [(1, "x"), (2, "y")]
    engine.drop("again")
    go(engine, "a", "z", 3)
    go(engine, "b", "z", 4)
    assert seen(queries["B"]) == [(4, "z")]
    before = engine.internals.arena.held
    engine.drop("B")
    assert pipelines(engine) == 0
    assert engine.internals.arena.held < before


def test_names_of_the_dataset_may_change(engine: Engine) -> None:
    queries = {name: engine.register(PREFIX + AT % f'"{name}"', name=name) for name in "ABD"}
    go(engine, "d", "x", 1)
    assert seen(queries["D"]) == []
    engine.update(PREFIX + 'INSERT DATA { :d :name "D" }')
    assert seen(queries["D"]) == [(2, "x")]


@pytest.mark.parametrize("count", [3, 100])
def test_what_is_shared_is_saved(engine: Engine, count: int) -> None:
    """Also where new registrations would be grouped in another way, and for many constants."""
    names = ["A", "B", "C", *(f"N{number}" for number in range(3, count))]
    texts = {f"{number}": AT % f'"{name}"' for number, name in enumerate(names)}

    def register(one: Engine, names: list[str]) -> None:
        for name in names:
            one.register(PREFIX + texts[name], name=name)

    register(engine, ["0", "2"])
    go(engine, "a", "x", 1)
    register(engine, ["1", *(name for name in texts if name not in ("0", "1", "2"))])
    go(engine, "b", "y", 2)
    engine.register(PREFIX + AT % '"C"', name="alone")
    go(engine, "c", "z", 3)
    data = engine.snapshot()
    other = Engine(store=engine.internals.store)
    register(other, list(texts))
    other.register(PREFIX + AT % '"C"', name="alone")
    other.restore(data)
    assert pipelines(other) == pipelines(engine) == 3
    for each in (engine, other):
        go(each, "a", "w", 3)
        go(each, "c", "w", 4)
    for name in (*texts, "alone"):
        assert engine.query(name).take() == other.query(name).take(), name
    assert other.snapshot() == engine.snapshot()


def test_explain_says_who_shares(engine: Engine) -> None:
    names = [f"n{number}" for number in range(9)]
    queries = [engine.register(PREFIX + AT % f'"{name}"', name=name) for name in names]
    first = queries[0].explain().splitlines()[0]
    assert first.startswith("shared with n1, n2, n3, n4, n5 and 3 more, told apart by constant·0")


@pytest.mark.parametrize("unit", ["TRIPLES", "ELEMENTS"])
def test_windows_that_count_share(engine: Engine, unit: str) -> None:
    """Each query has the latest of its own number, from one window."""
    text = PREFIX + "SELECT ?p ?l WHERE { STREAM :s [%s %d] { ?p :at ?l } }"
    queries = [engine.register(text % (unit, size), emit="changes") for size in (1, 3)]
    for number in range(5):
        go(engine, f"p{number}", "x", number)
    assert pipelines(engine) == 1
    assert [len([each for each in query.take() if each.sign == "-"]) for query in queries] == [4, 2]


def test_numbers_of_elements_do_not_depend_on_what_is_made(engine: Engine) -> None:
    other = Engine()
    other.stream("http://ex.org/s")
    made = "CONSTRUCT { ?p :seen ?l } WHERE { STREAM :s [NOW] { ?p :at ?l } }"
    engine.register(PREFIX + made, name="http://ex.org/made")
    reader = engine.register(PREFIX + "SELECT ?p WHERE { STREAM :made [NOW] { ?p :seen ?l } }")
    for each in (engine, other):
        go(each, "a", "x", 1)
        go(each, "b", "x", 2)
    assert len(reader.take()) == 2
    assert engine.internals.number == other.internals.number


def test_explain_closes_nothing(engine: Engine) -> None:
    text = AT.replace("3s", "%ds") % (1, '"A"')
    queries = [engine.register(PREFIX + text.replace("1s", f"{width}s")) for width in (3, 7)]
    first, *lines = queries[0].explain().splitlines()
    assert first == "shared with query-2, told apart by the width of windows"
    assert "      Join on ?p" in lines
    assert "    Narrow to the window of each query" in lines
    assert '"operator": "Narrow"' in queries[0].explain("json")
    queries.append(engine.register(PREFIX + text))
    go(engine, "a", "x", 1)
    assert pipelines(engine) == 1
    lines = queries[2].explain().splitlines()
    assert "Stream :s [RANGE 7s] { ?p :at ?l }   window: 1 triples of 1" in lines[-3]
    assert "Narrow to the window of each query   changes: 3   state: " in lines[4]


def test_streams_that_have_gone_are_counted(engine: Engine) -> None:
    """The numbers of the others stay what they were when all is saved."""
    text = "SELECT ?p ?l WHERE { STREAM :late [RANGE 9s] { ?p :at ?l . ?p :in :%s } }"
    made = engine.register(
        PREFIX + "CONSTRUCT { ?p :in ?l } WHERE { STREAM :s [NOW] { ?p :at ?l } }", name=ex("made").value
    )
    made.drop()
    for name in "xy":
        engine.register(PREFIX + text % name, name=name)
    other = Engine(store=engine.internals.store)
    other.stream(STREAM)
    for name in "xy":
        other.register(PREFIX + text % name, name=name)
    other.restore(engine.snapshot())
    for each in (engine, other):
        each.push(ex("late").value, [(ex("a"), ex("at"), ex("x")), (ex("a"), ex("in"), ex("y"))], time="1s")
        assert [len(each.query(name).take()) for name in "xy"] == [0, 1]


# ---------------------------------------------------------------- the plan


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("SELECT * { STREAM :s [NOW] { :a :p ?y . ?y :q 1 } }", ["http://ex.org/a", "1"]),
        ("SELECT * { STREAM :s [NOW] { ?x a :T } }", []),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y } FILTER(?x = :a && ?y = 'b' && ?y != 1) }", ["http://ex.org/a", "b"]),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y } FILTER(?y = 1) }", []),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y OPTIONAL { ?x :q :a } } FILTER(?x = :b) }", ["http://ex.org/b"]),
        ("SELECT * { STREAM :s [NOW] { ?x :p ?y OPTIONAL { ?x :q ?z } } FILTER(?z = :b) }", []),
        ("SELECT ?x (COUNT(*) AS ?n) { STREAM :s [NOW] { ?x :p :a } } GROUP BY ?x", ["http://ex.org/a"]),
        ("SELECT * { { SELECT ?x { STREAM :s [NOW] { ?x :p ?y } } } FILTER(?y = :a) }", []),
        ("SELECT * { { SELECT ?x { STREAM :s [NOW] { ?x :p ?y } } } FILTER(?x = :a) }", ["http://ex.org/a"]),
        ("SELECT * { STREAM :s [NOW] { ?x :p 1 } FILTER(?x = :a && ?x = :b) }", ["http://ex.org/a", "1"]),
        ("SELECT * { STREAM :s [NOW] { ?x :p 1 } STREAM :t [NOW] { ?x :p 2 } ?x :p 3 }", ["1", "2", "3"]),
        ("SELECT * { STREAM :s [RANGE 5ns] { ?x :p 1 } STREAM :t [NOW] { ?x :p 2 } ?x :p 3 }", ["1", "2", "3", "5"]),
    ],
)
def test_the_constants_of_a_query(text: str, constants: list[str]) -> None:
    query = prepare(PREFIX + text)
    found = constants_of(query)
    assert found is not None
    assert [term.value for term in found] == constants
    assert general(query, ()).query.plan == query.plan or "FILTER" in text  # the parts of a condition may come apart
    for number in range(len(constants)):
        made = general(query, range(number, len(constants)))
        assert CLASS in repr(made.query.plan)
        assert sorted(made.numbers) == [*range(number, len(constants))]


@pytest.mark.parametrize(
    "text",
    [
        "ASK { STREAM :s [NOW] { ?x :p :a } }",
        "SELECT (COUNT(*) AS ?n) { STREAM :s [NOW] { ?x :p :a } }",
        "SELECT * { STREAM :s [NOW] { ?x :p :a } } LIMIT 1",
        "SELECT * { STREAM ?s [NOW] { ?x :p :a } }",
        "SELECT ?x (RAND() AS ?r) { STREAM :s [NOW] { ?x :p :a } }",
        "SELECT * { { STREAM :s [NOW] { ?x :p :a } } UNION { STREAM :s [NOW] { ?x :q :a } } }",
        "SELECT ?constant·0 { STREAM :s [NOW] { ?constant·0 :p :a } }",
    ],
)
def test_some_queries_share_nothing(text: str) -> None:
    assert constants_of(prepare(PREFIX + text)) is None


def test_a_long_condition_is_not_compared() -> None:
    condition = " || ".join(f"?y = {each}" for each in range(400))
    text = f"SELECT * {{ STREAM :s [NOW] {{ ?x :at ?y }} FILTER({condition}) }}"
    with Engine() as engine:
        for _ in range(2):
            engine.register(PREFIX + text)
        assert pipelines(engine) == 2


def test_a_pipeline_gets_what_it_reads(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the times of the first and the last element, where they are of another stream."""
    for stream in ("s", "other"):
        engine.register(PREFIX + f"SELECT * {{ STREAM :{stream} [RANGE 9s] {{ ?x :at ?y }} }}", name=stream)
    given: list[list[int]] = []
    write = engine.internals.core.executor.write_block

    def noted(batch: Batch, numbers: Words) -> int:
        given.append(batch.counts.tolist())
        return write(batch, numbers)

    monkeypatch.setattr(engine.internals.core.executor, "write_block", noted)
    triple = ex("a"), ex("at"), ex("x")
    engine.internals.push_elements([Element(STREAM, time, (triple,)) for time in range(5)])
    engine.internals.push_elements([Element(f"http://ex.org/{each}", 5, (triple,)) for each in ("s", "other", "s")])
    assert given == [[0, 1, 1, 1, 1, 1, 0], [0, 0], [0, 1, 1, 0], [0, 1, 0]]
    assert [len(engine.query(name).take()) for name in ("s", "other")] == [1, 1]


@pytest.mark.parametrize("emit", ["rstream", "snapshot"])
def test_whole_results_are_not_shared(emit: str) -> None:
    assert constants_of(prepare(PREFIX + "SELECT * { STREAM :s [NOW] { ?x :p :a } }", emit=emit)) is None


def test_a_file_has_the_memory_of_what_is_shared(tmp_path: Path) -> None:
    text = "SELECT ?x WHERE { STREAM :s [ALL] { ?x :at :%s } }"
    engine = Engine(memory=tmp_path / "one")
    for each in "xy":
        engine.register(PREFIX + text % each, name=each)
    go(engine, "a", "x", 1)
    engine.query("x").take()
    engine.internals.keep()
    other = Engine(memory=tmp_path / "other")
    for each in "xy":
        other.register(PREFIX + text % each, name=each)
    other.internals.attach(tmp_path / "one")
    go(other, "b", "y", 2)
    assert [each.values for each in other.query("y").take()] == [(ex("b"),)]
    assert other.query("x").take() == []
