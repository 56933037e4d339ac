"""Windows of which all is asked about one subject: `?trip :from ?a ; :to ?b ; :fare ?c`.

Most elements bring all of that at once, about a subject that nothing else in the window is about.  Such an element is
*whole*: it is one solution while it is in the window, and needs no more than a row in a ring of its own, with the
objects in the order of the patterns, and a word in a finder.  The triples of all others enter the window one by
one, and go the way of patterns and their join.

When a subject of a whole element is heard of again, the element is *taken apart*: its solution is taken back, and its
triples are in the window like others.  They stay in their row, and a finder knows where.  Where few elements are whole
the star is given up: then none is any more, and when the last row has left, the window is like any other.

    word   of a star
    0      patterns, at most 62
    1      queue of its solutions: that of the join of the patterns
    2      finder of the rows of whole elements in the window, by their subjects
    3, 4   elements that were whole, elements that were not
    5      column of the subject in the solutions
    6      offset of what stood where in the last elements: for each position in an element a predicate, and the number
           of the pattern that has it, or -1
    7, 8   ring: offset, rows that there is room for (a power of two)
    9–11   rows that have left, entered, come (those that have not entered wait for a boundary)
    12     finder of the triples of elements taken apart, by the numbers of their rows
    13     table of the subjects that triples of others in the window are about: how many
    14     1 if it is given up
    15–17  a triple
    18 …   for each pattern: predicate; object, 0 for any; column of the object, -1 for none

    word   of a row
    0      subject
    1, 2   time and number of the element
    3      APART if it is taken apart; above, a bit for each pattern: the same triple has entered again since
    4 …    objects
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS, add_row
from cqels.kernels.containers.hash_table import COUNT as TOLD_OF
from cqels.kernels.containers.hash_table import drop_table, find, make_table, put, remove
from cqels.kernels.containers.row_set import COUNT as FOUND
from cqels.kernels.containers.row_set import (
    add_mark,
    drop_finder,
    hash_of,
    make_finder,
    mark_of,
    number_of,
    remove_mark,
    seek,
)
from cqels.kernels.memory.arena import copy, give, load, store, take
from cqels.kernels.operators.window import (
    COME,
    ENTERED,
    ENTRY_FLAGS,
    ENTRY_NUMBER,
    ENTRY_TIME,
    FINDER,
    FLAGS,
    FRESH,
    LEFT,
    RENEWED,
    STAR,
    arrive,
    enter_entry,
    entry_of,
    find_triple,
    leave_entry,
    limits_of,
    put_change,
    put_stamps,
)

PATTERNS, SOLUTIONS, WHOLE_FINDER, WHOLE_ONES, OTHERS, SUBJECT_COLUMN, STOOD = range(7)
RING, ROOM, ROWS_LEFT, ROWS_ENTERED, ROWS_COME, APART_FINDER, SUBJECTS, GIVEN_UP, TRIPLE = range(7, 16)
FIRST_PATTERN = 18
PATTERN_WORDS = 3
OBJECT, OBJECT_COLUMN = 1, 2
MOST_PATTERNS = 62
ROW_TIME, ROW_NUMBER, ROW_FLAGS, OBJECTS = 1, 2, 3, 4
APART = 1
_RENEWED = 1  # how far the bits of the patterns are above
_PLACES = 64
"""Places in an element for which it is known what stood there last."""
_MANY = 64
"""Elements that are not whole until the star may be given up."""
_FIRST_ROOM = 8
_NEW, _THERE, _NO_ROOM = range(3)
"""Of a triple that enters: it is new, it was there, or the arena is full."""


@kernel
def open_star(base, star):
    """Make a star whose patterns are written an empty one: False if the arena is full."""
    stood, ring = take(base, 2 * _PLACES), take(base, _FIRST_ROOM * _row_words(base, star))
    subjects, finder, apart = make_table(base, 1, 1), make_finder(base), make_finder(base)
    store(base, star + STOOD, stood)
    store(base, star + RING, ring)
    store(base, star + ROOM, _FIRST_ROOM)
    store(base, star + SUBJECTS, subjects)
    store(base, star + WHOLE_FINDER, finder)
    store(base, star + APART_FINDER, apart)
    return stood != 0 and ring != 0 and subjects != 0 and finder != 0 and apart != 0


@kernel
def arrive_star(base, window, triples, count, time, number):
    """An element arrives, its triples in a row; False if the arena is full. `advance_star` lets it enter."""
    star = load(base, window + STAR)
    if load(base, star + GIVEN_UP) != 0 and load(base, star + ROWS_LEFT) == load(base, star + ROWS_COME):
        _drop(base, window, star)
        return _arrive_apart(base, window, triples, count, time, number)
    come = load(base, star + ROWS_COME)
    if come - load(base, star + ROWS_LEFT) == load(base, star + ROOM) and not _grow(base, star):
        return False
    row = row_of(base, star, come)
    kept, seen, subject = 0, 0, load(base, triples)
    whole = load(base, star + GIVEN_UP) == 0
    for position in range(count if whole else 0):
        triple = triples + 3 * position
        pattern = _pattern_of(base, star, triple, position)
        if pattern < 0:
            continue
        if kept == 0:
            subject = load(base, triple)
        if load(base, triple) != subject or seen >> pattern & 1 != 0:
            whole = False
            break
        seen |= 1 << pattern
        kept += 1
        store(base, row + OBJECTS + pattern, load(base, triple + 2))
    if whole and kept == 0:
        return True
    if not whole or kept < load(base, star + PATTERNS):
        store(base, star + OTHERS, load(base, star + OTHERS) + 1)
        return _arrive_apart(base, window, triples, count, time, number)
    store(base, row, subject)
    store(base, row + ROW_TIME, time)
    store(base, row + ROW_NUMBER, number)
    store(base, row + ROW_FLAGS, 0)
    store(base, star + ROWS_COME, come + 1)
    return True


@kernel
def _arrive_apart(base, window, triples, count, time, number):
    """The triples of an element arrive one by one: those that a pattern wants."""
    for position in range(count):
        if not arrive(base, window, triples + 3 * position, time, number, position == count - 1):
            return False
    return True


@kernel
def advance_star(base, window, now, closed):
    """As `window.advance`, for a window with a star."""
    star = load(base, window + STAR)
    others = load(base, star + OTHERS)
    if others > _MANY and others > load(base, star + WHOLE_ONES) and load(base, star + GIVEN_UP) == 0:
        if not _give_up(base, window, star):
            return False
    first_in, last_in = limits_of(base, window, now, closed)
    return (
        _leave(base, window, star, first_in)
        and _enter_rows(base, window, star, first_in, last_in)
        and _enter_others(base, window, star, first_in, last_in)
    )


@kernel
def passed(base, window):
    """How much has left a window and how much has entered it: triples, and elements that were whole."""
    star = load(base, window + STAR)
    left, entered = load(base, window + LEFT), load(base, window + ENTERED)
    if star == 0:
        return left, entered
    return left + load(base, star + ROWS_LEFT), entered + load(base, star + ROWS_ENTERED)


# --- patterns and rows ----------------------------------------------------------------------------------------------


@kernel
def _pattern_of(base, star, triple, position):
    """The pattern that the triple at a position in its element matches, or -1: their predicates differ.

    Elements of a stream are much alike: mostly the same predicates stand at the same positions.
    """
    predicate = load(base, triple + 1)
    stood = load(base, star + STOOD) + 2 * (position & (_PLACES - 1))
    if load(base, stood) != predicate:
        store(base, stood, predicate)
        store(base, stood + 1, _pattern_with(base, star, predicate))
    number = load(base, stood + 1)
    if number < 0:
        return -1
    wanted = load(base, star + FIRST_PATTERN + number * PATTERN_WORDS + OBJECT)
    return number if wanted == 0 or wanted == load(base, triple + 2) else -1


@kernel
def _pattern_with(base, star, predicate):
    for number in range(load(base, star + PATTERNS)):
        if load(base, star + FIRST_PATTERN + number * PATTERN_WORDS) == predicate:
            return number
    return -1


@kernel
def _row_words(base, star):
    return OBJECTS + load(base, star + PATTERNS)


@kernel
def row_of(base, star, number):
    """The offset of a row of the ring."""
    return load(base, star + RING) + (number & (load(base, star + ROOM) - 1)) * _row_words(base, star)


@kernel
def _grow(base, star):
    """Room for twice as many rows: False if the arena is full."""
    room, words = load(base, star + ROOM), _row_words(base, star)
    ring = take(base, 2 * room * words)
    if ring == 0:
        return False
    for number in range(load(base, star + ROWS_LEFT), load(base, star + ROWS_COME)):
        copy(base, row_of(base, star, number), ring + (number & (2 * room - 1)) * words, words)
    give(base, load(base, star + RING), room * words)
    store(base, star + RING, ring)
    store(base, star + ROOM, 2 * room)
    return True


@kernel
def _triple_of(base, star, row, pattern):
    """Write a triple of a row: its offset."""
    triple = star + TRIPLE
    store(base, triple, load(base, row))
    store(base, triple + 1, load(base, star + FIRST_PATTERN + pattern * PATTERN_WORDS))
    store(base, triple + 2, load(base, row + OBJECTS + pattern))
    return triple


@kernel
def _put_solution(base, window, star, row, weight):
    """The solution of a whole element comes or goes."""
    made = add_row(base, load(base, star + SOLUTIONS))
    if made == 0:
        return False
    put_stamps(base, window, made, weight, load(base, row + ROW_TIME), load(base, row + ROW_NUMBER))
    store(base, made + COLUMNS + load(base, star + SUBJECT_COLUMN), load(base, row))
    pattern = star + FIRST_PATTERN + OBJECT_COLUMN
    for number in range(load(base, star + PATTERNS)):
        column = load(base, pattern)
        if column >= 0:
            store(base, made + COLUMNS + column, load(base, row + OBJECTS + number))
        pattern += PATTERN_WORDS
    return True


# --- coming and going -----------------------------------------------------------------------------------------------


@kernel
def _leave(base, window, star, first_in):
    """Let all leave that was before a time."""
    while load(base, star + ROWS_LEFT) < load(base, star + ROWS_ENTERED):
        number = load(base, star + ROWS_LEFT)
        row = row_of(base, star, number)
        if load(base, row + ROW_TIME) >= first_in:
            break
        store(base, star + ROWS_LEFT, number + 1)
        if not _leave_row(base, window, star, row, number):
            return False
    while load(base, window + LEFT) < load(base, window + ENTERED):
        entry = entry_of(base, window, load(base, window + LEFT))
        if load(base, entry + ENTRY_TIME) >= first_in:
            break
        _forget_triples(base, star, entry, 1)
        if not leave_entry(base, window):
            return False
    return True


@kernel
def _leave_row(base, window, star, row, number):
    """Let a whole element leave, or what is left of one that was taken apart."""
    flags = load(base, row + ROW_FLAGS)
    if flags & APART == 0:
        remove_mark(base, load(base, star + WHOLE_FINDER), mark_of(hash_of(base, row, 1), number))
        return _put_solution(base, window, star, row, -1)
    patterns = load(base, star + PATTERNS)
    for pattern in range(patterns):
        if flags >> (_RENEWED + pattern) & 1 == 0:
            triple = _triple_of(base, star, row, pattern)
            remove_mark(base, load(base, star + APART_FINDER), mark_of(hash_of(base, triple, 3), number))
            if not _put_triple(base, window, triple, row, -1):
                return False
    _forget_triples(base, star, row, patterns)
    return True


@kernel
def _row_about(base, star, subject, mixed):
    """The number of the row of a whole element about the subject that is at an offset, as its low bits tell; or -1."""
    finder, mark = load(base, star + WHOLE_FINDER), mark_of(mixed, 0)
    slot = seek(base, finder, mark, 0)
    while slot != 0:
        number = number_of(load(base, slot))
        if load(base, row_of(base, star, number)) == load(base, subject):
            return number
        slot = seek(base, finder, mark, slot)
    return -1


@kernel
def _note_triples(base, star, subject, count):
    """So many triples about a subject that is at an offset have entered: False if the arena is full."""
    found = put(base, load(base, star + SUBJECTS), subject)
    if found == 0:
        return False
    store(base, found, load(base, found) + count)
    return True


@kernel
def _forget_triples(base, star, subject, count):
    """So many triples about a subject that is at an offset have left."""
    found = find(base, load(base, star + SUBJECTS), subject)
    store(base, found, load(base, found) - count)
    if load(base, found) == 0:
        remove(base, load(base, star + SUBJECTS), found)


@kernel
def _enter_rows(base, window, star, first_in, last_in):
    """Let whole elements enter."""
    while load(base, star + ROWS_ENTERED) < load(base, star + ROWS_COME):
        number = load(base, star + ROWS_ENTERED)
        row = row_of(base, star, number)
        time = load(base, row + ROW_TIME)
        if time > last_in:
            break
        store(base, star + ROWS_ENTERED, number + 1)
        if time < first_in:  # it came and went between two boundaries
            store(base, star + ROWS_LEFT, number + 1)
        elif not _enter_row(base, window, star, row, number):
            return False
    return True


@kernel
def _enter_row(base, window, star, row, number):
    mixed = hash_of(base, row, 1)
    same, subjects = _row_about(base, star, row, mixed), load(base, star + SUBJECTS)
    alone = same < 0 and (load(base, subjects + TOLD_OF) == 0 or find(base, subjects, row) == 0)
    if alone and load(base, star + GIVEN_UP) == 0:
        store(base, star + WHOLE_ONES, load(base, star + WHOLE_ONES) + 1)
        if not add_mark(base, load(base, star + WHOLE_FINDER), mark_of(mixed, number)):
            return False
        return _put_solution(base, window, star, row, 1)
    store(base, star + OTHERS, load(base, star + OTHERS) + 1)
    if same >= 0 and not _take_apart(base, window, star, same):
        return False
    patterns = load(base, star + PATTERNS)
    if not _note_triples(base, star, row, patterns):
        return False
    store(base, row + ROW_FLAGS, APART)
    for pattern in range(patterns):
        triple = _triple_of(base, star, row, pattern)
        mixed = hash_of(base, triple, 3)
        was = _renew_apart(base, window, star, triple, mixed)
        if was == _NEW:
            was = _renew_entry(base, window, triple, mixed)
        if was == _NO_ROOM or not add_mark(base, load(base, star + APART_FINDER), mark_of(mixed, number)):
            return False
        if (was == _NEW or load(base, window + FLAGS) & FRESH) and not _put_triple(base, window, triple, row, 1):
            return False
    return True


@kernel
def _enter_others(base, window, star, first_in, last_in):
    """Let the triples of other elements enter."""
    while load(base, window + ENTERED) < load(base, window + COME):
        entered = load(base, window + ENTERED)
        entry = entry_of(base, window, entered)
        time = load(base, entry + ENTRY_TIME)
        if time > last_in:
            break
        if time < first_in:
            store(base, window + ENTERED, entered + 1)
            store(base, window + LEFT, entered + 1)
        elif not _enter_other(base, window, star, entry):
            return False
    return True


@kernel
def _enter_other(base, window, star, entry):
    """Let the next triple of another element enter, which is in the ring of the window."""
    same = _row_about(base, star, entry, hash_of(base, entry, 1))
    if (same >= 0 and not _take_apart(base, window, star, same)) or not _note_triples(base, star, entry, 1):
        return False
    mixed = hash_of(base, entry, 3)
    was = _renew_apart(base, window, star, entry, mixed)
    if was == _NEW:
        return enter_entry(base, window, entry)
    entered = load(base, window + ENTERED)
    store(base, window + ENTERED, entered + 1)
    if was == _NO_ROOM or not add_mark(base, load(base, window + FINDER), mark_of(mixed, entered)):
        return False
    if load(base, window + FLAGS) & FRESH == 0:
        return True
    return put_change(base, window, entry, 1, load(base, entry + ENTRY_TIME), load(base, entry + ENTRY_NUMBER))


@kernel
def _renew_apart(base, window, star, triple, mixed):
    """A triple enters again that an element which was taken apart has brought: whether it is so, or _NO_ROOM.

    It is then no longer that of the element, and if times matter its change is taken back.
    """
    finder, pattern = load(base, star + APART_FINDER), _pattern_with(base, star, load(base, triple + 1))
    if load(base, finder + FOUND) == 0 or pattern < 0:
        return _NEW
    mark = mark_of(mixed, 0)
    slot = seek(base, finder, mark, 0)
    while slot != 0:
        number = number_of(load(base, slot))
        row = row_of(base, star, number)
        if load(base, row) == load(base, triple) and load(base, row + OBJECTS + pattern) == load(base, triple + 2):
            flags = load(base, row + ROW_FLAGS)
            store(base, row + ROW_FLAGS, flags | 1 << (_RENEWED + pattern))
            remove_mark(base, finder, load(base, slot))
            if load(base, window + FLAGS) & FRESH and not _put_triple(base, window, triple, row, -1):
                return _NO_ROOM
            return _THERE
        slot = seek(base, finder, mark, slot)
    return _NEW


@kernel
def _renew_entry(base, window, triple, mixed):
    """The same of a triple that is in the ring of the window."""
    slot = find_triple(base, window, triple, mark_of(mixed, 0))
    if slot == 0:
        return _NEW
    before = entry_of(base, window, number_of(load(base, slot)))
    store(base, before + ENTRY_FLAGS, load(base, before + ENTRY_FLAGS) | RENEWED)
    remove_mark(base, load(base, window + FINDER), load(base, slot))
    if load(base, window + FLAGS) & FRESH:
        time, number = load(base, before + ENTRY_TIME), load(base, before + ENTRY_NUMBER)
        if not put_change(base, window, triple, -1, time, number):
            return _NO_ROOM
    return _THERE


@kernel
def _put_triple(base, window, triple, row, weight):
    return put_change(base, window, triple, weight, load(base, row + ROW_TIME), load(base, row + ROW_NUMBER))


# --- taking apart ---------------------------------------------------------------------------------------------------


@kernel
def _take_apart(base, window, star, number):
    """Take back the solution of a whole element, and let its triples be in the window like others."""
    row, patterns = row_of(base, star, number), load(base, star + PATTERNS)
    store(base, row + ROW_FLAGS, APART)
    remove_mark(base, load(base, star + WHOLE_FINDER), mark_of(hash_of(base, row, 1), number))
    if not _note_triples(base, star, row, patterns) or not _put_solution(base, window, star, row, -1):
        return False
    for pattern in range(patterns):
        triple = _triple_of(base, star, row, pattern)
        if not add_mark(base, load(base, star + APART_FINDER), mark_of(hash_of(base, triple, 3), number)):
            return False
        if not _put_triple(base, window, triple, row, 1):
            return False
    return True


@kernel
def _give_up(base, window, star):
    """From now on no element is whole; those that are, are taken apart."""
    store(base, star + GIVEN_UP, 1)
    for number in range(load(base, star + ROWS_LEFT), load(base, star + ROWS_ENTERED)):
        row = row_of(base, star, number)
        if load(base, row + ROW_FLAGS) & APART == 0:
            if not _take_apart(base, window, star, number):
                return False
    return True


@kernel
def _drop(base, window, star):
    """Nothing is left of a star that was given up."""
    drop_table(base, load(base, star + SUBJECTS))
    drop_finder(base, load(base, star + WHOLE_FINDER))
    drop_finder(base, load(base, star + APART_FINDER))
    give(base, load(base, star + RING), load(base, star + ROOM) * _row_words(base, star))
    store(base, window + STAR, 0)
