"""The dictionary in the arena: terms by number, numbers by N-Triples text, and the registers of literals.

It is what `cqels.model.dictionary` is, in one place that other kernels reach: numbers from 1 on, 0 for none. The id of
a term is its number with a tag that hardly any other word has, so that ids can be told from what else is in an arena
(`mark_column`). The descriptor never moves; entries and table move when they grow, texts never.

    word    of the descriptor
    0       entries alive
    1       one past the largest number ever given
    2       a released entry, whose word 0 is the next one; 0 if there is none
    3, 4    entries: offset, how many there is room for
    5, 6    table: offset, slots; a power of two, at least twice the entries
    7, 8    piece of memory that texts are cut from: offset of what is left, words left
    9       words of such a piece
    10      bits of a hash that count: all, but fewer where a test wants collisions
    11, 12  marks: offset of one bit for each number, words of them
    13, 14  scratch memory where texts are put together: offset, words
    16 + n  a released text of n words, n from 1 to 64, whose first word is the next one

    word    of an entry
    0       text: bytes from the first byte of the arena
    1       bits 0…31 length in bytes, 32…39 tag, 40…47 scale, 48 the text was checked to be valid N-Triples, 49 Python
            must say what the register is, 50…62 pins: how often it is held, 8191 for always
    2       hash
    3       number: the bits of the register

A slot of the table is 0, or the high 24 bits of the hash and the 40 bits of a number; probing is linear. A text longer
than 64 words has a block of the arena to itself. An entry of the tag NONE (0) is free.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import copy, fetch, give_shared, load, store, take_shared
from cqels.kernels.memory.byte_strings import copy_text, hash_text, low_zeros, same_text
from cqels.kernels.terms.xsd_values import UNKNOWN, text_register
from cqels.model.ids import Tag

COUNT, END, FREE_ENTRY, ENTRIES, ENTRY_ROOM, TABLE, SLOTS = range(7)
PIECE, PIECE_LEFT, PIECE_WORDS, HASH_BITS, MARKS, MARK_WORDS, SCRATCH, SCRATCH_WORDS = range(7, 15)
FREE_TEXT = 16
LONGEST = 64
DICTIONARY_WORDS = FREE_TEXT + LONGEST + 1

TEXT, SHAPE, HASH, NUMBER = range(4)
ENTRY_WORDS = 4

LENGTH_MASK = (1 << 32) - 1
TAG_SHIFT, SCALE_SHIFT, BYTE_MASK = 32, 40, 255
CHECKED, UNSETTLED = 1 << 48, 1 << 49
PIN_SHIFT = 50
PIN = 1 << PIN_SHIFT
PIN_MASK = 8191
ID_MASK = (1 << 40) - 1
TAGGED = 0x2C9E_D5 << 40
"""What an id has above its number."""

_TEXT_TAG = int(Tag.TEXT)


@kernel
def make_dictionary(base, entries, piece):
    """A new dictionary with room for some entries (a power of two) and some words of text: its offset, 0 if full."""
    dictionary = take_shared(base, DICTIONARY_WORDS)
    offset = take_shared(base, entries * ENTRY_WORDS)
    table = take_shared(base, 2 * entries)
    scratch = take_shared(base, LONGEST)
    if dictionary == 0 or offset == 0 or table == 0 or scratch == 0:
        return 0
    store(base, dictionary + END, 1)
    store(base, dictionary + ENTRIES, offset)
    store(base, dictionary + ENTRY_ROOM, entries)
    store(base, dictionary + TABLE, table)
    store(base, dictionary + SLOTS, 2 * entries)
    store(base, dictionary + PIECE_WORDS, max(piece, LONGEST))
    store(base, dictionary + HASH_BITS, -1)
    store(base, dictionary + SCRATCH, scratch)
    store(base, dictionary + SCRATCH_WORDS, LONGEST)
    return dictionary


# --- reading --------------------------------------------------------------------------------------------------------


@kernel
def entry_at(base, dictionary, id):
    """The offset of an entry."""
    return load(base, dictionary + ENTRIES) + (id & ID_MASK) * ENTRY_WORDS


@kernel
def is_live(base, dictionary, id):
    """Whether a word is the id of an entry."""
    if id & ~ID_MASK != TAGGED or id & ID_MASK >= load(base, dictionary + END):
        return False
    return tag_of(base, dictionary, id) != 0


@kernel
def text_of(base, dictionary, id):
    """The address of the text of an entry."""
    return base + load(base, entry_at(base, dictionary, id) + TEXT)


@kernel
def length_of(base, dictionary, id):
    """The bytes of the text of an entry."""
    return load(base, entry_at(base, dictionary, id) + SHAPE) & LENGTH_MASK


@kernel
def texts_of(base, dictionary, words, count, target):
    """For words at one address write, to another, the address and the length of each one's text, 0 for other words."""
    for number in range(count):
        id = load(words, number)
        live = is_live(base, dictionary, id)
        store(target, 2 * number, text_of(base, dictionary, id) if live else 0)
        store(target, 2 * number + 1, length_of(base, dictionary, id) if live else 0)


