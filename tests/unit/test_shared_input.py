"""FEED against its law: each tick has the rows that were logged for it, in their order, and no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cqels.kernels.containers.delta_queue import COLUMNS, COUNT, add_row, clear, make_queue, row_at
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.shared_input import AHEAD, COUNTED_AT, ROW, log_rows, make_shared_input, step_shared_input

Row = tuple[int, ...]
"""Weight, stamps, two columns."""
ROWS = st.lists(st.tuples(*[st.integers(-3, 3)] * (COLUMNS + 2)), max_size=12)


class Feeding:
    def __init__(self) -> None:
        self.arena = Arena(size=1 << 22)
        base = self.arena.base
        self.solutions, self.out, self.log = (int(make_queue(base, columns)) for columns in (2, 2, 3))
        self.ticks = self.arena.take(1)
        self.feed = make_shared_input(self.arena, self.out, self.log)
        self.arena.words[self.feed + COUNTED_AT] = self.ticks

    def keep(self, tick: int, rows: list[Row]) -> None:
        for row in rows:
            offset = int(add_row(self.arena.base, self.solutions))
            self.arena.words[offset : offset + len(row)] = row
        assert log_rows(self.arena.base, self.solutions, self.log, tick)
        clear(self.arena.base, self.solutions)

    def brought(self, tick: int) -> list[Row]:
        words = self.arena.words
        words[self.ticks] = tick
        assert step_shared_input(self.arena.base, self.feed)
        offsets = [int(row_at(self.arena.base, self.out, number)) for number in range(int(words[self.out + COUNT]))]
        clear(self.arena.base, self.out)
        return [tuple(words[offset : offset + COLUMNS + 2].tolist()) for offset in offsets]


@given(st.lists(st.lists(ROWS, max_size=6), max_size=4), st.integers(-2, 9))
def test_each_tick_has_what_was_logged_for_it(blocks: list[list[list[Row]]], ahead: int) -> None:
    feeding = Feeding()
    words, tick = feeding.arena.words, 3
    for block in blocks:
        words[feeding.feed + AHEAD], words[feeding.feed + ROW] = ahead, 0
        for number, rows in enumerate(block):
            feeding.keep(tick + number, rows)
        for number, rows in enumerate(block):
            assert feeding.brought(tick + number + ahead) == rows
        clear(feeding.arena.base, feeding.log)
        assert feeding.brought(tick + len(block) + ahead) == []  # a tick of its own
        tick, ahead = tick + len(block), ahead + 1
