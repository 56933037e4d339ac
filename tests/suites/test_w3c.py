"""The W3C's SPARQL 1.0 and 1.1 query suites: syntax, and evaluation over static data and over a stream."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyoxigraph import BlankNode

from cqels.lang.parser import parse
from cqels.model.errors import CqelsError
from cqels.model.terms import Term
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query, walk_plan
from cqels.plan.binder import bind
from cqels.reference.reference_engine import Reference
from cqels.results import Result

from ..incremental import Incremental
from .compare import Row, by_value_in, same_graph, same_rows
from .run_w3c import run
from .w3c import MISSING, SUITE, Test, csv_term, entries, expected, manifests

POSITIVE = ("PositiveSyntaxTest", "PositiveSyntaxTest11")
NEGATIVE = ("NegativeSyntaxTest", "NegativeSyntaxTest11")
EVALUATION = ("QueryEvaluationTest", "CSVResultFormatTest")

KNOWN = {
    "sparql11/cast/cast-decimal": (
        "The data has `0E1` and `1E0`, the result has `0.0` and `1.0` for the same variable, which a pattern binds: "
        "literals keep their lexical form (RDF 1.1 §3.3)."
    ),
    "sparql11/csv-tsv-res/tsv03": (
        "The data has `1.0E6`, the result has `1.0e6`: literals keep their lexical form (RDF 1.1 §3.3)."
    ),
}
"""Evaluation tests that fail, static and streamed alike, and why that is right. They have to fail."""

NOT_RUN = {
    "DESCRIBE has no continuous meaning": (
        "sparql10/syntax-sparql2/syntax-form-describe01",
        "sparql10/syntax-sparql2/syntax-form-describe02",
    ),
    "there is no function": (
        "sparql10/syntax-sparql1/syntax-expr-05",
        "sparql10/syntax-sparql1/syntax-order-05",
        "sparql10/syntax-sparql1/syntax-order-06",
        "sparql10/syntax-sparql2/syntax-function-01",
        "sparql10/syntax-sparql2/syntax-function-02",
        "sparql10/syntax-sparql2/syntax-function-03",
        "sparql10/syntax-sparql2/syntax-function-04",
        "sparql11/syntax-query/test_4",
    ),
}
"""Positive syntax tests that parse and cannot run: what binding says to them."""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"

pytestmark = pytest.mark.skipif(not entries(), reason=MISSING)


def of(kinds: tuple[str, ...]) -> list[Test]:
    return [test for test in entries() if test.kind in kinds]


def parameters(kinds: tuple[str, ...]) -> list[object]:
    """The tests of these kinds; one of KNOWN has to fail, and in no other way than by a wrong result."""
    return [
        pytest.param(
            test,
            id=test.id,
            marks=[pytest.mark.xfail(reason=KNOWN[test.id], raises=AssertionError)] if test.id in KNOWN else [],
        )
        for test in of(kinds)
    ]


# ---------------------------------------------------------------- syntax


@pytest.mark.parametrize("test", parameters(POSITIVE))
def test_positive_syntax(test: Test) -> None:
    tree = parse(test.text, base=test.base)
    messages = [message for message, names in NOT_RUN.items() if test.id in names]
    if messages:
        with pytest.raises(CqelsError, match=messages[0]):
            bind(tree, lenient=True)
    else:
        bind(tree, lenient=True)


@pytest.mark.parametrize("test", parameters(NEGATIVE))
def test_negative_syntax(test: Test) -> None:
    with pytest.raises(CqelsError) as refused:
        bind(parse(test.text, base=test.base), lenient=True)
    assert refused.value.span is not None


# ---------------------------------------------------------------- evaluation


@pytest.mark.parametrize("make", [Reference, Incremental], ids=["reference", "incremental"])
@pytest.mark.parametrize("streamed", [False, True], ids=["static", "streamed"])
@pytest.mark.parametrize("test", parameters(EVALUATION))
def test_evaluation(test: Test, streamed: bool, make: Callable[..., Any]) -> None:
    query, results = run(test, streamed=streamed, make=make)
    wanted = expected(test)
    if wanted.boolean is not None:
        assert [result.boolean for result in results] == [wanted.boolean]
        return
    if wanted.graph is not None:
        graph = {triple for result in results for triple in result.triples}
        assert same_graph(graph, wanted.graph), f"{graph} is not {wanted.graph}"
        return
    assert set(query.variables) == set(wanted.variables)
    rows = [row_of(query, result) for result in results]
    if test.kind == "CSVResultFormatTest":
        rows = [{name: as_in_csv(term) for name, term in row.items()} for row in rows]
    ordered = wanted.ordered or (wanted.listed and is_sorted(query.plan))
    same = same_rows(rows, wanted.rows, by_value_in(computed_in(query.plan)), ordered=ordered, lax=test.lax)
    assert same, f"{rows} is not {wanted.rows}"


def row_of(query: Query, result: Result) -> Row:
    return {name: term for name, term in zip(query.variables, result.values, strict=True) if term is not None}


def as_in_csv(term: Term) -> Term:
    return term if isinstance(term, BlankNode) else csv_term(term.value)


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


# ---------------------------------------------------------------- the page

_TEXT = """\
# Conformance to SPARQL

