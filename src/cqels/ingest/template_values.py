"""The values that a lifting template names: of columns, of what surrounds a record, looked up, or by default.

Names that begin with `@` stand for what is not in the record itself (`SURROUNDINGS`, `ITEM`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import lru_cache, partial
from hashlib import blake2s
from typing import Any
from urllib.parse import quote

from pyoxigraph import NamedNode

from cqels.ingest.record_readers import Instant, Record, Value
from cqels.model.terms import XSD_BOOLEAN, XSD_DATE, XSD_DATE_TIME, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER
from cqels.model.time import format_date_time

PLACE = re.compile(r"\{([^{}]+)\}")
"""Where a template has the value of a column."""
AS_IT_IS = "+"
"""What a place in an IRI begins with whose value is not percent-encoded."""

SURROUNDINGS = ("@key", "@topic", "@arrival")
"""What a source knows of a record; also `@topic.2`, a level of the topic, and `@header.name`."""
ITEM = ("@value", "@name", "@index")
"""An item of an array or object that a template goes through: its value, its name there, its number from 0."""
_NUMBERED = re.compile(r"@topic\.([1-9][0-9]*)")
_HEADER = "@header."
_UNBOUNDED = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def is_surrounding(name: str) -> bool:
    """Whether a name stands for what surrounds a record."""
    return name in SURROUNDINGS or name.startswith(_HEADER) or _NUMBERED.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Part:
    """A place for a value in a template; in an IRI it is percent-encoded unless it is taken `as_it_is`."""

    name: str
    as_it_is: bool = False


@lru_cache(maxsize=4096)
def parts_of(template: str, *, iri: bool = False) -> tuple[str | Part, ...]:
    """The texts of a template, and the places between them: texts are at even places, and may be empty.

    An IRI that is one place is a value that is an IRI already.

    >>> parts_of("x:{a}", iri=True), parts_of("{a}", iri=True)[1]
    (('x:', Part(name='a', as_it_is=False), ''), Part(name='a', as_it_is=True))
    """
    texts = PLACE.split(template)
    alone = iri and len(texts) == 3 and not texts[0] and not texts[2]
    found: list[str | Part] = list(texts)
    for number in range(1, len(texts), 2):
        marked = iri and texts[number].startswith(AS_IT_IS) and len(texts[number]) > 1
        found[number] = Part(texts[number][marked:], alone or marked)
    return tuple(found)


def names_in(template: str, *, iri: bool = False) -> list[str]:
    """The names of the places in a template."""
    return [part.name for part in parts_of(template, iri=iri) if isinstance(part, Part)]


def filled(template: str, record: Record, *, iri: bool = False) -> str | None:
    """The template with its values, None if one of them is absent."""
    parts = parts_of(template, iri=iri)
    if len(parts) == 1:
        return template
    made: list[str] = []
    for part in parts:
        if isinstance(part, str):
            made.append(part)
            continue
        value = record(part.name)
        if value is None or value == "":
            return None
        text = value if isinstance(value, str) else lexical(value)[0]
        made.append(quote(text, safe="") if iri and not part.as_it_is else text)
    return "".join(made)


def lexical(value: str | int | float | bool | Decimal | date | Instant) -> tuple[str, NamedNode | None]:
    """The text of a value, and the datatype of a literal of it; None for a string."""
    match value:
        case bool():
            return str(value).lower(), XSD_BOOLEAN
        case int():
            return str(value), XSD_INTEGER
        case float():
            return repr(value) if math.isfinite(value) else _UNBOUNDED[str(value)], XSD_DOUBLE
        case Decimal():
            return f"{value:f}", XSD_DECIMAL
        case Instant():
            return format_date_time(value.nanoseconds), XSD_DATE_TIME
        case date():
            return value.isoformat(), XSD_DATE
        case _:
            return value, None


# ---------------------------------------------------------------- values that are derived


class ValueMap(Mapping[str, str]):
    """Texts by their keys, from a table in a template or from a CSV file. Hashed once, by its content."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values = dict(pairs)
        content = repr(sorted(self._values.items())).encode("utf-8", "surrogatepass")
        self._digest = blake2s(content, digest_size=16).digest()

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueMap) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"ValueMap({len(self)} values)"


