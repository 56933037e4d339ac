"""Removing and adding quads in one transaction of Oxigraph, so that not even a crash can come between the two.

Oxigraph's only transaction that does both is an update in SPARQL, where blank nodes cannot be written.  So the update
names its quads by number, and functions give their terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyoxigraph
from pyoxigraph import Literal, NamedNode, Quad

_FUNCTION = "http://cqels.org/part#"
_PARTS: dict[str, Callable[[Quad], Any]] = {
    "subject": lambda quad: quad.subject,
    "predicate": lambda quad: quad.predicate,
    "object": lambda quad: quad.object,
    "graph": lambda quad: quad.graph_name,
}


def write(graphs: pyoxigraph.Store, removed: Sequence[Quad], added: Sequence[Quad]) -> None:
    """Remove quads, then add quads: all of it or, if an exception is raised, nothing."""
    if not removed:
        graphs.extend(added)
        return
    quads = (*removed, *added)
    templates: dict[str, list[str]] = {"DELETE": [], "INSERT": []}
    blocks: list[str] = []
    for word, rows in (("DELETE", range(len(removed))), ("INSERT", range(len(removed), len(quads)))):
        for named in (False, True):
            chosen = [row for row in rows if isinstance(quads[row].graph_name, NamedNode) is named]
            if chosen:
                template, block = _block(chosen, len(blocks), named=named)
                templates[word].append(template)
                blocks.append(block)
    text = " ".join(f"{word} {{ {' '.join(each)} }}" for word, each in templates.items())

    def part_of(part: Callable[[Quad], Any]) -> Callable[[Literal], Any]:
        return lambda row: part(quads[int(row.value)])

    functions = {NamedNode(_FUNCTION + name): part_of(part) for name, part in _PARTS.items()}
    graphs.update(f"{text} WHERE {{ {' UNION '.join(blocks)} }}", custom_functions=functions)


def _block(rows: Sequence[int], number: int, *, named: bool) -> tuple[str, str]:
    """The template for some quads, and the pattern that binds its variables for each of them."""
    triple = f"?subject{number} ?predicate{number} ?object{number}"
    parts = [part for part in _PARTS if named or part != "graph"]
    values = " ".join(f"BIND(<{_FUNCTION}{part}>(?row) AS ?{part}{number})" for part in parts)
    template = f"GRAPH ?graph{number} {{ {triple} }}" if named else f"{triple} ."
    return template, f"{{ VALUES ?row {{ {' '.join(map(str, rows))} }} {values} }}"
