"""RDF from the web: fetched whole, then parsed as what the server says that it is, or else its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pyoxigraph import DefaultGraph, NamedNode, Quad, RdfFormat

from cqels.ingest.parse_errors import check_nesting, quads_of, reason_of, triple_of
from cqels.model.errors import CqelsError, DataError, Source
from cqels.model.redact import redacted_url
from cqels.store.permissions import NotAllowed, Permissions

LARGEST_FILE = 1 << 30
"""Bytes that a server may send."""
_ACCEPTED = "text/turtle, application/n-triples, application/n-quads, application/trig, application/rdf+xml;q=0.9"


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file of the web, and its format."""

    url: str
    content: bytes
    format: RdfFormat

    def quads(self, graph: NamedNode | None) -> Iterator[Quad]:
        """Its quads; what it has in its default graph goes to `graph`, if one is given."""
        try:
            base = redacted_url(self.url)
            check_nesting(self.content, self.format)
            for quad in quads_of(self.content, self.format, base, rename=True):
                triple = triple_of(quad)
                default = isinstance(quad.graph_name, DefaultGraph)
                yield Quad(*triple, graph) if graph is not None and default else quad
        except (ValueError, SyntaxError) as error:
            raise DataError(reason_of(error), source=Source("", redacted_url(self.url))) from None


def download(url: str, permissions: Permissions, *, timeout: float = 60.0, limit: int = LARGEST_FILE) -> Downloaded:
    """The file of a URL, if its host may be asked."""
    from cqels.store.http import NoAnswer, fetch  # with sockets and TLS, which few queries need

    shown = redacted_url(url)
    try:
        found = fetch(url, permissions, headers={"Accept": _ACCEPTED}, timeout=timeout, limit=limit)
    except NotAllowed as refusal:
        raise NotAllowed(f"<{shown}> is not loaded: {refusal.message}", hint=refusal.hint) from None
    except NoAnswer as failure:
        raise CqelsError(f"<{shown}> is not loaded: {failure}") from None
    name = PurePosixPath(urlsplit(url).path).suffix.removeprefix(".")
    format = RdfFormat.from_media_type(found.media_type) or RdfFormat.from_extension(name)
    if format is None:
        raise CqelsError(
            f"<{shown}> is not loaded: {found.media_type} is not a format of RDF",
            hint="a name that ends with .ttl, .nt, .nq, .trig or .rdf tells the format, too",
        )
    return Downloaded(url, found.content, format)
