"""The state of a live run: how long a snapshot stops it, how long it takes, and how long a start takes.

    python bench/live_state.py --gigabytes 1

A window is filled until the state has the size; then batches go on while a forked process writes the snapshot.  The
pause is what stops the run; the other figures are the time of a batch before, while and after it is written.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import perf_counter, thread_time

import numpy as np

from cqels.ingest import StreamSettings
from cqels.ingest.element_batch import Batch
from cqels.pipeline.instance.durable_instance import DurableInstance
from cqels.pipeline.instance.instance_commands import Arrival
from cqels.pipeline.instance.program import Program
from cqels.pipeline.lift.block_format import pack
from cqels.pipeline.lift.block_writer import new_terms
from cqels.plan.prepare import prepare

EX = "http://ex.org/"
QUERY = f"""SELECT ?s ?a ?b WHERE {{
  STREAM <{EX}obs> [RANGE 10000h] {{ ?s <{EX}temp> ?a }} STREAM <{EX}obs> [NOW] {{ ?s <{EX}wet> ?b }} }}"""
BLOCK = 50_000


def program() -> Program:
    return Program.of("bench", [prepare(QUERY, name="pairs")], [StreamSettings(EX + "obs")])


class Blocks:
    """Blocks of readings, each of a sensor of its own."""

    def __init__(self) -> None:
        self._terms = new_terms()
        self._sent = 0

    def next(self, count: int = BLOCK) -> Arrival:
        from pyoxigraph import Literal, NamedNode

        temp = self._terms.encode(NamedNode(EX + "temp"))
        first = self._sent
        subjects = [self._terms.encode(NamedNode(f"{EX}sensor/{at}")) for at in range(first, first + count)]
        values = [self._terms.encode(Literal(at % 1000)) for at in range(first, first + count)]
        self._sent += count
        times = np.arange(first, first + count, dtype=np.int64) * 10**6
        triples = np.stack([np.array(subjects), np.full(count, temp), np.array(values)], axis=1).reshape(-1)
        batch = Batch(times, np.zeros(count, np.int64), np.ones(count, np.int64), triples.astype(np.int64))
        block = pack(batch, self._terms.dictionary)
        self._terms.forget()
        self._terms.dictionary.keep(())
        return Arrival(0, "", block)


def timed_batches(instance: DurableInstance, blocks: Blocks, seconds: float) -> list[float]:
    """The times of small batches, one after the other, in milliseconds; without those of lifting."""
    found, until = [], perf_counter() + seconds
    while perf_counter() < until and (not found or instance._writer.is_busy or seconds < 5):
        block = blocks.next(1000)
        began = perf_counter()
        instance.advance(instance.batch + 1, [block])
        found.append(1000 * (perf_counter() - began))
    return found


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def measure(folder: Path, size: int) -> None:
    instance, blocks = DurableInstance(folder, program()), Blocks()
    instance.recover()
    while instance.instance.state_bytes < size:
        instance.advance(instance.batch + 1, [blocks.next()])
    instance.finish_snapshot()
    state = instance.instance.state_bytes / 1e9
    tell(f"state                          {state:8.2f} GB in use, {instance._saved / 1e9:.2f} GB in the last snapshot")
    tell(f"batch of 1,000, before         {median(timed_batches(instance, blocks, 3)):8.1f} ms")
    began, worked = perf_counter(), thread_time()
    instance.maintain(now=True)
    pause, work = instance.pause, thread_time() - worked
    during = timed_batches(instance, blocks, 60)
    took = perf_counter() - began
    instance.finish_snapshot()
    tell(f"pause for a snapshot           {1000 * pause:8.1f} ms, of which {1000 * work:.1f} ms of the processor")
    tell(f"batch of 1,000, while written  {median(during):8.1f} ms (median), {max(during):.1f} ms at most")
    tell(f"snapshot complete after        {took:8.1f} s, {instance._saved / 1e9:.2f} GB")
    tell(f"batch of 1,000, after          {median(timed_batches(instance, blocks, 3)):8.1f} ms")
    log = instance.log_bytes
    instance.close()
    began = perf_counter()
    again = DurableInstance(folder, program())
    again.recover()
    tell(f"start with that state          {perf_counter() - began:8.1f} s, and {log / 1e6:.1f} MB of log")
    again.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    folder = Path(given.folder or mkdtemp(prefix="cqels-bench-"))
    try:
        measure(folder, int(given.gigabytes * 1e9))
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
