"""SPARQL's arithmetic, rounding, casts and parts of dateTimes on registers, exactly as `cqels.plan.functions` has them.

Each function writes its result, or an error, into the register `target` (which may be an argument too) and says whether
it could: False means that the exact result needs Python, and nothing was written.
"""

from __future__ import annotations

import math

import numpy as np

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.expressions.registers import (
    BOOLEAN,
    DATE_TIME,
    DATE_TIME_LOCAL,
    DECIMAL,
    DOUBLE,
    FLOAT,
    HIGH,
    INTEGER,
    LOW,
    SCALE,
    STRING,
    TAG,
    TEXT,
    WORD,
    aligned,
    is_number,
    move,
    promoted,
    put,
    put_decimal,
    put_double,
    put_error,
    wide,
)
from cqels.kernels.memory.arena import load, store
from cqels.kernels.memory.int128 import (
    LEAST,
    POWERS,
    add_wide,
    below,
    divide_wide,
    double_of,
    magnitude,
    multiply_wide,
    nearest,
    negate_wide,
    product_high,
    scale_up,
)
from cqels.model import ids

DIVISION_DIGITS = 18
_CHUNK, _NINE = 10**6, 10**9
EXACT, TINY = 2**53, 9_000_000  # 10^9 times the latter is below the former
_SMALL = 2**63 // _CHUNK
_LARGEST_SCALE = 255

# --- operators ------------------------------------------------------------------------------------------------------


@kernel
def _no_numbers(base, target, a, b, moments):
    """Both operands are not numbers: Python's case if a value is in its text only, else an error."""
    first, second = load(base, a + TAG), load(base, b + TAG)
    if first == TEXT or second == TEXT:
        other = second if first == TEXT else first
        if other == TEXT or is_number(other) or (moments and other >= DATE_TIME):
            return False
    if moments and first >= DATE_TIME and second >= DATE_TIME:
        return False
    put_error(base, target)
    return True


@kernel
def add(base, target, a, b):
    first, second = load(base, a + TAG), load(base, b + TAG)
    if first == INTEGER and second == INTEGER:
        left, right = load(base, a + LOW), load(base, b + LOW)
        total = left + right
        if ((left ^ total) & (right ^ total)) < 0:
            return False
        put(base, target, INTEGER, total)
        return True
    if not (is_number(first) and is_number(second)):
        return _no_numbers(base, target, a, b, True)
    kind = max(first, second)
    if kind >= FLOAT:
        one, exact = promoted(base, a, kind)
        other, other_exact = promoted(base, b, kind)
        if not (exact and other_exact):
            return False
        put_double(base, target, kind, one + other)
        return True
    low, high, other_low, other_high, scale, fits = aligned(base, a, b)
    if not fits:
        return False
    low, high, fits = add_wide(low, high, other_low, other_high)
    if fits:
        put_decimal(base, target, low, high, scale)
    return fits


@kernel
def subtract(base, target, a, b):
    first, second = load(base, a + TAG), load(base, b + TAG)
    if first == INTEGER and second == INTEGER:
        left, right = load(base, a + LOW), load(base, b + LOW)
        total = left - right
        if ((left ^ right) & (left ^ total)) < 0:
            return False
        put(base, target, INTEGER, total)
        return True
    if not (is_number(first) and is_number(second)):
        return _no_numbers(base, target, a, b, True)
    kind = max(first, second)
    if kind >= FLOAT:
        one, exact = promoted(base, a, kind)
        other, other_exact = promoted(base, b, kind)
        if not (exact and other_exact):
            return False
        put_double(base, target, kind, one - other)
        return True
    low, high, other_low, other_high, scale, fits = aligned(base, a, b)
    if not fits or (other_low == 0 and other_high == LEAST):
        return False
    other_low, other_high = negate_wide(other_low, other_high)
    low, high, fits = add_wide(low, high, other_low, other_high)
    if fits:
        put_decimal(base, target, low, high, scale)
    return fits


@kernel
def multiply(base, target, a, b):
    first, second = load(base, a + TAG), load(base, b + TAG)
    if not (is_number(first) and is_number(second)):
        return _no_numbers(base, target, a, b, False)
    kind = max(first, second)
    if kind >= FLOAT:
        one, exact = promoted(base, a, kind)
        other, other_exact = promoted(base, b, kind)
        if not (exact and other_exact):
            return False
        put_double(base, target, kind, one * other)
        return True
    low, high, scale = wide(base, a)
    other_low, other_high, other_scale = wide(base, b)
    low, high, fits = multiply_wide(low, high, other_low, other_high)
    if kind == INTEGER:
        if not fits or high != low >> 63:
            return False
        put(base, target, INTEGER, low)
        return True
    if not fits or scale + other_scale > _LARGEST_SCALE:
        return False
    put_decimal(base, target, low, high, scale + other_scale)
    return True


