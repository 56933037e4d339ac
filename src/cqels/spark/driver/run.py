"""A run of a pipeline, on the driver: starts the query of Spark, delivers micro-batches to the sinks, and ends it."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.files import SparkFiles

from cqels.ingest import RejectLog, StreamSettings
from cqels.model.errors import CqelsError, DataError
from cqels.pipeline.instance.program import Dataset
from cqels.pipeline.lift.row_schemas import REPORT, SENT_COLUMNS
from cqels.pipeline.sink.fan_out import separate
from cqels.pipeline.sink.sink_protocol import DeliveryStopped, Refusing, Waiting
from cqels.plan.algebra import Query
from cqels.spark.driver.batch_results import BatchResults, rejected_in
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.dataset_changes import DatasetChanges, KeptDataset
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.driver_instance import DriverInstance
from cqels.spark.driver.endpoint_answers import EndpointAnswers
from cqels.spark.driver.failure_reason import FAULTS, failure, of_sink, one_sentence
from cqels.spark.driver.placement import Load
from cqels.spark.operator.arena_files import FOLDER
from cqels.spark.session.spark_session import partitioned
from cqels.spark.sink.task_output import TaskSinks
from cqels.spark.sinks import Lasting
from cqels.store.dataset import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming import StreamingQuery

    from cqels.pipeline.sink.reject_files import Rejects
    from cqels.spark.driver.app import App
    from cqels.spark.driver.metrics import Metrics
    from cqels.spark.driver.receivers import Receivers
    from cqels.spark.driver.run_clock import RunClock
    from cqels.spark.driver.served_app import ServedApp
    from cqels.spark.sinks import Sink

_LOG = logging.getLogger("cqels")
_TICK = 0.2
"""Seconds between looks at whether a pipeline still runs."""
_LOOK = 1.0
"""Seconds between looks at watched files."""
_LONGEST_COMMIT = 10.0
"""Seconds that Spark has to write down that a delivered micro-batch was the last one."""


class Stopped(Exception):
    """A micro-batch that is not delivered any more: whoever goes on from the checkpoint repeats it."""


class Run:
    """One run of an application. `wait` for its end, or `stop` it; a checkpoint goes on from where it was."""

    def __init__(
        self,
        app: App,
        checkpoint: Checkpoint,
        manifest: Manifest,
        sinks: Sequence[Sink],
        rejects: Rejects | None,
        metrics: Metrics | None,
        clock: RunClock | None = None,
        receivers: Receivers | None = None,
        *,
        ends: bool,
        paced: bool,
        strict: bool,
        temporary: bool,
        served: ServedApp | None = None,
    ) -> None:
        """Where it is `served`, streams and queries come and go by commands."""
        self._app, self._served = app, served
        self._results = BatchResults(app, checkpoint)
        self._checkpoint, self._manifest = checkpoint, manifest
        self._sinks, self._rejects, self.metrics = separate(sinks), rejects, metrics
        self._task_sinks = TaskSinks(self._sinks)
        self._reject_log = RejectLog()
        self._ends, self._paced, self._strict, self._temporary = ends, paced, strict, temporary
        self._ended: set[int] = set()
        self._all_ended, self._done, self._stopping = Event(), Event(), Event()
        self._working, self._delivering, self._changing = Lock(), Lock(), Lock()
        self._delivered = -1
        if manifest.ended:
            self._all_ended.set()
        self._closed = self._delivery_stopped = self._paused = self._refused = False
        self._fault: Exception | None = None
        """What ended the run, as far as it is known here."""
        self._begun: dict[int, int] = {}
        """Instances, and the first micro-batches that they reported."""
        self._loads: dict[int, Load] = {}
        self.updates = updates = Updates(checkpoint.updates) if manifest.updates else None
        self._endpoints = EndpointAnswers(app, updates, lambda: self._closed)
        kept = None if updates is None else KeptDataset(checkpoint.datasets, updates)
        self._changes = DatasetChanges(lambda: app.store, kept, updates)
        self._clock, self._receivers = clock, receivers
        self._dataset, self._trigger = Dataset(), ""
        self._query: StreamingQuery | None = None
        self._instance: DriverInstance | None = None
        """The engine instance, where the latency is low."""
        self.name = uuid4().hex
        """What the engines of this run are known by."""
        self._stop_listening: Callable[[], None] = lambda: None

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's own; None if there was nothing left to do."""
        return self._query

    @property
    def stopped(self) -> dict[str, str]:
        """The queries that were stopped because they took more than their budgets, and the reasons."""
        return dict(self._manifest.stopped)

    def start(self, dataset: Dataset, trigger: str) -> None:
        self._dataset, self._trigger = dataset, trigger
        for sink in self._sinks:
            sink.open(tuple(self._results.queries.values()), run=self._manifest.id)
        if self._rejects is not None:
            self._rejects.open(run=self._manifest.id)
        self._note_outputs()
        for reason in self._manifest.stopped.values():
            _LOG.warning("%s", reason)
        if not self._manifest.finished:
            self._checkpoint.tidy()
            self._endpoints.send()
            if self._receivers is not None:
                self._receivers.open(self._source_failed)
            self._start_query()
            self._endpoints.ask_again()
            if self._served is None:
                self.start_clock()
            if self._app.watched.files:
                Thread(target=self._watch, daemon=True, name="cqels-data").start()

    def start_clock(self) -> None:
        """Let time go on by the wall clock, where streams follow it: the engines know all of these."""
        if self._clock is not None:
            self._clock.start(lambda: self._has_read_all)

    def _source_failed(self, error: CqelsError) -> None:
        """A source cannot go on: that ends the run."""
        self._fault = self._fault or error

    def _note_outputs(self) -> None:
        """Write down where results are, so that a later run knows if they are gone."""
        lasting = [each for each in (*self._sinks, self._rejects) if isinstance(each, Lasting)]
        places = [f"{path.absolute()}" for each in lasting for path in each.places([*self._results.queries.values()])]
        if {*places} - {*self._manifest.outputs}:
            self._manifest.outputs = sorted({*self._manifest.outputs, *places})
            self._checkpoint.write(self._manifest)

    def _start_query(self) -> None:
        """Start the streaming query of Spark that the manifest describes."""
        self._results.open_stages(self._manifest)
        frame = self._frame()
        self._checkpoint.discard_incomplete()
        with partitioned(frame.sparkSession, self._manifest.partitions):
            self._query = (
                frame.writeStream.foreachBatch(self._deliver)
                .queryName(f"cqels: {', '.join(self._manifest.placed)}"[:200])
                .option("checkpointLocation", self._checkpoint.spark)
                .trigger(processingTime=self._trigger)
                .start()
            )
        if self._clock is not None:
            self._clock.set_queries(self._app.queries)
        if self.metrics is not None:
            self._stop_listening()
            self._stop_listening = self.metrics.listen(frame.sparkSession, str(self._query.id))
        if self._ends:
            Thread(target=self._wait_for_all, args=[self._query], daemon=True).start()

    def _frame(self) -> DataFrame:
        """The rows that the engines send; or where the latency is low, those that arrive at the one in this process."""
        known = self.name, self._manifest, self._dataset, self._checkpoint
        if self._manifest.latency == "normal":
            return self._app.pipeline(*known)
        frame, program, liftings = self._app.in_driver(*known)
        if self._instance is not None:
            self._instance.close()
        self._instance = DriverInstance(self._checkpoint.instance, program, self._manifest.keys[0], liftings)
        self._instance.open(self._checkpoint.done)
        return frame

    # ------------------------------------------------------------ endpoints

    @property
    def services(self) -> list[dict[str, str]]:
        """What queries ask of endpoints: how often, when they last were asked, with how many rows, and failures."""
        return self._app.services

    # ------------------------------------------------------------ change of the dataset

    def update(self, change: str | Callable[[Store], Any]) -> bool:
        """Change the dataset while it runs: by a SPARQL Update, or by a function of the store.

        All engine instances apply it behind a micro-batch, the same one whenever that is repeated, and queries that
        read what has changed have a tick.  After the return it survives a crash.  False if it changes nothing.
        """
        if self._closed or self._query is None:
            raise CqelsError("the application does not run", hint="change its data with app.update(…), then run it")
        if self._manifest.ended:
            raise CqelsError("all streams have ended: there is nothing left that a change could be seen by")
        return self._changes.update(change, lambda: self._dataset)

    def _watch(self) -> None:
        """Look at watched files from time to time."""
        while not self._stopping.wait(_LOOK):
            if not self._paused:
                self.look_at_data()

    def look_at_data(self) -> None:
        """Look at watched files, and make an update of what has changed in them."""
        for change in self._app.watched.changes():
            try:
                self.update(change.apply)
                change.keep()
            except (CqelsError, OSError) as error:
                self._app.watched.read_again(change.file)
                if not self._closed:
                    _LOG.warning("a change of %s was not taken, and is tried again: %s", change.file.path, error)

    # ------------------------------------------------------------ what commands add

    def take_up(self, query: Query, *, again: bool = False) -> None:
        """Be ready for the results of a query that commands register, or have registered before this run."""
        if again:
            self._results.know(query)
            return  # sinks are opened with all others
        with self._working:  # no sink is written to meanwhile
            self._results.know(query)
            for sink in self._sinks:
                sink.open([query], run=self._manifest.id)
            self._note_outputs()
        self._endpoints.send()  # the engines have the answers when the query comes
        self._endpoints.ask_again()

    def take_up_stream(self, settings: StreamSettings) -> None:
        """Let a stream follow the wall clock that the engines know now."""
        if self._clock is not None:
            self._clock.add(settings)

    def note_queries(self, gone: Collection[str]) -> None:
        """Queries have come or gone, and with these the reasons why they were stopped."""
        if self._clock is not None:
            self._clock.set_queries(self._app.queries)
        with self._working:
            stopped = {name: reason for name, reason in self._manifest.stopped.items() if name not in gone}
            if stopped != self._manifest.stopped:
                self._manifest.stopped = stopped
                self._checkpoint.write(self._manifest)

    def forget_replaced(self) -> None:
        """Queries that are gone have sent all that they will."""
        with self._working:
            self._results.forget_replaced()

    @property
    def instances(self) -> int:
        return self._manifest.instances

    @property
    def is_running(self) -> bool:
        """It was started, and has not ended."""
        return not self._closed and self._query is not None and self._runs()

    def explain(self, name: str, format: str) -> str:
        """The plan of a query; what it has done is known where the engine is in this process."""
        if self._instance is None:
            return self._app.explain(name, format)
        with self._working:
            return self._instance.explain(name, format)

    def snapshot(self) -> None:
        """Have a snapshot on the disk of an engine that is in this process; the state of others is there anyway."""
        if self._instance is not None:
            with self._working:
                self._instance.snapshot()

    # ------------------------------------------------------------ change of queries

    @property
    def placed(self) -> dict[str, int]:
        """The queries, and the instances that they run on."""
        return dict(self._manifest.placed)

    @property
    def loads(self) -> dict[int, Load]:
        """What the instances had to do lately."""
        return dict(self._loads)

    def change(
        self,
        *,
        add: Iterable[str | os.PathLike[str] | Query] = (),
        drop: Iterable[str] = (),
        move: Mapping[str, int | None] | None = None,
        memory: int | str | None = None,
        time: int | str | None = None,
        spread: bool | None = False,
    ) -> list[Query]:
        """Change the queries between two micro-batches: those that were added, with their names.

        A query that is added sees what comes from then on; it may have a budget, or be partitioned with `spread`
        (`App.add`), and then its parts can be moved (`placed` has their names).  What a dropped query has sent stays.
        A query that is moved is migrated with all its state, and loses and repeats nothing: to a new instance, in the
        partition of the instance that is named, or where the load is least.  Queries that read what it makes move with
        it.
        """
        with self._changing:
            if self._closed or self._query is None:
                raise CqelsError("the application does not run", hint="change its queries, then run it")
            if self._served is not None:
                raise CqelsError("the queries of a service come and go by its own requests")
            if self._manifest.ended:
                raise CqelsError("all streams have ended: there is nothing left that a query could see")
            if move and self._instance is not None:
                raise CqelsError("the low-latency mode has one engine instance, so nothing can be moved")
            before, waits = [*self._app.running.values()], False
            try:
                with self._app.undoing():
                    dropped = [part for name in drop for part in self._app.drop(name)]
                    added = [self._app.add(each, memory=memory, time=time, spread=spread) for each in add]
                    self._app.check_change(self._manifest)
                    self._pause()
                    waits = True
                    self._change(added, dropped, dict(move or {}), before)
                    self._endpoints.send()
            finally:
                if waits:
                    try:
                        self._start_query()
                    finally:
                        self._paused = self._refused = False
            return added

    def _change(
        self, added: list[Query], dropped: list[str], move: dict[str, int | None], before: Sequence[Query]
    ) -> None:
        """Write the manifest of what runs from now on, while the pipeline is paused."""
        manifest = self._app.changed(
            self._manifest, before, dropped, move, self._loads, self._dataset, self._checkpoint
        )
        for sink in self._sinks:
            sink.open(added, run=manifest.id)
        self._app.keep_answers(self._checkpoint, manifest)
        self._checkpoint.write(manifest)
        self._results.add(added)
        self._loads = {each: load for each, load in self._loads.items() if each not in manifest.closed}
        if self.metrics is not None:
            self.metrics.keep({manifest.keys[each] for each in manifest.placed.values()})
        self._manifest = manifest
        self._note_outputs()

    def _pause(self) -> None:
        """Wait for the end of the current micro-batch; no other begins."""
        assert self._query is not None
        self._paused = True
        with self._working:
            failed = not self._is_active and not self._refused
        if failed:
            self._paused = False
            raise CqelsError("the application has failed", hint="wait() tells why")
        self._await_commit()
        self._query.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, which streams that do not end do not have; False if it has not come in that many seconds.

        An error that ended the run is raised.
        """
        limit = None if timeout is None else monotonic() + timeout
        while self._runs() and not self._done.is_set():
            if limit is not None and monotonic() >= limit:
                return False
            self._done.wait(_TICK)
        self._manifest.finished |= self._done.is_set()
        self.stop()
        return True

    def _runs(self) -> bool:
        return self._paused or self._is_active

    @property
    def _is_active(self) -> bool:
        """Spark runs it; Java may have ended."""
        try:
            return self._query is not None and self._fault is None and bool(self._query.isActive)
        except FAULTS as error:
            self._fault = self._fault or error
            return False

    def stop(self) -> None:
        """End the run, whatever has been read.

        A micro-batch that is being delivered is, and is done, unless a sink waits for a server that does not answer;
        one that is being computed is left for the next run.
        """
        for sink in self._sinks:
            if isinstance(sink, Waiting):
                sink.stop_waiting()
        with self._changing, self._delivering:
            if self._closed:
                return
            self._closed = True
        with one_sentence():
            self._end()

    @property
    def _has_read_all(self) -> bool:
        """Spark found nothing more to read when it last looked."""
        if self._served is not None and not self._served.has_read_all:
            return False
        try:
            return self._query is not None and not self._paused and not self._query.status["isDataAvailable"]
        except FAULTS:  # Java may have ended
            return False

    def _end(self) -> None:
        self._stopping.set()
        self._endpoints.close()
        if self._clock is not None:
            self._clock.close()
        try:
            self._halt()
        finally:
            if self._receivers is not None:
                self._receivers.close()
            for sink in self._sinks:
                sink.close()
            if self._rejects is not None:
                self._rejects.close()
            self._reject_log.close()
            if self.metrics is not None:
                self._stop_listening()
                self.metrics.close()
            with self._working:  # a micro-batch that nobody waits for any more may still be processed
                self._results.close()
                if self._instance is not None:
                    self._instance.close()
            if self._temporary:
                shutil.rmtree(self._checkpoint.folder, ignore_errors=True)
            elif self._manifest.finished:
                self._checkpoint.write(self._manifest)
            self._checkpoint.unlock()

    def _halt(self) -> None:
        if self._query is None:
            return
        failed = not self._is_active and not self._delivery_stopped
        with suppress(*FAULTS):  # Java may have ended; engines on other machines go with their executors
            self._await_commit()
            self._query.stop()
            if failed and self._fault is None:
                self._fault = self._query.exception()
            for memory in Path(SparkFiles.getRootDirectory()).glob(f"{FOLDER}/{self.name}-*"):
                memory.unlink(missing_ok=True)
        if self._fault is not None:
            self._manifest.finished = False
            if (reason := failure(self._fault)) is self._fault:
                raise reason
            raise reason from self._fault

    def _await_commit(self) -> None:
        """Wait until Spark has committed what was delivered, so that it is not delivered again."""
        assert self._query is not None
        limit = monotonic() + _LONGEST_COMMIT
        while self._is_active and not self._checkpoint.is_done(self._delivered) and monotonic() < limit:
            sleep(_TICK / 10)

    def _wait_for_all(self, query: StreamingQuery) -> None:
        """Notice when all that there is has been read, and Spark has written down that it was."""
        with suppress(Exception):  # what ended the query is reported by `_halt`
            while self._receivers is not None and not self._receivers.have_ended and query.isActive:
                sleep(_TICK)
            while self._paced and not self._all_ended.wait(_TICK) and query.isActive:
                pass
            query.processAllAvailable()
            if query is self._query and not self._paused:
                self._done.set()

    # ------------------------------------------------------------ a micro-batch

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        with self._working:
            if self._paused:
                self._refused = True
                raise Stopped
            try:
                self._process(frame, batch)
            except Exception as error:
                self._note_fault(batch, error)
                raise

    def _note_fault(self, batch: int, error: Exception) -> None:
        """Keep the error that ends the run for `wait`, and log it; not if it is that the run is being stopped."""
        if isinstance(error, DeliveryStopped):
            self._delivery_stopped = True
        elif not self._closed:
            self._fault = error
            _LOG.error("micro-batch %d ended the run: %s", batch, failure(error))

    def _process(self, frame: DataFrame, batch: int) -> None:
        began = monotonic()
        whole = self._results.whole if self._instance is None else {}
        rows = self._sent_rows(frame, batch, whole)
        reports = [json.loads(row.text) for row in rows if row.kind == REPORT]
        sent = self._results.read(batch, rows, reports)
        rejected = rejected_in(rows)
        if rejected and self._strict:
            raise DataError(str(rejected[0]), hint="without strict such input is counted, reported and left out")
        with self._delivering:
            if self._closed:
                raise Stopped
            for sink in self._sinks:
                with of_sink(sink):
                    sink.write(batch, self._task_sinks.left(sink, sent, whole))
            self._task_sinks.commit(batch, rows)
            rejected += [each for sink in self._sinks if isinstance(sink, Refusing) for each in sink.take_refused()]
            if self._rejects is not None:
                self._rejects.write(batch, rejected)
            else:
                for each in rejected:
                    self._reject_log(each)
            self._delivered = batch
        if self.metrics is not None:
            self.metrics.add(batch, self._results.counted(reports, sent), monotonic() - began)
        self._note_stopped(reports)
        self._note_reports(batch, {self._numbers[report["instance"]]: report for report in reports})

    def _sent_rows(self, frame: DataFrame, batch: int, whole: Mapping[str, Query]) -> list[Row]:
        """What the engines send in a micro-batch, without the results of the `whole` queries that tasks write."""
        if self._instance is not None:
            return self._instance.rows(frame, batch)
        output = self._task_sinks.output(batch, whole)
        rows: list[Row] = (frame if output is None else frame.mapInArrow(output, SENT_COLUMNS)).collect()
        return rows

    def _note_reports(self, batch: int, reports: Mapping[int, Mapping[str, Any]]) -> None:
        """Take in the reports of instances, once a micro-batch is delivered."""
        for number, report in reports.items():
            before = self._loads.get(number)
            seconds = report["seconds"] if before is None else 0.8 * before.seconds + 0.2 * report["seconds"]
            self._loads[number] = Load(report["state_bytes"], seconds)
            self._begun.setdefault(number, batch)
            if report["ended"]:
                self._ended.add(number)
        if self._clock is not None:
            self._clock.observe(report["latest"] for report in reports.values())
        read = {number for report in reports.values() for number in report["updates"]}
        self._endpoints.note_read(read)
        self._changes.note_read(read)
        if self._served is not None:
            self._served.note(batch, read, [*reports.values()])
        done = {each for each, first in self._begun.items() if first < batch}
        self._checkpoint.forget(self._manifest, done | self._manifest.closed)
        if self._served is None and self._ended >= {*self._manifest.placed.values()} and not self._all_ended.is_set():
            self._manifest.ended = True  # a later run has no micro-batch that says so, if this one is killed now
            self._checkpoint.write(self._manifest)
            self._all_ended.set()

    @property
    def _numbers(self) -> dict[int, int]:
        """Those of the instances, by the keys of their state."""
        return {key: number for number, key in enumerate(self._manifest.keys)}

    def _note_stopped(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Log each query that took more than its budget once; a later run knows it too.

        What counts is what an engine says last: a micro-batch that is repeated may take less time.
        """
        manifest, running = self._manifest, {name for report in reports for name in report["queries"]}
        before = manifest.stopped
        manifest.stopped = {name: reason for name, reason in before.items() if name not in running}
        for report in reports:
            manifest.stopped |= report["stopped"]
        if manifest.stopped != before:
            self._checkpoint.write(manifest)
        for name, reason in manifest.stopped.items():
            if name not in before:
                _LOG.warning("%s", reason)
