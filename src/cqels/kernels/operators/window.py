"""Windows over streams, and the patterns that read them: from arriving triples to changes of bags of mappings.

A window keeps its triples in order of arrival in a ring.  Its graph is a set: a triple that several elements brought is
there once, as new as the newest of them.  So what flows out are the changes of that set, as rows of three columns.

    word   of a window
    0      kind: NOW, RANGE, SLIDE, ALL, TRIPLES, ELEMENTS; TOLD and TOLD_SLIDE are in payload_time_window.py
    1      width in nanoseconds, or the number of triples or elements
    2      flags: FRESH, the times of elements matter to the query; EVENTS, every occurrence is told apart;
           OWN_TIME, not all that it keeps belongs to the query's window; PLACES, of a window that counts: the oldest
           element of a row is told by its position among those that came, not by its time
    3      queue of its changes
    4, 5   ring: offset, entries that there is room for (a power of two)
    6      entries that have left (the number of the oldest entry in the window)
    7      entries that have entered (those behind wait for a boundary)
    8      entries that have come
    9      elements in the window, for ELEMENTS
    10     finder of the newest entry of each triple that is in the window
    11     list of patterns, 12 their number: a triple that none of them matches need not be kept; 0 keeps all
    13     its star (star_window.py), or 0
    14     of a window that counts: elements that have come; 15 the position of the last that has entered

    word   of an entry of the ring
    0–2    subject, predicate, object
    3, 4   time and number of the element
    5      flags: LAST_ONE, the last triple of the element; RENEWED, the same triple has entered again since;
           above, of a window that counts: its position, or that of its element, among all that came

    word   of a pattern: for subject, predicate and object in turn
    0      the id it must be, 0 for any
    1      the position among these three whose id it must equal (itself if none comes before it)
    2      its column among the columns of the rows made, -1 for none
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
    add_row,
    row_at,
    said,
)
from cqels.kernels.containers.row_set import add_mark, hash_of, make_finder, mark_of, number_of, remove_mark, seek
from cqels.kernels.memory.arena import copy, give, load, store, take

NOW, RANGE, SLIDE, ALL, TRIPLES, ELEMENTS, TOLD, TOLD_SLIDE = range(8)
FRESH, EVENTS, OWN_TIME, PLACES = 1, 2, 4, 8
KIND, WIDTH, FLAGS, QUEUE, RING, ROOM, LEFT, ENTERED, COME, HELD, FINDER, PATTERNS, PATTERN_COUNT, STAR = range(14)
SEEN, CLOCK = 14, 15
WINDOW_WORDS = 16
ENTRY_WORDS, ENTRY_TIME, ENTRY_NUMBER, ENTRY_FLAGS = 6, 3, 4, 5
LAST_ONE, RENEWED = 1, 2
_PLACE = 2  # how far above the flags
PATTERN_WORDS = 9


@kernel
def make_window(base, kind, width, flags, queue):
    """A new, empty window that writes deltas to a queue of three columns: its offset, or 0 if the arena is full."""
    window = take(base, WINDOW_WORDS)
    ring = take(base, 8 * ENTRY_WORDS)
    finder = make_finder(base)
    if window == 0 or ring == 0 or finder == 0:
        return 0
    store(base, window + KIND, kind)
    store(base, window + WIDTH, width)
    store(base, window + FLAGS, flags)
    store(base, window + QUEUE, queue)
    store(base, window + RING, ring)
    store(base, window + ROOM, 8)
    store(base, window + FINDER, finder)
    return window


@kernel
def matches(base, pattern, triple):
    """Whether the triple at an offset fits a pattern."""
    for position in range(3):
        part = pattern + 3 * position
        term, wanted = load(base, triple + position), load(base, part)
        if (wanted != 0 and wanted != term) or load(base, triple + load(base, part + 1)) != term:
            return False
    return True


@kernel
def is_wanted(base, window, triple):
    """Whether some pattern that reads the window matches the triple at an offset."""
    for number in range(load(base, window + PATTERN_COUNT)):
        if matches(base, load(base, window + PATTERNS) + number * PATTERN_WORDS, triple):
            return True
    return False


@kernel
def arrive(base, window, triple, time, number, last):
    """A triple of an element arrives; False if the arena is full. `advance` lets it enter."""
    kind = load(base, window + KIND)
    if kind < TRIPLES and load(base, window + PATTERN_COUNT) > 0:  # a window that counts has to count them all
        if not is_wanted(base, window, triple):
            return True
    if load(base, window + COME) - load(base, window + LEFT) == load(base, window + ROOM) and not grow_ring(
        base, window
    ):
        return False
    come = load(base, window + COME)
    entry = entry_of(base, window, come)
    copy(base, triple, entry, 3)
    store(base, entry + ENTRY_TIME, time)
    store(base, entry + ENTRY_NUMBER, number)
    flags = LAST_ONE if last != 0 else 0
    if kind >= TRIPLES:
        seen = load(base, window + SEEN)
        flags |= (come if kind == TRIPLES else seen) << _PLACE
        store(base, window + SEEN, seen + (flags & LAST_ONE))
    store(base, entry + ENTRY_FLAGS, flags)
    store(base, window + COME, come + 1)
    return True


@kernel
def advance(base, window, now, closed):
    """Let expire what no longer belongs to the window and enter what does: the tick's changes go to the queue.

    `now` is the tick's time, `closed` the last boundary that has closed (NEVER for none). False if the arena is full.
    """
    kind, width = load(base, window + KIND), load(base, window + WIDTH)
    first_in, last_in = limits_of(base, window, now, closed)
    while load(base, window + LEFT) < load(base, window + ENTERED):
        if load(base, entry_of(base, window, load(base, window + LEFT)) + ENTRY_TIME) >= first_in:
            break
        if not leave_entry(base, window):
            return False
    while load(base, window + ENTERED) < load(base, window + COME):
        entry = entry_of(base, window, load(base, window + ENTERED))
        time = load(base, entry + ENTRY_TIME)
        if time > last_in or (kind == SLIDE and closed == NEVER):
            break
        if time < first_in:  # it came and went between two boundaries
            store(base, window + ENTERED, load(base, window + ENTERED) + 1)
            store(base, window + LEFT, load(base, window + ENTERED))
            continue
        if not enter_entry(base, window, entry):
            return False
        if kind >= TRIPLES:
            store(base, window + CLOCK, load(base, entry + ENTRY_FLAGS) >> _PLACE)
        if kind == TRIPLES and load(base, window + ENTERED) - load(base, window + LEFT) > width:
            if not leave_entry(base, window):
                return False
        elif kind == ELEMENTS and load(base, entry + ENTRY_FLAGS) & LAST_ONE:
            store(base, window + HELD, load(base, window + HELD) + 1)
            if load(base, window + HELD) > width and not _leave_element(base, window):
                return False
    return True


@kernel
def limits_of(base, window, now, closed):
    """The times of the first and the last that belong to the window, as far as times tell."""
    kind, width = load(base, window + KIND), load(base, window + WIDTH)
    if kind == SLIDE:
        return NEVER if closed == NEVER else since(closed, width - 1), closed
    if kind == RANGE:
        return since(now, width), now
    return now if kind == NOW else NEVER, now


@kernel
def since(time, width):
    """The time that is `width` before another, or the first of all if that is before it; a width of -1 is behind it."""
    if width < 0:
        return time - width
    return time - width if time >= NEVER + width else NEVER


@kernel
def match_rows(base, source, pattern, target):
    """Turn the changes of a window's graph, rows of three columns, into those of a pattern's mappings.

    False if the arena is full.
    """
    for number in range(load(base, source + COUNT)):
        row = row_at(base, source, number)
        if matches(base, pattern, row + COLUMNS):
            made = add_row(base, target)
            if made == 0:
                return False
            copy(base, row, made, COLUMNS)
            for position in range(3):
                column = load(base, pattern + 3 * position + 2)
                if column >= 0:
                    store(base, made + COLUMNS + column, load(base, row + COLUMNS + position))
    return True


@kernel
def entry_of(base, window, number):
    """The offset of an entry of the ring."""
    return load(base, window + RING) + (number & (load(base, window + ROOM) - 1)) * ENTRY_WORDS


@kernel
def grow_ring(base, window):
    """Room for twice as many entries: False if the arena is full."""
    room = load(base, window + ROOM)
    ring = take(base, 2 * room * ENTRY_WORDS)
    if ring == 0:
        return False
    old = load(base, window + RING)
    for number in range(load(base, window + LEFT), load(base, window + COME)):
        offset = old + (number & (room - 1)) * ENTRY_WORDS
        copy(base, offset, ring + (number & (2 * room - 1)) * ENTRY_WORDS, ENTRY_WORDS)
    give(base, old, room * ENTRY_WORDS)
    store(base, window + RING, ring)
    store(base, window + ROOM, 2 * room)
    return True


@kernel
def enter_entry(base, window, entry):
    """Let the next entry of the ring enter: False if the arena is full."""
    flags, entered = load(base, window + FLAGS), load(base, window + ENTERED)
    store(base, window + ENTERED, entered + 1)
    if flags & EVENTS:
        return _put_entry(base, window, entry, 1)
    mark = mark_of(hash_of(base, entry, 3), entered)
    slot = find_triple(base, window, entry, mark)
    if slot == 0:
        return add_mark(base, load(base, window + FINDER), mark) and _put_entry(base, window, entry, 1)
    before = entry_of(base, window, number_of(load(base, slot)))
    store(base, before + ENTRY_FLAGS, load(base, before + ENTRY_FLAGS) | RENEWED)
    store(base, slot, mark)
    if flags & FRESH == 0:
        return True
    return _put_entry(base, window, before, -1) and _put_entry(base, window, entry, 1)


@kernel
def find_triple(base, window, triple, mark):
    """The slot of the newest entry of a triple, or 0."""
    finder = load(base, window + FINDER)
    slot = seek(base, finder, mark, 0)
    while slot != 0:
        entry = entry_of(base, window, number_of(load(base, slot)))
        if (
            load(base, entry) == load(base, triple)
            and load(base, entry + 1) == load(base, triple + 1)
            and load(base, entry + 2) == load(base, triple + 2)
        ):
            return slot
        slot = seek(base, finder, mark, slot)
    return 0


@kernel
def leave_entry(base, window):
    """Let the oldest entry leave: False if the arena is full."""
    number = load(base, window + LEFT)
    entry = entry_of(base, window, number)
    store(base, window + LEFT, number + 1)
    if load(base, window + FLAGS) & EVENTS == 0:
        if load(base, entry + ENTRY_FLAGS) & RENEWED:
            return True
        remove_mark(base, load(base, window + FINDER), mark_of(hash_of(base, entry, 3), number))
    return _put_entry(base, window, entry, -1)


@kernel
def _leave_element(base, window):
    store(base, window + HELD, load(base, window + HELD) - 1)
    while True:
        last = load(base, entry_of(base, window, load(base, window + LEFT)) + ENTRY_FLAGS) & LAST_ONE
        if not leave_entry(base, window):
            return False
        if last != 0:
            return True


@kernel
def _put_entry(base, window, entry, weight):
    """Put an entry that comes or goes into the queue: False if the arena is full."""
    row = add_row(base, load(base, window + QUEUE))
    if row == 0:
        return False
    put_stamps(base, window, row, weight, load(base, entry + ENTRY_TIME), load(base, entry + ENTRY_NUMBER))
    if load(base, window + FLAGS) & PLACES:
        store(base, row + OLDEST, load(base, entry + ENTRY_FLAGS) >> _PLACE)
    copy(base, entry, row + COLUMNS, 3)
    return True


@kernel
def put_change(base, window, triple, weight, time, number):
    """Put a change of the window's graph into its queue: False if the arena is full."""
    row = add_row(base, load(base, window + QUEUE))
    if row == 0:
        return False
    put_stamps(base, window, row, weight, time, number)
    copy(base, triple, row + COLUMNS, 3)
    return True


@kernel
def put_stamps(base, window, row, weight, time, number):
    """Give a row its weight and the stamps of an element, if they matter to the query."""
    fresh = load(base, window + FLAGS) & FRESH
    store(base, row + WEIGHT, weight)
    store(base, row + TIME, time if fresh else NEVER)
    store(base, row + NUMBER, number if fresh else -1)
    store(base, row + OLDEST, time if fresh else ALWAYS)


@kernel
def match_step(base, operator, now):
    """The step of a pattern: the queue it reads, its pattern, the queue it writes."""
    return said(match_rows(base, load(base, operator), load(base, operator + 1), load(base, operator + 2)))