@kernel
def divide(base, target, a, b):
    """Integers divide as decimals; a decimal quotient is cut, toward zero, after 18 fractional digits."""
    first, second = load(base, a + TAG), load(base, b + TAG)
    if not (is_number(first) and is_number(second)):
        return _no_numbers(base, target, a, b, False)
    kind = max(first, second)
    if kind >= FLOAT:
        one, exact = promoted(base, a, kind)
        other, other_exact = promoted(base, b, kind)
        if not (exact and other_exact):
            return False
        put_double(base, target, kind, one / other)
        return True
    low, high, scale = wide(base, a)
    by, by_high, by_scale = wide(base, b)
    if by == 0 and by_high == 0:
        put_error(base, target)
        return True
    if by_high != by >> 63 or by == LEAST:
        return False
    negative = (high < 0) != (by < 0)
    by = abs(by)
    if scale == by_scale and by < _SMALL and high == low >> 63 and low != LEAST:
        low, high, scale = divide_words(abs(low), by)
    else:
        fits = True
        power = DIVISION_DIGITS + by_scale - scale
        if power >= 0:
            low, high, fits = scale_up(low, high, power)
        else:
            by, over, fits = scale_up(by, 0, -power)
            fits = fits and over == 0 and by > 0
        low, high = magnitude(low, high)
        if not fits or high < 0:
            return False
        low, high, _ = divide_wide(low, high, by)
        scale = DIVISION_DIGITS
    if negative:
        low, high = negate_wide(low, high)
    put_decimal(base, target, low, high, scale)
    return True


@kernel
def divide_words(a, b):
    """`a / b` of words, b small: some digits at a time, as many as there are, at most 18. Low, high, scale."""
    if a < EXACT and b < TINY:
        # The machine divides doubles much faster than integers.  Where the quotient is below 2^53 / b, rounding cannot
        # reach the next integer, so that cutting the rounded quotient gives the exact one.
        whole = int(float(a) / float(b))
        rest = a - whole * b
        if rest == 0:
            return whole, 0, 0
        rest *= _NINE
        digits = int(float(rest) / float(b))
        rest = (rest - digits * b) * _NINE
        scale = 9
        if rest != 0:
            digits = digits * _NINE + int(float(rest) / float(b))
            scale = 18
    else:
        whole = a // b
        rest = a - whole * b
        digits, scale = 0, 0
        while rest != 0 and scale < DIVISION_DIGITS:
            rest *= _CHUNK
            chunk = rest // b
            rest -= chunk * b
            digits = digits * _CHUNK + chunk
            scale += 6
    low = whole * POWERS[scale]
    high = product_high(whole, POWERS[scale])
    total = low + digits
    if below(total, low):
        high += 1
    return total, high, scale


@kernel
def negate(base, target, a):
    tag = load(base, a + TAG)
    if tag == INTEGER:
        value = load(base, a + LOW)
        if value == LEAST:
            return False
        put(base, target, INTEGER, -value)
    elif tag == DECIMAL:
        low, high, scale = wide(base, a)
        if high == LEAST:
            return False
        low, high = negate_wide(low, high)
        put_decimal(base, target, low, high, scale)
    elif tag in (FLOAT, DOUBLE):
        put_double(base, target, tag, -double_of(load(base, a + LOW)))
    elif tag == TEXT:
        return False
    else:
        put_error(base, target)
    return True


@kernel
def plus(base, target, a):
    """Unary plus: the number itself, as it was written."""
    tag = load(base, a + TAG)
    if tag == TEXT:
        return False
    if is_number(tag):
        move(base, target, a)
    else:
        put_error(base, target)
    return True


# --- rounding -------------------------------------------------------------------------------------------------------

DOWN, UP, NEAREST = 0, 1, 2


@kernel
def absolute(base, target, a):
    tag = load(base, a + TAG)
    negative = False
    if tag in (INTEGER, FLOAT, DOUBLE):
        negative = load(base, a + LOW) < 0
    elif tag == DECIMAL:
        negative = load(base, a + HIGH) < 0
    if negative:
        return negate(base, target, a)
    return _as_computed(base, target, a)


@kernel
def _as_computed(base, target, a):
    """A number in canonical form."""
    if not plus(base, target, a):
        return False
    store(base, target + WORD, 0)
    return True


