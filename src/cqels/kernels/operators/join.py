"""The multiway join (JWS Alg. 4–5): a row probes the other inputs one by one, the one with the fewest matches first.

The changes of the inputs are worked off in order, those of input 0 first, and each is applied to its own buffer after
it has probed the others:  `d(L ⋈ R) = dL ⋈ R + (L + dL) ⋈ dR`.

A condition over some of the inputs is applied as soon as these are joined (ISWC Alg. 2), and an input that makes one
ready is probed before others, unless these have one match or none.

An output column that several inputs have is a *join column*, and has a bit.  An input's column is *nullable* if it may
be unbound: then it is compatible with anything, and the bound value wins.  Only columns that are never unbound are keys
of an index; all join columns are compared when rows are put together.

    word   of a join
    0      left to the engine
    1      inputs, at most 15
    2      queue of the output
    3      offset of the row that is being put together
    4      offset of the frames, one per input
    5      0, or SEQ or EQUALS: what the times of the rows of its two inputs must be to each other
    6      one-way index of the orders in which inputs were probed
    7, 8   the order used last, and how often it was since another one
    9      offset of the conditions that are applied on the way (join_conditions.py), or 0
    10 …   offsets of the inputs

    word   of an input
    0      queue of its changes, or 0 if it has none
    1      its buffer
    2      1 if the join applies the changes to the buffer, 0 if it has been done
    3      0, or the order in which its rows probe the others: number of an input + 1 in each 4 bits, first one lowest
    4, 5   its other columns: number, offset of pairs (where in its rows, where in the output row)
    6, 7   its join columns: number, offset of triples (the same, bit)
    8      all its join columns
    9, 10  its indexes, most columns first: number, offset of triples (index, columns, offset of where in the output row
           the words of the key are)
    11     its paths (join_prefetch.py)

    word   of a frame: what has been put together from fewer inputs, and the input that comes next
    0–3    weight and stamps, as in a row
    4, 5   join columns bound, inputs visited
    6      the input probed
    7–9    matches left; position of the next one; its link (row_storage.py), or 0 if the buffer is read row by row
    10     order up to here
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS, WEIGHT, WIDTH, add_row, in_time, put_stamps, row_at, said
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.key_index import (
    FULL,
    LINK,
    NEWEST,
    count_key,
)
from cqels.kernels.containers.row_buffer import change, swap
from cqels.kernels.containers.row_storage import BARE, FIRST, NEXT, ROWS, link_of, probe, put_head, row_of, weight_at
from cqels.kernels.memory.arena import fetch, load, store
from cqels.kernels.operators.join_conditions import all_hold, completes
from cqels.kernels.operators.join_prefetch import expect_at_once

INPUTS, OUT, ROW, FRAMES, TIMING = 1, 2, 3, 4, 5
ORDERS, ORDER, REPEATED, CONDITIONS, INPUT = 6, 7, 8, 9, 10
QUEUE, BUFFER, APPLY, FIXED, PLAIN, PLAIN_AT, JOINED, JOINED_AT, SHARED, PROBES, PROBES_AT = range(11)
PATHS, INPUT_WORDS = 11, 12
BOUND, VISITED, PROBED, LEFT, POSITION, FOLLOW, PATH, FRAME_WORDS = 4, 5, 6, 7, 8, 9, 10, 12
MOST_INPUTS, MOST_INDEXES = 15, 4
_CROSS = 1 << 62  # more than any count: inputs that share nothing with what is bound come last


@kernel
def step_join(base, join):
    """Work off the changes of all inputs: False if the arena is full."""
    for origin in range(load(base, join + INPUTS)):
        own = load(base, join + INPUT + origin)
        queue = load(base, own + QUEUE)
        if queue == 0:
            continue
        buffer, apply = load(base, own + BUFFER), load(base, own + APPLY) != 0
        number, count = 0, load(base, queue + QUEUED)
        while number < count:
            row = row_at(base, queue, number)
            expect_at_once(base, load(base, own + PATHS), row)
            twin = row_at(base, queue, number + 1)
            if number + 1 < count and _is_update(base, join, own, row, twin):
                if not _probe_others(base, join, origin, row, twin, 0) or (apply and not swap(base, buffer, row, twin)):
                    return False
                number += 2
                continue
            if not _probe_others(base, join, origin, row, 0, 0) or (apply and change(base, buffer, row) == -2):
                return False
            number += 1
    return True


@kernel
def _is_update(base, join, own, row, twin):
    """Whether two changes are one of a row that matches the same as before, as when the value of a group changes."""
    if load(base, row + WEIGHT) != -1 or load(base, twin + WEIGHT) != 1:
        return False
    if load(base, join + INPUTS) != 2 or load(base, join + TIMING) != 0:
        return False
    offset = load(base, own + JOINED_AT)
    for _ in range(load(base, own + JOINED)):
        if load(base, row + load(base, offset)) != load(base, twin + load(base, offset)):
            return False
        offset += 3
    return True


@kernel
def _probe_others(base, join, origin, row, twin, bare):
    """Depth first over the other inputs; of two inputs, for a second row too that matches the same, if it is not 0.

    `bare` is that of the buffer where the row is kept (row_storage.py), 0 for a row of a queue.
    """
    inputs, out, target = load(base, join + INPUTS), load(base, join + OUT), load(base, join + ROW)
    own, timing = load(base, join + INPUT + origin), load(base, join + TIMING)
    conditions = load(base, join + CONDITIONS)
    bound = _merge(base, own, row, target, 0)
    if bound < 0 or load(base, row + bare) == 0:
        return True
    frame = load(base, join + FRAMES)
    put_head(base, bare, row, frame)
    store(base, frame + BOUND, bound)
    store(base, frame + VISITED, 1 << origin)
    store(base, frame + PATH, origin + 1)
    depth = 0
    if not _choose(base, join, frame, depth, load(base, own + FIXED)):
        return False
    while depth >= 0:
        left = load(base, frame + LEFT)
        if left == 0:
            depth -= 1
            frame -= FRAME_WORDS
            continue
        other = load(base, join + INPUT + load(base, frame + PROBED))
        buffer = load(base, other + BUFFER)
        position, follow = load(base, frame + POSITION), load(base, frame + FOLLOW)
        match = row_of(base, buffer, position)
        store(base, frame + LEFT, left - 1)
        position = link_of(base, match, follow) if follow != 0 else position + 1
        store(base, frame + POSITION, position)
        if left > 1:
            fetch(base, weight_at(base, buffer, position))
        bare = load(base, buffer + BARE)
        if load(base, match + bare) == 0:
            continue
        bound = _merge(base, other, match, target, load(base, frame + BOUND))
        if bound < 0:
            continue
        visited = load(base, frame + VISITED) | (1 << load(base, frame + PROBED))
        weight = load(base, frame + WEIGHT) * load(base, match + bare)
        if conditions != 0 and not all_hold(
            base, conditions, target, bound, visited, load(base, frame + BOUND), load(base, frame + VISITED)
        ):
            continue
        if depth + 2 == inputs:
            if timing != 0:
                left, right = (frame, match) if origin == 0 else (match, frame)
                if not in_time(base, timing, left, right):
                    continue
            result = add_row(base, out)
            if result == 0:
                return False
            store(base, result + WEIGHT, weight)
            _join_stamps(base, result, frame, match, bare)
            for word in range(COLUMNS, load(base, out + WIDTH)):
                store(base, result + word, load(base, target + word))
            if twin != 0 and not _put_twin(base, out, own, target, twin, match, bare):
                return False
            continue
        above = frame
        frame += FRAME_WORDS
        depth += 1
        store(base, frame + WEIGHT, weight)
        _join_stamps(base, frame, above, match, bare)
        store(base, frame + BOUND, bound)
        store(base, frame + VISITED, visited)
        store(base, frame + PATH, load(base, above + PATH))
        if not _choose(base, join, frame, depth, load(base, own + FIXED)):
            return False
    return True


@kernel
def _put_twin(base, out, own, target, twin, match, bare):
    """The result that was just put together, with what a second row of the same input has in its other columns."""
    result = add_row(base, out)
    if result == 0:
        return False
    store(base, result + WEIGHT, load(base, twin + WEIGHT) * load(base, match + bare))
    _join_stamps(base, result, twin, match, bare)
    for word in range(COLUMNS, load(base, out + WIDTH)):
        store(base, result + word, load(base, target + word))
    offset = load(base, own + PLAIN_AT)
    for _ in range(load(base, own + PLAIN)):
        store(base, result + load(base, offset + 1), load(base, twin + load(base, offset)))
        offset += 2
    return True


@kernel
def _join_stamps(base, target, one, match, bare):
    """Give a row the stamps of another and of its match; those that are not kept change nothing."""
    if bare == 0:
        put_stamps(base, target, one, match)
    else:
        for word in range(WEIGHT + 1, COLUMNS):
            store(base, target + word, load(base, one + word))


@kernel
def _merge(base, source, row, target, bound):
    """Write an input's row into the row that is put together: the join columns bound now, or -1 if they differ."""
    offset = load(base, source + JOINED_AT)
    for _ in range(load(base, source + JOINED)):
        value, at, bit = load(base, row + load(base, offset)), target + load(base, offset + 1), load(base, offset + 2)
        offset += 3
        if bound & bit != 0:
            if value != 0 and value != load(base, at):
                return -1
        else:
            store(base, at, value)
            if value != 0:
                bound |= bit
    offset = load(base, source + PLAIN_AT)
    for _ in range(load(base, source + PLAIN)):
        store(base, target + load(base, offset + 1), load(base, row + load(base, offset)))
        offset += 2
    return bound


