"""What `cqels run` does between its arguments and its output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import typer

from cqels.cli.output_paths import check_places, check_table, places_read
from cqels.cli.query_files import NamedQuery
from cqels.cli.signals import Stopping
from cqels.ingest import Rejected, StreamDeclaration, Tally
from cqels.ingest.live_sources import is_live
from cqels.ingest.source_options import STANDARD_INPUT
from cqels.model.errors import CqelsError, QueryError
from cqels.model.time import format_time
from cqels.options import DatasetOptions, DeclaredSink, PipelineOptions
from cqels.plan.algebra import Query
from cqels.results import Result, ResultWriter, file_name, writer_for
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions

if TYPE_CHECKING:
    from cqels.pipeline.sink.batching import ResultBatches

SOME_STOPPED = 3
"""The exit code of a run in which a query took more than its budget and was stopped."""
INTERRUPTED = 130
"""That of a run that Ctrl-C has ended."""
SHOWN_REJECTS = 5
"""How many rejected elements are shown on the terminal one by one; all of them are counted."""


class _Flushed(Protocol):
    def flush(self) -> object: ...


@dataclass
class Run:
    """One run of some queries, all of which have names, over some files."""

    options: PipelineOptions
    queries: list[NamedQuery]
    file: str | None = None
    """The pipeline file, if there is one."""

    def execute(self) -> None:
        output = self.options.output
        sinks = [("--out", each.to) for each in output.sinks if not each.is_terminal]
        read = [*places_read(self.options), *(each.source.name for each in self.queries)]
        check_places([*sinks, ("--rejects", output.rejects), ("--metrics", output.metrics)], read)
        for each in output.sink:
            each.check_name(output.format)
        for each in output.sinks:
            check_table(each, each.chosen_format(), [query.name for query in self.queries])
        if self.options.engine == "spark":
            from cqels.cli.run_spark import execute

            execute(self)
        elif self._goes_on:
            from cqels.cli.run_live import execute

            execute(self)
        else:
            self._here()

    @property
    def _goes_on(self) -> bool:
        """Whether the run is live in this process: it goes on from a state, or with input that is not of a pipe."""
        options = self.options
        if options.engine != "embedded":
            return False
        streams = [each for each in options.input.stream if is_live(each) and each.path != STANDARD_INPUT]
        asked = [options.run.state, options.input.speed, options.run.trigger, options.run.batch]
        elsewhere = any(each.is_url or each.chosen_format() == "parquet" for each in options.output.sinks)
        return bool(streams) or options.input.follow or any(each is not None for each in asked) or elsewhere

    def _here(self) -> None:
        """In this process."""
        input, output, queries = self.options.input, self.options.output, self.options.queries
        replay = _replay(self.options.engine)
        options: dict[str, Any] = {}
        if queries.has_budget:
            options["budgets"] = {each.name: each.budget for each in self.queries}
        if output.analyze:
            options["analysed"] = lambda text: sys.stderr.write(text + "\n")
        declarations = list(input.stream)
        self._check_standard_input(declarations)
        live = any(map(is_live, declarations))
        dataset = open_dataset(self.options.dataset)
        with ExitStack() as stack:
            reject = stack.enter_context(_reject_sink(output.rejects))
            writers, outputs = self._writers(stack, reject)
            tally = stack.enter_context(status_of(not any(each.is_terminal for each in output.sinks)))
            stack.enter_context(telling(sys.stderr))
            if live:
                _flush_with(tally, outputs)
                stack.enter_context(_ended_by_interrupt(tally))
            with self.placing():
                for query, result in replay(
                    [each.query for each in self.queries],
                    declarations,
                    dataset,
                    start=input.start,
                    until=input.until,
                    reject=reject,
                    strict=input.strict,
                    tally=tally,
                    **options,
                ):
                    for write in writers[query.name or ""]:
                        write(result)
        summary(tally)
        if tally.stopped:
            raise typer.Exit(SOME_STOPPED)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """An error of registration counts in the text of its query."""
        try:
            yield
        except QueryError as error:
            for each in self.queries:
                if error.query is each.query:
                    error.locate(each.source)
            raise

    def _check_standard_input(self, declarations: list[StreamDeclaration]) -> None:
        """Refuse to read it twice."""
        streams = [each for each in declarations if each.path == STANDARD_INPUT]
        queries = [each for each in self.queries if each.source.name == "<stdin>"]
        if len(streams) > 1 or (streams and queries):
            twice = "of a query and of a stream" if queries else "of two streams"
            raise CqelsError(f"standard input cannot be the input {twice}", hint="put one of them in a file")

    def _writers(
        self, stack: ExitStack, reject: Callable[[Rejected], None]
    ) -> tuple[dict[str, list[Callable[[Result], None]]], list[_Flushed]]:
        """What writes the results of each query, and the files that they go to."""
        made: dict[str, list[Callable[[Result], None]]] = {each.name: [] for each in self.queries}
        outputs: list[_Flushed] = []
        for sink in self.options.output.sinks:
            self._write_to(sink, made, outputs, stack, reject)
        return made, outputs

    def _batches(self, sink: DeclaredSink, reject: Callable[[Rejected], None]) -> ResultBatches:
        """Results for a sink that is more than a file, whose promise is said."""
        from cqels.pipeline.sink.batching import ResultBatches
        from cqels.pipeline.sinks import SinkContext, place_of, promise_of, sinks_of

        queries = [each.query for each in self.queries]
        (made,) = sinks_of([sink.as_given], queries, context=SinkContext(passing=True))
        if sink.is_url:
            sys.stderr.write(f"results go to {place_of(made)}: {promise_of(made)}\n")
        return ResultBatches(made, [query for query in queries if sink.takes(query.name or "")], reject)

    def _write_to(
        self,
        sink: DeclaredSink,
        made: dict[str, list[Callable[[Result], None]]],
        outputs: list[_Flushed],
        stack: ExitStack,
        reject: Callable[[Rejected], None],
    ) -> None:
        """Add what writes results to a sink."""
        format, chosen = sink.chosen_format(), [each for each in self.queries if sink.takes(each.name)]
        if format == "parquet" and sink.is_terminal:
            raise CqelsError("Parquet is written to files", hint="add --out results/, or choose another format")
        if sink.is_url or sink.has_settings or format == "parquet":
            batches = self._batches(sink, reject)
            stack.callback(batches.close)
            outputs.append(batches)
            for each in chosen:
                made[each.name].append(batches.write)
            return
        together = None
        if not sink.is_folder:
            together = sys.stdout if sink.is_terminal else stack.enter_context(opened(sink.to, sys.stdout))
            outputs.append(together)
        for each in chosen:
            if together is None:
                path = Path(sink.to) / file_name(each.name, format)
                output = stack.enter_context(opened(path, sys.stdout))
                outputs.append(output)
            else:
                output = together
            query = each.query
            columns = ("boolean",) if query.form == "ask" else query.variables
            writer = writer_for(format, output, columns, dict(query.prefixes))
            stack.callback(writer.close)
            several = len(chosen) > 1 and together is not None and format == "text"
            made[each.name].append(_named(writer, output) if several else writer.write)


def open_dataset(options: DatasetOptions, *, watched: bool = True) -> Store:
    """The static data, with the files that are watched or without them."""
    dataset = Store(options.store, permissions=Permissions.of(options.allow_service, options.allow_load))
    if options.service_refresh is not None:
        dataset.services.refresh = options.service_refresh
    for each in options.data:
        if watched or each not in options.watched:
            dataset.load(each.path, each.graph, format=each.format)
    return dataset


def _replay(engine: str) -> Callable[..., Iterator[tuple[Query, Result]]]:
    """What runs the queries; kernels are loaded only for the engine that has them."""
    if engine == "reference":
        from cqels.reference.reference_replay import replay as by_reference

        return by_reference
    from cqels.engine.file_replay import replay as by_engine

    return by_engine


def _named(writer: ResultWriter, output: TextIO) -> Callable[[Result], None]:
    def write(result: Result) -> None:
        output.write(f"{result.query}  ")
        writer.write(result)

    return write


@contextmanager
def opened(path: str | Path | None, otherwise: TextIO) -> Iterator[TextIO]:
    """A file to write results to, anew."""
    if path is None:
        yield otherwise
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("w", encoding="utf-8", newline="") as stream:
            yield stream
    except OSError as error:
        raise CqelsError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


@contextmanager
def telling(stream: TextIO) -> Iterator[None]:
    """Write what there is to say of queries while they run."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(lambda record: record.levelno < logging.ERROR)  # which ends the run, and is said then
    logging.getLogger("cqels").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("cqels").removeHandler(handler)


