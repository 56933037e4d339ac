"""Terms and their words, with a memory for those met lately: what Python says and hears of the arena's dictionary."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pyoxigraph import Literal

from cqels.ingest.element_batch import Words
from cqels.ingest.rdf_objects import TERMS, not_taken
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.column_text import NUMBER_BYTES, locate_texts, number_words
from cqels.model.dictionary import decode, encode, term_of
from cqels.model.ids import CODE_INTEGER, TYPE_MASK, VALUE_BITS, inline_literal
from cqels.model.terms import XSD_INTEGER, Term

_REMEMBERED = 1 << 17

Column: TypeAlias = tuple[Words, Words]
"""Words that differ, as they first come, and for each row of a column the number of its word among them."""


def columns_of(rows: Words) -> list[Column]:
    """The columns of a table of words."""
    return [_column(column) for column in rows.T]


def _column(column: Words) -> Column:
    rows = len(column)
    table = np.zeros(2 << rows.bit_length(), np.int64)
    words, numbers = np.empty(rows, np.int64), np.empty(rows, np.int64)
    stride = column.strides[0] // 8
    addresses = (table.ctypes.data, len(table), words.ctypes.data, numbers.ctypes.data)
    return words[: number_words(column.ctypes.data, stride, rows, *addresses)], numbers


class Texts(NamedTuple):
    """Where the N-Triples texts of words are (`kernels.terms.column_text`), and what they are kept in, too."""

    places: Words
    kept: tuple[Any, ...]


class Terms:
    """Both ways between terms and words."""

    def __init__(self, dictionary: ArenaDictionary) -> None:
        self.dictionary = dictionary
        self._words: dict[Term, int] = {}
        self._terms: dict[int, Term] = {}

    def forget(self) -> None:
        """Before words are given to other terms."""
        self._words.clear()
        self._terms.clear()

    def encode(self, term: Term | None) -> int:
        """The word of a term, 0 for none."""
        if term is None:
            return 0
        word = self._words.get(term)
        if word is None:
            if type(term) not in TERMS:
                raise not_taken(term)
            if len(self._words) >= _REMEMBERED:
                self._words.clear()
            word = self._words[term] = int(encode(term, self.dictionary))
        return word

    def encode_all(self, terms: Iterable[Term | None]) -> list[int]:
        return [self.encode(term) for term in terms]

    def decode(self, word: int) -> Term | None:
        """The term of a word, None for 0."""
        if word == 0:
            return None
        term = self._terms.get(word)
        if term is None and (term := decode(word, self.dictionary)) is not None:
            if len(self._terms) >= _REMEMBERED:
                self._terms.clear()
            self._terms[word] = term
        return term

    def decode_rows(self, rows: Words) -> list[tuple[Term | None, ...]]:
        """The terms of a table of words."""
        return self.decode_columns(columns_of(rows)) if rows.size else [() for _ in range(len(rows))]

    def decode_columns(self, columns: Iterable[Column]) -> list[tuple[Term | None, ...]]:
        """The rows of terms of columns, of which there is one at least."""
        terms = (map(self._decode_all(words).__getitem__, codes.tolist()) for words, codes in columns)
        return list(zip(*terms, strict=True))

    def texts(self, words: Words) -> list[bytes]:
        """The N-Triples texts of words; that of 0 is empty."""
        placed = self.placed(words)
        return [ctypes.string_at(address, length) for address, length in placed.places.tolist()]

    def placed(self, words: Words) -> Texts:
        """The N-Triples texts of words, in a row, as kernels read them, until a term is forgotten."""
        dictionary, count = self.dictionary, len(words)
        places, numbers = np.empty((count, 2), np.int64), np.empty(count * NUMBER_BYTES, np.uint8)
        given = (words.ctypes.data, count, numbers.ctypes.data, places.ctypes.data)
        locate_texts(dictionary.arena.base, dictionary.offset, *given)
        asked = np.flatnonzero(places[:, 1] < 0)
        if not len(asked):
            return Texts(places, (numbers,))
        made = [_inline_text(word) if word < 0 else dictionary.text(word) for word in words[asked].tolist()]
        joined = b"".join((*made, bytes(8)))
        lengths = np.fromiter(map(len, made), np.int64, len(made))
        places[asked, 0] = np.frombuffer(joined, np.uint8).ctypes.data + np.cumsum(lengths) - lengths
        places[asked, 1] = lengths
        return Texts(places, (numbers, joined))

    def _decode_all(self, words: Words) -> list[Term | None]:
        """The terms of words that differ."""
        found = list(map(self._terms.get, words.tolist()))
        new = [place for place, term in enumerate(found) if term is None]
        if not new:
            return found
        if len(self._terms) + len(new) > _REMEMBERED:
            self._terms.clear()
        met = words[new]
        inside = met < 0  # negative words hold their literals
        texts = self.dictionary.texts(met[~inside])
        made = [*_literals(met[inside]), *(None if text is None else term_of(text.decode()) for text in texts)]
        order = np.argsort(~inside, kind="stable")
        for place, word, term in zip(np.array(new)[order].tolist(), met[order].tolist(), made, strict=True):
            if term is None:
                found[place] = self.decode(word)
            else:
                found[place] = self._terms[word] = term
        return found


def _literals(words: Words) -> list[Literal]:
    """The literals that negative words hold; integers, of which there are many, in a shorter way."""
    is_integer = (words >> VALUE_BITS & TYPE_MASK) == CODE_INTEGER
    values = words << 64 - VALUE_BITS >> 64 - VALUE_BITS
    return [
        Literal(str(value), datatype=XSD_INTEGER) if integer else inline_literal(word)
        for word, value, integer in zip(words.tolist(), values.tolist(), is_integer.tolist(), strict=True)
    ]


@lru_cache(maxsize=1 << 16)
def _inline_text(word: int) -> bytes:
    return str(inline_literal(word)).encode()
