"""The options of a pipeline: their words, types and defaults, and how each is read and checked.

The command line and a pipeline file (`cqels.pipeline_file`) fill the same objects, by `PipelineOptions.from_mapping`:
a word that is not an option, or a value that is not taken, is one error that names it as the user wrote it.  What is
done with options lives elsewhere: in `cli` for a run, in `spark.driver` for an application.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cqels.model.choices import (
    Changed,
    Dialect,
    Emission,
    EngineName,
    Latency,
    Lost,
    Placement,
    Policy,
    ResultFormat,
)
from cqels.model.errors import CqelsError
from cqels.option_tables import (
    DATA,
    LIST_TABLES,
    QUERIES,
    SINKS,
    STREAMS,
    DataFile,
    DeclaredQuery,
    DeclaredSink,
    ListTable,
)
from cqels.option_values import (
    Naming,
    NoSuchWord,
    Reader,
    Told,
    choice_of,
    count_of,
    duration_of,
    flag_of,
    hosts_of,
    in_a_file,
    interval_of,
    meant,
    on_the_command_line,
    path_of,
    port_or_file,
    raised,
    rate_of,
    read_words,
    settings_of,
    several,
    size_of,
    text_of,
    time_of,
)
from cqels.serve_options import TABLE as SERVE
from cqels.serve_options import ServeOptions, read_serve_options

if TYPE_CHECKING:
    from cqels.ingest import StreamDeclaration

__all__ = [
    "LIST_TABLES",
    "PIPELINE_WORDS",
    "AppOptions",
    "DataFile",
    "DatasetOptions",
    "DeclaredQuery",
    "DeclaredSink",
    "InputOptions",
    "OutputOptions",
    "PipelineOptions",
    "QueryOptions",
    "RunOptions",
    "ServeOptions",
    "in_a_file",
    "on_the_command_line",
]


def _option(read: Reader, default: Any = None, *, spark: bool = False, live: bool = False, place: bool = False) -> Any:
    """A field that `read` reads, a word of the table `pipeline`.

    One that only Spark has is given only where Spark runs; one that is `live` not to the reference, and not without a
    stream.  The value of a `place` is a file or folder, or several.
    """
    return field(default=default, metadata={"read": read, "spark": spark, "live": live, "place": place})


def _entries(table: ListTable) -> Any:
    """A field that has the entries of a table of its own."""
    return field(default=(), metadata={"table": table})


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionGroup:
    """Options that belong together."""

    def of_spark(self, *, live: bool) -> list[str]:
        """The names of options that are given, and that only Spark has, or only a live run if that is said."""
        return [
            each.name
            for each in fields(self)
            if (each.metadata.get("spark") or (live and each.metadata.get("live")))
            and getattr(self, each.name) != each.default
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions(OptionGroup):
    """The streams, and how they are read."""

    stream: tuple[StreamDeclaration, ...] = _entries(STREAMS)
    """Each with its path, format, lateness, idle time and limit of future times."""
    strict: bool = _option(flag_of, False)
    """Stop at the first malformed or late element."""
    start: int = _option(time_of, 0)
    """The time that the boundaries of sliding windows are counted from."""
    until: int | None = _option(time_of)
    """After the last element, time goes on until then."""
    tick: int | None = _option(interval_of)
    """Nanoseconds between two heartbeats by the wall clock; None is what fits the queries."""
    follow: bool = _option(flag_of, False, live=True)
    """Wait for new files and lines."""
    changed: Changed | None = _option(
        choice_of(Changed, "'{value}' is not what can be done with a changed file"), live=True
    )
    """What to do with a file that was replaced, shortened or removed; None stops."""
    speed: float | None = _option(rate_of, live=True)
    """Replay at the pace of event time, so many times faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOptions(OptionGroup):
    """The static data, and what SERVICE and LOAD may reach."""

    data: tuple[DataFile, ...] = _entries(DATA)
    """Files for the default graph and for named graphs."""
    store: Path | None = _option(path_of, place=True)
    """A folder for the data; None is in memory."""
    watch: bool = _option(flag_of, False)
    """All files of data are watched: they change the dataset when they have changed."""
    allow_service: tuple[str, ...] | None = _option(hosts_of)
    """Hosts that SERVICE and LOAD may ask; None is any of the public Internet."""
    allow_load: tuple[Path, ...] | None = _option(several(path_of), place=True)
    """Folders that LOAD may read files of."""
    service_refresh: int | None = _option(interval_of)
    """Nanoseconds after which a SERVICE is asked again."""

    @property
    def watched(self) -> tuple[DataFile, ...]:
        """The files that are watched."""
        return tuple(each for each in self.data if each.watch or self.watch)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions(OptionGroup):
    """The queries, how they are read, and what each may take."""

    query: tuple[DeclaredQuery, ...] = _entries(QUERIES)
    dialect: Dialect | None = _option(choice_of(Dialect))
    emit: Emission | None = _option(choice_of(Emission))
    policy: Policy | None = _option(choice_of(Policy))
    lenient: bool = _option(flag_of, False)
    """Warn of variables that are bound nowhere."""
    memory_per_query: str | None = _option(text_of)
    """The budget of each query, as in 200MB; `engine.state.budgets` reads it."""
    time_per_query: str | None = _option(text_of)
    """As in 5ms."""

    @property
    def has_budget(self) -> bool:
        return any(value is not None for query in self.query for value in self.budget(query))

    def budget(self, query: DeclaredQuery) -> tuple[str | None, str | None]:
        """The most memory and time that a query may take."""
        return query.memory or self.memory_per_query, query.time or self.time_per_query


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(OptionGroup):
    """What runs the queries, and how."""

    engine: EngineName = _option(choice_of(EngineName), "spark")
    master: str | None = _option(text_of, spark=True)
    """Where Spark runs; None is here, on all cores."""
    state: Path | None = _option(path_of, live=True, place=True)
    """A folder to go on from; None begins anew each time, or where a pipeline file runs live, it is `state`."""
    fresh: bool = _option(flag_of, False, live=True)
    """Forget the state, and begin anew."""
    lost: Lost | None = _option(choice_of(Lost), live=True)
    """What to do where results that were written are gone; None stops."""
    instances: int | None = _option(count_of, spark=True)
    """Engine instances that queries are placed on."""
    partitions: int | None = _option(count_of, spark=True)
    """Spark's tasks for the engine instances."""
    placement: Placement | None = _option(choice_of(Placement, "there is no placement '{value}'"), spark=True)
    """How the engine instance of a query is chosen; None is by buffers."""
    latency: Latency | None = _option(choice_of(Latency), spark=True)
    """With low, one engine instance in the driver; None is normal."""
    spread: bool = _option(flag_of, False, spark=True)
    """Partition the queries that can be."""
    batch: int | None = _option(size_of, live=True)
    """Most bytes of input in a micro-batch."""
    trigger: int | None = _option(duration_of, live=True)
    """Nanoseconds between micro-batches; None is as fast as it goes."""
    ui: bool = _option(flag_of, False, spark=True)
    """Have Spark's own pages."""
    conf: tuple[tuple[str, str], ...] = _option(settings_of, (), spark=True)
    """Settings of Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions(OptionGroup):
    """Where results, rejected input and metrics go."""

    sink: tuple[DeclaredSink, ...] = _entries(SINKS)
    """Files, folders with a file for each query, URLs such as `kafka://host/topic`; none is the terminal."""
    format: ResultFormat | None = _option(choice_of(ResultFormat))
    """That of the sinks that do not say theirs."""
    rejects: Path | None = _option(path_of, place=True)
    """Where rejected and late elements are written."""
    metrics: Path | None = _option(path_of, spark=True, place=True)
    """A file with a line of JSON for each micro-batch."""
    prometheus: str | None = _option(port_or_file, spark=True, place=True)
    """A file, or the number of a port, with metrics for Prometheus."""
    analyze: bool = _option(flag_of, False)
    """At the end show each query's plan with its counters."""

    @property
    def sinks(self) -> tuple[DeclaredSink, ...]:
        """Those that are declared, each with its format; else the terminal."""
        return tuple(replace(each, format=each.chosen_format(self.format)) for each in self.sink or (DeclaredSink(),))


