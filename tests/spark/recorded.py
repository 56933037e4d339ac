"""Scenarios as the rows that a pipeline on Spark gets: many go through one run, each on an engine of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pyarrow.ipc import open_stream

from cqels.ingest import Element, Rejected, StreamSettings
from cqels.pipeline.instance.instance_commands import registration
from cqels.pipeline.instance.program import Dataset, Program
from cqels.pipeline.lift.block_writer import BlockWriter
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_schemas import COMMAND
from cqels.pipeline.sink.result_batch import Sent, schema_of
from cqels.plan.algebra import Query
from cqels.results import Result
from cqels.store.dataset import Store

from ..incremental import Incremental
from .going import Going
from .piped import Asked, quads_of, written

EVERYTHING = PushedPatterns(frozenset({ANYTHING}))
Row = dict[str, Any]


class Recorded(Incremental):
    """The embedded engine, which writes down what happens to it: elements, and commands for all else."""

    def __init__(
        self,
        store: Store,
        streams: Sequence[StreamSettings],
        *,
        start: int = 0,
        reject: Callable[[Rejected], None] = lambda rejected: None,
    ) -> None:
        super().__init__(store, streams, start=start, reject=reject)
        self.program = Program.of(f"recorded-{uuid4().hex}", [], streams, dataset=Dataset.of(store), start=start)
        self.sent: dict[str, list[Result]] = {}
        """What queries have sent, by name."""
        self._numbers = {each.iri: number for number, each in enumerate(streams)}
        self._queries: dict[str, list[Query]] = {}
        self._events: list[Element | str] = []

    def register(self, query: Query) -> Any:
        asked = Asked(query)
        standing = self.engine.register(query, declare=False, callback=asked.sent.append)
        named = replace(query, name=standing.name)
        asked.query = named
        sent = self.sent.setdefault(standing.name, [])

        def tell(result: Result) -> None:
            asked.sent.append(result)
            sent.append(result)

        standing.on_result(tell)
        self._queries.setdefault(standing.name, []).append(named)
        self._events.append(registration(named))
        return asked

    def push(self, element: Element) -> None:
        super().push(element)
        self._events.append(element)

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        super().heartbeat(time, stream)
        one = {} if stream is None else {"stream": self._numbers[stream]}
        self._events.append(json.dumps({"heartbeat": time, **one}))

    def update(self, change: Callable[[Store], object]) -> None:
        if text := getattr(getattr(change, "__self__", None), "text", ""):
            super().update(change)
            self._events.append(json.dumps({"update": text}))
            return
        before = set(quads_of(self.engine.internals.store))
        super().update(change)
        after = set(quads_of(self.engine.internals.store))
        self._events.append(json.dumps({"remove": written(before - after), "add": written(after - before)}))

    def drop(self, query: Any) -> None:
        name = query if isinstance(query, str) else query.name
        self.engine.drop(name)
        self._events.append(json.dumps({"drop": name}))

    def results(self, name: str, payload: bytes) -> Iterator[Result]:
        """What a query of this name sent; the last of those with its columns, since names may be given again."""
        columns = open_stream(payload).schema.names
        query = next(each for each in reversed(self._queries[name]) if schema_of(each).names == columns)
        return Sent.read(query, 0, [payload]).results()

    def snapshotted(self) -> Recorded:
        return self

    def finish(self) -> None:
        super().finish()
        self._events.append(json.dumps({"finish": True}))

    def batches(self, size: int) -> list[list[Row]]:
        """The rows of micro-batches with at most so many elements, each with commands behind them."""
        writers = {number: BlockWriter(number, (EVERYTHING,)) for number in self._numbers.values()}
        batches: list[list[Row]] = [[]]
        elements, going = 0, Going()
        for number, event in enumerate(self._events):
            if isinstance(event, str):
                batches[-1].append(_row(COMMAND, -1, number) | {"text": event})
                continue
            stream = self._numbers[event.stream]
            if elements == size or any(row["kind"] == COMMAND for row in batches[-1]):
                batches.append([])
                elements = 0
                going.begin()
            if not going.fits(stream, event.time):
                batches.append([])
                elements = 0
            elements += 1
            writer = writers[stream]
            batch = writer.intake.triples(stream, event.time, event.triples)
            batches[-1] += [_row("block", stream, number) | row for row in writer.blocks(batch, "", number, 0)]
        return batches


def _row(kind: str, stream: int, position: int) -> Row:
    return {
        "instance": 0,
        "stream": stream,
        "kind": kind,
        "place": "",
        "position": position,
        "number": 0,
        "block": None,
        "reason": None,
        "text": None,
    }
