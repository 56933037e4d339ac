"""What `cqels serve --engine spark` runs: Spark's session, and the run of a service in it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from cqels.cli.run_local import Run
from cqels.cli.run_spark import Java, check_installed, cores, spark_settings
from cqels.model.errors import CqelsError
from cqels.options import AppOptions

if TYPE_CHECKING:
    from cqels.serve.backend import MakeBackend

_MOST = 8
"""Engine instances, where nobody says how many, on a cluster whose cores are not known."""


def on_spark(run: Run, stack: ExitStack) -> MakeBackend:
    """What makes the run of a service on Spark; its Java is started with the service, and ends with the stack."""
    check_installed()
    from cqels.serve.spark_backend import on_spark as in_session

    options = run.options.run
    if options.spread:
        raise CqelsError("a service runs each query as a whole", hint="leave out --spread")
    app = AppOptions.of(run.options)
    tasks = 1 if app.is_low_latency else options.partitions or options.instances or min(cores(options.master), _MOST)
    java = Java(options.master, tasks, ui=options.ui, settings=spark_settings(run))
    stack.enter_context(java)
    return in_session(java.start, app)
