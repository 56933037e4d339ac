"""The offsets in the arena that Python knows of a pipeline, each by a name: snapshots write them, and put others in.

Used by `engine.state.snapshot` when the memory of an engine is restored into pipelines that have been compiled anew.

A name is a path such as `tables/0/stage/queue`.  Its words are those of `FIELDS`, not of the classes, which may be
called otherwise in a later release.  All else that is known of a pipeline, names of columns and the plans of its parts,
is its *shape*: numbers are put only where they belong, into a pipeline of the same shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from hashlib import sha256
from typing import Any

from cqels.physical.pipeline import (
    Compared,
    JoinTrace,
    Kept,
    Pipeline,
    Recomputed,
    Select,
    Stage,
    Table,
    Trace,
    WholeGraph,
)
from cqels.physical.python_functions import Function
from cqels.plan.algebra import Plan, Query
from cqels.plan.plan_json import digest

FIELDS: dict[type, str] = {
    Pipeline: "place=offset heap tables selects thresholds groups recomputed traces joins matches terms "
    "feeds=shared_inputs columns computed fresh streams sends query",
    Stage: "queue columns nullable in_turn timeless",
    Table: "stage place=offset room count plan",
    Kept: "place=offset slide told=seen_at",
    Recomputed: "place=offset stage before windows ranked events timely needs_windows plan reason",
    Trace: "queue counted operators windows plan",
    JoinTrace: "place=offset queue inputs programs conditions",
    Select: "place=offset queue programs passed in_turn",
    Compared: "place=offset programs",
}
"""The fields of what a pipeline is made of: `name`, or `name=attribute` if these differ. What is written stays.

A field that is not here has its own name.
"""


def _attributes(kind: type, text: str) -> tuple[tuple[str, str], ...]:
    known = tuple((word.split("=")[0], word.split("=")[-1]) for word in text.split())
    named = {attribute for _, attribute in known}
    return known + tuple((each.name, each.name) for each in fields(kind) if each.name not in named)


_ATTRIBUTES = {kind: _attributes(kind, text) for kind, text in FIELDS.items()}
_SHAPED: dict[type, frozenset[str]] = {
    Pipeline: frozenset({"columns", "fresh", "sends"}),
    Stage: frozenset({"columns", "nullable", "timeless"}),
    Table: frozenset({"plan"}),
    Recomputed: frozenset({"ranked", "events", "plan"}),
}
"""What else the rows in an arena mean."""


def offsets_of(value: Any) -> Iterator[int]:
    """The numbers in a structure of Python, in the order of their names."""
    if type(value) is int:
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from offsets_of(key)
            yield from offsets_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from offsets_of(each)
    else:
        for _, attribute in _ATTRIBUTES.get(type(value), ()):
            yield from offsets_of(getattr(value, attribute))


def names_of(value: Any, path: str = "") -> Iterator[str]:
    """The names of these numbers."""
    if type(value) is int:
        yield path
    elif isinstance(value, dict):
        for number, (key, each) in enumerate(value.items()):
            yield from names_of(key, f"{path}/{number}/key")
            yield from names_of(each, f"{path}/{number}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from names_of(each, f"{path}/{number}")
    else:
        for name, attribute in _ATTRIBUTES.get(type(value), ()):
            yield from names_of(getattr(value, attribute), f"{path}/{name}" if path else name)


def with_offsets(value: Any, offsets: Mapping[str, int], path: str = "") -> Any:
    """The same structure with other numbers, by their names."""
    if type(value) is int:
        return offsets[path]
    if isinstance(value, dict):
        return {
            with_offsets(key, offsets, f"{path}/{number}/key"): with_offsets(each, offsets, f"{path}/{number}")
            for number, (key, each) in enumerate(value.items())
        }
    if isinstance(value, list | tuple):
        return type(value)(with_offsets(each, offsets, f"{path}/{number}") for number, each in enumerate(value))
    if type(value) not in _ATTRIBUTES:
        return value
    changed = {
        attribute: with_offsets(getattr(value, attribute), offsets, f"{path}/{name}" if path else name)
        for name, attribute in _ATTRIBUTES[type(value)]
    }
    return replace(value, **changed)


def shape_of(pipeline: Pipeline, functions: list[Function]) -> str:
    """The same for pipelines in which the same numbers have the same meaning, and that call these functions.

    What is computed for several queries has the variables of any one of them: of that the names of numbers are enough.
    """
    if not pipeline.sends:
        return sha256("\n".join(names_of(pipeline)).encode()).hexdigest()
    called = [[digest(each.expression), each.parameters, each.now, each.interval, each.seed] for each in functions]
    return sha256(json.dumps([_shape(pipeline), called], separators=(",", ":")).encode()).hexdigest()


def _shape(value: Any) -> Any:
    if type(value) is int:
        return 0
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, dict):
        return [[_shape(key), _shape(each)] for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_shape(each) for each in value]
    if isinstance(value, WholeGraph):
        return ["graph", str(value.name)]
    if type(value) not in _ATTRIBUTES:  # plans, patterns and expressions
        return digest(value)
    shaped = _SHAPED.get(type(value), frozenset())
    return [
        [name, _shape(getattr(value, attribute))]
        for name, attribute in _ATTRIBUTES[type(value)]
        if name in shaped or not isinstance(getattr(value, attribute), str | bool | frozenset | Plan | Query)
    ]
