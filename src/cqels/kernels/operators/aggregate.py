"""GROUP BY: the groups of the rows that are in, and for each one row with its keys and the values of its aggregates.

The law: what has been sent, added up, is `Evaluator._group` of all rows that came, added up.

A step (`step_group`) reads the rows of the input queue and sends, for each group that they touched and that is now
another, the row that goes and the row that comes.  It gives DONE, or where Python is needed

    ASKING   a term is not known well enough to be put in order: `sort_key_fallback.answer_term`, and step again;
    WANTED   values that only Python can write, once for each group touched: `aggregate_setup.answer`, step again;
    FULL     the arena is full: nothing can be done.

Python answers, and the step goes on where it stopped.  `aggregate_setup.run_group` does all of that.

    word    of the operator                                   word    of an aggregate
    0, 1    queues it reads and writes                        0       what it computes
    2       terms (sort_keys.py)                                1       column of its argument
    3       NEWEST, SPANS: times of the group that rows carry 2       aggregate whose state it reads, maybe itself
            SAMPLED: the newest, as an aggregate knows it
    4, 5    keys, aggregates                                  3       state, from the first word of a group
    6       table: key to offset of group                      4       shape of its tree
    7       phase of the step: rows, values, sending          5       DISTINCT: table of (group, id) to count, or 0
    8, 9    row; 0, or 1 + aggregate that it goes on with     6, 7    COUNT(DISTINCT *): columns, and their offset;
    10, 11  first and last group touched, or 0                        GROUP_CONCAT: id of the separator
    12–14   requests: number, room, offset
    15      words of a group                                  word    of a group
    16–18   shapes: stamps, times, ids                        0       rows
    19      shape that puts terms in order, not their texts   1       next group touched; -1: the last; 0: not touched
    20      words for keys; 32 before, for a result           2       1 if a row was sent and not taken back
    21      a sum, for the mean of two numbers                3–5     its times
    22      SAMPLED: state of that aggregate
    24 …    columns of the keys, then the aggregates          6 …     keys; values sent; values to send; the trees of
                                                                      newest and of oldest that there are; states

    word    of a request: kind, where the id goes, aggregate, two words that depend on the kind
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers import delta_queue
from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, NEVER, NUMBER, OLDEST, TIME, WEIGHT, add_row, row_at
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.hash_table import ROOM, entry_at, find, put, remove
from cqels.kernels.memory.arena import copy, give, load, store, take
from cqels.kernels.memory.int128 import POWERS, bits_of, double_of, single_bits_of, single_of
from cqels.kernels.operators.exact_sum import add_number, clear_sum, make_sum
from cqels.kernels.operators.exact_sum_value import RESULT_BITS, RESULT_TAG, id_of_result, packed, read_sum
from cqels.kernels.terms.counted_btree import (
    HEAD,
    TOTAL,
    change,
    clear_tree,
    following,
    kth,
    leaf_of,
    least,
    make_tree,
    most,
    rank,
    tree_words,
)
from cqels.kernels.terms.sort_keys import (
    ASK,
    ASKING,
    BLANK,
    CLASS_NUMBER,
    DECIMAL,
    DONE,
    DOUBLE,
    FLOAT,
    FULL,
    LEAST,
    NONE,
    compare_texts,
    register_of,
    sort_key,
    trim_sort_key_cache,
)
from cqels.model import ids

INPUT, OUTPUT, TERMS, FRESH, KEYS, AGGREGATES, TABLE, PHASE, ROW, RESUME, TOUCHED, LAST = range(12)
REQUESTS, REQUEST_ROOM, REQUEST_PLACE, GROUP_WORDS, STAMP_SHAPE, TIME_SHAPE, ID_SHAPE, TERM_SHAPE = range(12, 20)
SCRATCH, PAIR, SAMPLED_AT, KEY_COLUMNS = 20, 21, 22, 24

KIND, COLUMN, OWNER, STATE, SHAPE, DISTINCT, EXTRA, EXTRA_PLACE = range(8)
AGGREGATE_WORDS = 8
ROWS_, COUNT_, COUNT_ROWS, SUM, AVG, MIN, MAX, MEDIAN, SAMPLE, CONCAT = range(10)

GROUP_ROWS, NEXT, SHOWN, SHOWN_STAMPS, GROUP_KEYS = 0, 1, 2, 3, 6
STAMP_TREE_WORDS, TIME_TREE_WORDS = tree_words(2), tree_words(1)
TREE_BAD, TREE_ODD = tree_words(3), tree_words(3) + 1
TREE_STATE_WORDS = tree_words(3) + 2

NEWEST, SPANS, SAMPLED = 1, 2, 3
WANTED = 2
REQUEST_WORDS = 5
NUMBER_WANTED, SUM_WANTED, HALF_WANTED, TEXT_WANTED = 1, 2, 3, 4
RESULT = -32
_SMALL, _MOST_DIGITS = (
    2**31,
    5,
)  # ten times the sum of two such numbers of one scale is in a word, tag and scale beside it
PHASE_ROWS, PHASE_VALUES, PHASE_SENDING = 0, 1, 2


@kernel
def aggregate_at(base, operator, number):
    return operator + KEY_COLUMNS + load(base, operator + KEYS) + number * AGGREGATE_WORDS


@kernel
def _sent_at(base, operator, group):
    """The offset of the values sent; those to send are behind them."""
    return group + GROUP_KEYS + load(base, operator + KEYS)


@kernel
def _trees_at(base, operator, group):
    return group + GROUP_KEYS + load(base, operator + KEYS) + 2 * load(base, operator + AGGREGATES)


# --- groups ---------------------------------------------------------------------------------------------------------


@kernel
def make_group(base, operator, key):
    """A new group for the key at an offset; 0 if the arena is full."""
    group = take(base, load(base, operator + GROUP_WORDS))
    if group == 0:
        return 0
    copy(base, key, group + GROUP_KEYS, load(base, operator + KEYS))
    fresh, trees = load(base, operator + FRESH), _trees_at(base, operator, group)
    if fresh in (NEWEST, SPANS):
        make_tree(base, trees, load(base, operator + STAMP_SHAPE))
    if fresh == SPANS:
        make_tree(base, trees + STAMP_TREE_WORDS, load(base, operator + TIME_SHAPE))
    for number in range(load(base, operator + AGGREGATES)):
        aggregate = aggregate_at(base, operator, number)
        kind, state = load(base, aggregate + KIND), group + load(base, aggregate + STATE)
        if load(base, aggregate + OWNER) == number:
            if kind in (SUM, AVG):
                make_sum(base, state, load(base, operator + ID_SHAPE))
            elif kind >= MIN:
                make_tree(base, state, load(base, aggregate + SHAPE))
    return group


@kernel
def _give_group(base, operator, group):
    fresh, trees = load(base, operator + FRESH), _trees_at(base, operator, group)
    if fresh in (NEWEST, SPANS):
        clear_tree(base, trees)
    if fresh == SPANS:
        clear_tree(base, trees + STAMP_TREE_WORDS)
    for number in range(load(base, operator + AGGREGATES)):
        aggregate = aggregate_at(base, operator, number)
        kind, state = load(base, aggregate + KIND), group + load(base, aggregate + STATE)
        if load(base, aggregate + OWNER) == number:
            if kind in (SUM, AVG):
                clear_sum(base, state)
            elif kind >= MIN:
                clear_tree(base, state)
    entry = find(base, load(base, operator + TABLE), group + GROUP_KEYS)
    remove(base, load(base, operator + TABLE), entry)
    give(base, group, load(base, operator + GROUP_WORDS))
    return DONE


@kernel
def touch(base, operator, group):
    """Put a group in the list of those to look at when all rows are in."""
    if load(base, group + NEXT) != 0:
        return
    store(base, group + NEXT, -1)
    last = load(base, operator + LAST)
    if last == 0:
        store(base, operator + TOUCHED, group)
    else:
        store(base, last + NEXT, group)
    store(base, operator + LAST, group)


@kernel
def group_of(base, operator, row):
    """The group of a row, made if need be; 0 if the arena is full."""
    key = load(base, operator + SCRATCH)
    keys = load(base, operator + KEYS)
    for number in range(keys):
        store(base, key + number, load(base, row + COLUMNS + load(base, operator + KEY_COLUMNS + number)))
    entry = put(base, load(base, operator + TABLE), key)
    if entry == 0:
        return 0
    group = load(base, entry)
    if group == 0:
        group = make_group(base, operator, key)
        store(base, entry, group)
    return group


# --- rows in and out ------------------------------------------------------------------------------------------------


@kernel
def _apply_ordered(base, operator, aggregate, state, row, id, weight):
    """MIN, MAX, MEDIAN."""
    if id == 0:
        store(base, state + TREE_BAD, load(base, state + TREE_BAD) + weight)
        return DONE
    key = load(base, operator + SCRATCH)
    status = sort_key(base, load(base, operator + TERMS), id, key)
    if status != DONE:
        return status
    odd = (load(base, key) >> 60) + 8 != CLASS_NUMBER
    status = change(base, state, key, weight)
    if status == DONE and odd:
        store(base, state + TREE_ODD, load(base, state + TREE_ODD) + weight)
    return status


@kernel
def _apply_stamped(base, operator, aggregate, state, row, id, weight):
    """SAMPLE, GROUP_CONCAT."""
    if id == 0:
        store(base, state + TREE_BAD, load(base, state + TREE_BAD) + weight)
        return DONE
    tag, _, _ = register_of(base, load(base, operator + TERMS), id)
    if tag == BLANK:
        store(base, state + TREE_ODD, load(base, state + TREE_ODD) + weight)
    key = load(base, operator + SCRATCH)
    store(base, key, load(base, row + TIME))
    store(base, key + 1, load(base, row + NUMBER))
    store(base, key + 2, id)
    return change(base, state, key, weight)


@kernel
def _apply(base, operator, aggregate, group, row, id, weight):
    kind, state = load(base, aggregate + KIND), group + load(base, aggregate + STATE)
    if kind == COUNT_:
        if id != 0:
            store(base, state, load(base, state) + weight)
        return DONE
    if kind == COUNT_ROWS:
        store(base, state, load(base, state) + weight)
        return DONE
    if kind in (SUM, AVG):
        return add_number(base, load(base, operator + TERMS), state, id, weight)
    if kind <= MEDIAN:
        return _apply_ordered(base, operator, aggregate, state, row, id, weight)
    return _apply_stamped(base, operator, aggregate, state, row, id, weight)


@kernel
def _count_distinct(base, operator, aggregate, group, row, id):
    """The offset of the count of what an aggregate tells apart."""
    key = load(base, operator + SCRATCH)
    store(base, key, group)
    if load(base, aggregate + KIND) == COUNT_ROWS:
        for number in range(load(base, aggregate + EXTRA)):
            column = load(base, load(base, aggregate + EXTRA_PLACE) + number)
            store(base, key + 1 + number, load(base, row + COLUMNS + column))
    else:
        store(base, key + 1, id)
    return put(base, load(base, aggregate + DISTINCT), key)


@kernel
def _update(base, operator, aggregate, group, row):
    """Bring a row to an aggregate: DONE, FULL, or ASKING, and nothing has changed."""
    weight = load(base, row + WEIGHT)
    column = load(base, aggregate + COLUMN)
    id = load(base, row + COLUMNS + column) if column >= 0 else 0
    counts = load(base, aggregate + DISTINCT)
    if counts == 0:
        return _apply(base, operator, aggregate, group, row, id, weight)
    entry = _count_distinct(base, operator, aggregate, group, row, id)
    if entry == 0:
        return FULL
    before = load(base, entry)
    after = before + weight
    turn = (1 if after > 0 else 0) - (1 if before > 0 else 0)
    if turn != 0:
        status = _apply(base, operator, aggregate, group, row, id, turn)
        if status != DONE:
            return status
    store(base, entry, after)
    if after == 0:
        remove(base, counts, entry)
    return DONE


@kernel
def _take_rows(base, operator):
    queue = load(base, operator + INPUT)
    aggregates = load(base, operator + AGGREGATES)
    while load(base, operator + ROW) < load(base, queue + QUEUED):
        row = row_at(base, queue, load(base, operator + ROW))
        group = group_of(base, operator, row)
        if group == 0:
            return FULL
        resume = load(base, operator + RESUME)
        if resume == 0:
            weight = load(base, row + WEIGHT)
            store(base, group + GROUP_ROWS, load(base, group + GROUP_ROWS) + weight)
            touch(base, operator, group)
            fresh, trees = load(base, operator + FRESH), _trees_at(base, operator, group)
            if fresh in (NEWEST, SPANS) and change(base, trees, row + TIME, weight) != DONE:
                return FULL
            if fresh == SPANS and change(base, trees + STAMP_TREE_WORDS, row + OLDEST, weight) != DONE:
                return FULL
            resume = 1
        for number in range(resume - 1, aggregates):
            aggregate = aggregate_at(base, operator, number)
            if load(base, aggregate + OWNER) != number or load(base, aggregate + KIND) == ROWS_:
                continue
            status = _update(base, operator, aggregate, group, row)
            if status != DONE:
                store(base, operator + RESUME, number + 1)
                return status
        store(base, operator + RESUME, 0)
        store(base, operator + ROW, load(base, operator + ROW) + 1)
    return DONE


# --- values ---------------------------------------------------------------------------------------------------------


@kernel
def _request(base, operator, kind, target, number, first, second):
    count, room = load(base, operator + REQUESTS), load(base, operator + REQUEST_ROOM)
    if count == room:
        larger = take(base, 2 * room * REQUEST_WORDS)
        if larger == 0:
            return FULL
        copy(base, load(base, operator + REQUEST_PLACE), larger, count * REQUEST_WORDS)
        give(base, load(base, operator + REQUEST_PLACE), room * REQUEST_WORDS)
        store(base, operator + REQUEST_PLACE, larger)
        store(base, operator + REQUEST_ROOM, 2 * room)
    offset = load(base, operator + REQUEST_PLACE) + count * REQUEST_WORDS
    store(base, offset, kind)
    store(base, offset + 1, target)
    store(base, offset + 2, number)
    store(base, offset + 3, first)
    store(base, offset + 4, second)
    store(base, operator + REQUESTS, count + 1)
    return DONE


@kernel
def _write_result(base, operator, target, number):
    """The id of the result in the scratch words, or a request for it."""
    result = load(base, operator + SCRATCH) + RESULT
    tag, bits = load(base, result + RESULT_TAG), load(base, result + RESULT_BITS)
    if tag == NONE:
        store(base, target, 0)
        return DONE
    id = id_of_result(base, load(base, operator + TERMS), result)
    store(base, target, id)
    if id != 0:
        return DONE
    if tag != DOUBLE:
        return FULL
    return _request(base, operator, NUMBER_WANTED, target, number, tag, bits)


@kernel
def _write_sum(base, operator, target, number, kind, state):
    result = load(base, operator + SCRATCH) + RESULT
    if read_sum(base, load(base, operator + TERMS), state, 1 if kind == AVG else 0, result) == ASKING:
        return _request(base, operator, SUM_WANTED, target, number, state, 1 if kind == AVG else 0)
    return _write_result(base, operator, target, number)


@kernel
def _half(one, scale, other, other_scale):
    """The word of half the sum of two small decimals, or 0."""
    exact = max(scale, other_scale)
    if exact > _MOST_DIGITS or abs(one) > _SMALL or abs(other) > _SMALL:
        return 0
    total = 5 * (one * POWERS[exact - scale] + other * POWERS[exact - other_scale])
    digits = exact + 1
    while digits > 0 and total % 10 == 0:
        total //= 10
        digits -= 1
    return packed(ids.CODE_DECIMAL, total << ids.SCALE_BITS | digits)


@kernel
def _write_half(base, operator, target, number, one, other):
    """Half the sum of two numbers, each step rounded as `divide(add(one, other), 2)` is."""
    terms, pair = load(base, operator + TERMS), load(base, operator + PAIR)
    result = load(base, operator + SCRATCH) + RESULT
    first_tag, first_bits, first_scale = register_of(base, terms, one)
    second_tag, second_bits, second_scale = register_of(base, terms, other)
    if one < 0 and other < 0 and max(first_tag, second_tag) <= DECIMAL:
        word = _half(first_bits, first_scale, second_bits, second_scale)
        if word != 0:
            store(base, target, word)
            return DONE
    floating = max(first_tag, second_tag) >= FLOAT
    status = add_number(base, terms, pair, one, 1) | add_number(base, terms, pair, other, 1)
    hard = read_sum(base, terms, pair, 0 if floating else 1, result)
    status |= add_number(base, terms, pair, one, -1) | add_number(base, terms, pair, other, -1)
    if status != DONE:
        return FULL
    if hard == ASKING:
        return _request(base, operator, HALF_WANTED, target, number, one, other)
    if floating:
        half = double_of(load(base, result + RESULT_BITS)) / 2.0
        if load(base, result + RESULT_TAG) == FLOAT:
            half = single_of(single_bits_of(half))
        bits = bits_of(half)
        if bits == 0 and first_bits == LEAST and second_bits == LEAST:
            bits = LEAST  # two negative zeros
        store(base, result + RESULT_BITS, bits)
    return _write_result(base, operator, target, number)


@kernel
def _write_ordered(base, operator, target, number, kind, state):
    """MIN, MAX, MEDIAN; of terms that tie the one with the smallest text."""
    total = load(base, state + TOTAL)
    if total <= 0 or load(base, state + TREE_BAD) != 0 or (kind == MEDIAN and load(base, state + TREE_ODD) != 0):
        store(base, target, 0)
        return DONE
    if kind == MIN:
        store(base, target, load(base, least(base, state) + 2))
    elif kind == MAX:
        first = rank(base, state, load(base, operator + TERM_SHAPE), most(base, state))
        if first < 0:
            return ASKING
        store(base, target, load(base, kth(base, state, first) + 2))
    elif total % 2 == 1:
        store(base, target, load(base, kth(base, state, total // 2) + 2))
    else:
        one, other = kth(base, state, total // 2 - 1), kth(base, state, total // 2)
        return _write_half(base, operator, target, number, load(base, one + 2), load(base, other + 2))
    return DONE


@kernel
def _write_sample(base, operator, target, state):
    """The id of the newest; of several the one with the greatest text."""
    last = most(base, state)
    if last == 0:
        store(base, target, 0)
        return DONE
    key = load(base, operator + SCRATCH)
    copy(base, last, key, 2)
    store(base, key + 2, LEAST)
    leaf, entry, _ = leaf_of(base, state, rank(base, state, load(base, state), key))
    best = 0
    while leaf != 0:
        id = load(base, leaf + HEAD + entry * 4 + 2)
        answer = 1 if best == 0 else compare_texts(base, load(base, operator + TERMS), id, best)
        if answer == ASK:
            return ASKING
        if answer > 0:
            best = id
        leaf, entry = following(base, leaf, entry)
    store(base, target, best)
    return DONE


@kernel
def _write_value(base, operator, group, number, target):
    """Write the id of an aggregate's value, or ask for it: DONE, ASKING or FULL."""
    aggregate = aggregate_at(base, operator, number)
    kind, state = load(base, aggregate + KIND), group + load(base, aggregate + STATE)
    if kind == ROWS_:
        store(base, target, packed(ids.CODE_INTEGER, load(base, group + GROUP_ROWS)))
        return DONE
    if kind in (COUNT_, COUNT_ROWS):
        store(base, target, packed(ids.CODE_INTEGER, load(base, state)))
        return DONE
    if kind in (SUM, AVG):
        return _write_sum(base, operator, target, number, kind, state)
    if kind <= MEDIAN:
        return _write_ordered(base, operator, target, number, kind, state)
    if kind == SAMPLE:
        return _write_sample(base, operator, target, state)
    store(base, target, 0)
    if load(base, state + TREE_BAD) != 0 or load(base, state + TREE_ODD) != 0:
        return DONE
    return _request(base, operator, TEXT_WANTED, target, number, state, 0)