_GROUPS: dict[str, type[OptionGroup]] = {
    "input": InputOptions,
    "dataset": DatasetOptions,
    "queries": QueryOptions,
    "run": RunOptions,
    "output": OutputOptions,
}
PIPELINE_WORDS: dict[str, Reader] = {
    each.name: each.metadata["read"] for group in _GROUPS.values() for each in fields(group) if "read" in each.metadata
}
"""The words of the table `pipeline`, with underscores: those of the options of the command line."""
PLACES = frozenset(each.name for group in _GROUPS.values() for each in fields(group) if each.metadata.get("place"))
"""Those whose values are files or folders."""
OPTION_TABLES = ("pipeline", SERVE)
"""The tables of options, which the command line has, too."""
TABLES = (*OPTION_TABLES, "prefixes", *(each.name for each in LIST_TABLES))
"""The tables of a pipeline file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """All that a run is told: sources, data, queries, sinks, and how it runs."""

    input: InputOptions = InputOptions()
    dataset: DatasetOptions = DatasetOptions()
    queries: QueryOptions = QueryOptions()
    run: RunOptions = RunOptions()
    output: OutputOptions = OutputOptions()
    serve: ServeOptions = ServeOptions()
    """Of `cqels serve` alone."""

    @classmethod
    def from_mapping(
        cls,
        mapping: Mapping[str, object],
        *,
        named: Naming = in_a_file,
        told: Told = raised,
        insisted: Collection[str] | None = None,
        serves: bool = False,
    ) -> Self:
        """Read the tables of a pipeline file; words that are left out have their defaults.

        Options that do not go together are refused; of those that only Spark has, only the ones that are `insisted` on,
        all if nothing is said.  What `serves` needs no stream: these come later.  Errors are raised, unless they are
        `told` otherwise.
        """
        for word in mapping:
            if word not in TABLES:
                told((word,), NoSuchWord(f"there is no '{word}'", hint=_no_table(str(word))))
        values = read_words("pipeline", mapping.get("pipeline", {}), PIPELINE_WORDS, named, ("pipeline",), told)
        lists = {each.name: each.read(mapping, named, told) for each in LIST_TABLES}
        groups: dict[str, Any] = {}
        for table, group in _GROUPS.items():
            own = {each.name: values[each.name] for each in fields(group) if each.name in values}
            own |= {each.name: lists[each.metadata["table"].name] for each in fields(group) if "table" in each.metadata}
            groups[table] = group(**own)
        made = cls(**groups, serve=read_serve_options(mapping, named, told))
        made.check(named, told, insisted, serves=serves)
        return made

    @property
    def engine(self) -> EngineName:
        """What runs the queries: without a stream there is nothing to distribute, and one tick runs in this process."""
        return "embedded" if self.run.engine == "spark" and not self.input.stream else self.run.engine

    @property
    def is_live(self) -> bool:
        """Whether more is waited for when all that is there has been read."""
        from cqels.ingest.live_sources import is_live

        return self.input.follow or any(map(is_live, self.input.stream))

    def check(
        self,
        named: Naming = in_a_file,
        told: Told = raised,
        insisted: Collection[str] | None = None,
        *,
        serves: bool = False,
    ) -> None:
        """Refuse options that the engine does not have."""
        chosen = named("pipeline", "engine")
        if self.output.analyze and self.run.engine != "embedded":
            analyze, metrics = named("pipeline", "analyze"), named("pipeline", "metrics")
            if self.run.engine == "spark":
                message = f"{analyze} shows the plan of an engine in this process"
                hint = f"add {chosen} embedded; on Spark {metrics} FILE has the counts of each micro-batch"
            else:
                message, hint = f"{analyze} shows what the incremental engine did", f"leave out {chosen} reference"
            told(("pipeline", "analyze"), CqelsError(message, hint=hint))
        if self.engine == "spark" or (serves and self.run.engine == "spark"):
            return
        groups = (self.input, self.dataset, self.queries, self.run, self.output)
        live = self.engine == "reference" or not (self.input.stream or serves)
        given = [name for group in groups for name in group.of_spark(live=live) if insisted is None or name in insisted]
        if given:
            stream = named("streams", "")
            why = f"{chosen} spark"
            if self.run.engine == "spark":
                why = f"a {stream}" if stream.startswith("-") else stream
            words = ", ".join(named("pipeline", name) for name in given)
            error = CqelsError(f"{words} can be asked for only with {why}")
            told(("pipeline", given[0].replace("_", "-")), error)
        if self.engine == "reference" and self.queries.has_budget:
            error = CqelsError("the reference has no budgets for queries", hint=f"leave out {chosen} reference")
            told(("pipeline", "engine"), error)


def _no_table(word: str) -> str:
    """What was meant by a word that is no table."""
    plain = word.replace("-", "_")
    if plain in PIPELINE_WORDS:
        return f"write it below [pipeline]: {word} = …"
    return meant(word, TABLES, f"there are {', '.join(TABLES)}")


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
    tick: int | None = None
    """Nanoseconds between two heartbeats by the wall clock; None is for what fits the queries."""

    latency: str = "normal"
    """With low, one engine instance in the driver, and micro-batches of one stage."""

    def __post_init__(self) -> None:
        choice_of(Placement, "there is no placement '{value}'")("placement", self.placement)
        choice_of(Latency)("latency", self.latency)
        if self.is_low_latency and (self.instances or 1) > 1:
            raise CqelsError(
                f"the low-latency mode has one engine instance, not {self.instances}",
                hint="leave out instances, or latency",
            )

    @property
    def is_low_latency(self) -> bool:
        return self.latency == "low"

    @staticmethod
    def of(options: PipelineOptions) -> AppOptions:
        """The part of a pipeline's options that an application takes."""
        input, run = options.input, options.run
        return AppOptions(
            checkpoint=run.state,
            instances=run.instances,
            start=input.start,
            until=input.until,
            tick=input.tick,
            follow=input.follow,
            speed=input.speed,
            batch_bytes=run.batch,
            strict=input.strict,
            placement=run.placement or "buffers",
            latency=run.latency or "normal",
        )
