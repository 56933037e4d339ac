"""A pipeline while it runs: micro-batches to sinks, and its end."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.files import SparkFiles

from cqels.ingest import Rejected, RejectLog
from cqels.model.errors import CqelsError, DataError
from cqels.plan.algebra import Query
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.failure_reason import FAULTS, failure, of_sink, one_sentence
from cqels.spark.driver.global_stages import NO_FILE, Resting, Told
from cqels.spark.driver.placement import Load
from cqels.spark.lift.row_schemas import LATE, REJECTED, REPORT, RESULTS
from cqels.spark.operator.arena_files import FOLDER
from cqels.spark.operator.engine_instance import Dataset
from cqels.spark.sink.exactly_once_file import not_written
from cqels.spark.sink.result_batch import Sent
from cqels.spark.sinks import Lasting
from cqels.store.service import same_solutions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming import StreamingQuery

    from cqels.spark.driver.app import App
    from cqels.spark.driver.metrics import Metrics
    from cqels.spark.rejects import Rejects
    from cqels.spark.sinks import Sink

_LOG = logging.getLogger("cqels")
_TICK = 0.2
"""Seconds between looks at whether a pipeline still runs."""
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
        *,
        ends: bool,
        paced: bool,
        strict: bool,
        temporary: bool,
    ) -> None:
        self._app = app
        self._queries, self._parts = {query.name or "": query for query in app.queries}, app.parts
        self._rests: dict[str, Resting] = {}
        self._lasts = checkpoint.lasts
        self._checkpoint, self._manifest = checkpoint, manifest
        self._sinks, self._rejects, self.metrics = tuple(sinks), rejects, metrics
        self._unseen = RejectLog()
        self._ends, self._paced, self._strict, self._temporary = ends, paced, strict, temporary
        self._ended: set[int] = set()
        self._all_ended, self._done = Event(), Event()
        self._working, self._delivering, self._changing, self._telling = Lock(), Lock(), Lock(), Lock()
        self._delivered = -1
        if manifest.ended:
            self._all_ended.set()
        self._closed = self._paused = self._refused = False
        self._fault: Exception | None = None
        """What ended the run, as far as it is known here."""
        self._begun: dict[int, int] = {}
        """Instances, and the first micro-batches that they told of."""
        self._loads: dict[int, Load] = {}
        self._updates = Updates(checkpoint.updates) if manifest.updates else None
        self._answers = {} if self._updates is None else self._updates.answers()
        """What engines were told that endpoints answer, behind what they began with."""
        self._on_way: dict[str, int] = {}
        """Those of them that engines have not read yet, by the numbers of the updates."""
        self._read: list[int] = []
        """The updates of the last micro-batch."""
        self._dataset, self._trigger = Dataset(), ""
        self._query: StreamingQuery | None = None
        self.name = uuid4().hex
        """What the engines of this run are known by."""
        self._unheard: Callable[[], None] = lambda: None

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
            sink.open(tuple(self._queries.values()), run=self._manifest.id)
        if self._rejects is not None:
            self._rejects.open(run=self._manifest.id)
        self._note_outputs()
        for reason in self._manifest.stopped.values():
            _LOG.warning("%s", reason)
        if not self._manifest.finished:
            self._checkpoint.tidy()
            self._tell_answers()
            self._go()
            self._ask_again()

    def _note_outputs(self) -> None:
        """Write down where results are, so that a later run knows if they are gone."""
        lasting = [each for each in (*self._sinks, self._rejects) if isinstance(each, Lasting)]
        places = [f"{path.absolute()}" for each in lasting for path in each.places([*self._queries.values()])]
        if {*places} - {*self._manifest.outputs}:
            self._manifest.outputs = sorted({*self._manifest.outputs, *places})
            self._checkpoint.write(self._manifest)

    def _go(self) -> None:
        """Let Spark run what the manifest says."""
        self._have_rests()
        frame = self._app.pipeline(self.name, self._manifest, self._dataset, self._checkpoint)
        self._query = (
            frame.writeStream.foreachBatch(self._deliver)
            .queryName(f"cqels: {', '.join(self._manifest.placed)}"[:200])
            .option("checkpointLocation", self._checkpoint.spark)
            .trigger(processingTime=self._trigger)
            .start()
        )
        if self.metrics is not None:
            self._unheard()
            self._unheard = self.metrics.listen(frame.sparkSession, str(self._query.id))
        if self._ends:
            Thread(target=self._wait_for_all, args=[self._query], daemon=True).start()

    def _have_rests(self) -> None:
        """Have what is computed of the changes that parts tell."""
        before, self._rests = self._rests, {}
        parts = {whole: part for part, whole in self._app.parts.items()}
        for name, rest in self._app.rests.items():
            folder = self._checkpoint.rest(parts[name], self._manifest.again.get(parts[name], 0))
            known = before.get(name)
            if known is None or known.folder != folder:
                last = self._lasts.read().get(folder.name, NO_FILE)
                known = Resting(self._queries[name], rest, folder, last=last)
            self._rests[name] = known
        for each in before.values():
            if each not in self._rests.values():
                each.close()
        self._checkpoint.forget_rests([each.folder for each in self._rests.values()])

    # ------------------------------------------------------------ endpoints

    @property
    def services(self) -> list[dict[str, str]]:
        """What queries ask of endpoints: how often, when they last were asked, with how many rows, and failures."""
        return self._app.services

    def _ask_again(self) -> None:
        """Have endpoints asked from time to time, by threads of their own: no stream waits for them."""
        if self._updates is not None:
            self._app.ask_again(self._tell_answers)
        elif self._app.services:
            _LOG.warning("the checkpoint was made by a release that asked endpoints once: they are not asked again")

    def _tell_answers(self) -> None:
        """Let engines know the answers that have other solutions than what they were told.

        If one is on its way, the next waits for the next time: engines that are slow do not get more and more.
        """
        with self._telling:
            if self._updates is None or self._closed:
                return
            known = self._app.answers | self._answers
            for key, table in self._app.fresh_answers().items():
                if key in self._on_way or same_solutions(known[key], table):
                    continue
                try:
                    self._on_way[key] = self._updates.answer(key, table)
                except OSError as error:
                    _LOG.warning(
                        "%s; it is tried again when endpoints are asked again", not_written(self._updates.folder, error)
                    )
                    return
                self._answers[key] = table
                _LOG.info("an endpoint has other solutions, %s of them: they go to the engines", f"{len(table.rows):,}")

    # ------------------------------------------------------------ queries that come, go and move

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

        One that is added sees what comes from then on; it may have a budget or be spread (`App.add`), and the parts of
        one that is can be moved (`placed` has their names).  What one that is dropped has
        sent stays.  One that is moved goes on with all it knows, and loses and repeats nothing: on a new instance,
        where Spark works off the rows of the one that is named, or where there is least to do.  Queries that read what
        it makes move with it.
        """
        with self._changing:
            if self._closed or self._query is None:
                raise CqelsError("the application does not run", hint="change its queries, then run it")
            if self._manifest.ended:
                raise CqelsError("all streams have ended: there is nothing left that a query could see")
            before, waits = [*self._app.running.values()], False
            try:
                with self._app.undoing():
                    dropped = [part for name in drop for part in self._app.drop(name)]
                    added = [self._app.add(each, memory=memory, time=time, spread=spread) for each in add]
                    self._app.check_change(self._manifest)
                    self._pause()
                    waits = True
                    self._change(added, dropped, dict(move or {}), before)
                    self._tell_answers()
            finally:
                if waits:
                    try:
                        self._go()
                    finally:
                        self._paused = self._refused = False
            return added

    def _change(
        self, added: list[Query], dropped: list[str], move: dict[str, int | None], before: Sequence[Query]
    ) -> None:
        """Write down what runs from now on; nothing does meanwhile."""
        manifest = self._app.changed(
            self._manifest, before, dropped, move, self._loads, self._dataset, self._checkpoint
        )
        for sink in self._sinks:
            sink.open(added, run=manifest.id)
        self._app.keep_answers(self._checkpoint, manifest)
        self._checkpoint.write(manifest)
        self._queries |= {query.name or "": query for query in added}
        self._parts |= self._app.parts
        self._loads = {each: load for each, load in self._loads.items() if each not in manifest.closed}
        if self.metrics is not None:
            self.metrics.keep({manifest.keys[each] for each in manifest.placed.values()})
        self._manifest = manifest
        self._note_outputs()

    def _pause(self) -> None:
        """Wait for the end of the micro-batch that is being worked off; no other begins."""
        assert self._query is not None
        self._paused = True
        with self._working:
            failed = not self._is_active and not self._refused
        if failed:
            self._paused = False
            raise CqelsError("the application has failed", hint="wait() tells why")
        self._settle()
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

        A micro-batch that is being delivered is, and is done; one that is being computed is left for the next run.
        """
        with self._changing, self._delivering:
            if self._closed:
                return
            self._closed = True
        with one_sentence():
            self._end()

    def _end(self) -> None:
        if self._updates is not None:
            with self._telling:  # what is being told is written
                self._app.ask_no_more()
        try:
            self._halt()
        finally:
            for sink in self._sinks:
                sink.close()
            if self._rejects is not None:
                self._rejects.close()
            self._unseen.close()
            if self.metrics is not None:
                self._unheard()
                self.metrics.close()
            with self._working:  # a micro-batch that nobody waits for any more may still be worked off
                for each in self._rests.values():
                    each.close()
            if self._temporary:
                shutil.rmtree(self._checkpoint.folder, ignore_errors=True)
            elif self._manifest.finished:
                self._checkpoint.write(self._manifest)
            self._checkpoint.unlock()

    def _halt(self) -> None:
        if self._query is None:
            return
        failed = not self._is_active
        with suppress(*FAULTS):  # Java may have ended; engines on other machines go with their executors
            self._settle()
            self._query.stop()
            if failed and self._fault is None:
                self._fault = self._query.exception()
            for memory in Path(SparkFiles.getRootDirectory()).glob(f"{FOLDER}/{self.name}-*"):
                memory.unlink(missing_ok=True)
        if self._fault is not None:
            self._manifest.finished = False
            if (told := failure(self._fault)) is self._fault:
                raise told
            raise told from self._fault

    def _settle(self) -> None:
        """Wait until what was delivered is written down as done, so that it is not delivered again."""
        assert self._query is not None
        limit = monotonic() + _LONGEST_COMMIT
        while self._is_active and not self._checkpoint.is_done(self._delivered) and monotonic() < limit:
            sleep(_TICK / 10)

    def _wait_for_all(self, query: StreamingQuery) -> None:
        """Notice when all that there is has been read, and Spark has written down that it was."""
        with suppress(Exception):  # what ended the query is told there
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
                self._work_off(frame, batch)
            except Exception as error:
                self._note_fault(batch, error)
                raise

    def _note_fault(self, batch: int, error: Exception) -> None:
        """Have what ends the run for whoever waits, and in the log for others; not if it is stopped anyway."""
        if not self._closed:
            self._fault = error
            _LOG.error("micro-batch %d ended the run: %s", batch, failure(error))

    def _work_off(self, frame: DataFrame, batch: int) -> None:
        began = monotonic()
        rows = frame.collect()
        reports = [json.loads(row.text) for row in rows if row.kind == REPORT]
        sent = self._sent(batch, rows, reports)
        rejected = rejected_in(rows)
        if rejected and self._strict:
            raise DataError(str(rejected[0]), hint="without strict such input is counted, reported and left out")
        with self._delivering:
            if self._closed:
                raise Stopped
            for sink in self._sinks:
                with of_sink(sink):
                    sink.write(batch, sent)
            if self._rejects is not None:
                self._rejects.write(batch, rejected)
            else:
                for each in rejected:
                    self._unseen(each)
            self._delivered = batch
        if self.metrics is not None:
            self.metrics.add(batch, self._counted(reports, sent), monotonic() - began)
        self._note_stopped(reports)
        self._note(batch, {self._numbers[report["instance"]]: report for report in reports})

    def _sent(self, batch: int, rows: Iterable[Row], reports: Sequence[Mapping[str, Any]]) -> dict[str, Sent]:
        """The results of queries, those of their parts merged."""
        found: dict[str, list[Row]] = {}
        for row in sorted((row for row in rows if row.kind == RESULTS), key=lambda row: row.number):
            found.setdefault(self._parts.get(row.query, row.query), []).append(row)
        before = Counter[str]()
        for report in reports:
            for part, number in report["sent"].items():
                before[self._parts[part]] += number
        began = {part: number for report in reports for part, number in report["began"].items()}
        sent = {}
        for name, rest in self._rests.items():
            told: dict[str, list[bytes]] = {}
            for row in found.pop(name, []):
                told.setdefault(row.query, []).append(bytes(row.payload))
            merged = rest.work_off(batch, [Told(told[part], began[part]) for part in told])
            if merged is not None:
                sent[name] = merged
        if self._rests:
            self._lasts.write({each.folder.name: each.last for each in self._rests.values()})
        for name, mine in found.items():
            read = Sent.read(self._queries[name], mine[0].number, [bytes(row.payload) for row in mine])
            sent[name] = read if mine[0].query == name else read.merged(before[name])
        return sent

    def _counted(self, reports: Sequence[dict[str, Any]], sent: Mapping[str, Sent]) -> Sequence[dict[str, Any]]:
        """The reports with the results of rests, and not what parts told these."""
        if not self._rests or not reports:
            return reports
        counted = []
        for report in reports:
            queries = {
                name: counts | {"out": 0} if self._parts.get(name) in self._rests else counts
                for name, counts in report["queries"].items()
            }
            counted.append(report | {"queries": queries})
        for name in self._rests:
            counted[0]["queries"][name] = {"in": 0, "out": len(sent[name]) if name in sent else 0}
        return counted

    def _note(self, batch: int, reports: Mapping[int, Mapping[str, Any]]) -> None:
        """What instances say of themselves, once a micro-batch is delivered."""
        for number, report in reports.items():
            before = self._loads.get(number)
            seconds = report["seconds"] if before is None else 0.8 * before.seconds + 0.2 * report["seconds"]
            self._loads[number] = Load(report["state_bytes"], seconds)
            self._begun.setdefault(number, batch)
            if report["ended"]:
                self._ended.add(number)
        self._note_updates({number for report in reports.values() for number in report["updates"]})
        done = {each for each, first in self._begun.items() if first < batch}
        self._checkpoint.forget(self._manifest, done | self._manifest.closed)
        if self._ended >= {*self._manifest.placed.values()} and not self._all_ended.is_set():
            self._manifest.ended = True  # a later run has no micro-batch that says so, if this one is killed now
            self._checkpoint.write(self._manifest)
            self._all_ended.set()

    def _note_updates(self, read: Collection[int]) -> None:
        """What engines have read is not on its way; what they had read before this micro-batch is not repeated."""
        with self._telling:
            self._on_way = {key: number for key, number in self._on_way.items() if number not in read}
        if self._updates is not None and self._read:
            self._updates.forget(max(self._read))
        self._read = sorted(read)

    @property
    def _numbers(self) -> dict[int, int]:
        """Those of the instances, by the keys of their state."""
        return {key: number for number, key in enumerate(self._manifest.keys)}

    def _note_stopped(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Tell once of each query that took more than its budget; a later run knows it too.

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


def rejected_in(rows: Iterable[Row]) -> list[Rejected]:
    """What is malformed, and what is late: of that every engine tells, and the words of one are enough.

    Each has only the triples that its queries want: the one is taken that has most.
    """
    found: list[Row] = []
    late: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for row in rows:
        if row.kind == REJECTED:
            found.append(row)
        elif row.kind == LATE:
            late.setdefault((row.place, row.reason), {}).setdefault(row.instance, []).append(row)
    for told in late.values():
        for same in zip_longest(*told.values()):
            found.append(max((row for row in same if row is not None), key=lambda row: len(row.text or "")))
    return [Rejected(row.query or "", row.place or "", row.reason or "", row.text or "") for row in found]
