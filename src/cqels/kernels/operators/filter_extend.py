"""SELECT: FILTERs and BINDs one after the other, which look at one row at a time.

    word   of the operator
    0, 1   offsets of the queues it reads and writes
    2      offset of the program (`cqels.kernels.expressions.interpreter`) that was run last
    3      offset of the dictionary
    4      rows read: where to go on after Python has answered
    5      steps
    6      offset of the rows remembered, or 0
    7      rows that there is room for, a power of two
    8, 9   numbers of the oldest one remembered and of the next
    10     rows that went and were not found since the last one that was
    11     how often all were forgotten because none was found
    12 …   for each step: its program; the column that it binds (an error leaves it unbound), or -1 for a FILTER; the
           rows that it has let pass

    word   of a row remembered
    0      steps that it passed
    1 …    the words of the row read but its weight, then the columns that were added

A row that goes is computed as it was when it came.  Where rows go in the order in which they came, and computing is
dear, what was computed is remembered: then the row that goes is the oldest one, or one of the next few.  What is not
found is computed.

A step appends to the output and leaves the input as it is.  It gives DONE when all rows are read, and the next step
begins with the first row again; NEED_CALL and FULL say why it stopped, and the next step goes on with the same row.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS, COUNT, WEIGHT, WIDTH, add_row, row_at
from cqels.kernels.expressions.interpreter import DONE, FULL, NEED_CALL, holds, result_word, value
from cqels.kernels.expressions.registers import ASK, YES
from cqels.kernels.memory.arena import copy, give, load, store, take

INPUT, OUTPUT, PROGRAM, DICTIONARY, CURSOR, STEPS, REMEMBERED, ROOM, OLDEST, NEXT, MISSED, FORGOTTEN = range(12)
FIRST_STEP, STEP_WORDS = 12, 3
STEP_COLUMN, PASSED = 1, 2
MOST_STEPS = 16
SELECT_WORDS = FIRST_STEP + MOST_STEPS * STEP_WORDS
FILTERS = -1
_LOOKED_AT = 8
_LEAST_ROOM = 64
_MOST_FORGOTTEN = 3


@kernel
def make_select(base, source, target, dictionary):
    """A new SELECT without a step: its offset, or 0 if the arena is full."""
    operator = take(base, SELECT_WORDS)
    if operator == 0:
        return 0
    store(base, operator + INPUT, source)
    store(base, operator + OUTPUT, target)
    store(base, operator + DICTIONARY, dictionary)
    return operator


@kernel
def add_step(base, operator, program, column):
    """One more step, which binds a column or FILTERS: the offset of how many rows it lets pass."""
    steps = load(base, operator + STEPS)
    step = operator + FIRST_STEP + steps * STEP_WORDS
    store(base, step, program)
    store(base, step + STEP_COLUMN, column)
    store(base, operator + STEPS, steps + 1)
    return step + PASSED


@kernel
def remember_rows(base, operator):
    """Remember from now on what is computed for rows, of the widths that the queues have now: False if it is full."""
    rows = take(base, _LEAST_ROOM * _remembered_words(base, operator))
    if rows == 0:
        return False
    store(base, operator + REMEMBERED, rows)
    store(base, operator + ROOM, _LEAST_ROOM)
    return True


@kernel
def select_step(base, operator, now):
    """Copy the rows for which all FILTERs hold, with the columns that are bound on the way."""
    source, target = load(base, operator + INPUT), load(base, operator + OUTPUT)
    width, target_width = load(base, source + WIDTH), load(base, target + WIDTH)
    for number in range(load(base, operator + CURSOR), load(base, source + COUNT)):
        made = add_row(base, target)
        if made == 0:
            store(base, operator + CURSOR, number)
            return FULL
        copy(base, row_at(base, source, number), made, width)
        for word in range(width, target_width):
            store(base, made + word, 0)
        passed, status = _pass(base, operator, made, now, width, target_width)
        for step in range(passed):
            count = operator + FIRST_STEP + step * STEP_WORDS + PASSED
            store(base, count, load(base, count) + 1)
        if status != DONE or passed < load(base, operator + STEPS):
            store(base, target + COUNT, load(base, target + COUNT) - 1)
        if status != DONE:
            store(base, operator + CURSOR, number)
            return status
    store(base, operator + CURSOR, 0)
    return DONE


@kernel
def _pass(base, operator, row, now, width, target_width):
    """Run a row through the steps, or remember how it was: how many it passed, and what the operator says then."""
    remembering = load(base, operator + REMEMBERED) != 0
    if remembering and load(base, row + WEIGHT) < 0:
        passed = _recall(base, operator, row, width, target_width)
        if passed >= 0:
            return passed, DONE
        remembering = False
    dictionary = load(base, operator + DICTIONARY)
    passed = 0
    while passed < load(base, operator + STEPS):
        step = operator + FIRST_STEP + passed * STEP_WORDS
        program, column = load(base, step), load(base, step + STEP_COLUMN)
        store(base, operator + PROGRAM, program)
        if column == FILTERS:
            answer = holds(base, program, row, dictionary, now)
            if answer == ASK:
                return 0, NEED_CALL
            if answer != YES:
                break
        else:
            if value(base, program, row, dictionary, now) == NEED_CALL:
                return 0, NEED_CALL
            store(base, row + COLUMNS + column, result_word(base, program))
        passed += 1
    if remembering and not _remember(base, operator, row, passed, target_width):
        return 0, FULL
    return passed, DONE


# --- rows remembered ------------------------------------------------------------------------------------------------


@kernel
def _remembered_words(base, operator):
    return load(base, load(base, operator + OUTPUT) + WIDTH)


@kernel
def _entry(base, operator, number):
    slot = number & (load(base, operator + ROOM) - 1)
    return load(base, operator + REMEMBERED) + slot * _remembered_words(base, operator)


@kernel
def _recall(base, operator, row, width, target_width):
    """Write what was bound when a row that goes now came: how many steps it passed, or -1 if it is not found."""
    oldest, behind = load(base, operator + OLDEST), load(base, operator + NEXT)
    for number in range(oldest, min(oldest + _LOOKED_AT, behind)):
        entry = _entry(base, operator, number)
        if _is_same(base, entry, row, width):
            copy(base, entry + width, row + width, target_width - width)
            store(base, operator + OLDEST, number + 1)
            store(base, operator + MISSED, 0)
            return load(base, entry)
    missed = load(base, operator + MISSED) + 1
    store(base, operator + MISSED, missed)
    if missed > behind - oldest + _LOOKED_AT:  # by now all that is remembered should have gone
        store(base, operator + MISSED, 0)
        store(base, operator + OLDEST, behind)
        store(base, operator + FORGOTTEN, load(base, operator + FORGOTTEN) + 1)
        if load(base, operator + FORGOTTEN) == _MOST_FORGOTTEN:
            rows = load(base, operator + REMEMBERED)
            give(base, rows, load(base, operator + ROOM) * _remembered_words(base, operator))
            store(base, operator + REMEMBERED, 0)
    return -1


@kernel
def _is_same(base, entry, row, width):
    """Whether a row is the one remembered; its stamps tell most rows apart."""
    for word in range(WEIGHT + 1, width):
        if load(base, entry + word) != load(base, row + word):
            return False
    return True


@kernel
def _remember(base, operator, row, passed, target_width):
    room, behind = load(base, operator + ROOM), load(base, operator + NEXT)
    if behind - load(base, operator + OLDEST) == room and not _grow(base, operator):
        return False
    entry = _entry(base, operator, behind)
    copy(base, row, entry, target_width)
    store(base, entry, passed)
    store(base, operator + NEXT, behind + 1)
    return True


@kernel
def _grow(base, operator):
    room, words = load(base, operator + ROOM), _remembered_words(base, operator)
    rows = take(base, 2 * room * words)
    if rows == 0:
        return False
    for number in range(load(base, operator + OLDEST), load(base, operator + NEXT)):
        copy(base, _entry(base, operator, number), rows + (number & (2 * room - 1)) * words, words)
    give(base, load(base, operator + REMEMBERED), room * words)
    store(base, operator + REMEMBERED, rows)
    store(base, operator + ROOM, 2 * room)
    return True
