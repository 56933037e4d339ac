"""How fast queries are over the data of a scenario, from the bytes of its files to columns of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from cqels.engine.core import sources_of
from cqels.engine.engine import Engine
from cqels.engine.merge import merged
from cqels.engine.replay import batches
from cqels.io import Rejected, StreamDeclaration, StreamSettings, Tally
from cqels.model.time import parse_time
from cqels.plan.algebra import Query
from cqels.reference.replay import replay as judged
from cqels.scenarios.scenario import Data

if TYPE_CHECKING:
    import pyarrow

WARM = 0.2
"""The part of a run on Spark before its micro-batches have come to their size."""
Tell = Callable[[int], None]
"""Is told how many elements have been read."""


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

    @property
    def triples_rate(self) -> float:
        """Triples a second."""
        return self.rate * self.triples / max(self.elements, 1)

    @property
    def delay(self) -> float:
        """Milliseconds for an element, on average."""
        return 1000 / self.rate if self.rate else 0.0


def read_by(queries: Sequence[Query], data: Data) -> tuple[StreamDeclaration, ...]:
    """The streams that queries read; all of them if a query does not name its own."""
    named = {getattr(source.stream, "value", None) for query in queries for source in sources_of(query)}
    return tuple(each for each in data.declarations if None in named or each.iri in named)


def embedded(
    queries: Sequence[Query], data: Data, tell: Tell = lambda done: None
) -> tuple[Measured, dict[str, list[pyarrow.RecordBatch]]]:
    """A run in this process, in processor time, and the results as columns of terms."""
    declarations = read_by(queries, data)
    rejected: list[Rejected] = []
    store = data.store()
    elements = triples = 0
    with Engine(store=store, reject=rejected.append) as engine:
        for each in declarations:
            engine.declare(StreamSettings(each.iri, each.lateness, each.idle))
        standing = [engine.register(query, declare=False) for query in queries]
        sent: dict[str, list[pyarrow.RecordBatch]] = {query.name: [] for query in standing}

        def take() -> None:
            for query in standing:
                if query.running.has_sent:
                    sent[query.name].append(query.terms())

        began = process_time()
        sources = [batches(each, number, engine.intake, rejected.append) for number, each in enumerate(declarations)]
        for batch in merged(sources, engine.hold):
            engine.push_batch(batch)
            elements += len(batch)
            triples += len(batch.triples) // 3
            take()
            tell(elements)
        engine.finish()
        if data.until is not None:
            engine.heartbeat(parse_time(data.until))
        take()
        spent = process_time() - began
    count = sum(each.num_rows for parts in sent.values() for each in parts)
    names = tuple(query.name or "" for query in queries)
    rate = elements / spent if spent else 0.0
    return Measured(names, "embedded", elements, triples, count, spent, len(rejected), rate), sent


def reference(queries: Sequence[Query], data: Data, tell: Tell = lambda done: None) -> Measured:
    """A run of the judge, which evaluates each query anew at each element, in processor time."""
    tally = Tally(watch=lambda seen: tell(seen.elements))
    store = data.store()
    until = None if data.until is None else parse_time(data.until)
    began = process_time()
    count = sum(1 for _ in judged(queries, read_by(queries, data), store, until=until, tally=tally))
    spent = process_time() - began
    names = tuple(query.name or "" for query in queries)
    return Measured(names, "reference", tally.elements, 0, count, spent, 0, tally.elements / spent if spent else 0.0)


def on_spark(queries: Sequence[Query], data: Data, spark: Any, tell: Tell = lambda done: None) -> Measured:
    """A run on Spark, by the clock on the wall; the rate is that after its micro-batches have come to their size."""
    from cqels.spark.app import App
    from cqels.spark.metrics import Metrics

    app = App(spark, until=data.until, store=data.store())
    for each in read_by(queries, data):
        app.files(each)
    for query in queries:
        app.add(query)
    marks: list[tuple[float, int]] = []
    metrics = Metrics()

    def note(seen: Metrics) -> None:
        if not marks or seen.totals.elements > marks[-1][1]:  # Spark tells of a micro-batch once more, afterwards
            marks.append((perf_counter(), seen.totals.elements))
            tell(seen.totals.elements)

    metrics.watchers.append(note)
    began = perf_counter()
    app.run(metrics=metrics).wait()
    spent = perf_counter() - began
    totals = metrics.totals
    warm = next(mark for mark in marks if mark[1] >= WARM * totals.elements)
    last = marks[-1]
    rate = (last[1] - warm[1]) / (last[0] - warm[0]) if last > warm else totals.elements / spent
    names = tuple(query.name or "" for query in queries)
    return Measured(names, "spark", totals.elements, 0, totals.results, spent, totals.rejected, rate)
