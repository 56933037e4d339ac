"""Streams read from files: every format, what is rejected and why, and what is refused at once."""

import gzip
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.ingest import Element, Rejected, declare, merge, read_stream
from cqels.ingest.timed_lines import parse_statements
from cqels.model.errors import DataError
from cqels.model.time import MILLISECOND, SECOND

S = "http://ex.org/s"
PROV = "<http://www.w3.org/ns/prov#generatedAtTime>"
SUITES = Path(__file__).resolve().parents[2].parent / "shared" / "suites"


class Reading:
    """Writes a file and reads it as a stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rejected: list[Rejected] = []

    def __call__(self, name: str, content: str | bytes, **options: Any) -> list[Element]:
        path = self.folder / name
        data = content.encode() if isinstance(content, str) else content
        if name.endswith(".zst"):
            pyarrow = pytest.importorskip("pyarrow")
            data = pyarrow.compress(data, "zstd", asbytes=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return list(read_stream(declare(S, path, **options), self.rejected.append))

    @property
    def reasons(self) -> list[str]:
        return [str(item).removeprefix(str(self.folder)).lstrip("/") for item in self.rejected]


@pytest.fixture
def read(tmp_path: Path) -> Reading:
    return Reading(tmp_path)


def shape(elements: list[Element]) -> list[tuple[int, int]]:
    """Seconds and number of triples of each element."""
    return [(element.time // SECOND, len(element.triples)) for element in elements]


TIMED = """\
<x:a> <x:p> "1" "0" .
<x:a> <x:p> "2" "0"
<x:b> <x:p> "3" "0"^^<http://www.w3.org/2001/XMLSchema#integer> . # comment

