"""How fast the core is: ring index, probe, multiway joins, growth with the window, adaptive order.

Figures are medians of five in one process, in CPU time: trust the ratios, not the digits.

    python bench/core.py            # all tables, about two minutes
    python bench/core.py ring joins
    python bench/core.py growth --large
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from cqels.kernels.buffers import (
    AHEAD,
    DATA,
    FIRST,
    MASK,
    ROWS,
    STRIDE,
    add_index,
    change,
    evict,
    expect_row,
    make_ring,
    probe,
)
from cqels.kernels.index import COUNT, HEAD, LINK, TABLE
from cqels.kernels.jit import kernel
from cqels.kernels.join import (
    BUFFER,
    INPUT,
    INPUTS,
    QUEUE,
    Input,
    expect_change,
    expect_matches,
    make_join,
    read_orders,
    set_order,
    step_join,
)
from cqels.kernels.memory import Arena, load, store
from cqels.kernels.rows import COLUMNS, TIME, WIDTH, add_row, clear, make_queue
from cqels.kernels.rows import COUNT as QUEUED

REPEATS = 5
NEAR = 2
EVENT_WORDS = 8
"""Words of an event: its input, a row of at most seven words."""
CONSOLE = Console()
Words = np.ndarray[Any, np.dtype[np.int64]]


# --- drivers: whole blocks of events in one call


@kernel
def fill_and_slide(base, ring, index, events, first, count, size, offsets):
    """Insert rows into a ring, and evict the oldest beyond `size`; ask now and then, or the index would go."""
    for number in range(first, first + count):
        if number % 1000 == 0:
            probe(base, ring, index, events + number * EVENT_WORDS + 1, offsets)
        expect_row(base, ring, events + (number + AHEAD) * EVENT_WORDS + 1)  # as for the rows of a queue
        if load(base, ring + ROWS) >= size:
            evict(base, ring)
        change(base, ring, events + number * EVENT_WORDS + 1)


@kernel
def probe_all(base, ring, index, events, first, count, offsets):
    """Read the counter of each event's key and walk its rows: a sum, so that nothing is optimised away."""
    total = 0
    for number in range(first, first + count):
        entry = probe(base, ring, index, events + number * EVENT_WORDS + 1, offsets)
        position, link = load(base, entry + HEAD) - 1, load(base, index + LINK)
        for _ in range(load(base, entry + COUNT)):
            row = load(base, ring + DATA) + (position & load(base, ring + MASK)) * load(base, ring + STRIDE)
            total += load(base, row + COLUMNS)
            position = load(base, row + link)
    return total


@kernel
def drive(base, join, events, first, count, span, taking_back):
    """Feed a join one event per tick: every window lets go of what is older than `span`, then the event is queued.

    With `taking_back` 1 expired rows are changes like any other, and take back what they were joined to.
    """
    out, results = load(base, join + 2), 0
    inputs = load(base, join + INPUTS)
    for number in range(first, first + count):
        event = events + number * EVENT_WORDS
        now = load(base, event + 1 + TIME)
        coming, next_one = event + AHEAD * EVENT_WORDS, event + NEAR * EVENT_WORDS  # as the machine looks ahead
        expect_change(base, join, load(base, coming), coming + 1)
        expect_matches(base, join, load(base, next_one), next_one + 1)
        for other in range(inputs):
            source = load(base, join + INPUT + other)
            ring, queue = load(base, source + BUFFER), load(base, source + QUEUE)
            clear(base, queue)
            expired, width = 0, load(base, queue + WIDTH)
            while expired < load(base, ring + ROWS):
                position = (load(base, ring + FIRST) + expired) & load(base, ring + MASK)
                row = load(base, ring + DATA) + position * load(base, ring + STRIDE)
                if load(base, row + TIME) > now - span:
                    break
                if taking_back == 0:
                    evict(base, ring)
                    continue
                target = add_row(base, queue)
                for word in range(width):
                    store(base, target + word, load(base, row + word))
                store(base, target, -1)
                expired += 1
        queue = load(base, load(base, join + INPUT + load(base, event)) + QUEUE)
        target = add_row(base, queue)
        for word in range(load(base, queue + WIDTH)):
            store(base, target + word, load(base, event + 1 + word))
        step_join(base, join)
        results += load(base, out + QUEUED)
        clear(base, out)
    return results


def make_events(arena: Arena, inputs: Words, columns: list[Words]) -> int:
    """Events in the arena, one per time: input, and a row with these columns."""
    count = len(inputs)
    place = arena.take(count * EVENT_WORDS)
    block = arena.array(place, count * EVENT_WORDS).reshape(count, EVENT_WORDS)
    block[:, 0] = inputs
    block[:, 1] = 1
    block[:, 2] = block[:, 4] = np.arange(count)
    for number, column in enumerate(columns):
        block[:, 5 + number] = column
    return place


