"""YARRRML mappings give what the same templates do; what is not supported is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from cqels.ingest.lifting_template import read_template
from cqels.ingest.record_readers import Members
from cqels.ingest.template_values import Surroundings
from cqels.model.errors import DataError

pytest.importorskip("yaml", reason="pip install 'cqels[yarrrml]'")

HEAD = "prefixes: {ex: 'http://ex.org/'}\ntime: {column: at, formats: [iso, epoch]}\n"
RECORD = Members(
    {"id": 1, "v": 2.5, "name": "a b", "iri": "x:y", "at": 5, "legs": [{"to": "p"}, {"to": "q"}], "a": {"b": 7}}
)


def lifted(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "map.yml"
    path.write_text(HEAD + text)
    found = read_template(path).triples(RECORD, Surroundings("r"))
    return [" ".join(map(str, triple)).replace("http://ex.org/", "") for triple in found]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ("[a, ex:Thing]", ["<1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <Thing>"]),
        ("[ex:p, $(name)]", ['<1> <p> "a b"']),
        ("[ex:p, $(v)]", ['<1> <p> "2.5"^^<http://www.w3.org/2001/XMLSchema#double>']),
        ("[ex:p, $(v), xsd:decimal]", ['<1> <p> "2.5"^^<http://www.w3.org/2001/XMLSchema#decimal>']),
        ("[ex:p, $(name), en~lang]", ['<1> <p> "a b"@en']),
        ("[ex:p, ex:$(name)~iri]", ["<1> <p> <a%20b>"]),
        ("[ex:p, $(iri)~iri]", ["<1> <p> <x:y>"]),
        ("[ex:p, ex:Thing]", ['<1> <p> "ex:Thing"']),
        ("[ex:p, 'the $(name) of $(id)']", ['<1> <p> "the a b of 1"']),
        ("[ex:p, $(a.b)]", ['<1> <p> "7"^^<http://www.w3.org/2001/XMLSchema#integer>']),
        ("[[ex:p, ex:q], [x, y]]", ['<1> <p> "x"', '<1> <p> "y"', '<1> <q> "x"', '<1> <q> "y"']),
        ("[ex:p, [[x, en~lang], y]]", ['<1> <p> "x"@en', '<1> <p> "y"']),
        ("{p: ex:p, o: {value: $(iri), type: iri}}", ["<1> <p> <x:y>"]),
        ("{predicates: [ex:p], objects: [{value: $(name), language: en}]}", ['<1> <p> "a b"@en']),
        ("{p: ex:p, o: {v: 5, datatype: xsd:integer}}", ['<1> <p> "5"^^<http://www.w3.org/2001/XMLSchema#integer>']),
    ],
)
def test_predicates_and_objects(tmp_path: Path, objects: str, expected: list[str]) -> None:
    assert lifted(tmp_path, f"mappings:\n  m:\n    s: ex:$(id)\n    po:\n      - {objects}\n") == expected


def test_several_mappings(tmp_path: Path) -> None:
    text = """
sources:
  legs: {access: x.json, referenceFormulation: jsonpath, iterator: "$.legs[*]"}
mappings:
  observation:
    sources: [[x.json~jsonpath, "$"]]
    subjects: [ex:$(id), ex:o/$(id)]
    predicateobjects:
      - [ex:result, {mapping: result}]
  result:
    po: [[ex:value, $(v)]]
  leg:
    sources: legs
    s: ex:$(id)/$(to)
    po: [[ex:to, $(to)]]
"""
    assert lifted(tmp_path, text) == [
        "<1> <result> _:r_result_1_0",
        "<o/1> <result> _:r_result_1_0",
        '_:r_result_1_0 <value> "2.5"^^<http://www.w3.org/2001/XMLSchema#double>',
        '<1/p> <to> "p"',
        '<1/q> <to> "q"',
    ]


MAPPING = "mappings:\n  m:\n    s: ex:$(id)\n    po: [[ex:p, $(v)]]\n"


@pytest.mark.parametrize(
    ("text", "message", "shown"),
    [
        (HEAD + "base: http://x/\n" + MAPPING, "'base' is not supported here", "base"),
        (HEAD + MAPPING + "    graphs: ex:g\n", "'graphs' is not supported here", "graphs"),
        (HEAD + MAPPING + "    condition: {function: equal}\n", "'condition' is not supported here", "condition"),
        (HEAD + MAPPING.replace("$(v)", "{function: f}"), "'function' is not supported here", "function"),
        (HEAD + MAPPING.replace("$(v)", "{mapping: n}"), "there is no mapping 'n'", "n"),
        (HEAD + MAPPING.replace("ex:p", "ex:$(v)"), "depends on a column", "ex:$(v)"),
        (HEAD + MAPPING.replace("ex:p", "nothing"), "'nothing' is not an IRI", "nothing"),
        (HEAD + MAPPING.replace("ex:$(id)", "'x:{y}'"), "has braces", "'x:{y}'"),
        (HEAD + MAPPING + "    sources: [[f~jsonpath, '$..x']]\n", "the iterator '$..x' is not supported", "'$..x'"),
        (
            HEAD.replace("iso", "soon") + MAPPING,
            "'soon' is not a form of times",
            "{column: at, formats: [soon, epoch]}",
        ),
        (HEAD + "mappings: [a]\n", "not a table of names and values", "[a]"),
        (HEAD + "mappings:\n  m: {s: [}\n", "the mapping is not YAML", "}"),
    ],
)
def test_what_is_not_supported(tmp_path: Path, text: str, message: str, shown: str) -> None:
    path = tmp_path / "map.yml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_template(path)
    assert message in caught.value.message
    assert caught.value.span is not None
    assert text[caught.value.span.start : caught.value.span.end] == shown


def test_a_mapping_needs_a_time_unless_the_source_has_it(tmp_path: Path) -> None:
    path = tmp_path / "map.yml"
    path.write_text("prefixes: {ex: 'http://ex.org/'}\n" + MAPPING)
    with pytest.raises(DataError, match="the document has no time"):
        read_template(path)
    assert read_template(path, timed=False).timestamp is None
