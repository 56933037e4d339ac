"""Windows of which all is asked about one subject: `?trip :from ?a ; :to ?b ; :fare ?c`.

Most elements bring all of that at once, about a subject that nothing else in the window is about.  Such an element is
*whole*: it is one solution while it is in the window, and needs no more than a place among the subjects.  The triples
of all others enter the window one by one, and go the way of patterns and their join.  When a subject of a whole
element is heard of again, its solution is taken back and its triples enter like others.  Where few elements are whole
the star is given up: then the window is like any other.

The ring has the triples of a whole element in the order of the patterns; the first of them is marked.

    word   of a star
    0      patterns, at most 62
    1      queue of its solutions: that of the join of the patterns
    2      table of the subjects in the window: 1 + number of the first entry of the whole element about it, or
           minus the number of entries of others
    3, 4   elements that were whole, elements that were not
    5      column of the subject in the solutions
    6 …    for each pattern: predicate; object, 0 for any; column of the object, -1 for none
"""

from __future__ import annotations

from cqels.kernels.finder import add_mark, hash_of, mark_of
from cqels.kernels.jit import kernel
from cqels.kernels.memory import copy, load, store
from cqels.kernels.rows import COLUMNS, NEVER, add_row
from cqels.kernels.table import drop_table, find, put, remove
from cqels.kernels.window import (
    COME,
    ENTERED,
    ENTRY_FLAGS,
    ENTRY_NUMBER,
    ENTRY_TIME,
    FINDER,
    KIND,
    LEFT,
    ROOM,
    SLIDE,
    STAR,
    enter_entry,
    entry_of,
    grow_ring,
    leave_entry,
    limits_of,
    put_change,
    put_stamps,
)

PATTERNS, SOLUTIONS, SUBJECTS, WHOLE_ONES, OTHERS, SUBJECT_COLUMN, FIRST_PATTERN = range(7)
PATTERN_WORDS = 3
OBJECT, OBJECT_COLUMN = 1, 2
MOST_PATTERNS = 62
WHOLE = 4
_MANY = 64
"""Elements that are not whole until the star may be given up."""


@kernel
def arrive_star(base, window, triples, count, time, number):
    """An element arrives, its triples in a row; False if the arena is full. `advance_star` lets it enter."""
    star = load(base, window + STAR)
    room = max(count, load(base, star + PATTERNS))
    while load(base, window + COME) - load(base, window + LEFT) + room > load(base, window + ROOM):
        if not grow_ring(base, window):
            return False
    come = load(base, window + COME)
    kept, seen, following, subject = 0, 0, 0, 0
    whole = True
    for place in range(count):
        triple = triples + 3 * place
        pattern = _pattern_of(base, star, triple, following)
        if pattern < 0:
            continue
        following = pattern + 1
        if kept == 0:
            subject = load(base, triple)
        whole = whole and load(base, triple) == subject and seen >> pattern & 1 == 0
        seen |= 1 << pattern
        kept += 1
        if whole:
            _write_entry(base, window, come + pattern, triple, time, number, WHOLE if pattern == 0 else 0)
    if kept == 0:
        return True
    if not whole or kept < load(base, star + PATTERNS):
        store(base, star + OTHERS, load(base, star + OTHERS) + 1)
        kept = 0
        for place in range(count):
            triple = triples + 3 * place
            if _pattern_of(base, star, triple, 0) >= 0:
                _write_entry(base, window, come + kept, triple, time, number, 0)
                kept += 1
    store(base, window + COME, come + kept)
    return True


@kernel
def advance_star(base, window, now, closed):
    """As `window.advance`, for a window with a star."""
    star = load(base, window + STAR)
    others = load(base, star + OTHERS)
    if others > _MANY and others > load(base, star + WHOLE_ONES) and not _give_up(base, window, star):
        return False
    first_in, last_in = limits_of(base, window, now, closed)
    while load(base, window + LEFT) < load(base, window + ENTERED):
        if load(base, entry_of(base, window, load(base, window + LEFT)) + ENTRY_TIME) >= first_in:
            break
        if not _leave(base, window):
            return False
    while load(base, window + ENTERED) < load(base, window + COME):
        entered = load(base, window + ENTERED)
        entry = entry_of(base, window, entered)
        time = load(base, entry + ENTRY_TIME)
        if time > last_in or (load(base, window + KIND) == SLIDE and closed == NEVER):
            break
        if time < first_in:  # it came and went between two boundaries
            store(base, window + ENTERED, entered + 1)
            store(base, window + LEFT, entered + 1)
        elif not _enter(base, window, entry):
            return False
    return True


