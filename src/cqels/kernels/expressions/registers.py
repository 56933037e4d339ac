"""Registers: values on their way through an expression, read from words and written back to words.

    word   of a register (8 words in all)
    0      tag (`cqels.model.ids.Tag`); NONE is an error, or an unbound variable
    1, 2   bits: those of the value, in one word; a decimal has two, low and high
    3      scale, of a decimal or a dateTime
    4      word of the term, or 0 for a computed value that has not got one yet

Values of the tags IRI to TEXT always have their word.  A computed dateTime is in UTC.  A register whose value comes
from a variable keeps that variable's word: it is the same term, however it was written.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import load, store
from cqels.kernels.memory.byte_strings import byte
from cqels.kernels.memory.int128 import (
    LEAST,
    bits_of,
    compare_wide,
    divide_wide,
    double_of,
    magnitude,
    nearest,
    negate_wide,
    scale_up,
    single_bits_of,
    single_of,
)
from cqels.kernels.terms.term_table import (
    BYTE_MASK,
    NUMBER,
    SCALE_SHIFT,
    SHAPE,
    TAG_SHIFT,
    UNSETTLED,
    entry_at,
    length_of,
    text_of,
)
from cqels.model import ids
from cqels.model.ids import Tag

REGISTER_WORDS = 8
TAG, LOW, HIGH, SCALE, WORD = range(5)

(
    NONE,
    IRI,
    BLANK,
    STRING,
    LANG_STRING,
    OTHER,
    TEXT,
    BOOLEAN,
    INTEGER,
    DECIMAL,
    FLOAT,
    DOUBLE,
    DATE_TIME,
    DATE_TIME_LOCAL,
) = (int(tag) for tag in Tag)

# what a test gives
NO, YES, UNORDERED, FAULT, ASK = 0, 1, 2, 3, 4
"""No or yes (or -1, 0, 1); unordered beside a NaN; a type error; and: only Python can tell."""

_VALUE_MASK = ids.VALUE_MASK
_SPARE = 64 - ids.VALUE_BITS
_INTEGER, _DECIMAL, _BOOLEAN, _FLOAT = ids.CODE_INTEGER, ids.CODE_DECIMAL, ids.CODE_BOOLEAN, ids.CODE_FLOAT
_DATE_TIME, _DOUBLE, _DOUBLE_ZERO = ids.CODE_DATE_TIME, ids.CODE_DOUBLE, ids.CODE_DOUBLE_ZERO
_NAN_SINGLE = 0x7FC0_0000
_NAN_DOUBLE = 0x7FF8 << 48
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_DOUBT = 14 * 3600
"""A dateTime without a zone can be this many seconds off UTC."""


@kernel
def read(base, target, dictionary, word):
    """Put the value of a word into a register: False if Python must settle the dictionary's entry first."""
    store(base, target + WORD, word)
    if word >= 0:
        if word == 0:
            store(base, target + TAG, NONE)
            return True
        entry = entry_at(base, dictionary, word)
        shape, number = load(base, entry + SHAPE), load(base, entry + NUMBER)
        store(base, target + TAG, shape >> TAG_SHIFT & BYTE_MASK)
        store(base, target + LOW, number)
        store(base, target + HIGH, number >> 63)
        store(base, target + SCALE, shape >> SCALE_SHIFT & BYTE_MASK)
        return shape & UNSETTLED == 0
    code = word >> ids.VALUE_BITS & ids.TYPE_MASK
    value = word << _SPARE >> _SPARE
    if code == _INTEGER:
        store(base, target + TAG, INTEGER)
        store(base, target + LOW, value)
    elif code == _DECIMAL:
        store(base, target + TAG, DECIMAL)
        store(base, target + LOW, value >> ids.SCALE_BITS)
        store(base, target + HIGH, value >> 63)
        store(base, target + SCALE, word & ids.SCALE_MASK)
    elif code >= _DOUBLE:
        store(base, target + TAG, DOUBLE)
        store(base, target + LOW, _double_bits(word, code))
    elif code == _BOOLEAN:
        store(base, target + TAG, BOOLEAN)
        store(base, target + LOW, word & 1)
    elif code == _FLOAT:
        store(base, target + TAG, FLOAT)
        store(base, target + LOW, bits_of(single_of(word & 0xFFFF_FFFF)))
    else:
        store(base, target + TAG, DATE_TIME if word & ids.ZONE_MASK else DATE_TIME_LOCAL)
        store(base, target + LOW, value >> ids.ZONE_BITS)
        store(base, target + SCALE, 3)
    return True


