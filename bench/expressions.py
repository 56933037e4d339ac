"""How fast expressions are: programs in the arena, Python's evaluator and numpy, in one run.

`(?a + ?b) / ?c > 3.5 && ?d < 6` over many rows, of integers (an exact decimal quotient of 18 digits), of doubles, and
of mixed numbers; and REGEX over a column with few distinct values, which the memo knows after the first rows.  Figures
are medians of five runs in processor time; numpy computes in doubles, without types, errors or unbound variables.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import numpy as np
from pyoxigraph import Literal, NamedNode
from rich.console import Console

from cqels.kernels.containers.delta_queue import COLUMNS, COUNT, DATA, add_row, clear, make_queue
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.filter_extend import FILTERS, add_step, make_select, select_step
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.lang.expressions import Call, Constant, Expression, Var
from cqels.model.dictionary import decode, encode
from cqels.model.ids import TYPE_BITS
from cqels.model.terms import XSD, Term
from cqels.physical.expression_compiler import compile_expression
from cqels.physical.python_functions import Calls
from cqels.plan.functions import Context, holds

NAMES = ("a", "b", "c", "d")
RUNS = 5
CONSOLE = Console(highlight=False, markup=False, width=120)


def number(value: float | int | str, kind: str) -> Literal:
    return Literal(str(value), datatype=NamedNode(XSD + kind))


def condition() -> Expression:
    a, b, c, d = map(Var, NAMES)
    ratio = Call("DIVIDE", (Call("ADD", (a, b)), c))
    return Call(
        "AND",
        (
            Call("GT", (ratio, Constant(number("3.5", "decimal")))),
            Call("LT", (d, Constant(number("6", "integer")))),
        ),
    )


class Table:
    """Rows of random terms from small pools, in a queue."""

    def __init__(self, rows: int, pools: list[list[Term]]) -> None:
        self.arena = Arena()
        self.dictionary = ArenaDictionary(self.arena)
        self.calls = Calls(self.dictionary)
        base = self.arena.base
        self.source, self.target = make_queue(base, len(NAMES)), make_queue(base, len(NAMES))
        for _ in range(rows):
            add_row(base, self.source)
        generator = np.random.default_rng(1)
        width = COLUMNS + len(NAMES)
        data = int(self.arena.words[self.source + DATA])
        self.words = self.arena.array(data, rows * width).reshape(rows, width)[:, COLUMNS:]
        for column, pool in enumerate(pools):
            words = np.array([encode(term, self.dictionary) for term in pool], np.int64)
            self.words[:, column] = words[generator.integers(0, len(pool), rows)]

    def compiled(self, expression: Expression) -> Callable[[], int]:
        base = self.arena.base
        program = compile_expression(expression, {name: number for number, name in enumerate(NAMES)}, self.calls)
        operator = make_select(base, self.source, self.target, self.dictionary.offset)
        add_step(base, operator, program, FILTERS)

        def run() -> int:
            clear(base, self.target)
            self.calls.run(select_step, operator, 0)
            return int(self.arena.words[self.target + COUNT])

        return run

    def interpreted(self, expression: Expression, rows: int) -> Callable[[], int]:
        solutions = [
            {name: term for name, word in zip(NAMES, row, strict=True) if (term := decode(word, self.dictionary))}
            for row in self.words[:rows].tolist()
        ]
        context = Context()
        return lambda: sum(holds(expression, solution, context) for solution in solutions)


def median(run: Callable[[], int]) -> tuple[float, int]:
    """Seconds of processor time, and what the run gave; a run before the first warms up."""
    result = run()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        assert run() == result
        times.append(time.process_time() - start)
    return statistics.median(times), result


def report(name: str, seconds: float, rows: int, kept: int, base: float) -> None:
    each = seconds / rows
    speed, times = rows / seconds / 1e6, each / base
    CONSOLE.print(f"  {name:<28}{speed:>9.2f} M rows/s{each * 1e9:>10.1f} ns{times:>9.2f} x   kept {kept:,}")


def compare(title: str, table: Table, expression: Expression, rows: int, slow_rows: int) -> float:
    CONSOLE.print(title)
    before = table.calls.computed
    seconds, kept = median(table.compiled(expression))
    base = seconds / rows
    report("program in the arena", seconds, rows, kept, base)
    seconds, kept = median(table.interpreted(expression, slow_rows))
    report(f"Python, first {slow_rows:,} rows", seconds, slow_rows, kept, base)
    if table.calls.computed > before:
        CONSOLE.print(f"  asked of Python {table.calls.computed - before:,} times")
    return base


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (default: %(default)s)")
    parser.add_argument("--python-rows", type=int, default=20_000, help="rows for Python (default: %(default)s)")
    options = parser.parse_args()
    rows, slow = options.rows, options.python_rows
    generator = random.Random(1)

    integers: list[Term] = [number(generator.randrange(1, 1000), "integer") for _ in range(1000)]
    small: list[Term] = [number(value, "integer") for value in range(12)]
    numbers = Table(rows, [integers, integers, integers, small])
    base = compare("(?a + ?b) / ?c > 3.5 && ?d < 6, integers", numbers, condition(), rows, slow)
    spare = TYPE_BITS + 1  # of a word that holds an integer
    a, b, c, d = np.ascontiguousarray((numbers.words << spare >> spare).T.astype(np.float64))
    seconds, kept = median(lambda: int(np.count_nonzero(((a + b) / c > 3.5) & (d < 6))))
    report("numpy, doubles", seconds, rows, kept, base)

    doubles: list[Term] = [number(generator.randrange(1, 100_000) / 100, "double") for _ in range(1000)]
    compare("the same, doubles", Table(rows, [doubles, doubles, doubles, small]), condition(), rows, slow)

    decimals: list[Term] = [number(f"{generator.randrange(1, 100_000) / 100:.2f}", "decimal") for _ in range(1000)]
    odd: list[Term] = [number(f"0{generator.randrange(1, 100_000)}", "integer") for _ in range(1000)]
    mixed = Table(rows, [integers + odd, doubles + decimals, integers, small])
    compare("the same, mixed numbers, some in the dictionary", mixed, condition(), rows, slow)

    names: list[Term] = [Literal(f"sensor {value}") for value in range(1000)]
    texts = Table(rows, [names, names, names, names])
    regex = Call("REGEX", (Var("a"), Constant(Literal("[13579]$"))))
    compare("REGEX(?a, …) over 1,000 distinct strings", texts, regex, rows, slow)
    less = Call("LT", (Var("a"), Var("b")))
    compare("?a < ?b, strings", texts, less, rows, slow)


if __name__ == "__main__":
    main()
