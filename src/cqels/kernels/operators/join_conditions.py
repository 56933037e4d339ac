"""Conditions of a join: each is applied as soon as what it reads is bound, whatever the order of the probes.

A row for which a condition does not hold goes no further.  One that Python would have to be asked about goes on: the
SELECT behind the join has all conditions once more, and decides.

    word   of the conditions of a join
    0      conditions
    1      offset of the dictionary
    2 …    for each: its program; the bits of the join columns that it reads; those of the inputs that have the other
           columns that it reads; to how many rows it was applied, and how many of them it discarded
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.expressions.interpreter import holds
from cqels.kernels.expressions.registers import NO
from cqels.kernels.memory.arena import Arena, load, store, write_words

NUMBER, DICTIONARY, FIRST = range(3)
PROGRAM, COLUMNS, OWNERS, APPLIED, DISCARDED, CONDITION_WORDS = range(6)


class Condition(NamedTuple):
    """A program over the rows that a join puts out, and the columns that it reads."""

    program: int
    columns: frozenset[int]


def make_conditions(arena: Arena, conditions: Sequence[tuple[int, int, int]], dictionary: int) -> int:
    """Conditions as triples (program, bits of join columns, bits of inputs): their offset, 0 if there are none."""
    if not conditions:
        return 0
    words = [word for program, columns, owners in conditions for word in (program, columns, owners, 0, 0)]
    return write_words(arena, [len(conditions), dictionary, *words])


def read_conditions(arena: Arena, offset: int) -> list[tuple[int, int]]:
    """To how many rows each condition was applied, and how many of them it discarded."""
    if offset == 0:
        return []
    number = int(arena.words[offset + NUMBER])
    block = arena.array(offset + FIRST, number * CONDITION_WORDS).reshape(number, CONDITION_WORDS)
    return [(int(row[APPLIED]), int(row[DISCARDED])) for row in block]


@kernel
def all_hold(base, conditions, row, bound, visited, bound_before, visited_before):
    """Apply the conditions that have become ready since some columns were bound and some inputs visited."""
    offset = conditions + FIRST
    for _ in range(load(base, conditions + NUMBER)):
        if _is_ready(base, offset, bound, visited) and not _is_ready(base, offset, bound_before, visited_before):
            store(base, offset + APPLIED, load(base, offset + APPLIED) + 1)
            if holds(base, load(base, offset + PROGRAM), row, load(base, conditions + DICTIONARY), 0) == NO:
                store(base, offset + DISCARDED, load(base, offset + DISCARDED) + 1)
                return False
        offset += CONDITION_WORDS
    return True


@kernel
def completes(base, conditions, bound, visited, columns, number):
    """Whether a condition becomes ready when the input of a number is joined, which has these join columns."""
    offset = conditions + FIRST
    for _ in range(load(base, conditions + NUMBER)):
        if _is_ready(base, offset, bound | columns, visited | (1 << number)) and not _is_ready(
            base, offset, bound, visited
        ):
            return True
        offset += CONDITION_WORDS
    return False


@kernel
def _is_ready(base, condition, bound, visited):
    return load(base, condition + COLUMNS) & ~bound == 0 and load(base, condition + OWNERS) & ~visited == 0
