"""What `cqels run` does between its arguments and its output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import typer

from cqels.cli.output_paths import check_places
from cqels.ingest import Rejected, StreamDeclaration, Tally
from cqels.ingest.input_files import files_of
from cqels.ingest.live_sources import is_live
from cqels.ingest.standard_input import STANDARD_INPUT
from cqels.model.errors import CqelsError, DataError, QueryError, Source
from cqels.model.time import format_time
from cqels.options import DatasetOptions, PipelineOptions
from cqels.plan.algebra import Query
from cqels.results import Result, ResultWriter, file_name, writer_for
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions

SOME_STOPPED = 3
"""The exit code of a run in which a query took more than its budget and was stopped."""
INTERRUPTED = 130
"""That of a run that Ctrl-C has ended."""
SHOWN_REJECTS = 5
"""How many rejected elements are shown on the terminal one by one; all of them are counted."""


@dataclass
class Run:
    """One run of some queries, all of which have names, over some files."""

    options: PipelineOptions
    queries: list[tuple[Query, Source]]

    def execute(self) -> None:
        output = self.options.output
        check_places({"--out": output.out, "--rejects": output.rejects, "--metrics": output.metrics}, self._read())
        if self.options.engine == "spark":
            from cqels.cli.run_spark import execute

            execute(self)
        else:
            self._here()

    def _read(self) -> Iterator[str | Path]:
        """The files and folders that are read."""
        for declaration in self.options.input.stream:
            if is_live(declaration):
                continue
            path = declaration.path
            yield path
            with suppress(DataError):  # there may be none yet
                yield from files_of(path)
        yield from (each.path for each in (*self.options.dataset.data, *self.options.dataset.graph))
        yield from (source.name for _, source in self.queries)

    def _here(self) -> None:
        """In this process."""
        input, output, queries = self.options.input, self.options.output, self.options.queries
        replay = _replay(self.options.engine)
        options: dict[str, Any] = {}
        if queries.has_budget:
            options |= {"memory": queries.memory_per_query, "time": queries.time_per_query}
        if output.analyze:
            options["analysed"] = lambda text: sys.stderr.write(text + "\n")
        declarations = list(input.stream)
        self._check_standard_input(declarations)
        live = any(map(is_live, declarations))
        dataset = open_dataset(self.options.dataset)
        with ExitStack() as stack:
            reject = stack.enter_context(_reject_sink(output.rejects))
            writers, outputs = self._writers(stack)
            tally = stack.enter_context(_status(output.out is not None))
            stack.enter_context(telling(sys.stderr))
            if live:
                _flush_with(tally, outputs)
                stack.enter_context(_ended_by_interrupt(tally))
            with self.placing():
                for query, result in replay(
                    [query for query, _ in self.queries],
                    declarations,
                    dataset,
                    start=input.start,
                    until=input.until,
                    reject=reject,
                    strict=input.strict,
                    tally=tally,
                    **options,
                ):
                    writers[id(query)](result)
        summary(tally)
        if tally.stopped:
            raise typer.Exit(SOME_STOPPED)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """An error of registration counts in the text of its query."""
        try:
            yield
        except QueryError as error:
            for query, source in self.queries:
                if error.query is query:
                    error.locate(source)
            raise

    def _check_standard_input(self, declarations: list[StreamDeclaration]) -> None:
        """Refuse to read it twice."""
        streams = [each for each in declarations if each.path == STANDARD_INPUT]
        queries = [source for _, source in self.queries if source.name == STANDARD_INPUT]
        if len(streams) > 1 or (streams and queries):
            twice = "of a query and of a stream" if queries else "of two streams"
            raise CqelsError(f"standard input cannot be the input {twice}", hint="put one of them in a file")

    def _writers(self, stack: ExitStack) -> tuple[dict[int, Callable[[Result], None]], list[TextIO]]:
        """What writes the results of each query, and the files that they go to."""
        output_options = self.options.output
        out, format, several = output_options.out, output_options.chosen_format, len(self.queries) > 1
        if format == "parquet":
            raise CqelsError("Parquet is written on Spark", hint="leave out --engine, or choose another format")
        if (out or "").startswith("kafka:"):
            raise CqelsError("results go to Kafka on Spark", hint="leave out --engine")
        together = None if output_options.to_folder else stack.enter_context(opened(out, sys.stdout))
        made: dict[int, Callable[[Result], None]] = {}
        outputs = [together] if together is not None else []
        for query, _ in self.queries:
            if together is None:
                path = Path(out or "") / file_name(query.name or "", format)
                output = stack.enter_context(opened(path, sys.stdout))
                outputs.append(output)
            else:
                output = together
            columns = ("boolean",) if query.form == "ask" else query.variables
            writer = writer_for(format, output, columns, dict(query.prefixes))
            stack.callback(writer.close)
            made[id(query)] = _named(writer, output) if several and together and format == "text" else writer.write
        return made, outputs


def open_dataset(options: DatasetOptions) -> Store:
    """The static data."""
    dataset = Store(options.store, permissions=Permissions.of(options.allow_service, options.allow_load))
    if options.service_refresh is not None:
        dataset.services.refresh = options.service_refresh
    for each in (*options.data, *options.graph):
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
    stream.write(f"{rejected.place}\t{rejected.reason}\t{rejected.text}\n")


@contextmanager
def _status(to_file: bool) -> Iterator[Tally]:
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


def _flush_with(tally: Tally, outputs: list[TextIO]) -> None:
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
