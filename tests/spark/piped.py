"""The stages of a pipeline on Spark without Spark, behind the face of the reference: the same scenarios run on both."""

from __future__ import annotations

import copy
import json
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

from pyoxigraph import DefaultGraph, Quad, RdfFormat, serialize

from cqels.engine.budgets import Budget
from cqels.ingest import Element, Rejected, StreamSettings
from cqels.model.errors import CqelsError, QueryError
from cqels.pipeline.instance.program import Dataset, Program, ShippedBytes
from cqels.pipeline.lift.block_writer import BlockWriter
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns, pushed_patterns
from cqels.pipeline.lift.row_schemas import COMMAND, LATE, REPORT, RESULTS
from cqels.pipeline.sink.result_batch import Sent
from cqels.plan.algebra import Query
from cqels.results import Result
from cqels.spark.driver.migration import origin_of
from cqels.spark.operator import stateful_processor
from cqels.spark.operator.state_layouts import TWO_VARIABLES
from cqels.spark.operator.stateful_processor import Evaluation
from cqels.store.dataset import Store

from .going import Going

Kept = dict[str, Any]
MOST_ENGINES = 2
"""Engines from which on no query moves: each costs as much as the first."""


class Handle:
    """State as Spark keeps it: what was written is there in the next batch, if this one is committed."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def getValueState(self, name: str, schema: str) -> Any:  # noqa: N802
        kept = self._kept
        return SimpleNamespace(get=lambda: kept.get(name), update=lambda value: kept.__setitem__(name, value))

    def getListState(self, name: str, schema: str) -> Any:  # noqa: N802
        kept = self._kept
        return SimpleNamespace(
            get=lambda: iter(kept.get(name, [])),
            put=lambda values: kept.__setitem__(name, list(values)),
            appendList=lambda values: kept.setdefault(name, []).extend(values),
            clear=lambda: kept.pop(name, None),
        )


@dataclass
class Asked:
    """A query in the pipeline, and what it has sent."""

    query: Query
    sent: list[Result] = field(default_factory=list)
    next: int | None = None
    """The number of its next result, once it has sent one."""

    @property
    def name(self) -> str:
        return self.query.name or ""

    def take(self) -> list[Result]:
        taken, self.sent = self.sent, []
        return taken


class Piped:
    """Gives elements to the stateful operator in micro-batches, as Spark does.

    A micro-batch has at most `size` elements; `lose` is asked before each one whether the process of the engine is
    lost (`process`), or its memory too (`memory`), or whether the batch is done in vain first (`batch`), or whether
    some queries move to another engine (`move`).  `budget` is asked for the budgets of queries, and `layout` is that of
    the state.
    """

    def __init__(
        self,
        store: Store,
        streams: Sequence[StreamSettings],
        *,
        start: int = 0,
        reject: Callable[[Rejected], None] = lambda rejected: None,
        size: int = 1,
        lose: Callable[[], str] = lambda: "",
        budget: Callable[[str], Budget | None] = lambda name: None,
        layout: int = TWO_VARIABLES,
    ) -> None:
        self._folder = Path(mkdtemp(prefix="cqels-test-"))
        weakref.finalize(self, _gone, self._folder)
        self._store, self._dataset = store, Dataset.of(store)
        self._streams, self._start, self._reject = tuple(streams), start, reject
        self._numbers = {each.iri: number for number, each in enumerate(streams)}
        self._size, self._lose, self._budget, self._layout = size, lose, budget, layout
        self._kept: dict[int, Kept] = {7: {}}
        """The state of each engine, by its key."""
        self._where: dict[str, int] = {}
        """The engines of the queries."""
        self._origins: dict[int, bytes] = {}
        self._waiting: list[Element] = []
        self._going = Going()
        self._queries: dict[str, Asked] = {}
        self._count = 0
        self.rebuilt = 0
        """How often the engine was made again from what Spark keeps."""
        self._stopped: dict[int, dict[str, str]] = {}

    # ------------------------------------------------------------ the face

    def register(self, query: Query) -> Asked:
        self._flush()
        self._count += 1
        asked = Asked(query if query.name else replace(query, name=f"query-{self._count}"))
        if asked.name in self._queries:
            hint = "drop it first, or register the query under another name"
            raise QueryError(f"there is a query {asked.name} already", hint=hint)
        self._store.check_graphs(asked.query)  # as the application does
        self._queries[asked.name] = asked
        try:
            self._batch([])
        except CqelsError:
            del self._queries[asked.name]
            raise
        return asked

    def push(self, element: Element) -> None:
        if not self._waiting:
            self._going.begin()
        if not self._going.fits(self._numbers[element.stream], element.time):
            self._flush()
        self._waiting.append(element)
        if len(self._waiting) >= self._size:
            self._flush()

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        self._command({"heartbeat": time} if stream is None else {"heartbeat": time, "stream": self._numbers[stream]})

    def update(self, change: Callable[[Store], object]) -> None:
        text = getattr(getattr(change, "__self__", None), "text", "")
        if text:
            self._command({"update": text})
            return
        before = set(quads_of(self._store))
        change(self._store)
        after = set(quads_of(self._store))
        written = {"remove": before - after, "add": after - before}
        self._command(
            {key: (serialize(quads, format=RdfFormat.N_QUADS) or b"").decode() for key, quads in written.items()}
        )

    def drop(self, query: Asked | str) -> None:
        name = query if isinstance(query, str) else query.name
        if isinstance(query, Asked) and self._queries.get(name) is not query:
            raise CqelsError(f"query {name} has been dropped already")
        self._command({"drop": name}, without=name)

    def query(self, name: str) -> Asked:
        return self._queries[name]

    @property
    def stopped(self) -> dict[str, str]:
        """The queries that took more than their budgets, and why, whichever engine has them."""
        return {name: reason for stopped in self._stopped.values() for name, reason in stopped.items()}

    def snapshotted(self) -> Piped:
        """The same, after all processes have been lost."""
        self._flush()
        self._forget(memory=True)
        return self

    def finish(self) -> None:
        self._command({"finish": True})

    # ------------------------------------------------------------ Spark's part

    def _command(self, command: dict[str, Any], without: str | None = None) -> None:
        self._flush()
        row = SimpleNamespace(
            kind=COMMAND, stream=-1, place="", position=0, number=0, block=None, reason=None, text=json.dumps(command)
        )
        self._batch([row], without)

    def _flush(self) -> None:
        if not self._waiting:
            return
        elements, self._waiting = self._waiting, []
        rows: list[Any] = []
        for iri, number in self._numbers.items():
            writer = BlockWriter(number, (self._pushed_patterns(iri),))
            for place, each in enumerate(each for each in elements if each.stream == iri):
                batch = writer.intake.triples(number, each.time, each.triples)
                rows += [SimpleNamespace(**_whole(row)) for row in writer.blocks(batch, "", place, 0)]
        self._batch(rows[::-1])

    def _pushed_patterns(self, stream: str) -> PushedPatterns:
        """What travels: all of it where elements are held back, since a query may come before they are let in."""
        if any(each.lateness or each.idle for each in self._streams):
            return PushedPatterns(frozenset({ANYTHING}))
        return pushed_patterns([each.query for each in self._queries.values()], stream)

    def _batch(self, rows: list[Any], without: str | None = None) -> None:
        lost = self._lose()
        if lost == "move":
            self._move()
        for name in self._queries:
            self._where.setdefault(name, max(self._kept))
        if lost == "batch":
            for key, kept in self._kept.items():
                self._attempt(key, copy.deepcopy(kept), rows, without)
        elif lost in ("process", "memory"):
            self._forget(memory=lost == "memory")
        after = copy.deepcopy(self._kept)
        made = [row for key, kept in after.items() for row in self._attempt(key, kept, rows, without)]
        self._kept = after
        for row in made:
            if row.kind == LATE and row.instance == min(self._kept):
                self._reject(Rejected("", row.place, row.reason, row.text))
            elif row.kind == REPORT:
                report = json.loads(row.text)
                self.rebuilt += report["rebuilt"]
                self._stopped[row.instance] = report["stopped"]
            elif row.kind == RESULTS:
                asked = self._queries[row.query]
                assert asked.next in (None, row.number)
                asked.next = row.number + row["count"]
                asked.sent += Sent.read(asked.query, row.number, [row.payload]).results()
        if without is not None:
            del self._queries[without], self._where[without]

    def _attempt(self, key: int, kept: Kept, rows: list[Any], without: str | None) -> list[Any]:
        """One task of Spark."""
        if without is not None and self._where.get(without, key) != key:
            rows = [row for row in rows if row.kind != COMMAND]
        evaluation = Evaluation({key: self._program(key)}, str(self._folder), layout=self._layout)
        evaluation.init(Handle(kept))  # type: ignore[arg-type]
        made = list(evaluation.handleInputRows((key,), iter(rows), None))  # type: ignore[arg-type]
        evaluation.close()
        return made

    def _program(self, key: int) -> Program:
        origin = self._origins.get(key)
        return Program.of(
            "test",
            [each.query for name, each in self._queries.items() if self._where.get(name) == key],
            self._streams,
            dataset=self._dataset,
            start=self._start,
            origin=None if origin is None else ShippedBytes(origin),
            budgets={name: budget for name in self._queries if (budget := self._budget(name)) is not None},
        )

    def _move(self) -> None:
        """Every other query goes on in an engine that did not exist before; all, where some make streams."""
        source = max(self._kept)
        if len(self._kept) > MOST_ENGINES:
            return
        mine = [each.query for name, each in self._queries.items() if self._where.get(name) == source]
        makes = any(query.form == "construct" and ":" in (query.name or "") for query in mine)
        moved = [query.name or "" for query in (mine if makes else mine[::2])]
        kept = self._kept[source]

        def read(variable: str) -> list[Any]:
            value = kept.get(variable, [])
            return [value] if isinstance(value, tuple) else value

        origin = origin_of(self._program(source), read, moved, self._origins.get(source), self._layout)
        self._kept[source + 1] = {}
        if origin is not None:
            self._origins[source + 1] = origin.written()
        self._where |= dict.fromkeys(moved, source + 1)

    def _forget(self, *, memory: bool) -> None:
        _forget_processes(self._folder)
        if memory:
            for file in self._folder.glob("*/*"):
                file.unlink()


def _gone(folder: Path) -> None:
    _forget_processes(folder)
    shutil.rmtree(folder)


def _forget_processes(folder: Path) -> None:
    for key in [key for key in stateful_processor._LIVE_ENGINES if key.folder == folder]:
        del stateful_processor._LIVE_ENGINES[key]


def quads_of(store: Store) -> Iterator[Quad]:
    for graph in (None, *store.named_graphs()):
        for triple in store.triples(graph):
            yield Quad(*triple, DefaultGraph() if graph is None else graph)


def written(quads: set[Quad]) -> str:
    return (serialize(quads, format=RdfFormat.N_QUADS) or b"").decode()


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    return {"block": None, "reason": None, "text": None, **row}