@kernel
def whole(base, target, a, way):
    """FLOOR, CEIL (way UP) and ROUND: a number made whole in its own type."""
    tag = load(base, a + TAG)
    if tag == DECIMAL:
        low, high, scale = wide(base, a)
        if scale > 18:
            return False
        negative = high < 0
        low, high = magnitude(low, high)
        low, high, rest = divide_wide(low, high, POWERS[scale])
        half = 2 * rest - POWERS[scale]  # beyond the half or not; 10^18 twice is still in a word
        if rest != 0:
            if way == NEAREST:
                away = half > 0 or (half == 0 and not negative)
            else:
                away = (way == DOWN) == negative
            if away:
                low, high, _ = add_wide(low, high, 1, 0)
        if negative:
            low, high = negate_wide(low, high)
        put_decimal(base, target, low, high, 0)
        return True
    if tag in (FLOAT, DOUBLE):
        value = double_of(load(base, a + LOW))
        if math.isfinite(value):
            if way == UP:
                result = np.ceil(value)
            else:
                result = np.floor(value)
                if way == NEAREST and value - result >= 0.5:
                    result += 1.0
            value = math.copysign(result, value)
        put_double(base, target, tag, value)
        return True
    return _as_computed(base, target, a)


# --- casts ----------------------------------------------------------------------------------------------------------


@kernel
def cast(base, target, a, kind):
    """To BOOLEAN, INTEGER, DECIMAL, FLOAT or DOUBLE, from numbers and booleans; strings are Python's."""
    tag = load(base, a + TAG)
    if tag in (STRING, TEXT):
        return False
    if not (BOOLEAN <= tag <= DOUBLE):
        put_error(base, target)
        return True
    if tag >= FLOAT:
        return _cast_float(base, target, double_of(load(base, a + LOW)), tag, kind)
    low = load(base, a + LOW)
    high, scale = low >> 63, 0
    if tag == DECIMAL:
        high, scale = load(base, a + HIGH), load(base, a + SCALE)
    if kind == BOOLEAN:
        put(base, target, BOOLEAN, 1 if low | high != 0 else 0)
    elif kind == DECIMAL:
        put_decimal(base, target, low, high, scale)
    elif kind == INTEGER:
        if scale > 18:
            return False
        result, result_high = magnitude(low, high)
        result, result_high, _ = divide_wide(result, result_high, POWERS[scale])
        if result_high != 0 or result < 0:
            return False
        put(base, target, INTEGER, -result if high < 0 else result)
    else:
        value, exact = nearest(low, high, scale, 53 if kind == DOUBLE else 24)
        if not exact:
            return False
        put_double(base, target, kind, value)
    return True


@kernel
def _cast_float(base, target, value: float, tag, kind):
    if kind >= FLOAT:
        put_double(base, target, kind, value)
    elif kind == BOOLEAN:
        put(base, target, BOOLEAN, 1 if value == value and value != 0 else 0)
    elif not math.isfinite(value):
        put_error(base, target)
    elif kind == INTEGER:
        if abs(value) >= 2.0**63:
            return False
        put(base, target, INTEGER, int(value))
    else:
        # the decimal of the shortest text that reads back the same: it is the value itself only where that is whole
        if abs(value) >= (2.0**24 if tag == FLOAT else 2.0**53) or value != np.floor(value):
            return False
        number = int(value)
        put_decimal(base, target, number, number >> 63, 0)
    return True


# --- parts of dateTimes ---------------------------------------------------------------------------------------------

YEAR, MONTH, DAY, HOURS, MINUTES, SECONDS = range(6)


@kernel
def part(base, target, a, which):
    """YEAR, MONTH … on the clock of the dateTime's own zone."""
    tag = load(base, a + TAG)
    if tag == TEXT:
        return False
    if tag != DATE_TIME and tag != DATE_TIME_LOCAL:
        put_error(base, target)
        return True
    word, scale = load(base, a + WORD), load(base, a + SCALE)
    if scale > 18 or (tag == DATE_TIME and word > 0):
        return False  # the register of an entry does not say the zone
    unit = POWERS[scale]
    local = load(base, a + LOW)
    if tag == DATE_TIME and word < 0:
        zone = word & ids.ZONE_MASK
        if zone > ids.ZONE_Z:
            local += 60 * unit * (zone - ids.ZONE_OFFSET)
    second = local // unit  # rounds down
    clock = second % 86_400
    if which == SECONDS:
        value = local - second * unit + clock % 60 * unit
        put_decimal(base, target, value, 0, scale)
    elif which == MINUTES:
        put(base, target, INTEGER, clock // 60 % 60)
    elif which == HOURS:
        put(base, target, INTEGER, clock // 3600)
    else:
        put(base, target, INTEGER, _date_part(second // 86_400, which))
    return True


@kernel
def _date_part(days, which):
    """Year, month or day of a number of days since 1970: `cqels.model.datetimes.civil`."""
    era = (days + 719_468) // 146_097
    day = days + 719_468 - era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    if which == YEAR:
        return era * 400 + year + (1 if month <= 2 else 0)
    return month if which == MONTH else day_of_year - (153 * shifted + 2) // 5 + 1
