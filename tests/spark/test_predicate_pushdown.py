"""Triples that no query can match need not travel: results are the same without them, and through blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from pyoxigraph import Literal, NamedNode

from cqels.engine.query_handle import StandingQuery
from cqels.ingest import Element
from cqels.ingest.encode import Intake
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare

from ..cases import DIRECTORY, read_case, shown, spaced
from ..incremental import Incremental
from ..random_expressions import Features
from ..random_queries import scenarios
from ..random_shapes import shapes
from ..scenarios import Scenario, run
from ..test_cases import FILES, _Run

pytest.importorskip("pyarrow", reason="blocks need pyarrow")

from cqels.pipeline.lift import block_writer
from cqels.pipeline.lift.block_format import pack, unpack
from cqels.pipeline.lift.block_writer import BlockWriter
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, MOST_PATTERNS, Pattern, pushed_patterns


class Travelling(Incremental):
    """Elements reach the engine as blocks that have only the triples that its queries can match."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._there = Terms(ArenaDictionary(Arena(size=1 << 26)))
        self._asked: list[Query] = []

    def register(self, query: Query) -> StandingQuery:
        self._asked.append(query)
        return super().register(query)

    def push(self, element: Element) -> None:
        number = self.engine.internals.number_of(element.stream)
        batch = Intake(self._there).triples(number, element.time, element.triples)
        kept = pushed_patterns(self._asked, element.stream).matcher(self._there).kept(batch)
        block = pack(kept, self._there.dictionary)
        self.engine.internals.push_batch(unpack(block, self.engine.internals.core.state.dictionary))


WITH_RESULTS = [path for path in FILES if path.parent.name not in ("errors", "warnings")]


@pytest.mark.parametrize("path", WITH_RESULTS, ids=lambda path: str(path.relative_to(DIRECTORY).with_suffix("")))
def test_case(path: Path) -> None:
    case = read_case(path)
    lines = shown(case, _Run(case, Travelling).outcome(case.events))
    found = {name: spaced(rows) for name, rows in lines.items() if rows}
    expected = {name: spaced(rows) for name, rows in case.expected.items() if rows}
    assert found == expected


@settings(max_examples=40)
@given(scenarios(Features()) | shapes(Features()))
def test_nothing_is_missed(scenario: Scenario) -> None:
    """engine(kept(s)) = engine(s)"""
    assert run(scenario, engine=Travelling) == run(scenario, engine=Incremental)


def patterns(text: str) -> set[tuple[str, ...]]:
    query = prepare(f"PREFIX : <http://ex.org/> {text}")
    found = pushed_patterns([query], "http://ex.org/s").patterns
    return {tuple("?" if term is None else term.value[14:] for term in each[:3]) for each in found}


def test_constants_of_patterns_are_what_is_wanted() -> None:
    assert patterns(
        "SELECT * { ?x :static ?z "
        "STREAM :s [NOW] { ?x :p ?y OPTIONAL { :a :q :b } FILTER NOT EXISTS { ?x ^:r/:t ?z } } }"
    ) == {("?", "p", "?"), ("a", "q", "b"), ("?", "r", "?"), ("?", "t", "?")}
    assert patterns("SELECT * { STREAM :other [NOW] { ?x :p ?y } }") == set()
    assert patterns("SELECT * { STREAM ?any [NOW] { ?x :p ?y } }") == {("?", "p", "?")}
    assert patterns("SELECT * { STREAM :s [RANGE 1s @<http://ex.org/at>] { ?x :p ?y } }") == {
        ("?", "p", "?"),
        ("?", "at", "?"),
    }


@pytest.mark.parametrize(
    "block",
    ["[TRIPLES 3] { ?x :p ?y }", "[ELEMENTS 3] { ?x :p ?y }", "[NOW] { ?x :p* ?y }", "[NOW] { ?x !:p ?y }"],
)
def test_what_may_need_any_triple_gets_them_all(block: str) -> None:
    query = prepare(f"PREFIX : <http://ex.org/> SELECT * {{ STREAM :s {block} }}")
    assert ANYTHING in pushed_patterns([query], "http://ex.org/s").patterns
    assert ANYTHING not in pushed_patterns([query], "http://ex.org/other").patterns


def test_whole_results_are_sent_when_a_window_changes_so_all_triples_are_needed() -> None:
    query = prepare("SELECT * { STREAM <http://ex.org/s> [NOW] { ?x <http://ex.org/p> ?y } }", emit="rstream")
    assert pushed_patterns([query], "http://ex.org/s").everything
    assert NamedNode("http://ex.org/p") in {each[1] for each in pushed_patterns([query], "http://ex.org/s").patterns}


