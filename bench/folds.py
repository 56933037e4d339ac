"""Aggregates and top-k under sliding windows: the kernels beside plain Python, and their growth with the window.

    python bench/folds.py                 all cases, windows of 10 k, 100 k and 1 M
    python bench/folds.py --case MEDIAN --windows 10000 1000000

Every event is a step of its own: a row comes, the oldest goes, the group's row is computed and compared with the one
sent before.  Times are CPU times, the median of five parts of a run; read the ratios.  Plain Python has one group and
no rows to send; its AVG is a running sum of floats, which is not exact.  TOP 10 is of counts that only grow.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt
from pyoxigraph import Literal

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS, NUMBER, OLDEST, TIME, WEIGHT, add_row, clear, make_queue
from cqels.kernels.memory.arena import Arena, load, store
from cqels.kernels.operators.aggregate import step_group
from cqels.kernels.operators.aggregate_setup import Fold, make_grouping, run_group
from cqels.kernels.operators.topk import step_ordered
from cqels.kernels.operators.topk_setup import make_ordered, run_ordered
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.counted_btree import DOWN, TERM_DOWN
from cqels.kernels.terms.sort_key_fallback import make_terms
from cqels.model.ids import inline_word
from cqels.model.terms import XSD_INTEGER

PARTS = 5
Words = npt.NDArray[np.int64]


@kernel
def put_event(base, queue, weight, time, key, value):
    row = add_row(base, queue)
    store(base, row + WEIGHT, weight)
    store(base, row + TIME, time)
    store(base, row + NUMBER, time)
    store(base, row + OLDEST, time)
    store(base, row + COLUMNS, key)
    store(base, row + COLUMNS + 1, value)


@kernel
def fill(base, queue, values, count):
    clear(base, queue)
    for event in range(count):
        put_event(base, queue, 1, event, load(base, values + 2 * event), load(base, values + 2 * event + 1))


@kernel
def slide(base, operator, source, target, values, first, last, window):
    """Steps of one event each: how many rows were sent, or -1 where Python would be needed."""
    sent = 0
    for event in range(first, last):
        old = event - window
        clear(base, source)
        clear(base, target)
        put_event(base, source, 1, event, load(base, values + 2 * event), load(base, values + 2 * event + 1))
        put_event(base, source, -1, old, load(base, values + 2 * old), load(base, values + 2 * old + 1))
        if step_group(base, operator) != 0:
            return -1
        sent += load(base, target)
    return sent


@kernel
def count_up(base, operator, source, target, places, keys, numbers, first, last):
    """Steps of a top-k over counts: each event makes one key's count larger by one."""
    sent = 0
    for event in range(first, last):
        place = load(base, places + event)
        count = load(base, numbers + place)
        clear(base, source)
        clear(base, target)
        put_event(base, source, 1, 0, load(base, keys + place), _integer(count + 1))
        put_event(base, source, -1, 0, load(base, keys + place), _integer(count))
        store(base, numbers + place, count + 1)
        if step_ordered(base, operator) != 0:
            return -1
        sent += load(base, target)
    return sent


@kernel
def _integer(number):
    return (-1 << 63) | (1 << 58) | number


class World:
    """An arena with a dictionary, two queues and events."""

    def __init__(self, values: Words, keys: Words | None = None) -> None:
        self.arena = Arena()
        self.dictionary = ArenaDictionary(self.arena)
        self.terms = make_terms(self.arena, self.dictionary.offset)
        self.source = int(make_queue(self.arena.base, 2))
        self.target = int(make_queue(self.arena.base, 3))
        self.offset = self.arena.take(2 * len(values))
        block = self.arena.array(self.offset, 2 * len(values))
        block[0::2] = 0 if keys is None else keys
        block[1::2] = values


def double_words(values: npt.NDArray[np.float64]) -> Words:
    """The words of doubles from 2^-64 to 2^64: `cqels.model.ids`, for arrays."""
    bits = values.view(np.int64)
    exponent = (bits >> 52 & 0x7FF) - 959
    low = (bits < 0).astype(np.int64) << 57 | (exponent & 31) << 52 | bits & (1 << 52) - 1
    words: Words = np.int64(-(2**63)) | (8 + (exponent >> 5)) << 58 | low
    return words


def parts(first: int, count: int) -> Iterator[tuple[int, int]]:
    size = count // PARTS
    for part in range(PARTS):
        yield first + part * size, first + (part + 1) * size


def median_time(run: Callable[[int, int], object], first: int, count: int) -> float:
    """Seconds per event."""
    times = []
    for start, end in parts(first, count):
        began = time.process_time()
        run(start, end)
        times.append((time.process_time() - began) / (end - start))
    return statistics.median(times)


# --- aggregates -----------------------------------------------------------------------------------------------------


def kernel_time(fold: Fold, values: Words, window: int, count: int) -> float:
    world = World(values)
    base = world.arena.base
    operator = make_grouping(world.dictionary, world.terms, (world.source, world.target), [0], [fold])
    fill(base, world.source, world.offset, window)
    run_group(world.dictionary, operator)

    def run(start: int, end: int) -> None:
        sent = slide(base, operator, world.source, world.target, world.offset, start, end, window)
        if sent < 0:
            sys.exit("a step needed Python: choose other values")

    run(window, window + 100)  # compiled
    return median_time(run, window + 100, count)


def python_avg(values: list[float], window: int) -> Callable[[int, int], object]:
    """A running sum of floats: fast, and not exact."""
    state = [sum(values[:window])]
    shown = deque([0.0], maxlen=1)

    def run(start: int, end: int) -> None:
        for event in range(start, end):
            state[0] += values[event] - values[event - window]
            mean = state[0] / window
            if mean != shown[0]:
                shown.append(mean)

    return run


