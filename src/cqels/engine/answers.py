"""From what the kernels send to what a query emits: rows of words become results (SPEC §4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from cqels.io import Result
from cqels.model.terms import Term, text_of
from cqels.plan.algebra import Query
from cqels.plan.template import constructed

Row = tuple[Term | None, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Solutions of a tick that changed and how many of each, or (whole) all of them in order, one by one."""

    time: int
    tick: int
    whole: bool
    rows: list[tuple[Row, int]]


@dataclass
class Answers:
    """Makes the results of one query, and remembers what it needs from tick to tick."""

    query: Query
    name: str
    columns: tuple[str, ...]
    count: int = 0
    answer: bool = False

    def results(self, change: Change) -> Iterator[Result]:
        if self.query.form == "ask":
            yield from self._ask(change)
            return
        signed = [("+", row) for row, _ in change.rows] if change.whole else self._signed(change)
        if change.whole and not signed and self.query.emit == "snapshot":
            yield Result(self.name, change.time, change.tick, "", (), empty=True)
            return
        number = 0
        for sign, row in signed:
            shown = sign if self.query.emit == "changes" else ""
            if self.query.form == "select":
                yield Result(self.name, change.time, change.tick, shown, row)
                continue
            place = f"{self.name} {change.tick} {number}"
            if triples := constructed(self.query, self.columns, row, place):
                number += 1
                yield Result(self.name, change.time, change.tick, shown, (), triples)

    def _ask(self, change: Change) -> Iterator[Result]:
        weight = sum(weight for _, weight in change.rows)
        self.count = weight if change.whole else self.count + weight
        answer = self.count > 0
        if answer != self.answer or change.whole:
            self.answer = answer
            yield Result(self.name, change.time, change.tick, "", (), boolean=answer)

    def _signed(self, change: Change) -> list[tuple[str, Row]]:
        plus = [("+", row) for row in _by_text([row for row, weight in change.rows for _ in range(weight)])]
        minus = [("-", row) for row in _by_text([row for row, weight in change.rows for _ in range(-weight)])]
        match self.query.emit:
            case "istream":
                return plus
            case "dstream":
                return minus
            case _:
                return minus + plus


def _by_text(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(map(text_of, row)))


def changes_of(rows: Iterator[tuple[int, int, int, Row]]) -> Iterator[Change]:
    """Group the kernels' results by tick. A result of weight 0 announces that a whole follows."""
    for (time, tick), members in groupby(rows, key=lambda row: (row[1], row[2])):
        found = list(members)
        whole = found[0][0] == 0
        yield Change(time, tick, whole, [(row, weight) for weight, _, _, row in found if weight != 0])
