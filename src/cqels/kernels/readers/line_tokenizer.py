"""Lines of N-Triples, N-Quads and timed N-Triples, from bytes straight to words.

A line that is surely valid, and whose terms are surely known, is taken; any other is left to Python as *odd*: escapes,
missing blanks, comments behind statements, rare forms of IRIs and language tags, several statements, and all faults.
So nothing is guessed: what a strict parser refuses is never taken.

A taken line is `subject predicate object [fourth] .`, the fourth an IRI or blank node (a graph) or a literal that is a
time: an integer, also a bare one, or a dateTime. The final dot may be missing after a time.

    word    of a line's record
    0–2     words of subject, predicate and object
    3       word of the graph, or the time in nanoseconds
    4       what the line is: EMPTY, TRIPLE, QUAD, TIMED or ODD
    5       where it begins in the block
"""

from __future__ import annotations

import numpy as np

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import load, store
from cqels.kernels.memory.byte_strings import byte, copy_text, find_byte, find_either, word, word_of
from cqels.kernels.terms.term_table import (
    CHECKED,
    LONGEST,
    SCRATCH,
    add,
    hash_of,
    is_checked,
    seek,
    set_checked,
)
from cqels.kernels.terms.xsd_lexical import (
    ASK,
    NOT_INLINE,
    XSD_DATE_TIME_STAMP,
    XSD_DERIVED,
    XSD_LENGTH,
    XSD_STRING,
    is_xsd,
    literal_word,
    read_date_time,
    xsd_type,
)
from cqels.model.ids import CODE_DATE_TIME, CODE_INTEGER
from cqels.model.terms import RDF

EMPTY, TRIPLE, QUAD, TIMED, ODD = range(5)
SUBJECT, PREDICATE, OBJECT, FOURTH, KIND, START = range(6)
RECORD_WORDS = 6

DONE, NO_ROOM, FULL = range(3)
"""Why `read_lines` came back: all is read, the records need more room, the arena is full."""

_IS_ODD, _IS_FULL = -1, -2
"""Instead of where a term ends: the line is odd, the arena is full."""

_RDF = RDF.encode()
_RDF_1, _RDF_2 = word_of(_RDF[8:16]), word_of(_RDF[16:24])  # the rest is common to many

SCHEME, IRI, AUTHORITY, LABEL, DIGIT, HEX, ALPHA, BLANK = (1 << bit for bit in range(8))
"""Classes of ASCII characters: where they may be in an IRI or a blank node's label."""


def _classes() -> np.ndarray:
    digits, hexes = "0123456789", "0123456789abcdefABCDEF"
    letters = "".join(chr(code) for code in range(128) if chr(code).isalpha())
    plain = letters + digits + "-._~!$&'()*+,;="
    classes = np.zeros(256, np.uint8)
    for members, flag in (
        (letters + digits + "+-.", SCHEME),
        (plain + ":@/", IRI),
        (plain, AUTHORITY),
        (letters + digits + "_.-", LABEL),
        (digits, DIGIT),
        (hexes, HEX),
        (letters, ALPHA),
        (" \t", BLANK),
    ):
        for member in members:
            classes[ord(member)] |= flag
    return classes


_CLASSES = _classes()


@kernel
def _is(address, classes):
    return _CLASSES[byte(address)] & classes != 0


# --- validity -------------------------------------------------------------------------------------------------------


@kernel
def character(address, position, end):
    """The code point and the length of the UTF-8 sequence at a position; length 0 if it is not valid."""
    first = byte(address + position)
    if first < 0x80:
        return first, 1
    if 0xC2 <= first < 0xE0:
        size, code, least = 2, first & 0x1F, 0x80
    elif 0xE0 <= first < 0xF0:
        size, code, least = 3, first & 0x0F, 0x800
    elif 0xF0 <= first < 0xF5:
        size, code, least = 4, first & 0x07, 0x10000
    else:
        return 0, 0
    if position + size > end:
        return 0, 0
    for more in range(1, size):
        follower = byte(address + position + more)
        if follower & 0xC0 != 0x80:
            return 0, 0
        code = code << 6 | follower & 0x3F
    if code < least or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return 0, 0
    return code, size


