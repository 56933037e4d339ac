"""The options of a pipeline: their words, types and defaults, and how each is read and checked.

The command line and a pipeline file fill the same objects, by `PipelineOptions.from_mapping`: a word that is not an
option, or a value that is not taken, is one error that names it as the user wrote it.  What is done with options lives
elsewhere: in `cli` for a run, in `spark.driver` for an application.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, get_args

from cqels.model.choices import (
    Changed,
    Dialect,
    Emission,
    EngineName,
    Lost,
    Placement,
    Policy,
    ResultFormat,
)
from cqels.model.errors import CqelsError
from cqels.model.sizes import parse_size
from cqels.model.time import parse_duration, parse_time

if TYPE_CHECKING:
    from pyoxigraph import NamedNode

    from cqels.ingest import StreamDeclaration

Naming: TypeAlias = Callable[[str, str], str]
"""How the user wrote an option, from its group and its name: errors name it so."""
Reader: TypeAlias = Callable[[str, object], Any]
"""Reads a value, given the option as the user wrote it; raises a `CqelsError`, or a `ValueError` with the reason."""


def in_a_file(group: str, name: str) -> str:
    """An option as a pipeline file has it.

    >>> in_a_file("dataset", "allow_load")
    'dataset.allow-load'
    """
    return f"{group}.{name.replace('_', '-')}"


def on_the_command_line(group: str, name: str) -> str:
    """An option as the command line has it.

    >>> on_the_command_line("dataset", "allow_load")
    '--allow-load'
    """
    return f"--{name.replace('_', '-')}"


# ---------------------------------------------------------------- reading values


def _refused(option: str, value: object, taken: str) -> CqelsError:
    """The error of a value of a type that is not taken."""
    kinds = {bool: "true or false", str: "a text", list: "a list", tuple: "a list", dict: "a table"}
    kind = kinds.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
    return CqelsError(f"{option} is {kind}, and that is not taken", hint=f"it is {taken}")


def _text(option: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refused(option, value, "a text")
    return value


def _path(option: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise _refused(option, value, "the path of a file or folder")
    return Path(value)


def _flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refused(option, value, "true or false")
    return value


def _count(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refused(option, value, "a whole number")
    if value < 1:
        raise ValueError(f"{value} is less than 1")
    return value


def _number(option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(option, value, "a number")
    return float(value)


def _time(option: str, value: object) -> int:
    """Nanoseconds since 1970; a number alone would not say of what."""
    if not isinstance(value, str | datetime):
        raise _refused(option, value, "a time such as 40s or 2026-01-31T12:00:00Z")
    try:
        return parse_time(value)
    except ValueError as error:
        raise CqelsError(f"{option}: {error}", hint="write for example 40s or 2026-01-31T12:00:00Z") from None


def _duration(option: str, value: object) -> int:
    if not isinstance(value, str):
        raise _refused(option, value, "a duration such as 10s")
    return parse_duration(value)


def _interval(option: str, value: object) -> int:
    length = _duration(option, value)
    if length <= 0:
        raise CqelsError(f"{option}: the interval is not longer than 0", hint=f"{option} 5m")
    return length


def _size(option: str, value: object) -> int:
    if not isinstance(value, str):
        raise _refused(option, value, "a size such as 32MB")
    return parse_size(value)


def _port_or_file(option: str, value: object) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else str(_path(option, value))


def _choice(literal: Any, problem: str = "{option}: '{value}' is not one of its values") -> Reader:
    """One of the words of a `Literal`."""
    words = get_args(literal)

    def read(option: str, value: object) -> str:
        if value not in words:
            message = problem.format(option=option, value=_text(option, value))
            raise CqelsError(message, hint=_meant(str(value), words, f"there are {', '.join(words)}"))
        return str(value)

    return read


def _several(read: Reader) -> Reader:
    """One value, or a list of them."""

    def read_all(option: str, value: object) -> tuple[Any, ...]:
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(read(option, each) for each in values)

    return read_all


def _hosts(option: str, value: object) -> tuple[str, ...]:
    """Hosts, in a list or with commas between them."""
    texts = _several(_text)(option, value)
    return tuple(each for text in texts for each in text.split(",") if each.strip())


def _stream(option: str, value: object) -> StreamDeclaration:
    """`<iri>=path?lateness=2s`, or a table of the same words."""
    from cqels.ingest import StreamDeclaration, declare, parse_declaration

    if isinstance(value, Mapping):
        known = [each.name for each in fields(StreamDeclaration)]
        words = _words(option, value, known)
        if missing := [each for each in ("iri", "path") if each not in words]:
            raise CqelsError(f"{option} has no {missing[0]}", hint="a stream is its iri and the path of its files")
        texts = {name: _text(f"{option}.{name}", each) for name, each in words.items()}
        return declare(texts.pop("iri"), texts.pop("path"), **texts)
    if isinstance(value, str):
        return parse_declaration(value)
    raise _refused(option, value, "a text such as '<iri>=path?lateness=2s', or a table with iri and path")


def _data_file(option: str, value: object) -> DataFile:
    from cqels.ingest.dataset_files import file_and_format

    path, format = file_and_format(str(_path(option, value)))
    return DataFile(path, format)


def _graph(option: str, value: object) -> DataFile:
    from pyoxigraph import NamedNode

    from cqels.ingest.dataset_files import file_and_format

    text = _text(option, value)
    iri, separator, file = text[1:].partition(">=") if text.startswith("<") else text.partition("=")
    try:
        if not separator or not file:
            raise ValueError(text)
        path, format = file_and_format(file)
        return DataFile(path, format, NamedNode(iri))
    except ValueError:
        hint = f"write {option} '<iri>=file.ttl'"
        raise CqelsError(f"{option} {text}: this is not an IRI and a file", hint=hint) from None


def _settings(option: str, value: object) -> tuple[tuple[str, str], ...]:
    """Settings of Spark: texts such as `spark.driver.memory=4g`, or a table."""
    if isinstance(value, Mapping):
        return tuple((str(key), str(each)) for key, each in value.items())
    pairs = []
    for text in _several(_text)(option, value):
        key, separator, setting = text.partition("=")
        if not separator or not key:
            hint = f"write {option} spark.driver.memory=4g"
            raise CqelsError(f"{option} {text}: this is not a setting", hint=hint)
        pairs.append((key.strip(), setting.strip()))
    return tuple(pairs)


# ---------------------------------------------------------------- words


def _meant(word: str, known: Iterable[str], otherwise: str) -> str:
    near = get_close_matches(word, [*known], n=1)
    return f"did you mean {near[0]}?" if near else otherwise


def _words(table: str, mapping: Mapping[str, object], known: Iterable[str]) -> dict[str, object]:
    """The words of a table, all of which are known, as the names of fields."""
    shown = [each.replace("_", "-") for each in known]
    found: dict[str, object] = {}
    for word, value in mapping.items():
        plain = str(word).replace("_", "-")
        if plain not in shown:
            hint = _meant(plain, shown, f"there are {', '.join(shown)}")
            raise CqelsError(f"{table} has no option '{word}'" if table else f"there is no '{word}'", hint=hint)
        name = plain.replace("-", "_")
        if name in found:
            raise CqelsError(f"{table} has the option '{plain}' twice", hint="remove one")
        found[name] = value
    return found


def _option(read: Reader, default: Any = None, *, spark: bool = False) -> Any:
    """A field that `read` reads; one that only Spark has is given only where Spark runs."""
    return field(default=default, metadata={"read": read, "spark": spark})


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionGroup:
    """Options that belong together: a table of a pipeline file."""

    table: ClassVar[str]

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object], *, named: Naming = in_a_file) -> Self:
        """Read options by their words, with dashes or underscores; those that are left out have their defaults."""
        if not isinstance(mapping, Mapping):
            raise _refused(cls.table, mapping, "a table of options")
        readers = {each.name: each.metadata["read"] for each in fields(cls)}
        values = {}
        for name, value in _words(cls.table, mapping, readers).items():
            option = named(cls.table, name)
            try:
                values[name] = readers[name](option, value)
            except ValueError as error:
                raise CqelsError(f"{option}: {error}") from None
        return cls(**values)

    def of_spark(self) -> list[str]:
        """The names of options that are given, and that only Spark has."""
        return [
            each.name for each in fields(self) if each.metadata["spark"] and getattr(self, each.name) != each.default
        ]


# ---------------------------------------------------------------- the options


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of static RDF, its format where that is given, and the graph that it is for (None: the default graph)."""

    path: str
    format: str | None = None
    graph: NamedNode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions(OptionGroup):
    """The streams, and how they are read."""

    table: ClassVar[str] = "input"

    stream: tuple[StreamDeclaration, ...] = _option(_several(_stream), ())
    """Each with its path, format, lateness, idle time and limit of future times."""
    strict: bool = _option(_flag, False)
    """Stop at the first malformed or late element."""
    start: int = _option(_time, 0)
    """The time that the boundaries of sliding windows are counted from."""
    until: int | None = _option(_time)
    """After the last element, time goes on until then."""
    follow: bool = _option(_flag, False, spark=True)
    """Wait for new files and lines."""
    changed: Changed | None = _option(
        _choice(Changed, "'{value}' is not what can be done with a changed file"), spark=True
    )
    """What to do with a file that was replaced, shortened or removed; None stops."""
    speed: float | None = _option(_number, spark=True)
    """Replay at the pace of event time, so many times faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOptions(OptionGroup):
    """The static data, and what SERVICE and LOAD may reach."""

    table: ClassVar[str] = "dataset"

    data: tuple[DataFile, ...] = _option(_several(_data_file), ())
    graph: tuple[DataFile, ...] = _option(_several(_graph), ())
    """Files for named graphs."""
    store: Path | None = _option(_path)
    """A folder for the data; None is in memory."""
    allow_service: tuple[str, ...] | None = _option(_hosts)
    """Hosts that SERVICE and LOAD may ask; None is any of the public Internet."""
    allow_load: tuple[Path, ...] | None = _option(_several(_path))
    """Folders that LOAD may read files of."""
    service_refresh: int | None = _option(_interval)
    """Nanoseconds after which a SERVICE is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions(OptionGroup):
    """The queries, how they are read, and what each may take."""

    table: ClassVar[str] = "queries"

    files: tuple[Path, ...] = _option(_several(_path), ())
    dialect: Dialect | None = _option(_choice(Dialect))
    emit: Emission | None = _option(_choice(Emission))
    policy: Policy | None = _option(_choice(Policy))
    lenient: bool = _option(_flag, False)
    """Warn of variables that are bound nowhere."""
    memory_per_query: str | None = _option(_text)
    """The budget of each query, as in 200MB; `engine.state.budgets` reads it."""
    time_per_query: str | None = _option(_text)
    """As in 5ms."""

    @property
    def has_budget(self) -> bool:
        return self.memory_per_query is not None or self.time_per_query is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(OptionGroup):
    """What runs the queries, and how."""

    table: ClassVar[str] = "run"

    engine: EngineName = _option(_choice(EngineName), "spark")
    master: str | None = _option(_text, spark=True)
    """Where Spark runs; None is here, on all cores."""
    checkpoint: Path | None = _option(_path, spark=True)
    """A folder to go on from; None begins anew each time."""
    lost: Lost | None = _option(_choice(Lost), spark=True)
    """What to do where results that were written are gone; None stops."""
    instances: int | None = _option(_count, spark=True)
    """Engine instances that queries are placed on."""
    partitions: int | None = _option(_count, spark=True)
    """Spark's tasks for the engine instances."""
    placement: Placement | None = _option(_choice(Placement, "there is no placement '{value}'"), spark=True)
    """How the engine instance of a query is chosen; None is by buffers."""
    spread: bool = _option(_flag, False, spark=True)
    """Partition the queries that can be."""
    batch: int | None = _option(_size, spark=True)
    """Most bytes of input in a micro-batch."""
    trigger: int | None = _option(_duration, spark=True)
    """Nanoseconds between micro-batches; None is as fast as it goes."""
    ui: bool = _option(_flag, False, spark=True)
    """Have Spark's own pages."""
    conf: tuple[tuple[str, str], ...] = _option(_settings, (), spark=True)
    """Settings of Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions(OptionGroup):
    """Where results, rejected input and metrics go."""

    table: ClassVar[str] = "output"

    out: str | None = _option(_text)
    """A file, a folder with a file for each query, or `kafka:host:9092/topic`; None is the terminal."""
    format: ResultFormat | None = _option(_choice(ResultFormat))
    rejects: Path | None = _option(_path)
    """Where rejected and late elements are written."""
    metrics: Path | None = _option(_path, spark=True)
    """A file with a line of JSON for each micro-batch."""
    prometheus: str | None = _option(_port_or_file, spark=True)
    """A file, or the number of a port, with metrics for Prometheus."""
    analyze: bool = _option(_flag, False)
    """At the end show each query's plan with its counters."""

    @property
    def to_folder(self) -> bool:
        """Results go to a file for each query."""
        return self.out is not None and (self.out.endswith("/") or Path(self.out).is_dir())

    @property
    def chosen_format(self) -> str:
        """The format that is given, or that the name of the file tells; else text, in a folder CSV."""
        from cqels.results import format_of_file

        return self.format or (format_of_file(self.out or "") or ("csv" if self.to_folder else "text"))


