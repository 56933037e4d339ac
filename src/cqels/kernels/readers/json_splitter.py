"""Lines of JSON, each an object, taken apart into the members that a lifting template names; not what they mean.

A line that is surely valid, and whose named members are surely printed as they are written, is taken; any other is left
to Python as *odd*: named members with escapes, numbers that are not in the shortest form (`1e3`, `1.50`, `-0`), named
members that are there twice or are arrays or objects, deep nesting, and all faults.

    word    of a member that is named, or that has one inside
    0       the first eight bytes of its name, or fewer, zeros behind them
    1, 2    address and length of its name
    3       its field, or -1
    4, 5    the first of the members inside, and how many they are
    6       1 if a record that has it is odd
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import load, store
from cqels.kernels.memory.byte_strings import (
    LANES,
    byte,
    lanes,
    lanes_between,
    low_zeros,
    same_text,
    short_word,
    word_of,
)
from cqels.kernels.terms.xsd_lexical import ASK, NOT_INLINE, literal_word
from cqels.model.ids import CODE_DOUBLE

STRING, INTEGER, DOUBLE, BOOLEAN = range(4)
"""The kinds of values; a member that is absent or null is an empty string."""
KINDS = 4

NAME_HEAD, NAME, NAME_LENGTH, MEMBER_FIELD, FIRST_INSIDE, INSIDE, MEMBER_ODD = range(7)
MEMBER_WORDS = 7
MOST_MEMBERS = 62
"""Members, as one word notes which of them were met."""
DEEPEST = 60
"""Objects and arrays inside of others."""
STACK_WORDS = 2 * DEEPEST + 4

_IS_ODD = -1
_ARRAY, _UNNAMED = -2, -1
"""Instead of the first member of an object: it is an array; nothing in it has a name."""
_LONGEST_INTEGER = 1000
_TRUE, _FALS, _NULL = word_of(b"true"), word_of(b"fals"), word_of(b"null")


@kernel
def _blank_end(address, position):
    """Where blanks end, but at the latest where the line does."""
    code = byte(address + position)
    while code == 32 or code == 9 or code == 13:
        position += 1
        code = byte(address + position)
    return position


@kernel
def _plain_end(address, position):
    """Where the first quote, backslash or control character is: a line has one at its end."""
    while True:
        at = address + position
        hits = lanes(at, 34) | lanes(at, 92) | lanes_between(at, 0, 31)
        if hits != 0:
            return position + low_zeros(hits)
        position += LANES


@kernel
def _is_hex(code):
    return 48 <= code <= 57 or 65 <= code <= 70 or 97 <= code <= 102


@kernel
def _escape_end(address, position):
    """Where an escape ends that begins at a position, or _IS_ODD."""
    code = byte(address + position + 1)
    if code == 117:
        for digit in range(position + 2, position + 6):
            if not _is_hex(byte(address + digit)):
                return _IS_ODD
        return position + 6
    is_known = code == 34 or code == 92 or code == 47 or code == 98 or code == 102
    return position + 2 if is_known or code == 110 or code == 114 or code == 116 else _IS_ODD


@kernel
def _string_end(address, position):
    """Where the closing quote of a string is, or _IS_ODD; whether it has escapes."""
    escaped = False
    while True:
        position = _plain_end(address, position)
        code = byte(address + position)
        if code == 34:
            return position, escaped
        if code != 92:
            return _IS_ODD, escaped
        escaped = True
        position = _escape_end(address, position)
        if position == _IS_ODD:
            return _IS_ODD, escaped


@kernel
def _digits_end(address, position):
    while 48 <= byte(address + position) <= 57:
        position += 1
    return position


@kernel
def _number(address, start):
    """Where a number ends, or _IS_ODD; its kind; whether it is surely printed as it is written."""
    first = start + 1 if byte(address + start) == 45 else start
    point = _digits_end(address, first)
    if point == first or (byte(address + first) == 48 and point > first + 1):
        return _IS_ODD, INTEGER, False
    position = point
    kind = INTEGER
    if byte(address + position) == 46:
        kind = DOUBLE
        position = _digits_end(address, point + 1)
        if position == point + 1:
            return _IS_ODD, kind, False
    code = byte(address + position)
    if code == 101 or code == 69:
        position += 1
        code = byte(address + position)
        if code == 43 or code == 45:
            position += 1
        last = _digits_end(address, position)
        return last if last > position else _IS_ODD, DOUBLE, False
    if kind == INTEGER:
        is_negative_zero = first > start and byte(address + first) == 48
        return position, kind, not is_negative_zero and position - start < _LONGEST_INTEGER
    if position - first <= 16:
        is_short = byte(address + position - 1) != 48 or position == point + 2
        if is_short and (byte(address + first) != 48 or _leading_zeros(address, point + 1, position) <= 3):
            return position, kind, True
        return position, kind, False
    found = literal_word(address, start, position, CODE_DOUBLE)
    return position, kind, found != NOT_INLINE and found != ASK


@kernel
def _leading_zeros(address, position, end):
    start = position
    while position < end and byte(address + position) == 48:
        position += 1
    return position - start


@kernel
def _literal(address, position):
    """Where `true`, `false` or `null` ends, or _IS_ODD; whether it is null."""
    head = short_word(address + position, 4)
    if head == _TRUE:
        return position + 4, False
    if head == _NULL:
        return position + 4, True
    if head == _FALS and byte(address + position + 4) == 101:
        return position + 5, False
    return _IS_ODD, False


@kernel
def _member(address, start, length, members, first, count):
    """The number of the member with a name, among some, or -1."""
    head = short_word(address + start, min(length, 8))
    for number in range(first, first + count):
        member = members + 8 * MEMBER_WORDS * number
        is_alike = load(member, NAME_HEAD) == head and load(member, NAME_LENGTH) == length
        if is_alike and (length <= 8 or same_text(address + start, load(member, NAME), length)):
            return number
    return -1


@kernel
def _put(fields, kinds, field, start, end, kind):
    store(fields, 2 * field, start)
    store(fields, 2 * field + 1, end)
    store(kinds, field, kind)


@kernel
def split_object(address, start, members, top, fields, kinds, columns, stack):
    """Write where the named members of the object in a line begin and end, and their kinds: where the next line begins.

    _IS_ODD if the line is left to Python. `top` members are those of the object itself; what is absent has no bytes.
    Bytes up to LANES past the end of the line are looked at.
    """
    for field in range(columns):
        _put(fields, kinds, field, 0, 0, STRING)
    position = _blank_end(address, start)
    if byte(address + position) != 123:
        return _IS_ODD
    position += 1
    first, count, depth, seen = 0, top, 0, 0
    begins = True
    while True:
        position = _blank_end(address, position)
        code = byte(address + position)
        closing = 93 if first == _ARRAY else 125
        if not begins or code != closing:  # a name, unless it is an array, and a value
            member = -1
            if first != _ARRAY:
                if code != 34:
                    return _IS_ODD
                name = position + 1
                position, escaped = _string_end(address, name)
                if position == _IS_ODD:
                    return _IS_ODD
                if first != _UNNAMED:
                    if escaped:
                        return _IS_ODD
                    member = _member(address, name, position - name, members, first, count)
                position = _blank_end(address, position + 1)
                if byte(address + position) != 58:
                    return _IS_ODD
                position = _blank_end(address, position + 1)
                code = byte(address + position)
            field, inside, inside_count = -1, _UNNAMED, 0
            if member >= 0:
                entry = members + 8 * MEMBER_WORDS * member
                if load(entry, MEMBER_ODD) != 0 or seen >> member & 1 == 1:
                    return _IS_ODD
                seen |= 1 << member
                field, inside_count = load(entry, MEMBER_FIELD), load(entry, INSIDE)
                if inside_count > 0:
                    inside = load(entry, FIRST_INSIDE)
            if code == 123 or code == 91:
                if field >= 0 or depth == DEEPEST or (code == 91 and inside_count > 0):
                    return _IS_ODD
                store(stack, 2 * depth, first)
                store(stack, 2 * depth + 1, count)
                depth += 1
                first, count = inside, inside_count
                if code == 91:
                    first, count = _ARRAY, 0
                position += 1
                begins = True
                continue
            if code == 34:
                text = position + 1
                position, escaped = _string_end(address, text)
                if position == _IS_ODD or (escaped and field >= 0):
                    return _IS_ODD
                if field >= 0:
                    _put(fields, kinds, field, text, position, STRING)
                position += 1
            elif code == 45 or 48 <= code <= 57:
                text = position
                position, kind, is_shortest = _number(address, text)
                if position == _IS_ODD or (field >= 0 and not is_shortest):
                    return _IS_ODD
                if field >= 0:
                    _put(fields, kinds, field, text, position, kind)
            else:
                text = position
                position, is_null = _literal(address, text)
                if position == _IS_ODD:
                    return _IS_ODD
                if field >= 0 and not is_null:
                    _put(fields, kinds, field, text, position, BOOLEAN)
            position = _blank_end(address, position)
            code = byte(address + position)
        # behind a value, or behind the beginning of what is empty: ends, and a comma before the next value
        while True:
            closing = 93 if first == _ARRAY else 125
            if code != closing:
                break
            position = _blank_end(address, position + 1)
            code = byte(address + position)
            if depth == 0:
                return position + 1 if code == 10 else _IS_ODD
            depth -= 1
            first, count = load(stack, 2 * depth), load(stack, 2 * depth + 1)
        if code != 44:
            return _IS_ODD
        position += 1
        begins = False
