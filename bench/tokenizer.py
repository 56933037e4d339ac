"""N-Quads bytes to words: the tokenizer against pyoxigraph's parser with a dict, in one run.

    python bench/tokenizer.py --lines 1000000

Each contender is run in turn, round by round, so that noise of the machine hits all alike; the table has the medians.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

from pyoxigraph import RdfFormat, parse
from rich.console import Console
from rich.table import Table

from cqels.kernels.memory.arena import Arena
from cqels.kernels.readers.line_blocks import tokenize
from cqels.kernels.terms.arena_dictionary import ArenaDictionary

XSD = "http://www.w3.org/2001/XMLSchema#"
ONTOLOGY = "http://example.org/ont/"
PROPERTIES = ("temperature", "humidity", "madeBySensor", "resultTime", "label", "inRoom", "type", "quality")


def lines_of(count: int, seed: int) -> bytes:
    """Observations, eight lines each: ever new subjects and graphs, few predicates, and objects of every kind."""
    draw = random.Random(seed)
    lines = []
    for number in range(count):
        name = PROPERTIES[number % 8]
        graph = f"<http://example.org/graph/{number // 64}>"
        subject = f"<http://example.org/observation/{number // 8}>"
        lines.append(f"{subject} <{ONTOLOGY}{name}> {_object(name, draw, count)} {graph} .\n")
    return "".join(lines).encode()


def _object(name: str, draw: random.Random, count: int) -> str:
    match name:
        case "temperature":
            return f'"{round(draw.gauss(20, 8), 2)}"^^<{XSD}double>'
        case "humidity":
            return f'"{draw.randrange(10_000) / 100:.2f}"^^<{XSD}decimal>'
        case "quality":
            return f'"{draw.randrange(100)}"^^<{XSD}integer>'
        case "resultTime":
            day, hour, second = draw.randrange(1, 31), draw.randrange(24), draw.randrange(60)
            return f'"2024-01-{day:02}T{hour:02}:00:{second:02}Z"^^<{XSD}dateTime>'
        case "label":
            return f'"observation {draw.randrange(count)}"'
        case "madeBySensor":
            return f"<http://example.org/sensor/{draw.randrange(10_000)}>"
        case "inRoom":
            return f"<http://example.org/room/{draw.randrange(500)}>"
        case _:
            return f"<{ONTOLOGY}{draw.choice(('Hot', 'Cold', 'Fine'))}>"


def with_tokenizer(data: bytes) -> int:
    dictionary = ArenaDictionary(Arena())
    block = tokenize(dictionary, data)
    if len(block.odd):
        raise SystemExit(f"{len(block.odd)} lines were not taken, the first is {block.line(block.odd[0])!r}")
    return len(block)


def with_tokenizer_in_blocks(data: bytes) -> int:
    dictionary = ArenaDictionary(Arena())
    size, position, lines = 1 << 16, 0, 0
    while position < len(data):
        block = tokenize(dictionary, data[position : position + size], final=position + size >= len(data))
        position += block.end
        lines += len(block)
    return lines


def with_pyoxigraph(data: bytes) -> int:
    return sum(1 for _ in parse(data, RdfFormat.N_QUADS))


def with_pyoxigraph_and_dict(data: bytes) -> int:
    ids: dict[object, int] = {}
    rows = []
    for quad in parse(data, RdfFormat.N_QUADS):
        rows.append(
            (
                ids.setdefault(quad.subject, len(ids)),
                ids.setdefault(quad.predicate, len(ids)),
                ids.setdefault(quad.object, len(ids)),
                ids.setdefault(quad.graph_name, len(ids)),
            )
        )
    return len(rows)


CONTENDERS: dict[str, Callable[[bytes], int]] = {
    "tokenizer, one block": with_tokenizer,
    "tokenizer, 64 KB blocks": with_tokenizer_in_blocks,
    "pyoxigraph, terms only": with_pyoxigraph,
    "pyoxigraph + dict": with_pyoxigraph_and_dict,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000, help="how many quads (default: 1000000)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is run (default: 5)")
    parser.add_argument("--seed", type=int, default=1, help="of the data (default: 1)")
    parser.add_argument("--only", help="run only the contenders whose name has this in it")
    options = parser.parse_args()
    data = lines_of(options.lines, options.seed)
    contenders = {name: run for name, run in CONTENDERS.items() if options.only is None or options.only in name}
    small = data[: data.index(b"\n") + 1]
    for run in contenders.values():
        run(small)  # compile, or load what was compiled
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, run in contenders.items():
            before = time.process_time()
            lines = run(data)
            times[name].append(time.process_time() - before)
            if lines != options.lines:
                raise SystemExit(f"{name} read {lines} lines")
    medians = {name: statistics.median(values) for name, values in times.items()}
    slowest = max(medians.values())
    table = Table(
        title=f"{options.lines:,} quads, {len(data) / options.lines:.0f} bytes each, CPU time, {options.rounds} rounds"
    )
    for heading in ("", "median s", "least s", "M quads/s", "MB/s", "ratio"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, median in medians.items():
        rate = options.lines / median / 1e6
        table.add_row(
            name,
            f"{median:.2f}",
            f"{min(times[name]):.2f}",
            f"{rate:.2f}",
            f"{len(data) / median / 1e6:.0f}",
            f"{slowest / median:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
