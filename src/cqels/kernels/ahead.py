"""Looking ahead: what coming triples will touch in windows and joins is brought near before their turn.

Windows and indexes of many rows are far away in memory, and a block of elements says what comes: while one triple is
worked off, what the next ones need is on its way.  It is done twice: what is found by a hash, and when that has come,
the rows that it leads to.  Nothing here changes what is known.

    word   of the hints for a window: how many there are, then for each pattern over it whose rows are a join's input
    0, 1   pattern; place for a row of it
    2, 3   join, number of the input
"""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels import join
from cqels.kernels.finder import expect_mark, hash_of, mark_of
from cqels.kernels.jit import kernel
from cqels.kernels.join import expect_change, expect_matches, write_words
from cqels.kernels.memory import Arena, load, store
from cqels.kernels.rows import ALWAYS, COLUMNS, NEVER, NUMBER, OLDEST, TIME
from cqels.kernels.window import (
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
    QUEUE,
    entry_of,
    matches,
)

PATTERN, ROW, JOIN, INPUT = range(4)
HINT_WORDS = 4
FAR = 1 << 12
"""A window of fewer triples is near anyway."""


def make_hints(arena: Arena, window: int, patterns: Sequence[int], joins: Sequence[int]) -> int:
    """The hints for a window, by the operators of patterns and joins; 0 for a window that is not kept in a ring."""
    words = arena.words
    if words[window + KIND] > ELEMENTS:
        return 0
    found: list[int] = []
    for operator in patterns:
        queue, pattern, out = (int(word) for word in words[operator : operator + 3])
        for place in joins if queue == words[window + QUEUE] else ():
            for number in range(int(words[place + join.INPUTS])):
                if words[words[place + join.INPUT + number] + join.QUEUE] == out:
                    found += [pattern, arena.take(COLUMNS + 3), place, number]
    return write_words(arena, [len(found) // HINT_WORDS, *found])


@kernel
def expect_leaving(base, window, hints, place, near):
    """Have brought near what will be touched when an entry leaves that has so many before it."""
    number = load(base, window + LEFT) + place
    if number < load(base, window + ENTERED):
        entry = entry_of(base, window, number)
        time, element = load(base, entry + ENTRY_TIME), load(base, entry + ENTRY_NUMBER)
        expect_triple(base, window, hints, entry, time, element, near)


@kernel
def expect_triple(base, window, hints, triple, time, number, near):
    """Have brought near what a change by this triple will touch; with `near`, what is found there has come."""
    if load(base, window + COME) - load(base, window + LEFT) < FAR:
        return
    if near == 0:
        expect_mark(base, load(base, window + FINDER), mark_of(hash_of(base, triple, 3), 0))
    fresh = load(base, window + FLAGS) & FRESH
    for place in range(load(base, hints)):
        hint = hints + 1 + place * HINT_WORDS
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
        if near == 0:
            expect_change(base, load(base, hint + JOIN), load(base, hint + INPUT), row)
        else:
            expect_matches(base, load(base, hint + JOIN), load(base, hint + INPUT), row)
