"""From what the kernels send to what a query emits: rows of words become results (SPEC §4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cqels.engine.batch import Words
from cqels.engine.terms import Terms
from cqels.io import Result
from cqels.kernels.rows import COLUMNS, NUMBER, OLDEST, TIME, WEIGHT
from cqels.lang.expressions import Expression
from cqels.model.terms import Term, text_of
from cqels.model.values import ExpressionError, order_key
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query
from cqels.plan.functions import Context, evaluate
from cqels.plan.template import constructed

Row = tuple[Term | None, ...]
Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """Solutions of a tick that changed, or (whole) all of them: words, how many, and the newest element's stamp."""

    time: int
    tick: int
    whole: bool
    rows: list[tuple[Row, int, Stamp]]
    by_expiry: bool = False
    """It is what the tick would have changed had nothing arrived, where that is told apart."""


@dataclass
class Answers:
    """Makes the results of one query, and remembers what it needs from tick to tick."""

    query: Query
    name: str
    columns: tuple[str, ...]
    tail: tuple[Plan, ...]
    """ORDER BY, LIMIT and what is between them, the innermost first."""
    before: list[Row] = field(default_factory=list)
    count: int = 0
    answer: bool = False

    def results_of(self, rows: Words, terms: Terms) -> Iterator[Result]:
        """The results of what the machine sent."""
        for change in self.changes_of(rows, terms):
            yield from self.results(change)

    def changes_of(self, rows: Words, terms: Terms) -> Iterator[Change]:
        """The changes of what the machine sent: rows with weight, the tick's time and number, columns and stamps.

        A row of weight 0 announces that a whole follows.  What is due to expiry comes before the rest of its tick.
        """
        width = len(self.columns)
        stamps = rows[:, COLUMNS + width :].tolist()
        solutions = terms.decode_rows(rows[:, COLUMNS : COLUMNS + width])
        heads = rows[:, :COLUMNS].tolist()
        parts = 2 * rows[:, NUMBER] - rows[:, OLDEST]
        starts = np.flatnonzero(np.diff(parts, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            found = [
                (solutions[place], heads[place][WEIGHT], (stamps[place][0], stamps[place][1]))
                for place in range(start, end)
                if heads[place][WEIGHT] != 0
            ]
            time, tick, whole = heads[start][TIME], heads[start][NUMBER], heads[start][WEIGHT] == 0
            yield Change(time, tick, whole, found, heads[start][OLDEST] == 1)

    def results(self, change: Change) -> Iterator[Result]:
        if self.query.form == "ask":
            yield from self._ask(change)
            return
        signed: list[tuple[str, Row]] | None
        if not change.whole:
            signed = self._signed(change)
        else:
            rows = self._ordered(change)
            signed = self._compared(rows, ordered=bool(self.tail))
            self.before = rows
        yield from self._sent(change, signed)

    def _sent(self, change: Change, signed: list[tuple[str, Row]] | None) -> Iterator[Result]:
        if signed is None:
            yield Result(self.name, change.time, change.tick, "", (), empty=True)
            return
        number = 0
        for sign, row in signed:
            shown = sign if self.query.emit == "changes" else ""
            if self.query.form == "select":
                yield Result(self.name, change.time, change.tick, shown, row)
                continue
            place = f"{self.name} {change.tick} {number}"
            if triples := constructed(self.query, self.names, row, place):
                number += 1
                yield Result(self.name, change.time, change.tick, shown, (), triples)

    def state(self, terms: Terms) -> list[Any]:
        """What is remembered, as plain values."""
        return [[terms.encode_all(row) for row in self.before], self.count, self.answer]

    def restore(self, state: list[Any], terms: Terms) -> None:
        rows, self.count, self.answer = state
        self.before = [tuple(terms.decode(word) for word in row) for row in rows]

    @property
    def names(self) -> tuple[str, ...]:
        projected = [node.variables for node in self.tail if isinstance(node, algebra.Project)]
        return projected[-1] if projected else self.columns

    def _ask(self, change: Change) -> Iterator[Result]:
        answer = self._holds(change)
        if answer != self.answer or (change.whole and self.query.emit == "rstream"):
            self.answer = answer
            yield Result(self.name, change.time, change.tick, "", (), boolean=answer)

    def _holds(self, change: Change) -> bool:
        """The answer of an ASK after a change."""
        if change.whole:
            self.count = len(self._ordered(change))
        else:
            self.count += sum(weight for _, weight, _ in change.rows)
        return self.count > 0

    def _signed(self, change: Change) -> list[tuple[str, Row]]:
        appeared = [row for row, weight, _ in change.rows for _ in range(weight)]
        vanished = [row for row, weight, _ in change.rows for _ in range(-weight)]
        return self._chosen(appeared, vanished)

    def _chosen(self, appeared: list[Row], vanished: list[Row]) -> list[tuple[str, Row]]:
        plus = [("+", row) for row in _by_text(appeared)]
        minus = [("-", row) for row in _by_text(vanished)]
        match self.query.emit:
            case "istream":
                return plus
            case "dstream":
                return minus
            case _:
                return minus + plus

    def _compared(self, rows: list[Row], *, ordered: bool) -> list[tuple[str, Row]] | None:
        """What a whole result means for the emission; None is an empty snapshot."""
        shown = rows if ordered else _by_text(rows)
        match self.query.emit:
            case "rstream":
                return [("+", row) for row in shown]
            case "snapshot":
                last = self.before if ordered else _by_text(self.before)
                return [] if shown == last else [("+", row) for row in shown] or None
            case _:
                new, old = Counter(rows), Counter(self.before)
                return self._chosen(list((new - old).elements()), list((old - new).elements()))

    # ------------------------------------------------------------ ORDER BY and LIMIT

    def _ordered(self, change: Change) -> list[Row]:
        columns = self.columns
        rows = [(row, stamp) for row, weight, stamp in change.rows for _ in range(weight)]
        is_ordered = False
        for node in self.tail:
            match node:
                case algebra.OrderBy(keys=keys, ties=ties):
                    rows = _freshest_first(rows, [columns.index(name) for name in ties if name in columns])
                    for expression, descending in reversed(keys):
                        rows.sort(key=self._key(expression, columns, change.time), reverse=descending)
                    is_ordered = True
                case algebra.Project(variables=names):
                    places = [columns.index(name) if name in columns else None for name in names]
                    rows = [
                        (tuple(None if place is None else row[place] for place in places), stamp) for row, stamp in rows
                    ]
                    columns = names
                case algebra.Distinct():
                    newest: dict[Row, Stamp] = {}
                    for row, stamp in rows:
                        newest[row] = max(stamp, newest.get(row, stamp))
                    rows = list(newest.items())
                case algebra.Slice(offset=offset, limit=limit):
                    if not is_ordered:
                        rows = _freshest_first(rows, range(len(columns)))
                    rows = rows[offset : None if limit is None else offset + limit]
                    is_ordered = True
                case _:
                    raise AssertionError(f"{node} is not of the tail")
        return [row for row, _ in rows]

    def _key(
        self, expression: Expression, columns: tuple[str, ...], now: int
    ) -> Callable[[tuple[Row, Stamp]], tuple[object, ...]]:
        def key(item: tuple[Row, Stamp]) -> tuple[object, ...]:
            solution = {name: term for name, term in zip(columns, item[0], strict=True) if term is not None}
            try:
                return order_key(evaluate(expression, solution, Context(now=now, seed=self.name)))
            except ExpressionError:
                return order_key(None)

        return key


def _freshest_first(rows: list[tuple[Row, Stamp]], ties: range | list[int]) -> list[tuple[Row, Stamp]]:
    return sorted(rows, key=lambda item: (-item[1][0], -item[1][1], tuple(text_of(item[0][place]) for place in ties)))


def _by_text(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(map(text_of, row)))
