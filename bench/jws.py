"""The experiments of the JWS 2016 paper (sections 5.1, 5.2, 5.4), with its figures and rivals beside ours.

    python bench/jws.py                           # all parts, some minutes
    python bench/jws.py index memory
    python bench/jws.py --large                   # windows of 10 million rows, 100 results per event: 12 GB, an hour
    python bench/jws.py --plots plots --json jws.json

Parts: index (figures 9–12), join3 (13a), average (13b), minimum (13c), distinct (13d), memory (table 2).  As in the
paper, the input is random and encoded: rows of words go into operators, nothing is parsed.  Every event is a tick of
its own.  Figures are medians of five in processor time; rivals run in turn with ours: trust the ratios.  The paper's
machine was a Xeon E5606 of 2.13 GHz with Java 7; of its figures 13a–d only the plots exist, without digits.
"""

from __future__ import annotations

import argparse
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from drivers import Join, Ring, three_way
from figures import Figure, Point, plotter, table_of, write_json, write_plots
from folds import World, double_words, fill, slide
from measure import CONSOLE, REPEATS, Words, progress, timed_in_turn
from rivals import (
    PYTHON_JOINS,
    Event,
    PythonDistinct,
    PythonMinimum,
    PythonRing,
    Window,
    feed_pairs,
    reference_cost,
)

from cqels.kernels.containers.delta_queue import make_queue
from cqels.kernels.containers.key_index import OPEN
from cqels.kernels.containers.row_buffer import AHEAD
from cqels.kernels.operators.aggregate import group_step
from cqels.kernels.operators.aggregate_setup import Fold, make_grouping, run_group
from cqels.kernels.operators.distinct import distinct_step, make_distinct
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.sort_key_fallback import make_terms

Measured = Iterator[tuple[str, Point]]
"""The name of a figure, and a point of it."""
RING_INSERTS = {"JWS least": 400e3, "JWS most": 800e3}
"""Section 5.1: mappings per second on the hash index, for windows of up to 10 million mappings."""
RING_PROBES = {"JWS least": 600e-9, "JWS most": 800e-9}
"""Section 5.1: seconds per probe on a window of 1 million mappings."""
FOOTPRINT = {
    2: {"JWS CQELS": 12.36, "JWS ESPER": 8.93, "JWS R-CQELS": 25.61},
    3: {"JWS CQELS": 13.41, "JWS ESPER": 12.04, "JWS R-CQELS": 28.67},
    4: {"JWS CQELS": 14.74, "JWS ESPER": 15.13, "JWS R-CQELS": 38.95},
    6: {"JWS CQELS": 16.95, "JWS ESPER": 21.26, "JWS R-CQELS": 49.24},
    8: {"JWS CQELS": 18.69, "JWS ESPER": 27.44, "JWS R-CQELS": 54.61},
}
"""Table 2: megabytes of joins of so many count windows of 10,000 mappings."""
TITLES = {
    "insert": ("Ring index, insert and evict (figures 9, 11)", "keys", "rows in the window", "events/s"),
    "probe": (
        "Ring index, probe: counter and newest row of a key (figures 10 and 12)",
        "keys",
        "rows in the window",
        "seconds",
    ),
    "join3": ("Join of three windows, 10,000 keys (figure 13a)", "shape", "rows in each window", "events/s"),
    "average": ("AVG after a window (figure 13b)", "rows in the window", "groups", "events/s"),
    "minimum": ("MIN after a join of two windows (figure 13c)", "rows in each window", "selectivity", "events/s"),
    "distinct": ("DISTINCT after a join of two windows (figure 13d)", "rows in each window", "selectivity", "events/s"),
    "memory": ("State of joins of windows of 10,000 rows (table 2)", "shape", "windows", "MB"),
    "mapping": ("The same, per row in a window", "shape", "windows", "bytes"),
}
NOTES = {
    "insert": "JWS: 0.4 to 0.8 million mappings a second for windows of up to 10 million.",
    "probe": "JWS: 600 to 800 ns on a window of a million.",
    "join3": "JWS has a plot without digits: faster than ESPER, and than re-evaluation by orders of magnitude.",
    "average": "JWS has a plot without digits: slightly slower than ESPER. The rival's sums are not exact.",
    "minimum": "JWS has a plot without digits: fastest up to a selectivity of 1, slower than ESPER above it.",
    "distinct": "JWS has a plot without digits: fastest of the three.",
    "memory": "Rows and indexes that are live, beside the objects of a dict and deques; JWS counts Java's heap.",
}


