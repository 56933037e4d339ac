"""Looking ahead at a join: what coming changes of its inputs will touch is brought near before their turn.

Large tables and windows are far away in memory.  Who knows what comes notes what it will touch, a group of changes at
a time and in steps, each a group after the one before, so that what a step reads has come: first the keys that a
change looks up, then the rows that match it, then what these rows lead to.  What was noted is asked for in portions:
requests that follow each other closely wait for memory together, but a processor has room for some twenty, and lets go
of what it is asked for beyond.
Nothing here changes what is known: where a row has gone or moved meanwhile, something is brought near in vain.

    word   of the paths from an input of a join
    0      its buffer
    1, 2   keys that a change of it looks up: number, offset of pairs (table, offset of where in its rows the key is)
    3, 4   inputs that it leads to: number, offset of the first one's five words: index, buffer, offset of where in its
           rows the key is; and for what a row of that one leads to: number, offset of as many words of each
    5      1 if someone looks ahead for the input, so that its changes need not be looked at when they are there

    word   of an outlook
    0, 1   offsets that are wanted, and how many of them have been brought near
    2, 3   first walk, and the one after the last; these numbers only grow
    4 …    the offsets, at most `_MOST_WANTED`
    …      the walks, `_MOST_WALKS` of four words: where it goes, in the paths (five words, as above); a row; how many
           rows with its key there are from that one on; the row before, or 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS
from cqels.kernels.containers.key_index import FOLLOWING, KEY, KEYS, LINK, NEWEST, OPEN, TABLE, find, home_of, is_far
from cqels.kernels.containers.row_buffer import TOGETHER, row_hash
from cqels.kernels.containers.row_set import is_far as finder_is_far
from cqels.kernels.containers.row_set import mark_of, number_of, seek, slot_of
from cqels.kernels.containers.row_storage import BAG, FINDER, INDEXES, KIND, link_of, row_of
from cqels.kernels.memory.arena import USED, Arena, fetch, load, store, write_words

BUFFER, TOUCHED, TOUCHED_AT, LEADS, LEADS_AT, LOOKED = range(6)
INDEX, OTHER, KEY_AT, FURTHER, FURTHER_AT, LEAD_WORDS = range(6)
WANTED, BROUGHT, WALK, WALK_END, WANTED_AT = range(5)
KEYS_AHEAD, ROWS_AHEAD = 5, 4
"""So many groups (of TOGETHER changes) ahead the keys of a group are looked at, and then the rows that match."""
_MOST_WANTED, _MOST_WALKS, _WALK_WORDS = 240, 64, 4
_AT_ONCE = 16  # offsets of a portion, or more where a group would want more again before all are asked for
_ROW, _LEFT, _BEFORE = 1, 2, 3
OUTLOOK_WORDS = WANTED_AT + _MOST_WANTED + _MOST_WALKS * _WALK_WORDS


@dataclass(frozen=True, slots=True)
class Lead:
    """An index of another input, where in a row the words of its key are, and what a row found there leads to."""

    index: int
    buffer: int
    offsets: tuple[int, ...]
    further: tuple[Lead, ...] = ()


def make_paths(arena: Arena, buffer: int, leads: Sequence[Lead]) -> int:
    """The paths from the input that has this buffer: what its own indexes and those that it leads to look up."""
    words = arena.words
    touched: dict[tuple[int, ...], int] = {}
    index = int(words[buffer + INDEXES])
    while index != 0:
        offsets = arena.array(index + KEY, int(words[index + KEYS])).tolist()
        touched[int(words[index + TABLE]), *offsets] = index + KEY
        index = int(words[index + FOLLOWING])
    for lead in leads:
        touched.setdefault((int(words[lead.index + TABLE]), *lead.offsets), write_words(arena, lead.offsets))
    pairs = [word for key, at in touched.items() for word in (key[0], at)]
    return write_words(
        arena, [buffer, len(touched), write_words(arena, pairs), len(leads), _write_leads(arena, leads), 0]
    )


def _write_leads(arena: Arena, leads: Sequence[Lead]) -> int:
    found: list[int] = []
    for lead in leads:
        found += [lead.index, lead.buffer, write_words(arena, lead.offsets)]
        found += [len(lead.further), _write_leads(arena, lead.further)]
    return write_words(arena, found)


@kernel
def want(base, outlook, offset):
    """Let an offset be brought near with the next `bring`."""
    count = load(base, outlook + WANTED)
    if count < _MOST_WANTED:
        store(base, outlook + WANTED_AT + count, offset)
        store(base, outlook + WANTED, count + 1)


@kernel
def _want_row(base, outlook, row):
    """The same for a row of a buffer: the word before its columns is kept in any."""
    want(base, outlook, row + COLUMNS - 1)


@kernel
def bring(base, outlook):
    """Have a portion of the offsets brought near that are wanted, those that were wanted first."""
    first, wanted = load(base, outlook + BROUGHT), load(base, outlook + WANTED)
    end = min(first + max(_AT_ONCE, (wanted - first + TOGETHER - 1) // TOGETHER), wanted)
    for number in range(first, end):
        fetch(base, load(base, outlook + WANTED_AT + number))
    if end < wanted:
        store(base, outlook + BROUGHT, end)
    else:
        store(base, outlook + BROUGHT, 0)
        store(base, outlook + WANTED, 0)


@kernel
def expect_keys(base, outlook, paths, row):
    """The first step for a row that comes or goes."""
    offset = load(base, paths + TOUCHED_AT)
    for _ in range(load(base, paths + TOUCHED)):
        home = home_of(base, load(base, offset), row, load(base, offset + 1))
        want(base, outlook, home)
        offset += 2
    buffer = load(base, paths + BUFFER)
    if load(base, buffer + KIND) == BAG and finder_is_far(base, load(base, buffer + FINDER)):
        want(base, outlook, slot_of(base, load(base, buffer + FINDER), mark_of(row_hash(base, buffer, row), 0)))


@kernel
def expect_at_once(base, paths, row):
    """Ask for the keys of a row whose turn it is, all of them before the first is looked up."""
    offset = load(base, paths + TOUCHED_AT)
    for _ in range(load(base, paths + TOUCHED) if load(base, paths + LOOKED) == 0 else 0):
        if is_far(base, load(base, offset)):
            fetch(base, home_of(base, load(base, offset), row, load(base, offset + 1)))
        offset += 2


@kernel
def expect_matches(base, outlook, paths, row):
    """The second step: without a match in one input there is nothing to look for in the others."""
    if load(base, load(base, paths + BUFFER) + KIND) == BAG:
        _expect_own(base, outlook, load(base, paths + BUFFER), row)
    leads = load(base, paths + LEADS)
    lead = load(base, paths + LEADS_AT)
    for _ in range(leads):
        index = load(base, lead + INDEX)
        if load(base, index + OPEN) != 0 and load(base, find(base, index, row, load(base, lead + KEY_AT))) == 0:
            return
        lead += LEAD_WORDS
    lead = load(base, paths + LEADS_AT)
    for _ in range(leads):
        index = load(base, lead + INDEX)
        if load(base, index + OPEN) != 0:
            rows = load(base, find(base, index, row, load(base, lead + KEY_AT)))
            match = row_of(base, load(base, lead + OTHER), rows & NEWEST)
            _want_row(base, outlook, match)
            if rows >> 32 > 1 or load(base, lead + FURTHER) != 0:
                _walk(base, outlook, lead, match, rows >> 32, 0)
        lead += LEAD_WORDS


@kernel
def _expect_own(base, outlook, buffer, row):
    """What a bag's row is found or linked by: itself, and the newest rows with its keys."""
    slot = seek(base, load(base, buffer + FINDER), mark_of(row_hash(base, buffer, row), 0), 0)
    if slot != 0:
        _want_row(base, outlook, row_of(base, buffer, number_of(load(base, slot))))
    index = load(base, buffer + INDEXES)
    while index != 0:
        if load(base, index + OPEN) != 0:
            rows = load(base, find(base, index, row, index + KEY))
            if rows != 0:
                _want_row(base, outlook, row_of(base, buffer, rows & NEWEST))
        index = load(base, index + FOLLOWING)


