"""Buffers: multisets of rows that an operator remembers, with any number of hash indexes on their columns.

There are two disciplines.  A *ring* keeps rows in order of arrival in a circular array: what leaves is (nearly) always
the oldest, as in a window, so nothing has to be found by a hash, and what comes and goes is beside what came and went
before it.  A *bag* lets any row go: equal rows are one row with their weights added, found by a hash of everything in
it, stamps too (row_set.py).  A bag's weights may be negative for a while, if a row is taken back before it comes.

A row of a ring that is still there when those behind it leave has its turn once more: it is moved to the end.  One
that goes from the midst leaves a hole.  A ring whose rows mostly leave in another order becomes a bag: when there are
more than a few holes, or when looking for rows and moving them is more than a little for each that leaves in turn.

How rows and their indexes lie in memory is in row_storage.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS, TIME, WEIGHT, row_at
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.key_index import (
    FOLLOWING,
    KEY,
    LINK,
    OPEN,
    SORTED,
    TABLE,
    find,
    has_room,
    home_of,
    make_index,
    make_table,
)
from cqels.kernels.containers.key_index import is_far as table_is_far
from cqels.kernels.containers.row_set import (
    add_mark,
    empty_finder,
    expect_mark,
    hash_of,
    is_far,
    make_finder,
    mark_of,
    number_of,
    remove_mark,
    seek,
)
from cqels.kernels.containers.row_storage import (
    BAG,
    BARE,
    BEFORE,
    BUFFER_WORDS,
    DATA,
    FINDER,
    FIRST,
    FREE,
    INDEXES,
    KIND,
    MASK,
    NEXT,
    OWN,
    PATIENCE,
    RING,
    ROOM,
    ROWS,
    SCAN,
    STRIDE,
    WIDTH,
    build,
    close,
    enter_all,
    less,
    padded,
    put_head,
    resize,
    row_of,
    same,
    unlink,
    weight_at,
)
from cqels.kernels.memory.arena import Arena, copy, fetch, give, load, store, take
from cqels.model.errors import ArenaFull

AHEAD = 4
"""How many rows ahead of the one worked on is brought near what the next ones will touch."""
TOGETHER = 4
"""Rows or elements for which what they will touch is brought near at the same time, a power of two."""
_PATIENCE = 4  # rows that may be looked at for each that left in turn; to move one is worth as many
_SMALL = 64  # rows for which memory is not worth saving
_NEXT_FREE = 1  # where a free row of a bag says which comes next


def make_ring(arena: Arena, columns: int, *, room: int = 8, bare: bool = False) -> int:
    """A buffer whose rows leave in order of arrival. `room` is a power of two, and grows.

    If it is `bare`, all rows must have the stamps of what came from no element.
    """
    return _make(arena, RING, columns, room, bare=COLUMNS - 1 if bare else 0)


def make_bag(arena: Arena, columns: int, *, room: int = 8, own: int = 0) -> int:
    """A buffer whose rows leave in any order; an operator may keep `own` words with each row."""
    return _make(arena, BAG, columns, room, own=own)


def _make(arena: Arena, kind: int, columns: int, room: int, *, own: int = 0, bare: int = 0) -> int:
    buffer = arena.take(BUFFER_WORDS)
    width = COLUMNS + columns
    stride = width + own - bare
    block = arena.array(buffer, BUFFER_WORDS)
    block[[KIND, ROOM, WIDTH, STRIDE, OWN, BARE]] = kind, room, width, stride, own, bare
    block[DATA] = arena.take(room * stride)
    block[BEFORE] = bare - block[DATA]
    block[MASK] = room - 1 if kind == RING else -1
    block[PATIENCE] = _PATIENCE * _SMALL
    if kind == BAG:
        block[FINDER] = make_finder(arena.base)
        if block[FINDER] == 0:
            raise ArenaFull
    return buffer


def add_index(arena: Arena, buffer: int, columns: Sequence[int], *, by_stamps: bool = False, table: int = 0) -> int:
    """The index of a buffer on some columns, made if there is none: in a `table` (key_index.py) if that has room.

    Columns of an index are never unbound, but with `by_stamps` (bags only): then the rows of a key are kept in order,
    newest first, and the index never goes.
    """
    offsets = [COLUMNS + column for column in sorted(set(columns))]
    links = 1 if arena.words[buffer + KIND] == RING else 2
    link = 2 * int(arena.words[buffer + WIDTH] + arena.words[buffer + OWN])
    index = int(arena.words[buffer + INDEXES])
    while index != 0:
        link += links
        if list(arena.array(index + KEY, int(arena.words[index + KEY - 1]))) == offsets and (
            bool(arena.words[index + SORTED]) == by_stamps
        ):
            return index
        index = int(arena.words[index + FOLLOWING])
    if table == 0 or not has_room(arena, table):
        table = make_table(arena, len(offsets), lead=by_stamps)
    index = make_index(arena, table, offsets)
    stride = padded((link + links + 1) // 2 - int(arena.words[buffer + BARE]))
    if not resize(arena.base, buffer, int(arena.words[buffer + ROOM]), stride):
        raise ArenaFull
    arena.words[index + LINK] = link
    arena.words[index + SORTED] = by_stamps
    arena.words[index + FOLLOWING] = arena.words[buffer + INDEXES]
    arena.words[buffer + INDEXES] = index
    if by_stamps and not build(arena.base, buffer, index):
        raise ArenaFull
    return index


@kernel
def change(base, buffer, row):
    """Add a row to a buffer, or take one away, as its weight says: its position if it is there now.

    -1 if it is not there any more, -2 if the arena is full.
    """
    if load(base, buffer + KIND) == BAG:
        return _change_bag(base, buffer, row)
    if load(base, row + WEIGHT) > 0:
        return _append(base, buffer, row, load(base, row + WEIGHT))
    return _remove(base, buffer, row)


@kernel
def swap(base, buffer, row, twin):
    """Take a row away and add another that agrees with it in all that is indexed: False if the arena is full."""
    if load(base, buffer + KIND) == RING:
        return change(base, buffer, row) != -2 and change(base, buffer, twin) != -2
    mixed, other = row_hash(base, buffer, row), row_hash(base, buffer, twin)
    position = _locate(base, buffer, row, mixed)
    offset = row_of(base, buffer, position)
    if position < 0 or load(base, offset) != 1 or _locate(base, buffer, twin, other) >= 0:
        return change(base, buffer, row) != -2 and change(base, buffer, twin) != -2
    remove_mark(base, load(base, buffer + FINDER), mark_of(mixed, position))
    copy(base, twin, offset, load(base, buffer + WIDTH))
    return add_mark(base, load(base, buffer + FINDER), mark_of(other, position))


@kernel
def change_all(base, buffer, queue):
    """Apply every row of a queue to a buffer: False if the arena is full."""
    count = load(base, queue + QUEUED)
    for number in range(count):
        if number + AHEAD < count:
            expect_row(base, buffer, row_at(base, queue, number + AHEAD))
        if change(base, buffer, row_at(base, queue, number)) == -2:
            return False
    return True


@kernel
def expect_row(base, buffer, row):
    """Have what a change of this row will touch brought near."""
    index = load(base, buffer + INDEXES)
    while index != 0:
        if load(base, index + OPEN) != 0 and table_is_far(base, load(base, index + TABLE)):
            fetch(base, home_of(base, load(base, index + TABLE), row, index + KEY))
        index = load(base, index + FOLLOWING)
    if load(base, buffer + KIND) == BAG and is_far(base, load(base, buffer + FINDER)):
        expect_mark(base, load(base, buffer + FINDER), mark_of(row_hash(base, buffer, row), 0))


# --- rings


@kernel
def _append(base, buffer, row, weight):
    """Put a row at the end of a ring with this weight; the row's own is not read."""
    position, room = load(base, buffer + NEXT), load(base, buffer + ROOM)
    if position - load(base, buffer + FIRST) == room and (
        not resize(base, buffer, 2 * room, load(base, buffer + STRIDE))
    ):
        return -2
    offset, bare = row_of(base, buffer, position), load(base, buffer + BARE)
    store(base, offset + bare, weight)
    for word in range(bare + 1, load(base, buffer + WIDTH)):
        store(base, offset + word, load(base, row + word))
    store(base, buffer + NEXT, position + 1)
    store(base, buffer + ROWS, load(base, buffer + ROWS) + 1)
    if not enter_all(base, buffer, position, row):
        return -2
    return position