# --- figures 9 to 12


def index(*, large: bool) -> Measured:
    """Insert and evict, and probe, over keys and window sizes; the rival is a dict of deques."""
    block = 100_000
    for size in [10_000, 100_000, 1_000_000] + [10_000_000] * large:
        for keys in (1_000, 10_000, 100_000, 1_000_000):
            if keys <= size:
                yield from _index(size, keys, block)


def _index(size: int, keys: int, block: int) -> Measured:
    values = np.random.default_rng(1).integers(1, keys + 1, size + block * (REPEATS + 1) + AHEAD)
    ring, plain, listed = Ring(values, size), PythonRing(), values.tolist()
    ring.slide(0, size)
    plain.slide(listed[:size], size)
    parts = [listed[size + number * block : size + (number + 1) * block] for number in range(REPEATS + 1)]
    spent = timed_in_turn(
        lambda number: ring.slide(size + number * block, block),
        lambda number: plain.slide(parts[number], size),
        lambda number: ring.probe(size + number * block, block),
        lambda number: plain.probe(parts[number]),
    )
    assert ring.arena.words[ring.index + OPEN] != 0
    slide, slow, look, look_slow = (value / block for value in spent)
    probes = RING_PROBES if size == 1_000_000 else {}
    yield "insert", Point(f"{keys:,}", size, 1 / slide, {"dict": 1 / slow}, RING_INSERTS)
    yield "probe", Point(f"{keys:,}", size, look, {"dict": look_slow}, probes)


# --- figure 13


