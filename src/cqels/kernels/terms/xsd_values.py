"""The registers of terms, read from their N-Triples texts: exactly those of `cqels.model.ids`, or UNKNOWN."""

from __future__ import annotations

import numpy as np

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.byte_strings import byte, find_either, short_word, word_of
from cqels.kernels.terms.xsd_lexical import (
    DERIVED,
    DOUBLE_BITS,
    FALSE,
    FLOAT_BITS,
    INF,
    MINUS_INF,
    NAN,
    OTHER_TYPE,
    PLUS_INF,
    TENS,
    TRUE,
    XSD_DERIVED,
    XSD_LENGTH,
    is_xsd,
    nearest,
    read_date_time,
    xsd_type,
)
from cqels.model.ids import (
    CODE_BOOLEAN,
    CODE_DATE_TIME,
    CODE_DECIMAL,
    CODE_DOUBLE,
    CODE_FLOAT,
    CODE_INTEGER,
    FRACTION_BITS,
    FRACTION_MASK,
    ZONE_NONE,
    Tag,
)

UNKNOWN = -1
"""Instead of a tag: Python must say what the register is."""

_ONE, _ZERO = word_of(b"1"), word_of(b"0")
_LEAST = np.array([least for least, _ in DERIVED.values()])
_GREATEST = np.array([greatest for _, greatest in DERIVED.values()])
_TAG_IRI, _TAG_BLANK, _TAG_STRING, _TAG_LANG = int(Tag.IRI), int(Tag.BLANK), int(Tag.STRING), int(Tag.LANG_STRING)
_TAG_OTHER, _TAG_BOOLEAN, _TAG_INTEGER = int(Tag.OTHER), int(Tag.BOOLEAN), int(Tag.INTEGER)
_TAG_DECIMAL, _TAG_FLOAT, _TAG_DOUBLE = int(Tag.DECIMAL), int(Tag.FLOAT), int(Tag.DOUBLE)
_TAG_DATE_TIME, _TAG_LOCAL = int(Tag.DATE_TIME), int(Tag.DATE_TIME_LOCAL)


@kernel
def text_register(address, length):
    """The register of the term with an N-Triples text: tag (or UNKNOWN), bits, scale."""
    first = byte(address)
    if first == 60:
        return _TAG_IRI, 0, 0
    if first == 95:
        return _TAG_BLANK, 0, 0
    escaped = False
    close = find_either(address, 1, length, length, 34, 92)
    while close < length and byte(address + close) == 92:
        escaped = True
        close = find_either(address, close + 2, length, length, 34, 92)
    if close + 1 >= length:
        return _TAG_STRING, 0, 0
    if byte(address + close + 1) == 64:
        return _TAG_LANG, 0, 0
    name = close + 4 + XSD_LENGTH  # after "^^<http://www.w3.org/2001/XMLSchema#
    if not is_xsd(address + close + 4, length - close - 5):
        return _TAG_OTHER, 0, 0
    code = xsd_type(address + name, length - 1 - name)
    if escaped or code == OTHER_TYPE:
        return UNKNOWN, 0, 0
    start, end = 1, close
    while start < end and byte(address + start) == 32:
        start += 1
    while start < end and byte(address + end - 1) == 32:
        end -= 1
    if code == CODE_INTEGER or code >= XSD_DERIVED:
        return _integer_register(address, start, end, code)
    if code == CODE_DECIMAL:
        return _decimal_register(address, start, end)
    if code in (CODE_DOUBLE, CODE_FLOAT):
        return _floating_register(address, start, end, code)
    if code == CODE_BOOLEAN:
        return _boolean_register(address, start, end)
    if code == CODE_DATE_TIME:
        return _date_time_register(address, start, end)
    return UNKNOWN, 0, 0


@kernel
def _boolean_register(address, start, end):
    text = short_word(address + start, end - start) if start < end <= start + 5 else 0
    if text in (TRUE, _ONE):
        return _TAG_BOOLEAN, 1, 0
    if text in (FALSE, _ZERO):
        return _TAG_BOOLEAN, 0, 0
    return _TAG_OTHER, 0, 0


