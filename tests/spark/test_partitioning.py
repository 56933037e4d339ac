"""A partitioned query: its parts together send what it sends as a whole, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels.engine.file_replay import replay
from cqels.engine.global_stage import GlobalStage
from cqels.ingest import Element, StreamSettings, parse_declaration
from cqels.ingest.encode import Intake
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.term_partition import spread_of
from cqels.lang.expressions import Var
from cqels.lang.syntax import Count, Range
from cqels.model.errors import CqelsError
from cqels.model.hash_partition import part_of
from cqels.model.terms import XSD_INTEGER, Term, text_of
from cqels.pipeline.lift.predicate_pushdown import pushed_patterns
from cqels.pipeline.sink.result_batch import Sent
from cqels.plan.algebra import Group, Plan, Project, Query, Stream, Triple, Triples, transform_plan
from cqels.plan.partitioning import NEWEST_NAME, NotPartitionable, PartitionedQuery, partition_query
from cqels.plan.prepare import prepare
from cqels.plan.scope import variables
from cqels.results import Result
from cqels.spark.driver.app import App
from cqels.spark.driver.global_stages import CheckpointedStage, LastFilesIndex, PartOutput
from cqels.spark.driver.metrics import Metrics
from cqels.spark.sinks import Memory
from cqels.store.dataset import Store

from ..random_expressions import Features
from ..random_queries import scenarios
from ..random_shapes import shapes
from ..scenarios import Scenario, run
from .piped import quads_of
from .test_predicate_pushdown import Travelling

PREFIX = "PREFIX : <http://ex.org/> "
SOME = Features(
    forms=("select",), policies=("cqels",), partitions=False, order=False, draws=False, any_stream=False, paths=False
)
ORDERED = replace(SOME, order=True)
TERMS = st.one_of(
    st.integers().map(Literal),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00")).map(Literal),
    st.text("abc/é", max_size=30).map(lambda text: NamedNode(f"http://ex.org/{text}")),
    st.text("abc", min_size=1).map(BlankNode),
    st.sampled_from([Literal("01", datatype=XSD_INTEGER), Literal(0.5), Literal(True), Literal("x", language="en")]),
)


@given(TERMS, st.integers(1, 9))
def test_kernels_know_the_part_of_a_term(term: Term, count: int) -> None:
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    found = spread_of(terms.dictionary.arena.base, terms.dictionary.offset, terms.encode(term)) % count
    assert found == part_of(term, count)


def test_parts_are_about_as_large() -> None:
    for made in (Literal, lambda number: NamedNode(f"http://ex.org/p{number}")):
        found = [part_of(made(number), 4) for number in range(4000)]
        assert all(900 < found.count(part) < 1100 for part in range(4))


# ---------------------------------------------------------------- parts together are the whole


class Parted:
    """Each query as two, in engines of their own that have only the triples that these can match."""

    def __init__(self, store: Store, streams: Sequence[StreamSettings], **options: Any) -> None:
        other = Store()
        for name in store.named_graphs():
            other.create_graph(name)
        other.add(quads_of(store))
        self._engines = [Travelling(each, streams, **options) for each in (store, other)]

    def register(self, query: Query) -> Together:
        found = partition_query(query)
        parts = zip(self._engines, found.partitions(len(self._engines)), strict=True)
        return Together([each.register(part) for each, part in parts], found)

    def push(self, element: Element) -> None:
        for each in self._engines:
            each.push(element)

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        for each in self._engines:
            each.heartbeat(time, stream)

    def update(self, change: Callable[[Store], object]) -> None:
        for each in self._engines:
            each.update(change)

    def finish(self) -> None:
        for each in self._engines:
            each.finish()


class Together:
    def __init__(self, parts: Sequence[Any], how: PartitionedQuery) -> None:
        self._parts, self._name, self._names = parts, how.local_stage.name or "", how.local_stage.variables
        self._query, self._rest = how.global_stage, None if how.global_stage is None else GlobalStage(how.global_stage)

    def take(self) -> list[Result]:
        found = [result._replace(query=self._name) for part in self._parts for result in part.take()]
        found.sort(key=lambda each: (each.tick, each.sign == "+", *map(text_of, each.values)))
        if self._query is None or self._rest is None:
            return found
        columns: dict[str, Any] = {
            "tick": pyarrow.array([each.tick for each in found], pyarrow.int64()),
            "time": pyarrow.array([each.nanoseconds for each in found], pyarrow.int64()),
            "weight": pyarrow.array([1 if each.sign == "+" else -1 for each in found], pyarrow.int64()),
        }
        for number, name in enumerate(self._names):
            values = [each.values[number] for each in found]
            if name == NEWEST_NAME:
                columns["newest"] = [-1 if each is None else int(each.value) for each in values]
            else:
                texts = [None if each is None else str(each) for each in values]
                columns[f"?{name}"] = pyarrow.array(texts, pyarrow.string())
        return [*Sent(self._query, [self._rest.apply(pyarrow.table(columns))]).results()]


def shared(query: Query) -> Query:
    """A query with a variable in all its triple patterns over streams."""
    return replace(
        keyed(query, selected=False),
        emit="changes" if query.emit == "rstream" else query.emit,
        variables=query.variables,
    )


def keyed(query: Query, *, selected: bool = True) -> Query:
    """A query with a variable in all its triple patterns over streams, which is selected and grouped by."""
    key = Var("key")

    def inside(plan: Plan) -> Plan:
        if not isinstance(plan, Triples):
            return plan
        return Triples(tuple(Triple(key, each.predicate, each.object) for each in plan.patterns))

    def changed(plan: Plan) -> Plan:
        match plan:
            case Stream(sources=sources, input=inner):
                timed = [
                    replace(one, window=Range(5 * 10**9)) if isinstance(one.window, Count) else one for one in sources
                ]
                return replace(plan, sources=tuple(timed), input=transform_plan(inner, inside))
            case Project(input=inner, variables=names) if selected and key.name in variables(inner):
                return replace(plan, variables=(*names, key.name))
            case Group(input=inner, keys=names) if selected and key.name in variables(inner):
                return replace(plan, keys=(*names, key.name))
            case _:
                return plan

    plan = transform_plan(query.plan, changed)
    emit = query.emit if query.emit in ("istream", "dstream", "changes") else "changes"
    more = (key.name,) if key.name in variables(plan) else ()
    return replace(query, plan=plan, emit=emit, variables=(*query.variables, *more))


@settings(max_examples=60)
@given(scenarios(SOME) | shapes(SOME))
def test_parts_are_the_whole(scenario: Scenario) -> None:
    """R = R[PART(?k, 2) = 0] + R[PART(?k, 2) = 1]"""
    scenario = scenario.alone()
    try:
        assume(partition_query(keyed(scenario.prepared())).global_stage is None)
    except NotPartitionable:
        assume(False)
    assert run(scenario, engine=Parted, change_plan=keyed) == run(scenario, change_plan=keyed)


@settings(max_examples=60)
@given(scenarios(ORDERED) | shapes(ORDERED))
def test_a_rest_is_computed_of_all_parts(scenario: Scenario) -> None:
    """Orders with LIMIT, groups, DISTINCT and whatever else is not of one part alone."""
    scenario = scenario.alone()
    try:
        if partition_query(shared(scenario.prepared())).global_stage is None:
            assume(False)
    except NotPartitionable:
        assume(False)
    assert run(scenario, engine=Parted, change_plan=shared) == run(scenario, change_plan=shared)


def test_only_its_triples_travel_to_a_part() -> None:
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    query = prepare(PREFIX + "SELECT ?o ?v { STREAM :s [RANGE 1s] { ?o :of ?s . ?o :is ?v } ?s :in :r }", name="q")
    subjects = [NamedNode(f"http://ex.org/o{number}") for number in range(50)]
    triples = [(each, NamedNode("http://ex.org/is"), Literal(7)) for each in subjects]
    batch = Intake(terms).triples(0, 0, tuple(triples))
    for number, part in enumerate(partition_query(query).partitions(3)):
        found = pushed_patterns([part], "http://ex.org/s").matcher(terms).matches(batch.triples.reshape(-1, 3))
        assert found.tolist() == [part_of(each, 3) == number for each in subjects]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT ?v { STREAM :s [NOW] { ?o :is ?v } }", "v"),
        ("SELECT ?v { STREAM :s [NOW] { :o :is ?v } }", "v"),
        ("SELECT ?s { STREAM :s [NOW] { ?o :of ?s . ?o :is ?v } }", "o, then s"),
        ("SELECT ?o ?p { STREAM :s [NOW] { ?o :is ?v . ?p :is ?w } }", "is not in all triple patterns"),
        ("SELECT ?s (COUNT(*) AS ?n) { STREAM :s [NOW] { ?o :of ?s . ?o :is ?v } } GROUP BY ?s", "o, then s"),
        ("SELECT (COUNT(*) AS ?n) { STREAM :s [NOW] { ?o :of ?s . ?o :is ?v } }", "o, then _:.first"),
        ("SELECT (COUNT(DISTINCT *) AS ?n) { STREAM :s [NOW] { ?o :of ?s } }", "o, then o s _:.first"),
        ("SELECT ?o { STREAM :s [TRIPLES 5] { ?o :is ?v } }", "a window counts"),
        ("SELECT ?o { STREAM ?any [NOW] { ?o :is ?v } }", "of no one stream"),
        ("SELECT ?o { STREAM :s [NOW] { ?o :is ?v } } ORDER BY ?o LIMIT 3", "o, then o _:.newest"),
        ("SELECT ?w { STREAM :s [NOW] { ?o :is ?v } BIND(?v + 1 AS ?w) } ORDER BY ?v LIMIT 3", "o, then v w _:.newest"),
        (
            "SELECT (MAX(?v) AS ?m) { STREAM :s [NOW] { ?o :is ?v } } HAVING(COUNT(*) < SECONDS(NOW()))",
            "depends on times",
        ),
        (
            "SELECT ?s { STREAM :s [NOW] { ?o :of ?s . ?o :is ?v } } GROUP BY ?s HAVING(EXISTS { ?s :is ?s })",
            "EXISTS is asked",
        ),
        ("SELECT ?o { ?o :is ?v OPTIONAL { STREAM :s [NOW] { ?o :is ?v } } }", "the same for all"),
        ("SELECT ?o { ?o :is ?v FILTER NOT EXISTS { STREAM :s [NOW] { ?o :is ?w } } }", "the same for all"),
        ("SELECT ?o { { ?o :is ?v } UNION { STREAM :s [NOW] { ?o :is ?v } } }", "an alternative reads no stream"),
        ("SELECT ?o { STREAM :s [NOW] { ?o :is+ ?v } }", "no triple of a stream"),
        ("SELECT ?o (RAND() AS ?r) { STREAM :s [NOW] { ?o :is ?v } }", "it draws a value"),
        ("SELECT ?o { ?o :is ?v }", "no triple of a stream"),
    ],
)
def test_what_can_be_spread(text: str, why: str) -> None:
    query = prepare(PREFIX + text)
    if why[1:2] in ("", ","):
        found = partition_query(query)
        rest = "" if found.global_stage is None else f", then {' '.join(found.local_stage.variables)}"
        assert f"{found.key}{rest}" == why
    else:
        with pytest.raises(NotPartitionable, match=why.replace("?", "[?]")):
            partition_query(query)


# ---------------------------------------------------------------- on Spark


LATEST = PREFIX + "SELECT ?s ?v ?l { STREAM :a [RANGE 2s] { ?s :p ?v } OPTIONAL { ?s :label ?l } }"
SUMS = PREFIX + "SELECT ?s (SUM(?v) AS ?n) { STREAM :a [RANGE 1s] { ?s :p ?v } } GROUP BY ?s"
TOP = PREFIX + "SELECT ?s (SUM(?v) AS ?n) { STREAM :a [RANGE 1s] { ?s :p ?v } } GROUP BY ?s ORDER BY DESC(?n) LIMIT 3"
OTHERS = PREFIX + (
    "SELECT ?r (SUM(?v) AS ?n) (COUNT(DISTINCT ?s) AS ?m) "
    "{ STREAM :a [RANGE 1s] { ?s :p ?v } BIND(FLOOR(?v / 100) AS ?r) } GROUP BY ?r HAVING(COUNT(*) > 3)"
)
ALL = PREFIX + "SELECT (SUM(?v) AS ?n) (SAMPLE(?s) AS ?one) { STREAM :a [RANGE 1s] { ?s :p ?v } }"
SIZE = 3000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "a.nt"
    lines = (
        f'<http://ex.org/s{i % 11}> <http://ex.org/p> "{i}"^^<{XSD_INTEGER.value}> {i * 10} .\n' for i in range(SIZE)
    )
    path.write_text("".join(lines))
    (path.parent / "labels.ttl").write_text(
        "".join(f'<http://ex.org/s{i}> <http://ex.org/label> "s{i}" .\n' for i in range(5))
    )
    return str(path)


def expected(data: str, text: str, name: str, emit: str | None = None) -> list[Result]:
    store = Store()
    store.load(Path(data).parent / "labels.ttl", None)
    declaration = parse_declaration(f"<http://ex.org/a>={data}")
    return [result for _, result in replay([prepare(text, name=name, emit=emit)], [declaration], store)]


def made(spark: SparkSession, data: str, checkpoint: Path | None = None, *, spread: bool = True) -> App:
    app = App(spark, checkpoint=checkpoint, batch_bytes=20_000, instances=2)
    app.files(f"<http://ex.org/a>={data}")
    app.load(Path(data).parent / "labels.ttl")
    app.add(LATEST, name="latest", emit="changes", spread=spread)
    app.add(SUMS, name="sums", spread=True)
    return app


def test_parts_run_on_all_instances(spark: SparkSession, data: str, tmp_path: Path) -> None:
    """Beside one that is whole, and from where they were."""
    memory = Memory()
    first = made(spark, data, tmp_path / "c").run(memory)
    assert {name: first.placed[name] for name in first.placed if name.startswith("sums")}.keys() == {
        "sums (1 of 2)",
        "sums (2 of 2)",
    }
    assert {*first.placed.values()} == {0, 1}
    while len(memory.results("latest")) < 200:
        assert not first.wait(0.1)
    (added,) = first.change(add=[prepare(SUMS, name="later")], spread=True, move={"latest (1 of 2)": None})
    assert added.name == "later"
    assert {"later (1 of 2)", "later (2 of 2)"} <= first.placed.keys()
    first.stop()
    with pytest.raises(CqelsError, match="query latest was partitioned and is not"):
        made(spark, data, tmp_path / "c", spread=False).run(memory)
    app = made(spark, data, tmp_path / "c")
    app.add(SUMS, name="later", spread=True)
    assert app.run(memory).wait(600)
    later = memory.results("later")
    assert 0 < len(later) < len(memory.results("sums"))
    assert memory.results("latest") == expected(data, LATEST, "latest", "changes")
    assert memory.results("sums") == expected(data, SUMS, "sums")


def test_the_best_and_groups_are_merged(spark: SparkSession, data: str, tmp_path: Path) -> None:
    """Also from where they were, when another query has come, and when a part has moved."""
    memory = Memory()

    def app() -> App:
        made = App(spark, checkpoint=tmp_path / "c", batch_bytes=20_000, instances=2)
        made.files(f"<http://ex.org/a>={data}")
        made.add(TOP, name="top", spread=True)
        made.add(OTHERS, name="others", emit="changes", spread=True)
        made.add(ALL, name="all", spread=True)
        return made

    first = app().run(memory)
    while len(memory.results("top")) < 50:
        assert not first.wait(0.1)
    first.change(add=[prepare(TOP, name="later")], spread=True, move={"top (1 of 2)": None})
    while not memory.results("later"):
        assert not first.wait(0.1)
    first.change(drop=["later"], add=[prepare(TOP, name="later")], spread=True)
    first.stop()
    changed = app()
    changed.drop("top")
    changed.add(TOP.replace("LIMIT 3", "LIMIT 3 OFFSET 0").replace("DESC", "ASC"), name="top", spread=True)
    changed.add(TOP, name="later", spread=True)
    with pytest.raises(CqelsError, match="query top has changed"):
        changed.run(memory)
    again = app()
    again.add(TOP, name="later", spread=True)
    metrics, there = Metrics(), sum(len(memory.results(name)) for name in ("top", "others", "all", "later"))
    assert again.run(memory, metrics=metrics).wait(600)
    results = sum(len(memory.results(name)) for name in ("top", "others", "all", "later"))
    assert metrics.totals.results == results - there
    assert memory.results("top") == expected(data, TOP, "top")
    assert memory.results("others") == expected(data, OTHERS, "others", "changes")
    assert memory.results("all") == expected(data, ALL, "all")
    assert memory.results("later")


def test_numbers_go_on(spark: SparkSession, data: str) -> None:
    """The number of a result is how many the query has sent before, whichever part sent them."""
    numbers: list[tuple[int, int]] = []

    class Counting(Memory):
        def write(self, batch: int, sent: Any) -> None:
            numbers.extend((each.number, len(each)) for name, each in sent.items() if name == "sums")
            super().write(batch, sent)

    assert made(spark, data).run(Counting()).wait(600)
    assert len(numbers) > 3
    assert all(number + count == following for (number, count), (following, _) in pairwise(numbers))


def test_what_cannot_be_spread_is_refused(spark: SparkSession, data: str) -> None:
    app = App(spark)
    app.files(f"<http://ex.org/a>={data}")
    whole = PREFIX + "SELECT ?s { STREAM :a [TRIPLES 10] { ?s :p ?v } }"
    with pytest.raises(CqelsError, match=r"query q cannot be spread: a window counts"):
        app.add(whole, name="q", spread=True)
    with pytest.raises(CqelsError, match="query r cannot be spread: it has a budget"):
        app.add(SUMS, name="r", spread=True, memory="1MB")
    assert [*app.running] == []
    app.add(whole, name="q", spread=None)
    assert [*app.running] == ["q"]


# ---------------------------------------------------------------- what is kept of a global stage


MANY = PREFIX + "SELECT ?v (COUNT(?o) AS ?n) { STREAM :a [NOW] { ?o :is ?v } } GROUP BY ?v ORDER BY DESC(?n) LIMIT 2"


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6), min_size=1, max_size=8),
    lost=st.sets(st.integers(0, 7)),
    again=st.sets(st.integers(0, 7)),
)
def test_a_global_stage_goes_on_from_what_is_kept(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[int, int]]],
    lost: set[int],
    again: set[int],
) -> None:
    """A process may end after a micro-batch, and a micro-batch may come again."""
    query = prepare(MANY, name="many", emit="changes")
    rest = partition_query(query).global_stage
    assert rest is not None
    found = []
    for disturbed in (False, True):
        folder = tmp_path_factory.mktemp("rest") / "kept"
        stage, sent = CheckpointedStage(query, rest, folder, least=4), list[Any]()
        there: set[tuple[int, int]] = set()
        for number, solutions in enumerate(batches):
            told = [PartOutput([payload(number, there, {*solutions})], 7)] if solutions else []
            there = {*solutions} if solutions else there
            result = stage.process(number, told)
            if disturbed and number in again:
                if number in lost:
                    stage.close()
                    stage = CheckpointedStage(query, rest, folder, last=stage.last, least=4)
                result = stage.process(number, told)
            if disturbed and number in lost:
                stage.close()
                stage = CheckpointedStage(query, rest, folder, last=stage.last, least=4)
            if result is not None:
                sent.append((number, result.number, [*result.results()]))
        stage.close()
        found.append(sent)
    assert found[0] == found[1]


def test_a_rest_that_is_damaged_is_refused(tmp_path: Path) -> None:
    """A file with other bytes, and one that is gone, the last one too."""
    query = prepare(MANY, name="many", emit="changes")
    rest = partition_query(query).global_stage
    assert rest is not None
    stage = CheckpointedStage(query, rest, tmp_path / "kept")
    there: set[tuple[int, int]] = set()
    for number in range(4):
        now = {(number, number), (number, 1)}
        stage.process(number, [PartOutput([payload(number, there, now)], 7)])
        there = now
    stage.close()
    files = {path.name: path.read_bytes() for path in (tmp_path / "kept").glob("*")}

    def again() -> None:
        CheckpointedStage(query, rest, tmp_path / "kept", last=stage.last).process(4, [])

    again()
    for name, content in files.items():
        path = tmp_path / "kept" / name
        for changed in (content[:-1], content[:40] + b"x" + content[41:], None):
            if changed is None:
                path.unlink()
            else:
                path.write_bytes(changed)
            with pytest.raises(CqelsError, match="damaged"):
                again()
            path.write_bytes(content)
    again()


def test_the_last_files_of_stages_are_known(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rests.json"
    with pytest.raises(CqelsError, match=r"rests\.json is gone"):
        LastFilesIndex(path).read()
    lasts = LastFilesIndex(path)
    lasts.begin()
    assert LastFilesIndex(path).read() == {}
    lasts.write({"f": (3, 7)})
    assert LastFilesIndex(path).read() == {"f": (3, 7)}
    path.write_text(path.read_text().replace("7", "8", 1))
    with pytest.raises(CqelsError, match="damaged"):
        LastFilesIndex(path).read()


def payload(tick: int, before: set[tuple[int, int]], now: set[tuple[int, int]]) -> bytes:
    """What a part sends when it had some solutions and has others."""
    rows = [*(("-", each) for each in sorted(before - now)), *(("+", each) for each in sorted(now - before))]
    names = {"?o": 0, "?v": 1, f"?{NEWEST_NAME}": 0}
    table = pyarrow.table(
        {
            "time": pyarrow.array([tick] * len(rows), pyarrow.int64()),
            "tick": pyarrow.array([tick] * len(rows), pyarrow.int64()),
            "sign": pyarrow.array([sign for sign, _ in rows], pyarrow.string()),
            "empty": pyarrow.array([False] * len(rows), pyarrow.bool_()),
        }
        | {
            name: pyarrow.array([str(Literal(each[place] + 10)) for _, each in rows], pyarrow.string())
            for name, place in names.items()
        }
    )
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
