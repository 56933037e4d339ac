"""CSV files lifted as bytes give the elements, and the rejected records, that they give record by record."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import NamedNode

from cqels.ingest import Rejected, declare, lifted_batches
from cqels.ingest.encode import Intake
from cqels.ingest.file_batches import file_batches
from cqels.ingest.record_layout import csv_layout
from cqels.ingest.stream_files import read_file
from cqels.ingest.template_model import NodeTemplate, ObjectTemplate, Template, flat_template
from cqels.ingest.template_times import TimeTemplate
from cqels.ingest.template_values import DerivedValue, ValueMap
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import DataError
from cqels.model.terms import XSD

S = "http://ex.org/s"
EX = "http://ex.org/"
NAMES = ("a", "b", "c", "at")
Read = tuple[list[tuple[int, list[int]]], list[Rejected], str]


def predicates(*objects: ObjectTemplate) -> tuple[tuple[NamedNode, ObjectTemplate], ...]:
    return tuple((NamedNode(f"{EX}p{number}"), each) for number, each in enumerate(objects))


def outcome(read: Callable[[Callable[[Rejected], None]], list[tuple[int, list[int]]]]) -> Read:
    rejected: list[Rejected] = []
    try:
        return read(rejected.append), rejected, ""
    except (DataError, csv.Error) as error:
        return [], rejected, f"{type(error)} {error}"


def both(path: Path, template: Template, terms: Terms, **options: Any) -> tuple[Read, Read]:
    """What the file gives as bytes, and record by record, in the words of one dictionary."""
    declaration = declare(S, path, format="csv", template=path, **options)
    intake = Intake(terms)

    def as_bytes(reject: Callable[[Rejected], None]) -> list[tuple[int, list[int]]]:
        return [
            (time, [word for triple in triples for word in triple])
            for batch in file_batches(declaration, path, template, 0, intake, reject)
            for time, _, triples in batch.rows()
        ]

    def as_records(reject: Callable[[Rejected], None]) -> list[tuple[int, list[int]]]:
        return [
            (each.time, [word for triple in each.triples for word in terms.encode_all(triple)])
            for each in read_file(declaration, path, template, reject)
        ]

    return outcome(as_bytes), outcome(as_records)


@pytest.fixture(scope="module")
def terms() -> Terms:
    return Terms(ArenaDictionary(Arena(size=1 << 28)))


SUBJECTS = (
    f"{EX}trip/{{a}}",
    f"{EX}{{a}}/{{b}}?of={{a}}#{{c}}",
    f"{EX}%4{{a}}",
    f"{EX}all",
    "http://ex.org:80/{a}",
    "http://{a}/x",
    "x:{a}",
    "{a}",
    f"{EX}é/{{b}}",
    f"{EX}{{a}} {{b}}",
)
TYPES = ("integer", "decimal", "double", "float", "boolean", "dateTime", "date", "string", "long")
FORMATS = (
    *(None,) * 4,
    "%d/%m/%Y %H:%M",
    "%Y-%m-%d %H:%M:%S",
    "%Y%m%d",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M:%S%f",
    "%H:%M",
    "é %Y",
    "noon",
    "%Y-%m-%d %H:%M:%S%.f",
    "%d/%m/%Y %H:%M%.f",
)
objects = st.one_of(
    st.builds(
        ObjectTemplate,
        column=st.sampled_from(NAMES),
        datatype=st.sampled_from([None, *(NamedNode(XSD + name) for name in TYPES), NamedNode(f"{EX}type")]),
        language=st.sampled_from([None, None, None, "en", "EN-gb", "-"]),
    ),
    st.builds(ObjectTemplate, iri=st.sampled_from(SUBJECTS)),
    st.builds(
        ObjectTemplate,
        text=st.sampled_from(["{a}", "{a} {b}", 'the "{c}"\n\\{a}é', "always", "", "{a}{b}"]),
        datatype=st.sampled_from([None, NamedNode(XSD + "integer"), NamedNode(XSD + "double"), NamedNode(f"{EX}type")]),
    ),
)
nodes = st.builds(
    NodeTemplate,
    subject=st.sampled_from([*SUBJECTS[:2] * 3, *SUBJECTS, f"{EX}{{+a}}", None]),
    predicates=st.lists(objects, min_size=1, max_size=5).map(lambda each: predicates(*each)),
    needs=st.sampled_from([(), (), (), ("b",), ("a", "c")]),
    required=st.booleans(),
)
derived = st.builds(
    DerivedValue,
    name=st.just("b"),
    column=st.sampled_from(["a", "b"]),
    map=st.sampled_from([None, ValueMap({"7": "seven", "x": "a b", "true": "", "é": "é/é", "1.50": 'say "x"\n'})]),
    default=st.sampled_from([None, None, "none", 5, 2.5, True]),
)
templates = st.builds(
    lambda nodes, values, missing, form, delimiter: Template(
        tuple(nodes), TimeTemplate("at", () if form is None else (form,)), tuple(values), missing, delimiter
    ),
    values=st.lists(derived, max_size=1),
    missing=st.sampled_from([frozenset[str](), frozenset[str](), frozenset(["7", "x", "a,b", "1000"])]),
    nodes=st.lists(nodes, min_size=1, max_size=3),
    form=st.sampled_from(FORMATS),
    delimiter=st.sampled_from([None, None, ";", "\t", " ", "é"]),
)
times = st.sampled_from(
    [
        *("2013-01-01 00:00:00", "2013-01-01T00:00:00Z", "1000", "01/02/2013 10:30") * 3,
        *("2013-01-01t00:00:00z", "2013-01-01T00:00:00.25+01:00", " 5", "+7", "-8", "9" * 19, "9" * 50, "20130230"),
        *(
            "20130101",
            "2013-01-01 00:00:00.5",
            "2013-01-01 00:00:00.1234567",
            "2013-01-01 00:00:00.",
            "2013-13-01 00:00:00",
            "12:30",
            "1/2/2013 1:30",
            "é 2013",
            "",
            "soon",
        ),
        *("2013-01-01T24:00:00Z", "2013-01-01T10:00:60Z", "3000-01-01 00:00:00", "2013-01-01 00:00:00-00:00", "noon"),
    ]
)
values = st.one_of(
    st.sampled_from(
        [
            *("7", "-3", "007", "1.50", "-73.956528", "0.1", "1e5", "1.0E20", "NaN", "-0.0", "0.0", "true", "yes", "x"),
            *("2013-01-01 00:00:00", "2013-01-01T00:00:00Z", "2013-01-01T00:00:00.120", "9007199254740993.0"),
            *("", "", "", "a b", "a,b", 'say "x"', "line\nbreak", "é", "日本語", "\\n", "\t", "%41", "~._-/", "\x7f"),
            *("\0", "\ufffe", "\ufeff", "x" * 40, "x" * 20_000, "0.30000000000000004", "123456789.12345678", "\r"),
        ]
    ),
    st.text(max_size=5),
)


def quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def plain(value: str) -> str:
    return quoted(value) if set(value) & set('",;\t\r\n é') else value


fields = st.tuples(values, st.sampled_from([plain, plain, plain, quoted, str])).map(lambda each: each[1](each[0]))
stamps = st.tuples(times, st.sampled_from([plain, plain, quoted])).map(lambda each: each[1](each[0]))
rows = st.one_of(
    *(st.tuples(fields, fields, fields, stamps) for _ in range(6)),
    st.lists(fields, max_size=6).map(tuple),
)
noise = st.one_of(
    *(st.none() for _ in range(12)),
    st.sampled_from([b"", b"\r", b"\xff,1,2,1000", b'"', b'a"b,c', b'"a"b,1,2,3', b"a\rb", b"1,\xed\xa0\x80,2,1000"]),
)
ends = st.sampled_from(["\n", "\n", "\r\n", "\r\r\n"])
HEADERS = (*("a{0}b{0}c{0}at",) * 6, "\ufeffa{0}b{0}c{0}at", '"a"{0}"b"{0}c{0}at', "a{0}b{0}a{0}c{0}at", "a{0}b", "")


@given(
    template=templates,
    header=st.sampled_from(HEADERS),
    lines=st.lists(st.tuples(rows, ends, noise), max_size=25),
    ended=st.booleans(),
    piece=st.sampled_from([1, 60, 500, 1 << 20]),
    batch=st.sampled_from([1, 500, 1 << 20]),
    room=st.sampled_from([1, 3, 1000]),
    patience=st.sampled_from([0, 3, 100]),
)
def test_as_bytes_as_by_records(
    terms: Terms,
    template: Template,
    header: str,
    lines: list[tuple[tuple[str, ...], str, bytes | None]],
    ended: bool,
    piece: int,
    batch: int,
    room: int,
    patience: int,
) -> None:
    delimiter = template.delimiter or ","
    parts = [header.format(delimiter).encode() + b"\n"]
    for row, end, extra in lines:
        if extra is not None:
            parts.append(extra.replace(b",", delimiter.encode()) + end.encode())
        parts.append((delimiter.join(row) + end).encode("utf-8", "surrogatepass"))
    data = b"".join(parts)
    sizes = {"PIECE": piece, "BATCH": batch, "ROOM": room, "PATIENCE": patience, "PAUSE": 5}
    with TemporaryDirectory() as folder:
        path = Path(folder, "s.csv")
        path.write_bytes(data if ended else data.rstrip(b"\r\n"))
        with patch.multiple(lifted_batches, **sizes):
            found, expected = both(path, template, terms)
    assert found == expected


TRIP_SUBJECT = f"{EX}trip/{{a}}"
TRIP = flat_template(
    TRIP_SUBJECT,
    "at",
    predicates(ObjectTemplate(column="b"), ObjectTemplate(iri=f"{EX}taxi/{{c}}"), ObjectTemplate(iri=f"{EX}Trip")),
)


def test_most_records_never_reach_python(tmp_path: Path, terms: Terms) -> None:
    path = tmp_path / "s.csv"
    lines = [f'{number},"v, {number % 7}",{number % 3},2013-01-01 00:00:{number % 60:02}' for number in range(5000)]
    path.write_text("a,b,c,at\n" + "\r\n".join(lines))
    with patch.object(Template, "triples", autospec=True, side_effect=Template.triples) as triples:
        found, expected = both(path, TRIP, terms)
    assert found == expected
    assert (len(found[0]), found[1], triples.call_count) == (5000, [], 5000)  # which are those of the other way


def test_an_odd_record_costs_itself_only(tmp_path: Path, terms: Terms) -> None:
    lines = [f"{number},v,c,{number}" for number in range(100)]
    lines[10:12] = ['10,"two\nlines",c,10', "11,v,c"]
    lines[50] = "50,v,c,soon"
    lines[70] = '70,"say ""x""",c,70'
    path = tmp_path / "s.csv"
    path.write_text("a,b,c,at\n" + "\n".join(lines))
    (found, rejected, _), expected = both(path, TRIP, terms)
    assert (found, rejected, "") == expected
    assert [each.place.removeprefix(str(path)) for each in rejected] == [":14", ":53"]
    assert len(found) == 98


