"""The order of terms in words: sort keys, comparison by value and by text, and what only Python knows of a term.

A *sort key* is three words: two that compare as signed numbers and put nearly every pair of terms in order, and the id
of the term, for the rest.  The first has four bits of class, so unbound < blank < IRI < boolean < number < string …

    numbers, dateTimes   then 64 bits: the largest double that is not above the value, in order; 58 bits of what is
                         left, in parts of the way to the next double; and one bit: something is left even then
    texts                then the first fifteen bytes (unknown datatypes: nothing)

Two values that fit in registers and have the same two words are equal: they differ by 2^-64 at least, in proportion, or
one of them is a double and the last bit tells.  Of values that are in their text only, Python
gives the key, bytes that put the exact values in order, and the text (sort_key_fallback.py): they are cached.

    word   of the terms
    0      offset of the dictionary (term_table.py)
    1      cache of what Python said (LORE): id to key, key, offset and bytes of the exact order, the
           same of the text
    2      id that Python is asked about
    16 …   digits; two texts; the ends of texts of integers and decimals
    256 …  the last sort keys of decimals that were computed: id, key, key, where its hash says
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.hash_table import COUNT as TABLE_COUNT
from cqels.kernels.containers.hash_table import ROOM as TABLE_ROOM
from cqels.kernels.containers.hash_table import entry_at as slot_at
from cqels.kernels.containers.hash_table import find, remove
from cqels.kernels.memory.arena import give, load, store
from cqels.kernels.memory.byte_strings import byte as load_byte
from cqels.kernels.memory.byte_strings import put_byte as store_byte
from cqels.kernels.memory.int128 import bits_of, leading_zeros, single_of
from cqels.kernels.terms.term_table import LENGTH_MASK, SCALE_SHIFT, TAG_SHIFT, UNSETTLED, entry_at
from cqels.kernels.terms.term_table import NUMBER as ENTRY_NUMBER
from cqels.kernels.terms.term_table import SHAPE as ENTRY_SHAPE
from cqels.kernels.terms.term_table import TEXT as ENTRY_TEXT
from cqels.model import ids
from cqels.model.ids import Tag

DICTIONARY, LORE, ASKED = range(3)
DIGITS, DIGIT_WORDS = 16, 96
TEXT_ONE, TEXT_TWO, ENDS = 112, 144, 176
LAST_KEYS, MOST_KEYS = 256, 256
TERMS_WORDS = LAST_KEYS + 3 * MOST_KEYS
LORE_WORDS = 6
LORE_LIMIT = 4096
"""Terms that are cached from one step to the next."""

NONE, IRI, BLANK, STRING, LANG_STRING, OTHER, TEXT, BOOLEAN, INTEGER, DECIMAL, FLOAT, DOUBLE = map(int, list(Tag)[:12])
DATE_TIME, DATE_TIME_LOCAL = int(Tag.DATE_TIME), int(Tag.DATE_TIME_LOCAL)
(
    CLASS_UNBOUND,
    CLASS_BLANK,
    CLASS_IRI,
    CLASS_BOOLEAN,
    CLASS_NUMBER,
    CLASS_STRING,
    CLASS_LANG_STRING,
    CLASS_DATE_TIME,
    CLASS_DATE,
    CLASS_TIME,
    CLASS_DURATION,
    CLASS_OTHER,
) = range(12)

UNKNOWN = 15
"""The tag of a term whose register Python must first find out."""
ASK = 2
"""What a comparison gives, beside -1, 0 and 1: Python must first be asked about the term in ASKED."""
DONE, ASKING, FULL = 0, 1, 3
"""What a step gives; FULL (the arena is) cannot be resumed."""

LEAST = -(2**63)
_LOW = 0xFFFF_FFFF
REST_BITS = 58
_QUOTE, _BACKSLASH = 0x22, 0x5C
_SPARE = 64 - ids.VALUE_BITS
_MIX = -7046029254386353131  # 2^64 / golden ratio, odd


@kernel
def register_of(base, terms, id):
    """Tag, bits and scale of a term (`cqels.model.ids.Register`); the tag UNKNOWN where Python must be asked first."""
    if id >= 0:
        if id == 0:
            return NONE, 0, 0
        entry = entry_at(base, load(base, terms + DICTIONARY), id)
        shape = load(base, entry + ENTRY_SHAPE)
        if shape & UNSETTLED:
            return UNKNOWN, 0, 0
        return (shape >> TAG_SHIFT) & 255, load(base, entry + ENTRY_NUMBER), (shape >> SCALE_SHIFT) & 255
    code = (id >> ids.VALUE_BITS) & ids.TYPE_MASK
    value = id << _SPARE >> _SPARE
    if code == ids.CODE_INTEGER:
        return INTEGER, value, 0
    if code == ids.CODE_DECIMAL:
        return DECIMAL, value >> ids.SCALE_BITS, id & ids.SCALE_MASK
    if code >= ids.CODE_DOUBLE:
        if code == ids.CODE_DOUBLE_ZERO:
            return DOUBLE, (LEAST if id & 1 else 0), 0
        high = (code - ids.CODE_DOUBLE) << ids.EXPONENT_LOW_BITS
        exponent = ids.EXPONENT_LEAST + (high | ((id >> ids.FRACTION_BITS) & ids.EXPONENT_LOW_MASK))
        sign = (id >> (ids.VALUE_BITS - 1)) & 1
        return DOUBLE, (sign << 63) | (exponent << ids.FRACTION_BITS) | (id & ids.FRACTION_MASK), 0
    if code == ids.CODE_FLOAT:
        return FLOAT, bits_of(single_of(id & _LOW)), 0
    if code == ids.CODE_BOOLEAN:
        return BOOLEAN, id & 1, 0
    return (DATE_TIME if id & ids.ZONE_MASK else DATE_TIME_LOCAL), value >> ids.ZONE_BITS, 3


@kernel
def heap_text(base, terms, id):
    """Address and number of the bytes of the N-Triples text of a dictionary's term."""
    entry = entry_at(base, load(base, terms + DICTIONARY), id)
    return base + load(base, entry + ENTRY_TEXT), load(base, entry + ENTRY_SHAPE) & LENGTH_MASK


