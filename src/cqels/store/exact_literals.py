"""Literals in a form that Oxigraph keeps to the letter, and back.

Oxigraph stores numbers, dates and the like by value: "007"^^xsd:integer comes back as "7", "1"^^xsd:byte as an
xsd:integer.  Here terms are equal only when they are the same RDF term, so a literal that would change is stored
under a datatype of our own, which Oxigraph knows nothing of and therefore leaves alone.

`reveal(protect(t)) == t`, and two terms are the same exactly when their protected forms are.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from pyoxigraph import BlankNode, Literal, NamedNode, Quad

from cqels.model.terms import RDF, XSD, Term, Triple
from cqels.plan.to_sparql.opaque_expressions import EXACT

_DATE = r"(?!0000)\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{0,8}[1-9])?"


def _number(digits: int) -> str:
    """Numbers of at most so many digits, without exponent and needless zeros."""
    return rf"0|-?(?!(\.?\d){{{digits + 1}}})([1-9]\d*|(0|[1-9]\d*)\.\d*[1-9])"


# What values look like when Oxigraph prints them, restricted to what is beyond doubt: a decimal number of up to 15 (6)
# digits is the shortest text of its double (float), and 18 digits fit its integers and decimals.
_KEPT: dict[str, re.Pattern[str]] = {
    XSD + name: re.compile(pattern, re.ASCII)
    for name, pattern in (
        ("boolean", "true|false"),
        ("integer", r"0|-?[1-9]\d{0,17}"),
        ("decimal", _number(18)),
        ("double", _number(15)),
        ("float", _number(6)),
        ("dateTime", _DATE + "T" + _TIME + "Z?"),
        ("date", _DATE + "Z?"),
    )
}
_UNTYPED = frozenset({XSD + "string", RDF + "langString", RDF + "dirLangString"})


def protect(term: Term) -> Term:
    """The term to give to Oxigraph for this one."""
    if not isinstance(term, Literal):
        return term
    datatype = term.datatype.value
    if datatype in _UNTYPED:
        return term
    if datatype.startswith(XSD):
        kept = _KEPT.get(datatype)
        if kept is not None and kept.fullmatch(term.value):
            return term
    elif not datatype.startswith(EXACT):
        return term
    return Literal(term.value, datatype=NamedNode(EXACT + quote(datatype, safe="")))


def reveal(term: Term) -> Term:
    """The term that Oxigraph was given this one for."""
    if not isinstance(term, Literal):
        return term
    datatype = term.datatype.value
    if not datatype.startswith(EXACT):
        return term
    return Literal(term.value, datatype=NamedNode(unquote(datatype[len(EXACT) :])))


def protect_quad(quad: Quad) -> Quad:
    value = quad.object
    if not isinstance(value, Literal):
        return quad
    kept = protect(value)
    return quad if kept is value else Quad(quad.subject, quad.predicate, kept, quad.graph_name)


def reveal_triple(quad: Quad) -> Triple:
    subject, value = quad.subject, quad.object
    assert isinstance(subject, NamedNode | BlankNode)
    assert isinstance(value, NamedNode | BlankNode | Literal)
    return subject, quad.predicate, reveal(value)
