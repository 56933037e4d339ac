"""How fast queries are over the data of a scenario, from the bytes of its files to columns of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from cqels.engine.engine import Engine
from cqels.engine.event_time.stream_merge import merged
from cqels.engine.file_replay import batches
from cqels.ingest import Rejected, StreamDeclaration, Tally, settings_of
from cqels.model.extras import optional
from cqels.model.time import parse_time
from cqels.plan.algebra import Query, sources_of
from cqels.reference.reference_replay import replay as judged
from cqels.scenarios.scenario import Data

if TYPE_CHECKING:
    import pyarrow

    from cqels.spark.driver.metrics import Totals

WARM = 0.2
"""The part of a run on Spark before its micro-batches have come to their size."""
Tell = Callable[[int], None]
"""Is told how many elements have been read."""
Take = Callable[[str, "pyarrow.RecordBatch"], None]
"""Is given the name of a query and some of its results, as columns of terms."""


class Measured(NamedTuple):
    """A run: what it read, what it sent, and the seconds from the first byte to the last result."""

    queries: tuple[str, ...]
    engine: str
    elements: int
    triples: int
    """0 where they were not counted."""
    results: int
    seconds: float
    rejected: int = 0
    rate: float = 0.0
    """Elements a second, of the part of the run that counts."""
    state: int = 0
    """The most bytes that the engine held, after a batch; 0 where they were not counted."""

    @property
    def triples_rate(self) -> float:
        """Triples a second."""
        return self.rate * self.triples / max(self.elements, 1)

    @property
    def delay(self) -> float:
        """Milliseconds for an element, on average."""
        return 1000 / self.rate if self.rate else 0.0


class Mark(NamedTuple):
    """A micro-batch has been delivered: when, what there was by then, and what the engines held, in bytes."""

    time: float
    elements: int
    rejected: int
    results: int
    state: int


def read_by(queries: Sequence[Query], data: Data) -> tuple[StreamDeclaration, ...]:
    """The streams that queries read; all of them if a query does not name its own."""
    named = {getattr(source.stream, "value", None) for query in queries for source in sources_of(query)}
    return tuple(each for each in data.declarations if None in named or each.iri in named)


def embedded(
    queries: Sequence[Query],
    data: Data,
    tell: Tell = lambda done: None,
    take: Take = lambda name, rows: None,
    *,
    clock: Callable[[], float] = process_time,
) -> Measured:
    """A run in this process, in processor time or by another clock. What `take` does with results is not counted."""
    pyarrow = optional("pyarrow", "arrow")
    pyarrow.array([""])  # the first array imports pandas, which is not what is measured
    declarations = read_by(queries, data)
    rejected: list[Rejected] = []
    elements = triples = count = state = 0
    away = 0.0
    with Engine(store=data.store(), reject=rejected.append) as engine:
        internals = engine.internals
        for each in settings_of(declarations).values():
            internals.declare(each)
        standing = [engine.register(query, declare=False) for query in queries]
        engine.prepare()

        def taken() -> None:
            nonlocal count, away
            for query in standing:
                if query.running.has_sent:
                    rows = query.terms()
                    count += rows.num_rows
                    left = clock()
                    take(query.name, rows)
                    away += clock() - left

        began = clock()
        numbers = {iri: number for number, iri in enumerate(engine.streams)}
        sources = [
            batches(each, numbers[each.iri], internals.intake, rejected.append, internals.hold) for each in declarations
        ]
        for batch in merged(sources, internals.hold):
            internals.push_batch(batch)
            elements += len(batch)
            triples += len(batch.triples) // 3
            state = max(state, internals.arena.held * 8)
            taken()
            tell(elements)
        engine.finish()
        if data.until is not None:
            engine.heartbeat(parse_time(data.until))
        taken()
        spent = clock() - began - away
    rate = elements / spent if spent else 0.0
    return Measured(_names(queries), "embedded", elements, triples, count, spent, len(rejected), rate, state)


class _Enough(Exception):
    """The time for a run is over."""


def reference(
    queries: Sequence[Query], data: Data, tell: Tell = lambda done: None, *, seconds: float | None = None
) -> Measured:
    """A run of the judge, which evaluates each query anew at each element, in processor time.

    With `seconds` it ends after the element during which they are over: windows may not have filled until then, so
    the rate is rather too high.
    """
    count = 0

    def watch(seen: Tally) -> None:
        tell(seen.elements)
        if seconds is not None and process_time() - began >= seconds:
            raise _Enough

    tally = Tally(watch=watch)
    store = data.store()
    until = None if data.until is None else parse_time(data.until)
    began = process_time()
    try:
        for _ in judged(queries, read_by(queries, data), store, until=until, tally=tally):
            count += 1
    except _Enough:
        pass
    spent = process_time() - began
    rate = tally.elements / spent if spent else 0.0
    return Measured(_names(queries), "reference", tally.elements, 0, count, spent, tally.rejected + tally.late, rate)


def on_spark(
    queries: Sequence[Query], data: Data, spark: Any, tell: Tell = lambda done: None, *, spread: bool = False
) -> Measured:
    """A run on Spark, by the clock on the wall; the rate is that after its micro-batches have come to their size."""
    began = perf_counter()
    marks = micro_batches(queries, data, spark, tell, spread=spread)
    spent = perf_counter() - began
    last = marks[-1]
    warm = next(mark for mark in marks if mark.elements >= WARM * last.elements)
    rate = last.elements / spent
    if last.elements > warm.elements:
        rate = (last.elements - warm.elements) / (last.time - warm.time)
    state = max(mark.state for mark in marks)
    return Measured(_names(queries), "spark", last.elements, 0, last.results, spent, last.rejected, rate, state)


def micro_batches(
    queries: Sequence[Query],
    data: Data,
    spark: Any,
    tell: Tell = lambda done: None,
    *,
    batch_bytes: int | None = None,
    spread: bool = False,
) -> list[Mark]:
    """The micro-batches of a run on Spark; the last mark is that of its end. Each query may be on all instances."""
    from cqels.spark.driver.app import App
    from cqels.spark.driver.metrics import Metrics

    app = App(spark, until=data.until, store=data.store(), batch_bytes=batch_bytes)
    for each in read_by(queries, data):
        app.files(each)
    for query in queries:
        app.add(query, spread=spread)
    marks: list[Mark] = []
    metrics = Metrics()

    def note(seen: Metrics) -> None:
        if not marks or seen.totals.elements > marks[-1].elements:  # Spark tells of a micro-batch once more, afterwards
            marks.append(_mark(perf_counter(), seen.totals))
            tell(seen.totals.elements)

    metrics.watchers.append(note)
    app.run(metrics=metrics).wait()
    return [*marks[:-1], _mark(marks[-1].time, metrics.totals)]


def _mark(time: float, totals: Totals) -> Mark:
    return Mark(time, totals.elements, totals.rejected + totals.late, totals.results, totals.state_bytes)


def _names(queries: Sequence[Query]) -> tuple[str, ...]:
    return tuple(query.name or "" for query in queries)