# --- comparison -----------------------------------------------------------------------------------------------------


@kernel
def _hex(byte):
    return byte - 0x30 if byte < 0x3A else (byte & 0xDF) - 0x37


@kernel
def _character(position, end, quoted):
    """The byte at an address, free of escapes, and the address of the next; -1 at the end, or at the closing quote."""
    if position >= end:
        return -1, position
    byte = load_byte(position)
    if not quoted:
        return byte, position + 1
    if byte == _QUOTE:
        return -1, position
    if byte != _BACKSLASH:
        return byte, position + 1
    letter = load_byte(position + 1)
    if letter == 0x75:  # \u00XX: only control characters are written so
        value = 0
        for number in range(2, 6):
            value = (value << 4) | _hex(load_byte(position + number))
        return value, position + 6
    byte = letter
    if letter == 0x74:
        byte = 9
    elif letter == 0x62:
        byte = 8
    elif letter == 0x6E:
        byte = 10
    elif letter == 0x72:
        byte = 13
    elif letter == 0x66:
        byte = 12
    return byte, position + 2


@kernel
def compare_bytes(one, one_bytes, other, other_bytes):
    """-1, 0 or 1 for the bytes at two addresses: `memcmp`, and of a text and its beginning the shorter first."""
    for number in range(min(one_bytes, other_bytes)):
        a, b = load_byte(one + number), load_byte(other + number)
        if a != b:
            return -1 if a < b else 1
    if one_bytes == other_bytes:
        return 0
    return -1 if one_bytes < other_bytes else 1


