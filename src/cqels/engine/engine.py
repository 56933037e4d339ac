"""The incremental engine: elements in, results out; the work between is done by kernels over one arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from pyoxigraph import NamedNode

from cqels.engine.answers import Answers, changes_of
from cqels.flow.calls import Calls
from cqels.flow.compile import Compiler, Pipeline, Table, add_static_row
from cqels.flow.errors import NotIncremental
from cqels.flow.ordering import orders_matter
from cqels.io import Element, Result
from cqels.kernels import machine
from cqels.kernels.lore import tell
from cqels.kernels.memory import Arena
from cqels.kernels.rows import COLUMNS, COUNT, DATA, DONE, FULL, WIDTH, clear
from cqels.kernels.terms import ArenaDictionary
from cqels.lang.expressions import Aggregate, calls
from cqels.model.dictionary import decode, encode
from cqels.model.terms import Term
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query, expressions_of, walk_plan
from cqels.plan.rules import rewrite
from cqels.plan.scope import variables
from cqels.store.dataset import Store
from cqels.store.dependencies import ANY, graphs_of

_TIMES = frozenset({"GETDURATION", "GETSTARTTIME", "GETENDTIME"})
_ORDERED = frozenset({"SAMPLE", "GROUP_CONCAT"})
"""Aggregates whose value depends on which solution is newer."""


@dataclass
class Running:
    """A query that runs, and what it has sent and nobody has taken."""

    query: Query
    name: str
    pipeline: Pipeline
    answers: Answers
    sent: list[Result] = field(default_factory=list)

    def take(self) -> list[Result]:
        taken, self.sent = self.sent, []
        return taken


class Engine:
    """Runs queries incrementally. Elements come in order of time."""

    def __init__(self, store: Store, streams: Iterable[str] = (), *, start: int = 0, size: int | None = None) -> None:
        self.store = store
        self.arena = Arena(size=size)
        self.dictionary = ArenaDictionary(self.arena)
        self.calls = Calls(self.dictionary)
        self._steps = machine.Steps()
        self._streams = {iri: number for number, iri in enumerate(streams)}
        self._start = start
        self._running: list[Running] = []
        self._number = 0
        self._last: int | None = None

    def register(self, query: Query) -> Running:
        """Add a query. It sees the elements that come from now on."""
        name = query.name or f"query-{len(self._running) + 1}"
        plan = rewrite(query).plan
        if query.policy == "cqels-1":
            raise NotIncremental("the policy cqels-1 has no incremental operator yet")
        whole = query.emit == "rstream" or (query.emit == "snapshot" and query.form != "ask")
        fresh = orders_matter(plan, whole=whole) or any(
            calls(expression) & _TIMES or (isinstance(expression, Aggregate) and expression.name in _ORDERED)
            for node in walk_plan(plan)
            for expression in expressions_of(node)
        )
        closing = machine.CLOSING if query.policy == "window-close" else 0
        always = machine.ALWAYS_SENT if query.emit == "rstream" else 0
        compiler = Compiler(self.arena, self.calls, self._streams, fresh, bool(always), name)
        pipeline = compiler.pipeline(query, plan, whole=whole, flags=closing | always)
        for kind, _ in compiler.operators:
            self._steps.need(kind)
        if whole:
            self._steps.need(machine.LISTING)
        if self._last is not None:
            self.arena.words[pipeline.place + machine.LAST] = self._last
        running = Running(query, name, pipeline, Answers(query, name, pipeline.columns))
        for table in pipeline.tables:
            self._refresh(running, table)
        self._running.append(running)
        return running

    # ------------------------------------------------------------ input

    def push(self, elements: Sequence[Element]) -> None:
        """Elements in order of time."""
        rows: list[list[int]] = []
        triples: list[list[int]] = []
        for element in elements:
            first = len(triples)
            triples += [[self._encode(term) for term in triple] for triple in element.triples]
            rows.append([element.time, self._number, self._streams[element.stream], first, len(element.triples)])
            self._number += 1
        self._work(rows, triples)

    def heartbeat(self, time: int) -> None:
        self._work([[time, self._number, machine.HEARTBEAT, 0, 0]], [])

    def update(self, change: Callable[[Store], object]) -> None:
        """Change the dataset between two ticks; the queries that read what changed have a tick."""
        changed: set[NamedNode | None] = set()
        end = self.store.subscribe(changed.update)
        try:
            change(self.store)
        finally:
            end()
        for running in self._running:
            read = graphs_of(
                running.query.plan,
                default_graphs=running.query.default_graphs,
                named_graphs=running.query.named_graphs,
            )
            if not (read & changed or (ANY in read and changed - {None})):
                continue
            for table in running.pipeline.tables:
                self._refresh(running, table)
            self.arena.words[running.pipeline.place + machine.PENDING] = 1
            block = self._block([[self._last or 0, self._number, machine.UPDATE, 0, 0]], [])
            self._run(running, block)

    def _work(self, rows: list[list[int]], triples: list[list[int]]) -> None:
        if not rows:
            return
        block = self._block(rows, triples)
        for running in self._running:
            self._run(running, block)
        self._last = rows[-1][0]

    def _block(self, rows: list[list[int]], triples: list[list[int]]) -> int:
        block = self.arena.take(machine.BLOCK_WORDS)
        places = [self._written(rows), self._written(triples)]
        self.arena.words[block : block + machine.BLOCK_WORDS] = [len(rows), *places, self._start]
        return block

    def _written(self, rows: list[list[int]]) -> int:
        words = np.array(rows, dtype=np.int64).reshape(-1)
        place = self.arena.take(max(len(words), 1))
        self.arena.words[place : place + len(words)] = words
        return place

    def _run(self, running: Running, block: int) -> None:
        words, place = self.arena.words, running.pipeline.place
        words[place + machine.NEXT] = 0
        while (status := machine.run(self.arena.base, place, block, self._steps.address)) != DONE:
            if status == FULL:
                raise MemoryError("the arena is full")
            number = int(words[place + machine.AT])
            if number in running.pipeline.groups:
                from cqels.kernels.folds import serve

                serve(self.dictionary, running.pipeline.groups[number])
            elif number in running.pipeline.orders:
                tell(self.dictionary, running.pipeline.orders[number])
            else:
                self.calls.answer(running.pipeline.programs[number])
        for change in changes_of(self._drained(running.pipeline)):
            running.sent += running.answers.results(change)

    def _drained(self, pipeline: Pipeline) -> Iterator[tuple[int, int, int, tuple[Term | None, ...]]]:
        words = self.arena.words
        queue = int(words[pipeline.place + machine.RESULTS])
        width = int(words[queue + WIDTH])
        data = int(words[queue + DATA])
        found = words[data : data + int(words[queue + COUNT]) * width].reshape(-1, width).tolist()
        clear(self.arena.base, queue)
        # results repeat most of their terms
        terms = {word: self._decode(word) for word in {word for row in found for word in row[COLUMNS:]}}
        for weight, time, tick, _, *columns in found:
            yield weight, time, tick, tuple([terms[word] for word in columns])

    def _encode(self, term: Term | None) -> int:
        return 0 if term is None else int(encode(term, self.dictionary))

    def _decode(self, word: int) -> Term | None:
        return decode(word, self.dictionary) if word else None

    # ------------------------------------------------------------ static data

    def _refresh(self, running: Running, table: Table) -> None:
        """Put the difference between a table and the dataset as it is now into the table's queue."""
        rows = list(self._static_rows(running.query, table.plan))
        new, old = Counter(rows), Counter(table.rows)
        for row, weight in ((new - old) + (old - new)).items():
            sign = 1 if new[row] > old[row] else -1
            add_static_row(self.arena, self._encode, table.stage, row, sign * weight)
        table.rows = rows

    def _static_rows(self, query: Query, plan: Plan) -> Iterator[tuple[Term | None, ...]]:
        match plan:
            case algebra.Unit():
                yield ()
            case algebra.Values(rows=rows):
                yield from rows
            case algebra.Static(input=inner):
                names = variables(inner)
                yield from self.store.select(
                    inner, names, default_graphs=query.default_graphs, named_graphs=query.named_graphs
                )
