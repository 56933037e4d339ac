"""The files of queries on the command line: the options that say how they are read, and their reading."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cqels.model.choices import Dialect, Emission, Policy

if TYPE_CHECKING:
    from cqels.model.errors import CqelsError, Source
    from cqels.options import DeclaredQuery, QueryOptions
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


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query that has a name, its text for errors, and what is said of it besides."""

    query: Query
    source: Source
    budget: tuple[str | None, str | None] = (None, None)
    """The most memory and time that it may take."""
    spread: bool | None = None
    """Whether all engine instances have a part of it; None is what is said of all."""

    @property
    def name(self) -> str:
        return self.query.name or ""


@cache
def _standard_input() -> str:
    return sys.stdin.read().removeprefix("\ufeff")


def query_text(path: Path) -> str:
    """The text of a query's file; that of standard input is read once."""
    from cqels.plan.prepare import read_query

    return _standard_input() if str(path) == "-" else read_query(path)


def _warned(warning: CqelsError) -> None:
    typer.echo(f"warning: {warning}", err=True)


def prepared_query(
    declared: DeclaredQuery, options: QueryOptions, warn: Callable[[CqelsError], None] = _warned
) -> Query:
    """The logical plan of a query; what is dubious about it is said on standard error, or as `warn` does."""
    from cqels.plan.prepare import prepare

    source = source_of(declared)
    query = prepare(
        source.text,
        source=source.name,
        name=declared.name,
        dialect=declared.dialect or options.dialect,
        emit=declared.emit or options.emit,
        policy=declared.policy or options.policy,
        lenient=options.lenient if declared.lenient is None else declared.lenient,
    )
    for warning in query.warnings:
        warn(warning)
    return query


def source_of(declared: DeclaredQuery) -> Source:
    """The text of a query, and what it is called."""
    from cqels.model.errors import Source

    if declared.text is not None:
        return Source(declared.text, declared.within or "<query>")
    assert declared.file is not None
    return Source(query_text(declared.file), "<stdin>" if str(declared.file) == "-" else str(declared.file))


def named_queries(
    options: QueryOptions,
    queries: Iterable[DeclaredQuery] | None = None,
    warn: Callable[[CqelsError], None] = _warned,
) -> list[NamedQuery]:
    """The queries, all or some of them, each with its text; one that does not say its name has that of its file."""
    chosen = options.query if queries is None else queries
    prepared = [(prepared_query(declared, options, warn), declared) for declared in chosen]
    taken = {query.name for query, _ in prepared if query.name}
    found = []
    for query, declared in prepared:
        if not query.name:
            stem = "query" if declared.file is None or str(declared.file) == "-" else declared.file.stem
            others = (f"{stem}-{number}" for number in count(2))
            name = next(each for each in chain([stem], others) if each not in taken)
            taken.add(name)
            query = replace(query, name=name)
        found.append(NamedQuery(query, source_of(declared), options.budget(declared), declared.spread))
    return found
