"""OPTIONAL, MINUS, EXISTS and NOT EXISTS: a left row's fate is how many right rows match it (JWS Alg. 8).

Each left row is kept with the number of right rows that match it; a change on the right counts up or down what it
matches, and the left rows whose number becomes or ceases to be 0 come or go.  What a right row has beyond the columns
that decide about a match is not kept, and neither are its stamps, but for OPTIONAL: so a right solution counts once,
however often it is there.

A right row matches if no column bound on both sides differs, or if EXACT, no column at all.  For MINUS at least one
column must be bound on both sides.

    word   of a negation
    0      left to the engine
    1      LEFT_JOIN, SEMI_JOIN (EXISTS), ANTI_JOIN (NOT EXISTS) or MINUS
    2      queue of the output
    3, 4   queues of left and right
    5, 6   bags of left and right; a left row has its number of matches in the first word of its own
    7      1 if columns on both sides have to be equal, unbound ones too
    8      offset of the row put together: columns of the left, then those of the right that the left has not
    9      offset of a right row as it is kept
    10, 11 columns kept of the right: number, offset of where in its rows they are
    12, 13 columns on both sides: number, offset of pairs (where in a left row, where in a right row as kept)
    14, 15 columns only on the right: number, offset of pairs (where in a right row as kept, where in a joined row)
    16–19  indexes of left and right, or 0, and offsets of where in a row of the other side their keys are
    20     LEFT_JOIN: 0, or SEQ or EQUALS: what the times of two rows that match must be to each other
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import (
    ALWAYS,
    COLUMNS,
    NEVER,
    NUMBER,
    OLDEST,
    TIME,
    WEIGHT,
    add_row,
    in_time,
    put_stamps,
    row_at,
    said,
)
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.delta_queue import WIDTH as ROW_WIDTH
from cqels.kernels.containers.key_index import KEYS, LINK, NEWEST
from cqels.kernels.containers.row_buffer import add_index, change, locate, make_bag
from cqels.kernels.containers.row_storage import FIRST, NEXT, WIDTH, link_of, probe, row_of
from cqels.kernels.memory.arena import Arena, copy, load, store, write_words

LEFT_JOIN, SEMI_JOIN, ANTI_JOIN, MINUS = range(4)
MODE, OUT, LEFT, RIGHT, LEFT_BAG, RIGHT_BAG, EXACT, ROW, KEPT, KEEP, KEEP_AT, SHARED, SHARED_AT, ADDED, ADDED_AT = (
    range(1, 16)
)
LEFT_INDEX, LEFT_KEY, RIGHT_INDEX, RIGHT_KEY, TIMING, NEGATION_WORDS = 16, 17, 18, 19, 20, 21


def make_negation(
    arena: Arena,
    mode: int,
    out: int,
    left: int,
    right: int,
    columns: Sequence[int],
    *,
    left_nullable: Collection[int] = (),
    right_nullable: Collection[int] = (),
    exact: bool = False,
    timing: int = 0,
    room: int = 8,
) -> int:
    """Match the rows of two queues.

    The columns of a row put together are those of the left, then more of the right: `columns[i]` is where column i of
    the right goes, -1 if the output does not need it.  LEFT_JOIN puts out rows put together; the others put out left
    rows.  `left_nullable` and `right_nullable` are columns of either side that may be unbound;
    `exact` lets an unbound column match only an unbound one.
    LEFT_JOIN can ask for the times of rows that match to be in SEQ or EQUALS (`timing`).
    """
    if timing and mode != LEFT_JOIN:
        raise ValueError("only OPTIONAL keeps the times of the right, to compare them")
    width = int(arena.words[left + ROW_WIDTH]) - COLUMNS
    # but for OPTIONAL only the columns on both sides matter
    kept = [
        column for column, output in enumerate(columns) if 0 <= output < width or (mode == LEFT_JOIN and output >= 0)
    ]
    shared = [(columns[column], number) for number, column in enumerate(kept) if columns[column] < width]
    added = [(number, columns[column]) for number, column in enumerate(kept) if columns[column] >= width]
    offset = arena.take(NEGATION_WORDS)
    words = arena.array(offset, NEGATION_WORDS)
    words[[MODE, OUT, LEFT, RIGHT, EXACT, TIMING]] = mode, out, left, right, exact, timing
    words[LEFT_BAG] = make_bag(arena, width, room=room, own=1)
    words[RIGHT_BAG] = make_bag(arena, len(kept), room=room)
    words[ROW] = arena.take(COLUMNS + max([width, *(column + 1 for column in columns)]))
    words[KEPT] = arena.take(COLUMNS + len(kept))
    words[KEEP], words[KEEP_AT] = len(kept), write_words(arena, [COLUMNS + column for column in kept])
    words[SHARED] = len(shared)
    words[SHARED_AT] = write_words(arena, [COLUMNS + column for pair in shared for column in pair])
    words[ADDED], words[ADDED_AT] = (
        len(added),
        write_words(arena, [COLUMNS + column for pair in added for column in pair]),
    )
    left_certain = [pair for pair in shared if pair[0] not in left_nullable]
    right_certain = [pair for pair in shared if kept[pair[1]] not in right_nullable]
    both = [pair for pair in left_certain if pair in right_certain]
    # a key that only the indexed side has for certain serves the rows of the other side in which it is bound
    if on_left := sorted(both or left_certain):
        words[LEFT_INDEX] = add_index(arena, int(words[LEFT_BAG]), [pair[0] for pair in on_left])
        words[LEFT_KEY] = write_words(arena, [COLUMNS + column for column in _other(on_left, 0)])
    if on_right := sorted(both or right_certain, key=lambda pair: pair[1]):
        words[RIGHT_INDEX] = add_index(arena, int(words[RIGHT_BAG]), [pair[1] for pair in on_right])
        words[RIGHT_KEY] = write_words(arena, [COLUMNS + column for column in _other(on_right, 1)])
    return offset


def _other(pairs: list[tuple[int, int]], side: int) -> list[int]:
    """For each column of one side, in order and once, a column of the other side that goes with it."""
    found: dict[int, int] = {}
    for pair in pairs:
        found.setdefault(pair[side], pair[1 - side])
    return list(found.values())


@kernel
def step_negation(base, negation):
    """Work off the changes of the left, then those of the right: False if the arena is full."""
    left, right = load(base, negation + LEFT), load(base, negation + RIGHT)
    for number in range(load(base, left + QUEUED)):
        if not _change_left(base, negation, row_at(base, left, number)):
            return False
    for number in range(load(base, right + QUEUED)):
        if not _change_right(base, negation, row_at(base, right, number)):
            return False
    return True


@kernel
def _change_left(base, negation, row):
    bag, mode, weight = load(base, negation + RIGHT_BAG), load(base, negation + MODE), load(base, row + WEIGHT)
    left, position, link = _matches(
        base, bag, load(base, negation + RIGHT_INDEX), row, load(base, negation + RIGHT_KEY)
    )
    found = 0
    while left > 0:
        match = row_of(base, bag, position)
        position = link_of(base, match, link) if link != 0 else position + 1
        left -= 1
        times = load(base, match + WEIGHT)
        if times == 0 or not _holds(base, negation, row, match):
            continue
        if times > 0:
            found += 1
        if mode == LEFT_JOIN and not _emit_both(base, negation, row, match, weight * times):
            return False
    if (found != 0) == (mode == SEMI_JOIN) and not _emit_left(base, negation, row, weight):
        return False
    bag = load(base, negation + LEFT_BAG)
    position = change(base, bag, row)
    if position >= 0:
        store(base, row_of(base, bag, position) + load(base, bag + WIDTH), found)
    return position != -2


@kernel
def _change_right(base, negation, row):
    kept, weight, mode = _keep(base, negation, row), load(base, row + WEIGHT), load(base, negation + MODE)
    bag = load(base, negation + RIGHT_BAG)
    position = locate(base, bag, kept)
    before = load(base, row_of(base, bag, position)) if position >= 0 else 0
    if change(base, bag, kept) == -2:
        return False
    turn = (1 if before + weight > 0 else 0) - (1 if before > 0 else 0)
    if turn == 0 and mode != LEFT_JOIN:
        return True
    bag = load(base, negation + LEFT_BAG)
    own = load(base, bag + WIDTH)
    left, position, link = _matches(base, bag, load(base, negation + LEFT_INDEX), kept, load(base, negation + LEFT_KEY))
    while left > 0:
        match = row_of(base, bag, position)
        position = link_of(base, match, link) if link != 0 else position + 1
        left -= 1
        times = load(base, match + WEIGHT)
        if times == 0 or not _holds(base, negation, match, kept):
            continue
        if mode == LEFT_JOIN and not _emit_both(base, negation, match, kept, weight * times):
            return False
        found = load(base, match + own)
        store(base, match + own, found + turn)
        if (found == 0) != (found + turn == 0):
            appears = (found + turn != 0) == (mode == SEMI_JOIN)
            if not _emit_left(base, negation, match, times if appears else -times):
                return False
    return True


@kernel
def _matches(base, bag, index, row, offsets):
    """Where to look for the rows of a bag that may match: how many, the first position, the link to follow or 0."""
    if index != 0:
        usable = True
        for number in range(load(base, index + KEYS)):
            if load(base, row + load(base, offsets + number)) == 0:
                usable = False
                break
        if usable:
            found = probe(base, bag, index, row, offsets)
            if found != 0:
                rows = load(base, found)
                return rows >> 32, rows & NEWEST, load(base, index + LINK)
    return load(base, bag + NEXT) - load(base, bag + FIRST), load(base, bag + FIRST), 0


@kernel
def _holds(base, negation, left, right):
    """Whether a left and a right row match."""
    common, offset, exact = 0, load(base, negation + SHARED_AT), load(base, negation + EXACT) != 0
    for _ in range(load(base, negation + SHARED)):
        one, other = load(base, left + load(base, offset)), load(base, right + load(base, offset + 1))
        offset += 2
        if one == other:
            common += 1 if one != 0 else 0
        elif exact or (one != 0 and other != 0):
            return False
    timing = load(base, negation + TIMING)
    if timing != 0 and not in_time(base, timing, left, right):
        return False
    return common > 0 or load(base, negation + MODE) != MINUS


@kernel
def _keep(base, negation, row):
    """Write what is kept of a right row: its offset."""
    kept, stamped = load(base, negation + KEPT), load(base, negation + MODE) == LEFT_JOIN
    store(base, kept + WEIGHT, load(base, row + WEIGHT))
    store(base, kept + TIME, load(base, row + TIME) if stamped else NEVER)
    store(base, kept + NUMBER, load(base, row + NUMBER) if stamped else -1)
    store(base, kept + OLDEST, load(base, row + OLDEST) if stamped else ALWAYS)
    offset = load(base, negation + KEEP_AT)
    for number in range(load(base, negation + KEEP)):
        store(base, kept + COLUMNS + number, load(base, row + load(base, offset + number)))
    return kept


@kernel
def _put_left(base, negation, left, target):
    """Write the left columns of a row put together, and leave the others unbound."""
    width = load(base, load(base, negation + LEFT_BAG) + WIDTH)
    for word in range(COLUMNS, width):
        store(base, target + word, load(base, left + word))
    offset = load(base, negation + ADDED_AT)
    for _ in range(load(base, negation + ADDED)):
        store(base, target + load(base, offset + 1), 0)
        offset += 2


@kernel
def _put_right(base, negation, right, target):
    """Write the right columns of a row put together: the bound value wins."""
    offset = load(base, negation + SHARED_AT)
    for _ in range(load(base, negation + SHARED)):
        value = load(base, right + load(base, offset + 1))
        if value != 0:
            store(base, target + load(base, offset), value)
        offset += 2
    offset = load(base, negation + ADDED_AT)
    for _ in range(load(base, negation + ADDED)):
        store(base, target + load(base, offset + 1), load(base, right + load(base, offset)))
        offset += 2


@kernel
def _emit_both(base, negation, left, right, weight):
    target = add_row(base, load(base, negation + OUT))
    if target == 0:
        return False
    _put_left(base, negation, left, target)
    _put_right(base, negation, right, target)
    put_stamps(base, target, left, right)
    store(base, target + WEIGHT, weight)
    return True


@kernel
def _emit_left(base, negation, left, weight):
    target = add_row(base, load(base, negation + OUT))
    if target == 0:
        return False
    copy(base, left, target, load(base, load(base, negation + LEFT_BAG) + WIDTH))
    if load(base, negation + MODE) == LEFT_JOIN:
        _put_left(base, negation, left, target)
    store(base, target + WEIGHT, weight)
    return True


@kernel
def negation_step(base, operator, now):
    """The step as the scheduler takes it."""
    return said(step_negation(base, operator))
