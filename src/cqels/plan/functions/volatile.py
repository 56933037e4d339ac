"""The volatile functions RAND, UUID, STRUUID and BNODE, which are not random here: each draw is a hash.

A draw depends on the context's seed, the place of the call in the query and the solution's bindings, on nothing else.
So a solution that stays from one tick to the next keeps its draw, every runtime draws the same, and what was drawn when
a solution came can be drawn again when it goes.  Equal solutions draw equally.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from uuid import UUID

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.model.terms import Term, text_of
from cqels.model.values import DOUBLE, ExpressionError, Number, literal_of
from cqels.plan.functions.context import Context
from cqels.plan.functions.strings import simple_text


def draw(name: str, args: list[Term], solution: Mapping[str, Term], context: Context, place: str) -> Term:
    match name, args:
        case "RAND", []:
            bits = int.from_bytes(_digest(place, solution, context)[:7]) >> 3
            return literal_of(Number(DOUBLE, bits / 2**53))
        case "UUID", []:
            return NamedNode(f"urn:uuid:{_uuid(place, solution, context)}")
        case "STRUUID", []:
            return Literal(str(_uuid(place, solution, context)))
        case "BNODE", []:
            return BlankNode(_digest(place, solution, context).hex()[:32])
        case "BNODE", [label]:
            # One label is one node wherever it stands in the query, so the place is left out.
            return BlankNode(_digest(f"label {simple_text(label)}", solution, context).hex()[:32])
        case _:
            raise ExpressionError(f"{name} does not take {len(args)} arguments")


def _uuid(place: str, solution: Mapping[str, Term], context: Context) -> UUID:
    return UUID(bytes=_digest(place, solution, context)[:16], version=4)


def _digest(place: str, solution: Mapping[str, Term], context: Context) -> bytes:
    # Hidden variables are no part of a solution, and one runtime may drop them earlier than another.
    bindings = sorted(
        (name, text_of(term))
        for name, term in solution.items()
        if not name.startswith("_:") and (context.identity is None or name in context.identity)
    )
    return sha256(repr((context.seed, place, bindings)).encode("utf-8", "surrogatepass")).digest()
