"""Operators fed by the thousand: kernels that drive rings, joins and what follows a join, and the inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from mmap import PAGESIZE

import numpy as np
from measure import REPEATS, Words, timed_in_turn

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, DONE, NEVER, WIDTH, add_row, clear, make_queue
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.key_index import NEWEST
from cqels.kernels.containers.row_buffer import TOGETHER, add_index, change, evict, make_ring
from cqels.kernels.containers.row_storage import DATA, FIRST, NEXT, ROOM, ROWS, STRIDE, probe, row_of
from cqels.kernels.memory.arena import Arena, call, load, store
from cqels.kernels.operators.join import BUFFER, INPUT, INPUTS, OUT, PATHS, QUEUE, step_join
from cqels.kernels.operators.join_prefetch import (
    KEYS_AHEAD,
    LOOKED,
    OUTLOOK_WORDS,
    ROWS_AHEAD,
    bring,
    expect_keys,
    expect_matches,
    go_on,
    make_paths,
)
from cqels.kernels.operators.join_setup import Input, make_join, read_orders, set_order
from cqels.kernels.operators.window_prefetch import FAR

EVENT_WORDS = 8
"""Words of an event: its input, a row of at most seven words."""
SHAPES = {"star": [(0, 1), (0, 2), (0, 3)], "chain": [(0, 1), (1, 2), (2, 3)]}
"""The output columns of the two columns of each input."""
FOREVER = 1 << 40
LEAVING = 16


# --- kernels: whole blocks of events in one call


@kernel
def expect_oldest(base, outlook, paths, ring, seen):
    """Look at the keys of rows that will leave a ring, LEAVING of them together; at `seen` is how far it got."""
    first, begun = load(base, ring + FIRST), load(base, seen)
    if begun < first + LEAVING:
        end = min(first + 2 * LEAVING, load(base, ring + NEXT))
        for position in range(max(begun, first), end):
            expect_keys(base, outlook, paths, row_of(base, ring, position))
        store(base, seen, end)


@kernel
def fill_and_slide(base, ring, index, events, first, count, size, offsets, outlook, paths, seen):
    """Insert rows into a ring, and evict the oldest beyond `size`; ask now and then, or the index would go."""
    for number in range(first, first + count):
        if number % 1000 == 0:
            probe(base, ring, index, events + number * EVENT_WORDS + 1, offsets)
        if number % TOGETHER == 0:
            for coming in range(number + TOGETHER, number + 2 * TOGETHER):
                expect_keys(base, outlook, paths, events + coming * EVENT_WORDS + 1)
            expect_oldest(base, outlook, paths, ring, seen)
            bring(base, outlook)
        if load(base, ring + ROWS) >= size:
            evict(base, ring)
        change(base, ring, events + number * EVENT_WORDS + 1)


@kernel
def probe_all(base, ring, index, events, first, count, offsets):
    """Read the counter of each event's key and its newest row: a sum, so that nothing is optimised away."""
    total = 0
    for number in range(first, first + count):
        rows = load(base, probe(base, ring, index, events + number * EVENT_WORDS + 1, offsets))
        if rows != 0:
            total += (rows >> 32) + load(base, row_of(base, ring, rows & NEWEST) + COLUMNS)
    return total


@kernel
def _paths(base, join, event):
    return load(base, load(base, join + INPUT + load(base, event)) + PATHS)


@kernel
def _is_far(base, join, event):
    return load(base, load(base, load(base, join + INPUT + load(base, event)) + BUFFER) + ROWS) >= FAR


