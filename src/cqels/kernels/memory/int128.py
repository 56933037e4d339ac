"""Integers of 128 bits in two words, low and high, and what else the machine does with a word and Python does not say.

A division of integers has 18 digits behind the point, so decimals on the way need more than 64 bits.  The low word is
unsigned, whatever its sign says; the pair is a two's complement number, except where it is called a *magnitude*.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.compiler.type_inference import DOUBLE, WORD, lowered

LEAST = -(2**63)
POWERS = np.array([10**power for power in range(19)], np.int64)
"""The powers of ten that fit in a word."""
_HALF = 0xFFFF_FFFF
_WORDS = 2.0**64


def _of(build):
    """A function of kernels alone, from what writes its machine code."""
    lowered(build)(build)
    return build


@_of
def quotient(builder, a, b):
    """`a // b` of unsigned words."""
    return builder.udiv(a, b)


@_of
def remainder(builder, a, b):
    """`a % b` of unsigned words."""
    return builder.urem(a, b)


@_of
def shift_down(builder, a, b):
    """`a >> b` of an unsigned word, b from 0 to 63."""
    return builder.lshr(a, b)


@_of
def product_high(builder, a, b):
    """The high word of the product of two unsigned words."""
    wide = ir.IntType(128)
    product = builder.mul(builder.zext(a, wide), builder.zext(b, wide))
    return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), WORD)


@_of
def leading_zeros(builder, a):
    return builder.ctlz(a, ir.IntType(1)(0))


@_of
def bits_of(builder, a: float):
    """The word with the bits of a double."""
    return builder.bitcast(a, WORD)


@_of
def double_of(builder, a) -> float:
    """The double with the bits of a word."""
    return builder.bitcast(a, DOUBLE)


@_of
def single_bits_of(builder, a: float):
    """The 32 bits of the float nearest to a double."""
    return builder.zext(builder.bitcast(builder.fptrunc(a, ir.FloatType()), ir.IntType(32)), WORD)


@_of
def single_of(builder, a) -> float:
    """The double with the value of a float of these 32 bits."""
    return builder.fpext(builder.bitcast(builder.trunc(a, ir.IntType(32)), ir.FloatType()), DOUBLE)


@kernel
def below(a, b):
    """`a < b` of unsigned words."""
    return (a ^ LEAST) < (b ^ LEAST)


@kernel
def add_wide(low, high, other_low, other_high):
    """The sum, and whether it fits."""
    sum_low = low + other_low
    sum_high = high + other_high + (1 if below(sum_low, low) else 0)
    return sum_low, sum_high, ((high ^ sum_high) & (other_high ^ sum_high)) >= 0


@kernel
def negate_wide(low, high):
    return -low, -high - (1 if low != 0 else 0)


@kernel
def magnitude(low, high):
    """The magnitude of a number: its high word is negative only for -2^127."""
    if high < 0:
        return negate_wide(low, high)
    return low, high


@kernel
def compare_wide(low, high, other_low, other_high):
    """-1, 0 or 1."""
    if high != other_high:
        return -1 if high < other_high else 1
    if low == other_low:
        return 0
    return -1 if below(low, other_low) else 1


@kernel
def times_word(low, high, word):
    """A magnitude times an unsigned word, and whether it fits in 127 bits."""
    carry = product_high(low, word)
    above = high * word
    result = carry + above
    fits = product_high(high, word) == 0 and carry >= 0 and above >= 0 and result >= 0
    return low * word, result, fits


@kernel
def multiply_wide(low, high, other_low, other_high):
    """The product, and whether it fits."""
    a_low, a_high = magnitude(low, high)
    b_low, b_high = magnitude(other_low, other_high)
    if a_high != 0 and b_high != 0:
        return a_low, a_high, False
    if b_high != 0:
        result_low, result_high, fits = times_word(b_low, b_high, a_low)
    else:
        result_low, result_high, fits = times_word(a_low, a_high, b_low)
    if (high < 0) != (other_high < 0):
        result_low, result_high = negate_wide(result_low, result_high)
    return result_low, result_high, fits


@kernel
def scale_up(low, high, power):
    """A number times a power of ten, and whether it fits."""
    result_low, result_high = magnitude(low, high)
    fits = result_high >= 0
    while fits and power > 0:
        step = min(power, 18)
        result_low, result_high, fits = times_word(result_low, result_high, POWERS[step])
        power = power - step if result_low != 0 or result_high != 0 else 0
    if high < 0:
        result_low, result_high = negate_wide(result_low, result_high)
    return result_low, result_high, fits


@kernel
def divide_wide(low, high, by):
    """A magnitude of 128 bits divided by an unsigned word, not 0: the quotient's two words and the remainder."""
    if high == 0:
        return quotient(low, by), 0, remainder(low, by)
    if 0 < high < 1 << 45 and high << 16 <= by < 1 << 62:
        # The quotient is below 2^49, so that the one of doubles is at most one off, and the low words tell the rest.
        found = int((float(high) * _WORDS + 2.0 * float(shift_down(low, 1))) / float(by))
        rest = low - found * by
        if rest < 0:
            return found - 1, 0, rest + by
        if rest >= by:
            return found + 1, 0, rest - by
        return found, 0, rest
    over = quotient(high, by)
    rest = high - over * by
    # what follows is Knuth's algorithm D with digits of 32 bits: `rest` and `low`, two words, by one word
    shift = leading_zeros(by)
    by <<= shift
    by_high, by_low = shift_down(by, 32), by & _HALF
    if shift != 0:
        rest = rest << shift | shift_down(low, 64 - shift)
        low <<= shift
    first, rest = _digit(rest, shift_down(low, 32), by, by_high, by_low)
    second, rest = _digit(rest, low & _HALF, by, by_high, by_low)
    return first << 32 | second, over, shift_down(rest, shift)