The W3C's query suites for SPARQL 1.0 and 1.1, run by `tests/suites/test_w3c.py`, which also writes this page
(`make rewrite`) and fails when it is not up to date.

| tests | passed | of |
|---|---:|---:|
{counts}

- The reference evaluator and the incremental engine run the same tests; the counts are those of each of the two.
- *static*: the data is the dataset.
- *streamed*: the triples of the default graph are one element of a stream, and the WHERE clause is wrapped into
  `STREAM <s> [NOW] {{ … }}`. Parts that read a named graph stay outside of it, since GRAPH cannot stand inside STREAM.
- Solutions are compared as bags, or as lists where there is an ORDER BY, up to the names of blank nodes. Terms have to
  be the same RDF terms; only numbers in a column that the query computes are compared by value and datatype.
  Where a test allows it (`mf:LaxCardinality`, for REDUCED) duplicates may be missing.
- Left out are the suites of updates, protocols, federation and entailment.

## Accepted, not run

Of the positive syntax tests these parse and are refused when they are registered.

| tests | message |
|---|---|
{not_run}

## Known failures

These tests are expected to fail, and the run fails if one of them passes.

| test | reason |
|---|---|
{known}
"""


def page() -> str:
    """Every test that is not in KNOWN passes, or else the run has failed: so the counts are those of the run."""
    kinds = {
        "positive syntax": POSITIVE,
        "negative syntax": NEGATIVE,
        "evaluation, static": EVALUATION,
        "evaluation, streamed": EVALUATION,
    }
    counts = []
    for name, kind in kinds.items():
        chosen = of(kind)
        counts.append(f"| {name} | {sum(test.id not in KNOWN for test in chosen)} | {len(chosen)} |")
    known = [f"| `{name}` | {reason} |" for name, reason in sorted(KNOWN.items())]
    not_run = [f"| {', '.join(f'`{name}`' for name in names)} | {message} |" for message, names in NOT_RUN.items()]
    return _TEXT.format(counts="\n".join(counts), not_run="\n".join(not_run), known="\n".join(known))


def test_page_is_up_to_date() -> None:
    if os.environ.get("REWRITE"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make rewrite`"


def test_every_manifest_is_read() -> None:
    folders = {path.parent.relative_to(SUITE).as_posix() for path in manifests()}
    assert {test.id.rpartition("/")[0] for test in entries()} == folders


def test_known_failures_are_few() -> None:
    chosen = {test.id for test in of(EVALUATION)}
    assert KNOWN.keys() <= chosen
    assert len(KNOWN) <= 0.02 * len(chosen)
