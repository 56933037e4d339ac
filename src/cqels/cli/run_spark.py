"""What `cqels run` does on Spark, between its arguments and its output."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any

import typer

from cqels.cli.run_local import SOME_STOPPED, Run, open_dataset, opened, summary, telling
from cqels.cli.signals import Stopping
from cqels.ingest import Tally
from cqels.model.errors import CqelsError
from cqels.model.redact import redacted
from cqels.model.time import MILLISECOND
from cqels.options import AppOptions, OutputOptions

if TYPE_CHECKING:
    from cqels.spark.driver.app import App
    from cqels.spark.driver.metrics import Metrics
    from cqels.spark.driver.metrics_export import Status
    from cqels.spark.driver.run import Run as Pipeline
    from cqels.spark.sinks import Sink

TICK = 0.2
"""Seconds between looks at whether to stop."""
_LOGGERS = ("py4j", "pyspark", "py.warnings")


def execute(run: Run) -> None:
    """Run queries on Spark until their streams end, or until a signal."""
    check_installed()
    options = run.options.run
    trigger = f"{(options.trigger or 0) // MILLISECOND} milliseconds"
    partitions = options.partitions or options.instances or _tasks(run)
    with Java(options.master, partitions, ui=options.ui, settings=dict(options.conf)) as java:
        app = _app(run, java)
        pipeline, metrics = None, None
        with Stopping(java.kill) as stopping, ExitStack() as stack:
            metrics, status = _measures(run.options.output, stack)
            stack.enter_context(telling(status.above(sys.stderr)))
            status.show("starting Spark …")
            sink = _sink(run, status, stack)
            rejects = _rejects(run, status)
            session = java.start()
            stopping.listen()  # PySpark has its own idea of Ctrl-C
            if options.ui:
                status.above(sys.stderr).write(f"Spark shows what it does at {session.sparkContext.uiWebUrl}\n")
            if not stopping.asked:
                with run.placing():
                    lost = options.lost or "stop"
                    pipeline = app.run(sink, rejects=rejects, metrics=metrics, trigger=trigger, lost=lost)
                attend(pipeline, stopping)
        _tell_end(run, metrics, stopping, pipeline)


def check_installed() -> None:
    """Refuse where Spark is not installed, before anything else is done."""
    from cqels.spark.session.spark_session import INSTALL, missing_parts

    if missing := missing_parts():
        raise CqelsError(
            f"Spark is not installed: there is no {' and no '.join(missing)}",
            hint=f"{INSTALL}, or run in this process with --engine embedded",
        )


def attend(pipeline: Pipeline, stopping: Stopping) -> None:
    """Wait for the end of a pipeline, or end it when that is asked for."""
    try:
        while not stopping.asked and not pipeline.wait(TICK):
            pass
    finally:
        pipeline.stop()


def cores(master: str | None) -> int:
    """How many tasks run side by side, as far as the master's name tells.

    >>> cores("local[3]")
    3
    """
    found = re.fullmatch(r"local(?:\[(\d+|\*).*\])?", master or "local[*]")
    if found is None:
        return sys.maxsize
    return int(found[1] or 1) if found[1] != "*" else os.cpu_count() or 1


# ---------------------------------------------------------------- Java


@dataclass
class Java:
    """Spark's Java while it is needed: it is started when asked for, speaks to a log, and ends with the command.

    What goes wrong in it is one sentence and the log's place.
    """

    master: str | None
    partitions: int
    ui: bool = False
    settings: dict[str, str] | None = None
    session: Any = None
    _begun: bool = False

    def __enter__(self) -> Java:
        number, name = mkstemp(prefix="cqels-", suffix=".log")
        os.close(number)
        self.log = Path(name)
        self._handler = logging.FileHandler(self.log)
        for each in _LOGGERS:
            logger = logging.getLogger(each)
            logger.addHandler(self._handler)
            logger.propagate = False
        logging.captureWarnings(True)
        return self

    def start(self) -> Any:
        from cqels.spark.session.spark_session import start

        if self.session is None:
            self._begun = True
            master = self.master or "local[*]"
            self.session = start(
                master=master, partitions=self.partitions, ui=self.ui, settings=self.settings, log=self.log
            )
        return self.session

    def kill(self) -> None:
        from cqels.spark.session.spark_session import kill

        kill()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from cqels.spark.driver.failure_reason import RunFailed, failure
        from cqels.spark.session.spark_session import stop

        ours = error is None or isinstance(error, CqelsError | typer.Exit) or not isinstance(error, Exception)
        ours = ours and not isinstance(error, RunFailed)
        text, story = str(error), "".join(traceback.format_exception(error))  # which Spark tells while it lives
        try:
            if self._begun:  # though there may be no session
                stop(self.session)
        finally:
            logging.captureWarnings(False)
            for each in _LOGGERS:
                logging.getLogger(each).removeHandler(self._handler)
                logging.getLogger(each).propagate = True
            self._handler.close()
        if isinstance(error, BrokenPipeError) or "BrokenPipeError" in text:  # of a reader of our output
            self.log.unlink(missing_ok=True)
            raise BrokenPipeError from None
        if ours:
            self.log.unlink(missing_ok=True)
            return
        with self.log.open("a") as file:
            file.write(redacted(story))
        told = failure(error)
        place = f"its log is {self.log}"
        raise CqelsError(told.message, hint=f"{told.hint}; {place}" if told.hint else place) from None


# ---------------------------------------------------------------- from arguments to parts


def _tasks(run: Run) -> int:
    """How many engines there may be side by side, if nobody says."""
    there = cores(run.options.run.master)
    if not run.options.run.spread:
        return min(there, len(run.queries))
    if there == sys.maxsize:
        raise CqelsError("--spread: over how many engines is not known", hint="--instances 8")
    return there


def _app(run: Run, java: Java) -> App:
    """The application; all is checked that can be without Java."""
    from cqels.ingest.stream_files import check_files
    from cqels.spark.driver.app import App
    from cqels.spark.source.file_catalog import current_files

    input, queries, spread = run.options.input, run.options.queries, run.options.run.spread
    checkpoint = run.options.run.checkpoint
    app = App.of(java.start, AppOptions.of(run.options), open_dataset(run.options.dataset))
    for each in input.stream:
        app.files(each, changed=input.changed or "stop")
        if checkpoint is None or not checkpoint.exists():
            check_files(each, list(current_files(each, may_be_none=input.follow)))
    with run.placing():
        for query, _ in run.queries:
            memory, time = queries.memory_per_query, queries.time_per_query
            app.add(query, memory=memory, time=time, spread=None if spread else False)
    return app


def _measures(output: OutputOptions, stack: ExitStack) -> tuple[Metrics, Status]:
    from cqels.spark.driver.metrics import Metrics
    from cqels.spark.driver.metrics_export import Endpoint, Status

    port = output.prometheus if (output.prometheus or "").isdigit() else None
    metrics = Metrics(output.metrics, None if port else output.prometheus)
    stack.callback(metrics.close)
    status = stack.enter_context(Status(metrics))
    if port:
        endpoint = Endpoint(metrics, int(port))
        stack.callback(endpoint.close)
        status.above(sys.stderr).write(f"metrics for Prometheus are at http://127.0.0.1:{endpoint.port}/metrics\n")
    return metrics, status


def _sink(run: Run, status: Status, stack: ExitStack) -> Sink:
    from cqels.spark.sinks import Console, Files, sink_of

    input, output = run.options.input, run.options.output
    out, format = output.out, output.chosen_format
    once = run.options.run.checkpoint is None
    exact = once and not input.follow and input.speed is None
    if out is None:
        return Console(format, status.above(sys.stdout), exact=exact)
    if out.startswith("kafka:"):
        return sink_of(out)
    if not output.to_folder and len(run.queries) > 1 and once and format != "parquet":
        return Console(format, stack.enter_context(opened(out, sys.stdout)), exact=exact)
    return Files(out, format, single=not output.to_folder, replace=once, passing=once)


def _rejects(run: Run, status: Status) -> Any:
    from cqels.spark.rejects import Rejects

    passing = run.options.run.checkpoint is None
    return Rejects(run.options.output.rejects, stream=status.above(sys.stderr), passing=passing)


def _tell_end(run: Run, metrics: Metrics, stopping: Stopping, pipeline: Pipeline | None) -> None:
    totals = metrics.totals
    stopped = 0 if pipeline is None else len(pipeline.stopped)
    summary(Tally(totals.elements, totals.rejected, totals.late, totals.results, totals.time, stopped))
    if pipeline is not None and pipeline.query is None:
        sys.stderr.write("the checkpoint is of a run that has come to its end: there is nothing left to do\n")
    if not stopping.asked:
        if stopped:
            raise typer.Exit(SOME_STOPPED)
        return
    if run.options.run.checkpoint is None:
        sys.stderr.write("stopped; with --checkpoint DIR the next run would go on from here\n")
    else:
        sys.stderr.write("stopped; the same command goes on from here\n")
    if not run.options.input.follow:
        raise typer.Exit(stopping.code)
