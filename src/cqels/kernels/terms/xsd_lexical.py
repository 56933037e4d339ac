"""Texts of XML Schema's numbers, truth values and dateTimes, and the words that hold them, exactly as in the model.

Where a kernel would have to guess whether a word prints as the text (`cqels.model.ids`), it gives ASK: Python tells.
"""

from __future__ import annotations

import numpy as np

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.byte_strings import bit_length, byte, short_word, word, word_of
from cqels.kernels.memory.int128 import bits_of
from cqels.model.ids import (
    CODE_BOOLEAN,
    CODE_DATE_TIME,
    CODE_DATE_TIME_MILLIS,
    CODE_DECIMAL,
    CODE_DOUBLE,
    CODE_DOUBLE_ZERO,
    CODE_FLOAT,
    CODE_INTEGER,
    EXPONENT_LEAST,
    EXPONENT_LOW_BITS,
    EXPONENT_LOW_MASK,
    FRACTION_BITS,
    FRACTION_MASK,
    SCALE_BITS,
    VALUE_BITS,
    VALUE_MASK,
    ZONE_BITS,
    ZONE_NONE,
    ZONE_OFFSET,
    ZONE_Z,
)
from cqels.model.terms import XSD

NOT_INLINE = 0
"""Instead of a word: no word holds the literal."""
ASK = 1
"""Instead of a word: Python must say whether a word holds the literal."""

# --- datatypes ------------------------------------------------------------------------------------------------------

OTHER_TYPE = 0
XSD_STRING = 32
XSD_DATE_TIME_STAMP = 33
XSD_DERIVED = 40
"""The first of the types derived from xsd:integer."""

DERIVED = {
    b"long": (-(2**63), 2**63 - 1),
    b"int": (-(2**31), 2**31 - 1),
    b"short": (-(2**15), 2**15 - 1),
    b"byte": (-(2**7), 2**7 - 1),
    b"unsignedLong": (0, 2**63 - 1),
    b"unsignedInt": (0, 2**32 - 1),
    b"unsignedShort": (0, 2**16 - 1),
    b"unsignedByte": (0, 2**8 - 1),
    b"nonNegativeInteger": (0, 2**63 - 1),
    b"positiveInteger": (1, 2**63 - 1),
    b"nonPositiveInteger": (-(2**63), 0),
    b"negativeInteger": (-(2**63), -1),
}
_TYPES = {
    b"integer": CODE_INTEGER,
    b"decimal": CODE_DECIMAL,
    b"double": CODE_DOUBLE,
    b"float": CODE_FLOAT,
    b"boolean": CODE_BOOLEAN,
    b"dateTime": CODE_DATE_TIME,
    b"string": XSD_STRING,
    b"dateTimeStamp": XSD_DATE_TIME_STAMP,
} | {name: XSD_DERIVED + number for number, name in enumerate(DERIVED)}
_TYPE_COUNT = len(_TYPES)
_TYPE_LENGTH = np.array([len(name) for name in _TYPES])
_TYPE_HEAD = np.array([word_of(name[:8]) for name in _TYPES])
_TYPE_TAIL = np.array([word_of(name[-8:]) for name in _TYPES])
_TYPE_CODE = np.array(list(_TYPES.values()))

TRUE, FALSE = word_of(b"true"), word_of(b"false")
NAN, INF, PLUS_INF, MINUS_INF = word_of(b"NaN"), word_of(b"INF"), word_of(b"+INF"), word_of(b"-INF")

XSD_LENGTH = len(XSD)
_XSD = XSD.encode()
_XSD_0, _XSD_1, _XSD_2, _XSD_3, _XSD_LAST = (word_of(_XSD[at : at + 8]) for at in range(0, XSD_LENGTH, 8))


@kernel
def is_xsd(address, length):
    """Whether an IRI, without its brackets, is in XML Schema's namespace."""
    return (
        length > XSD_LENGTH
        and word(address + 24) == _XSD_3
        and word(address) == _XSD_0
        and word(address + 8) == _XSD_1
        and word(address + 16) == _XSD_2
        and byte(address + 32) == _XSD_LAST
    )


@kernel
def xsd_type(address, length):
    """The type code of a name in XML Schema's namespace; OTHER_TYPE for those not read here."""
    if length > 18 or length < 3:
        return OTHER_TYPE
    head = short_word(address, length)
    tail = head if length < 8 else word(address + length - 8)
    for number in range(_TYPE_COUNT):
        if _TYPE_HEAD[number] == head and _TYPE_TAIL[number] == tail and _TYPE_LENGTH[number] == length:
            return _TYPE_CODE[number]
    return OTHER_TYPE


