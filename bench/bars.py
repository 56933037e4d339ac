"""The bars of the engine: what was measured in this run, what was to be reached, met or not.

    python bench/bars.py                                   # all, some minutes
    python bench/bars.py ring bytes
    python bench/bars.py --large                           # growth up to 10 million rows: 12 GB
    python bench/bars.py --write docs/benchmarks.md        # put the table into the page, between its two marks

Times are processor time, medians of five, and rivals run in turn with the engine in the same process, so that what else
the machine does falls on both: trust the ratios.  The exit code is 0 whatever is met.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from drivers import Ring, adaptivity, cost_of, three_way_run
from lines import EX, readings
from measure import CONSOLE, REPEATS, machine, nanoseconds, per_second, progress, timed_in_turn
from pyoxigraph import RdfFormat, parse
from rich.table import Table
from rivals import PythonRing, reference_cost, three_way_query
from tokenizer import lines_of, with_pyoxigraph_and_dict, with_tokenizer_in_blocks

import cqels
from cqels.ingest.element_batch import Batch
from cqels.kernels.containers.row_buffer import AHEAD
from cqels.model.errors import CqelsError
from cqels.scenarios.pages import between

MARKS = "<!-- bars: written by bench/bars.py -->", "<!-- end of bars -->"


@dataclass(frozen=True, slots=True)
class Bar:
    """What was measured, in words; what was to be reached, and whether it was; None where nothing was asked."""

    name: str
    figure: str
    bar: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "not met", None: ""}[self.met]


Bars = Iterator[Bar]


# --- operators


def ring(*, large: bool) -> Bars:
    """Insert and evict on the ring index, against a dict and deques."""
    size, keys, block = 1_000_000, 100_000, 200_000
    values = np.random.default_rng(1).integers(1, keys + 1, size + block * (REPEATS + 1) + AHEAD)
    ours, plain, listed = Ring(values, size), PythonRing(), values.tolist()
    ours.slide(0, size)
    plain.slide(listed[:size], size)
    parts = [listed[size + number * block : size + (number + 1) * block] for number in range(REPEATS + 1)]
    fast, slow = timed_in_turn(
        lambda number: ours.slide(size + number * block, block),
        lambda number: plain.slide(parts[number], size),
    )
    speed = f"{slow / fast:.1f}× Python ({per_second(block / fast)} against {per_second(block / slow)})"
    yield Bar("ring index, insert and evict: 1 M rows, 100 k keys", speed, "≥ 15×", slow / fast >= 15)


def joins(*, large: bool) -> Bars:
    """A join of three windows, against the reference evaluator."""
    size = 100_000
    name = "join of three windows of 100 k rows, 100 k keys"
    costs = {}
    for shape in ("star", "chain"):
        costs[shape], results = cost_of(shape, size, size, 200_000)
        figure = f"{per_second(1 / costs[shape])}, {results:.2f} results per event"
        yield Bar(f"{name}, {shape}", figure, "≥ 1 M events/s", costs[shape] <= 1e-6)
    for shape in ("star", "chain"):
        spent, results = through_engine(shape, size, size)
        figure = f"{per_second(1 / spent)}, {results:.2f} changes per event"
        yield Bar(f"{name}, {shape}, through the engine: words in, expired rows taken back, rows out", figure)
    slow, _ = reference_cost("star", size, size, 1)
    figure = f"{slow / costs['star']:,.0f}× (reference: {slow:.1f} s for an event at full windows)"
    yield Bar(f"{name}, star, against the reference", figure, "≥ 100×", slow / costs["star"] >= 100)


def through_engine(shape: str, size: int, keys: int) -> tuple[float, float]:
    """Seconds and changes per event of a three-way join, from batches of words to rows of words."""
    with EngineRun(shape, size, keys) as run:
        [spent] = timed_in_turn(run)
        return spent / run.block, run.changes / (run.block * (REPEATS + 1))


class EngineRun:
    """A three-way join as a query, which is fed blocks of events.

    Windows are full before, and where they keep their rows has been written once from end to end: the system hands
    memory out once.
    """

    block = 50_000

    def __init__(self, shape: str, size: int, keys: int) -> None:
        self.engine = cqels.Engine()
        self.query = self.engine.register(three_way_query(shape, f"{3 * size}ms"))
        self._words, self._predicate = words_of(self.engine, keys), predicate_of(self.engine)
        self._random = np.random.default_rng(2)
        self._come = self.changes = 0
        while self._come < 3 << (size - 1).bit_length():
            self._push(self._made())
        self.changes = 0
        self._batches = [self._made() for _ in range(REPEATS + 1)]

    def __enter__(self) -> EngineRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()

    def __call__(self, number: int) -> None:
        self._push(self._batches[number])

    def _made(self) -> Batch:
        numbers = np.arange(self._come, self._come + self.block, dtype=np.int64)
        triples = np.empty((self.block, 3), np.int64)
        triples[:, 0], triples[:, 2] = self._random.choice(self._words, (2, self.block))
        triples[:, 1] = self._predicate
        self._come += self.block
        return Batch(numbers * 1_000_000, numbers % 3, np.ones(self.block, np.int64), triples.reshape(-1))

    def _push(self, batch: Batch) -> None:
        self.engine.internals.push_batch(batch)
        self.changes += sum(map(len, self.query.running.raw))
        self.query.running.raw.clear()


def words_of(engine: cqels.Engine, count: int, block: int = 1_000_000) -> np.ndarray:
    """The words of so many IRIs."""
    found = []
    for first in range(0, count, block):
        names = range(first, min(first + block, count))
        text = "".join(f"<{EX}{number}> <{EX}p> <{EX}p> 0 .\n" for number in names)
        found.append(engine.internals.intake.lines(0, text.encode(), reject=refuse)[0].triples[0::3].copy())
    return np.concatenate(found)


def predicate_of(engine: cqels.Engine) -> int:
    return int(engine.internals.intake.lines(0, f"<{EX}p> <{EX}p> <{EX}p> 0 .\n".encode(), reject=refuse)[0].triples[0])


def refuse(line: int, reason: str, text: str) -> None:
    raise SystemExit(f"line {line + 1} was not read: {reason}")


def pushes(*, large: bool) -> Bars:
    """One small element after the other, against parsing their texts alone."""
    block = 4_000
    texts = [f"<{EX}s{number % 7}> <{EX}p> {number} ." for number in range(block)]
    with cqels.Engine() as engine:
        engine.register(
            f"SELECT ?s ?v {{ STREAM <{EX}s> [RANGE 10s] {{ ?s <{EX}p> ?v }} FILTER(?v > 3) }}", callback=len
        )

        def push(number: int) -> None:
            for at, text in enumerate(texts, number * block):
                engine.push(EX + "s", text, time=at * 100_000_000)

        ours, parsing = timed_in_turn(push, lambda _: [list(parse(text, RdfFormat.TURTLE)) for text in texts])
    figure = f"{ours / block * 1e6:.0f} µs, {ours / parsing:.1f}× parsing its text ({parsing / block * 1e6:.0f} µs)"
    yield Bar("push of one small element through a window and a filter", figure)


def growth(*, large: bool) -> Bars:
    """Cost per event as windows grow, at the same number of matches: of the engine, and of its join alone."""
    sizes = [10_000, 100_000, 1_000_000] + [10_000_000] * large
    for shape in ("star", "chain"):
        with ExitStack() as stack:
            runs = [stack.enter_context(EngineRun(shape, size, size)) for size in sizes]
            costs = [spent / EngineRun.block for spent in timed_in_turn(*runs)]
            yield from grown(shape, "through the engine", sizes, costs)
        del runs
        gc.collect()  # there is not memory enough for both
    for shape in ("star", "chain"):
        block = 200_000
        times = timed_in_turn(*(three_way_run(shape, size, size, block) for size in sizes))
        yield from grown(shape, "the join alone", sizes, [spent / block for spent in times])


def grown(shape: str, what: str, sizes: list[int], costs: list[float]) -> Bars:
    """Whether costs stay below the curve of the logarithm through the first; and what each tenfold adds.

    The latter is a small difference of two figures, and not judged: it varies twofold from run to run.
    """
    bounds = [math.log(size) / math.log(sizes[0]) for size in sizes]
    ratios = [cost / costs[0] for cost in costs]
    name = f"cost per event of a three-way {shape} of windows of 10 k to {sizes[-1] // 1_000_000} M rows, {what}"
    figure = f"{', '.join(map(nanoseconds, costs))}: {', '.join(f'{ratio:.2f}' for ratio in ratios[1:])}×"
    asked = f"≤ {', '.join(f'{bound:.2f}' for bound in bounds[1:])}× (as the logarithms)"
    yield Bar(name, figure, asked, all(ratio <= bound for ratio, bound in zip(ratios, bounds, strict=True)))
    added = [after - before for before, after in pairwise(costs)]
    yield Bar(f"{name}: what each tenfold adds", ", ".join(map(nanoseconds, added)))


def adaptive(*, large: bool) -> Bars:
    """A stream whose selectivities flip half-way."""
    spent, _ = adaptivity()
    fixed = [spent["second first"], spent["third first"]]
    ratios = [spent["adaptive"][half] / min(order[half] for order in fixed) for half in (0, 1)]
    worse = max(map(sum, fixed)) / sum(spent["adaptive"])
    figure = f"{ratios[0]:.2f}× and {ratios[1]:.2f}×"
    yield Bar("selectivities flip: to the better fixed order in each half", figure, "≤ 1.2×", max(ratios) <= 1.2)
    yield Bar("selectivities flip: the worse fixed order over the whole", f"{worse:.1f}×", "≥ 5×", worse >= 5)


# --- from bytes


def nquads(*, large: bool) -> Bars:
    """N-Quads bytes to words, against pyoxigraph and a dict."""
    count = 400_000
    data = lines_of(count, 1)
    fast, slow = timed_in_turn(lambda _: with_tokenizer_in_blocks(data), lambda _: with_pyoxigraph_and_dict(data))
    name = "N-Quads bytes to ids, blocks of 64 KB"
    yield Bar(name, per_second(count / fast), "≥ 1 M/s", count / fast >= 1e6)
    figure = f"{slow / fast:.1f}× ({per_second(count / slow)})"
    yield Bar(f"{name}, against pyoxigraph and a dict", figure, "≥ 4×", slow / fast >= 4)


TWO_WINDOWS = f"""PREFIX : <{EX}>
SELECT ?sensor ?temperature ?humidity ?room WHERE {{
  STREAM :readings [RANGE 10s] {{ ?sensor :temp ?temperature }}
  STREAM :readings [RANGE 20s] {{ ?sensor :damp ?humidity }}
  ?sensor :in ?room
}}"""


def from_bytes(*, large: bool) -> Bars:
    """A join of two windows with a static table, from bytes to results."""
    block, sensors = 100_000, 10_000
    random = np.random.default_rng(7)
    blocks = [
        readings(
            random.integers(0, sensors, block),
            np.arange(number * block, (number + 1) * block),
            random.integers(100, 1000, block),
            ("temp", "damp"),
        )
        for number in range(REPEATS + 1)
    ]
    rooms = "".join(f"<{EX}s{number:09}> <{EX}in> <{EX}room{number % 100}> .\n" for number in range(sensors))
    ways: dict[str, Callable[[cqels.StandingQuery], int]] = {
        "counted as rows": counted,
        "taken as Arrow columns": lambda query: query.terms().num_rows,
        "taken as Python objects": lambda query: len(query.take()),
    }
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".nt"))
        Path(file.name).write_text(rooms)
        found = dict.fromkeys(ways, 0)

        def runner(way: str) -> Callable[[int], None]:
            engine = stack.enter_context(cqels.Engine())
            engine.load(file.name)
            query = engine.register(TWO_WINDOWS)

            def run(number: int) -> None:
                engine.push(EX + "readings", blocks[number])
                found[way] += ways[way](query)

            return run

        times = timed_in_turn(*map(runner, ways))
    for way, spent in zip(ways, times, strict=True):
        figure = f"{per_second(block / spent)} triples, {found[way] / (block * (REPEATS + 1)):.2f} rows each"
        yield Bar(
            f"two windows and a static table, bytes to results, {way}", figure, "≥ 300 k/s", block / spent >= 300e3
        )


def counted(query: cqels.StandingQuery) -> int:
    """How many rows the kernels have sent, which are thrown away."""
    count = sum(map(len, query.running.raw))
    query.running.raw.clear()
    return count


# --- start

IMPORT = "from time import process_time; t = process_time(); import cqels; print(process_time() - t)"
ENGINE = "from time import process_time; t = process_time(); import cqels; cqels.Engine; print(process_time() - t)"
FIRST = """import cqels
with cqels.Engine() as engine:
    query = engine.register("SELECT ?s WHERE { STREAM <http://ex.org/obs> [RANGE 10s] { ?s ?p ?o } }")
    engine.push("http://ex.org/obs", "<http://ex.org/a> <http://ex.org/p> 1 .", time="4s")
    assert len(query.take()) == 1
