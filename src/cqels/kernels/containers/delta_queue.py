"""Rows and queues of rows: what flows between operators.

A *row* is a change of a bag of solutions: a weight (+1 it appeared, -1 it went; other numbers count several), when the
elements it came from were, and the node ids of its variables, 0 where one is unbound.

    word   of a row
    0      weight
    1, 2   newest element: time, number in order of arrival (NEVER, -1 if it came from none)
    3      time of the oldest element (ALWAYS if it came from none)
    4 …    columns

A *queue* is a block that never moves, with its rows in a block that grows:

    word   of a queue
    0      rows in it
    1      rows that there is room for
    2      words in a row: 4 + columns
    3      offset of the rows
    4      rows that have been in it before

The same bag can be said in many ways: the order of rows means nothing but within one operator's step, and a row and its
opposite cancel out.  Two rows are the same solution if their columns are; the stamps are part of what is taken back: a
row with weight -1 has the very stamps of the row it undoes.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import Arena, copy, give, load, store, take
from cqels.kernels.memory.interrupt_poll import ROWS, is_abandoned

WEIGHT, TIME, NUMBER, OLDEST, COLUMNS = 0, 1, 2, 3, 4
DONE, NEED_CALL, FULL, AGAIN, PAUSED = 0, 1, 2, 3, 4
"""What the step of an operator says: it is done, Python must answer a question first, the arena is full, it wants to
read all rows again, not their changes. The scheduler says too that it pauses, to be called again."""

NEVER = -(2**63)
ALWAYS = 2**63 - 1

COUNT, ROOM, WIDTH, DATA, TOTAL = 0, 1, 2, 3, 4
QUEUE_WORDS = 5

SEQ, EQUALS = 1, 2
"""Conditions on the times of two rows: one ends no later than the other begins, or they begin and end together."""


@kernel
def said(done):
    """What a step says that is done unless the arena is full."""
    return DONE if done else FULL


@kernel
def make_queue(base, columns):
    """A new, empty queue: its offset, or 0 if the arena is full."""
    queue = take(base, QUEUE_WORDS)
    if queue == 0:
        return 0
    width = COLUMNS + columns
    rows = take(base, 8 * width)
    if rows == 0:
        return 0
    store(base, queue + ROOM, 8)
    store(base, queue + WIDTH, width)
    store(base, queue + DATA, rows)
    return queue


def widen(arena: Arena, queue: int) -> None:
    """Give the rows of an empty queue one more column."""
    words = arena.words
    width, room, rows = (int(words[queue + word]) for word in (WIDTH, ROOM, DATA))
    give(arena.base, rows, room * width)
    words[queue + WIDTH], words[queue + DATA] = width + 1, arena.take(room * (width + 1))


@kernel
def add_row(base, queue):
    """Room for one more row at the end: its offset; 0 if the arena is full, or if there are many already and work is
    abandoned. Its words are 0 or left from before.
    """
    count = load(base, queue + COUNT)
    if count & ROWS == ROWS and is_abandoned(base):
        return 0
    if count == load(base, queue + ROOM):
        return add_rows(base, queue, 1)
    store(base, queue + COUNT, count + 1)
    return load(base, queue + DATA) + count * load(base, queue + WIDTH)


@kernel
def add_rows(base, queue, more):
    """Room for several rows at the end: the offset of the first, or 0 if the arena is full."""
    count, room, width = load(base, queue + COUNT), load(base, queue + ROOM), load(base, queue + WIDTH)
    if count + more > room:
        larger = room
        while larger < count + more:
            larger *= 2
        rows = take(base, larger * width)
        if rows == 0:
            return 0
        old = load(base, queue + DATA)
        copy(base, old, rows, count * width)
        give(base, old, room * width)
        store(base, queue + DATA, rows)
        store(base, queue + ROOM, larger)
    store(base, queue + COUNT, count + more)
    return load(base, queue + DATA) + count * width


@kernel
def row_at(base, queue, number):
    """The offset of a row of the queue."""
    return load(base, queue + DATA) + number * load(base, queue + WIDTH)


@kernel
def clear(base, queue):
    """Empty the queue; its memory stays."""
    store(base, queue + TOTAL, load(base, queue + TOTAL) + load(base, queue + COUNT))
    store(base, queue + COUNT, 0)


@kernel
def put_stamps(base, target, one, other):
    """Give a row the stamps of two rows joined: the newest of both, the oldest of both."""
    first = one if _newer(base, one, other) else other
    store(base, target + TIME, load(base, first + TIME))
    store(base, target + NUMBER, load(base, first + NUMBER))
    store(base, target + OLDEST, min(load(base, one + OLDEST), load(base, other + OLDEST)))


@kernel
def in_time(base, timing, left, right):
    """Whether the times of two rows are as a condition wants them; what came from no element is at no time."""
    if load(base, left + TIME) == NEVER or load(base, right + TIME) == NEVER:
        return False
    if timing == SEQ:
        return load(base, left + TIME) <= load(base, right + OLDEST)
    return load(base, left + TIME) == load(base, right + TIME) and load(base, left + OLDEST) == load(
        base, right + OLDEST
    )


@kernel
def _newer(base, one, other):
    if load(base, one + TIME) != load(base, other + TIME):
        return load(base, one + TIME) > load(base, other + TIME)
    return load(base, one + NUMBER) >= load(base, other + NUMBER)
