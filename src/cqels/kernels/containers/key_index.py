"""Hash tables of keys in the arena: the one-way index, and the tables that the indexes of buffers are in.

A key is one or more words of a row.  The entry of a key has a word for each index that is in the table: how many rows
of its buffer have the key, and where the newest of them is.  So the indexes of several buffers on what they are joined
by are one table, and who looks a key up for one of them has found it for all.  Keys are compared whole: counters are
exact, so that a join may choose by them.

    word   of a table
    0      offset of the slots, or 0 while no index in it is open
    1      slots - 1; there are 2^k slots
    2      slots in use: keys, and keys that no row has any more
    3      k: an entry has 2^k words
    4      words of a key in an entry
    5      1 if the first of them is always 1, and a row's words follow: for keys that may begin with 0, or are no words
    6, 7   indexes in it, and how many of them are open
    8      the entry that was found last
    9      entries that are in one line of the cache - 1, 0 if one fills it

    word   of an index
    0      offset of the next index of the same buffer, or 0
    1      its table
    2      1 while it is open: what its words in the table say is true; else they are 0
    3      which word of an entry is its own
    4      updates since it was last asked (row_storage.py)
    5      where in a buffer's row its links are, in halves of words (row_storage.py)
    6      1 if the rows of a key are in order of their stamps, newest first (row_storage.py)
    7      words of a row's key, and from 8 on where in a row they are

    word   of an entry
    0 …    the key; word 0 is 0 if the slot was never used
    …      for each index 0 if no row has the key, or: rows with this key · 2^32 + position of the newest (its lowest 32
           bits).  The one word of a one-way index is a count

Empty keys stay until the table is full, and go all at once when it is written anew (JWS §3.4): a key that comes back
costs nothing.  At most half of the slots are in use, and a search goes through the line of the cache where
it began before it goes on to the next: it hardly ever leaves that line, and always ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import Arena, give, load, store, take
from cqels.model.errors import ArenaFull

DATA, LAST, USED, SHIFT, WORDS, LEAD, MEMBERS, OPENED, RECENT, NEAR = range(10)
FOLLOWING, TABLE, OPEN, OWN, IDLE, LINK, SORTED, KEYS, KEY = range(9)
TABLE_WORDS = 10
SLOTS = 8
"""Slots of a new table."""
FULL = -(2**63)
"""Instead of a count: the arena is full."""
ONE = 1 << 32
"""One row, in the word of an index."""
NEWEST = ONE - 1
"""The part of that word which is the position of the newest."""
LINE = 8
"""Words of a line of the cache, which an entry does not cross."""
_FAR = 1 << 16  # a table with fewer slots is near anyway
_UNBOUND = -1  # how a 0 at the start of a key is written
_MIX = -7046029254386353131  # 2^64 / golden ratio, odd


def make_table(arena: Arena, keys: int, *, lead: bool = False) -> int:
    """A table for no index yet, and keys of so many words of a row; with `lead` these may begin with 0."""
    table = arena.take(TABLE_WORDS)
    arena.words[table + WORDS] = keys + lead
    arena.words[table + LEAD] = lead
    return table


def has_room(arena: Arena, table: int) -> bool:
    """Whether one more index can be in a table: an entry is to be in one line."""
    words, members, data = (int(arena.words[table + word]) for word in (WORDS, MEMBERS, DATA))
    return data == 0 and (members == 0 or words + members < LINE)


def make_index(arena: Arena, table: int, offsets: Sequence[int]) -> int:
    """An index in a table that has room: `offsets` are where the words of its key are in a row."""
    index = arena.take(KEY + len(offsets))
    words = arena.words
    words[index + TABLE] = table
    words[index + OWN] = words[table + WORDS] + words[table + MEMBERS]
    words[index + KEYS] = len(offsets)
    words[index + KEY : index + KEY + len(offsets)] = offsets
    words[table + MEMBERS] += 1
    words[table + SHIFT] = int(words[index + OWN]).bit_length()
    words[table + NEAR] = max(LINE >> int(words[table + SHIFT]), 1) - 1
    return index


def make_counter(arena: Arena, offsets: Sequence[int]) -> int:
    """A one-way index: key → count."""
    index = make_index(arena, make_table(arena, len(offsets), lead=True), offsets)
    if not open_index(arena.base, index):
        raise ArenaFull
    return index


@kernel
def count_key(base, index, row, weight):
    """Add to the count of a row's key in a one-way index: the count before, or FULL."""
    found = enter(base, index, row)
    if found == 0:
        return FULL
    count = load(base, found)
    store(base, found, count + weight)
    return count


@kernel
def open_index(base, index):
    """Open an index that is not open, for no rows yet: False if the arena is full."""
    table = load(base, index + TABLE)
    if load(base, table + DATA) == 0:
        data = take(base, SLOTS << load(base, table + SHIFT))
        if data == 0:
            return False
        _set_slots(base, table, data, SLOTS, 0)
    store(base, table + OPENED, load(base, table + OPENED) + 1)
    store(base, index + OPEN, 1)
    store(base, index + IDLE, 0)
    return True


@kernel
def shut_index(base, index):
    """An open index is no more: whether others are open in its table, so that its words there have to be cleared."""
    table = load(base, index + TABLE)
    opened = load(base, table + OPENED) - 1
    store(base, index + OPEN, 0)
    store(base, table + OPENED, opened)
    if opened != 0:
        return True
    give(base, load(base, table + DATA), (load(base, table + LAST) + 1) << load(base, table + SHIFT))
    store(base, table + DATA, 0)
    return False


