"""Rows as buffers keep them (row_buffer.py), and the indexes that link them by their keys.

Rows of a query that does not ask when things were all have the same stamps, those of what came from no element.  A
*bare* ring does not keep them, so that more of its rows are near: a kept row has its columns where the row that came
had them, and its weight in the word before them.

    word   of a buffer
    0      RING or BAG
    1      rows in it
    2      rows that there is room for, a power of two
    3      words of a row as it comes: 4 + columns
    4      words of a row as it is kept
    5      offset of the rows
    6      row of a position = (position & this) rows after the first: a ring's positions only grow, a bag's do not
    7, 8   first position, and the one after the last
    9      bag: first free position + 1, or 0
    10     bag: offset of the finder of its rows
    11     offset of the first index, or 0
    12     ring: rows that may be looked at for one that leaves out of turn
    13     bag: words per row that an operator keeps for itself
    14     where in a row its weight is: 0, or 3 if it is a bare ring
    15     word 14 less word 5: the words of a row are counted from the opposite of this, which is before the block of
           the rows, and must not be taken for an offset in the block that is there

    word   of a row as it is kept
    0 …    the row as it came (delta_queue.py), or of a bare ring from word 3 on, its weight, and then its columns
    …      bag: the operator's words.  A free row has weight 0, and position + 1 of the next free row in word 1
    …      links, half a word each, which is the lowest 32 bits of a position
           ring: one per index, to the next older row with the same key
           bag: two per index, to the next older and the next newer row with the same key, or `NONE`
    …      some more if that lets it be in fewer lines of the cache

The rows of a key are as many as its counter says, from the newest on: so a ring forgets its oldest row without looking
for links to it (JWS Alg. 1–2).  A hole of a ring is a row of weight 0 until its turn comes,
and the index counts it until then; who walks a ring or a bag passes over rows of weight 0.

An index exists only while it pays (ISWC §4.3): it is built when it is asked and the buffer has more than `SCAN` rows,
and goes when rows came and went four times over and no one asked.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, NEVER, NUMBER, OLDEST, TIME, WEIGHT
from cqels.kernels.containers.key_index import (
    FOLLOWING,
    IDLE,
    KEY,
    LINE,
    LINK,
    NEWEST,
    ONE,
    OPEN,
    SORTED,
    enter,
    find,
    open_index,
    shut_index,
)
from cqels.kernels.memory.arena import copy, give, load, store, take

RING, BAG = 0, 1
KIND, ROWS, ROOM, WIDTH, STRIDE, DATA, MASK, FIRST, NEXT, FREE, FINDER, INDEXES, PATIENCE, OWN, BARE, BEFORE = range(16)
BUFFER_WORDS = 16
SCAN = 8
"""A buffer of at most so many rows is read row by row rather than through an index."""
NONE = NEWEST
"""Instead of a position: there is no such row."""
_IDLE_ROWS, _IDLE_LEAST = 4, 256
"""An index goes after so many updates per row, and so many at least, without a question."""


# --- rows


@kernel
def row_of(base, buffer, position):
    """The offset of the row at a position."""
    position &= load(base, buffer + MASK)
    return position * load(base, buffer + STRIDE) - load(base, buffer + BEFORE)


@kernel
def weight_at(base, buffer, position):
    """The offset of the weight of the row at a position, which is there in any buffer."""
    return row_of(base, buffer, position) + load(base, buffer + BARE)


@kernel
def put_head(base, bare, row, target):
    """Write the weight and the stamps of a row of a buffer that keeps them so."""
    if bare == 0:
        for word in range(COLUMNS):
            store(base, target + word, load(base, row + word))
        return
    store(base, target + WEIGHT, load(base, row + bare))
    store(base, target + TIME, NEVER)
    store(base, target + NUMBER, -1)
    store(base, target + OLDEST, ALWAYS)


@kernel
def same(base, one, other, first, end):
    """Whether two rows agree from one word up to another."""
    for word in range(first, end):
        if load(base, one + word) != load(base, other + word):
            return False
    return True


@kernel
def newer(base, one, other):
    """Whether a row's stamps come after another's, whatever else: a total order of stamps."""
    for word in (TIME, NUMBER, OLDEST):
        if load(base, one + word) != load(base, other + word):
            return load(base, one + word) > load(base, other + word)
    return False


@kernel
def padded(words):
    """How long rows of so many words are, to be in as few lines as possible."""
    if words < LINE:
        stride = 1
        while stride < words:
            stride *= 2
        return stride
    return words + 1 if words % LINE == LINE - 1 else words


@kernel
def resize(base, buffer, room, stride):
    """Move the rows to a block for `room` rows of `stride` words: False if the arena is full."""
    old, before, width = load(base, buffer + DATA), load(base, buffer + ROOM), load(base, buffer + STRIDE)
    ring, bare = load(base, buffer + KIND) == RING, load(base, buffer + BARE)
    data = take(base, room * stride)
    if data == 0:
        return False
    first, end = load(base, buffer + FIRST), load(base, buffer + NEXT)
    for position in range(first, end):
        offset = weight_at(base, buffer, position)
        copy(base, offset, data + ((position & (room - 1)) if ring else position) * stride, width)
    give(base, old, before * width)
    store(base, buffer + DATA, data)
    store(base, buffer + BEFORE, bare - data)
    store(base, buffer + ROOM, room)
    store(base, buffer + STRIDE, stride)
    if ring:
        store(base, buffer + MASK, room - 1)
    return True


@kernel
def link_of(base, row, link):
    """The position that a link of a row says."""
    return (load(base, row + (link >> 1)) >> ((link & 1) << 5)) & NEWEST


@kernel
def set_link(base, row, link, position):
    """Let a link of a row say this position, or `NONE`."""
    word, shift = row + (link >> 1), (link & 1) << 5
    store(base, word, (load(base, word) & ~(NEWEST << shift)) | ((position & NEWEST) << shift))


# --- indexes


@kernel
def probe(base, buffer, index, row, offsets):
    """The offset of the index's word about the key of `row`, as `find` has it, or 0 if it is better read row by row."""
    if load(base, index + OPEN) == 0 and (load(base, buffer + ROWS) <= SCAN or not build(base, buffer, index)):
        return 0
    store(base, index + IDLE, 0)
    return find(base, index, row, offsets)


