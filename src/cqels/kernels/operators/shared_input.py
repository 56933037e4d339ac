"""Shared input (FEED): rows that another pipeline logged for a tick, so that one join serves all queries that have it.

The pipeline that feeds others works a block of elements off before those that are fed. What its solutions change at a
tick goes into a log as it is, stamps and all, with the number of the tick behind its columns. Those that are fed have
the same ticks, since they read the same streams under the same slides; but each counts its own, since a change of the
dataset is a tick for those alone that read it, and for the one that feeds them. Such a tick may let elements go: the
others find what it changed at their next tick. When all have taken all, the log is emptied.

    word   of the operator
    0      queue of the log
    1      queue of the output
    2      offset of the word where the pipeline that is fed counts its ticks
    3      how far that count is ahead of the other's, set when a block begins
    4      the row of the log to go on with
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import ALWAYS, COUNT, WIDTH, add_row, row_at, said
from cqels.kernels.memory.arena import Arena, copy, load, store

LOG, OUT, COUNTED_AT, AHEAD, ROW = range(5)
FEED_WORDS = 5


def make_shared_input(arena: Arena, out: int, log: int) -> int:
    """Bring rows from a log to a queue; the caller sets where ticks are counted (`COUNTED_AT`)."""
    offset = arena.take(FEED_WORDS)
    arena.array(offset, FEED_WORDS)[:] = log, out, 0, 0, 0
    return offset


@kernel
def log_rows(base, solutions, log, tick):
    """Put the rows of a queue into a log: False if the arena is full."""
    width = load(base, solutions + WIDTH)
    for number in range(load(base, solutions + COUNT)):
        made = add_row(base, log)
        if made == 0:
            return False
        copy(base, row_at(base, solutions, number), made, width)
        store(base, made + width, tick)
    return True


@kernel
def step_shared_input(base, operator):
    """Bring the rows of this tick, and those left from before: False if the arena is full."""
    log, out = load(base, operator + LOG), load(base, operator + OUT)
    number, count = load(base, operator + ROW), load(base, log + COUNT)
    if number >= count:
        return True
    width = load(base, out + WIDTH)
    tick = load(base, load(base, operator + COUNTED_AT)) - load(base, operator + AHEAD)
    while number < count:
        row = row_at(base, log, number)
        if load(base, row + width) > tick:
            break
        made = add_row(base, out)
        if made == 0:
            return False
        copy(base, row, made, width)
        number += 1
    store(base, operator + ROW, number)
    return True


@kernel
def next_logged(base, operator):
    """The tick, as the pipeline that is fed counts them, at which there are rows to bring: ALWAYS if there are none."""
    log, number = load(base, operator + LOG), load(base, operator + ROW)
    if number >= load(base, log + COUNT):
        return ALWAYS
    row = row_at(base, log, number)
    return load(base, row + load(base, load(base, operator + OUT) + WIDTH)) + load(base, operator + AHEAD)


@kernel
def shared_input_step(base, operator, now):
    """The step as the scheduler takes it."""
    return said(step_shared_input(base, operator))
