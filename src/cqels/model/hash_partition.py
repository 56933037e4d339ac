"""Terms in parts: which of so many parts a term belongs to, the same in every process.

The kernels know it from what they keep of a term (`cqels.kernels.terms.term_partition`); here it is computed from the
term itself.
"""

from __future__ import annotations

from pyoxigraph import Literal

from cqels.model.ids import inline_word
from cqels.model.terms import Term, text_of

FACTOR, LAST = -7046029254386353131, -4265267296055464877
SHIFT, MASK = 33, (1 << 31) - 1
"""The bits of a hash that tell the part."""


def part_of(term: Term, count: int) -> int:
    """The part that a term belongs to, of so many.

    >>> from pyoxigraph import NamedNode
    >>> part_of(NamedNode("http://ex.org/a"), 4), part_of(Literal(7), 4), part_of(Literal("é"), 4)
    (1, 1, 0)
    """
    word = inline_word(term) if isinstance(term, Literal) else None
    value = _hash(text_of(term).encode()) if word is None else _signed(word * FACTOR)
    return (value >> SHIFT & MASK) % count


def _hash(text: bytes) -> int:
    """What `cqels.kernels.memory.byte_strings.hash_text` gives."""
    value, size = _signed(len(text) * FACTOR), len(text)
    for start in range(0, size - 8, 8):
        value = _mixed(value, text[start : start + 8])
    value = _mixed(value, text[-8:])
    return _signed((value ^ value >> 32) * LAST)


def _mixed(value: int, more: bytes) -> int:
    value = _signed((value ^ int.from_bytes(more, "little", signed=len(more) == 8)) * FACTOR)
    return value ^ value >> 29


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