def timed_in_turn(*runs: Callable[[int], Any]) -> list[float]:
    """The median CPU time of five runs of each, after one that is not counted.

    They run in turn, so that the machine's moods fall on all; each gets its number, for a fresh part of the input.
    """
    times: list[list[float]] = [[] for _ in runs]
    for number in range(REPEATS + 1):
        for run, spent in zip(runs, times, strict=True):
            start = process_time()
            run(number)
            spent.append(process_time() - start)
    return [median(spent[1:]) for spent in times]


# --- the tables


class PythonRing:
    """What one would write in Python: a deque of rows, and a dict of deques by key."""

    def __init__(self) -> None:
        self.rows: deque[tuple[int, int]] = deque()
        self.by_key: dict[int, deque[tuple[int, int]]] = {}

    def slide(self, keys: list[int], size: int) -> None:
        rows, by_key = self.rows, self.by_key
        for number, key in enumerate(keys):
            if len(rows) >= size:
                old = rows.popleft()[0]
                bucket = by_key[old]
                bucket.popleft()
                if not bucket:
                    del by_key[old]
            row = (key, number)
            rows.append(row)
            found = by_key.get(key)
            if found is None:
                by_key[key] = deque((row,))
            else:
                found.append(row)

    def probe(self, keys: list[int]) -> int:
        total = 0
        for key in keys:
            for row in self.by_key.get(key, ()):
                total += row[0]
        return total


def ring(large: bool) -> None:
    """Ring index: insert and evict a row, probe and walk a key, against a dict and deques."""
    table = Table("rows", "keys", "insert", "Python", "ratio", "probe", "Python ", "ratio ")
    block, sizes = 200_000, [(10_000, 1_000), (100_000, 100_000), (1_000_000, 100_000)]
    if large:
        sizes.append((10_000_000, 1_000_000))
    for size, keys in sizes:
        arena = Arena()
        total = size + block * (REPEATS + 1) + AHEAD
        values = np.random.default_rng(1).integers(1, keys + 1, total)
        events = make_events(arena, np.zeros(total, np.int64), [values])
        window = make_ring(arena, 1)
        index = add_index(arena, window, [0])
        offsets = arena.take(2)
        arena.words[offsets] = COLUMNS
        fill_and_slide(arena.base, window, index, events, 0, size, size, offsets)
        plain, listed = PythonRing(), values.tolist()
        plain.slide(listed[:size], size)
        probes = block // 10
        slide, slow, look, look_slow = timed_in_turn(
            lambda n: fill_and_slide(arena.base, window, index, events, size + n * block, block, size, offsets),  # noqa: B023
            lambda n: plain.slide(listed[size + n * block : size + (n + 1) * block], size),  # noqa: B023
            lambda n: probe_all(arena.base, window, index, events, n * block, probes, offsets),  # noqa: B023
            lambda n: plain.probe(listed[n * block : n * block + probes]),  # noqa: B023
        )
        assert arena.words[index + TABLE] != 0
        table.add_row(
            f"{size:,}", f"{keys:,}", rate(block / slide), rate(block / slow), f"{slow / slide:.1f}",
            f"{look / probes * 1e9:.0f} ns", f"{look_slow / probes * 1e9:.0f} ns", f"{look_slow / look:.1f}",
        )  # fmt: skip
    show(ring, table)


def make_case(arena: Arena, shape: str, size: int, keys: int, total: int) -> tuple[int, int]:
    """A join of three windows of `size` rows, and events in turn: about one result each if there are as many keys."""
    random = np.random.default_rng(2)
    events = make_events(
        arena, np.arange(total) % 3, [random.integers(1, keys + 1, total), random.integers(1, keys + 1, total)]
    )
    columns = {"star": [(0, 1), (0, 2), (0, 3)], "chain": [(0, 1), (1, 2), (2, 3)]}[shape]
    inputs = [Input(make_ring(arena, 2), own, int(make_queue(arena.base, 2))) for own in columns]
    return make_join(arena, int(make_queue(arena.base, 4)), inputs), events


def run_case(shape: str, size: int, keys: int, block: int, taking_back: int) -> tuple[float, float]:
    """Seconds per event, results per event."""
    arena = Arena()
    join, events = make_case(arena, shape, size, keys, 3 * size + block * (REPEATS + 1) + AHEAD)
    drive(arena.base, join, events, 0, 3 * size, 3 * size, 0)
    results = 0

    def run(number: int) -> None:
        nonlocal results
        results += drive(arena.base, join, events, 3 * size + number * block, block, 3 * size, taking_back)

    [spent] = timed_in_turn(run)
    return spent / block, results / (block * (REPEATS + 1))