@kernel
def _pattern_of(base, star, triple, likely):
    """The pattern that a triple matches, or -1: their predicates differ."""
    predicate = load(base, triple + 1)
    count = load(base, star + PATTERNS)
    number = likely
    pattern = star + FIRST_PATTERN + likely * PATTERN_WORDS
    if likely == count or load(base, pattern) != predicate:
        number = 0
        pattern = star + FIRST_PATTERN
        while number < count and load(base, pattern) != predicate:
            number += 1
            pattern += PATTERN_WORDS
        if number == count:
            return -1
    wanted = load(base, pattern + OBJECT)
    return number if wanted == 0 or wanted == load(base, triple + 2) else -1


@kernel
def _write_entry(base, window, number, triple, time, element, flags):
    entry = entry_of(base, window, number)
    copy(base, triple, entry, 3)
    store(base, entry + ENTRY_TIME, time)
    store(base, entry + ENTRY_NUMBER, element)
    store(base, entry + ENTRY_FLAGS, flags)


@kernel
def _enter(base, window, entry):
    """Let a whole element enter, or the next triple of another."""
    star = load(base, window + STAR)
    if star == 0:
        return enter_entry(base, window, entry)
    found = put(base, load(base, star + SUBJECTS), entry)
    if found == 0:
        return False
    entered = load(base, window + ENTERED)
    if load(base, entry + ENTRY_FLAGS) & WHOLE:
        if load(base, found) == 0:
            store(base, found, entered + 1)
            store(base, star + WHOLE_ONES, load(base, star + WHOLE_ONES) + 1)
            store(base, window + ENTERED, entered + load(base, star + PATTERNS))
            return _put_solution(base, window, star, entered, 1)
        store(base, entry + ENTRY_FLAGS, 0)
        store(base, star + OTHERS, load(base, star + OTHERS) + 1)
    if load(base, found) > 0:
        number = load(base, found) - 1
        store(base, found, -load(base, star + PATTERNS))
        if not _take_apart(base, window, star, number):
            return False
    store(base, found, load(base, found) - 1)
    return enter_entry(base, window, entry)


@kernel
def _leave(base, window):
    """Let a whole element leave, or the oldest triple of another."""
    star = load(base, window + STAR)
    if star == 0:
        return leave_entry(base, window)
    subjects, left = load(base, star + SUBJECTS), load(base, window + LEFT)
    entry = entry_of(base, window, left)
    found = find(base, subjects, entry)
    if load(base, entry + ENTRY_FLAGS) & WHOLE:
        remove(base, subjects, found)
        store(base, window + LEFT, left + load(base, star + PATTERNS))
        return _put_solution(base, window, star, left, -1)
    store(base, found, load(base, found) + 1)
    if load(base, found) == 0:
        remove(base, subjects, found)
    return leave_entry(base, window)


@kernel
def _put_solution(base, window, star, number, weight):
    """The solution of the whole element whose first entry has this number comes or goes."""
    row = add_row(base, load(base, star + SOLUTIONS))
    if row == 0:
        return False
    entry = entry_of(base, window, number)
    put_stamps(base, window, row, weight, load(base, entry + ENTRY_TIME), load(base, entry + ENTRY_NUMBER))
    store(base, row + COLUMNS + load(base, star + SUBJECT_COLUMN), load(base, entry))
    for place in range(load(base, star + PATTERNS)):
        column = load(base, star + FIRST_PATTERN + place * PATTERN_WORDS + OBJECT_COLUMN)
        if column >= 0:
            store(base, row + COLUMNS + column, load(base, entry_of(base, window, number + place) + 2))
    return True


@kernel
def _take_apart(base, window, star, number):
    """Take back the solution of a whole element, and let its triples enter one by one."""
    first = entry_of(base, window, number)
    store(base, first + ENTRY_FLAGS, 0)
    if not _put_solution(base, window, star, number, -1):
        return False
    for place in range(load(base, star + PATTERNS)):
        entry = entry_of(base, window, number + place)
        mark = mark_of(hash_of(base, entry, 3), number + place)
        time, element = load(base, entry + ENTRY_TIME), load(base, entry + ENTRY_NUMBER)
        if not add_mark(base, load(base, window + FINDER), mark):
            return False
        if not put_change(base, window, entry, 1, time, element):
            return False
    return True


@kernel
def _give_up(base, window, star):
    for number in range(load(base, window + LEFT), load(base, window + ENTERED)):
        if load(base, entry_of(base, window, number) + ENTRY_FLAGS) & WHOLE:
            if not _take_apart(base, window, star, number):
                return False
    drop_table(base, load(base, star + SUBJECTS))
    store(base, window + STAR, 0)
    return True