@kernel
def evict(base, buffer):
    """Forget the oldest row of a ring that has one."""
    _drop(base, buffer, load(base, buffer + FIRST))
    _shrink(base, buffer)


@kernel
def _remove(base, buffer, row):
    """Take a row from a ring: -1, or its position if it is there still, or -2 if the arena is full."""
    weight = load(base, row + WEIGHT)
    missing = -weight
    while missing > 0:
        position = _leaving(base, buffer, row)
        if position < 0:
            if not become_bag(base, buffer):
                return -2
            store(base, row + WEIGHT, -missing)
            position = _change_bag(base, buffer, row)
            store(base, row + WEIGHT, weight)  # others may read the row too
            return position
        there = load(base, weight_at(base, buffer, position))
        if there > missing:
            store(base, weight_at(base, buffer, position), there - missing)
            return position
        missing -= there
        _drop(base, buffer, position)
    _shrink(base, buffer)
    return -1


@kernel
def _leaving(base, buffer, row):
    """The position of a row that leaves a ring, when those have been moved that stay; -1 if it is to be a bag."""
    first, end = load(base, buffer + FIRST), load(base, buffer + NEXT)
    span, patience = end - first, load(base, buffer + PATIENCE)
    found = _seen(base, buffer, row, first, min(first + SCAN, end))
    if found >= 0:
        patience = min(patience + _PATIENCE, _PATIENCE * max(span, _SMALL))
        while load(base, buffer + FIRST) < found and patience >= _PATIENCE:
            if not _move_first(base, buffer):
                return -1
            patience -= _PATIENCE
        store(base, buffer + PATIENCE, patience)
        return found if load(base, buffer + FIRST) == found else -1
    if patience < span or span - load(base, buffer + ROWS) >= _SMALL:
        return -1
    store(base, buffer + PATIENCE, patience - span)
    return _seen(base, buffer, row, first, end)