"""
FIRST_JOIN = """import cqels
TEXT = '''SELECT ?r (AVG(?o) AS ?mean) WHERE { STREAM <http://ex.org/obs> [RANGE 10s] { ?s <http://ex.org/p> ?o .
?s <http://ex.org/in> ?r } FILTER(?o > 0) } GROUP BY ?r'''
with cqels.Engine() as engine:
    query = engine.register(TEXT)
    engine.push("http://ex.org/obs", "<http://ex.org/a> <http://ex.org/p> 1 ; <http://ex.org/in> 2 .", time="4s")
    assert len(query.take()) == 1
"""


def start(*, large: bool) -> Bars:
    """Processes that start anew."""
    spent = statistics.median(float(_run(IMPORT)[2]) for _ in range(REPEATS))
    yield Bar("import cqels", f"{spent * 1e3:.1f} ms", "< 0.2 s", spent < 0.2)
    spent = statistics.median(float(_run(ENGINE)[2]) for _ in range(REPEATS))
    yield Bar("import cqels and its Engine", f"{spent * 1e3:.0f} ms")
    for name, code, bars in (("a tiny query", FIRST, (1, 1)), ("a join, a filter and AVG", FIRST_JOIN, (1, None))):
        times: tuple[list[float], list[float]] = ([], [])
        walls: tuple[list[float], list[float]] = ([], [])
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                for spent_list, wall_list in zip(times, walls, strict=True):
                    own, wall, _ = _run(code, CQELS_CACHE_DIR=folder)
                    spent_list.append(own)
                    wall_list.append(wall)
        for what, spent_list, wall_list, bar in zip(
            ("empty caches", "caches as a first run leaves them"), times, walls, bars, strict=True
        ):
            own, wall = statistics.median(spent_list), statistics.median(wall_list)
            asked = ("", None) if bar is None else (f"< {bar} s", own < bar)
            figure = f"{own:.2f} s (on the clock {wall:.2f} s)"
            yield Bar(f"process to the first result of {name}, {what}", figure, *asked)


def _run(code: str, **environment: str) -> tuple[float, float, str]:
    """Run Python anew, with its modules compiled as those that were installed are.

    Processor time, time on the clock, what it printed.
    """
    environment |= {"PYTHONPYCACHEPREFIX": _compiled_modules(), "PYTHONDONTWRITEBYTECODE": ""}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, check=True, capture_output=True, text=True
    )
    wall, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall, done.stdout


@cache
def _compiled_modules() -> str:
    """A folder for compiled modules, which goes when all is done."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    environment = {"PYTHONPYCACHEPREFIX": folder.name, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", FIRST], env=os.environ | environment, check=True)
    subprocess.run([sys.executable, "-c", FIRST_JOIN], env=os.environ | environment, check=True)
    return folder.name


