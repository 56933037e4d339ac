"""The policy `cqels-1`: SLIDE is ignored, and what changes by expiry alone is not sent (SPEC §4).

So an element makes two steps of one tick: what its time lets expire, then what it brings.  Only the second is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cqels.engine.answers import Answers, Change, Row
from cqels.engine.batch import Words
from cqels.engine.terms import Terms
from cqels.io import Result
from cqels.lang.syntax import Range
from cqels.plan.algebra import Plan, Stream


def without_slide(plan: Plan) -> Plan:
    """The node with windows that do not slide."""
    if not isinstance(plan, Stream):
        return plan
    sources = tuple(
        replace(source, window=replace(source.window, slide=None)) if isinstance(source.window, Range) else source
        for source in plan.sources
    )
    return replace(plan, sources=sources)


@dataclass
class PublishedAnswers(Answers):
    """Makes the results of one query, those of expiry left out."""

    def results_of(self, rows: Words, terms: Terms) -> Iterator[Result]:
        """The results of what the machine sent: of each tick, what expired comes before what arrived."""
        expiry: Change | None = None
        for change in self.changes_of(rows, terms):
            if expiry is not None and expiry.tick != change.tick:
                yield from self.arrived(expiry, None)
                expiry = None
            if change.by_expiry:
                expiry = change
            else:
                yield from self.arrived(expiry, change)
                expiry = None
        if expiry is not None:
            yield from self.arrived(expiry, None)

    def arrived(self, expiry: Change | None, arrival: Change | None) -> Iterator[Result]:
        """The results of an element's tick: what changed by its time alone, then by itself; None is nothing."""
        if self.query.form == "ask":
            yield from self._asked(expiry, arrival)
            return
        before = self.before
        unmoved = before if expiry is None or not expiry.whole else self._ordered(expiry)
        if arrival is None:
            self.before = unmoved
        elif not arrival.whole:
            yield from self._sent(arrival, self._brought(expiry, arrival))
        else:
            rows = self._ordered(arrival)
            signed = self._compared(rows, ordered=bool(self.tail))
            self.before = rows
            yield from self._sent(arrival, self._without_expiry(signed, before, unmoved, rows))

    def _asked(self, expiry: Change | None, arrival: Change | None) -> Iterator[Result]:
        unmoved = self.count > 0 if expiry is None else self._holds(expiry)
        answer = unmoved if arrival is None else self._holds(arrival)
        told, self.answer = self.answer, answer
        always = self.query.emit == "rstream"
        if arrival is not None and (always or (answer != told and answer != unmoved)):
            yield Result(self.name, arrival.time, arrival.tick, "", (), boolean=answer)

    def _brought(self, expiry: Change | None, arrival: Change) -> list[tuple[str, Row]]:
        gone = _counted([] if expiry is None else [expiry])
        net = _counted([arrival] if expiry is None else [expiry, arrival])
        appeared = [row for row, weight in net.items() for _ in range(weight)]
        vanished = [row for row, weight in net.items() for _ in range(-weight)]
        return _reduced(self._chosen(appeared, vanished), gone)

    def _without_expiry(
        self, signed: list[tuple[str, Row]] | None, before: list[Row], unmoved: list[Row], rows: list[Row]
    ) -> list[tuple[str, Row]] | None:
        match self.query.emit:
            case "rstream":
                return signed
            case "snapshot":
                same = unmoved == rows if self.tail else Counter(unmoved) == Counter(rows)
                return [] if same else signed
            case _:
                gone = Counter(unmoved)
                gone.subtract(before)
                return _reduced(signed or [], gone)


def _counted(changes: Iterable[Change]) -> Counter[Row]:
    total: Counter[Row] = Counter()
    for change in changes:
        for row, weight, _ in change.rows:
            total[row] += weight
    return total


def _reduced(signed: list[tuple[str, Row]], gone: Counter[Row]) -> list[tuple[str, Row]]:
    """What is left of signed rows without those that expiry alone has changed."""
    left = Counter({row: abs(weight) for row, weight in gone.items()})
    kept = []
    for sign, row in signed:
        if left[row] > 0 and (gone[row] > 0) == (sign == "+"):
            left[row] -= 1
        else:
            kept.append((sign, row))
    return kept
