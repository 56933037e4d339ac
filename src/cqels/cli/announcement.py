"""What `cqels run` says before it runs a pipeline: what runs where, and what is promised."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from cqels.cli.state_folder import is_begun
from cqels.ingest import StreamDeclaration
from cqels.ingest.live_sources import is_live
from cqels.ingest.source_address import shown_place
from cqels.model.redact import redacted

if TYPE_CHECKING:
    from cqels.cli.run_local import Run
    from cqels.pipeline.sinks import Sink


def announce(run: Run, sinks: Iterable[Sink], output: TextIO) -> None:
    """Say what runs, if it is a pipeline file, or has live sources or servers as sinks; files need no words."""
    servers = any(each.is_url for each in run.options.output.sinks) or any(map(is_live, run.options.input.stream))
    if run.file is None and not servers:
        return
    lines = [*_lines(run, sinks)]
    width = max(len(word) for word, _ in lines)
    output.write("".join(f"{word:<{width}}  {text}\n" for word, text in lines))
    output.flush()


def _lines(run: Run, sinks: Iterable[Sink]) -> Iterator[tuple[str, str]]:
    from cqels.pipeline.sink.sink_protocol import Lasting, place_of, promise_of

    options = run.options
    yield "engine", _engine(run)
    for stream in options.input.stream:
        yield "stream", f"{_short(stream.iri, run)} from {_place(stream, followed=options.input.follow)}"
    for data in options.dataset.data:
        yield "data", data.path if data.graph is None else f"{data.path} for the graph {data.graph}"
    yield "query" if len(run.queries) == 1 else "queries", ", ".join(each.name for each in run.queries)
    state = options.run.state
    for sink in sinks:
        is_file = isinstance(sink, Lasting) and state is None
        yield "sink", f"{redacted(place_of(sink))}: {'each run begins it anew' if is_file else promise_of(sink)}"
    if state is None and options.is_live:
        yield "state", "none: the next run begins anew, and a crash loses what was read; --state DIR keeps it"
    elif state is not None:
        yield "state", f"{state}, {'goes on from there' if is_begun(state) else 'which is new'}"
    if options.is_live:
        yield "end", "Ctrl-C" + ("; the next run goes on from there" if state is not None else "")


def _engine(run: Run) -> str:
    options = run.options.run
    if run.options.engine != "spark":
        return f"{run.options.engine}, in this process"
    if options.master is None:
        return f"Spark in this process, on {os.cpu_count() or 1} cores"
    return f"Spark at {options.master}"


def _place(stream: StreamDeclaration, *, followed: bool) -> str:
    """Where elements come from, without secrets."""
    told = [shown_place(stream)]
    if stream.template is not None:
        told.append(f"lifted by {stream.template}")
    if followed and not is_live(stream):
        told.append("followed")
    return ", ".join(told)


def _short(iri: str, run: Run) -> str:
    """A stream's name as the queries write it.

    The IRI in full, where they have no prefix for it.
    """
    for each in run.queries:
        for prefix, namespace in each.query.prefixes:
            if namespace and iri.startswith(namespace) and "/" not in (local := iri[len(namespace) :]):
                return f"{prefix}:{local}"
    return f"<{iri}>"
