"""DISTINCT: a solution appears with its first duplicate and goes with its last (JWS Alg. 7).

Without freshness a one-way index counts duplicates, and the output comes from no element: its stamps are NEVER and
ALWAYS.  With freshness all duplicates are kept, and the output has the stamps of the newest: a newer one replaces it.
With spans, the oldest element of the output is that of all duplicates.

    word   of a distinct
    0      left to the engine
    1, 2   queues of input and output
    3      one-way index of all columns; 0 with freshness
    4, 5   with freshness: bag of the duplicates, and its index of all columns in order of stamps
    6      with freshness: offset of the row that was newest
    7      with freshness: 1 with spans
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import (
    ALWAYS,
    COLUMNS,
    NEVER,
    NUMBER,
    OLDEST,
    TIME,
    WEIGHT,
    WIDTH,
    add_row,
    row_at,
    said,
)
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.key_index import FULL, KEY, LINK, NEWEST, OPEN, count_key, find, make_counter
from cqels.kernels.containers.row_buffer import add_index, change, make_bag
from cqels.kernels.containers.row_storage import link_of, row_of
from cqels.kernels.memory.arena import Arena, copy, load, store

IN, OUT, COUNTS, DUPLICATES, BY_STAMPS, BEFORE, SPANS = range(1, 8)


def make_distinct(arena: Arena, out: int, queue: int, *, freshness: bool, spans: bool = False) -> int:
    """Let each solution of a queue through once."""
    columns = int(arena.words[queue + WIDTH]) - COLUMNS
    offset = arena.take(8)
    words = arena.array(offset, 8)
    words[IN], words[OUT], words[SPANS] = queue, out, spans
    if freshness:
        words[DUPLICATES] = make_bag(arena, columns)
        words[BY_STAMPS] = add_index(arena, int(words[DUPLICATES]), range(columns), by_stamps=True)
        words[BEFORE] = arena.take(COLUMNS + columns)
    else:
        words[COUNTS] = make_counter(arena, [COLUMNS + column for column in range(columns)])
    return offset


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
    return _emit(base, distinct, row, 1 if before <= 0 else -1, ALWAYS)


@kernel
def _replace(base, distinct, row):
    bag, index, before = (
        load(base, distinct + DUPLICATES),
        load(base, distinct + BY_STAMPS),
        load(base, distinct + BEFORE),
    )
    if load(base, index + OPEN) == 0:
        return False  # it could not be built again in a full arena
    newest = _newest(base, bag, index, row)
    if newest != 0:
        copy(base, newest, before, load(base, load(base, distinct + IN) + WIDTH))
        store(base, before + OLDEST, _oldest(base, distinct, bag, index, newest))
    if change(base, bag, row) == -2 or load(base, index + OPEN) == 0:
        return False
    now = _newest(base, bag, index, row)
    oldest = _oldest(base, distinct, bag, index, now) if now != 0 else ALWAYS
    if newest != 0 and now != 0 and oldest == load(base, before + OLDEST) and _as_new(base, before, now):
        return True
    if newest != 0 and not _emit(base, distinct, before, -1, load(base, before + OLDEST)):
        return False
    return now == 0 or _emit(base, distinct, now, 1, oldest)


@kernel
def _as_new(base, one, other):
    return load(base, one + TIME) == load(base, other + TIME) and load(base, one + NUMBER) == load(base, other + NUMBER)


@kernel
def _oldest(base, distinct, bag, index, newest):
    """The time of the oldest element of a solution whose newest duplicate is at an offset."""
    oldest = load(base, newest + OLDEST)
    if load(base, distinct + SPANS) == 0:
        return oldest
    rows = load(base, find(base, index, newest, index + KEY))
    position = rows & NEWEST
    for _ in range(rows >> 32):
        offset = row_of(base, bag, position)
        if load(base, offset + WEIGHT) > 0:
            oldest = min(oldest, load(base, offset + OLDEST))
        position = link_of(base, offset, load(base, index + LINK))
    return oldest


@kernel
def _newest(base, bag, index, row):
    """The offset of the newest duplicate of a row, or 0. A negative weight is a row taken back too early: it waits."""
    rows = load(base, find(base, index, row, index + KEY))
    position = rows & NEWEST
    for _ in range(rows >> 32):
        offset = row_of(base, bag, position)
        if load(base, offset + WEIGHT) > 0:
            return offset
        position = link_of(base, offset, load(base, index + LINK))
    return 0


@kernel
def _emit(base, distinct, row, weight, oldest):
    out = load(base, distinct + OUT)
    target = add_row(base, out)
    if target == 0:
        return False
    copy(base, row, target, load(base, out + WIDTH))
    store(base, target + WEIGHT, weight)
    store(base, target + OLDEST, oldest)
    if load(base, distinct + COUNTS) != 0:
        store(base, target + TIME, NEVER)
        store(base, target + NUMBER, -1)
    return True


@kernel
def distinct_step(base, operator, now):
    """The step as the scheduler takes it."""
    return said(step_distinct(base, operator))
