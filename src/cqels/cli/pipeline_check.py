"""`cqels check` of a pipeline file: all that can be known of it before it runs, each fault at its place."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyoxigraph import NamedNode

from cqels.cli.output_paths import check_places, check_table, places_read
from cqels.cli.query_files import NamedQuery, named_queries, prepared_query, query_text
from cqels.ingest import StreamDeclaration
from cqels.model.errors import CqelsError, QueryError
from cqels.option_tables import DataFile, DeclaredSink
from cqels.option_values import Words
from cqels.options import PipelineOptions
from cqels.pipeline_file import Given, PipelineFile

MOST_PARSED = 32 << 20
"""Bytes of a file of static data up to which it is parsed; of a larger one only its beginning is looked at."""
PATIENCE = 5.0
"""Seconds that a server has to answer."""


@dataclass
class Checked:
    """What is wrong with a pipeline, and what is probably not meant."""

    options: PipelineOptions
    errors: list[CqelsError] = field(default_factory=list)
    warnings: list[CqelsError] = field(default_factory=list)
    queries: list[NamedQuery] = field(default_factory=list)

    def summary(self) -> str:
        """What the pipeline has, in one line."""
        streams = len({each.iri for each in self.options.input.stream})
        counts = (
            (streams, "stream", "streams"),
            (len(self.options.dataset.data), "file of data", "files of data"),
            (len(self.queries), "query", "queries"),
            (len(self.options.output.sinks), "sink", "sinks"),
        )
        told = [f"{count} {one if count == 1 else several}" for count, one, several in counts if count]
        live = "live" if self.options.is_live else "ends with its files"
        return f"{', '.join(told)}; {live}"


def check_pipeline(path: Path, *, connect: bool = False) -> Checked:
    """Check a pipeline file and what it names; with `connect`, also whether the servers are there."""
    folder = path.parent
    given = Given(PipelineFile.read(path), folder=None if folder == Path() else folder, query_text=query_text)
    checked = Checked(given.options(), given.errors)
    check = _Check(given, checked)
    right = {each: each not in given.failed for each in ("streams", "data", "queries", "sinks")}
    check.queries()
    if right["streams"]:
        check.entries("streams", checked.options.input.stream, check.stream, "from")
        check.streams_and_queries(known=right["queries"])
    if right["data"]:
        check.entries("data", checked.options.dataset.data, check.data, "file")
    if right["sinks"]:
        check.entries("sinks", checked.options.output.sink, check.sink, "to")
        check.places()
    if connect:
        check.entries("streams", checked.options.input.stream, check.connect_source, "from")
        check.entries("sinks", checked.options.output.sink, check.connect_sink, "to")
    return checked


@dataclass
class _Check:
    given: Given
    checked: Checked

    @property
    def options(self) -> PipelineOptions:
        return self.checked.options

    @contextmanager
    def telling(self, *words: str | int) -> Iterator[None]:
        """An error is one of the value that these words lead to."""
        try:
            yield
        except CqelsError as error:
            self.given.told(words, error)

    def warn(self, words: Words, message: str, hint: str) -> None:
        error = CqelsError(message, hint=hint)
        if self.given.file is not None:
            error = self.given.file.located(words, error)
        self.checked.warnings.append(error)

    def entries(self, table: str, entries: Iterable[Any], check: Callable[[int, Any], None], word: str) -> None:
        for number, each in enumerate(entries):
            with self.telling(table, number, word):
                check(number, each)

    # ------------------------------------------------------------ queries

    def queries(self) -> None:
        """Those that can run; the others are errors."""
        from cqels.engine.budgets import Budget

        options = self.options.queries
        if not options.query and "queries" not in self.given.failed:
            hint = 'add [[queries]] with file = "hot.rq"'
            self.given.told(("queries",), CqelsError("the pipeline has no query", hint=hint))
        right = []
        for number, each in enumerate(options.query):
            count = len(self.given.errors)
            with self.telling("queries", number, "text" if each.file is None else "file"):
                prepared_query(each, options, warn=self.checked.warnings.append)
            with self.telling("queries", number, "memory" if each.memory else "time"):
                Budget.of(*options.budget(each))
            if len(self.given.errors) == count:
                right.append(each)
        self.checked.queries = named_queries(options, right, warn=lambda _: None)

    def streams_and_queries(self, *, known: bool) -> None:
        """What queries read is declared, and what is declared is read."""
        from cqels.plan.algebra import sources_of

        declared = [each.iri for each in self.options.input.stream]
        made = [each.name for each in self.checked.queries if each.query.form == "construct"]
        read: set[str] = set()
        for each in self.checked.queries:
            for source in sources_of(each.query):
                if not isinstance(source.stream, NamedNode):
                    read |= {*declared}
                    continue
                iri = source.stream.value
                read.add(iri)
                if iri not in declared and iri not in made:
                    streams = ", ".join(f"<{name}>" for name in dict.fromkeys([*declared, *made]))
                    hint = f"the streams are {streams}" if streams else "add [[streams]] with iri and from"
                    error = QueryError(f"stream {source.stream} is not declared", span=source.span, hint=hint)
                    error.locate(each.source)
                    self.checked.errors.append(error)
        if not known:
            return
        for number, iri in enumerate(declared):
            if iri not in read:
                self.warn(
                    ("streams", number, "iri"), f"no query reads the stream <{iri}>", "is its name as in the query?"
                )

    # ------------------------------------------------------------ streams, data and sinks

    def stream(self, number: int, stream: StreamDeclaration) -> None:
        from cqels.ingest.live_sources import is_live
        from cqels.ingest.stream_files import check_files
        from cqels.pipeline.source.file_catalog import current_files

        if is_live(stream):
            self._live_stream(number, stream)
            return
        with self.telling("streams", number, "template" if stream.template else "from"):
            if stream.template is not None and not stream.template.exists():
                raise CqelsError(f"there is no template {stream.template}", hint="its path is relative to this file")
        if stream.template is None or stream.template.exists():
            check_files(stream, list(current_files(stream, may_be_none=self.options.input.follow)))

    def _live_stream(self, number: int, stream: StreamDeclaration) -> None:
        from cqels.pipeline.lift.declared_lift import lift_of

        with self.telling("streams", number, "template" if stream.template else "from"):
            lift_of(stream)
        check_installed(stream.path)

    def data(self, number: int, data: DataFile) -> None:
        from cqels.ingest import read_graph

        path = Path(data.path)
        if not path.exists():
            raise CqelsError(f"there is no file {path}", hint="its path is relative to this file")
        quads = read_graph(path, data.graph, format=data.format)
        if path.stat().st_size > MOST_PARSED:
            next(quads, None)
            return
        for _ in quads:
            pass

    def sink(self, number: int, sink: DeclaredSink) -> None:
        from cqels.pipeline.sink.fan_out import check_names
        from cqels.pipeline.sink.text_formats import check
        from cqels.pipeline.sinks import sink_of

        queries = [each.query for each in self.checked.queries]
        format = sink.chosen_format(self.options.output.format)
        check_installed(sink.to)
        sink_of(sink.to, format=None if sink.is_url else format, replace=True)
        if sink.queries and "queries" not in self.given.failed:
            with self.telling("sinks", number, "queries"):
                check_names(sink.queries, queries, sink.to)
        taken = [each for each in queries if sink.takes(each.name or "")]
        check_table(sink, format, [each.name or "" for each in taken])
        if len(taken) > 1 and sink.is_file and not sink.is_folder and self.options.is_live:
            raise CqelsError(
                f"{sink.to} is one file, and there are {len(taken)} queries", hint="name a folder: results/"
            )
        with self.telling("sinks", number, "format" if sink.format else "to"):
            for query in taken:
                if format != "parquet" and not sink.is_url:
                    check(query, format)

    def places(self) -> None:
        """No sink writes where another one does, or what is read."""
        read = [*places_read(self.options), *(each.source.name for each in self.checked.queries)]
        written: list[tuple[str, str | Path | None]] = []
        sinks = [(number, each.to) for number, each in enumerate(self.options.output.sink) if not each.is_terminal]
        numbered: list[tuple[Words, tuple[str, str | Path | None]]] = [
            *((("sinks", number, "to"), ("sink", to)) for number, to in sinks),
            (("pipeline", "rejects"), ("rejects", self.options.output.rejects)),
        ]
        for words, place in numbered:
            with self.telling(*words):
                check_places([*written, place], read)
                written.append(place)

    # ------------------------------------------------------------ servers

    def connect_source(self, number: int, stream: StreamDeclaration) -> None:
        from cqels.ingest.source_address import address_of

        address = address_of(stream)
        for host, port in address.hosts:
            _reach(host, port or _PORTS.get(address.scheme, 0), address.place)

    def connect_sink(self, number: int, sink: DeclaredSink) -> None:
        from urllib.parse import urlsplit

        from cqels.model.redact import redacted

        if not sink.is_url:
            return
        url = urlsplit(sink.to if "://" in sink.to else sink.to.replace(":", "://", 1))
        for each in url.netloc.rpartition("@")[2].split(","):
            host, _, port = each.partition(":")
            _reach(host, int(port) if port.isdigit() else _PORTS.get(sink.scheme, 0), redacted(sink.to))


_PORTS = {
    "mqtt": 1883,
    "mqtts": 8883,
    "kafka": 9092,
    "http": 80,
    "https": 443,
    "ws": 80,
    "wss": 443,
    "sse+http": 80,
    "sse+https": 443,
}
EXTRAS = {
    "mqtt": ("mqtt", "paho.mqtt"),
    "mqtts": ("mqtt", "paho.mqtt"),
    "kafka": ("kafka", "confluent_kafka"),
    "ws": ("websocket", "websockets"),
    "wss": ("websocket", "websockets"),
    "http": ("http", "httpx"),
    "https": ("http", "httpx"),
    "sse+http": ("http", "httpx"),
    "sse+https": ("http", "httpx"),
}
"""By the schemes of URLs: the extra that has their client, and the module of it."""


def check_installed(place: str) -> None:
    """Refuse the URL of a server whose client is not installed."""
    from cqels.model.extras import optional

    extra, module = EXTRAS.get(place.partition(":")[0].lower(), ("", ""))
    if extra:
        optional(module, extra)


def _reach(host: str, port: int, place: str) -> None:
    if not port:
        return
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "is the server started, and the name right?"
        raise CqelsError(f"{place} does not answer: {host}:{port}: {reason}", hint=hint) from None
