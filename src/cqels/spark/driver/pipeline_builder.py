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

from cqels.ingest import StreamDeclaration
from cqels.ingest.source_address import shown_place
from cqels.model.errors import CqelsError
from cqels.options import AppOptions
from cqels.pipeline.instance.program import Dataset, Program, ShippedBytes
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns, pushed_patterns
from cqels.pipeline.lift.row_lifts import Lifting
from cqels.pipeline.lift.row_schemas import SENT_COLUMNS
from cqels.pipeline.source.file_catalog import check_catalog_exists
from cqels.pipeline.source.source_registry import is_received
from cqels.plan.algebra import Query, Values
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.declared_sources import DeclaredSources
from cqels.spark.driver.pushed_inboxes import pushed_folder
from cqels.spark.driver.query_set import QuerySet
from cqels.spark.driver.receivers import inbox_folder
from cqels.spark.lift.dataframe_lift import DataFrameLift
from cqels.spark.operator.state_layouts import FIVE_VARIABLES
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
        folder = self._catalogs(checkpoint)
        return self.results(
            name,
            manifest.placed,
            manifest.keys,
            dataset,
            folder,
            origins,
            manifest.again,
            manifest.queries,
            Updates(checkpoint.updates) if manifest.updates else None,
            checkpoint.clock if manifest.clock else None,
            layout=manifest.layout,
        )

    def in_driver(
        self, name: str, manifest: Manifest, dataset: Dataset, checkpoint: Checkpoint
    ) -> tuple[DataFrame, Program, dict[int, Lifting]]:
        """What arrives at the one engine instance of a manifest of low latency, what that runs, and how sources are
        lifted whose rows are left to the driver."""
        liftings: dict[int, Lifting] = {}
        there = self._placed(manifest.placed, 1)
        updates = Updates(checkpoint.updates) if manifest.updates else None
        clock = checkpoint.clock if manifest.clock else None
        instances = self._instances(manifest.placed, 1)
        rows = self._arriving(there, self._catalogs(checkpoint), updates, clock, instances, liftings)
        return rows, self.program(name, there[0], dataset, manifest.again, prints=manifest.queries), liftings

    def _catalogs(self, checkpoint: Checkpoint) -> Path:
        """The folder of the lists of files, which are there if Spark has planned something with them."""
        folder = checkpoint.folder / "files"
        if checkpoint.is_planned and any(each.files is not None for each in self.sources.sources):
            check_catalog_exists(folder)
        return folder

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
        clock: Path | None = None,
        *,
        layout: int = FIVE_VARIABLES,
    ) -> DataFrame:
        """The results of queries on the engine instances where they are placed; `layout` is that of their state."""
        from pyspark.sql import functions

        from cqels.spark.operator.stateful_processor import Evaluation

        there = self._placed(where, len(groups))
        rows = self._arriving(there, folder, updates, clock, self._instances(where, len(groups)))
        programs = {
            key: self.program(name, queries, dataset, again or {}, (origins or {}).get(number), prints)
            for number, (key, queries) in enumerate(zip(groups, there, strict=True))
        }
        key = functions.array(*(functions.lit(key) for key in groups))[functions.col("instance")]
        return (
            rows.withColumn("key", key)
            .groupBy("key")
            .transformWithState(Evaluation(programs, layout=layout), SENT_COLUMNS, "append", "none")
        )

    def _instances(self, where: Mapping[str, int], count: int) -> list[int]:
        """Those that commands go to: all that queries may come to."""
        return [*range(count)] if self.sources.is_served else sorted({*where.values()})

    def _placed(self, where: Mapping[str, int], instances: int) -> list[list[Query]]:
        """The queries of each instance."""
        there: list[list[Query]] = [[] for _ in range(instances)]
        queries = self.queries.by_name | self.queries.running
        for each, at in where.items():
            there[at].append(queries[each])
        return there

    def _arriving(
        self,
        there: Sequence[Sequence[Query]],
        folder: Path | None,
        updates: Updates | None,
        clock: Path | None,
        instances: Sequence[int],
        liftings: dict[int, Lifting] | None = None,
    ) -> DataFrame:
        """What arrives at instances that have these queries; updates and the time go to those that are named.

        Where `liftings` are given, rows of sources are left to the driver, if they can be, and how is added to them.
        """
        wants = {iri: tuple(self._wanted(queries, iri) for queries in there) for iri in self.sources.streams}
        arriving = self._rows(wants, folder, liftings)
        if self.sources.is_served:
            assert folder is not None
            arriving.append(self._pushed(folder.parent, len(there)))
        if updates is not None:
            arriving.append(updates.rows(self.session(), instances))
        if clock is not None:
            from cqels.spark.source.clock_source import clock_rows

            arriving.append(clock_rows(self.session(), clock, instances))
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), arriving)

    def _wanted(self, queries: Sequence[Query], stream: str) -> PushedPatterns | None:
        """The triples of a stream that an instance needs; None if it has no queries any more."""
        all_matter = self.sources.streams[stream].punctuated  # all subjects do
        if self.sources.is_served:
            return PushedPatterns(frozenset({ANYTHING}))
        if queries and (all_matter or (self.options.changing and self.sources.holds_back)):
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

    def _rows(
        self,
        wants: Mapping[str, tuple[PushedPatterns | None, ...]],
        folder: Path | None,
        liftings: dict[int, Lifting] | None,
    ) -> list[DataFrame]:
        rows = []
        files = []
        strict = self.options.strict
        for number, each in enumerate(self.sources.sources):
            wanted = wants[each.iri]
            if each.files is not None:
                files.append((number, each.files, wanted))
            elif each.rows is not None and each.lift is not None:
                arrival = self.sources.streams[each.iri].arrival
                lifting = Lifting(each.iri, number, each.lift, wanted, strict, each.future, arrival)
                rows.append(_lifted(each.rows, lifting, liftings))
            elif each.live is not None and each.lift is not None:
                arrival = self.sources.streams[each.iri].arrival
                lifting = Lifting(each.iri, number, each.lift, wanted, strict, each.future, arrival)
                rows.append(self._live_rows(each.live, lifting, folder, liftings))
        if files:
            from cqels.pipeline.source.file_source_settings import BATCH_BYTES, prepared
            from cqels.spark.source.file_source import file_rows

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

    def _live_rows(
        self,
        declaration: StreamDeclaration,
        lifting: Lifting,
        folder: Path | None,
        liftings: dict[int, Lifting] | None,
    ) -> DataFrame:
        """The messages of a live source: by Spark's own connector, or from the inbox that the driver fills."""
        from cqels.pipeline.source.file_source_settings import BATCH_BYTES
        from cqels.spark.source.inbox_source import inbox_rows
        from cqels.spark.sources import declared_kafka

        spark = self.session()
        if not is_received(declaration):
            return _lifted(declared_kafka(spark, declaration), lifting, liftings)
        if folder is None:
            raise CqelsError(
                f"stream <{declaration.iri}>: '{shown_place(declaration)}' is received by a run, not by a DataFrame",
                hint="app.add(…), and app.run(…)",
            )
        return inbox_rows(
            spark,
            inbox_folder(folder.parent, lifting.number),
            shown_place(declaration),
            lifting,
            batch_bytes=self.options.batch_bytes or BATCH_BYTES,
            tasks=spark.sparkContext.defaultParallelism,
        )

    def _pushed(self, checkpoint: Path, instances: int) -> DataFrame:
        """What is pushed to streams, for all instances."""
        from cqels.spark.source.pushed_source import pushed_rows

        spark = self.session()
        tasks = spark.sparkContext.defaultParallelism
        folder = pushed_folder(checkpoint)
        return pushed_rows(spark, folder, instances, batch_bytes=self.options.batch_bytes, tasks=tasks)

    def carried(self, carried: ShippedBytes) -> ShippedBytes:
        """Bytes on their way: many travel as a file."""
        if len(carried.content) <= LARGEST_CARRIED:
            return carried
        folder = Path(mkdtemp(prefix="cqels-"))
        file = folder / folder.name
        file.write_bytes(carried.content)
        self.session().sparkContext.addFile(str(file))  # which is fetched as long as the session lives
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        from cqels.spark.operator.fetched_bytes import FetchedBytes

        return FetchedBytes(file=file.name)


def _lifted(rows: DataFrame, lifting: Lifting, liftings: dict[int, Lifting] | None) -> DataFrame:
    """The arriving rows of a DataFrame, lifted in tasks; or by the driver, which `liftings` then say how to."""
    lift = DataFrameLift(lifting)
    left = None if liftings is None else lift.left_to_driver(rows)
    if liftings is None or left is None:
        return lift.apply(rows)
    liftings[lifting.number] = lifting
    return left
