"""What a window holds at a tick, straight from the language reference: a selection from everything that has arrived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyoxigraph import Literal, NamedNode

from cqels.lang.syntax import All, Count, Now, Range, Window
from cqels.model.terms import Triple
from cqels.model.time import time_of
from cqels.reference.solutions import Stamp


@dataclass(frozen=True, slots=True)
class Arrival:
    """An element as it arrived: its time, its number in order of arrival over all streams, its triples."""

    time: int
    number: int
    triples: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class Boundary:
    """A boundary that has closed: its time, and the number of the first element that arrived after that."""

    time: int
    number: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a query stands: the time of its tick, and the last boundary that has closed for each slide."""

    now: int
    closed: dict[int, Boundary | None]


def content(window: Window, arrivals: Sequence[Arrival], moment: Moment) -> list[tuple[Triple, Stamp]]:
    """The triples in the window, each with the stamp of the element that brought it."""
    match window:
        case Now():
            return _triples(each for each in arrivals if each.time == moment.now)
        case All():
            return _triples(arrivals)
        case Range(width=width, slide=None, time=predicate):
            now = moment.now
            return _triples(each for each in timed(arrivals, predicate) if now - width <= each.time <= now)
        case Range(width=width, slide=slide, time=predicate):
            assert slide is not None
            closed = moment.closed[slide]
            if closed is None:
                return []
            # with `@<predicate>` an element may come after the window that its time belongs to has closed
            there = [each for each in arrivals if each.number < closed.number]
            start, end = closed.time - width, closed.time
            return _triples(each for each in timed(there, predicate) if start < each.time <= end)
        case Count(size=_, unit="solutions"):
            return _triples(arrivals)  # which solutions are kept is decided when they are known
        case Count(size=size, unit="triples"):
            return _triples(arrivals)[-size:]
        case Count(size=size):
            return _triples(arrivals[-size:])


def _triples(arrivals: Iterable[Arrival]) -> list[tuple[Triple, Stamp]]:
    return [(triple, (each.time, each.number)) for each in arrivals for triple in each.triples]


def timed(arrivals: Sequence[Arrival], predicate: NamedNode | None) -> list[Arrival]:
    """With `@<predicate>` an element's time is the object of that predicate; one without it is in no such window."""
    if predicate is None:
        return list(arrivals)
    found = []
    for each in arrivals:
        times = [time_of(o) for _, p, o in each.triples if p == predicate and isinstance(o, Literal)]
        known = [time for time in times if time is not None]
        if known:
            found.append(Arrival(max(known), each.number, each.triples))
    return found


def boundaries(slide: int, start: int, after: int, before: int) -> range:
    """The boundaries c with after ≤ c < before: those that something at `before` closes, when `after` was last."""
    first = start + -(-(after - start) // slide) * slide
    return range(first, before, slide)