@kernel
def _exists(base, operator, group):
    return load(base, group + GROUP_ROWS) > 0 or load(base, operator + KEYS) == 0


@kernel
def _write_values(base, operator):
    """Go through the groups touched, from the one in ROW on (0: the first)."""
    group = load(base, operator + ROW)
    if group == 0:
        group = load(base, operator + TOUCHED)
    while group > 0:
        store(base, operator + ROW, group)
        asked = load(base, operator + REQUESTS)
        if _exists(base, operator, group):
            aggregates = load(base, operator + AGGREGATES)
            target = _sent_at(base, operator, group) + aggregates
            for number in range(aggregates):
                status = _write_value(base, operator, group, number, target + number)
                if status != DONE:
                    store(base, operator + REQUESTS, asked)
                    return status
        group = load(base, group + NEXT)
    return DONE


# --- sending --------------------------------------------------------------------------------------------------------


@kernel
def _send(base, operator, group, weight, stamps, values):
    row = add_row(base, load(base, operator + OUTPUT))
    if row == 0:
        return False
    keys, aggregates = load(base, operator + KEYS), load(base, operator + AGGREGATES)
    store(base, row + WEIGHT, weight)
    copy(base, stamps, row + TIME, 3)
    copy(base, group + GROUP_KEYS, row + COLUMNS, keys)
    copy(base, values, row + COLUMNS + keys, aggregates)
    return True


