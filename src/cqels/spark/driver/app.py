"""An application: streams, a dataset and queries as one pipeline, from sources to sinks or to streaming DataFrames."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyoxigraph import NamedNode

from cqels.engine.arguments import Duration, checked_iri, duration, interval, path_of
from cqels.engine.engine import Engine
from cqels.engine.state.budgets import Budget
from cqels.ingest import StreamDeclaration, StreamSettings, parse_declaration, settings_of
from cqels.ingest.declarations import FUTURE, check_same
from cqels.ingest.live_sources import is_live
from cqels.model.errors import CqelsError, QueryError
from cqels.model.redact import redacted_url
from cqels.model.time import parse_time
from cqels.plan.algebra import Query, QueryText, Service, Values, sources_of, walk_plan
from cqels.plan.partitioning import NotSpread, Spread, spreading
from cqels.plan.plan_json import fingerprint
from cqels.plan.prepare import is_same
from cqels.plan.prepare import planned as as_planned
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.placement import BUFFERS, Load, checked, keys, placed
from cqels.spark.lift.predicate_pushdown import ANYTHING, PushedPatterns, pushed_patterns
from cqels.spark.lift.row_lifts import Lift, Lifting
from cqels.spark.lift.row_schemas import SENT_COLUMNS
from cqels.spark.operator.program import Dataset, Program, ShippedBytes
from cqels.spark.source.file_catalog import CHANGED, Changed, check_catalog_exists
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions
from cqels.store.service_answers import Asked, without_secrets, write_answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cqels.spark.driver.metrics import Metrics
    from cqels.spark.driver.run import Run
    from cqels.spark.rejects import Rejects
    from cqels.spark.sinks import Sink

LOST = ("stop", "continue", "rebuild")
"""What can be done where results that were written are gone."""
_LOG = logging.getLogger("cqels")
LARGEST_CARRIED = 1 << 20
"""Bytes that travel with each task; more are a file that each machine fetches once."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where elements of a stream come from: the rows of a DataFrame and how they are lifted, or files."""

    iri: str
    rows: DataFrame | None = None
    lift: Lift | None = None
    files: StreamDeclaration | None = None
    changed: Changed = "stop"
    future: int | None = None