@kernel
def _set_slots(base, table, data, slots, used):
    store(base, table + DATA, data)
    store(base, table + LAST, slots - 1)
    store(base, table + USED, used)
    store(base, table + RECENT, data)


@kernel
def _first(base, row, offsets, lead):
    """The first word of the entry of a row's key."""
    word = 1 if lead != 0 else load(base, row + load(base, offsets))
    return word if word != 0 else _UNBOUND


@kernel
def _mixed(mixed, word):
    """The hash of some words and one more."""
    mixed = (mixed ^ word) * _MIX
    return mixed ^ (mixed >> 32)


@kernel
def _home(base, table, row, offsets, first):
    """The entry where the search for a row's key begins."""
    mixed, lead = _mixed(0, first), load(base, table + LEAD)
    for number in range(1 - lead, load(base, table + WORDS) - lead):
        mixed = _mixed(mixed, load(base, row + load(base, offsets + number)))
    return load(base, table + DATA) + ((mixed & load(base, table + LAST)) << load(base, table + SHIFT))


@kernel
def next_slot(slot, home, near, last):
    """The slot where a search goes on: through the line where it began, then at the same position of the next."""
    turned = (slot & ~near) | ((slot + 1) & near)
    return turned if (turned ^ home) & near != 0 else (turned + near + 1) & last


@kernel
def _is_of(base, table, entry, row, offsets):
    """Whether an entry that has the first word of a row's key has the others too."""
    lead = load(base, table + LEAD)
    for number in range(1 - lead, load(base, table + WORDS) - lead):
        if load(base, entry + lead + number) != load(base, row + load(base, offsets + number)):
            return False
    return True


@kernel
def is_far(base, table):
    """Whether there are so many slots that they are not near anyway."""
    return load(base, table + DATA) != 0 and load(base, table + LAST) >= _FAR


@kernel
def home_of(base, table, row, offsets):
    """The offset where the search for a key will begin, to have it brought near; 0 if there are no slots."""
    if load(base, table + DATA) == 0:
        return 0
    return _home(base, table, row, offsets, _first(base, row, offsets, load(base, table + LEAD)))


@kernel
def _entry(base, table, row, offsets):
    """The entry of the key that a row has at `offsets` (the offset of as many words as it has), or a free slot."""
    first, recent = _first(base, row, offsets, load(base, table + LEAD)), load(base, table + RECENT)
    if load(base, recent) == first and load(base, table + WORDS) == 1:
        return recent  # a row that comes asks several indexes for its key
    return _search(base, table, row, offsets, first)


@kernel
def _search(base, table, row, offsets, first):
    single, near = load(base, table + WORDS) == 1, load(base, table + NEAR)
    data, last, shift = load(base, table + DATA), load(base, table + LAST), load(base, table + SHIFT)
    entry = _home(base, table, row, offsets, first)
    home = (entry - data) >> shift
    slot = home
    while True:
        found = load(base, entry)
        if found == 0 or (found == first and (single or _is_of(base, table, entry, row, offsets))):
            break
        slot = next_slot(slot, home, near, last)
        entry = data + (slot << shift)
    store(base, table + RECENT, entry)
    return entry


@kernel
def find(base, index, row, offsets):
    """The offset of an open index's word about the key that a row has at `offsets`: 0 is there if no row has it."""
    return _entry(base, load(base, index + TABLE), row, offsets) + load(base, index + OWN)


@kernel
def enter(base, index, row):
    """The same for the row's own key, whose entry is made if there is none; 0 if the arena is full."""
    table = load(base, index + TABLE)
    entry = _entry(base, table, row, index + KEY)
    if load(base, entry) == 0:
        if (load(base, table + USED) + 1) * 2 > load(base, table + LAST) + 1:
            if not _rewrite(base, table):
                return 0
            entry = _entry(base, table, row, index + KEY)
        store(base, table + USED, load(base, table + USED) + 1)
        lead = load(base, table + LEAD)
        store(base, entry, _first(base, row, index + KEY, lead))
        for number in range(1 - lead, load(base, table + WORDS) - lead):
            store(base, entry + lead + number, load(base, row + load(base, index + KEY + number)))
    return entry + load(base, index + OWN)


@kernel
def _is_empty(base, table, entry):
    """Whether no row has the key of an entry, in any index."""
    words = load(base, table + WORDS)
    for word in range(words, words + load(base, table + MEMBERS)):
        if load(base, entry + word) != 0:
            return False
    return True


@kernel
def _rewrite(base, table):
    """Write the table anew, without empty keys, at most three eighths full: False if the arena is full."""
    old, last, shift = load(base, table + DATA), load(base, table + LAST), load(base, table + SHIFT)
    used = 0
    for slot in range(last + 1):
        if not _is_empty(base, table, old + (slot << shift)):
            used += 1
    slots = SLOTS
    while 3 * slots < 8 * (used + 1):
        slots *= 2
    data = take(base, slots << shift)
    if data == 0:
        return False
    words, near = load(base, table + WORDS), load(base, table + NEAR)
    for slot in range(last + 1):
        entry = old + (slot << shift)
        if _is_empty(base, table, entry):
            continue
        mixed = 0
        for word in range(words):
            mixed = _mixed(mixed, load(base, entry + word))
        home = mixed & (slots - 1)
        free = home
        while load(base, data + (free << shift)) != 0:
            free = next_slot(free, home, near, slots - 1)
        for word in range(words + load(base, table + MEMBERS)):
            store(base, data + (free << shift) + word, load(base, entry + word))
    give(base, old, (last + 1) << shift)
    _set_slots(base, table, data, slots, used)
    return True