@kernel
def join_texts(spans, count, target):
    """Copy texts, whose addresses and lengths `texts_of` has written, one after the other to an address."""
    for number in range(count):
        length = load(spans, 2 * number + 1)
        copy_text(load(spans, 2 * number), target, length)
        target += length


@kernel
def tag_of(base, dictionary, id):
    """The tag of an entry: TEXT also where Python has yet to say what it is."""
    return load(base, entry_at(base, dictionary, id) + SHAPE) >> TAG_SHIFT & BYTE_MASK


@kernel
def scale_of(base, dictionary, id):
    """The scale of the register of an entry."""
    return load(base, entry_at(base, dictionary, id) + SHAPE) >> SCALE_SHIFT & BYTE_MASK


@kernel
def number_of(base, dictionary, id):
    """The bits of the register of an entry."""
    return load(base, entry_at(base, dictionary, id) + NUMBER)


@kernel
def is_unsettled(base, dictionary, id):
    """Whether Python must say what the register of an entry is."""
    return load(base, entry_at(base, dictionary, id) + SHAPE) & UNSETTLED != 0


@kernel
def settle(base, dictionary, id, tag, bits, scale):
    """Write what Python says the register of an entry is."""
    entry = entry_at(base, dictionary, id)
    shape = load(base, entry + SHAPE) & ~(UNSETTLED | BYTE_MASK << TAG_SHIFT | BYTE_MASK << SCALE_SHIFT)
    store(base, entry + SHAPE, shape | tag << TAG_SHIFT | scale << SCALE_SHIFT)
    store(base, entry + NUMBER, bits)


@kernel
def is_checked(base, dictionary, id):
    """Whether the text of an entry is known to be what a strict parser accepts."""
    return load(base, entry_at(base, dictionary, id) + SHAPE) & CHECKED != 0


@kernel
def set_checked(base, dictionary, id):
    """Say that the text of an entry is what a strict parser accepts."""
    entry = entry_at(base, dictionary, id)
    store(base, entry + SHAPE, load(base, entry + SHAPE) | CHECKED)


# --- finding and adding ---------------------------------------------------------------------------------------------


@kernel
def hash_of(base, dictionary, address, length):
    """The hash that a dictionary knows a text by."""
    return hash_text(address, length) & load(base, dictionary + HASH_BITS)


@kernel
def has_text(base, dictionary, id, address, length):
    """Whether an entry is that of a text."""
    entry = entry_at(base, dictionary, id)
    if load(base, entry + SHAPE) & LENGTH_MASK != length:
        return False
    return same_text(base + load(base, entry + TEXT), address, length)


@kernel
def seek(base, dictionary, address, length, hashed):
    """The number of the text with a hash, or 0."""
    table, mask = load(base, dictionary + TABLE), load(base, dictionary + SLOTS) - 1
    slot = hashed & mask
    found = load(base, table + slot)
    while found != 0:
        if (found ^ hashed) & ~ID_MASK == 0 and has_text(base, dictionary, found, address, length):
            return found & ID_MASK | TAGGED
        slot = slot + 1 & mask
        found = load(base, table + slot)
    return 0


