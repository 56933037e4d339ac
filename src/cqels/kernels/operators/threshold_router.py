"""THRESHOLDS: each row once for every class of its group whose thresholds it passes.

A class has a threshold for each comparison (`?v > …`), and passes a row if all of them hold.  The classes of a group
are in *lists*, in each of which the thresholds of one comparison are numbers of one kind, so that what holds for one of
them holds for every looser one, whatever the row has.  A list has the class with the loosest first threshold in front,
and a tree over its classes that knows the loosest of the other thresholds below each node:

    rows that are sent = the classes up to the first one whose first threshold is not passed, and of these the ones that
    are reached in the tree through nodes whose thresholds are passed

So with one comparison a row costs the logarithm of the classes that it passes, and with two that for each of them.  The
operator keeps no rows: one that goes is sent to the classes that it was sent to when it came.

    word   of the operator
    0, 1   queues of input and output
    2      offset of the program (`cqels.kernels.expressions.interpreter`) that was run last
    3      offset of the dictionary
    4      rows read: where to go on after Python has answered
    5      where in a row its group is, 0 if all are of the first one; it is not sent on
    6      offset of the groups: for each that of its first list, or 0
    7      comparisons
    8      words that a class adds to a row
    9      offset of a row, with a threshold for each comparison behind it
    10 …   for each comparison its program

    word   of a list
    0      offset of the next one of the group, or 0
    1      classes
    2      leaves of its tree, a power of two
    3 …    for each class its first threshold, and the words that it adds
    …      for each node of the tree, from 0 (there is none) and 1 (the root) to the leaves, the other thresholds

A step appends to the output, and goes on with the same row if it stopped, as one of SELECT does (`filter_extend.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS, COUNT, WIDTH, add_row, row_at
from cqels.kernels.expressions.interpreter import DONE, FULL, NEED_CALL, holds
from cqels.kernels.expressions.registers import ASK, YES
from cqels.kernels.memory.arena import Arena, copy, load, store, write_words

INPUT, OUTPUT, PROGRAM, DICTIONARY, CURSOR, GROUP, GROUPS, COMPARISONS, ADDED, ROW, FIRST_PROGRAM = range(11)
NEXT, CLASSES, LEAVES, FIRST_CLASS = range(4)
_ASKS = -1

Listed: TypeAlias = tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
"""Words of a list: of its classes, each with its first threshold in front, and of the nodes of its tree from 0 on."""


def make_thresholds(
    arena: Arena, out: int, queue: int, programs: Sequence[int], group: int | None, added: int, dictionary: int
) -> int:
    """Compare the rows of a queue: a program for each comparison, whose threshold is a column behind those of the row.

    `group` is the column of the group, `added` the number of words of a class; `out` has these behind the others.
    """
    offset = arena.take(FIRST_PROGRAM + len(programs))
    words = arena.array(offset, FIRST_PROGRAM + len(programs))
    words[INPUT], words[OUTPUT], words[DICTIONARY] = queue, out, dictionary
    words[GROUP] = 0 if group is None else COLUMNS + group
    words[COMPARISONS], words[ADDED] = len(programs), added
    words[ROW] = arena.take(int(arena.words[queue + WIDTH]) + len(programs))
    words[FIRST_PROGRAM:] = programs
    return offset


def set_thresholds(arena: Arena, operator: int, groups: Sequence[Sequence[Listed]]) -> None:
    """Let the operator know all classes, before it sees a row."""
    firsts = []
    for lists in groups:
        first = 0
        for classes, nodes in lists:
            flat = [word for part in (*classes, *nodes) for word in part]
            first = write_words(arena, [first, len(classes), max(len(nodes) // 2, 1), *flat])
        firsts.append(first)
    arena.words[operator + GROUPS] = write_words(arena, firsts)


@kernel
def thresholds_step(base, operator, now):
    """Send each row of the input to the classes that it is for."""
    source, target = load(base, operator + INPUT), load(base, operator + OUTPUT)
    at = load(base, operator + GROUP)
    width = load(base, source + WIDTH)
    for number in range(load(base, operator + CURSOR), load(base, source + COUNT)):
        row, before = row_at(base, source, number), load(base, target + COUNT)
        copy(base, row, load(base, operator + ROW), width)
        classes = load(base, load(base, operator + GROUPS) + (load(base, row + at) if at != 0 else 0))
        while classes != 0:
            status = _send_listed(base, operator, classes, now)
            if status != DONE:
                store(base, target + COUNT, before)
                store(base, operator + CURSOR, number)
                return status
            classes = load(base, classes + NEXT)
    store(base, operator + CURSOR, 0)
    return DONE


@kernel
def _send_listed(base, operator, classes, now):
    """Send the row to the classes of a list."""
    entry = 1 + load(base, operator + ADDED)
    others = load(base, operator + COMPARISONS) - 1
    passed = _passed(base, operator, classes, entry, now)
    if passed == _ASKS:
        return NEED_CALL
    if others == 0:
        for number in range(passed):
            if not _send(base, operator, classes + FIRST_CLASS + number * entry):
                return FULL
        return DONE
    tree = classes + FIRST_CLASS + load(base, classes + CLASSES) * entry
    leaves = load(base, classes + LEAVES)
    node, below = 1, leaves  # so many leaves are below the node
    while True:
        descends = False
        if node * below - leaves < passed:
            answer = _holds_at(base, operator, tree + node * others, others, now)
            if answer == ASK:
                return NEED_CALL
            descends = answer == YES
        if descends and node >= leaves:
            if not _send(base, operator, classes + FIRST_CLASS + (node - leaves) * entry):
                return FULL
            descends = False
        if descends:
            node *= 2
            below >>= 1
            continue
        while node & 1 == 1:
            node >>= 1
            below <<= 1
        if node == 0:
            return DONE
        node += 1


@kernel
def _passed(base, operator, classes, entry, now):
    """How many classes in front of a list have a first threshold that the row passes; _ASKS if Python must answer."""
    count = load(base, classes + CLASSES)
    low, high, reach = 0, count, 1
    while reach <= count:  # most rows pass few
        answer = _holds_first(base, operator, classes + FIRST_CLASS + (reach - 1) * entry, now)
        if answer == ASK:
            return _ASKS
        if answer != YES:
            high = reach - 1
            break
        low = reach
        reach *= 2
    while low < high:
        middle = (low + high) >> 1
        answer = _holds_first(base, operator, classes + FIRST_CLASS + middle * entry, now)
        if answer == ASK:
            return _ASKS
        if answer == YES:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _holds_first(base, operator, threshold, now):
    """Whether the row passes the first threshold of a class: NO, YES or ASK."""
    row, program = load(base, operator + ROW), load(base, operator + FIRST_PROGRAM)
    store(base, row + load(base, load(base, operator + INPUT) + WIDTH), load(base, threshold))
    store(base, operator + PROGRAM, program)
    return holds(base, program, row, load(base, operator + DICTIONARY), now)


@kernel
def _holds_at(base, operator, thresholds, others, now):
    """Whether the row passes the other thresholds of a node: NO, YES or ASK."""
    row, width = load(base, operator + ROW), load(base, load(base, operator + INPUT) + WIDTH)
    for number in range(others):
        program = load(base, operator + FIRST_PROGRAM + 1 + number)
        store(base, row + width + 1 + number, load(base, thresholds + number))
        store(base, operator + PROGRAM, program)
        answer = holds(base, program, row, load(base, operator + DICTIONARY), now)
        if answer != YES:
            return answer
    return YES


@kernel
def _send(base, operator, entry):
    """Send the row to a class: False if the arena is full."""
    row, at, added = load(base, operator + ROW), load(base, operator + GROUP), load(base, operator + ADDED)
    width = load(base, load(base, operator + INPUT) + WIDTH)
    made = add_row(base, load(base, operator + OUTPUT))
    if made == 0:
        return False
    if at == 0:
        copy(base, row, made, width)
    else:
        width -= 1
        copy(base, row, made, at)
        copy(base, row + at + 1, made + at, width - at)
    copy(base, entry + 1, made + width, added)
    return True
