"""RDF terms, as everything above the arrays sees them: pyoxigraph's immutable term classes, and the IRIs we name."""

from __future__ import annotations

from typing import TypeAlias

from pyoxigraph import BlankNode, Literal, NamedNode

Term: TypeAlias = NamedNode | BlankNode | Literal
Triple: TypeAlias = tuple[NamedNode | BlankNode, NamedNode, Term]

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
CQ = "http://cqels.org/ns#"
"""The namespace of our own functions; `cq:` stands for it in every query that does not declare `cq:` itself."""
CSPARQL_TIMESTAMP = "http://larkc.eu/csparql/sparql/jena/ext#timestamp"

XSD_STRING = NamedNode(XSD + "string")
XSD_BOOLEAN = NamedNode(XSD + "boolean")
XSD_INTEGER = NamedNode(XSD + "integer")
XSD_DECIMAL = NamedNode(XSD + "decimal")
XSD_FLOAT = NamedNode(XSD + "float")
XSD_DOUBLE = NamedNode(XSD + "double")
XSD_DATE_TIME = NamedNode(XSD + "dateTime")
XSD_DATE = NamedNode(XSD + "date")
XSD_TIME = NamedNode(XSD + "time")
XSD_DURATION = NamedNode(XSD + "duration")
XSD_DAY_TIME_DURATION = NamedNode(XSD + "dayTimeDuration")
XSD_YEAR_MONTH_DURATION = NamedNode(XSD + "yearMonthDuration")
RDF_LANG_STRING = NamedNode(RDF + "langString")
RDF_TYPE = NamedNode(RDF + "type")
RDF_FIRST = NamedNode(RDF + "first")
RDF_REST = NamedNode(RDF + "rest")
RDF_NIL = NamedNode(RDF + "nil")

TRUE = Literal("true", datatype=XSD_BOOLEAN)
FALSE = Literal("false", datatype=XSD_BOOLEAN)


def boolean(value: bool) -> Literal:
    return TRUE if value else FALSE


def text_of(term: Term | None) -> str:
    """The N-Triples text of a term; empty for an unbound variable. It breaks the last ties of an order."""
    return "" if term is None else str(term)
