"""NARROW against its law: what was sent, added up, is what came and is not older than its column says."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, COUNT, NEVER, add_row, clear, make_queue, row_at
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.per_query_expiry import HEAP, KEPT, make_expiry, step_expiry

Row = tuple[int, ...]
"""Time, number, oldest, columns: a row without its weight. The second of three columns is the width."""
LONGEST = (1 << 63) - 1
Change = tuple[int, int, int, int]
"""Weight, oldest, width, a column."""
SEVERAL = st.lists(
    st.tuples(
        st.sampled_from([-1, 1, 1, 2]),
        st.one_of(st.integers(-4, 0), st.just(ALWAYS)),  # the oldest element, some time ago
        st.sampled_from([0, 1, 2, 3, 5, 9, 1 << 61, LONGEST]),
        st.integers(1, 2),
    ),
    max_size=6,
)


class Narrowing:
    def __init__(self, *, stamps: bool) -> None:
        self.arena = Arena(size=1 << 22)
        self.queue, self.out = int(make_queue(self.arena.base, 3)), int(make_queue(self.arena.base, 2))
        self.offset = make_expiry(self.arena, self.out, self.queue, 1, stamps=stamps)
        self.sent: Counter[Row] = Counter()

    def step(self, now: int, changes: list[tuple[int, Row]]) -> None:
        words = self.arena.words
        for weight, row in changes:
            offset = int(add_row(self.arena.base, self.queue))
            words[offset : offset + COLUMNS + 3] = [weight, *row]
        assert step_expiry(self.arena.base, self.offset, now)
        for number in range(int(words[self.out + COUNT])):
            offset = int(row_at(self.arena.base, self.out, number))
            weight, *row = words[offset : offset + COLUMNS + 2].tolist()
            self.sent[tuple(row)] += weight
        for queue in (self.queue, self.out):
            clear(self.arena.base, queue)

    @property
    def kept(self) -> tuple[int, int]:
        """Rows in the heap and in the table."""
        words = self.arena.words
        return int(words[self.offset + HEAP]), int(words[words[self.offset + KEPT]])


def law(came: Counter[Row], now: int, *, stamps: bool) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for (time, number, oldest, one, width, other), weight in came.items():
        if oldest + width >= now:
            found[(time, number, oldest, one, other) if stamps else (NEVER, -1, ALWAYS, one, other)] += weight
    return found


@given(st.lists(st.tuples(st.integers(0, 4), SEVERAL), max_size=12), st.booleans(), st.booleans())
@settings(max_examples=200)
def test_what_is_too_old_is_gone(steps: list[tuple[int, list[Change]]], stamps: bool, end: bool) -> None:
    """Also if rows come again, are taken back before they come, or are taken back when they have gone."""
    narrow = Narrowing(stamps=stamps)
    came: Counter[Row] = Counter()
    now = 0
    for step, several in steps:
        now += step
        changes = [
            (weight, (5, 0, oldest if oldest == ALWAYS else now // 8 * 8 + oldest, one, width, 7))
            for weight, oldest, width, one in several
        ]
        for weight, row in changes:
            came[row] += weight
        narrow.step(now, changes)
        wanted = law(came, now, stamps=stamps)
        assert {row: weight for row, weight in narrow.sent.items() if weight} == {
            row: weight for row, weight in wanted.items() if weight
        }
        there = sum(1 for row, weight in came.items() if weight and row[2] + row[4] >= now)
        assert narrow.kept == (there, there)
    if end:  # all that came is taken back, in an order of its own
        narrow.step(now, [(-weight, row) for row, weight in sorted(came.items())])
        assert not any(narrow.sent.values())
        assert narrow.kept == (0, 0)


def test_memory_is_given_back() -> None:
    narrow = Narrowing(stamps=True)
    for now in range(400):
        narrow.step(now, [(1, (now, each, now, each, 1 + each % 50, 7)) for each in range(20)])
        if now == 100:
            before = narrow.arena.held
    assert narrow.arena.held == before
    narrow.step(1000, [])
    assert narrow.kept == (0, 0)
