"""Lines of CSV, from bytes straight to the times and the words of triples, as a lifting template says.

A record that is surely well-formed, and whose terms are surely valid, is taken; any other is left to Python as *odd*:
quotes or line ends inside a field, too few or too many fields, backslashes and control characters in literals, values
that are absent where they must not be.  So nothing is guessed: what `cqels.io.lifting` rejects is never taken.

    word    of a plan
    0       the byte between two fields
    1       how many fields a record has
    2       address of two words for each field: where it begins and ends, written for the record that is read
    3       bytes of the longest line that is taken
    4       the field of the time
    5       nanoseconds that an integer in it counts
    6, 7    address and number of the signs of its form; none for dateTimes and integers; -1 if Python reads it
    8, 9    whether Python has read the time of the next record, and that time
    10      address where texts are put together: room for the longest one that a line can make
    11      how many predicates there are
    12 …    the term of the subject, then that of each predicate's object

    word    of a term
    0       CONSTANT, IRI, COLUMN (a literal that is a field) or TEXT (a literal made of fields and of what is between)
    1       word of the predicate
    2       CONSTANT: its word
    3       type code of a literal, 0 if no word can hold it
    4       1 if all that its parts can make is a valid IRI
    5, 6    address and number of its parts: field, address and length of the text behind it
    7, 8    address and length of the text before the first field
    9, 10   address and length of the text at the end, from the quote or bracket on that closes the term
"""

from __future__ import annotations

import string

import numpy as np

from cqels.kernels.dictionary import CHECKED, add, hash_of, is_checked, seek, set_checked
from cqels.kernels.jit import kernel
from cqels.kernels.literals import ASK, NOT_INLINE, days_of, fixed_number, literal_word
from cqels.kernels.memory import load, store
from cqels.kernels.text import LANES, byte, copy_text, find_byte, find_either, lanes, low_zeros, put_byte
from cqels.kernels.tokenizer import character, counted_time, dated_time, is_iri, is_plain

DELIMITER, COLUMNS, FIELDS, LONGEST, TIME_FIELD, UNIT, FORM, SIGNS, IS_TIMED, TIME, BUFFER, PREDICATES = range(12)
PLAN_WORDS = 12
CONSTANT, IRI, COLUMN, TEXT = range(4)
KIND, PREDICATE, OBJECT, CODE, IS_VALID, PARTS, PART_COUNT, HEAD, HEAD_LENGTH, TAIL, TAIL_LENGTH = range(11)
TERM_WORDS = 11
FIELD, BEHIND, BEHIND_LENGTH = range(3)
PART_WORDS = 3

YEAR, MONTH, DAY, HOUR, MINUTE, SECOND = range(256, 262)
"""Signs of a form: four digits for a year, two for each other part of a time; the others are bytes."""

DONE, NO_ROOM, FULL, ODD, UNTIMED = range(5)
"""Why `read_records` came back: all is read, there is no room, the arena is full, the next record is odd, or its time
is none that is read here."""

_ABSENT, _IS_ODD, _IS_FULL = 0, -1, -2
"""Instead of a number of bytes or of triples."""

