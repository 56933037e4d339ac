"""How fast a whole query is: windows over three streams, their patterns, a join, results, without reading or decoding.

Each element brings one triple and, as a rule, lets one expire, which takes back its results.  The parts are measured by
running the program of the query without the operators behind them: trust the differences, not the digits.

    python bench/windows.py
    python bench/windows.py --rows 1000000 chain
"""

from __future__ import annotations

import argparse
from statistics import median
from time import process_time

import numpy as np
from pyoxigraph import NamedNode
from rich.console import Console
from rich.table import Table

from cqels.engine.runtime import Core
from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import COUNT, DONE, clear
from cqels.kernels.memory.arena import Arena
from cqels.model.dictionary import encode
from cqels.plan.prepare import prepare
from cqels.store.dataset import Store

EX = "http://example.org/"
SHAPES = {"star": ("?k ?a", "?k ?b", "?k ?c"), "chain": ("?a ?b", "?b ?c", "?c ?d")}
BLOCK, BLOCKS, REPEATS = 10_000, 10, 7
PARTS = {"windows": 0, "windows, patterns": 3, "windows, patterns, join, results": 4}
"""How many operators run: three patterns come first, then the join."""


class Case:
    """A query that joins three windows of so many triples each, as many keys as rows: about one result per element."""

    def __init__(self, shape: str, rows: int, operators: int) -> None:
        windows = (
            f"STREAM :s{number} [RANGE {3 * rows}ms] {{ {' :p '.join(pair.split())} }}"
            for number, pair in enumerate(SHAPES[shape])
        )
        self.arena = Arena()
        self.core = Core(Store(), self.arena, share=False)  # which compiles it at once
        for number in range(3):
            self.core.registry.add_stream(f"{EX}s{number}")
        query = prepare(f"PREFIX : <{EX}> SELECT * WHERE {{ {' '.join(windows)} }}", emit="changes")
        self.offset = self.core.registry.register(query, "windows").pipeline.offset
        self.arena.words[self.offset + scheduler.OPERATORS] = operators
        self.predicate, *keys = (
            encode(NamedNode(f"{EX}{name}"), self.core.state.dictionary) for name in ("p", *range(rows))
        )
        self.keys = np.array(keys, dtype=np.int64)
        self.random = np.random.default_rng(7)
        self.elements, self.triples = self.arena.take(scheduler.ELEMENT_WORDS * BLOCK), self.arena.take(3 * BLOCK)
        self.block = self.arena.take(scheduler.BLOCK_WORDS)
        self.arena.array(self.block, scheduler.BLOCK_WORDS)[:] = BLOCK, self.elements, self.triples, 0
        self.come = self.results = 0
        while self.come < 3 * rows + 10 * BLOCK:
            self.run()

    def run(self) -> float:
        """Seconds of CPU for one block."""
        numbers = np.arange(self.come, self.come + BLOCK)
        elements = self.arena.array(self.elements, scheduler.ELEMENT_WORDS * BLOCK).reshape(BLOCK, -1)
        elements[:] = np.stack(
            [numbers * 1_000_000, numbers, numbers % 3, numbers - self.come, np.ones_like(numbers)], axis=1
        )
        triples = self.arena.array(self.triples, 3 * BLOCK).reshape(BLOCK, 3)
        triples[:, 0], triples[:, 2] = self.random.choice(self.keys, (2, BLOCK))
        triples[:, 1] = self.predicate
        self.arena.words[self.offset + scheduler.NEXT] = 0
        start = process_time()
        status = scheduler.run(self.arena.base, self.offset, self.block, self.core.executor.steps.address, 1 << 62)
        spent = process_time() - start
        assert status == DONE
        self.come += BLOCK
        queue = int(self.arena.words[self.offset + scheduler.RESULTS])
        self.results += int(self.arena.words[queue + COUNT])
        clear(self.arena.base, queue)
        return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="shape", help=f"{' or '.join(SHAPES)} (both)")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each window, and keys (100,000)")
    arguments = parser.parse_args()
    if unknown := set(arguments.shapes) - SHAPES.keys():
        parser.error(f"there is no shape {min(unknown)}")
    table = Table("shape", "parts", "per element", "elements/s", "results per element")
    for shape in arguments.shapes or SHAPES:
        cases = {name: Case(shape, arguments.rows, operators) for name, operators in PARTS.items()}
        times: dict[str, list[float]] = {name: [] for name in PARTS}
        for _ in range(REPEATS):
            for name, case in cases.items():
                times[name].append(sum(case.run() for _ in range(BLOCKS)) / (BLOCK * BLOCKS))
        for name, case in cases.items():
            spent = median(times[name])
            rate, results = f"{1e-6 / spent:.2f} M/s", f"{case.results / case.come:.2f}"
            table.add_row(shape, name, f"{spent * 1e9:.0f} ns", rate, results)
    Console().print(table)


if __name__ == "__main__":
    main()
