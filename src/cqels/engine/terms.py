"""Terms and their words, with a memory for those met lately: what Python says and hears of the arena's dictionary."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cqels.engine.batch import Words
from cqels.kernels.terms import ArenaDictionary
from cqels.model.dictionary import decode, encode, term_of
from cqels.model.terms import Term

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

    def _decode_all(self, words: Words) -> list[Term | None]:
        known = [self._terms.get(word) for word in words.tolist()]
        new = [place for place, term in enumerate(known) if term is None]
        if len(self._terms) + len(new) > _REMEMBERED:
            self._terms.clear()
        for place, text in zip(new, self.dictionary.texts(words[new]), strict=True):
            word = int(words[place])
            if text is None:
                known[place] = self.decode(word)
            else:
                known[place] = self._terms[word] = term_of(text.decode())
        return known

    def decode_rows(self, rows: Words) -> list[tuple[Term | None, ...]]:
        """The terms of a table of words."""
        if not rows.size:
            return [() for _ in range(len(rows))]
        words, places = np.unique(rows, return_inverse=True)
        terms = self._decode_all(words)
        width = rows.shape[1]
        flat = [terms[place] for place in places.reshape(-1).tolist()]
        return [tuple(flat[at : at + width]) for at in range(0, len(flat), width)]
