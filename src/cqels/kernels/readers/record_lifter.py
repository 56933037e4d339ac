"""Lines of CSV and JSON, from bytes straight to the times and the words of triples, as a lifting template says.

A record that is surely well-formed, and whose terms are surely valid, is taken; any other is left to Python as *odd*:
quotes or line ends inside a field, too few or too many fields, backslashes and control characters in literals, values
that are absent where they must not be, what `json_splitter.py` leaves.  So nothing is guessed: what
`lifting_template.py` rejects is never taken.

    word    of a plan
    0       the byte between two fields; 0 if a line is a JSON object
    1       how many fields a record has
    2       address of two words for each field: where it begins and ends, written for the record that is read
    3       bytes of the longest line that is taken
    4       the field of the time
    5       nanoseconds that an integer in it counts
    6, 7    address and number of the signs of its form; none for dateTimes and integers, or IS_DATED for dateTimes
            alone; IN_PYTHON if Python reads it; IN_ROWS if it is not in the record: it is where the record begins
    8, 9    where a record begins whose time Python has read, or -1; that time
    10, 11  address and bytes of a buffer where texts are put together: enough for those of the longest line
    12, 13  bytes of all texts of the template, and a few more; how many values of fields are put between them
    14      address of what is free of the buffer
    15, 16  address of the terms that wait to be interned, of GROUP records at most; how many they are
    17      how many nodes there are
    18–21   JSON: address of the members and how many are at the top; address of the kinds of fields; JSON: of a stack
    22, 23  how many lines were before; address of the numbers of lines, 0 if they count from 1
    24      number of the line that is read, for the labels of blank nodes
    25–28   address and number of the texts that stand for no value, of the fields that they are looked for in
    29, 30  address and number of the values that are derived (`derived_fields.py`): fields behind those of the line
    31 …    for each node the term of its subject, then that of each predicate's object

    word    of a term
    0       CONSTANT, IRI, COLUMN (a literal that is a field), TEXT (a literal made of fields and of what is between)
            or BLANK (a blank node, whose label has the number of the line between two texts); TYPED (a literal that is
            a field with a kind: behind it are the terms for each kind of value); GUARDED (the term behind it, if the
            fields are there that it needs)
    1       word of the predicate
    2       CONSTANT: its word
    3       type code of a literal, 0 if no word can hold it
    4       1 if all that its parts can make is a valid IRI
    5, 6    address and number of its parts: field, address and length of the text behind it, 1 if it is not encoded
    7, 8    address and length of the text before the first field
    9, 10   address and length of the text at the end, from the quote or bracket on that closes the term
    11      how many terms it takes itself: more than one if it is TYPED or GUARDED
    12      1 if a record without it is odd
    13, 14  subject: how many predicates it has; how many terms all of them and itself take
    15, 16  address and number of the fields without which it is not there

    word    of a term that waits
    0, 1    the term; address of its text
    2       bytes of the text but for what closes the term
    3       address that its id is to be written to
    4, 5    hash; id of the entry that is probably its own, or 0

Texts that are found in the dictionary are far away in memory.  So the terms of some records are interned together, and
what is needed for one is on its way while others are worked off: one could not even be hashed at once without waiting
for what was just written.  Of texts, and of the buffer, seven bytes behind the
end may be read or overwritten.
"""

from __future__ import annotations

import numpy as np

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import load, store
from cqels.kernels.memory.byte_strings import (
    LANES,
    MANY,
    byte,
    copy_loosely,
    find_byte,
    find_either,
    lanes,
    lanes_between,
    low_zeros,
    many_lanes,
    put_byte,
)
from cqels.kernels.readers.derived_fields import derive, drop_missing, is_utf8
from cqels.kernels.readers.json_splitter import split_object
from cqels.kernels.readers.line_tokenizer import character, is_iri, is_plain
from cqels.kernels.readers.record_times import date_time, formed_time, stated_time
from cqels.kernels.terms.term_table import (
    CHECKED,
    add,
    expect_entry,
    expect_slot,
    expect_text,
    has_text,
    hash_of,
    is_checked,
    seek,
    set_checked,
)
from cqels.kernels.terms.xsd_lexical import ASK, NOT_INLINE, TENS, literal_word

