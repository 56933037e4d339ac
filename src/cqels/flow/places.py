"""The places in what Python knows of a pipeline: to write them down, to put others in, to know what is in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from cqels.plan.algebra import Plan, Query


def places_of(value: Any) -> Iterator[int]:
    """The numbers in a structure of Python, but for those of plans, in the order in which they are met."""
    if isinstance(value, Plan | Query | str | bool | frozenset):
        return
    if isinstance(value, int):
        yield int(value)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from places_of(key)
            yield from places_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from places_of(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from places_of(getattr(value, field.name))


def with_places(value: Any, places: Iterator[int]) -> Any:
    """The same structure with other numbers."""
    if isinstance(value, Plan | Query | str | bool | frozenset):
        return value
    if isinstance(value, int):
        return next(places)
    if isinstance(value, dict):
        return {with_places(key, places): with_places(each, places) for key, each in value.items()}
    if isinstance(value, list):
        return [with_places(each, places) for each in value]
    if isinstance(value, tuple):
        return tuple(with_places(each, places) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: with_places(getattr(value, field.name), places) for field in fields(value)}
        )
    return value
