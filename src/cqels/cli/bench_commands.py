"""`cqels bench list`, `run` and `report`: their options with their help. What they do lives in `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cqels.model.choices import EngineName

bench = typer.Typer(
    name="bench",
    help="The workloads that the field measures itself by, with what was published beside what is measured here.",
    no_args_is_help=True,
)


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