@kernel
def _digit(rest, following, by, by_high, by_low):
    """One digit of a quotient, and the rest after it."""
    digit = quotient(rest, by_high)
    left = rest - digit * by_high
    while shift_down(digit, 32) != 0 or below(left << 32 | following, digit * by_low):
        digit -= 1
        left += by_high
        if shift_down(left, 32) != 0:
            break
    return digit, (rest << 32 | following) - digit * by


@kernel
def nearest(low, high, scale, precision):
    """The number / 10^scale rounded to a float of `precision` bits (53 or 24), and whether that could be done."""
    if low == 0 and high == 0:
        return 0.0, True
    if scale > 18:
        return 0.0, False
    if precision == 53 and high == low >> 63 and -(2**53) <= low <= 2**53:
        return float(low) / float(POWERS[scale]), True  # of two exact doubles: rounded once
    whole_low, whole_high = magnitude(low, high)
    # the magnitude's first bit moves to the top, so that the quotient has more than 64 bits
    shift = leading_zeros(whole_high)
    if whole_high == 0:
        shift = 64 + leading_zeros(whole_low)
    whole_low, whole_high = _shift_up(whole_low, whole_high, shift)
    result_low, result_high, rest = divide_wide(whole_low, whole_high, POWERS[scale])
    zeros = leading_zeros(result_high)
    if result_high == 0:
        zeros = 64 + leading_zeros(result_low)
    result_low, result_high = _shift_up(result_low, result_high, zeros)
    drop = 64 - precision
    digits = shift_down(result_high, drop)
    rounding = result_high & ((1 << drop) - 1)
    half = 1 << (drop - 1)
    inexact = result_low != 0 or rest != 0
    if rounding > half or (rounding == half and (inexact or digits & 1)):
        digits += 1
    power = drop + 64 - shift - zeros
    value = float(digits) * double_of((power + 1023) << 52)
    return -value if high < 0 else value, True


@kernel
def _shift_up(low, high, by):
    if by == 0:
        return low, high
    if by >= 64:
        return 0, low << (by - 64)
    return low << by, high << by | shift_down(low, 64 - by)
