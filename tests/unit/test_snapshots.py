"""What is written outlives a release, and nothing that was damaged is taken for what was written."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import cqels
from cqels.engine.running_query import Running
from cqels.engine.state import snapshot
from cqels.kernels.memory import layout_hash
from cqels.kernels.operators import window
from cqels.lang import expressions, syntax
from cqels.model.checksummed import seal, seal_json, unseal, unseal_json
from cqels.model.errors import CqelsError
from cqels.physical import pipeline as physical_pipeline
from cqels.physical import relocation
from cqels.physical.pipeline import Pipeline
from cqels.plan import algebra
from cqels.plan.partitioning import partition_query
from cqels.plan.plan_json import NODES, _fields, fingerprint, read, write
from cqels.plan.prepare import prepare

from ..golden import make

P = "PREFIX : <http://ex.org/> "
QUERIES = {
    "join": "SELECT ?s ?v ?o { STREAM :a [RANGE 1s] { ?s :p ?v } STREAM :b [RANGE 1s] { ?s :q ?o } ?s :in ?r }",
    "sum": "SELECT ?s (SUM(?v) AS ?x) { STREAM :a [RANGE 2s SLIDE 100ms] { ?s :p ?v } } GROUP BY ?s",
    "top": "SELECT ?s ?v { STREAM :a [TRIPLES 20] { ?s :p ?v } } ORDER BY ?v LIMIT 3",
}


def engine() -> tuple[cqels.Engine, dict[str, cqels.StandingQuery]]:
    made = cqels.Engine()
    made.stream("http://ex.org/a", lateness="50ms")
    made.stream("http://ex.org/b")
    made.update("INSERT DATA { <http://ex.org/s1> <http://ex.org/in> <http://ex.org/r> }")
    return made, {name: made.register(P + text, name=name) for name, text in QUERIES.items()}


def feed(made: cqels.Engine, start: int, count: int) -> None:
    draw = random.Random(start)
    for number in range(count):
        time = f"{start + 10 * number}ms"
        made.push("http://ex.org/a", f"<http://ex.org/s{draw.randrange(5)}> <http://ex.org/p> {number} .", time=time)
        made.push("http://ex.org/b", f"<http://ex.org/s{draw.randrange(5)}> <http://ex.org/q> {number} .", time=time)


def sent(queries: dict[str, cqels.StandingQuery]) -> dict[str, list[Any]]:
    return {
        name: [(each.nanoseconds, each.sign, tuple(map(str, each.values))) for each in query.take()]
        for name, query in queries.items()
    }


@pytest.fixture(scope="module")
def written() -> bytes:
    with engine()[0] as made:
        feed(made, 0, 60)
        return made.snapshot()


# ---------------------------------------------------------------- damage


def damaged(data: bytes, draw: random.Random) -> Iterator[bytes]:
    yield data[:-1]
    yield data + b"\0"
    yield data[: draw.randrange(len(data))]
    for _ in range(200):
        changed = bytearray(data)
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        yield bytes(changed)
    for _ in range(20):
        place = draw.randrange(len(data) - 4096)
        yield data[:place] + bytes(4096) + data[place + 4096 :]


def test_a_snapshot_with_any_other_byte_is_refused(written: bytes) -> None:
    made, queries = engine()
    with made:
        for each in damaged(written, random.Random(7)):
            if each != written:
                with pytest.raises(CqelsError, match=r"the snapshot is damaged|not a snapshot"):
                    made.restore(each)
        made.restore(written)
        feed(made, 600, 20)
        again, others = engine()
        with again:
            feed(again, 0, 60)
            feed(again, 600, 20)
            assert sent(queries) == sent(others)


def test_a_seal_is_of_every_bit() -> None:
    data = seal("xx", [b"one part", b"", b"another"])
    assert [bytes(each) for each in unseal("xx", data, "it")] == [b"one part", b"", b"another"]
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(CqelsError, match="it is damaged"):
            unseal("xx", bytes(changed), "it")
    with pytest.raises(CqelsError, match="does not begin as it should"):
        unseal("yy", data, "it")


def test_sealed_json_is_of_its_values() -> None:
    text = seal_json({"a": [1, "ü"], "b": {"c": None}}, indent=1)
    assert unseal_json(text, "it") == {"a": [1, "ü"], "b": {"c": None}}
    for other in (text.replace("1", "2"), text[:-3], "[]", "{}", text.replace('"c"', '"d"')):
        with pytest.raises(CqelsError, match="it is damaged"):
            unseal_json(other, "it")


# ---------------------------------------------------------------- releases


def test_what_a_newer_release_wrote_is_refused(written: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "VERSION", snapshot.VERSION - 1)
    with engine()[0] as made, pytest.raises(CqelsError, match="was written by a newer release"):
        made.restore(written)


def test_an_older_version_of_the_page_is_read(written: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "VERSION", snapshot.VERSION + 1)
    with engine()[0] as made:
        made.restore(written)


def test_a_layout_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = layout_hash.layouts()
    constant = next(name for name, value in vars(window).items() if name.isupper() and type(value) is int)
    monkeypatch.setattr(window, constant, getattr(window, constant) + 1)
    assert layout_hash.layouts.__wrapped__() != before


def test_places_have_names_of_their_own() -> None:
    """All that a pipeline is made of is in the table, and all fields are restored."""
    for kind, text in relocation.FIELDS.items():
        assert {word.split("=")[-1] for word in text.split()} <= {each.name for each in fields(kind)}
        assert {attribute for _, attribute in relocation._ATTRIBUTES[kind]} == {each.name for each in fields(kind)}
    made = {
        kind
        for kind in vars(physical_pipeline).values()
        if is_dataclass(kind) and kind.__module__ == physical_pipeline.__name__
    }
    assert made - {*relocation.FIELDS} == {physical_pipeline.WholeGraph}
    with engine()[0] as one:
        feed(one, 0, 20)
        pipeline: Pipeline = one.query("join").running.pipeline
        names, numbers = [*relocation.names_of(pipeline)], [*relocation.offsets_of(pipeline)]
        assert len({*names}) == len(names) == len(numbers)
        moved = relocation.with_offsets(
            pipeline, {name: 2 * number for name, number in zip(names, numbers, strict=True)}
        )
        assert [*relocation.offsets_of(moved)] == [2 * number for number in numbers]
        assert {"place", "tables/0/stage/queue"} <= {*names}


@pytest.fixture
def other_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is of other layouts than what is read."""
    monkeypatch.setattr(snapshot, "layouts", lambda: random.random().hex())


