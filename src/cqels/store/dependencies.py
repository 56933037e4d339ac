"""Which graphs of the dataset a plan reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TypeAlias

from pyoxigraph import NamedNode

from cqels.lang.expressions import Exists, walk
from cqels.plan.algebra import (
    Graph,
    PathPattern,
    Plan,
    Service,
    Stream,
    Triples,
    expressions_of,
    inputs_of,
    walk_plan,
)


class AnyGraph(Enum):
    """Stands for every named graph, those to come included."""

    ANY = "any named graph"


ANY = AnyGraph.ANY
GraphName: TypeAlias = NamedNode | None
"""None is the default graph."""


def graphs_of(
    plan: Plan,
    graph: GraphName | AnyGraph = None,
    *,
    default_graphs: Iterable[NamedNode] | None = None,
    named_graphs: Iterable[NamedNode] | None = None,
) -> frozenset[GraphName | AnyGraph]:
    """The graphs whose change can change the plan's solutions, where `graph` is the active graph.

    `default_graphs` and `named_graphs` are those of FROM and FROM NAMED, both None where a query has neither.
    Graphs that are merged into a window are read there, whatever else FROM says.
    """
    found: set[GraphName | AnyGraph] = set(_read(plan, graph))
    merged = frozenset(name for node in walk_plan(plan) if isinstance(node, Stream) for name in node.graphs)
    if default_graphs is None and named_graphs is None:
        return merged | found
    named = set(named_graphs or ())
    chosen: set[GraphName | AnyGraph] = {*merged, *(each for each in found if each in named)}
    if None in found:
        chosen.update([None] if default_graphs is None else default_graphs)  # FROM NAMED alone keeps the default graph
    if ANY in found:
        chosen.update(named)
    return frozenset(chosen)


def _read(plan: Plan, graph: GraphName | AnyGraph) -> Iterator[GraphName | AnyGraph]:
    match plan:
        case Triples() | PathPattern():
            yield graph
        case Graph(name=name):
            graph = name if isinstance(name, NamedNode) else ANY
            yield graph  # even if the pattern inside is empty, it matters whether the graph is there
        case Service():
            return
        case Stream():
            yield from (each for each in _read(plan.input, _WINDOW) if each != _WINDOW)
            return
        case _:
            pass
    for expression in expressions_of(plan):
        for node in walk(expression):
            if isinstance(node, Exists):
                yield from _read(node.pattern, graph)
    for child in inputs_of(plan):
        yield from _read(child, graph)


_WINDOW = NamedNode("http://cqels.org/window")
