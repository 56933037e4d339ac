"""Lifting templates: which nodes and triples a record becomes, and when it was; how they are written is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.ingest.parse_errors import reason_of
from cqels.ingest.record_readers import Record
from cqels.ingest.template_times import TimeTemplate
from cqels.ingest.template_values import (
    ALONE,
    ITEM,
    DerivedValue,
    Scope,
    Surroundings,
    filled,
    is_surrounding,
    lexical,
    names_in,
)
from cqels.model.terms import Term, Triple

MAIN = "main"
"""The name of the node whose subject and predicates are at the top of a template."""


@dataclass(frozen=True, slots=True)
class ObjectTemplate:
    """Where an object comes from: one of a column, an IRI template, a text template, a constant and another node.

    With `each` there is an object for each item of an array, or of a text that is divided by `split`.  A record
    without a value has no triple of it, and is rejected if it is `required`.
    """

    column: str | None = None
    iri: str | None = None
    text: str | None = None
    datatype: NamedNode | None = None
    language: str | None = None
    constant: Literal | None = None
    node: str | None = None
    each: str | None = None
    split: str | None = None
    required: bool = False

    @property
    def names(self) -> list[str]:
        """The values that it names, but for what it goes through."""
        if self.column is not None:
            return [self.column]
        return names_in(self.iri, iri=True) if self.iri is not None else names_in(self.text or "")

    def term(self, record: Record) -> Term | None:
        """The object in this record, None if one of its values is absent."""
        if self.iri is not None:
            iri = filled(self.iri, record, iri=True)
            return None if iri is None else _named(iri)
        if self.constant is not None:
            return self.constant
        value = record(self.column) if self.column is not None else filled(self.text or "", record)
        if value is None or value == "":
            return None
        text, datatype = lexical(value)
        if self.language is not None:
            return Literal(text, language=self.language)
        return Literal(text, datatype=self.datatype or datatype)


Predicates: TypeAlias = tuple[tuple[NamedNode, ObjectTemplate], ...]


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A node and its triples: an IRI, or a blank node if there is no subject.

    It is not there if its subject or one of the values that it `needs` is absent; then the record is rejected if it is
    `required`.  With `each` there is a node for each item of an array; nodes `within` another belong to its items.
    """

    subject: str | None
    predicates: Predicates
    name: str = MAIN
    needs: tuple[str, ...] = ()
    required: bool = False
    each: str | None = None
    split: str | None = None
    within: str | None = None


class _Shape:
    """Which nodes are within which."""

    def __init__(self, nodes: tuple[NodeTemplate, ...]) -> None:
        named = {node.name: node for node in nodes}
        self.outer = tuple(node for node in nodes if node.within is None)
        self.inner: dict[str, tuple[NodeTemplate, ...]] = {}
        """The nodes that are within one."""
        self.chains: dict[str, tuple[NodeTemplate, ...]] = {}
        """A node and those that it is within, the outermost first."""
        for node in nodes:
            self.inner[node.name] = tuple(each for each in nodes if each.within == node.name)
            chain = [node]
            while chain[0].within is not None:
                chain.insert(0, named[chain[0].within])
            self.chains[node.name] = tuple(chain)


@dataclass(frozen=True, slots=True)
class Template:
    """How a record becomes an element."""

    nodes: tuple[NodeTemplate, ...]
    timestamp: TimeTemplate | None = None
    values: tuple[DerivedValue, ...] = ()
    missing: frozenset[str] = frozenset()
    """Texts that stand for no value."""
    delimiter: str | None = None
    prefixes: tuple[tuple[str, str], ...] = ()
    """How a person would shorten its IRIs."""
    shape: _Shape = field(init=False, repr=False, compare=False)
    columns: tuple[str, ...] = field(init=False)
    """The columns that it names, in order."""
    surroundings: tuple[str, ...] = field(init=False)
    """What it names of a record's surroundings."""
    is_flat: bool = field(init=False)
    """Every value that it names is a column, and every node has an IRI: nothing but columns decides."""

    def __post_init__(self) -> None:
        names = _names(self)
        derived = {each.name for each in self.values}
        around = tuple(name for name in names if is_surrounding(name))
        columns = tuple(name for name in names if name not in derived and name not in ITEM and name not in around)
        own = [name for each in self.values for name in each.names if name == each.name]  # a column of the same name
        nodes = [node for node in self.nodes if node.each or node.within or node.subject is None]
        objects = [each for node in self.nodes for _, each in node.predicates if each.each or each.node]
        object.__setattr__(self, "shape", _Shape(self.nodes))
        object.__setattr__(self, "columns", tuple(dict.fromkeys([*columns, *own])))
        object.__setattr__(self, "surroundings", around)
        object.__setattr__(self, "is_flat", not (around or derived or self.missing or nodes or objects))

    @property
    def has_blank_nodes(self) -> bool:
        return any(node.subject is None for node in self.nodes)

    def scope(self, record: Record, around: Surroundings = ALONE) -> Record:
        """What the template sees of a record."""
        return record if self.is_flat else Scope(record, around, self.values, self.missing)

    def triples(self, record: Record, around: Surroundings = ALONE) -> tuple[Triple, ...]:
        """The triples of a record; ValueError if it has none, or lacks a value that is required."""
        scope = self.scope(record, around)
        if isinstance(scope, Scope):
            made = _Nodes(self.shape, scope)
            triples = tuple(triple for node in self.shape.outer for triple in made.triples(node, ()))
        else:
            triples = tuple(triple for node in self.nodes for triple in _plain_triples(node, scope))
        if not triples:
            raise ValueError("the record has no value for any predicate")
        return triples

    def time(self, record: Record, unit: str, around: Surroundings = ALONE) -> int:
        """The time of a record; ValueError if it has none."""
        if self.timestamp is None:
            raise ValueError("the record has no timestamp")
        return self.timestamp.read(self.scope(record, around)(self.timestamp.column), unit)