def register(*, large: bool) -> Bars:
    """The thousandth query."""
    times = []
    with cqels.Engine() as engine:
        for number in range(1000):
            text = TWO_WINDOWS.replace(":damp", f":damp{number}")
            began = process_time()
            engine.register(text)
            times.append(process_time() - began)
    last = statistics.median(times[-5:])
    figure = f"{last * 1e3:.1f} ms (the worst of the last hundred {max(times[-100:]) * 1e3:.1f} ms)"
    yield Bar("registering the 1,000th query", figure, "< 20 ms", last < 0.02)


# --- all of them

GROUPS: dict[str, Callable[..., Bars]] = {
    "ring": ring,
    "joins": joins,
    "nquads": nquads,
    "bytes": from_bytes,
    "pushes": pushes,
    "growth": growth,
    "adaptive": adaptive,
    "start": start,
    "register": register,
}


def shown(bars: list[Bar]) -> Table:
    table = Table(title=machine(), title_justify="left")
    for name in ("what", "figure", "bar", ""):
        table.add_column(name)
    for bar in bars:
        style = "red" if bar.met is False else "green" if bar.met else None
        table.add_row(bar.name, bar.figure, bar.bar, f"[{style}]{bar.verdict}[/]" if style else "")
    return table


def page(bars: list[Bar]) -> str:
    """The bars as a table of Markdown."""
    lines = [f"{machine()}; {datetime.now(UTC):%Y-%m-%d}.", "", "| what | figure | bar | |", "|---|---|---|---|"]
    lines += [f"| {bar.name} | {bar.figure} | {bar.bar} | {bar.verdict} |" for bar in bars]
    return "\n".join(lines)