_IS_UNRESERVED = np.array([chr(code) in string.ascii_letters + string.digits + "_.-~" for code in range(256)], np.uint8)
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

    A field in quotes has no quotes or line ends inside. Bytes up to LANES past the end are looked at.
    """
    position, first, count = start, start, 0
    while True:
        at = address + position
        hits = lanes(at, delimiter) | lanes(at, 10) | lanes(at, 34) | lanes(at, 13)
        position += LANES
        while hits != 0:
            at = position - LANES + low_zeros(hits)
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
def _formed_time(address, start, end, signs, count):
    """Whether the text has this form, each part of a time with all its digits, and the nanoseconds since 1970."""
    year, month, day, hour, minute, second = 1900, 1, 1, 0, 0, 0
    for number in range(count):
        sign = load(signs, number)
        width = 4 if sign == YEAR else 2 if sign > YEAR else 1
        if start + width > end:
            return False, 0
        if sign < YEAR:
            if byte(address + start) != sign:
                return False, 0
        else:
            value = fixed_number(address, start, width)
            if value < 0:
                return False, 0
            if sign == YEAR:
                year = value
            elif sign == MONTH:
                month = value
            elif sign == DAY:
                day = value
            elif sign == HOUR:
                hour = value
            elif sign == MINUTE:
                minute = value
            else:
                second = value
        start += width
    days = days_of(year, month, day)
    if start != end or days == -1 << 62 or year < 1678 or year > 2261 or hour > 23 or minute > 59 or second > 59:
        return False, 0
    return True, (days * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000_000


@kernel
def _stated_time(address, start, end, unit, buffer):
    """Whether the text is an integer or a dateTime, with a `T` or a blank in it, and the nanoseconds since 1970."""
    known, time = counted_time(address, start, end, unit)
    length = end - start
    if known or length < 19 or length > 40:
        return known, time
    copy_text(address + start, buffer, length)
    if byte(buffer + 10) == 32:
        put_byte(buffer + 10, 84)
    return dated_time(buffer, 0, length)


@kernel
def _time(address, plan):
    """Whether the time of the record is known, and that time."""
    if load(plan, IS_TIMED) != 0:
        store(plan, IS_TIMED, 0)
        return True, load(plan, TIME)
    field = load(plan, FIELDS) + 16 * load(plan, TIME_FIELD)
    start, end, signs = load(field, 0), load(field, 1), load(plan, SIGNS)
    if signs == 0:
        return _stated_time(address, start, end, load(plan, UNIT), load(plan, BUFFER))
    if signs < 0:
        return False, 0
    return _formed_time(address, start, end, load(plan, FORM), signs)


# --- terms ----------------------------------------------------------------------------------------------------------


@kernel
def _is_unreserved(address, position, end):
    while position < end and _IS_UNRESERVED[byte(address + position)] != 0:
        position += 1
    return position == end


@kernel
def _put_encoded(address, position, end, target):
    """Write a text as it is in an IRI, percent-encoded: where it ends, or _IS_ODD if it is not UTF-8."""
    if _is_unreserved(address, position, end):
        copy_text(address + position, target, end - position)
        return target + end - position
    while position < end:
        code = byte(address + position)
        if _IS_UNRESERVED[code] != 0:
            put_byte(target, code)
            target += 1
            position += 1
        else:
            _, size = character(address, position, end)
            if size == 0:
                return _IS_ODD
            for _ in range(size):
                code = byte(address + position)
                put_byte(target, 37)
                put_byte(target + 1, _HEX[code >> 4])
                put_byte(target + 2, _HEX[code & 15])
                target += 3
                position += 1
    return target


@kernel
def _put_together(address, end, fields, term, buffer):
    """Write the text of a term up to its end into the buffer: its bytes, or _ABSENT, or _IS_ODD."""
    target = buffer + load(term, HEAD_LENGTH)
    copy_text(load(term, HEAD), buffer, load(term, HEAD_LENGTH))
    encoded = load(term, KIND) == IRI
    part = load(term, PARTS)
    for _ in range(load(term, PART_COUNT)):
        field = fields + 16 * load(part, FIELD)
        start, stop = load(field, 0), load(field, 1)
        if start == stop:
            return _ABSENT
        if encoded:
            target = _put_encoded(address, start, stop, target)
            if target == _IS_ODD:
                return _IS_ODD
        else:
            if find_byte(address, start, stop, end, 92) != stop:
                return _IS_ODD
            copy_text(address + start, target, stop - start)
            target += stop - start
        copy_text(load(part, BEHIND), target, load(part, BEHIND_LENGTH))
        target += load(part, BEHIND_LENGTH)
        part += 8 * PART_WORDS
    return target - buffer


@kernel
def _interned(base, dictionary, term, text, length):
    """The id of a text that was put together, which is valid; _IS_ODD if it is not, or _IS_FULL."""
    tail = load(term, TAIL_LENGTH)
    copy_text(load(term, TAIL), text + length, tail)
    hashed = hash_of(base, dictionary, text, length + tail)
    id = seek(base, dictionary, text, length + tail, hashed)
    if id != 0 and is_checked(base, dictionary, id):
        return id
    if load(term, IS_VALID) == 0:
        if load(term, KIND) == IRI:
            if not is_iri(text, 1, length):
                return _IS_ODD
        elif not is_plain(text, 1, length):
            return _IS_ODD
    if id != 0:
        set_checked(base, dictionary, id)
        return id
    id = add(base, dictionary, text, length + tail, hashed, CHECKED)
    return id if id != 0 else _IS_FULL


@kernel
def _word(base, dictionary, address, end, fields, term, buffer):
    """The word of a term, and whether it is there: 1, or _ABSENT, _IS_ODD, _IS_FULL."""
    kind, code = load(term, KIND), load(term, CODE)
    if kind == CONSTANT:
        return load(term, OBJECT), 1
    if kind == COLUMN and code != 0:
        field = fields + 16 * load(load(term, PARTS), FIELD)
        if load(field, 0) == load(field, 1):
            return 0, _ABSENT
        found = literal_word(address, load(field, 0), load(field, 1), code)
        if found != NOT_INLINE:
            return found, (1 if found != ASK else _IS_ODD)
    length = _put_together(address, end, fields, term, buffer)
    if length <= 0:
        return 0, length
    if kind == TEXT and code != 0:
        found = literal_word(buffer, 1, length, code)
        if found != NOT_INLINE:
            return found, (1 if found != ASK else _IS_ODD)
    id = _interned(base, dictionary, term, buffer, length)
    return id, (1 if id > 0 else id)


# --- records --------------------------------------------------------------------------------------------------------


@kernel
def _lift(base, dictionary, address, end, plan, triples):
    """Write the triples of a record to an address: how many there are, or _IS_ODD, _IS_FULL."""
    fields, buffer = load(plan, FIELDS), load(plan, BUFFER)
    term = plan + 8 * PLAN_WORDS
    subject, there = _word(base, dictionary, address, end, fields, term, buffer)
    if there != 1:
        return min(there, _IS_ODD)
    count = 0
    for _ in range(load(plan, PREDICATES)):
        term += 8 * TERM_WORDS
        found, there = _word(base, dictionary, address, end, fields, term, buffer)
        if there < 0:
            return there
        if there != _ABSENT:
            store(triples, 3 * count, subject)
            store(triples, 3 * count + 1, load(term, PREDICATE))
            store(triples, 3 * count + 2, found)
            count += 1
    return count if count > 0 else _IS_ODD


@kernel
def read_records(base, dictionary, address, start, end, plan, times, counts, triples, room):
    """Read the lines from `start` to `end`, just behind a newline, LANES bytes before the end of what may be looked at.

    Times, counts of triples and the triples of at most `room` records are written to addresses. Gives why it came back,
    where the next line begins, how many lines were read, how many records were in them, and how many triples.
    """
    position, lines, records, made = start, 0, 0, 0
    while position < end:
        if records == room:
            return NO_ROOM, position, lines, records, made
        following = _line_end(address, position)
        if following == _IS_ODD:
            following = _split(address, position, end, load(plan, DELIMITER), load(plan, FIELDS), load(plan, COLUMNS))
            if following == _IS_ODD or following - position > load(plan, LONGEST):
                return ODD, position, lines, records, made
            known, time = _time(address, plan)
            if not known:
                return UNTIMED, position, lines, records, made
            count = _lift(base, dictionary, address, end, plan, triples + 24 * made)
            if count < 0:
                return FULL if count == _IS_FULL else ODD, position, lines, records, made
            store(times, records, time)
            store(counts, records, count)
            records += 1
            made += count
        position = following
        lines += 1
    return DONE, position, lines, records, made
