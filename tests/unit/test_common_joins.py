"""Which joins of streams queries of different shapes have in common, and that each has what it would have alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyoxigraph import Literal, NamedNode

from cqels.engine.engine import Engine
from cqels.engine.query_handle import StandingQuery
from cqels.plan.algebra import Plan, Reused, Stream, Triples, walk_plan
from cqels.plan.optimizer.rules import rewrite
from cqels.plan.prepare import prepare
from cqels.plan.sharing.common_joins import Occurrence, part_of, reused, sites_of, with_parts

EX = "http://ex.org/"
PREFIX = f"PREFIX : <{EX}> "
OBSERVED = "STREAM :obs [RANGE 5s] { ?o :sensor ?s . ?o :value ?v }"
ROOM = f"SELECT ?o ?r WHERE {{ {OBSERVED} ?s :in ?r }}"
MEAN = "SELECT ?x (AVG(?y) AS ?a) WHERE { STREAM :obs [RANGE 5s] { ?n :value ?y . ?n :sensor ?x } } GROUP BY ?x"
HIGH = f"SELECT ?o WHERE {{ {OBSERVED} FILTER(?v > 7) }}"


def planned(text: str) -> Plan:
    return rewrite(prepare(PREFIX + text)).plan


def found(*texts: str) -> list[list[Occurrence]]:
    return reused([sites_of(planned(text), fresh=False) for text in texts])


# ---------------------------------------------------------------- what is common


def test_names_and_order_do_not_matter() -> None:
    (room,), (mean,) = found(ROOM, MEAN)
    assert room.part == mean.part == 0
    assert sorted(room.patterns) == [0, 1]
    assert [planned_patterns(ROOM)[each] for each in room.patterns] == ["sensor", "value"]
    assert [planned_patterns(MEAN)[each] for each in mean.patterns] == ["sensor", "value"]


def planned_patterns(text: str) -> list[str]:
    (site,) = sites_of(planned(text), fresh=False)
    return [triple.predicate.value.removeprefix(EX) for _, triple in site.patterns]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "other",
    [
        "SELECT * WHERE { STREAM :obs [RANGE 6s] { ?o :sensor ?s . ?o :value ?v } }",
        "SELECT * WHERE { STREAM :others [RANGE 5s] { ?o :sensor ?s . ?o :value ?v } }",
        "SELECT * WHERE { STREAM :obs [RANGE 5s] { ?o :sensor ?s . ?s :value ?v } }",
        "SELECT * WHERE { STREAM :obs [RANGE 5s] { ?o :sensor :a . ?o :value ?v } }",
        "SELECT * WHERE { STREAM :obs [RANGE 5s] { ?o :sensor ?v . ?o :value ?v } }",
        "SELECT * WHERE { STREAM :obs [RANGE 5s] { ?o :value ?v } }",
        "SELECT * WHERE { STREAM :obs [RANGE 5s] AT ?t { ?o :sensor ?s . ?o :value ?v } }",
        "SELECT * WHERE { STREAM :obs [RANGE 5s] { ?o :sensor ?s . ?o :value ?v FILTER(RAND() < 1) } }",
    ],
)
def test_what_is_not_the_same_join(other: str) -> None:
    assert found(ROOM, other) == [[], []]


def test_the_join_that_most_have_comes_first_and_others_are_on_its_path() -> None:
    """Three have a ⋈ b, and two of them ⋈ c: these take the first and go on."""
    more = OBSERVED.replace("?v }", "?v . ?o :unit ?u }")
    texts = [ROOM, f"SELECT ?u WHERE {{ {more} ?s :in ?r }}", f"SELECT ?u (COUNT(*) AS ?n) {{ {more} }} GROUP BY ?u"]
    room, first, second = found(*texts)
    assert [each.part for each in room] == [0]
    assert [each.part for each in first] == [each.part for each in second] == [0, 1]
    assert first[1].holds(first[0])
    whole = part_of(planned(texts[1]), first, 1)
    assert [node.part for node in walk_plan(whole) if isinstance(node, Reused)] == [0]


def test_a_part_that_only_one_other_uses_is_inside_it() -> None:
    more = OBSERVED.replace("?v }", "?v . ?o :unit ?u }")
    texts = [f"SELECT ?u WHERE {{ {more} ?s :in ?r }}", f"SELECT ?u (COUNT(*) AS ?n) {{ {more} }} GROUP BY ?u"]
    one, other = found(*texts)
    assert len(one) == len(other) == 1
    part = part_of(planned(texts[0]), one, one[0].part)
    assert isinstance(part, Stream)
    assert isinstance(part.input, Triples)
    assert len(part.input.patterns) == 3


def test_a_query_that_has_a_join_twice_uses_it_twice() -> None:
    text = """SELECT * WHERE { STREAM :obs [RANGE 5s] { ?a :sensor ?s . ?a :value ?v }
                               STREAM :obs [RANGE 5s] { ?b :sensor ?s . ?b :value ?w } }"""
    (twice,) = found(text)
    assert [each.part for each in twice] == [0, 0]
    plan = with_parts(planned(text), twice)
    assert [node.columns for node in walk_plan(plan) if isinstance(node, Reused)] == [("a", "s", "v"), ("b", "s", "w")]


def test_a_join_of_different_subjects_is_not_made_ahead_of_a_table() -> None:
    block = "STREAM :obs [RANGE 5s] { ?a :near ?b . ?b :near ?c }"
    alone = [f"SELECT ?a WHERE {{ {block} }}", f"SELECT ?c (COUNT(*) AS ?n) WHERE {{ {block} }} GROUP BY ?c"]
    assert all(found(*alone))
    assert not any(found(*(text.replace(block, f"{block} ?a :in ?r") for text in alone)))


def test_a_window_that_many_read_is_a_part() -> None:
    texts = [f"SELECT {form} WHERE {{ STREAM :obs [RANGE 5s] {{ ?o :value ?v }} }}" for form in ("?o", "?v", "?o ?v")]
    assert [[each.patterns for each in own] for own in found(*texts)] == [[(0,)]] * 3
    assert found(*texts[:2]) == [[], []]


def test_conditions_that_all_have_are_inside() -> None:
    low = "SELECT ?n WHERE { STREAM :obs [RANGE 5s] { ?n :value ?y . ?n :sensor ?x } FILTER(?y > 7) FILTER(?x != :a) }"
    (one,), (other,) = found(HIGH, low)
    assert len(one.conditions) == len(other.conditions) == 1
    (one,), _, _ = found(HIGH, low, ROOM)
    assert one.conditions == ()


# ---------------------------------------------------------------- engines


def observe(engine: Engine, number: int, sensor: str, value: int) -> None:
    one = NamedNode(f"{EX}o{number}")
    engine.push(EX + "obs", [(one, NamedNode(EX + "sensor"), NamedNode(EX + sensor))], time=f"{number}s")
    engine.push(EX + "obs", [(one, NamedNode(EX + "value"), Literal(value))], time=f"{number}s")


TEXTS = (ROOM, MEAN, HIGH, f"SELECT (COUNT(*) AS ?n) WHERE {{ {OBSERVED} }}", f"ASK {{ {OBSERVED} }}")


def registered(engine: Engine) -> list[StandingQuery]:
    return [engine.register(PREFIX + text, name=f"q{number}", emit="changes") for number, text in enumerate(TEXTS)]


def story(*, share: bool, folder: Path | None = None) -> list[object]:
    """What queries send while observations come, the dataset changes, one is dropped, and all is saved."""
    engine = Engine(share=share)
    engine.stream(EX + "others")
    queries = registered(engine)
    sent: list[list[object]] = [[] for _ in queries]

    def take() -> None:
        for number, query in enumerate(queries):
            if query in engine.queries:
                told = (tuple(each)[1:] for each in query.take())
                sent[number] += told

    for number in range(4):
        observe(engine, number, "ab"[number % 2], 5 + number)
    engine.update(f"{PREFIX} INSERT DATA {{ :a :in :kitchen . :b :in :hall }}")
    observe(engine, 4, "a", 9)
    engine.push(
        EX + "others", [(NamedNode(EX + "x"),) * 3], time="6s"
    )  # time passes, which the next change shows to some
    engine.update(f"{PREFIX} INSERT DATA {{ :d :in :attic }}")
    take()
    engine.drop(queries[0])
    engine.update(f"{PREFIX} INSERT DATA {{ :c :in :hall }}")
    observe(engine, 6, "b", 1)
    if folder is not None:
        take()
        data, store = engine.snapshot(), engine.internals.store
        engine = Engine(store=store, share=share)
        engine.stream(EX + "others")
        queries = [queries[0], *registered(engine)[1:]]
        engine.drop("q0")
        engine.restore(data)
    for number in (7, 8, 15):
        observe(engine, number, "ab"[number % 2], number)
    take()
    return list(sent)


def test_each_sends_what_it_sends_alone(tmp_path: Path) -> None:
    assert story(share=True) == story(share=False) == story(share=True, folder=tmp_path)


def test_one_join_feeds_all() -> None:
    with Engine() as engine:
        queries = registered(engine)
        observe(engine, 1, "a", 3)
        feeding = engine.internals.core.registry.shared_joins
        assert len(feeding.feeders) == 1
        assert not any(isinstance(trace.plan, Stream) for query in queries for trace in query.running.pipeline.traces)
        text = queries[0].explain()
        assert text.startswith("joins of streams shared with q1, q2, q3, q4\n")
        assert "Reused" in text
        for query in queries[:4]:
            query.drop()
            observe(engine, 2, "a", 3)
        assert len(feeding.feeders) == 1
        queries[4].drop()
        assert not feeding.feeders


@pytest.mark.parametrize("emit", ["rstream", "snapshot"])
def test_who_sends_all_has_windows_of_its_own(emit: str) -> None:
    with Engine() as engine:
        for text in (ROOM, MEAN):
            engine.register(PREFIX + text, emit=emit)
        observe(engine, 1, "a", 3)
        assert not engine.internals.core.registry.shared_joins.feeders


def test_who_comes_later_has_windows_of_its_own() -> None:
    with Engine() as engine:
        engine.register(PREFIX + ROOM)
        observe(engine, 1, "a", 3)
        late = engine.register(PREFIX + MEAN)
        observe(engine, 2, "a", 5)
        assert not engine.internals.core.registry.shared_joins.feeders
        assert [each.values[1].value for each in late.take()] == ["5"]


def test_who_has_a_budget_has_windows_of_its_own() -> None:
    with Engine() as engine:
        engine.register(PREFIX + ROOM)
        engine.register(PREFIX + MEAN, memory="100MB")
        observe(engine, 1, "a", 3)
        assert not engine.internals.core.registry.shared_joins.feeders


def test_templates_are_fed_as_one() -> None:
    with Engine() as engine:
        texts = [f"SELECT ?o WHERE {{ {OBSERVED} ?s :in :{room} }}" for room in ("x", "y", "z")]
        rooms = [engine.register(PREFIX + text) for text in texts]
        mean = engine.register(PREFIX + MEAN)
        engine.update(f"{PREFIX} INSERT DATA {{ :a :in :y }}")
        observe(engine, 1, "a", 3)
        assert len(engine.internals.core.registry.pipelines) == 3
        assert [len(each.take()) for each in rooms] == [0, 1, 0]
        assert len(mean.take()) == 1
        assert "\njoins of streams shared with query-4\n" in rooms[0].explain()


def test_a_file_has_the_memory_of_parts(tmp_path: Path) -> None:
    """The first two have gone when another engine goes on, and what the parts are is known from the others."""
    engine = Engine(memory=tmp_path / "one")
    for query in registered(engine)[:2]:
        observe(engine, 1, "a", 9)
        query.drop()
    engine.internals.keep()
    other = Engine(memory=tmp_path / "other")
    queries = registered(other)
    for query in queries[:2]:
        query.drop()
    other.internals.attach(tmp_path / "one")
    for query in queries[2:]:
        query.take()
    observe(other, 2, "b", 8)
    assert len(other.internals.core.registry.shared_joins.feeders) == 1
    assert [each.sign for each in queries[2].take()] == ["+"]
    assert [each.values[0].value for each in queries[3].take() if each.sign == "+"] == ["2"]
