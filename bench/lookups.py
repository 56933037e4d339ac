"""How the cost of lookups and of a correlated NOT EXISTS grows with the data, from 1 to 100 times as much.

    python bench/lookups.py                 # both, about a minute
    python bench/lookups.py tables
    python bench/lookups.py taxi --sizes 300 3000

`tables`: two streams, each with a lookup in static data, beside one with one lookup.  The lookups share no variable, so
that one table of both would be their cross product.  `taxi`: the second query of the DEBS 2015 challenge as its paper
prints it, whose NOT EXISTS compares the times of two trips; trips and taxis grow together, so that a taxi has about two
trips in the windows of half an hour.

Times are processor time.  Sizes are run in turn, three times, and the medians are shown: trust the ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from tempfile import NamedTemporaryFile
from time import process_time

import numpy as np
from measure import CONSOLE, machine, progress
from rich.table import Table

import cqels

EX = "http://ex.org/"
TAXI = "http://ex.org/taxi/"
REPEATS = 3
EVENTS = 2_000
ONE = "STREAM <http://ex.org/a> [RANGE 1s] { ?x <http://ex.org/v> ?v } ?x <http://ex.org/in> ?rx"
TWO = f"{ONE} . STREAM <http://ex.org/b> [RANGE 1s] {{ ?y <http://ex.org/v> ?w }} ?y <http://ex.org/in> ?ry"
PRINTED = """PREFIX : <http://ex.org/taxi/>
SELECT ?pE ?pS ?noEmptyTaxis ?prof (?prof/?noEmptyTaxis AS ?profitability)
WHERE {
  {SELECT (ROUND((41.474937-?pLat1)*2/0.005986) AS ?pE) (ROUND((74.913585+?pLon1)*2/0.004491556) AS ?pS)
     (MEDIAN(?fare+?tip) AS ?prof)
   WHERE {
     STREAM <http://ex.org/taxi/trips> [RANGE 15 minutes] {
       ?trip :fare ?fare. ?trip :tip ?tip. ?trip :pickLat ?pLat1. ?trip :pickLon ?pLon1. }
   }
   GROUP BY ?pE ?pS
   HAVING (?pE>0 && ?pE<601 && ?pE>0 && ?pS<601)
  }
  {SELECT (ROUND((41.474937-?pLat2)*2/0.005986) AS ?pE) (ROUND((74.913585+?pLon2)*2/0.004491556) AS ?pS)
     (COUNT(?taxi) AS ?noEmptyTaxis)
   WHERE {
     STREAM <http://ex.org/taxi/trips> [RANGE 30 minutes] {
       ?trip2 :pickLat ?pLat2 . ?trip2 :pickLon ?pLon2. ?trip2 :taxi ?taxi. ?trip2 :dropoff_datetime ?dropoff. }
     FILTER NOT EXISTS {
       STREAM <http://ex.org/taxi/trips> [RANGE 30 minutes] {
         ?trip3 :taxi ?taxi. ?trip3 :pickup_datetime ?pickup. }
       FILTER (?pickup>?dropoff)
     }
   }
   GROUP BY ?pE ?pS
   HAVING (?pE>0 && ?pE<601 && ?pS>0 && ?pS<601 && ?noEmptyTaxis>0)
  }
}
ORDER BY ?profitability LIMIT 10"""
HOUR = np.datetime64("2013-01-01T12:00:00", "s")


def tables(sizes: list[int]) -> Table:
    """Registering and a block of events, with one lookup and with two, by the rows of static data."""
    spent = in_turn(
        {(size, name): lookup(size, where) for size in sizes for name, where in (("one", ONE), ("two", TWO))}
    )
    shown = Table(title=f"two lookups beside one; {machine()}", title_justify="left")
    for name in ("static triples", "one: register", "two: register", "two / one", "one: event", "two: event", "growth"):
        shown.add_column(name, justify="right")
    for size in sizes:
        (one, one_event), (two, two_event) = spent[size, "one"], spent[size, "two"]
        growth = two_event / spent[sizes[0], "two"][1]
        shown.add_row(
            f"{size:,}",
            f"{one * 1e3:.1f} ms",
            f"{two * 1e3:.1f} ms",
            f"{two / one:.2f}",
            f"{one_event * 1e6:.0f} µs",
            f"{two_event * 1e6:.0f} µs",
            f"{growth:.2f}×",
        )
    return shown


def lookup(size: int, where: str) -> Callable[[], tuple[float, float]]:
    """Seconds to register a query with so much static data, and to push an event."""
    static = "".join(f"<{EX}s{number}> <{EX}in> <{EX}r{number % 50}> .\n" for number in range(size))
    texts = [f"<{EX}s{number * 7 % size}> <{EX}v> {number} ." for number in range(EVENTS // 2)]
    times = [number * 300_000_000 for number in range(EVENTS // 2)]

    def run() -> tuple[float, float]:
        with cqels.Engine() as engine, NamedTemporaryFile("w", suffix=".nt") as file:
            file.write(static)
            file.flush()
            engine.load(file.name)
            began = process_time()
            query = engine.register(f"SELECT * WHERE {{ {where} }}")
            engine.heartbeat(0)  # nobody comes to share it with: it is compiled
            registered = process_time()
            streams = (f"{EX}a", f"{EX}b") if where == TWO else (f"{EX}a",)
            for text, time in zip(texts, times, strict=True):
                for stream in streams:
                    engine.push(stream, text, time=time)
            query.take()
            return registered - began, (process_time() - registered) / (len(texts) * len(streams))

    return run


def taxi(sizes: list[int]) -> Table:
    """The cost of a trip, by the trips of three quarters of an hour."""
    spent = in_turn({size: printed(size) for size in sizes})
    shown = Table(title=f"the printed taxi query 2; {machine()}", title_justify="left")
    for name in ("trips", "a trip", "growth"):
        shown.add_column(name, justify="right")
    for size in sizes:
        shown.add_row(f"{size:,}", f"{spent[size][0] * 1e6:,.0f} µs", f"{spent[size][0] / spent[sizes[0]][0]:.2f}×")
    return shown


def printed(size: int) -> Callable[[], tuple[float, float]]:
    random = np.random.default_rng(size)
    ends = np.sort(random.integers(0, 45 * 60, size))
    starts = ends - random.integers(120, 1800, size)
    taxis = random.integers(0, max(size // 3, 1), size)
    cells = random.normal(0, 0.02, (size, 2))
    texts = [
        f"<{TAXI}t{number}> <{TAXI}taxi> <{TAXI}m{taxis[number]}> ; "
        f'<{TAXI}pickup_datetime> "{HOUR + starts[number]}" ; <{TAXI}dropoff_datetime> "{HOUR + ends[number]}" ; '
        f"<{TAXI}pickLat> {40.75 + cells[number, 0]:.6f} ; <{TAXI}pickLon> {-73.98 + cells[number, 1]:.6f} ; "
        f"<{TAXI}fare> {number % 40 + 3}.5 ; <{TAXI}tip> {number % 7}.0 ."
        for number in range(size)
    ]
    times = [int(end) * 1_000_000_000 for end in ends]

    def run() -> tuple[float, float]:
        with cqels.Engine() as engine:
            query = engine.register(PRINTED)
            began = process_time()
            for first in range(0, size, 100):
                engine.push(f"{TAXI}trips", texts[first : first + 100], time=times[first : first + 100])
                query.take()
            return (process_time() - began) / size, 0.0

    return run


def in_turn(runs: dict[object, Callable[[], tuple[float, float]]]) -> dict[object, tuple[float, float]]:
    """The medians of both figures of each, of runs in turn, after one that is not counted."""
    found: dict[object, list[tuple[float, float]]] = {name: [] for name in runs}
    with progress() as line:
        task = line.add_task("in turn", total=REPEATS * len(runs))
        next(iter(runs.values()))()
        for _ in range(REPEATS):
            for name, run in runs.items():
                found[name].append(run())
                line.advance(task)
    return {name: (median(one for one, _ in each), median(two for _, two in each)) for name, each in found.items()}


KINDS = {"tables": tables, "taxi": taxi}
SIZES = {"tables": [300, 3_000, 30_000], "taxi": [300, 3_000, 30_000]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS, help="which of them (default: both)")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="N", help="triples of static data, or trips")
    chosen = parser.parse_args()
    for kind in [chosen.kind] if chosen.kind else KINDS:
        CONSOLE.print(KINDS[kind](chosen.sizes or SIZES[kind]))


if __name__ == "__main__":
    main()
