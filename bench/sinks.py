"""Results on their way to files: how many are written in a second from columns, and by the plain writers.

python bench/sinks.py --results 200000
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import pyarrow

from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.results import writer_for
from cqels.spark.sink.result_batch import Sent, schema_of
from cqels.spark.sink.text_formats import body
from cqels.spark.sinks import Files

XSD = "http://www.w3.org/2001/XMLSchema#"
QUERY = prepare("SELECT ?sensor ?value WHERE { STREAM <x:s> [NOW] { ?sensor <x:v> ?value } }", name="readings")
KINDS = {"readings of 1,000 sensors": (1000, 10_000), "observations with IRIs of their own": (1 << 40, 1 << 40)}
"""How many different sensors and values there are."""


def results(query: Query, count: int, sensors: int, values: int) -> Sent:
    """Ten results at each millisecond."""
    columns = {
        "time": [1_700_000_000_000_000_000 + number // 10 * 1_000_000 for number in range(count)],
        "tick": [number // 10 for number in range(count)],
        "sign": ["+"] * count,
        "empty": [False] * count,
        "?sensor": [f"<http://ex.org/sensor/{number % sensors}>" for number in range(count)],
        "?value": [f'"{number * 31 % values / 100:.2f}"^^<{XSD}decimal>' for number in range(count)],
    }
    return Sent(query, pyarrow.table(columns, schema_of(query)).to_batches())


def plain(sent: Sent, format: str) -> Callable[[], object]:
    rows = list(sent.results())

    def write() -> None:
        writer = writer_for(format, io.StringIO(newline=""), sent.query.variables, {})
        for row in rows:
            writer.write(row)

    return write


def best(times: int, work: Callable[[], object]) -> float:
    def once() -> float:
        start = perf_counter()
        work()
        return perf_counter() - start

    return min(once() for _ in range(times))


def durable(count: int) -> float:
    """Seconds for a micro-batch with one result, which is safe on the disk when it is written."""
    one = results(QUERY, 1, 1, 1)
    with TemporaryDirectory() as folder:
        sink = Files(Path(folder) / "out.csv")
        sink.open([QUERY])
        start = perf_counter()
        for batch in range(count):
            sink.write(batch, {"readings": one})
        passed = perf_counter() - start
        sink.close()
    return passed / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    write = sys.stdout.write
    for name, (sensors, values) in KINDS.items():
        sent = results(QUERY, options.results, sensors, values)
        for format in ("csv", "jsonl"):
            columns = best(options.repeat, lambda sent=sent, format=format: body(sent, format))
            rows = best(options.repeat, plain(sent, format))
            rates = (options.results / seconds / 1e6 for seconds in (columns, rows))
            write(f"{name}, {format}: {next(rates):.2f} M results/s from columns, {next(rates):.2f} by the writer\n")
    write(f"a micro-batch with one result: {durable(100) * 1000:.1f} ms\n")


if __name__ == "__main__":
    main()
