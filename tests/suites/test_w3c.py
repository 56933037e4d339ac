"""The W3C's SPARQL 1.0 and 1.1 query suites: syntax, and evaluation over static data and over a stream."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyoxigraph import BlankNode

from cqels.lang.parser import parse
from cqels.model.errors import CqelsError
from cqels.plan import algebra
from cqels.plan.algebra import Plan, walk_plan
from cqels.plan.binder import bind

from .compare import by_value_in, same_graph, same_rows
from .run_w3c import run
from .w3c import MISSING, Test, csv_term, entries, expected

POSITIVE = ("PositiveSyntaxTest", "PositiveSyntaxTest11")
NEGATIVE = ("NegativeSyntaxTest", "NegativeSyntaxTest11")
EVALUATION = ("QueryEvaluationTest", "CSVResultFormatTest")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"

KNOWN = {
    "sparql11/csv-tsv-res/tsv03": "the data has `1.0E6`, the result `1.0e6`: literals keep their lexical form (SPEC §1)",
}
"""Evaluation tests that fail, static and streamed alike, and why that is right. They have to fail."""

pytestmark = pytest.mark.skipif(not entries(), reason=MISSING)


def of(*kinds: str) -> list[object]:
    """The tests of these kinds as parameters."""
    chosen = [test for test in entries() if test.kind in kinds]
    return [
        pytest.param(test, id=test.id, marks=[pytest.mark.xfail(reason=KNOWN[test.id])] if test.id in KNOWN else [])
        for test in chosen
    ]


@pytest.mark.parametrize("test", of(*POSITIVE))
def test_positive_syntax(test: Test) -> None:
    parse(test.text, base=test.base)


@pytest.mark.parametrize("test", of(*NEGATIVE))
def test_negative_syntax(test: Test) -> None:
    with pytest.raises(CqelsError) as refused:
        bind(parse(test.text, base=test.base))
    assert refused.value.span is not None


@pytest.mark.parametrize("streamed", [False, True], ids=["static", "streamed"])
@pytest.mark.parametrize("test", of(*EVALUATION))
def test_evaluation(test: Test, streamed: bool) -> None:
    query, results = run(test, streamed=streamed)
    wanted = expected(test)
    if wanted.boolean is not None:
        assert [result.boolean for result in results] == [wanted.boolean]
        return
    if wanted.graph is not None:
        graph = {triple for result in results for triple in result.triples}
        assert same_graph(graph, wanted.graph), f"{graph} is not {wanted.graph}"
        return
    names = query.variables
    assert set(names) == set(wanted.variables)
    rows = [
        {name: term for name, term in zip(names, result.values, strict=True) if term is not None} for result in results
    ]
    if test.kind == "CSVResultFormatTest":
        rows = [{name: term if isinstance(term, BlankNode) else csv_term(term.value) for name, term in row.items()} for row in rows]
    ordered = wanted.ordered or (wanted.listed and is_sorted(query.plan))
    same = same_rows(rows, wanted.rows, by_value_in(computed_in(query.plan)), ordered=ordered, lax=test.lax)
    assert same, f"{rows} is not {wanted.rows}"


def computed_in(plan: Plan) -> set[str]:
    """The variables that get their values from expressions and aggregates, not from patterns."""
    names: set[str] = set()
    for node in walk_plan(plan):
        match node:
            case algebra.Extend(variable=name):
                names.add(name)
            case algebra.Group(aggregates=aggregates):
                names.update(name for name, _ in aggregates)
    return names


def is_sorted(plan: Plan) -> bool:
    match plan:
        case algebra.OrderBy():
            return True
        case algebra.Slice(input=inner) | algebra.Project(input=inner) | algebra.Distinct(input=inner):
            return is_sorted(inner)
        case _:
            return False


def test_known_failures_are_tests() -> None:
    assert KNOWN.keys() <= {test.id for test in entries()}
