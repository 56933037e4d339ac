"""Reading exact sums: their value, rounded once, and the id of its term.

word    of a result
0       tag (`cqels.model.ids.Tag`), NONE for an error
1       the bits of a float or double; 0 or 1, the sign, for integers and decimals
2       scale
3       digits of the magnitude of an integer or decimal: 32 bits each, the lowest first
4 …     the digits
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import copy, load, store
from cqels.kernels.memory.byte_strings import byte as load_byte
from cqels.kernels.memory.byte_strings import put_byte as store_byte
from cqels.kernels.memory.int128 import double_of, leading_zeros, single_bits_of
from cqels.kernels.operators.exact_sum import (
    BAD,
    COUNTS,
    DECIMAL_LIMBS,
    FIRST,
    FLOATS,
    FOR_DOUBLES,
    FOR_FLOATS,
    HARD,
    INFINITE,
    LIMBS,
    NAN,
    ONE,
    PLACE,
    PLACE_OF_DECIMALS,
    SCALE,
    WHOLE,
    WHOLE_LIMBS,
    move_carry,
    times_power,
)
from cqels.kernels.terms.sort_keys import (
    ASKING,
    DECIMAL,
    DICTIONARY,
    DIGITS,
    DONE,
    DOUBLE,
    ENDS,
    FLOAT,
    INTEGER,
    NONE,
    TEXT_ONE,
    divide_digits,
    power_of_ten,
)
from cqels.kernels.terms.term_table import intern
from cqels.model import ids

RESULT_TAG, RESULT_BITS, RESULT_SCALE, RESULT_DIGITS, RESULT_DATA = range(5)
RESULT_WORDS = RESULT_DATA + 16

_FRACTION = (1 << 52) - 1
_INFINITY = 0x7FF << 52
_NOT_A_NUMBER = 0x7FF8 << 48
_DIVISION_DIGITS = 18
_DIVISOR = 1 << 31
_LEAST = -1 << 63
_BILLION = 1_000_000_000


@kernel
def _collect(base, target, first, limbs, offset):
    for limb in range(limbs):
        at = target + first + limb
        store(base, at, load(base, at) + load(base, offset + limb))


@kernel
def _magnitude(base, offset, limbs):
    """Make limbs a magnitude of 32-bit digits: whether it was negative. The last limb must have no carry of its own."""
    move_carry(base, offset, limbs)
    if load(base, offset + limbs - 1) >= 0:
        return False
    for limb in range(limbs):
        store(base, offset + limb, -load(base, offset + limb))
    move_carry(base, offset, limbs)
    return True


@kernel
def _is_zero(base, offset, limbs):
    found = 0
    for limb in range(limbs):
        found |= load(base, offset + limb)
    return found == 0


@kernel
def _rounded(base, offset, limbs, lowest, share, precision, least):
    """The bits of the double nearest to a magnitude / share: so many bits, none of less weight than 2^least.

    The first digit is not 0 everywhere and is that of limb `lowest`; `share` is below 2^31; a `precision` of 24 gives a
    float, as the double of the same value.
    """
    top = limbs - 1
    while load(base, offset + top) == 0:
        top -= 1
    more = 0
    for digit in range(top - 3):
        more |= load(base, offset + digit)
    # four digits have 97 bits at least, the quotient 66: its first 62 are kept, of the others only if they are all 0
    number, kept, length, rest = 0, 0, 0, 0
    for digit in range(top, top - 4, -1):
        over = load(base, offset + digit) if digit >= 0 else 0
        if share > 1:
            rest = (rest << 32) | over
            over = rest // share
            rest -= over * share
        if length == 0:
            number = over
            length = 64 - leading_zeros(over)
            kept = length
        else:
            room = min(32, 62 - kept)
            number = (number << room) | (over >> (32 - room))
            more |= over & ((1 << (32 - room)) - 1)
            kept += room
            length += 32
    more |= rest
    exponent = 32 * (lowest + top - 3 - ONE) + length - kept
    drop = max(kept - precision, least - exponent)
    if drop > 62:
        return 0
    behind = number & ((1 << drop) - 1)
    half = 1 << (drop - 1)
    number >>= drop
    exponent += drop
    if behind > half or (behind == half and (more != 0 or number & 1 != 0)):
        number += 1
    if number == 0:
        return 0
    bits = 64 - leading_zeros(number)
    if bits + exponent > (128 if precision == 24 else 1024):
        return _INFINITY
    if bits + exponent < -1021:
        return number  # a subnormal double: its last bit has weight 2^-1074
    if bits > 53:
        return (bits + exponent + 1022) << 52
    return ((bits + exponent + 1022) << 52) | ((number << (53 - bits)) & _FRACTION)


@kernel
def _kind(base, sum):
    """The tag of the highest type among the numbers."""
    for tag in range(DOUBLE, INTEGER, -1):
        if load(base, sum + COUNTS + tag - INTEGER) != 0:
            return tag
    return INTEGER


@kernel
def count_of(base, sum):
    """How many numbers are in a sum, hard ones left out."""
    counts = sum + COUNTS
    return load(base, counts) + load(base, counts + 1) + load(base, counts + 2) + load(base, counts + 3)


@kernel
def _read_floating(base, terms, sum, kind, share, result):
    store(base, result + RESULT_TAG, kind)
    nan, infinite, opposite = load(base, sum + NAN), load(base, sum + INFINITE), load(base, sum + INFINITE + 1)
    if nan != 0 or (infinite != 0 and opposite != 0):
        store(base, result + RESULT_BITS, _NOT_A_NUMBER)
        return DONE
    if infinite != 0 or opposite != 0:
        store(base, result + RESULT_BITS, _INFINITY if infinite != 0 else _INFINITY | (-1 << 63))
        return DONE
    offset = terms + DIGITS
    # only the part that is reached is looked at
    first, end = ONE, ONE + WHOLE_LIMBS
    exact = load(base, sum + COUNTS) + load(base, sum + COUNTS + 1) != 0
    promoted = sum + (FOR_FLOATS if kind == FLOAT else FOR_DOUBLES)
    has_promoted = exact and load(base, promoted + PLACE) != 0
    floats, limbs = load(base, sum + FLOATS + FIRST), load(base, sum + FLOATS + LIMBS)
    if not exact:
        first, end = floats, floats + limbs
    elif limbs != 0:
        first, end = min(first, floats), max(end, floats + limbs)
    if has_promoted:
        other, other_limbs = load(base, promoted + FIRST), load(base, promoted + LIMBS)
        first, end = min(first, other), max(end, other + other_limbs)
    end += 2  # room for carries
    for limb in range(first, end):
        store(base, offset + limb - first, 0)
    if limbs != 0:
        _collect(base, offset, floats - first, limbs, load(base, sum + FLOATS + PLACE))
    if exact:
        _collect(base, offset, ONE - first, WHOLE_LIMBS, sum + WHOLE)
    if has_promoted:
        _collect(
            base,
            offset,
            load(base, promoted + FIRST) - first,
            load(base, promoted + LIMBS),
            load(base, promoted + PLACE),
        )
    negative = _magnitude(base, offset, end - first)
    bits = 0
    if not _is_zero(base, offset, end - first):
        precision, least = (24, -149) if kind == FLOAT else (53, -1074)
        bits = _rounded(base, offset, end - first, first, share, precision, least)
        if negative:
            bits |= -1 << 63
    store(base, result + RESULT_BITS, bits)
    return DONE


@kernel
def _put_word(base, value, result):
    """An integer of one word as a result."""
    magnitude = -value if value < 0 else value
    store(base, result + RESULT_TAG, INTEGER)
    store(base, result + RESULT_BITS, 1 if value < 0 else 0)
    store(base, result + RESULT_SCALE, 0)
    store(base, result + RESULT_DIGITS, 2 if magnitude >> 32 else 1)
    store(base, result + RESULT_DATA, magnitude & 0xFFFF_FFFF)
    store(base, result + RESULT_DATA + 1, magnitude >> 32)
    return DONE


@kernel
def _read_exact(base, terms, sum, kind, share, result):
    """The exact sum, or its quotient cut off after eighteen digits behind the point."""
    offset = result + RESULT_DATA
    if kind == INTEGER and share == 0 and _is_zero(base, sum + WHOLE + 2, WHOLE_LIMBS - 2):
        low, high = load(base, sum + WHOLE), load(base, sum + WHOLE + 1)
        if -(1 << 60) < low < 1 << 60 and -(1 << 28) < high < 1 << 28:
            return _put_word(base, low + (high << 32), result)
    limbs = DECIMAL_LIMBS
    for limb in range(RESULT_WORDS - RESULT_DATA):
        store(base, offset + limb, 0)
    copy(base, sum + WHOLE, offset, WHOLE_LIMBS)
    move_carry(base, offset, limbs)
    scale = 0
    if kind == DECIMAL:
        scale = load(base, sum + SCALE)
        times_power(base, offset, limbs, scale)
        _collect(base, offset, 0, limbs, load(base, sum + PLACE_OF_DECIMALS))
    negative = _magnitude(base, offset, limbs)
    if share > 0:
        kind = DECIMAL
        limbs += 2
        if scale < _DIVISION_DIGITS:
            times_power(base, offset, limbs, _DIVISION_DIGITS - scale)
        divide_digits(base, offset, limbs, share)
        while scale > _DIVISION_DIGITS:
            step = min(scale - _DIVISION_DIGITS, 9)
            divide_digits(base, offset, limbs, power_of_ten(step))
            scale -= step
        scale = _DIVISION_DIGITS
    while limbs > 0 and load(base, offset + limbs - 1) == 0:
        limbs -= 1
    if kind == DECIMAL:
        limbs, scale = _drop_zeros(base, terms, offset, limbs, scale)
    store(base, result + RESULT_TAG, kind)
    store(base, result + RESULT_BITS, 1 if negative and limbs > 0 else 0)
    store(base, result + RESULT_SCALE, scale)
    store(base, result + RESULT_DIGITS, limbs)
    return DONE


@kernel
def _drop_zeros(base, terms, offset, limbs, scale):
    """Divide by ten as long as nothing is left over: digits and scale."""
    if limbs == 0:
        return 0, 0
    scratch = terms + DIGITS
    step = 9
    while scale > 0:
        if step > scale:
            step = 1
        copy(base, offset, scratch, limbs)
        if divide_digits(base, scratch, limbs, power_of_ten(step)) != 0:
            if step == 1:
                break
            step = 1
            continue
        copy(base, scratch, offset, limbs)
        scale -= step
        while load(base, offset + limbs - 1) == 0:
            limbs -= 1
    return limbs, scale


@kernel
def read_sum(base, terms, sum, mean, result):
    """Write the sum (or the mean, if `mean` is not 0) as a result.

    DONE; or ASKING where Python must add the hard values, or divide by 2^31 or more.
    """
    if load(base, sum + BAD) != 0:
        store(base, result + RESULT_TAG, NONE)
        return DONE
    if load(base, sum + HARD) != 0:
        return ASKING
    count = count_of(base, sum)
    if count >= _DIVISOR:
        return ASKING
    kind = _kind(base, sum)
    if kind >= FLOAT:
        return _read_floating(base, terms, sum, kind, count if mean else 1, result)
    # the mean of nothing is the integer 0
    return _read_exact(base, terms, sum, kind, count if mean else 0, result)


# --- ids ------------------------------------------------------------------------------------------------------------


@kernel
def packed(code, value):
    """The word of an inline literal."""
    return _LEAST | (code << ids.VALUE_BITS) | (value & ids.VALUE_MASK)


@kernel
def double_id(tag, bits):
    """The word of a float or double, or 0 if only the dictionary has room for it."""
    if tag == FLOAT:
        number = double_of(bits)
        return packed(ids.CODE_FLOAT, single_bits_of(number) if number == number else 0x7FC0_0000)
    sign = 1 if bits < 0 else 0
    if bits << 1 == 0:
        return packed(ids.CODE_DOUBLE_ZERO, sign)
    exponent = ((bits >> 52) & 0x7FF) - ids.EXPONENT_LEAST
    if exponent < 0 or exponent >= 4 << ids.EXPONENT_LOW_BITS:
        return 0
    value = (sign << (ids.VALUE_BITS - 1)) | ((exponent & ids.EXPONENT_LOW_MASK) << 52) | (bits & _FRACTION)
    return packed(ids.CODE_DOUBLE + (exponent >> ids.EXPONENT_LOW_BITS), value)


@kernel
def _exact_text(base, terms, result):
    """Write the N-Triples text of an integer or decimal: address and bytes."""
    offset, digits, scale = result + RESULT_DATA, load(base, result + RESULT_DIGITS), load(base, result + RESULT_SCALE)
    end = terms + ENDS + (0 if load(base, result + RESULT_TAG) == INTEGER else 8)
    address = base + (terms + TEXT_ONE) * 8
    at = address + 200  # from here to the front
    last = at
    for number in range(load(base, end)):
        store_byte(last + number, load_byte(base + (end + 1) * 8 + number))
    written = 0
    while digits > 0 or written <= scale:
        chunk = 0
        if digits > 0:
            chunk = divide_digits(base, offset, digits, _BILLION)
            while digits > 0 and load(base, offset + digits - 1) == 0:
                digits -= 1
        for _ in range(9):
            if digits == 0 and chunk == 0 and written > scale:
                break
            if written == scale and scale > 0:
                at -= 1
                store_byte(at, 0x2E)
            at -= 1
            store_byte(at, 0x30 + chunk % 10)
            chunk //= 10
            written += 1
    if load(base, result + RESULT_BITS):
        at -= 1
        store_byte(at, 0x2D)
    at -= 1
    store_byte(at, 0x22)
    return at, last + load(base, end) - at


@kernel
def id_of_result(base, terms, result):
    """The id of a result, of which the digits are used up; 0 where Python must make the literal, or the arena is full.

    Python is needed for doubles that have no word: infinite, NaN, and beyond 2^64 or 2^-64.
    """
    tag = load(base, result + RESULT_TAG)
    if tag in (FLOAT, DOUBLE):
        return double_id(tag, load(base, result + RESULT_BITS))
    digits, scale = load(base, result + RESULT_DIGITS), load(base, result + RESULT_SCALE)
    if digits < 2 or (digits == 2 and load(base, result + RESULT_DATA + 1) < 1 << 25):
        value = load(base, result + RESULT_DATA) if digits > 0 else 0
        if digits == 2:
            value |= load(base, result + RESULT_DATA + 1) << 32
        if load(base, result + RESULT_BITS):
            value = -value
        if tag == INTEGER:
            return packed(ids.CODE_INTEGER, value)
        if -(1 << 52) <= value < 1 << 52 and scale <= ids.SCALE_MASK:
            return packed(ids.CODE_DECIMAL, (value << ids.SCALE_BITS) | scale)
    address, length = _exact_text(base, terms, result)
    return intern(base, load(base, terms + DICTIONARY), address, length)
