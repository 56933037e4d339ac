"""What Python computes for kernels about terms that no register holds: sort keys, exact order, text (sort_keys.py)."""

from __future__ import annotations

import ctypes
from decimal import Decimal
from fractions import Fraction

from pyoxigraph import Literal

from cqels.kernels.containers.hash_table import make_table, put
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.sort_keys import (
    ASKED,
    CLASS_DATE,
    CLASS_DATE_TIME,
    CLASS_DURATION,
    CLASS_NUMBER,
    CLASS_TIME,
    DICTIONARY,
    ENDS,
    LORE,
    LORE_WORDS,
    REST_BITS,
    TERMS_WORDS,
)
from cqels.model import ids
from cqels.model.datetimes import Date, DateTime, Duration, Time, duration_key
from cqels.model.numbers import Number, is_nan
from cqels.model.terms import XSD_DECIMAL, XSD_INTEGER, Term, text_of
from cqels.model.values import value_of


def make_terms(arena: Arena, dictionary: int) -> int:
    """A block of terms, which all operators of an engine share, beside the dictionary at an offset."""
    terms = arena.take(TERMS_WORDS)
    arena.words[terms + DICTIONARY] = dictionary
    arena.words[terms + LORE] = make_table(arena.base, 1, LORE_WORDS)
    for number, datatype in enumerate((XSD_INTEGER, XSD_DECIMAL)):
        end = f'"^^{datatype}'.encode()
        offset = terms + ENDS + 8 * number
        arena.words[offset] = len(end)
        _write(arena, offset + 1, end)
    return terms


def answer_term(dictionary: ArenaDictionary, terms: int) -> None:
    """Answer the question that a step gave back: put sort key, exact order and text of the term into the cache."""
    arena = dictionary.arena
    id = int(arena.words[terms + ASKED])
    term = ids.inline_literal(id) if id < 0 else dictionary.term(id)
    if id > 0:
        dictionary.register(id)  # which settles it
    cached = int(put(arena.base, int(arena.words[terms + LORE]), terms + ASKED))
    if arena.words[cached + 5]:
        return
    first, second, exact = _key_and_order(term)
    text = text_of(term).encode()
    for part, data in ((2, exact), (4, text)):
        offset = arena.take((len(data) + 7) // 8 + 1)
        _write(arena, offset, data)
        arena.words[cached + part], arena.words[cached + part + 1] = offset, len(data)
    arena.words[cached], arena.words[cached + 1] = first, second


def _write(arena: Arena, offset: int, data: bytes) -> None:
    ctypes.memmove(arena.base + 8 * offset, data, len(data))


def _key_and_order(term: Term) -> tuple[int, int, bytes]:
    """Key and exact order of a literal whose value is in its text, or of one that it is compared with."""
    value = value_of(term) if isinstance(term, Literal) else None
    match value:
        case Number() if not is_nan(value) and abs(value.value) != float("inf"):
            return *_rational_words(CLASS_NUMBER, Fraction(value.value)), _ordered_bytes(value.value)
        case DateTime():
            return *_rational_words(CLASS_DATE_TIME, Fraction(value.instant)), _ordered_bytes(value.instant)
        case Date():
            return *_rational_words(CLASS_DATE, Fraction(value.instant)), _ordered_bytes(value.instant)
        case Time():
            return *_rational_words(CLASS_TIME, Fraction(value.instant)), _ordered_bytes(value.instant)
        case Duration():
            seconds, months = duration_key(value)
            return (CLASS_DURATION - 8) << 60, 1, _ordered_bytes(seconds) + _ordered_bytes(months)
        case _:
            return 0, 0, b""


def _rational_words(kind: int, value: Fraction) -> tuple[int, int]:
    largest = Fraction(2**1024 - 2**971)
    if abs(value) > largest:
        whole = 0x7FEF_FFFF_FFFF_FFFF if value > 0 else -(0x7FF0 << 48)
        rest, more = ((1 << REST_BITS) - 1, 1) if value > 0 else (0, 1)
    else:
        near = float(value)
        whole = _ordered(near)
        if Fraction(near) > value:
            whole -= 1
            near = _from_ordered(whole)
        step = Fraction(_from_ordered(whole + 1)) - Fraction(near) if whole + 1 < 0x7FF0 << 48 else Fraction(2) ** 971
        parts = (value - Fraction(near)) / step * (1 << REST_BITS)
        rest, more = int(parts), int(parts != int(parts))
    first = ((kind - 8) << 60) + ((whole >> 4) + (1 << 59))
    return first, (whole & 15) << 59 | rest << 1 | more


def _ordered(value: float) -> int:
    bits = ids.double_bits(value)
    return -(bits & 2**63 - 1) if bits < 0 else bits


def _from_ordered(number: int) -> float:
    return -ids.bits_double(-number) if number < 0 else ids.bits_double(number)


def _ordered_bytes(value: int | Decimal | float) -> bytes:
    """Bytes in the order of exact numbers: sign, power of ten, digits; nothing of one is the beginning of another."""
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return b"\x01"
    size = len(text) + exponent  # the value is 0.text times 10^size
    data = (size + 2**63).to_bytes(8, "big") + text.rstrip("0").encode() + b"\x00"
    return b"\x00" + bytes(255 - byte for byte in data) if sign else b"\x02" + data
