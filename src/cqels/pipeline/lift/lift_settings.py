"""The settings of a stream as JSON, on their way from the driver to the workers of a file source.

They are its declaration, the patterns that are pushed down to it, and the template by which it is lifted.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyoxigraph import NamedNode

from cqels.ingest import StreamDeclaration
from cqels.ingest.template_model import NodeTemplate, ObjectTemplate, Template
from cqels.ingest.template_times import TimeTemplate
from cqels.ingest.template_values import DerivedValue, ValueMap
from cqels.model.dictionary import term_of
from cqels.model.terms import Term
from cqels.pipeline.lift.predicate_pushdown import Condition, Pattern, PushedPatterns
from cqels.plan.plan_json import read, write


def write_declaration(declaration: StreamDeclaration) -> dict[str, Any]:
    time, template = declaration.time, declaration.template
    return {
        **_fields(declaration),
        "time": None if time is None else time.value,
        "template": None if template is None else str(template),
    }


def read_declaration(written: dict[str, Any]) -> StreamDeclaration:
    time, template = written["time"], written["template"]
    return StreamDeclaration(
        **{
            **written,
            "time": None if time is None else NamedNode(time),
            "template": None if template is None else Path(template),
            "columns": tuple(written.get("columns", ())),
            "source": tuple((name, value) for name, value in written.get("source", ())),
        }
    )


def write_patterns(pushed: PushedPatterns | None) -> list[Any] | None:
    """The patterns, in an order that is always the same."""
    return None if pushed is None else sorted(map(_write_pattern, pushed.patterns), key=json.dumps)


def read_patterns(written: list[Any] | None) -> PushedPatterns | None:
    return None if written is None else PushedPatterns(frozenset(map(_read_pattern, written)))


def _write_pattern(pattern: Pattern) -> list[Any]:
    *terms, condition = pattern
    texts = [None if term is None else str(term) for term in terms]
    return [*texts, None if condition is None else [write(condition.expression), condition.variables]]


def _read_pattern(written: list[Any]) -> Pattern:
    *texts, condition = written
    subject, predicate, object = map(_term, texts)
    if condition is None:
        return Pattern(subject, predicate, object)
    expression, (first, second, third) = condition
    return Pattern(subject, predicate, object, Condition(read(expression), (first, second, third)))


def _term(text: str | None) -> Term | None:
    return None if text is None else term_of(text)


def write_template(template: Template | None) -> dict[str, Any] | None:
    """A template with the content of the files that it looks values up in."""
    if template is None:
        return None
    return {
        "nodes": [_write_node(node) for node in template.nodes],
        "timestamp": None if template.timestamp is None else _fields(template.timestamp),
        "values": [_write_value(value) for value in template.values],
        "missing": sorted(template.missing),
        "delimiter": template.delimiter,
    }


def read_written_template(written: dict[str, Any] | None) -> Template | None:
    if written is None:
        return None
    time = written["timestamp"]
    return Template(
        tuple(map(_read_node, written["nodes"])),
        None if time is None else TimeTemplate(**{**time, "formats": tuple(time["formats"])}),
        tuple(map(_read_value, written["values"])),
        frozenset(written["missing"]),
        written["delimiter"],
    )


def _write_node(node: NodeTemplate) -> dict[str, Any]:
    predicates = [[predicate.value, _write_object(each)] for predicate, each in node.predicates]
    return {**_fields(node), "predicates": predicates}


def _read_node(written: dict[str, Any]) -> NodeTemplate:
    predicates = tuple((NamedNode(predicate), _read_object(each)) for predicate, each in written["predicates"])
    return NodeTemplate(**{**written, "predicates": predicates, "needs": tuple(written["needs"])})


def _write_object(template: ObjectTemplate) -> dict[str, Any]:
    datatype, constant = template.datatype, template.constant
    return {
        **_fields(template),
        "datatype": None if datatype is None else datatype.value,
        "constant": None if constant is None else str(constant),
    }


def _read_object(written: dict[str, Any]) -> ObjectTemplate:
    datatype = written["datatype"]
    constant = _term(written["constant"])
    return ObjectTemplate(
        **{**written, "datatype": None if datatype is None else NamedNode(datatype), "constant": constant}
    )


def _write_value(value: DerivedValue) -> dict[str, Any]:
    return {**_fields(value), "map": None if value.map is None else list(value.map.items())}


def _read_value(written: dict[str, Any]) -> DerivedValue:
    pairs = written["map"]
    return DerivedValue(**{**written, "map": None if pairs is None else ValueMap(map(tuple, pairs))})


def _fields(value: StreamDeclaration | NodeTemplate | ObjectTemplate | TimeTemplate | DerivedValue) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
