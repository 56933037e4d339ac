"""Columns of words: which of them differ, and the N-Triples texts of their rows one behind the other.

    word    of the span of a text
    0, 1    address, bytes; 0 bytes for an unbound word, -1 where Python has to say what the text is

Behind a text seven bytes more may be read, and behind the rows' texts seven more are overwritten.
"""

from __future__ import annotations

import numpy as np

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import load, store
from cqels.kernels.memory.byte_strings import copy_loosely, put_byte, put_word
from cqels.kernels.terms.term_table import is_live, length_of, text_of
from cqels.model.ids import CODE_DECIMAL, CODE_INTEGER, SCALE_BITS, SCALE_MASK, TYPE_MASK, VALUE_BITS
from cqels.model.terms import XSD_DECIMAL, XSD_INTEGER

NUMBER_BYTES = 88
"""Bytes that are enough for the text of an integer or a decimal that is in its word."""
_DIGITS = 40
"""Of these, those up to the quote behind the digits."""
_INTEGER_END, _DECIMAL_END = (f'"^^{datatype}'.encode() for datatype in (XSD_INTEGER, XSD_DECIMAL))
_END = len(_INTEGER_END)
_ENDS = np.frombuffer(b"".join(end.ljust(NUMBER_BYTES - _DIGITS) for end in (_INTEGER_END, _DECIMAL_END)), np.int64)
_END_WORDS = len(_ENDS) // 2
assert len(_DECIMAL_END) == _END <= 8 * _END_WORDS


@kernel
def number_words(column, stride, rows, table, slots, words, numbers):
    """Number the words of a column, one every `stride` words, as they first come: how many there are.

    The words go to one address, the number of each row's word to another. The table has `slots` words that are 0: a
    power of two, and more than there are rows.
    """
    count = 0
    for row in range(rows):
        word = load(column, row * stride)
        hashed = word * -7046029254386353131
        slot = (hashed ^ hashed >> 32) & slots - 1
        found = load(table, slot)
        while found != 0 and load(words, found - 1) != word:
            slot = slot + 1 & slots - 1
            found = load(table, slot)
        if found == 0:
            store(words, count, word)
            count += 1
            found = count
            store(table, slot, found)
        store(numbers, row, found - 1)
    return count


@kernel
def locate_texts(base, dictionary, words, count, target, spans):
    """Write the spans of the texts of words; those of numbers are made at `target`, NUMBER_BYTES for each word."""
    for number in range(count):
        word = load(words, number)
        address, length = 0, 0 if word == 0 else -1
        if word > 0:
            if is_live(base, dictionary, word):
                address, length = text_of(base, dictionary, word), length_of(base, dictionary, word)
        elif word >> VALUE_BITS & TYPE_MASK in (CODE_INTEGER, CODE_DECIMAL):
            address = _put_number(word, target + number * NUMBER_BYTES + _DIGITS)
            length = target + number * NUMBER_BYTES + _DIGITS + _END - address
        store(spans, 2 * number, address)
        store(spans, 2 * number + 1, length)


@kernel
def _put_number(word, end):
    """Write the text of an integer or decimal, the quote behind its digits to the address `end`: where it begins."""
    value, scale, kind = word << 64 - VALUE_BITS >> 64 - VALUE_BITS, 0, 0
    if word >> VALUE_BITS & TYPE_MASK == CODE_DECIMAL:
        value, scale, kind = value >> SCALE_BITS, value & SCALE_MASK, 1
    for part in range(_END_WORDS):
        put_word(end + 8 * part, _ENDS[kind * _END_WORDS + part])
    left, at = abs(value), end
    point = end - scale
    while left != 0 or at >= point:
        if at == point and scale > 0:
            at -= 1
            put_byte(at, 0x2E)
        at -= 1
        put_byte(at, 0x30 + left % 10)
        left //= 10
    if value < 0:
        at -= 1
        put_byte(at, 0x2D)
    put_byte(at - 1, 0x22)
    return at - 1


@kernel
def measure_texts(spans, numbers, rows, ends):
    """Write where the text of each row begins and that of the last ends, in four bytes each: the bytes of all.

    The four bytes behind them are overwritten.
    """
    size = 0
    put_word(ends, 0)
    for row in range(rows):
        size += load(spans, 2 * load(numbers, row) + 1)
        put_word(ends + 4 * row + 4, size)
    return size


@kernel
def join_rows(spans, numbers, rows, target):
    """Copy the texts of rows one behind the other."""
    for row in range(rows):
        span = spans + 16 * load(numbers, row)
        copy_loosely(load(span, 0), target, load(span, 1))
        target += load(span, 1)
