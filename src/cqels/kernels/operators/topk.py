"""ORDER BY with LIMIT and OFFSET, for each group of rows: all rows in order, and which are in the slice of positions.

The law: what has been sent, added up, is for each value of the columns `by` the slice from `offset` to the limit of all
rows that came, added up, in the order of `Evaluator._order`.  The slice of a whole bag is that of its only group; the
latest n of a partitioned window are the first n of each group, the freshest first.

What a row is compared by are *fields*: a column by the order of terms, up or down, or by its text; the newest time and
number, down.  A key of the tree has the fields, then all words of the row that they lack, so it is the whole row.

When a row comes or goes, one row at most crosses each end of the slice; what crosses is added up in a second tree and
sent at the end of the step, so a row that moves and comes back is not sent.  Most rows are behind the slice: they are
compared with its last row and put into the tree, no more.

An operator without a queue to write is *listed* (ordered_result.py): it notes only whether its slice has changed.

Where the operators before it can send all rows again (`keep_near`), rows far behind the slice are not even in the tree:
they are counted, no more.  What a row is compared by first is its *lead*, written such that less comes first; rows with
a lead up to the *edge* are near.  When the slice is no longer full of those, the operator asks for all rows (AGAIN)
and moves the edge; when too many are near, it moves the edge back.

    word    of the operator                             word   of a group
    0, 1    queues it reads and writes, or 0            0–5    tree of its rows
    2       terms (sort_keys.py)                          6      0 if the last row in the slice is not there
    3, 4    offset, limit (-1: none)                    7 …    columns that make the group; the last row in the slice
    5, 6    parts of a key: number, offset of pairs (1 for a sort key of three words, 0 for the word as it is; word of
            a row)
    7       offset of where in a key each word of a row is, from the newest time on
    8       words of a key
    9       shape of the groups' trees
    10, 11  columns that make groups: number, offset
    12      table: these columns to the offset of a group
    13      phase of the step: rows that come, rows that go, sending
    14, 15  row; how many of its copies are done
    16      offset of three keys: the row, what comes into the slice, what leaves it; then the columns of a group
    17      1 if something moved in the slice, where it is listed
    18–23   tree of what crossed: the same keys, compared as words
    24      queue of the rows listed last
    25      1 if only rows near the slice are in the tree
    26      0, or -1 where greater ones come first: what the first word of a key differs by from the lead
    27      rows to be near, when the edge moves
    28      the edge; 29 the edge that it moves to, when all rows have been asked for
    30      rows in all
    31      rows in the tree from which on the edge is moved back
    32, 33  queues that the rows come through: number, offset
    34–39   tree of the leads from which an edge is chosen
    40      the only group, where no columns make groups and there is one
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers import delta_queue
from cqels.kernels.containers.delta_queue import (
    ALWAYS,
    COLUMNS,
    TIME,
    WEIGHT,
    WIDTH,
    add_row,
    clear,
    row_at,
)
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.hash_table import find, put, remove
from cqels.kernels.memory.arena import copy, give, load, store, take
from cqels.kernels.terms.counted_btree import (
    HEAD,
    LEVELS,
    ROOT,
    TOTAL,
    change,
    clear_tree,
    compare_keys,
    following,
    kth,
    leaf_of,
    make_tree,
    most,
    rank,
)
from cqels.kernels.terms.sort_keys import ASK, ASKING, DONE, FULL, sort_key, trim_sort_key_cache

INPUT, OUTPUT, TERMS, OFFSET, LIMIT, PARTS, PARTS_AT, PLACES_AT, KEY_WORDS, TREE_SHAPE, BY, BY_AT, TABLE = range(13)
PHASE, ROW, COPIES, KEY, MOVED, CROSSED, LISTED = 13, 14, 15, 16, 17, 18, 24
NEAR, TURNED, WANTED, EDGE, NEXT_EDGE, ALL, CROWDED, THROUGH, THROUGH_AT, LEADS = range(25, 35)
ONLY = 40
OPERATOR_WORDS = 41
TREE, KNOWN, GROUP_KEY = 0, 6, 7
_COMING, _GOING, _FITTING, _CHOOSING, _FILLING, _CUTTING, _SENDING = range(7)
AGAIN = 4
"""What a step gives beside DONE, ASKING and FULL: all rows are wanted in the queue it reads, then it goes on."""
SPARE, CROWD = 32, 4
"""Near are to be twice the rows up to the end of the slice and some to spare; so many times as many are a crowd."""
_NO_END = 1 << 62


# --- keys -----------------------------------------------------------------------------------------------------------


@kernel
def _write_key(base, operator, row, key):
    """The key of a row: DONE or ASKING."""
    terms, part = load(base, operator + TERMS), load(base, operator + PARTS_AT)
    for _ in range(load(base, operator + PARTS)):
        word = load(base, row + load(base, part + 1))
        if load(base, part) != 0:
            status = sort_key(base, terms, word, key)
            if status != DONE:
                return status
            key += 3
        else:
            store(base, key, word)
            key += 1
        part += 2
    return DONE


@kernel
def _write_row(base, operator, key, weight, queue):
    """A row of a queue, which may lack the last columns, from its key: whether there was room."""
    row = add_row(base, queue)
    if row == 0:
        return False
    store(base, row + WEIGHT, weight)
    offsets = load(base, operator + PLACES_AT)
    for word in range(load(base, queue + WIDTH) - TIME):
        store(base, row + TIME + word, load(base, key + load(base, offsets + word)))
    return True


# --- groups ---------------------------------------------------------------------------------------------------------


@kernel
def _group_of(base, operator, row):
    """The group of a row, made if need be; 0 if the arena is full."""
    if load(base, operator + ONLY) != 0:
        return load(base, operator + ONLY)
    by, columns = load(base, operator + BY), load(base, operator + BY_AT)
    key = load(base, operator + KEY) + 3 * load(base, operator + KEY_WORDS)
    for number in range(by):
        store(base, key + number, load(base, row + COLUMNS + load(base, columns + number)))
    entry = put(base, load(base, operator + TABLE), key)
    if entry == 0:
        return 0
    group = load(base, entry)
    if group == 0:
        group = take(base, GROUP_KEY + by + load(base, operator + KEY_WORDS))
        if group == 0:
            return 0
        store(base, entry, group)
        make_tree(base, group + TREE, load(base, operator + TREE_SHAPE))
        copy(base, key, group + GROUP_KEY, by)
        if by == 0:
            store(base, operator + ONLY, group)
    return group


@kernel
def _drop_group(base, operator, group):
    table, by = load(base, operator + TABLE), load(base, operator + BY)
    remove(base, table, find(base, table, group + GROUP_KEY))
    store(base, operator + ONLY, 0)
    give(base, group, GROUP_KEY + by + load(base, operator + KEY_WORDS))


# --- rows in and out ------------------------------------------------------------------------------------------------


@kernel
def _end(base, operator):
    limit = load(base, operator + LIMIT)
    return _NO_END if limit < 0 else load(base, operator + OFFSET) + limit


@kernel
def _kept(base, operator, group, number, target):
    """Copy the k-th key of a group to an offset, if there is one: that offset, or 0."""
    offset = kth(base, group + TREE, number)
    if offset == 0:
        return 0
    copy(base, offset, target, load(base, operator + KEY_WORDS))
    return target


@kernel
def _change(base, operator, group, sign):
    """Put the row whose key is written into the tree of its group, or take it out, and look at the slice's end anew."""
    status = change(base, group + TREE, load(base, operator + KEY), sign)
    end = _end(base, operator)
    if status == DONE and end < _NO_END:
        last = group + GROUP_KEY + load(base, operator + BY)
        store(base, group + KNOWN, _kept(base, operator, group, end - 1, last))
    return status