@dataclass(frozen=True, slots=True)
class DerivedValue:
    """A value with a name of its own: of a column or of a text that is put together, mapped, or else the default."""

    name: str
    column: str | None = None
    text: str | None = None
    map: ValueMap | None = None
    default: str | int | float | bool | None = None

    @property
    def names(self) -> list[str]:
        return [self.column] if self.column is not None else names_in(self.text or "")

    def value(self, record: Record) -> Value:
        found = record(self.column) if self.column is not None else filled(self.text or "", record)
        if found is not None and found != "" and self.map is not None:
            found = self.map.get(lexical(found)[0])
        return self.default if found is None or found == "" else found


# ---------------------------------------------------------------- what a record is seen in


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a source knows of a record beside its content; `scope` is what labels of blank nodes begin with."""

    scope: str = "r"
    key: bytes | None = None
    topic: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())
    arrival: int | None = None

    def value(self, name: str) -> Value:
        """The value of a name that `is_surrounding`."""
        if name == "@key":
            return _decoded(self.key)
        if name == "@topic":
            return self.topic
        if name == "@arrival":
            return None if self.arrival is None else Instant(self.arrival)
        if name.startswith(_HEADER):
            wanted = name.removeprefix(_HEADER)
            return _decoded(next((value for header, value in reversed(self.headers) if header == wanted), None))
        level = _NUMBERED.fullmatch(name)
        levels = (self.topic or "").split("/")
        number = int(level[1]) if level else 0
        return levels[number - 1] if 0 < number <= len(levels) else None


ALONE = Surroundings()


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


class Scope:
    """A record with all that its template can name: derived values, surroundings, and the item that is gone through."""

    def __init__(
        self,
        record: Record,
        around: Surroundings,
        values: tuple[DerivedValue, ...] = (),
        missing: frozenset[str] = frozenset(),
    ) -> None:
        self.record = record
        self.around = around
        self.values = values
        self.missing = missing
        self.path = ""
        """The numbers of the items that it is in."""
        self._item: tuple[Value | object, str | None, int] | None = None
        self._outer: Scope | None = None

    def __call__(self, name: str) -> Value:
        return self._value(name, len(self.values))

    def _value(self, name: str, visible: int) -> Value:
        """A value; of derived ones, the first so many are seen."""
        for number in range(visible - 1, -1, -1):
            if self.values[number].name == name:
                return self.values[number].value(partial(self._value, visible=number))
        if name.startswith("@"):
            if name in ITEM:
                return self._of_item(name)
            if is_surrounding(name):
                return self.around.value(name)
        return self._of_record(name)

    def _of_record(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None:
            if scope._outer is None or getattr(scope.record, "has", _no)(name):
                found = scope.record(name)
                if self.missing and found is not None and lexical(found)[0] in self.missing:
                    return None
                return found
            scope = scope._outer
        return None

    def _of_item(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None and scope._item is None:
            scope = scope._outer
        if scope is None or scope._item is None:
            return None
        value, member, index = scope._item
        if name == "@name":
            return member
        if name == "@index":
            return index
        if isinstance(value, dict | list):
            raise ValueError("an item is not a single value")
        if self.missing and value is not None and lexical(value)[0] in self.missing:  # type: ignore[arg-type]
            return None
        return value  # type: ignore[return-value]

    def items(self, name: str, split: str | None = None) -> Iterator[Scope]:
        """A scope for each item of an array, of an object, or of a text that is split; for a single value, of that."""
        for index, (member, value) in enumerate(self._found(name, split)):
            inner = Scope(_item_record(value), self.around, self.values, self.missing)
            inner._item, inner._outer = (value, member, index), self
            inner.path = f"{self.path}_{index}"
            yield inner

    def _found(self, name: str, split: str | None) -> Iterable[tuple[str | None, Any]]:
        if split is not None:
            whole = self(name)
            if whole is None or whole == "":
                return []
            return [(None, text) for text in map(str.strip, lexical(whole)[0].split(split)) if text]
        scope: Scope | None = self
        while scope is not None:
            inside = getattr(scope.record, "inside", None)
            if inside is not None and (scope._outer is None or scope.record.has(name)):  # type: ignore[attr-defined]
                found = inside(name)
                break
            if scope._outer is None:
                found = scope.record(name)
                break
            scope = scope._outer
        if isinstance(found, dict):
            return found.items()
        if isinstance(found, list):
            return [(None, value) for value in found]
        return [] if found is None or found == "" else [(None, found)]


def _no(name: str) -> bool:
    return False


def _item_record(value: Any) -> Record:
    from cqels.ingest.record_readers import Members

    return Members(value if isinstance(value, dict) else {})
