"""Which part a term belongs to: what `cqels.model.hash_partition` says, from the hash that the dictionary has of it."""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import load
from cqels.kernels.terms.term_table import HASH, ID_MASK, TAGGED, entry_at
from cqels.model.hash_partition import FACTOR, MASK, SHIFT


@kernel
def spread_of(base, dictionary, word):
    """A number for the word of a term, to be divided by the number of parts."""
    value = word * FACTOR
    if word & ~ID_MASK == TAGGED:
        value = load(base, entry_at(base, dictionary, word) + HASH)
    return value >> SHIFT & MASK