@kernel
def _cross(base, operator, group, sign):
    """`_change`, with what crosses the ends of the slice by it: DONE, FULL, or ASKING and nothing has changed."""
    key, words = load(base, operator + KEY), load(base, operator + KEY_WORDS)
    offset, end = load(base, operator + OFFSET), _end(base, operator)
    position = rank(base, group + TREE, load(base, operator + TREE_SHAPE), key)
    if position < 0:
        return ASKING
    comes, leaves = 0, 0
    if position < end:
        if sign > 0:
            comes = key if position >= offset else _kept(base, operator, group, offset - 1, key + words)
            leaves = _kept(base, operator, group, end - 1, key + 2 * words)
        else:
            leaves = key if position >= offset else _kept(base, operator, group, offset, key + 2 * words)
            comes = _kept(base, operator, group, end, key + words)
    status = _change(base, operator, group, sign)
    if status != DONE:
        return status
    if comes != 0 and change(base, operator + CROSSED, comes, 1) != DONE:
        return FULL
    if leaves != 0 and change(base, operator + CROSSED, leaves, -1) != DONE:
        return FULL
    return DONE


@kernel
def _move(base, operator, group, sign):
    """One copy of the row whose key is written comes or goes: DONE, FULL, or ASKING and nothing has changed."""
    key = load(base, operator + KEY)
    if load(base, group + KNOWN):
        last = group + GROUP_KEY + load(base, operator + BY)
        answer = compare_keys(base, load(base, operator + TREE_SHAPE), key, last)
        if answer == ASK:
            return ASKING
        if answer > 0:
            return change(base, group + TREE, key, sign)
    if load(base, operator + OUTPUT) != 0:
        return _cross(base, operator, group, sign)
    store(base, operator + MOVED, 1)
    return _change(base, operator, group, sign)


