"""Hash tables of keys in the arena: the one-way index, and the table of a buffer's ring index.

A key is one or more words of a row.  The entry of a key holds how many rows have it and, in the index of a buffer, the
position of the newest of them.  Keys are compared whole: counters are exact, so that a join may choose by them.

    word   of an index
    0      place of the next index of the same buffer, or 0
    1      place of the table, or 0 while there is none
    2      slots of the table - 1; there are 2^k slots
    3      slots in use: keys, and keys that no row has any more
    4      k: an entry has 2^k words
    5      updates since it was last asked (buffers.py)
    6      where in a buffer's row its links are (buffers.py)
    7      1 if the rows of a key are in order of their stamps, newest first (buffers.py)
    8      words of a key, and from 9 on where in a row they are

    word   of an entry
    0      position of the newest row + 1; 0 if the slot was never used
    1      rows with this key
    2 …    the key

Empty keys stay until the table is full, and go all at once when it is written anew (JWS §3.4): a key that comes back
costs nothing.  At most five eighths of the slots are in use, so a search always ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels.jit import kernel
from cqels.kernels.memory import Arena, fetch, give, load, store, take

FOLLOWING, TABLE, LAST, USED, SHIFT, IDLE, LINK, SORTED, KEYS, KEY = range(10)
HEAD, COUNT, WORDS = 0, 1, 2
SLOTS = 8
"""Slots of a new table."""
FULL = -(2**63)
"""Instead of a count: the arena is full."""
_FAR = 1 << 13  # a table with fewer slots is near anyway
_MIX = -7046029254386353131  # 2^64 / golden ratio, odd


def make_index(arena: Arena, offsets: Sequence[int]) -> int:
    """An index without a table: `offsets` are where the words of its key are in a row."""
    index = arena.take(KEY + len(offsets))
    shift = 2
    while (1 << shift) < WORDS + len(offsets):
        shift += 1
    arena.words[index + SHIFT] = shift
    arena.words[index + KEYS] = len(offsets)
    arena.words[index + KEY : index + KEY + len(offsets)] = offsets
    return index


def make_counter(arena: Arena, offsets: Sequence[int]) -> int:
    """A one-way index: key → count."""
    index = make_index(arena, offsets)
    if not open_table(arena.base, index):
        raise MemoryError("the arena is full")
    return index


@kernel
def count_key(base, index, row, weight):
    """Add to the count of a row's key in a one-way index: the count before, or FULL."""
    entry = enter(base, index, row)
    if entry == 0:
        return FULL
    count = load(base, entry + COUNT)
    store(base, entry + HEAD, 1)
    store(base, entry + COUNT, count + weight)
    return count


@kernel
def open_table(base, index):
    """Give an index an empty table: False if the arena is full."""
    table = take(base, SLOTS << load(base, index + SHIFT))
    if table == 0:
        return False
    store(base, index + TABLE, table)
    store(base, index + LAST, SLOTS - 1)
    store(base, index + USED, 0)
    store(base, index + IDLE, 0)
    return True


@kernel
def close_table(base, index):
    """Take the table of an index away."""
    table = load(base, index + TABLE)
    if table != 0:
        give(base, table, (load(base, index + LAST) + 1) << load(base, index + SHIFT))
        store(base, index + TABLE, 0)


@kernel
def _mixed(base, row, offsets, keys):
    """The hash of a key."""
    mixed = 0
    for number in range(keys):
        mixed = (mixed ^ load(base, row + load(base, offsets + number))) * _MIX
        mixed ^= mixed >> 32
    return mixed


@kernel
def expect(base, index, row, offsets):
    """Have the entry of a key brought near: `find` will ask for it soon."""
    if load(base, index + LAST) < _FAR:
        return
    slot = _mixed(base, row, offsets, load(base, index + KEYS)) & load(base, index + LAST)
    fetch(base, load(base, index + TABLE) + (slot << load(base, index + SHIFT)))


@kernel
def find(base, index, row, offsets):
    """The entry of the key that a row has at `offsets` (the place of as many words as the key has), or a free slot.

    A free slot has the count 0, as an empty key has.
    """
    table, last, shift = load(base, index + TABLE), load(base, index + LAST), load(base, index + SHIFT)
    keys = load(base, index + KEYS)
    first = load(base, row + load(base, offsets)) if keys > 0 else 0
    slot = _mixed(base, row, offsets, keys) & last
    while True:
        entry = table + (slot << shift)
        if load(base, entry + HEAD) == 0:
            return entry
        same = load(base, entry + WORDS) == first
        for number in range(1, keys if same else 0):
            if load(base, entry + WORDS + number) != load(base, row + load(base, offsets + number)):
                same = False
                break
        if same:
            return entry
        slot = (slot + 1) & last


@kernel
def enter(base, index, row):
    """The entry of a row's key, made if there is none; who asks sets its head. 0 if the arena is full."""
    entry = find(base, index, row, index + KEY)
    if load(base, entry + HEAD) != 0:
        return entry
    if (load(base, index + USED) + 1) * 8 > (load(base, index + LAST) + 1) * 5:
        if not _rewrite(base, index):
            return 0
        entry = find(base, index, row, index + KEY)
    store(base, index + USED, load(base, index + USED) + 1)
    for number in range(load(base, index + KEYS)):
        store(base, entry + WORDS + number, load(base, row + load(base, index + KEY + number)))
    return entry


@kernel
def _rewrite(base, index):
    """Write the table anew, without empty keys, at most half full: False if the arena is full."""
    old, last, shift = load(base, index + TABLE), load(base, index + LAST), load(base, index + SHIFT)
    used = 0
    for slot in range(last + 1):
        if load(base, old + (slot << shift) + COUNT) != 0:
            used += 1
    slots = SLOTS
    while slots < 2 * (used + 1):
        slots *= 2
    table = take(base, slots << shift)
    if table == 0:
        return False
    keys = load(base, index + KEYS)
    for slot in range(last + 1):
        entry = old + (slot << shift)
        if load(base, entry + COUNT) == 0:
            continue
        mixed = 0
        for number in range(keys):  # as in `_mixed`
            mixed = (mixed ^ load(base, entry + WORDS + number)) * _MIX
            mixed ^= mixed >> 32
        home = mixed & (slots - 1)
        while load(base, table + (home << shift) + HEAD) != 0:
            home = (home + 1) & (slots - 1)
        for word in range(WORDS + keys):
            store(base, table + (home << shift) + word, load(base, entry + word))
    give(base, old, (last + 1) << shift)
    store(base, index + TABLE, table)
    store(base, index + LAST, slots - 1)
    store(base, index + USED, used)
    return True
