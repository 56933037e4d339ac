"""The engine inside Spark's stateful operator: blocks in, results out, and all it knows in Spark's state store.

The state store is the truth: a *log* of the blocks that the engine was given, and a *snapshot* of the engine from
before them, renewed when the log has grown larger than it.  So an engine can be made again anywhere, exactly; and what
is written is at most about twice what comes in, whatever windows the queries have.  An engine that is alive in a
worker is used if the store's last writer was the one that left it there, which a token tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import pyarrow
from pyoxigraph import RdfFormat, parse
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from cqels.engine.batch import Batch
from cqels.engine.engine import Engine
from cqels.engine.replay import merged
from cqels.io import Rejected, Result, StreamSettings
from cqels.plan.algebra import Query
from cqels.spark.blocks import pack, unpack
from cqels.store.dataset import Store

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

CHUNK = 4 << 20
"""Bytes of a snapshot in one entry of the state store."""
LEAST_LOG = 1 << 20
"""Bytes of the log below which no snapshot is taken."""
RESULT, REJECTED, LATE = "result", "rejected", "late"
COLUMNS = (
    "kind string, query string, number long, time long, tick long, sign string, empty boolean, boolean boolean, "
    "values array<string>, triples array<string>, place string, reason string, text string"
)
"""Of what comes out: results, and what was rejected or late. Terms are N-Triples texts, times nanoseconds."""
_HEAD = "token string, sent long, logged long, saved long"

Head: TypeAlias = tuple[str, int, int, int]
"""The token of the last writer, the results sent so far, the bytes of the log, the bytes of the snapshot."""


@dataclass(frozen=True, slots=True)
class Program:
    """What an instance of the engine runs. `static` is the dataset as N-Quads."""

    name: str
    queries: tuple[Query, ...]
    streams: tuple[StreamSettings, ...]
    static: bytes
    start: int = 0


class Evaluation(StatefulProcessor):
    """One engine for each group of rows; Spark calls it with the blocks of a micro-batch."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", _HEAD)
        self._log = handle.getListState("log", "block binary")
        self._snapshot = handle.getListState("snapshot", "chunk binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        received = sorted(rows, key=lambda row: (row.stream, row.place, row.position, row.number))
        head: Head = self._head.get() or ("", 0, 0, 0)
        instance = self._instance(str(key), head[0])
        block, made = instance.advanced([bytes(row.block) for row in received if row.block is not None])
        sent = head[1]
        for row in received:
            if row.kind == REJECTED:
                yield _row(kind=REJECTED, place=row.place, reason=row.reason, text=row.text)
        for late in instance.late():
            yield _row(kind=LATE, place=late.place, reason=late.reason, text=late.text)
        for result in made:
            yield _result(result, sent)
            sent += 1
        self._keep(str(key), instance, block, (head[0], sent, *head[2:]))

    def close(self) -> None:
        pass

    # ------------------------------------------------------------ state

    def _instance(self, key: str, token: str) -> Instance:
        """The engine that the store describes: the one that is here, if nobody else has written since."""
        left, instance = _ALIVE.pop((self._program.name, key), ("", None))
        if instance is not None and left == token:
            return instance
        made = Instance(self._program)
        if token:
            made.restore(
                b"".join(bytes(chunk) for (chunk,) in self._snapshot.get()),
                (bytes(block) for (block,) in self._log.get()),
            )
        return made

    def _keep(self, key: str, instance: Instance, block: bytes, head: Head) -> None:
        _, sent, logged, saved = head
        logged += len(block)
        if logged > max(saved, LEAST_LOG):
            data = instance.saved()
            self._snapshot.put([(data[at : at + CHUNK],) for at in range(0, len(data), CHUNK)])
            self._log.clear()
            logged, saved = 0, len(data)
        elif block:
            self._log.appendValue((block,))
        token = uuid4().hex
        self._head.update((token, sent, logged, saved))
        _ALIVE[self._program.name, key] = token, instance


_ALIVE: dict[tuple[str, str], tuple[str, Instance]] = {}
"""The engines of this process, each with the token that it left in the store."""


class Instance:
    """An engine with the queries of a program."""

    def __init__(self, program: Program) -> None:
        store = Store()
        store.add(parse(program.static, RdfFormat.N_QUADS))
        self._late: list[Rejected] = []
        self._engine = Engine(store=store, start=program.start, reject=self._late.append)
        for each in program.streams:
            self._engine.declare(each)
        self._streams = len(program.streams)
        self._queries = [self._engine.register(query, declare=False) for query in program.queries]

    def advanced(self, blocks: Iterable[bytes]) -> tuple[bytes, list[Result]]:
        """Go on by the blocks of a micro-batch, those of each stream in its order: what to log, and the results."""
        arrived = Batch.concatenate([unpack(block, self._engine._core.dictionary) for block in blocks])
        streams = [arrived.take((arrived.streams == number).nonzero()[0]) for number in range(self._streams)]
        batch = Batch.concatenate(merged([iter([each]) for each in streams if len(each)]))
        logged = pack(batch, self._engine._core.dictionary) if len(batch) else b""
        return logged, self._pushed(batch)

    def late(self) -> list[Rejected]:
        """What was late since the last time."""
        taken = list(self._late)
        self._late.clear()
        return taken

    def saved(self) -> bytes:
        """All it knows, to be restored from with an empty log."""
        data = self._engine.snapshot()
        packed: bytes = pyarrow.compress(data, codec="zstd", asbytes=True)
        return len(data).to_bytes(8, "little") + packed

    def restore(self, saved: bytes, log: Iterable[bytes]) -> None:
        """Be what was saved, and then was given the blocks of the log; what that sends has been sent."""
        if saved:
            size = int.from_bytes(saved[:8], "little")
            self._engine.restore(pyarrow.decompress(saved[8:], decompressed_size=size, codec="zstd", asbytes=True))
        for block in log:
            self._pushed(unpack(block, self._engine._core.dictionary))
        self._late.clear()

    def _pushed(self, batch: Batch) -> list[Result]:
        if len(batch):
            self._engine.push_batch(batch)
        return [result for query in self._queries for result in query.take()]


# ---------------------------------------------------------------- rows


def _row(**values: Any) -> Row:
    return Row(**{name: values.get(name) for name in _NAMES})


_NAMES = tuple(column.split()[0] for column in COLUMNS.split(", "))


def _result(result: Result, number: int) -> Row:
    return _row(
        kind=RESULT,
        query=result.query,
        number=number,
        time=result.time,
        tick=result.tick,
        sign=result.sign,
        empty=result.empty,
        boolean=result.boolean,
        values=[None if term is None else str(term) for term in result.values],
        triples=[" ".join(map(str, triple)) for triple in result.triples],
    )