@kernel
def is_iri(address, start, end):
    """Whether the text between two brackets is surely an absolute IRI."""
    position = start
    if position == end or not _is(address + position, ALPHA):
        return False
    while position < end and _is(address + position, SCHEME):
        position += 1
    if position == end or byte(address + position) != 58:
        return False
    position += 1
    if position + 1 < end and byte(address + position) == 47 and byte(address + position + 1) == 47:
        position += 2
        first = position
        while position < end and _is(address + position, AUTHORITY):
            position += 1
        if position == first:
            return False
        if position < end and byte(address + position) == 58:
            position += 1
            port = position
            while position < end and _is(address + position, DIGIT):
                position += 1
            if position - port > 4:
                return False
        if position < end and byte(address + position) not in (47, 63, 35):
            return False
    fragment = False
    while position < end:
        code = byte(address + position)
        if _CLASSES[code] & IRI != 0 or code == 63:
            position += 1
        elif code == 35 and not fragment:
            fragment = True
            position += 1
        elif (
            code == 37 and position + 2 < end and _is(address + position + 1, HEX) and _is(address + position + 2, HEX)
        ):
            position += 3
        elif code >= 0x80:
            code, size = character(address, position, end)
            if size == 0 or not (0xA0 <= code < 0xD800 or 0xF900 <= code < 0xFDD0 or 0xFDF0 <= code < 0xFFF0):
                return False
            position += size
        else:
            return False
    return True


@kernel
def is_plain(address, start, end):
    """Whether the text between two quotes is valid and printed as it is; it has no backslash."""
    position = start
    while position < end:
        code = byte(address + position)
        if code < 0x80:
            if code < 32 or code == 127:
                return False
            position += 1
        else:
            code, size = character(address, position, end)
            if size == 0 or code == 0xFFFE or code == 0xFFFF:
                return False
            position += size
    return True


@kernel
def _language_end(address, start, end):
    """Where a language tag such as `en`, `en-us` or `zh-hant`, in lower case, ends; _IS_ODD for others."""
    position = start
    while position < end and 97 <= byte(address + position) <= 122:
        position += 1
    if position - start < 2 or position - start > 3:
        return _IS_ODD
    if byte(address + position) == 45:
        second = position + 1
        position = second
        while position < end and 97 <= byte(address + position) <= 122:
            position += 1
        if position - second != 2 and position - second != 4:
            return _IS_ODD
    return position if _is(address + position, BLANK) or byte(address + position) == 46 else _IS_ODD


# --- terms ----------------------------------------------------------------------------------------------------------


@kernel
def _term(base, dictionary, address, start, limit, end, prefix):
    """The term at a position: its word, and where it ends."""
    first = byte(address + start)
    text = address + start
    iri, iri_end, plain_end = 0, 0, 0  # what has to be valid, if the dictionary does not have the text
    if first == 60:
        iri, iri_end = start + 1, find_byte(address, start + 1, limit, end, 62)
        if iri_end == limit:
            return 0, _IS_ODD
        position = iri_end + 1
        length = position - start
    elif first == 34:
        found, close, stop, position = _literal(address, start, limit, end)
        if found != 0 or position < 0:
            return found, position
        plain_end, length = close, stop - start
        if byte(address + stop - 1) == 62:
            iri, iri_end = close + 4, stop - 1
    elif first == 95:
        position = _blank_end(address, start, limit, prefix)
        if position < 0:
            return 0, position
        length = position - start
        if prefix > 2:
            text = base + 8 * load(base, dictionary + SCRATCH)
            copy_text(address + start + 2, text + prefix, length - 2)
            length += prefix - 2
    else:
        return 0, _IS_ODD
    hashed = hash_of(base, dictionary, text, length)
    id = seek(base, dictionary, text, length, hashed)
    if id == 0 or not is_checked(base, dictionary, id):
        if iri != 0 and not is_iri(address, iri, iri_end):
            return 0, _IS_ODD
        if plain_end != 0 and not is_plain(address, start + 1, plain_end):
            return 0, _IS_ODD
        if id != 0:
            set_checked(base, dictionary, id)
        else:
            id = add(base, dictionary, text, length, hashed, CHECKED)
            if id == 0:
                return 0, _IS_FULL
    return id, position