def join3(*, large: bool) -> Measured:
    """A star and a chain of three windows; the rivals are dicts of deques, and the reference up to 10,000 rows."""
    keys = 10_000
    for shape, plain in PYTHON_JOINS.items():
        for size in [1_000, 10_000, 100_000] + [1_000_000] * large:
            block = max(300, min(100_000, int(2e6 / max(1, (size / keys) ** 2) / 3) * 3))
            join, rival = three_way(shape, size, keys, 3 * size + block * (REPEATS + 1)), plain()
            events = list(zip(join.inputs.tolist(), *(column.tolist() for column in join.values), strict=True))
            join.fill(3 * size)
            for start in range(3 * size):
                source, key, value = events[start]
                rival.windows[source].add((start, key, value))
            results = 0

            def ours(number: int, join: Join = join, size: int = size, block: int = block) -> None:
                nonlocal results
                results += join.feed(3 * size + number * block, block)

            fewer = max(3, block // 10)
            slow = partial(_feed, rival.feed, events, 3 * size, fewer, 3 * size)
            fast_time, slow_time = timed_in_turn(ours, slow)
            rivals = {"dict": fewer / slow_time}
            if size <= 10_000:
                rivals["reference"] = 1 / reference_cost(shape, size, keys)[0]
            each = {"results per event": f"{results / block / (REPEATS + 1):.3g}"}
            yield "join3", Point(shape, size, block / fast_time, rivals, more=each)


def _feed(
    feed: Callable[[list[Event], int, int, int], int],
    events: list[Event],
    first: int,
    block: int,
    span: int,
    number: int,
) -> None:
    feed(events, first + number * block, block, span)


def average(*, large: bool) -> Measured:
    """AVG by groups over a window of a million rows; the rival keeps sums of floats in a dict."""
    size, block = 1_000_000, 100_000
    for groups in [1, 10, 1_000, 100_000] + [1_000_000] * large:
        random = np.random.default_rng(groups)
        total = size + block * (REPEATS + 1)
        values, keys = random.uniform(10, 40, total), random.integers(1, groups + 1, total)
        world = World(double_words(values), keys)
        target = int(make_queue(world.arena.base, 2))
        operator = make_grouping(world.dictionary, world.terms, (world.source, target), [0], [Fold("AVG", 1)])
        fill(world.arena.base, world.source, world.offset, size)
        run_group(world.dictionary, operator)
        rival = _Averages(values.tolist(), keys.tolist(), size)

        def ours(number: int, world: World = world, operator: int = operator, target: int = target) -> None:
            queues, start = (world.source, target), size + number * block
            if slide(world.arena.base, operator, *queues, world.offset, start, start + block, size) < 0:
                raise RuntimeError("a step needed Python: choose other values")

        def plain(number: int, rival: _Averages = rival) -> None:
            rival.slide(size + number * block, block)

        fast_time, slow_time = timed_in_turn(ours, plain)
        yield "average", Point(f"{size:,}", groups, block / fast_time, {"dict": block / slow_time})


class _Averages:
    """A sum and a count for each group, and what was sent of it."""

    def __init__(self, values: list[float], keys: list[int], size: int) -> None:
        self.values, self.keys, self.size = values, keys, size
        self.sums: dict[int, list[float]] = {}
        self.shown: dict[int, float] = {}
        for key, value in zip(keys[:size], values, strict=False):
            group = self.sums.setdefault(key, [0.0, 0])
            group[0] += value
            group[1] += 1

    def slide(self, first: int, block: int) -> None:
        values, keys, sums = self.values, self.keys, self.sums
        for event in range(first, first + block):
            old, new = keys[event - self.size], keys[event]
            group = sums[old]
            group[0] -= values[event - self.size]
            group[1] -= 1
            if group[1] == 0:
                del sums[old]
            group = sums.setdefault(new, [0.0, 0])
            group[0] += values[event]
            group[1] += 1
            for key in (old, new):
                if key in sums:
                    self.shown[key] = sums[key][0] / sums[key][1]


def minimum(*, large: bool) -> Measured:
    """MIN of a column over the pairs of two windows; the rival has a dict of counts and a heap."""
    for selectivity in [0.01, 0.1, 1, 10] + [100] * large:
        size = 1_000_000
        join = _pairs(size, selectivity, None)
        dictionary = ArenaDictionary(join.arena)
        sent = int(make_queue(join.arena.base, 1))
        terms = make_terms(join.arena, dictionary.offset)
        join.follow(group_step.address, make_grouping(dictionary, terms, (join.out, sent), [], [Fold("MIN", 1)]), sent)
        yield "minimum", _after_join(join, size, selectivity, PythonMinimum())


def distinct(*, large: bool) -> Measured:
    """DISTINCT over the pairs of two windows, keys with two values of ten; the rival has a dict of counts."""
    for selectivity in [0.01, 0.1, 1, 10] + [100] * large:
        size = 1_000_000
        join = _pairs(size, selectivity, 10)
        sent = int(make_queue(join.arena.base, 3))
        join.follow(distinct_step.address, make_distinct(join.arena, sent, join.out, freshness=False), sent)
        yield "distinct", _after_join(join, size, selectivity, PythonDistinct())


def _block(selectivity: float) -> int:
    return int(50_000 / max(1.0, selectivity)) * 2


def _pairs(size: int, selectivity: float, values: int | None) -> Join:
    """A join of two windows with so many results per event; the second column has few values, or doubles."""
    total = 2 * size + _block(selectivity) * (REPEATS + 1)
    random = np.random.default_rng(5)
    second: Words = random.integers(1, values + 1, total) if values else double_words(random.uniform(10, 40, total))
    columns = [random.integers(1, int(size / selectivity) + 1, total), second]
    return Join([(0, 1), (0, 2)], np.arange(total) % 2, columns, size)


def _after_join(join: Join, size: int, selectivity: float, rival: PythonMinimum | PythonDistinct) -> Point:
    block = _block(selectivity)
    fewer = max(2, block // 20)
    join.feed(0, 2 * size)
    rivals: dict[str, float] = {}
    runs: list[Callable[[int], object]] = [lambda number: join.feed(2 * size + number * block, block, taking_back=True)]
    if selectivity <= 10:  # filling its windows would take an hour
        events = list(zip(join.inputs.tolist(), *(column.tolist() for column in join.values), strict=True))
        windows = [Window((1,)), Window((1,))]
        feed_pairs(windows, events, 0, 2 * size, 2 * size, rival.change)
        runs.append(
            lambda number: feed_pairs(windows, events, 2 * size + number * fewer, fewer, 2 * size, rival.change)
        )
    fast_time, *slow_time = timed_in_turn(*runs)
    if slow_time:
        rivals["dict"] = fewer / slow_time[0]
    return Point(f"{size:,}", selectivity, block / fast_time, rivals)


# --- table 2


def memory(*, large: bool) -> Measured:
    """Bytes that joins of 2 to 8 windows keep; the rival is a dict of deques per window."""
    size, keys = 10_000, 10_000
    for windows, published in FOOTPRINT.items():
        total = windows * size * 2
        values = np.random.default_rng(6).integers(1, keys + 1, (2, total))
        columns = [(0, 1 + number) for number in range(windows)]
        join = Join(columns, np.arange(total) % windows, list(values), size)
        join.feed(0, total)
        listed = values[0].tolist()
        tracemalloc.start()
        plain = [PythonRing() for _ in range(windows)]
        for number, ring in enumerate(plain):
            ring.slide(listed[number * size : (number + 2) * size], size)
        rival = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        rows = windows * size
        yield "memory", Point("star", windows, join.state / 1e6, {"dict": rival / 1e6}, published)
        each = {name: value * 1e6 / rows for name, value in published.items()}
        yield "mapping", Point("star", windows, join.state / rows, {"dict": rival / rows}, each)


PARTS: tuple[Callable[..., Measured], ...] = (index, join3, average, minimum, distinct, memory)


def figures_of(measured: list[tuple[str, Point]]) -> list[Figure]:
    found: list[Figure] = []
    for name in dict.fromkeys(name for name, _ in measured):
        title, lines, x, unit = TITLES[name]
        points = tuple(point for owner, point in measured if owner == name)
        found.append(Figure(name, title, lines, x, unit, points, NOTES.get(name, "")))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.__name__ for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(names)} (default: all)")
    parser.add_argument("--large", action="store_true", help="windows of 10 million rows and 100 results per event too")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write a PNG for each figure (needs matplotlib)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(names):
        parser.error(f"there is no part {min(unknown)}; the parts are {', '.join(names)}")
    if options.plots:
        plotter()  # say now that it is missing
    measured: list[tuple[str, Point]] = []
    chosen = [part for part in PARTS if not options.parts or part.__name__ in options.parts]
    with progress() as bar:
        task = bar.add_task("", total=len(chosen))
        for part in chosen:
            bar.update(task, description=part.__name__)
            found = []
            for name, point in part(large=options.large):
                found.append((name, point))
                bar.update(task, description=f"{part.__name__}: {name}, {point.line}, {point.x:,.10g}")
            for figure in figures_of(found):
                bar.console.print(table_of(figure))
            measured += found
            bar.advance(task)
    figures = figures_of(measured)
    if options.json:
        write_json(figures, options.json)
        CONSOLE.print(f"wrote {options.json}")
    if options.plots:
        write_plots(figures, options.plots)


if __name__ == "__main__":
    main()
