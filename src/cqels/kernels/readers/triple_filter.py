"""Which of many triples can matter to anybody: those that fit a pattern whose condition does not refuse them.

    word   of a sieve
    0      patterns
    1      offset of the dictionary
    2 …    a row of three columns, for the triple that is looked at
    9 …    the patterns: subject, predicate, object (0 for any), offset of the program of the condition (0 for none)

Where Python would have to be asked, a condition refuses nothing: a sieve may let too much through, never too little.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS
from cqels.kernels.expressions.interpreter import holds
from cqels.kernels.expressions.registers import NO
from cqels.kernels.memory.arena import load, store

COUNT, DICTIONARY, ROW = 0, 1, 2
PATTERNS = ROW + COLUMNS + 3
CONDITION, PATTERN_WORDS = 3, 4


@kernel
def sift(base, sieve, triples, count, found):
    """Write for each of the triples at an address, to another, 1 if it gets through and 0 if not."""
    for number in range(count):
        store(found, number, 1 if _passes(base, sieve, triples + 24 * number) else 0)


@kernel
def _passes(base, sieve, triple):
    row = sieve + ROW
    for number in range(load(base, sieve + COUNT)):
        pattern = sieve + PATTERNS + number * PATTERN_WORDS
        if _fits(base, pattern, triple):
            condition = load(base, pattern + CONDITION)
            if condition == 0:
                return True
            for position in range(3):
                store(base, row + COLUMNS + position, load(triple, position))
            if holds(base, condition, row, load(base, sieve + DICTIONARY), 0) != NO:
                return True
    return False


@kernel
def _fits(base, pattern, triple):
    for position in range(3):
        word = load(base, pattern + position)
        if word != 0 and word != load(triple, position):
            return False
    return True
