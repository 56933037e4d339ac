"""Terms and their words, with a memory for those met lately: what Python says and hears of the arena's dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from pyoxigraph import Literal

from cqels.engine.batch import Words
from cqels.kernels.terms import ArenaDictionary
from cqels.model.dictionary import decode, encode, term_of
from cqels.model.ids import CODE_INTEGER, TYPE_MASK, VALUE_BITS, inline_literal
from cqels.model.terms import XSD_INTEGER, Term

_REMEMBERED = 1 << 17

Column: TypeAlias = tuple[Words, Words]
"""Words that differ, in order, and for each row of a column the place of its word among them."""


def columns_of(rows: Words) -> list[Column]:
    """The columns of a table of words."""
    return [np.unique(column, return_inverse=True) for column in rows.T]


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
        """The N-Triples texts of words that differ and are in order; that of 0 is empty."""
        inside, unbound, named = np.split(words, np.searchsorted(words, (0, 1)))
        joined, lengths = self.dictionary.joined_texts(named)
        ends = np.cumsum(lengths)
        known = (joined[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True))
        return [*(str(term).encode() for term in _literals(inside)), *(b"" for _ in unbound), *known]

    def _decode_all(self, words: Words) -> list[Term | None]:
        """The terms of words that differ, and are in order."""
        found = list(map(self._terms.get, words.tolist()))
        new = [place for place, term in enumerate(found) if term is None]
        if not new:
            return found
        if len(self._terms) + len(new) > _REMEMBERED:
            self._terms.clear()
        met = words[new]
        inside = int(np.searchsorted(met, 0))  # negative words hold their literals
        texts = self.dictionary.texts(met[inside:])
        made = [*_literals(met[:inside]), *(None if text is None else term_of(text.decode()) for text in texts)]
        for place, word, term in zip(new, met.tolist(), made, strict=True):
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
