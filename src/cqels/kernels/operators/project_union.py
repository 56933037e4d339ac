"""Union and projection: rows with their columns in other positions, 0 where a branch has no such column.

word   of a union
0      left to the engine
1      queue of the output
2      branches
3 …    for each branch: its queue, number of columns taken over, offset of pairs (where in its row, where in the output)
"""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS, WIDTH, add_row, row_at, said
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.memory.arena import Arena, load, store, write_words

OUT, BRANCHES, BRANCH = 1, 2, 3


def make_union(arena: Arena, out: int, branches: Sequence[tuple[int, Sequence[int]]]) -> int:
    """Put queues together: for each its offset, and the output column of each of its columns, -1 to leave it out."""
    union = arena.take(BRANCH + 3 * len(branches))
    words = arena.array(union, BRANCH + 3 * len(branches))
    words[OUT], words[BRANCHES] = out, len(branches)
    for number, (queue, columns) in enumerate(branches):
        pairs = [
            word
            for column, output in enumerate(columns)
            if output >= 0
            for word in (COLUMNS + column, COLUMNS + output)
        ]
        at = BRANCH + 3 * number
        words[at : at + 3] = queue, len(pairs) // 2, write_words(arena, pairs)
    return union


def make_project(arena: Arena, out: int, queue: int, columns: Sequence[int]) -> int:
    """Keep some columns: `columns[i]` is the column of the input that becomes column i of the output, -1 for none.

    It is a union of one branch, and is stepped as such.
    """
    return make_copied(arena, out, queue, [COLUMNS + column if column >= 0 else -1 for column in columns])


def make_copied(arena: Arena, out: int, queue: int, offsets: Sequence[int]) -> int:
    """A projection of any words of a row: `offsets[i]` is the one that becomes column i of the output, -1 for none."""
    pairs = [word for output, offset in enumerate(offsets) if offset >= 0 for word in (offset, COLUMNS + output)]
    union = arena.take(BRANCH + 3)
    arena.words[union + OUT : union + BRANCH + 3] = out, 1, queue, len(pairs) // 2, write_words(arena, pairs)
    return union


@kernel
def step_union(base, union):
    """Work off the changes of all branches: False if the arena is full."""
    out = load(base, union + OUT)
    width = load(base, out + WIDTH)
    for branch in range(load(base, union + BRANCHES)):
        at = union + BRANCH + 3 * branch
        queue = load(base, at)
        for number in range(load(base, queue + QUEUED)):
            row, target = row_at(base, queue, number), add_row(base, out)
            if target == 0:
                return False
            for word in range(COLUMNS):
                store(base, target + word, load(base, row + word))
            for word in range(COLUMNS, width):
                store(base, target + word, 0)
            pair = load(base, at + 2)
            for _ in range(load(base, at + 1)):
                store(base, target + load(base, pair + 1), load(base, row + load(base, pair)))
                pair += 2
    return True


@kernel
def union_step(base, operator, now):
    """The step as the scheduler takes it."""
    return said(step_union(base, operator))
