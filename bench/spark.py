"""The pipeline on Spark beside the embedded engine: throughput, the cost of a micro-batch, state, recovery.

    python bench/spark.py                       # all, some minutes
    python bench/spark.py throughput --triples 8000000
    python bench/spark.py batch state
    python bench/spark.py --write docs/benchmarks.md

Both run in turn in one process on the same files, in wall time: trust the ratios, and only on a machine that has two
cores to spare.  The exit code is 0 whatever is met.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from bars import Bar, shown, write
from measure import CONSOLE, per_second, progress
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from cqels.pipeline.lift.predicate_pushdown import pushed_patterns
from cqels.pipeline.lift.row_schemas import SENT_COLUMNS
from cqels.pipeline.source.file_source_settings import prepared
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.scenarios.measured import embedded, micro_batches, on_spark
from cqels.scenarios.scenario import Data
from cqels.spark import start, stop
from cqels.spark.source.file_source import file_rows

MARKS = "<!-- spark: written by bench/spark.py -->", "<!-- end of spark -->"
EX = "http://ex.org/"
SENSORS, ROOMS = 5000, 200
PREFIX = f"PREFIX : <{EX}> "
QUERIES = {
    "filter": PREFIX + "SELECT ?s ?v WHERE { STREAM :obs [NOW] { ?s :value ?v } FILTER(?v > 90) }",
    "join of two windows and static data": PREFIX
    + """SELECT ?s ?v ?room ?w WHERE {
      STREAM :obs [RANGE 2s] { ?s :value ?v } ?s :in ?room . STREAM :doors [RANGE 1s] { ?room :door ?w } }""",
    "grouped aggregate": PREFIX
    + """SELECT ?room (AVG(?v) AS ?mean) (COUNT(*) AS ?n) WHERE {
      STREAM :obs [RANGE 10s SLIDE 1s] { ?s :value ?v } ?s :in ?room } GROUP BY ?room""",
}
PAIRS = "STREAM :obs [RANGE 1s] { ?s :value ?v } STREAM :obs [RANGE 3s] { ?s :value ?w } FILTER(?v + ?w > 196)"
SLIDING = PAIRS.replace("1s", "1s SLIDE 500ms").replace("3s", "3s SLIDE 500ms").replace("196", "100")
SPREAD = {
    "pairs of readings": f"{PREFIX} SELECT ?s ?v ?w {{ {PAIRS} }}",
    "the ten best pairs": f"{PREFIX} SELECT ?s ?v ?w {{ {PAIRS} }} ORDER BY DESC(?v + ?w) LIMIT 10",
    "pairs counted by values": f"{PREFIX} SELECT ?v (COUNT(*) AS ?n) (AVG(?w) AS ?m) {{ {SLIDING} }} GROUP BY ?v",
}
"""Queries that their engine takes most of the time for; of the last two a rest is computed of all parts."""
Bars = Iterator[Bar]


# ---------------------------------------------------------------- data


def data(folder: Path, triples: int) -> Data:
    """Readings of sensors, ten a millisecond, and doors, one for a hundred of them; the rooms are static."""
    kind = "http://www.w3.org/2001/XMLSchema#integer"
    with (folder / "obs.nq").open("w") as file:
        for number in range(triples):
            sensor, value = number * 7919 % SENSORS, number * 31 % 100
            file.write(f'<{EX}sensor/{sensor}> <{EX}value> "{value}"^^<{kind}> {number // 10} .\n')
    with (folder / "doors.nq").open("w") as file:
        for number in range(triples // 1000):
            file.write(f"<{EX}room/{number * 7 % ROOMS}> <{EX}door> <{EX}door/{number % 3}> {number * 100} .\n")
    rooms = [f"<{EX}sensor/{number}> <{EX}in> <{EX}room/{number % ROOMS}> ." for number in range(SENSORS)]
    (folder / "rooms.nt").write_text("\n".join(rooms) + "\n")
    streams = f"<{EX}obs>={folder}/obs.nq", f"<{EX}doors>={folder}/doors.nq"
    return Data(streams, ((folder / "rooms.nt", None),))


def asked(text: str) -> list[Query]:
    return [prepare(text, name="q")]


# ---------------------------------------------------------------- bars


def throughput(spark: SparkSession, folder: Path, *, triples: int) -> Bars:
    """From N-Quads files to results, warm."""
    whole = data(folder, triples)
    few = data(Path(tempfile.mkdtemp(dir=folder)), 20_000)
    for name, text in QUERIES.items():
        queries = asked(text)
        embedded(queries, few)
        speeds: list[tuple[float, float]] = []
        for _ in range(3):
            one = embedded(queries, whole, clock=perf_counter)
            both = on_spark(queries, whole, spark)
            expected = one.results
            if (both.results, one.rejected, both.rejected) != (expected, 0, 0):
                raise AssertionError(f"{name}: {both.results} results on Spark, {expected} embedded")
            speeds.append((both.rate, one.rate))
        ratio = statistics.median(ours / theirs for ours, theirs in speeds)
        ours, theirs = (per_second(statistics.median(each)) for each in zip(*speeds, strict=True))
        figure = f"{ratio:.2f}× ({ours} against {theirs}; {expected:,} results)"
        yield Bar(f"{name}: {triples:,} triples on local[2], against embedded on one core", figure, "≥ 1×", ratio >= 1)


def spread(spark: SparkSession, folder: Path, *, triples: int) -> Bars:
    """One query on two engines, against the same query on one."""
    whole = data(folder, triples // 4)
    for name, text in SPREAD.items():
        queries = asked(text)
        speeds: list[tuple[float, float]] = []
        for _ in range(3):
            one, both = (on_spark(queries, whole, spark, spread=each) for each in (False, True))
            if both.results != one.results:
                raise AssertionError(f"{name}: {both.results} results of two engines, {one.results} of one")
            speeds.append((both.rate, one.rate))
        ratio = statistics.median(ours / theirs for ours, theirs in speeds)
        ours, theirs = (per_second(statistics.median(each)) for each in zip(*speeds, strict=True))
        figure = f"{ratio:.2f}× ({ours} against {theirs}; {one.results:,} results)"
        yield Bar(f"{name}: {triples // 4:,} triples on two engines, against one", figure)


class Nothing(StatefulProcessor):
    """Does nothing with what it gets."""

    def init(self, handle: Any) -> None:
        self._head = handle.getValueState("head", "head string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for _ in rows:
            pass
        self._head.update(("nothing",))
        yield from ()

    def close(self) -> None:
        pass


def batch(spark: SparkSession, folder: Path, *, triples: int) -> Bars:
    """Micro-batches with few events, against those of the same shape that do nothing."""
    few = data(folder, 3000)
    text = QUERIES["join of two windows and static data"]
    size = (folder / "obs.nq").stat().st_size // 60
    ratios, ours, theirs = [], [], []
    for _ in range(3):
        plain = _milliseconds(_nothing(spark, few, text, size))
        marks = micro_batches(asked(text), few, spark, batch_bytes=size)
        full = _milliseconds([mark.time for mark in marks])
        ratios.append(full / plain)
        ours.append(full)
        theirs.append(plain)
    ratio = statistics.median(ratios)
    figure = f"{ratio:.2f}× ({statistics.median(ours):.0f} ms against {statistics.median(theirs):.0f} ms)"
    yield Bar("a micro-batch with 50 events, against one that does nothing", figure, "≤ 2×", ratio <= 2)


def _nothing(spark: SparkSession, few: Data, text: str, size: int) -> list[float]:
    plans = asked(text)
    streams = [(number, each, (pushed_patterns(plans, each.iri),)) for number, each in enumerate(few.declarations)]
    times = [perf_counter()]

    def note(frame: Any, number: int) -> None:
        frame.collect()
        times.append(perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        running = (
            file_rows(spark, prepared(streams, Path(folder) / "files", batch_bytes=size))
            .groupBy("instance")
            .transformWithState(Nothing(), SENT_COLUMNS, "append", "none")
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .start()
        )
        running.processAllAvailable()
        running.stop()
    return times


def _milliseconds(times: list[float]) -> float:
    """The median of what micro-batches take, after the first few."""
    spent = [after - before for before, after in pairwise(times[10:])]
    return 1000 * statistics.median(spent)


def state(spark: SparkSession, folder: Path, *, triples: int) -> Bars:
    """A micro-batch with few events while windows are small and large."""
    costs = {}
    for size in (10_000, 100_000, 1_000_000):
        place = Path(tempfile.mkdtemp(dir=folder))
        kind = "http://www.w3.org/2001/XMLSchema#integer"
        with gzip.open(place / "1.nq.gz", "wt", 1) as file:  # which is read in one micro-batch
            for number in range(size):
                file.write(f'<{EX}s{number}> <{EX}value> "{number % 100}"^^<{kind}> {number} .\n')
        tail = "".join(f'<{EX}s{n * 13}> <{EX}value> "7"^^<{kind}> {size + n} .\n' for n in range(3000))
        (place / "2.nq").write_text(tail)
        query = PREFIX + (
            f"SELECT ?s ?v ?w WHERE {{ STREAM :obs [TRIPLES {size}] {{ ?s :value ?v }} "
            "STREAM :obs [TRIPLES 10] { ?s :value ?w } FILTER(?v < ?w) }"
        )
        files = Data((f"<{EX}obs>={place}/*.nq*",))
        marks = micro_batches(asked(query), files, spark, batch_bytes=len(tail) // 60)
        costs[size] = _milliseconds([mark.time for mark in marks])
    ratio = costs[1_000_000] / costs[10_000]
    figure = ", ".join(f"{size:,}: {cost:.0f} ms" for size, cost in costs.items())
    name = "a micro-batch with 50 events and a window of so many triples"
    yield Bar(name, f"{figure} ({ratio:.2f}×)", "does not grow", ratio <= 1.2)


PARTS: dict[str, Callable[..., Bars]] = {"throughput": throughput, "spread": spread, "batch": batch, "state": state}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--triples", type=int, default=24_000_000)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"there is no part {min(unknown)}; there are {', '.join(PARTS)}")
    chosen = arguments.parts or list(PARTS)
    spark = start(master="local[2]", partitions=2)
    found: list[Bar] = []
    try:
        with progress() as line, tempfile.TemporaryDirectory() as folder:
            task = line.add_task("", total=len(chosen))
            for name in chosen:
                line.update(task, description=name)
                place = Path(folder) / name
                place.mkdir()
                found += PARTS[name](spark, place, triples=arguments.triples)
                line.advance(task)
    finally:
        stop(spark)
    CONSOLE.print(shown(found))
    if arguments.write is not None:
        write(found, arguments.write, MARKS)


if __name__ == "__main__":
    main()
