"""Solutions that remember which elements they came from, and bags of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cqels.model.terms import Term, text_of

Stamp: TypeAlias = tuple[int, int]
"""Time of an element and its number in order of arrival: later is newer."""

NEVER: Stamp = (-(2**63), -1)
"""The stamp of what came from no element: static data, VALUES, BIND."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Bindings, the newest element they used, and the time of the oldest (None where no element was used)."""

    bindings: Mapping[str, Term]
    newest: Stamp = NEVER
    oldest: int | None = None

    @property
    def interval(self) -> tuple[int, int] | None:
        return None if self.oldest is None else (self.oldest, self.newest[0])

    def joined(self, other: Solution) -> Solution | None:
        """Both together, or None when they disagree on a variable."""
        for name, term in other.bindings.items():
            if self.bindings.get(name, term) != term:
                return None
        return Solution({**self.bindings, **other.bindings}, *_both(self, other))

    def bound(self, bindings: Mapping[str, Term]) -> Solution:
        """The same elements, other bindings."""
        return Solution(bindings, self.newest, self.oldest)

    def as_fresh_as(self, other: Solution) -> Solution:
        """The same bindings, made by the elements of both."""
        return Solution(self.bindings, *_both(self, other))

    def text(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(text_of(self.bindings.get(name)) for name in names)


def _both(one: Solution, other: Solution) -> tuple[Stamp, int | None]:
    starts = [start for start in (one.oldest, other.oldest) if start is not None]
    return max(one.newest, other.newest), min(starts, default=None)


Bag: TypeAlias = list[Solution]


def agree(one: Mapping[str, Term], other: Mapping[str, Term]) -> bool:
    """No variable that both bind has two values."""
    return all(other.get(name, term) == term for name, term in one.items())


def freshest_first(bag: Sequence[Solution], names: Sequence[str]) -> Bag:
    """The order where none is asked for: the newest element first, then the text of the terms."""
    return sorted(bag, key=lambda each: ((-each.newest[0], -each.newest[1]), each.text(names)))


def merged_duplicates(bag: Iterable[Solution]) -> Bag:
    """Each mapping once, at the place of the first, as fresh as the freshest."""
    found: dict[frozenset[tuple[str, Term]], Solution] = {}
    for each in bag:
        key = frozenset(each.bindings.items())
        found[key] = found[key].as_fresh_as(each) if key in found else each
    return list(found.values())


class Partners:
    """The solutions of one side of a join, found by the variables that all of them bind."""

    def __init__(self, bag: Bag, others: Bag) -> None:
        always = [frozenset(each.bindings) for each in (*bag, *others)]
        self._on = sorted(frozenset.intersection(*always)) if always else []
        self._found: dict[tuple[Term, ...], Bag] = {}
        for each in bag:
            self._found.setdefault(self._key(each), []).append(each)

    def _key(self, solution: Solution) -> tuple[Term, ...]:
        return tuple(solution.bindings[name] for name in self._on)

    def of(self, solution: Solution) -> Bag:
        """Those that may be compatible; the caller still checks the variables that are bound only sometimes."""
        return self._found.get(self._key(solution), [])