@kernel
def _double_bits(word, code):
    if code == _DOUBLE_ZERO:
        return LEAST if word & 1 else 0
    high = (code - _DOUBLE) << ids.EXPONENT_LOW_BITS
    exponent = ids.EXPONENT_LEAST + (high | word >> ids.FRACTION_BITS & ids.EXPONENT_LOW_MASK)
    return (word >> (ids.VALUE_BITS - 1) & 1) << 63 | exponent << ids.FRACTION_BITS | word & ids.FRACTION_MASK


# --- making registers -----------------------------------------------------------------------------------------------


@kernel
def put(base, target, tag, bits):
    """Put a computed value of one word into a register."""
    store(base, target + TAG, tag)
    store(base, target + LOW, bits)
    store(base, target + WORD, 0)


@kernel
def put_decimal(base, target, low, high, scale):
    store(base, target + TAG, DECIMAL)
    store(base, target + LOW, low)
    store(base, target + HIGH, high)
    store(base, target + SCALE, scale)
    store(base, target + WORD, 0)


@kernel
def put_double(base, target, tag, value: float):
    """Put a float (rounded to 32 bits) or a double into a register."""
    if tag == FLOAT:
        value = single_of(single_bits_of(value))
    put(base, target, tag, bits_of(value) if value == value else _NAN_DOUBLE)


@kernel
def put_moment(base, target, nanoseconds):
    put(base, target, DATE_TIME, nanoseconds)
    store(base, target + SCALE, 9)


@kernel
def put_error(base, target):
    store(base, target + TAG, NONE)
    store(base, target + WORD, 0)


@kernel
def move(base, target, source):
    for word in range(WORD + 1):
        store(base, target + word, load(base, source + word))


# --- words of computed values ---------------------------------------------------------------------------------------