@kernel
def drive(base, join, events, first, count, span, taking_back, step, operator, sent, outlook, seen):
    """Feed a join one event per tick: the one that came `span` before leaves its window, then the event is queued.

    All events since that one are in their windows, which are rings.

    With `taking_back` 1 expired rows are changes like any other, and take back what they were joined to.  `step` is the
    address of the step of an operator that reads the join's output and writes to the queue `sent`, or 0.  The result is
    how many rows came out at the end, or -1 if the operator needed Python.
    """
    out, results = load(base, join + OUT), 0
    inputs = load(base, join + INPUTS)
    for number in range(first, first + count):
        event = events + number * EVENT_WORDS
        if number % TOGETHER == 0 and _is_far(base, join, event):  # as the scheduler looks ahead
            go_on(base, outlook)
            for coming in range(ROWS_AHEAD * TOGETHER, (ROWS_AHEAD + 1) * TOGETHER):
                place = event + coming * EVENT_WORDS
                expect_matches(base, outlook, _paths(base, join, place), place + 1)
            for coming in range(KEYS_AHEAD * TOGETHER, (KEYS_AHEAD + 1) * TOGETHER):
                place = event + coming * EVENT_WORDS
                expect_keys(base, outlook, _paths(base, join, place), place + 1)
            for other in range(inputs):
                own = load(base, join + INPUT + other)
                expect_oldest(base, outlook, load(base, own + PATHS), load(base, own + BUFFER), seen + other)
        bring(base, outlook)
        for other in range(inputs):
            clear(base, load(base, load(base, join + INPUT + other) + QUEUE))
        if number >= span:
            expired = event - span * EVENT_WORDS
            if taking_back == 0:
                evict(base, load(base, load(base, join + INPUT + load(base, expired)) + BUFFER))
            else:
                _enqueue(base, join, expired, -1)
        _enqueue(base, join, event, 1)
        step_join(base, join)
        if step != 0:
            if call(step, base, operator, number) != DONE:
                return -1
            results += load(base, sent + QUEUED)
            clear(base, sent)
        else:
            results += load(base, out + QUEUED)
        clear(base, out)
    return results


@kernel
def _enqueue(base, join, event, weight):
    queue = load(base, load(base, join + INPUT + load(base, event)) + QUEUE)
    row = add_row(base, queue)
    for word in range(load(base, queue + WIDTH)):
        store(base, row + word, load(base, event + 1 + word))
    store(base, row, weight)


@kernel
def fill_windows(base, join, events, first, count):
    """Put events into the windows of a join, without joining them: there may be very many results on the way."""
    for number in range(first, first + count):
        event = events + number * EVENT_WORDS
        change(base, load(base, load(base, join + INPUT + load(base, event)) + BUFFER), event + 1)


# --- inputs


def make_events(arena: Arena, inputs: Words, columns: list[Words]) -> int:
    """Events in the arena: input, and a row with these columns; empty ones behind, to look ahead at."""
    count = len(inputs)
    place = arena.take((count + (KEYS_AHEAD + 1) * TOGETHER) * EVENT_WORDS)
    block = arena.array(place, count * EVENT_WORDS).reshape(count, EVENT_WORDS)
    block[:, 0] = inputs
    block[:, 1] = 1
    block[:, 2:5] = NEVER, -1, ALWAYS
    for number, column in enumerate(columns):
        block[:, 5 + number] = column
    return place


class Ring:
    """A window of so many rows with one indexed column, and the events that slide it."""

    def __init__(self, values: Words, size: int) -> None:
        self.arena = Arena()
        self.size = size
        self.events = make_events(self.arena, np.zeros(len(values), np.int64), [values])
        self.ring = make_ring(self.arena, 1, bare=True)
        self.index = add_index(self.arena, self.ring, [0])
        self.offsets = self.arena.take(2)
        self.arena.words[self.offsets] = COLUMNS
        self.outlook, self.paths = self.arena.take(OUTLOOK_WORDS), make_paths(self.arena, self.ring, [])
        self.seen = self.arena.take(1)

    def slide(self, first: int, block: int) -> None:
        rest = self.size, self.offsets, self.outlook, self.paths, self.seen
        fill_and_slide(self.arena.base, self.ring, self.index, self.events, first, block, *rest)

    def probe(self, first: int, block: int) -> int:
        return int(probe_all(self.arena.base, self.ring, self.index, self.events, first, block, self.offsets))


