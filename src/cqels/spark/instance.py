"""One engine of a pipeline: blocks in, results out; how it is made, kept and made again. Nothing here needs Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from pyoxigraph import NamedNode, RdfFormat, parse

from cqels.engine.batch import Batch
from cqels.engine.engine import Engine
from cqels.engine.merge import Merge
from cqels.engine.snapshot import Aside
from cqels.engine.standing import StandingQuery
from cqels.io import Rejected, StreamSettings
from cqels.plan.algebra import Query
from cqels.spark.blocks import unpack
from cqels.store.dataset import Store

MOST_RESULTS = 1 << 17
"""Results that travel in one row."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Static data on its way to the engines: N-Quads, and the names of all named graphs, empty ones too."""

    quads: bytes = b""
    graphs: tuple[str, ...] = ()

    def store(self) -> Store:
        store = Store()
        for name in self.graphs:
            store.add_graph(NamedNode(name))
        store.add(parse(self.quads, RdfFormat.N_QUADS))
        return store


@dataclass(frozen=True, slots=True)
class Program:
    """What an instance runs: queries in the order of their registration, over streams in the order of their numbers.

    `bounded` are the streams that end: they are waited for, and when all have ended time goes on until `until`.
    """

    name: str
    queries: tuple[Query, ...]
    streams: tuple[StreamSettings, ...]
    bounded: frozenset[int] = frozenset()
    dataset: Dataset = field(default_factory=Dataset)
    start: int = 0
    until: int | None = None


class Arrival(NamedTuple):
    """A block of a stream, which is None where the stream ends, and the sequence of the stream that it belongs to."""

    stream: int
    place: str
    block: bytes | None


class Sent(NamedTuple):
    """Some results of a query: how many it had sent before, how many these are, and an Arrow stream of them."""

    query: str
    number: int
    count: int
    payload: bytes


@dataclass
class Report:
    """What an instance did in a micro-batch."""

    elements: int = 0
    triples: int = 0
    late: int = 0
    seconds: float = 0.0
    queries: dict[str, dict[str, int]] = field(default_factory=dict)