@kernel
def _compare_literals(base, terms, kind, a, b):
    """Strings by their characters, then language; unknown datatypes by datatype, then characters."""
    first, first_bytes = heap_text(base, terms, a)
    second, second_bytes = heap_text(base, terms, b)
    first_end, second_end = first + first_bytes, second + second_bytes
    answer = 0
    at, other_at = first + 1, second + 1
    going = True
    while going:
        byte, at = _character(at, first_end, True)
        other, other_at = _character(other_at, second_end, True)
        if answer == 0 and byte != other:
            answer = -1 if byte < other else 1
        if kind != CLASS_OTHER:
            going = answer == 0 and byte >= 0
        else:
            going = byte >= 0 or other >= 0
    if kind != CLASS_OTHER:
        return answer if answer != 0 else compare_bytes(at, first_end - at, other_at, second_end - other_at)
    # both closing quotes are found; ^^< is behind them, and > at the end
    datatypes = compare_bytes(at + 4, first_end - at - 5, other_at + 4, second_end - other_at - 5)
    return datatypes if datatypes != 0 else answer


@kernel
def _cached_bytes(base, terms, id, part):
    """Address and number of bytes that Python gave for a term (part 2: exact order, 4: text); address 0 to ask."""
    store(base, terms + ASKED, id)
    cached = find(base, load(base, terms + LORE), terms + ASKED)
    if cached == 0:
        return 0, 0
    return base + load(base, cached + part) * 8, load(base, cached + part + 1)


@kernel
def _in_text(base, terms, id):
    tag, _, _ = register_of(base, terms, id)
    return tag == TEXT


@kernel
def _compare_tied(base, terms, one, other):
    kind = (load(base, one) >> 60) + 8
    a, b = load(base, one + 2), load(base, other + 2)
    if kind == CLASS_IRI:
        first, first_bytes = heap_text(base, terms, a)
        second, second_bytes = heap_text(base, terms, b)
        return compare_bytes(first + 1, first_bytes - 2, second + 1, second_bytes - 2)
    if kind in (CLASS_STRING, CLASS_LANG_STRING, CLASS_OTHER):
        return _compare_literals(base, terms, kind, a, b)
    if load(base, one + 1) & 1 == 0 or not (_in_text(base, terms, a) or _in_text(base, terms, b)):
        return 0
    first, first_bytes = _cached_bytes(base, terms, a, 2)
    if first == 0:
        return ASK
    second, second_bytes = _cached_bytes(base, terms, b, 2)
    if second == 0:
        return ASK
    return compare_bytes(first, first_bytes, second, second_bytes)


@kernel
def compare_terms(base, terms, one, other):
    """-1, 0 or 1 for two sort keys in the order of ORDER BY; ASK."""
    for word in range(2):
        a, b = load(base, one + word), load(base, other + word)
        if a != b:
            return -1 if a < b else 1
    if load(base, one + 2) == load(base, other + 2):
        return 0
    return _compare_tied(base, terms, one, other)


@kernel
def _number_text(base, terms, tag, bits, scale, address):
    """Write the text of an inline integer or decimal: address and bytes."""
    store_byte(address, _QUOTE)
    at = address + 1
    if bits < 0:
        store_byte(at, 0x2D)
        at += 1
        bits = -bits
    digits = max(scale + 1, 1)
    rest = bits
    length = 1
    while rest >= 10:
        rest //= 10
        length += 1
    digits = max(digits, length)
    width = digits + (1 if scale > 0 else 0)
    position = at + width - 1
    for number in range(digits):
        if number == scale and scale > 0:
            store_byte(position, 0x2E)
            position -= 1
        store_byte(position, 0x30 + bits % 10)
        bits //= 10
        position -= 1
    at += width
    end = terms + ENDS + (0 if tag == INTEGER else 8)
    for number in range(load(base, end)):
        store_byte(at + number, load_byte(base + (end + 1) * 8 + number))
    return address, at + load(base, end) - address


@kernel
def _text(base, terms, id, buffer):
    if id > 0:
        return heap_text(base, terms, id)
    tag, bits, scale = register_of(base, terms, id)
    if tag in (INTEGER, DECIMAL):
        return _number_text(base, terms, tag, bits, scale, base + (terms + buffer) * 8)
    return _cached_bytes(base, terms, id, 4)