_GROUPS: tuple[type[OptionGroup], ...] = (InputOptions, DatasetOptions, QueryOptions, RunOptions, OutputOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """All that a run is told: sources, data, queries, sinks, and how it runs."""

    input: InputOptions = InputOptions()
    dataset: DatasetOptions = DatasetOptions()
    queries: QueryOptions = QueryOptions()
    run: RunOptions = RunOptions()
    output: OutputOptions = OutputOptions()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object], *, named: Naming = in_a_file) -> Self:
        """Read a table for each group, as a pipeline file has them; groups that are left out have their defaults.

        Options that do not go together are refused.
        """
        tables = _words("", mapping, [each.table for each in _GROUPS])
        groups: dict[str, Any] = {
            each.table: each.from_mapping(tables[each.table], named=named)  # type: ignore[arg-type]
            for each in _GROUPS
            if each.table in tables
        }
        made = cls(**groups)
        made.check(named)
        return made

    @property
    def engine(self) -> EngineName:
        """What runs the queries: without a stream there is nothing to distribute, and one tick runs in this process."""
        return "embedded" if self.run.engine == "spark" and not self.input.stream else self.run.engine

    def check(self, named: Naming = in_a_file) -> None:
        """Refuse options that the engine does not have."""
        chosen = named("run", "engine")
        if self.output.analyze and self.run.engine != "embedded":
            analyze = named("output", "analyze")
            if self.run.engine == "spark":
                hint = f"add {chosen} embedded; on Spark {named('output', 'metrics')} FILE has the counts of each "
                raise CqelsError(f"{analyze} shows the plan of an engine in this process", hint=f"{hint}micro-batch")
            hint = f"leave out {chosen} reference"
            raise CqelsError(f"{analyze} shows what the incremental engine did", hint=hint)
        if self.engine == "spark":
            return
        groups = (self.input, self.dataset, self.queries, self.run, self.output)
        if given := [named(group.table, name) for group in groups for name in group.of_spark()]:
            stream = named("input", "stream")
            why = (
                f"{'a' if stream.startswith('-') else 'an'} {stream}"
                if self.run.engine == "spark"
                else f"{chosen} spark"
            )
            raise CqelsError(f"{', '.join(given)} can be asked for only with {why}")
        if self.engine == "reference" and self.queries.has_budget:
            raise CqelsError("the reference has no budgets for queries", hint=f"leave out {chosen} reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """What an application on Spark is told besides its streams, data and queries (`spark.driver.app`)."""

    checkpoint: Path | None = None
    """A folder to go on from; None begins anew each time."""
    instances: int | None = None
    """Engine instances; None is one for each query, and at most one for each of Spark's partitions."""
    start: int = 0
    """The time that the boundaries of sliding windows are counted from."""
    until: int | None = None
    """After the last element, time goes on until then."""
    follow: bool = False
    """Wait for new files and lines."""
    speed: float | None = None
    """Replay files at the pace of event time, so many times faster."""
    batch_bytes: int | None = None
    """Most bytes of files in a micro-batch."""
    strict: bool = False
    """Stop at the first malformed or late element."""
    placement: str = "buffers"
    """How the engine instance of a query is chosen."""
    changing: bool = False
    """Keep all triples of elements that wait for others, so that queries can be added while it runs."""

    def __post_init__(self) -> None:
        _choice(Placement, "there is no placement '{value}'")("placement", self.placement)

    @staticmethod
    def of(options: PipelineOptions) -> AppOptions:
        """The part of a pipeline's options that an application takes."""
        input, run = options.input, options.run
        return AppOptions(
            checkpoint=run.checkpoint,
            instances=run.instances,
            start=input.start,
            until=input.until,
            follow=input.follow,
            speed=input.speed,
            batch_bytes=run.batch,
            strict=input.strict,
            placement=run.placement or "buffers",
        )
