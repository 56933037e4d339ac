"""Exact sums: numbers go in and out in any order, and what is read is rounded once.

The law: the value depends only on the bag of numbers that are in, as `cqels.plan.functions.aggregates.total` and `mean`
define it.  The type of the result is the highest among the numbers, and each number is promoted to it *before* it is
added; so the sum is kept as it would be for each type that the result may yet have.

    word    of a sum
    0–3     how many integers, decimals, floats, doubles
    4–6     of them NaN, INF, -INF
    7       values in their text only: they are in the tree of hard values, and Python adds them
    8       errors: unbound, or no numbers
    9       additions since carries were last moved up
    10      scale of the decimals
    11–15   the integers: five limbs
    16      offset of the decimals: nine limbs, in units of 10^-scale; 0 if there were none
    17–19   floats and doubles: first limb, limbs, offset
    20–22   what integers and decimals add to a sum of floats beside the integers themselves
    23–25   the same for a sum of doubles
    26–31   tree of the ids of hard values (counted_btree.py)

A limb is a word of weight 2^32 times the one before it, and may hold more than 32 bits, of either sign, until carries
are moved (R. Neal, Fast exact summation using small and large superaccumulators).  A row of limbs over all doubles
would be 70 words; only the part that the numbers reach is there.  Limb 34 is the one of weight 1.

Reading is in exact_sum_value.py.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import copy, give, load, store, take
from cqels.kernels.memory.int128 import bits_of, double_of, leading_zeros, single_bits_of, single_of
from cqels.kernels.terms.counted_btree import change, clear_tree, make_tree
from cqels.kernels.terms.sort_keys import (
    ASKED,
    ASKING,
    DECIMAL,
    DIGITS,
    DONE,
    DOUBLE,
    FULL,
    INTEGER,
    TEXT,
    UNKNOWN,
    power_of_ten,
    register_of,
    split,
)

COUNTS, NAN, INFINITE, HARD, BAD, ADDITIONS, SCALE, WHOLE, PLACE_OF_DECIMALS = 0, 4, 5, 7, 8, 9, 10, 11, 16
FLOATS, FOR_FLOATS, FOR_DOUBLES, HARD_TREE = 17, 20, 23, 26
SUM_WORDS = 32
WHOLE_LIMBS, DECIMAL_LIMBS = 5, 9
LARGEST_SCALE = 38
"""Decimals with more digits behind the point are hard; with so many, 2^63 of them fit in nine limbs."""
ONE, ALL_LIMBS = 34, 80
FIRST, LIMBS, PLACE = 0, 1, 2

_LOW = 0xFFFF_FFFF
_MANY = 1 << 30
_FRACTION = (1 << 52) - 1


@kernel
def make_sum(base, sum, shape):
    """Make 32 words at an offset, all 0, an empty sum; `shape` is that of trees of ids."""
    make_tree(base, sum + HARD_TREE, shape)


@kernel
def clear_sum(base, sum):
    """Hand back the memory of a sum."""
    if load(base, sum + PLACE_OF_DECIMALS) != 0:
        give(base, load(base, sum + PLACE_OF_DECIMALS), DECIMAL_LIMBS)
    for part in range(FLOATS, HARD_TREE, 3):
        if load(base, sum + part + PLACE) != 0:
            give(base, load(base, sum + part + PLACE), load(base, sum + part + LIMBS))
    clear_tree(base, sum + HARD_TREE)


# --- limbs ----------------------------------------------------------------------------------------------------------


@kernel
def move_carry(base, offset, limbs):
    """Leave 32 bits in each limb but the last, which has the sign."""
    for limb in range(limbs - 1):
        value = load(base, offset + limb)
        store(base, offset + limb, value & _LOW)
        store(base, offset + limb + 1, load(base, offset + limb + 1) + (value >> 32))


@kernel
def _reach(base, part, first, end):
    """Let a row of limbs reach from one limb to another: whether the arena had room."""
    old_first, old_limbs, old = load(base, part + FIRST), load(base, part + LIMBS), load(base, part + PLACE)
    if old != 0:
        if old_first <= first and end <= old_first + old_limbs:
            return True
        first, end = min(first, old_first), max(end, old_first + old_limbs)
    limbs = 4
    while limbs < end - first:
        limbs *= 2
    if limbs > ALL_LIMBS // 2:
        first, limbs = 0, ALL_LIMBS
    first = min(first, ALL_LIMBS - limbs)
    offset = take(base, limbs)
    if offset == 0:
        return False
    if old != 0:
        copy(base, old, offset + old_first - first, old_limbs)
        give(base, old, old_limbs)
    store(base, part + FIRST, first)
    store(base, part + LIMBS, limbs)
    store(base, part + PLACE, offset)
    return True


@kernel
def _add_scaled(base, part, number, exponent):
    """Add number * 2^exponent: whether the arena had room."""
    position = exponent + 32 * ONE
    limb, shift = position >> 5, position & 31
    if not _reach(base, part, limb, limb + 3):
        return False
    offset = load(base, part + PLACE) + limb - load(base, part + FIRST)
    low, high = (number & _LOW) << shift, (number >> 32) << shift
    store(base, offset, load(base, offset) + (low & _LOW))
    store(base, offset + 1, load(base, offset + 1) + (low >> 32) + (high & _LOW))
    store(base, offset + 2, load(base, offset + 2) + (high >> 32))
    return True


@kernel
def _add_times(base, part, number, exponent, weight):
    room = True
    for _ in range(abs(weight)):
        room = _add_scaled(base, part, number if weight > 0 else -number, exponent) and room
    return room


@kernel
def _add_double(base, part, bits, weight):
    """Add a finite double, so many times."""
    exponent = (bits >> 52) & 0x7FF
    number = bits & _FRACTION
    if exponent == 0:
        exponent = 1
    else:
        number |= 1 << 52
    if bits < 0:
        number = -number
    return _add_times(base, part, number, exponent - 1075, weight)


@kernel
def _move_carries(base, sum):
    """Before limbs overflow: once in 2^30 additions."""
    move_carry(base, sum + WHOLE, WHOLE_LIMBS)
    if load(base, sum + PLACE_OF_DECIMALS) != 0:
        move_carry(base, load(base, sum + PLACE_OF_DECIMALS), DECIMAL_LIMBS)
    for part in range(sum + FLOATS, sum + HARD_TREE, 3):
        if load(base, part + PLACE) != 0:
            end = load(base, part + FIRST) + load(base, part + LIMBS)
            if end < ALL_LIMBS and not _reach(base, part, end, end + 1):
                return False
            move_carry(base, load(base, part + PLACE), load(base, part + LIMBS))
    store(base, sum + ADDITIONS, 0)
    return True


@kernel
def times_power(base, offset, limbs, power):
    """Multiply limbs by a power of ten."""
    while power > 0:
        step = min(power, 9)
        factor = power_of_ten(step)
        move_carry(base, offset, limbs)
        for limb in range(limbs):
            store(base, offset + limb, load(base, offset + limb) * factor)
        power -= step
    move_carry(base, offset, limbs)


# --- numbers in and out ---------------------------------------------------------------------------------------------


@kernel
def _add_integer(base, sum, bits, weight):
    store(base, sum + WHOLE, load(base, sum + WHOLE) + (bits & _LOW) * weight)
    store(base, sum + WHOLE + 1, load(base, sum + WHOLE + 1) + (bits >> 32) * weight)
    if -(1 << 24) <= bits <= 1 << 24:
        return True
    # what rounding to a float or a double adds: a whole number of less than 2^63
    single = single_of(single_bits_of(double_of(_odd(bits))))
    return _add_rounding(base, sum + FOR_FLOATS, single, bits, weight) and _add_rounding(
        base, sum + FOR_DOUBLES, float(bits), bits, weight
    )


@kernel
def _odd(bits):
    """The bits of a double near an integer, from which rounding to a float gives the nearest one."""
    if -(1 << 53) <= bits <= 1 << 53:
        return bits_of(float(bits))
    magnitude = -bits if bits < 0 else bits
    shift = 11 - leading_zeros(magnitude)
    low = magnitude & ((1 << shift) - 1)
    whole = ((magnitude >> shift) & ((1 << 53) - 1)) | (1 if low else 0)
    near = bits_of(float(whole)) + (shift << 52)
    return near | (-1 << 63) if bits < 0 else near


@kernel
def _add_rounding(base, part, rounded: float, bits, weight):
    difference = 0
    if rounded >= 9223372036854775808.0:
        difference = -(bits + (-1 << 63))  # 2^63 - bits
    else:
        difference = int(rounded) - bits
    if difference == 0:
        return True
    return _add_times(base, part, difference, 0, weight)


@kernel
def _add_decimal(base, terms, sum, bits, scale, weight):
    offset = load(base, sum + PLACE_OF_DECIMALS)
    if offset == 0:
        offset = take(base, DECIMAL_LIMBS)
        if offset == 0:
            return False
        store(base, sum + PLACE_OF_DECIMALS, offset)
        store(base, sum + SCALE, scale)
    now = load(base, sum + SCALE)
    if scale > now:
        times_power(base, offset, DECIMAL_LIMBS, scale - now)
        store(base, sum + SCALE, scale)
        now = scale
    whole, rest, more = split(base, terms, -bits if bits < 0 else bits, scale)
    if scale == now:
        store(base, offset, load(base, offset) + (bits & _LOW) * weight)
        store(base, offset + 1, load(base, offset + 1) + (bits >> 32) * weight)
    else:
        scratch = terms + DIGITS
        for limb in range(DECIMAL_LIMBS):
            store(base, scratch + limb, 0)
        store(base, scratch, bits & _LOW)
        store(base, scratch + 1, bits >> 32)
        times_power(base, scratch, DECIMAL_LIMBS, now - scale)
        for limb in range(DECIMAL_LIMBS):
            store(base, offset + limb, load(base, offset + limb) + load(base, scratch + limb) * weight)
    half = 1 << 57
    up = rest > half or (rest == half and (more != 0 or whole & 1 != 0))
    double = whole + (1 if up else 0)
    single = bits_of(single_of(single_bits_of(double_of(whole | (1 if rest | more else 0)))))
    if bits < 0:
        weight = -weight
    return _add_double(base, sum + FOR_FLOATS, single, weight) and _add_double(base, sum + FOR_DOUBLES, double, weight)


@kernel
def add_number(base, terms, sum, id, weight):
    """Put a term into a sum so many times, or take it out where the weight is negative: DONE, ASKING or FULL."""
    tag, bits, scale = register_of(base, terms, id)
    if tag == UNKNOWN:
        store(base, terms + ASKED, id)
        return ASKING
    if load(base, sum + ADDITIONS) > _MANY and not _move_carries(base, sum):
        return FULL
    store(base, sum + ADDITIONS, load(base, sum + ADDITIONS) + abs(weight))
    room = True
    if tag == TEXT or (tag == DECIMAL and scale > LARGEST_SCALE):
        store(base, sum + HARD, load(base, sum + HARD) + weight)
        store(base, terms + ASKED, id)
        return change(base, sum + HARD_TREE, terms + ASKED, weight)
    if tag < INTEGER or tag > DOUBLE:
        store(base, sum + BAD, load(base, sum + BAD) + weight)
        return DONE
    kind = sum + COUNTS + tag - INTEGER
    store(base, kind, load(base, kind) + weight)
    if tag == INTEGER:
        room = _add_integer(base, sum, bits, weight)
    elif tag == DECIMAL:
        room = _add_decimal(base, terms, sum, bits, scale, weight)
    elif (bits >> 52) & 0x7FF == 0x7FF:
        which = sum + (NAN if bits & _FRACTION else INFINITE if bits > 0 else INFINITE + 1)
        store(base, which, load(base, which) + weight)
    else:
        room = _add_double(base, sum + FLOATS, bits, weight)
    return DONE if room else FULL
