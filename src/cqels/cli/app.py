"""The commands: each parses its arguments, calls one public function and renders what it returns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from cqels.cli.bench_commands import bench
from cqels.cli.lift_command import lift
from cqels.cli.query_files import (
    DialectOption,
    EmitOption,
    LenientOption,
    PolicyOption,
    QueryPath,
    prepared_query,
)
from cqels.cli.run_command import run
from cqels.cli.serve_command import serve
from cqels.model.errors import CqelsError

app = typer.Typer(
    name="cqels",
    help="Continuous SPARQL queries over RDF streams and Linked Data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

PlanFormat = Literal["text", "json", "mermaid"]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to make.")],
) -> None:
    """Make a small project that works: a pipeline file, a query, a lifting template and sample data.

    Then:

        cd NAME && cqels run

    It shows alerts for the sample data, and waits for more of it until Ctrl-C.
    """
    from cqels.cli.new_project import FILES, make_project

    make_project(folder)
    typer.echo(f"{folder} has")
    for name, meaning in FILES.items():
        typer.echo(f"  {name:<14} {meaning}")
    typer.echo(f"next: cd {folder} && cqels run")


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
    from cqels.options import DeclaredQuery, QueryOptions
    from cqels.physical.incremental_support import computed_anew
    from cqels.plan.explain import explain as explained
    from cqels.plan.optimizer.rules import rewrite

    options = QueryOptions(dialect=dialect, emit=emit, policy=policy, lenient=lenient)
    plan = prepared_query(DeclaredQuery(file=query), options)
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
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE…",
            help="Pipeline files and query files; - reads a query. Without any: pipeline.toml of this folder.",
        ),
    ] = None,
    dialect: DialectOption = None,
    lenient: LenientOption = False,
    connect: Annotated[
        bool, typer.Option("--connect", help="Try whether the servers of a pipeline's sources and sinks answer.")
    ] = False,
) -> None:
    """Say what is wrong with pipeline files and queries before they run, each with its place and a hint.

    Of a pipeline: its words, its files, templates, queries, formats, and what has to be installed. Exit code 2 if
    something is wrong.
    """
    from cqels.options import DeclaredQuery, QueryOptions

    options, failed = QueryOptions(dialect=dialect, lenient=lenient), False
    for path in files or [Path("pipeline.toml")]:
        if path.suffix == ".toml":
            failed |= not _check_pipeline(path, connect=connect)
            continue
        try:
            plan = prepared_query(DeclaredQuery(file=path), options)
        except CqelsError as error:
            failed = True
            typer.echo(f"error: {error}", err=True)
        else:
            typer.echo(f"{path}: ok ({plan.form}, {plan.dialect}, emits {plan.emit})")
    if failed:
        raise typer.Exit(2)


def _check_pipeline(path: Path, *, connect: bool) -> bool:
    from cqels.cli.pipeline_check import check_pipeline

    checked = check_pipeline(path, connect=connect)
    for warning in checked.warnings:
        typer.echo(f"warning: {warning}", err=True)
    for error in checked.errors:
        typer.echo(f"error: {error}", err=True)
    if not checked.errors:
        typer.echo(f"{path}: ok ({checked.summary()})")
    return not checked.errors


app.command()(run)
app.command()(serve)
app.command()(lift)


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


app.add_typer(bench)


@app.command()
def doctor(
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch Spark's connector for Kafka from Maven's repository, if missing.")
    ] = False,
) -> None:
    """Say what is installed, what is missing, and what `cqels run` would use. Exit code 2 if it cannot work."""
    from cqels.cli.doctor import can_run, examine, verdict

    parts = examine(fetch=fetch)
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