@kernel
def _stamp(base, operator, group, target):
    """The times of a group: those of its newest row, and the oldest of all."""
    store(base, target, NEVER)
    store(base, target + 1, -1)
    store(base, target + 2, ALWAYS)
    fresh, trees = load(base, operator + FRESH), _trees_at(base, operator, group)
    if fresh != 0 and load(base, group + GROUP_ROWS) > 0:
        known = group + load(base, operator + SAMPLED_AT) if fresh == SAMPLED else trees
        copy(base, most(base, known), target, 2)
        if fresh == SPANS:
            store(base, target + 2, load(base, least(base, trees + STAMP_TREE_WORDS)))


@kernel
def _send_group(base, operator, group):
    aggregates = load(base, operator + AGGREGATES)
    sent = _sent_at(base, operator, group)
    values = sent + aggregates
    stamps = load(base, operator + SCRATCH)
    _stamp(base, operator, group, stamps)
    exists, shown = _exists(base, operator, group), load(base, group + SHOWN) != 0
    same = exists and shown
    for number in range(aggregates):
        same = same and load(base, sent + number) == load(base, values + number)
    for number in range(3):
        same = same and load(base, stamps + number) == load(base, group + SHOWN_STAMPS + number)
    if same:
        return True
    if shown and not _send(base, operator, group, -1, group + SHOWN_STAMPS, sent):
        return False
    store(base, group + SHOWN, 0)
    if exists:
        if not _send(base, operator, group, 1, stamps, values):
            return False
        store(base, group + SHOWN, 1)
        copy(base, stamps, group + SHOWN_STAMPS, 3)
        copy(base, values, sent, aggregates)
    return True


