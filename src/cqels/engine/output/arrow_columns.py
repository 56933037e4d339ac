"""Results as Arrow columns: typed where all values of a column have one type, or as the texts of terms.

Solutions that the machine sent as words become columns without an object for each: what there is to make of a word is
made once, and each row takes it.  The texts of most words are put together by kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.engine.output.result_emission import Sent
from cqels.ingest.element_batch import Words
from cqels.ingest.term_codec import Column, Terms
from cqels.kernels.terms.column_text import join_rows, measure_texts
from cqels.model.datetimes import Moment
from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.model.terms import Term
from cqels.model.values import Number, value_of
from cqels.plan.algebra import Query
from cqels.results import Result

if TYPE_CHECKING:
    import pyarrow

_MOST = 2**31 - 1
"""Bytes of texts that a column of Arrow has room for."""
_PLUS, _MINUS = "+", "-"


class HasResults(Protocol):
    """A query that has sent results: `engine.running_query.Running`."""

    query: Query
    terms: Terms

    def take(self) -> list[Result]: ...

    def take_solutions(self) -> Sent | None: ...


def terms_of(running: HasResults) -> pyarrow.RecordBatch:
    """What a query has sent and nobody has taken yet, in the order of `take`, its terms as N-Triples has them.

    The columns are `time` (nanoseconds), `tick`, `sign` (`+`, `-` or null), `empty` (the row says that a snapshot is),
    and for SELECT one for each variable, `?name`, null being unbound; for ASK `answer`, for CONSTRUCT `triples`.
    """
    arrow, query = _pyarrow(), running.query
    sent = running.take_solutions()
    if sent is not None:
        columns = [_texts(arrow, column, running.terms) for column in sent.columns]
        bodies = dict(zip(query.variables, columns, strict=True))
    else:
        results = running.take()
        sent, bodies = _heads(results), _bodies(arrow, query, results, lambda terms: _strings(arrow, terms))
    named = {"time": arrow.array(sent.times), "tick": arrow.array(sent.ticks), "sign": _signs(arrow, sent.signs)}
    named["empty"] = arrow.array(sent.empty)
    named |= {name if query.form != "select" else f"?{name}": column for name, column in bodies.items()}
    return arrow.RecordBatch.from_arrays(list(named.values()), list(named))


def table_taken(running: HasResults) -> pyarrow.Table:
    """What a query has sent and nobody has taken yet: `table_of(query, take())`."""
    arrow, decode = _pyarrow(), running.terms.decode
    sent = running.take_solutions()
    if sent is None:
        return table_of(running.query, running.take())
    columns = [
        typed(arrow, list(map(decode, words.tolist()))).take(arrow.array(numbers)) for words, numbers in sent.columns
    ]
    return _table(arrow, sent, dict(zip(running.query.variables, columns, strict=True)))


def table_of(query: Query, results: Sequence[Result]) -> pyarrow.Table:
    """The results of a query as a table of Arrow; an empty snapshot has no row."""
    arrow = _pyarrow()
    return _table(arrow, _heads(results), _bodies(arrow, query, results, lambda terms: typed(arrow, terms)))


def _table(arrow: Any, sent: Sent, columns: dict[str, Any]) -> Any:
    times = arrow.array(sent.times).cast(arrow.timestamp("ns"))
    table = arrow.table({"time": times, "tick": arrow.array(sent.ticks), "sign": _signs(arrow, sent.signs)} | columns)
    return table.filter(arrow.array(~sent.empty)) if sent.empty.any() else table


def _pyarrow() -> Any:
    arrow = optional("pyarrow", "arrow")
    optional("pyarrow.compute", "arrow")
    return arrow


# ---------------------------------------------------------------- of words and of results


def _heads(results: Sequence[Result]) -> Sent:
    """The results without what they say."""
    return Sent(
        np.array([result.nanoseconds for result in results], np.int64),
        np.array([result.tick for result in results], np.int64),
        np.array([(result.sign == _PLUS) - (result.sign == _MINUS) for result in results], np.int64),
        np.array([result.empty for result in results], np.bool_),
        [],
    )


def _bodies(
    arrow: Any, query: Query, results: Sequence[Result], values: Callable[[Sequence[Term | None]], Any]
) -> dict[str, Any]:
    """What results say, in columns; `values` are those of terms."""
    if query.form == "ask":
        return {"answer": arrow.array([result.boolean for result in results], arrow.bool_())}
    if query.form == "construct":
        return {"triples": arrow.array(list(map(_triples, results)), arrow.string())}
    return {
        name: values([None if result.empty else result.values[index] for result in results])
        for index, name in enumerate(query.variables)
    }


def _triples(result: Result) -> str | None:
    return None if result.empty else " ".join(" ".join(map(str, triple)) + " ." for triple in result.triples)


def _signs(arrow: Any, signs: Words) -> Any:
    if not signs.any():
        return arrow.nulls(len(signs), arrow.string())
    return arrow.array([_MINUS, None, _PLUS], arrow.string()).take(arrow.array(signs + 1))


def _strings(arrow: Any, terms: Sequence[Term | None]) -> Any:
    return arrow.array([None if term is None else str(term) for term in terms], arrow.string())


def _texts(arrow: Any, column: Column, terms: Terms) -> Any:
    """The N-Triples texts of the rows of a column; null where they are unbound."""
    words, numbers = column
    texts, rows = terms.placed(words), len(numbers)
    ends = np.empty(rows + 2, np.int32)
    where = (texts.places.ctypes.data, numbers.ctypes.data, rows)
    size = measure_texts(*where, ends.ctypes.data)
    if size > _MOST:
        raise CqelsError("the texts of a column take more than 2 GB", hint="take results more often")
    joined = np.empty(size + 8, np.uint8)
    join_rows(*where, joined.ctypes.data)
    unbound = np.flatnonzero(words == 0)
    bound = arrow.py_buffer(np.packbits(numbers != unbound[0], bitorder="little")) if len(unbound) else None
    buffers = arrow.py_buffer(ends[:-1]), arrow.py_buffer(joined[:size])
    return arrow.StringArray.from_buffers(rows, *buffers, bound)


# ---------------------------------------------------------------- columns with types


def typed(arrow: Any, terms: Sequence[Term | None]) -> Any:
    """A column of terms. Its type depends on which terms there are, not on how often: distinct ones are enough."""
    values = [None if term is None else _plain(term) for term in terms]
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return arrow.array(values, arrow.int64())
    if kinds and kinds <= {int, float}:
        return arrow.array([None if value is None else float(value) for value in values], arrow.float64())
    if kinds == {bool}:
        return arrow.array(values, arrow.bool_())
    if kinds == {_Instant}:
        return arrow.array(values, arrow.int64()).cast(arrow.timestamp("ns", tz="UTC"))
    return arrow.array([None if term is None else _text(term) for term in terms], arrow.string())


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
