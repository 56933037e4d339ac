"""Reading RDF files for the dataset; streams are read by `read`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pyoxigraph import DefaultGraph, NamedNode, Quad, RdfFormat

from cqels.ingest.format_detection import beginning, kind_of
from cqels.ingest.input_files import extension_of, lines_of, open_bytes, parse_file, reading
from cqels.ingest.parse_errors import UNREADABLE, reason_of, triple_of
from cqels.model.errors import DataError, Source, Span

GRAPH_FORMATS = {
    "turtle": RdfFormat.TURTLE,
    "ntriples": RdfFormat.N_TRIPLES,
    "nquads": RdfFormat.N_QUADS,
    "trig": RdfFormat.TRIG,
    "jsonld": RdfFormat.JSON_LD,
    "rdfxml": RdfFormat.RDF_XML,
}
"""The formats of static files by their names."""
_EXTENSIONS = {
    "nt": RdfFormat.N_TRIPLES,
    "nq": RdfFormat.N_QUADS,
    "ttl": RdfFormat.TURTLE,
    "n3": RdfFormat.TURTLE,
    "trig": RdfFormat.TRIG,
    "rdf": RdfFormat.RDF_XML,
    "owl": RdfFormat.RDF_XML,
    "xml": RdfFormat.RDF_XML,
    "jsonld": RdfFormat.JSON_LD,
}


def read_graph(path: str | Path, graph: NamedNode | None = None, *, format: str | None = None) -> Iterator[Quad]:
    """The quads of a file, with blank nodes of its own and relative IRIs resolved against its `file:` IRI.

    What the file has in its default graph goes to `graph`, if one is given; its named graphs stay.  Where neither a
    format is given nor the extension tells it, the content does.
    """
    path = Path(path)
    if format is None:
        return _quads(path, _EXTENSIONS.get(extension_of(path)) or _by_content(path), graph)
    name = format.lower().replace("-", "").replace("/", "")
    if name not in GRAPH_FORMATS:
        raise DataError(f"'{format}' is not a format", hint=f"it is one of {', '.join(GRAPH_FORMATS)}")
    return _quads(path, GRAPH_FORMATS[name], graph)


def file_and_options(text: str) -> tuple[str, str | None, bool]:
    """A file, its format, and whether it is watched, from `file?format=turtle&watch`.

    A name may have a question mark, if there is such a file.

    >>> file_and_options("rooms.data?format=turtle&watch")
    ('rooms.data', 'turtle', True)
    """
    path, mark, options = text.rpartition("?")
    if not mark or Path(text).exists():
        return text, None, False
    format, watch = None, False
    for option in options.split("&"):
        match option.partition("="):
            case "format", "=", value:
                format = value
            case ("watch", "", "") | ("watch", "=", "true"):
                watch = True
            case "watch", "=", "false":
                watch = False
            case _:
                hint = f"the options are watch, and format=, one of {', '.join(GRAPH_FORMATS)}"
                raise DataError(f"'{option}' is not an option of a static file", hint=hint)
    return path, format, watch


def _by_content(path: Path) -> RdfFormat:
    """The format of a file whose name does not tell it. Turtle and N-Triples are TriG too."""
    match kind_of(beginning(path)):
        case "jsonld":
            return RdfFormat.JSON_LD
        case "rdfxml":
            return RdfFormat.RDF_XML
        case "nquads":
            return RdfFormat.N_QUADS
        case "turtle" | "trig":
            return RdfFormat.TRIG
        case _:
            hint = f"give its format, one of {', '.join(GRAPH_FORMATS)}: file?format=turtle"
            raise DataError(
                "neither the file's extension nor its content tells its format", source=Source("", str(path)), hint=hint
            )


def _quads(path: Path, format: RdfFormat, graph: NamedNode | None) -> Iterator[Quad]:
    with open_bytes(path) as file, reading(path):
        try:
            for quad in parse_file(file, path, format, path.resolve().as_uri(), rename=True):
                triple = triple_of(quad)
                default = isinstance(quad.graph_name, DefaultGraph)
                yield Quad(*triple, graph) if graph is not None and default else quad
        except UNREADABLE as error:
            raise _data_error(path, error) from None


def _data_error(path: Path, error: Exception) -> DataError:
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return DataError(reason_of(error), source=Source("", str(path)))
    _, line = next(islice(lines_of(path), error.lineno - 1, None), (0, ""))
    # The lines before are left empty: they count, but only the line of the fault is shown.
    source = Source("\n" * (error.lineno - 1) + line, str(path))
    start = error.lineno - 1 + max(0, (error.offset or 1) - 1)
    end = (
        start + (error.end_offset or 0) - (error.offset or 0) if error.end_lineno == error.lineno else len(source.text)
    )
    return DataError(reason_of(error), source=source, span=Span(start, max(end, start + 1)))
