"""Graphs to match patterns against: a set of triples, each with the elements that brought it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cqels.model.terms import Term, Triple
from cqels.reference.solutions import Stamp


class StampedGraph:
    """A set of triples. `stamps` has the occurrences of each, oldest first; static triples have none."""

    def __init__(self, triples: Iterable[tuple[Triple, Stamp | None]] = ()) -> None:
        self.stamps: dict[Triple, list[Stamp]] = {}
        self._by: tuple[dict[Term, list[Triple]], ...] = ({}, {}, {})
        for triple, stamp in triples:
            self.add(triple, stamp)

    def add(self, triple: Triple, stamp: Stamp | None) -> None:
        if triple not in self.stamps:
            self.stamps[triple] = []
            for index, term in enumerate(triple):
                self._by[index].setdefault(term, []).append(triple)
        if stamp is not None:
            self.stamps[triple].append(stamp)
            self.stamps[triple].sort()

    def match(self, subject: Term | None, predicate: Term | None, target: Term | None) -> Iterator[Triple]:
        """The triples with these terms; None is any."""
        wanted = (subject, predicate, target)
        lists = [self._by[index].get(term, []) for index, term in enumerate(wanted) if term is not None]
        for triple in min(lists, key=len) if lists else list(self.stamps):
            if all(term is None or term == found for term, found in zip(wanted, triple, strict=True)):
                yield triple

    def nodes(self) -> list[Term]:
        """Every subject and object."""
        return list(dict.fromkeys([*self._by[0], *self._by[2]]))

    def has_node(self, term: Term) -> bool:
        return term in self._by[0] or term in self._by[2]

    def __contains__(self, triple: Triple) -> bool:
        return triple in self.stamps
