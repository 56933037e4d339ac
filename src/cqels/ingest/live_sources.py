"""Streams whose input comes while it is read: which source a declaration means, and in what format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cqels.ingest.declarations import ELEMENTS, FUTURE, FormatName, StreamDeclaration
from cqels.ingest.line_formats import line_format
from cqels.ingest.parse_errors import UnreadableFile
from cqels.ingest.protocols import Source
from cqels.ingest.standard_input import standard_input
from cqels.model import errors

SOURCES: tuple[Callable[[StreamDeclaration], Source | None], ...] = (standard_input,)
"""Each makes the source that a declaration's path means, None if it means another."""


def source_of(declaration: StreamDeclaration) -> Source | None:
    """The live source that is declared, None if the path is one of files."""
    return next((found for each in SOURCES if (found := each(declaration)) is not None), None)


def is_live(declaration: StreamDeclaration) -> bool:
    """Whether more is waited for when all that is there has been read."""
    return source_of(declaration) is not None


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
