"""A second way to the solutions of a plan: the whole of it as one SPARQL query, which Oxigraph evaluates.

It shares only the contents of the windows with the naive evaluator: patterns, joins, expressions and aggregates are all
Oxigraph's.  Oxigraph keeps numbers and times by value, so rows are compared by `comparable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeAlias

import pyoxigraph
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad

from cqels.lang.expressions import Aggregate, Call, walk
from cqels.model.moments import Moment
from cqels.model.terms import Term
from cqels.model.values import Number, value_of
from cqels.plan.algebra import Plan, Service, Slice, Source, Stream, expressions_of, walk_plan
from cqels.plan.scope import variables
from cqels.plan.sparql import NotExpressible, to_sparql
from cqels.reference.algebra import World
from cqels.reference.graphs import StampedGraph
from cqels.reference.solutions import Bag, Solution

__all__ = ["Comparable", "NotExpressible", "comparable", "whole"]

_WINDOW = "http://cqels.org/window/"
_OLDEST_FIRST = frozenset({"SAMPLE", "GROUP_CONCAT"})
_OURS = frozenset({"RAND", "UUID", "STRUUID", "BNODE", "NOW"})
"""Functions whose value is the engine's own choice: here it follows from the tick and the solution, elsewhere not."""


def whole(plan: Plan, world: World) -> Bag:
    """The solutions of a plan as Oxigraph finds them; NotExpressible where SPARQL has no words for the plan.

    Solutions do not know their elements here, so what depends on their freshness is not expressible either.
    """
    _check(plan)
    scratch = _Scratch(world)
    text = to_sparql(plan, windows=scratch.windows, named_graphs=tuple(world.named))
    names = variables(plan)
    found = scratch.query(text)
    rows = (zip(names, tuple(each)[: len(names)], strict=True) for each in found)
    return [Solution({name: term for name, term in row if term is not None}) for row in rows]


def _check(plan: Plan) -> None:
    """What `to_sparql` could write, but an engine that knows no elements would answer in its own way."""
    for node in walk_plan(plan):
        match node:
            case Slice():
                raise NotExpressible("OFFSET and LIMIT choose by freshness, which SPARQL does not know")
            case Service():
                raise NotExpressible("the answer of a SERVICE is kept by the engine")
        for expression in expressions_of(node):
            for part in walk(expression):
                match part:
                    case Aggregate(name=name) if name in _OLDEST_FIRST:
                        raise NotExpressible(f"{name} depends on the order of elements, which SPARQL does not know")
                    case Call(name=name) if name in _OURS:
                        raise NotExpressible(f"the value of {name} is the engine's own choice")


class _Scratch:
    """A store for one evaluation: the dataset, and a graph for every window that the plan reads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._store = pyoxigraph.Store()
        self._windows: dict[tuple[tuple[Source, ...], tuple[NamedNode, ...]], NamedNode] = {}
        self._fill(DefaultGraph(), world.default)
        for name, graph in world.named.items():
            self._store.add_graph(name)
            self._fill(name, graph)

    def _fill(self, name: NamedNode | DefaultGraph, graph: StampedGraph) -> None:
        self._store.extend(Quad(*triple, name) for triple in graph.stamps)

    def windows(self, plan: Stream) -> Sequence[tuple[NamedNode | None, NamedNode]]:
        first = plan.sources[0]
        if first.stream is None or isinstance(first.stream, NamedNode):
            return [(None, self._window(plan.sources, plan.graphs))]
        return [(iri, self._window((Source(iri, first.window),), plan.graphs)) for iri in self._world.streams]

    def _window(self, sources: tuple[Source, ...], graphs: tuple[NamedNode, ...]) -> NamedNode:
        name = self._windows.get((sources, graphs))
        if name is None:
            name = self._windows[sources, graphs] = NamedNode(f"{_WINDOW}{len(self._windows)}")
            self._store.add_graph(name)
            self._fill(name, self._world.window(sources, graphs))
        return name

    def query(self, text: str) -> Iterable[pyoxigraph.QuerySolution]:
        found = self._store.query(text)
        assert isinstance(found, pyoxigraph.QuerySolutions)
        return found


# ---------------------------------------------------------------- comparing by value

Comparable: TypeAlias = tuple[object, ...]
_DIGITS = 12
"""Floats and doubles that agree in so many digits are the same: a sum may be taken in any order."""


def comparable(row: Iterable[Term | None]) -> Comparable:
    """A row with values in place of literals: two rows are the same to Oxigraph exactly when these are equal.

    Numbers go by their exact value and type (all integer types are one), times by their instant, booleans by truth.
    """
    return tuple(map(_comparable, row))


def _comparable(term: Term | None) -> object:
    match term:
        case None:
            return None
        case NamedNode() | BlankNode():
            return str(term)
        case Literal():
            return _literal(term)


def _literal(literal: Literal) -> object:
    match value_of(literal):
        case Number(kind=kind, value=float() as value):
            return kind.name, float(f"{value:.{_DIGITS}g}") if value == value else "NaN"
        case Number(kind=kind, value=value):
            return kind.name, Fraction(value)
        case Moment() as moment:
            return type(moment).__name__, moment.instant, moment.zone is None
        case bool() as truth:
            return "boolean", truth
        case _:
            return str(literal)
