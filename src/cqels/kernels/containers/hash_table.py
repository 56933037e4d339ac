"""A hash table in the arena: keys of some words to values of some words.

    word   of a table
    0      entries in it
    1      room: slots, a power of two
    2      words of a key
    3      words of a value
    4      offset of the slots

A slot is its key's hash (0: empty; a hash is never 0), the key, the value.  Slots are probed one after the other; the
offset of an entry that is removed is filled by those behind it, so a search ends at the first empty slot.  At most half
of the slots are in use: a search always ends.  Places of entries are good until the next `put` or `remove`.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import copy, give, load, store, take

COUNT, ROOM, KEY_WORDS, VALUE_WORDS, SLOTS = 0, 1, 2, 3, 4
TABLE_WORDS = 5
_MIX = -7046029254386353131  # 2^64 / golden ratio, odd


@kernel
def make_table(base, key_words, value_words):
    """A new, empty table: its offset, or 0 if the arena is full."""
    table = take(base, TABLE_WORDS)
    if table == 0:
        return 0
    slots = take(base, 8 * (1 + key_words + value_words))
    if slots == 0:
        return 0
    store(base, table + ROOM, 8)
    store(base, table + KEY_WORDS, key_words)
    store(base, table + VALUE_WORDS, value_words)
    store(base, table + SLOTS, slots)
    return table


@kernel
def drop_table(base, table):
    """Give a table's memory back."""
    width = 1 + load(base, table + KEY_WORDS) + load(base, table + VALUE_WORDS)
    give(base, load(base, table + SLOTS), load(base, table + ROOM) * width)
    give(base, table, TABLE_WORDS)


@kernel
def hash_words(base, offset, words):
    """A hash of some words, never 0."""
    mixed = 0
    for word in range(words):
        mixed = (mixed ^ load(base, offset + word)) * _MIX
        mixed ^= mixed >> 32
    return mixed if mixed != 0 else 1


@kernel
def find(base, table, key):
    """Where the value of the key at an offset is, or 0 if there is no such key."""
    words = load(base, table + KEY_WORDS)
    width = 1 + words + load(base, table + VALUE_WORDS)
    mask = load(base, table + ROOM) - 1
    slots = load(base, table + SLOTS)
    wanted = hash_words(base, key, words)
    slot = wanted & mask
    while True:
        offset = slots + slot * width
        found = load(base, offset)
        if found == 0:
            return 0
        if found == wanted and _same(base, offset + 1, key, words):
            return offset + 1 + words
        slot = (slot + 1) & mask


@kernel
def put(base, table, key):
    """Where the value of the key at an offset is, made with a value of 0 words if need be; 0 if the arena is full.

    The key must not lie in the table itself.
    """
    words = load(base, table + KEY_WORDS)
    width = 1 + words + load(base, table + VALUE_WORDS)
    if 2 * (load(base, table + COUNT) + 1) > load(base, table + ROOM) and not _grow(base, table):
        return 0
    mask = load(base, table + ROOM) - 1
    slots = load(base, table + SLOTS)
    wanted = hash_words(base, key, words)
    slot = wanted & mask
    while True:
        offset = slots + slot * width
        found = load(base, offset)
        if found == 0:
            store(base, offset, wanted)
            copy(base, key, offset + 1, words)
            store(base, table + COUNT, load(base, table + COUNT) + 1)
            return offset + 1 + words
        if found == wanted and _same(base, offset + 1, key, words):
            return offset + 1 + words
        slot = (slot + 1) & mask


@kernel
def remove(base, table, value):
    """Remove the entry whose value is at this offset."""
    words = load(base, table + KEY_WORDS)
    width = 1 + words + load(base, table + VALUE_WORDS)
    mask = load(base, table + ROOM) - 1
    slots = load(base, table + SLOTS)
    hole = (value - 1 - words - slots) // width
    slot = hole
    while True:
        slot = (slot + 1) & mask
        offset = slots + slot * width
        found = load(base, offset)
        if found == 0:
            break
        # an entry may fill the hole if its own slot is not between the hole and where it stands
        if ((slot - (found & mask)) & mask) >= ((slot - hole) & mask):
            copy(base, offset, slots + hole * width, width)
            hole = slot
    for word in range(width):
        store(base, slots + hole * width + word, 0)
    store(base, table + COUNT, load(base, table + COUNT) - 1)


@kernel
def key_of(base, table, value):
    """The offset of the key of the entry whose value is at this offset."""
    return value - load(base, table + KEY_WORDS)


@kernel
def entry_at(base, table, slot):
    """Where the value of the entry in a slot is, 0 if it is empty: for going through all, `slot` below the room."""
    words = load(base, table + KEY_WORDS)
    offset = load(base, table + SLOTS) + slot * (1 + words + load(base, table + VALUE_WORDS))
    return offset + 1 + words if load(base, offset) != 0 else 0


@kernel
def _same(base, one, other, words):
    for word in range(words):
        if load(base, one + word) != load(base, other + word):
            return False
    return True


@kernel
def _grow(base, table):
    room = load(base, table + ROOM)
    width = 1 + load(base, table + KEY_WORDS) + load(base, table + VALUE_WORDS)
    old = load(base, table + SLOTS)
    new = take(base, 2 * room * width)
    if new == 0:
        return False
    mask = 2 * room - 1
    for number in range(room):
        offset = old + number * width
        found = load(base, offset)
        if found != 0:
            slot = found & mask
            while load(base, new + slot * width) != 0:
                slot = (slot + 1) & mask
            copy(base, offset, new + slot * width, width)
    give(base, old, room * width)
    store(base, table + SLOTS, new)
    store(base, table + ROOM, 2 * room)
    return True
