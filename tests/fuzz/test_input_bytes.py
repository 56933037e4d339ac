"""Damaged bytes in every format: each element is taken or rejected, the others are taken, on every way in the same."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqels.engine.file_replay import replay as by_engine
from cqels.ingest import Rejected, StreamDeclaration, Tally, declare, read_stream
from cqels.ingest.encode import Intake
from cqels.ingest.file_batches import file_batches
from cqels.ingest.input_files import files_of
from cqels.ingest.stream_files import check_files
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import CqelsError, DataError
from cqels.plan.prepare import prepare
from cqels.reference.reference_replay import replay as by_reference
from cqels.store.dataset import Store

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

import pyarrow

from cqels import lift
from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_lifts import Lift, Lifting
from cqels.pipeline.source.file_source_settings import prepared
from cqels.spark.source.file_source import FileReader

MANY = int(os.environ.get("FUZZ_EXAMPLES", "1500"))
STREAM = "http://ex.org/s"
ALL = PushedPatterns(frozenset([ANYTHING]))
SIZE = 12
"""Lines or rows of an input."""
TEMPLATE = """
subject = "x:{id}"
[time]
column = "at"
[predicates]
"x:value" = "value"
"x:other" = { text = "of {id}" }
"""
Elements = list[tuple[int, tuple[tuple[str, ...], ...]]]


def timed(number: int) -> str:
    subject = "_:b1" if number % 4 == 0 else f"<x:s{number % 3}>"
    value = ['"text"', '"7"^^<http://www.w3.org/2001/XMLSchema#integer>', '"a\\n\\u0041"@en', "<x:o>"][number % 4]
    return f"{subject} <x:p> {value} {number}000 ."


def plain(number: int) -> str:
    return f'<x:s{number}> <x:p> "v{number}" . <x:s{number}> <x:at> "{number}000" .'


def quad(number: int) -> str:
    stamp = f'<x:g{number}> <http://www.w3.org/ns/prov#generatedAtTime> "{number}000" <x:g{number}> .'
    return f"<x:a> <x:p> _:b <x:g{number}> . {stamp}"


def turtle(number: int) -> str:
    return f"<x:s{number}> <x:at> {number}000 ; <x:p> [ <x:q> 'a', 2.5 ] ."


def trig(number: int) -> str:
    return f"<x:g{number}> {{ <x:s> <x:p> {number} . <x:g{number}> <x:at> {number}000 }}"


def json_ld(number: int) -> str:
    return f'{{"@id": "x:s{number}", "x:at": "{number}000", "x:p": [{{"x:q": {number}}}, "\\u00e4"]}}'


def record(number: int) -> str:
    return f"{number},{number}000,{['plain', chr(34) + 'a, b' + chr(34), 'ä'][number % 3]}"


def json(number: int) -> str:
    return f'{{"id": {number}, "at": {number + 1}000, "value": {["1.5", "true", chr(34) + "ä" + chr(34)][number % 3]}}}'


def only_the_first(line: Callable[[int], str]) -> Callable[[int], str]:
    return lambda number: "" if number else line(number)


@dataclass(frozen=True)
class Format:
    """How a file is made of lines, how it is declared, and whether damage to a line can only cost that line."""

    extension: str
    line: Callable[[int], str]
    options: dict[str, Any] = field(default_factory=dict)
    head: str = ""
    alone: bool = True


FORMATS = {
    "timed": Format("nt", timed),
    "timed by time": Format("nt", timed, {"element": "time"}, alone=False),
    "timed by subject": Format("nt", timed, {"element": "subject"}, alone=False),
    "plain": Format("nt", plain, {"time": "x:at", "element": "line"}),
    "plain by subject": Format("nt", plain, {"time": "x:at"}, alone=False),
    "quads": Format("nq", quad, alone=False),
    "turtle": Format("ttl", only_the_first(turtle), {"time": "x:at"}, alone=False),
    "turtle lines": Format("ttl", turtle, {"time": "x:at", "element": "line"}),
    "trig": Format("trig", trig, {"time": "x:at"}, alone=False),
    "trig lines": Format("trig", trig, {"time": "x:at", "element": "line"}),
    "json-ld": Format("jsonld", only_the_first(json_ld), {"time": "x:at"}, alone=False),
    "json-ld lines": Format("jsonld", json_ld, {"time": "x:at", "element": "line"}),
    "csv": Format("csv", record, {"template": "lift.toml"}, head="id,at,value\n"),
    "csv by time": Format("csv", record, {"template": "lift.toml", "element": "time"}, "id,at,value\n", alone=False),
    "json": Format("jsonl", json, {"template": "lift.toml"}),
}
TOKENS = [
    *(bytes([code]) for code in (0, 9, 10, 13, 28, 34, 35, 39, 44, 46, 60, 62, 91, 92, 123, 125, 127, 133, 192, 255)),
    *(b"\\u00", b"\\uD800", b"\\ud83d", b"\\x", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"_:"),
    *(
        b"^^",
        b"@",
        b"--ltr",
        b"<<(",
        b")>>",
        b"9" * 25,
        b"9" * 5000,
        b"1e999",
        b"-",
        b"NaN",
        b"null",
        b"@prefix x: <y:> .",
    ),
    *(b"[" * 3000, b'{"a":' * 3000, b"( " * 3000, b"<<( <x:a> <x:p> " * 20_000, b" " * 20_000, b"_:1" + b"1" * 20_000),
    *(
        b"2026-02-30T00:00:00Z",
        b"0000-00-00T00:00:00Z",
        b"9999-12-31T23:59:59Z",
        b"<x:g>",
        b'"0"',
        b"\r\n",
        b'""',
        b'"""',
    ),
]


