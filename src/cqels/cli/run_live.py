"""What `cqels run --engine embedded` does with input that goes on, between its arguments and its output."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cqels.cli.announcement import announce
from cqels.cli.run_sinks import sinks_for
from cqels.cli.signals import Stopping
from cqels.model.errors import CqelsError

if TYPE_CHECKING:
    from cqels.cli.run_local import Run
    from cqels.live.live_run import LiveRun

TICK = 0.2
"""Seconds between looks at whether to stop."""


def execute(run: Run) -> None:
    """Run queries live in this process, until their streams end or a signal comes."""
    from cqels.cli.run_local import open_dataset, status_of, telling
    from cqels.engine.budgets import Budget
    from cqels.engine.event_time.wall_clock import TICK as CLOCK_TICK
    from cqels.live.live_run import BATCH_BYTES, LiveRun, LiveSettings
    from cqels.pipeline.sink.reject_files import Rejects
    from cqels.pipeline.source.watched_data import WatchedData, WatchedFile

    input, output, options = run.options.input, run.options.output, run.options.run
    if output.analyze:
        raise CqelsError("--analyze shows a plan when files have ended, and this run goes on", hint="leave it out")
    settings = LiveSettings(
        follow=input.follow,
        start=input.start,
        until=input.until,
        strict=input.strict,
        speed=input.speed,
        changed=input.changed or "stop",
        batch_bytes=options.batch or BATCH_BYTES,
        trigger=options.trigger or 0,
        tick=input.tick or CLOCK_TICK,
        lost=options.lost or "stop",
    )
    store = open_dataset(run.options.dataset, watched=False)
    watched = WatchedData(WatchedFile(each.path, each.format, each.graph) for each in run.options.dataset.watched)
    watched.load(store)
    budgets = {each.name: Budget.of(*each.budget) for each in run.queries}
    with Stopping(lambda: None) as stopping, ExitStack() as stack:
        tally = stack.enter_context(status_of(not any(each.is_terminal for each in output.sinks)))
        stack.enter_context(telling(sys.stderr))
        sinks = sinks_for(run, sys.stdout, stack)
        announce(run, sinks, sys.stderr)
        live = LiveRun(
            input.stream,
            [each.query for each in run.queries],
            store,
            sinks,
            state=options.state,
            rejects=Rejects(output.rejects, stream=sys.stderr, replace=options.fresh, passing=options.state is None),
            settings=settings,
            budgets={name: each for name, each in budgets.items() if each is not None},
            tally=tally,
            watched=watched,
        )
        with run.placing():
            live.start()
        _attend(live, stopping)
    _tell_end(run, live, stopping)


def _attend(live: LiveRun, stopping: Stopping) -> None:
    """Wait for the end of a run, or end it when that is asked for."""
    try:
        while not stopping.asked and not live.wait(TICK):
            pass
    finally:
        live.stop()
    live.wait()


def _tell_end(run: Run, live: LiveRun, stopping: Stopping) -> None:
    from cqels.cli.run_local import end_run, summary

    summary(live.tally)
    if live.finished and not live.batches and run.options.run.state is not None:
        sys.stderr.write("the state is of a run that has come to its end: there is nothing left to do\n")
    end_run(run, stopping, some_stopped=bool(live.tally.stopped))
