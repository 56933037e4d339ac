"""Lifting: rows become the elements that files give, however they are cut; what is malformed is told with its place."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import NamedNode

from cqels.ingest import Rejected, declare, read_stream
from cqels.ingest.template_model import NodeTemplate, ObjectTemplate, Template, flat_template
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import CqelsError, DataError
from cqels.plan.prepare import prepare

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

import pyarrow

import cqels
from cqels import lift
from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.block_writer import table
from cqels.pipeline.lift.lift_worker import LiftWorker, runs_of
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, Pattern, PushedPatterns, pushed_patterns
from cqels.pipeline.lift.row_lifts import Lift, Lifting, nquads, ntriples

STREAM = "http://ex.org/s"
HEADER = ["id", "at", "value"]
LIFTS: dict[str, Callable[..., Lift]] = {"turtle": lift.turtle, "trig": lift.trig, "jsonld": lift.jsonld}
ALL = PushedPatterns(frozenset([ANYTHING]))
Elements = list[tuple[int, list[tuple[str, ...]]]]

LINES = [
    '<http://ex.org/a> <http://ex.org/p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> 1000 .',
    "<http://ex.org/b> <http://ex.org/q> _:x 2000 .",
    "# a comment",
    '<http://ex.org/b> <http://ex.org/p> "esc\\u0061ped\\n" "1970-01-01T00:00:03Z" .',
    "<http://ex.org/b> <http://ex.org/p> .",
    "<http://ex.org/c> <http://ex.org/q> <http://ex.org/a> 4000 .",
    "<http://ex.org/c> <http://ex.org/q> <http://ex.org/a> <http://ex.org/graph> .",
    "<http://ex.org/c> <http://ex.org/p> <http://ex.org/a> 5000 .",
]


def lifted(
    by: Lift, *batches: dict[str, list[Any]], kept: PushedPatterns = ALL
) -> tuple[Elements, list[tuple[str, str]]]:
    """The elements of the blocks, in their order, and what was rejected."""
    rows = lifted_rows(Lifting(STREAM, 3, by, (kept,)), *batches)
    assert {row["instance"] for row in rows} <= {0}
    return elements_of(rows), [(row["place"], row["reason"]) for row in rows if row["kind"] == "rejected"]


def lifted_rows(lifting: Lifting, *batches: dict[str, list[Any]]) -> list[dict[str, Any]]:
    copy = pickle.loads(pickle.dumps(lifting))
    return [
        row for made in copy.blocks(iter(map(pyarrow.RecordBatch.from_pydict, batches))) for row in made.to_pylist()
    ]


def elements_of(rows: list[dict[str, Any]]) -> Elements:
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    elements: Elements = []
    for row in sorted(rows, key=lambda row: (row["place"], row["position"], row["number"])):
        if row["kind"] == "block":
            for time, stream, triples in unpack(row["block"], terms.dictionary).rows():
                assert stream == 3
                elements.append((time, [tuple(str(terms.decode(word)) for word in each) for each in triples]))
    return elements


def read(path: Path, **options: Any) -> tuple[Elements, list[tuple[str, str]]]:
    """The elements as those who run a query over the file have them."""
    rejected: list[Rejected] = []
    elements = list(read_stream(declare(STREAM, path, **options), rejected.append))
    found = [(each.time, [tuple(map(str, triple)) for triple in each.triples]) for each in elements]
    return found, [(each.place, each.reason) for each in rejected]


def cut(size: int) -> Iterator[list[str]]:
    return (LINES[start : start + size] for start in range(0, len(LINES), size))


@pytest.mark.parametrize("size", [1, 3, 100])
def test_lines_are_the_elements_of_their_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "day.nt"
    path.write_text("\n".join(LINES))
    elements, rejected = read(path)
    batches = [{"value": part, "place": [str(path)] * len(part)} for part in cut(size)]
    found, refused = lifted(ntriples(), *batches)
    assert found == elements
    assert [reason for _, reason in refused] == [reason for _, reason in rejected]
    assert len(rejected) == 2


def test_a_whole_file_in_a_row_has_the_places_of_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "day.nt"
    path.write_text("\n".join(LINES) + "\n")
    assert lifted(ntriples(), {"value": [path.read_bytes()], "place": [str(path)]}) == read(path)


def test_several_files_in_a_batch_are_blocks_of_their_own() -> None:
    values = [LINES[0], LINES[5], LINES[7]]
    found, _ = lifted(ntriples(), {"value": values, "place": ["b", "a", "a"], "position": [0, 10, 20]})
    assert [time for time, _ in found] == [4 * 10**9, 5 * 10**9, 10**9]


def test_bytes_that_are_not_utf8_cost_their_line() -> None:
    broken = b'<http://ex.org/a> <http://ex.org/p> "\xff" 1 .'
    found, refused = lifted(ntriples(), {"value": [broken, LINES[0].encode(), None]})
    assert len(found) == 1
    assert sorted(refused) == [("<source>:1", "the text is not UTF-8"), ("<source>:3", "the row has no value")]


def test_graphs_are_elements(tmp_path: Path) -> None:
    path = tmp_path / "day.nq"
    path.write_text(
        "<http://ex.org/a> <http://ex.org/p> _:b <http://ex.org/g1> .\n"
        "_:b <http://ex.org/q> <http://ex.org/a> <http://ex.org/g1> .\n"
        '<http://ex.org/g1> <http://www.w3.org/ns/prov#generatedAtTime> "5" .\n'
        "not a quad\n"
        "<http://ex.org/a> <http://ex.org/p> _:b <http://ex.org/g2> .\n"
        "<http://ex.org/a> <http://ex.org/p> _:b <http://ex.org/g3> .\n"
        '<http://ex.org/g3> <http://www.w3.org/ns/prov#generatedAtTime> "7" <http://ex.org/g3> .\n'
    )
    found = lifted(nquads(), {"value": [path.read_bytes()], "place": [str(path)]})
    assert found == read(path)
    assert found[0]
    assert found[1]


def test_a_predicate_has_the_time(tmp_path: Path) -> None:
    path = tmp_path / "day.nt"
    path.write_text('<http://ex.org/a> <http://ex.org/p> "1" .\n<http://ex.org/a> <http://ex.org/at> "5" .\n')
    by_subject = ntriples(element="subject", time="http://ex.org/at")
    found = lifted(by_subject, {"value": [path.read_text()], "place": [str(path)]})
    assert found == read(path, time="<http://ex.org/at>")
    assert found[0] == [(5_000_000, found[0][0][1])]


def test_a_row_of_lines_may_be_turtle() -> None:
    """What `Engine.push` takes, a source takes: a bare number, prefixes, several lines."""
    rows = [
        "<http://ex.org/a> <http://ex.org/p> 21.5 .",
        "@prefix : <http://ex.org/> .\n:a :p 23.5 ,\n  22 .",
        "<http://ex.org/a> <http://ex.org/p> nonsense .",
        "<http://ex.org/a> <http://ex.org/p> 5 6 .",
    ]
    times = [datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(4)]
    for by in (ntriples(time="source"), nquads(time="source")):
        found, refused = lifted(by, {"value": rows, "time": times})
        with cqels.Engine() as engine:
            query = engine.register("SELECT ?s ?p ?o WHERE { STREAM <http://ex.org/s> [NOW] { ?s ?p ?o } }")
            for row, time in zip(rows[:2], times, strict=False):
                engine.push(STREAM, row, time)
            pushed = [(result.nanoseconds, tuple(map(str, result.values))) for result in query.take()]
        assert sorted((time, triple) for time, triples in found for triple in triples) == sorted(pushed)
        assert [reason for _, reason in refused] == [
            "expected an object, which is an IRI, a blank node or a literal, at column 37",
            "a line has a time, and so has its row",
        ]
    found, refused = lifted(ntriples(), {"value": ["<http://ex.org/a> <http://ex.org/p> 21.5 1000 .", rows[0]]})
    assert [time for time, _ in found] == [10**9]
    assert [reason for _, reason in refused] == ["the line has no timestamp"]


TRIPLE = "<http://ex.org/a> <http://ex.org/p> <http://ex.org/b> ."
BLANK = "_:x <http://ex.org/p> _:x <http://ex.org/g> ."


@pytest.mark.parametrize("by", [ntriples(time="source"), nquads(time="kafka")])
def test_the_source_has_the_time(by: Lift) -> None:
    time = datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)
    values = [TRIPLE, f"{TRIPLE}\n{TRIPLE}"]
    rows = {"value": values, "time": [time] * 2, "place": ["t/0"] * 2, "position": [7, 8]}
    found, refused = lifted(by, rows)
    assert [(at, len(triples)) for at, triples in found] == [(9 * 10**9, 1), (9 * 10**9, 2)]
    assert not refused

    values = [BLANK, BLANK, f"{TRIPLE}\nnot a triple", "", LINES[0], TRIPLE]
    rows = {"value": values, "time": [*[time] * 5, None], "place": ["t/0"] * 6, "position": [*range(7, 13)]}
    found, refused = lifted(by, rows)
    assert len(found) == 2
    (first,), (second,) = (triples for _, triples in found)
    assert first[0] == first[2] != second[0] == second[2]  # the scope of a blank node is its row
    assert [place for place, _ in refused] == ["t/0@9", "t/0@10", "t/0@11", "t/0@12"]


TIME = datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)
DOCUMENTS = {
    "turtle": '@prefix : <http://ex.org/> . :a :p [ :q "v" ] ; :at 7 .',
    "trig": '@prefix : <http://ex.org/> . :g { :a :p [ :q "v" ] ; :at 7 }',
    "jsonld": '{"@id": "http://ex.org/a", "http://ex.org/p": {"http://ex.org/q": "v"}, "http://ex.org/at": 7}',
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_row_is_a_document(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"day.{name}"
    path.write_text(DOCUMENTS[name])
    expected, _ = read(path, time="http://ex.org/at", element="document")
    rows = {"value": [DOCUMENTS[name], "{ not one", None], "place": [str(path)] * 3}
    found, refused = lifted(LIFTS[name](time="http://ex.org/at"), rows)
    assert found == expected
    assert len(found[0][1]) == 3
    assert len(refused) == 2
    ((at, triples),), _ = lifted(LIFTS[name](time="kafka"), rows | {"time": [TIME] * 3})
    assert (at, triples) == (9 * 10**9, expected[0][1])
    assert not lifted(LIFTS[name](time="source"), rows | {"time": [None, TIME, TIME]})[0]


TEMPLATE = """
subject = "http://ex.org/{id}"
[time]
column = "at"
[predicates]
"http://ex.org/value" = "value"
"http://ex.org/city" = "place.city"
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "lift.toml"
    path.write_text(TEMPLATE)
    return path


