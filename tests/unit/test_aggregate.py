"""Exact sums and GROUP BY in the arena, beside the reference's `aggregate` over the rows that are in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.kernels.containers.delta_queue import COLUMNS, add_row, clear, make_queue, row_at
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.aggregate import FRESH, NEWEST, SAMPLED, SPANS
from cqels.kernels.operators.aggregate_setup import Fold, make_grouping, run_group
from cqels.kernels.operators.exact_sum import SUM_WORDS, add_number, make_sum
from cqels.kernels.operators.exact_sum_value import RESULT_BITS, RESULT_TAG, RESULT_WORDS, id_of_result, read_sum
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.counted_btree import UP, make_shape
from cqels.kernels.terms.sort_key_fallback import answer_term, make_terms
from cqels.kernels.terms.sort_keys import ASKING, DONE
from cqels.lang.expressions import Aggregate, Var
from cqels.model.dictionary import decode, encode
from cqels.model.ids import bits_double
from cqels.model.terms import XSD, Term, text_of
from cqels.model.values import DOUBLE, ExpressionError, Number, literal_of, number_of
from cqels.plan.functions import Context, aggregate
from cqels.plan.functions.aggregates import mean, total

Row = tuple[tuple[int, int], int, tuple[int, ...]]
"""Newest time and number, oldest time, columns."""
NAMES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "MEDIAN", "SAMPLE", "GROUP_CONCAT")


def typed(text: str, name: str) -> Literal:
    return Literal(text, datatype=NamedNode(XSD + name))


def double(value: float) -> Literal:
    return literal_of(Number(DOUBLE, value))


INTEGERS = tuple(
    typed(text, "integer") for text in ("0", "1", "-7", "007", str(2**24 + 1), str(2**53 + 1), str(2**62 + 3))
)
DECIMALS = tuple(
    typed(text, "decimal") for text in ("0.1", "1.0", "1.00", "-2.5", "0.3333333333333333333", "12345678.125")
)
FLOATS = tuple(typed(text, "float") for text in ("0.1", "-2.5", "16777216.0", "3.4E38", "1.0E-45", "-0.0"))
DOUBLES = tuple(double(x) for x in (0.1, 1.0, -0.0, 1e308, -1e308, 5e-324, 1e-300, 1e16, 2.5, -2.5))
SPECIAL = tuple(typed(text, name) for text in ("NaN", "INF", "-INF") for name in ("float", "double"))
HARD = (typed("1" + "0" * 30, "integer"), typed("-0." + "0" * 45 + "7", "decimal"), typed("1" + "0" * 400, "integer"))
OTHERS: tuple[Term, ...] = (
    Literal("a"),
    Literal("a", language="en"),
    NamedNode("http://ex.org/a"),
    BlankNode("b"),
    typed("true", "boolean"),
    typed("2026-01-01T00:00:00Z", "dateTime"),
    typed("2026-01-01", "date"),
    typed("x", "integer"),
)
POOLS: tuple[tuple[Term, ...], ...] = (
    INTEGERS,
    DECIMALS,
    DOUBLES,
    FLOATS,
    INTEGERS + DECIMALS,
    INTEGERS + FLOATS + DECIMALS,
    DOUBLES + SPECIAL,
    INTEGERS + DECIMALS + FLOATS + DOUBLES,
    INTEGERS + DECIMALS + HARD,
    INTEGERS + FLOATS + HARD,
    INTEGERS + DECIMALS + FLOATS + DOUBLES + SPECIAL + HARD,
    OTHERS,
    INTEGERS + OTHERS,
)


class World:
    """An arena with a dictionary and the block of terms."""

    def __init__(self) -> None:
        self.arena = Arena(size=1 << 26)
        self.dictionary = ArenaDictionary(self.arena, entries=2, piece=64)
        self.terms = make_terms(self.arena, self.dictionary.offset)

    def put(self, queue: int, rows: Sequence[tuple[Row, int]]) -> None:
        clear(self.arena.base, queue)
        for ((time, number), oldest, columns), weight in rows:
            row = int(add_row(self.arena.base, queue))
            self.arena.words[row : row + COLUMNS + len(columns)] = [weight, time, number, oldest, *columns]

    def rows(self, queue: int) -> list[tuple[Row, int]]:
        found: list[tuple[Row, int]] = []
        for number in range(int(self.arena.words[queue + QUEUED])):
            row = int(row_at(self.arena.base, queue, number))
            weight, time, arrival, oldest, *columns = map(
                int, self.arena.words[row : row + self.arena.words[queue + 2]]
            )
            found.append((((time, arrival), oldest, tuple(columns)), weight))
        return found

    def again(self) -> World:
        """The same, from a snapshot."""
        other = World.__new__(World)
        other.arena = Arena(size=1 << 26)
        other.arena.restore(self.arena.snapshot())
        other.dictionary = ArenaDictionary(other.arena, self.dictionary.offset)
        other.terms = self.terms
        return other


# --- sums -----------------------------------------------------------------------------------------------------------


class Sum:
    """A sum in the arena."""

    def __init__(self) -> None:
        self.world = World()
        arena = self.world.arena
        self.offset, self.result = arena.take(SUM_WORDS), arena.take(RESULT_WORDS)
        make_sum(arena.base, self.offset, make_shape(arena, [UP]))

    def add(self, term: Term, weight: int = 1) -> None:
        world = self.world
        id = encode(term, world.dictionary)
        while add_number(world.arena.base, world.terms, self.offset, id, weight) != DONE:
            answer_term(world.dictionary, world.terms)

    def read(self, *, mean: bool) -> Term | None:
        """The literal, or None where Python is asked for it."""
        world = self.world
        if read_sum(world.arena.base, world.terms, self.offset, int(mean), self.result) == ASKING:
            return None
        tag, bits = map(int, world.arena.words[self.result + RESULT_TAG : self.result + RESULT_BITS + 1])
        id = id_of_result(world.arena.base, world.terms, self.result)
        return decode(id, world.dictionary) if id else literal_of(Number(DOUBLE, bits_double(bits))) if tag else None


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(double),
    st.floats(-1e6, 1e6).map(lambda x: double(round(x, 2))),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: typed(repr(x), "float")),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: typed(str(n), "integer")),
    st.integers(-1000, 1000).map(lambda n: typed(str(n), "integer")),
    st.decimals(-(10**6), 10**6, places=3).map(lambda d: typed(f"{d:f}", "decimal")),
    st.integers(1, 10**18).map(lambda n: typed(f"0.{n:025}", "decimal")),
    st.sampled_from(DOUBLES + FLOATS + INTEGERS + DECIMALS),
)


@given(st.lists(st.tuples(numbers, st.booleans()), max_size=30), st.integers(0, 3))
@settings(max_examples=150)
def test_sums_are_exact(terms: list[tuple[Term, bool]], kinds: int) -> None:
    """Whatever came and went, the sum and the mean are those of what is left."""
    found = Sum()
    if kinds == 0:
        terms = [(term, stays) for term, stays in terms if str(term).endswith(("#integer>", "#decimal>"))]
    for term, _ in terms:
        found.add(term)
    for term, stays in terms:
        if not stays:
            found.add(term, -1)
    left = [number_of(term) for term, stays in terms if stays]
    assert found.read(mean=False) == literal_of(total(left))
    assert found.read(mean=True) == literal_of(mean(left))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40), st.integers(1, 3))
@settings(max_examples=60)
def test_sums_of_doubles(values: list[float], weight: int) -> None:
    found = Sum()
    for value in values:
        found.add(double(value), weight)
    expected = sum((Fraction(value) for value in values), Fraction(0)) * weight
    try:
        rounded = float(expected)
    except OverflowError:
        rounded = math.inf if expected > 0 else -math.inf
    if values:
        assert found.read(mean=False) == double(rounded)
        if weight == 1 and sum(map(abs, values)) < math.inf:  # beyond, fsum gives up on the way
            assert found.read(mean=False) == double(math.fsum(values))
    for value in reversed(values):
        found.add(double(value), -weight)
    assert found.read(mean=False) == typed("0", "integer")


def test_huge_and_small_doubles_cancel() -> None:
    found = Sum()
    for value in (1e308, 1e308, 5e-324, -1e308, 1.0, -1e308):
        found.add(double(value))
    assert found.read(mean=False) == double(1.0)
    found.add(double(1.0), -1)
    assert found.read(mean=False) == double(5e-324)
    assert found.read(mean=True) == double(0.0)


def test_many_additions() -> None:
    """Carries are moved before a limb overflows."""
    found = Sum()
    words = found.world.arena.words
    for _ in range(8):
        words[found.offset + 9] = (1 << 30) + 1
        found.add(double(2.0**52 - 1), 3)
        found.add(typed(str(2**62), "integer"), 1 << 20)
        found.add(typed(str(2**62), "integer"), 1 - (1 << 20))
    assert found.read(mean=False) == double(float(Fraction(24 * (2**52 - 1) + 8 * 2**62)))


# --- groups ---------------------------------------------------------------------------------------------------------


def folds_of(column: int, columns: tuple[int, ...]) -> list[tuple[Fold, Aggregate]]:
    found = [(Fold(name, column, flag), Aggregate(name, Var("x"), flag)) for name in NAMES for flag in (False, True)]
    found += [(Fold("COUNT", None, flag, columns=columns), Aggregate("COUNT", None, flag)) for flag in (False, True)]
    return found


def expected(
    world: World, inside: Counter[Row], keys: Sequence[int], nodes: Sequence[Aggregate], *, fresh: int
) -> Counter[tuple[object, ...]]:
    """`Evaluator._group` of rows whose columns are ?k, ?x, ?y."""
    groups: dict[tuple[int, ...], list[Row]] = {} if keys else {(): []}
    for row in inside.elements():
        groups.setdefault(tuple(row[2][key] for key in keys), []).append(row)
    found: Counter[tuple[object, ...]] = Counter()
    for key, rows in groups.items():
        values: list[Term | None] = [decode(id, world.dictionary) for id in key]
        for node in nodes:
            ordered = sorted(rows, key=lambda row: (row[0], text_of(decode(row[2][1], world.dictionary))))
            solutions = [
                {
                    name: term
                    for name, id in zip("kxy", row[2], strict=True)
                    if (term := decode(id, world.dictionary)) is not None
                }
                for row in ordered
            ]
            try:
                values.append(aggregate(node, solutions, Context()))
            except ExpressionError:
                values.append(None)
        stamps: tuple[object, ...] = ((-(2**63), -1), 2**63 - 1)
        if fresh and rows:
            stamps = max(row[0] for row in rows), min(row[1] for row in rows) if fresh == SPANS else stamps[1]
        found[(stamps, tuple(map(text_of, values)))] += 1
    return found


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: f"{pool[0]}-{len(pool)}")
@given(st.randoms(use_true_random=False), st.booleans(), st.sampled_from([0, NEWEST, SPANS]))
@settings(max_examples=12)
def test_groups(pool: tuple[Term, ...], random, keyed: bool, fresh: int) -> None:
    world = World()
    pairs = folds_of(1, (0, 1, 2))
    random.shuffle(pairs)
    pairs = pairs[: random.randrange(1, len(pairs) + 1)]
    keys = [0] if keyed else []
    queues = int(make_queue(world.arena.base, 3)), int(make_queue(world.arena.base, len(keys) + len(pairs)))
    ids = [encode(term, world.dictionary) for term in random.sample(pool, min(len(pool), random.randrange(1, 9)))]
    ids += [0] if random.random() < 0.2 else []
    folds = [replace(fold, bound=0 not in ids and fold.column == 1) for fold, _ in pairs]
    operator = make_grouping(world.dictionary, world.terms, queues, keys, folds, fresh=fresh)
    rooms = [encode(typed(str(n), "integer"), world.dictionary) for n in range(2)] + [0]
    inside: Counter[Row] = Counter()
    sent: Counter[tuple[object, ...]] = Counter()
    for step in range(6):
        batch: list[tuple[Row, int]] = []
        for _ in range(random.randrange(7)):
            if inside and random.random() < 0.5:
                row, weight = random.choice(sorted(inside.elements())), -1
            else:
                columns = (random.choice(rooms), random.choice(ids), random.choice([0, rooms[1]]))
                row = ((random.randrange(3), random.randrange(2)), random.randrange(2), columns)
                weight = random.choice([1, 1, 2])
            batch.append((row, weight))
            inside[row] += weight
            inside += Counter()
        if step == 4:  # to empty
            batch += [(row, -count) for row, count in inside.items()]
            inside.clear()
        random.shuffle(batch)
        world.put(queues[0], batch)
        clear(world.arena.base, queues[1])
        run_group(world.dictionary, operator)
        changes: Counter[tuple[object, ...]] = Counter()
        for (newest, oldest, columns), weight in world.rows(queues[1]):
            texts = tuple(text_of(decode(id, world.dictionary)) for id in columns)
            changes[((newest, oldest), texts)] += weight
        assert all(changes.values()), "a row was sent and taken back in one step"
        for row_, weight in changes.items():
            sent[row_] += weight
        now = Counter({row_: count for row_, count in sent.items() if count})
        assert now == expected(world, inside, keys, [node for _, node in pairs], fresh=fresh)
        if step == 2:
            world = world.again()


@pytest.mark.parametrize("bound", [True, False])
def test_times_are_kept_once(bound: bool) -> None:
    """A group has no tree of its own for its times where SAMPLE has every row by them."""
    world = World()
    queues = int(make_queue(world.arena.base, 2)), int(make_queue(world.arena.base, 2))
    folds = [Fold("SAMPLE", 1, bound=bound)]
    operator = make_grouping(world.dictionary, world.terms, queues, [0], folds, fresh=NEWEST)
    assert world.arena.words[operator + FRESH] == (SAMPLED if bound else NEWEST)


def test_groups_leave_nothing_behind() -> None:
    world = World()
    queues = int(make_queue(world.arena.base, 2)), int(make_queue(world.arena.base, 7))
    folds = [Fold(name, 1, name == "COUNT") for name in ("COUNT", "SUM", "AVG", "MIN", "MEDIAN", "SAMPLE")]
    operator = make_grouping(world.dictionary, world.terms, queues, [0], folds, fresh=SPANS)
    used = []
    for _ in range(4):
        for weight in (1, -1):
            rows: list[tuple[Row, int]] = []
            for n in range(200):
                terms = typed(str(n % 5), "integer"), double(n / 8)
                columns = tuple(encode(term, world.dictionary) for term in terms)
                rows.append((((n, n), n, columns), weight))
            world.put(queues[0], rows)
            clear(world.arena.base, queues[1])
            run_group(world.dictionary, operator)
        used.append(world.arena.used)
    assert used[1] == used[3]
