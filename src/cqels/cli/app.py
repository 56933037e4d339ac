"""The commands: each parses its arguments, calls one public function and renders what it returns."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cqels.model.errors import CqelsError

if TYPE_CHECKING:
    from cqels.model.errors import Source
    from cqels.plan.algebra import Query

app = typer.Typer(
    name="cqels",
    help="Continuous SPARQL queries over RDF streams and Linked Data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

PlanFormat = Literal["text", "json", "mermaid"]
ResultFormat = Literal["text", "csv", "jsonl", "ntriples", "parquet"]
Dialect = Literal["cqels-ql", "c-sparql", "rsp-ql", "sparqlstream", "streaming-sparql", "ep-sparql"]
Emission = Literal["istream", "dstream", "rstream", "changes", "snapshot"]
Policy = Literal["cqels", "window-close", "cqels-1"]
EngineName = Literal["spark", "embedded", "reference"]

QueryPath = Annotated[Path, typer.Argument(metavar="QUERY.rq", help="The query's file; - reads standard input.")]
QueryPaths = Annotated[list[Path], typer.Argument(metavar="QUERY.rq…", help="Query files; - reads standard input.")]
_INPUT, _OUTPUT, _MEANING = "Input", "Output", "What the queries mean"
_SPARK, _GOING_ON = "Spark", "Long runs"
DialectOption = Annotated[
    Dialect | None,
    typer.Option(
        rich_help_panel=_MEANING, help="Insist on a dialect. By default the query's own words tell which it is."
    ),
]
EmitOption = Annotated[
    Emission | None,
    typer.Option(
        rich_help_panel=_MEANING,
        help="What is sent: new rows (istream), rows gone (dstream), all rows (rstream), both differences "
        "with a sign (changes), the ordered result (snapshot). By default the query tells.",
    ),
]
LenientOption = Annotated[
    bool,
    typer.Option(
        "--lenient",
        rich_help_panel=_MEANING,
        help="Warn of variables that are selected, ordered or grouped by and bound nowhere, instead of stopping.",
    ),
]
PolicyOption = Annotated[
    Policy | None,
    typer.Option(
        rich_help_panel=_MEANING,
        help="When a query is evaluated: at every element (cqels), when a window closes (window-close), or "
        "as the published engine did (cqels-1). By default the dialect tells.",
    ),
]


@app.command()
def explain(
    query: QueryPath,
    format: Annotated[PlanFormat, typer.Option(help="How the plan is shown.")] = "text",
    written: Annotated[bool, typer.Option("--written", help="The plan as written, before any rewriting.")] = False,
    dialect: DialectOption = None,
    emit: EmitOption = None,
    policy: PolicyOption = None,
    lenient: LenientOption = False,
) -> None:
    """Show the plan of a query: streams and their windows, static tables, filters, and what is emitted when."""
    from cqels.physical.incremental_support import computed_anew
    from cqels.plan.explain import explain as explained
    from cqels.plan.optimizer.rules import rewrite

    plan = _prepared(query, dialect, emit, policy, lenient=lenient)
    shown = plan if written else rewrite(plan)
    anew = {} if written else {id(part): reason for part, reason in computed_anew(shown.plan)}
    typer.echo(
        explained(
            shown,
            format,
            rewritten=False,
            notes=lambda node: [("computed anew", anew[id(node)])] if id(node) in anew else [],
        )
    )


@app.command()
def check(queries: QueryPaths, dialect: DialectOption = None, lenient: LenientOption = False) -> None:
    """Say for each query whether it can run as written, and if not, where and why. Exit code 2 if one cannot."""
    failed = False
    for path in queries:
        try:
            plan = _prepared(path, dialect, None, None, lenient=lenient)
        except CqelsError as error:
            failed = True
            typer.echo(f"error: {error}", err=True)
        else:
            typer.echo(f"{path}: ok ({plan.form}, {plan.dialect}, emits {plan.emit})")
    if failed:
        raise typer.Exit(2)


@app.command()
def run(
    queries: QueryPaths,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="IRI=PATH",
            rich_help_panel=_INPUT,
            help="A stream and its files, e.g. '<http://ex.org/obs>=obs/*.nt?element=subject&lateness=2s'. Options "
            "after '?': element, time, unit, lateness, idle, clock, format, template, future. The path - is standard "
            "input (--engine embedded or reference). May be given several times.",
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_INPUT,
            help="Static RDF for the default graph. Where its name does not tell the format: file?format=turtle, or "
            "ntriples, nquads, trig, jsonld, rdfxml.",
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(metavar="IRI=FILE", rich_help_panel=_INPUT, help="Static RDF for a named graph."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", rich_help_panel=_INPUT, help="Keep static data on disk in this directory, not in memory."
        ),
    ] = None,
    allow_service: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            rich_help_panel=_INPUT,
            help="A host that SERVICE and LOAD may ask, as ex.org or localhost:3030; then no other. Without it, any of "
            "the public Internet, and none of this machine or a private network. May be given several times.",
        ),
    ] = None,
    allow_load: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=_INPUT,
            help="A folder that LOAD may read files of. May be given several times.",
        ),
    ] = None,
    service_refresh: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=_INPUT,
            help="How often a SERVICE is asked again, as 5m, which is the default.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", rich_help_panel=_INPUT, help="Stop at the first malformed or late element."),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            rich_help_panel=_OUTPUT,
            help="Write results here, not to the terminal: a file such as out.csv, a folder such as results/ with a "
            "file for each query, or kafka:host:9092/topic.",
        ),
    ] = None,
    format: Annotated[
        ResultFormat | None,
        typer.Option(
            rich_help_panel=_OUTPUT, help="How results are written. By default the file's name tells; else as text."
        ),
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=_OUTPUT, help="Write rejected and late input here, not to the terminal."
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_OUTPUT, help="Add a line of JSON for each micro-batch."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|PORT", rich_help_panel=_OUTPUT, help="Metrics for Prometheus: in a file, or on a port."
        ),
    ] = None,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            rich_help_panel=_OUTPUT,
            help="At the end show each query's plan with what was done: rows, window sizes, bytes of state, the orders "
            "that joins took. Needs --engine embedded.",
        ),
    ] = False,
    emit: EmitOption = None,
    policy: PolicyOption = None,
    dialect: DialectOption = None,
    lenient: LenientOption = False,
    start: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            rich_help_panel=_MEANING,
            help="The time that the boundaries of sliding windows are counted from.",
        ),
    ] = "0s",
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel=_MEANING, help="After the last element, let time go on until then."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=_GOING_ON,
            help="Remember here how far the run has come, and go on from there. Without it each run begins anew.",
        ),
    ] = None,
    lost: Annotated[
        Literal["stop", "continue", "rebuild"] | None,
        typer.Option(
            rich_help_panel=_GOING_ON,
            help="Where results that were written are gone: stop and say so (the default), continue with what comes "
            "from now on, or rebuild: read all files once more and write all anew.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", rich_help_panel=_GOING_ON, help="Wait for new files and lines, until Ctrl-C."),
    ] = False,
    changed: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            rich_help_panel=_GOING_ON,
            help="What to do with a file that was replaced, shortened or removed: stop (the default), skip or reread.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="N", rich_help_panel=_GOING_ON, help="Replay at the pace of the data's own times, N times faster."
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="SIZE", rich_help_panel=_GOING_ON, help="Most bytes of input in a micro-batch, as 32MB."),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel=_GOING_ON, help="Time between micro-batches. By default as fast as it goes."
        ),
    ] = None,
    memory_per_query: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=_GOING_ON,
            help="Stop a query whose state takes more, as 200MB; the others go on. The exit code is then 3.",
        ),
    ] = None,
    time_per_query: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=_GOING_ON,
            help="The same for one that takes more of the processor's time for an element, on average, as 5ms.",
        ),
    ] = None,
    engine: Annotated[
        EngineName,
        typer.Option(
            rich_help_panel=_SPARK,
            help="What runs the queries: Spark; the same incremental engine in this process, without Java (embedded); "
            "or the one that computes everything anew at every tick (reference).",
        ),
    ] = "spark",
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=_SPARK, help="Where Spark runs. By default here, on all cores: local[*]."
        ),
    ] = None,
    instances: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, rich_help_panel=_SPARK, help="Engines that the queries are spread over. Default: cores."
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, rich_help_panel=_SPARK, help="Spark's tasks for the engines."),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            rich_help_panel=_SPARK,
            help="The engine that a query goes to: the one with the smallest buffers (the default), the least latency, "
            "or by rotation.",
        ),
    ] = None,
    spread: Annotated[
        bool,
        typer.Option(
            "--spread",
            rich_help_panel=_SPARK,
            help="Let all engines have a part of each query, by a variable that all its triple patterns over streams "
            "have; queries that have none run as a whole.",
        ),
    ] = False,
    ui: Annotated[
        bool, typer.Option("--ui", rich_help_panel=_SPARK, help="Have Spark's own pages, and say where they are.")
    ] = False,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", rich_help_panel=_SPARK, help="A setting of Spark's. May be given several times."
        ),
    ] = None,
) -> None:
    """Run queries over streams in files and write their exact results.

    On Spark, unless told otherwise. What is written does not depend on the engine or on timing.

    Results as they come, to the terminal:

        cqels run hot.rq --stream '<http://ex.org/obs>=obs.nt' --data rooms.ttl

    Several queries, each with a file of its own, and what was malformed or late in another:

        cqels run hot.rq mean.rq --stream '<http://ex.org/obs>=obs/*.nt' --out results/ --rejects rejects.tsv

    Day and night: new files as they appear, and after an interruption go on, nothing lost and nothing twice:

        cqels run hot.rq --stream '<http://ex.org/obs>=obs/' --follow --checkpoint state/ --out hot.csv

    A recorded day as if it were now, a hundred times faster:

        cqels run hot.rq --stream '<http://ex.org/obs>=day.nt' --speed 100

    What another program writes, as it comes:

        sensors | cqels run hot.rq --engine embedded --stream '<http://ex.org/obs>=-'
    """
    from cqels.cli.run_local import OnSpark, Run

    Run(
        engine=engine,
        queries=_named_queries(queries, dialect, emit, policy, lenient=lenient),
        streams=stream or [],
        data=data or [],
        graphs=graph or [],
        format=format,
        out=out,
        store=store,
        rejects=rejects,
        strict=strict,
        until=until,
        start=start,
        analyze=analyze,
        memory=memory_per_query,
        time=time_per_query,
        allow_service=allow_service,
        allow_load=allow_load,
        service_refresh=service_refresh,
        spark=OnSpark(
            master=master,
            checkpoint=checkpoint,
            lost=lost,
            follow=follow or None,
            changed=changed,
            speed=speed,
            instances=instances,
            partitions=partitions,
            placement=placement,
            spread=spread or None,
            batch=batch,
            trigger=trigger,
            metrics=metrics,
            prometheus=prometheus,
            ui=ui or None,
            conf=tuple(conf) if conf else None,
        ),
    ).execute()


@app.command()
def demo(
    size: Annotated[
        int, typer.Option(metavar="N", min=1, help="Trips of the evening: more make a busier city.")
    ] = 40_000,
    speed: Annotated[
        float,
        typer.Option(metavar="N", min=0.01, help="How many times faster time runs: 420 makes half a minute of it."),
    ] = 420.0,
    picture: Annotated[
        Path, typer.Option("--map", metavar="FILE", help="Where the map of the areas is saved, as an SVG picture.")
    ] = Path("cqels-demo.svg"),
) -> None:
    """Show continuous queries at work: an evening of a city's taxis on Spark, in half a minute.

    Trips of three and a half hours are generated, the same each time, and
    replayed as they were, only faster. Two queries answer at each trip:

        routes.rq   the ten routes with most trips in the last half hour

        profit.rq   the ten areas where waiting for passengers pays most

    Both lists are shown as they change; at the end there are a summary and
    a map of the areas, for a browser. Ctrl-C ends it early, with both.

    A quiet city, slowly:

        cqels demo --size 4000 --speed 60
    """
    from cqels.cli.demo import demonstrate

    demonstrate(size, speed, picture)


bench = typer.Typer(
    name="bench",
    help="The workloads that the field measures itself by, with what was published beside what is measured here.",
    no_args_is_help=True,
)
app.add_typer(bench)


@bench.command(name="list")
def list_scenarios() -> None:
    """Say which scenarios there are, with their sizes and queries."""
    from rich.console import Console

    from cqels.cli.bench import listed

    Console().print(listed())


@bench.command(name="run")
def run_scenario(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="One of `cqels bench list`.")],
    engine: Annotated[EngineName, typer.Option(help="What runs the queries.")] = "embedded",
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="How much data: small, or another that is listed.")
    ] = "small",
    query: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A query; may be repeated. By default all.")
    ] = None,
    together: Annotated[bool, typer.Option("--together", help="All queries in one run instead of one by one.")] = False,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="What $NAME$ stands for in the queries, as window=60m; may be repeated."
        ),
    ] = None,
    baseline: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.01,
            help="Also evaluate the whole query anew at each element, for so many seconds, and compare.",
        ),
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of conference, one of the paper's experiments: single queries (single), static data of 10 k to 10 M "
            "triples (varying), 1 to 1,024 queries at once (many).",
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How far an experiment goes: static triples (varying), queries (many)."),
    ] = None,
    answers: Annotated[bool, typer.Option(help="Keep what the embedded engine answers.")] = True,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the data.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where answers, figures and the report go: bench-SCENARIO if not said."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where data is made, and found by other runs: in `--out` if not said."),
    ] = None,
) -> None:
    """Make the data of a scenario, run its queries, and write answers, figures and a report.

    Data that is there from an earlier run is used again.  The embedded engine and the reference are measured in
    processor time, Spark by the clock on the wall after its micro-batches have come to their size.

    Each query of a social network, with evaluation anew beside it:

        cqels bench run social --size medium --baseline 5

    Both taxi queries at once on Spark, with windows of an hour:

        cqels bench run taxi --size paper --together --engine spark --constant window=60m

    The curve over the size of static data, up to a million triples:

        cqels bench run conference --experiment varying --size medium --most 1000000
    """
    from rich.console import Console

    from cqels.cli.bench import Wanted, execute

    wanted = Wanted(
        scenario=scenario,
        engine=engine,
        size=size,
        queries=query or (),
        together=together,
        constants=constant or (),
        baseline=baseline,
        experiment=experiment,
        most=most,
        answers=answers,
        seed=seed,
    )
    execute(wanted, out or Path(f"bench-{scenario}"), data, said=Console())


@bench.command(name="report")
def report_runs(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER…", help="Folders that `cqels bench run` has written.")
    ],
    into: Annotated[Path, typer.Option(metavar="FILE", help="A page of Markdown with the two marks.")],
) -> None:
    """Write what runs have found into a page, a section for each scenario, ours beside what was published.

    It goes between the marks `<!-- scenarios: written by cqels bench report -->` and `<!-- end of scenarios -->`;
    the rest of the page stays as it is.
    """
    from rich.console import Console

    from cqels.cli.bench import write_report

    write_report(folders, into, said=Console())


@app.command()
def doctor() -> None:
    """Say what is installed, what is missing, and what `cqels run` would use. Exit code 2 if it cannot work."""
    from cqels.cli.doctor import can_run, examine, verdict

    parts = examine()
    for part in parts:
        typer.echo(str(part))
    typer.echo(verdict(parts))
    if not can_run(parts):
        raise typer.Exit(2)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Continuous SPARQL queries over RDF streams and Linked Data."""
    if show:
        from cqels import __version__

        typer.echo(f"cqels {__version__}")
        raise typer.Exit