@kernel
def _seen(base, buffer, row, first, end):
    """The first position of those from one to another that has a row, or -1."""
    width, bare = load(base, buffer + WIDTH), load(base, buffer + BARE)
    for position in range(first, end):
        offset = row_of(base, buffer, position)
        if load(base, offset + bare) != 0 and same(base, offset, row, bare + 1, width):
            return position
    return -1


@kernel
def _move_first(base, buffer):
    """Let the oldest row of a ring be the newest: False if the arena is full."""
    first = load(base, buffer + FIRST)
    weight = load(base, weight_at(base, buffer, first))
    _drop(base, buffer, first)
    # what it was is there until it is written again
    return _append(base, buffer, row_of(base, buffer, first), weight) >= 0


@kernel
def _drop(base, buffer, position):
    """Forget the row at a position of a ring, and the holes behind it if it is the oldest."""
    fetch(base, weight_at(base, buffer, position + AHEAD))  # its turn comes soon, and it has long not been looked at
    store(base, weight_at(base, buffer, position), 0)
    store(base, buffer + ROWS, load(base, buffer + ROWS) - 1)
    first, end = load(base, buffer + FIRST), load(base, buffer + NEXT)
    while first < end:
        offset = row_of(base, buffer, first)
        if load(base, weight_at(base, buffer, first)) != 0:
            break
        index = load(base, buffer + INDEXES)
        while index != 0:
            if load(base, index + OPEN) != 0:
                found = find(base, index, offset, index + KEY)
                store(base, found, less(load(base, found)))
            index = load(base, index + FOLLOWING)
        first += 1
    store(base, buffer + FIRST, first)