@contextmanager
def _reject_sink(path: Path | None) -> Iterator[Callable[[Rejected], None]]:
    shown = 0

    def tell(rejected: Rejected) -> None:
        nonlocal shown
        shown += 1
        if shown <= SHOWN_REJECTS:
            sys.stderr.write(f"rejected: {rejected}\n")
        elif shown == SHOWN_REJECTS + 1:
            sys.stderr.write("rejected: … (--rejects FILE keeps them all)\n")

    if path is None:
        yield tell
        return
    with opened(path, sys.stderr) as stream:
        yield lambda rejected: _write(stream, rejected)


def _write(stream: TextIO, rejected: Rejected) -> None:
    stream.write(rejected.line)


@contextmanager
def status_of(to_file: bool) -> Iterator[Tally]:
    """A status line on the terminal while results go to a file; nothing where standard error is no terminal."""
    tally = Tally()
    if not (to_file and sys.stderr.isatty()):
        yield tally
        return
    from rich.console import Console
    from rich.status import Status

    with Status("reading …", console=Console(stderr=True)) as status:
        tally.watch = lambda seen: status.update(_words(seen)) if seen.elements % 100 == 0 else None
        yield tally


def _flush_with(tally: Tally, outputs: Sequence[_Flushed]) -> None:
    """What live input has given is seen before more of it is waited for."""
    shown = tally.watch

    def watch(seen: Tally) -> None:
        shown(seen)
        for output in outputs:
            output.flush()

    tally.watch = watch


