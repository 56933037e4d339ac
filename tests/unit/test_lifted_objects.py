"""JSON lines lifted as bytes give the elements, and the rejected records, that they give record by record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
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
from cqels.ingest.record_layout import json_layout
from cqels.ingest.stream_files import read_file
from cqels.ingest.template_model import NodeTemplate, ObjectTemplate, Template
from cqels.ingest.template_times import TimeTemplate
from cqels.ingest.template_values import DerivedValue, ValueMap
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.terms import XSD

S, EX = "http://ex.org/s", "http://ex.org/"
NAMES = ("a", "b", "c.d", "c.e.f", "a name of several words", "at")
Read = tuple[list[tuple[int, list[int]]], list[Rejected]]


@pytest.fixture(scope="module")
def terms() -> Terms:
    return Terms(ArenaDictionary(Arena(size=1 << 28)))


def both(path: Path, template: Template, terms: Terms) -> tuple[Read, Read]:
    """What the file gives as bytes, and record by record, in the words of one dictionary."""
    declaration, intake = declare(S, path, format="json", template=path), Intake(terms)
    rejected: tuple[list[Rejected], list[Rejected]] = ([], [])
    as_bytes = [
        (time, [word for triple in triples for word in triple])
        for batch in file_batches(declaration, path, template, 0, intake, rejected[0].append)
        for time, _, triples in batch.rows()
    ]
    as_records = [
        (each.time, [word for triple in each.triples for word in terms.encode_all(triple)])
        for each in read_file(declaration, path, template, rejected[1].append)
    ]
    return (as_bytes, rejected[0]), (as_records, rejected[1])


IRIS = (f"{EX}x/{{a}}", f"{EX}{{c.d}}/{{b}}", "{a}", f"{EX}{{+b}}", f"{EX}always", f"{EX}%4{{a}}")
TYPES = ("integer", "decimal", "double", "boolean", "dateTime", "string")
objects = st.one_of(
    st.builds(
        ObjectTemplate,
        column=st.sampled_from(NAMES),
        datatype=st.sampled_from([*(None,) * 6, *(NamedNode(XSD + name) for name in TYPES)]),
        language=st.sampled_from([None, None, None, "en"]),
        required=st.sampled_from([False, False, False, True]),
    ),
    st.builds(ObjectTemplate, iri=st.sampled_from(IRIS)),
    st.builds(ObjectTemplate, text=st.sampled_from(["{a}", "{a} {c.d}", "the {b}", "always"])),
)


def in_order(values: list[DerivedValue]) -> bool:
    """No value is made of one that follows it."""
    names = [value.name for value in values]
    return all(value.column not in names[number + 1 :] for number, value in enumerate(values))


nodes = st.builds(
    NodeTemplate,
    subject=st.sampled_from([*IRIS, *IRIS, None]),
    predicates=st.lists(objects, min_size=1, max_size=4).map(
        lambda each: tuple((NamedNode(f"{EX}p{number}"), one) for number, one in enumerate(each))
    ),
    needs=st.sampled_from([(), (), ("a",), ("b", "c.d")]),
    required=st.booleans(),
)


def linked(templates: list[NodeTemplate], links: list[tuple[int, int]]) -> tuple[NodeTemplate, ...]:
    """Nodes with names, some of which refer to others."""
    named = [replace(node, name=f"n{number}") for number, node in enumerate(templates)]
    for source, target in links:
        node, other = named[source % len(named)], named[target % len(named)]
        link = (NamedNode(f"{EX}link"), ObjectTemplate(node=other.name))
        named[source % len(named)] = replace(node, predicates=(*node.predicates, link))
    return tuple(named)


derived = st.builds(
    DerivedValue,
    name=st.sampled_from(["a", "v", "w", "c.d"]),
    column=st.sampled_from(["a", "b", "c.d"]),
    map=st.sampled_from([None, ValueMap({"7": "seven", "x": "a b", "true": "", "é": "é/é", "1.0": "http://ex.org/i"})]),
    default=st.sampled_from([None, None, "", "none", 5, 2.5, True]),
)
templates = st.builds(
    lambda nodes, links, values, missing, formats, unit: Template(
        linked(nodes, links), TimeTemplate("at", formats, unit), tuple(values), missing
    ),
    st.lists(nodes, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=2),
    st.one_of(st.just([]), st.lists(derived, max_size=3, unique_by=lambda each: each.name).filter(in_order)),
    st.sampled_from([frozenset[str](), frozenset[str](), frozenset(["7", "x", "1.0", "a b", "true"])]),
    st.sampled_from(
        [(), (), (), ("%d/%m/%Y %H:%M",), ("iso", "epoch"), ("%Y%m%d", "iso"), ("%Y-%m-%dT%H:%M:%S%.f",), ("epoch",)]
    ),
    st.sampled_from([None, None, "s"]),
)

NUMBERS = (
    *("0", "-0", "7", "-3", "1.0", "1.50", "-0.0", "0.0", "1e3", "1E+3", "2.5e-3", "0.0001", "0.00001", "0.1"),
    *("12345678901234567890123456789", "9007199254740993", "123456789012345.6", "1234567890123456.7", "1e400"),
    *("0.30000000000000004", "-73.95652800000001", "100000000000000000000.5", "36028797018963968", "53.27", "1.10"),
)
FAULTS = ("NaN", "-Infinity", "01", "1.", ".5", "+1", "tru", "nul", "'a'", "-", "1e", "[1,]", '{"x":}', "")
TEXTS = (
    *("", "x", "a b", "é", "日本語", "%41", "~._-/", "http://ex.org/i?q=1#f", "true", "1.0"),
    *("2013-01-01T00:00:00Z", "01/02/2013 10:30", "20130101", "1000"),
)
ESCAPED = (
    '"a\\nb"',
    '"\\u00e9"',
    '"\\ud83d\\ude00"',
    '"\\ud800"',
    '"\\/"',
    '"\\x"',
    '"\\u12g4"',
    '"\t"',
    '"a',
    '"\x7f"',
)
plain_values = st.one_of(
    st.sampled_from(TEXTS).map(lambda each: json.dumps(each, ensure_ascii=False)),
    st.sampled_from(NUMBERS),
    st.sampled_from(["true", "false", "null"]),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
odd_values = st.one_of(
    st.sampled_from([*ESCAPED, *FAULTS]),
    st.sampled_from(['{"d": 1}', '{"d": {"e": [1, {"f": 2}]}, "e": {"f": "x"}}', "[]", "{}", "[1, [2, {}]]", "[[[]]]"]),
    st.text(max_size=4).map(json.dumps),
)
values = st.one_of(plain_values, plain_values, plain_values, odd_values)
TIMES = (
    *("1000", '"1000"', '"2013-01-01T00:00:00Z"', '"01/02/2013 10:30"', '"20130101"', "1.5", "null", '"soon"', "true"),
    *(
        '"2013-01-01T00:00:00.25"',
        '"2013-01-01T00:00:00"',
        '"2013-01-01T00:00:00.1234567891"',
        '"2013-01-01T00:00:00."',
    ),
)
times = st.sampled_from(TIMES)
inside = st.lists(st.tuples(st.sampled_from(["d", "d", "e", "x", "d.e"]), values), max_size=3)
nested = inside.map(lambda each: "{" + ", ".join(f'"{name}": {value}' for name, value in each) + "}")
names = st.sampled_from(["a", "a", "b", "b", "x", "y z", "c.d", "a name of several words", "a name of several wordy"])
members = st.one_of(
    *(st.tuples(names, values) for _ in range(4)),
    st.tuples(st.just("c"), nested),
    st.tuples(st.sampled_from(["c", "\\u0061"]), values),
)


@st.composite
def lines(draw: Callable[..., Any]) -> str:
    found = draw(st.lists(members, max_size=6))
    found.insert(draw(st.integers(0, len(found))), ("at", draw(times)))
    blank = draw(st.sampled_from(["", "", " ", "\t", "\r"]))
    text = f",{blank}".join(f'"{name}"{blank}:{blank}{value}' for name, value in found)
    return draw(
        st.sampled_from([f"{{{text}}}{blank}"] * 12 + [f"{blank}{{{text}", f"{{{text}}} x", f"[{text}]", "", " "])
    )


@given(
    template=templates,
    lines=st.lists(lines(), max_size=12),
    begin=st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    extra=st.sampled_from([None, None, None, b'{"a": "\xff", "at": 1}', b'{"x": "\xff", "a": 1, "b": 2, "at": 1}']),
    end=st.sampled_from(["\n", "\r\n"]),
    sizes=st.fixed_dictionaries(
        {
            "PIECE": st.sampled_from([1, 60, 1 << 20]),
            "BATCH": st.sampled_from([1, 500, 1 << 20]),
            "ROOM": st.sampled_from([1, 3, 1000]),
            "PATIENCE": st.sampled_from([0, 3, 100]),
            "PAUSE": st.just(5),
        }
    ),
)
def test_as_bytes_as_by_records(
    terms: Terms,
    template: Template,
    lines: list[str],
    begin: bytes,
    extra: bytes | None,
    end: str,
    sizes: dict[str, int],
) -> None:
    data = begin + end.join(lines).encode("utf-8", "surrogatepass")
    if extra is not None:
        data += end.encode() + extra
    with TemporaryDirectory() as folder:
        path = Path(folder, "s.jsonl")
        path.write_bytes(data)
        with patch.multiple(lifted_batches, **sizes):
            found, expected = both(path, template, terms)
    assert found == expected


FLAT = Template(
    (
        NodeTemplate(
            f"{EX}x/{{a}}",
            (
                (NamedNode(f"{EX}p"), ObjectTemplate(column="b")),
                (NamedNode(f"{EX}q"), ObjectTemplate(column="c.d")),
                (NamedNode(f"{EX}r"), ObjectTemplate(column="c.e.f", datatype=NamedNode(XSD + "decimal"))),
            ),
            required=True,
        ),
    ),
    TimeTemplate("at"),
)


def test_most_records_never_reach_python(tmp_path: Path, terms: Terms) -> None:
    path = tmp_path / "s.jsonl"
    lines = [
        json.dumps(
            {
                "a": number,
                "more": {"x": [1, "two\n", None, {"y": True}], "d": 1.50},
                "b": ("text é", number / 8, number % 2 == 0, None, "")[number % 5],
                "c": {"d": f"v{number % 7}", "e": {"f": 21.25}},
                "at": f"2013-01-01T00:00:{number % 60:02}Z",
            },
            ensure_ascii=number % 2 == 0,
        )
        for number in range(3000)
        if number % 10 != 0
    ]
    path.write_text("\n".join(lines))
    with patch.object(Template, "triples", autospec=True, side_effect=Template.triples) as triples:
        found, expected = both(path, FLAT, terms)
    assert found == expected
    assert len(found[0]) == len(lines)
    assert triples.call_count - len(lines) <= 300  # but for those with an escape in a member that is named


def test_what_the_kernel_does_not_take() -> None:
    node = FLAT.nodes[0]
    assert json_layout(FLAT, "ms") is not None
    assert json_layout(Template((node,)), "ms") is None
    assert json_layout(Template((node,)), "ms", timed=False) is not None
    assert json_layout(Template((NodeTemplate(None, node.predicates),), TimeTemplate("at")), "ms") is not None
    assert json_layout(replace(FLAT, nodes=(replace(node, each="c"),)), "ms") is None
    assert json_layout(replace(FLAT, values=(DerivedValue("at", "b"),)), "ms") is None
    assert json_layout(replace(FLAT, values=(DerivedValue("b", text="{a}"),)), "ms") is None
    assert json_layout(replace(FLAT, nodes=(replace(node, subject="{@key}"),)), "ms") is None
    many = tuple((NamedNode(f"{EX}p"), ObjectTemplate(column=f"m{number}")) for number in range(70))
    assert json_layout(Template((NodeTemplate(f"{EX}s", many),), TimeTemplate("at")), "ms") is None