@kernel
def _blank_end(address, start, limit, prefix):
    """Where a blank node ends, whose label must fit into the dictionary's scratch behind its scope."""
    if byte(address + start + 1) != 58:
        return _IS_ODD
    first = start + 2
    position = first
    while position < limit and _is(address + position, LABEL):
        position += 1
    length = position - first
    if length == 0 or length > 8 * LONGEST - prefix or not _is(address + position, BLANK):
        return _IS_ODD
    if byte(address + first) == 45 or byte(address + first) == 46 or byte(address + position - 1) == 46:
        return _IS_ODD
    return position


@kernel
def _literal(address, start, limit, end):
    """A literal at a position: its word if it is inline, where its value, the text to keep, and the literal end."""
    close = find_either(address, start + 1, limit, end, 34, 92)
    if close == limit or byte(address + close) == 92:
        return 0, 0, 0, _IS_ODD
    position = close + 1
    mark = byte(address + position)
    if mark == 64:
        position = _language_end(address, position + 1, limit)
        return 0, close, position, position
    if mark != 94:
        return 0, close, position, position
    first = position + 3
    last = _datatype_end(address, position, limit, end)
    if last < 0:
        return 0, 0, 0, _IS_ODD
    if is_xsd(address + first, last - first):
        code = xsd_type(address + first + XSD_LENGTH, last - first - XSD_LENGTH)
        if code == XSD_STRING:  # which is not written
            return 0, close, position, last + 1
        found = literal_word(address, start + 1, close, code)
        if found == ASK:
            return 0, 0, 0, _IS_ODD
        if found != NOT_INLINE:
            return found, close, last + 1, last + 1
    elif last - first > 24 and word(address + first + 8) == _RDF_1 and word(address + first + 16) == _RDF_2:
        return 0, 0, 0, _IS_ODD  # rdf:langString is no datatype
    return 0, close, last + 1, last + 1


@kernel
def _datatype_end(address, start, limit, end):
    """Where the bracket is that closes `^^<…>`, or _IS_ODD."""
    if byte(address + start + 1) != 94 or byte(address + start + 2) != 60:
        return _IS_ODD
    last = find_byte(address, start + 3, limit, end, 62)
    return last if last < limit else _IS_ODD


# --- times ----------------------------------------------------------------------------------------------------------


@kernel
def counted_time(address, start, end, unit):
    """Whether the text is an integer of at most 18 digits whose time fits in a word, and that time."""
    negative = start < end and byte(address + start) == 45
    if start < end and (negative or byte(address + start) == 43):
        start += 1
    if end == start or end - start > 18:
        return False, 0
    value = 0
    for position in range(start, end):
        digit = byte(address + position) - 48
        if digit < 0 or digit > 9:
            return False, 0
        value = value * 10 + digit
    if value > ((1 << 63) - 1) // unit:
        return False, 0
    return True, -value * unit if negative else value * unit


@kernel
def dated_time(address, start, end):
    """Whether the text is a dateTime whose nanoseconds since 1970 fit in a word, and these."""
    state, second, fraction, count, _, year = read_date_time(address, start, end)
    if state <= 0 or year == 0 or abs(second) > 9_000_000_000:
        return False, 0
    while count < 9:
        fraction *= 10
        count += 1
    return True, second * 1_000_000_000 + fraction


