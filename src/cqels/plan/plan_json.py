"""Plans as they are written: JSON in names of its own, which say the same in every release.

A plan is a list of nodes, each behind all that it refers to, so its depth is no matter, and equal parts are there once:

    {"version": 1, "nodes": [["variable", {"name": "s"}], …], "root": 12}

A field has a number, a text, a boolean, null, a list of such, `{"node": 3}`, or `{"term": "<http://ex.org/a>"}` in
N-Triples.  One that has its default is left out; so a class can have one more, and what was written before is the same.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from functools import cache
from hashlib import sha256
from typing import Any

from pyoxigraph import BlankNode, Literal, NamedNode
from pyoxigraph import Triple as TripleTerm

from cqels.lang import expressions, syntax
from cqels.model.dictionary import term_of
from cqels.model.errors import CqelsError, Span
from cqels.plan import algebra
from cqels.plan.algebra import Query
from cqels.plan.optimizer.prune_columns import DRAWS

VERSION = 1

NODES: dict[str, tuple[type, str]] = {
    "query": (
        Query,
        "form plan variables emit policy dialect name template default_graphs named_graphs prefixes text",
    ),
    "text": (algebra.QueryText, "text base dialect emit policy lenient"),
    "unit": (algebra.Unit, ""),
    "pattern": (algebra.Triple, "subject predicate object"),
    "triples": (algebra.Triples, "patterns"),
    "path": (algebra.PathPattern, "subject path object"),
    "values": (algebra.Values, "variables rows"),
    "join": (algebra.Join, "inputs"),
    "left-join": (algebra.LeftJoin, "left right condition"),
    "minus": (algebra.Minus, "left right"),
    "union": (algebra.Union, "inputs"),
    "filter": (algebra.Filter, "input condition"),
    "extend": (algebra.Extend, "input variable expression"),
    "graph": (algebra.Graph, "name input"),
    "stream": (algebra.Stream, "sources input at graphs"),
    "source": (algebra.Source, "stream window span"),
    "span": (Span, "start end"),
    "service": (algebra.Service, "endpoint input silent"),
    "sequence": (algebra.Sequence, "left right kind optional"),
    "group": (algebra.Group, "input keys aggregates"),
    "project": (algebra.Project, "input variables"),
    "distinct": (algebra.Distinct, "input"),
    "order": (algebra.OrderBy, "input keys ties"),
    "slice": (algebra.Slice, "input offset limit"),
    "static": (algebra.Static, "input on"),
    "narrow": (algebra.Narrow, "input width counted"),
    "thresholds": (algebra.Thresholds, "input comparisons group columns"),
    "reused": (algebra.Reused, "input part columns"),
    "now": (syntax.Now, ""),
    "all": (syntax.All, ""),
    "range": (syntax.Range, "width slide time"),
    "count": (syntax.Count, "size unit by"),
    "link": (syntax.Link, "iri"),
    "inverse": (syntax.Inverse, "path"),
    "steps": (syntax.Steps, "paths"),
    "choice": (syntax.Choice, "paths"),
    "repeat": (syntax.Repeat, "path low many"),
    "negated": (syntax.Negated, "forward backward"),
    "variable": (expressions.Var, "name"),
    "constant": (expressions.Constant, "term"),
    "call": (expressions.Call, "name args place=span"),
    "exists": (expressions.Exists, "pattern negated"),
    "aggregate": (expressions.Aggregate, "name argument distinct separator"),
}
"""The nodes by the names that are written, with their classes and fields: `name`, or `name=attribute` if these differ.

What is written stays: a class or an attribute may have another name tomorrow, and then this table says so.  A field
that is not here has its own name.
"""
_TERMS = (NamedNode, BlankNode, Literal, TripleTerm)
_PLACED = frozenset({"span"})
_PLAIN = (bool, int, str, type(None))


def write(value: Any, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A query, a plan, an expression or another part of these as JSON, `without` some fields.

    >>> write(expressions.Call("ADD", (expressions.Var("a"), expressions.Var("a"))))["nodes"]
    [['variable', {'name': 'a'}], ['call', {'name': 'ADD', 'args': [{'node': 0}, {'node': 0}]}]]
    """
    nodes: list[list[Any]] = []
    known: dict[str, int] = {}
    """Nodes by what is written of them."""
    numbers: dict[int, int] = {}
    """Those of the objects that were met."""
    pending: list[Any] = [value]
    while pending:
        node = pending[-1]
        if id(node) in numbers:
            pending.pop()
            continue
        kind: type = type(node)
        name, written = _fields(kind)
        below: list[Any] = []
        said: dict[str, Any] = {}
        for field, attribute, default in written:
            found = getattr(node, attribute)
            if kind is expressions.Call and field == "place" and node.name not in DRAWS:
                continue  # to those that draw the place in the text means something
            if found is not default and found != default and field not in without:
                said[field] = _plain(found, numbers, below)
        if below:
            pending += reversed(below)
            continue
        pending.pop()
        number = known.setdefault(repr((name, said)), len(nodes))
        if number == len(nodes):
            nodes.append([name, said])
        numbers[id(node)] = number
    return {"version": VERSION, "nodes": nodes, "root": numbers[id(value)]}


def _plain(value: Any, numbers: dict[int, int], below: list[Any]) -> Any:
    """The value of a field as it is written; the nodes in it that have no number yet are noted as `below`."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple):
        return [_plain(each, numbers, below) for each in value]
    if isinstance(value, _TERMS):
        return {"term": str(value)}
    number = numbers.get(id(value))
    if number is None:
        below.append(value)
    return {"node": number}


def read(written: dict[str, Any]) -> Any:
    """What was written."""
    if written["version"] > VERSION:
        raise CqelsError(
            f"a query was written in version {written['version']} of plans, and this release reads {VERSION}",
            hint="go on with the release of cqels that wrote it, or a newer one",
        )
    made: list[Any] = []

    def value(found: Any) -> Any:
        if isinstance(found, list):
            return tuple(map(value, found))
        if isinstance(found, dict):
            return made[found["node"]] if "node" in found else term_of(found["term"])
        return found

    for name, entry in written["nodes"]:
        if name not in NODES:
            raise CqelsError(f"a query was written with a part '{name}', which this release does not know")
        kind, _ = NODES[name]
        attributes = {field: attribute for field, attribute, _ in _fields(kind)[1]}
        made.append(kind(**{attributes[field]: value(each) for field, each in entry.items()}))
    return made[written["root"]]


def fingerprint(query: Query) -> str:
    """The same for queries that mean the same in the same words, whatever their names and prefixes."""
    return digest(replace(query, name=None, prefixes=(), text=None))


def digest(value: Any) -> str:
    """The same for the same plan, in every release, wherever it stands in a text."""
    return sha256(json.dumps(write(value, without=_PLACED), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@cache
def _fields(kind: type[Any]) -> tuple[str, tuple[tuple[str, str, Any], ...]]:
    """The name of a class in what is written, and its fields: names, attributes and defaults."""
    for name, (each, text) in NODES.items():
        if each is kind:
            defaults = {field.name: field.default for field in fields(each)}
            pairs = [(word.split("=")[0], word.split("=")[-1]) for word in text.split()]
            named = {attribute for _, attribute in pairs}
            pairs += [(field.name, field.name) for field in fields(each) if field.compare and field.name not in named]
            return name, tuple((field, attribute, defaults.get(attribute, MISSING)) for field, attribute in pairs)
    raise AssertionError(f"{kind.__name__} is no part of a plan that can be written")