@kernel
def compare_texts(base, terms, a, b):
    """-1, 0 or 1 for the N-Triples texts of two terms, that of none first; ASK."""
    if a == b:
        return 0
    if a == 0 or b == 0:
        return -1 if a == 0 else 1
    first, first_bytes = _text(base, terms, a, TEXT_ONE)
    if first == 0:
        return ASK
    second, second_bytes = _text(base, terms, b, TEXT_TWO)
    if second == 0:
        return ASK
    return compare_bytes(first, first_bytes, second, second_bytes)


# --- sort keys ------------------------------------------------------------------------------------------------------


@kernel
def divide_digits(base, offset, digits, by):
    """Divide a magnitude of 32-bit digits, the lowest first, by a number below 2^31: the rest."""
    rest = 0
    for digit in range(digits - 1, -1, -1):
        rest = (rest << 32) | load(base, offset + digit)
        over = rest // by
        store(base, offset + digit, over)
        rest -= over * by
    return rest


@kernel
def power_of_ten(power):
    result = 1
    for _ in range(power):
        result *= 10
    return result


@kernel
def _bits_at(base, offset, top, length, start, count):
    """`count` bits of a magnitude, `start` bits behind its first; zeros behind its last."""
    result = 0
    taken = 0
    while taken < count:
        position = 32 * top + length - 1 - start - taken  # of the next bit
        if position < 0:
            return result << (count - taken)
        usable = min((position & 31) + 1, count - taken)
        digit = load(base, offset + (position >> 5))
        result = (result << usable) | ((digit >> ((position & 31) + 1 - usable)) & ((1 << usable) - 1))
        taken += usable
    return result