@kernel
def _time(address, start, limit, end, unit):
    """The time that a literal at a position states, and where it ends."""
    if byte(address + start) != 34:
        position = start + 1
        while _is(address + position, DIGIT):
            position += 1
        known, time = counted_time(address, start, position, unit)
        return time, position if known else _IS_ODD
    close = find_either(address, start + 1, limit, end, 34, 92)
    if close == limit or byte(address + close) == 92:
        return 0, _IS_ODD
    position = close + 1
    code = XSD_STRING
    if byte(address + position) == 94:
        first = position + 3
        last = _datatype_end(address, position, limit, end)
        if last < 0 or not is_xsd(address + first, last - first):
            return 0, _IS_ODD
        position = last + 1
        code = xsd_type(address + first + XSD_LENGTH, last - first - XSD_LENGTH)
    if code in (XSD_STRING, CODE_INTEGER) or code >= XSD_DERIVED:
        known, time = counted_time(address, start + 1, close, unit)
        if known:
            return time, position
    if code in (XSD_STRING, CODE_DATE_TIME, XSD_DATE_TIME_STAMP):
        known, time = dated_time(address, start + 1, close)
        if known:
            return time, position
    return 0, _IS_ODD


# --- lines ----------------------------------------------------------------------------------------------------------


@kernel
def _after_blanks(address, position):
    while _is(address + position, BLANK):
        position += 1
    return position


@kernel
def _line(base, dictionary, address, start, limit, end, record, unit, prefix):
    """Read the line between two positions, and say what it is, or _IS_FULL; its words go into its record.

    The byte at `limit` is the line's end, so that no loop over a class of characters needs to look for it.
    """
    first = byte(address + start)
    if first != 60 and first != 95:
        return _other_line(address, start, limit)
    kind, position, field = TRIPLE, start, SUBJECT
    while field <= FOURTH:
        first = byte(address + position)
        if field == FOURTH and first != 60 and first != 95:
            if first != 46:
                kind = TIMED
                found, position = _time(address, position, limit, end, unit)
                store(record, FOURTH, found)
        elif field == PREDICATE and first != 60:
            return ODD
        else:
            if field == FOURTH:
                kind = QUAD
            found, position = _term(base, dictionary, address, position, limit, end, prefix)
            store(record, field, found)
        if position < 0:
            return _IS_FULL if position == _IS_FULL else ODD
        if field < FOURTH and not _is(address + position, BLANK) and (field < OBJECT or byte(address + position) != 46):
            return ODD
        position = _after_blanks(address, position)
        field += 1
    if byte(address + position) == 46:
        position = _after_blanks(address, position + 1)
    elif kind != TIMED:
        return ODD
    if byte(address + position) == 13:
        position += 1
    return kind if position == limit else ODD


@kernel
def _other_line(address, start, limit):
    """A line that does not begin with a term: EMPTY if it has nothing but blanks or a comment in ASCII, else ODD."""
    position = _after_blanks(address, start)
    if byte(address + position) == 35:
        while position < limit and 32 <= byte(address + position) < 127:
            position += 1
    if byte(address + position) == 13:
        position += 1
    return EMPTY if position == limit else ODD


@kernel
def read_lines(base, dictionary, address, start, end, records, room, unit, prefix):
    """Read the lines of a block from `start` to `end`, just behind a newline, into records at an address.

    `unit` is how many nanoseconds an integer counts. The dictionary's scratch begins with `prefix` bytes: `_:` and what
    blank nodes' labels are to begin with. Gives why it came back, how many lines were read, and where the next begins.
    """
    position, lines = start, 0
    while position < end:
        if lines == room:
            return NO_ROOM, lines, position
        limit = find_byte(address, position, end, end, 10)
        record = records + 8 * RECORD_WORDS * lines
        kind = _line(base, dictionary, address, position, limit, end, record, unit, prefix)
        if kind == _IS_FULL:
            return FULL, lines, position
        if kind in (EMPTY, ODD):
            for field in range(KIND):
                store(record, field, 0)
        elif kind == TRIPLE:
            store(record, FOURTH, 0)
        store(record, KIND, kind)
        store(record, START, position)
        position = limit + 1
        lines += 1
    return DONE, lines, position
