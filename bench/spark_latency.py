"""Latency on Spark: a small micro-batch of cqels beside one that does nothing, while 1,000 events a second come.

    python bench/spark_latency.py                            # from a socket, some minutes
    python bench/spark_latency.py --source kafka             # from a broker, whose jars are fetched
    python bench/spark_latency.py --seconds 30 --rounds 3
    python bench/spark_latency.py --write docs/benchmarks.md

All variants run in turn in one session, round by round, so that what else the machine does falls on all: trust the
ratios.  A micro-batch is the median of Spark's own `triggerExecution`; beside it is its processor time, of Java, its
Python workers and the driver.  A latency is from the writing of an event, by a process of its own, to its result in a
function of the driver.  The exit code is 0 whatever is met.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bars import Bar, shown, write
from measure import CONSOLE, progress
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from cqels import lift
from cqels.spark import App, sources, start, stop
from cqels.spark.sinks import Callback

MARKS = "<!-- spark-latency: written by bench/spark_latency.py -->", "<!-- end of spark-latency -->"
EX = "http://ex.org/"
RATE, ALERTS = 1000, 10
"""Events in a second, and how many of them there are for each result."""
QUERY = f"SELECT ?s ?t WHERE {{ STREAM <{EX}a> [RANGE 1s] {{ ?s <{EX}alert> ?t }} }}"
TICK = 0.01
TOPIC = "latency"


# ---------------------------------------------------------------- events


def event(number: int) -> str:
    """An event, with the time at which it was made."""
    predicate = "alert" if number % ALERTS == 0 else "p"
    return f'<{EX}s{number % 100}> <{EX}{predicate}> "{time.time_ns()}" .'


def paced(send: Callable[[list[str]], object]) -> None:
    """Send events as they are due, for ever."""
    number, began = 0, time.monotonic()
    while True:
        due = int((time.monotonic() - began) * RATE)
        if due > number:
            send([event(each) for each in range(number, due)])
            number = due
        time.sleep(TICK)


def serve(port: Any) -> None:
    """Send events to whoever connects, one after the other, until the end of the process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port.send(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            with connection:
                try:
                    paced(lambda lines, to=connection: to.sendall("".join(f"{line}\n" for line in lines).encode()))  # type: ignore[misc]
                except OSError:
                    continue


def produce(servers: str) -> None:
    """Send events to the broker."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def send(lines: list[str]) -> None:
        for line in lines:
            producer.produce(TOPIC, line.encode(), partition=0)
        producer.flush()

    paced(send)


# ---------------------------------------------------------------- variants


@dataclass
class Measured:
    """What was seen of a variant in all rounds."""

    batches: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    @property
    def batch(self) -> float:
        return statistics.median(self.batches)

    def __str__(self) -> str:
        seen = sorted(self.latencies) or [float("nan")]
        p50, p99 = (seen[int(part * (len(seen) - 1))] for part in (0.5, 0.99))
        cpu = statistics.median(self.processor)
        return f"{self.batch:.0f} ms (CPU {cpu:.0f} ms, latency p50 {p50:.0f}, p99 {p99:.0f} ms)"


class Nothing(StatefulProcessor):
    """A stage that has one variable of state and does nothing with rows but to pass on those that are results."""

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("state", "text string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        self._state.get()
        for row in rows:
            if f"<{EX}alert>" in row.value:
                yield Row(value=row.value)
        self._state.update(("",))

    def close(self) -> None:
        pass


Got = Callable[[str], None]
"""Called with the text of each result, in which its event's time is."""


def delivering(got: Got) -> Callable[[DataFrame, int], None]:
    def deliver(frame: DataFrame, batch: int) -> None:
        for row in frame.collect():
            got(row.value)

    return deliver


def plain(rows: DataFrame, got: Got, folder: str) -> Any:
    """Rows that are results, collected; no Python process of Spark."""
    chosen = rows.selectExpr("CAST(value AS STRING) AS value").where(functions.col("value").contains(f"<{EX}alert>"))
    return chosen.writeStream.foreachBatch(delivering(got)).option("checkpointLocation", folder).start()


def stateful(rows: DataFrame, got: Got, folder: str) -> Any:
    """The same by a stateful stage of Python that does nothing."""
    chosen = rows.selectExpr("CAST(value AS STRING) AS value", "0 AS key").groupBy("key")
    spark, setting = rows.sparkSession, "spark.sql.shuffle.partitions"
    before = spark.conf.get(setting)
    spark.conf.set(setting, 1)
    try:
        made = chosen.transformWithState(Nothing(), "value string", "append", "none")
        return made.writeStream.foreachBatch(delivering(got)).option("checkpointLocation", folder).start()
    finally:
        spark.conf.set(setting, before or 2)


def cqels_of(latency: str) -> Callable[[DataFrame, Got, str], Any]:
    """A query of cqels over the same rows."""

    def started(rows: DataFrame, got: Got, folder: str) -> Any:
        app = App(rows.sparkSession, checkpoint=folder, latency=latency)
        app.stream(f"{EX}a", rows, lift=lift.ntriples(time="source"))
        app.add(QUERY)
        return app.run(Callback(lambda result: got(f'"{result["t"].value}"')))

    return started


VARIANTS: dict[str, Callable[[DataFrame, Got, str], Any]] = {
    "no Python": plain,
    "an empty stateful stage": stateful,
    "cqels": cqels_of("normal"),
    "cqels, low latency": cqels_of("low"),
}


# ---------------------------------------------------------------- measuring


def processes() -> list[int]:
    """This process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            parents.setdefault(int(words[1]), []).append(int(entry))
    found = [os.getpid()]
    for each in found:
        found += parents.get(each, [])
    return found


def processor_seconds() -> float:
    """What this process and those below it have taken, those that have ended included."""
    ticks = 0
    for each in processes():
        try:
            words = Path(f"/proc/{each}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, words[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(name: str, rows: DataFrame, seconds: float, into: Measured) -> None:
    """Run a variant: some seconds to get warm, then those that count."""
    latencies: list[float] = []
    counts = False

    def got(text: str) -> None:
        if counts:
            latencies.append((time.time_ns() - int(text.split('"')[1])) / 1e6)

    with tempfile.TemporaryDirectory() as folder:
        running = VARIANTS[name](rows, got, folder)
        try:
            query = getattr(running, "query", running)
            _await_batch(query)
            time.sleep(seconds / 2)
            first, before, counts = query.lastProgress["batchId"], processor_seconds(), True
            time.sleep(seconds)
            counts, spent = False, processor_seconds() - before
            count = query.lastProgress["batchId"] - first
            recent = [each for each in query.recentProgress if each["batchId"] > first and each["numInputRows"]]
        finally:
            running.stop()
    into.batches += [each["durationMs"]["triggerExecution"] for each in recent]
    into.processor.append(1000 * spent / max(count, 1))
    into.latencies += latencies


def _await_batch(query: Any) -> None:
    while not query.lastProgress or not query.lastProgress["numInputRows"]:
        if not query.isActive:
            raise AssertionError(str(query.exception()))
        time.sleep(0.1)


@contextmanager
def feeding(target: Callable[..., None], *given: Any) -> Iterator[None]:
    process = get_context("spawn").Process(target=target, args=given, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


@contextmanager
def socket_rows() -> Iterator[tuple[SparkSession, Callable[[], DataFrame]]]:
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    with feeding(serve, sending):
        port = receiving.recv()
        spark = start(master="local[2]")
        try:
            yield spark, lambda: sources.socket(spark, "127.0.0.1", port)
        finally:
            stop(spark)


@contextmanager
def kafka_rows() -> Iterator[tuple[SparkSession, Callable[[], DataFrame]]]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.spark.broker import Broker, connector

    with tempfile.TemporaryDirectory() as folder:
        jars = connector(Path(folder) / "connector")
        (Path(folder) / "broker").mkdir()
        with Broker(Path(folder) / "broker", partitions=1) as broker, feeding(produce, broker.servers):
            spark = start(master="local[2]", settings={"spark.jars": ",".join(map(str, jars))})
            try:
                yield spark, lambda: sources.kafka(spark, broker.servers, TOPIC, start="latest")
            finally:
                stop(spark)


def bars(found: dict[str, Measured], source: str) -> Iterator[Bar]:
    for name, each in found.items():
        yield Bar(f"{RATE:,} events/s from {source}, {name}: a micro-batch", str(each))
    for name, other, most in (
        ("cqels", "an empty stateful stage", 1.15),
        ("cqels, low latency", "no Python", 1.5),
    ):
        ratio = found[name].batch / found[other].batch
        yield Bar(
            f"{RATE:,} events/s from {source}: {name} against {other}", f"{ratio:.2f}×", f"≤ {most}×", ratio <= most
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", choices=["socket", "kafka"], default="socket")
    parser.add_argument(
        "--seconds", type=float, default=15, help="of each variant in each round (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="those that count; one before is not (default: %(default)s)"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    arguments = parser.parse_args()
    found = {name: Measured() for name in VARIANTS}
    rows = socket_rows if arguments.source == "socket" else kafka_rows
    with rows() as (_, source), progress() as line:
        task = line.add_task("", total=(arguments.rounds + 1) * len(VARIANTS))
        for round in range(arguments.rounds + 1):
            for name in VARIANTS:
                line.update(task, description=f"{name}, round {round}")
                measured(name, source(), arguments.seconds, found[name] if round else Measured())
                line.advance(task)
    told = list(bars(found, arguments.source))
    CONSOLE.print(shown(told))
    if arguments.write is not None:
        write(told, arguments.write, MARKS)


if __name__ == "__main__":
    main()