@kernel
def find_word(base, register):
    """Give a register the word of its term: whether it has one now, without the dictionary (an error has 0).

    Where it has none, the register holds its value in the one form that such values have.
    """
    tag = load(base, register + TAG)
    if load(base, register + WORD) != 0 or tag == NONE:
        return True
    low = load(base, register + LOW)
    word = 0
    if tag == BOOLEAN:
        word = _packed(_BOOLEAN, low)
    elif tag == INTEGER:
        if _fits(low, ids.VALUE_BITS):
            word = _packed(_INTEGER, low)
    elif tag == DECIMAL:
        word = _decimal_word(base, register)
    elif tag == FLOAT:
        value = double_of(low)
        word = _packed(_FLOAT, single_bits_of(value) if value == value else _NAN_SINGLE)
    elif tag == DOUBLE:
        word = _double_word(low)
    elif tag == DATE_TIME and load(base, register + SCALE) == 9 and low % 1_000_000 == 0:
        # a count of nanoseconds is less than 300 years, which always fits
        word = _packed(_DATE_TIME, low // 1_000_000 << ids.ZONE_BITS | ids.ZONE_Z)
    store(base, register + WORD, word)
    return word != 0


@kernel
def _packed(code, value):
    return LEAST | code << ids.VALUE_BITS | value & _VALUE_MASK


@kernel
def _fits(value, bits):
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


@kernel
def _decimal_word(base, register):
    """Drop the zeros at the end, as the canonical text does; the word, or 0 if it does not fit."""
    low, high, scale = load(base, register + LOW), load(base, register + HIGH), load(base, register + SCALE)
    if high == low >> 63:
        while scale > 0 and low % 10 == 0:
            low, scale = low // 10, scale - 1
    else:
        negative = high < 0
        low, high = magnitude(low, high)
        while scale > 0:
            less, less_high, digit = divide_wide(low, high, 10)
            if digit != 0:
                break
            low, high, scale = less, less_high, scale - 1
        if negative:
            low, high = negate_wide(low, high)
    store(base, register + LOW, low)
    store(base, register + HIGH, high)
    store(base, register + SCALE, scale)
    if high == low >> 63 and _fits(low, ids.VALUE_BITS - ids.SCALE_BITS) and scale <= ids.SCALE_MASK:
        return _packed(_DECIMAL, low << ids.SCALE_BITS | scale)
    return 0


@kernel
def _double_word(bits):
    sign = 1 if bits < 0 else 0
    if bits << 1 == 0:
        return _packed(_DOUBLE_ZERO, sign)
    exponent = (bits >> ids.FRACTION_BITS & ids.EXPONENT_MASK) - ids.EXPONENT_LEAST
    if not 0 <= exponent < 4 << ids.EXPONENT_LOW_BITS:
        return 0
    low = exponent & ids.EXPONENT_LOW_MASK
    value = sign << (ids.VALUE_BITS - 1) | low << ids.FRACTION_BITS | bits & ids.FRACTION_MASK
    return _packed(_DOUBLE + (exponent >> ids.EXPONENT_LOW_BITS), value)


# --- numbers --------------------------------------------------------------------------------------------------------


@kernel
def is_number(tag):
    return INTEGER <= tag <= DOUBLE


@kernel
def wide(base, register):
    """The two words and the scale of an integer or a decimal."""
    low = load(base, register + LOW)
    if load(base, register + TAG) == INTEGER:
        return low, low >> 63, 0
    return low, load(base, register + HIGH), load(base, register + SCALE)


@kernel
def promoted(base, register, kind):
    """A number as a FLOAT or a DOUBLE, and whether that could be done."""
    tag = load(base, register + TAG)
    if tag >= FLOAT:
        return double_of(load(base, register + LOW)), True
    low, high, scale = wide(base, register)
    if scale == 0 and kind == DOUBLE and high == low >> 63:
        return float(low), True
    return nearest(low, high, scale, 53 if kind == DOUBLE else 24)


@kernel
def aligned(base, a, b):
    """Two decimals or dateTimes with one scale: low and high of both, the scale, and whether they fit."""
    low, high, scale = wide(base, a)
    other_low, other_high, other_scale = wide(base, b)
    fits = True
    if scale < other_scale:
        low, high, fits = scale_up(low, high, other_scale - scale)
        scale = other_scale
    elif other_scale < scale:
        other_low, other_high, fits = scale_up(other_low, other_high, scale - other_scale)
    return low, high, other_low, other_high, scale, fits


# --- tests ----------------------------------------------------------------------------------------------------------


@kernel
def truth(base, dictionary, register):
    """The effective boolean value: NO, YES, FAULT or ASK."""
    tag = load(base, register + TAG)
    if tag in (BOOLEAN, INTEGER):
        return YES if load(base, register + LOW) != 0 else NO
    if tag == DECIMAL:
        return YES if load(base, register + LOW) | load(base, register + HIGH) != 0 else NO
    if tag in (FLOAT, DOUBLE):
        value = double_of(load(base, register + LOW))
        return YES if value == value and value != 0 else NO
    if tag in (STRING, LANG_STRING):  # a quote right after the first one ends the text
        return NO if byte(text_of(base, dictionary, load(base, register + WORD)) + 1) == _QUOTE else YES
    if tag in (OTHER, TEXT):
        return ASK
    return FAULT


@kernel
def compare(base, dictionary, a, b):
    """`a < b`, `a = b`, `a > b`: -1, 0, 1; or UNORDERED, FAULT, ASK."""
    first, second = load(base, a + TAG), load(base, b + TAG)
    if first == INTEGER and second == INTEGER:
        return _order(load(base, a + LOW), load(base, b + LOW))
    if is_number(first) and is_number(second):
        kind = max(first, second)
        if kind >= FLOAT:
            left, exact_left = promoted(base, a, kind)
            right, exact_right = promoted(base, b, kind)
            if not (exact_left and exact_right):
                return ASK
            if left != left or right != right:
                return UNORDERED
            return -1 if left < right else 1 if left > right else 0
        low, high, other_low, other_high, _, fits = aligned(base, a, b)
        return compare_wide(low, high, other_low, other_high) if fits else ASK
    if first == BOOLEAN and second == BOOLEAN:
        return _order(load(base, a + LOW), load(base, b + LOW))
    if first >= DATE_TIME and second >= DATE_TIME:
        return _compare_moments(base, a, b, first == second)
    if first == STRING and second == STRING:
        return _compare_texts(base, dictionary, load(base, a + WORD), load(base, b + WORD))
    if _in_text(first, second) or _in_text(second, first):
        return ASK
    return FAULT


@kernel
def _in_text(one, other):
    """Whether a value that is in its text only may have an order beside another."""
    return one == TEXT and other >= TEXT and other != BOOLEAN


@kernel
def _order(a, b):
    return -1 if a < b else 1 if a > b else 0


@kernel
def _compare_texts(base, dictionary, a, b):
    """The order of two strings by code points, which is that of their bytes, unless they differ in an escape: ASK."""
    if a == b:
        return 0
    one, other = text_of(base, dictionary, a), text_of(base, dictionary, b)
    end, other_end = length_of(base, dictionary, a) - 1, length_of(base, dictionary, b) - 1  # the quotes at the end
    position, escaped = 1, False
    while position < end and position < other_end:
        first, second = byte(one + position), byte(other + position)
        if first != second:
            if escaped or first == _BACKSLASH or second == _BACKSLASH:
                return ASK
            return -1 if first < second else 1
        escaped = first == _BACKSLASH and not escaped
        position += 1
    return _order(end, other_end)


@kernel
def _compare_moments(base, a, b, alike):
    if alike and load(base, a + SCALE) == load(base, b + SCALE):
        return _order(load(base, a + LOW), load(base, b + LOW))
    scale, other_scale = load(base, a + SCALE), load(base, b + SCALE)
    low, other_low = load(base, a + LOW), load(base, b + LOW)
    most = max(scale, other_scale)
    first_low, first_high, fits = scale_up(low, low >> 63, most - scale)
    second_low, second_high, other_fits = scale_up(other_low, other_low >> 63, most - other_scale)
    if not (fits and other_fits):
        return ASK
    answer = compare_wide(first_low, first_high, second_low, second_high)
    if alike:
        return answer
    # with a zone on one side only, the answer must hold for every zone of the other
    doubt_low, doubt_high, fits = scale_up(_DOUBT, 0, most)
    if not fits:
        return ASK
    difference_low, difference_high = negate_wide(second_low, second_high)
    difference_low = first_low + difference_low
    carry = 1 if (difference_low ^ LEAST) < (first_low ^ LEAST) else 0
    difference_high = first_high + difference_high + carry
    difference_low, difference_high = magnitude(difference_low, difference_high)
    return FAULT if compare_wide(difference_low, difference_high, doubt_low, doubt_high) <= 0 else answer


@kernel
def equal(base, dictionary, a, b):
    """SPARQL's `=`: NO, YES, FAULT or ASK."""
    first, second = load(base, a + TAG), load(base, b + TAG)
    if first == NONE or second == NONE:
        return FAULT
    if first >= BOOLEAN and second >= BOOLEAN:
        if is_number(first) != is_number(second) or (first == BOOLEAN) != (second == BOOLEAN):
            return NO
        answer = compare(base, dictionary, a, b)
        if answer in (ASK, FAULT):
            return answer
        return YES if answer == 0 else NO
    word = load(base, a + WORD)
    if word != 0 and word == load(base, b + WORD):
        return YES
    # the terms differ, and at least one of them has no value in a register
    if min(first, second) <= BLANK or first == LANG_STRING or second == LANG_STRING:
        return NO
    if first == OTHER or second == OTHER:
        return FAULT
    return ASK if _in_text(first, second) or _in_text(second, first) else NO