@kernel
def expect_slot(base, dictionary, hashed):
    """Have the slot brought near in which the search for a hash begins."""
    fetch(base, load(base, dictionary + TABLE) + (hashed & load(base, dictionary + SLOTS) - 1))


@kernel
def expect_entry(base, dictionary, hashed):
    """Have the entry brought near that is probably the one with a hash, whose slot is near: its id, or 0."""
    table, mask = load(base, dictionary + TABLE), load(base, dictionary + SLOTS) - 1
    slot = hashed & mask
    found = load(base, table + slot)
    while found != 0:
        if (found ^ hashed) & ~ID_MASK == 0:
            fetch(base, entry_at(base, dictionary, found))
            return found & ID_MASK | TAGGED
        slot = slot + 1 & mask
        found = load(base, table + slot)
    return 0


@kernel
def expect_text(base, dictionary, id):
    """Have the text of an entry brought near, which is near itself."""
    text = load(base, entry_at(base, dictionary, id) + TEXT) >> 3
    fetch(base, text)
    fetch(base, text + 8)


@kernel
def find(base, dictionary, address, length):
    """The number of a text, or 0."""
    return seek(base, dictionary, address, length, hash_of(base, dictionary, address, length))


@kernel
def intern(base, dictionary, address, length):
    """The number of a text, which is given one if it has none; 0 if the arena is full."""
    hashed = hash_of(base, dictionary, address, length)
    id = seek(base, dictionary, address, length, hashed)
    return id if id != 0 else add(base, dictionary, address, length, hashed, 0)


@kernel
def intern_all(base, dictionary, texts, lengths, count, target):
    """Intern texts that follow each other at an address; their lengths are at another, their numbers go to a third.

    How many were interned: fewer than `count` if the arena is full.
    """
    for number in range(count):
        length = load(lengths, number)
        id = intern(base, dictionary, texts, length)
        if id == 0:
            return number
        store(target, number, id)
        texts += length
    return count


@kernel
def add(base, dictionary, address, length, hashed, flags):
    """Give a number to a text that has none; 0 if the arena is full, and then nothing has changed."""
    if 2 * (load(base, dictionary + COUNT) + 1) > load(base, dictionary + SLOTS) and not _grow_table(base, dictionary):
        return 0
    end = load(base, dictionary + END)
    id = load(base, dictionary + FREE_ENTRY)
    if id == 0 and end == load(base, dictionary + ENTRY_ROOM) and not _grow_entries(base, dictionary):
        return 0
    text = _take_text(base, dictionary, length + 7 >> 3)
    if text == 0:
        return 0
    if id == 0:
        id = end
        store(base, dictionary + END, end + 1)
    else:
        store(base, dictionary + FREE_ENTRY, load(base, entry_at(base, dictionary, id) + TEXT))
    copy_text(address, base + text * 8, length)
    tag, bits, scale = text_register(base + text * 8, length)
    if tag == UNKNOWN:
        tag = _TEXT_TAG
        flags |= UNSETTLED
    entry = entry_at(base, dictionary, id)
    store(base, entry + TEXT, text * 8)
    store(base, entry + SHAPE, length | tag << TAG_SHIFT | scale << SCALE_SHIFT | flags)
    store(base, entry + HASH, hashed)
    store(base, entry + NUMBER, bits)
    _insert(base, load(base, dictionary + TABLE), load(base, dictionary + SLOTS) - 1, hashed, id)
    store(base, dictionary + COUNT, load(base, dictionary + COUNT) + 1)
    return id | TAGGED


@kernel
def _insert(base, table, mask, hashed, id):
    slot = hashed & mask
    while load(base, table + slot) != 0:
        slot = slot + 1 & mask
    store(base, table + slot, hashed & ~ID_MASK | id)


