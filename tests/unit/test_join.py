"""The join family against naive recomputation: after every step the sum of what came out is the bag computed anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqels.kernels.containers import key_index, row_storage
from cqels.kernels.containers.delta_queue import (
    ALWAYS,
    COLUMNS,
    COUNT,
    NEVER,
    WIDTH,
    add_row,
    clear,
    make_queue,
    row_at,
)
from cqels.kernels.containers.row_buffer import add_index, change, evict, make_bag, make_ring
from cqels.kernels.containers.row_storage import probe, row_of
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators import join, outer_semi_anti_join
from cqels.kernels.operators.distinct import make_distinct, step_distinct
from cqels.kernels.operators.join import step_join
from cqels.kernels.operators.join_setup import Input, make_join, read_orders, set_order
from cqels.kernels.operators.outer_semi_anti_join import (
    ANTI_JOIN,
    LEFT_JOIN,
    MINUS,
    SEMI_JOIN,
    make_negation,
    step_negation,
)
from cqels.kernels.operators.project_union import make_project, make_union, step_union

SIZE = 1 << 24
Row = tuple[int, ...]
"""Time, number, oldest, columns: a row without its weight."""
Bag = Counter[Row]
NO_ELEMENT = (NEVER, -1, ALWAYS)


# --- plain Python: what must come out


def joined_stamps(one: Row, other: Row) -> Row:
    return (*max(one[:2], other[:2]), min(one[2], other[2]))


def compatible(one: dict[int, int], other: dict[int, int]) -> bool:
    return all(one[column] == other[column] for column in one.keys() & other.keys())


def bound(row: Row, columns: Iterable[int]) -> dict[int, int]:
    return {column: value for column, value in zip(columns, row[3:], strict=True) if value != 0 and column >= 0}


def naive_join(bags: list[Bag], columns: list[tuple[int, ...]], width: int) -> Bag:
    found: Bag = Counter({(*NO_ELEMENT, *(0,) * width): 1})
    for bag, mapping in zip(bags, columns, strict=True):
        before, found = found, Counter()
        for (partial, weight), (row, times) in product(before.items(), bag.items()):
            solution = bound(partial, range(width))
            if all(
                value == 0 or solution.setdefault(at, value) == value
                for at, value in zip(mapping, row[3:], strict=True)
            ):
                values = (solution.get(column, 0) for column in range(width))
                found[(*joined_stamps(partial, row), *values)] += weight * times
    return found


def naive_negation(mode: int, left: Bag, right: Bag, columns: tuple[int, ...], width: int, out: int) -> Bag:
    found: Bag = Counter()
    for row, times in left.items():
        solution = bound(row, range(width))
        matches = []
        for other, weight in right.items():
            more = bound(other, columns)
            if compatible(solution, more) and (mode != MINUS or solution.keys() & more.keys()):
                matches.append((other, weight, solution | more))
        if mode == LEFT_JOIN:
            for other, weight, merged in matches:
                stamps = joined_stamps(row, other)
                found[(*stamps, *(merged.get(column, 0) for column in range(out)))] += times * weight
            if not matches:
                found[row + (0,) * (out - width)] += times
        elif bool(matches) == (mode == SEMI_JOIN):
            found[row] += times
    return found


def naive_distinct(bag: Bag, freshness: bool) -> Bag:
    newest: dict[Row, Row] = {}
    for row in bag:
        newest[row[3:]] = max(newest.get(row[3:], row[:3]), row[:3]) if freshness else NO_ELEMENT
    return Counter({stamps + columns: 1 for columns, stamps in newest.items()})


# --- the operators under test


@dataclass
class Harness:
    """An operator with its queues in an arena, and the bags that have gone in and come out."""

    widths: list[int]
    out_width: int
    build: Callable[[Arena, list[int], int], int]
    step: Callable[[int, int], bool]
    arena: Arena = field(default_factory=lambda: Arena(size=SIZE))

    def __post_init__(self) -> None:
        self.queues = [int(make_queue(self.arena.base, width)) for width in self.widths]
        self.out = int(make_queue(self.arena.base, self.out_width))
        self.operator = self.build(self.arena, self.queues, self.out)
        self.bags: list[Bag] = [Counter() for _ in self.widths]
        self.sum: Bag = Counter()

    def tick(self, changes: list[tuple[int, int, Row]]) -> list[Row]:
        for queue in [*self.queues, self.out]:
            clear(self.arena.base, queue)
        for number, weight, row in changes:
            push(self.arena, self.queues[number], weight, row)
            self.bags[number][row] += weight
            if self.bags[number][row] == 0:
                del self.bags[number][row]
        assert self.step(self.arena.base, self.operator)
        return pull(self.arena, self.out)

    def follow(self, out: list[Row]) -> Bag:
        for weight, *row in out:
            self.sum[tuple(row)] += weight
        return Counter({row: weight for row, weight in self.sum.items() if weight != 0})

    def moved(self) -> Harness:
        """The same operator in another arena, from a snapshot."""
        other = Harness.__new__(Harness)
        other.__dict__.update(self.__dict__)
        other.arena = Arena(size=2 * SIZE)
        other.arena.restore(self.arena.snapshot())
        other.bags, other.sum = [Counter(bag) for bag in self.bags], Counter(self.sum)
        return other


def push(arena: Arena, queue: int, weight: int, row: Row) -> None:
    offset = int(add_row(arena.base, queue))
    arena.words[offset : offset + 1 + len(row)] = (weight, *row)


def pull(arena: Arena, queue: int) -> list[Row]:
    width = int(arena.words[queue + WIDTH])
    offsets = [int(row_at(arena.base, queue, number)) for number in range(int(arena.words[queue + COUNT]))]
    return [tuple(int(word) for word in arena.array(offset, width)) for offset in offsets]


@st.composite
def histories(
    draw: st.DrawFn, widths: list[int], nullable: list[set[int]], *, fifo: bool = False, values: int = 3
) -> Any:
    """Ticks of changes: rows come, often twice, and rows that are there go."""
    present: list[list[Row]] = [[] for _ in widths]
    ticks: list[list[tuple[int, int, Row]]] = []
    clock = 0
    for _ in range(draw(st.integers(1, 12))):
        changes: list[tuple[int, int, Row]] = []
        for _ in range(draw(st.integers(0, 5))):
            clock += draw(st.integers(0, 1))
            number = draw(st.integers(0, len(widths) - 1))
            rows = present[number]
            if rows and draw(st.integers(0, 2)) == 0:
                row = rows.pop(0 if fifo else draw(st.integers(0, len(rows) - 1)))
                changes.append((number, -1, row))
            else:
                columns = (
                    draw(st.integers(0 if column in nullable[number] else 1, values))
                    for column in range(widths[number])
                )
                row = (clock, draw(st.integers(0, 1)), clock - draw(st.integers(0, 1)), *columns)
                rows.append(row)
                changes.append((number, 1, row))
        ticks.append(changes)
    return ticks


def many(widths: list[int], nullable: list[set[int]], *, fifo: bool = False) -> Any:
    """A history with enough rows for indexes to be made, to grow, and to be asked."""
    random = Random(1)
    present: list[list[Row]] = [[] for _ in widths]
    ticks: list[list[tuple[int, int, Row]]] = []
    for clock in range(12):
        changes: list[tuple[int, int, Row]] = []
        for _ in range(12 * len(widths)):
            number = random.randrange(len(widths))
            rows = present[number]
            if len(rows) > 20 and random.random() < 0.6:
                changes.append((number, -1, rows.pop(0 if fifo else random.randrange(len(rows)))))
            else:
                values = (
                    0 if at in nullable[number] and random.random() < 0.2 else random.randint(1, 9)
                    for at in range(widths[number])
                )
                rows.append((clock, random.randrange(9), clock - random.randrange(2), *values))
                changes.append((number, 1, rows[-1]))
        ticks.append(changes)
    return ticks


def tables(arena: Arena, *offsets: int) -> list[bool]:
    """Of all indexes of some buffers, whether they have a table."""
    found = []
    for buffer in offsets:
        at = int(arena.words[buffer + row_storage.INDEXES])
        while at != 0:
            found.append(bool(arena.words[at + key_index.OPEN]))
            at = int(arena.words[at + key_index.FOLLOWING])
    return found


def check(harness: Harness, ticks: Any, expected: Callable[[list[Bag]], Bag]) -> Harness:
    """Law: after every tick the sum of the output changes is the operator applied to the sum of the input changes."""
    other = None
    for number, changes in enumerate(ticks):
        if number == len(ticks) // 2:
            other = harness.moved()
        out = harness.tick(changes)
        assert harness.follow(out) == expected(harness.bags)
        if other is not None:
            assert other.tick(changes) == out
    return harness


def make_buffer(arena: Arena, kind: str, columns: int) -> int:
    if kind == "bag":
        return make_bag(arena, columns, room=1)
    return make_ring(arena, columns, room=1, bare=kind == "bare")


def timeless(ticks: Any) -> Any:
    """The same history, of rows that came from no element."""
    return [[(number, weight, NO_ELEMENT + row[3:]) for number, weight, row in changes] for changes in ticks]


def join_harness(
    columns: list[tuple[int, ...]], nullable: list[set[int]], kinds: list[str], *, scan: bool = False
) -> Harness:
    def build(arena: Arena, queues: list[int], out: int) -> int:
        inputs = [
            Input(make_buffer(arena, kind, len(own)), own, queue, frozenset(empty))
            for kind, own, queue, empty in zip(kinds, columns, queues, nullable, strict=True)
        ]
        return make_join(arena, out, inputs)

    width = 1 + max(column for own in columns for column in own)
    return Harness([len(own) for own in columns], width, build, step_join)


SHAPES: dict[str, tuple[list[tuple[int, ...]], list[set[int]]]] = {
    "two": ([(0, 1), (1, 2)], [set(), set()]),
    "star": ([(0, 1), (0, 2), (0, 3)], [set(), set(), set()]),
    "chain": ([(0, 1), (1, 2), (2, 3)], [set(), set(), set()]),
    "cycle of four": ([(0, 1), (1, 2), (2, 3), (3, 0)], [set(), set(), set(), set()]),
    "clique of five": ([(0, 1), (1, 2), (2, 0), (0, 3), (1, 3)], [set()] * 5),
    "cross product": ([(0,), (1,), (0, 2)], [set(), set(), set()]),
    "two keys": ([(0, 1, 2), (1, 0, 3)], [set(), set()]),
    "same column twice": ([(0, 0, 1), (1, 0)], [set(), set()]),
    "nullable": ([(0, 1), (1, 2), (0, 2)], [{1}, {0, 1}, set()]),
    "nullable on one side": ([(0, 1), (1, 2)], [{1}, set()]),
    "nothing certain": ([(0, 1), (0, 1), (1,)], [{0, 1}, {0, 1}, {0}]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["ring", "bag", "bare"])
@settings(max_examples=10)
@given(data=st.data())
def test_join(shape: str, kind: str, data: st.DataObject) -> None:
    columns, nullable = SHAPES[shape]
    ticks = data.draw(histories([len(own) for own in columns], nullable, fifo=kind != "bag"))
    if kind == "bare":
        ticks = timeless(ticks)
    harness = join_harness(columns, nullable, [kind] * len(columns))
    width = harness.out_width
    check(harness, ticks, lambda bags: naive_join(bags, columns, width))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["ring", "bag", "bare"])
def test_join_through_indexes(shape: str, kind: str) -> None:
    columns, nullable = SHAPES[shape]
    harness = join_harness(columns, nullable, [kind] * len(columns))
    ticks = many([len(own) for own in columns], nullable, fifo=kind != "bag")
    if kind == "bare":
        ticks = timeless(ticks)
    check(harness, ticks, lambda bags: naive_join(bags, columns, harness.out_width))
    offsets = [int(harness.arena.words[harness.operator + join.INPUT + number]) for number in range(len(columns))]
    found = tables(harness.arena, *(int(harness.arena.words[offset + join.BUFFER]) for offset in offsets))
    assert any(found) == (shape != "nothing certain")


@settings(max_examples=10)
@given(data=st.data())
def test_a_ring_lets_rows_go_out_of_turn(data: st.DataObject) -> None:
    columns, nullable = SHAPES["chain"]
    ticks = data.draw(histories([2, 2, 2], nullable))
    check(join_harness(columns, nullable, ["ring", "bag", "ring"]), ticks, lambda bags: naive_join(bags, columns, 4))
    bare = join_harness(columns, nullable, ["bare", "bag", "bare"])
    check(bare, timeless(ticks), lambda bags: naive_join(bags, columns, 4))


@settings(max_examples=10)
@given(data=st.data())
def test_rows_with_stamps_and_without_are_joined(data: st.DataObject) -> None:
    columns, nullable = SHAPES["chain"]
    ticks = data.draw(histories([2, 2, 2], nullable, fifo=True))
    mixed = [[change if change[0] == 1 else timeless([[change]])[0][0] for change in changes] for changes in ticks]
    harness = join_harness(columns, nullable, ["bare", "ring", "bare"])
    check(harness, mixed, lambda bags: naive_join(bags, columns, 4))


LEFT_SHAPES: dict[str, tuple[int, tuple[int, ...], set[int], set[int]]] = {
    "one column": (2, (1, 2), set(), set()),
    "two columns": (2, (1, 0, 2), set(), set()),
    "left nullable": (2, (1, 2), {1}, set()),
    "right nullable": (2, (1, 0, 2), set(), {0}),
    "both nullable": (2, (1, 0, 2), {0, 1}, {0, 1, 2}),
    "nothing shared": (1, (1,), set(), set()),
    "dropped column": (2, (-1, 0, 2), {1}, set()),
}


def negation_harness(shape: str, mode: int) -> tuple[Harness, Callable[[list[Bag]], Bag]]:
    width, columns, left_nullable, right_nullable = LEFT_SHAPES[shape]
    out_width = max(width, *(column + 1 for column in columns)) if mode == LEFT_JOIN else width

    def build(arena: Arena, queues: list[int], out: int) -> int:
        nullable = {"left_nullable": left_nullable, "right_nullable": right_nullable}
        return make_negation(arena, mode, out, queues[0], queues[1], columns, room=1, **nullable)

    harness = Harness([width, len(columns)], out_width, build, step_negation)
    return harness, lambda bags: naive_negation(mode, bags[0], bags[1], columns, width, out_width)


@pytest.mark.parametrize("shape", LEFT_SHAPES)
@pytest.mark.parametrize("mode", [LEFT_JOIN, SEMI_JOIN, ANTI_JOIN, MINUS])
@settings(max_examples=10)
@given(data=st.data())
def test_negation(shape: str, mode: int, data: st.DataObject) -> None:
    harness, expected = negation_harness(shape, mode)
    check(harness, data.draw(histories(harness.widths, list(LEFT_SHAPES[shape][2:]))), expected)


@pytest.mark.parametrize("shape", LEFT_SHAPES)
@pytest.mark.parametrize("mode", [LEFT_JOIN, SEMI_JOIN, ANTI_JOIN, MINUS])
def test_negation_through_indexes(shape: str, mode: int) -> None:
    harness, expected = negation_harness(shape, mode)
    check(harness, many(harness.widths, list(LEFT_SHAPES[shape][2:])), expected)
    words = harness.arena.words
    bags = [int(words[harness.operator + at]) for at in (outer_semi_anti_join.LEFT_BAG, outer_semi_anti_join.RIGHT_BAG)]
    assert any(tables(harness.arena, *bags)) == (shape not in {"both nullable", "nothing shared"})


@pytest.mark.parametrize("freshness", [False, True])
@pytest.mark.parametrize("width", [0, 1, 3])
@settings(max_examples=10)
@given(data=st.data())
def test_distinct(freshness: bool, width: int, data: st.DataObject) -> None:
    ticks = data.draw(histories([width], [{0}], values=2))
    harness = Harness(
        [width],
        width,
        lambda arena, queues, out: make_distinct(arena, out, queues[0], freshness=freshness),
        step_distinct,
    )
    check(harness, ticks, lambda bags: naive_distinct(bags[0], freshness))


@pytest.mark.parametrize("freshness", [False, True])
def test_distinct_of_many(freshness: bool) -> None:
    harness = Harness(
        [1], 1, lambda arena, queues, out: make_distinct(arena, out, queues[0], freshness=freshness), step_distinct
    )
    check(harness, many([1], [{0}]) * 2, lambda bags: naive_distinct(bags[0], freshness))


@settings(max_examples=10)
@given(ticks=histories([2, 1], [{0}, set()]))
def test_union(ticks: Any) -> None:
    columns = [(2, 0), (1,)]
    harness = Harness(
        [2, 1],
        3,
        lambda arena, queues, out: make_union(arena, out, list(zip(queues, columns, strict=True))),
        step_union,
    )

    def expected(bags: list[Bag]) -> Bag:
        found: Bag = Counter()
        for bag, mapping in zip(bags, columns, strict=True):
            for row, weight in bag.items():
                solution = dict(zip(mapping, row[3:], strict=True))
                found[(*row[:3], *(solution.get(column, 0) for column in range(3)))] += weight
        return found

    check(harness, ticks, expected)


def test_project() -> None:
    harness = Harness([3], 3, lambda arena, queues, out: make_project(arena, out, queues[0], [2, -1, 2]), step_union)
    assert harness.tick([(0, 1, (5, 6, 5, 10, 11, 12)), (0, -1, (5, 6, 5, 10, 11, 13))]) == [
        (1, 5, 6, 5, 12, 0, 12),
        (-1, 5, 6, 5, 13, 0, 13),
    ]


# --- more rows than a random history has: growth, shrinking, indexes that come and go


def kept_row(arena: Arena, buffer: int, position: int) -> tuple[int, Row]:
    """The weight of the row at a position, and the row."""
    offset, head = int(row_of(arena.base, buffer, position)), arena.take(COLUMNS)
    row_storage.put_head(arena.base, arena.words[buffer + row_storage.BARE], offset, head)
    weight, *stamps = arena.array(head, COLUMNS).tolist()
    return weight, (*stamps, *arena.array(offset, int(arena.words[buffer + row_storage.WIDTH]))[COLUMNS:].tolist())


def rows_of_key(arena: Arena, buffer: int, found: int, key: Row) -> Counter[Row]:
    scratch = arena.take(COLUMNS + 8)
    arena.words[scratch : scratch + len(key)] = key
    offsets = arena.take(8)
    arena.words[offsets : offsets + len(key)] = range(len(key))
    entry = int(probe(arena.base, buffer, found, scratch, offsets))
    assert entry != 0
    word = int(arena.words[entry])
    position = word & key_index.NEWEST
    rows: Counter[Row] = Counter()
    for _ in range(word >> 32):
        offset = int(row_of(arena.base, buffer, position))
        weight, row = kept_row(arena, buffer, position)
        rows[row] += weight
        position = int(row_storage.link_of(arena.base, offset, arena.words[found + key_index.LINK]))
    return +rows


@pytest.mark.parametrize("kind", ["ring", "bag", "bare"])
def test_a_buffer_through_growth_and_shrinking(kind: str) -> None:
    arena = Arena(size=SIZE)
    buffer = make_buffer(arena, kind, 3)
    queue = int(make_queue(arena.base, 3))
    by_one, by_two = add_index(arena, buffer, [1]), add_index(arena, buffer, [0, 2])
    assert add_index(arena, buffer, [2, 0]) == by_two
    rows: list[Row] = []

    def apply(weight: int, row: Row) -> None:
        clear(arena.base, queue)
        push(arena, queue, weight, row)
        assert change(arena.base, buffer, row_at(arena.base, queue, 0)) != -2

    for round_, (arriving, leaving) in enumerate([(600, 0), (500, 1000), (300, 390), (900, 850)]):
        for number in range(arriving):
            stamps = NO_ELEMENT if kind == "bare" else (number, round_, number)
            rows.append((*stamps, 1 + number % 3, 1 + number % 7, 1 + number % 50))
            apply(1, rows[-1])
        late = add_index(arena, buffer, [2])
        for row in rows[:leaving]:
            apply(-1, row)
        del rows[:leaving]
        if len(rows) > row_storage.SCAN:
            assert rows_of_key(arena, buffer, by_one, (4,)) == Counter(row for row in rows if row[4] == 4)
            assert rows_of_key(arena, buffer, by_two, (2, 9)) == Counter(row for row in rows if row[3::2] == (2, 9))
            assert rows_of_key(arena, buffer, late, (50,)) == Counter(row for row in rows if row[5] == 50)
    assert arena.words[buffer + row_storage.ROWS] == len(rows)
    assert arena.words[buffer + row_storage.KIND] == (row_storage.BAG if kind == "bag" else row_storage.RING)
    assert arena.words[buffer + row_storage.ROOM] <= 1024


def test_an_index_goes_when_no_one_asks() -> None:
    arena = Arena(size=SIZE)
    ring = make_ring(arena, 1)
    queue = int(make_queue(arena.base, 1))
    found = add_index(arena, ring, [0])
    push(arena, queue, 1, (0, 0, 0, 7))
    row = row_at(arena.base, queue, 0)
    for _ in range(20):
        change(arena.base, ring, row)
    assert arena.words[found + key_index.OPEN] == 0
    assert rows_of_key(arena, ring, found, (7,)) == Counter({(0, 0, 0, 7): 20})
    assert arena.words[found + key_index.OPEN] != 0
    for _ in range(1000):
        change(arena.base, ring, row)
        evict(arena.base, ring)
    assert arena.words[found + key_index.OPEN] == 0
    assert rows_of_key(arena, ring, found, (7,)) == Counter({(0, 0, 0, 7): 20})


def test_keys_that_never_come_back_do_not_fill_the_table() -> None:
    arena = Arena(size=SIZE)
    ring = make_ring(arena, 1)
    queue = int(make_queue(arena.base, 1))
    found = add_index(arena, ring, [0])
    for number in range(20_000):
        clear(arena.base, queue)
        push(arena, queue, 1, (number, 0, 0, number + 1))
        change(arena.base, ring, row_at(arena.base, queue, 0))
        if number >= 100:
            evict(arena.base, ring)
            if number % 50 == 0:
                assert rows_of_key(arena, ring, found, (number,)).total() == 1
    assert arena.words[arena.words[found + key_index.TABLE] + key_index.LAST] < 1024


class Leaving:
    """A ring with two indexes, beside a plain bag of its rows; a bare one is given none of their stamps."""

    def __init__(self, *, bare: bool = False) -> None:
        self.arena = Arena(size=SIZE)
        self.bare, self.buffer = bare, make_ring(self.arena, 2, bare=bare)
        self.queue = int(make_queue(self.arena.base, 2))
        self.indexes = [add_index(self.arena, self.buffer, [column]) for column in (0, 1)]
        self.rows: Counter[Row] = Counter()

    def change(self, weight: int, row: Row) -> None:
        row = NO_ELEMENT + row[3:] if self.bare else row
        clear(self.arena.base, self.queue)
        push(self.arena, self.queue, weight, row)
        assert change(self.arena.base, self.buffer, row_at(self.arena.base, self.queue, 0)) != -2
        self.rows[row] += weight

    @property
    def is_ring(self) -> bool:
        return bool(self.arena.words[self.buffer + row_storage.KIND] == row_storage.RING)

    def check(self) -> None:
        words = self.arena.words
        rows: Counter[Row] = Counter()
        for position in range(int(words[self.buffer + row_storage.FIRST]), int(words[self.buffer + row_storage.NEXT])):
            weight, row = kept_row(self.arena, self.buffer, position)
            if weight:
                rows[row] += weight
        assert rows == +self.rows
        if len(rows) > row_storage.SCAN:
            for column, found in enumerate(self.indexes):
                for value in {row[3 + column] for row in rows}:
                    expected = Counter({row: count for row, count in rows.items() if row[3 + column] == value})
                    assert rows_of_key(self.arena, self.buffer, found, (value,)) == expected


def reading(number: int) -> Row:
    return number, number, number, 1 + number % 5, 1 + number % 11


@settings(max_examples=40, deadline=None)
@given(out_of_turn=st.floats(0, 1), seed=st.integers(0, 99), size=st.integers(1, 300), bare=st.booleans())
def test_a_ring_lets_any_row_go(out_of_turn: float, seed: int, size: int, bare: bool) -> None:
    """Rows that leave in turn, out of turn, and equal ones of which some stay; whatever becomes of the ring."""
    random, ring = Random(seed), Leaving(bare=bare)
    there: list[Row] = []
    for number in range(800):
        there.append(reading(number if random.random() < 0.9 else number // 2))
        ring.change(1, there[-1])
        while len(there) > size:
            late = random.random() < out_of_turn
            ring.change(-1, there.pop(random.randrange(len(there)) if late else 0))
        if number % 100 == 0:
            ring.check()
    ring.check()


@pytest.mark.parametrize("bare", [False, True])
def test_a_ring_stays_one_while_rows_leave_in_turn(bare: bool) -> None:
    ring = Leaving(bare=bare)
    for number in range(3000):
        ring.change(1, reading(number))
        if number >= 200:
            ring.change(-1, reading(number - 200))
        if number % 1000 == 900:  # one that comes again leaves out of turn, now and then
            ring.change(-1, reading(number - 100))
            ring.change(1, reading(number - 100))
    ring.check()
    assert ring.is_ring


def test_a_row_that_stays_does_not_hold_up_the_others() -> None:
    """The oldest row stays for ever: it is moved to the end, and neither it nor what has gone takes room."""
    ring = Leaving()
    ring.change(1, reading(7))
    for number in range(8, 600):
        ring.change(1, reading(number))
        if number >= 58:
            ring.change(-1, reading(number - 50))
            first, end = (int(ring.arena.words[ring.buffer + word]) for word in (row_storage.FIRST, row_storage.NEXT))
            assert end - first == ring.rows.total() == ring.arena.words[ring.buffer + row_storage.ROWS]
    ring.check()
    assert ring.is_ring
    assert ring.arena.words[ring.buffer + row_storage.ROOM] <= 64


@pytest.mark.parametrize("others", [0, 20, 3000])
def test_what_has_gone_is_not_walked_through(others: int) -> None:
    """One row comes anew again and again, newer each time, while others stay: those of before do not stay with them."""
    ring = Leaving()
    for number in range(others):
        ring.change(1, reading(number))
    for number in range(others, others + 2000):
        ring.change(1, reading(number - number % 5))
        if number > others:
            before = number - 1
            ring.change(-1, reading(before - before % 5))
        held = ring.arena.words[ring.buffer + row_storage.NEXT] - ring.arena.words[ring.buffer + row_storage.FIRST]
        assert held <= ring.arena.words[ring.buffer + row_storage.ROWS] + 64
    ring.check()


@pytest.mark.parametrize("bare", [False, True])
def test_a_ring_whose_rows_leave_out_of_turn_is_a_bag(bare: bool) -> None:
    ring = Leaving(bare=bare)
    for number in range(400):
        ring.change(1, reading(number))
    for number in reversed(range(200, 390)):
        ring.change(-1, reading(number))
    ring.check()
    assert not ring.is_ring


@pytest.mark.parametrize("bare", [False, True])
def test_a_row_that_a_ring_does_not_have_may_come_later(bare: bool) -> None:
    ring = Leaving(bare=bare)
    ring.change(-2, reading(1))
    assert not ring.is_ring
    ring.change(3, reading(1))
    ring.check()


@settings(max_examples=15)
@given(data=st.data())
def test_a_bag_takes_changes_in_any_order(data: st.DataObject) -> None:
    """A row taken back before it comes: the sum is right at the end of the step."""
    columns, nullable = SHAPES["chain"]
    ticks = [list(reversed(changes)) for changes in data.draw(histories([2, 2, 2], nullable))]
    check(join_harness(columns, nullable, ["bag"] * 3), ticks, lambda bags: naive_join(bags, columns, 4))
    halves = data.draw(histories([2, 2], [set(), set()]))
    for mode in (LEFT_JOIN, ANTI_JOIN):
        harness = Harness(
            [2, 2],
            3 if mode == LEFT_JOIN else 2,
            lambda arena, queues, out, mode=mode: make_negation(arena, mode, out, *queues, (1, 2)),  # type: ignore[misc]
            step_negation,
        )
        width = harness.out_width
        check(
            harness,
            [list(reversed(changes)) for changes in halves],
            lambda bags, mode=mode, width=width: naive_negation(mode, bags[0], bags[1], (1, 2), 2, width),  # type: ignore[misc]
        )


def test_orders_follow_the_counters() -> None:
    """A row of the first input asks the input with fewer matches first; the order of each row is counted."""
    harness = join_harness([(0, 1), (0, 2), (0, 3)], [set()] * 3, ["ring"] * 3)
    many = [(1, 1, (number, 0, number, 1 + number % 2, 10 + number)) for number in range(40)]
    few = [(2, 1, (number, 1, number, 2 - number % 2, 10 + number)) for number in range(10)]
    harness.tick(many + few)
    before = read_orders(harness.arena, harness.operator)
    harness.tick([(0, 1, (50, 0, 50, 1, 5))])
    after = read_orders(harness.arena, harness.operator)
    assert len(pull(harness.arena, harness.out)) == 20 * 5
    # the order is known when the last input is chosen: once for each match in the second
    assert {order: count - before.get(order, 0) for order, count in after.items()}[(0, 2, 1)] == 5
    set_order(harness.arena, harness.operator, 0, [1, 2])
    harness.tick([(0, 1, (51, 0, 51, 1, 5))])
    assert read_orders(harness.arena, harness.operator)[(0, 1, 2)] == 20


def test_weights_multiply() -> None:
    harness = join_harness([(0,), (0,)], [set(), set()], ["bag", "ring"])
    harness.tick([(0, 3, (1, 0, 1, 7))])
    assert harness.tick([(1, 2, (2, 0, 2, 7))]) == [(6, 2, 0, 1, 7)]
    assert harness.tick([(0, -1, (1, 0, 1, 7))]) == [(-2, 2, 0, 1, 7)]
    assert harness.tick([(1, -1, (2, 0, 2, 7))]) == [(-2, 2, 0, 1, 7)]


def test_an_update_of_a_row_is_one_probe() -> None:
    """A row that goes and one that comes with the same key are looked up once."""
    harness = join_harness([(0, 1), (0, 2)], [set(), set()], ["bag", "bag"])
    harness.tick([(0, 1, (1, 0, 1, 7, 5)), (1, 1, (2, 0, 2, 7, 8)), (1, 1, (3, 0, 3, 7, 9))])
    before = sum(read_orders(harness.arena, harness.operator).values())
    out = harness.tick([(0, -1, (1, 0, 1, 7, 5)), (0, 1, (4, 0, 4, 7, 6))])
    expected = [(-1, 2, 0, 1, 7, 5, 8), (-1, 3, 0, 1, 7, 5, 9), (1, 4, 0, 2, 7, 6, 8), (1, 4, 0, 3, 7, 6, 9)]
    assert sorted(out) == expected
    assert sum(read_orders(harness.arena, harness.operator).values()) == before + 1
    assert sorted(harness.tick([(0, -1, (4, 0, 4, 7, 6))])) == [(-1, *row[1:]) for row in expected[2:]]


def test_a_join_refuses_what_it_cannot_do() -> None:
    arena = Arena(size=SIZE)
    out = int(make_queue(arena.base, 1))
    with pytest.raises(ValueError, match="2 to 15 inputs"):
        make_join(arena, out, [Input(make_bag(arena, 1), (0,))])


def test_a_full_arena_is_said_and_not_written_over() -> None:
    arena = Arena(size=1 << 16)
    queues = [int(make_queue(arena.base, 1)) for _ in range(3)]
    join = make_join(arena, queues[2], [Input(make_bag(arena, 1), (0,), queue) for queue in queues[:2]])
    for number in range(10_000):
        for queue in queues:
            clear(arena.base, queue)
        push(arena, queues[number % 2], 1, (number, 0, number, 7))
        if not step_join(arena.base, join):
            break
    assert number < 9_999
    assert arena.used <= len(arena.words)
