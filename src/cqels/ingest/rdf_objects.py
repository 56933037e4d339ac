"""RDF that programs have as objects: terms, triples, quads, graphs and datasets of pyoxigraph and of rdflib.

rdflib is never imported: its classes are known by their names, so it need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyoxigraph
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad

from cqels.model.errors import DataError
from cqels.model.terms import Term, Triple

TERMS = frozenset({NamedNode, BlankNode, Literal})
_TRIPLES = frozenset({pyoxigraph.Triple})
_DEFAULT_OF_RDFLIB = "urn:x-rdflib:default"
_TAKEN = "give N-Triples or Turtle as a text; or a triple, a list of triples or a graph of pyoxigraph or of rdflib"
_TERMS_TAKEN = "terms are those of pyoxigraph or of rdflib, as in pyoxigraph.NamedNode('http://ex.org/a')"


class Statement(NamedTuple):
    """A triple, and the name of its graph if that is not the default graph."""

    triple: Triple
    graph: NamedNode | BlankNode | None = None


def statements_of(data: object) -> Iterator[Statement]:
    """The statements of a triple, a quad, a graph, a dataset, or of any number of triples and quads."""
    kinds = _kinds_of_rdflib(type(data), "rdflib.graph")
    if "ConjunctiveGraph" in kinds:
        yield from (_statement(each) for each in _quads_of_rdflib(data, kinds))
    elif isinstance(data, pyoxigraph.Triple | Quad) or _is_one_triple(data):
        yield _statement(data)
    elif isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise DataError(f"data of type {type(data).__name__} is not taken", hint=_TAKEN)
    else:
        for each in data:
            if not isinstance(each, pyoxigraph.Triple | Quad | tuple):
                kind, item = type(data).__name__, type(each).__name__
                raise DataError(f"data of type {kind} with an item of type {item} is not taken", hint=_TAKEN)
            yield _statement(each)


def triples_of(data: object) -> Iterable[Triple]:
    """The triples of an element, which has no named graphs."""
    return data if isinstance(data, list) and _are_plain(data) else _triples(data)


def _are_plain(data: list[Any]) -> bool:
    """They are triples of pyoxigraph: of these there may be many, and whoever encodes their terms looks at those."""
    return _TRIPLES.issuperset(map(type, data))


def _triples(data: object) -> Iterator[Triple]:
    for triple, graph in statements_of(data):
        if graph is not None:
            raise DataError(
                f"the triple is in the graph {graph}, and an element has no named graphs",
                hint="push the triples of one graph",
            )
        yield triple


def quads_of(data: object, graph: NamedNode | None) -> Iterator[Quad]:
    """The quads of a dataset; what it has in its default graph goes to `graph`, if one is given."""
    for triple, name in statements_of(data):
        yield Quad(*triple, name or graph or DefaultGraph())


def _is_one_triple(data: object) -> bool:
    return isinstance(data, tuple) and len(data) in (3, 4) and _maker(type(data[0])) is not None


def _statement(data: Any) -> Statement:
    graph: Term | None = None
    if isinstance(data, pyoxigraph.Triple):
        parts = data.subject, data.predicate, data.object
    elif isinstance(data, Quad):
        parts = data.subject, data.predicate, data.object
        graph = None if isinstance(data.graph_name, DefaultGraph) else data.graph_name
    elif len(data) == 4:
        *parts, name = data
        graph = None if name is None or isinstance(name, DefaultGraph) else term_of(name)
    else:
        parts = data
    if len(parts) != 3:
        raise DataError(f"a tuple of {len(data)} is not a triple", hint=_TAKEN)
    subject, predicate, value = map(term_of, parts)
    if isinstance(subject, Literal) or not isinstance(predicate, NamedNode) or isinstance(graph, Literal):
        raise DataError(
            f"{subject} {predicate} {value} is not a triple",
            hint="a subject is an IRI or a blank node, a predicate is an IRI",
        )
    return Statement((subject, predicate, value), graph)


# ---------------------------------------------------------------- terms


def term_of(value: object) -> Term:
    """The term that an object is."""
    if type(value) in TERMS:
        return value  # type: ignore[return-value]
    make = _maker(type(value))
    if make is None:
        raise not_taken(value)
    try:
        return make(value)
    except ValueError as error:
        raise DataError(f"'{value}' is not a term: {str(error).lower()}") from None


def not_taken(value: object) -> DataError:
    """The error of what is no term."""
    return DataError(f"a term of type {type(value).__name__} is not taken", hint=_TERMS_TAKEN)


def _maker(kind: type) -> Callable[[Any], Term] | None:
    """What makes a term of an object of this type."""
    if kind in TERMS:
        return lambda term: term
    names = _kinds_of_rdflib(kind, "rdflib.term")
    return next((_MAKERS[name] for name in names if name in _MAKERS), None)


def _literal(literal: Any) -> Literal:
    text = str(literal)
    if literal.language is not None:
        return Literal(text, language=str(literal.language))
    return Literal(text) if literal.datatype is None else Literal(text, datatype=NamedNode(str(literal.datatype)))


_MAKERS: dict[str, Callable[[Any], Term]] = {
    "URIRef": lambda term: NamedNode(str(term)),
    "BNode": lambda term: BlankNode(str(term)),
    "Literal": _literal,
}


# ---------------------------------------------------------------- rdflib


def _kinds_of_rdflib(kind: type, module: str) -> tuple[str, ...]:
    """The names of the classes of a module of rdflib that a type is, the nearest first."""
    return tuple(base.__name__ for base in kind.__mro__ if base.__module__ == module)


def _quads_of_rdflib(data: Any, kinds: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """The quads of a dataset; the graphs of a ConjunctiveGraph are objects, its default graph one among them."""
    own = None if "Dataset" in kinds else getattr(data, "default_context", None)
    default = _DEFAULT_OF_RDFLIB if own is None else str(own.identifier)
    for *triple, graph in data.quads((None, None, None, None)):
        name = getattr(graph, "identifier", graph)
        yield *triple, None if name is None or str(name) in (default, _DEFAULT_OF_RDFLIB) else name