DELIMITER, COLUMNS, FIELDS, LONGEST, TIME_FIELD, UNIT, FORM, SIGNS, TIMED, TIME = range(10)
BUFFER, BUFFER_BYTES, KNOWN_BYTES, VALUES, FREE, WAITING_TERMS, WAITING, NODES = range(10, 18)
MEMBERS, TOP_MEMBERS, FIELD_KINDS, STACK, LINE, NUMBERS, NUMBER = range(18, 25)
MISSING, MISSING_COUNT, MISSED, MISSED_COUNT, DERIVED, DERIVED_COUNT = range(25, 31)
PLAN_WORDS = 31
CONSTANT, IRI, COLUMN, TEXT, BLANK, TYPED, GUARDED = range(7)
KIND, PREDICATE, OBJECT, CODE, IS_VALID, PARTS, PART_COUNT, HEAD, HEAD_LENGTH, TAIL, TAIL_LENGTH = range(11)
SPAN, REQUIRED, PREDICATES, TERMS, NEEDS, NEEDS_COUNT = range(11, 17)
TERM_WORDS = 17
FIELD, BEHIND, BEHIND_LENGTH, AS_IT_IS = range(4)
PART_WORDS = 4
WAITING_TERM, WAITING_TEXT, WAITING_LENGTH, WAITING_TARGET, WAITING_HASH, WAITING_ID = range(6)
WAITING_WORDS = 6
GROUP = 16
"""Records whose terms are interned together."""

IN_PYTHON, IN_ROWS, IS_DATED = -1, -2, -3
"""Instead of a number of signs."""

DONE, NO_ROOM, FULL, ODD, UNTIMED = range(5)
"""Why `read_records` came back: all is read, there is no room, the arena is full, the next record is odd, or its time
is none that is read here."""

_ABSENT, _IS_ODD, _IS_FULL = 0, -1, -2
"""Instead of a number of bytes or of triples."""

_ALL = (1 << LANES) - 1
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


# --- fields ---------------------------------------------------------------------------------------------------------


@kernel
def _line_end(address, position):
    """Where the next line begins if nothing but the end of this one is left, else _IS_ODD."""
    while byte(address + position) == 13:
        position += 1
    return position + 1 if byte(address + position) == 10 else _IS_ODD


@kernel
def _split(address, start, end, delimiter, fields, columns):
    """Take a line apart: where the next one begins, or _IS_ODD if it does not have so many fields.

    A field in quotes has no quotes or line ends inside. Bytes up to MANY past the end are looked at.
    """
    position, first, count = start, start, 0
    while True:
        at = address + position
        hits = many_lanes(at, delimiter) | many_lanes(at, 10) | many_lanes(at, 34) | many_lanes(at, 13)
        position += MANY
        while hits != 0:
            at = position - MANY + low_zeros(hits)
            hits &= hits - 1
            last = at
            if byte(address + at) == 34:
                if at != first:
                    return _IS_ODD
                first += 1
                last = find_either(address, first, end, end, 34, 10)
                if last == end or byte(address + last) == 10:
                    return _IS_ODD
                at = last + 1
                position, hits = at + 1, 0
            if count == columns:
                return _IS_ODD
            store(fields, 2 * count, first)
            store(fields, 2 * count + 1, last)
            count += 1
            if byte(address + at) != delimiter:
                following = _line_end(address, at)
                return following if count == columns else _IS_ODD
            first = at + 1


# --- times ----------------------------------------------------------------------------------------------------------