def kept(text: str, *values: str) -> list[str]:
    """The values of a stream `:s` that travel for a query."""
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    asked = pushed_patterns([prepare(f"PREFIX : <http://ex.org/> SELECT * {{ {text} }}")], "http://ex.org/s")
    subject, predicate = NamedNode("http://ex.org/x"), NamedNode("http://ex.org/p")
    objects = [Literal(int(value)) if value.isdigit() else Literal(value) for value in values]
    batch = Intake(terms).triples(0, 0, tuple((subject, predicate, each) for each in objects))
    found = asked.matcher(terms).matches(batch.triples.reshape(-1, 3))
    return [value for value, stays in zip(values, found, strict=True) if stays]


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("STREAM :s [NOW] { ?x :p ?y } FILTER(?y > 5)", "79"),
        ("STREAM :s [NOW] { ?x :p ?y } ?x :static ?z FILTER(?y > 5 && ?y < 9 && ?z != 1)", "7"),
        ("STREAM :s [NOW] { ?x :p ?y FILTER(?y > 5) } STREAM :s [RANGE 1s] { ?x :p ?z FILTER(?z < 3) }", "179"),
        ("STREAM :s [NOW] { ?x :p ?y } { STREAM :s [NOW] { ?x :p ?z } FILTER(?z = 1) }", "179a"),
        ("STREAM :s [NOW] { ?x :q ?y OPTIONAL { ?x :p ?z FILTER(?z > 8) } }", "9"),
        ("STREAM :s [NOW] { ?x :p ?y OPTIONAL { ?x :q ?z } } FILTER(!BOUND(?z))", "179a"),
        ("STREAM :s [NOW] { ?x :p ?y } FILTER(?y > ?z)", "179a"),
        ("STREAM :s [NOW] { ?x :p ?y } BIND(1 AS ?z) FILTER(?z > 5)", "179a"),
        ("STREAM :s [NOW] { ?x :p ?y } FILTER(REGEX(?y, 'b'))", "179a"),
        ("STREAM :s [NOW] { ?x :p ?y } FILTER(?x = :x && ?y IN (1, 9))", "19"),
        ("STREAM :s [NOW] { ?x :p ?y } FILTER EXISTS { STREAM :s [NOW] { ?x :p ?z } FILTER(?z > 7) }", "179a"),
        ("STREAM :s [NOW] { ?x :q ?y } FILTER EXISTS { STREAM :s [NOW] { ?x :p ?z } FILTER(?z > 7) }", "9"),
        ("STREAM :s [NOW] { ?x :q ?y } MINUS { STREAM :s [NOW] { ?x :p ?z } FILTER(?z > 7) }", "9"),
        ("STREAM :s [TRIPLES 3] { ?x :p ?y } FILTER(?y > 5)", "179a"),
    ],
)
def test_what_a_filter_refuses_does_not_travel(text: str, stays: str) -> None:
    assert kept(text, *"179a") == list(stays)


def test_triples_are_not_compared_with_many_patterns() -> None:
    texts = [f"SELECT * {{ STREAM <http://ex.org/s> [NOW] {{ ?x <http://ex.org/p> {each} }} }}" for each in range(17)]
    asked = list(map(prepare, texts))
    assert len(asked) == MOST_PATTERNS + 1
    assert len(pushed_patterns(asked[1:], "http://ex.org/s").patterns) == MOST_PATTERNS
    assert pushed_patterns(asked, "http://ex.org/s").patterns == {Pattern(predicate=NamedNode("http://ex.org/p"))}


def test_conditions_hold_when_other_terms_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The constants of a condition stay in the dictionary, which gives the words of others away."""
    monkeypatch.setattr(block_writer, "MOST_TERMS", 5)
    text = 'SELECT * { STREAM :s [NOW] { ?x :p ?y } FILTER(?x = :keep && ?y != "no") }'
    writer = BlockWriter(0, (pushed_patterns([prepare(f"PREFIX : <http://ex.org/> {text}")], "http://ex.org/s"),))
    other = ArenaDictionary(Arena(size=1 << 26))
    for number in range(50):
        ex = "http://ex.org/"
        names = "keep", f"new{number}", "keep"
        objects = Literal(f"text {number}"), Literal("yes"), Literal("no")
        told = [(NamedNode(ex + name), NamedNode(ex + "p"), each) for name, each in zip(names, objects, strict=True)]
        (row,) = writer.blocks(writer.intake.triples(0, number, tuple(told)), "", 0, 0)
        assert unpack(row["block"], other).counts.tolist() == [1]  # type: ignore[arg-type]
        writer.tidy()
        assert len(writer.terms.dictionary) <= 5
