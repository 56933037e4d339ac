"""The policy `cqels-1`: SLIDE is ignored, and what changes by expiry alone is not sent.

So an element makes two steps of one tick: what its time lets expire, then what it brings.  Only the second is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cqels.engine.output.result_emission import Answers, Row, by_text
from cqels.ingest.element_batch import Words
from cqels.ingest.term_codec import Terms
from cqels.kernels.containers.delta_queue import COLUMNS, NUMBER, OLDEST, TIME, WEIGHT
from cqels.lang.syntax import Range
from cqels.model.dictionary import term_of
from cqels.plan.algebra import Plan, Stream
from cqels.results import Result


def without_slide(plan: Plan) -> Plan:
    """The node with windows that do not slide."""
    if not isinstance(plan, Stream):
        return plan
    sources = tuple(
        replace(source, window=replace(source.window, slide=None)) if isinstance(source.window, Range) else source
        for source in plan.sources
    )
    return replace(plan, sources=sources)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of a tick changed, or (for `rstream` and `snapshot`) all solutions after it: rows and weights."""

    time: int
    tick: int
    by_expiry: bool
    rows: list[tuple[Row, int]]

    @property
    def total(self) -> int:
        return sum(weight for _, weight in self.rows)


@dataclass
class PublishedAnswers(Answers):
    """Makes the results of one query, those of expiry left out."""

    before: list[Row] = field(default_factory=list)
    """The whole result after the last tick, for `snapshot`."""

    def results_of(self, rows: Words, terms: Terms) -> Iterator[Result]:
        """The results of what the machine sent: of each tick, what expired comes before what arrived."""
        expiry: Step | None = None
        for step in _steps(rows, terms):
            if expiry is not None and expiry.tick != step.tick:
                yield from self._arrived(expiry, None)
                expiry = None
            if step.by_expiry:
                expiry = step
            else:
                yield from self._arrived(expiry, step)
                expiry = None
        if expiry is not None:
            yield from self._arrived(expiry, None)

    def state(self) -> dict[str, Any]:
        before = [[None if term is None else str(term) for term in row] for row in self.before]
        return {**Answers.state(self), "before": before}

    def restore(self, state: dict[str, Any]) -> None:
        Answers.restore(self, state)
        rows = state["before"]
        self.before = [tuple(None if text is None else term_of(text) for text in row) for row in rows]

    def _arrived(self, expiry: Step | None, arrival: Step | None) -> Iterator[Result]:
        """The results of an element's tick: what changed by its time alone, then by itself; None is nothing."""
        if self.query.form == "ask":
            yield from self._answered(expiry, arrival)
        elif self.query.emit == "rstream":
            if arrival is not None:
                yield from self._sent(arrival, [("", row) for row, _ in arrival.rows])
        elif self.query.emit == "snapshot":
            yield from self._shown(expiry, arrival)
        elif arrival is not None:
            yield from self._sent(arrival, self._brought(expiry, arrival))

    def _answered(self, expiry: Step | None, arrival: Step | None) -> Iterator[Result]:
        always = self.query.emit == "rstream"
        if expiry is not None:
            self.count += expiry.total
        unmoved = self.count > 0
        if arrival is not None:
            self.count = arrival.total if always else self.count + arrival.total
        before, self.answer = self.answer, self.count > 0
        if arrival is not None and (always or self.answer not in (before, unmoved)):
            yield Result(self.name, arrival.time, arrival.tick, "", (), boolean=self.answer)

    def _shown(self, expiry: Step | None, arrival: Step | None) -> Iterator[Result]:
        last = expiry if arrival is None else arrival
        assert last is not None
        before, self.before = self.before, [row for row, _ in last.rows]
        if arrival is None or self.before == before:
            return
        if not self.before:
            yield Result(self.name, arrival.time, arrival.tick, "", (), empty=True, variables=self.query.selected)
        yield from self._sent(arrival, [("", row) for row in self.before])

    def _brought(self, expiry: Step | None, arrival: Step) -> list[tuple[str, Row]]:
        """What a tick changed without what expiry alone changed."""
        gone: Counter[Row] = Counter()
        for row, weight in () if expiry is None else expiry.rows:
            gone[row] += weight
        net = Counter(gone)
        for row, weight in arrival.rows:
            net[row] += weight
        emit, sent = self.query.emit, []
        for sign, factor in (("-", -1), ("+", 1)):
            if emit == "changes" or emit == ("istream" if factor > 0 else "dstream"):
                left = {row: factor * weight - max(factor * gone[row], 0) for row, weight in net.items()}
                shown = sign if emit == "changes" else ""
                sent += [(shown, row) for row in by_text(row for row, count in left.items() for _ in range(count))]
        return sent

    def _sent(self, arrival: Step, signed: list[tuple[str, Row]]) -> list[Result]:
        count, signs, rows = len(signed), [sign for sign, _ in signed], [row for _, row in signed]
        return self.made([arrival.time] * count, [arrival.tick] * count, signs, rows)


def _steps(rows: Words, terms: Terms) -> Iterator[Step]:
    """The steps of what the machine sent, one after the other."""
    solutions = terms.decode_rows(rows[:, COLUMNS:])
    weights = rows[:, WEIGHT].tolist()
    starts = np.flatnonzero(np.diff(2 * rows[:, NUMBER] - rows[:, OLDEST], prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        found = [(solutions[index], weights[index]) for index in range(start, end) if weights[index] != 0]
        time, tick, by_expiry = rows[start, [TIME, NUMBER, OLDEST]].tolist()
        yield Step(time, tick, by_expiry == 1, found)
