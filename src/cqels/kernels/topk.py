"""ORDER BY with LIMIT and OFFSET: all rows in order, and which of them are in the window from `offset` to the limit.

The law: what has been sent, added up, is the slice of all rows that came, added up, in the order of `Evaluator._order`:
the sort keys, then the freshest first, then the text of some columns.  Without sort keys that is a plain Slice.

A key of the tree is the whole row: sort keys (three words each), newest time and number, the columns whose texts break
ties, the other columns, the time of the oldest element.  When a row comes or goes, one row at most crosses each end of
the window; what crosses is added up in a second tree and sent at the end of the step, so a row that moves and comes
back is not sent.  Most rows are behind the window: they are compared with its last row and put into the tree, no more.

    word    of the operator
    0, 1    queues it reads and writes
    2       terms (sorting.py)
    3, 4    offset, limit (-1: none)
    5       columns of a row
    6       sort keys
    7       columns whose texts break ties
    8       phase of the step: rows that come, rows that go, sending
    9, 10   row; how many of its copies are done
    11–16   tree of all rows
    17–22   tree of what crossed: the same keys, compared as words
    23      three keys: the row, what comes into the window, what leaves it; then the last row in the window
    24      0 if there is no such last row
    25      words of a key
    26 …    columns of the sort keys; the columns in the order in which they stand in the key
"""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels.jit import kernel
from cqels.kernels.lore import tell
from cqels.kernels.memory import copy, load, store
from cqels.kernels.order import (
    DOWN,
    HEAD,
    SHAPE,
    TERM,
    TERM_DOWN,
    TEXT,
    TOTAL,
    UP,
    change,
    clear_tree,
    compare_keys,
    following,
    kth,
    leaf_of,
    make_shape,
    make_tree,
    rank,
)
from cqels.kernels.rows import COLUMNS, NUMBER, OLDEST, TIME, WEIGHT, add_row, row_at
from cqels.kernels.rows import COUNT as QUEUED
from cqels.kernels.sorting import ASK, ASKING, DONE, FULL, forget_lore, sort_key
from cqels.kernels.terms import ArenaDictionary

INPUT, OUTPUT, TERMS, OFFSET, LIMIT, WIDTH, SORTS, TIES, PHASE, ROW, COPIES, TREE = range(12)
CROSSED, KEY, KNOWN, KEY_WORDS, SORT_COLUMNS = 17, 23, 24, 25, 26
_COMING, _SENDING = 0, 2
_NO_END = 1 << 62


def make_topk(
    dictionary: ArenaDictionary,
    terms: int,
    queues: tuple[int, int],
    columns: int,
    sorts: Sequence[tuple[int, bool]] = (),
    ties: Sequence[int] = (),
    *,
    offset: int = 0,
    limit: int | None = None,
) -> int:
    """An operator between two queues of rows with so many columns: its place.

    `sorts` are columns and whether they are descending; `ties` the columns whose texts decide at last.
    """
    arena = dictionary.arena
    words = arena.words
    others = [column for column in range(columns) if column not in ties]
    fields = [TERM_DOWN if descending else TERM for _, descending in sorts]
    fields += [DOWN, DOWN, *[TEXT] * len(ties), *[UP] * len(others), UP]
    key_words = 3 * len(sorts) + 3 + columns
    operator = arena.take(SORT_COLUMNS + len(sorts) + columns)
    words[operator + INPUT], words[operator + OUTPUT] = queues
    words[operator + TERMS], words[operator + OFFSET] = terms, offset
    words[operator + LIMIT] = -1 if limit is None else limit
    words[operator + WIDTH], words[operator + SORTS], words[operator + TIES] = columns, len(sorts), len(ties)
    words[operator + KEY], words[operator + KEY_WORDS] = arena.take(4 * key_words), key_words
    make_tree(arena.base, operator + TREE, make_shape(arena, fields, terms))
    make_tree(arena.base, operator + CROSSED, make_shape(arena, [UP] * key_words))
    first = operator + SORT_COLUMNS
    words[first : first + len(sorts)] = [column for column, _ in sorts]
    words[first + len(sorts) : first + len(sorts) + columns] = [*ties, *others]
    return operator


def run_topk(dictionary: ArenaDictionary, operator: int) -> None:
    """A whole step, with all that Python has to do."""
    arena = dictionary.arena
    while (status := step_topk(arena.base, operator)) != DONE:
        if status != ASKING:
            raise MemoryError("the arena is full")
        tell(dictionary, int(arena.words[operator + TERMS]))


@kernel
def _write_key(base, operator, row, key):
    """The key of a row: DONE or ASKING."""
    terms, sorts = load(base, operator + TERMS), load(base, operator + SORTS)
    for number in range(sorts):
        column = load(base, operator + SORT_COLUMNS + number)
        status = sort_key(base, terms, load(base, row + COLUMNS + column), key)
        if status != DONE:
            return status
        key += 3
    store(base, key, load(base, row + TIME))
    store(base, key + 1, load(base, row + NUMBER))
    width = load(base, operator + WIDTH)
    for number in range(width):
        column = load(base, operator + SORT_COLUMNS + sorts + number)
        store(base, key + 2 + number, load(base, row + COLUMNS + column))
    store(base, key + 2 + width, load(base, row + OLDEST))
    return DONE