def python_median(values: list[float], window: int) -> Callable[[int, int], object]:
    """A sorted list with `bisect`: inserting moves half of it."""
    ordered = sorted(values[:window])
    shown = deque([0.0], maxlen=1)
    at = window // 2

    def run(start: int, end: int) -> None:
        for event in range(start, end):
            insort(ordered, values[event])
            del ordered[bisect_left(ordered, values[event - window])]
            middle = (ordered[at - 1] + ordered[at]) / 2
            if middle != shown[0]:
                shown.append(middle)

    return run


def python_extreme(sign: int) -> Callable[[list[float], int], Callable[[int, int], object]]:
    """A heap whose expired entries are dropped when they come to the top."""

    def make(values: list[float], window: int) -> Callable[[int, int], object]:
        heap = [(sign * value, event) for event, value in enumerate(values[:window])]
        heapify(heap)
        shown = deque([0.0], maxlen=1)

        def run(start: int, end: int) -> None:
            for event in range(start, end):
                heappush(heap, (sign * values[event], event))
                while heap[0][1] <= event - window:
                    heappop(heap)
                if heap[0][0] != shown[0]:
                    shown.append(heap[0][0])

        return run

    return make


def python_distinct(values: list[float], window: int) -> Callable[[int, int], object]:
    """A dict of counts."""
    counts = Counter(values[:window])
    shown = deque([0], maxlen=1)

    def run(start: int, end: int) -> None:
        for event in range(start, end):
            new, old = values[event], values[event - window]
            counts[new] += 1
            counts[old] -= 1
            if not counts[old]:
                del counts[old]
            if len(counts) != shown[0]:
                shown.append(len(counts))

    return run


AGGREGATES = {
    "AVG": (Fold("AVG", 1), python_avg),
    "MIN": (Fold("MIN", 1), python_extreme(1)),
    "MAX": (Fold("MAX", 1), python_extreme(-1)),
    "MEDIAN": (Fold("MEDIAN", 1), python_median),
    "COUNT DISTINCT": (Fold("COUNT", 1, distinct=True), python_distinct),
}


def measure(name: str, window: int, count: int) -> tuple[float, float]:
    """Seconds per event: the kernel's, plain Python's."""
    if name == "TOP 10":
        return measure_top(window, count)
    fold, plain = AGGREGATES[name]
    random = np.random.default_rng(window)
    values = random.uniform(
        10, 40, window + 100 + count
    )  # nearly all different: a tree has as many keys as the window rows
    if name == "COUNT DISTINCT":
        values = np.floor(random.zipf(1.2, len(values)) % window) + 1
    ours = kernel_time(fold, double_words(values), window, count)
    slow = min(count, 1_000 if name == "MEDIAN" and window > 100_000 else 20_000)
    return ours, median_time(plain(values.tolist(), window), window, slow)


# --- top-10 ---------------------------------------------------------------------------------------------------------


def measure_top(window: int, count: int) -> tuple[float, float]:
    """The ten largest of so many counts, which grow as Zipf has it."""
    random = np.random.default_rng(window)
    places = (random.zipf(1.2, count + 100) % window).astype(np.int64)
    one = inline_word(Literal("1", datatype=XSD_INTEGER))
    world = World(np.full(window, one))
    base, arena = world.arena.base, world.arena
    keys, numbers, events = arena.take(window), arena.take(window), arena.take(len(places))
    keys_words = double_words(np.arange(1.0, window + 1))
    arena.array(keys, window)[:] = keys_words
    arena.array(numbers, window)[:] = 1
    arena.array(events, len(places))[:] = places
    target = int(make_queue(base, 2))
    queues = (world.source, target)
    fields = [(TERM_DOWN, COLUMNS + 1), (DOWN, TIME), (DOWN, NUMBER)]
    operator = make_ordered(world.dictionary, world.terms, queues, 2, fields, limit=10)
    arena.array(world.offset, 2 * window)[0::2] = keys_words
    fill(base, world.source, world.offset, window)
    rows = arena.array(int(arena.words[world.source + 3]), window * 6).reshape(window, 6)
    rows[:, TIME : OLDEST + 1] = 0
    run_ordered(world.dictionary, operator)

    def run(start: int, end: int) -> None:
        if count_up(base, operator, world.source, target, events, keys, numbers, start, end) < 0:
            sys.exit("a step needed Python: choose other values")

    run(0, 100)
    ours = median_time(run, 100, count)
    counts = [1] * window
    ordered = [(-1, key) for key in range(window)]
    events_list = places.tolist()

    def plain(start: int, end: int) -> None:
        top = ordered[:10]
        for event in range(start, end):
            key = events_list[event]
            del ordered[bisect_left(ordered, (-counts[key], key))]
            counts[key] += 1
            insort(ordered, (-counts[key], key))
            if ordered[:10] != top:
                top = ordered[:10]

    return ours, median_time(plain, 0, min(count, 20_000 if window <= 100_000 else 1_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = [*AGGREGATES, "TOP 10"]
    parser.add_argument("--case", action="append", choices=cases, help="one case; may be repeated (default: all)")
    parser.add_argument(
        "--windows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="rows in the window"
    )
    parser.add_argument("--events", type=int, default=200_000, help="events measured (default 200,000)")
    arguments = parser.parse_args()
    write = sys.stdout.write
    write(f"{'case':<16}{'window':>10}{'kernel':>12}{'Python':>12}{'ratio':>9}\n")
    for case in arguments.case or cases:
        for window in arguments.windows:
            ours, plain = measure(case, window, arguments.events)
            write(f"{case:<16}{window:>10,}{ours * 1e9:>9.0f} ns{plain * 1e9:>9.0f} ns{plain / ours:>8.1f}×\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
