"""Queries that differ in constants alone have one pipeline, and each what it would have had alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyoxigraph import NamedNode

from cqels.engine.batch import Batch, Words
from cqels.engine.engine import Engine
from cqels.io import Element
from cqels.plan.prepare import prepare
from cqels.plan.templates import CLASS, constants_of, general

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
    return len(engine._core.pipelines)


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
        "SELECT ?p ?l WHERE { STREAM :s [RANGE 4s] { ?p :at ?l } ?p :name 'A' }",
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
    (share,) = engine._core.shares
    assert share.general.numbers == (1,)
    engine.register(PREFIX + text % ("y", "z"))
    (share,) = engine._core.shares
    assert share.general.numbers == (0, 1)
    assert len(list(share.members)) == 3


# ---------------------------------------------------------------- coming and going


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
    before = engine.arena.held
    engine.drop("B")
    assert pipelines(engine) == 0
    assert engine.arena.held < before


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
    other = Engine(store=engine.store)
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
    ],
)
def test_the_constants_of_a_query(text: str, constants: list[str]) -> None:
    query = prepare(PREFIX + text)
    found = constants_of(query)
    assert found is not None
    assert [term.value for term in found] == constants
    assert general(query, ()).query.plan == query.plan or "FILTER" in text  # the parts of a condition may come apart
    if constants:
        assert CLASS in repr(general(query, range(len(constants))).query.plan)


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
    write = engine._core._block

    def noted(batch: Batch, numbers: Words) -> int:
        given.append(batch.counts.tolist())
        return write(batch, numbers)

    monkeypatch.setattr(engine._core, "_block", noted)
    triple = ex("a"), ex("at"), ex("x")
    engine.push_elements([Element(STREAM, time, (triple,)) for time in range(5)])
    engine.push_elements([Element(f"http://ex.org/{each}", 5, (triple,)) for each in ("s", "other", "s")])
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
    engine.keep()
    other = Engine(memory=tmp_path / "other")
    for each in "xy":
        other.register(PREFIX + text % each, name=each)
    other.attach(tmp_path / "one")
    go(other, "b", "y", 2)
    assert [each.values for each in other.query("y").take()] == [(ex("b"),)]
    assert other.query("x").take() == []