@kernel
def build(base, buffer, index):
    """Open an index with the rows of its buffer: False if the arena is full."""
    if not open_index(base, index):
        return False
    ring = load(base, buffer + KIND) == RING
    for position in range(load(base, buffer + FIRST), load(base, buffer + NEXT)):
        row = row_of(base, buffer, position)
        # a ring counts its rows of weight 0 too, for it counts them down when their turn comes
        if (ring or load(base, row) != 0) and not _link(base, buffer, index, position, row):
            close(base, buffer, index)
            return False
    return True


@kernel
def close(base, buffer, index):
    """Close an index that is open; it may have some of the rows of its buffer only."""
    if shut_index(base, index):
        for position in range(load(base, buffer + FIRST), load(base, buffer + NEXT)):
            offset = row_of(base, buffer, position)
            if load(base, buffer + KIND) == RING or load(base, offset) != 0:
                store(base, find(base, index, offset, index + KEY), 0)


@kernel
def enter_all(base, buffer, position, row):
    """Put a new row into the indexes that there are: False if the arena is full and one of them must not go."""
    index = load(base, buffer + INDEXES)
    while index != 0:
        if load(base, index + OPEN) != 0:
            idle = load(base, index + IDLE) + 1
            store(base, index + IDLE, idle)
            if load(base, index + SORTED) != 0:
                if not _link(base, buffer, index, position, row):
                    return False
            elif idle > _IDLE_ROWS * load(base, buffer + ROWS) + _IDLE_LEAST or not _link(
                base, buffer, index, position, row
            ):
                close(base, buffer, index)
        index = load(base, index + FOLLOWING)
    return True


@kernel
def _link(base, buffer, index, position, row):
    """Put a row at the head of its key's rows, or where its stamps belong."""
    offset, link = row_of(base, buffer, position), load(base, index + LINK)
    found = enter(base, index, row)
    if found == 0:
        return False
    rows = load(base, found) + ONE
    older = rows & NEWEST if rows != ONE else NONE
    newest = (rows & ~NEWEST) | (position & NEWEST)
    if load(base, buffer + KIND) == RING:
        set_link(base, offset, link, older)
        store(base, found, newest)
        return True
    before = NONE
    if load(base, index + SORTED) != 0:
        while older != NONE and newer(base, row_of(base, buffer, older), offset):
            before = older
            older = link_of(base, row_of(base, buffer, older), link)
    set_link(base, offset, link, older)
    set_link(base, offset, link + 1, before)
    if older != NONE:
        set_link(base, row_of(base, buffer, older), link + 1, position)
    if before != NONE:
        set_link(base, row_of(base, buffer, before), link, position)
    store(base, found, rows if before != NONE else newest)
    return True


@kernel
def unlink(base, buffer, index, offset):
    """Take a bag's row out of the rows of its key."""
    link = load(base, index + LINK)
    found = find(base, index, offset, index + KEY)
    rows = less(load(base, found))
    older, before = link_of(base, offset, link), link_of(base, offset, link + 1)
    if older != NONE:
        set_link(base, row_of(base, buffer, older), link + 1, before)
    if before != NONE:
        set_link(base, row_of(base, buffer, before), link, older)
    elif older != NONE:
        rows = (rows & ~NEWEST) | older
    store(base, found, rows)


@kernel
def less(rows):
    """The word of an index about a key when one of its rows has gone."""
    return rows - ONE if rows >= 2 * ONE else 0
