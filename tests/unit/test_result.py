"""Results in every format, and the law that constructed elements read back."""

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.ingest import Element, Rejected, declare, read_stream
from cqels.model.errors import CqelsError
from cqels.model.terms import RDF_TYPE, XSD, XSD_INTEGER, Term, Triple
from cqels.model.time import MILLISECOND, SECOND
from cqels.model.turtle_text import Notation
from cqels.results import Result, writer_for

PREFIXES = {"": "http://ex.org/", "deep": "http://ex.org/deep/", "xsd": XSD}
KITCHEN = NamedNode("http://ex.org/kitchen")
TWO = Literal("2", datatype=XSD_INTEGER)
TRIPLE: Triple = (KITCHEN, RDF_TYPE, NamedNode("http://ex.org/deep/Room"))

SELECTED = (
    Result("q", 4 * SECOND, 1, "+", (KITCHEN, TWO)),
    Result("q", 1500 * MILLISECOND, 2, "-", (BlankNode("b"), None)),
    Result("q", 11 * SECOND, 3, "", (Literal('a "b",\nc', language="en"), Literal("x"))),
    Result("q", 12 * SECOND, 4, "", (), empty=True),
)


def written(format: str, *results: Result, variables: tuple[str, ...] = ("room", "n")) -> str:
    stream = io.StringIO(newline="")
    writer = writer_for(format, stream, variables, PREFIXES)
    for result in results:
        writer.write(result)
    writer.close()
    return stream.getvalue()


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (KITCHEN, ":kitchen"),
        (NamedNode("http://ex.org/deep/a.b"), "deep:a.b"),
        (NamedNode("http://ex.org/a/b"), "<http://ex.org/a/b>"),
        (NamedNode("http://ex.org/a."), "<http://ex.org/a.>"),
        (TWO, "2"),
        (Literal("02", datatype=XSD_INTEGER), '"02"^^xsd:integer'),
        (Literal("2.5", datatype=NamedNode(XSD + "decimal")), "2.5"),
        (Literal("2", datatype=NamedNode(XSD + "decimal")), '"2"^^xsd:decimal'),
        (Literal("1.5E2", datatype=NamedNode(XSD + "double")), "1.5E2"),
        (Literal("true", datatype=NamedNode(XSD + "boolean")), "true"),
        (Literal("1", datatype=NamedNode(XSD + "boolean")), '"1"^^xsd:boolean'),
        (Literal("a\nb", language="en"), '"a\\nb"@en'),
        (Literal("x", datatype=NamedNode("x:t")), '"x"^^<x:t>'),
        (BlankNode("b"), "_:b"),
        (None, "UNDEF"),
    ],
)
def test_notation(term: Term | None, text: str) -> None:
    assert Notation(PREFIXES).term(term) == text


def test_text() -> None:
    assert written("text", *SELECTED).splitlines() == [
        "4s  + :kitchen 2",
        "1500ms  - _:b UNDEF",
        '11s     "a \\"b\\",\\nc"@en "x"',
        "12s     (empty)",
    ]
    assert written("text", Result("q", 0, 1, "", (), boolean=True)) == "0s  true\n"
    assert written("text", Result("q", 0, 1, "+", (), (TRIPLE,))) == "0s  + :kitchen a deep:Room .\n"


def test_csv() -> None:
    text = written("csv", *SELECTED)
    assert text.startswith("time,tick,sign,room,n\r\n4s,1,+,http://ex.org/kitchen,2\r\n")
    assert list(csv.reader(io.StringIO(text, newline="")))[2:] == [
        ["1500ms", "2", "-", "_:b", ""],
        ["11s", "3", "", 'a "b",\nc', "x"],
        ["12s", "4", "empty", "", ""],
    ]
    assert written("csv") == "time,tick,sign,room,n\r\n"
    assert written("csv", Result("q", 0, 1, "", (), boolean=False)) == "time,tick,sign,boolean\r\n0s,1,,false\r\n"
    assert written("csv", Result("q", 0, 1, "", (), (TRIPLE,))).startswith(
        "time,tick,sign,subject,predicate,object\r\n"
    )


def test_json_lines() -> None:
    first, second, third, fourth = map(json.loads, written("jsonl", *SELECTED).splitlines())
    integer = {"type": "literal", "value": "2", "datatype": XSD + "integer"}
    assert first == {
        "query": "q",
        "time": "4s",
        "tick": 1,
        "sign": "+",
        "bindings": {"room": {"type": "uri", "value": KITCHEN.value}, "n": integer},
    }
    assert second["bindings"] == {"room": {"type": "bnode", "value": "b"}}
    assert third["bindings"]["room"]["xml:lang"] == "en"
    assert fourth == {"query": "q", "time": "12s", "tick": 4, "empty": True}
    (built,) = map(json.loads, written("jsonl", Result("q", 0, 1, "", (), (TRIPLE,))).splitlines())
    assert built["triples"][0]["subject"] == {"type": "uri", "value": KITCHEN.value}


def test_refusals() -> None:
    with pytest.raises(CqelsError, match="results have no format 'pdf'"):
        writer_for("pdf", io.StringIO(), (), {})
    with pytest.raises(CqelsError, match="CONSTRUCT only"):
        written("ntriples", SELECTED[0])
    with pytest.raises(CqelsError, match="withdrawn"):
        written("nquads", Result("q", 0, 1, "-", (), (TRIPLE,)))


iris = st.sampled_from([NamedNode("http://ex.org/a"), NamedNode("urn:é#b"), NamedNode("http://ex.org/?q=1&r='")])
texts = st.text(st.characters(exclude_categories=["Cs"]))
literals = (
    st.builds(Literal, texts)
    | st.builds(lambda text: Literal(text, language="en-gb"), texts)
    | st.builds(lambda text, datatype: Literal(text, datatype=datatype), texts, iris)
)
triples = st.tuples(iris, iris, iris | literals)
elements = st.tuples(st.integers(-(2**63), 2**63 - 1), st.lists(triples, min_size=1, max_size=3).map(tuple))


@given(st.lists(elements, max_size=4))
def test_constructed_elements_read_back(items: list[tuple[int, tuple[Triple, ...]]]) -> None:
    """read(write(elements)) = elements"""
    results = (Result("q", time, tick, "+", (), graph) for tick, (time, graph) in enumerate(items))
    rejected: list[Rejected] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "out.nt"
        path.write_text(written("ntriples", *results), "utf-8", newline="")
        read = list(read_stream(declare("x:s", path), rejected.append))
    assert rejected == []
    assert read == [Element("x:s", time, graph) for time, graph in items]
