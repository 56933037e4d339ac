"""What a CONSTRUCT makes of a solution."""

from __future__ import annotations

import hashlib

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.lang.expressions import Var
from cqels.model.terms import Term, Triple
from cqels.plan.algebra import Node, Query


def constructed(query: Query, names: tuple[str, ...], row: tuple[Term | None, ...], place: str) -> tuple[Triple, ...]:
    """The triples of a CONSTRUCT for one solution. Its blank nodes are new, named after the place of the result.

    Those of a query that retracts solutions are named after the solution: it has the same ones when it goes.
    """
    bindings = {name: term for name, term in zip(names, row, strict=True) if term is not None}
    if query.emit == "changes":
        place = f"{place.rsplit(' ', 2)[0]} {' '.join(f'?{name} {bindings[name]}' for name in sorted(bindings))}"

    def term(node: Node) -> Term | None:
        if isinstance(node, Var):
            return bindings.get(node.name)
        if isinstance(node, BlankNode):
            return BlankNode("b" + hashlib.sha256(f"{place} {node.value}".encode()).hexdigest()[:20])
        return node

    found: dict[Triple, None] = {}
    for pattern in query.template:
        subject, predicate, target = term(pattern.subject), term(pattern.predicate), term(pattern.object)
        if isinstance(subject, Literal) or subject is None or target is None or not isinstance(predicate, NamedNode):
            continue  # SPARQL 1.1 §16.2: an incomplete or ill-formed triple is left out
        found[subject, predicate, target] = None
    return tuple(found)
