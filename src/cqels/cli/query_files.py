"""The files of queries on the command line: the options that say how they are read, and their reading."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cqels.model.choices import Dialect, Emission, Policy

if TYPE_CHECKING:
    from cqels.model.errors import Source
    from cqels.options import QueryOptions
    from cqels.plan.algebra import Query

QueryPath = Annotated[Path, typer.Argument(metavar="QUERY.rq", help="The query's file; - reads standard input.")]
QueryPaths = Annotated[list[Path], typer.Argument(metavar="QUERY.rq…", help="Query files; - reads standard input.")]
MEANING = "What the queries mean"
DialectOption = Annotated[
    Dialect | None,
    typer.Option(
        rich_help_panel=MEANING, help="Insist on a dialect. By default the query's own words tell which it is."
    ),
]
EmitOption = Annotated[
    Emission | None,
    typer.Option(
        rich_help_panel=MEANING,
        help="What is sent: new rows (istream), rows gone (dstream), all rows (rstream), both differences "
        "with a sign (changes), the ordered result (snapshot). By default the query tells.",
    ),
]
LenientOption = Annotated[
    bool,
    typer.Option(
        "--lenient",
        rich_help_panel=MEANING,
        help="Warn of variables that are selected, ordered or grouped by and bound nowhere, instead of stopping.",
    ),
]
PolicyOption = Annotated[
    Policy | None,
    typer.Option(
        rich_help_panel=MEANING,
        help="When a query is evaluated: at every element (cqels), when a window closes (window-close), or "
        "as the published engine did (cqels-1). By default the dialect tells.",
    ),
]


@cache
def _standard_input() -> str:
    return sys.stdin.read().removeprefix("\ufeff")


def _text(path: Path) -> str:
    from cqels.plan.prepare import read_query

    return _standard_input() if str(path) == "-" else read_query(path)


def prepared_query(path: Path, options: QueryOptions) -> Query:
    """The logical plan of a query; what is dubious about it is said on standard error."""
    from cqels.plan.prepare import prepare

    source = "<stdin>" if str(path) == "-" else str(path)
    query = prepare(
        _text(path),
        source=source,
        dialect=options.dialect,
        emit=options.emit,
        policy=options.policy,
        lenient=options.lenient,
    )
    for warning in query.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return query


def named_queries(options: QueryOptions) -> list[tuple[Query, Source]]:
    """The queries, each with its text; one that does not say its name has that of its file."""
    from cqels.model.errors import Source

    prepared = [(prepared_query(path, options), path) for path in options.files]
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