def joins(large: bool) -> None:
    """Three-way joins, one event per tick: windows of 100,000 rows, 100,000 keys."""
    table = Table("shape", "expired rows", "events/s", "results per event")
    for shape in ("star", "chain"):
        for taking_back in (0, 1):
            spent, results = run_case(shape, 100_000, 100_000, 200_000, taking_back)
            table.add_row(shape, "taken back" if taking_back else "dropped", rate(1 / spent), f"{results:.2f}")
    show(joins, table)


def growth(large: bool) -> None:
    """Cost per event as windows grow, at the same number of matches."""
    table = Table("rows per window", "star", "chain", "ratio to the first", "ratio to the first ")
    first: list[float] = []
    for size in [10_000, 100_000, 1_000_000] + [10_000_000] * large:
        spent = [run_case(shape, size, size, 200_000, 0)[0] for shape in ("star", "chain")]
        first = first or spent
        ratios = (f"{now / before:.2f}" for now, before in zip(spent, first, strict=True))
        table.add_row(f"{size:,}", *(f"{value * 1e9:.0f} ns" for value in spent), *ratios)
    show(growth, table)


def adaptivity(large: bool) -> None:
    """Order of probes: the second input has 100 matches and the third rarely one; in the second half the reverse."""
    keys, block = 1_000, 100_000
    cases: dict[str, tuple[Arena, int, int, int]] = {}
    for name, order in {"second first": [1, 2], "third first": [2, 1], "adaptive": []}.items():
        arena = Arena()
        join, events, static = _flipping(arena, keys, block)
        drive(arena.base, join, events, 0, static, 1 << 40, 0)
        set_order(arena, join, 0, order)
        cases[name] = arena, join, events, static
    spent: dict[str, list[float]] = {name: [] for name in cases}
    for half in (0, 1):

        def run(number: int, case: tuple[Arena, int, int, int], half: int = half) -> None:
            arena, join, events, static = case
            drive(arena.base, join, events, static + (half * (REPEATS + 1) + number) * block, block, 1 << 40, 0)

        for name, value in zip(
            cases, timed_in_turn(*(partial(run, case=case) for case in cases.values())), strict=True
        ):
            spent[name].append(value)
    orders = read_orders(*cases["adaptive"][:2])
    table = Table("order", "first half", "second half", "whole", "times adaptive")
    for name, halves in spent.items():
        cells = (f"{value / block * 1e9:.0f} ns" for value in [*halves, sum(halves) / 2])
        table.add_row(name, *cells, f"{sum(halves) / sum(spent['adaptive']):.2f}")
    better = [min(spent["second first"][half], spent["third first"][half]) for half in (0, 1)]
    ratios = ", ".join(f"{spent['adaptive'][half] / better[half]:.2f}" for half in (0, 1))
    show(adaptivity, table)
    CONSOLE.print(f"adaptive to the better fixed order: {ratios}; orders of the first input: ", end="")
    CONSOLE.print({order: count for order, count in orders.items() if order[0] == 0})


def _flipping(arena: Arena, keys: int, block: int) -> tuple[int, int, int]:
    """The join, its events, and how many of them come before the halves."""
    random = np.random.default_rng(3)
    half = block * (REPEATS + 1)
    many = np.repeat(np.arange(1, keys + 1), 100)
    few = np.arange(1, keys + 1, 100)
    second, third = np.concatenate([many, few + keys]), np.concatenate([few, many + keys])
    first = [random.integers(1, keys + 1, half), random.integers(keys + 1, 2 * keys + 1, half + AHEAD)]
    inputs = np.repeat([1, 2, 0], [len(second), len(third), 2 * half + AHEAD])
    values = np.concatenate([second, third, *first])
    events = make_events(arena, inputs, [values, np.arange(1, len(values) + 1)])
    columns = [(0, 1), (0, 2), (0, 3)]
    sources = [Input(make_ring(arena, 2), own, int(make_queue(arena.base, 2))) for own in columns]
    return make_join(arena, int(make_queue(arena.base, 4)), sources), events, len(second) + len(third)


def rate(per_second: float) -> str:
    return f"{per_second / 1e6:.2f} M/s"


def show(part: Callable[[bool], None], table: Table) -> None:
    CONSOLE.print(f"\n{part.__doc__}")
    CONSOLE.print(table)


PARTS: tuple[Callable[[bool], None], ...] = (ring, joins, growth, adaptivity)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.__name__ for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="part", help=f"which tables: {', '.join(names)} (all)")
    parser.add_argument("--large", action="store_true", help="windows of 10 million rows too (10 GB, minutes)")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(names):
        parser.error(f"there is no table {min(unknown)}")
    for part in PARTS:
        if not arguments.parts or part.__name__ in arguments.parts:
            part(arguments.large)


if __name__ == "__main__":
    main()
