"""Memory that nothing refers to any more: what queries leave behind when they are dropped."""

from __future__ import annotations

import numpy as np

from cqels.kernels import dictionary as kernels
from cqels.kernels.memory import FIRST, Arena, give
from cqels.kernels.terms import ArenaDictionary

_AT_ONCE = 1 << 20


def give_back(arena: Arena, dictionary: ArenaDictionary, roots: list[int]) -> int:
    """Give back the blocks that cannot be reached from some places: how many words they have.

    Any word that could be a place in a block is taken for one, so nothing in use is ever given back; what is kept in
    vain is found another time.
    """
    places, sizes = arena.blocks()
    free = np.isin(places, [place for place, _ in arena.free_blocks()])
    reached = free.copy()  # what is free is not looked into
    words = arena.words
    entries = arena.array(
        int(words[dictionary.place + kernels.ENTRIES]), int(words[dictionary.place + kernels.END]) * kernels.ENTRY_WORDS
    ).reshape(-1, kernels.ENTRY_WORDS)
    texts = entries[entries[:, kernels.SHAPE] != 0, kernels.TEXT] >> 3
    waiting = [
        *_blocks_at(np.array(roots, np.int64), places, sizes, reached),
        *_blocks_at(texts, places, sizes, reached),
    ]
    while waiting:
        block = waiting.pop()
        start, end = int(places[block]), int(places[block] + sizes[block])
        for at in range(start, end, _AT_ONCE):
            waiting += _blocks_at(words[at : min(at + _AT_ONCE, end)], places, sizes, reached)
    lost = np.flatnonzero(~reached)
    for block in lost.tolist():
        give(arena.base, int(places[block]), int(sizes[block]))
    return int(sizes[lost].sum())


def _blocks_at(
    words: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    places: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    sizes: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    reached: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> list[int]:
    """The blocks that words lie in and that had not been reached; they are now."""
    likely = words[(words >= FIRST) & (words < places[-1] + sizes[-1])]
    if not len(likely):
        return []
    blocks = np.searchsorted(places, likely, side="right") - 1
    inside = (blocks >= 0) & (likely < places[blocks] + sizes[blocks])
    new = np.unique(blocks[inside])
    new = new[~reached[new]]
    reached[new] = True
    return [int(block) for block in new]