@dataclass(frozen=True)
class Damage:
    """Bytes of a line that are replaced."""

    line: int
    start: float
    length: int
    by: bytes

    def __call__(self, line: bytes) -> bytes:
        start = int(self.start * len(line))
        return line[:start] + self.by + line[start + self.length :]


damages = st.lists(
    st.builds(
        Damage,
        st.integers(0, SIZE - 1),
        st.floats(0, 1),
        st.sampled_from([0, 0, 1, 1, 3, 10, 1000]),
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=4)),
    ),
    min_size=1,
    max_size=2,
)


def damaged(format: Format, changes: list[Damage]) -> bytes:
    lines = [format.line(number).encode() for number in range(SIZE)]
    for change in changes:
        lines[change.line] = change(lines[change.line])
    return format.head.encode() + b"\n".join(lines) + b"\n"


# ---------------------------------------------------------------- the ways in


def read(declaration: StreamDeclaration) -> tuple[Elements, list[tuple[str, str, str]]]:
    """As terms, line by line: what the reference gets."""
    rejected: list[Rejected] = []
    elements = [(each.time, texts(each.triples)) for each in read_stream(declaration, rejected.append)]
    return elements, told(rejected)


def read_as_bytes(declaration: StreamDeclaration) -> tuple[Elements, list[tuple[str, str, str]]]:
    """As the embedded engine does."""
    terms, rejected = new_terms(), list[Rejected]()
    files = files_of(declaration.path)
    template = check_files(declaration, files)
    found = []
    for path in files:
        for batch in file_batches(declaration, path, template, 0, Intake(terms), rejected.append):
            found += elements_of(batch, terms)
    return found, told(rejected)


def read_on_spark(
    declaration: StreamDeclaration, folder: Path, *, strict: bool = False
) -> tuple[Elements, list[tuple[str, str, str]]]:
    """As Spark's workers do, in small pieces."""
    streams = [(0, declaration, (ALL,))]
    reader_text = prepared(streams, folder, batch_bytes=300, tasks=2, strict=strict).text()
    reader, rows = FileReader(reader_text), []
    offset = reader.initialOffset()
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        for task in reader.partitions(offset, end):
            rows += [row for batch in FileReader(reader_text).read(task) for row in batch.to_pylist()]
        offset = end
    return unpacked(rows)


