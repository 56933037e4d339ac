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
from cqels.ingest.lifting_template import ObjectTemplate, Template
from cqels.model.dictionary import term_of
from cqels.model.terms import Term
from cqels.plan.plan_json import read, write
from cqels.spark.lift.predicate_pushdown import Condition, Pattern, PushedPatterns


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
    if template is None:
        return None
    predicates = [[predicate.value, _write_object(each)] for predicate, each in template.predicates]
    return {**_fields(template), "predicates": predicates}


def read_written_template(written: dict[str, Any] | None) -> Template | None:
    if written is None:
        return None
    predicates = tuple((NamedNode(predicate), _read_object(each)) for predicate, each in written["predicates"])
    return Template(**{**written, "predicates": predicates})


def _write_object(template: ObjectTemplate) -> dict[str, Any]:
    datatype = template.datatype
    return {**_fields(template), "datatype": None if datatype is None else datatype.value}


def _read_object(written: dict[str, Any]) -> ObjectTemplate:
    datatype = written["datatype"]
    return ObjectTemplate(**{**written, "datatype": None if datatype is None else NamedNode(datatype)})


def _fields(value: StreamDeclaration | Template | ObjectTemplate) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
