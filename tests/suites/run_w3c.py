"""How a W3C evaluation test is run: its default graph static, or sent through a stream at one instant.

The streamed form wraps the query on its syntax tree.  A WHERE without GRAPH becomes `STREAM <s> [NOW] { WHERE }` as a
whole.  GRAPH cannot stand inside STREAM, so in a WHERE that has one every group is taken apart: each of its parts that
reads the default graph and has no GRAPH in it is wrapped by itself, FILTER, BIND and VALUES stay where they are, and
what has a GRAPH deeper inside (OPTIONAL, UNION, MINUS, a group, a sub-select, the pattern of an EXISTS) is entered.
A query that reads nothing but GRAPH stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pyoxigraph import NamedNode

from cqels.ingest import Element
from cqels.lang import syntax
from cqels.lang.expressions import Exists, Expression, transform
from cqels.lang.parser import parse
from cqels.model.errors import Span
from cqels.model.terms import Triple
from cqels.plan.algebra import Query
from cqels.plan.binder import bind
from cqels.reference.reference_engine import Reference, StreamSettings
from cqels.results import Result
from cqels.store.dataset import Store

from .w3c import Test, path_of

STREAM = NamedNode("http://example.org/the-stream")


def run(test: Test, *, streamed: bool, make: Callable[..., Any] = Reference) -> tuple[Query, list[Result]]:
    """The query as planned, and all that it sends at one instant in the engine that `make` makes."""
    tree = parse(test.text, name=test.query.name, base=test.base)
    query = bind(_streamed(tree) if streamed else tree, emit="rstream", lenient=True)
    store = _store(test, query)
    triples: tuple[Triple, ...] = ()
    if streamed:
        triples = _default_graph(store, query)
        store.clear_graph(None)
    engine = make(store, [StreamSettings(STREAM.value)])
    registered = engine.register(query)
    if triples:
        engine.push(Element(STREAM.value, 0, triples))
    # the tick of a query that reads no stream; nothing changes by it for one that has seen the element
    engine.heartbeat(0)
    return query, registered.take()


def _store(test: Test, query: Query) -> Store:
    """`qt:data` is the default graph; `qt:graphData` and the graphs of FROM are named by the IRIs of their files."""
    store = Store()
    for path in test.data:
        store.load(path)
    named = {NamedNode(path.as_uri()) for path in test.graphs}
    for name in sorted(named | {*(query.default_graphs or ()), *(query.named_graphs or ())}, key=str):
        store.create_graph(name)
        store.load(path_of(name.value), name)
    return store


def _default_graph(store: Store, query: Query) -> tuple[Triple, ...]:
    graphs = (None,) if query.default_graphs is None else query.default_graphs
    return tuple(dict.fromkeys(triple for graph in graphs for triple in store.triples(graph)))


# ---------------------------------------------------------------- from static to streamed


def _streamed(tree: syntax.Query) -> syntax.Query:
    assert not isinstance(tree.form, syntax.Describe)
    return replace(tree, form=replace(tree.form, where=_group(tree.form.where)))


def _group(group: syntax.Group) -> syntax.Group:
    if not _has_graph(group):
        return syntax.Group((_stream(group),), group.span)
    return replace(group, parts=tuple(map(_part, group.parts)))


def _stream(group: syntax.Group) -> syntax.StreamPattern:
    return syntax.StreamPattern(STREAM, syntax.Now(), None, group, group.span, group.span)


def _part(part: syntax.Pattern) -> syntax.Pattern:
    match part:
        case syntax.GraphPattern() | syntax.Values():
            return part
        case syntax.Filter(condition=condition):
            return replace(part, condition=_expression(condition))
        case syntax.Bind(expression=expression):
            return replace(part, expression=_expression(expression))
        case syntax.Optional(pattern=inner) | syntax.Minus(pattern=inner):
            return replace(part, pattern=_group(inner))
        case syntax.Union(patterns=patterns):
            return replace(part, patterns=tuple(map(_group, patterns)))
        case syntax.Group():
            return _group(part)
        case syntax.SubSelect(query=query):
            return replace(part, query=replace(query, where=_group(query.where)))
        case _:
            return _stream(syntax.Group((part,), part.span))


def _expression(expression: Expression) -> Expression:
    def wrapped(node: Expression) -> Expression:
        return replace(node, pattern=_group(node.pattern)) if isinstance(node, Exists) else node

    return transform(expression, wrapped)


def _has_graph(group: syntax.Group) -> bool:
    return any(isinstance(node, syntax.GraphPattern) for node in _nodes(group))


def _nodes(node: object) -> Iterator[object]:
    """A node of the syntax tree and everything in it, patterns inside EXISTS too."""
    yield node
    if isinstance(node, tuple):
        for each in node:
            yield from _nodes(each)
    elif is_dataclass(node) and not isinstance(node, Span):
        for part in fields(node):
            yield from _nodes(getattr(node, part.name))
