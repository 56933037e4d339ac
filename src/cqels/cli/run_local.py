"""What `cqels run` does between its arguments and its output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TextIO

import typer
from pyoxigraph import NamedNode

from cqels.cli.output_paths import check_places
from cqels.ingest import Rejected, StreamDeclaration, Tally, parse_declaration
from cqels.ingest.dataset_files import file_and_format
from cqels.ingest.input_files import files_of
from cqels.ingest.live_sources import is_live
from cqels.ingest.standard_input import STANDARD_INPUT
from cqels.model.errors import CqelsError, DataError, QueryError, Source
from cqels.model.time import format_time, parse_duration, parse_time
from cqels.plan.algebra import Query
from cqels.results import Result, ResultWriter, file_name, format_of_file, writer_for
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions

SOME_STOPPED = 3
"""The exit code of a run in which a query took more than its budget and was stopped."""
INTERRUPTED = 130
"""That of a run that Ctrl-C has ended."""
SHOWN_REJECTS = 5
"""How many rejected elements are shown on the terminal one by one; all of them are counted."""


@dataclass(frozen=True, slots=True)
class OnSpark:
    """What is asked for that only Spark can do. None is what was not asked for."""

    master: str | None = None
    checkpoint: Path | None = None
    lost: str | None = None
    follow: bool | None = None
    changed: str | None = None
    speed: float | None = None
    instances: int | None = None
    partitions: int | None = None
    placement: str | None = None
    spread: bool | None = None
    batch: str | None = None
    trigger: str | None = None
    metrics: Path | None = None
    prometheus: str | None = None
    ui: bool | None = None
    conf: tuple[str, ...] | None = None

    def asked(self) -> list[str]:
        """The options that were given."""
        return [f"--{each.name}" for each in fields(self) if getattr(self, each.name) is not None]


@dataclass
class Run:
    """One run of some queries, all of which have names, over some files."""

    engine: str
    queries: list[tuple[Query, Source]]
    streams: list[str]
    data: list[Path]
    graphs: list[str]
    format: str | None
    out: str | None
    store: Path | None
    rejects: Path | None
    strict: bool
    until: str | None
    start: str
    analyze: bool
    memory: str | None = None
    time: str | None = None
    """The budget of each query."""
    spark: OnSpark = OnSpark()
    allow_service: list[str] | None = None
    allow_load: list[Path] | None = None
    service_refresh: str | None = None

    def execute(self) -> None:
        written = {"--out": self.out, "--rejects": self.rejects, "--metrics": self.spark.metrics}
        check_places(written, self._read())
        if self.engine == "spark":
            if self.analyze:
                hint = "add --engine embedded; on Spark --metrics FILE has the counts of each micro-batch"
                raise CqelsError("--analyze shows the plan of an engine in this process", hint=hint)
            if self.streams:  # without one there is nothing to spread: one tick, here
                from cqels.cli.run_spark import execute

                execute(self)
                return
        if asked := self.spark.asked():
            why = "with a --stream" if self.engine == "spark" else "with --engine spark"
            raise CqelsError(f"{', '.join(asked)} can be asked for only {why}")
        self._here()

    def _read(self) -> Iterator[str | Path]:
        """The files and folders that are read."""
        for declaration in map(parse_declaration, self.streams):
            if is_live(declaration):
                continue
            path = declaration.path
            yield path
            with suppress(DataError):  # there may be none yet
                yield from files_of(path)
        yield from (file_and_format(str(each))[0] for each in self.data)
        yield from (_graph(text)[1] for text in self.graphs)
        yield from (source.name for _, source in self.queries)

    def _here(self) -> None:
        """In this process."""
        engine = "embedded" if self.engine == "spark" else self.engine
        replay = _replay(engine)
        options: dict[str, Any] = {}
        if self.memory is not None or self.time is not None:
            if engine == "reference":
                raise CqelsError("the reference has no budgets for queries", hint="leave out --engine reference")
            options |= {"memory": self.memory, "time": self.time}
        if self.analyze:
            if engine == "reference":
                raise CqelsError("--analyze shows what the incremental engine did", hint="leave out --engine reference")
            options["analysed"] = lambda text: sys.stderr.write(text + "\n")
        declarations = [parse_declaration(text) for text in self.streams]
        self._check_standard_input(declarations)
        live = any(map(is_live, declarations))
        dataset = self.dataset()
        with ExitStack() as stack:
            reject = stack.enter_context(_reject_sink(self.rejects))
            writers, outputs = self._writers(stack)
            tally = stack.enter_context(_status(self.out is not None))
            stack.enter_context(telling(sys.stderr))
            if live:
                _flush_with(tally, outputs)
                stack.enter_context(_ended_by_interrupt(tally))
            with self.placing():
                for query, result in replay(
                    [query for query, _ in self.queries],
                    declarations,
                    dataset,
                    start=self.start_time,
                    until=self.until_time,
                    reject=reject,
                    strict=self.strict,
                    tally=tally,
                    **options,
                ):
                    writers[id(query)](result)
        summary(tally)
        if tally.stopped:
            raise typer.Exit(SOME_STOPPED)

    # ------------------------------------------------------------ what was asked for

    @property
    def start_time(self) -> int:
        return _time(self.start, "--start")

    @property
    def until_time(self) -> int | None:
        return None if self.until is None else _time(self.until, "--until")

    @property
    def to_folder(self) -> bool:
        """Results go to a file for each query."""
        return self.out is not None and (self.out.endswith("/") or Path(self.out).is_dir())

    @property
    def chosen_format(self) -> str:
        """That which was asked for, or that the name of the file tells; else text, in a folder CSV."""
        return self.format or (format_of_file(self.out or "") or ("csv" if self.to_folder else "text"))

    def dataset(self) -> Store:
        """The static data."""
        dataset = Store(self.store, permissions=Permissions.of(_several(self.allow_service), self.allow_load))
        if self.service_refresh is not None:
            dataset.services.refresh = _interval(self.service_refresh)
        for each in self.data:
            path, format = file_and_format(str(each))
            dataset.load(path, format=format)
        for text in self.graphs:
            iri, path, format = _graph(text)
            dataset.load(path, iri, format=format)
        return dataset

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
        format, several = self.chosen_format, len(self.queries) > 1
        if format == "parquet":
            raise CqelsError("Parquet is written on Spark", hint="leave out --engine, or choose another format")
        if (self.out or "").startswith("kafka:"):
            raise CqelsError("results go to Kafka on Spark", hint="leave out --engine")
        together = None if self.to_folder else stack.enter_context(opened(self.out, sys.stdout))
        made: dict[int, Callable[[Result], None]] = {}
        outputs = [together] if together is not None else []
        for query, _ in self.queries:
            if together is None:
                path = Path(self.out or "") / file_name(query.name or "", format)
                output = stack.enter_context(opened(path, sys.stdout))
                outputs.append(output)
            else:
                output = together
            columns = ("boolean",) if query.form == "ask" else query.variables
            writer = writer_for(format, output, columns, dict(query.prefixes))
            stack.callback(writer.close)
            made[id(query)] = _named(writer, output) if several and together and format == "text" else writer.write
        return made, outputs


def _several(texts: list[str] | None) -> list[str] | None:
    """What is given several times, or with commas."""
    return None if texts is None else [each for text in texts for each in text.split(",") if each.strip()]


def _interval(text: str) -> int:
    try:
        length = parse_duration(text)
    except ValueError as error:
        raise CqelsError(f"--service-refresh: {error}") from None
    if length <= 0:
        raise CqelsError("--service-refresh: the interval is not longer than 0", hint="--service-refresh 5m")
    return length


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


def _time(text: str, option: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise CqelsError(f"{option}: {error}", hint="write for example 40s or 2026-01-31T12:00:00Z") from None


def _graph(text: str) -> tuple[NamedNode, str, str | None]:
    iri, separator, path = text[1:].partition(">=") if text.startswith("<") else text.partition("=")
    try:
        if not separator or not path:
            raise ValueError(text)
        return NamedNode(iri), *file_and_format(path)
    except ValueError:
        raise CqelsError(
            f"--graph {text}: this is not an IRI and a file", hint="write --graph '<iri>=file.ttl'"
        ) from None


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
