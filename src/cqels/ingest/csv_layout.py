"""Lifting templates laid out in words and bytes for `cqels.kernels.readers.csv_lifter`; nothing is lifted here."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pyoxigraph import Literal, NamedNode

from cqels.ingest.lifting_template import PLACE, ObjectTemplate, Template
from cqels.ingest.term_codec import Terms
from cqels.kernels.readers import csv_lifter as kernels
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

_CODES = {
    XSD_INTEGER: CODE_INTEGER,
    XSD_DECIMAL: CODE_DECIMAL,
    XSD_DOUBLE: CODE_DOUBLE,
    XSD_FLOAT: CODE_FLOAT,
    XSD_BOOLEAN: CODE_BOOLEAN,
    XSD_DATE_TIME: CODE_DATE_TIME,
}
_SIGNS = {
    "%Y": kernels.YEAR,
    "%m": kernels.MONTH,
    "%d": kernels.DAY,
    "%H": kernels.HOUR,
    "%M": kernels.MINUTE,
    "%S": kernels.SECOND,
    "%f": kernels.FRACTION,
}
_SIGN = re.compile("%.|.", re.DOTALL)
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._~-]+(?::[0-9]*)?[/?#]")
"""How an IRI begins that stays one whatever percent-encoded text follows."""


def layout_of(template: Template, names: Sequence[str], delimiter: str, unit: str) -> Layout | None:
    """The layout of a template for records with these columns; None if the kernel does not read them."""
    if template.time_column is None or not delimiter.isascii() or delimiter in '"\r\n':
        return None
    if any(each.datatype is not None and each.datatype.value.startswith(RDF) for _, each in template.predicates):
        return None  # rdf:langString is no datatype to a strict parser
    try:
        return Layout(template, names, delimiter, unit)
    except ValueError:  # one of its terms is never valid
        return None


class Layout:
    """A template as the kernel reads it, and the memory that it works with.

    The words of constants are written with `encode`, anew for each chunk: the dictionary may have forgotten them.
    """

    def __init__(self, template: Template, names: Sequence[str], delimiter: str, unit: str) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        self._kept: list[npt.NDArray[Any]] = []
        self._constants: list[tuple[int, Term]] = []
        self._bytes = _SPARE
        self._values = 0
        terms = self._term(ObjectTemplate(iri=template.subject), kernels.PLAN_WORDS)
        self.most = 0
        """Triples that a record can have."""
        for predicate, each in template.predicates:
            place = kernels.PLAN_WORDS + len(terms)
            if term := self._term(each, place):
                self._constants.append((place + kernels.PREDICATE, predicate))
                self.most += 1
                terms += term
        self.fields = np.zeros(2 * len(names), np.int64)
        """Where the fields of the record that was read last begin and end."""
        self.time_field = self._numbers[template.time_column or ""]
        signs = _signs(template.time_format)
        plan = [0] * kernels.PLAN_WORDS
        plan[kernels.DELIMITER] = ord(delimiter)
        plan[kernels.COLUMNS] = len(names)
        plan[kernels.FIELDS] = self._keep(self.fields)
        plan[kernels.LONGEST] = min(LONGEST, csv.field_size_limit())
        plan[kernels.TIME_FIELD] = self.time_field
        plan[kernels.UNIT] = unit_nanoseconds(unit) or 1
        plan[kernels.FORM] = self._keep(np.array(signs or [0], np.int64))
        plan[kernels.SIGNS] = -1 if signs is None else len(signs)
        plan[kernels.BUFFER_BYTES] = max(_BUFFER, self._bytes + 3 * LONGEST * self._values)
        plan[kernels.BUFFER] = self._keep(np.empty(plan[kernels.BUFFER_BYTES], np.uint8))
        plan[kernels.KNOWN_BYTES], plan[kernels.VALUES] = self._bytes, self._values
        waiting = np.empty(kernels.GROUP * kernels.WAITING_WORDS * (self.most + 1), np.int64)
        plan[kernels.WAITING_TERMS] = self._keep(waiting)
        plan[kernels.PREDICATES] = self.most
        self._plan = np.array([*plan, *terms], np.int64)
        self.address = self._plan.ctypes.data

    def encode(self, terms: Terms) -> None:
        """Write the words of constants."""
        for place, term in self._constants:
            self._plan[place] = terms.encode(term)

    def give_time(self, position: int, time: int) -> None:
        """Say what the time of the record is that begins at a position, -1 if there is nothing to be said."""
        self._plan[kernels.TIMED], self._plan[kernels.TIME] = position, time

    def _term(self, template: ObjectTemplate, place: int) -> list[int]:
        """The words of a term at a place of the plan; none if no record has it."""
        words = [0] * kernels.TERM_WORDS
        head, *rest = _pieces(template)
        if not rest:
            constant = template.term(_no_value)
            if constant is None:
                return []
            self._constants.append((place + kernels.OBJECT, constant))
            words[kernels.KIND] = kernels.CONSTANT
            return words
        if template.iri is not None:
            words[kernels.KIND] = kernels.IRI
            words[kernels.IS_VALID] = int(_is_always_valid(template.iri))
            opening, texts, tail = "<", [head, *rest[1::2]], ">"
        else:
            words[kernels.KIND] = kernels.TEXT if template.column is None else kernels.COLUMN
            opening, tail = '"', str(replace(template, column=None, text="x").term(_no_value))[2:]
            texts = [str(Literal(text))[1:-1] for text in (head, *rest[1::2])]
            if template.language is None and template.datatype is not None:
                words[kernels.CODE] = _CODES.get(template.datatype, 0)
        parts: list[int] = []
        for name, text in zip(rest[::2], texts[1:], strict=True):
            parts += (self._numbers[name], *self._keep_text(text))
        words[kernels.PARTS], words[kernels.PART_COUNT] = self._keep(np.array(parts, np.int64)), len(texts) - 1
        words[kernels.HEAD], words[kernels.HEAD_LENGTH] = self._keep_text(opening + texts[0])
        words[kernels.TAIL], words[kernels.TAIL_LENGTH] = self._keep_text(tail)
        self._values += len(texts) - 1
        return words

    def _keep(self, array: npt.NDArray[Any]) -> int:
        """The address of an array, which is kept as long as the layout."""
        self._kept.append(array)
        return array.ctypes.data

    def _keep_text(self, text: str) -> tuple[int, int]:
        encoded = text.encode()
        self._bytes += len(encoded)
        return self._keep(np.frombuffer(encoded + bytes(8), np.uint8)), len(encoded)


def _pieces(template: ObjectTemplate) -> list[str]:
    """Texts, and between them the names of columns."""
    if template.column is not None:
        return ["", template.column, ""]
    return PLACE.split(template.text or "" if template.iri is None else template.iri)


def _no_value(name: str) -> None:
    """The record of a template without columns."""


def _is_always_valid(iri: str) -> bool:
    """Whether a template makes an IRI of whatever values there are."""
    if not _AUTHORITY.match(PLACE.split(iri)[0]):
        return False
    try:
        NamedNode(PLACE.sub("x", iri))  # which is no digit behind a %
    except ValueError:
        return False
    return True


def _signs(form: str | None) -> list[int] | None:
    """The signs of a form of times; none where there is no form; None if Python has to read it."""
    found: list[int] = []
    for sign in _SIGN.findall(form or ""):
        if sign in _SIGNS:
            found.append(_SIGNS[sign])
        elif sign.startswith("%"):
            return None
        else:
            found += sign.encode()
    parts = [sign for sign in found if sign >= kernels.YEAR]
    return found if len(set(parts)) == len(parts) and (form is None or parts) else None
