"""CQELS: continuous SPARQL queries over RDF streams and Linked Data.

>>> import cqels
>>> with cqels.Engine() as engine:
...     query = engine.register("SELECT ?s WHERE { STREAM <http://ex.org/obs> [RANGE 10s] { ?s ?p ?o } }")
...     engine.push("http://ex.org/obs", "<http://ex.org/a> <http://ex.org/p> 1 .", time="4s")
...     len(query.take())
1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cqels.model.release import RELEASE

if TYPE_CHECKING:
    from cqels import lift
    from cqels.client import connect, connect_async
    from cqels.engine.engine import Engine
    from cqels.engine.query_handle import StandingQuery
    from cqels.ingest import Rejected
    from cqels.model.errors import CqelsError, QueryStopped
    from cqels.results import Result

__all__ = [
    "CqelsError",
    "Engine",
    "QueryStopped",
    "Rejected",
    "Result",
    "StandingQuery",
    "__version__",
    "connect",
    "connect_async",
    "lift",
]

__version__ = RELEASE

_PLACES = {
    "CqelsError": "cqels.model.errors",
    "Engine": "cqels.engine.engine",
    "QueryStopped": "cqels.model.errors",
    "Rejected": "cqels.ingest",
    "Result": "cqels.results",
    "StandingQuery": "cqels.engine.query_handle",
    "connect": "cqels.client",
    "connect_async": "cqels.client",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: `import cqels` alone costs nothing."""
    from importlib import import_module

    from cqels.model.gc_pause import without_collection

    if name == "lift":
        return import_module("cqels.lift")
    if name not in _PLACES:
        raise AttributeError(f"module 'cqels' has no attribute '{name}'")
    with without_collection():
        return getattr(import_module(_PLACES[name]), name)
