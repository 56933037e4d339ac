"""The results of a query in one micro-batch, as sinks get them: Arrow columns of N-Triples texts, or results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.ipc

from cqels.engine.output.arrow_columns import typed
from cqels.model.dictionary import term_of
from cqels.model.terms import Term, Triple
from cqels.plan.algebra import Query
from cqels.results import Result

_TERM = r'<[^>]*>|_:\S+|"(?:[^"\\]|\\.)*"(?:@\S+|\^\^<[^>]*>)?'
TRIPLE = re.compile(rf"({_TERM}) ({_TERM}) ({_TERM}) \.", re.DOTALL)
"""A triple in the text of a constructed element."""


def schema_of(query: Query) -> Any:
    """The columns in which a query sends its results: `cqels.engine.output.arrow_columns.terms_of` makes them.

    Terms are N-Triples texts, null is unbound; the columns of variables begin with `?`, so that they have any name.
    """
    columns = [
        ("time", pyarrow.int64()),
        ("tick", pyarrow.int64()),
        ("sign", pyarrow.string()),
        ("empty", pyarrow.bool_()),
    ]
    match query.form:
        case "ask":
            columns.append(("answer", pyarrow.bool_()))
        case "construct":
            columns.append(("triples", pyarrow.string()))
        case _:
            columns += [(f"?{name}", pyarrow.string()) for name in query.variables]
    return pyarrow.schema(columns)


@dataclass(frozen=True)
class Sent:
    """The results of a query in one micro-batch, in order; `number` of its results were sent before them."""

    query: Query
    batches: Sequence[Any]
    number: int = 0

    @classmethod
    def read(cls, query: Query, number: int, payloads: Iterable[bytes]) -> Sent:
        """From the payloads of rows: Arrow streams (see `cqels.pipeline.lift.row_schemas`)."""
        return cls(query, [batch for each in payloads for batch in pyarrow.ipc.open_stream(each)], number)

    @classmethod
    def of(cls, query: Query, results: Sequence[Result], number: int = 0) -> Sent:
        """From results one by one."""
        columns: dict[str, list[object]] = {
            "time": [result.nanoseconds for result in results],
            "tick": [result.tick for result in results],
            "sign": [result.sign or None for result in results],
            "empty": [result.empty for result in results],
        }
        match query.form:
            case "ask":
                columns["answer"] = [result.boolean for result in results]
            case "construct":
                columns["triples"] = [" ".join(f"{s} {p} {o} ." for s, p, o in result.triples) for result in results]
            case _:
                rows = [(None,) * len(query.variables) if each.empty else each.values for each in results]
                for place, name in enumerate(query.variables):
                    columns[f"?{name}"] = [None if row[place] is None else str(row[place]) for row in rows]
        return cls(query, pyarrow.table(columns, schema_of(query)).to_batches(), number)

    def merged(self, number: int) -> Sent:
        """The same, of parts of a query that come one after the other, in the order of the whole."""
        columns = self.columns
        keys = {name: columns[name].cast(pyarrow.string()).fill_null("") for name in columns.column_names[4:]}
        by = pyarrow.table(
            {"tick": columns["tick"], "sign": columns["sign"].cast(pyarrow.string()).fill_null(""), **keys}
        )
        order = [("tick", "ascending"), ("sign", "descending"), *((name, "ascending") for name in keys)]  # - before +
        return Sent(self.query, columns.take(pyarrow.compute.sort_indices(by, order)).to_batches(), number)

    @property
    def name(self) -> str:
        """The query's name."""
        assert self.query.name is not None
        return self.query.name

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    @cached_property
    def columns(self) -> Any:
        """All batches as one table of texts."""
        if not self.batches:
            return schema_of(self.query).empty_table()
        return pyarrow.Table.from_batches(self.batches)

    def divided(self, most: int) -> Iterator[Sent]:
        """The same in parts of at most so many results."""
        if len(self) <= most:
            yield self
            return
        for start in range(0, len(self), most):
            yield Sent(self.query, self.columns.slice(start, most).to_batches(), self.number + start)

    def from_number(self, number: int) -> Sent:
        """The results with this number and larger ones."""
        return Sent(self.query, self.columns.slice(number - self.number).to_batches(), number)

    def table(self) -> Any:
        """The table that `arrow_columns.table_of` makes of the results: typed where all values have a type."""
        kept = self.columns.filter(pyarrow.compute.invert(self.columns["empty"]))
        made = {
            "time": kept["time"].cast(pyarrow.timestamp("ns")),
            "tick": kept["tick"],
            "sign": kept["sign"].cast(pyarrow.string()),
        }
        if self.query.form in ("ask", "construct"):
            column = "answer" if self.query.form == "ask" else "triples"
            made[column] = kept[column]
        else:
            for name in self.query.variables:
                made[name] = by_distinct(kept[f"?{name}"], lambda texts: typed(pyarrow, list(map(term_of, texts))))
        return pyarrow.table(made)

    def results(self) -> Iterator[Result]:
        """The results one by one."""
        columns, name = self.columns, self.name
        times, ticks, empty = (columns[each].to_pylist() for each in ("time", "tick", "empty"))
        signs = [sign or "" for sign in columns["sign"].to_pylist()]
        match self.query.form:
            case "ask":
                for time, tick, sign, none, answer in zip(
                    times, ticks, signs, empty, columns["answer"].to_pylist(), strict=True
                ):
                    yield Result(name, time, tick, sign, (), boolean=answer, empty=none)
            case "construct":
                for time, tick, sign, none, text in zip(
                    times, ticks, signs, empty, columns["triples"].to_pylist(), strict=True
                ):
                    yield Result(name, time, tick, sign, (), triples_of(text or ""), empty=none)
            case _:
                names = self.query.variables
                values = [terms(columns[f"?{each}"]) for each in names]
                rows: Iterable[tuple[Term | None, ...]] = zip(*values, strict=True) if values else repeat(())
                for time, tick, sign, none, row in zip(times, ticks, signs, empty, rows, strict=False):
                    yield Result(name, time, tick, sign, () if none else row, empty=none, variables=names)


def by_distinct(column: Any, made: Callable[[list[str]], Any]) -> Any:
    """A column in which each distinct text is converted once; what is null stays so."""
    encoded = _encoded(column)
    return made(encoded.dictionary.to_pylist()).take(encoded.indices)


def terms(column: Any) -> list[Term | None]:
    """The terms of a column of texts."""
    encoded = _encoded(column)
    known = list(map(term_of, encoded.dictionary.to_pylist()))
    return [None if index is None else known[index] for index in encoded.indices.to_pylist()]


def _encoded(column: Any) -> Any:
    """One array with a dictionary of the texts that are in it, and no others."""
    whole = column.combine_chunks()
    return (whole.dictionary_decode() if pyarrow.types.is_dictionary(whole.type) else whole).dictionary_encode()


def triples_of(text: str) -> tuple[Triple, ...]:
    """The triples of a constructed element, of its text `s p o . s p o .`"""
    return tuple((term_of(s), term_of(p), term_of(o)) for s, p, o in TRIPLE.findall(text))  # type: ignore[misc]
