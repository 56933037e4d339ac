"""From what the kernels send to what a query emits: rows of words become results (SPEC §4).

The machine sends rows with a weight, the tick's time and number, and columns: for `rstream` and `snapshot` whole
results in their order, each behind a row of weight 0 that announces it, else how the number of each solution changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from cqels.engine.batch import Words
from cqels.engine.terms import Terms
from cqels.io import Result
from cqels.kernels.rows import COLUMNS, NUMBER, TIME, WEIGHT
from cqels.model.terms import Term, text_of
from cqels.plan.algebra import Query
from cqels.plan.template import constructed

Row: TypeAlias = tuple[Term | None, ...]

_FEW = 8
"""Rows for which arrays do not pay."""


@dataclass
class Answers:
    """Makes the results of one query, and remembers what an ASK needs from tick to tick."""

    query: Query
    name: str
    columns: tuple[str, ...]
    count: int = 0
    answer: bool = False

    def results_of(self, rows: Words, terms: Terms) -> Iterable[Result]:
        """The results of what the machine sent; the rows of a tick are all there, and there is one at least."""
        if self.query.form == "ask":
            return list(self._asked(rows))
        if self.query.emit in ("rstream", "snapshot"):
            return list(self._listed(rows, terms))
        return self._changed_few(rows, terms) if len(rows) <= _FEW else self._changed(rows, terms)

    def state(self, terms: Terms) -> list[Any]:
        """What is remembered, as plain values."""
        return [self.count, self.answer]

    def restore(self, state: list[Any], terms: Terms) -> None:
        self.count, self.answer = state

    # ------------------------------------------------------------ the forms of emission

    def _asked(self, rows: Words) -> Iterator[Result]:
        weights, always = rows[:, WEIGHT], self.query.emit == "rstream"
        starts = np.flatnonzero(weights == 0 if always else np.diff(rows[:, NUMBER], prepend=-1))
        counts = np.add.reduceat(weights, starts)
        if not always:
            counts = self.count + np.cumsum(counts)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            self.count = count
            if always or self.answer != (count > 0):
                self.answer = count > 0
                time, tick = rows[start, TIME : NUMBER + 1].tolist()
                yield Result(self.name, time, tick, "", (), boolean=self.answer)

    def _changed(self, rows: Words, terms: Terms) -> list[Result]:
        """What came and went. What is not emitted is not decoded."""
        emit = self.query.emit
        if emit != "changes":
            rows = rows[rows[:, WEIGHT] > 0 if emit == "istream" else rows[:, WEIGHT] < 0]
        copies = np.abs(rows[:, WEIGHT])
        if (copies != 1).any():
            rows = np.repeat(rows, copies, axis=0)
        parts = 2 * rows[:, NUMBER] + (rows[:, WEIGHT] > 0)
        if (np.diff(parts) < 0).any():  # of a tick, what goes comes first
            order = np.argsort(parts, kind="stable")
            rows, parts = rows[order], parts[order]
        solutions = terms.decode_rows(rows[:, COLUMNS:])
        _sort_parts(solutions, np.flatnonzero(np.diff(parts, prepend=-1)))
        signs: Iterable[str] = repeat("")
        if emit == "changes":
            signs = np.where(rows[:, WEIGHT] > 0, "+", "-").tolist()
        return self.made(rows[:, TIME].tolist(), rows[:, NUMBER].tolist(), signs, solutions)

    def _changed_few(self, rows: Words, terms: Terms) -> list[Result]:
        """`_changed` of a few rows."""
        emit = self.query.emit
        least, most = -np.inf if emit != "istream" else 1, np.inf if emit != "dstream" else -1
        found = [
            (tick, weight > 0, time, tuple(map(terms.decode, words)))
            for weight, time, tick, _, *words in rows.tolist()
            if least <= weight <= most
            for _ in range(abs(weight))
        ]
        if len(found) > 1:
            found.sort(key=lambda each: (*each[:2], *map(text_of, each[3])))
        signs = [("+" if came else "-") if emit == "changes" else "" for _, came, _, _ in found]
        return self.made([each[2] for each in found], [each[0] for each in found], signs, [each[3] for each in found])

    def _listed(self, rows: Words, terms: Terms) -> Iterator[Result]:
        """Whole results; an empty one is told for `snapshot`."""
        heads = rows[:, WEIGHT] == 0
        whole = rows[~heads]
        results = self.made(
            whole[:, TIME].tolist(), whole[:, NUMBER].tolist(), repeat(""), terms.decode_rows(whole[:, COLUMNS:])
        )
        empty = np.flatnonzero(heads & np.append(heads[1:], True))
        if self.query.emit == "rstream" or not len(empty):
            yield from results
            return
        told = [
            Result(self.name, time, tick, "", (), empty=True) for time, tick in rows[empty, TIME : NUMBER + 1].tolist()
        ]
        yield from sorted([*results, *told], key=lambda result: result.tick)

    # ------------------------------------------------------------ results

    def made(
        self, times: Sequence[int], ticks: Sequence[int], signs: Iterable[str], solutions: Sequence[Row]
    ) -> list[Result]:
        """The results of solutions in the order of their ticks."""
        name = self.name
        if self.query.form == "select":
            return [
                Result(name, time, tick, sign, row)
                for time, tick, sign, row in zip(times, ticks, signs, solutions, strict=False)
            ]
        results: list[Result] = []
        last, number = -1, 0
        for time, tick, sign, row in zip(times, ticks, signs, solutions, strict=False):
            if tick != last:
                last, number = tick, 0
            if triples := constructed(self.query, self.columns, row, f"{name} {tick} {number}"):
                number += 1
                results.append(Result(name, time, tick, sign, (), triples))
        return results


def _sort_parts(solutions: list[Row], starts: Words) -> None:
    """Sort each part of a list by the texts of its terms."""
    ends = np.append(starts[1:], len(solutions))
    long = np.flatnonzero(ends - starts > 1)
    for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
        solutions[start:end] = by_text(solutions[start:end])


def by_text(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(map(text_of, row)))
