"""Tables that the indexes of several buffers are in: they open, close, grow and are written anew beside each other."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from cqels.kernels.containers import key_index, row_storage
from cqels.kernels.containers.delta_queue import COLUMNS, COUNT, add_row, clear, make_queue, row_at
from cqels.kernels.containers.key_index import make_table
from cqels.kernels.containers.row_buffer import add_index, change, evict, make_bag, make_ring
from cqels.kernels.containers.row_storage import link_of, probe, row_of
from cqels.kernels.memory.arena import Arena, take
from cqels.kernels.operators import join, join_prefetch
from cqels.kernels.operators.distinct import make_distinct, step_distinct
from cqels.kernels.operators.join import step_join
from cqels.kernels.operators.join_prefetch import OUTLOOK_WORDS, bring, expect_keys, expect_matches, go_on
from cqels.kernels.operators.join_setup import Input, make_join

SIZE = 1 << 24


class Sides:
    """Two buffers of two columns whose indexes on the first ones are in one table, beside plain lists of their rows."""

    def __init__(self, kind: str, *, size: int = SIZE) -> None:
        self.arena = Arena(size=size)
        self.table = make_table(self.arena, 1)
        make = make_ring if kind == "ring" else make_bag
        self.buffers = [make(self.arena, 2), make(self.arena, 2)]
        self.indexes = [add_index(self.arena, buffer, [0], table=self.table) for buffer in self.buffers]
        self.rows: list[list[tuple[int, int]]] = [[], []]
        self.row = self.arena.take(COLUMNS + 2)
        self.offsets = self.arena.take(1)
        self.arena.words[self.offsets] = COLUMNS

    def write(self, weight: int, columns: tuple[int, int]) -> int:
        self.arena.words[self.row : self.row + COLUMNS + 2] = (weight, 1, 2, 1, *columns)
        return self.row

    def add(self, side: int, *columns: int) -> int:
        one, two = columns
        self.rows[side].append((one, two))
        return int(change(self.arena.base, self.buffers[side], self.write(1, (one, two))))

    def leave(self, side: int) -> None:
        """The oldest row leaves."""
        gone = self.rows[side].pop(0)
        if self.arena.words[self.buffers[side] + row_storage.KIND] == row_storage.RING:
            evict(self.arena.base, self.buffers[side])
        else:
            assert change(self.arena.base, self.buffers[side], self.write(-1, gone)) == -1

    def found(self, side: int, key: int) -> Counter[tuple[int, int]] | None:
        """The rows of a key by the index, or None if it is better read row by row."""
        buffer, at = self.buffers[side], self.indexes[side]
        offset = int(probe(self.arena.base, buffer, at, self.write(1, (key, 0)), self.offsets))
        if offset == 0:
            return None
        word, rows = int(self.arena.words[offset]), Counter[tuple[int, int]]()
        position = word & key_index.NEWEST
        for _ in range(word >> 32):
            row = int(row_of(self.arena.base, buffer, position))
            one, two = self.arena.array(row + COLUMNS, 2).tolist()
            rows[one, two] += int(self.arena.words[row])
            position = int(link_of(self.arena.base, row, self.arena.words[at + key_index.LINK]))
        return rows

    def check(self, side: int) -> None:
        for key in {key for key, _ in self.rows[side]} | {10**9}:
            assert self.found(side, key) == Counter(row for row in self.rows[side] if row[0] == key)

    def is_open(self) -> list[bool]:
        return [bool(self.arena.words[at + key_index.OPEN]) for at in self.indexes]


@pytest.mark.parametrize("kind", ["ring", "bag"])
def test_indexes_open_and_close_beside_each_other(kind: str) -> None:
    sides = Sides(kind)
    for number in range(30):
        sides.add(0, 1 + number % 7, number + 1)
        sides.add(1, 1 + number % 5, number + 1)
    assert sides.is_open() == [False, False]
    sides.check(0)
    assert sides.is_open() == [True, False]
    sides.check(1)
    assert sides.is_open() == [True, True]
    for number in range(1000):  # rows come and go on one side, and nobody asks it
        sides.add(1, 1 + number % 11, 100 + number)
        sides.leave(1)
        assert sides.found(0, 3) == Counter(row for row in sides.rows[0] if row[0] == 3)
    assert sides.is_open() == [True, False]
    sides.check(0)
    sides.check(1)
    assert sides.is_open() == [True, True]
    for side in (0, 1):
        for number in range(1000):
            sides.add(side, 1 + number % 11, 2000 + number)
            sides.leave(side)
    assert sides.is_open() == [False, False]
    assert sides.arena.words[sides.table + key_index.DATA] == 0
    sides.check(1)
    sides.check(0)


@pytest.mark.parametrize("kind", ["ring", "bag"])
def test_a_table_grows_and_is_written_anew_with_the_rows_of_all(kind: str) -> None:
    sides, random = Sides(kind), Random(3)
    for number in range(20):
        sides.add(1, 1 + number % 6, number + 1)
    for number in range(5000):
        sides.add(0, number + 1, 1)
        if number % 100 == 50:
            sides.check(1)
            assert sides.found(0, number) == Counter({(number, 1): 1})
    assert sides.arena.words[sides.table + key_index.LAST] + 1 >= 8192
    while len(sides.rows[0]) > 50:
        sides.leave(0)
    for number in range(5000):
        sides.add(0, 10_000 + number, 1 + random.randrange(3))
        sides.leave(0)
        if number % 100 == 50:
            sides.check(1)
            assert sides.found(0, 10_000 + number) is not None
    sides.check(0)
    assert sides.arena.words[sides.table + key_index.LAST] < 1024  # keys that no row has went


def test_a_bag_written_close_together_keeps_its_side() -> None:
    sides = Sides("bag")
    for number in range(500):
        sides.add(0, 1 + number % 20, number + 1)
        sides.add(1, 1 + number % 20, number + 1)
    sides.check(0)
    sides.check(1)
    while len(sides.rows[0]) > 20:
        sides.leave(0)
    assert sides.is_open() == [False, True]
    sides.check(1)
    sides.check(0)


@pytest.mark.parametrize("kind", ["ring", "bag"])
def test_a_full_arena_leaves_the_others_right(kind: str) -> None:
    """An index that has no room is not open, and the one beside it still says the truth."""
    sides = Sides(kind, size=1 << 16)
    for number in range(9):
        sides.add(0, number + 1, 1)
    sides.check(0)
    number = 1
    while sides.add(1, number, 1) != -2:
        number += 1
    while take(sides.arena.base, 8) != 0:
        pass
    assert sides.found(1, 1) is None
    assert sides.is_open() == [True, False]
    sides.check(0)


def test_a_key_may_begin_with_nothing() -> None:
    """A word 0 at the start of a key is a word as any other: the slot is in use."""
    sides = Sides("ring")
    for number in range(40):
        sides.add(0, number % 3, number + 1)
    sides.check(0)
    for _ in range(35):
        sides.leave(0)
        sides.add(0, 0, 1)
    sides.check(0)
    assert sides.arena.words[sides.table + key_index.USED] <= 4


@pytest.mark.parametrize("freshness", [False, True])
def test_a_key_without_words(freshness: bool) -> None:
    arena = Arena(size=SIZE)
    queue, out = (int(make_queue(arena.base, 0)) for _ in range(2))
    distinct = make_distinct(arena, out, queue, freshness=freshness)
    for weight, rows in [(1, 1), (1, 0), (-1, 0), (-1, 1)]:
        clear(arena.base, queue)
        clear(arena.base, out)
        arena.words[int(add_row(arena.base, queue)) : int(arena.words[queue + 3]) + 4] = (weight, 5, 5, 5)
        assert step_distinct(arena.base, distinct)
        assert arena.words[out + COUNT] == rows


# --- joins


def made(columns: list[tuple[int, ...]], *, kind: str = "bag") -> tuple[Arena, int, list[int], int]:
    arena = Arena(size=SIZE)
    out = int(make_queue(arena.base, 1 + max(column for own in columns for column in own)))
    queues = [int(make_queue(arena.base, len(own))) for own in columns]
    make = make_ring if kind == "ring" else make_bag
    inputs = [Input(make(arena, len(own)), own, queue) for own, queue in zip(columns, queues, strict=True)]
    return arena, make_join(arena, out, inputs), queues, out


def tables(arena: Arena, offset: int) -> list[set[int]]:
    """The tables of the indexes of each input."""
    found = []
    for own in arena.array(offset + join.INPUT, int(arena.words[offset + join.INPUTS])):
        probes = arena.array(int(arena.words[own + join.PROBES_AT]), 3 * int(arena.words[own + join.PROBES]))
        found.append({int(arena.words[at + key_index.TABLE]) for at in probes[::3]})
    return found


def test_which_indexes_are_in_one_table() -> None:
    star = tables(*made([(0, 1), (0, 2), (0, 3)])[:2])
    assert star[0] == star[1] == star[2]
    assert len(star[0]) == 1
    first, middle, last = tables(*made([(0, 1), (1, 2), (2, 3)])[:2])
    assert middle == first | last
    assert len(middle) == 2
    in_order, turned = tables(*made([(0, 1, 2), (1, 0, 3)])[:2])
    assert in_order.isdisjoint(turned)  # the words of their keys are in another order


def feed(arena: Arena, offset: int, queues: list[int], out: int, number: int, weight: int, columns: list[int]) -> int:
    for queue in [*queues, out]:
        clear(arena.base, queue)
    row = int(add_row(arena.base, queues[number]))
    arena.words[row : row + COLUMNS + len(columns)] = (weight, 1, 1, 1, *columns)
    assert step_join(arena.base, offset)
    return sum(int(arena.words[row_at(arena.base, out, at)]) for at in range(int(arena.words[out + COUNT])))


def test_more_indexes_than_a_line_has_room_for() -> None:
    """A star of nine inputs: an entry is to be in one line, so there are two tables."""
    arena, offset, queues, out = made([(0, number) for number in range(1, 10)])
    found = tables(arena, offset)
    assert len(set().union(*found)) == 2
    assert all(len(each) == 1 for each in found)
    for number in range(8):
        for at in range(20):
            assert feed(arena, offset, queues, out, number, 1, [1 + at, 7]) == 0
    assert feed(arena, offset, queues, out, 8, 1, [5, 7]) == 1
    assert feed(arena, offset, queues, out, 3, 1, [5, 8]) == 1
    assert feed(arena, offset, queues, out, 8, -1, [5, 7]) == -2


def test_two_joins_over_one_buffer() -> None:
    """The second join finds the index of the first, in its table; its own other side has a table of its own."""
    arena = Arena(size=SIZE)
    shared, queue = make_bag(arena, 2), int(make_queue(arena.base, 2))
    others = [int(make_queue(arena.base, 2)) for _ in range(2)]
    outs = [int(make_queue(arena.base, 3)) for _ in range(2)]
    offsets = [
        make_join(
            arena,
            outs[number],
            [Input(shared, (0, 1), queue, apply=number == 1), Input(make_bag(arena, 2), (0, 2), others[number])],
        )
        for number in range(2)
    ]
    one, two = (tables(arena, offset) for offset in offsets)
    assert one[0] == one[1] == two[0]
    assert two[1].isdisjoint(one[1])
    random, sums, bags = Random(5), [0, 0], [Counter[int](), Counter[int](), Counter[int]()]
    for _ in range(400):
        for each in [queue, *others, *outs]:
            clear(arena.base, each)
        side, key = random.randrange(3), random.randint(1, 9)
        bags[side][key] += 1
        row = int(add_row(arena.base, [queue, *others][side]))
        arena.words[row : row + COLUMNS + 2] = (1, 1, 1, 1, key, 1)
        for number, offset in enumerate(offsets):
            assert step_join(arena.base, offset)
            sums[number] += sum(
                int(arena.words[row_at(arena.base, outs[number], at)])
                for at in range(int(arena.words[outs[number] + COUNT]))
            )
        for number in (0, 1):
            assert sums[number] == sum(bags[0][key] * bags[1 + number][key] for key in bags[0])


@pytest.mark.parametrize("kind", ["ring", "bag"])
@pytest.mark.parametrize("columns", [[(0, 1), (0, 2), (0, 3)], [(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 0, 2), (2,)]])
def test_looking_ahead_changes_nothing(kind: str, columns: list[tuple[int, ...]]) -> None:
    """The same rows come out whether coming changes were looked at or not, even if they never come."""
    random = Random(7)
    present: list[list[list[int]]] = [[] for _ in columns]
    changes: list[tuple[int, int, list[int]]] = []
    for _ in range(1500):
        number = random.randrange(len(columns))
        leaving = present[number] and (len(present[number]) > 150 or random.random() < 0.3)
        if leaving:
            row = present[number].pop(0)
        else:
            row = [random.randint(1, 12) for _ in columns[number]]
            present[number].append(row)
        changes.append((number, -1 if leaving else 1, row))
    plain, looked = made(columns, kind=kind), made(columns, kind=kind)
    arena, offset = looked[:2]
    outlook, scratch = arena.take(OUTLOOK_WORDS), arena.take(16)

    def paths(number: int, row: list[int]) -> int:
        arena.words[scratch : scratch + COLUMNS + len(row)] = (1, 1, 1, 1, *row)
        return int(arena.words[int(arena.words[offset + join.INPUT + number]) + join.PATHS])

    for at, change_ in enumerate(changes):
        if at % 3 == 0:
            go_on(arena.base, outlook)
        for step, distance in ((expect_matches, random.randrange(20)), (expect_keys, random.randrange(40))):
            number, _, row = changes[(at + distance) % len(changes)]
            step(arena.base, outlook, paths(number, row), scratch)
        if at % 3 == 1:
            bring(arena.base, outlook)
        assert feed(*looked, *change_) == feed(*plain, *change_)
    assert arena.words[outlook + join_prefetch.WALK_END] > 0
