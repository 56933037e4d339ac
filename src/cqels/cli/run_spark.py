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

from cqels.cli.announcement import announce
from cqels.cli.run_local import Run, end_run, open_dataset, summary, telling
from cqels.cli.run_sinks import sinks_for
from cqels.cli.signals import Stopping
from cqels.ingest import Tally
from cqels.ingest.live_sources import is_live
from cqels.ingest.source_options import scheme_name
from cqels.model.errors import CqelsError
from cqels.model.redact import redacted
from cqels.model.time import MILLISECOND
from cqels.options import AppOptions, OutputOptions

if TYPE_CHECKING:
    from cqels.spark.driver.app import App
    from cqels.spark.driver.metrics import Metrics
    from cqels.spark.driver.metrics_export import Status
    from cqels.spark.driver.run import Run as Pipeline

TICK = 0.2
"""Seconds between looks at whether to stop."""
BRIEF_BYTES = 64 << 20
"""Bytes of input up to which a run is over soon."""
_LOGGERS = ("py4j", "pyspark", "py.warnings")


def execute(run: Run) -> None:
    """Run queries on Spark until their streams end, or until a signal."""
    check_installed()
    options = run.options.run
    trigger = f"{(options.trigger or 0) // MILLISECOND} milliseconds"
    partitions = options.partitions or options.instances or _tasks(run)
    brief = _is_brief(run)
    with Java(options.master, partitions, ui=options.ui, settings=spark_settings(run), brief=brief) as java:
        app = _app(run, java)
        pipeline, metrics = None, None
        with Stopping(java.kill) as stopping, ExitStack() as stack:
            metrics, status = _measures(run.options.output, stack)
            stack.enter_context(telling(status.above(sys.stderr)))
            status.show("starting Spark …")
            sinks = sinks_for(run, status.above(sys.stdout), stack)
            rejects = _rejects(run, status)
            announce(run, sinks, status.above(sys.stderr))
            session = java.start()
            stopping.listen()  # PySpark has its own idea of Ctrl-C
            if options.ui:
                status.above(sys.stderr).write(f"Spark shows what it does at {session.sparkContext.uiWebUrl}\n")
            if not stopping.asked:
                with run.placing():
                    lost = options.lost or "stop"
                    pipeline = app.run(*sinks, rejects=rejects, metrics=metrics, trigger=trigger, lost=lost)
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
    brief: bool = False
    """It runs for a short time (`cqels.spark.session.spark_session.start`)."""
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
        from cqels.spark.session.spark_session import RENAMED_FILES, start

        if self.session is None:
            self._begun = True
            master = self.master or "local[*]"
            quick = RENAMED_FILES if master.startswith("local") else {}
            self.session = start(
                master=master,
                partitions=self.partitions,
                ui=self.ui,
                settings={**quick, **(self.settings or {})},
                log=self.log,
                brief=self.brief,
            )
        return self.session

    def kill(self) -> None:
        from cqels.spark.session.spark_session import kill

        kill()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from cqels.spark.driver.failure_reason import RunFailed, failure
        from cqels.spark.session.class_archive import make_in_background
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
            if self._begun and (self.master or "local").startswith("local"):
                make_in_background()  # what makes the next start faster
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


def spark_settings(run: Run) -> dict[str, str]:
    """Settings of Spark: those that are given, and its connector for Kafka where a stream comes from there."""
    given = dict(run.options.run.conf)
    if not any(scheme_name(each.path) == "kafka" for each in run.options.input.stream):
        return given
    from cqels.spark.session.kafka_connector import session_settings

    return session_settings(given)


def _is_brief(run: Run) -> bool:
    """Whether a run ends soon: it reads files that end, and not many bytes."""
    from cqels.pipeline.source.file_catalog import current_files

    input = run.options.input
    if run.options.is_live or input.speed is not None:
        return False
    try:
        files = [file for each in input.stream if not is_live(each) for file in current_files(each, may_be_none=True)]
        return sum(file.stat().st_size for file in files) <= BRIEF_BYTES
    except (CqelsError, OSError):  # which is said where files are opened
        return False


def _app(run: Run, java: Java) -> App:
    """The application; all is checked that can be without Java."""
    from cqels.ingest.stream_files import check_files
    from cqels.pipeline.source.file_catalog import current_files
    from cqels.spark.driver.app import App

    input, spread = run.options.input, run.options.run.spread
    state = run.options.run.state
    dataset = run.options.dataset
    app = App.of(java.start, AppOptions.of(run.options), open_dataset(dataset, watched=False))
    for file in dataset.watched:
        app.load(file.path, None if file.graph is None else file.graph.value, format=file.format, watch=True)
    for each in input.stream:
        app.source(each, changed=input.changed or "stop")
        if not is_live(each) and (state is None or not state.exists()):
            check_files(each, list(current_files(each, may_be_none=input.follow)))
    with run.placing():
        for named in run.queries:
            memory, time = named.budget
            wanted = None if spread and named.spread is None else bool(named.spread)
            app.add(named.query, memory=memory, time=time, spread=wanted)
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


def _rejects(run: Run, status: Status) -> Any:
    from cqels.pipeline.sink.reject_files import Rejects

    options = run.options.run
    above = status.above(sys.stderr)
    return Rejects(run.options.output.rejects, stream=above, replace=options.fresh, passing=options.state is None)


def _tell_end(run: Run, metrics: Metrics, stopping: Stopping, pipeline: Pipeline | None) -> None:
    totals = metrics.totals
    stopped = 0 if pipeline is None else len(pipeline.stopped)
    summary(Tally(totals.elements, totals.rejected, totals.late, totals.results, totals.time, stopped))
    if pipeline is not None and pipeline.query is None:
        sys.stderr.write("the checkpoint is of a run that has come to its end: there is nothing left to do\n")
    end_run(run, stopping, some_stopped=bool(stopped))
