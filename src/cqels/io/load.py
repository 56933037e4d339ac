"""Reading RDF files for the dataset; streams are read by `read`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pyoxigraph import DefaultGraph, NamedNode, Quad, RdfFormat

from cqels.io.faults import UNREADABLE, reason_of, triple_of
from cqels.io.files import extension_of, lines_of, open_bytes, parse_file, reading
from cqels.model.errors import DataError, Source, Span

_FORMATS = {
    "nt": RdfFormat.N_TRIPLES,
    "nq": RdfFormat.N_QUADS,
    "ttl": RdfFormat.TURTLE,
    "trig": RdfFormat.TRIG,
    "rdf": RdfFormat.RDF_XML,
    "owl": RdfFormat.RDF_XML,
    "xml": RdfFormat.RDF_XML,
    "jsonld": RdfFormat.JSON_LD,
}


def read_graph(path: str | Path, graph: NamedNode | None = None) -> Iterator[Quad]:
    """The quads of a file, with blank nodes of its own and relative IRIs resolved against its `file:` IRI.

    What the file has in its default graph goes to `graph`, if one is given; its named graphs stay.
    """
    path = Path(path)
    format = _FORMATS.get(extension_of(path))
    if format is None:
        hint = f"the extensions are {', '.join('.' + name for name in _FORMATS)}, and .gz after one of them"
        raise DataError("the file's extension does not tell its format", source=Source("", str(path)), hint=hint)
    return _quads(path, format, graph)


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
