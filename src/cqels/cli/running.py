"""What `cqels run` does between its arguments and its output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pyoxigraph import NamedNode

from cqels.io import Rejected, Result, ResultWriter, Tally, parse_declaration, writer_for
from cqels.model.errors import CqelsError, QueryError, Source
from cqels.model.time import format_time, parse_time
from cqels.plan.algebra import Query
from cqels.store.dataset import Store

SHOWN_REJECTS = 5
"""How many rejected elements are shown on the terminal one by one; all of them are counted."""


@dataclass
class Run:
    """One run of some queries over some files."""

    engine: str
    queries: list[tuple[Query, Source]]
    streams: list[str]
    data: list[Path]
    graphs: list[str]
    format: str
    out: Path | None
    store: Path | None
    rejects: Path | None
    strict: bool
    until: str | None
    start: str
    analyze: bool

    def execute(self) -> None:
        replay = _replay(self.engine)
        options = {}
        if self.analyze:
            if self.engine == "reference":
                raise CqelsError("--analyze shows what the incremental engine did", hint="leave out --engine reference")
            options["analysed"] = lambda text: sys.stderr.write(text + "\n")
        start = _time(self.start, "--start")
        until = None if self.until is None else _time(self.until, "--until")
        declarations = [parse_declaration(text) for text in self.streams]
        dataset = Store(self.store)
        for path in self.data:
            dataset.load(path)
        for text in self.graphs:
            iri, path = _graph(text)
            dataset.load(path, iri)
        with ExitStack() as stack:
            output = stack.enter_context(_opened(self.out, sys.stdout))
            reject = stack.enter_context(_reject_sink(self.rejects))
            writers = self._writers(output)
            tally = stack.enter_context(_status(self.out is not None))
            try:
                for query, result in replay(
                    [query for query, _ in self.queries],
                    declarations,
                    dataset,
                    start=start,
                    until=until,
                    reject=reject,
                    strict=self.strict,
                    tally=tally,
                    **options,
                ):
                    writers[id(query)](result)
            except QueryError as error:
                self._place(error)
                raise
        _summary(tally)

    def _writers(self, output: TextIO) -> dict[int, Callable[[Result], None]]:
        made: dict[int, Callable[[Result], None]] = {}
        for query, _ in self.queries:
            writer = writer_for(self.format, output, query.variables, dict(query.prefixes))
            made[id(query)] = writer.write if len(self.queries) == 1 else _named(writer, output, self.format)
        return made

    def _place(self, error: QueryError) -> None:
        """An error of registration counts in the text of its query."""
        for query, source in self.queries:
            if error.query is query:
                error.locate(source)


def _replay(engine: str) -> Callable[..., Iterator[tuple[Query, Result]]]:
    """What runs the queries; kernels are loaded only for the engine that has them."""
    if engine == "reference":
        from cqels.reference.replay import replay as by_reference

        return by_reference
    from cqels.engine.replay import replay as by_engine

    return by_engine


def _named(writer: ResultWriter, output: TextIO, format: str) -> Callable[[Result], None]:
    def write(result: Result) -> None:
        if format == "text":
            output.write(f"{result.query}  ")
        writer.write(result)

    return write


def _time(text: str, option: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise CqelsError(f"{option}: {error}", hint="write for example 40s or 2026-01-31T12:00:00Z") from None


def _graph(text: str) -> tuple[NamedNode, Path]:
    iri, separator, path = text[1:].partition(">=") if text.startswith("<") else text.partition("=")
    try:
        if not separator or not path:
            raise ValueError(text)
        return NamedNode(iri), Path(path)
    except ValueError:
        raise CqelsError(
            f"--graph {text}: this is not an IRI and a file", hint="write --graph '<iri>=file.ttl'"
        ) from None


@contextmanager
def _opened(path: Path | None, otherwise: TextIO) -> Iterator[TextIO]:
    if path is None:
        yield otherwise
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as stream:
            yield stream
    except OSError as error:
        raise CqelsError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


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
    with _opened(path, sys.stderr) as stream:
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


def _summary(tally: Tally) -> None:
    sys.stdout.flush()
    sys.stderr.write(_words(tally) + "\n")


def _words(tally: Tally) -> str:
    words = [f"{tally.elements:,} elements", f"{tally.results:,} results"]
    words += [f"{count:,} {what}" for count, what in ((tally.rejected, "rejected"), (tally.late, "late")) if count]
    if tally.time is not None:
        words.append(f"up to {format_time(tally.time)}")
    return ", ".join(words)
