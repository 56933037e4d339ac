"""Top-10 over a window, tick by tick: the engine beside sorting the window anew in Python.

Both get the same readings, one a tick; the time is that of a tick, in CPU time, the median of five.  The engine's is
that of everything from the elements to the results.  The rival keeps tuples that are ready to be compared in a deque,
sorts them at every tick and compares the first ten with those of the tick before; it knows no terms, no streams and no
query.  With `random` readings few ticks send anything; with `rising` ones every tick sends ten rows, and Python's sort
finds the window in order already.

    python bench/topk.py
    python bench/topk.py --windows 1000 10000 100000 1000000 --limit 100
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from statistics import median
from time import process_time

from pyoxigraph import Literal, NamedNode

from cqels.engine.engine import Engine
from cqels.ingest import Element
from cqels.model.terms import XSD_INTEGER
from cqels.plan.prepare import prepare

EX = "http://ex.org/"
STREAM, VALUE = EX + "s", NamedNode(EX + "v")
REPEATS = 5
Reading = tuple[int, int]
"""Number of a sensor, value."""


def readings(shape: str) -> Iterator[Reading]:
    random, number = Random(7), 0
    while True:
        number += 1
        yield random.randrange(10_000), number if shape == "rising" else random.randrange(1_000_000)


def elements(found: Iterator[tuple[int, Reading]]) -> list[Element]:
    return [
        Element(STREAM, time, ((NamedNode(f"{EX}{sensor}"), VALUE, Literal(str(value), datatype=XSD_INTEGER)),))
        for time, (sensor, value) in found
    ]


def engine_ticks(shape: str, window: int, limit: int, emit: str) -> Callable[[int], float]:
    """Runs so many ticks: the time of one."""
    engine = Engine()
    text = f"PREFIX : <{EX}> SELECT ?s ?v WHERE {{ STREAM :s [TRIPLES {window}] {{ ?s :v ?v }} }}"
    running = engine.register(prepare(f"{text} ORDER BY DESC(?v) LIMIT {limit}", emit=emit))
    source = enumerate(readings(shape))

    def run(ticks: int) -> float:
        block = elements(islice(source, ticks))
        start = process_time()
        engine.internals.push_elements(block)
        running.take()
        return (process_time() - start) / ticks

    left = window
    while left > 0:
        left -= 10_000
        run(10_000)
    return run


def sorting_ticks(shape: str, window: int, limit: int) -> Callable[[int], float]:
    source = enumerate(readings(shape))
    rows = deque(((-value, -time, sensor) for time, (sensor, value) in islice(source, window)), maxlen=window)
    top: list[tuple[int, int, int]] = []

    def run(ticks: int) -> float:
        nonlocal top
        coming = list(islice(source, ticks))
        start = process_time()
        for time, (sensor, value) in coming:
            rows.append((-value, -time, sensor))
            now = sorted(rows)[:limit]
            if now != top:
                top = now
        return (process_time() - start) / ticks

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="rows in the window")
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--ticks", type=int, default=2_000, help="ticks measured, five times (default 2,000)")
    arguments = parser.parse_args()
    write = sys.stdout.write
    write(f"{'readings':<10}{'sends':<10}{'window':>10}{'engine':>12}{'sorting':>14}{'ratio':>10}\n")
    for shape in ("random", "rising"):
        for window in arguments.windows:
            rival = sorting_ticks(shape, window, arguments.limit)
            plain = median(rival(max(3, min(arguments.ticks, 200_000 // window))) for _ in range(REPEATS))
            for emit in ("snapshot", "changes"):
                run = engine_ticks(shape, window, arguments.limit, emit)
                ours = median(run(arguments.ticks) for _ in range(REPEATS))
                write(
                    f"{shape:<10}{emit:<10}{window:>10,}{ours * 1e6:>9.1f} µs{plain * 1e6:>11.1f} µs"
                    f"{plain / ours:>9.1f}×\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
