"""The memo: what Python computed for the kernels, by function number and argument words.

    word   of a memo                            word   of a request, and of a record in the pool
    0      records in it                        0      number of the function
    1, 2   offset and slots of the hash table    1      arguments
    3, 4   offset of the pool, words used        2      result: the word of a term, 0 for an error
    5      words there is room for              3 …    arguments: words of terms, or plain numbers
    6      words the pool may have at most

A slot of the table holds where a record begins in its pool, or 0.  The memo refers to entries of the dictionary, so it
must be emptied (`forget`) before entries are released.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import copy, give_shared, load, store, take_shared

COUNT, TABLE, SLOTS, POOL, USED, ROOM, LIMIT = range(7)
MEMO_WORDS = 8
FUNCTION, ARGUMENTS, RESULT, FIRST_ARGUMENT = range(4)
_FIRST_SLOTS, _FIRST_ROOM = 64, 512
_MIX = -7046029254386353131  # 2^64 / golden ratio, odd


@kernel
def make_memo(base, limit):
    """A new, empty memo whose pool has at most so many words (at least 512): its offset, or 0 if the arena is full."""
    memo = take_shared(base, MEMO_WORDS)
    if memo == 0:
        return 0
    table, pool = take_shared(base, _FIRST_SLOTS), take_shared(base, _FIRST_ROOM)
    if table == 0 or pool == 0:
        return 0
    store(base, memo + TABLE, table)
    store(base, memo + SLOTS, _FIRST_SLOTS)
    store(base, memo + POOL, pool)
    store(base, memo + USED, 1)
    store(base, memo + ROOM, _FIRST_ROOM)
    store(base, memo + LIMIT, max(limit, _FIRST_ROOM))
    return memo


@kernel
def forget(base, memo):
    """Empty the memo; its memory stays."""
    table = load(base, memo + TABLE)
    for slot in range(load(base, memo + SLOTS)):
        store(base, table + slot, 0)
    store(base, memo + COUNT, 0)
    store(base, memo + USED, 1)


@kernel
def _slot(base, memo, request):
    """The offset of the table's slot that holds a request's record, or of the empty one where it belongs."""
    function, arguments = load(base, request + FUNCTION), load(base, request + ARGUMENTS)
    hash_ = function * _MIX
    for number in range(FIRST_ARGUMENT, FIRST_ARGUMENT + arguments):
        hash_ = (hash_ ^ load(base, request + number)) * _MIX
        hash_ ^= hash_ >> 29
    table, pool = load(base, memo + TABLE), load(base, memo + POOL)
    mask = load(base, memo + SLOTS) - 1
    slot = hash_ & mask
    while True:
        start = load(base, table + slot)
        if start == 0:
            return table + slot
        record = pool + start
        if load(base, record + FUNCTION) == function and load(base, record + ARGUMENTS) == arguments:
            number = FIRST_ARGUMENT
            while number < FIRST_ARGUMENT + arguments and load(base, record + number) == load(base, request + number):
                number += 1
            if number == FIRST_ARGUMENT + arguments:
                return table + slot
        slot = (slot + 1) & mask


@kernel
def recall(base, memo, request):
    """Put the result into the request, if it is known: whether it is."""
    start = load(base, _slot(base, memo, request))
    if start == 0:
        return False
    store(base, request + RESULT, load(base, load(base, memo + POOL) + start + RESULT))
    return True


@kernel
def remember(base, memo, request):
    """Keep a request with its result; what is in the memo goes if it would become too large. False: the arena is full.

    One request always fits, and so do those of one row as long as they are smaller than the limit together.
    """
    words = FIRST_ARGUMENT + load(base, request + ARGUMENTS)
    if load(base, memo + USED) + words > load(base, memo + LIMIT):
        forget(base, memo)
    room = load(base, memo + ROOM)
    while load(base, memo + USED) + words > room:
        room *= 2
    if room > load(base, memo + ROOM) and not _grow_pool(base, memo, room):
        return False
    if 2 * (load(base, memo + COUNT) + 1) > load(base, memo + SLOTS) and not _grow_table(base, memo):
        return False
    slot = _slot(base, memo, request)
    if load(base, slot) == 0:
        start = load(base, memo + USED)
        store(base, slot, start)
        copy(base, request, load(base, memo + POOL) + start, words)
        store(base, memo + USED, start + words)
        store(base, memo + COUNT, load(base, memo + COUNT) + 1)
    return True


@kernel
def _grow_pool(base, memo, room):
    pool = take_shared(base, room)
    if pool == 0:
        return False
    old = load(base, memo + POOL)
    copy(base, old, pool, load(base, memo + USED))
    give_shared(base, old, load(base, memo + ROOM))
    store(base, memo + POOL, pool)
    store(base, memo + ROOM, room)
    return True


@kernel
def _grow_table(base, memo):
    slots = load(base, memo + SLOTS)
    table = take_shared(base, 2 * slots)
    if table == 0:
        return False
    old, pool = load(base, memo + TABLE), load(base, memo + POOL)
    store(base, memo + TABLE, table)
    store(base, memo + SLOTS, 2 * slots)
    for slot in range(slots):
        start = load(base, old + slot)
        if start != 0:
            store(base, _slot(base, memo, pool + start), start)
    give_shared(base, old, slots)
    return True