# --- integers, decimals, truth values -------------------------------------------------------------------------------


@kernel
def literal_word(address, start, end, code):
    """The word of a literal whose text is between two positions, or NOT_INLINE, or ASK."""
    if code == CODE_INTEGER:
        return _integer_word(address, start, end)
    if code == CODE_DECIMAL:
        return _decimal_word(address, start, end)
    if code in (CODE_DOUBLE, CODE_FLOAT):
        return _floating_word(address, start, end, code)
    if code == CODE_DATE_TIME:
        return _date_time_word(address, start, end)
    if code == CODE_BOOLEAN and end - start <= 5:
        text = short_word(address + start, end - start)
        if text == TRUE:
            return _pack(CODE_BOOLEAN, 1)
        if text == FALSE:
            return _pack(CODE_BOOLEAN, 0)
    return NOT_INLINE


@kernel
def _pack(code, value):
    return -(1 << 63) | code << VALUE_BITS | value & VALUE_MASK


@kernel
def _integer_word(address, start, end):
    negative = start < end and byte(address + start) == 45
    if negative:
        start += 1
    if end == start or end - start > 18:
        return NOT_INLINE
    if byte(address + start) == 48 and (negative or end - start > 1):
        return NOT_INLINE
    value = 0
    for position in range(start, end):
        digit = byte(address + position) - 48
        if digit < 0 or digit > 9:
            return NOT_INLINE
        value = value * 10 + digit
    if negative:
        value = -value
    half = 1 << VALUE_BITS - 1
    return _pack(CODE_INTEGER, value) if -half <= value < half else NOT_INLINE


@kernel
def _decimal_word(address, start, end):
    negative = start < end and byte(address + start) == 45
    if negative:
        start += 1
    if end == start or end - start > 48:
        return NOT_INLINE
    value = 0
    point = end
    for position in range(start, end):
        digit = byte(address + position) - 48
        if digit < 0 or digit > 9:
            if digit != -2 or point != end:
                return NOT_INLINE
            point = position
        else:
            value = value * 10 + digit
            if value > 1 << 53:
                return NOT_INLINE
    scale = end - point - 1 if point < end else 0
    if point == start or point == end - 1 or scale > 31 or (byte(address + start) == 48 and point > start + 1):
        return NOT_INLINE
    if negative:
        if value == 0:
            return NOT_INLINE
        value = -value
    half = 1 << VALUE_BITS - SCALE_BITS - 1
    return _pack(CODE_DECIMAL, value << SCALE_BITS | scale) if -half <= value < half else NOT_INLINE


# --- floats and doubles ---------------------------------------------------------------------------------------------

_FIVES = np.array([5**power for power in range(21)])
TENS = np.array([10**power for power in range(19)])
DOUBLE_BITS, FLOAT_BITS = 53, 24


@kernel
def nearest(digits, power, precision):
    """The binary number nearest to digits / 10^power, for 0 < digits < 10^18 and power <= 20, ties to even.

    Gives its mantissa, of `precision` bits, its exponent, and how far the decimal number is from it: `rest` and `shift`
    with digits = mantissa * 2^exponent * 10^power + rest / 2^shift.
    """
    below = _FIVES[power]
    mantissa = digits // below
    rest = digits - mantissa * below
    shift = 0
    missing = precision - bit_length(mantissa)
    while missing > 0:
        step = min(missing, 16)  # what is left is below 5^20 < 2^47
        rest <<= step
        more = rest // below
        rest -= more * below
        mantissa = mantissa << step | more
        shift += step
        missing = precision - bit_length(mantissa)
    exponent = -shift - power
    if missing < 0:
        extra = -missing
        rest += (mantissa & (1 << extra) - 1) * below
        below <<= extra
        mantissa >>= extra
        exponent += extra
    if 2 * rest > below or (2 * rest == below and mantissa & 1 == 1):
        rest -= below
        mantissa += 1
        if mantissa == 1 << precision:
            mantissa >>= 1
            exponent += 1
    return mantissa, exponent, rest, shift