@kernel
def _time(address, position, plan):
    """Whether the time of the record at a position, which was taken apart, is known, and that time."""
    if load(plan, TIMED) == position:
        return True, load(plan, TIME)
    field = load(plan, FIELDS) + 16 * load(plan, TIME_FIELD)
    start, end, signs = load(field, 0), load(field, 1), load(plan, SIGNS)
    if signs == 0:
        return stated_time(address, start, end, load(plan, UNIT), load(plan, FREE))
    if signs == IS_DATED:
        return date_time(address, start, end, load(plan, FREE))
    if signs < 0:
        return signs == IN_ROWS, position
    return formed_time(address, start, end, load(plan, FORM), signs)


# --- terms ----------------------------------------------------------------------------------------------------------


@kernel
def _unreserved_end(address, position, end):
    """Where the first byte is that is percent-encoded in an IRI, or `end`."""
    while position < end:
        at = address + position
        kept = lanes_between(at, 97, 122) | lanes_between(at, 65, 90) | lanes_between(at, 48, 57)
        kept |= lanes_between(at, 45, 46) | lanes(at, 95) | lanes(at, 126)
        if kept != _ALL:
            return min(position + low_zeros(~kept), end)
        position += LANES
    return end


@kernel
def _put_encoded(address, position, end, target):
    """Write a text as it is in an IRI, percent-encoded: where it ends, or _IS_ODD if it is not UTF-8."""
    while True:
        stop = _unreserved_end(address, position, end)
        copy_loosely(address + position, target, stop - position)
        target += stop - position
        if stop == end:
            return target
        _, size = character(address, stop, end)
        if size == 0:
            return _IS_ODD
        for position in range(stop, stop + size):
            code = byte(address + position)
            put_byte(target, 37)
            put_byte(target + 1, _HEX[code >> 4])
            put_byte(target + 2, _HEX[code & 15])
            target += 3
        position = stop + size


@kernel
def _put_together(address, end, fields, term, text):
    """Write the text of a term, up to where it is closed, to an address: its bytes, or _ABSENT, or _IS_ODD."""
    target = text + load(term, HEAD_LENGTH)
    copy_loosely(load(term, HEAD), text, load(term, HEAD_LENGTH))
    is_iri_term = load(term, KIND) == IRI
    part = load(term, PARTS)
    for _ in range(load(term, PART_COUNT)):
        field = fields + 16 * load(part, FIELD)
        start, stop = load(field, 0), load(field, 1)
        if start == stop:
            return _ABSENT
        if is_iri_term and load(part, AS_IT_IS) == 0:
            target = _put_encoded(address, start, stop, target)
            if target == _IS_ODD:
                return _IS_ODD
        else:
            if find_byte(address, start, stop, end, 92) != stop:
                return _IS_ODD
            copy_loosely(address + start, target, stop - start)
            target += stop - start
        copy_loosely(load(part, BEHIND), target, load(part, BEHIND_LENGTH))
        target += load(part, BEHIND_LENGTH)
        part += 8 * PART_WORDS
    return target - text


@kernel
def _put_number(target, number):
    """Write a number that is not negative: how many digits it has."""
    count = 1
    while count < 18 and number >= TENS[count]:
        count += 1
    for place in range(count):
        put_byte(target + count - 1 - place, 48 + number % 10)
        number //= 10
    return count


@kernel
def _word(address, end, plan, term, target):
    """Write the word of a term to an address, or have it wait: 1, or _ABSENT, or _IS_ODD."""
    kind, code = load(term, KIND), load(term, CODE)
    if kind == CONSTANT:
        store(target, 0, load(term, OBJECT))
        return 1
    if kind == BLANK:
        text = load(plan, FREE)
        copy_loosely(load(term, HEAD), text, load(term, HEAD_LENGTH))
        length = load(term, HEAD_LENGTH)
        length += _put_number(text + length, load(plan, NUMBER))
        _wait(plan, term, text, length, target)
        return 1
    fields = load(plan, FIELDS)
    if kind == COLUMN and code != 0:
        field = fields + 16 * load(load(term, PARTS), FIELD)
        if load(field, 0) == load(field, 1):
            return _ABSENT
        found = literal_word(address, load(field, 0), load(field, 1), code)
        if found != NOT_INLINE:
            store(target, 0, found)
            return 1 if found != ASK else _IS_ODD
    text = load(plan, FREE)
    length = _put_together(address, end, fields, term, text)
    if length <= 0:
        return length
    if kind == TEXT and code != 0:
        found = literal_word(text, 1, length, code)
        if found != NOT_INLINE:
            store(target, 0, found)
            return 1 if found != ASK else _IS_ODD
    _wait(plan, term, text, length, target)
    return 1


