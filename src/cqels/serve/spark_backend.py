"""The run of a service on Spark: an application that is served (`cqels.spark.driver.served_app`) as a `Backend`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

from cqels.engine.budgets import Budget
from cqels.ingest import Tally
from cqels.live.change_requests import has_ended
from cqels.live.live_run import LiveSettings, PushedStream
from cqels.live.run_measures import BatchDone, Measures
from cqels.model.errors import CqelsError
from cqels.model.time import MILLISECOND, SECOND
from cqels.options import AppOptions
from cqels.pipeline.lift.block_format import elements_of
from cqels.pipeline.sink.sink_protocol import Sink
from cqels.pipeline.source.inbox import Inbox
from cqels.pipeline.source.live_source import Message
from cqels.plan.algebra import Query
from cqels.serve.backend import Backend, MakeBackend, Pipeline
from cqels.serve.spark_measures import SparkMeasures
from cqels.spark.driver.app import App
from cqels.spark.driver.metrics import Metrics
from cqels.spark.driver.served_app import PushedTo, ServedApp
from cqels.store.dataset import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqels.spark.driver.run import Run


def on_spark(
    session: SparkSession | Callable[[], SparkSession],
    options: AppOptions | None = None,
    *,
    metrics: Metrics | None = None,
) -> MakeBackend:
    """What makes the runs of services on Spark: in a session, or in one that is made when it is needed.

    `options` are the instances, their placement and the latency; how sources are read, and the state, is said to the
    service.
    """

    def make(pipeline: Pipeline, state: Path, pushed: Sequence[PushedStream], sinks: Sequence[Sink]) -> Backend:
        return SparkBackend(session, pipeline, state, pushed, sinks, options=options, metrics=metrics)

    return make


class SparkBackend:
    """A run on Spark, from `start` to `stop`; any thread may change it, and waits for a micro-batch."""

    def __init__(
        self,
        session: SparkSession | Callable[[], SparkSession],
        pipeline: Pipeline,
        state: Path,
        pushed: Sequence[PushedStream],
        sinks: Sequence[Sink],
        *,
        options: AppOptions | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._session, self._pipeline, self._state = session, pipeline, state
        self._pushed, self._sinks = {each.settings.iri: each for each in pushed}, tuple(sinks)
        self._options = options or AppOptions()
        self._settings = pipeline.settings or LiveSettings()
        self.tally = Tally()
        self._metrics = metrics or Metrics()
        self._metrics.watchers.append(self._count)
        self._app = self._application()
        self._measuring = SparkMeasures()
        self._served = ServedApp(self._app, has_ended, self._note_delivered)

    def _application(self) -> App:
        pipeline, settings = self._pipeline, self._settings
        if settings.speed is not None:
            raise CqelsError("a service on Spark replays no files at a pace", hint="leave out the speed")
        options = replace(
            self._options,
            checkpoint=self._state,
            start=settings.start,
            strict=settings.strict,
            follow=True,
            changing=True,
            speed=None,
            tick=self._options.tick,
        )
        app = App.of(self._session, options, pipeline.store)
        if pipeline.watched is not None:
            app.watched = pipeline.watched
        for each in pipeline.streams:
            app.source(each, changed=settings.changed)
        for query in pipeline.queries:
            app.take(query, (pipeline.budgets or {}).get(query.name or ""))
        return app

    # ------------------------------------------------------------ beginning and end

    def start(self) -> None:
        """Start Spark if it does not run, recover the state, and go on; what does not fit is refused."""
        try:
            if (self._state / "state.json").exists():
                raise CqelsError(
                    f"the folder {self._state} is the state of a run in this process",
                    hint="name another one, or use the embedded engine",
                )
            self._served.start(self._run, [_pushed_to(each) for each in self._pushed.values()])
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        """Close what no run closes."""
        if not self._served.has_run:
            for each in self._sinks:
                each.close()

    def _run(self, served: ServedApp) -> Run:
        return self._app.run(
            *self._sinks,
            rejects=self._pipeline.rejects,  # type: ignore[arg-type]
            metrics=self._metrics,
            trigger=f"{self._settings.trigger // MILLISECOND} milliseconds",
            lost=self._settings.lost,
            served=served,
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False if it has not come in that many seconds. What ended the run is raised."""
        return self._served.run.wait(timeout)

    def stop(self) -> None:
        """End it; the next one with the same state goes on from there."""
        self._served.stop()
        self._close()

    @property
    def is_running(self) -> bool:
        """It was started, and has not ended."""
        return self._served.is_running

    # ------------------------------------------------------------ what changes

    def register(self, query: Query, budget: Budget | None = None) -> None:
        """Run one more query, which has a name; it sees what comes from now on, and stays when the run goes on."""
        self._served.register(query, budget)

    def replace(self, query: Query, budget: Budget | None = None) -> None:
        """Run a query instead of the one that has its name; its windows begin anew."""
        self._served.replace(query, budget)

    def drop(self, name: str) -> None:
        """Run a query no more."""
        self._served.drop(name)

    def declare(self, pushed: PushedStream) -> None:
        """Have one more stream that elements can be pushed to; a run that goes on from this one is given it, too."""
        self._served.declare([_pushed_to(pushed)])

    def push(self, stream: str, messages: Sequence[Message]) -> None:
        """Give blocks of elements to a stream; when this returns they are on the disk."""
        inbox, began = self._served.inbox(stream), monotonic()
        elements = sum(elements_of(each.value) for each in messages)
        self._served.push(stream, messages)
        self._measuring.pushed(stream, inbox.end, began, elements)

    def inbox(self, stream: str) -> Inbox:
        """Where what is pushed to a stream waits."""
        return self._served.inbox(stream)

    def update(self, change: str | Callable[[Store], object]) -> None:
        """Change the static data, exactly once, whatever ends the process then."""
        self._served.update(change)

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        """No element before this time will come, on one stream or on all."""
        self._served.heartbeat(time, stream)

    def snapshot(self) -> None:
        """Have the state on the disk, where it is with each micro-batch."""
        self._served.run.snapshot()

    # ------------------------------------------------------------ what there is

    @property
    def queries(self) -> Mapping[str, Query]:
        """Those that run, by their names."""
        return self._served.queries

    @property
    def stopped(self) -> Mapping[str, str]:
        """The queries that took more than their budgets, with the reasons."""
        running = self.queries
        return {name: reason for name, reason in self._served.run.stopped.items() if name in running}

    @property
    def store(self) -> Store:
        """The static data as it is now; what changes it is `update`."""
        return self._app.store

    def explain(self, name: str, format: str = "text") -> str:
        """The plan of a query that runs; what it has done is in it where the latency is low."""
        return self._served.run.explain(name, format)

    @property
    def metrics(self) -> dict[str, Any]:
        """Counts and sizes of now."""
        totals, tally = self._metrics.totals, self.tally
        watermark = totals.watermark
        return {
            "batch": totals.batch,
            "batches": self._metrics.batches,
            "elements": tally.elements,
            "results": tally.results,
            "rejected": tally.rejected,
            "late": tally.late,
            "stopped": tally.stopped,
            "watermark": watermark,
            "lag": None if watermark is None else max(time_ns() - watermark, 0) / SECOND,
            "held": totals.held,
            "state_bytes": totals.state_bytes,
            "log_bytes": totals.log_bytes,
            "snapshot_bytes": totals.snapshot_bytes,
            "snapshots": 0,
            "pause": 0.0,
        }

    @property
    def measures(self) -> Measures:
        """A copy of what was counted until now."""
        self._measuring.forget(self.queries)
        return self._measuring.measures

    def follow(self, follower: Callable[[BatchDone], None]) -> None:
        """Have a function called behind each micro-batch, by the thread that delivers it."""
        self._measuring.follow(follower)

    def _note_delivered(self, batch: int, reports: Sequence[Mapping[str, Any]], offsets: Mapping[str, int]) -> None:
        self._measuring.delivered(batch, reports, offsets, self._metrics.totals.batch_seconds)

    def _count(self, metrics: Metrics) -> None:
        totals, tally = metrics.totals, self.tally
        tally.elements, tally.rejected, tally.late = totals.elements, totals.rejected, totals.late
        tally.results, tally.time, tally.stopped = totals.results, totals.time, len(self.stopped)
        tally.watch(tally)


def _pushed_to(pushed: PushedStream) -> PushedTo:
    return PushedTo(pushed.settings, pushed.limit, pushed.when_full)
