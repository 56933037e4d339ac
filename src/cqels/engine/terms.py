"""Terms and their words, with a memory for those met lately: what Python says and hears of the arena's dictionary."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from pyoxigraph import Literal

from cqels.engine.batch import Words
from cqels.kernels.terms import ArenaDictionary
from cqels.model.dictionary import decode, encode, term_of
from cqels.model.ids import CODE_INTEGER, TYPE_MASK, VALUE_BITS, inline_literal
from cqels.model.terms import XSD_INTEGER, Term

_REMEMBERED = 1 << 17


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
        if not rows.size:
            return [() for _ in range(len(rows))]
        words, places = np.unique(rows, return_inverse=True)
        terms = self._decode_all(words)
        columns = [map(terms.__getitem__, column.tolist()) for column in places.reshape(rows.shape).T]
        return list(zip(*columns, strict=True))

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