@kernel
def read_digits(address, start, end):
    """Decimal digits with one point or none among them: the number they make, digits after the point, where they end.

    The number is -1 if there are no digits, and -2 if it is 10^17 or more.
    """
    value, point, count, position = 0, -1, 0, start
    while position < end:
        digit = byte(address + position) - 48
        if digit == -2 and point < 0:
            point = position
        elif 0 <= digit <= 9:
            count += 1
            if value >= 10**16:
                value = -2
            if value >= 0:
                value = value * 10 + digit
        else:
            break
        position += 1
    return (value if count else -1), (position - point - 1 if point >= 0 else 0), position


@kernel
def _after_sign(address, start, end):
    return start + 1 if start < end and (byte(address + start) == 43 or byte(address + start) == 45) else start


@kernel
def _integer_register(address, start, end, code):
    first = _after_sign(address, start, end)
    for position in range(first, end):
        if not 48 <= byte(address + position) <= 57:
            return _TAG_OTHER, 0, 0
    value, _, _ = read_digits(address, first, end)
    if value == -1:
        return _TAG_OTHER, 0, 0
    if value == -2:
        return UNKNOWN, 0, 0
    if first > start and byte(address + start) == 45:
        value = -value
    if code >= XSD_DERIVED and not _LEAST[code - XSD_DERIVED] <= value <= _GREATEST[code - XSD_DERIVED]:
        return _TAG_OTHER, 0, 0
    return _TAG_INTEGER, value, 0


@kernel
def _decimal_register(address, start, end):
    first = _after_sign(address, start, end)
    value, scale, position = read_digits(address, first, end)
    if position < end or value == -1:
        return _TAG_OTHER, 0, 0
    if value == -2 or scale > 255:
        return UNKNOWN, 0, 0
    if value == 0:
        return _TAG_DECIMAL, 0, 0
    return _TAG_DECIMAL, -value if first > start and byte(address + start) == 45 else value, scale


@kernel
def _floating_register(address, start, end, code):
    tag = _TAG_DOUBLE if code == CODE_DOUBLE else _TAG_FLOAT
    text = short_word(address + start, end - start) if start < end <= start + 4 else 0
    if text == NAN:
        return tag, 0x7FF8 << 48, 0
    if text in (INF, PLUS_INF):
        return tag, 0x7FF0 << 48, 0
    if text == MINUS_INF:
        return tag, -(1 << 63) | 0x7FF0 << 48, 0
    first = _after_sign(address, start, end)
    digits, power, position = read_digits(address, first, end)
    if digits == -1:
        return _TAG_OTHER, 0, 0
    if position < end:
        if byte(address + position) | 32 != 101:
            return _TAG_OTHER, 0, 0
        number = _after_sign(address, position + 1, end)
        if number == end:
            return _TAG_OTHER, 0, 0
        ten = 0
        for at in range(number, end):
            digit = byte(address + at) - 48
            if digit < 0 or digit > 9:
                return _TAG_OTHER, 0, 0
            ten = min(ten * 10 + digit, 100_000)
        power += ten if number > position + 1 and byte(address + position + 1) == 45 else -ten
    sign = -(1 << 63) if first > start and byte(address + start) == 45 else 0
    if digits == 0:
        return tag, sign, 0
    while power < 0 and 0 < digits < 10**17:
        digits *= 10
        power += 1
    if digits == -2 or power < 0 or power > 20:
        return UNKNOWN, 0, 0
    precision = DOUBLE_BITS if code == CODE_DOUBLE else FLOAT_BITS
    mantissa, exponent, _, _ = nearest(digits, power, precision)
    mantissa <<= DOUBLE_BITS - precision
    exponent += precision + 1022
    return tag, sign | exponent << FRACTION_BITS | mantissa & FRACTION_MASK, 0


@kernel
def _date_time_register(address, start, end):
    state, second, fraction, count, zone, _ = read_date_time(address, start, end)
    if state <= 0:
        return (UNKNOWN if state == -1 else _TAG_OTHER), 0, 0
    unit = TENS[count]
    if abs(second) > (1 << 62) // unit:
        return UNKNOWN, 0, 0
    return (_TAG_LOCAL if zone == ZONE_NONE else _TAG_DATE_TIME), second * unit + fraction, count
