"""A second way to the solutions of a plan: the whole of it as one SPARQL query, which Oxigraph evaluates.

It shares only the contents of the windows with the naive evaluator: patterns, joins, expressions and aggregates are all
Oxigraph's.  Oxigraph keeps numbers and times by value, so rows are compared by `comparable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import pyoxigraph
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad

from cqels.lang.expressions import Aggregate, Call, Exists, Var, walk
from cqels.model.datetimes import Moment
from cqels.model.terms import Term
from cqels.model.values import Number, value_of
from cqels.plan.algebra import (
    Extend,
    Group,
    PathPattern,
    Plan,
    Service,
    Slice,
    Source,
    Stream,
    expressions_of,
    inputs_of,
    transform_plan,
    walk_plan,
)
from cqels.plan.scope import mentioned, variables
from cqels.plan.to_sparql.path_text import ways_to_stay
from cqels.plan.to_sparql.query_text import NotExpressible, to_sparql
from cqels.reference.graphs import StampedGraph
from cqels.reference.plan_evaluation import World
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
    text = to_sparql(transform_plan(plan, _counting_values), windows=scratch.windows, named_graphs=tuple(world.named))
    names = variables(plan)
    found = scratch.query(text)
    rows = (zip(names, tuple(each)[: len(names)], strict=True) for each in found)
    return [Solution({name: term for name, term in row if term is not None}) for row in rows]


def _check(plan: Plan) -> None:
    """What `to_sparql` could write, but an engine that knows no elements would answer in its own way."""
    _check_exists(plan, frozenset())
    for node in walk_plan(plan):
        match node:
            case Slice():
                raise NotExpressible("OFFSET and LIMIT choose by freshness, which SPARQL does not know")
            case Service():
                raise NotExpressible("the answer of a SERVICE is kept by the engine")
            case PathPattern(subject=Var(), object=Var()):
                pass
            case PathPattern(path=path) if ways_to_stay(path):
                # from there the path leads to the term itself (§18.4), which Oxigraph finds only in some places
                raise NotExpressible("a path of no length may stand at a term that the graph does not have")
        for expression in expressions_of(node):
            for part in walk(expression):
                match part:
                    case Aggregate(name=name) if name in _OLDEST_FIRST:
                        raise NotExpressible(f"{name} depends on the order of elements, which SPARQL does not know")
                    case Call(name=name) if name in _OURS:
                        raise NotExpressible(f"the value of {name} is the engine's own choice")


def _check_exists(plan: Plan, outside: frozenset[str]) -> None:
    """Where Oxigraph's EXISTS is not SPARQL's; `outside` are the variables of what the plan is joined with.

    It sees the bindings of what its group is joined with, and it does not put values in place of the ends of a path.
    """
    below = inputs_of(plan)
    scope = frozenset(name for each in below for name in variables(each))
    for expression in expressions_of(plan):
        for part in walk(expression):
            if not isinstance(part, Exists):
                continue
            if (mentioned(part.pattern) - scope) & outside:
                raise NotExpressible("an EXISTS would see variables from outside of its group")
            if any(isinstance(node, PathPattern) and ways_to_stay(node.path) for node in walk_plan(part.pattern)):
                raise NotExpressible("a path of no length may stand at a value that comes from outside of an EXISTS")
    for child in below:
        beside = frozenset(name for other in below if other is not child for name in variables(other))
        _check_exists(child, outside | beside)


def _counting_values(plan: Plan) -> Plan:
    """COUNT of an expression as COUNT of a variable bound to it: where one value of the expression is an error,
    Oxigraph makes the whole COUNT an error, while SPARQL (§18.5.1.2) leaves the error out."""
    if not isinstance(plan, Group):
        return plan
    inner, aggregates = plan.input, []
    for name, node in plan.aggregates:
        if node.name == "COUNT" and node.argument is not None and not isinstance(node.argument, Var):
            counted = f"_:counted {name}"
            inner = Extend(inner, counted, node.argument)
            node = replace(node, argument=Var(counted))
        aggregates.append((name, node))
    if inner is not plan.input and any(node.argument is None and node.distinct for _, node in aggregates):
        raise NotExpressible("COUNT(DISTINCT *) would see the variables added for another COUNT")
    return replace(plan, input=inner, aggregates=tuple(aggregates))


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