@kernel
def _is_shortest(digits, power, unit, precision, mantissa, exponent, rest, shift):
    """Whether no decimal number with fewer digits is read as the same binary one, and none with as many is nearer.

    `unit` is what the last digit counts; of two that are as near, the one whose last digit is even is printed.
    """
    off = 2 * abs(rest)
    if off > unit << shift or (off == unit << shift and digits // unit % 2 == 1):
        return False
    lower = digits - digits % (10 * unit)
    if lower > 0:
        other, other_exponent, _, _ = nearest(lower, power, precision)
        if other == mantissa and other_exponent == exponent:
            return False
    other, other_exponent, _, _ = nearest(lower + 10 * unit, power, precision)
    return other != mantissa or other_exponent != exponent


@kernel
def _floating_word(address, start, end, code):
    """The word of a double or float. Canonical are `-12.5` from 1e-4 to below 1e16, and `1.5E-7` outside."""
    negative = start < end and byte(address + start) == 45
    special = short_word(address + start, end - start) if end - start < 5 else 0
    if special in (INF, MINUS_INF, NAN):
        if code == CODE_DOUBLE:
            return NOT_INLINE  # their exponents do not fit
        bits = 0x7FC00000 if special == NAN else 0xFF800000 if special == MINUS_INF else 0x7F800000
        return _pack(CODE_FLOAT, bits)
    if negative:
        start += 1
    if end - start < 3 or end - start > 24:
        return NOT_INLINE
    digits, count, point, position = 0, 0, -1, start
    while position < end:
        digit = byte(address + position) - 48
        if digit == -2 and point < 0:
            point = position
        elif 0 <= digit <= 9:
            digits = digits * 10 + digit
            if digits > 0:
                count += 1
            if count > 17:
                return NOT_INLINE
        else:
            break
        position += 1
    if point <= start or position == point + 1 or (byte(address + start) == 48 and point > start + 1):
        return NOT_INLINE
    last_zero = byte(address + position - 1) == 48
    if last_zero and position > point + 2:
        return NOT_INLINE
    power = position - point - 1
    ten = 0
    if position < end:
        if byte(address + position) != 69:
            return NOT_INLINE
        if point != start + 1 or digits == 0 or byte(address + start) == 48:
            return NOT_INLINE
        ten = _exponent(address, position + 1, end)
        if ten == 0 or -5 < ten < 16:
            return NOT_INLINE
        if code == CODE_FLOAT:
            return ASK
        if ten > 19 or ten < -20:
            return NOT_INLINE
        if ten > 17:
            return ASK
    elif point - start > 16:
        return NOT_INLINE
    if digits == 0:
        if code == CODE_DOUBLE:
            return _pack(CODE_DOUBLE_ZERO, 1 if negative else 0)
        return _pack(CODE_FLOAT, 1 << 31 if negative else 0)
    if last_zero:  # the one of ".0"
        digits //= 10
        count -= 1
        power = 0
    if power > 0 and ten == 0 and point == start + 1 and byte(address + start) == 48 and power - count > 3:
        return NOT_INLINE  # below 1e-4
    power -= ten
    unit = 1
    if power < 0:
        unit = TENS[-power]
        digits *= unit
        power = 0
    elif power == 0:
        while digits % (10 * unit) == 0:
            unit *= 10
            count -= 1
    if power > 20:
        return ASK
    precision = DOUBLE_BITS if code == CODE_DOUBLE else FLOAT_BITS
    enough, most = (15, 17) if code == CODE_DOUBLE else (6, 9)
    if count > most:
        return NOT_INLINE
    if code == CODE_DOUBLE and count <= enough and digits < 1 << DOUBLE_BITS and power < 19:
        bits = bits_of(float(digits) / float(TENS[power]))  # of two exact numbers: rounded once
        mantissa, exponent, rest, shift = bits & FRACTION_MASK, (bits >> FRACTION_BITS) - FRACTION_BITS - 1023, 0, 0
    else:
        mantissa, exponent, rest, shift = nearest(digits, power, precision)
    if count > enough:
        if mantissa == 1 << precision - 1:
            return ASK  # a power of two: the numbers below lie closer together than those above
        if not _is_shortest(digits, power, unit, precision, mantissa, exponent, rest, shift):
            return NOT_INLINE
    if code == CODE_FLOAT:
        bits = exponent + 23 + 127 << 23 | mantissa & (1 << 23) - 1
        return _pack(CODE_FLOAT, bits | 1 << 31 if negative else bits)
    exponent += FRACTION_BITS + 1023 - EXPONENT_LEAST
    if exponent < 0 or exponent >= 4 << EXPONENT_LOW_BITS:
        return NOT_INLINE
    value = (exponent & EXPONENT_LOW_MASK) << FRACTION_BITS | mantissa & FRACTION_MASK
    if negative:
        value |= 1 << VALUE_BITS - 1
    return _pack(CODE_DOUBLE + (exponent >> EXPONENT_LOW_BITS), value)


@kernel
def _exponent(address, start, end):
    """The exponent in `1.5E-7`, cut off at 999; 0 if it is not written in the canonical way."""
    negative = start < end and byte(address + start) == 45
    if negative:
        start += 1
    if start == end or byte(address + start) == 48:
        return 0
    value = 0
    for position in range(start, end):
        digit = byte(address + position) - 48
        if digit < 0 or digit > 9:
            return 0
        value = min(value * 10 + digit, 999)
    return -value if negative else value


# --- dateTimes ------------------------------------------------------------------------------------------------------


@kernel
def fixed_number(address, start, count):
    """The number of so many digits, or -1 if they are not all digits."""
    value = 0
    for position in range(start, start + count):
        digit = byte(address + position) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@kernel
def days_of(year, month, day):
    """Days since 1970, or -1 << 62 if the calendar has no such day."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 31
    if month == 2:
        longest = 29 if leap else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        longest = 30
    if month < 1 or month > 12 or day < 1 or day > longest:
        return -1 << 62
    if month <= 2:
        year -= 1
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


@kernel
def read_date_time(address, start, end):
    """A dateTime of a year with four digits: state, second since 1970 in UTC, fraction, digits of it, zone, year.

    The state is 1; 0 if the text is ill-formed; -1 if it may be well-formed but is not read here; 2 if it is not how a
    dateTime is printed (`24:00:00`, `-00:00`). The zone is as in a word.
    """
    if start < end and byte(address + start) == 45:
        return -1, 0, 0, 0, 0, 0
    if end - start < 19:
        return 0, 0, 0, 0, 0, 0
    year = fixed_number(address, start, 4)
    if year < 0:
        return 0, 0, 0, 0, 0, 0
    if byte(address + start + 4) != 45:
        return -1, 0, 0, 0, 0, 0
    month, day = fixed_number(address, start + 5, 2), fixed_number(address, start + 8, 2)
    hour, minute = fixed_number(address, start + 11, 2), fixed_number(address, start + 14, 2)
    second = fixed_number(address, start + 17, 2)
    if (
        byte(address + start + 7) != 45
        or (byte(address + start + 10) != 84)
        or byte(address + start + 13) != 58
        or byte(address + start + 16) != 58
    ):
        return 0, 0, 0, 0, 0, 0
    days = days_of(year, month, day)
    if days == -1 << 62 or hour < 0 or minute < 0 or second < 0 or hour > 24 or minute > 59 or second > 59:
        return 0, 0, 0, 0, 0, 0
    position = start + 19
    fraction, count = 0, 0
    if position < end and byte(address + position) == 46:
        position += 1
        first = position
        while position < end and 48 <= byte(address + position) <= 57:
            if position - first < 9:
                fraction = fraction * 10 + byte(address + position) - 48
            position += 1
        count = position - first
        if count == 0:
            return 0, 0, 0, 0, 0, 0
        if count > 9:
            return -1, 0, 0, 0, 0, 0
    state = 1
    if hour == 24:
        if minute != 0 or second != 0 or fraction != 0:
            return 0, 0, 0, 0, 0, 0
        state = 2
        count = 0
    zone = ZONE_NONE
    minutes = 0
    if position < end:
        sign = byte(address + position)
        if sign == 90 and position + 1 == end:
            zone = ZONE_Z
        elif (sign == 43 or sign == 45) and position + 6 == end and byte(address + position + 3) == 58:
            hours, rest = fixed_number(address, position + 1, 2), fixed_number(address, position + 4, 2)
            minutes = 60 * hours + rest
            if hours < 0 or rest < 0 or rest > 59 or minutes > 14 * 60:
                return 0, 0, 0, 0, 0, 0
            if sign == 45:
                if minutes == 0:
                    state = 2
                minutes = -minutes
            zone = ZONE_OFFSET + minutes
        else:
            return 0, 0, 0, 0, 0, 0
    return state, days * 86_400 + hour * 3600 + minute * 60 + second - 60 * minutes, fraction, count, zone, year


@kernel
def _date_time_word(address, start, end):
    state, second, fraction, count, zone, _ = read_date_time(address, start, end)
    if state != 1:
        return ASK if state == -1 else NOT_INLINE
    if count > 3 or (0 < count < 3 and fraction % 10 == 0):
        return NOT_INLINE
    milliseconds = second * 1000 + fraction * TENS[3 - count]
    half = 1 << VALUE_BITS - ZONE_BITS - 1
    if milliseconds < -half or milliseconds >= half:
        return NOT_INLINE
    code = CODE_DATE_TIME_MILLIS if count == 3 and fraction % 10 == 0 else CODE_DATE_TIME
    return _pack(code, milliseconds << ZONE_BITS | zone)