def write(bars: list[Bar], path: Path, marks: tuple[str, str] = MARKS) -> None:
    """Put the table between the marks of a page."""
    try:
        path.write_text(between(path.read_text(), marks, page(bars)))
    except CqelsError as error:
        raise SystemExit(f"error: {path}: {error}") from None
    CONSOLE.print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(GROUPS)
    parser.add_argument("bars", nargs="*", metavar="bar", help=f"{names} (default: all)")
    parser.add_argument("--large", action="store_true", help="growth up to 10 million rows per window")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into a page of Markdown")
    options = parser.parse_args()
    if unknown := set(options.bars) - set(GROUPS):
        parser.error(f"there is no bar {min(unknown)}; there are {names}")
    bars: list[Bar] = []
    chosen = {name: group for name, group in GROUPS.items() if not options.bars or name in options.bars}
    with progress() as bar:
        task = bar.add_task("", total=len(chosen))
        for name, group in chosen.items():
            bar.update(task, description=name)
            for found in group(large=options.large):
                bars.append(found)
                bar.console.print(f"{found.name}: {found.figure}  {found.bar}  {found.verdict}", soft_wrap=True)
            bar.advance(task)
    CONSOLE.print(shown(bars))
    if options.write:
        write(bars, options.write)


if __name__ == "__main__":
    main()
