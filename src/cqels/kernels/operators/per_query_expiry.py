"""Per-query expiry (NARROW): solutions of the widest of many windows, each until its own, narrower window expires it.

A column has the width of that window in nanoseconds; it is not sent on.  A row whose oldest element is of time t is in
the window of width w at time τ if τ - w <= t, closed at both ends as RANGE is.  So at time τ

    sum of what was sent = the rows that came, added up, with oldest + width >= τ

Of windows that count, the oldest element of a row is told by its position among those that came (window.py), the width
is how many positions there are before the last one, and τ is the position of that.

What is sent is kept until it is taken back or its time is over, and then goes by itself; what comes or goes later than
that is passed over.

    word   of the operator
    0, 1   queues of input and output
    2      where in a row the width is
    3      1 if what is sent has its stamps, 0 if it is to come from no element
    4      table of the rows that are kept: all their words but the weight to their offsets
    5–7    heap of these offsets, the one that goes first on top: number, room, offset
    8      offset of the word that has the time, 0 if that is the tick's

    word   of a row that is kept
    0 …    as it came (delta_queue.py)
    …      the last time at which it is there
    …      where it is in the heap
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import (
    ALWAYS,
    COLUMNS,
    COUNT,
    NEVER,
    NUMBER,
    OLDEST,
    TIME,
    WEIGHT,
    WIDTH,
    add_row,
    row_at,
    said,
)
from cqels.kernels.containers.hash_table import find, make_table, put, remove
from cqels.kernels.memory.arena import Arena, copy, give, load, make_room, store, take
from cqels.model.errors import ArenaFull

IN, OUT, COLUMN, STAMPED, KEPT, HEAP, ROOM, DATA, CLOCK_AT = range(9)
NARROW_WORDS = 9
_UNTIL, _PLACE, _MORE = 0, 1, 2
"""Where a row that is kept has what it did not come with, behind its own words."""


def make_expiry(arena: Arena, out: int, queue: int, column: int, *, stamps: bool, clock: int = 0) -> int:
    """Let each row of a queue be there for as long as its column says; `out` has all columns but that one.

    `clock` is the offset of the word that it is compared with, if it is not the time of the tick.
    """
    offset = arena.take(NARROW_WORDS)
    words = arena.array(offset, NARROW_WORDS)
    words[IN], words[OUT], words[COLUMN], words[STAMPED] = queue, out, COLUMNS + column, stamps
    words[CLOCK_AT] = clock
    words[KEPT] = make_table(arena.base, int(arena.words[queue + WIDTH]) - TIME, 1)
    words[ROOM], words[DATA] = 8, arena.take(8)
    if words[KEPT] == 0:
        raise ArenaFull
    return offset


@kernel
def step_expiry(base, operator, now):
    """Let go what is over at this time, and work off the changes of the input: False if the arena is full."""
    queue = load(base, operator + IN)
    words = load(base, queue + WIDTH)
    if load(base, operator + CLOCK_AT) != 0:
        now = load(base, load(base, operator + CLOCK_AT))
    while load(base, operator + HEAP) > 0:
        kept = load(base, load(base, operator + DATA))
        if load(base, kept + words + _UNTIL) >= now:
            break
        if not _send(base, operator, kept, -load(base, kept + WEIGHT)):
            return False
        _forget(base, operator, kept, words)
    for number in range(load(base, queue + COUNT)):
        row = row_at(base, queue, number)
        until = _until(base, operator, row)
        if until < now or load(base, row + WEIGHT) == 0:
            continue
        if not _keep(base, operator, row, until, words) or not _send(base, operator, row, load(base, row + WEIGHT)):
            return False
    return True


@kernel
def _until(base, operator, row):
    """The last time at which a row is there: ALWAYS if it came from no element, or that time is beyond all times."""
    oldest, width = load(base, row + OLDEST), load(base, row + load(base, operator + COLUMN))
    return ALWAYS if oldest > 0 and width > ALWAYS - oldest else oldest + width


@kernel
def _keep(base, operator, row, until, words):
    """Add the weight of a row to that of the one that is kept: False if the arena is full."""
    entry = put(base, load(base, operator + KEPT), row + TIME)
    if entry == 0:
        return False
    kept = load(base, entry)
    if kept == 0:
        kept = take(base, words + _MORE)
        if kept == 0:
            return False
        store(base, entry, kept)
        copy(base, row, kept, words)
        store(base, kept + words + _UNTIL, until)
        return _push(base, operator, kept, words)
    weight = load(base, kept + WEIGHT) + load(base, row + WEIGHT)
    store(base, kept + WEIGHT, weight)
    if weight == 0:
        _forget(base, operator, kept, words)
    return True


@kernel
def _forget(base, operator, kept, words):
    table = load(base, operator + KEPT)
    remove(base, table, find(base, table, kept + TIME))
    _take_out(base, operator, load(base, kept + words + _PLACE), words)
    give(base, kept, words + _MORE)


@kernel
def _send(base, operator, row, weight):
    """Send a row on with this weight and without its column: False if the arena is full."""
    out, column = load(base, operator + OUT), load(base, operator + COLUMN)
    made = add_row(base, out)
    if made == 0:
        return False
    copy(base, row, made, column)
    copy(base, row + column + 1, made + column, load(base, out + WIDTH) - column)
    store(base, made + WEIGHT, weight)
    if load(base, operator + STAMPED) == 0:
        store(base, made + TIME, NEVER)
        store(base, made + NUMBER, -1)
        store(base, made + OLDEST, ALWAYS)
    return True


# --- the heap: rows know where they are in it, so that any of them can be taken out


@kernel
def _push(base, operator, kept, words):
    """Add a row that came with so many words: False if the arena is full."""
    count = load(base, operator + HEAP)
    if not make_room(base, count, operator + ROOM, operator + DATA):
        return False
    store(base, operator + HEAP, count + 1)
    _rise(base, operator, kept, count, words)
    return True


@kernel
def _take_out(base, operator, position, words):
    """Take the row at a position of the heap out: the last one fills its position."""
    count = load(base, operator + HEAP) - 1
    store(base, operator + HEAP, count)
    if position == count:
        return
    data = load(base, operator + DATA)
    moved = load(base, data + count)
    until = load(base, moved + words + _UNTIL)
    while 2 * position + 1 < count:
        below = 2 * position + 1
        if below + 1 < count and _until_at(base, data, below + 1, words) < _until_at(base, data, below, words):
            below += 1
        if _until_at(base, data, below, words) >= until:
            break
        _put_at(base, data, position, load(base, data + below), words)
        position = below
    _rise(base, operator, moved, position, words)


@kernel
def _rise(base, operator, kept, position, words):
    """Put a row where it belongs, from a position upwards."""
    data, until = load(base, operator + DATA), load(base, kept + words + _UNTIL)
    while position > 0:
        above = (position - 1) >> 1
        if _until_at(base, data, above, words) <= until:
            break
        _put_at(base, data, position, load(base, data + above), words)
        position = above
    _put_at(base, data, position, kept, words)


@kernel
def _until_at(base, data, position, words):
    return load(base, load(base, data + position) + words + _UNTIL)


@kernel
def _put_at(base, data, position, kept, words):
    store(base, data + position, kept)
    store(base, kept + words + _PLACE, position)


@kernel
def expiry_due(base, operator):
    """The first time at which something is over: ALWAYS if that is not known by the time."""
    if load(base, operator + HEAP) == 0 or load(base, operator + CLOCK_AT) != 0:
        return ALWAYS
    kept = load(base, load(base, operator + DATA))
    until = load(base, kept + load(base, load(base, operator + IN) + WIDTH) + _UNTIL)
    return until if until == ALWAYS else until + 1


@kernel
def expiry_step(base, operator, now):
    """The step as the scheduler takes it."""
    return said(step_expiry(base, operator, now))