class Join:
    """A join of windows that hold `size` rows each when events come to its inputs in turn."""

    def __init__(self, columns: list[tuple[int, ...]], inputs: Words, values: list[Words], size: int) -> None:
        self.arena = Arena()
        self.columns, self.inputs, self.values = columns, inputs, values
        self.span = size * len(columns)
        self.events = make_events(self.arena, inputs, values)
        self._others = 8 * self.arena.held
        self.out = int(make_queue(self.arena.base, 1 + max(column for own in columns for column in own)))
        sources = [
            Input(make_ring(self.arena, len(own), bare=True), own, int(make_queue(self.arena.base, len(own))))
            for own in columns
        ]
        self.rings = [source.buffer for source in sources]
        self.join = make_join(self.arena, self.out, sources)
        for own in self.arena.array(self.join + INPUT, len(columns)):
            self.arena.words[self.arena.words[own + PATHS] + LOOKED] = 1
        self.outlook, self.seen = self.arena.take(OUTLOOK_WORDS), self.arena.take(len(columns))
        self.step = self.operator = self.sent = 0

    @property
    def state(self) -> int:
        """Bytes of all that the join remembers."""
        return 8 * self.arena.held - self._others

    def follow(self, step: int, operator: int, sent: int) -> None:
        """Let an operator read the output: the address of its step, its place, its queue."""
        self.step, self.operator, self.sent = step, operator, sent

    def fill(self, count: int) -> None:
        """Let the first events be in the windows, as if all had been there when the join began."""
        fill_windows(self.arena.base, self.join, self.events, 0, count)
        for ring in self.rings:  # the system hands memory out once: a window that has slid for long has all of its own
            data, room, stride = (int(self.arena.words[ring + word]) for word in (DATA, ROOM, STRIDE))
            self.arena.words[data : data + room * stride : PAGESIZE // 8] |= 0

    def feed(self, first: int, block: int, *, taking_back: bool = False) -> int:
        """Feed so many events: rows that came out."""
        rest = self.step, self.operator, self.sent, self.outlook, self.seen
        found = drive(self.arena.base, self.join, self.events, first, block, self.span, int(taking_back), *rest)
        if found < 0:
            raise RuntimeError("a step needed Python: choose other values")
        return int(found)


def three_way(shape: str, size: int, keys: int, total: int) -> Join:
    """A join of three windows of `size` rows, and events in turn: about one result each if there are as many keys."""
    random = np.random.default_rng(2)
    values = [random.integers(1, keys + 1, total), random.integers(1, keys + 1, total)]
    return Join(SHAPES[shape], np.arange(total) % 3, values, size)


def three_way_run(shape: str, size: int, keys: int, block: int, *, taking_back: bool = False) -> Callable[[int], int]:
    """A three-way join whose windows are full, as a function that feeds it a block of events: rows that came out."""
    join = three_way(shape, size, keys, 3 * size + block * (REPEATS + 1))
    join.fill(3 * size)
    return lambda number: join.feed(3 * size + number * block, block, taking_back=taking_back)


def cost_of(shape: str, size: int, keys: int, block: int, *, taking_back: bool = False) -> tuple[float, float]:
    """Of a three-way join: seconds per event, results per event."""
    feed, results = three_way_run(shape, size, keys, block, taking_back=taking_back), 0

    def run(number: int) -> None:
        nonlocal results
        results += feed(number)

    [spent] = timed_in_turn(run)
    return spent / block, results / (block * (REPEATS + 1))


# --- an order that turns out wrong


def flipping(keys: int, block: int) -> tuple[Join, int]:
    """A join whose first input has events, and how many come before them: these fill the others.

    In the first half of the events the second input has 100 matches for each and the third rarely one; then they flip.
    """
    random = np.random.default_rng(3)
    half = block * (REPEATS + 1)
    many = np.repeat(np.arange(1, keys + 1), 100)
    few = np.arange(1, keys + 1, 100)
    second, third = np.concatenate([many, few + keys]), np.concatenate([few, many + keys])
    first = [random.integers(1, keys + 1, half), random.integers(keys + 1, 2 * keys + 1, half)]
    inputs = np.repeat([1, 2, 0], [len(second), len(third), 2 * half])
    values = np.concatenate([second, third, *first])
    join = Join(SHAPES["star"], inputs, [values, np.arange(1, len(values) + 1)], FOREVER)
    return join, len(second) + len(third)


def adaptivity() -> tuple[dict[str, list[float]], dict[tuple[int, ...], int]]:
    """Seconds per event of both halves, by order; and how often each order was chosen where it was free."""
    keys, block = 1_000, 100_000
    joins: dict[str, Join] = {}
    before = 0
    for name, order in {"second first": [1, 2], "third first": [2, 1], "adaptive": []}.items():
        joins[name], before = flipping(keys, block)
        joins[name].fill(before)
        set_order(joins[name].arena, joins[name].join, 0, order)
    spent: dict[str, list[float]] = {name: [] for name in joins}
    for half in (0, 1):

        def run(number: int, join: Join, half: int = half) -> None:
            join.feed(before + (half * (REPEATS + 1) + number) * block, block)

        times = timed_in_turn(*(partial(run, join=join) for join in joins.values()))
        for name, value in zip(joins, times, strict=True):
            spent[name].append(value / block)
    adaptive = joins["adaptive"]
    orders = read_orders(adaptive.arena, adaptive.join)
    return spent, {order: times for order, times in orders.items() if order[0] == 0}
