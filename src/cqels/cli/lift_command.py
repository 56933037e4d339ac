"""`cqels lift`: what a lifting template makes of the records of a sample, for those who write one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from typing import Literal as OneOf

import typer
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.model.errors import CqelsError
from cqels.model.terms import RDF_TYPE, XSD_BOOLEAN, XSD_DECIMAL, XSD_INTEGER, XSD_STRING, Term, Triple

if TYPE_CHECKING:
    from cqels.ingest.template_model import Template
    from cqels.ingest.template_values import Surroundings

Shown = OneOf["turtle", "nt"]
_STREAM = "urn:sample"
_LOCAL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
"""Names behind a prefix that need no escapes."""
_BARE = {
    XSD_INTEGER: re.compile(r"[+-]?[0-9]+"),
    XSD_DECIMAL: re.compile(r"[+-]?[0-9]*\.[0-9]+"),
    XSD_BOOLEAN: re.compile("true|false"),
}
"""Literals that Turtle writes without quotes."""


def lift(
    template: Annotated[Path, typer.Argument(help="The lifting template: TOML, or YARRRML (.yml).")],
    sample: Annotated[Path, typer.Argument(help="A file of records: CSV, JSON lines or Parquet.")],
    records: Annotated[int, typer.Option(metavar="N", min=1, help="How many records are shown.")] = 5,
    format: Annotated[Shown, typer.Option(help="How triples are shown.")] = "turtle",
    unit: Annotated[str, typer.Option(help="What a time that is an integer counts, as in a stream's unit=.")] = "ms",
    key: Annotated[str | None, typer.Option(help="The key of the records, @key in the template.")] = None,
    topic: Annotated[str | None, typer.Option(help="The topic that they come from, @topic.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header that they have, @header.NAME. Repeatable.")
    ] = None,
    arrival: Annotated[str | None, typer.Option(metavar="TIME", help="When they arrived, @arrival.")] = None,
) -> None:
    """Show what records of a sample become by a lifting template: the time and the triples of each, or why it is none.

    The first records, as Turtle:

        cqels lift readings.toml readings.csv

    As a message of MQTT would be lifted:

        cqels lift temperature.toml sample.jsonl --topic building/kitchen/temp
    """
    from cqels.ingest.declarations import declare
    from cqels.ingest.element import Rejected
    from cqels.ingest.element_grouping import Piece
    from cqels.ingest.lifting_template import lifted_pieces, read_template, records_of
    from cqels.ingest.stream_files import check_file
    from cqels.model.time import format_time

    declaration = declare(_STREAM, sample, template=template, unit=unit)
    if not sample.is_file():
        raise CqelsError(f"no file at '{sample}'", hint="the sample is a file of CSV, JSON lines or Parquet")
    around = _around(key, topic, header or [], arrival)
    known = read_template(template, timed=arrival is None)
    rejected: list[Rejected] = []
    found = islice(records_of(sample, check_file(declaration, sample), known), records)
    elements, triples = 0, 0
    if format == "turtle":
        typer.echo("".join(f"@prefix {prefix}: <{namespace}> .\n" for prefix, namespace in known.prefixes), nl=False)
    for piece in lifted_pieces(declaration, str(sample), found, _timed(known, arrival), rejected.append, around):
        typer.echo("", nl=format == "turtle" or elements + len(rejected) > 1)
        if isinstance(piece, Piece):
            elements, triples = elements + 1, triples + len(piece.triples)
            typer.echo(f"# {piece.place}  {format_time(piece.time or 0)}")
            for line in _shown(piece.triples, known, format):
                typer.echo(line)
        else:
            typer.echo(f"# {rejected[-1].place}  rejected: {rejected[-1].reason}")
            typer.echo("".join(f"# | {line}\n" for line in rejected[-1].text.splitlines()), nl=False)
    told = f"{elements} element{'' if elements == 1 else 's'}, {triples} triple{'' if triples == 1 else 's'}"
    typer.echo(f"{told}, {len(rejected)} rejected" if rejected else told, err=True)


def _around(key: str | None, topic: str | None, headers: list[str], arrival: str | None) -> Surroundings:
    from cqels.ingest.template_values import Surroundings
    from cqels.model.time import parse_time

    pairs = []
    for each in headers:
        name, equals, value = each.partition("=")
        if not equals:
            raise CqelsError(f"'{each}' is not a header with a value", hint="write --header name=value")
        pairs.append((name, value.encode()))
    try:
        time = None if arrival is None else parse_time(arrival)
    except ValueError as error:
        raise CqelsError(f"the time of arrival cannot be read: {error}") from None
    return Surroundings(key=None if key is None else key.encode(), topic=topic, headers=tuple(pairs), arrival=time)


def _timed(template: Template, arrival: str | None) -> Template:
    """A template without a time takes that of arrival, if there is one."""
    from dataclasses import replace

    from cqels.ingest.template_times import TimeTemplate

    if template.timestamp is not None or arrival is None:
        return template
    return replace(template, timestamp=TimeTemplate("@arrival"))


def _shown(triples: tuple[Triple, ...], template: Template, format: Shown) -> Iterator[str]:
    """The lines of an element."""
    if format == "nt":
        yield from (f"{subject} {predicate} {object} ." for subject, predicate, object in triples)
        return
    prefixes = {namespace: prefix for prefix, namespace in template.prefixes}
    for subject, group in groupby(triples, key=lambda each: each[0]):
        pairs = [(predicate, object) for _, predicate, object in group]
        for number, (predicate, object) in enumerate(pairs):
            begin = f"{_short(subject, prefixes)} " if number == 0 else "    "
            named = "a" if predicate == RDF_TYPE else _short(predicate, prefixes)
            yield f"{begin}{named} {_short(object, prefixes)} {'.' if number == len(pairs) - 1 else ';'}"


def _short(term: Term, prefixes: dict[str, str]) -> str:
    """A term as a person writes it in Turtle."""
    if isinstance(term, NamedNode):
        cut = max(term.value.rfind("#"), term.value.rfind("/"), term.value.rfind(":")) + 1
        for end in (cut, term.value.rfind("/", 0, cut - 1) + 1):
            namespace, local = term.value[:end], term.value[end:]
            if namespace in prefixes and _LOCAL.fullmatch(local):
                return f"{prefixes[namespace]}:{local}"
        return str(term)
    if isinstance(term, BlankNode) or term.language is not None or term.datatype == XSD_STRING:
        return str(term)
    if term.datatype in _BARE and _BARE[term.datatype].fullmatch(term.value):
        return term.value
    return f"{Literal(term.value)}^^{_short(term.datatype, prefixes)}"
