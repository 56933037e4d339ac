"""An engine instance in a folder, driven as a live run does: texts of elements in, results out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow

from cqels.ingest import StreamSettings
from cqels.pipeline.instance.driven_instance import Outcome
from cqels.pipeline.instance.durable_instance import DurableInstance
from cqels.pipeline.instance.instance_commands import Arrival
from cqels.pipeline.instance.program import Dataset, Program
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_lifts import Lifting, ntriples
from cqels.pipeline.sink.result_batch import Sent
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.store.dataset import Store
from cqels.store.script import execute

EX = "http://ex.org/"
OBS = EX + "obs"
HOT = "PREFIX : <http://ex.org/> SELECT ?s ?t WHERE { STREAM :obs [RANGE 10s] { ?s :temp ?t } FILTER(?t > 30) }"
MEAN = (
    "PREFIX : <http://ex.org/> SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :obs [RANGE 5s] { ?s :temp ?t } } GROUP BY ?s"
)
EVERYTHING = PushedPatterns(frozenset({ANYTHING}))


def query(text: str, name: str, **options: Any) -> Query:
    return replace(prepare(text, **options), name=name)


def program(queries: Iterable[Query], streams: Sequence[str] = (OBS,), data: str = "", **options: Any) -> Program:
    store = Store()
    if data:
        execute(store, data)
    settings = [StreamSettings(each) for each in streams]
    return Program.of("live", list(queries), settings, dataset=Dataset.of(store), **options)


def reading(sensor: int, degrees: int, time: int) -> str:
    """A line that says what a sensor measured, at so many seconds."""
    return f'<{EX}s{sensor}> <{EX}temp> "{degrees}"^^<http://www.w3.org/2001/XMLSchema#integer> "{1000 * time}" .'


def block(lines: Sequence[str], source: int = 0, stream: str = OBS) -> Arrival:
    """A block of elements of a source."""
    rows = pyarrow.RecordBatch.from_pydict({"value": [b"\n".join(line.encode() for line in lines)]})
    (made,) = Lifting(stream, source, ntriples(), (EVERYTHING,)).blocks(iter([rows]))
    (row,) = made.to_pylist()
    return Arrival(source, row["place"], row["block"])


def readings(batch: int, count: int = 3) -> list[Arrival]:
    """What arrives in a batch: the same whenever it is asked for."""
    return [block([reading(at % 4, 25 + (7 * batch + 5 * at) % 12, 2 * batch + at // 2) for at in range(count)])]


def texts(instance: DurableInstance, outcome: Outcome | None) -> dict[str, list[str]]:
    """The results of a batch, by the names of queries."""
    found: dict[str, list[str]] = {}
    for each in outcome.chunks if outcome is not None else ():
        sent = Sent.read(instance.queries[each.query], each.number, [each.payload])
        found.setdefault(each.query, []).extend(f"{each.number + at} {one}" for at, one in enumerate(sent.results()))
    return found


def opened(folder: Path, *queries: Query, **options: Any) -> DurableInstance:
    """An instance that has recovered what the folder has."""
    made = DurableInstance(folder, program(queries, **options), fork=False)
    made.recover()
    return made