@kernel
def _choose(base, join, frame, depth, fixed):
    """Set the frame on the input with the fewest matches: those that share a bound column first (JWS Alg. 5).

    Without any match nothing can come of it: the frame has none left.  So the input chosen the last time is asked
    first: where one input filters most rows out, the others' counters are not even read.  False if the arena is full.
    """
    row, bound, visited = load(base, join + ROW), load(base, frame + BOUND), load(base, frame + VISITED)
    inputs = load(base, join + INPUTS)
    conditions = load(base, join + CONDITIONS)
    fewest, least, chosen, first, follow = FULL, FULL, -1, 0, 0
    start = load(base, frame + PROBED)
    for turn in range(start, start + inputs):
        number = turn if turn < inputs else turn - inputs
        if visited & (1 << number) != 0 or (fixed != 0 and (fixed >> (4 * depth)) & 15 != number + 1):
            continue
        other = load(base, join + INPUT + number)
        buffer = load(base, other + BUFFER)
        count, newest, link = load(base, buffer + ROWS), 0, 0
        if count != 0:
            if load(base, other + SHARED) & bound == 0:
                count |= _CROSS
            else:
                offset = load(base, other + PROBES_AT)
                for _ in range(load(base, other + PROBES)):
                    if load(base, offset + 1) & ~bound == 0:
                        index = load(base, offset)
                        found = probe(base, buffer, index, row, load(base, offset + 2))
                        if found != 0:
                            rows = load(base, found)
                            count, newest, link = rows >> 32, rows & NEWEST, load(base, index + LINK)
                        break
                    offset += 3
        rank = count
        if conditions != 0 and count > 1:
            if completes(base, conditions, bound, visited, load(base, other + SHARED), number):
                rank = 1 | (count & _CROSS)
        if chosen < 0 or rank < least:
            least, fewest, chosen, first, follow = rank, count, number, newest, link
            if count == 0:
                break
    path = load(base, frame + PATH) | ((chosen + 1) << (4 * (depth + 1)))
    store(base, frame + PATH, path)
    store(base, frame + PROBED, chosen)
    if follow == 0:
        buffer = load(base, load(base, join + INPUT + chosen) + BUFFER)
        first = load(base, buffer + FIRST)
        store(base, frame + LEFT, load(base, buffer + NEXT) - first if fewest != 0 else 0)
    else:
        store(base, frame + LEFT, fewest)
    store(base, frame + POSITION, first)
    store(base, frame + FOLLOW, follow)
    return (fewest != 0 and depth + 2 < inputs) or _count_order(base, join, path)


