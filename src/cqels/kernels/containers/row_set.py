"""Finders: where a row is, by its hash, in one word per row.

The rows themselves are elsewhere (the ring of a window, a bag), and are read only where the hash agrees: to enter a row
that is new, and to forget one whose number is known, no other row is touched.

    word   of a finder
    0      rows in it
    1      slots - 1; there are 2^k slots
    2      offset of the slots

A slot is 0 if it is empty, or a *mark*: the sign bit, 31 bits of the hash, 32 bits of the row's number.  The home of a
mark is in its own bits: marks are moved without looking at rows.  A search goes round the line of the cache that its
home is in, then round the next, and ends at an empty slot: at most half of the slots are in use, so it hardly ever
leaves that line.  The slot of a mark that goes is filled by those of its line that stand behind it; only where a line
was full may others have gone past it, and are settled anew.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.key_index import LINE, next_slot
from cqels.kernels.memory.arena import fetch, give, load, store, take

COUNT, LAST, SLOTS = 0, 1, 2
FINDER_WORDS = 3
_LEAST = 16
_NEAR = LINE - 1
_FAR = 1 << 14
_MIX = -7046029254386353131  # 2^64 / golden ratio, odd
_SIGN = -(2**63)


@kernel
def make_finder(base):
    """A new, empty finder: its offset, or 0 if the arena is full."""
    finder = take(base, FINDER_WORDS)
    if finder == 0 or not _resize(base, finder, _LEAST):
        return 0
    return finder


@kernel
def drop_finder(base, finder):
    """Give a finder's memory back."""
    give(base, load(base, finder + SLOTS), load(base, finder + LAST) + 1)
    give(base, finder, FINDER_WORDS)


@kernel
def hash_of(base, offset, words):
    """A hash of some words."""
    mixed = 0
    for word in range(words):
        mixed = (mixed ^ load(base, offset + word)) * _MIX
        mixed ^= mixed >> 32
    return mixed


@kernel
def mark_of(mixed, number):
    """The mark of a row with this hash and number."""
    return _SIGN | ((mixed & 0x7FFFFFFF) << 32) | (number & 0xFFFFFFFF)


@kernel
def number_of(mark):
    """The number of a mark's row, of which the lowest 32 bits are known."""
    return mark & 0xFFFFFFFF


@kernel
def is_far(base, finder):
    """Whether there are so many slots that they are not near anyway."""
    return load(base, finder + LAST) >= _FAR


@kernel
def slot_of(base, finder, mark):
    """The offset of the slot where the search for a mark begins."""
    return load(base, finder + SLOTS) + ((mark >> 32) & load(base, finder + LAST))


@kernel
def expect_mark(base, finder, mark):
    """Have the slot of a mark brought near. Only where `is_far` is it worth while."""
    fetch(base, slot_of(base, finder, mark))


@kernel
def seek(base, finder, mark, offset):
    """The offset of the next mark with the hash of this one, or 0: behind `offset`, or the first one if that is 0."""
    slots, last = load(base, finder + SLOTS), load(base, finder + LAST)
    home = (mark >> 32) & last
    slot = home if offset == 0 else next_slot(offset - slots, home, _NEAR, last)
    while True:
        found = load(base, slots + slot)
        if found == 0:
            return 0
        if (found ^ mark) >> 32 == 0:
            return slots + slot
        slot = next_slot(slot, home, _NEAR, last)


@kernel
def add_mark(base, finder, mark):
    """Enter a row that is not there: False if the arena is full."""
    count, last = load(base, finder + COUNT) + 1, load(base, finder + LAST)
    if 2 * count > last + 1:
        if not _resize(base, finder, 2 * (last + 1)):
            return False
        last = load(base, finder + LAST)
    _settle(base, load(base, finder + SLOTS), last, mark)
    store(base, finder + COUNT, count)
    return True


@kernel
def remove_mark(base, finder, mark):
    """Forget a row that is there."""
    slots, last = load(base, finder + SLOTS), load(base, finder + LAST)
    home = (mark >> 32) & last
    hole = home
    while load(base, slots + hole) != mark:
        hole = next_slot(hole, home, _NEAR, last)
    line, slot, full = hole & ~_NEAR, hole, True
    for _ in range(_NEAR):
        slot = line | ((slot + 1) & _NEAR)
        found = load(base, slots + slot)
        if found == 0:
            full = False
            break
        # a mark may fill the hole if its search does not begin between the hole and where it stands
        if ((slot - (found >> 32)) & _NEAR) >= ((slot - hole) & _NEAR):
            store(base, slots + hole, found)
            hole = slot
    store(base, slots + hole, 0)
    if full:
        _settle_guests(base, slots, last, line)
    count = load(base, finder + COUNT) - 1
    store(base, finder + COUNT, count)
    if last >= _LEAST and 16 * count < last:
        _resize(base, finder, (last + 1) // 2)


@kernel
def _settle_guests(base, slots, last, line):
    """A line is no longer full: settle the marks of the next ones anew that had gone past it, or past those."""
    full = True
    while full:
        line = (line + LINE) & last
        moved = True
        for slot in range(line, line + LINE):
            full = full and load(base, slots + slot) != 0
        while moved:
            moved = False
            for slot in range(line, line + LINE):
                mark = load(base, slots + slot)
                if mark != 0:
                    store(base, slots + slot, 0)
                    moved = _settle(base, slots, last, mark) != slot or moved


@kernel
def empty_finder(base, finder, rows):
    """Forget all rows, and make room for so many: False if the arena is full."""
    slots = _LEAST
    while slots < 2 * rows:
        slots *= 2
    made = take(base, slots)
    if made == 0:
        return False
    give(base, load(base, finder + SLOTS), load(base, finder + LAST) + 1)
    store(base, finder + SLOTS, made)
    store(base, finder + LAST, slots - 1)
    store(base, finder + COUNT, 0)
    return True


@kernel
def _settle(base, slots, last, mark):
    """Write a mark into the first empty slot of its search: which one."""
    home = (mark >> 32) & last
    slot = home
    while load(base, slots + slot) != 0:
        slot = next_slot(slot, home, _NEAR, last)
    store(base, slots + slot, mark)
    return slot


@kernel
def _resize(base, finder, room):
    slots = take(base, room)
    if slots == 0:
        return False
    old = load(base, finder + SLOTS)
    if old != 0:
        last = load(base, finder + LAST)
        for slot in range(last + 1):
            mark = load(base, old + slot)
            if mark != 0:
                _settle(base, slots, room - 1, mark)
        give(base, old, last + 1)
    store(base, finder + SLOTS, slots)
    store(base, finder + LAST, room - 1)
    return True