@pytest.mark.usefixtures("other_layouts")
def test_what_was_laid_out_in_another_way_is_rebuilt() -> None:
    with make.engine() as made:
        make.feed(made, 0)
        data = made.snapshot()
        with make.engine() as again:
            again.restore(data)
            for start in (10 * make.COUNT, 40 * make.COUNT):
                make.feed(made, start)
                make.feed(again, start)
            assert make.sent(again) == make.sent(made)


@pytest.mark.usefixtures("other_layouts")
def test_what_cannot_be_rebuilt_is_said() -> None:
    text = P + "SELECT ?s { STREAM :a [RANGE 1s @:at] { ?s :p ?v } }"
    with cqels.Engine() as made, cqels.Engine() as again:
        for each in (made, again):
            each.register(text, name="told")
        made.push("http://ex.org/a", "<http://ex.org/s> <http://ex.org/p> 1 .", "1s")
        with pytest.raises(CqelsError, match="cannot be rebuilt: a window follows times") as refused:
            again.restore(made.snapshot())
        assert "restore it with cqels" in str(refused.value.hint)
    with make.engine() as made, make.engine() as again:
        make.feed(made, 0)
        with pytest.raises(CqelsError, match="too large to be kept twice"):
            again.restore(made.snapshot(most=1))
        make.feed(again, 0)
        with pytest.raises(CqelsError, match="this engine has seen elements"):
            again.restore(made.snapshot())


# ---------------------------------------------------------------- plans