@kernel
def _fill_table(base, dictionary):
    """Put all entries into a table that is empty."""
    table, mask = load(base, dictionary + TABLE), load(base, dictionary + SLOTS) - 1
    for id in range(1, load(base, dictionary + END)):
        entry = entry_at(base, dictionary, id)
        if load(base, entry + SHAPE) != 0:
            _insert(base, table, mask, load(base, entry + HASH), id)


@kernel
def _grow_table(base, dictionary):
    slots = load(base, dictionary + SLOTS)
    table = take_shared(base, 2 * slots)
    if table == 0:
        return False
    give_shared(base, load(base, dictionary + TABLE), slots)
    store(base, dictionary + TABLE, table)
    store(base, dictionary + SLOTS, 2 * slots)
    _fill_table(base, dictionary)
    return True


@kernel
def _grow_entries(base, dictionary):
    room = load(base, dictionary + ENTRY_ROOM)
    entries = take_shared(base, 2 * room * ENTRY_WORDS)
    if entries == 0:
        return False
    old = load(base, dictionary + ENTRIES)
    copy(base, old, entries, room * ENTRY_WORDS)
    give_shared(base, old, room * ENTRY_WORDS)
    store(base, dictionary + ENTRIES, entries)
    store(base, dictionary + ENTRY_ROOM, 2 * room)
    return True


# --- memory of texts ------------------------------------------------------------------------------------------------


@kernel
def _take_text(base, dictionary, words):
    """Room for a text, or 0 if the arena is full."""
    if words > LONGEST:
        return take_shared(base, words)
    offset = load(base, dictionary + FREE_TEXT + words)
    if offset != 0:
        following = load(base, offset)
        store(base, dictionary + FREE_TEXT + words, following)
        fetch(base, following)  # it is far away, and will be the next
        return offset
    left = load(base, dictionary + PIECE_LEFT)
    if left < words:
        size = load(base, dictionary + PIECE_WORDS)
        piece = take_shared(base, size)
        if piece == 0:
            return 0
        if left > 0:
            _give_text(base, dictionary, load(base, dictionary + PIECE), left)
        store(base, dictionary + PIECE, piece)
        left = size
    offset = load(base, dictionary + PIECE)
    store(base, dictionary + PIECE, offset + words)
    store(base, dictionary + PIECE_LEFT, left - words)
    return offset


@kernel
def _give_text(base, dictionary, offset, words):
    if words > LONGEST:
        give_shared(base, offset, words)
        return
    store(base, offset, load(base, dictionary + FREE_TEXT + words))
    store(base, dictionary + FREE_TEXT + words, offset)


# --- releasing ------------------------------------------------------------------------------------------------------


@kernel
def pin(base, dictionary, id):
    """Hold an entry, once more: it is released by nobody until it is let go as often."""
    entry = entry_at(base, dictionary, id)
    shape = load(base, entry + SHAPE)
    if shape >> PIN_SHIFT & PIN_MASK < PIN_MASK:
        store(base, entry + SHAPE, shape + PIN)


@kernel
def unpin(base, dictionary, id):
    """Let an entry go that was held; one held 8191 times is held for ever."""
    entry = entry_at(base, dictionary, id)
    shape = load(base, entry + SHAPE)
    if 0 < shape >> PIN_SHIFT & PIN_MASK < PIN_MASK:
        store(base, entry + SHAPE, shape - PIN)


@kernel
def is_pinned(base, dictionary, id):
    """Whether an entry is held."""
    return load(base, entry_at(base, dictionary, id) + SHAPE) >> PIN_SHIFT & PIN_MASK != 0


@kernel
def _forget(base, dictionary, id):
    """Free an entry and its text, but not its slot."""
    entry = entry_at(base, dictionary, id)
    words = (load(base, entry + SHAPE) & LENGTH_MASK) + 7 >> 3
    _give_text(base, dictionary, load(base, entry + TEXT) >> 3, words)
    store(base, entry + TEXT, load(base, dictionary + FREE_ENTRY))
    store(base, entry + SHAPE, 0)
    store(base, dictionary + FREE_ENTRY, id & ID_MASK)
    store(base, dictionary + COUNT, load(base, dictionary + COUNT) - 1)


