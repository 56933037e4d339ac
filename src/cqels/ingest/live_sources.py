"""Streams whose input comes while it is read: which they are, and in what format.

Standard input can be read here, by engines that keep no state.  All live sources, standard input among them, are in
`cqels.pipeline.source.source_registry`.
"""

from __future__ import annotations

from dataclasses import replace

from cqels.ingest.declarations import ELEMENTS, FUTURE, FormatName, StreamDeclaration, is_live_path
from cqels.ingest.line_formats import line_format
from cqels.ingest.parse_errors import UnreadableFile
from cqels.ingest.protocols import Source
from cqels.ingest.source_address import shown_place
from cqels.ingest.source_options import STANDARD_INPUT, scheme_of
from cqels.ingest.standard_input import StandardInput
from cqels.model import errors


def source_of(declaration: StreamDeclaration) -> Source | None:
    """Standard input, if it is declared, and None if the path is one of files; refuses what cannot be read here."""
    if not is_live(declaration):
        return None
    if declaration.path != STANDARD_INPUT:
        name = scheme_of(declaration.path).name
        raise errors.CqelsError(
            f"stream <{declaration.iri}>: {name} is read by a live run, and '{shown_place(declaration)}' is no file",
            hint="run it with --engine embedded or on Spark",
        )
    if declaration.own_time:
        hint = "clock=arrival takes the time at which it is read"
        raise errors.CqelsError(f"stream <{declaration.iri}>: lines of standard input have no time", hint=hint)
    return StandardInput()


def is_live(declaration: StreamDeclaration) -> bool:
    """Whether more is waited for when all that is there has been read."""
    return is_live_path(declaration.path)


def live_declaration(declaration: StreamDeclaration) -> StreamDeclaration:
    """The declaration with what holds for live sources where nothing is said."""
    if declaration.future is not None or declaration.clock == "arrival":
        return declaration
    return replace(declaration, future=FUTURE)


def live_format(declaration: StreamDeclaration, place: str) -> FormatName:
    """The format that is declared: N-Triples, timed or with graphs, if none is and there is no template.

    A source that may never end cannot be read whole, so elements are lines or runs of lines.
    """
    source = errors.Source("", place)
    if declaration.format is None and declaration.template is not None:
        raise UnreadableFile("the format is not declared", source=source, hint="add format=csv or format=json")
    format = declaration.format or "ntriples"
    if line_format(declaration, format) is None:
        lines = "line" in ELEMENTS[format] and format != "parquet"
        hint = "declare element=line, or put it in a file" if lines else "put it in a file"
        raise UnreadableFile(f"{format} is read as a whole, and live input has no end", source=source, hint=hint)
    return format