# comment
<x:b> <x:p> "4" 1000 .
<x:b> <x:p> "5" "1970-01-01T00:00:01Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> .
"""


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        (None, [(0, 1), (0, 1), (0, 1), (1, 1), (1, 1)]),
        ("line", [(0, 1), (0, 1), (0, 1), (1, 1), (1, 1)]),
        ("time", [(0, 3), (1, 2)]),
        ("subject", [(0, 2), (0, 1), (1, 2)]),
    ],
)
@pytest.mark.parametrize("name", ["s.nt", "s.nq", "s.n3t", "s.nt.gz", "s.nt.zst"])
def test_timed_ntriples(read: Reading, name: str, element: str | None, expected: list[tuple[int, int]]) -> None:
    assert shape(read(name, TIMED, element=element)) == expected
    assert read.reasons == []


def test_unit(read: Reading) -> None:
    (element,) = read("s.nt", '<x:a> <x:p> <x:b> "-2" .', unit="ns")
    assert element == Element(S, -2, ((NamedNode("x:a"), NamedNode("x:p"), NamedNode("x:b")),))


def test_a_line_may_hold_several_triples(read: Reading) -> None:
    lines = '<x:a> <x:p> "1" . <x:b> <x:p> "2" . "1000" .\n<x:a> <x:p> "1" "2000" . <x:b> <x:p> "2" "2000" .\n'
    assert shape(read("s.nt", lines, element="line")) == [(1, 2), (2, 2)]


def test_terms() -> None:
    line = r'_:a.b <x:\u00e9> "tab\t\"q\" \\ é"@en-GB <x:g> . <x:s><x:p>"1"^^<x:t>_:g.'
    (first, graph), (second, blank) = parse_statements(line, "f_")
    assert first == (BlankNode("f_a.b"), NamedNode("x:é"), Literal('tab\t"q" \\ é', language="en-GB"))
    assert graph == NamedNode("x:g")
    assert second == (NamedNode("x:s"), NamedNode("x:p"), Literal("1", datatype=NamedNode("x:t")))
    assert blank == BlankNode("f_g")


def test_blank_nodes_belong_to_their_file(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    read("d/1.nt", '_:x <x:p> "1" "0" .\n_:x <x:p> "2" "1000" .\n')
    read("d/2.nt", '_:x <x:p> "3" "2000" .\n')
    first, second, third = read_stream(declare(S, tmp_path / "d"), read.rejected.append)
    assert first.triples[0][0] == second.triples[0][0] != third.triples[0][0]


def test_malformed_lines_are_rejected_and_reading_goes_on(read: Reading) -> None:
    lines = [
        '<x:a> <x:p> "1" "0" .',
        '<x:a> "p" "1" "0" .',
        '<x:a> <x:p> "1 "0" .',
        '<x:a> <x:p> "1" .',
        '<x:a> <x:p> "1" "soon" .',
        '<x:a> <x:p> "1" <x:g> .',
        '<a> <x:p> "1" "0" .',
        '<x:a> <x:p> "1" "0" . <x:a> <x:p> "1" "1" .',
        '"0" .',
        '<x:a> <x:p> "\\q" "0" .',
    ]
    content = "\n".join(lines).encode() + b'\n<x:a> <x:p> "\xff" "0" .\n<x:a> <x:p> "1" "1000" .\n'
    assert shape(read("s.nt", content)) == [(0, 1), (1, 1)]
    assert read.reasons == [
        "s.nt:2: expected a predicate, which is an IRI, at column 7",
        "s.nt:3: expected the end of the statement, at column 17",
        "s.nt:4: the line has no timestamp",
        's.nt:5: the timestamp "soon" is neither a dateTime nor an integer',
        "s.nt:6: the fourth term is a graph, where the lines before have a time",
        "s.nt:7: no scheme found in an absolute IRI",
        "s.nt:8: the line has two timestamps",
        "s.nt:9: the line has no triple",
        "s.nt:10: unexpected escape character '\\q'",
        "s.nt:11: the text is not UTF-8",
    ]


def test_a_malformed_line_costs_the_elements_it_may_belong_to(read: Reading) -> None:
    lines = [f'<x:a> <x:p> "{n}" "{time}000" .' for time in range(5) for n in range(2)]
    within = [*lines[:3], "?", *lines[3:]]
    assert shape(read("s.nt", "\n".join(within), element="time")) == [(0, 2), (2, 2), (3, 2), (4, 2)]
    between = [*lines[:4], "?", *lines[4:]]
    assert shape(read("s.nt", "\n".join(between), element="time")) == [(0, 2), (3, 2), (4, 2)]
    assert shape(read("s.nt", "\n".join([*lines, "?"]), element="time")) == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert [item.text for item in read.rejected[:2]] == ["?", "\n".join(lines[2:4])]


def test_plain_ntriples_with_a_time_predicate(read: Reading) -> None:
    plain = '<x:a> <x:p> "1" .\n<x:a> <x:t> "1000" .\n<x:b> <x:t> "2000" .\n<x:b> <x:p> "1" .\n<x:c> <x:p> "1" .\n'
    assert shape(read("s.nt", plain, time="x:t")) == [(1, 2), (2, 2)]
    assert read.reasons == ["s.nt:5: the element has no timestamp"]
    read.rejected.clear()
    assert shape(read("s.nt", '<x:a> <x:p> "1" . <x:b> <x:t> "1000" .\n' + plain, time="x:t", element="line")) == [
        (1, 2),
        (1, 1),
        (2, 1),
    ]
    assert len(read.rejected) == 3


def test_quads_are_elements_by_graph(read: Reading) -> None:
    quads = [
        f'<x:g1> {PROV} "1000" .',  # before the graph
        '<x:a> <x:p> "1" <x:g1> .',
        '<x:b> <x:p> "1" <x:g1> .',
        '<x:a> <x:p> "2" _:g2 .',
        f'_:g2 {PROV} "2000" .',  # directly after it
        f'<x:g3> {PROV} "3000" <x:g3> .',  # in the graph itself
        '<x:a> <x:p> "3" <x:g3> .',
        '<x:a> <x:p> "4" <x:g4> .',  # nowhere
        '<x:a> <x:p> "5" .',  # in no graph
        f'<x:g9> {PROV} "9000" .',
        f'<x:g3> {PROV} "4000" .',  # a graph may come again
        '<x:a> <x:p> "6" <x:g3> .',
    ]
    assert shape(read("s.nq", "\n".join(quads))) == [(1, 2), (2, 1), (3, 2), (4, 1)]
    assert read.reasons == [
        f"s.nq:9: the statement is in no graph and is not the {PROV} of one",
        "s.nq:8: the element has no timestamp",
        "s.nq:10: the graph of this timestamp does not follow",
    ]


def test_quads_with_a_declared_predicate(read: Reading) -> None:
    quads = [
        '<x:a> <x:p> "1" <x:g1> .',
        '<x:a> <x:t> "1000" <x:g1> .',
        '<x:a> <x:t> "2000" <x:g2> .',
        "?",
        '<x:b> <x:t> "3000" <x:g3> .',
    ]
    assert shape(read("s.nq", "\n".join(quads), time="x:t")) == [(1, 2)]
    assert len(read.rejected) == 3  # the line, and the graphs on both sides of it


def test_trig(read: Reading) -> None:
    text = f"""@prefix x: <x:> .
    x:g1 {PROV} "1000" .  x:g1 {{ x:a x:p _:n . _:n x:p 2 }}
    x:g2 {{ x:a x:p _:n . x:g2 {PROV} "2000" }}"""
    first, second = read("s.trig", text)
    assert shape([first, second]) == [(1, 2), (2, 2)]
    assert first.triples[0][2] == first.triples[1][0] == second.triples[0][2]


def test_trig_is_read_up_to_a_fault(read: Reading) -> None:
    graphs = [f'<x:g{n}> {{ <x:a> <x:p> {n} . <x:g{n}> {PROV} "{n}000" }}' for n in range(4)]
    graphs[2] = graphs[2].replace(" . ", " . y:a <x:p> 1 . ")
    assert shape(read("s.trig", "\n".join(graphs))) == [(0, 2), (1, 2)]
    assert read.reasons == [
        "s.trig:3: the prefix y: has not been declared; the rest of the file cannot be read",
        "s.trig: the element has a malformed part or is next to one",
    ]


def test_turtle_documents_and_lines(read: Reading, tmp_path: Path) -> None:
    document = '@prefix : <x:> .\n:a :p [ :q 1 ] ;\n :t "1000" .'
    assert shape(read("s.ttl", document, time="x:t")) == [(1, 3)]
    lines = "@prefix : <x:> .\n# comment\n:a :p [] ; :t 1000 .\n:a :p y:b .\n:a :p 1 .\n:a :p _:b ; :t 2000 .\n"
    first, second = read("lines.ttl", lines, time="x:t", element="line")
    assert shape([first, second]) == [(1, 2), (2, 2)]
    assert first.triples[0][2] != second.triples[0][2]
    assert read.reasons == [
        "lines.ttl:4: the prefix y: has not been declared",
        "lines.ttl:5: the element has no timestamp",
    ]
    again = list(read_stream(declare(S, tmp_path / "lines.ttl", time="x:t", element="line"), read.rejected.append))
    assert again == [first, second]  # blank nodes are named the same in every run


DAY = """\
@prefix : <x:> .
:o1 :at "1000" ; :value [ :of 21.5 ; :unit _:u ] .
_:u :name "degrees" .
:o2 :at 2000 ; :value 22 ; :unit _:u .
:o3 :value 1 .
:o4 :at 4000 ; :after [ :at 3000 ; :value 5 ] .
:o2 :room :kitchen .
:o5 :at "noon" .
"""


def test_turtle_of_many_timed_subjects(read: Reading) -> None:
    elements = read("s.ttl", DAY, time="x:at", element="subject")
    assert shape(elements) == [(1, 5), (2, 5), (4, 2), (3, 2)]
    first, second, *_ = ({str(predicate) for _, predicate, _ in each.triples} for each in elements)
    assert first == {"<x:at>", "<x:value>", "<x:of>", "<x:unit>", "<x:name>"}
    assert second == {"<x:at>", "<x:value>", "<x:unit>", "<x:name>", "<x:room>"}
    assert sorted(read.reasons) == [
        "s.ttl: the subject <x:o3> has no timestamp",
        's.ttl: the timestamp "noon" is neither a dateTime nor an integer',
    ]
    read.rejected.clear()
    two = '[{"@id": "x:a", "x:at": "1000"}, {"@id": "x:b", "x:at": "2000"}]'
    assert shape(read("s.jsonld", two, time="x:at", element="subject")) == [(1, 1), (2, 1)]
    assert not read.rejected


def test_turtle_of_many_subjects_is_read_up_to_a_fault(read: Reading) -> None:
    elements = read("s.ttl", DAY + ":o6 :at 6000 . :o7 :at 7000 ; nonsense", time="x:at", element="subject")
    assert shape(elements)[-1] == (6, 1)
    assert [reason.partition(": ")[0] for reason in read.reasons] == ["s.ttl", "s.ttl", "s.ttl", "s.ttl:9"]
    assert "the rest of the file cannot be read" in read.reasons[-1]


@pytest.mark.parametrize("name", ["s.n3", "s.data", "s", "s.n3.gz"])
@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        (TIMED, {}, [(0, 1), (0, 1), (0, 1), (1, 1), (1, 1)]),
        ("<x:a> <x:p> 21.5 1000 .\n", {}, [(1, 1)]),
        (f'<x:a> <x:p> <x:b> <x:g> .\n<x:g> {PROV} "3000" <x:g> .\n', {}, [(3, 2)]),
        ("@prefix : <x:> .\n:a :at 2000 ; :p :b .\n", {"time": "x:at"}, [(2, 2)]),
        ("# a comment\n<x:a> <x:at> 2000 .\n", {"time": "x:at"}, [(2, 1)]),
        ("@prefix : <x:> .\n:g { :a :at 2000 }\n", {"time": "x:at"}, [(2, 1)]),
        ('{"@id": "x:a", "x:at": "2000"}', {"time": "x:at"}, [(2, 1)]),
    ],
)
def test_content_tells_what_a_name_does_not(
    read: Reading, name: str, content: str, options: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    assert shape(read(name, content, **options)) == expected
    assert not read.rejected


def test_records_are_known_by_content(read: Reading, tmp_path: Path) -> None:
    template = tmp_path / "lift.toml"
    template.write_text('subject = "x:{id}"\n[time]\ncolumn = "at"\n[predicates]\n"x:v" = "v"\n')
    assert shape(read("a.txt", "id,at,v\n1,1000,a\n", template=template)) == [(1, 1)]
    assert shape(read("b.txt", '{"id": 1, "at": 1000, "v": 2}\n', template=template)) == [(1, 1)]


def test_lines_may_have_numbers_and_other_terms_of_turtle(read: Reading) -> None:
    lines = [
        "<x:a> <x:p> 21.5 1000 .",
        "<x:a> <x:p> -1e3 2000 .",
        "<x:a> <x:p> true 3000",
        "<x:a> <x:p> 'x', 7 ; a <x:T> 4000 .",
        '@prefix e: <x:> . e:a e:p e:b "1970-01-01T00:00:05Z" .',
        "<x:a> <x:p> 6000 .",
        "<x:a> <x:p> [] 7000 .",
    ]
    elements = read("s.nt", "\n".join(lines))
    assert shape(elements) == [(1, 1), (2, 1), (3, 1), (4, 3), (5, 1)]
    assert [str(each.triples[0][2]).rpartition("#")[2] for each in elements[:3]] == ["decimal>", "double>", "boolean>"]
    assert read.reasons == [
        "s.nt:6: the line has no timestamp",
        "s.nt:7: expected an object, which is an IRI, a blank node or a literal, at column 13",
    ]
    assert shape(read("t.nt", "<x:a> <x:p> 21.5 .\n<x:a> <x:at> 2000 .\n", time="x:at")) == [(2, 2)]


def test_json_ld(read: Reading) -> None:
    document = '{"@id": "x:a", "x:p": 1, "x:t": "1000"}'
    assert shape(read("s.jsonld", document, time="x:t")) == [(1, 2)]
    assert shape(read("s.jsonld", f'{document}\n{{"a":\n{document}\n', time="x:t", element="line")) == [(1, 2), (1, 2)]
    assert read.reasons == ["s.jsonld:2: unexpected end of file, a value was expected"]
    graph = '{"@id": "x:g", "@graph": [{"@id": "x:a", "x:p": 1}], "http://www.w3.org/ns/prov#generatedAtTime": "1000"}'
    assert shape(read("g.jsonld", graph, element="graph")) == [(1, 1)]


TEMPLATE = """
subject = "ex:trip/{id}"
[prefixes]
ex = "http://ex.org/"
[time]
column = "pickup"
[predicates]
a = { iri = "ex:Trip" }
"ex:fare" = { column = "fare", datatype = "xsd:decimal" }
"ex:driver" = { iri = "http://ex.org/driver/{driver}" }
"ex:label" = { text = "trip {id}", language = "en" }
"""


def test_csv_is_lifted(read: Reading, tmp_path: Path) -> None:
    template = tmp_path / "trip.toml"
    template.write_text(TEMPLATE)
    rows = (
        "id,pickup,fare,driver",
        '1,2013-01-01 00:00:00,2.50,"A, B"',
        "2,1000,,",
        "3,1000",
        ",1000,1,1",
        "4,soon,1,1",
    )
    first, second = read("s.csv", "\r\n".join(rows), template=str(template))
    ex = "http://ex.org/"
    assert [(str(p).removeprefix(f"<{ex}"), o) for _, p, o in first.triples[1:]] == [
        ("fare>", Literal("2.50", datatype=NamedNode("http://www.w3.org/2001/XMLSchema#decimal"))),
        ("driver>", NamedNode(ex + "driver/A%2C%20B")),
        ("label>", Literal("trip 1", language="en")),
    ]
    assert first.triples[0][0] == NamedNode(ex + "trip/1")
    assert shape([second]) == [(1, 2)]
    assert read.reasons == [
        "s.csv:4: the record has 2 columns, the header has 4",
        "s.csv:5: the record has no value for the subject",
        "s.csv:6: the timestamp 'soon' is neither a dateTime nor an integer",
    ]
    with pytest.raises(DataError, match="the file has no column 'driver'"):
        read("t.csv", "id,pickup,fare\n", template=template)


def test_json_lines_are_lifted(read: Reading, tmp_path: Path) -> None:
    template = tmp_path / "trip.toml"
    template.write_text(
        'subject = "x:{id}"\n[time]\ncolumn = "at.day"\nformat = "%d/%m/%Y"\n[predicates]\n"x:p" = "v"\n"x:q" = "w"\n'
    )
    lines = '{"id": 1, "at": {"day": "02/01/1970"}, "v": true, "w": 1.5}\n[]\n{"id": 2\n{"id": 2, "at": {"day": "1"}}\n'
    (element,) = read("s.jsonl", lines, template=template)
    assert element.time == 86_400 * SECOND
    assert [str(o) for _, _, o in element.triples] == [
        '"true"^^<http://www.w3.org/2001/XMLSchema#boolean>',
        '"1.5"^^<http://www.w3.org/2001/XMLSchema#double>',
    ]
    assert len(read.rejected) == 3


def test_parquet_is_lifted(read: Reading, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    template = tmp_path / "trip.toml"
    names = ("whole", "part", "exact", "text", "yes", "at", "day", "place.city")
    template.write_text(
        'subject = "x:{id}"\n[time]\ncolumn = "at"\n[predicates]\n' + "".join(f'"x:{n}" = "{n}"\n' for n in names)
    )
    at = datetime(1970, 1, 1, 0, 0, 1, 500)
    row = {
        "id": 1,
        "whole": 7,
        "part": float("inf"),
        "exact": Decimal("1.50"),
        "text": "t",
        "yes": True,
        "at": at,
        "day": at.date(),
        "place": {"city": "Graz", "code": [8010]},
    }
    path = tmp_path / "s.parquet"
    rows = [row, row | {"id": 2, "at": None}, row | {"id": 3, "place": None, "text": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    first, last = read_stream(declare(S, path, template=template), read.rejected.append)
    assert first.time == last.time == SECOND + 500_000
    assert [str(o).partition("^^<http://www.w3.org/2001/XMLSchema#") for _, _, o in first.triples] == [
        ('"7"', "^^<http://www.w3.org/2001/XMLSchema#", "integer>"),
        ('"INF"', "^^<http://www.w3.org/2001/XMLSchema#", "double>"),
        ('"1.50"', "^^<http://www.w3.org/2001/XMLSchema#", "decimal>"),
        ('"t"', "", ""),
        ('"true"', "^^<http://www.w3.org/2001/XMLSchema#", "boolean>"),
        ('"1970-01-01T00:00:01.0005Z"', "^^<http://www.w3.org/2001/XMLSchema#", "dateTime>"),
        ('"1970-01-01"', "^^<http://www.w3.org/2001/XMLSchema#", "date>"),
        ('"Graz"', "", ""),
    ]
    assert len(last.triples) == 6
    assert read.reasons == ["s.parquet:2: the record has no timestamp"]
    template.write_text(template.read_text().replace("place.city", "place"))
    assert not list(read_stream(declare(S, path, template=template), read.rejected.append))
    assert read.reasons[1] == "s.parquet:1: column 'place' is not a single value"
    template.write_text(template.read_text().replace('"place"', '"city"'))
    with pytest.raises(DataError, match="has no column 'city'"):
        list(read_stream(declare(S, path, template=template), read.rejected.append))
    path.write_bytes(b"not Parquet")
    with pytest.raises(DataError, match="the file is not Parquet"):
        list(read_stream(declare(S, path, template=template), read.rejected.append))


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("s.ttl", "", {}, "stream <http://ex.org/s> has no time"),
        ("s.jsonld", "{}", {"element": "line"}, "has no time"),
        ("s.csv", "", {}, "nothing says how the records"),
        ("s.parquet", "", {}, "nothing says how the records"),
        ("s.txt", "", {}, "extension does not tell its format"),
        ("s.ttl", "", {"element": "time", "time": "x:t"}, "element=time does not fit the format turtle"),
        ("s.nt", "<x:a> <x:p> <x:b> .", {}, "a triple without a timestamp"),
        ("s.nt", '<x:a> <x:p> <x:b> "0" .', {"time": "x:t"}, "the lines end with their time"),
        ("s.nq", "<x:a> <x:p> <x:b> <x:g> .", {"element": "time"}, "element=time does not fit N-Quads"),
        ("s.nt", "<x:a> <x:p> <x:b> .", {"element": "time", "time": "x:t"}, "element=time needs lines"),
    ],
)
def test_declarations_that_give_no_element_are_refused(
    read: Reading, name: str, content: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(name, content, **options)
    assert caught.value.hint


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file at"):
        read_stream(declare(S, tmp_path / "none.nt"), lambda _: None)
    broken = tmp_path / "s.nt.gz"
    broken.write_bytes(b"not gzip")
    with pytest.raises(DataError, match="the file cannot be read"):
        list(read_stream(declare(S, broken), lambda _: None))


def test_a_file_that_is_cut_off_is_read_up_to_there(read: Reading) -> None:
    lines = [f'<x:s{number}> <x:p> "{number * 7919 % 2999}" {number} .\n' for number in range(3000)]
    whole = gzip.compress("".join(lines).encode())
    (read.folder / "a.nt.gz").write_bytes(whole[:-5000])
    (read.folder / "b.nt").write_text('<x:a> <x:p> "1" 5000 .\n')
    declaration = declare(S, read.folder)
    elements = list(read_stream(declaration, read.rejected.append))
    assert 500 < len(elements) < 3000
    assert [int(str(each.triples[0][0])[4:-1]) for each in elements[:-1]] == [*range(len(elements) - 1)]
    assert elements[-1].time == 5 * SECOND
    (reason,) = read.reasons
    assert reason.startswith("a.nt.gz: the file cannot be read: ")


def test_a_file_of_another_kind_costs_no_other(read: Reading) -> None:
    """The first line of `a` has a graph by mistake; `b` is N-Quads, which are not what is declared."""
    (read.folder / "a.nt").write_text("<x:s> <x:p> <x:o> <x:g> .\n" + TIMED)
    (read.folder / "b.nt").write_text("<x:s> <x:p> <x:o> <x:g> .\n" * 9)
    (read.folder / "c.nt").write_text("<x:s> <x:p> <x:o> .\n<x:s> <x:p> <x:o> 7000 .\n")
    elements = list(read_stream(declare(S, read.folder, element="line"), read.rejected.append))
    assert shape(elements) == [(0, 1), (0, 1), (0, 1), (1, 1), (1, 1), (7, 1)]
    assert read.reasons == [
        "a.nt:1: the fourth term is a graph, where the lines before have a time",
        "b.nt: element=line does not fit N-Quads; write element=graph, or leave it out",
        "c.nt:1: the line has no timestamp",
    ]


def test_a_quote_that_is_not_closed_costs_its_line(read: Reading, tmp_path: Path) -> None:
    template = tmp_path / "lift.toml"
    template.write_text('subject = "x:{id}"\n[time]\ncolumn = "at"\n[predicates]\n"x:v" = "v"\n')
    content = 'id,at,v\n1,1000,"a\n2,2000,"b"\n3,3000,"two\nlines"\n4,4000,"\n5,5000,c\n'
    assert shape(read("s.csv", content, template=template)) == [(2, 1), (3, 1), (5, 1)]
    assert [reason.partition(": the record is not CSV")[0] for reason in read.reasons] == ["s.csv:2", "s.csv:6"]


def test_what_would_end_the_parser_is_rejected(read: Reading) -> None:
    deep = "<x:a> <x:p> " + "<<( <x:a> <x:p> " * 30_000 + "1" + " )>>" * 30_000 + " ."
    assert read("s.ttl", f"{deep}\n<x:a> <x:at> 1000 .", element="line", time="x:at")
    read("s.trig", f"<x:g> {{ {deep} }}", time="x:at")
    nested = "a triple inside a triple is not part of RDF 1.1"
    assert read.reasons == [f"s.ttl:1: {nested}", f"s.trig: {nested}; the rest of the file cannot be read"]
    harmless = " ".join(f"'<<( {number}'," for number in range(2000)) + ' """<<"""'
    assert read("t.ttl", f"<x:a> <x:at> 1000 ; <x:p> {harmless} .", time="x:at")


def test_what_is_too_deep_or_too_long_for_the_parser_costs_its_element(read: Reading) -> None:
    """The first ended the process with a signal, the second the run with a MemoryError."""
    plain = '{"@id": "x:a", "x:at": 1000}'
    deep = '{"x:p":' * 5_000 + "1" + "}" * 5_000
    assert shape(read("l.jsonld", f"{deep}\n{plain}\n", element="line", time="x:at")) == [(1, 1)]
    assert not read("d.jsonld", deep, time="x:at")
    assert not read("s.jsonld", deep, time="x:at", element="subject")
    wide = "[" + ",".join(['{"x:q": "[[{"}'] * 2_000) + "]"
    assert shape(read("w.jsonld", f'{{"@id": "x:a", "x:at": 1000, "x:p": {wide}}}', time="x:at")) == [(1, 4001)]
    long = '"\\u0041' + "x" * (1 << 24) + '"'
    assert shape(read("l.nt", f'<x:a> <x:p> {long} 1 .\n<x:a> <x:p> "b" 2000 .\n')) == [(2, 1)]
    assert not read("d.ttl", f"<x:a> <x:at> 1000 ; <x:p> {long} .", time="x:at")
    nested, large = "it is nested too deeply", "a term or a statement has more than 16 MB"
    assert read.reasons == [
        f"l.jsonld:1: {nested}",
        f"d.jsonld: {nested}",
        f"s.jsonld: {nested}; the rest of the file cannot be read",
        f"l.nt:1: {large}",
        f"d.ttl: {large}",
    ]


def test_a_time_that_does_not_fit_is_told_as_that(read: Reading) -> None:
    date_time = '"{}"^^<http://www.w3.org/2001/XMLSchema#dateTime>'
    times = (date_time.format("2300-01-01T00:00:00Z"), "9" * 300, date_time.format("2020-02-30T00:00:00Z"), "1000")
    assert shape(read("s.nt", "".join(f"<x:a> <x:p> <x:b> {time} .\n" for time in times))) == [(1, 1)]
    first, second, third = read.reasons
    assert "2300-01-01T00:00:00Z" in first
    assert "not between the years 1677 and 2262" in first
    assert "not between the years 1677 and 2262" in second
    assert len(second) < 250
    assert third == "s.nt:3: '2020-02-30T00:00:00Z' is not a day of the calendar"


def test_a_column_that_is_there_twice_is_refused_if_it_is_used(read: Reading, tmp_path: Path) -> None:
    template = tmp_path / "lift.toml"
    template.write_text('subject = "x:{id}"\n[time]\ncolumn = "at"\n[predicates]\n"x:v" = "v"\n')
    assert read("s.csv", "id,at,v,w,w\n1,1000,a,b,c\n", template=template)
    with pytest.raises(DataError, match="the file has two columns 'v'"):
        read("t.csv", "id,at,v,v\n1,1000,a,b\n", template=template)
    with pytest.raises(DataError, match="it has no header"):
        read("u.csv", "", template=template)
    assert not read("s.jsonl", '{"id": 1, "at": 1000, "v": NaN}\n{"id": ' + "9" * 5_000 + "}\n", template=template)
    assert [reason.partition("JSON: ")[2] for reason in read.reasons] == [
        "the value NaN is not one of JSON",
        "a number has too many digits",
    ]


def test_a_long_line_costs_its_length(read: Reading) -> None:
    """Each of these took the square of its length."""
    for middle in (
        "_:" + "1" * 200_000 + "@",
        " " * 200_000 + "@",
        '"a"@a-' + "1" * 200_000 + "@",
        "1^^" + "1" * 200_000 + "@",
    ):
        assert not read("s.nt", f"<x:a> <x:p> {middle} .\n")
    assert len(read.reasons) == 4


def test_a_byte_order_mark_is_no_part_of_a_document(read: Reading) -> None:
    turtle = b"\xef\xbb\xbf<x:a> <x:at> 1000 ."
    assert read("s.ttl", turtle, time="x:at")
    assert read("t.ttl", turtle, time="x:at", element="line")
    assert read("s.trig", b"\xef\xbb\xbf<x:g> { <x:a> <x:at> 1000 }", time="x:at")


def test_names_of_files_need_not_be_utf8(read: Reading) -> None:
    elements = read("s\udcff.nt", '_:b <x:p> "1" 1000 .\nnonsense\n')
    assert shape(elements) == [(1, 1)]
    assert read.rejected[0].place.endswith("s\\xff.nt:2")


def test_globs_and_directories_are_read_in_order_and_lazily(read: Reading, tmp_path: Path) -> None:
    for number in (2, 0, 1):
        read(f"{number}.nt", f'<x:a> <x:p> "1" "{number}000" .\n')
    assert shape(list(read_stream(declare(S, tmp_path / "*.nt"), read.rejected.append))) == [(0, 1), (1, 1), (2, 1)]
    elements = read_stream(declare(S, tmp_path), read.rejected.append)
    next(elements)
    (tmp_path / "1.nt").write_text('<x:a> <x:p> "1" "7000" .\n')
    assert shape(list(elements)) == [(2, 1), (7, 1)]


def test_merge_keeps_each_streams_order() -> None:
    def stream(name: str, *times: int) -> Iterator[Element]:
        return iter([Element(name, time, ()) for time in times])

    merged = merge([stream("b", 1, 5, 2), stream("a", 1, 3, 6), stream("c")])
    assert [(e.stream, e.time) for e in merged] == [("b", 1), ("a", 1), ("a", 3), ("b", 5), ("b", 2), ("a", 6)]


def test_csrbench() -> None:
    path = SUITES / "csrbench" / "stream.n3t"
    if not path.exists():
        pytest.skip("the suites are not here")
    rejected: list[Rejected] = []
    lines = list(read_stream(declare(S, path), rejected.append))
    seconds = list(read_stream(declare(S, path, element="time"), rejected.append))
    assert (len(lines), rejected) == (15_188, [])
    assert [triple for element in seconds for triple in element.triples] == [e.triples[0] for e in lines]
    floats = [o for e in lines for _, p, o in e.triples if p.value.endswith("#floatValue")]
    assert {str(o).partition("^^")[2] for o in floats} == {"<http://www.w3.org/2001/XMLSchema#float>"}
    assert (seconds[0].time, len(seconds[0].triples), seconds[1].time) == (0, 226, SECOND)


def test_dahcc() -> None:
    path = SUITES / "dahcc" / "participant1.ttl"
    if not path.exists():
        pytest.skip("the suites are not here")
    rejected: list[Rejected] = []
    time = "<https://saref.etsi.org/core/hasTimestamp>"
    turtle = list(read_stream(declare(S, path, element="line", time=time), rejected.append))
    ntriples = list(read_stream(declare(S, path, element="line", time=time, format="nt"), rejected.append))
    assert rejected == []
    assert turtle == ntriples
    assert {len(element.triples) for element in turtle} == {6}
    assert turtle[1].time - turtle[0].time == 16 * MILLISECOND


def test_nodes_without_labels_are_the_same_at_each_reading(read: Reading) -> None:
    """The parser names them at random; what is read again, after a crash say, must give the same results."""
    text = "".join(
        f'<x:g{n}> {{ <x:a> <x:p> [ <x:q> ( {n} _:x ) ] . }} <x:g{n}> {PROV} "1970-01-01T00:00:0{n}Z"^^'
        "<http://www.w3.org/2001/XMLSchema#dateTime> .\n"
        for n in range(3)
    )
    first = read("a.trig", text)
    assert first == read("a.trig", text)
    nodes = {
        term.value for element in first for triple in element.triples for term in triple if type(term) is BlankNode
    }
    assert len(nodes) == 3 * 3 + 1, "that with a label is one"
