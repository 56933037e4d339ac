"""What a program loads into a service's static data, as the requests that add it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad

from cqels.client import calls
from cqels.client.calls import Call
from cqels.ingest import read_graph
from cqels.ingest.rdf_objects import quads_of
from cqels.model.errors import CqelsError, DataError


def loading(source: Any, graph: object, format: str | None) -> tuple[int, list[Call[None]]]:
    """How many triples a file or objects have, and the requests that add them to the dataset."""
    target = None if graph is None else _named(graph)
    if isinstance(source, str | os.PathLike):
        quads = _of_file(source, target, format)
    else:
        quads = list(quads_of(source, target))
    graphs = dict[NamedNode | None, list[Quad]]() if target is None else {target: []}
    for quad in quads:
        graphs.setdefault(_graph(quad), []).append(quad)
    if len(graphs) > 1 and any(isinstance(term, BlankNode) for each in quads for term in each):
        return len(quads), [calls.update(_insertion(graphs))]  # a blank node may be in several graphs
    made = [calls.add_to_graph(name and name.value, _lines(each).encode()) for name, each in graphs.items()]
    return len(quads), made


def _of_file(source: str | os.PathLike[str], target: NamedNode | None, format: str | None) -> list[Quad]:
    path = Path(source)
    try:
        return list(read_graph(path, target, format=format))
    except OSError as error:
        raise CqelsError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _named(graph: object) -> NamedNode:
    text = calls.iri_or_name(graph)
    try:
        return NamedNode(text)
    except ValueError:
        raise CqelsError(f"graph '{text}' is not an IRI", hint="write it in full, as in http://ex.org/s") from None


def _graph(quad: Quad) -> NamedNode | None:
    match quad.graph_name:
        case NamedNode():
            return quad.graph_name
        case DefaultGraph():
            return None
        case _:
            raise DataError(f"the graph {quad.graph_name} is a blank node", hint="name graphs by IRIs")


def _insertion(graphs: dict[NamedNode | None, list[Quad]]) -> str:
    """One update, so that a blank node of several graphs stays one."""
    parts = (
        _lines(quads) if name is None else f"GRAPH {name} {{\n{_lines(quads)}}}\n" for name, quads in graphs.items()
    )
    return f"INSERT DATA {{\n{''.join(parts)}}}"


def _lines(quads: Iterable[Quad]) -> str:
    return "".join(f"{quad.subject} {quad.predicate} {quad.object} .\n" for quad in quads)