# --- terms that wait ------------------------------------------------------------------------------------------------


@kernel
def _wait(plan, term, text, length, target):
    """Close the text of a term, and let it wait until it is interned."""
    tail = load(term, TAIL_LENGTH)
    copy_loosely(load(term, TAIL), text + length, tail)
    count = load(plan, WAITING)
    waiting = load(plan, WAITING_TERMS) + 8 * WAITING_WORDS * count
    store(waiting, WAITING_TERM, term)
    store(waiting, WAITING_TEXT, text)
    store(waiting, WAITING_LENGTH, length)
    store(waiting, WAITING_TARGET, target)
    store(plan, WAITING, count + 1)
    store(plan, FREE, text + length + tail)


@kernel
def _interned(base, dictionary, waiting):
    """The id of a term that waited and is valid; _IS_ODD if it is not, or _IS_FULL."""
    term, text = load(waiting, WAITING_TERM), load(waiting, WAITING_TEXT)
    value, hashed = load(waiting, WAITING_LENGTH), load(waiting, WAITING_HASH)
    length = value + load(term, TAIL_LENGTH)
    id = load(waiting, WAITING_ID)
    if id == 0 or not has_text(base, dictionary, id, text, length):
        id = seek(base, dictionary, text, length, hashed)
    if id != 0 and is_checked(base, dictionary, id):
        return id
    if load(term, IS_VALID) == 0:
        if load(term, KIND) == IRI:
            if not is_iri(text, 1, value):
                return _IS_ODD
        elif not is_plain(text, 1, value):
            return _IS_ODD
    if id != 0:
        set_checked(base, dictionary, id)
        return id
    id = add(base, dictionary, text, length, hashed, CHECKED)
    return id if id != 0 else _IS_FULL


@kernel
def _intern(base, dictionary, plan):
    """Intern the terms that wait: how many were before the first that cannot be, and _IS_ODD or _IS_FULL for that one.

    Their slots, then their entries, then their texts are brought near for all of them first.
    """
    terms, count = load(plan, WAITING_TERMS), load(plan, WAITING)
    for number in range(count):
        waiting = terms + 8 * WAITING_WORDS * number
        length = load(waiting, WAITING_LENGTH) + load(load(waiting, WAITING_TERM), TAIL_LENGTH)
        hashed = hash_of(base, dictionary, load(waiting, WAITING_TEXT), length)
        expect_slot(base, dictionary, hashed)
        store(waiting, WAITING_HASH, hashed)
    for number in range(count):
        waiting = terms + 8 * WAITING_WORDS * number
        store(waiting, WAITING_ID, expect_entry(base, dictionary, load(waiting, WAITING_HASH)))
    for number in range(count):
        id = load(terms + 8 * WAITING_WORDS * number, WAITING_ID)
        if id != 0:
            expect_text(base, dictionary, id)
    for number in range(count):
        waiting = terms + 8 * WAITING_WORDS * number
        id = _interned(base, dictionary, waiting)
        if id < 0:
            return number, id
        store(load(waiting, WAITING_TARGET), 0, id)
    return count, 0


# --- records --------------------------------------------------------------------------------------------------------


