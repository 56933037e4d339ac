"""Collection of the terms that nothing refers to any more; here is when it is due, and the runtime calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from cqels.engine.budget_enforcement import within
from cqels.engine.engine_state import EngineState
from cqels.engine.running_query import Running
from cqels.ingest.element_batch import Words
from cqels.kernels.memory.arena import FIRST
from cqels.kernels.terms import term_table
from cqels.model.errors import ArenaFull

_FEWEST_TERMS = 1 << 16
"""Terms that a dictionary has at least before the first collection."""
_LARGE = 1 << 10
"""Words of a free block from which on it is not searched for terms."""


class TermCollector:
    """Removes unreferenced terms from the dictionary: a conservative mark and sweep over the arena."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self.released = 0
        """Terms removed so far."""
        self.holders: list[Callable[[], Iterable[Words]]] = []
        """Give words outside the arena that are in use: of elements that wait for their turn."""
        self._due_at = _FEWEST_TERMS

    @property
    def is_due(self) -> bool:
        """The dictionary has doubled since the last collection."""
        return len(self._state.dictionary) > self._due_at

    def collect(self, pipelines: Iterable[Running], block: tuple[int, int]) -> int:
        """Remove the terms that nothing refers to, in the arena or where elements wait: how many.

        Whatever word of the arena could be the number of a term is taken for one, except in `block` (offset and words),
        whose elements are done with, and in large free blocks: no term in use is ever removed, and the garbage that
        stays is bounded by the size of the arena.
        """
        state = self._state
        base, dictionary = state.arena.base, state.dictionary.offset
        state.calls.forget()
        state.terms.forget()
        self._forget_sort_keys(pipelines)
        if not term_table.clear_marks(base, dictionary):
            raise ArenaFull
        self._mark_arena(block)
        self._mark_outside()
        gone = int(term_table.sweep(base, dictionary))
        self.released += gone
        self._due_at = max(2 * len(state.dictionary), _FEWEST_TERMS)
        return gone

    def _forget_sort_keys(self, pipelines: Iterable[Running]) -> None:
        """Empty the sort keys of terms that operators hold."""
        for running in pipelines:
            if running.pipeline.terms:
                from cqels.kernels.terms.sort_keys import trim_sort_key_cache

                with within(self._state, running):
                    trim_sort_key_cache(self._state.arena.base, running.pipeline.terms)

    def _mark_arena(self, block: tuple[int, int]) -> None:
        """Mark what the arena refers to, the dictionary's own tables left out."""
        arena, dictionary = self._state.arena, self._state.dictionary.offset
        words = arena.words
        left_out = [
            (int(words[dictionary + offset]), int(words[dictionary + size]) * scale)
            for offset, size, scale in (
                (term_table.ENTRIES, term_table.ENTRY_ROOM, term_table.ENTRY_WORDS),
                (term_table.TABLE, term_table.SLOTS, 1),
                (term_table.MARKS, term_table.MARK_WORDS, 1),
            )
        ]
        left_out += [block, *arena.free_blocks(least=_LARGE)]
        offset = FIRST
        for start, size in [*sorted(left_out), (arena.used, 0)]:
            term_table.mark_column(arena.base, dictionary, offset, max(start - offset, 0), 1)
            offset = max(offset, start + size)

    def _mark_outside(self) -> None:
        """Mark what elements that wait refer to, and results that nobody has taken."""
        base, dictionary = self._state.arena.base, self._state.dictionary.offset
        waiting = (words for held in self.holders for words in held())
        for outside in (*waiting, *(rows for running in self._state.running for rows in running.raw)):
            flat = np.ascontiguousarray(outside, np.int64).reshape(-1)
            term_table.mark_column(base, dictionary, (flat.ctypes.data - base) // 8, len(flat), 1)
