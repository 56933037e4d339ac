"""An application: streams, a dataset and a query, as one streaming DataFrame of results."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyoxigraph import DefaultGraph, NamedNode, Quad, RdfFormat, serialize

from cqels.engine.core import sources_of
from cqels.io import StreamSettings
from cqels.model.errors import CqelsError, QueryError, Source
from cqels.model.time import parse_duration, parse_time
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare, read_query
from cqels.spark.lift import Lift, Lifting
from cqels.spark.wanted import wanted
from cqels.store.dataset import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class App:
    """Continuous queries over streaming DataFrames.

    app = App(spark)
    app.stream("http://ex.org/obs", rows, lift=cqels.lift.ntriples())
    app.load("rooms.ttl")
    results = app.register("hot.rq")
    results.writeStream…
    """

    def __init__(self, spark: SparkSession, *, start: int | str = 0) -> None:
        """Boundaries of sliding windows are counted from `start`."""
        self._spark = spark
        self._start = parse_time(start)
        self._store = Store()
        self._streams: dict[str, tuple[StreamSettings, DataFrame, Lift]] = {}

    def stream(self, iri: str, rows: DataFrame, *, lift: Lift, lateness: int | str = 0, idle: int | str = 0) -> None:
        """Declare a stream: the rows of a source (`cqels.spark.lift` says which columns), and how they are lifted."""
        if iri in self._streams:
            raise CqelsError(f"there is a stream <{iri}> already")
        try:
            settings = StreamSettings(NamedNode(iri).value, _duration(lateness), _duration(idle))
        except ValueError as error:
            raise CqelsError(f"stream <{iri}> cannot be declared: {error}") from None
        self._streams[iri] = settings, rows, lift

    def load(self, path: str | os.PathLike[str], graph: str | None = None) -> int:
        """Add the triples of a file to the dataset: how many the file has. Queries registered later see them."""
        return self._store.load(Path(path), None if graph is None else NamedNode(graph))

    def register(
        self,
        query: str | os.PathLike[str] | Query,
        *,
        name: str | None = None,
        emit: str | None = None,
        policy: str | None = None,
        dialect: str | None = None,
    ) -> DataFrame:
        """The results of a query, and what was rejected or late, as rows: `cqels.spark.evaluate.COLUMNS`.

        For a SELECT the struct `bindings` has its variables.
        """
        from pyspark.sql import functions

        from cqels.spark.evaluate import COLUMNS, Evaluation, Program

        planned = self._planned(query, name=name, emit=emit, policy=policy, dialect=dialect)
        program = Program(
            uuid4().hex,
            (planned,),
            tuple(settings for settings, _, _ in self._streams.values()),
            _written(self._store),
            self._start,
        )
        rows = reduce(lambda one, other: one.unionByName(other), self._blocks((planned,)))
        made = rows.groupBy("instance").transformWithState(Evaluation(program), COLUMNS, "append", "none")
        if not planned.variables:
            return made
        values = [functions.col("values")[number].alias(each) for number, each in enumerate(planned.variables)]
        return made.withColumn("bindings", functions.struct(*values))

    def _blocks(self, queries: tuple[Query, ...]) -> list[DataFrame]:
        return [
            Lifting(iri, number, lift, (wanted(queries, iri),)).apply(rows)
            for number, (iri, (_, rows, lift)) in enumerate(self._streams.items())
        ]

    def _planned(self, query: str | os.PathLike[str] | Query, **options: str | None) -> Query:
        if not self._streams:
            raise CqelsError("the application has no stream", hint="app.stream(iri, rows, lift=…)")
        if isinstance(query, Query):
            planned, source = query, None
        else:
            text, place = os.fspath(query), "<query>"
            if not isinstance(query, str) or (text.endswith(".rq") and "\n" not in text and "{" not in text):
                text, place = read_query(Path(text)), text
            planned, source = prepare(text, source=place, **options), Source(text, place)
        for each in sources_of(planned):
            if isinstance(each.stream, NamedNode) and each.stream.value not in self._streams:
                known = ", ".join(f"<{iri}>" for iri in self._streams)
                error = QueryError(
                    f"stream {each.stream} is not declared", span=each.span, hint=f"the streams are {known}"
                )
                if source is not None:
                    error.locate(source)
                raise error
        return planned if planned.name else replace(planned, name="query-1")


def _written(store: Store) -> bytes:
    quads = [
        Quad(*triple, DefaultGraph() if graph is None else graph)
        for graph in (None, *store.named_graphs())
        for triple in store.triples(graph)
    ]
    return serialize(quads, format=RdfFormat.N_QUADS) or b""


def _duration(value: int | str) -> int:
    return value if isinstance(value, int) else parse_duration(value)