@kernel
def _needed(address, plan, term):
    """1 if a record has all the fields that a node needs, or _ABSENT, or _IS_ODD."""
    needs = load(term, NEEDS)
    for number in range(load(term, NEEDS_COUNT)):
        field = load(plan, FIELDS) + 16 * load(needs, number)
        if load(field, 0) == load(field, 1):
            return _ABSENT
        if load(plan, DELIMITER) == 0 and not is_utf8(address, load(field, 0), load(field, 1)):
            return _IS_ODD
    return 1


@kernel
def _chosen(address, plan, term):
    """The term that is to be written, of those behind one that is TYPED or GUARDED; or _ABSENT, or _IS_ODD."""
    kind = load(term, KIND)
    if kind < TYPED:
        return term
    if kind == GUARDED:
        there = _needed(address, plan, term)
        return term + 8 * TERM_WORDS if there == 1 else there
    kind = load(load(plan, FIELD_KINDS), load(load(term, PARTS), FIELD))
    return term + 8 * TERM_WORDS * (1 + kind)


@kernel
def _node(address, end, plan, term, triples):
    """Write the triples of a node to an address, as `_lift` does: how many there are, or _IS_ODD."""
    waiting, free = load(plan, WAITING), load(plan, FREE)
    there = 1
    if load(term, NEEDS_COUNT) != 0:
        there = _needed(address, plan, term)
    if there == 1:
        there = _word(address, end, plan, term, triples)
    if there < 0 or (there == _ABSENT and load(term, REQUIRED) != 0):
        return _IS_ODD
    if there == _ABSENT:
        return 0
    count, subject = 0, term
    for _ in range(load(subject, PREDICATES)):
        term += 8 * TERM_WORDS * load(term, SPAN)
        there = _chosen(address, plan, term)
        if there > 0:
            there = _word(address, end, plan, there, triples + 24 * count + 16)
        if there < 0 or (there == _ABSENT and load(term, REQUIRED) != 0):
            return _IS_ODD
        if there != _ABSENT:
            if count > 0:
                store(triples, 3 * count, 0)
            store(triples, 3 * count + 1, load(term, PREDICATE))
            count += 1
    if count == 0:
        if load(subject, KIND) == IRI and load(subject, IS_VALID) == 0:
            return _IS_ODD
        store(plan, WAITING, waiting)
        store(plan, FREE, free)
    return count


@kernel
def _lift(address, end, plan, triples):
    """Write the triples of a record to an address, but for terms that wait and but for subjects, which are written to
    the first triple of a node only, and 0 to its others: how many triples there are, or _IS_ODD."""
    term = plan + 8 * PLAN_WORDS
    count = 0
    for _ in range(load(plan, NODES)):
        more = _node(address, end, plan, term, triples + 24 * count)
        if more < 0:
            return _IS_ODD
        count += more
        term += 8 * TERM_WORDS * load(term, TERMS)
    return count if count > 0 else _IS_ODD


@kernel
def _taken_apart(address, position, end, plan):
    """Take the line at a position apart: where the next one begins, or _IS_ODD."""
    delimiter, fields, columns = load(plan, DELIMITER), load(plan, FIELDS), load(plan, COLUMNS)
    if delimiter != 0:
        return _split(address, position, end, delimiter, fields, columns)
    members, top = load(plan, MEMBERS), load(plan, TOP_MEMBERS)
    return split_object(address, position, members, top, fields, load(plan, FIELD_KINDS), columns, load(plan, STACK))


@kernel
def _derived(address, plan):
    """Whether the fields of derived values could be written."""
    fields, kinds, values = load(plan, FIELDS), load(plan, FIELD_KINDS), load(plan, DERIVED)
    return derive(address, fields, kinds, values, load(plan, DERIVED_COUNT), load(plan, DELIMITER) == 0)


