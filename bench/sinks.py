"""Results on their way to files: how many are written in a second from columns, and by the plain writers.

python bench/sinks.py --results 200000

On Spark, what results cost the driver that are collected there, and that tasks write themselves, in turn:

python bench/sinks.py --spark 500000 --rounds 2
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import pyarrow

from cqels.pipeline.sink.result_batch import Sent, schema_of
from cqels.pipeline.sink.text_formats import body
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.results import writer_for
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


PLACES = {
    "CSV by the driver": "results/",
    "CSV by tasks": "results/?parts",
    "Parquet by the driver": "results/?parquet",
    "Parquet by tasks": "results/?parts&parquet",
}
"""Where results go on Spark; `parquet` is for this script."""


def on_spark(place: str, count: int) -> dict[str, float]:
    """One run over a file with so many elements, each of which is a result; in a process of its own."""
    from cqels.spark import App, start, stop
    from cqels.spark.sinks import sink_of

    with TemporaryDirectory() as folder:
        obs = Path(folder) / "obs.nt"
        with obs.open("w") as file:
            for number in range(count):
                value = f'"{number * 31 % 10_000 / 100:.2f}"^^<{XSD}decimal>'
                file.write(f'<http://ex.org/sensor/{number % 1000}> <x:v> {value} "{number // 10}" .\n')
        session = start(master="local[2]", partitions=1)
        try:
            app = App(session, batch_bytes=count * 90 // 10)
            app.files(f"<x:s>={obs}")
            app.add(QUERY, name="readings")
            format = "parquet" if "parquet" in place else "csv"
            settings = "?parts" if "parts" in place else ""
            sink = sink_of(f"{folder}/results/{settings}", format=format)
            before, cpu, began = peak(), process_time(), perf_counter()
            app.run(sink).wait()
            return {"seconds": perf_counter() - began, "cpu": process_time() - cpu, "megabytes": peak() - before}
        finally:
            stop(session)


def peak() -> float:
    """The most memory that this process, the driver's Python, has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare_on_spark(count: int, rounds: int) -> None:
    for number in range(rounds):
        for name, place in PLACES.items():
            command = [sys.executable, __file__, "--spark", str(count), "--place", place]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])
            sys.stdout.write(
                f"round {number + 1}, {name}: {found['seconds']:.1f} s, of which {found['cpu']:.2f} s of the driver's "
                f"Python, which grew by {found['megabytes']:.0f} MB\n"
            )
            sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--spark", type=int, help="results of a run on Spark")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    options = parser.parse_args()
    write = sys.stdout.write
    if options.place is not None:
        write(json.dumps(on_spark(options.place, options.spark)) + "\n")
        return
    if options.spark is not None:
        compare_on_spark(options.spark, options.rounds)
        return
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
