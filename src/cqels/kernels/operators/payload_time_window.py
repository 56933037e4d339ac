"""Windows over payload times: an element's time is the object of a predicate in it, the largest of them.

So elements come in no order: some belong to a time that has not come yet, some are too old already, and one that has
no such time is in no such window.  An element waits until Python has read its time; then its triples wait in a heap
until the window gets there, and are kept in another one until it has passed them.

    word   of such a window
    0–12   as of any window (window.py), but without a ring: 6 and 7 count the triples that have left and entered;
           10 is a table: triple to (occurrences, time and number of the newest)
    13     the predicate
    14–16  triples of elements whose times are not known: number, room, offset
    17     how many of them have been looked at
    18, 19 whether the element that is looked at has a time, and the largest so far
    20     the object whose time Python is asked for, or 0
    21, 22 its answer: UNKNOWN until it is there, NO_TIME or KNOWN; the time
    23     the last boundary that was acted upon, NEVER for none
    24–26  heap of triples that wait: number, room, offset of their offsets
    27–29  heap of triples that are in the window

    word   of a triple that is kept: subject, predicate, object, time, number of the element
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import DONE, FULL, NEED_CALL, NEVER
from cqels.kernels.containers.hash_table import find, make_table, put, remove
from cqels.kernels.memory.arena import copy, give, load, make_room, store, take
from cqels.kernels.operators.window import (
    ENTERED,
    ENTRY_FLAGS,
    ENTRY_NUMBER,
    ENTRY_TIME,
    ENTRY_WORDS,
    EVENTS,
    FLAGS,
    FRESH,
    KIND,
    LAST_ONE,
    LEFT,
    PATTERN_COUNT,
    QUEUE,
    TOLD,
    TOLD_SLIDE,
    WIDTH,
    WINDOW_WORDS,
    is_wanted,
    put_change,
    since,
)

TABLE = 10
PREDICATE, COUNT, ROOM, DATA, READ, TIMED, LATEST, ASKED, ANSWER, ANSWER_TIME, CLOSED, WAITING, INSIDE = (
    WINDOW_WORDS,
    WINDOW_WORDS + 1,
    WINDOW_WORDS + 2,
    WINDOW_WORDS + 3,
    WINDOW_WORDS + 4,
    WINDOW_WORDS + 5,
    WINDOW_WORDS + 6,
    WINDOW_WORDS + 7,
    WINDOW_WORDS + 8,
    WINDOW_WORDS + 9,
    WINDOW_WORDS + 10,
    WINDOW_WORDS + 11,
    WINDOW_WORDS + 14,
)
TOLD_WORDS = WINDOW_WORDS + 17
HEAP_COUNT, HEAP_ROOM, HEAP_DATA = 0, 1, 2
UNKNOWN, NO_TIME, KNOWN = 0, 1, 2
KEPT_WORDS = 5


@kernel
def make_payload_window(base, width, slides, flags, queue, predicate):
    """A new, empty window of this width, that slides or does not: its offset, or 0 if the arena is full."""
    window = take(base, TOLD_WORDS)
    staged = take(base, 8 * ENTRY_WORDS)
    waiting = take(base, 8)
    inside = take(base, 8)
    table = make_table(base, 3, 3)
    if window == 0 or staged == 0 or waiting == 0 or inside == 0 or table == 0:
        return 0
    store(base, window + KIND, TOLD_SLIDE if slides else TOLD)
    store(base, window + WIDTH, width)
    store(base, window + FLAGS, flags)
    store(base, window + QUEUE, queue)
    store(base, window + TABLE, table)
    store(base, window + PREDICATE, predicate)
    store(base, window + ROOM, 8)
    store(base, window + DATA, staged)
    store(base, window + CLOSED, NEVER)
    store(base, window + WAITING + HEAP_ROOM, 8)
    store(base, window + WAITING + HEAP_DATA, waiting)
    store(base, window + INSIDE + HEAP_ROOM, 8)
    store(base, window + INSIDE + HEAP_DATA, inside)
    return window


@kernel
def arrive_payload(base, window, triple, number, last):
    """A triple of an element arrives; False if the arena is full."""
    count, room = load(base, window + COUNT), load(base, window + ROOM)
    if count == room:
        larger = take(base, 2 * room * ENTRY_WORDS)
        if larger == 0:
            return False
        copy(base, load(base, window + DATA), larger, count * ENTRY_WORDS)
        give(base, load(base, window + DATA), room * ENTRY_WORDS)
        store(base, window + DATA, larger)
        store(base, window + ROOM, 2 * room)
    entry = load(base, window + DATA) + count * ENTRY_WORDS
    copy(base, triple, entry, 3)
    store(base, entry + ENTRY_NUMBER, number)
    store(base, entry + ENTRY_FLAGS, LAST_ONE if last != 0 else 0)
    store(base, window + COUNT, count + 1)
    return True


@kernel
def find_times(base, window):
    """Find the times of the elements that have come: DONE, FULL, or NEED_CALL where Python is asked for one."""
    for number in range(load(base, window + READ), load(base, window + COUNT)):
        entry = load(base, window + DATA) + number * ENTRY_WORDS
        if load(base, entry + 1) == load(base, window + PREDICATE):
            answer = load(base, window + ANSWER)
            if answer == UNKNOWN:
                store(base, window + READ, number)
                store(base, window + ASKED, load(base, entry + 2))
                return NEED_CALL
            store(base, window + ANSWER, UNKNOWN)
            time = load(base, window + ANSWER_TIME)
            if answer == KNOWN and (load(base, window + TIMED) == 0 or time > load(base, window + LATEST)):
                store(base, window + TIMED, 1)
                store(base, window + LATEST, time)
        store(base, window + READ, number + 1)
        if load(base, entry + ENTRY_FLAGS) & LAST_ONE:
            if load(base, window + TIMED) != 0 and not _keep(base, window, number):
                return FULL
            store(base, window + TIMED, 0)
    store(base, window + COUNT, 0)
    store(base, window + READ, 0)
    return DONE


@kernel
def _keep(base, window, last):
    """Let the triples of an element wait that ends with the triple of this number: False if the arena is full."""
    data, first = load(base, window + DATA), last
    while first > 0 and load(base, data + (first - 1) * ENTRY_WORDS + ENTRY_FLAGS) & LAST_ONE == 0:
        first -= 1
    for number in range(first, last + 1):
        entry = data + number * ENTRY_WORDS
        if load(base, window + PATTERN_COUNT) > 0 and not is_wanted(base, window, entry):
            continue
        kept = take(base, KEPT_WORDS)
        if kept == 0:
            return False
        copy(base, entry, kept, 3)
        store(base, kept + ENTRY_TIME, load(base, window + LATEST))
        store(base, kept + ENTRY_NUMBER, load(base, entry + ENTRY_NUMBER))
        if not push(base, window + WAITING, kept):
            return False
    return True


@kernel
def advance_payload(base, window, now, closed):
    """Let expire what no longer belongs to the window and enter what does. False if the arena is full.

    A window that slides stands still between boundaries: what comes meanwhile waits for the next, though it be of the
    time that the last one closed.
    """
    width, last_in = load(base, window + WIDTH), now
    first_in = since(now, width)
    if load(base, window + KIND) == TOLD_SLIDE:
        if closed == load(base, window + CLOSED):
            return True
        store(base, window + CLOSED, closed)
        last_in = closed
        first_in = since(closed, width - 1)
    while load(base, window + INSIDE) > 0:
        kept = top(base, window + INSIDE)
        if load(base, kept + ENTRY_TIME) >= first_in:
            break
        pop(base, window + INSIDE)
        store(base, window + LEFT, load(base, window + LEFT) + 1)
        if not _leave(base, window, kept):
            return False
        give(base, kept, KEPT_WORDS)
    while load(base, window + WAITING) > 0:
        kept = top(base, window + WAITING)
        time = load(base, kept + ENTRY_TIME)
        if time > last_in:
            break
        pop(base, window + WAITING)
        if time < first_in:  # it came too late, or went by unseen
            give(base, kept, KEPT_WORDS)
            continue
        store(base, window + ENTERED, load(base, window + ENTERED) + 1)
        if not push(base, window + INSIDE, kept) or not _enter(base, window, kept):
            return False
    return True


@kernel
def _enter(base, window, kept):
    time, number, flags = load(base, kept + ENTRY_TIME), load(base, kept + ENTRY_NUMBER), load(base, window + FLAGS)
    if flags & EVENTS:
        return put_change(base, window, kept, 1, time, number)
    known = put(base, load(base, window + TABLE), kept)
    if known == 0:
        return False
    occurrences = load(base, known)
    store(base, known, occurrences + 1)
    before, number_before = load(base, known + 1), load(base, known + 2)
    if occurrences > 0 and (time < before or (time == before and number <= number_before)):
        return True
    fine = True
    if occurrences > 0 and flags & FRESH:
        fine = put_change(base, window, kept, -1, before, number_before)
    if occurrences == 0 or flags & FRESH:
        fine = fine and put_change(base, window, kept, 1, time, number)
    store(base, known + 1, time)
    store(base, known + 2, number)
    return fine


@kernel
def _leave(base, window, kept):
    time, number = load(base, kept + ENTRY_TIME), load(base, kept + ENTRY_NUMBER)
    if load(base, window + FLAGS) & EVENTS:
        return put_change(base, window, kept, -1, time, number)
    table = load(base, window + TABLE)
    known = find(base, table, kept)
    occurrences = load(base, known)
    if occurrences > 1:  # the one that leaves is the oldest: the newest stays what it was
        store(base, known, occurrences - 1)
        return True
    remove(base, table, known)
    return put_change(base, window, kept, -1, time, number)


# --- heaps of triples, the oldest on top


@kernel
def top(base, heap):
    return load(base, load(base, heap + HEAP_DATA))


@kernel
def push(base, heap, kept):
    """Add the offset of a triple: False if the arena is full."""
    count = load(base, heap + HEAP_COUNT)
    if not make_room(base, count, heap + HEAP_ROOM, heap + HEAP_DATA):
        return False
    data, position = load(base, heap + HEAP_DATA), count
    store(base, heap + HEAP_COUNT, count + 1)
    while position > 0:
        above = (position - 1) >> 1
        if not _older(base, kept, load(base, data + above)):
            break
        store(base, data + position, load(base, data + above))
        position = above
    store(base, data + position, kept)
    return True


@kernel
def pop(base, heap):
    """Take the oldest triple off a heap that has one."""
    data, count = load(base, heap + HEAP_DATA), load(base, heap + HEAP_COUNT) - 1
    store(base, heap + HEAP_COUNT, count)
    moved = load(base, data + count)
    position = 0
    while 2 * position + 1 < count:
        below = 2 * position + 1
        if below + 1 < count and _older(base, load(base, data + below + 1), load(base, data + below)):
            below += 1
        if not _older(base, load(base, data + below), moved):
            break
        store(base, data + position, load(base, data + below))
        position = below
    store(base, data + position, moved)


@kernel
def _older(base, one, other):
    if load(base, one + ENTRY_TIME) != load(base, other + ENTRY_TIME):
        return load(base, one + ENTRY_TIME) < load(base, other + ENTRY_TIME)
    return load(base, one + ENTRY_NUMBER) < load(base, other + ENTRY_NUMBER)