@contextmanager
def _ended_by_interrupt(tally: Tally) -> Iterator[None]:
    """Ctrl-C is how live input ends that has no end: what was done is told."""
    try:
        yield
    except KeyboardInterrupt:
        summary(tally)
        raise typer.Exit(INTERRUPTED) from None


def end_run(run: Run, stopping: Stopping, *, some_stopped: bool) -> None:
    """Say how a run goes on that was asked to end, and end with the code that fits."""
    if not stopping.asked:
        if some_stopped:
            raise typer.Exit(SOME_STOPPED)
        return
    if run.options.run.state is None:
        sys.stderr.write("stopped; with --state DIR the next run would go on from here\n")
    else:
        sys.stderr.write("stopped; the same command goes on from here\n")
    if not run.options.is_live:
        raise typer.Exit(stopping.code)


def summary(tally: Tally) -> None:
    """What was done, in one line."""
    sys.stdout.flush()
    sys.stderr.write(_words(tally) + "\n")


def _words(tally: Tally) -> str:
    words = [f"{tally.elements:,} elements", f"{tally.results:,} results"]
    counts = ((tally.rejected, "rejected"), (tally.late, "late"), (tally.stopped, "stopped for taking too much"))
    words += [f"{count:,} {what}" for count, what in counts if count]
    if tally.time is not None:
        words.append(f"up to {format_time(tally.time)}")
    return ", ".join(words)
