"""Operations of numbers that are in one word each, as most are: quick, and the same as `arithmetic` has them.

Each writes its result into the register `target` and says whether it could: False means that the longer way is to be
taken, and nothing was written.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.expressions.opcodes import ADD, DIVIDE, EQ, FLOOR, GE, GT, LE, LT, MULTIPLY, ROUND, SUBTRACT
from cqels.kernels.expressions.register_arithmetic import EXACT, TINY, divide_words
from cqels.kernels.expressions.registers import (
    BOOLEAN,
    DECIMAL,
    DOUBLE,
    HIGH,
    INTEGER,
    LOW,
    REGISTER_WORDS,
    SCALE,
    TAG,
    put,
    put_decimal,
    put_double,
)
from cqels.kernels.memory.arena import load
from cqels.kernels.memory.int128 import POWERS, double_of, negate_wide
from cqels.model import ids

_SPARE = 64 - ids.VALUE_BITS
_INTEGER_WORD = ids.CODE_INTEGER - (1 << ids.TYPE_BITS)  # what is left of a word that holds an integer
_DECIMAL_WORD = ids.CODE_DECIMAL - (1 << ids.TYPE_BITS)
_SCALES, _DECIMAL = 255, 256
_MOST_DIGITS = 9
_ROOT, _ROOM = 2**31, 2**33  # their products, and those with powers of ten of so many digits, fit in a word


@kernel
def quick(base, registers, row, operation, target, first, second):
    """An operation of two integers or decimals, each in one word, or of computed doubles: False for what is rarer.

    The others come to the same result; this one calls no function on the way.
    """
    a, scale = _short(base, registers, row, first)
    b, other_scale = _short(base, registers, row, second)
    if scale < 0 or other_scale < 0:
        return operation >= ADD and _quick_doubles(base, registers, row, operation, target, first, second)
    exact = max(scale, other_scale)
    tag = DECIMAL if exact & _DECIMAL else INTEGER
    scale &= _SCALES
    other_scale &= _SCALES
    exact &= _SCALES
    if operation == MULTIPLY:
        if not (-_ROOT <= a <= _ROOT and -_ROOT <= b <= _ROOT):
            return False
        return _put_exact(base, target, tag, a * b, scale + other_scale)
    if scale < exact:
        if exact - scale > _MOST_DIGITS or not -_ROOM <= a <= _ROOM:
            return False
        a *= POWERS[exact - scale]
    elif other_scale < exact:
        if exact - other_scale > _MOST_DIGITS or not -_ROOM <= b <= _ROOM:
            return False
        b *= POWERS[exact - other_scale]
    if operation == DIVIDE:
        if b == 0 or not (-EXACT < a < EXACT and -TINY < b < TINY):
            return False
        low, high, scale = divide_words(abs(a), abs(b))
        if (a < 0) != (b < 0):
            low, high = negate_wide(low, high)
        put_decimal(base, target, low, high, scale)
        return True
    if operation >= ADD:
        result = a + b if operation == ADD else a - b
        overflow = ((a ^ result) & (b ^ result)) if operation == ADD else ((a ^ b) & (a ^ result))
        return overflow >= 0 and _put_exact(base, target, tag, result, exact)
    if operation == LT:
        holds = a < b
    elif operation == GT:
        holds = a > b
    elif operation == LE:
        holds = a <= b
    elif operation == GE:
        holds = a >= b
    elif operation == EQ:
        holds = a == b
    else:
        holds = a != b
    put(base, target, BOOLEAN, 1 if holds else 0)
    return True


@kernel
def _quick_doubles(base, registers, row, operation, target, first, second):
    """Arithmetic of doubles, one of which may be an integer or a decimal: False for anything else."""
    a, exact = as_double(base, registers, row, first)
    b, other_exact = as_double(base, registers, row, second)
    if not (exact and other_exact):
        return False
    if operation == ADD:
        a += b
    elif operation == SUBTRACT:
        a -= b
    elif operation == MULTIPLY:
        a *= b
    else:
        a /= b
    put_double(base, target, DOUBLE, a)
    return True


@kernel
def as_double(base, registers, row, operand):
    """A computed double, or an integer or decimal rounded to one, and whether it is that: as `nearest` rounds."""
    if operand >= 0 and load(base, registers + operand * REGISTER_WORDS + TAG) == DOUBLE:
        return double_of(load(base, registers + operand * REGISTER_WORDS + LOW)), True
    value, scale = _short(base, registers, row, operand)
    digits = scale & _SCALES
    if scale < 0 or digits > 18 or not -EXACT <= value <= EXACT:
        return 0.0, False
    return float(value) / float(POWERS[digits]), True


@kernel
def quick_ratio(base, registers, row, way, target, first, second):
    """FLOOR, CEIL or ROUND of the quotient of two numbers in one word each: False for what is rare.

    A quotient is cut after 18 digits; the divisor is so small that this does not change what it is rounded to.
    """
    a, scale = _short(base, registers, row, first)
    b, other_scale = _short(base, registers, row, second)
    if scale < 0 or other_scale < 0:
        return False
    digits = (scale & _SCALES) - (other_scale & _SCALES)
    if not (-_MOST_DIGITS <= digits <= _MOST_DIGITS and -_ROOM <= a <= _ROOM and -_ROOM <= b <= _ROOM):
        return False
    if digits > 0:
        b *= POWERS[digits]
    else:
        a *= POWERS[-digits]
    if b == 0 or not (-EXACT < a < EXACT and -TINY < b < TINY):
        return False
    negative = (a < 0) != (b < 0)
    a, b = abs(a), abs(b)
    result = int(float(a) / float(b))  # exact, as in `divide_words`
    rest = a - result * b
    if way == ROUND:
        away = 2 * rest > b or (2 * rest == b and not negative)
    else:
        away = rest != 0 and (way == FLOOR) == negative
    if away:
        result += 1
    if negative:
        result = -result
    put_decimal(base, target, result, result >> 63, 0)
    return True


@kernel
def _short(base, registers, row, operand):
    """An operand that is an integer or a decimal in one word: the word, and its scale, _DECIMAL added for a decimal.

    For anything else the scale is negative.
    """
    if operand < 0:
        word = load(base, row + ~operand)
        value = word << _SPARE >> _SPARE
        code = word >> ids.VALUE_BITS
        if code == _INTEGER_WORD:
            return value, 0
        if code == _DECIMAL_WORD:
            return value >> ids.SCALE_BITS, _DECIMAL | word & ids.SCALE_MASK
        return 0, -1
    register = registers + operand * REGISTER_WORDS
    tag, low = load(base, register + TAG), load(base, register + LOW)
    if tag == INTEGER:
        return low, 0
    if tag == DECIMAL and load(base, register + HIGH) == low >> 63:
        return low, _DECIMAL | load(base, register + SCALE)
    return 0, -1


@kernel
def _put_exact(base, target, tag, value, scale):
    if tag == INTEGER:
        put(base, target, INTEGER, value)
    elif scale > _SCALES:
        return False
    else:
        put_decimal(base, target, value, value >> 63, scale)
    return True