def test_times_that_the_kernel_does_not_read_are_read_once(tmp_path: Path, terms: Terms) -> None:
    template = flat_template(TRIP_SUBJECT, "at", TRIP.nodes[0].predicates, "%d %b %Y")
    path = tmp_path / "s.csv"
    path.write_text("a,b,c,at\n" + "".join(f"{number},v,c,{number % 9 + 1} Jan 2013\n" for number in range(900)))
    with patch.object(Template, "time", autospec=True, side_effect=Template.time) as time:
        declaration = declare(S, path, template=path)
        read = sum(map(len, file_batches(declaration, path, template, 0, Intake(terms), pytest.fail)))
    assert (read, time.call_count) == (900, 9)


@pytest.mark.parametrize("element", ["time", "subject"])
def test_elements_of_several_records(tmp_path: Path, terms: Terms, element: str) -> None:
    path = tmp_path / "s.csv"
    lines = [f"{number // 2},{number},c,{number // 5}" for number in range(300)]
    for faults in ((), (40,), (120, 121)):
        for fault in faults:
            lines[fault] = "odd"
        path.write_text("a,b,c,at\n" + "\n".join(lines))
        with patch.object(lifted_batches, "PIECE", 200):
            found, expected = both(path, TRIP, terms, element=element)
        assert found == expected