def _names(template: Template) -> list[str]:
    """All names in a template, each once."""
    names: list[str] = []
    for node in template.nodes:
        names += [node.each] if node.each else []
        names += node.needs
        names += names_in(node.subject or "", iri=True)
        if node is template.nodes[0] and template.timestamp is not None:
            names.append(template.timestamp.column)
        for _, each in node.predicates:
            names += [each.each] if each.each else []
            names += each.names
    for value in template.values:
        names += value.names
    return list(dict.fromkeys(names))


def _is_there(node: NodeTemplate, record: Record) -> bool:
    for name in node.needs:
        value = record(name)
        if value is None or value == "":
            if node.required:
                raise ValueError(f"the record has no value for '{name}', which the node '{node.name}' requires")
            return False
    return True


def _named_subject(node: NodeTemplate, record: Record) -> NamedNode | None:
    assert node.subject is not None
    iri = filled(node.subject, record, iri=True)
    if iri is None and node.required:
        of = "" if node.name == MAIN else f" of the node '{node.name}'"
        raise ValueError(f"the record has no value for the subject{of}")
    return None if iri is None else _named(iri)


def _named(iri: str) -> NamedNode:
    try:
        return NamedNode(iri)
    except ValueError as error:
        raise ValueError(f"'{iri}' is not an IRI: {reason_of(error, iri)}") from None


def _absent(predicate: NamedNode) -> ValueError:
    return ValueError(f"the record has no value for <{predicate.value}>, which is required")


def _plain_triples(node: NodeTemplate, record: Record) -> Iterator[Triple]:
    """The triples of a node of a flat template."""
    if not _is_there(node, record) or (subject := _named_subject(node, record)) is None:
        return
    for predicate, template in node.predicates:
        term = template.term(record)
        if term is not None:
            yield subject, predicate, term
        elif template.required:
            raise _absent(predicate)


Active: TypeAlias = tuple[tuple[NodeTemplate, Scope], ...]
"""The nodes that are being made, each within the one before it, and the scopes that they are made in."""


class _Nodes:
    """The nodes of one record."""

    def __init__(self, shape: _Shape, scope: Scope) -> None:
        self._shape = shape
        self._scope = scope

    def triples(self, node: NodeTemplate, active: Active) -> Iterator[Triple]:
        for scope in self._scopes(node, active[-1][1] if active else self._scope):
            if (subject := _subject(node, scope)) is None:
                continue
            here = (*active, (node, scope))
            for predicate, template in node.predicates:
                found = False
                for term in self._terms(template, here):
                    yield subject, predicate, term
                    found = True
                if not found and template.required:
                    raise _absent(predicate)
            for inner in self._shape.inner.get(node.name, ()):
                yield from self.triples(inner, here)

    def _scopes(self, node: NodeTemplate, outer: Scope) -> Iterator[Scope]:
        if node.each is not None:
            yield from outer.items(node.each, node.split)
        else:
            yield outer

    def _terms(self, template: ObjectTemplate, active: Active) -> Iterator[Term]:
        scope = active[-1][1]
        scopes = [scope] if template.each is None else scope.items(template.each, template.split)
        for each in scopes:
            if template.node is not None:
                yield from self._linked(self._shape.chains[template.node], active)
            elif (term := template.term(each)) is not None:
                yield term

    def _linked(self, chain: tuple[NodeTemplate, ...], active: Active) -> Iterator[NamedNode | BlankNode]:
        """The subjects of a node, the last of a chain, as another node sees them: of its own items, or of all."""
        node = chain[-1]
        common = 0
        while common < min(len(chain), len(active)) and chain[common] is active[common][0]:
            common += 1
        scopes = [active[common - 1][1] if common else self._scope]
        for step in chain[common:]:
            scopes = [inner for outer in scopes for inner in self._scopes(step, outer)]
            if step is not node:
                scopes = [scope for scope in scopes if _subject(step, scope) is not None]
        yield from (subject for scope in scopes if (subject := _subject(node, scope)) is not None)


def _subject(node: NodeTemplate, scope: Scope) -> NamedNode | BlankNode | None:
    """The subject of a node, None if it is not there."""
    if not _is_there(node, scope):
        return None
    if node.subject is None:
        return BlankNode(f"{scope.around.scope}{scope.path}_{node.name}")
    return _named_subject(node, scope)


def flat_template(
    subject: str, column: str | None, predicates: Predicates, *formats: str, delimiter: str | None = None
) -> Template:
    """A template of one node."""
    time = None if column is None else TimeTemplate(column, formats)
    return Template((NodeTemplate(subject, predicates, required=True),), time, delimiter=delimiter)
