"""The part of the builder that reads variables, IRIs and literals."""

from __future__ import annotations

import re
from typing import cast

from lark import Token
from pyoxigraph import Literal, NamedNode

from cqels.lang.expressions import Var
from cqels.lang.names import wrong_character
from cqels.lang.trees import Branch, span_of, trees
from cqels.model.errors import QueryError, Span
from cqels.model.iri import resolve
from cqels.model.terms import CQ, FALSE, RDF_NIL, TRUE, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, Term

_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", "\\": "\\", '"': '"', "'": "'"}
_NUMBERS = {"INTEGER": XSD_INTEGER, "DECIMAL": XSD_DECIMAL, "DOUBLE": XSD_DOUBLE}


class TermBuilder:
    """Resolves names: knows the base, the prefixes, and which dialects' words were met (`used`)."""

    def __init__(self, base: str | None) -> None:
        self.base = base
        self.prefixes: dict[str, str] = {"cq": CQ}
        self.used: set[str] = set()

    def var(self, tree: Branch) -> Var:
        return Var(self._name(str(tree.children[0])[1:], span_of(tree)), span_of(tree))

    def _name(self, name: str, span: Span) -> str:
        wrong = wrong_character(name)
        if wrong is not None:
            raise QueryError(f"a name cannot have the character {wrong!r} (U+{ord(wrong):04X}) here", span=span)
        return name

    def var_or_iri(self, tree: Branch) -> Var | NamedNode:
        return self.var(tree) if tree.data == "var" else self.iri(tree)

    def iri(self, tree: Branch) -> NamedNode:
        return self._iri_of(cast(Token, tree.children[0]))

    def _iri_of(self, token: Token) -> NamedNode:
        text, span = str(token), span_of(token)
        if token.type == "IRIREF":
            return self._named(self._resolved(text[1:-1], span), span)
        prefix, local = (self._name(part, span) for part in text.split(":", 1))
        if prefix not in self.prefixes:
            known = ", ".join(f"{name}:" for name in self.prefixes if name != "cq")
            raise QueryError(
                f"prefix {prefix}: is not declared",
                span=Span(span.start, span.start + len(prefix) + 1),
                hint=f"the query declares {known}" if known else f"add PREFIX {prefix}: <…> before the query",
            )
        return self._named(self.prefixes[prefix] + re.sub(r"\\(.)", r"\1", local), span)

    def _resolved(self, text: str, span: Span) -> str:
        iri = resolve(self.base, text)
        if iri is None:
            raise QueryError(
                f"<{text}> is a relative IRI and the query has no BASE",
                span=span,
                hint="write the whole IRI, or add BASE <…> before the query",
            )
        return iri

    def _named(self, iri: str, span: Span) -> NamedNode:
        try:
            return NamedNode(iri)
        except ValueError as error:
            raise QueryError(f"<{iri}> is not an IRI: {str(error).lower()}", span=span) from None

    def term(self, tree: Branch) -> Term:
        match tree.data:
            case "iri":
                return self.iri(tree)
            case "nil":
                return RDF_NIL
            case "true":
                return TRUE
            case "false":
                return FALSE
            case "unsigned_literal" | "signed_literal":
                token = cast(Token, tree.children[0])
                return Literal(str(token), datatype=_NUMBERS[token.type.removesuffix("_SIGNED")])
            case "rdf_literal":
                return self._literal(tree)
            case other:
                raise AssertionError(f"no term {other}")

    def _literal(self, tree: Branch) -> Literal:
        text = self.string(trees(tree)[0])
        if len(tree.children) == 1:
            return Literal(text)
        suffix = tree.children[1]
        if isinstance(suffix, Token):
            return Literal(text, language=str(suffix)[1:])
        return Literal(text, datatype=self.iri(suffix))

    def string(self, tree: Branch) -> str:
        token = cast(Token, tree.children[0])
        quotes = 3 if "LONG" in token.type else 1
        return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], str(token)[quotes:-quotes])
