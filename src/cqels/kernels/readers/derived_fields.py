"""Fields of a record that are not in its line: values that are looked up, or stand in for those that are absent.

A field is two words, where it begins and ends, counted from the address of the lines; so the text of one may also be
elsewhere in memory, followed by MANY bytes that may be read.

    word    of a derived value
    0, 1    its field; the field that it is made of
    2, 3    address and slots of a table, a power of two, in which that is looked up; no slots if there is none
    4–6     address, length and kind of the text if there is no value; length 0 if there is none

    word    of a slot of a table
    0, 1    address and length of a key, 0 if the slot is free
    2, 3    address and length of its value
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import load, store
from cqels.kernels.memory.byte_strings import hash_text, same_text
from cqels.kernels.readers.line_tokenizer import character

VALUE_FIELD, VALUE_SOURCE, VALUE_TABLE, VALUE_SLOTS, DEFAULT, DEFAULT_LENGTH, DEFAULT_KIND = range(7)
VALUE_WORDS = 7
SLOT_KEY, SLOT_KEY_LENGTH, SLOT_VALUE, SLOT_VALUE_LENGTH = range(4)
SLOT_WORDS = 4


@kernel
def is_utf8(address, position, end):
    """Whether the bytes between two positions are UTF-8."""
    while position < end:
        _, size = character(address, position, end)
        if size == 0:
            return False
        position += size
    return True


@kernel
def drop_missing(address, fields, wanted, wanted_count, texts, count):
    """Let those of some fields have no bytes whose texts stand for no value."""
    for number in range(wanted_count):
        field = fields + 16 * load(wanted, number)
        start, length = load(field, 0), load(field, 1) - load(field, 0)
        for other in range(count):
            if length == load(texts, 2 * other + 1) and same_text(address + start, load(texts, 2 * other), length):
                store(field, 1, start)


@kernel
def _looked_up(address, start, length, table, slots):
    """The slot of a key, or the free one that ends the search."""
    slot = hash_text(address + start, length) & slots - 1
    while True:
        at = table + 8 * SLOT_WORDS * slot
        known = load(at, SLOT_KEY_LENGTH)
        if known == 0 or (known == length and same_text(load(at, SLOT_KEY), address + start, length)):
            return at
        slot = slot + 1 & slots - 1


@kernel
def derive(address, fields, kinds, value, count, checked):
    """Write the fields of derived values, which are at an address; False if one is made of bytes that are `checked`,
    and are not UTF-8."""
    for _ in range(count):
        source, target = load(value, VALUE_SOURCE), load(value, VALUE_FIELD)
        start, stop, kind = load(fields, 2 * source), load(fields, 2 * source + 1), load(kinds, source)
        if start != stop and load(value, VALUE_SLOTS) != 0:
            if checked and not is_utf8(address, start, stop):
                return False
            slot = _looked_up(address, start, stop - start, load(value, VALUE_TABLE), load(value, VALUE_SLOTS))
            start, stop, kind = 0, 0, 0
            if load(slot, SLOT_KEY_LENGTH) != 0:
                start = load(slot, SLOT_VALUE) - address
                stop = start + load(slot, SLOT_VALUE_LENGTH)
        if start == stop and load(value, DEFAULT_LENGTH) != 0:
            start, kind = load(value, DEFAULT) - address, load(value, DEFAULT_KIND)
            stop = start + load(value, DEFAULT_LENGTH)
        store(fields, 2 * target, start)
        store(fields, 2 * target + 1, stop)
        store(kinds, target, kind)
        value += 8 * VALUE_WORDS
    return True
