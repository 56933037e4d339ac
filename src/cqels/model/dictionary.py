"""The dictionary of terms that do not fit in a word, in flat arrays, and comparison of terms by their words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pyoxigraph import BaseDirection, BlankNode, Literal, NamedNode, Quad, RdfFormat, parse

from cqels.model.ids import (
    UNBOUND,
    Register,
    Tag,
    inline_literal,
    inline_register,
    inline_word,
    register_of,
    register_value,
)
from cqels.model.terms import Term
from cqels.model.values import (
    ExpressionError,
    LangString,
    compare,
    compare_values,
    equal,
    order,
    value_key,
    value_of,
    values_equal,
)

Scalar = TypeVar("Scalar", bound=np.generic)

_FIRST_ENTRIES: Final = 64
_FIRST_BYTES: Final = 4096
_DISTINCT: Final = frozenset({Tag.IRI, Tag.BLANK, Tag.LANG_STRING})
"""Terms of these tags are equal to no other term, whatever that is."""
_WHOLE: Final = frozenset({Tag.BOOLEAN, Tag.INTEGER, Tag.DECIMAL, Tag.DATE_TIME, Tag.DATE_TIME_LOCAL})
"""Registers with the same of these tags and the same scale compare as their bits do."""


class Entries(Protocol):
    """What words need of a dictionary, whatever it is made of."""

    def intern(self, term: Term) -> int: ...

    def term(self, id: int) -> Term: ...

    def register(self, id: int) -> Register: ...


class Dictionary:
    """Terms and their numbers, from 1 on. Number 0 is never given, so a table of zeros is empty.

    Entry `id` is the N-Triples text of its term, `text[start[id] : start[id] + length[id]]` in UTF-8, its CRC-32
    `hash[id]`, and its register `tag[id]`, `number[id]`, `scale[id]`. `table` is a hash table of ids with linear
    probing; its size is a power of two and at least twice the number of entries. A released entry has the tag NONE, and
    `start` links it to the next free one. The bytes it leaves behind are reclaimed when `text` would have to grow.
    """

    def __init__(self) -> None:
        self.text: npt.NDArray[np.uint8] = np.zeros(_FIRST_BYTES, np.uint8)
        self.start: npt.NDArray[np.int64] = np.zeros(_FIRST_ENTRIES, np.int64)
        self.length: npt.NDArray[np.int64] = np.zeros(_FIRST_ENTRIES, np.int64)
        self.hash: npt.NDArray[np.int64] = np.zeros(_FIRST_ENTRIES, np.int64)
        self.number: npt.NDArray[np.int64] = np.zeros(_FIRST_ENTRIES, np.int64)
        self.tag: npt.NDArray[np.uint8] = np.zeros(_FIRST_ENTRIES, np.uint8)
        self.scale: npt.NDArray[np.uint8] = np.zeros(_FIRST_ENTRIES, np.uint8)
        self.table: npt.NDArray[np.int64] = np.zeros(2 * _FIRST_ENTRIES, np.int64)
        self._end = 1  # one past the largest number ever given
        self._free = UNBOUND  # the released entry to be given out next
        self._count = 0
        self._bytes = 0  # of `text`, used or left behind
        self._dead = 0  # of those, left behind

    def __len__(self) -> int:
        return self._count

    def find(self, term: Term) -> int:
        """The number of a term, or UNBOUND if it has none."""
        text = str(term).encode()
        return int(self.table[self._slot(text, zlib.crc32(text))])

    def intern(self, term: Term) -> int:
        """The number of a term, which is given one if it has none."""
        text = str(term).encode()
        hash_ = zlib.crc32(text)
        slot = self._slot(text, hash_)
        id = int(self.table[slot])
        if id != UNBOUND:
            return id
        if 2 * (self._count + 1) > len(self.table):
            self._grow_table()
            slot = self._slot(text, hash_)
        id = self._new_id()
        self._write(id, text)
        self.hash[id] = hash_
        self.tag[id], self.number[id], self.scale[id] = term_register(term)
        self.table[slot] = id
        self._count += 1
        return id

    def term(self, id: int) -> Term:
        """The term of a number."""
        if not self._is_live(id):
            raise LookupError(f"the dictionary has no entry {id}")
        return term_of(self._text(id).decode())

    def register(self, id: int) -> Register:
        """The register of a number."""
        return Register(int(self.tag[id]), int(self.number[id]), int(self.scale[id]))

    def release(self, ids: Iterable[int] | npt.NDArray[np.int64]) -> None:
        """Forget terms, and give their numbers to others later. Words that stand for no entry are passed over."""
        for id in map(int, ids):
            if id <= UNBOUND:
                continue
            if not self._is_live(id):
                raise LookupError(f"the dictionary has no entry {id}")
            self._vacate(self._slot(self._text(id), int(self.hash[id])))
            self._dead += int(self.length[id])
            self.tag[id] = Tag.NONE
            self.start[id] = self._free
            self._free = id
            self._count -= 1

    def _is_live(self, id: int) -> bool:
        return 0 < id < self._end and self.tag[id] != Tag.NONE

    def _text(self, id: int) -> bytes:
        start = int(self.start[id])
        return self.text[start : start + int(self.length[id])].tobytes()

    def _slot(self, text: bytes, hash_: int) -> int:
        """The slot of the table that holds a text, or the empty one where it belongs."""
        mask = len(self.table) - 1
        slot = hash_ & mask
        while (id := int(self.table[slot])) != UNBOUND and (self.hash[id] != hash_ or self._text(id) != text):
            slot = slot + 1 & mask
        return slot

    def _vacate(self, slot: int) -> None:
        """Empty a slot, moving back the entries that were displaced past it, so that no search stops short."""
        mask = len(self.table) - 1
        probe = slot
        while True:
            probe = probe + 1 & mask
            id = int(self.table[probe])
            if id == UNBOUND:
                break
            home = int(self.hash[id]) & mask
            if (probe - home & mask) >= (probe - slot & mask):
                self.table[slot] = id
                slot = probe
        self.table[slot] = UNBOUND

    def _grow_table(self) -> None:
        ids = self.table[self.table != UNBOUND]
        self.table = np.zeros(2 * len(self.table), np.int64)
        mask = len(self.table) - 1
        for id in ids:
            slot = int(self.hash[id]) & mask
            while self.table[slot] != UNBOUND:
                slot = slot + 1 & mask
            self.table[slot] = id

    def _new_id(self) -> int:
        if self._free != UNBOUND:
            id, self._free = self._free, int(self.start[self._free])
            return id
        if self._end == len(self.start):
            self.start, self.length, self.hash, self.number = (
                _doubled(column) for column in (self.start, self.length, self.hash, self.number)
            )
            self.tag, self.scale = _doubled(self.tag), _doubled(self.scale)
        self._end += 1
        return self._end - 1

    def _write(self, id: int, text: bytes) -> None:
        if self._bytes + len(text) > len(self.text):
            self._make_room(len(text))
        self.start[id], self.length[id] = self._bytes, len(text)
        self.text[self._bytes : self._bytes + len(text)] = np.frombuffer(text, np.uint8)
        self._bytes += len(text)

    def _make_room(self, size: int) -> None:
        """Move the texts together, into more room if they would still fill more than half of it."""
        room = len(self.text)
        while 2 * (self._bytes - self._dead + size) > room:
            room *= 2
        packed = np.zeros(room, np.uint8)
        used = 0
        for id in np.flatnonzero(self.tag):
            start, length = int(self.start[id]), int(self.length[id])
            packed[used : used + length] = self.text[start : start + length]
            self.start[id] = used
            used += length
        self.text, self._bytes, self._dead = packed, used, 0


def _doubled(column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    return np.concatenate([column, np.zeros_like(column)])


def term_register(term: Term) -> Register:
    match term:
        case NamedNode():
            return Register(Tag.IRI)
        case BlankNode():
            return Register(Tag.BLANK)
        case Literal():
            value = value_of(term)
            match value:
                case None:
                    return Register(Tag.OTHER)
                case str():
                    return Register(Tag.STRING)
                case LangString():
                    return Register(Tag.LANG_STRING)
                case _:
                    return register_of(value) or Register(Tag.TEXT)


# --- terms of texts -------------------------------------------------------------------------------------------------

_LITERAL = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(.*)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


def term_of(text: str) -> Term:
    """The term of an N-Triples text."""
    match = _LITERAL.fullmatch(text)
    if match is None:
        return _iri(text[1:-1]) if text[0] == "<" else BlankNode(text[2:])
    value, suffix = match.groups()
    if "\\" in value:
        value = _ESCAPE.sub(_unescape, value)
    if not suffix:
        return Literal(value)
    if suffix[0] == "^":
        return Literal(value, datatype=_iri(suffix[3:-1]))
    language, _, direction = suffix[1:].partition("--")
    return Literal(value, language=language, direction=BaseDirection(direction) if direction else None)


def _iri(text: str) -> NamedNode:
    try:
        return NamedNode(text)
    except ValueError:  # a lenient parser let it in; only a lenient parser makes it again
        escaped = "".join(f"\\U{ord(character):08X}" for character in text)
        quad: Quad = next(iter(parse(f"<a:> <{escaped}> <a:> .", format=RdfFormat.N_TRIPLES, lenient=True)))
        return quad.predicate


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else _ESCAPED.get(match[3], match[3])


# --- words ----------------------------------------------------------------------------------------------------------


def encode(term: Term | None, dictionary: Entries) -> int:
    """The word of a term: equal words for equal terms, and no others."""
    if term is None:
        return UNBOUND
    word = inline_word(term) if isinstance(term, Literal) else None
    return dictionary.intern(term) if word is None else word


def decode(word: int, dictionary: Entries) -> Term | None:
    """The term of a word: `decode(encode(t)) == t`, with the same text."""
    return None if word == UNBOUND else _term(word, dictionary)


def _term(word: int, dictionary: Entries) -> Term:
    return inline_literal(word) if word < 0 else dictionary.term(word)


def register(word: int, dictionary: Entries) -> Register:
    return inline_register(word) if word < 0 else dictionary.register(word)


def same_value(a: int, b: int, dictionary: Entries) -> bool:
    """`values.equal` of the terms of two words."""
    if a == UNBOUND or b == UNBOUND:
        raise ExpressionError("an unbound variable equals nothing")
    first, second = register(a, dictionary), register(b, dictionary)
    if _alike(first, second):
        return first.bits == second.bits
    left, right = register_value(first), register_value(second)
    if left is not None and right is not None:
        return values_equal(left, right)
    if a == b:
        return True
    if first.tag in _DISTINCT or second.tag in _DISTINCT or first.tag == second.tag == Tag.STRING:
        return False
    return equal(_term(a, dictionary), _term(b, dictionary))


def compare_ids(a: int, b: int, dictionary: Entries) -> int | None:
    """`values.compare` of the terms of two words."""
    if a == UNBOUND or b == UNBOUND:
        raise ExpressionError("an unbound variable has no order")
    first, second = register(a, dictionary), register(b, dictionary)
    if _alike(first, second):
        return (first.bits > second.bits) - (first.bits < second.bits)
    left, right = register_value(first), register_value(second)
    if left is not None and right is not None:
        return compare_values(left, right)
    return compare(_term(a, dictionary), _term(b, dictionary))


def order_ids(a: int, b: int, dictionary: Entries) -> int:
    """`values.order` of the terms of two words."""
    first, second = register(a, dictionary), register(b, dictionary)
    if _alike(first, second):
        return (first.bits > second.bits) - (first.bits < second.bits)
    left, right = register_value(first), register_value(second)
    if left is not None and right is not None:
        left_key, right_key = value_key(left), value_key(right)
        return (left_key > right_key) - (left_key < right_key)
    return order(decode(a, dictionary), decode(b, dictionary))


def _alike(first: Register, second: Register) -> bool:
    return first.tag == second.tag and first.scale == second.scale and first.tag in _WHOLE
