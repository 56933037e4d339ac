"""FILTER and EXTEND: the operators that look at one row at a time.

    word   of the operator
    0, 1   places of the queues it reads and writes
    2      place of the program (`cqels.kernels.expression`)
    3      place of the dictionary
    4      rows read: where to go on after Python has answered
    5      EXTEND: the column of the result; an error leaves it unbound

A step appends to the output and leaves the input as it is.  It gives DONE when all rows are read, and the next step
begins with the first row again; NEED_CALL and FULL say why it stopped, and the next step goes on with the same row.
"""

from __future__ import annotations

from cqels.kernels.expression import DONE, FULL, NEED_CALL, holds, result_word, value
from cqels.kernels.jit import kernel
from cqels.kernels.memory import copy, load, store, take
from cqels.kernels.registers import ASK, YES
from cqels.kernels.rows import COLUMNS, COUNT, WIDTH, add_row, row_at

INPUT, OUTPUT, PROGRAM, DICTIONARY, CURSOR, COLUMN = range(6)
SELECT_WORDS = 6


@kernel
def make_select(base, source, target, program, dictionary, column):
    """A new FILTER or EXTEND (`column`; a FILTER has none): its place, or 0 if the arena is full."""
    operator = take(base, SELECT_WORDS)
    if operator == 0:
        return 0
    store(base, operator + INPUT, source)
    store(base, operator + OUTPUT, target)
    store(base, operator + PROGRAM, program)
    store(base, operator + DICTIONARY, dictionary)
    store(base, operator + COLUMN, column)
    return operator


@kernel
def filter_step(base, operator, now):
    """Copy the rows for which the program holds; both queues have rows of one width."""
    source, target = load(base, operator + INPUT), load(base, operator + OUTPUT)
    program, dictionary = load(base, operator + PROGRAM), load(base, operator + DICTIONARY)
    width = load(base, source + WIDTH)
    for number in range(load(base, operator + CURSOR), load(base, source + COUNT)):
        row = row_at(base, source, number)
        answer = holds(base, program, row, dictionary, now)
        if answer == ASK:
            store(base, operator + CURSOR, number)
            return NEED_CALL
        if answer == YES:
            kept = add_row(base, target)
            if kept == 0:
                store(base, operator + CURSOR, number)
                return FULL
            copy(base, row, kept, width)
    store(base, operator + CURSOR, 0)
    return DONE


@kernel
def extend_step(base, operator, now):
    """Copy all rows with the program's result in a further column; rows of the output are at least as wide."""
    source, target = load(base, operator + INPUT), load(base, operator + OUTPUT)
    program, dictionary = load(base, operator + PROGRAM), load(base, operator + DICTIONARY)
    column = COLUMNS + load(base, operator + COLUMN)
    width, target_width = load(base, source + WIDTH), load(base, target + WIDTH)
    for number in range(load(base, operator + CURSOR), load(base, source + COUNT)):
        row = row_at(base, source, number)
        if value(base, program, row, dictionary, now) == NEED_CALL:
            store(base, operator + CURSOR, number)
            return NEED_CALL
        extended = add_row(base, target)
        if extended == 0:
            store(base, operator + CURSOR, number)
            return FULL
        copy(base, row, extended, width)
        for word in range(width, target_width):
            store(base, extended + word, 0)
        store(base, extended + column, result_word(base, program))
    store(base, operator + CURSOR, 0)
    return DONE
