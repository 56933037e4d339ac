"""Does a pipeline on Spark stay as it is? An hour of events in small micro-batches, at full speed.

    python bench/soak.py                                  # 50 elements a second: some minutes
    python bench/soak.py --rate 500 --batch 1000000       # ten times as many
    python bench/soak.py --json soak.json

Each observation is an IRI that never comes again; one query joins its two triples in a window of a minute, another one
counts by sensor in a sliding window.  While it runs, each process of it is looked at: Java, the Python driver, the
reader of the files, all workers together.  So are the checkpoint and the memory of the engines, which is files.  In the
last tenth of the run all of it should be within 10 % of what it was in the middle.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from threading import Event, Thread
from time import perf_counter

import numpy as np
from lines import EX, readings
from measure import CONSOLE, machine, per_second
from rich.table import Table

from cqels.spark import App, start, stop
from cqels.spark.driver.metrics import Metrics
from cqels.spark.sinks import Files

HOUR = 3600
NEAR = 0.1
EVERY = 1.0
"""Seconds between two looks."""
QUERIES = {
    "join": f"""PREFIX : <{EX}> SELECT ?observation ?temperature ?humidity WHERE {{
  STREAM :readings [RANGE 1m] {{ ?observation :temp ?temperature . ?observation :damp ?humidity }} }}""",
    "count": f"""PREFIX : <{EX}> SELECT ?temperature (COUNT(*) AS ?n) WHERE {{
  STREAM :readings [RANGE 5m SLIDE 1m] {{ ?observation :temp ?temperature }} }} GROUP BY ?temperature""",
}
MEGABYTES = ("Java", "Python driver", "reader", "workers", "engines' memory", "checkpoint")
COUNTS = ("workers there", "files of the checkpoint")
KINDS = (*MEGABYTES, *COUNTS)


@dataclass(frozen=True)
class Sample:
    """What was there at a time: megabytes, or how many."""

    batch: int
    sizes: dict[str, float]


# ---------------------------------------------------------------- looking


def processes() -> dict[str, list[int]]:
    """This process and all that it started, by kind."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            children[int((entry / "stat").read_text().rpartition(") ")[2].split()[1])].append(int(entry.name))
    kinds: dict[str, list[int]] = {"Python driver": [os.getpid()], "Java": [], "reader": [], "workers": []}
    waiting = list(children[os.getpid()])
    while waiting:
        process = waiting.pop()
        waiting += children[process]
        with suppress(OSError):
            command = Path(f"/proc/{process}/cmdline").read_text()
            if command.partition("\0")[0].endswith("java"):
                kinds["Java"].append(process)
            elif "streaming_source_runner" in command:
                kinds["reader"].append(process)
            elif "pyspark.daemon" in command:
                kinds["workers"].append(process)
    return kinds


def own_memory(process: int) -> int:
    """Bytes of a process that are no part of a file: engines are in files, and counted there."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def on_disk(folder: Path, pattern: str = "**/*") -> tuple[int, int]:
    """Bytes and number of the files in a folder; a file may have holes."""
    total = count = 0
    for path in folder.glob(pattern):
        with suppress(OSError):
            found = path.lstat()
            if path.is_file():
                total, count = total + found.st_blocks * 512, count + 1
    return total, count


def look(folder: Path, batch: int) -> Sample:
    kinds = processes()
    sizes = {kind: sum(map(own_memory, found)) / 1e6 for kind, found in kinds.items()}
    checkpoint, files = on_disk(folder / "checkpoint")
    sizes |= {
        "engines' memory": on_disk(folder / "local", "*/userFiles-*/*")[0] / 1e6,
        "checkpoint": checkpoint / 1e6,
        "workers there": len(kinds["workers"]),
        "files of the checkpoint": files,
    }
    return Sample(batch, sizes)


# ---------------------------------------------------------------- running


def write_data(path: Path, rate: int, seconds: int) -> int:
    """Two lines for each observation; the number of lines."""
    count = rate * seconds
    with path.open("wb") as file:
        for first in range(0, count, 100_000):
            places = np.arange(first, min(first + 100_000, count))
            values = np.random.default_rng(first).integers(100, 1000, len(places))
            file.write(readings(places // 2, places * 1000 // rate, values, ("temp", "damp")))
    return count


def run(folder: Path, rate: int, seconds: int, batch_bytes: int, heap: str) -> tuple[list[Sample], int, float]:
    """The samples, how many elements there were, and the seconds that they took."""
    count = write_data(folder / "readings.nt", rate, seconds)
    spark = start(settings={"spark.local.dir": str(folder / "local"), "spark.driver.memory": heap})
    samples: list[Sample] = []
    over = Event()
    metrics = Metrics()

    def watch() -> None:
        while not over.wait(EVERY):
            if metrics.totals.batch >= 0:
                samples.append(look(folder, metrics.totals.batch))

    try:
        app = App(spark, checkpoint=folder / "checkpoint", batch_bytes=batch_bytes)
        app.files(f"<{EX}readings>={folder}/readings.nt")
        for name, text in QUERIES.items():
            app.add(text, name=name)
        Thread(target=watch, daemon=True).start()
        began = perf_counter()
        app.run(Files(folder / "out"), metrics=metrics).wait()
        spent = perf_counter() - began
        over.set()
    finally:
        stop(spark)
    return samples, count, spent


def tenth(samples: list[Sample], kind: str, middle: float) -> float:
    """The median in the tenth of the run around a place."""
    first = int((middle - 0.05) * len(samples))
    return median(each.sizes[kind] for each in samples[first : max(first + 1, int((middle + 0.05) * len(samples)))])


def shown(samples: list[Sample]) -> tuple[Table, bool]:
    """A table, and whether all is level."""
    table = Table("", "first tenth", "middle", "last tenth", "change", "level")
    for column in table.columns[1:]:
        column.justify = "right"
    level = True
    for kind in KINDS:
        first, middle, last = (tenth(samples, kind, place) for place in (0.05, 0.5, 0.95))
        change = last / middle - 1 if middle else 0.0
        level &= change <= NEAR
        unit = "" if kind in COUNTS else " MB"
        figures = [f"{value:,.0f}{unit}" for value in (first, middle, last)]
        table.add_row(kind, *figures, f"{change:+.1%}", "yes" if change <= NEAR else "no")
    return table, level


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=50, help="elements per second of event time (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=HOUR, help="of event time (default: an hour)")
    parser.add_argument("--batch", type=int, default=64_000, help="bytes of a micro-batch (default: %(default)s)")
    parser.add_argument("--heap", default="512m", help="of Java (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the samples")
    options = parser.parse_args()
    folder = Path(mkdtemp(prefix="cqels-soak-"))
    try:
        samples, count, spent = run(folder, options.rate, options.seconds, options.batch, options.heap)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        data = [{"batch": each.batch, **each.sizes} for each in samples]
        options.json.write_text(json.dumps({"machine": machine(), "samples": data}) + "\n")
    if len(samples) < 20:
        parser.error("the run was too short to tell: ask for more elements, or for smaller micro-batches")
    table, level = shown(samples)
    batches = samples[-1].batch + 1
    CONSOLE.print(table)
    CONSOLE.print(
        f"{machine()}: {count:,} elements, {batches} micro-batches, {spent:.0f} s, {per_second(count / spent)}"
    )
    CONSOLE.print(f"level: {'yes' if level else 'no'}")


if __name__ == "__main__":
    main()