@kernel
def _take_rows(base, operator):
    """Bring in the rows that come, then take out those that go; so no count is ever negative."""
    sign = 1 if load(base, operator + PHASE) == _COMING else -1
    queue = load(base, operator + INPUT)
    while load(base, operator + ROW) < load(base, queue + QUEUED):
        row = row_at(base, queue, load(base, operator + ROW))
        copies = load(base, row + WEIGHT) * sign
        if copies > 0:
            status, lead = DONE, ALWAYS
            if load(base, operator + EDGE) != ALWAYS:
                status, lead = _lead_of(base, operator, row)
            if status == DONE and lead <= load(base, operator + EDGE):
                status = _move_copies(base, operator, row, copies, sign)
            if status != DONE:
                return status
            store(base, operator + ALL, load(base, operator + ALL) + load(base, row + WEIGHT))
        store(base, operator + ROW, load(base, operator + ROW) + 1)
    store(base, operator + ROW, 0)
    return DONE


@kernel
def _move_copies(base, operator, row, copies, sign):
    """All copies of a row come or go: DONE, FULL, or ASKING, and it goes on with the copies that are left."""
    status = _write_key(base, operator, row, load(base, operator + KEY))
    if status != DONE:
        return status
    group = _group_of(base, operator, row)
    if group == 0:
        return FULL
    while load(base, operator + COPIES) < copies:
        status = _move(base, operator, group, sign)
        if status != DONE:
            return status
        store(base, operator + COPIES, load(base, operator + COPIES) + 1)
    store(base, operator + COPIES, 0)
    if load(base, group + TREE + TOTAL) == 0 and load(base, operator + NEAR) == 0:
        _drop_group(base, operator, group)
    return DONE


# --- near and far ---------------------------------------------------------------------------------------------------


@kernel
def _lead_of(base, operator, row):
    """DONE or ASKING, and the lead of a row."""
    part, key = load(base, operator + PARTS_AT), load(base, operator + KEY)
    word = load(base, row + load(base, part + 1))
    if load(base, part) != 0:
        status = sort_key(base, load(base, operator + TERMS), word, key)
        if status != DONE:
            return status, 0
        word = load(base, key)
    return DONE, word ^ load(base, operator + TURNED)


@kernel
def _fit(base, operator):
    """Look whether the rows that are near are too few or too many: the next phase."""
    tree = load(base, operator + ONLY) + TREE
    if load(base, operator + NEAR) == 0 or load(base, operator + ONLY) == 0:
        return _SENDING
    near = load(base, tree + TOTAL)
    if near < min(_end(base, operator), load(base, operator + ALL)):
        for number in range(load(base, operator + THROUGH)):
            clear(base, load(base, load(base, operator + THROUGH_AT) + number))
        return _CHOOSING
    if near > load(base, operator + CROWDED):
        last = kth(base, tree, load(base, operator + WANTED) - 1)
        store(base, operator + EDGE, load(base, last) ^ load(base, operator + TURNED))
        return _CUTTING
    return _SENDING


@kernel
def _cut(base, operator):
    """Take the rows out of the tree that are beyond the edge."""
    tree, words, key = load(base, operator + ONLY) + TREE, load(base, operator + KEY_WORDS), load(base, operator + KEY)
    last = most(base, tree)
    while load(base, last) ^ load(base, operator + TURNED) > load(base, operator + EDGE):
        copy(base, last, key, words)
        status = change(base, tree, key, -load(base, last + words))
        if status != DONE:
            return status
        last = most(base, tree)
    # where many rows have the lead of the edge, it is not tried again at once
    crowd = max(CROWD * load(base, operator + WANTED), 2 * load(base, tree + TOTAL))
    store(base, operator + CROWDED, crowd)
    return DONE


@kernel
def _choose_edge(base, operator):
    """Choose an edge from all rows, which are in the queue: the lead of the last of those that are to be near."""
    queue, leads = load(base, operator + INPUT), operator + LEADS
    wanted, greatest = load(base, operator + WANTED), load(base, operator + KEY)
    clear_tree(base, leads)
    for number in range(load(base, queue + QUEUED)):
        status, lead = _lead_of(base, operator, row_at(base, queue, number))
        if status != DONE:
            return status
        if load(base, leads + TOTAL) == wanted:
            last = most(base, leads)
            if lead >= load(base, last):
                continue
            copy(base, last, greatest, 1)
            change(base, leads, greatest, -1)
        store(base, greatest, lead)
        if change(base, leads, greatest, 1) != DONE:
            return FULL
    full = load(base, leads + TOTAL) == wanted
    store(base, operator + NEXT_EDGE, load(base, most(base, leads)) if full else ALWAYS)
    return DONE