@kernel
def _send_groups(base, operator):
    group = load(base, operator + TOUCHED)
    while group > 0:
        if not _send_group(base, operator, group):
            return FULL
        following_group = load(base, group + NEXT)
        store(base, group + NEXT, 0)
        if load(base, group + GROUP_ROWS) == 0 and load(base, operator + KEYS) > 0:
            _give_group(base, operator, group)
        group = following_group
    store(base, operator + TOUCHED, 0)
    store(base, operator + LAST, 0)
    return DONE


@kernel
def step_group(base, operator):
    """Read the input queue, write the output queue, or go on with that: DONE, ASKING, WANTED or FULL."""
    if load(base, operator + PHASE) == PHASE_ROWS:
        if load(base, operator + ROW) == 0 and load(base, operator + RESUME) == 0:
            trim_sort_key_cache(base, load(base, operator + TERMS))
        status = _take_rows(base, operator)
        if status != DONE:
            return status
        store(base, operator + ROW, 0)
        store(base, operator + PHASE, PHASE_VALUES)
    if load(base, operator + PHASE) == PHASE_VALUES:
        status = _write_values(base, operator)
        if status != DONE:
            return status
        store(base, operator + ROW, 0)
        store(base, operator + PHASE, PHASE_SENDING)
        if load(base, operator + REQUESTS) != 0:
            return WANTED
    status = _send_groups(base, operator)
    if status == DONE:
        store(base, operator + REQUESTS, 0)
        store(base, operator + PHASE, PHASE_ROWS)
    return status


@kernel
def resend_groups(base, operator, now):
    """Send the rows of all groups once more: rows.DONE or rows.FULL."""
    table = load(base, operator + TABLE)
    for slot in range(load(base, table + ROOM)):
        entry = entry_at(base, table, slot)
        group = load(base, entry) if entry != 0 else 0
        if group != 0 and load(base, group + SHOWN) != 0:
            if not _send(base, operator, group, 1, group + SHOWN_STAMPS, _sent_at(base, operator, group)):
                return delta_queue.FULL
    return delta_queue.DONE


@kernel
def group_step(base, operator, now):
    """The step as the scheduler takes it: NEED_CALL where Python has to help first (`aggregate_setup.serve`)."""
    status = step_group(base, operator)
    if status == DONE:
        return delta_queue.DONE
    return delta_queue.FULL if status == FULL else delta_queue.NEED_CALL