@kernel
def _vacate(base, dictionary, id):
    """Empty the slot of an entry, moving back those that were displaced past it, so that no search stops short."""
    table, mask = load(base, dictionary + TABLE), load(base, dictionary + SLOTS) - 1
    slot = load(base, entry_at(base, dictionary, id) + HASH) & mask
    while load(base, table + slot) & ID_MASK != id & ID_MASK:
        slot = slot + 1 & mask
    probe = slot + 1 & mask
    found = load(base, table + probe)
    while found != 0:
        home = load(base, entry_at(base, dictionary, found & ID_MASK) + HASH) & mask
        if probe - home & mask >= probe - slot & mask:
            store(base, table + slot, found)
            slot = probe
        probe = probe + 1 & mask
        found = load(base, table + probe)
    store(base, table + slot, 0)


@kernel
def release(base, dictionary, ids, count):
    """Forget the terms of `count` words at the address `ids`; their numbers are given to others later.

    Words that stand for no entry, and pinned entries, are passed over. The result is how many words were looked at:
    fewer than `count` if the next one is the number of no entry.
    """
    for number in range(count):
        id = load(ids, number)
        if id > 0:
            if not is_live(base, dictionary, id):
                return number
            if not is_pinned(base, dictionary, id):
                _vacate(base, dictionary, id)
                _forget(base, dictionary, id)
    return count


@kernel
def clear_marks(base, dictionary):
    """Begin to mark: no entry is marked; False if the arena is full. No term may be added until `sweep` is done."""
    words = (load(base, dictionary + END) >> 6) + 1
    if load(base, dictionary + MARK_WORDS) < words:
        marks = take_shared(base, words)
        if marks == 0:
            return False
        if load(base, dictionary + MARKS) != 0:
            give_shared(base, load(base, dictionary + MARKS), load(base, dictionary + MARK_WORDS))
        store(base, dictionary + MARKS, marks)
        store(base, dictionary + MARK_WORDS, words)
        return True
    for number in range(load(base, dictionary + MARK_WORDS)):
        store(base, load(base, dictionary + MARKS) + number, 0)
    return True


@kernel
def mark(base, dictionary, id):
    """Mark an entry as needed; other words are passed over."""
    number = id & ID_MASK
    if id & ~ID_MASK == TAGGED and number < load(base, dictionary + END):
        offset = load(base, dictionary + MARKS) + (number >> 6)
        store(base, offset, load(base, offset) | 1 << (number & 63))


@kernel
def mark_column(base, dictionary, offset, count, stride):
    """Mark the words of a column: `count` of them from an offset on, one every `stride` words."""
    for number in range(count):
        mark(base, dictionary, load(base, offset + number * stride))


@kernel
def sweep(base, dictionary):
    """Forget every entry that is neither marked nor pinned: how many there were."""
    before = load(base, dictionary + COUNT)
    marks = load(base, dictionary + MARKS)
    end = load(base, dictionary + END)
    for group in range((end >> 6) + 1):
        unmarked = ~load(base, marks + group)
        if group == end >> 6:
            unmarked &= (1 << (end & 63)) - 1
        expected = unmarked
        while expected != 0:  # texts are far away
            entry = entry_at(base, dictionary, group * 64 + low_zeros(expected))
            fetch(base, load(base, entry + TEXT) >> 3)
            expected &= expected - 1
        while unmarked != 0:
            id = TAGGED | group * 64 + low_zeros(unmarked)
            unmarked &= unmarked - 1
            if is_live(base, dictionary, id) and not is_pinned(base, dictionary, id):
                _forget(base, dictionary, id)
    forgotten = before - load(base, dictionary + COUNT)
    if forgotten > 0:
        table = load(base, dictionary + TABLE)
        for slot in range(load(base, dictionary + SLOTS)):
            store(base, table + slot, 0)
        _fill_table(base, dictionary)
    return forgotten
