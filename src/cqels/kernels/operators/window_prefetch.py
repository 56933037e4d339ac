"""Looking ahead at windows: what coming triples, and those that leave, will touch in windows and joins is brought near.

A block of elements says what comes, a window what goes: while a group of elements is worked off, what the next groups
need is on its way (join_prefetch.py).  Nothing here changes what is known.

    word   of the hints for a window
    0      how many there are
    1      entries that had left it when they were looked at last
    2, 3   of those that will leave, the first ones whose keys and whose rows have not been looked at
    4 …    for each pattern over it whose rows are a join's input: pattern, offset for a row of it, paths of the input
"""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, NEVER, NUMBER, OLDEST, TIME
from cqels.kernels.containers.row_buffer import TOGETHER
from cqels.kernels.containers.row_set import hash_of, mark_of, slot_of
from cqels.kernels.memory.arena import Arena, fetch, load, store, write_words
from cqels.kernels.operators import join
from cqels.kernels.operators.join_prefetch import KEYS_AHEAD, LOOKED, ROWS_AHEAD, expect_keys, expect_matches, want
from cqels.kernels.operators.window import (
    COME,
    ELEMENTS,
    ENTERED,
    ENTRY_NUMBER,
    ENTRY_TIME,
    FINDER,
    FLAGS,
    FRESH,
    KIND,
    LEFT,
    STAR,
    entry_of,
    matches,
)

COUNT, GONE, KEYS_SEEN, ROWS_SEEN, FIRST_HINT = range(5)
PATTERN, ROW, PATHS, HINT_WORDS = range(4)
KEYS, ROWS = 0, 1
"""The steps."""
FAR = 1 << 12
"""A window of fewer triples is near anyway."""
_MOST_LEAVING = 4 * TOGETHER  # entries that leave with a group of elements, and are looked at


def make_hints(arena: Arena, window: int, patterns: Sequence[int], joins: Sequence[int]) -> int:
    """The hints for a window, by the operators of the patterns that read it, and of joins; 0 if there are none, or it
    is no ring."""
    words = arena.words
    if words[window + KIND] > ELEMENTS:
        return 0
    found: list[int] = []
    for operator in patterns:
        _, pattern, out = (int(word) for word in words[operator : operator + 3])
        for offset in joins:
            for number in range(int(words[offset + join.INPUTS])):
                own = int(words[offset + join.INPUT + number])
                if words[own + join.QUEUE] == out:
                    words[words[own + join.PATHS] + LOOKED] = 1
                    found += [pattern, arena.take(COLUMNS + 3), int(words[own + join.PATHS])]
    return write_words(arena, [len(found) // HINT_WORDS, 0, 0, 0, *found]) if found else 0


@kernel
def is_far(base, window, hints):
    """Whether it pays to look ahead for a window."""
    if hints == 0 or load(base, window + STAR) != 0:
        return False
    return load(base, window + COME) - load(base, window + LEFT) >= FAR


@kernel
def expect_leaving(base, outlook, window, hints):
    """Take both steps for the entries that will leave next, as many as left since the last time."""
    left, entered = load(base, window + LEFT), load(base, window + ENTERED)
    pace = min(max(left - load(base, hints + GONE), TOGETHER), _MOST_LEAVING)
    store(base, hints + GONE, left)
    keys = max(load(base, hints + KEYS_SEEN), left)
    for number in range(max(load(base, hints + ROWS_SEEN), left), min(left + (ROWS_AHEAD + 1) * pace, keys)):
        _expect_entry(base, outlook, window, hints, number, ROWS)
        store(base, hints + ROWS_SEEN, number + 1)
    for number in range(keys, min(left + (KEYS_AHEAD + 1) * pace, entered)):
        fetch(base, entry_of(base, window, number + pace))
        _expect_entry(base, outlook, window, hints, number, KEYS)
        store(base, hints + KEYS_SEEN, number + 1)


@kernel
def _expect_entry(base, outlook, window, hints, number, step):
    entry = entry_of(base, window, number)
    time, element = load(base, entry + ENTRY_TIME), load(base, entry + ENTRY_NUMBER)
    expect_triple(base, outlook, window, hints, entry, time, element, step)


@kernel
def expect_triple(base, outlook, window, hints, triple, time, number, step):
    """Take a step for what a change by this triple will touch."""
    if step == KEYS:
        want(base, outlook, slot_of(base, load(base, window + FINDER), mark_of(hash_of(base, triple, 3), 0)))
    fresh = load(base, window + FLAGS) & FRESH
    for index in range(load(base, hints + COUNT)):
        hint = hints + FIRST_HINT + index * HINT_WORDS
        pattern, row = load(base, hint + PATTERN), load(base, hint + ROW)
        if not matches(base, pattern, triple):
            continue
        store(base, row + TIME, time if fresh else NEVER)
        store(base, row + NUMBER, number if fresh else -1)
        store(base, row + OLDEST, time if fresh else ALWAYS)
        for position in range(3):
            column = load(base, pattern + 3 * position + 2)
            if column >= 0:
                store(base, row + COLUMNS + column, load(base, triple + position))
        if step == KEYS:
            expect_keys(base, outlook, load(base, hint + PATHS), row)
        else:
            expect_matches(base, outlook, load(base, hint + PATHS), row)
