"""Predicate pushdown: triples that no query can match are dropped before the shuffle.

Elements are kept even if they become empty: each is a tick, so dropping triples changes no result, but dropping
elements would.  A triple that a FILTER refuses is dropped too, where the filter reads nothing but that triple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyoxigraph import NamedNode

from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.term_codec import Terms
from cqels.kernels.readers import triple_filter
from cqels.lang.expressions import Call, Exists, Expression, Var, calls, walk
from cqels.lang.syntax import Choice, Count, Inverse, Link, Negated, Path, Range, Repeat, Steps
from cqels.model.terms import Term
from cqels.physical.expression_compiler import compile_expression, is_native
from cqels.physical.python_functions import Calls
from cqels.plan.algebra import (
    Filter,
    LeftJoin,
    Node,
    PathPattern,
    Plan,
    Query,
    Stream,
    Triple,
    Triples,
    expressions_of,
    inputs_of,
    walk_plan,
)
from cqels.plan.optimizer.rules import conjuncts, rewrite
from cqels.plan.scope import reads

MOST_PATTERNS = 16
"""Patterns with one predicate that triples are compared with; if there are more, all its triples are kept."""
LARGEST_CONDITION = 40
"""Nodes of the expression of a condition that is pushed down."""


class Condition(NamedTuple):
    """A filter on a triple, and the variables that stand for its subject, predicate and object."""

    expression: Expression
    variables: tuple[str | None, str | None, str | None]


class Pattern(NamedTuple):
    """Subject, predicate, object; None matches everything."""

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    condition: Condition | None = None


ANYTHING = Pattern()


@dataclass(frozen=True, slots=True)
class PushedPatterns:
    """The patterns that the queries of an engine instance have over one stream."""

    patterns: frozenset[Pattern]

    @property
    def everything(self) -> bool:
        return ANYTHING in self.patterns

    def matcher(self, terms: Terms) -> Matcher:
        """The patterns in the words of a dictionary, which keeps their terms for ever."""
        return Matcher(self.patterns, terms)


def pushed_patterns(queries: Iterable[Query], stream: str) -> PushedPatterns:
    """The patterns of what queries can match of a stream, or of more where that is hard to decide."""
    found = {pattern for query in queries for pattern in _patterns(query, stream)}
    return PushedPatterns(frozenset(_few(found)))


def _few(patterns: set[Pattern]) -> Iterator[Pattern]:
    """Fewer patterns that match the same triples or more."""
    by_predicate: dict[Term | None, list[Pattern]] = {}
    for each in patterns:
        if each.condition is None or each._replace(condition=None) not in patterns:
            by_predicate.setdefault(each.predicate, []).append(each)
    for predicate, some in by_predicate.items():
        yield from some if len(some) <= MOST_PATTERNS else [Pattern(predicate=predicate)]


def _patterns(query: Query, stream: str) -> Iterator[Pattern]:
    if not _windows(query.plan, stream):
        return
    read = _windows(rewrite(query).plan, stream)
    if read and (_asks_what_windows_hold(query) or any(map(_counts, read)) or _asks_times_of_triples(query)):
        yield ANYTHING
    for node in read:
        for source in node.sources:
            if isinstance(source.window, Range) and source.window.time is not None:
                yield Pattern(predicate=source.window.time)
        yield from _inside(node.input, [])


def _inside(plan: Plan, conditions: list[Expression]) -> Iterator[Pattern]:
    """The patterns of a plan whose solutions have to fulfil some conditions."""
    for expression in expressions_of(plan):
        for node in walk(expression):
            if isinstance(node, Exists):
                yield from _inside(node.pattern, [])
    match plan:
        case Filter(input=inner, condition=condition):
            yield from _inside(inner, [*conditions, *conjuncts(condition)])
        case LeftJoin(left=left, right=right, condition=condition):
            yield from _inside(left, [])
            yield from _inside(right, [] if condition is None else conjuncts(condition))
        case Triples(patterns=patterns):
            for each in patterns:
                yield _pattern(each, conditions)
        case PathPattern(path=path):
            yield from _steps(path)
        case _:
            for below in inputs_of(plan):
                yield from _inside(below, [])


def _pattern(triple: Triple, conditions: list[Expression]) -> Pattern:
    """A triple pattern with those of the conditions that it alone decides on."""
    subject, predicate, object = triple.subject, triple.predicate, triple.object
    first, second, third = (node.name if isinstance(node, Var) else None for node in (subject, predicate, object))
    decided = [each for each in conditions if is_native(each) and reads(each) and reads(each) <= {first, second, third}]
    condition = None
    if decided and sum(1 for each in decided for _ in walk(each)) <= LARGEST_CONDITION:
        expression = reduce(lambda one, other: Call("AND", (one, other)), decided)
        condition = Condition(expression, (first, second, third))
    return Pattern(_constant(subject), _constant(predicate), _constant(object), condition)


def _windows(plan: Plan, stream: str) -> list[Stream]:
    return [node for node in walk_plan(plan) if isinstance(node, Stream) and _reads(node, stream)]


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
            yield Pattern(predicate=iri)
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


class Matcher:
    """Patterns in the words of a dictionary (`cqels.kernels.readers.triple_filter`)."""

    def __init__(self, patterns: Iterable[Pattern], terms: Terms) -> None:
        functions = Calls(terms.dictionary, limit=0)
        rows = [
            (*terms.encode_all(each[:3]), 0 if each.condition is None else _compiled(each.condition, functions))
            for each in patterns
        ]
        terms.dictionary.pin({word for row in rows for word in row[:3] if word > 0})
        self._arena = terms.dictionary.arena
        self._offset = self._arena.take(triple_filter.PATTERNS + len(rows) * triple_filter.PATTERN_WORDS)
        words = self._arena.words
        words[self._offset + triple_filter.COUNT], words[self._offset + triple_filter.DICTIONARY] = (
            len(rows),
            terms.dictionary.offset,
        )
        first = self._offset + triple_filter.PATTERNS
        words[first : first + len(rows) * triple_filter.PATTERN_WORDS] = np.array(rows, np.int64).reshape(-1)

    def matches(self, triples: Words) -> npt.NDArray[np.bool_]:
        """Which of the triples, rows of three words, some pattern matches."""
        triples = np.ascontiguousarray(triples)
        found = np.empty(len(triples), np.int64)
        triple_filter.sift(self._arena.base, self._offset, triples.ctypes.data, len(triples), found.ctypes.data)
        return found.astype(np.bool_)

    def kept(self, batch: Batch) -> Batch:
        """All elements, each with those of its triples that some pattern matches."""
        return only(batch, self.matches(batch.triples.reshape(-1, 3)))


def only(batch: Batch, found: npt.NDArray[np.bool_]) -> Batch:
    """All elements, each with those of its triples that are marked."""
    if found.all():
        return batch
    ends = np.cumsum(np.concatenate([[0], found]))[np.cumsum(np.concatenate([[0], batch.counts]))]
    return Batch(batch.times, batch.streams, np.diff(ends), batch.triples.reshape(-1, 3)[found].reshape(-1))


def _compiled(condition: Condition, functions: Calls) -> int:
    columns = {name: number for number, name in enumerate(condition.variables) if name is not None}
    return compile_expression(condition.expression, columns, functions)
