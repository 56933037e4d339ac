"""Ordered multisets, sort keys and top-k in the arena, beside sorted lists and the order of the reference."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.kernels.containers.delta_queue import COLUMNS, NUMBER, TIME, add_row, clear, make_queue, row_at
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.hash_table import COUNT as TABLE_COUNT
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators import topk, topk_setup
from cqels.kernels.terms import counted_btree
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.sort_key_fallback import answer_term, make_terms
from cqels.kernels.terms.sort_keys import ASK, DONE, compare_terms, compare_texts, sort_key
from cqels.model.dictionary import decode, encode
from cqels.model.terms import XSD, Term, text_of
from cqels.model.values import order_key

Row = tuple[int, int, int, tuple[int, ...]]
"""Newest time and number, oldest time, columns."""


def typed(text: str, name: str) -> Literal:
    return Literal(text, datatype=NamedNode(XSD + name))


TINY, LONG = "0." + "0" * 30 + "1", "0.1" + "0" * 30
NUMBERS = {
    "integer": f"0 1 7 007 -3 {2**53 + 1} {2**62} {-(2**62)} {10**30} y",
    "decimal": f"0.1 1.0 1.00 1 -2.5 -0.1 9007199254740993 1.{'0' * 40}1 {TINY} {LONG} {LONG}1",
    "double": "0.1 1.0 1.0E0 -0.0 0.0 INF -INF NaN 1.0E300 5.0E-324 9007199254740992.0 9007199254740994.0 4.6E18",
    "float": "0.1 1.0 NaN 16777216.0 -2.5",
    "boolean": "true false 1",
    "dateTime": "2026-01-01T00:00:00Z 2026-01-01T01:00:00+01:00 2026-01-01T00:00:00 2026-01-01T00:00:00.0001Z "
    "1969-12-31T23:59:59.9999999999999999999Z",
    "date": "2026-01-01 2026-01-01Z 2025-06-01",
    "time": "10:00:00 11:00:00+01:00",
    "dayTimeDuration": "PT1H PT60M -P1D",
    "duration": "P1M P30D P1Y",
    "anyURI": "x",
}
STRINGS = ("", "a", "ab", 'a"', "a\n", "a\\", "é", "a" * 20, "a" * 20 + '"', "a" * 20 + "\t", "a\x01", "a!")
TERMS: tuple[Term, ...] = (
    *(typed(text, name) for name, texts in NUMBERS.items() for text in texts.split()),
    *(Literal(text, datatype=NamedNode("http://ex.org/a")) for text in "xy"),
    *map(Literal, STRINGS),
    *(Literal(text, language=tag) for text in ("a", "b" * 20) for tag in ("en", "en-us", "de")),
    *(NamedNode("http://ex.org/" + text) for text in ("", "a", "ab", "b", "é")),
    BlankNode("a"),
    BlankNode("b"),
)


class World:
    """An arena with a dictionary and the block of terms."""

    def __init__(self) -> None:
        self.arena = Arena(size=1 << 26)
        self.dictionary = ArenaDictionary(self.arena, entries=2, piece=64)
        self.terms = make_terms(self.arena, self.dictionary.offset)
        self.keys = self.arena.take(64)

    def ids(self, terms: Sequence[Term | None]) -> list[int]:
        return [encode(term, self.dictionary) for term in terms]

    def put(self, queue: int, rows: Sequence[tuple[Row, int]]) -> None:
        clear(self.arena.base, queue)
        for (time, number, oldest, columns), weight in rows:
            row = int(add_row(self.arena.base, queue))
            self.arena.words[row : row + COLUMNS + len(columns)] = [weight, time, number, oldest, *columns]

    def rows(self, queue: int) -> list[tuple[Row, int]]:
        found: list[tuple[Row, int]] = []
        for number in range(int(self.arena.words[queue + QUEUED])):
            row = int(row_at(self.arena.base, queue, number))
            width = int(self.arena.words[queue + 2])
            weight, time, arrival, oldest, *columns = map(int, self.arena.words[row : row + width])
            found.append(((time, arrival, oldest, tuple(columns)), weight))
        return found

    def again(self) -> World:
        """The same, from a snapshot."""
        other = World.__new__(World)
        other.arena = Arena(size=1 << 26)
        other.arena.restore(self.arena.snapshot())
        other.dictionary = ArenaDictionary(other.arena, self.dictionary.offset)
        other.terms, other.keys = self.terms, self.keys
        return other


# --- trees ----------------------------------------------------------------------------------------------------------


@given(st.data(), st.integers(1, 6), st.sampled_from([4, 60, 10**6]))
@settings(max_examples=25)
def test_a_tree_is_a_sorted_list(data: st.DataObject, words: int, span: int) -> None:
    random = data.draw(st.randoms(use_true_random=False))
    world = World()
    base, key = world.arena.base, world.keys
    shape, tree = (
        counted_btree.make_shape(world.arena, [counted_btree.UP] * words),
        world.arena.take(counted_btree.TREE_WORDS),
    )
    counted_btree.make_tree(base, tree, shape)
    before: list[tuple[int, ...]] = []
    for bias in (0.9, 0.5, 0.1):
        for _ in range(random.randrange(300)):
            if random.random() < bias or not before:
                new = (*(random.randrange(3) for _ in range(words - 1)), random.randrange(-span, span))
                bisect.insort(before, new)
                weight = 1
            else:
                new, weight = before.pop(random.randrange(len(before))), -1
            world.arena.words[key : key + words] = new
            assert counted_btree.change(base, tree, key, weight) == DONE
        world = world.again()
        base = world.arena.base
        assert counted_btree.keys_of(world.arena, tree) == before
        start = random.randrange(len(before) + 1)
        assert counted_btree.keys_of(world.arena, tree, start, 5) == before[start : start + 5]
        assert int(world.arena.words[tree + counted_btree.ENTRIES]) == len(set(before))
        for _ in range(10 if before else 0):
            number = random.randrange(len(before))
            found = int(counted_btree.kth(base, tree, number))
            assert tuple(world.arena.words[found : found + words]) == before[number]
            world.arena.words[key : key + words] = before[number]
            assert counted_btree.rank(base, tree, shape, key) == bisect.bisect_left(before, before[number])
        for offset, end in ((counted_btree.least(base, tree), 0), (counted_btree.most(base, tree), -1)):
            assert (offset == 0) == (not before)
            if before:
                assert tuple(world.arena.words[offset : offset + words]) == before[end]
    for each in before:
        world.arena.words[key : key + words] = each
        counted_btree.change(base, tree, key, -1)
    assert not world.arena.words[tree + counted_btree.ROOT : tree + counted_btree.ROOT_WORDS].any()


def test_a_tree_uses_its_memory_again() -> None:
    world = World()
    base, key = world.arena.base, world.keys
    tree = world.arena.take(counted_btree.TREE_WORDS)
    counted_btree.make_tree(base, tree, counted_btree.make_shape(world.arena, [counted_btree.UP]))
    used = []
    for round in range(4):  # a window that slides, then all at once
        for number in range(3000):
            world.arena.words[key] = number * 7919 % 3001 + round
            assert counted_btree.change(base, tree, key, 1) == DONE
        for number in range(3000):
            world.arena.words[key] = number * 7919 % 3001 + round
            assert counted_btree.change(base, tree, key, -1) == DONE
        used.append(world.arena.used)
    assert used[1] == used[3]


def test_a_row_may_be_taken_back_before_it_comes() -> None:
    world = World()
    base, key = world.arena.base, world.keys
    tree = world.arena.take(counted_btree.TREE_WORDS)
    counted_btree.make_tree(base, tree, counted_btree.make_shape(world.arena, [counted_btree.UP]))
    world.arena.words[key] = 5
    counted_btree.change(base, tree, key, -2)
    assert world.arena.words[tree + counted_btree.TOTAL] == -2
    counted_btree.change(base, tree, key, 3)
    assert counted_btree.keys_of(world.arena, tree) == [(5,)]


# --- terms ----------------------------------------------------------------------------------------------------------


def test_terms_are_in_the_order_of_the_reference() -> None:
    world = World()
    base = world.arena.base
    everything: list[Term | None] = [None, *TERMS]
    ids = world.ids(everything)
    offset = world.arena.take(4 * len(ids))
    asked = 0
    for number, id in enumerate(ids):
        while sort_key(base, world.terms, id, offset + 4 * number) != DONE:
            answer_term(world.dictionary, world.terms)
            asked += 1
    assert asked < len(ids) / 2
    for one, a in enumerate(everything):
        for other, b in enumerate(everything):
            while (found := compare_terms(base, world.terms, offset + 4 * one, offset + 4 * other)) == ASK:
                answer_term(world.dictionary, world.terms)
            assert found == (order_key(a) > order_key(b)) - (order_key(a) < order_key(b)), (a, b)
            while (found := compare_texts(base, world.terms, ids[one], ids[other])) == ASK:
                answer_term(world.dictionary, world.terms)
            assert found == (text_of(a) > text_of(b)) - (text_of(a) < text_of(b)), (a, b)


@given(
    st.lists(
        st.one_of(
            st.integers(-(2**63), 2**63 - 1).map(lambda n: typed(str(n), "integer")),
            st.decimals(allow_nan=False, allow_infinity=False, places=9).map(lambda d: typed(f"{d:f}", "decimal")),
            st.integers(1, 10**17).map(lambda n: typed(f"0.{n}", "decimal")),
            st.floats(width=64).map(lambda x: typed(repr(x).replace("inf", "INF").replace("nan", "NaN"), "double")),
            st.floats(width=32).map(lambda x: typed(repr(x).replace("inf", "INF").replace("nan", "NaN"), "float")),
            st.text(alphabet='a"\\\n\té', max_size=20).map(Literal),
        ),
        max_size=12,
    )
)
@settings(max_examples=60)
def test_sort_keys_of_numbers(terms: list[Term]) -> None:
    world = World()
    ids = world.ids(terms)
    offset = world.arena.take(4 * len(ids) + 4)
    for number, id in enumerate(ids):
        while sort_key(world.arena.base, world.terms, id, offset + 4 * number) != DONE:
            answer_term(world.dictionary, world.terms)
    for one, a in enumerate(terms):
        for other, b in enumerate(terms):
            args = (world.arena.base, world.terms, offset + 4 * one, offset + 4 * other)
            while (found := compare_terms(*args)) == ASK:
                answer_term(world.dictionary, world.terms)
            assert found == (order_key(a) > order_key(b)) - (order_key(a) < order_key(b)), (a, b)


# --- slices of ordered rows -----------------------------------------------------------------------------------------


def sliced(
    world: World, rows: Counter[Row], sorts: Sequence[tuple[int, bool]], ties: Sequence[int], part: slice
) -> list[Row]:
    """`Evaluator._order` and Slice."""

    def term(row: Row, column: int) -> Term | None:
        return decode(row[3][column], world.dictionary)

    bag = sorted(rows.elements(), key=lambda row: row[2:])
    bag.sort(key=lambda row: (-row[0], -row[1], [text_of(term(row, column)) for column in ties]))
    for column, descending in reversed(sorts):
        bag.sort(key=lambda row, column=column: order_key(term(row, column)), reverse=descending)  # type: ignore[misc]
    return bag[part]


def grouped(rows: Counter[Row], by: Sequence[int]) -> list[Counter[Row]]:
    groups: dict[tuple[int, ...], Counter[Row]] = {}
    for row, count in rows.items():
        groups.setdefault(tuple(row[3][column] for column in by), Counter())[row] = count
    return list(groups.values())


def batch_of(random, inside: Counter[Row], pool: Sequence[int]) -> list[tuple[Row, int]]:
    """Rows that come and go, and rows whose stamps alone change."""
    batch: list[tuple[Row, int]] = []
    for _ in range(random.randrange(8)):
        stamps = random.randrange(3), random.randrange(2), random.randrange(2)
        row = (*stamps, tuple(random.choices(pool, k=3)))
        weight = random.choice([1, 1, 1, 2])
        if inside and random.random() < 0.6:
            gone = random.choice(sorted(inside))
            row, weight = (*stamps, gone[3]), random.choice([0, 0, 1])
            batch.append((gone, -1))
            inside[gone] -= 1
        if weight:
            batch.append((row, weight))
            inside[row] += weight
        for each in [each for each, count in inside.items() if count == 0]:
            del inside[each]
    random.shuffle(batch)
    return batch


SORTS = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=2)
COLUMNS_CHOSEN = st.lists(st.integers(0, 2), unique=True)
SLICES = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 4)))


@given(st.randoms(use_true_random=False), SORTS, COLUMNS_CHOSEN, COLUMNS_CHOSEN, SLICES)
@settings(max_examples=60)
def test_slices_of_ordered_groups(
    random, sorts: list[tuple[int, bool]], ties: list[int], by: list[int], bounds: tuple[int, int | None]
) -> None:
    offset, limit = bounds
    part = slice(offset, None if limit is None else offset + limit)
    world = World()
    source, target, listed = (int(make_queue(world.arena.base, 3)) for _ in range(3))
    fields = [
        (counted_btree.TERM_DOWN if descending else counted_btree.TERM, COLUMNS + column)
        for column, descending in sorts
    ]
    fields += [
        (counted_btree.DOWN, TIME),
        (counted_btree.DOWN, NUMBER),
        *((counted_btree.TEXT, COLUMNS + column) for column in ties),
    ]

    def make(queue: int, by: list[int]) -> int:
        queues = (source, queue)
        return topk_setup.make_ordered(
            world.dictionary, world.terms, queues, 3, fields, by=by, offset=offset, limit=limit
        )

    operator, listing = make(target, by), make(0, [])
    pool = [0, *world.ids(random.sample(TERMS, random.randrange(1, 12)))]
    inside: Counter[Row] = Counter()
    sent: Counter[Row] = Counter()
    before: list[Row] = []
    for step in range(8):
        world.put(source, batch_of(random, inside, pool))
        clear(world.arena.base, target)
        topk_setup.run_ordered(world.dictionary, operator)
        changes = world.rows(target)
        assert len({row for row, _ in changes}) == len(changes)
        for row, weight in changes:
            sent[row] += weight
        expected = [row for group in grouped(inside, by) for row in sliced(world, group, sorts, ties, part)]
        assert Counter({row: count for row, count in sent.items() if count}) == Counter(expected)

        topk_setup.run_ordered(world.dictionary, listing)
        clear(world.arena.base, listed)
        assert topk.list_slice(world.arena.base, listing, listed)
        shown = [row for row, _ in world.rows(listed)]
        if len(ties) == 3:  # else what ties at last may come in any order
            whole = sliced(world, inside, sorts, ties, part)
            assert [row[:2] + row[3:] for row in shown] == [row[:2] + row[3:] for row in whole]
        assert shown == before or world.arena.words[listing + topk.MOVED]
        world.arena.words[listing + topk.MOVED], before = 0, shown
        if step == 3:
            world = world.again()
    assert int(world.arena.words[int(world.arena.words[operator + topk.TABLE]) + TABLE_COUNT]) == len(
        grouped(inside, by)
    )


def test_slices_of_many_rows() -> None:
    """The law with trees of several levels, in large steps: the window slides over rows in several groups."""
    random = Random(5)
    world = World()
    source, target = (int(make_queue(world.arena.base, 3)) for _ in range(2))
    sorts, ties, part = [(1, True)], [0, 1, 2], slice(5, 15)
    fields = [(counted_btree.TERM_DOWN, COLUMNS + 1), (counted_btree.DOWN, TIME), (counted_btree.DOWN, NUMBER)]
    fields += [(counted_btree.TEXT, COLUMNS + column) for column in ties]
    operator = topk_setup.make_ordered(
        world.dictionary, world.terms, (source, target), 3, fields, by=[0], offset=5, limit=10
    )
    groups = world.ids([NamedNode(f"http://ex.org/{number}") for number in range(3)])
    values = world.ids([typed(str(number), "integer") for number in range(400)])
    sent: Counter[Row] = Counter()
    arrived: list[Row] = []
    for step in range(12):
        new = [
            (step, number // 50, step, (random.choice(groups), random.choice(values), random.choice(values)))
            for number in range(400)
        ]
        old = arrived[-2000:-1600] if len(arrived) >= 2000 else []
        world.put(source, [*((row, -1) for row in old), *((row, 1) for row in new)])
        arrived += new
        clear(world.arena.base, target)
        topk_setup.run_ordered(world.dictionary, operator)
        for row, weight in world.rows(target):
            sent[row] += weight
        inside = Counter(arrived[-2000:])
        expected = [row for group in grouped(inside, [0]) for row in sliced(world, group, sorts, ties, part)]
        assert Counter({row: count for row, count in sent.items() if count}) == Counter(expected)
