"""The commands: each parses its arguments, calls one public function and renders what it returns."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cqels.model.errors import CqelsError

if TYPE_CHECKING:
    from cqels.plan.algebra import Query

app = typer.Typer(
    name="cqels",
    help="Continuous SPARQL queries over RDF streams and Linked Data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

PlanFormat = Literal["text", "json", "mermaid"]
ResultFormat = Literal["text", "csv", "jsonl", "ntriples"]
Dialect = Literal["cqels-ql", "c-sparql", "rsp-ql", "sparqlstream", "streaming-sparql", "ep-sparql"]
Emission = Literal["istream", "dstream", "rstream", "changes", "snapshot"]
Policy = Literal["cqels", "window-close", "cqels-1"]
EngineName = Literal["embedded", "reference"]

QueryPath = Annotated[Path, typer.Argument(metavar="QUERY.rq", help="The query's file; - reads standard input.")]
QueryPaths = Annotated[list[Path], typer.Argument(metavar="QUERY.rq…", help="Query files; - reads standard input.")]
DialectOption = Annotated[
    Dialect | None, typer.Option(help="Insist on a dialect. By default the query's own words tell which it is.")
]
EmitOption = Annotated[
    Emission | None,
    typer.Option(
        help="What is sent: new rows (istream), rows gone (dstream), all rows (rstream), both differences "
        "with a sign (changes), the ordered result (snapshot). By default the query tells."
    ),
]
PolicyOption = Annotated[
    Policy | None,
    typer.Option(
        help="When a query is evaluated: at every element (cqels), when a window closes (window-close), or "
        "as the published engine did (cqels-1). By default the dialect tells."
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
) -> None:
    """Show the plan of a query: streams and their windows, static tables, filters, and what is emitted when."""
    from cqels.flow.obstacles import computed_anew
    from cqels.plan.explain import explain as explained
    from cqels.plan.rules import rewrite

    plan = _prepared(query, dialect, emit, policy)
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
def check(queries: QueryPaths, dialect: DialectOption = None) -> None:
    """Say for each query whether it can run as written, and if not, where and why. Exit code 2 if one cannot."""
    failed = False
    for path in queries:
        try:
            plan = _prepared(path, dialect, None, None)
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
            help="A stream and its files, e.g. '<http://ex.org/obs>=obs.nt?element=subject&lateness=2s'. Options after "
            "'?': element, time, unit, lateness, idle, clock, format, template. May be given several times.",
        ),
    ] = None,
    data: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Static RDF for the default graph.")] = None,
    graph: Annotated[list[str] | None, typer.Option(metavar="IRI=FILE", help="Static RDF for a named graph.")] = None,
    engine: Annotated[
        EngineName,
        typer.Option(
            help="What runs the queries: the incremental engine in this process (embedded), or the one that computes "
            "everything anew at every tick (reference)."
        ),
    ] = "embedded",
    emit: EmitOption = None,
    policy: PolicyOption = None,
    dialect: DialectOption = None,
    format: Annotated[ResultFormat, typer.Option(help="How results are written.")] = "text",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write results here, not to the terminal.")] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep static data on disk in this directory, not in memory.")
    ] = None,
    rejects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write rejected and late input here, not to the terminal.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first malformed or late element.")] = False,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="After the last element, let time go on until then.")
    ] = None,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            help="At the end show each query's plan with what was done: rows, window sizes, bytes of state, the orders "
            "that joins took.",
        ),
    ] = False,
    start: Annotated[
        str, typer.Option(metavar="TIME", help="The time that the boundaries of sliding windows are counted from.")
    ] = "0s",
) -> None:
    """Run queries over streams in files and print their exact results.

    Example: cqels run hot.rq --stream '<http://ex.org/obs>=obs.nt' --data rooms.ttl
    """
    from cqels.cli.running import Run
    from cqels.model.errors import Source

    Run(
        engine=engine,
        queries=[(_prepared(path, dialect, emit, policy), Source(_text(path), str(path))) for path in queries],
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
    ).execute()


@app.command()
def doctor() -> None:
    """Say what is installed and what is missing. Exit code 2 if `cqels run` cannot work."""
    from cqels.cli.doctor import can_run, examine

    parts = examine()
    for part in parts:
        typer.echo(str(part))
    if not can_run(parts):
        raise typer.Exit(2)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Continuous SPARQL queries over RDF streams and Linked Data."""
    if show:
        from importlib.metadata import version as installed

        typer.echo(f"cqels {installed('cqels')}")
        raise typer.Exit


@cache
def _standard_input() -> str:
    return sys.stdin.read()


def _text(path: Path) -> str:
    from cqels.plan.prepare import read_query

    return _standard_input() if str(path) == "-" else read_query(path)


def _prepared(path: Path, dialect: str | None, emit: str | None, policy: str | None) -> Query:
    from cqels.plan.prepare import prepare

    source = "<stdin>" if str(path) == "-" else str(path)
    query = prepare(_text(path), source=source, dialect=dialect, emit=emit, policy=policy)
    for warning in query.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return query


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
