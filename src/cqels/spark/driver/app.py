"""An application: streams, a dataset and queries as one pipeline, from sources to sinks or to streaming DataFrames."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from time import time_ns
from typing import TYPE_CHECKING, Any, Self, get_args
from uuid import uuid4

from pyoxigraph import NamedNode

from cqels.engine.arguments import Duration, checked_iri, duration, interval, path_of
from cqels.engine.budgets import Budget
from cqels.ingest import StreamDeclaration, StreamSettings, parse_declaration, settings_of
from cqels.ingest.declarations import FUTURE
from cqels.ingest.live_sources import is_live
from cqels.ingest.source_address import shown_place
from cqels.model.choices import Lost
from cqels.model.errors import CqelsError
from cqels.model.redact import redacted_url
from cqels.model.time import parse_time
from cqels.options import AppOptions
from cqels.pipeline.instance.program import Dataset, Program
from cqels.pipeline.lift.declared_lift import lift_of
from cqels.pipeline.lift.row_lifts import Lift, Lifting
from cqels.pipeline.source.file_catalog import CHANGED
from cqels.pipeline.source.watched_data import WatchedData, WatchedFile
from cqels.plan.algebra import Query, Service, Values, walk_plan
from cqels.plan.prepare import planned as as_planned
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.dataset_changes import KeptDataset, accepted
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.declared_sources import DeclaredSource, DeclaredSources
from cqels.spark.driver.manifest_builder import ManifestBuilder, check_outputs
from cqels.spark.driver.pipeline_builder import PipelineBuilder
from cqels.spark.driver.placement import BUFFERS, Load, placed
from cqels.spark.driver.query_set import QuerySet
from cqels.spark.driver.receivers import Receivers
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions
from cqels.store.script import execute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cqels.pipeline.sink.reject_files import Rejects
    from cqels.spark.driver.metrics import Metrics
    from cqels.spark.driver.migration import Migration
    from cqels.spark.driver.run import Run
    from cqels.spark.driver.run_clock import RunClock
    from cqels.spark.driver.served_app import ServedApp
    from cqels.spark.sinks import Sink

LOST = get_args(Lost)
"""What can be done where results that were written are gone."""
_LOG = logging.getLogger("cqels")


class App:
    """Continuous queries over streams, on Spark.

    ```python
    app = App(spark, checkpoint="…")
    app.stream("http://ex.org/obs", rows, lift=cqels.lift.nquads(time="kafka"))   # any streaming DataFrame
    app.files("<http://ex.org/obs>=data/obs/*.nq?lateness=2s")                    # or files
    app.load("rooms.ttl")
    results = app.register("hot.rq")   # a streaming DataFrame
    app.run(Console()).wait()          # or all queries in one pipeline
    ```
    """

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        instances: int | None = None,
        start: int | str = 0,
        until: int | str | None = None,
        follow: bool = False,
        speed: float | None = None,
        batch_bytes: int | None = None,
        strict: bool = False,
        store: Store | None = None,
        placement: str = BUFFERS,
        changing: bool = False,
        latency: str = "normal",
        allow_service: str | Iterable[str] | None = None,
        allow_load: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        service_refresh: Duration | None = None,
        tick: Duration | None = None,
        now: Callable[[], int] = time_ns,
    ) -> None:
        """`spark` is a session, or makes one when it is needed.

        `checkpoint` is a directory to go on from; without it the application begins anew each time.

        `instances` are the engines that queries are spread over, at most one for each query and each of Spark's
        partitions if not said; `placement` says how: a query goes to the instance with the smallest "buffers", the
        least "latency", or by "rotation".  With `changing`, all triples travel where elements are held back (lateness,
        idle time, several streams of files), so that queries can be added while it runs (`Run.change`): elsewhere they
        always can.

        Boundaries of sliding windows are counted from `start`; when all streams have ended, time goes on `until` then.
        Files are read once; with `follow` new ones and appended lines are waited for, and with `speed` their elements
        come at their own pace, so many times faster.  With `strict` the first malformed or late element ends the run.

        With a low `latency` there is one engine instance, in the driver: a micro-batch is a third as long, and all
        queries run on one core.

        What SERVICE and LOAD may reach is said by `allow_service` and `allow_load`, as for an `Engine`.  The driver
        asks an endpoint when a query is added, and again every `service_refresh` (5m if not said) while it runs; an
        answer that differs goes to the engines behind a micro-batch.  The checkpoint keeps the answers, and what the
        engines knew when: so results do not depend on when an engine is made again.

        Streams in arrival time, and those that are silent for longer than their idle time, follow the wall clock, which
        `now` tells in nanoseconds: then time goes on every `tick`, if not said a tenth of the shortest window, at least
        a second and at most a minute.
        """
        self._begin(
            spark,
            AppOptions(
                checkpoint=None if checkpoint is None else Path(checkpoint),
                instances=instances,
                start=parse_time(start),
                until=None if until is None else parse_time(until),
                follow=follow,
                speed=speed,
                batch_bytes=batch_bytes,
                strict=strict,
                placement=placement,
                changing=changing,
                latency=latency,
                tick=None if tick is None else interval(tick),
            ),
            store,
            now,
        )
        if allow_service is not None or allow_load is not None:
            self._store.services.permissions = Permissions.of(allow_service, allow_load)
        if service_refresh is not None:
            self._store.services.refresh = interval(service_refresh)

    @classmethod
    def of(
        cls, spark: SparkSession | Callable[[], SparkSession], options: AppOptions, store: Store | None = None
    ) -> Self:
        """An application with an options object, which the command line or a pipeline file has filled."""
        made = cls.__new__(cls)
        made._begin(spark, options, store)
        return made

    def _begin(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        options: AppOptions,
        store: Store | None,
        now: Callable[[], int] = time_ns,
    ) -> None:
        self._session, self._options, self._now = spark, options, now
        self._store = Store() if store is None else store  # an empty one is false
        self.watched = WatchedData()
        """The static files that change the dataset when they have changed."""
        self._known: dict[str, Values] = {}
        """What endpoints answered first, as the checkpoint knows it."""
        self._sources = DeclaredSources(options.follow)
        self._queries = QuerySet(self._sources, self._store, lambda: options.instances or self._partitions())
        self._manifests = ManifestBuilder(options, self._sources, self._queries, self._partitions)
        self._pipelines = PipelineBuilder(
            lambda: self._spark, options, self._sources, self._queries, lambda: self.answers
        )

    # ------------------------------------------------------------ what there is

    @property
    def _spark(self) -> SparkSession:
        if callable(self._session):
            self._session = self._session()
        return self._session

    @property
    def store(self) -> Store:
        """The dataset, as updates have made it."""
        return self._store

    @property
    def queries(self) -> tuple[Query, ...]:
        return tuple(self._queries.by_name.values())

    def stream(
        self,
        iri: str,
        rows: DataFrame,
        *,
        lift: Lift,
        lateness: Duration = 0,
        idle: Duration = 0,
        clock: str = "event",
        future: Duration | None = FUTURE,
        punctuated: bool = False,
    ) -> None:
        """Declare a stream: the rows of a source (`row_lifts.py` says which columns), and how they are lifted.

        With the clock `arrival` an element's time is what the source has recorded in the column `time`, or `timestamp`
        of Kafka.  An element further beyond the wall clock than `future` is rejected, with None never.  Only a stream
        that is `punctuated` has punctuations.  A stream that is declared again has one more source.
        """
        if clock not in ("event", "arrival"):
            raise CqelsError(f"'{clock}' is not a clock", hint="it is event or arrival")
        settings = StreamSettings(
            checked_iri("stream", iri), duration(lateness), duration(idle), clock == "arrival", lift.unit, punctuated
        )
        limit = None if future is None else duration(future)
        self._declare(settings, DeclaredSource(settings.iri, rows, lift, future=limit))

    def files(self, declaration: str | StreamDeclaration, *, changed: str = "stop") -> None:
        """Declare a stream of files, as on the command line: `<iri>=path?lateness=2s&…`.

        A stream that is declared again has more files: all are merged by time.  A file that was replaced, shortened or
        removed stops the run, or with `changed` it is left out ("skip") or read from its beginning ("reread").
        """
        choice = next((each for each in CHANGED if each == changed), None)
        if choice is None:
            raise CqelsError(f"'{changed}' is not what can be done with a changed file", hint=", ".join(CHANGED))
        each = parse_declaration(declaration) if isinstance(declaration, str) else declaration
        if is_live(each):
            raise CqelsError(f"stream <{each.iri}>: '{shown_place(each)}' is not of files", hint="app.source(…)")
        self._declare(settings_of([each])[each.iri], DeclaredSource(each.iri, files=each, changed=choice))

    def source(self, declaration: str | StreamDeclaration, *, changed: str = "stop") -> None:
        """Declare a stream of any source, as on the command line: files, or `<iri>=mqtt://host/topic?template=…`.

        Receivers run in the driver and write to inboxes below the checkpoint, which workers read: on a cluster it has
        to be in a file system that all machines share.  Kafka is read by Spark's connector, which the session has to
        have (`cqels.spark.session.kafka_connector`; the command line adds it).
        """
        each = parse_declaration(declaration) if isinstance(declaration, str) else declaration
        if not is_live(each):
            self.files(each, changed=changed)
            return
        future = None if each.clock == "arrival" else FUTURE if each.future is None else each.future
        self._declare(
            settings_of([each])[each.iri], DeclaredSource(each.iri, lift=lift_of(each), live=each, future=future)
        )

    def _declare(self, settings: StreamSettings, source: DeclaredSource) -> None:
        if self._sources.declare(settings, source):
            self._queries.declare(settings)

    def load(
        self,
        path: str | os.PathLike[str],
        graph: str | None = None,
        *,
        format: str | None = None,
        watch: bool = False,
    ) -> int:
        """Add the triples of a file to the dataset: how many the file has.

        One that is to `watch` changes the dataset whenever it has changed, while the application runs: the difference
        is an update, as those of `Run.update` are.
        """
        name = None if graph is None else NamedNode(checked_iri("graph", graph))
        if watch:
            return self.watched.add(WatchedFile(str(path_of("path", path)), format, name), self._store)
        return self._store.load(path_of("path", path), name, format=format)

    def update(self, change: str | Callable[[Store], Any]) -> None:
        """Change the dataset before it runs, by a SPARQL Update or a function of the store. Later, see `Run.update`."""
        if isinstance(change, str):
            execute(self._store, change)
        else:
            change(self._store)

    def add(
        self,
        query: str | os.PathLike[str] | Query,
        *,
        name: str | None = None,
        emit: str | None = None,
        policy: str | None = None,
        dialect: str | None = None,
        memory: int | str | None = None,
        time: int | str | None = None,
        spread: bool | None = False,
        lenient: bool = False,
    ) -> Query:
        """Add a query for `run`: its text, or the path of a file with it.

        It is stopped, and the others go on, if its state takes more `memory` than this, as in `200MB`, or if an element
        takes more of the processor's `time`, as in `5ms`, on average over half a second of its work.  With `spread` all
        engine instances have a part of it, by a variable that all triple patterns over streams have; with None too,
        where that can be.  A variable that is selected, ordered or grouped by and bound nowhere is an error, unless the
        query is read `lenient`.
        """
        if spread is not False and self._options.is_low_latency:
            if spread:
                raise CqelsError(
                    "the low-latency mode has one engine instance, so nothing is spread",
                    hint="leave out spread, or latency",
                )
            spread = False
        budget = Budget.of(memory, time)
        planned, source = as_planned(query, name=name, emit=emit, policy=policy, dialect=dialect, lenient=lenient)
        return self._queries.add(planned, source, budget, spread=spread)

    def drop(self, name: str) -> list[str]:
        """Take a query back, which does not run: `Run.change` is for those that do. The names of its parts."""
        return self._queries.drop(name)

    @property
    def answers(self) -> dict[str, Values]:
        """What engines begin with: what endpoints answered when the checkpoint was new, or else when last asked."""
        return self._queries.services.answers | self._known

    @property
    def known_answers(self) -> dict[str, Values]:
        """Those of them that all engines have, whenever they are made."""
        return self._known

    def keep_answers(self, checkpoint: Checkpoint, manifest: Manifest) -> None:
        """Have engines begin with the same answers whenever they are made."""
        self._known = self.answers
        checkpoint.keep_answers(self._known, manifest)

    @property
    def services(self) -> list[dict[str, str]]:
        """What queries ask of endpoints: how often, when they last were asked, with how many rows, and failures."""
        return [
            {"endpoint": redacted_url(each.endpoint.value), **dict(self._queries.services.notes(each))}
            for each in self._queries.services.followed
        ]

    def ask_again(self, renewed: Callable[[], None]) -> None:
        """Ask endpoints from time to time, in the background; call a function after each time."""
        self._queries.services.ask_again(self._store.services.refresh, renewed)

    def ask_no_more(self) -> None:
        self._queries.services.ask_no_more()

    def fresh_answers(self) -> dict[str, Values]:
        """What the endpoints of the queries are worth now, as far as they answer."""
        return self._queries.services.fresh()

    @property
    def running(self) -> dict[str, Query]:
        """What engines run: queries, or their parts, by their names."""
        return self._queries.running

    @property
    def parts(self) -> dict[str, str]:
        """What engines run: its name, and that of the query that it is or is a part of."""
        return self._queries.parts

    @property
    def rests(self) -> dict[str, Query]:
        """What is computed of the changes that the parts of queries tell, by the names of these."""
        return self._queries.global_stages

    def register(
        self,
        query: str | os.PathLike[str] | Query,
        *,
        types: Mapping[str, str] | None = None,
        **options: Any,
    ) -> DataFrame:
        """Add a query, and have its results as a streaming DataFrame: time, tick, sign and a column for each variable.

        Columns are the IRIs and lexical forms of terms; `types` casts them, as in `{"n": "bigint"}`.  It is a pipeline
        of its own, with this query and those whose streams it reads.
        """
        from cqels.spark.sink.dataframe import frame_of

        if options.get("spread"):
            raise CqelsError("a DataFrame is of one engine instance", hint="app.add(…, spread=True), and app.run(…)")
        named = self.add(query, **options)
        for node in walk_plan(named.plan):
            if isinstance(node, Service):
                endpoint = redacted_url(node.endpoint.value)
                _LOG.warning("query %s asks <%s> once, now: only app.run(…) asks again", named.name, endpoint)
        return frame_of(self.sent(named), named, types or {})

    def sent(self, query: Query) -> DataFrame:
        """The rows of the pipeline of one query: results, and what was rejected or late (`row_schemas.py`)."""
        together = placed(self.queries, 1 + len(self.queries))
        linked = [each for each in self.queries if together[each.name or ""] == together[query.name or ""]]
        where = {each.name or "": 0 for each in linked}
        dataset = Dataset.of(self._store)
        dataset = replace(dataset, quads=self._pipelines.carried(dataset.quads))
        return self._pipelines.results(uuid4().hex, where, self._manifests.new_keys(1), dataset, None)

    # ------------------------------------------------------------ running

    def run(
        self,
        *sinks: Sink,
        rejects: Rejects | None = None,
        metrics: Metrics | None = None,
        trigger: str = "0 seconds",
        lost: str = "stop",
        served: ServedApp | None = None,
    ) -> Run:
        """Run all queries in one pipeline; each micro-batch's results go to the sinks.

        Where all streams are files that end, so does the run: `run(…).wait()`.  `trigger` is the time between
        micro-batches.  Without `rejects`, Python's log `cqels` tells of what is malformed or late.
        `lost` says what to do where a checkpoint has written results that are gone, or some of them:
        "stop" with a sentence, "continue" with what comes from now on, or "rebuild": read all once more and write all
        anew, which files allow.  Where it is `served`, streams and queries come while it runs.
        """
        from cqels.spark.driver.failure_reason import one_sentence

        if lost not in LOST:
            raise CqelsError(f"'{lost}' is no choice for results that are gone", hint=f"it is {', '.join(LOST)}")
        if not self.queries and served is None:
            raise CqelsError("the application has no query", hint="app.add('hot.rq')")
        if not self._sources.streams and served is None:
            raise CqelsError("the application has no stream", hint="app.stream(iri, rows, lift=…), or app.files(…)")
        folder = self._options.checkpoint or Path(mkdtemp(prefix="cqels-"))
        checkpoint = Checkpoint(folder)
        with one_sentence():
            checkpoint.lock()
            try:
                return self._run(checkpoint, sinks, rejects, metrics, trigger, lost, served)
            except BaseException:
                checkpoint.unlock()
                raise

    def _run(
        self,
        checkpoint: Checkpoint,
        sinks: Sequence[Sink],
        rejects: Rejects | None,
        metrics: Metrics | None,
        trigger: str,
        lost: str,
        served: ServedApp | None,
    ) -> Run:
        from cqels.spark.driver.run import Run

        if checkpoint.read() is not None:
            self.watched.go_back(self._store, checkpoint.watched)
        dataset = Dataset.of(self._store)
        digest = "" if self._options.checkpoint is None else dataset.digest
        before = check_outputs(checkpoint, self.queries, self._sources, (*sinks, rejects), lost)
        beginning = None
        if before is not None and before.updates and self._options.checkpoint is not None:
            kept = KeptDataset(checkpoint.datasets, Updates(checkpoint.updates))
            if accepted(kept, self._store, digest, before.data):
                digest, beginning = before.data, kept.beginning
        manifest = self._manifests.begin(checkpoint, before, digest)
        dataset = beginning or checkpoint.dataset(dataset)
        self._known = checkpoint.answers(before)
        self.keep_answers(checkpoint, manifest)
        if before is None:
            checkpoint.stage_files.begin()
        checkpoint.write(manifest)
        self.watched.open(checkpoint.watched)
        if served is not None:
            served.load(checkpoint)
        run = Run(
            self,
            checkpoint,
            manifest,
            sinks,
            rejects,
            metrics,
            self._clock(checkpoint) if manifest.clock else None,
            Receivers(self._sources.received, checkpoint.folder),
            ends=self._sources.all_end,
            paced=self._options.speed is not None,
            strict=self._options.strict,
            temporary=self._options.checkpoint is None,
            served=served,
        )
        try:
            if served is not None:
                served.resume(run)
            run.start(replace(dataset, quads=self._pipelines.carried(dataset.quads)), trigger)
        except BaseException:
            run.stop()
            raise
        return run

    def _clock(self, checkpoint: Checkpoint) -> RunClock:
        from cqels.spark.driver.run_clock import RunClock

        return RunClock(checkpoint.clock, self._sources.clocked, tick=self._options.tick, now=self._now)

    def pipeline(self, name: str, manifest: Manifest, dataset: Dataset, checkpoint: Checkpoint) -> DataFrame:
        """The results of all engine instances of a manifest."""
        return self._pipelines.of_manifest(name, manifest, dataset, checkpoint)

    def in_driver(
        self, name: str, manifest: Manifest, dataset: Dataset, checkpoint: Checkpoint
    ) -> tuple[DataFrame, Program, dict[int, Lifting]]:
        """What arrives at the engine instance of a manifest of low latency, what that runs, and what it lifts."""
        return self._pipelines.in_driver(name, manifest, dataset, checkpoint)

    # ------------------------------------------------------------ changing what runs

    def serve(self) -> None:
        """Let streams and queries be added by commands."""
        self._sources.added = {}

    @property
    def sources(self) -> DeclaredSources:
        return self._sources

    def take(self, query: Query, budget: Budget | None) -> Query:
        """Know a query that has a name and that commands register: without the passwords of its endpoints."""
        return self._queries.add(query, None, budget, spread=False)

    def take_stream(self, settings: StreamSettings) -> None:
        """Know a stream that commands add."""
        assert self._sources.added is not None
        self._sources.added[settings.iri] = settings
        self._queries.declare(settings)

    def place(self, name: str, before: Mapping[str, int], instances: int, loads: Mapping[int, Load]) -> int:
        """The engine instance for a query, where all others are placed."""
        running = [*self.running.values()]
        return placed(running, instances, before, strategy=self._options.placement, loads=loads)[name]

    def explain(self, name: str, format: str) -> str:
        """The plan of a query, without what it has done."""
        return self._queries.explain(name, format)

    def undoing(self) -> AbstractContextManager[None]:
        """Where something goes wrong, have the queries that there were."""
        return self._queries.undoing()

    def check_change(self, before: Manifest) -> None:
        """Refuse to go on with these queries."""
        self._manifests.check_change(before)

    def changed(
        self,
        before: Manifest,
        queries: Sequence[Query],
        dropped: Collection[str],
        move: Mapping[str, int | None],
        loads: Mapping[int, Load],
        dataset: Dataset,
        checkpoint: Checkpoint,
    ) -> Manifest:
        """What the checkpoint belongs to when it had these queries and now has those of the application.

        Nothing runs meanwhile.
        """
        there = {query.name or "": query for query in queries}

        def program(instance: int) -> Program:
            mine = [there[name] for name, at in before.placed.items() if at == instance]
            return self._pipelines.program(uuid4().hex, mine, dataset, before.again, prints=before.queries)

        def migration(now: Manifest) -> Migration:
            from cqels.spark.driver.migration import Migration

            return Migration(self._spark, checkpoint, before, now, program, now.partitions or self._partitions())

        return self._manifests.change(before, dropped, move, loads, migration)

    def _partitions(self) -> int:
        return int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)