class Instance:
    """An engine with the queries of a program."""

    def __init__(self, program: Program, memory: Path | None = None, *, queries: int | None = None) -> None:
        """With `queries`, only so many of them are registered at first. `memory` is the file of the engine's arena."""
        self._program = program
        self._late: list[Rejected] = []
        self._engine = Engine(store=program.dataset.store(), start=program.start, memory=memory, reject=self._late.append)
        self._merge = Merge(len(program.streams), program.bounded)
        self._engine.hold(lambda: [self._merge.waiting().triples])
        self._finished = False
        self._sent: dict[str, int] = {}
        self._queries: list[StandingQuery] = []
        for each in program.streams:
            self._engine.declare(each)
        self.register(queries)

    @property
    def queries(self) -> int:
        """How many queries of the program are registered."""
        return len(self._queries)

    @property
    def finished(self) -> bool:
        """All streams have ended."""
        return self._finished

    def register(self, count: int | None = None) -> None:
        """Register the queries of the program that are not yet registered, or those up to a number."""
        for query in self._program.queries[len(self._queries) : count]:
            self._queries.append(self._engine.register(query, declare=False))
            self._sent.setdefault(self._queries[-1].name, 0)

    # ------------------------------------------------------------ a micro-batch

    def advance(self, arrivals: Iterable[Arrival]) -> Report:
        """Go on by what has arrived in a micro-batch."""
        began = perf_counter()
        late = self._engine.late
        report = Report()
        dictionary = self._engine.intake.terms.dictionary
        ended = []
        for stream, found in groupby(sorted(arrivals, key=lambda each: each.stream), key=lambda each: each.stream):
            parts: dict[str, list[Batch]] = {}
            for each in found:
                if each.block is None:
                    ended.append(stream)
                else:
                    parts.setdefault(each.place, []).append(unpack(each.block, dictionary))
            sequences = [Batch.concatenate(parts[place]) for place in sorted(parts)]
            batch = _interleaved(sequences)
            report.elements += len(batch)
            report.triples += len(batch.triples) // 3
            self._merge.add(stream, batch)
        for stream in ended:
            self._merge.end(stream)
        if len(due := self._merge.due()):
            self._engine.push_batch(due)
        self._finish()
        report.late = self._engine.late - late
        counts = np.bincount(due.streams, minlength=len(self._program.streams)).tolist()
        for query in self._queries:
            report.queries[query.name] = {"in": sum(counts[each] for each in query.running.streams if each < len(counts))}
        report.seconds = perf_counter() - began
        return report

    def _finish(self) -> None:
        """Once all streams have ended, nothing is held back any more."""
        bounded = self._program.bounded
        if self._finished or self._merge.awaited or len(bounded) < len(self._program.streams):
            return
        self._finished = True
        self._engine.finish()
        if self._program.until is not None:
            self._engine.heartbeat(self._program.until)
        elif not bounded:
            self._engine.heartbeat(self._program.start)

    def taken(self) -> Iterator[Sent]:
        """The results since the last time, query by query."""
        for query in self._queries:
            for results in terms_of(query):
                before = self._sent[query.name]
                self._sent[query.name] = before + results.num_rows
                yield Sent(query.name, before, results.num_rows, _written(results))

    def late(self) -> list[Rejected]:
        """What was late since the last time."""
        taken = list(self._late)
        self._late.clear()
        return taken

    @property
    def watermark(self) -> int | None:
        """The time that the queries have come to."""
        return self._engine.time

    @property
    def held(self) -> int:
        """Elements that wait for others."""
        return len(self._merge.waiting()) + self._engine.held

    @property
    def state_bytes(self) -> int:
        return 8 * self._engine.arena.held

    # ------------------------------------------------------------ state

    def keep(self) -> None:
        """Have all in the engine's memory, for whoever attaches it next."""
        self._put_aside()
        self._engine.keep()

    def attach(self, memory: Path) -> None:
        """Go on in the memory of an instance that was kept."""
        self._engine.attach(memory)
        self._take_up()

    def saved(self) -> bytes:
        """All it knows, to be restored from."""
        self._put_aside()
        data = self._engine.snapshot()
        packed: bytes = pyarrow.compress(data, codec="zstd", asbytes=True)
        return len(data).to_bytes(8, "little") + packed

    def restore(self, saved: bytes) -> None:
        """Be what was saved."""
        size = int.from_bytes(saved[:8], "little")
        self._engine.restore(pyarrow.decompress(saved[8:], decompressed_size=size, codec="zstd", asbytes=True))
        self._take_up()

    def repeat(self, log: Iterable[tuple[int, Arrival]]) -> None:
        """Go on by what has arrived before, in numbered micro-batches; what that sends has been sent."""
        for _, arrivals in groupby(log, key=lambda entry: entry[0]):
            self.advance([arrival for _, arrival in arrivals])
            for query in self._queries:
                self._sent[query.name] += len(query.take())
        self._late.clear()

    def _put_aside(self) -> None:
        note = {"merge": self._merge.state(), "finished": self._finished, "sent": self._sent}
        self._engine.aside = Aside(note, self._merge.waiting())

    def _take_up(self) -> None:
        aside, self._engine.aside = self._engine.aside, Aside()
        self._merge.restore(aside.note["merge"], aside.elements)
        self._finished = aside.note["finished"]
        self._sent = dict(aside.note["sent"])
        self._late.clear()


def _interleaved(sequences: Sequence[Batch]) -> Batch:
    """The sequences of one stream merged by time."""
    if len(sequences) == 1:
        return sequences[0]
    merge = Merge(len(sequences))
    for number, each in enumerate(sequences):
        merge.add(number, each)
    return merge.due()


def _written(results: pyarrow.RecordBatch) -> bytes:
    sink = pyarrow.BufferOutputStream()
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
    with pyarrow.ipc.new_stream(sink, results.schema, options=options) as writer:
        writer.write_batch(results)
    return bytes(sink.getvalue())
