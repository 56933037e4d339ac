"""The operations of SPARQL 1.1 Update on a store; each is atomic, and so are several in one `store.transaction()`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad

from cqels.lang.expressions import Var
from cqels.model.errors import CqelsError
from cqels.model.terms import Term
from cqels.plan.algebra import Node
from cqels.store.dataset import Store
from cqels.store.dependencies import GraphName
from cqels.store.download import Downloaded

_LOG = logging.getLogger("cqels")


@dataclass(frozen=True, slots=True)
class QuadTemplate:
    """A triple of a template, and the graph it is meant for; None is the default graph.

    In an insertion a blank node, or the hidden variable that stands for one, is a new node for each solution.
    """

    subject: Node
    predicate: Node
    object: Node
    graph: Node | None = None


def modify(
    store: Store,
    delete: Iterable[QuadTemplate],
    insert: Iterable[QuadTemplate],
    rows: Iterable[Mapping[str, Term | None]],
) -> None:
    """DELETE … INSERT … WHERE: what the solutions delete goes first, then what they insert comes.

    A triple with an unbound variable, or that is none (a literal as its subject), is left out.
    """
    delete, insert = tuple(delete), tuple(insert)
    removed: list[Quad] = []
    added: list[Quad] = []
    for row in rows:
        removed.extend(quad for quad in (_filled(each, row, None) for each in delete) if quad is not None)
        fresh: dict[str, BlankNode] = {}
        added.extend(quad for quad in (_filled(each, row, fresh) for each in insert) if quad is not None)
    store.change(removed, added)


def insert_data(store: Store, quads: Iterable[QuadTemplate]) -> None:
    """INSERT DATA: a blank node is a new one, the same throughout."""
    modify(store, (), quads, [{}])


def delete_data(store: Store, quads: Iterable[QuadTemplate]) -> None:
    """DELETE DATA"""
    modify(store, quads, (), [{}])


def load(store: Store, source: str | Path | Downloaded, graph: NamedNode | None = None, *, silent: bool = False) -> int:
    """LOAD: the number of triples in the file; 0 where one that cannot be read is passed over in silence."""
    try:
        if not isinstance(source, Downloaded):
            return store.load(source, graph)
        quads = list(source.quads(graph))
        store.add(quads)
        return len(quads)
    except (CqelsError, OSError) as error:
        if not silent:
            raise
        _LOG.warning("%s; LOAD SILENT goes on without it", error)
        return 0


def clear(store: Store, graphs: Iterable[GraphName], *, silent: bool = False) -> None:
    """CLEAR: the graphs stay, without their triples."""
    with store.transaction():
        for graph in graphs:
            _present(store, graph, silent=silent)
            store.clear_graph(graph)


def drop(store: Store, graphs: Iterable[GraphName], *, silent: bool = False) -> None:
    """DROP: the graphs are gone; the default graph, which cannot go, is empty."""
    with store.transaction():
        for graph in graphs:
            _present(store, graph, silent=silent)
            store.clear_graph(graph, drop=True)


def create(store: Store, graph: NamedNode, *, silent: bool = False) -> None:
    """CREATE"""
    if store.has_graph(graph) and not silent:
        raise CqelsError(f"the graph {graph} exists", hint="CREATE SILENT passes over a graph that exists")
    store.create_graph(graph)


def add(store: Store, source: GraphName, target: GraphName, *, silent: bool = False) -> None:
    """ADD: the triples of `source` come to those of `target`."""
    with store.transaction():
        if _present(store, source, silent=silent) and source != target:
            store.add(_moved(store, source, target))
            if target is not None:
                store.create_graph(target)


def copy(store: Store, source: GraphName, target: GraphName, *, silent: bool = False) -> None:
    """COPY: `target` has the triples of `source` and no others."""
    with store.transaction():
        if _present(store, source, silent=silent) and source != target:
            store.change(_moved(store, target, target), _moved(store, source, target))
            if target is not None:
                store.create_graph(target)


def move(store: Store, source: GraphName, target: GraphName, *, silent: bool = False) -> None:
    """MOVE: as COPY, and `source` is gone."""
    with store.transaction():
        if _present(store, source, silent=silent) and source != target:
            copy(store, source, target)
            store.clear_graph(source, drop=True)


def _present(store: Store, graph: GraphName, *, silent: bool) -> bool:
    if store.has_graph(graph):
        return True
    if silent:
        return False
    raise CqelsError(f"the graph {graph} does not exist", hint="SILENT passes over a graph that does not exist")


def _moved(store: Store, source: GraphName, target: GraphName) -> list[Quad]:
    return [Quad(*triple, target or DefaultGraph()) for triple in store.triples(source)]


def _filled(template: QuadTemplate, row: Mapping[str, Term | None], fresh: dict[str, BlankNode] | None) -> Quad | None:
    """The quad of a template for a solution, if it is one; `fresh` has the new nodes of an insertion."""

    def value(node: Node) -> Term | None:
        match node:
            case Var(name=name, hidden=True) | BlankNode(value=name) if fresh is not None:
                return fresh.setdefault(name.removeprefix("_:"), BlankNode())
            case Var(name=name):
                return row.get(name)
            case _:
                return node

    subject, predicate, value_, graph = (
        None if node is None else value(node)
        for node in (template.subject, template.predicate, template.object, template.graph)
    )
    if not isinstance(subject, NamedNode | BlankNode) or not isinstance(predicate, NamedNode) or value_ is None:
        return None
    if template.graph is None:
        return Quad(subject, predicate, value_, DefaultGraph())
    return Quad(subject, predicate, value_, graph) if isinstance(graph, NamedNode) else None
