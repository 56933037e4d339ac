"""Spark's pipeline of an application: sources, lifting, the shuffle to engine instances, and what these run."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from cqels.options import AppOptions
from cqels.plan.algebra import Query, Values
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.declared_sources import DeclaredSources
from cqels.spark.driver.query_set import QuerySet
from cqels.spark.lift.predicate_pushdown import ANYTHING, PushedPatterns, pushed_patterns
from cqels.spark.lift.row_lifts import Lifting
from cqels.spark.lift.row_schemas import SENT_COLUMNS
from cqels.spark.operator.program import Dataset, Program, ShippedBytes
from cqels.spark.source.file_catalog import check_catalog_exists
from cqels.store.service_answers import write_answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGEST_CARRIED = 1 << 20
"""Bytes that travel with each task; more are a file that each machine fetches once."""


@dataclass(frozen=True)
class PipelineBuilder:
    """Makes the DataFrames of an application."""

    session: Callable[[], SparkSession]
    options: AppOptions
    sources: DeclaredSources
    queries: QuerySet
    answers: Callable[[], dict[str, Values]]
    """What engines begin with of the answers of endpoints."""

    def of_manifest(self, name: str, manifest: Manifest, dataset: Dataset, checkpoint: Checkpoint) -> DataFrame:
        """The results of all engine instances of a manifest."""
        origins = {
            int(number): self.carried(ShippedBytes((checkpoint.folder / file).read_bytes()))
            for number, file in manifest.origins.items()
        }
        folder = checkpoint.folder / "files"
        if checkpoint.is_planned and any(each.files is not None for each in self.sources.sources):
            check_catalog_exists(folder)
        updates = Updates(checkpoint.updates) if manifest.updates else None
        return self.results(
            name, manifest.placed, manifest.keys, dataset, folder, origins, manifest.again, manifest.queries, updates
        )

    def results(
        self,
        name: str,
        where: Mapping[str, int],
        groups: Sequence[int],
        dataset: Dataset,
        folder: Path | None,
        origins: Mapping[int, ShippedBytes] | None = None,
        again: Mapping[str, int] | None = None,
        prints: Mapping[str, str] | None = None,
        updates: Updates | None = None,
    ) -> DataFrame:
        """The results of queries on the engine instances where they are placed."""
        from pyspark.sql import functions

        from cqels.spark.operator.stateful_processor import Evaluation

        there: list[list[Query]] = [[] for _ in groups]
        queries = self.queries.by_name | self.queries.running
        for each, at in where.items():
            there[at].append(queries[each])
        wants = {iri: tuple(self._wanted(queries, iri) for queries in there) for iri in self.sources.streams}
        arriving = self._rows(wants, folder)
        if updates is not None:
            arriving.append(updates.rows(self.session(), sorted({*where.values()})))
        rows = reduce(lambda one, other: one.unionByName(other), arriving)
        programs = {
            key: self.program(name, queries, dataset, again or {}, (origins or {}).get(number), prints)
            for number, (key, queries) in enumerate(zip(groups, there, strict=True))
        }
        key = functions.array(*(functions.lit(key) for key in groups))[functions.col("instance")]
        return (
            rows.withColumn("key", key)
            .groupBy("key")
            .transformWithState(Evaluation(programs), SENT_COLUMNS, "append", "none")
        )

    def _wanted(self, queries: Sequence[Query], stream: str) -> PushedPatterns | None:
        """The triples of a stream that an instance needs; None if it has no queries any more."""
        if queries and self.options.changing and self.sources.holds_back:
            return PushedPatterns(frozenset({ANYTHING}))
        return pushed_patterns(queries, stream) if queries else None

    def program(
        self,
        name: str,
        queries: Sequence[Query],
        dataset: Dataset,
        again: Mapping[str, int],
        origin: ShippedBytes | None = None,
        prints: Mapping[str, str] | None = None,
    ) -> Program:
        """What an engine instance runs."""
        budgets = self.queries.budgets
        made = Program.of(
            name,
            queries,
            self.sources.streams.values(),
            sources=self.sources.streams_of_sources,
            again=again,
            prints=prints,
            budgets={query.name: budgets[query.name] for query in queries if query.name in budgets},
            parts=frozenset(query.name or "" for query in queries if query.name not in self.queries.by_name),
            bounded=self.sources.bounded,
            firsts=self.sources.firsts,
            dataset=dataset,
            start=self.options.start,
            until=self.options.until,
            origin=origin,
            services=self.carried(ShippedBytes(write_answers(answers))) if (answers := self.answers()) else None,
        )
        return replace(made, queries=self.carried(made.queries))

    def _rows(self, wants: Mapping[str, tuple[PushedPatterns | None, ...]], folder: Path | None) -> list[DataFrame]:
        rows = []
        files = []
        strict = self.options.strict
        for number, each in enumerate(self.sources.sources):
            wanted = wants[each.iri]
            if each.files is not None:
                files.append((number, each.files, wanted))
            elif each.rows is not None and each.lift is not None:
                rows.append(Lifting(each.iri, number, each.lift, wanted, strict, each.future).apply(each.rows))
        if files:
            from cqels.spark.source.file_source import file_rows
            from cqels.spark.source.file_source_settings import BATCH_BYTES, prepared

            spark = self.session()
            settings = prepared(
                tuple(files),
                folder,
                batch_bytes=self.options.batch_bytes or BATCH_BYTES,
                tasks=spark.sparkContext.defaultParallelism,
                follow=self.options.follow,
                speed=self.options.speed,
                strict=strict,
                changed={number: each.changed for number, each in enumerate(self.sources.sources)},
            )
            self.sources.firsts = settings.firsts()
            rows.append(file_rows(spark, settings))
        return rows

    def carried(self, carried: ShippedBytes) -> ShippedBytes:
        """Bytes on their way: many travel as a file."""
        if len(carried.content) <= LARGEST_CARRIED:
            return carried
        folder = Path(mkdtemp(prefix="cqels-"))
        file = folder / folder.name
        file.write_bytes(carried.content)
        self.session().sparkContext.addFile(str(file))  # which is fetched as long as the session lives
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return ShippedBytes(file=file.name)
