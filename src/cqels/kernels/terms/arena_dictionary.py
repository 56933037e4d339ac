"""The arena's dictionary as Python sees it: terms in, terms out. Its kernels are in term_table.py."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from cqels.kernels.memory.arena import Arena, give_shared, take_shared
from cqels.kernels.terms import term_table as kernels
from cqels.model.dictionary import term_of, term_register
from cqels.model.errors import ArenaFull
from cqels.model.ids import UNBOUND, Register
from cqels.model.terms import Term

Words = npt.NDArray[np.int64]


class ArenaDictionary:
    """The dictionary at an offset of an arena, or a new one; `cqels.model.dictionary.Dictionary` by its interface.

    It holds no state of its own: any number of these, in any process, can stand for the same offset.
    """

    def __init__(self, arena: Arena, offset: int | None = None, *, entries: int = 1024, piece: int = 8192) -> None:
        """A new dictionary has room for some entries, a power of two, and takes so many words for texts at a time."""
        if entries < 2 or entries & entries - 1:
            raise ValueError("the entries of a new dictionary are a power of two")
        self.arena = arena
        self.offset = offset if offset is not None else _taken(int(kernels.make_dictionary(arena.base, entries, piece)))

    def __len__(self) -> int:
        return self._word(kernels.COUNT)

    def find(self, term: Term) -> int:
        """The number of a term, or UNBOUND if it has none."""
        return int(kernels.find(self.arena.base, self.offset, *self.put_text(str(term).encode())))

    def intern(self, term: Term) -> int:
        """The number of a term, which is given one if it has none."""
        return self.intern_text(str(term).encode())

    def intern_text(self, text: bytes) -> int:
        """The number of the term with an N-Triples text, which must be as pyoxigraph prints it."""
        return _taken(int(kernels.intern(self.arena.base, self.offset, *self.put_text(text))))

    def intern_texts(self, texts: bytes, lengths: Words) -> Words:
        """The numbers of the terms whose N-Triples texts, as pyoxigraph prints them, follow each other."""
        lengths = np.ascontiguousarray(lengths, np.int64)
        ids = np.empty(len(lengths), np.int64)
        if len(ids):
            address = np.frombuffer(texts or b"\0", np.uint8).ctypes.data
            given = (address, lengths.ctypes.data, len(ids), ids.ctypes.data)
            if int(kernels.intern_all(self.arena.base, self.offset, *given)) < len(ids):
                raise ArenaFull
        return ids

    def text(self, id: int) -> bytes:
        """The N-Triples text of a number."""
        self._check(id)
        address = int(kernels.text_of(self.arena.base, self.offset, id))
        return ctypes.string_at(address, int(kernels.length_of(self.arena.base, self.offset, id)))

    def term(self, id: int) -> Term:
        """The term of a number."""
        return term_of(self.text(id).decode())

    def texts(self, words: Words) -> list[bytes | None]:
        """The N-Triples texts of words that are numbers here; None of others."""
        words = np.ascontiguousarray(words, np.int64)
        spans = np.empty((len(words), 2), np.int64)
        kernels.texts_of(self.arena.base, self.offset, words.ctypes.data, len(words), spans.ctypes.data)
        read = ctypes.string_at
        return [read(address, length) if address else None for address, length in spans.tolist()]

    def joined_texts(self, words: Words) -> tuple[bytes, Words]:
        """The N-Triples texts of numbers one after the other, and their lengths: `intern_texts` takes them."""
        words = np.ascontiguousarray(words, np.int64)
        spans = np.empty((len(words), 2), np.int64)
        kernels.texts_of(self.arena.base, self.offset, words.ctypes.data, len(words), spans.ctypes.data)
        if len(words) and not spans[:, 0].all():
            raise LookupError(f"the dictionary has no entry {words[spans[:, 0] == 0][0]}")
        lengths = np.ascontiguousarray(spans[:, 1])
        texts = np.empty(int(lengths.sum()), np.uint8)
        kernels.join_texts(spans.ctypes.data, len(words), texts.ctypes.data)
        return texts.tobytes(), lengths

    def register(self, id: int) -> Register:
        """The register of a number."""
        base, offset = self.arena.base, self.offset
        if not kernels.is_live(base, offset, id):
            return Register(0)
        if kernels.is_unsettled(base, offset, id):
            kernels.settle(base, offset, id, *term_register(self.term(id)))
        return Register(
            int(kernels.tag_of(base, offset, id)),
            int(kernels.number_of(base, offset, id)),
            int(kernels.scale_of(base, offset, id)),
        )

    def pin(self, ids: Iterable[int]) -> None:
        """Hold terms: they are not released until they are let go as often. Words that stand for no entry pass."""
        for id in ids:
            if id > UNBOUND:
                self._check(id)
                kernels.pin(self.arena.base, self.offset, id)

    def unpin(self, ids: Iterable[int]) -> None:
        """Let terms go that were held."""
        for id in ids:
            if id > UNBOUND:
                self._check(id)
                kernels.unpin(self.arena.base, self.offset, id)

    def release(self, ids: Iterable[int] | Words) -> None:
        """Forget terms, and give their numbers to others later.

        Words that stand for no entry, and pinned terms, are passed over.
        """
        words = _words(ids)
        looked = int(kernels.release(self.arena.base, self.offset, words.ctypes.data, len(words)))
        if looked < len(words):
            raise LookupError(f"the dictionary has no entry {words[looked]}")

    def keep(self, ids: Iterable[int] | Words) -> int:
        """Forget all terms but these and the pinned ones: how many there were."""
        base = self.arena.base
        if not kernels.clear_marks(base, self.offset):
            raise ArenaFull
        for id in _words(ids):
            if kernels.is_live(base, self.offset, id):
                kernels.mark(base, self.offset, id)
        return int(kernels.sweep(base, self.offset))

    def wipe(self) -> None:
        """Leave nothing of the last texts where they were put together."""
        self.arena.array(self._word(kernels.SCRATCH), self._word(kernels.SCRATCH_WORDS))[:] = 0

    def _word(self, number: int) -> int:
        return int(self.arena.words[self.offset + number])

    def _check(self, id: int) -> None:
        if not kernels.is_live(self.arena.base, self.offset, id):
            raise LookupError(f"the dictionary has no entry {id}")

    def put_text(self, text: bytes) -> tuple[int, int]:
        """Write a text where kernels can read it: its address and length."""
        words = self._word(kernels.SCRATCH_WORDS)
        if len(text) > 8 * words:
            larger = 1 << (len(text) // 8).bit_length()
            scratch = _taken(int(take_shared(self.arena.base, larger)))
            give_shared(self.arena.base, self._word(kernels.SCRATCH), words)
            self.arena.words[self.offset + kernels.SCRATCH] = scratch
            self.arena.words[self.offset + kernels.SCRATCH_WORDS] = larger
        address = self.arena.base + 8 * self._word(kernels.SCRATCH)
        ctypes.memmove(address, text, len(text))
        return address, len(text)


def _taken(offset: int) -> int:
    if offset == 0:
        raise ArenaFull
    return offset


def _words(ids: Iterable[int] | Words) -> Words:
    if isinstance(ids, np.ndarray):
        return np.ascontiguousarray(ids, np.int64)
    return np.fromiter((int(id) for id in ids), np.int64)
