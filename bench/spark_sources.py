"""Files through the source of Spark to nowhere, beside the tokenizer alone: bytes and triples in a second.

One core is measured in processor time, Spark by the clock on the wall, with the start of the query.

python bench/spark_sources.py --triples 4000000 --batch 8,32,128
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from lines import EX, Part, readings, written

from cqels.ingest import Rejected, StreamDeclaration, declare
from cqels.ingest.encode import Intake
from cqels.ingest.file_batches import file_batches
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.readers.line_blocks import tokenize
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.pipeline.lift.block_writer import BlockWriter
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.source.file_source_settings import prepared
from cqels.spark import start, stop
from cqels.spark.source.file_source import file_rows

ALL = PushedPatterns(frozenset([ANYTHING]))
MEGABYTE = 1 << 20
GENERATED = "http://www.w3.org/ns/prov#generatedAtTime"


def timed(count: int) -> bytes:
    """Readings of a thousand sensors."""
    numbers = np.arange(count)
    return readings(numbers * 7919 % 1000, numbers, 100 + numbers % 900, ("temp", "hum_"))


def quads(count: int) -> bytes:
    """Graphs of four statements, one of which is the time."""
    graphs = np.arange(count // 4)
    graph: list[Part] = [f"<{EX}g".encode(), (graphs, 9), b">"]
    parts: list[Part] = []
    for name in ("temp", "hum_", "wind"):
        parts += [f"<{EX}s".encode(), (graphs * 31 % 1000, 9), f"> <{EX}{name}> ".encode()]
        parts += [b'"', (100 + graphs % 900, 3), b'" ', *graph, b" .\n"]
    parts += [*graph, f" <{GENERATED}> ".encode(), b'"', (graphs, 13), b'" ', *graph, b" .\n"]
    return written(parts, count // 4)


def refuse(rejected: Rejected) -> None:
    raise ValueError(str(rejected))


def tokenized(declaration: StreamDeclaration) -> None:
    dictionary = ArenaDictionary(Arena())
    with Path(declaration.path).open("rb") as file:
        while data := file.read(MEGABYTE):
            tokenize(dictionary, data + file.readline())


def read(declaration: StreamDeclaration) -> None:
    intake = Intake(Terms(ArenaDictionary(Arena())))
    for _ in file_batches(declaration, Path(declaration.path), None, 0, intake, refuse):
        pass


def packed(declaration: StreamDeclaration) -> None:
    writer = BlockWriter(0, (ALL,))
    for batch in file_batches(declaration, Path(declaration.path), None, 0, writer.intake, refuse):
        list(writer.blocks(batch, "", 0, 0))


def seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    begin = clock()
    work()
    return clock() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triples", type=int, default=2_000_000)
    parser.add_argument("--batch", default="8,32,128", help="megabytes of a micro-batch")
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    spark = start(master="local[2]")

    def through(declaration: StreamDeclaration, size: int) -> None:
        rows = file_rows(spark, prepared([(0, declaration, (ALL,))], None, batch_bytes=size * MEGABYTE))
        query = rows.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()

    with tempfile.TemporaryDirectory() as folder:
        for make, extension in ((timed, "nt"), (quads, "nq")):
            path = Path(folder, f"data.{extension}")
            path.write_bytes(make(options.triples))
            declaration = declare("http://example.org/stream", path)
            runs: dict[str, Callable[[], object]] = {
                "tokenize": lambda d=declaration: tokenized(d),
                "read": lambda d=declaration: read(d),
                "read, pack": lambda d=declaration: packed(d),
            }
            for size in map(int, options.batch.split(",")):
                runs[f"Spark, {size} MB"] = lambda d=declaration, s=size: through(d, s)
            for name, run in runs.items():
                clock = perf_counter if name.startswith("Spark") else process_time  # Spark's work is in other processes
                spent = min(seconds(run, clock) for _ in range(options.repeat))
                megabytes = path.stat().st_size / MEGABYTE / spent
                rate = options.triples / spent / 1e6
                sys.stdout.write(f"{make.__name__:<8}{name:<16}{megabytes:>7.0f} MB/s{rate:>7.2f} M triples/s\n")
                sys.stdout.flush()
    stop(spark)


if __name__ == "__main__":
    main()
