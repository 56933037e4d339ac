"""Lifting templates laid out in words and bytes for `cqels.kernels.readers.record_lifter`; nothing is lifted here."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pyoxigraph import Literal, NamedNode

from cqels.ingest.template_model import NodeTemplate, ObjectTemplate, Template
from cqels.ingest.template_times import EPOCH, ISO, OPTIONAL_FRACTION, TimeTemplate
from cqels.ingest.template_values import PLACE, DerivedValue, Part, ValueMap, is_surrounding, lexical, parts_of
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.byte_strings import MANY, hash_text, word_of
from cqels.kernels.readers import derived_fields, json_splitter, record_times
from cqels.kernels.readers import record_lifter as kernels
from cqels.model.ids import CODE_BOOLEAN, CODE_DATE_TIME, CODE_DECIMAL, CODE_DOUBLE, CODE_FLOAT, CODE_INTEGER
from cqels.model.terms import (
    RDF,
    XSD_BOOLEAN,
    XSD_DATE_TIME,
    XSD_DECIMAL,
    XSD_DOUBLE,
    XSD_FLOAT,
    XSD_INTEGER,
    Term,
)
from cqels.model.time import unit_nanoseconds

LONGEST = 1 << 14
"""Bytes of a line that is read by the kernel."""
_BUFFER = 1 << 16
_SPARE = 64
"""Bytes of the buffer for a time, and for what is overwritten behind a text."""
_NUMBER = 20
"""Bytes of the number of a line."""

_CODES = {
    XSD_INTEGER: CODE_INTEGER,
    XSD_DECIMAL: CODE_DECIMAL,
    XSD_DOUBLE: CODE_DOUBLE,
    XSD_FLOAT: CODE_FLOAT,
    XSD_BOOLEAN: CODE_BOOLEAN,
    XSD_DATE_TIME: CODE_DATE_TIME,
}
_SIGNS = {
    "%Y": record_times.YEAR,
    "%m": record_times.MONTH,
    "%d": record_times.DAY,
    "%H": record_times.HOUR,
    "%M": record_times.MINUTE,
    "%S": record_times.SECOND,
    "%f": record_times.FRACTION,
    OPTIONAL_FRACTION: record_times.OPTIONAL_FRACTION,
}
_KINDS = (None, XSD_INTEGER, XSD_DOUBLE, XSD_BOOLEAN)
"""The datatypes of the values of JSON, in the order of `json_splitter.STRING` and the others."""
_SIGN = re.compile(r"%\.f|%.|.", re.DOTALL)
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._~-]+(?::[0-9]*)?[/?#]")
"""How an IRI begins that stays one whatever percent-encoded text follows."""


def csv_layout(
    template: Template, names: Sequence[str], delimiter: str, unit: str, scope: str = "", *, timed: bool = True
) -> Layout | None:
    """The layout of a template for CSV records with these columns; None if the kernel does not read them.

    The labels of blank nodes begin with `scope`.  Unless `timed`, the times of records are not in them: the kernel
    gives the place where each begins instead.
    """
    if not delimiter.isascii() or delimiter in '"\r\n\0' or template.surroundings:
        return None
    return _layout(template, names, delimiter, unit, scope, timed=timed)


def json_layout(
    template: Template, unit: str, scope: str = "", *, timed: bool = True, surroundings: bool = False
) -> Layout | None:
    """The layout of a template for JSON objects; None if the kernel does not read them. `timed` is as above.

    The `surroundings` of a record that the template names may be members of it.
    """
    if not surroundings and template.surroundings:
        return None
    if any(value.column == "@arrival" for value in template.values):
        return None  # which is a time, and would be a text
    return _layout(template, (*template.columns, *template.surroundings), "", unit, scope, timed=timed)


def _layout(
    template: Template, names: Sequence[str], delimiter: str, unit: str, scope: str, *, timed: bool
) -> Layout | None:
    if not _is_read(template, timed=timed):
        return None
    try:
        return Layout(template, names, delimiter, unit, scope, timed=timed)
    except ValueError:  # one of its terms is never valid, or it names too many members
        return None


def _is_read(template: Template, *, timed: bool) -> bool:
    """Whether the kernel knows all that a template has."""
    time, derived = template.timestamp, {value.name for value in template.values}
    if timed and (time is None or time.column in derived):
        return False
    if any(node.each or node.within for node in template.nodes):
        return False
    if any(value.column is None for value in template.values):
        return False
    objects = [each for node in template.nodes for _, each in node.predicates]
    langs = [each for each in objects if each.datatype is not None and each.datatype.value.startswith(RDF)]
    return not langs and not any(each.each for each in objects)  # rdf:langString is no datatype to a strict parser


class Layout:
    """A template as the kernel reads it, and the memory that it works with.

    The words of constants are written with `encode`, anew for each chunk: the dictionary may have forgotten them.
    """

    def __init__(
        self, template: Template, names: Sequence[str], delimiter: str, unit: str, scope: str, *, timed: bool
    ) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        self._nodes = {node.name: node for node in template.nodes}
        self._scope = scope
        self._kept: list[npt.NDArray[Any]] = []
        self._constants: list[tuple[int, Term]] = []
        self._bytes = _SPARE
        self._values = 0
        self._longest = 0
        """Bytes of the longest text that stands in the place of a field."""
        self._is_json = not delimiter
        self.is_untimed = not timed
        """The kernel gives where a record begins, instead of its time."""
        plan = [0] * kernels.PLAN_WORDS
        fields = len(names) + len(template.values)
        self.fields = np.zeros(2 * max(fields, 1), np.int64)
        """Where the fields of the record that was read last begin and end."""
        time = template.timestamp if timed else None
        self.time_field = 0 if time is None else self._numbers[time.column]
        signs = None if time is None else _signs(time)
        plan[kernels.DELIMITER] = ord(delimiter or "\0")
        plan[kernels.COLUMNS] = len(names)
        plan[kernels.FIELDS] = self._keep(self.fields)
        plan[kernels.FIELD_KINDS] = self._keep(np.zeros(max(fields, 1), np.int64))
        plan[kernels.LONGEST] = min(LONGEST, csv.field_size_limit())
        plan[kernels.TIME_FIELD] = self.time_field
        plan[kernels.UNIT] = unit_nanoseconds((time and time.unit) or unit) or 1
        plan[kernels.FORM] = self._keep(np.array(signs or [0], np.int64))
        plan[kernels.SIGNS] = kernels.IN_PYTHON if signs is None else len(signs)
        if time is None:
            plan[kernels.SIGNS] = kernels.IN_ROWS
        elif time.formats[:1] == (ISO,) and time.zone is None and time.column != "@arrival":
            plan[kernels.SIGNS] = kernels.IS_DATED
        if self._is_json:
            members, plan[kernels.TOP_MEMBERS] = self._members(names)
            plan[kernels.MEMBERS] = self._keep(np.array(members or [0], np.int64))
            plan[kernels.STACK] = self._keep(np.zeros(json_splitter.STACK_WORDS, np.int64))
        missing = [word for text in sorted(template.missing) for word in self._keep_text(text)]
        missed = [self._numbers[name] for name in template.columns] if missing else []
        plan[kernels.MISSING], plan[kernels.MISSING_COUNT] = self._keep_words(missing), len(template.missing)
        plan[kernels.MISSED], plan[kernels.MISSED_COUNT] = self._keep_words(missed), len(missed)
        derived = [word for value in template.values for word in self._derived(value, len(names))]
        plan[kernels.DERIVED], plan[kernels.DERIVED_COUNT] = self._keep_words(derived), len(template.values)
        self._is_typed = self._is_json or bool(derived)
        self._terms: list[int] = []
        self.most = 0
        """Triples that a record can have."""
        for node in template.nodes:
            self._node(node)
        self._bytes += 3 * self._longest * self._values
        plan[kernels.BUFFER_BYTES] = max(_BUFFER, self._bytes + 3 * LONGEST * self._values)
        plan[kernels.BUFFER] = self._keep(np.empty(plan[kernels.BUFFER_BYTES], np.uint8))
        plan[kernels.KNOWN_BYTES], plan[kernels.VALUES] = self._bytes, self._values
        waiting = np.empty(kernels.GROUP * kernels.WAITING_WORDS * (self.most + len(template.nodes)), np.int64)
        plan[kernels.WAITING_TERMS] = self._keep(waiting)
        plan[kernels.NODES] = len(template.nodes)
        self._plan = np.array([*plan, *self._terms], np.int64)
        self.address = self._plan.ctypes.data

    def encode(self, terms: Terms) -> None:
        """Write the words of constants."""
        for place, term in self._constants:
            self._plan[place] = terms.encode(term)

    def give_time(self, position: int, time: int, line: int) -> None:
        """Say what the time of the record is that begins at a position, -1 if there is nothing to be said.

        So many lines are before the next one.
        """
        self._plan[kernels.TIMED], self._plan[kernels.TIME], self._plan[kernels.LINE] = position, time, line

    def number_lines(self, numbers: npt.NDArray[np.int64]) -> None:
        """Have lines numbered so in the labels of blank nodes, instead of from 1."""
        self._plan[kernels.NUMBERS] = numbers.ctypes.data
        self._line_numbers = numbers

    def _derived(self, value: DerivedValue, columns: int) -> list[int]:
        """The words of a derived value, which is a field behind those of the columns and of the values before it."""
        words = [0] * derived_fields.VALUE_WORDS
        number = max(columns, *(number + 1 for number in self._numbers.values())) if self._numbers else columns
        words[derived_fields.VALUE_FIELD], words[derived_fields.VALUE_SOURCE] = (
            number,
            self._numbers[value.column or ""],
        )
        if value.map is not None:
            words[derived_fields.VALUE_TABLE], words[derived_fields.VALUE_SLOTS] = self._table(value.map)
        if value.default is not None and value.default != "":
            text, datatype = lexical(value.default)
            words[derived_fields.DEFAULT], words[derived_fields.DEFAULT_LENGTH] = self._keep_value(text)
            words[derived_fields.DEFAULT_KIND] = _KINDS.index(datatype)
        self._numbers[value.name] = number
        return words

    def _table(self, values: ValueMap) -> tuple[int, int]:
        """The address and the slots of a table for a kernel."""
        slots = 2 << len(values).bit_length()
        table = np.zeros((slots, derived_fields.SLOT_WORDS), np.int64)
        for key, value in values.items():
            if not key:
                continue
            address, length = self._keep_value(key)
            slot = hash_text(address, length) & slots - 1
            while table[slot, derived_fields.SLOT_KEY_LENGTH] != 0:
                slot = slot + 1 & slots - 1
            table[slot] = (address, length, *self._keep_value(value))
        return self._keep(table), slots

    def _keep_value(self, text: str) -> tuple[int, int]:
        """The address and the bytes of a text that may be read as a field."""
        encoded = text.encode()
        if len(encoded) > LONGEST:
            raise ValueError("a value is too long")
        self._longest = max(self._longest, len(encoded))
        return self._keep(np.frombuffer(encoded + bytes(MANY), np.uint8)), len(encoded)

    def _keep_words(self, words: list[int]) -> int:
        return self._keep(np.array(words or [0], np.int64))

    def _node(self, node: NodeTemplate) -> None:
        """Lay out the terms of a node."""
        start = len(self._terms)
        self._terms += self._subject(node, kernels.PLAN_WORDS + start)
        predicates = 0
        for predicate, each in node.predicates:
            place = kernels.PLAN_WORDS + len(self._terms)
            is_typed = each.column is not None and each.datatype is None and each.language is None
            if each.column == "@arrival" and is_typed:
                term = self._term(replace(each, datatype=XSD_DATE_TIME), place)
            elif each.node is not None:
                term = self._link(self._nodes[each.node], place)
            elif self._is_typed and is_typed:
                term = self._typed(each, place)
            else:
                term = self._term(each, place)
            if not term:
                if each.required:
                    raise ValueError("a record never has what is required")
                continue
            self._constants.append((place + kernels.PREDICATE, predicate))
            term[kernels.REQUIRED] |= int(each.required)
            predicates += 1
            self._terms += term
        self._terms[start + kernels.PREDICATES] = predicates
        self._terms[start + kernels.TERMS] = (len(self._terms) - start) // kernels.TERM_WORDS
        self.most += predicates

    def _link(self, node: NodeTemplate, place: int) -> list[int]:
        """The words of a node as an object."""
        subject = self._subject(node, place + kernels.TERM_WORDS)
        guard = [0] * kernels.TERM_WORDS
        guard[kernels.KIND], guard[kernels.SPAN] = kernels.GUARDED, 2
        for word in (kernels.NEEDS, kernels.NEEDS_COUNT, kernels.REQUIRED):
            guard[word] = subject[word]
        return [*guard, *subject]

    def _subject(self, node: NodeTemplate, place: int) -> list[int]:
        """The words of a node as a subject."""
        if node.subject is None:
            words = [0] * kernels.TERM_WORDS
            words[kernels.SPAN] = words[kernels.IS_VALID] = 1
            words[kernels.KIND] = kernels.BLANK
            words[kernels.HEAD], words[kernels.HEAD_LENGTH] = self._keep_text(f"_:{self._scope}")
            words[kernels.TAIL], words[kernels.TAIL_LENGTH] = self._keep_text(f"_{node.name}")
            self._bytes += _NUMBER
        else:
            words = self._term(ObjectTemplate(iri=node.subject), place)
        needs = [self._numbers[name] for name in node.needs]
        words[kernels.NEEDS], words[kernels.NEEDS_COUNT] = self._keep_words(needs), len(needs)
        words[kernels.REQUIRED] = int(node.required)
        return words

    def _typed(self, template: ObjectTemplate, place: int) -> list[int]:
        """The words of a literal whose type is that of the value, and of a term for each type."""
        values, words = self._values, self._term(template, place)
        words[kernels.KIND] = kernels.TYPED
        words[kernels.SPAN] = 1 + len(_KINDS)
        for datatype in _KINDS:
            words += self._term(replace(template, datatype=datatype), place)
        self._values = values + 1
        return words

    def _term(self, template: ObjectTemplate, place: int) -> list[int]:
        """The words of a term at a place of the plan; none if no record has it."""
        words = [0] * kernels.TERM_WORDS
        words[kernels.SPAN] = 1
        head, *rest = _pieces(template)
        if not rest:
            constant = template.term(_no_value)
            if constant is None:
                return []
            self._constants.append((place + kernels.OBJECT, constant))
            words[kernels.KIND] = kernels.CONSTANT
            return words
        places, behind = cast(list[Part], rest[::2]), cast(list[str], rest[1::2])
        texts = [cast(str, head), *behind]
        if template.iri is not None:
            words[kernels.KIND] = kernels.IRI
            words[kernels.IS_VALID] = int(_is_always_valid(template.iri))
            opening, tail = "<", ">"
        else:
            words[kernels.KIND] = kernels.TEXT if template.column is None else kernels.COLUMN
            opening, tail = '"', str(replace(template, column=None, text="x").term(_no_value))[2:]
            texts = [str(Literal(text))[1:-1] for text in texts]
            if template.language is None and template.datatype is not None:
                words[kernels.CODE] = _CODES.get(template.datatype, 0)
        parts: list[int] = []
        for part, text in zip(places, texts[1:], strict=True):
            parts += (self._numbers[part.name], *self._keep_text(text), int(part.as_it_is))
        words[kernels.PARTS], words[kernels.PART_COUNT] = self._keep(np.array(parts, np.int64)), len(places)
        words[kernels.HEAD], words[kernels.HEAD_LENGTH] = self._keep_text(opening + texts[0])
        words[kernels.TAIL], words[kernels.TAIL_LENGTH] = self._keep_text(tail)
        self._values += len(places)
        return words

    def _members(self, names: Sequence[str]) -> tuple[list[int], int]:
        """The words of the members that are named, those of an object together, and how many are at the top."""
        tree: dict[str, Any] = {}
        for name in names:
            inside = tree
            for step in [name] if is_surrounding(name) else name.split("."):
                inside = inside.setdefault(step, {})
        # a member with the dot in its name goes first
        dotted = [name for name in names if "." in name and not is_surrounding(name)]
        if any("" in name.split(".") for name in dotted):
            raise ValueError("a member has no name")
        members: list[list[int]] = []
        levels: list[tuple[str, dict[str, Any], list[int]]] = [("", tree, [0] * json_splitter.MEMBER_WORDS)]
        for path, inside, owner in levels:
            owner[json_splitter.FIRST_INSIDE], owner[json_splitter.INSIDE] = len(members), len(inside)
            for step, deeper in inside.items():
                name = path + step
                member = self._member(step, self._numbers.get(name, -1))
                members.append(member)
                if deeper:
                    levels.append((f"{name}.", deeper, member))
            if inside is tree:
                members += [self._member(name, -1, odd=True) for name in dotted]
        if len(members) > json_splitter.MOST_MEMBERS:
            raise ValueError("there are too many members")
        return [word for member in members for word in member], len(tree) + len(dotted)

    def _member(self, name: str, field: int, *, odd: bool = False) -> list[int]:
        encoded = name.encode()
        words = [0] * json_splitter.MEMBER_WORDS
        words[json_splitter.NAME_HEAD] = word_of(encoded[:8])
        words[json_splitter.NAME], words[json_splitter.NAME_LENGTH] = self._keep_text(name)
        words[json_splitter.MEMBER_FIELD], words[json_splitter.MEMBER_ODD] = field, int(odd)
        return words

    def _keep(self, array: npt.NDArray[Any]) -> int:
        """The address of an array, which is kept as long as the layout."""
        self._kept.append(array)
        return array.ctypes.data

    def _keep_text(self, text: str) -> tuple[int, int]:
        encoded = text.encode()
        self._bytes += len(encoded)
        return self._keep(np.frombuffer(encoded + bytes(8), np.uint8)), len(encoded)


def _pieces(template: ObjectTemplate) -> tuple[str | Part, ...]:
    """Texts, and between them the places of columns."""
    if template.column is not None:
        return ("", Part(template.column), "")
    if template.constant is not None:
        return ("",)
    return parts_of(template.text or "") if template.iri is None else parts_of(template.iri, iri=True)


def _no_value(name: str) -> None:
    """The record of a template without columns."""


def _is_always_valid(iri: str) -> bool:
    """Whether a template makes an IRI of whatever values there are."""
    head, *rest = parts_of(iri, iri=True)
    if not _AUTHORITY.match(str(head)) or any(part.as_it_is for part in rest if isinstance(part, Part)):
        return False
    try:
        NamedNode(PLACE.sub("x", iri))  # which is no digit behind a %
    except ValueError:
        return False
    return True


def _signs(time: TimeTemplate) -> list[int] | None:
    """The signs of the form that is tried first; none where it is a dateTime or an integer; None if Python reads it.

    So if the kernel reads a time in that form, no other form was to be tried.
    """
    form = time.formats[0] if time.formats else None
    if time.column == "@arrival":
        return []
    if time.zone is not None or form in (ISO, EPOCH) or (form or "").startswith(f"{EPOCH}-"):
        return None
    found: list[int] = []
    for sign in _SIGN.findall(form or ""):
        if sign in _SIGNS:
            found.append(_SIGNS[sign])
        elif sign.startswith("%"):
            return None
        else:
            found += sign.encode()
    if OPTIONAL_FRACTION in (form or "") and (found.count(record_times.OPTIONAL_FRACTION) > 1 or ord(".") in found):
        return None  # Python may find the fraction elsewhere
    parts = [sign for sign in found if sign >= record_times.YEAR]
    return found if len(set(parts)) == len(parts) and (form is None or parts) else None
