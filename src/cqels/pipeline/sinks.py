"""The sinks of a pipeline, and the texts that name them: `sink_of("kafka://host:9092/hot")`.

Each sink is a module of `cqels.pipeline.sink`, and a line of `SCHEMES` if it has a scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias

from cqels.model.errors import CqelsError
from cqels.model.redact import redacted
from cqels.pipeline.sink.callback_sink import Callback
from cqels.pipeline.sink.console_sink import Console
from cqels.pipeline.sink.fan_out import FanOut, ForQueries, check_names
from cqels.pipeline.sink.file_sink import FILE_FORMATS, Files
from cqels.pipeline.sink.memory_sink import Memory
from cqels.pipeline.sink.sink_protocol import Lasting, Refusing, Sink, Waiting, place_of, promise_of
from cqels.pipeline.sink.sink_settings import Settings, SinkAddress, parse_address, unknown_scheme
from cqels.plan.algebra import Query
from cqels.results import format_of_file

__all__ = [
    "FILE_FORMATS",
    "SCHEMES",
    "Callback",
    "Console",
    "FanOut",
    "Files",
    "ForQueries",
    "Lasting",
    "Memory",
    "Refusing",
    "Sink",
    "SinkContext",
    "Waiting",
    "check_names",
    "place_of",
    "promise_of",
    "sink_of",
    "sinks_of",
]

_PLACES = (
    "console, memory, kafka://host:9092/topic, mqtt://host/topic, https://…, a folder such as results/, "
    "or a file such as out.csv"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What a run says of all its sinks."""

    replace: bool = False
    """Files of another run may be replaced."""
    passing: bool = False
    """No run goes on from this one: nothing is noted beside files."""
    exact: bool = False
    """The terminal has the results of all queries in one order, whatever the batches are."""
    terminal: TextIO | None = None
    """Instead of standard output."""


_Maker: TypeAlias = Callable[[SinkAddress, Settings, str | None, str], Sink]
"""Makes a sink of an address, settings, a format, and the number of the sink among those of one address."""


def _kafka(address: SinkAddress, settings: Settings, format: str | None, number: str) -> Sink:
    from cqels.pipeline.sink.kafka_sink import kafka_of

    return kafka_of(address, settings, format, number)


def _mqtt(address: SinkAddress, settings: Settings, format: str | None, number: str) -> Sink:
    from cqels.pipeline.sink.mqtt_sink import mqtt_of

    return mqtt_of(address, settings, format, number)


def _webhook(address: SinkAddress, settings: Settings, format: str | None, number: str) -> Sink:
    from cqels.pipeline.sink.webhook_sink import webhook_of

    return webhook_of(address, settings, format, number)


SCHEMES: dict[str, _Maker] = {
    "kafka": _kafka,
    "mqtt": _mqtt,
    "mqtts": _mqtt,
    "http": _webhook,
    "https": _webhook,
}
"""The sinks that have a scheme."""


class DeclaredSink(Protocol):
    """As much of a sink of a pipeline file, or of `--out`, as is needed here."""

    @property
    def to(self) -> str: ...

    @property
    def format(self) -> str | None: ...

    @property
    def queries(self) -> Sequence[str]:
        """The names of those whose results it takes; none are all."""


def sink_of(
    to: str | Path | Callable[..., Any],
    *,
    format: str | None = None,
    replace: bool = False,
    context: SinkContext | None = None,
    number: str = "",
    settings: Mapping[str, object] | None = None,
) -> Sink:
    """The sink that a text names, or of a function that is called with each result.

    `console` (or `-`), `memory`, a file `out.csv`, a folder `results/`, `kafka://host:9092/topic`,
    `mqtt://host/topic`, `http://…`; settings stand behind `?`, those of a webhook behind `#`, or are given apart.
    `number` tells sinks of the same address apart, of which each is exactly once by itself.
    """
    context = context or SinkContext(replace=replace)
    if callable(to):
        return Callback(to)
    text = str(to)
    if text in ("console", "-"):
        return Console(format or "text", context.terminal, exact=context.exact)
    if text == "memory":
        return Memory()
    address = parse_address(text, SCHEMES)
    given = Settings(address.place, address.settings | dict(settings or {}))
    made = SCHEMES[address.scheme](address, given, format, number) if address.scheme else None
    made = made or _files(address, given, format, context)
    given.check()
    return made


def sinks_of(
    declared: Iterable[DeclaredSink], queries: Sequence[Query], *, context: SinkContext | None = None
) -> list[Sink]:
    """The sinks of a run, each for its queries: names that no query has are refused."""
    made: list[Sink] = []
    seen: dict[str, int] = {}
    for each in declared:
        number = seen.get(each.to, 0)
        seen[each.to] = number + 1
        sink = sink_of(each.to, format=each.format, context=context, number=str(number) if number else "")
        if each.queries:
            check_names(each.queries, queries, redacted(each.to))
            sink = ForQueries(sink, each.queries)
        made.append(sink)
    return made


def _files(address: SinkAddress, settings: Settings, format: str | None, context: SinkContext) -> Sink:
    """A file, or a folder with a file for each query."""
    path = address.rest
    if scheme := unknown_scheme(path):
        near = get_close_matches(scheme, SCHEMES, n=1)
        raise CqelsError(
            f"results cannot go to '{redacted(path)}': there is no sink {scheme}",
            hint=f"did you mean {near[0]}://…?" if near else _PLACES,
        )
    folder = path.endswith("/") or Path(path).is_dir()
    known = format or format_of_file(path)
    if not path or (known is None and not folder):
        raise CqelsError(
            f"results cannot go to '{redacted(path)}': its name tells no format" if path else "results go nowhere",
            hint=f"the formats are {', '.join(FILE_FORMATS)}; places are {_PLACES}",
        )
    if settings.flag("parts", default=False):
        from cqels.pipeline.sink.part_sink import PartFolder

        if not folder:
            raise CqelsError(f"{path} is a file, and has no parts", hint=f"name a folder: {path}/?parts")
        return PartFolder(path, known or "csv", replace=context.replace or context.passing)
    return Files(path, known, single=not folder, replace=context.replace or context.passing, passing=context.passing)
