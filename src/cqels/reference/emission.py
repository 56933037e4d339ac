"""From two results of a query, the one before and the one now, to what is sent (SPEC §4)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.lang.expressions import Var
from cqels.model.terms import Term, Triple, text_of
from cqels.plan.algebra import Node, Query

Row: TypeAlias = tuple[Term | None, ...]


def differences(
    emit: str, before: list[Row], now: list[Row], *, changed: bool, ordered: bool
) -> list[tuple[str, Row]] | None:
    """The rows sent, with their signs. None is an empty snapshot, which is sent as such."""
    appeared = _by_text((Counter(now) - Counter(before)).elements())
    vanished = _by_text((Counter(before) - Counter(now)).elements())
    match emit:
        case "istream":
            return [("+", row) for row in appeared]
        case "dstream":
            return [("-", row) for row in vanished]
        case "changes":
            return [("-", row) for row in vanished] + [("+", row) for row in appeared]
        case "rstream":
            return [("+", row) for row in (now if ordered else _by_text(now))] if changed else []
        case "snapshot":
            shown, last = (now, before) if ordered else (_by_text(now), _by_text(before))
            if shown == last:
                return []
            return [("+", row) for row in shown] or None
        case other:
            raise AssertionError(f"no emission {other}")


def without_expiry(
    emit: str, signed: list[tuple[str, Row]] | None, before: list[Row], now: list[Row], unmoved: list[Row]
) -> list[tuple[str, Row]] | None:
    """What remains to be sent where expiry alone sends nothing; `unmoved` is the result had nothing arrived."""
    match emit:
        case "rstream":
            return signed
        case "snapshot":
            return [] if unmoved == now else signed
    expired = {"+": Counter(unmoved) - Counter(before), "-": Counter(before) - Counter(unmoved)}
    kept: list[tuple[str, Row]] = []
    for sign, row in signed or []:
        if expired[sign][row] > 0:
            expired[sign][row] -= 1
        else:
            kept.append((sign, row))
    return kept


def _by_text(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(map(text_of, row)))


def constructed(query: Query, names: tuple[str, ...], row: Row, place: str) -> tuple[Triple, ...]:
    """The triples of a CONSTRUCT for one solution. Its blank nodes are new, named after the place of the result."""
    bindings = {name: term for name, term in zip(names, row, strict=True) if term is not None}

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
