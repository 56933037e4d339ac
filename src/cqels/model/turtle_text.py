"""RDF terms as a person writes them: abbreviated with prefixes, as Turtle allows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyoxigraph import Literal, NamedNode

from cqels.model.terms import RDF_TYPE, XSD, XSD_STRING, Term, Triple

_LOCAL_NAME = re.compile(r"(?:\w(?:[\w.\-]*[\w\-])?)?")
_BARE = {
    XSD + "integer": re.compile(r"0|-?[1-9][0-9]*"),
    XSD + "decimal": re.compile(r"-?(?:0|[1-9][0-9]*)\.(?:0|[0-9]*[1-9])"),
    XSD + "double": re.compile(r"-?(?:0\.0E0|[1-9]\.(?:0|[0-9]*[1-9])E(?:0|-?[1-9][0-9]*))"),
    XSD + "boolean": re.compile(r"true|false"),
}
"""The canonical forms that Turtle reads back as the same term."""


class Notation:
    """Writes terms with the prefixes of a query; the longest namespace that fits is used."""

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self._namespaces = sorted(((iri, prefix) for prefix, iri in prefixes.items() if iri), key=lambda n: -len(n[0]))

    def term(self, term: Term | None) -> str:
        """The term's text; an unbound variable is UNDEF, as in VALUES."""
        match term:
            case None:
                return "UNDEF"
            case NamedNode():
                return self.iri(term)
            case Literal():
                return self.literal(term)
            case _:
                return str(term)

    def iri(self, iri: NamedNode) -> str:
        for namespace, prefix in self._namespaces:
            if iri.value.startswith(namespace) and _LOCAL_NAME.fullmatch(iri.value, len(namespace)):
                return f"{prefix}:{iri.value[len(namespace) :]}"
        return str(iri)

    def literal(self, literal: Literal) -> str:
        if literal.language is not None or literal.datatype == XSD_STRING:
            return str(literal)
        bare = _BARE.get(literal.datatype.value)
        if bare is not None and bare.fullmatch(literal.value):
            return literal.value
        return f"{Literal(literal.value)}^^{self.iri(literal.datatype)}"

    def triple(self, triple: Triple) -> str:
        subject, predicate, object_ = triple
        verb = "a" if predicate == RDF_TYPE else self.iri(predicate)
        return f"{self.term(subject)} {verb} {self.term(object_)}"