@kernel
def _take(address, position, end, plan, triples):
    """Take the record at a position: where the next line begins, its time, how many triples it has.

    DONE, or why it is left: ODD, UNTIMED, or NO_ROOM for its texts beside those that wait.
    """
    following = _taken_apart(address, position, end, plan)
    length = following - position
    if following == _IS_ODD or length > load(plan, LONGEST):
        return 0, 0, 0, ODD
    needed = load(plan, KNOWN_BYTES) + 3 * load(plan, VALUES) * length
    if load(plan, FREE) + needed > load(plan, BUFFER) + load(plan, BUFFER_BYTES):
        return 0, 0, 0, NO_ROOM
    if load(plan, MISSING_COUNT) != 0:
        texts, count = load(plan, MISSING), load(plan, MISSING_COUNT)
        drop_missing(address, load(plan, FIELDS), load(plan, MISSED), load(plan, MISSED_COUNT), texts, count)
    known, time = _time(address, position, plan)
    if not known:
        return 0, 0, 0, UNTIMED
    if load(plan, DERIVED_COUNT) != 0 and not _derived(address, plan):
        return 0, 0, 0, ODD
    waiting = load(plan, WAITING)
    count = _lift(address, end, plan, triples)
    if count < 0:
        store(plan, WAITING, waiting)
        return 0, 0, 0, ODD
    return following, time, count, DONE


@kernel
def _group(address, start, end, plan, times, counts, triples, room, line):
    """Read records as `read_records` does, but few, and leave terms waiting; so many lines were before."""
    store(plan, WAITING, 0)
    store(plan, FREE, load(plan, BUFFER))
    position, lines, records, made = start, 0, 0, 0
    while position < end and records < min(GROUP, room):
        following = _line_end(address, position)
        if following == _IS_ODD:
            numbers = load(plan, NUMBERS)
            store(plan, NUMBER, line + lines + 1 if numbers == 0 else load(numbers, line + lines))
            following, time, count, state = _take(address, position, end, plan, triples + 24 * made)
            if state != DONE:
                return state, position, lines, records, made
            store(times, records, time)
            store(counts, records, count)
            records += 1
            made += count
        position = following
        lines += 1
    return DONE if position == end else NO_ROOM, position, lines, records, made


@kernel
def _owner(counts, triples, target):
    """The number of the record that has the word at an address."""
    record = 0
    triples += 24 * load(counts, 0)
    while triples <= target:
        record += 1
        triples += 24 * load(counts, record)
    return record


@kernel
def _repeat_subjects(counts, records, triples):
    """Write the subject of each node's first triple to its others."""
    for record in range(records):
        subject = load(triples, 0)
        for number in range(1, load(counts, record)):
            if load(triples, 3 * number) == 0:
                store(triples, 3 * number, subject)
            else:
                subject = load(triples, 3 * number)
        triples += 24 * load(counts, record)


@kernel
def read_records(base, dictionary, address, start, end, plan, times, counts, triples, room):
    """Read the lines from `start` to `end`, just behind a newline; MANY bytes more may be looked at.

    Times, counts of triples and the triples of at most `room` records are written to addresses. Gives why it came back,
    where the next line begins, how many lines were read, how many records were in them, and how many triples.
    """
    position, lines, records, made = start, 0, 0, 0
    before = load(plan, LINE)
    while True:
        limit = room - records
        state, following, more_lines, more, more_made = _group(
            address, position, end, plan, times, counts, triples, limit, before + lines
        )
        done, fault = _intern(base, dictionary, plan)
        if fault == _IS_FULL:
            return FULL, position, lines, records, made
        if fault == _IS_ODD:  # which is known only now: those before it are read again
            waiting = load(plan, WAITING_TERMS) + 8 * WAITING_WORDS * done
            limit = _owner(counts, triples, load(waiting, WAITING_TARGET))
            _, following, more_lines, more, more_made = _group(
                address, position, end, plan, times, counts, triples, limit, before + lines
            )
            _intern(base, dictionary, plan)
            state = ODD
        _repeat_subjects(counts, more, triples)
        position, lines, records, made = following, lines + more_lines, records + more, made + more_made
        if state != NO_ROOM or records == room:
            return state, position, lines, records, made
        times, counts, triples = times + 8 * more, counts + 8 * more, triples + 24 * more_made