@kernel
def split(base, terms, magnitude, scale):
    """Of magnitude / 10^scale: the bits of the largest double not above it, 58 bits of the rest, and if more is left.

    The magnitude is an unsigned word; the scale is at most 255.
    """
    if magnitude == 0:
        return 0, 0, 0
    offset = terms + DIGITS
    zeros = (REST_BITS + 54 + scale * 10 // 3 + 1 + leading_zeros(magnitude) + 31) // 32 if scale else 4
    digits = zeros + 2
    for digit in range(zeros):
        store(base, offset + digit, 0)
    store(base, offset + zeros, magnitude & _LOW)
    store(base, offset + zeros + 1, (magnitude >> 32) & _LOW)
    more = 0
    while scale > 0:
        step = min(scale, 9)
        more |= divide_digits(base, offset, digits, power_of_ten(step))
        scale -= step
    top = digits - 1
    while load(base, offset + top) == 0:
        top -= 1
    # the first 53 bits and the 58 behind them, from five digits at most
    length = 64 - leading_zeros(load(base, offset + top))
    first = _bits_at(base, offset, top, length, 0, 53)
    rest = _bits_at(base, offset, top, length, 53, REST_BITS)
    behind = 32 * top + length - 53 - REST_BITS  # bits not yet looked at
    for digit in range(behind // 32):
        more |= load(base, offset + digit)
    if behind > 0 and behind & 31:
        more |= load(base, offset + behind // 32) & ((1 << (behind & 31)) - 1)
    exponent = 32 * (top - zeros) + length - 1
    return ((exponent + 1023) << 52) | (first & ids.FRACTION_MASK), rest, 1 if more else 0


@kernel
def in_order(bits):
    """The bits of a double as a number that is in the order of doubles; both zeros are 0, NaN is the least."""
    magnitude = bits & ~LEAST
    if magnitude > 0x7FF << 52:
        return LEAST
    return -magnitude if bits < 0 else magnitude


@kernel
def _value_words(kind, whole, rest, more):
    first = ((kind - 8) << 60) + ((whole >> 4) + (1 << 59))
    return first, ((whole & 15) << 59) | (rest << 1) | more


@kernel
def _exact_words(base, terms, kind, bits, scale):
    """The key of bits / 10^scale."""
    if scale == 0 and -(1 << 53) <= bits <= 1 << 53:
        return _value_words(kind, in_order(bits_of(float(bits))), 0, 0)
    whole, rest, more = split(base, terms, -bits if bits < 0 else bits, scale)
    if bits >= 0:
        return _value_words(kind, whole, rest, more)
    if rest == 0 and more == 0:
        return _value_words(kind, -whole, 0, 0)
    # the largest double not above is one further from zero, and the rest is what was missing
    return _value_words(kind, -whole - 1, (1 << REST_BITS) - rest - more, more)


@kernel
def _text_words(base, terms, kind, id):
    address, bytes_ = heap_text(base, terms, id)
    position = address + 1
    end = address + bytes_ - 1 if kind == CLASS_IRI else address + bytes_
    first, second = 0, 0
    ended = False
    for number in range(15):
        byte = 0
        if not ended:
            byte, position = _character(position, end, kind != CLASS_IRI)
            if byte < 0:
                byte = 0
                ended = True
        if number < 7:
            first = (first << 8) | byte
        else:
            second = (second << 8) | byte
    return ((kind - 8) << 60) + first, second ^ LEAST


@kernel
def sort_key(base, terms, id, target):
    """Write the three words of a term's sort key: DONE, or ASKING."""
    store(base, target + 2, id)
    tag, bits, scale = register_of(base, terms, id)
    first, second = 0, 0
    if tag == DECIMAL and id < 0:  # prices and readings come again and again
        known = terms + LAST_KEYS + 3 * ((id * _MIX >> 32) & (MOST_KEYS - 1))
        if load(base, known) != id:
            first, second = _exact_words(base, terms, CLASS_NUMBER, bits, scale)
            store(base, known, id)
            store(base, known + 1, first)
            store(base, known + 2, second)
        first, second = load(base, known + 1), load(base, known + 2)
    elif tag in (INTEGER, DECIMAL):
        first, second = _exact_words(base, terms, CLASS_NUMBER, bits, scale)
    elif tag in (DOUBLE, FLOAT):
        first, second = _value_words(CLASS_NUMBER, in_order(bits), 0, 0)
    elif tag in (DATE_TIME, DATE_TIME_LOCAL):
        first, second = _exact_words(base, terms, CLASS_DATE_TIME, bits, scale)
    elif tag in (TEXT, UNKNOWN):
        store(base, terms + ASKED, id)
        cached = find(base, load(base, terms + LORE), terms + ASKED)
        if cached == 0 or tag == UNKNOWN:
            return ASKING
        first, second = load(base, cached), load(base, cached + 1)
    elif tag == NONE:
        first = (CLASS_UNBOUND - 8) << 60
    elif tag == BLANK:
        first = (CLASS_BLANK - 8) << 60
    elif tag == BOOLEAN:
        first = ((CLASS_BOOLEAN - 8) << 60) + bits
    elif tag == OTHER:
        first = (CLASS_OTHER - 8) << 60
    else:
        kind = CLASS_IRI if tag == IRI else CLASS_STRING if tag == STRING else CLASS_LANG_STRING
        first, second = _text_words(base, terms, kind, id)
    store(base, target, first)
    store(base, target + 1, second)
    return DONE


@kernel
def trim_sort_key_cache(base, terms):
    """Drop all that Python said of terms, if it is much."""
    table = load(base, terms + LORE)
    if load(base, table + TABLE_COUNT) > LORE_LIMIT:
        _forget(base, table)


@kernel
def _forget(base, table):
    slot = 0
    while slot < load(base, table + TABLE_ROOM):
        cached = slot_at(base, table, slot)
        if cached == 0:
            slot += 1
            continue
        give(base, load(base, cached + 2), (load(base, cached + 3) + 7) // 8 + 1)
        give(base, load(base, cached + 4), (load(base, cached + 5) + 7) // 8 + 1)
        remove(base, table, cached)
