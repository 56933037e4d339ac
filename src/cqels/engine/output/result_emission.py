"""From what the kernels send to what a query emits: rows of words become results.

The machine sends rows with a weight, the tick's time and number, and columns: for `rstream` and `snapshot` whole
results in their order, each behind a row of weight 0 that announces it, else how the number of each solution changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cqels.ingest.element_batch import Words
from cqels.ingest.term_codec import Column, Terms, columns_of
from cqels.kernels.containers.delta_queue import COLUMNS, NUMBER, TIME, WEIGHT
from cqels.model.terms import Term, text_of
from cqels.plan.algebra import Query
from cqels.plan.construct import constructed
from cqels.results import Result

Row: TypeAlias = tuple[Term | None, ...]

_FEW = 8
"""Rows for which arrays do not pay."""
_SIGNS = ("", "+", "-")
"""By the sign of a weight: 0, 1, -1."""
_result = partial(tuple.__new__, Result)
"""A result from the tuple of all its fields."""


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Solutions that were sent, in their order, as arrays.

    `signs` are 1, -1, or 0 where a sign does not apply. The row that says that a snapshot is `empty` has no terms.
    """

    times: Words
    ticks: Words
    signs: Words
    empty: npt.NDArray[np.bool_]
    columns: list[Column]


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
        if len(rows) <= _FEW and not self._whole:
            return self._changed_few(rows, terms)
        sent = self.sent(rows, terms)
        solutions = terms.decode_columns(sent.columns) if sent.columns else [()] * len(sent.ticks)
        for index in np.flatnonzero(sent.empty).tolist():
            solutions[index] = ()
        signs = map(_SIGNS.__getitem__, sent.signs.tolist())
        return self.made(sent.times.tolist(), sent.ticks.tolist(), signs, solutions, sent.empty.tolist())

    def sent(self, rows: Words, terms: Terms) -> Sent:
        """The solutions of what the machine sent, of any query but ASK. What is not emitted is not looked at."""
        return self._listed(rows) if self._whole else self._changed(rows, terms)

    def state(self) -> dict[str, Any]:
        """What is remembered, as plain values."""
        return {"count": self.count, "answer": self.answer}

    def restore(self, state: dict[str, Any]) -> None:
        self.count, self.answer = state["count"], state["answer"]

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

    @property
    def _whole(self) -> bool:
        return self.query.emit in ("rstream", "snapshot")

    def _changed(self, rows: Words, terms: Terms) -> Sent:
        """What came and went."""
        emit = self.query.emit
        if emit != "changes":
            rows = rows[rows[:, WEIGHT] > 0 if emit == "istream" else rows[:, WEIGHT] < 0]
        copies = np.abs(rows[:, WEIGHT])
        if (copies != 1).any():
            rows = np.repeat(rows, copies, axis=0)
        parts = 2 * rows[:, NUMBER] + (rows[:, WEIGHT] > 0)  # of a tick, what goes comes first
        columns = columns_of(rows[:, COLUMNS:])
        order = _by_text(parts, columns, terms)
        rows, columns = rows[order], [(words, codes[order]) for words, codes in columns]
        signs = np.sign(rows[:, WEIGHT]) if emit == "changes" else np.zeros(len(rows), np.int64)
        return Sent(rows[:, TIME], rows[:, NUMBER], signs, np.zeros(len(rows), np.bool_), columns)

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

    def _listed(self, rows: Words) -> Sent:
        """Whole results; an empty one is sent for `snapshot`."""
        heads = rows[:, WEIGHT] == 0
        empty = heads & np.append(heads[1:], True)
        kept = np.flatnonzero(~heads if self.query.emit == "rstream" else ~heads | empty)
        rows, empty = rows.take(kept, axis=0), empty[kept]
        rows[empty, COLUMNS:] = 0
        none = np.zeros(len(rows), np.int64)
        return Sent(rows[:, TIME], rows[:, NUMBER], none, empty, columns_of(rows[:, COLUMNS:]))

    # ------------------------------------------------------------ results

    def made(
        self,
        times: Iterable[int],
        ticks: Iterable[int],
        signs: Iterable[str],
        solutions: Sequence[Row],
        empty: Iterable[bool] = repeat(False),
    ) -> list[Result]:
        """The results of solutions in the order of their ticks."""
        name, variables = self.name, self.query.variables
        if self.query.form == "select":
            fields = (repeat(name), times, ticks, signs, solutions, repeat(()), repeat(None), empty, repeat(variables))
            return list(map(_result, zip(*fields, strict=False)))
        results: list[Result] = []
        last, number = -1, 0
        for time, tick, sign, row, none in zip(times, ticks, signs, solutions, empty, strict=False):
            if tick != last:
                last, number = tick, 0
            if none:
                results.append(Result(name, time, tick, sign, (), empty=True))
            elif triples := constructed(self.query, self.columns, row, f"{name} {tick} {number}"):
                number += 1
                results.append(Result(name, time, tick, sign, (), triples))
        return results


def _by_text(parts: Words, columns: Sequence[Column], terms: Terms) -> Words:
    """The order of rows that is that of their parts, and within a part that of the texts of their terms."""
    order = np.argsort(parts, kind="stable")
    ordered = parts[order]
    alike = ordered[1:] == ordered[:-1]
    together = np.flatnonzero(np.append(alike, False) | np.append(False, alike))
    if len(together):
        rows = order[together]
        ranks = [_ranks(words, codes[rows], terms) for words, codes in columns]
        order[together] = rows[np.lexsort((*reversed(ranks), parts[rows]))]
    return order


def _ranks(words: Words, codes: Words, terms: Terms) -> Words:
    """Numbers for some of the words of a column that compare as the texts of their terms do."""
    used = np.zeros(len(words), np.bool_)
    used[codes] = True
    texts = terms.texts(words[used])
    ranks = np.empty(len(words), np.int64)
    ranks[np.flatnonzero(used)[sorted(range(len(texts)), key=texts.__getitem__)]] = np.arange(len(texts))
    return ranks[codes]


def by_text(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(map(text_of, row)))