@dataclass(frozen=True, slots=True)
class _Spread:
    """How a query is spread, and into how many parts, which is known when it runs."""

    how: Spread
    count: int | None = None


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
        allow_service: str | Iterable[str] | None = None,
        allow_load: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        service_refresh: Duration | None = None,
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

        What SERVICE and LOAD may reach is said by `allow_service` and `allow_load`, as for an `Engine`.  The driver
        asks an endpoint when a query is added, and again every `service_refresh` (5m if not said) while it runs; an
        answer that differs goes to the engines behind a micro-batch.  The checkpoint keeps the answers, and what the
        engines knew when: so results do not depend on when an engine is made again.
        """
        self._session = spark
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._instances = instances
        self._start = parse_time(start)
        self._until = None if until is None else parse_time(until)
        self._follow, self._speed, self._batch_bytes, self._strict = follow, speed, batch_bytes, strict
        self._store = Store() if store is None else store  # an empty one is false
        if allow_service is not None or allow_load is not None:
            self._store.services.permissions = Permissions.of(allow_service, allow_load)
        if service_refresh is not None:
            self._store.services.refresh = interval(service_refresh)
        self._services = Asked()
        self._known: dict[str, Values] = {}
        """What endpoints answered first, as the checkpoint knows it."""
        self._placement, self._changing = checked(placement), changing
        self._streams: dict[str, StreamSettings] = {}
        self._sources: list[_Source] = []
        self._firsts: dict[int, tuple[int, ...]] = {}
        """Of the sources that end and have several files, when these are listed: the times of their first elements."""
        self._queries: dict[str, Query] = {}
        self._asking: dict[str, Query] = {}
        """The queries with the passwords of their endpoints."""
        self._budgets: dict[str, Budget] = {}
        self._spread: dict[str, _Spread] = {}

    # ------------------------------------------------------------ what there is

    @property
    def _spark(self) -> SparkSession:
        if callable(self._session):
            self._session = self._session()
        return self._session

    @property
    def queries(self) -> tuple[Query, ...]:
        return tuple(self._queries.values())

    def stream(
        self,
        iri: str,
        rows: DataFrame,
        *,
        lift: Lift,
        lateness: Duration = 0,
        idle: Duration = 0,
        future: Duration | None = FUTURE,
    ) -> None:
        """Declare a stream: the rows of a source (`row_lifts.py` says which columns), and how they are lifted.

        An element further beyond the wall clock than `future` is rejected, with None never.  A stream that is declared
        again has one more source.
        """
        settings = StreamSettings(checked_iri("stream", iri), duration(lateness), duration(idle))
        limit = None if future is None else duration(future)
        self._declare(settings, _Source(settings.iri, rows, lift, future=limit))

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
            hint = "write it to a file, which --follow waits for more of; or run in this process: --engine embedded"
            raise CqelsError(f"stream <{each.iri}>: Spark reads files, not '{each.path}'", hint=hint)
        self._declare(settings_of([each])[each.iri], _Source(each.iri, files=each, changed=choice))

    def _declare(self, settings: StreamSettings, source: _Source) -> None:
        if settings.iri in self._streams:
            check_same(self._streams[settings.iri], settings)
        else:
            self._streams[settings.iri] = settings
            if "_checking" in vars(self):
                self._checking.declare(settings)
        self._sources.append(source)

    def load(self, path: str | os.PathLike[str], graph: str | None = None, *, format: str | None = None) -> int:
        """Add the triples of a file to the dataset: how many the file has."""
        name = None if graph is None else NamedNode(checked_iri("graph", graph))
        return self._store.load(path_of("path", path), name, format=format)

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
        budget = Budget.of(memory, time)
        planned, source = as_planned(query, name=name, emit=emit, policy=policy, dialect=dialect, lenient=lenient)
        free = (name for number in count(1) if (name := f"query-{number}") not in self._queries)
        named = planned if planned.name else replace(planned, name=next(free))
        assert named.name is not None
        if named.name in self._queries:
            raise CqelsError(f"there is a query {named.name} already", hint="register it under another name")
        safe = without_secrets(named)
        by = None if spread is False else self._key(safe, budget, must=bool(spread))
        try:
            self._check(named)
        except QueryError as error:
            error.query = planned
            if source is not None:
                error.locate(source)
            raise
        self._queries[named.name], self._asking[named.name] = safe, named
        if by is not None:
            self._spread[named.name] = by
        if budget is not None:
            self._budgets[named.name] = budget
        return safe

    def _key(self, query: Query, budget: Budget | None, *, must: bool) -> _Spread | None:
        """How to spread a query, if that can be."""
        made = {name for name, each in self._queries.items() if each.form == "construct"}
        try:
            if budget is not None:
                raise NotSpread("it has a budget")
            if any(isinstance(each.stream, NamedNode) and each.stream.value in made for each in sources_of(query)):
                raise NotSpread("it reads what another query makes")
            how = spreading(query)
            if how.rest is not None and any(isinstance(node, Service) for node in walk_plan(how.rest.plan)):
                raise NotSpread("what is computed of the results of its parts asks a SERVICE")
            return _Spread(how)
        except NotSpread as error:
            if not must:
                return None
            raise CqelsError(f"query {query.name} cannot be spread: {error}", hint="run it as a whole") from None

    def drop(self, name: str) -> list[str]:
        """Take a query back, which does not run: `Run.change` is for those that do. The names of its parts."""
        if name not in self._queries:
            known = ", ".join(self._queries) or "none"
            raise CqelsError(f"there is no query {name}", hint=f"the queries are {known}")
        self._checking.drop(name)
        parts = [part for part, whole in self.parts.items() if whole == name]
        del self._queries[name], self._asking[name]
        self._budgets.pop(name, None)
        self._spread.pop(name, None)
        return parts

    @property
    def answers(self) -> dict[str, Values]:
        """What engines begin with: what endpoints answered when the checkpoint was new, or else when last asked."""
        return self._services.answers | self._known

    def keep_answers(self, checkpoint: Checkpoint, manifest: Manifest) -> None:
        """Have engines begin with the same answers whenever they are made."""
        self._known = self.answers
        checkpoint.keep_answers(self._known, manifest)

    @property
    def services(self) -> list[dict[str, str]]:
        """What queries ask of endpoints: how often, when they last were asked, with how many rows, and failures."""
        return [
            {"endpoint": redacted_url(each.endpoint.value), **dict(self._services.notes(each))}
            for each in self._services.followed
        ]

    def ask_again(self, renewed: Callable[[], None]) -> None:
        """Ask endpoints from time to time, in the background; call a function after each time."""
        self._services.ask_again(self._store.services.refresh, renewed)

    def ask_no_more(self) -> None:
        self._services.ask_no_more()

    def fresh_answers(self) -> dict[str, Values]:
        """What the endpoints of the queries are worth now, as far as they answer."""
        return self._services.fresh()

    @property
    def running(self) -> dict[str, Query]:
        """What engines run: queries, or their parts, by their names."""
        return {each.name or "": each for name in self._queries for each in self._parts_of(name)}

    @property
    def parts(self) -> dict[str, str]:
        """What engines run: its name, and that of the query that it is or is a part of."""
        return {each.name or "": name for name in self._queries for each in self._parts_of(name)}

    @property
    def rests(self) -> dict[str, Query]:
        """What is computed of the changes that the parts of queries tell, by the names of these."""
        return {name: by.how.rest for name, by in self._spread.items() if by.how.rest is not None}

    def _parts_of(self, name: str) -> tuple[Query, ...]:
        query, by = self._queries[name], self._spread.get(name)
        if by is None:
            return (query,)
        if by.count is None:
            by = self._spread[name] = replace(by, count=self._instances or self._partitions())
        return by.how.parts(by.count or 1)

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
        together = placed(self.queries, 1 + len(self._queries))
        linked = [each for each in self.queries if together[each.name or ""] == together[query.name or ""]]
        where = {each.name or "": 0 for each in linked}
        dataset = Dataset.of(self._store)
        dataset = replace(dataset, quads=self._carried(dataset.quads))
        return self._pipeline(uuid4().hex, where, self._keys(1), dataset, None)

    # ------------------------------------------------------------ running

    def run(
        self,
        *sinks: Sink,
        rejects: Rejects | None = None,
        metrics: Metrics | None = None,
        trigger: str = "0 seconds",
        lost: str = "stop",
    ) -> Run:
        """Run all queries in one pipeline; each micro-batch's results go to the sinks.

        Where all streams are files that end, so does the run: `run(…).wait()`.  `trigger` is the time between
        micro-batches.  Without `rejects`, Python's log `cqels` tells of what is malformed or late.
        `lost` says what to do where a checkpoint has written results that are gone, or some of them:
        "stop" with a sentence, "continue" with what comes from now on, or "rebuild": read all once more and write all
        anew, which files allow.
        """
        from cqels.spark.driver.failure_reason import one_sentence

        if lost not in LOST:
            raise CqelsError(f"'{lost}' is no choice for results that are gone", hint=f"it is {', '.join(LOST)}")
        if not self._queries:
            raise CqelsError("the application has no query", hint="app.add('hot.rq')")
        if not self._streams:
            raise CqelsError("the application has no stream", hint="app.stream(iri, rows, lift=…), or app.files(…)")
        folder = self._checkpoint or Path(mkdtemp(prefix="cqels-"))
        checkpoint = Checkpoint(folder)
        with one_sentence():
            checkpoint.lock()
            try:
                return self._run(checkpoint, sinks, rejects, metrics, trigger, lost)
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
    ) -> Run:
        from cqels.spark.driver.run import Run

        dataset = Dataset.of(self._store)
        digest = "" if self._checkpoint is None else dataset.digest
        before = self._checked_outputs(checkpoint, (*sinks, rejects), lost)
        manifest = self._manifest(checkpoint, before, digest)
        dataset = checkpoint.dataset(dataset)
        self._known = checkpoint.answers(before)
        self.keep_answers(checkpoint, manifest)
        if before is None:
            checkpoint.stage_files.begin()
        checkpoint.write(manifest)
        run = Run(
            self,
            checkpoint,
            manifest,
            sinks,
            rejects,
            metrics,
            ends=not self._follow and all(each.files is not None for each in self._sources),
            paced=self._speed is not None,
            strict=self._strict,
            temporary=self._checkpoint is None,
        )
        try:
            run.start(replace(dataset, quads=self._carried(dataset.quads)), trigger)
        except BaseException:
            run.stop()
            raise
        return run

    def _checked_outputs(self, checkpoint: Checkpoint, sinks: Sequence[object], choice: str) -> Manifest | None:
        """What the checkpoint belongs to; results of it that are gone are said, and what was chosen is done."""
        from cqels.spark.sinks import Lasting

        before = checkpoint.read()
        if before is None:
            return None
        lasting = [each for each in sinks if isinstance(each, Lasting)]
        known: dict[str, Any] = {"run": before.id, "opened": before.outputs, "done": checkpoint.done}
        gone = [each for sink in lasting for each in sink.lost(self.queries, **known)]
        if not gone:
            return before
        told = "; ".join(gone)
        if choice == "stop":
            raise CqelsError(
                told,
                hint="put it back, or choose with --lost (app.run: lost=): continue goes on with what comes from now "
                "on, rebuild reads all once more and writes all anew",
            )
        if choice == "continue":
            _LOG.warning("%s: it goes on with what comes from now on", told)
            return before
        if unread := [each.iri for each in self._sources if each.files is None]:
            raise CqelsError(
                f"{told}, and cannot be rebuilt: <{unread[0]}> is not read from files",
                hint="begin with a new checkpoint and a source that begins where results should, or lost=continue",
            )
        aside = checkpoint.put_aside(before)
        _LOG.warning("%s: all is read once more; what the checkpoint had is in %s", told, aside)
        for sink in lasting:
            sink.begin_anew()
        return None

    def _manifest(self, checkpoint: Checkpoint, before: Manifest | None, data: str) -> Manifest:
        """What the checkpoint belongs to, from now on."""
        bounded = self._bounded()
        for name, parts in ({} if before is None else before.spread).items():
            if name in self._spread:  # as many as there were
                self._spread[name] = replace(self._spread[name], count=parts)
        groups = self._keys(self._count()) if before is None else before.keys
        now = Manifest(
            id=uuid4().hex if before is None else before.id,
            instances=len(groups),
            keys=groups,
            start=self._start,
            data=data,
            streams=[
                {**_told(each), "ends": [number in bounded for number in self._sources_of(each.iri)]}
                for each in self._streams.values()
            ],
            queries=self._prints(),
            spread=self._counts(),
            texts=self._texts(),
            rests=self._rest_prints(),
            budgets=self._manifest_budgets(),
            updates=before is None or before.updates,
        )
        if before is not None:
            self._recognize(before, now)
            checkpoint.check(before, now)
            now.ended, now.origins, now.again = before.ended, before.origins, before.again
            now.finished = before.finished and before.queries == now.queries
            now.stopped, now.outputs = before.stopped, before.outputs
            now.queries = before.queries | now.queries
        running = self.running
        ordered = [running[name] for name in now.queries]
        now.placed = self.placed(ordered, now.instances, before)
        return now

    def _recognize(self, before: Manifest, now: Manifest) -> None:
        """Know queries whose text is as it was by the fingerprints that they had: another release planned them."""
        parts = self.parts
        for name, text in before.texts.items():
            mine = [part for part, whole in parts.items() if whole == name and part in before.queries]
            changed = any(now.queries[part] != before.queries[part] for part in mine)
            if changed and is_same(QueryText(**text), self._queries[name]):
                now.queries |= {part: before.queries[part] for part in mine}
                if name in now.rests and name in before.rests:
                    now.rests[name] = before.rests[name]

    def placed(
        self,
        queries: Sequence[Query],
        instances: int,
        before: Manifest | None,
        loads: Mapping[int, Load] | None = None,
    ) -> dict[str, int]:
        """Where queries run, those that run already where they did."""
        known, closed = ({}, set[int]()) if before is None else (before.placed, before.closed)
        return placed(queries, instances, known, strategy=self._placement, loads=loads, closed=closed)

    def check_change(self, before: Manifest) -> None:
        """Refuse to go on with these queries."""
        if not self._queries:
            raise CqelsError("no query would be left", hint="stop the run")
        if self._holds_back and not self._changing and {*self.running} - {*before.placed}:
            raise CqelsError(
                "elements are held back, with the triples alone that the queries there were can match",
                hint="App(…, changing=True) lets all triples travel, so that queries can be added",
            )

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
        from cqels.spark.driver.migration import Migration

        there = {query.name or "": query for query in queries}

        def program(instance: int) -> Program:
            mine = [there[name] for name, at in before.placed.items() if at == instance]
            return self.program(uuid4().hex, mine, dataset, before.again, prints=before.queries)

        running = [*self.running.values()]
        kept = {name: at for name, at in before.placed.items() if name not in dropped}
        again = {name: before.again.get(name, 0) + 1 for name in dropped}
        now = replace(
            before,
            queries=self._prints(),
            spread=self._counts(),
            texts=self._texts(),
            rests=self._rest_prints(),
            placed=kept,
            keys=[*before.keys],
            origins=dict(before.origins),
            again=before.again | again,
            budgets=self._manifest_budgets(),
            stopped={name: reason for name, reason in before.stopped.items() if name not in dropped},
        )
        moving = Migration(self._spark, checkpoint, before, now, program, self._partitions())
        moving.migrate(running, move, loads)
        there_are = now.instances
        more = max(0, self._count() - (there_are - len(now.closed)))
        places = self.placed(running, there_are + more, now, loads)
        opened = {each: moving.open() for each in sorted({*places.values()}) if each >= there_are}
        now.placed = {name: opened.get(at, at) for name, at in places.items()}
        return now

    def _prints(self) -> dict[str, str]:
        return {name: fingerprint(query) for name, query in self.running.items()}

    def _counts(self) -> dict[str, int]:
        """How many parts queries have that are spread."""
        return {name: len(self._parts_of(name)) for name in self._spread}

    def _texts(self) -> dict[str, dict[str, Any]]:
        return {name: asdict(query.text) for name, query in self._queries.items() if query.text is not None}

    def _rest_prints(self) -> dict[str, str]:
        return {name: fingerprint(query) for name, query in self.rests.items()}

    def _manifest_budgets(self) -> dict[str, dict[str, int | None]]:
        return {name: {"memory": each.memory, "time": each.time} for name, each in self._budgets.items()}

    @contextmanager
    def undoing(self) -> Iterator[None]:
        """Where something goes wrong, have the queries that there were."""
        before = dict(self._queries), dict(self._asking), dict(self._budgets), dict(self._spread)
        try:
            yield
        except BaseException:
            self._queries, self._asking, self._budgets, self._spread = before
            self._checking.close()
            self._checking = self._made_checking()
            raise

    def _count(self) -> int:
        if self._instances is not None:
            return self._instances
        running = [*self.running.values()]
        apart = placed(running, 1 + len(running), strategy=self._placement)
        return max(1, min(self._partitions(), len(set(apart.values()))))

    def _partitions(self) -> int:
        return int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)

    def _bounded(self) -> frozenset[int]:
        """The sources that end, and are waited for."""
        return frozenset(
            number for number, each in enumerate(self._sources) if each.files is not None and not self._follow
        )

    def _sources_of(self, stream: str) -> list[int]:
        return [number for number, each in enumerate(self._sources) if each.iri == stream]

    def _keys(self, instances: int) -> list[int]:
        return keys(instances, self._partitions())

    def pipeline(self, name: str, manifest: Manifest, dataset: Dataset, checkpoint: Checkpoint) -> DataFrame:
        """What the engines of a manifest send."""
        origins = {
            int(number): self._carried(ShippedBytes((checkpoint.folder / file).read_bytes()))
            for number, file in manifest.origins.items()
        }
        folder = checkpoint.folder / "files"
        if checkpoint.is_planned and any(each.files is not None for each in self._sources):
            check_catalog_exists(folder)
        updates = Updates(checkpoint.updates) if manifest.updates else None
        return self._pipeline(
            name, manifest.placed, manifest.keys, dataset, folder, origins, manifest.again, manifest.queries, updates
        )

    def _pipeline(
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
        from pyspark.sql import functions

        from cqels.spark.operator.stateful_processor import Evaluation

        there: list[list[Query]] = [[] for _ in groups]
        queries = self._queries | self.running
        for each, at in where.items():
            there[at].append(queries[each])
        wants = {iri: tuple(self._wanted(queries, iri) for queries in there) for iri in self._streams}
        arriving = self._rows(wants, folder)
        if updates is not None:
            arriving.append(updates.rows(self._spark, sorted({*where.values()})))
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
        """What an instance wants of a stream; None if it has no queries any more."""
        if queries and self._changing and self._holds_back:
            return PushedPatterns(frozenset({ANYTHING}))
        return pushed_patterns(queries, stream) if queries else None

    @property
    def _holds_back(self) -> bool:
        """Elements may wait for others, and so for queries that come after them."""
        if len(self._bounded()) > 1 or any(each.lateness or each.idle for each in self._streams.values()):
            return True
        files = [each.files for each in self._sources if each.files is not None and not self._follow]
        return any(not Path(each.path).is_file() for each in files)

    def program(
        self,
        name: str,
        queries: Sequence[Query],
        dataset: Dataset,
        again: Mapping[str, int],
        origin: ShippedBytes | None = None,
        prints: Mapping[str, str] | None = None,
    ) -> Program:
        """What an instance runs."""
        made = Program.of(
            name,
            queries,
            self._streams.values(),
            sources=tuple([*self._streams].index(each.iri) for each in self._sources),
            again=again,
            prints=prints,
            budgets={query.name: self._budgets[query.name] for query in queries if query.name in self._budgets},
            parts=frozenset(query.name or "" for query in queries if query.name not in self._queries),
            bounded=self._bounded(),
            firsts=self._firsts,
            dataset=dataset,
            start=self._start,
            until=self._until,
            origin=origin,
            services=self._carried(ShippedBytes(write_answers(answers))) if (answers := self.answers) else None,
        )
        return replace(made, queries=self._carried(made.queries))

    def _rows(self, wants: Mapping[str, tuple[PushedPatterns | None, ...]], folder: Path | None) -> list[DataFrame]:
        rows = []
        files = []
        for number, each in enumerate(self._sources):
            wanted = wants[each.iri]
            if each.files is not None:
                files.append((number, each.files, wanted))
            elif each.rows is not None and each.lift is not None:
                rows.append(Lifting(each.iri, number, each.lift, wanted, self._strict, each.future).apply(each.rows))
        if files:
            from cqels.spark.source.file_source import file_rows
            from cqels.spark.source.file_source_settings import BATCH_BYTES, prepared

            settings = prepared(
                tuple(files),
                folder,
                batch_bytes=self._batch_bytes or BATCH_BYTES,
                tasks=self._spark.sparkContext.defaultParallelism,
                follow=self._follow,
                speed=self._speed,
                strict=self._strict,
                changed={number: each.changed for number, each in enumerate(self._sources)},
            )
            self._firsts = settings.firsts()
            rows.append(file_rows(self._spark, settings))
        return rows

    def _carried(self, carried: ShippedBytes) -> ShippedBytes:
        """Bytes on their way: many travel as a file."""
        if len(carried.content) <= LARGEST_CARRIED:
            return carried
        folder = Path(mkdtemp(prefix="cqels-"))
        file = folder / folder.name
        file.write_bytes(carried.content)
        self._spark.sparkContext.addFile(str(file))  # which is fetched as long as the session lives
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return ShippedBytes(file=file.name)

    def _check(self, query: Query) -> None:
        self._store.check_graphs(query)
        known = [*self._streams, *(name for name, each in self._queries.items() if each.form == "construct")]
        for each in sources_of(query):
            if isinstance(each.stream, NamedNode) and each.stream.value not in known:
                streams = ", ".join(f"<{iri}>" for iri in known)
                raise QueryError(
                    f"stream {each.stream} is not declared",
                    span=each.span,
                    hint=f"the streams are {streams}" if known else "app.stream(iri, rows, lift=…), or app.files(…)",
                )
        self._checking.register(query, declare=False, check_graphs=False)

    @cached_property
    def _checking(self) -> Engine:
        """An engine that refuses what engines cannot run, and has the endpoints of the others asked again."""
        return self._made_checking()

    def _made_checking(self) -> Engine:
        self._services.permissions = self._store.services.permissions
        engine = Engine(store=Store(services=self._services))
        for settings in self._streams.values():
            engine.declare(settings)
        for query in self._asking.values():
            engine.register(query, declare=False, check_graphs=False)
        return engine


def _told(settings: StreamSettings) -> dict[str, Any]:
    """The settings of a stream as a checkpoint knows them."""
    return {
        "iri": settings.iri,
        "lateness": settings.lateness,
        "idle": settings.idle,
        "arrival": settings.arrival,
    }
