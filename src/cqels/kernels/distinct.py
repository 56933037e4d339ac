"""DISTINCT: a solution appears with its first duplicate and goes with its last (JWS Alg. 7).

Without freshness a one-way index counts duplicates, and the output comes from no element: its stamps are NEVER and
ALWAYS.  With freshness all duplicates are kept, and the output has the stamps of the newest: a newer one replaces it.

    word   of a distinct
    0      left to the engine
    1, 2   queues of input and output
    3      one-way index of all columns; 0 with freshness
    4, 5   with freshness: bag of the duplicates, and its index of all columns in order of stamps
    6      with freshness: place of the row that was newest
"""

from __future__ import annotations

from cqels.kernels.buffers import add_index, change, make_bag, newer, row_of
from cqels.kernels.index import COUNT, FULL, HEAD, KEY, LINK, TABLE, count_key, find, make_counter
from cqels.kernels.jit import kernel
from cqels.kernels.memory import Arena, copy, load, store
from cqels.kernels.rows import ALWAYS, COLUMNS, NEVER, NUMBER, OLDEST, TIME, WEIGHT, WIDTH, add_row, row_at, said
from cqels.kernels.rows import COUNT as QUEUED

IN, OUT, COUNTS, DUPLICATES, BY_STAMPS, BEFORE = range(1, 7)


def make_distinct(arena: Arena, out: int, queue: int, *, freshness: bool) -> int:
    """Let each solution of a queue through once."""
    columns = int(arena.words[queue + WIDTH]) - COLUMNS
    place = arena.take(7)
    words = arena.array(place, 7)
    words[IN], words[OUT] = queue, out
    if freshness:
        words[DUPLICATES] = make_bag(arena, columns)
        words[BY_STAMPS] = add_index(arena, int(words[DUPLICATES]), range(columns), by_stamps=True)
        words[BEFORE] = arena.take(COLUMNS + columns)
    else:
        words[COUNTS] = make_counter(arena, [COLUMNS + column for column in range(columns)])
    return place


@kernel
def step_distinct(base, distinct):
    """Work off the changes of the input: False if the arena is full."""
    queue, fresh = load(base, distinct + IN), load(base, distinct + COUNTS) == 0
    for number in range(load(base, queue + QUEUED)):
        row = row_at(base, queue, number)
        if fresh:
            if not _replace(base, distinct, row):
                return False
        elif not _count(base, distinct, row):
            return False
    return True


@kernel
def _count(base, distinct, row):
    weight = load(base, row + WEIGHT)
    before = count_key(base, load(base, distinct + COUNTS), row, weight)
    if before == FULL:
        return False
    if (before > 0) == (before + weight > 0):
        return True
    return _emit(base, distinct, row, 1 if before <= 0 else -1, False)


@kernel
def _replace(base, distinct, row):
    bag, index, before = (
        load(base, distinct + DUPLICATES),
        load(base, distinct + BY_STAMPS),
        load(base, distinct + BEFORE),
    )
    if load(base, index + TABLE) == 0:
        return False  # it could not be built again in a full arena
    newest = _newest(base, bag, index, row)
    if newest != 0:
        copy(base, newest, before, load(base, load(base, distinct + IN) + WIDTH))
    if change(base, bag, row) == -2 or load(base, index + TABLE) == 0:
        return False
    now = _newest(base, bag, index, row)
    if newest != 0 and now != 0 and not newer(base, before, now) and not newer(base, now, before):
        return True
    if newest != 0 and not _emit(base, distinct, before, -1, True):
        return False
    return now == 0 or _emit(base, distinct, now, 1, True)


@kernel
def _newest(base, bag, index, row):
    """The place of the newest duplicate of a row, or 0. A negative weight is a row taken back too early: it waits."""
    entry = find(base, index, row, index + KEY)
    position = load(base, entry + HEAD) - 1
    for _ in range(load(base, entry + COUNT)):
        place = row_of(base, bag, position)
        if load(base, place + WEIGHT) > 0:
            return place
        position = load(base, place + load(base, index + LINK))
    return 0


@kernel
def _emit(base, distinct, row, weight, stamped):
    out = load(base, distinct + OUT)
    target = add_row(base, out)
    if target == 0:
        return False
    copy(base, row, target, load(base, out + WIDTH))
    store(base, target + WEIGHT, weight)
    if not stamped:
        store(base, target + TIME, NEVER)
        store(base, target + NUMBER, -1)
        store(base, target + OLDEST, ALWAYS)
    return True


@kernel
def distinct_step(base, operator, now):
    """The step as the machine takes it."""
    return said(step_distinct(base, operator))