def unpacked(rows: list[dict[str, Any]]) -> tuple[Elements, list[tuple[str, str, str]]]:
    terms, found = new_terms(), []
    for row in sorted(rows, key=lambda row: (row["position"], row["number"])):
        if row["kind"] == "block":
            found += elements_of(unpack(row["block"], terms.dictionary), terms)
    refused = [Rejected("", row["place"], row["reason"], row["text"]) for row in rows if row["kind"] == "rejected"]
    return found, told(refused)


def new_terms() -> Terms:
    return Terms(ArenaDictionary(Arena(size=1 << 28)))


def elements_of(batch: Any, terms: Terms) -> Elements:
    return [(time, texts(map(terms.decode, each) for each in triples)) for time, _, triples in batch.rows()]


def texts(triples: Any) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(str, triple)) for triple in triples)


def unnamed(elements: Iterable[tuple[int, tuple[tuple[str, ...], ...]]]) -> set[Any]:
    """Elements without the labels of their blank nodes, which may have the numbers of lines."""
    return {(time, re.sub(r"_:\w+", "_:", repr(triples))) for time, triples in elements}


def told(rejected: list[Rejected]) -> list[tuple[str, str, str]]:
    """What is rejected, in an order that does not depend on who reads; every sink can write it."""
    for each in rejected:
        assert each.reason
        "".join((each.place, each.reason, each.text)).encode()
    return sorted((each.place.rpartition("/")[2], each.reason, _begin(each.text)) for each in rejected)


def _begin(text: str) -> str:
    """The beginning of a text: Spark's rows have no more than a thousand characters, and labels of any length."""
    return re.sub(r"_:\w+", "_:", text[:900])[:100]


# ---------------------------------------------------------------- files


def check_file(name: str, changes: list[Damage]) -> None:
    """All ways to read a damaged file agree, and what is not damaged is there."""
    format = FORMATS[name]
    with TemporaryDirectory() as folder:
        (Path(folder) / "lift.toml").write_text(TEMPLATE)
        options = format.options | ({"template": f"{folder}/lift.toml"} if "template" in format.options else {})
        path = Path(folder) / f"data.{format.extension}"
        declaration = declare(STREAM, path, **options)
        path.write_bytes(damaged(format, []))
        whole, nothing = read(declaration)
        assert whole
        assert not nothing
        path.write_bytes(damaged(format, changes))
        elements, rejected = read(declaration)
        assert read_as_bytes(declaration) == (elements, rejected)
        assert read_on_spark(declaration, Path(folder) / "state") == (elements, rejected)
        if format.alone:
            untouched = set(range(len(whole))) - {change.line for change in changes}
            assert unnamed(whole[number] for number in untouched) <= unnamed(elements)
        if rejected:
            with pytest.raises(CqelsError):
                read_on_spark(declaration, Path(folder) / "strict", strict=True)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=12)
@given(changes=damages)
def test_damaged_bytes_cost_their_elements_alone(name: str, changes: list[Damage]) -> None:
    check_file(name, changes)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=MANY)
@given(changes=damages)
def test_many_damaged_bytes_cost_their_elements_alone(name: str, changes: list[Damage]) -> None:
    check_file(name, changes)


# ---------------------------------------------------------------- engines

QUERY = """
SELECT ?s (COUNT(*) AS ?n) (SUM(?o) AS ?sum) (MAX(STR(?o)) AS ?last) WHERE {
  STREAM <http://ex.org/s> [RANGE 5s] { ?s ?p ?o } FILTER(?o != 3 || STRLEN(STR(?o)) < 7) } GROUP BY ?s"""


def answered(replay: Callable[..., Iterator[Any]], declaration: StreamDeclaration, *, strict: bool = False) -> Any:
    rejected, tally = list[Rejected](), Tally()
    found = replay([prepare(QUERY)], [declaration], Store(), reject=rejected.append, tally=tally, strict=strict)
    results = [result for _, result in found]
    return results, told(rejected), (tally.elements, tally.rejected, tally.late)