@kernel
def _walk(base, outlook, lead, row, left, before):
    end = load(base, outlook + WALK_END)
    if end - load(base, outlook + WALK) < _MOST_WALKS:
        walk = _walk_at(outlook, end)
        store(base, walk, lead)
        store(base, walk + _ROW, row)
        store(base, walk + _LEFT, left)
        store(base, walk + _BEFORE, before)
        store(base, outlook + WALK_END, end + 1)


@kernel
def _walk_at(outlook, number):
    return outlook + WANTED_AT + _MOST_WANTED + (number & (_MOST_WALKS - 1)) * _WALK_WORDS


@kernel
def go_on(base, outlook):
    """A further step of all walks: to the next row, to the keys that this one leads to, and to the rows that
    those of the row before lead to.
    """
    end = load(base, outlook + WALK_END)
    for number in range(load(base, outlook + WALK), end):
        store(base, outlook + WALK, number + 1)
        walk = _walk_at(outlook, number)
        lead, row, left = load(base, walk), load(base, walk + _ROW), load(base, walk + _LEFT)
        before = load(base, walk + _BEFORE)
        further, offset = load(base, lead + FURTHER), load(base, lead + FURTHER_AT)
        if before != 0:
            _expect_further(base, outlook, offset, further, before)
        if left == 0:
            continue
        following = 0
        if left > 1:
            position = link_of(base, row, load(base, load(base, lead + INDEX) + LINK))
            following = row_of(base, load(base, lead + OTHER), position)
            if following <= 0 or following >= load(base, USED):
                continue
            _want_row(base, outlook, following)
        for _ in range(further):
            want(base, outlook, home_of(base, load(base, load(base, offset) + TABLE), row, load(base, offset + KEY_AT)))
            offset += LEAD_WORDS
        if left > 2 or further != 0:
            _walk(base, outlook, lead, following, left - 1, row if further != 0 else 0)


@kernel
def _expect_further(base, outlook, offset, further, row):
    for _ in range(further):
        index = load(base, offset)
        if load(base, index + OPEN) != 0:
            rows = load(base, find(base, index, row, load(base, offset + KEY_AT)))
            if rows != 0:
                match = row_of(base, load(base, offset + OTHER), rows & NEWEST)
                _want_row(base, outlook, match)
                if rows >> 32 > 1:
                    _walk(base, outlook, offset, match, rows >> 32, 0)
        offset += LEAD_WORDS