def test_what_the_kernel_does_not_take() -> None:
    def taken(template: Template, delimiter: str = ",") -> bool:
        return csv_layout(template, NAMES, delimiter, "ms") is not None

    language = predicates(
        ObjectTemplate(column="a", datatype=NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"))
    )
    assert taken(TRIP)
    assert not taken(TRIP, "é")
    assert not taken(TRIP, '"')
    assert not taken(flat_template(TRIP_SUBJECT, None, TRIP.nodes[0].predicates))
    assert not taken(flat_template("no IRI", "at", TRIP.nodes[0].predicates))
    assert not taken(flat_template(TRIP_SUBJECT, "at", language))
    assert not taken(flat_template(TRIP_SUBJECT, "at", predicates(ObjectTemplate(column="a", language="?"))))


@pytest.mark.parametrize("piece", [1, 50, 1 << 18])
def test_lines_that_begin_in_some_bytes(tmp_path: Path, terms: Terms, piece: int) -> None:
    path = tmp_path / "s.csv"
    lines = [f"{number},{'v' * (number % 90)},c,{number}\n".encode() for number in range(200)]
    path.write_bytes(b"a,b,c,at\n" + b"".join(lines).removesuffix(b"\n"))
    declaration, begin = declare(S, path, template=path), len(b"a,b,c,at\n") + len(b"".join(lines[:20]))

    def times(size: int) -> list[int]:
        with patch.object(lifted_batches, "PIECE", piece), path.open("rb") as file:
            file.seek(begin)
            given = (declaration, path, TRIP, file, 0, Intake(terms), pytest.fail)
            found = list(lifted_batches.lifted_batches(*given, header=list(NAMES), line=21, size=size))
        return [time // 1_000_000 for batch in found for time in batch.times.tolist()]

    assert times(0) == []
    assert times(1) == [20]
    assert times(len(b"".join(lines[20:60]))) == list(range(20, 60))
    assert times(len(b"".join(lines[20:60])) + 1) == list(range(20, 61))
    assert times(path.stat().st_size - begin) == times(1 << 40) == list(range(20, 200))


def test_a_full_arena_is_told(tmp_path: Path) -> None:
    terms = Terms(ArenaDictionary(Arena(size=1 << 16)))
    path = tmp_path / "s.csv"
    path.write_text("a,b,c,at\n" + "".join(f"{number},v,c,{number}\n" for number in range(9000)))
    with pytest.raises(MemoryError):
        both(path, TRIP, terms)