@cache
def _standard_input() -> str:
    return sys.stdin.read().removeprefix("\ufeff")


def _text(path: Path) -> str:
    from cqels.plan.prepare import read_query

    return _standard_input() if str(path) == "-" else read_query(path)


def _prepared(path: Path, dialect: str | None, emit: str | None, policy: str | None, *, lenient: bool) -> Query:
    from cqels.plan.prepare import prepare

    source = "<stdin>" if str(path) == "-" else str(path)
    query = prepare(_text(path), source=source, dialect=dialect, emit=emit, policy=policy, lenient=lenient)
    for warning in query.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return query


def _named_queries(
    paths: list[Path], dialect: str | None, emit: str | None, policy: str | None, *, lenient: bool
) -> list[tuple[Query, Source]]:
    """The queries, each with its text; one that does not say its name has that of its file."""
    from cqels.model.errors import Source

    prepared = [(_prepared(path, dialect, emit, policy, lenient=lenient), path) for path in paths]
    taken = {query.name for query, _ in prepared if query.name}
    found = []
    for query, path in prepared:
        if not query.name:
            stem = "query" if str(path) == "-" else path.stem
            others = (f"{stem}-{number}" for number in count(2))
            name = next(each for each in chain([stem], others) if each not in taken)
            taken.add(name)
            query = replace(query, name=name)
        found.append((query, Source(_text(path), str(path))))
    return found


def main() -> None:
    """Run a command; a user's error is one message on standard error and exit code 2."""
    try:
        app()
    except CqelsError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone: nothing more to say
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