@kernel
def _fill(base, operator):
    """Bring in the rows between the edge and the next one."""
    queue = load(base, operator + INPUT)
    while load(base, operator + ROW) < load(base, queue + QUEUED):
        row = row_at(base, queue, load(base, operator + ROW))
        status, lead = _lead_of(base, operator, row)
        if status == DONE and load(base, operator + EDGE) < lead <= load(base, operator + NEXT_EDGE):
            status = _move_copies(base, operator, row, load(base, row + WEIGHT), 1)
        if status != DONE:
            return status
        store(base, operator + ROW, load(base, operator + ROW) + 1)
    store(base, operator + ROW, 0)
    store(base, operator + EDGE, load(base, operator + NEXT_EDGE))
    for number in range(load(base, operator + THROUGH)):  # what was sent again does not count
        store(base, load(base, load(base, operator + THROUGH_AT) + number) + QUEUED, 0)
    return DONE


@kernel
def _send(base, operator):
    tree, words = operator + CROSSED, load(base, operator + KEY_WORDS)
    if load(base, tree + ROOT) == 0:
        return DONE
    node, level = load(base, tree + ROOT), load(base, tree + LEVELS)
    while level > 0:
        node = load(base, node + HEAD + words)
        level -= 1
    entry = 0
    while node != 0:
        offset = node + HEAD + entry * (words + 1)
        if not _write_row(base, operator, offset, load(base, offset + words), load(base, operator + OUTPUT)):
            return FULL
        node, entry = following(base, node, entry)
    clear_tree(base, tree)
    return DONE


@kernel
def step_ordered(base, operator):
    """Read the input queue, write the output queue: DONE, AGAIN, ASKING (`sort_key_fallback.answer_term`) or FULL."""
    if load(base, operator + PHASE) == _COMING and load(base, operator + ROW) + load(base, operator + COPIES) == 0:
        trim_sort_key_cache(base, load(base, operator + TERMS))
    while load(base, operator + PHASE) != _SENDING:
        phase = load(base, operator + PHASE)
        following_phase = phase + 1 if phase < _FILLING else _SENDING
        status = DONE
        if phase <= _GOING:
            status = _take_rows(base, operator)
        elif phase == _FITTING:
            following_phase = _fit(base, operator)
        elif phase == _CHOOSING:
            status = _choose_edge(base, operator)
        elif phase == _FILLING:
            status = _fill(base, operator)
        else:
            status = _cut(base, operator)
        if status != DONE:
            return status
        store(base, operator + PHASE, following_phase)
        if following_phase == _CHOOSING:
            return AGAIN
    status = _send(base, operator)
    if status == DONE:
        store(base, operator + PHASE, _COMING)
    return status


@kernel
def ordered_step(base, operator, now):
    """The step as the scheduler takes it: NEED_CALL where Python is asked (`sort_key_fallback.answer_term`)."""
    status = step_ordered(base, operator)
    if status == DONE:
        return delta_queue.DONE
    if status == AGAIN:
        return delta_queue.AGAIN
    return delta_queue.FULL if status == FULL else delta_queue.NEED_CALL


# --- listing --------------------------------------------------------------------------------------------------------


@kernel
def has_slice(base, operator):
    """Whether there is a row in the slice of the only group."""
    only = load(base, operator + ONLY)
    return only != 0 and min(_end(base, operator), load(base, only + TREE + TOTAL)) > load(base, operator + OFFSET)


@kernel
def list_slice(base, operator, queue):
    """Write the rows in the slice of the only group to a queue, in their order, copies one by one: False if full."""
    if load(base, operator + ONLY) == 0:
        return True
    tree, words = load(base, operator + ONLY) + TREE, load(base, operator + KEY_WORDS)
    offset = load(base, operator + OFFSET)
    left = min(_end(base, operator), load(base, tree + TOTAL)) - offset
    leaf, number, passed = leaf_of(base, tree, offset)
    while leaf != 0 and left > 0:
        key = leaf + HEAD + number * (words + 1)
        for _ in range(min(load(base, key + words) - passed, left)):
            if not _write_row(base, operator, key, 1, queue):
                return False
            left -= 1
        passed = 0
        leaf, number = following(base, leaf, number)
    return True