@kernel
def _shrink(base, buffer):
    """Give memory back if a ring has far more room than rows."""
    room = load(base, buffer + ROOM)
    if room > _SMALL and (load(base, buffer + NEXT) - load(base, buffer + FIRST)) * 8 < room:
        resize(base, buffer, room // 2, load(base, buffer + STRIDE))


@kernel
def become_bag(base, buffer):
    """Let a ring be a bag from now on; its indexes are built again when they are asked: False if the arena is full."""
    rows, room = load(base, buffer + ROWS), _SMALL // 2
    links_at = load(base, buffer + WIDTH) + load(base, buffer + OWN)
    stride = links_at
    index = load(base, buffer + INDEXES)
    while index != 0:
        stride += 1
        index = load(base, index + FOLLOWING)
    stride = padded(stride)
    while room < rows:
        room *= 2
    data = take(base, room * stride)
    if data == 0:
        return False
    finder, row = make_finder(base), take(base, links_at)
    if finder == 0 or row == 0 or not empty_finder(base, finder, rows):
        give(base, data, room * stride)
        return False  # what else was taken is little
    index = load(base, buffer + INDEXES)
    while index != 0:
        if load(base, index + OPEN) != 0:
            close(base, buffer, index)
        store(base, index + LINK, 2 * (load(base, index + LINK) - links_at))  # a bag has two where a ring has one
        index = load(base, index + FOLLOWING)
    old, size, before = load(base, buffer + DATA), load(base, buffer + ROOM), load(base, buffer + STRIDE)
    first, end, bare = load(base, buffer + FIRST), load(base, buffer + NEXT), load(base, buffer + BARE)
    store(base, buffer + KIND, BAG)
    store(base, buffer + ROWS, 0)
    store(base, buffer + ROOM, room)
    store(base, buffer + STRIDE, stride)
    store(base, buffer + DATA, data)
    store(base, buffer + MASK, -1)
    store(base, buffer + FIRST, 0)
    store(base, buffer + NEXT, 0)
    store(base, buffer + FINDER, finder)
    store(base, buffer + BARE, 0)
    store(base, buffer + BEFORE, -data)
    for position in range(first, end):
        offset = old - bare + (position & (size - 1)) * before
        put_head(base, bare, offset, row)
        copy(base, offset + COLUMNS, row + COLUMNS, links_at - COLUMNS)
        if load(base, row) != 0 and _change_bag(base, buffer, row) == -2:
            return False
    give(base, old, size * before)
    give(base, row, links_at)
    return True


# --- bags


@kernel
def locate(base, buffer, row):
    """The position of a row in a bag, or -1."""
    return _locate(base, buffer, row, row_hash(base, buffer, row))


@kernel
def _locate(base, buffer, row, mixed):
    finder, mark = load(base, buffer + FINDER), mark_of(mixed, 0)
    slot = seek(base, finder, mark, 0)
    while slot != 0:
        position = number_of(load(base, slot))
        if same(base, row_of(base, buffer, position), row, WEIGHT + 1, load(base, buffer + WIDTH)):
            return position
        slot = seek(base, finder, mark, slot)
    return -1


@kernel
def _change_bag(base, buffer, row):
    weight, mixed = load(base, row + WEIGHT), row_hash(base, buffer, row)
    position = _locate(base, buffer, row, mixed)
    if position < 0:
        return -1 if weight == 0 else _insert(base, buffer, row, mixed)
    offset = row_of(base, buffer, position)
    weight += load(base, offset)
    if weight == 0:
        _delete(base, buffer, position, mixed)
        return -1
    store(base, offset, weight)
    return position


@kernel
def _insert(base, buffer, row, mixed):
    width = load(base, buffer + WIDTH)
    position = load(base, buffer + FREE) - 1
    if position < 0:
        position = load(base, buffer + NEXT)
        room = load(base, buffer + ROOM)
        if position == room and not resize(base, buffer, 2 * room, load(base, buffer + STRIDE)):
            return -2
    if not add_mark(base, load(base, buffer + FINDER), mark_of(mixed, position)):
        return -2
    offset = row_of(base, buffer, position)
    if load(base, buffer + FREE) != 0:
        store(base, buffer + FREE, load(base, offset + _NEXT_FREE))
    else:
        store(base, buffer + NEXT, position + 1)
    copy(base, row, offset, width)
    for word in range(load(base, buffer + OWN)):
        store(base, offset + width + word, 0)
    store(base, buffer + ROWS, load(base, buffer + ROWS) + 1)
    if not enter_all(base, buffer, position, row):
        return -2
    return position


@kernel
def _delete(base, buffer, position, mixed):
    offset = row_of(base, buffer, position)
    index = load(base, buffer + INDEXES)
    while index != 0:
        if load(base, index + OPEN) != 0:
            unlink(base, buffer, index, offset)
        index = load(base, index + FOLLOWING)
    remove_mark(base, load(base, buffer + FINDER), mark_of(mixed, position))
    store(base, offset, 0)
    store(base, offset + _NEXT_FREE, load(base, buffer + FREE))
    store(base, buffer + FREE, position + 1)
    rows, end = load(base, buffer + ROWS) - 1, load(base, buffer + NEXT)
    store(base, buffer + ROWS, rows)
    if end > _SMALL and rows * 4 < end:
        _compact(base, buffer)


@kernel
def _compact(base, buffer):
    """Write a bag's rows close together; its indexes are built again when they are asked."""
    old, end = load(base, buffer + DATA), load(base, buffer + NEXT)
    room, stride = load(base, buffer + ROOM), load(base, buffer + STRIDE)
    smaller = room
    while smaller > _SMALL // 2 and smaller >= 4 * load(base, buffer + ROWS):
        smaller //= 2
    data = take(base, smaller * stride)
    if data == 0:
        return  # nothing is lost but time
    finder = load(base, buffer + FINDER)
    if not empty_finder(base, finder, load(base, buffer + ROWS)):
        give(base, data, smaller * stride)
        return
    store(base, buffer + ROOM, smaller)
    store(base, buffer + DATA, data)
    store(base, buffer + BEFORE, -data)
    store(base, buffer + FREE, 0)
    kept = 0
    for position in range(end):
        if load(base, old + position * stride) != 0:
            copy(base, old + position * stride, data + kept * stride, stride)
            add_mark(base, finder, mark_of(row_hash(base, buffer, data + kept * stride), kept))
            kept += 1
    store(base, buffer + NEXT, kept)
    give(base, old, room * stride)
    index = load(base, buffer + INDEXES)
    while index != 0:
        if load(base, index + OPEN) != 0:
            close(base, buffer, index)
            if load(base, index + SORTED) != 0:
                build(base, buffer, index)
        index = load(base, index + FOLLOWING)


@kernel
def row_hash(base, buffer, row):
    """The hash by which a bag finds a row."""
    return hash_of(base, row + TIME, load(base, buffer + WIDTH) - TIME)