@kernel
def _count_order(base, join, path):
    """Count an order that is complete, or that ends here: False if the arena is full."""
    if load(base, join + ORDER) != path:
        if load(base, join + ORDER) != 0 and (
            count_key(base, load(base, join + ORDERS), join + ORDER, load(base, join + REPEATED)) == FULL
        ):
            return False
        store(base, join + ORDER, path)
        store(base, join + REPEATED, 0)
    store(base, join + REPEATED, load(base, join + REPEATED) + 1)
    return True


@kernel
def resend_joined(base, operator, now):
    """Put all rows of the join into its queue once more, from the input that has fewest: DONE or FULL."""
    origin, buffer = 0, load(base, load(base, operator + INPUT) + BUFFER)
    for number in range(1, load(base, operator + INPUTS)):
        other = load(base, load(base, operator + INPUT + number) + BUFFER)
        if load(base, other + ROWS) < load(base, buffer + ROWS):
            origin, buffer = number, other
    for position in range(load(base, buffer + FIRST), load(base, buffer + NEXT)):
        if not _probe_others(base, operator, origin, row_of(base, buffer, position), 0, load(base, buffer + BARE)):
            return said(False)
    return said(True)


@kernel
def join_step(base, operator, now):
    """The step as the scheduler takes it."""
    return said(step_join(base, operator))