def test_every_part_of_a_plan_has_a_name() -> None:
    """One that is new needs one in the table, which is then kept; so does a field that tells queries apart."""
    modules = (algebra, expressions, syntax)
    known = {kind for kind, _ in NODES.values()}
    plans = {each for each in vars(algebra).values() if isinstance(each, type) and issubclass(each, algebra.Plan)}
    assert plans - {algebra.Plan} <= known
    assert {*expressions.Expression.__args__, *syntax.Window.__args__, *syntax.Path.__args__} <= known  # type: ignore[attr-defined]
    for kind, text in NODES.values():
        if kind.__module__ in {each.__name__ for each in modules}:
            wanted = {each.name for each in fields(kind) if each.compare}
            assert wanted <= {attribute for _, attribute, _ in _fields(kind)[1]}, kind
            assert {word.split("=")[-1] for word in text.split()} <= {each.name for each in fields(kind)}, kind


TEXTS = (
    P + "SELECT ?s (COUNT(DISTINCT *) AS ?n) { STREAM :a [RANGE 2s SLIDE 1s] AT ?t { ?s :p ?v } "
    'FILTER(?v > 3 && NOT EXISTS { ?s :q "a"@en }) } GROUP BY ?s HAVING(COUNT(*) > 1) ORDER BY DESC(?n) LIMIT 3',
    P + "CONSTRUCT { ?s :r [ :of ?v ] } { STREAM :a [TRIPLES 5] { ?s :p/^:q*|!(:r|^:s) ?v } OPTIONAL { ?s :in ?r } }",
    P + "ASK { STREAM ?g [ALL] { ?s :p ?v } MINUS { GRAPH :g { ?s :x 'a\\n\"b' } } VALUES (?v ?w) { (1 UNDEF) } }",
    P
    + "SELECT (RAND() AS ?x) (UUID() AS ?y) { { STREAM :a [NOW] { ?s :p ?v } } SEQ { STREAM :b [NOW] { ?s :q ?o } } }",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_plan_is_what_was_written(text: str) -> None:
    query = prepare(text, name="one")
    again = read(json.loads(json.dumps(write(query))))
    assert again == query
    assert again.prefixes == query.prefixes
    assert fingerprint(again) == fingerprint(query) == fingerprint(prepare(text, name="other"))
    assert fingerprint(prepare(text.replace(":p", ":pp"))) != fingerprint(query)


def test_a_query_that_is_planned_in_another_way_is_the_same(written: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is kept: what counts is that the text is as it was."""
    real = Running.fingerprint.func  # type: ignore[attr-defined]
    monkeypatch.setattr(Running, "fingerprint", property(lambda running: "other" + real(running)))
    made, queries = engine()
    with made:
        made.restore(written)
        feed(made, 600, 20)
        found = sent(queries)
    other, queries = engine()
    with other:
        other.drop("top")
        other.register(P + QUERIES["top"].replace("LIMIT 3", "LIMIT 4"), name="top")
        with pytest.raises(CqelsError, match="'top' is another query"):
            other.restore(written)
    monkeypatch.undo()
    made, queries = engine()
    with made:
        made.restore(written)
        feed(made, 600, 20)
        assert found == sent(queries)


def test_the_parts_of_a_spread_query_are_written_too() -> None:
    how = partition_query(prepare(P + "SELECT ?o ?v { STREAM :a [RANGE 1s] { ?s :p ?o ; :q ?v } } ORDER BY ?v LIMIT 3"))
    for each in (*how.partitions(3), how.local_stage, how.global_stage):
        assert read(write(each)) == each


def test_a_deep_plan_is_written() -> None:
    plan: algebra.Plan = algebra.Unit()
    for number in range(20_000):
        plan = algebra.Extend(plan, f"v{number}", expressions.Var("x"))
    again = read(json.loads(json.dumps(write(plan))))
    for number in reversed(range(20_000)):
        assert again.variable == f"v{number}"
        again = again.input


def test_fingerprints_stay() -> None:
    """A checkpoint knows queries by them: they are the same in every release, whatever classes are called."""
    query = prepare(P + "SELECT ?s WHERE { STREAM :a [RANGE 10s] { ?s :p ?v } FILTER(?v > 1) }")
    assert fingerprint(query) == "5afd17885668848aee2a31b6d77fd9c88ab8f27ba75affe149e1e2f8d5992ab7"
