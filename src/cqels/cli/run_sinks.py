"""The sinks of `cqels run`, as they are declared."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, TextIO

from cqels.option_tables import DeclaredSink

if TYPE_CHECKING:
    from cqels.cli.run_local import Run
    from cqels.pipeline.sinks import Sink


def sinks_for(run: Run, terminal: TextIO, stack: ExitStack) -> list[Sink]:
    """The sinks of a run that delivers batches.

    Where no run goes on from this one, several queries may write to one file, as to a terminal.
    """
    from cqels.cli.run_local import opened
    from cqels.pipeline.sinks import Console, SinkContext, sinks_of

    options, declared = run.options, run.options.output.sinks
    once = options.run.state is None
    exact = once and not options.is_live and options.input.speed is None
    context = SinkContext(replace=once or options.run.fresh, passing=once, exact=exact, terminal=terminal)
    shared = [each for each in declared if once and _is_shared_file(each, run)]
    consoles = [
        Console(each.chosen_format(), stack.enter_context(opened(each.to, sys.stdout)), exact=exact) for each in shared
    ]
    others = [each.as_given for each in declared if each not in shared]
    return [*consoles, *sinks_of(others, [each.query for each in run.queries], context=context)]


def _is_shared_file(sink: DeclaredSink, run: Run) -> bool:
    several = len([each for each in run.queries if sink.takes(each.name)]) > 1 and not sink.queries
    return several and sink.is_file and not sink.is_folder and sink.chosen_format() != "parquet"