@kernel
def _write_row(base, operator, key, weight, queue):
    """A row of a queue from its key: whether there was room."""
    row = add_row(base, queue)
    if row == 0:
        return False
    sorts, width = load(base, operator + SORTS), load(base, operator + WIDTH)
    key += 3 * sorts
    store(base, row + WEIGHT, weight)
    store(base, row + TIME, load(base, key))
    store(base, row + NUMBER, load(base, key + 1))
    store(base, row + OLDEST, load(base, key + 2 + width))
    for number in range(width):
        column = load(base, operator + SORT_COLUMNS + sorts + number)
        store(base, row + COLUMNS + column, load(base, key + 2 + number))
    return True


@kernel
def _end(base, operator):
    limit = load(base, operator + LIMIT)
    return _NO_END if limit < 0 else load(base, operator + OFFSET) + limit


@kernel
def _kept(base, operator, number, target):
    """Copy the k-th key of the tree to a place, if there is one: that place, or 0."""
    place = kth(base, operator + TREE, number)
    if place == 0:
        return 0
    copy(base, place, target, load(base, operator + KEY_WORDS))
    return target


@kernel
def _move(base, operator, sign):
    """One copy of the row whose key is written comes or goes: DONE, FULL, or ASKING and nothing has changed."""
    key, words = load(base, operator + KEY), load(base, operator + KEY_WORDS)
    tree = operator + TREE
    shape = load(base, tree + SHAPE)
    offset, end = load(base, operator + OFFSET), _end(base, operator)
    if load(base, operator + KNOWN):
        answer = compare_keys(base, shape, key, key + 3 * words)
        if answer == ASK:
            return ASKING
        if answer > 0:
            return change(base, tree, key, sign)
    position = rank(base, tree, shape, key)
    if position < 0:
        return ASKING
    comes, leaves = 0, 0
    if position < end:
        if sign > 0:
            comes = key if position >= offset else _kept(base, operator, offset - 1, key + words)
            leaves = _kept(base, operator, end - 1, key + 2 * words)
        else:
            leaves = key if position >= offset else _kept(base, operator, offset, key + 2 * words)
            comes = _kept(base, operator, end, key + words)
    status = change(base, tree, key, sign)
    if status != DONE:
        return status
    if end < _NO_END:
        store(base, operator + KNOWN, _kept(base, operator, end - 1, key + 3 * words))
    if comes != 0 and change(base, operator + CROSSED, comes, 1) != DONE:
        return FULL
    if leaves != 0 and change(base, operator + CROSSED, leaves, -1) != DONE:
        return FULL
    return DONE


@kernel
def _take_rows(base, operator):
    """Bring in the rows that come, then take out those that go; so no count is ever negative."""
    sign = 1 if load(base, operator + PHASE) == _COMING else -1
    queue = load(base, operator + INPUT)
    while load(base, operator + ROW) < load(base, queue + QUEUED):
        row = row_at(base, queue, load(base, operator + ROW))
        copies = load(base, row + WEIGHT) * sign
        if copies > 0:
            status = _write_key(base, operator, row, load(base, operator + KEY))
            if status != DONE:
                return status
            while load(base, operator + COPIES) < copies:
                status = _move(base, operator, sign)
                if status != DONE:
                    return status
                store(base, operator + COPIES, load(base, operator + COPIES) + 1)
            store(base, operator + COPIES, 0)
        store(base, operator + ROW, load(base, operator + ROW) + 1)
    store(base, operator + ROW, 0)
    return DONE


@kernel
def _send(base, operator):
    tree, words = operator + CROSSED, load(base, operator + KEY_WORDS)
    node, level = load(base, tree + 1), load(base, tree + 3)
    while level > 0:
        node = load(base, node + HEAD + words)
        level -= 1
    entry = 0
    while node != 0:
        place = node + HEAD + entry * (words + 1)
        if not _write_row(base, operator, place, load(base, place + words), load(base, operator + OUTPUT)):
            return FULL
        node, entry = following(base, node, entry)
    clear_tree(base, tree)
    return DONE


@kernel
def step_topk(base, operator):
    """Read the input queue, write the output queue, or go on with that: DONE, ASKING (`lore.tell`) or FULL."""
    if load(base, operator + PHASE) == _COMING and load(base, operator + ROW) + load(base, operator + COPIES) == 0:
        forget_lore(base, load(base, operator + TERMS))
    while load(base, operator + PHASE) != _SENDING:
        status = _take_rows(base, operator)
        if status != DONE:
            return status
        store(base, operator + PHASE, load(base, operator + PHASE) + 1)
    status = _send(base, operator)
    if status == DONE:
        store(base, operator + PHASE, _COMING)
    return status


@kernel
def list_window(base, operator, queue):
    """Write the rows in the window to a queue, in their order, copies one by one: DONE or FULL."""
    tree, words = operator + TREE, load(base, operator + KEY_WORDS)
    left = min(_end(base, operator), load(base, tree + TOTAL)) - load(base, operator + OFFSET)
    leaf, entry, passed = leaf_of(base, tree, load(base, operator + OFFSET))
    while leaf != 0 and left > 0:
        place = leaf + HEAD + entry * (words + 1)
        for _ in range(min(load(base, place + words) - passed, left)):
            if not _write_row(base, operator, place, 1, queue):
                return FULL
            left -= 1
        passed = 0
        leaf, entry = following(base, leaf, entry)
    return DONE
