"""Results as Arrow columns: a type for each column whose values all have one, else text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.io import Result
from cqels.model.errors import CqelsError
from cqels.model.moments import Moment
from cqels.model.terms import Term
from cqels.model.values import Number, value_of
from cqels.plan.algebra import Query


def table_of(query: Query, results: Sequence[Result]) -> Any:
    """The results of a query as a table of Arrow."""
    try:
        import pyarrow
    except ImportError:
        raise CqelsError("pyarrow is not installed", hint="pip install 'cqels[arrow]'") from None
    columns: dict[str, Any] = {
        "time": pyarrow.array([result.time for result in results], pyarrow.int64()).cast(pyarrow.timestamp("ns")),
        "tick": pyarrow.array([result.tick for result in results], pyarrow.int64()),
        "sign": pyarrow.array([result.sign or None for result in results], pyarrow.string()),
    }
    shown = [result for result in results if not result.empty]
    if len(shown) != len(results):  # an empty snapshot has a time and no row
        keep = pyarrow.array([not result.empty for result in results])
        columns = {name: column.filter(keep) for name, column in columns.items()}
    if query.form == "ask":
        columns["answer"] = pyarrow.array([result.boolean for result in shown], pyarrow.bool_())
    elif query.form == "construct":
        columns["triples"] = pyarrow.array(
            [" ".join(" ".join(map(str, triple)) + " ." for triple in result.triples) for result in shown],
            pyarrow.string(),
        )
    else:
        for place, name in enumerate(query.variables):
            columns[name] = typed(pyarrow, [result.values[place] for result in shown])
    return pyarrow.table(columns)


def typed(pyarrow: Any, terms: Sequence[Term | None]) -> Any:
    """A column of terms. Its type depends on which terms there are, not on how often: distinct ones are enough."""
    values = [None if term is None else _plain(term) for term in terms]
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pyarrow.array(values, pyarrow.int64())
    if kinds and kinds <= {int, float}:
        return pyarrow.array([None if value is None else float(value) for value in values], pyarrow.float64())
    if kinds == {bool}:
        return pyarrow.array(values, pyarrow.bool_())
    if kinds == {_Instant}:
        return pyarrow.array(values, pyarrow.int64()).cast(pyarrow.timestamp("ns", tz="UTC"))
    return pyarrow.array([None if term is None else _text(term) for term in terms], pyarrow.string())


class _Instant(int):
    """Nanoseconds since 1970, of a dateTime with a time zone."""


def _plain(term: Term) -> Any:
    """The value of a literal as Python has it, where a column can be of its kind; else its text."""
    if not isinstance(term, Literal):
        return _text(term)
    value = value_of(term)
    match value:
        case bool():
            return value
        case Number(value=number):
            return int(number) if isinstance(number, int) else float(number)
        case Moment():
            return _text(term) if value.zone is None else _Instant(int(value.instant * 10**9))
        case _:
            return _text(term)


def _text(term: Term) -> str:
    match term:
        case NamedNode() | Literal():
            return term.value
        case BlankNode():
            return str(term)
    raise AssertionError(term)