def test_a_row_is_a_record(template: Path) -> None:
    flat = template.with_name("flat.toml")
    flat.write_text(TEMPLATE.replace("place.city", "city"))
    places = {"place": ["t-0"] * 4, "position": [5, 6, 7, 8]}
    values: list[Any] = ['1,1000,"a, b",Graz', "2,noon,v,Linz", "3,1000", None]
    text = "http://ex.org/"
    expected = [(10**9, [(f"<{text}1>", f"<{text}value>", '"a, b"'), (f"<{text}1>", f"<{text}city>", '"Graz"')])]
    found, refused = lifted(lift.csv(flat, header=["id", "at", "value", "city"]), {"value": values, **places})
    assert found == expected
    assert refused == [
        ("t-0@6", "the timestamp 'noon' is neither a dateTime nor an integer"),
        ("t-0@7", "the record has 2 columns, the header has 4"),
        ("t-0@8", "the row has no value"),
    ]
    values = ['{"id": 1, "at": 1000,\n "value": "a, b", "place": {"city": "Graz"}}', "[]", "{", ""]
    found, refused = lifted(lift.json(template), {"value": values, **places})
    assert found == expected
    assert [place for place, _ in refused] == ["t-0@6", "t-0@7", "t-0@8"]
    records = [
        {"id": 1, "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "value": "a, b", "place": {"city": "Graz"}},
        {"id": None, "at": None, "value": None, "place": None},
    ]
    found, refused = lifted(lift.columns(template), {"value": records})
    assert found == expected
    assert refused == [("<source>", "the record has no timestamp")]


def test_the_source_has_the_time_of_records(template: Path) -> None:
    template.write_text(TEMPLATE.replace('[time]\ncolumn = "at"\n', ""))
    values = ['{"id": 1, "value": 2}'] * 2
    found, refused = lifted(lift.json(template, time="kafka"), {"value": values, "time": [TIME, None]})
    assert [time for time, _ in found] == [9 * 10**9]
    assert refused == [("<source>", "the row has no time")]
    with pytest.raises(DataError, match="no column for the time"):
        lift.json(template)


AROUND = """
[nodes.reading]
subject = "http://ex.org/{@topic.2}"
[nodes.reading.predicates]
"http://ex.org/key" = "@key"
"http://ex.org/unit" = "@header.unit"
"http://ex.org/at" = "@arrival"
"http://ex.org/value" = { node = "value" }
[nodes.value.predicates]
"http://ex.org/is" = "v"
"""


def test_what_surrounds_a_row(template: Path) -> None:
    template.write_text(AROUND)
    rows = {
        "value": ['{"v": 1}', '{"v": 2}'],
        "time": [TIME, TIME],
        "place": ["inbox"] * 2,
        "position": [4, 5],
        "key": [b"k", None],
        "topic": ["building/kitchen/temp", "building/hall/temp"],
        "headers": [[("unit", b"C")], None],
    }
    headers = pyarrow.array(rows["headers"], pyarrow.map_(pyarrow.string(), pyarrow.binary()))
    batch = pyarrow.RecordBatch.from_pydict({**rows, "headers": headers})
    lifting = Lifting(STREAM, 3, lift.json(template, time="source"), (ALL,))
    found = elements_of([row for made in lifting.blocks(iter([batch])) for row in made.to_pylist()])
    assert found == elements_of([row for made in lifting.blocks(iter([batch])) for row in made.to_pylist()])
    first, second = ([tuple(each) for each in triples] for _, triples in found)
    assert first[:3] == [
        ("<http://ex.org/kitchen>", "<http://ex.org/key>", '"k"'),
        ("<http://ex.org/kitchen>", "<http://ex.org/unit>", '"C"'),
        (
            "<http://ex.org/kitchen>",
            "<http://ex.org/at>",
            '"1970-01-01T00:00:09Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>',
        ),
    ]
    assert [each[1] for each in second] == ["<http://ex.org/at>", "<http://ex.org/value>", "<http://ex.org/is>"]
    assert first[-1][0] == first[-2][2] != second[-1][0] == second[-2][2]


ROWS = st.lists(
    st.one_of(
        st.builds('{{"id": {0}, "at": {1}, "value": {2}}}'.format, st.integers(0, 3), st.integers(0, 9), st.integers()),
        st.sampled_from(
            ['{"id": 1, "at": 5, "value": "\\n"}', "{}", "[", '{"id": 1,\n"at": 2, "value": 3}', "", "1,2,3"]
        ),
        st.sampled_from(
            ["1,1000,x", '2,2000,"a, b"', "3,3000", "\ufeff4,4000,y", '5,"6\n",z', "7,8,9\n10,11,12", "x,noon,y"]
        ),
        st.none(),
    ),
    max_size=12,
)


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("own", [False, True])
@given(values=ROWS, odd=st.booleans(), numbered=st.booleans())
def test_records_many_at_a_time_as_one_by_one(
    form: str, own: bool, values: list[str | None], odd: bool, numbered: bool
) -> None:
    if not odd:
        values = [value for value in values if value and "\n" not in value and "\ufeff" not in value]
    objects = tuple((NamedNode(f"http://ex.org/{name}"), ObjectTemplate(column=name)) for name in ("value", "at"))
    template = flat_template("http://ex.org/{id}", "at", objects)
    if numbered:
        template = replace(template, nodes=(*template.nodes, NodeTemplate(None, objects, "blank")))
    time = "source" if own else None
    by = lift.json(template, time=time) if form == "json" else lift.csv(template, header=HEADER, time=time)
    times = [datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(len(values))]
    rows = pyarrow.RecordBatch.from_pydict(
        {
            "value": pyarrow.array(values, pyarrow.string()),
            "time": pyarrow.array(times, pyarrow.timestamp("us", "UTC")),
            "place": pyarrow.array(["t-0"] * len(values), pyarrow.string()),
            "position": pyarrow.array([3 * number + 5 for number in range(len(values))], pyarrow.int64()),
        }
    )

    quick, slow = (LiftWorker(Lifting(STREAM, 3, by, (ALL,))) for _ in range(2))
    assert quick._layout is not None
    slow._layout = None
    assert outcome(quick, rows, template) == outcome(slow, rows, template)


NAMED = ("@key", "@topic", "@topic.2", "@header.h", "@arrival", "id", "at")
AROUND_OBJECTS = st.lists(
    st.one_of(
        st.builds(ObjectTemplate, column=st.sampled_from(NAMED)),
        st.builds(ObjectTemplate, text=st.sampled_from(["{@key} {id}", "{@arrival}"])),
        st.builds(
            ObjectTemplate, iri=st.sampled_from(["http://ex.org/{@topic}", "http://ex.org/{@topic.2}", "{@key}"])
        ),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("own", [False, True])
@given(
    values=st.lists(
        st.sampled_from(
            [
                '{"id": 1, "at": 5}',
                ' {"id": "x", "at": 7} ',
                "{}",
                "[",
                '{"@key": "other", "id": 1, "at": 5}',
                '{"at": 6}',
            ]
        ),
        min_size=1,
        max_size=6,
    ),
    around=st.lists(
        st.tuples(
            st.sampled_from([None, b"", b"k", b"x:y", 'a "é"'.encode(), b"\xff"]),
            st.sampled_from([None, "home/hall", "home", "a//b", 'say "x"/\\']),
            st.sampled_from([None, [], [("h", b"1"), ("g", b"2")], [("h", None)]]),
        ),
        min_size=6,
        max_size=6,
    ),
    objects=AROUND_OBJECTS,
    column=st.sampled_from(["at", "@arrival", "@key"]),
)
def test_surroundings_many_at_a_time_as_one_by_one(
    own: bool,
    values: list[str],
    around: list[tuple[Any, ...]],
    objects: list[ObjectTemplate],
    column: str,
) -> None:
    predicates = tuple((NamedNode(f"http://ex.org/p{number}"), each) for number, each in enumerate(objects))
    template = flat_template("http://ex.org/{id}", column, predicates, *(["%Y"] if column == "@arrival" else []))
    by = lift.json(template, time="source" if own else None)
    keys, topics, headers = zip(*around[: len(values)], strict=True)
    times = [datetime(1970, 1, 1, 0, 0, second, 1, tzinfo=UTC) for second in range(len(values))]
    rows = pyarrow.RecordBatch.from_pydict(
        {
            "value": pyarrow.array(values, pyarrow.string()),
            "time": pyarrow.array(times, pyarrow.timestamp("us", "UTC")),
            "key": pyarrow.array(keys, pyarrow.binary()),
            "topic": pyarrow.array(topics, pyarrow.string()),
            "headers": pyarrow.array(headers, pyarrow.map_(pyarrow.string(), pyarrow.binary())),
        }
    )
    quick, slow = (LiftWorker(Lifting(STREAM, 3, by, (ALL,))) for _ in range(2))
    assert quick._layout is not None
    slow._layout = None
    assert outcome(quick, rows, template) == outcome(slow, rows, template)


def outcome(
    worker: LiftWorker, rows: pyarrow.RecordBatch, template: Template
) -> tuple[Elements, list[tuple[str, str, str]]]:
    found = [row for run in runs_of(rows, "0", template.surroundings) for row in worker.lifted(run, count())]
    listed = table(found).to_pylist() if found else []
    rejected = [(row["place"], row["reason"], row["text"]) for row in listed if row["kind"] == "rejected"]
    return elements_of(listed), rejected


def test_only_what_a_query_can_match_travels() -> None:
    query = prepare(f"SELECT * {{ STREAM <{STREAM}> [NOW] {{ ?x <http://ex.org/p> ?y }} }}")
    found, _ = lifted(ntriples(), {"value": LINES}, kept=pushed_patterns([query], STREAM))
    assert [(time // 10**9, len(triples)) for time, triples in found] == [(1, 1), (2, 0), (3, 1), (4, 0), (5, 1)]


def test_each_instance_has_the_triples_that_it_wants_and_all_elements() -> None:
    texts = [f"SELECT * {{ STREAM <{STREAM}> [NOW] {{ ?x <http://ex.org/{name}> ?y }} }}" for name in "pqr"]
    patterns = (ALL, *(pushed_patterns([prepare(text)], STREAM) for text in texts), ALL)
    rows = lifted_rows(Lifting(STREAM, 3, ntriples(), patterns), {"value": LINES})
    counts = [
        [len(triples) for _, triples in elements_of([row for row in rows if row["instance"] == instance])]
        for instance in range(5)
    ]
    assert counts == [[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
    assert [row["instance"] for row in rows if row["kind"] == "rejected"] == [0, 0]
    assert {row["stream"] for row in rows} == {3}


def test_strictly_the_first_malformed_line_is_an_error() -> None:
    lifting = Lifting(STREAM, 3, ntriples(), (ALL,), strict=True)
    with pytest.raises(DataError, match=r"day.nt:5: expected an object"):
        lifted_rows(lifting, {"value": ["\n".join(LINES)], "place": ["day.nt"]})


def test_a_worker_does_not_remember_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqels.pipeline.lift.block_writer.MOST_TERMS", 50)
    kept = PushedPatterns(frozenset([Pattern(predicate=NamedNode("http://ex.org/p"))]))
    batches = [
        {"value": [f"<http://ex.org/{n}> <http://ex.org/p> <http://ex.org/o{n}> {n} ." for n in range(at, at + 40)]}
        for at in range(0, 400, 40)
    ]
    found, _ = lifted(ntriples(), *batches, kept=kept)
    assert [(time // 10**6, triples[0][0]) for time, triples in found] == [
        (n, f"<http://ex.org/{n}>") for n in range(400)
    ]


def test_what_does_not_fit_is_refused(template: Path) -> None:
    with pytest.raises(CqelsError, match="not an IRI"):
        nquads(time="kafka time")
    with pytest.raises(CqelsError, match="not a unit"):
        ntriples(unit="fortnight")
    with pytest.raises(CqelsError, match="element=document"):
        ntriples(element="document")
    with pytest.raises(CqelsError, match="the header has no column 'at'"):
        lift.csv(template, header=["id", "value", "place.city"])
    with pytest.raises(CqelsError, match="not that of a row"):
        lift.json(template, time="http://ex.org/at")
