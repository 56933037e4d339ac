"""Which triples of a stream some query can match: all others need not travel. Elements themselves always do.

An element is a tick whatever its triples are, so leaving out triples changes no result; leaving out elements would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pyoxigraph import NamedNode

from cqels.engine.batch import Batch, Words
from cqels.engine.terms import Terms
from cqels.lang.expressions import Exists, Expression, Var, calls, walk
from cqels.lang.syntax import Choice, Count, Inverse, Link, Negated, Path, Range, Repeat, Steps
from cqels.model.terms import Term
from cqels.plan.algebra import (
    Node,
    PathPattern,
    Plan,
    Query,
    Stream,
    Triples,
    expressions_of,
    walk_plan,
)

Pattern: TypeAlias = tuple[Term | None, Term | None, Term | None]
"""Subject, predicate, object; None matches everything."""

ANYTHING: Pattern = (None, None, None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The patterns that queries have over one stream."""

    patterns: frozenset[Pattern]

    @property
    def everything(self) -> bool:
        return ANYTHING in self.patterns

    def matcher(self, terms: Terms) -> Matcher:
        """The patterns in words. The dictionary keeps those for ever."""
        words = {tuple(terms.encode_all(pattern)) for pattern in self.patterns}
        terms.dictionary.pin({word for pattern in words for word in pattern if word > 0})
        return Matcher(np.array(sorted(words), np.int64).reshape(-1, 3))


def wanted(queries: Iterable[Query], stream: str) -> Wanted:
    """What queries can match of a stream, or more where it is not easy to tell."""
    return Wanted(frozenset(pattern for query in queries for pattern in _patterns(query, stream)))


def _patterns(query: Query, stream: str) -> Iterator[Pattern]:
    read = [node for node in walk_plan(query.plan) if isinstance(node, Stream) and _reads(node, stream)]
    if read and (_asks_what_windows_hold(query) or any(map(_counts, read)) or _asks_times_of_triples(query)):
        yield ANYTHING
    for node in read:
        for source in node.sources:
            if isinstance(source.window, Range) and source.window.time is not None:
                yield None, source.window.time, None
        for inner in walk_plan(node.input):
            match inner:
                case Triples(patterns=patterns):
                    for each in patterns:
                        yield _constant(each.subject), _constant(each.predicate), _constant(each.object)
                case PathPattern(path=path):
                    yield from _steps(path)


def _reads(node: Stream, stream: str) -> bool:
    return any(not isinstance(each.stream, NamedNode) or each.stream.value == stream for each in node.sources)


def _asks_what_windows_hold(query: Query) -> bool:
    """What is sent depends on whether a window changed or is empty, not on solutions alone."""
    return query.emit == "rstream" or (query.emit == "snapshot" and query.policy == "window-close")


def _counts(node: Stream) -> bool:
    return any(isinstance(each.window, Count) for each in node.sources)


def _asks_times_of_triples(query: Query) -> bool:
    """f:timestamp(s, p, o) looks for a triple that may be in no pattern."""
    return any("TIMESTAMP" in calls(each) for node in walk_plan(query.plan) for each in _expressions(node))


def _expressions(node: Plan) -> Iterator[Expression]:
    for expression in expressions_of(node):
        yield from (each for each in walk(expression) if not isinstance(each, Exists))


def _constant(node: Node) -> Term | None:
    return None if isinstance(node, Var) else node


def _steps(path: Path) -> Iterator[Pattern]:
    match path:
        case Link(iri=iri):
            yield None, iri, None
        case Inverse(path=inner):
            yield from _steps(inner)
        case Steps(paths=paths) | Choice(paths=paths):
            for each in paths:
                yield from _steps(each)
        case Repeat(path=inner, low=low):
            if low == 0:  # it connects every node of the graph with itself
                yield ANYTHING
            yield from _steps(inner)
        case Negated():
            yield ANYTHING


@dataclass(frozen=True, slots=True, eq=False)
class Matcher:
    """Patterns in the words of a dictionary, 0 for any word."""

    patterns: Words

    def matches(self, triples: Words) -> npt.NDArray[np.bool_]:
        """Which of the triples, rows of three words, some pattern matches."""
        by_predicate = (self.patterns[:, 0] == 0) & (self.patterns[:, 1] != 0) & (self.patterns[:, 2] == 0)
        found = np.isin(triples[:, 1], self.patterns[by_predicate, 1])
        for pattern in self.patterns[~by_predicate]:
            fits = np.ones(len(triples), np.bool_)
            for column in np.flatnonzero(pattern):
                fits &= triples[:, column] == pattern[column]
            found |= fits
        return found

    def kept(self, batch: Batch) -> Batch:
        """All elements, each with those of its triples that some pattern matches."""
        return only(batch, self.matches(batch.triples.reshape(-1, 3)))


def only(batch: Batch, found: npt.NDArray[np.bool_]) -> Batch:
    """All elements, each with those of its triples that are marked."""
    if found.all():
        return batch
    ends = np.cumsum(np.concatenate([[0], found]))[np.cumsum(np.concatenate([[0], batch.counts]))]
    return Batch(batch.times, batch.streams, np.diff(ends), batch.triples.reshape(-1, 3)[found].reshape(-1))