def check_run(name: str, changes: list[Damage]) -> None:
    format = FORMATS[name]
    with TemporaryDirectory() as folder:
        (Path(folder) / "lift.toml").write_text(TEMPLATE)
        options = format.options | ({"template": f"{folder}/lift.toml"} if "template" in format.options else {})
        path = Path(folder) / f"data.{format.extension}"
        path.write_bytes(damaged(format, changes))
        declaration = declare(STREAM, path, **options)
        results, rejected, counts = answered(by_reference, declaration)
        assert answered(by_engine, declaration) == (results, rejected, counts)
        for replay in (by_reference, by_engine) if rejected else ():
            with pytest.raises(DataError):
                answered(replay, declaration, strict=True)


@settings(max_examples=40)
@given(name=st.sampled_from([*FORMATS]), changes=damages)
def test_damaged_bytes_end_no_run(name: str, changes: list[Damage]) -> None:
    check_run(name, changes)


@pytest.mark.fuzz
@settings(max_examples=MANY)
@given(name=st.sampled_from([*FORMATS]), changes=damages)
def test_many_damaged_bytes_end_no_run(name: str, changes: list[Damage]) -> None:
    check_run(name, changes)


# ---------------------------------------------------------------- rows of a source


def untimed(number: int) -> str:
    return timed(number).rsplit(" ", 2)[0] + " ."


def lifts(folder: Path) -> dict[str, tuple[Lift, Callable[[int], str]]]:
    template = folder / "lift.toml"
    template.write_text(TEMPLATE)
    return {
        "ntriples": (lift.ntriples(), timed),
        "ntriples by subject": (lift.ntriples(element="subject", time="x:at"), plain),
        "ntriples of the source": (lift.ntriples(time="source"), untimed),
        "nquads": (lift.nquads(), quad),
        "nquads of the source": (lift.nquads(time="source"), quad),
        "turtle": (lift.turtle(time="x:at"), turtle),
        "trig": (lift.trig(time="source"), trig),
        "jsonld": (lift.jsonld(time="x:at"), json_ld),
        "csv": (lift.csv(template, header=["id", "at", "value"]), record),
        "json": (lift.json(template, time="source"), json),
    }


def lifted(by: Lift, values: list[bytes], *, strict: bool = False) -> tuple[Elements, list[tuple[str, str, str]]]:
    lifting = pickle.loads(pickle.dumps(Lifting(STREAM, 0, by, (ALL,), strict=strict)))
    times = [datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC) for number in range(len(values))]
    columns = {"value": values, "place": ["topic-0"] * len(values), "position": [*range(len(values))]}
    batch = pyarrow.RecordBatch.from_pydict(columns | ({"time": times} if by.own_time else {}))
    return unpacked([row for made in lifting.blocks(iter([batch])) for row in made.to_pylist()])


def check_rows(change: Damage) -> None:
    """A damaged row costs its own elements alone."""
    with TemporaryDirectory() as folder:
        for name, (by, line) in lifts(Path(folder)).items():
            values = [line(number).encode() for number in range(SIZE)]
            whole, nothing = lifted(by, values)
            assert len(whole) == SIZE, name
            assert not nothing
            values[change.line] = change(values[change.line])
            elements, rejected = lifted(by, values)
            untouched = [element for number, element in enumerate(whole) if number != change.line]
            assert unnamed(untouched) <= unnamed(elements), name
            if rejected:
                with pytest.raises(DataError):
                    lifted(by, values, strict=True)


@settings(max_examples=15)
@given(changes=damages)
def test_damaged_rows_cost_their_elements_alone(changes: list[Damage]) -> None:
    check_rows(changes[0])


@pytest.mark.fuzz
@settings(max_examples=MANY)
@given(changes=damages)
def test_many_damaged_rows_cost_their_elements_alone(changes: list[Damage]) -> None:
    check_rows(changes[0])
