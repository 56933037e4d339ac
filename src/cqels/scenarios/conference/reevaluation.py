"""The baseline: Oxigraph evaluates whole queries anew at each element, and only differences are sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyoxigraph
from pyoxigraph import DefaultGraph, NamedNode, Quad, RdfFormat

from cqels.ingest import Element
from cqels.lang.syntax import Range, Window
from cqels.model.terms import Term, Triple
from cqels.plan.algebra import Query, Stream
from cqels.plan.scope import variables
from cqels.plan.to_sparql.query_text import to_sparql
from cqels.reference.windows import Arrival, Moment, content
from cqels.scenarios.scenario import Data

Row = tuple[Term | None, ...]


def bulk_loaded(data: Data) -> pyoxigraph.Store:
    """The static data as Oxigraph loads it by itself."""
    store = pyoxigraph.Store()
    for file, graph in data.static:
        to = DefaultGraph() if graph is None else NamedNode(graph)
        store.bulk_load(path=file, format=RdfFormat.N_TRIPLES, to_graph=to)
    return store


class Reevaluation:
    """Queries over one stream, with windows that do not slide by steps; each window is a graph in the store."""

    def __init__(self, store: pyoxigraph.Store, queries: Sequence[Query]) -> None:
        self._store = store
        self._graphs: dict[Window, NamedNode] = {}
        self._held: dict[Window, set[Triple]] = {}
        self._texts = [(to_sparql(query.plan, windows=self._window), len(variables(query.plan))) for query in queries]
        self._before: list[Counter[Row]] = [Counter() for _ in queries]
        self._widest = max((each.width for each in self._graphs if isinstance(each, Range)), default=0)
        self._recent: list[Arrival] = []
        self._number = 0

    def _window(self, plan: Stream) -> Sequence[tuple[NamedNode | None, NamedNode]]:
        window = plan.sources[0].window
        graph = self._graphs.setdefault(window, NamedNode(f"http://cqels.org/window/{len(self._graphs)}"))
        self._held.setdefault(window, set())
        return [(None, graph)]

    def arrive(self, element: Element) -> None:
        """Bring the windows up to date, and evaluate nothing."""
        self._recent = [each for each in self._recent if each.time >= element.time - self._widest]
        self._recent.append(Arrival(element.time, self._number, element.triples))
        self._number += 1
        for window, graph in self._graphs.items():
            now = {triple for triple, _ in content(window, self._recent, Moment(element.time, {}))}
            for triple in self._held[window] - now:
                self._store.remove(Quad(*triple, graph))
            self._store.extend(Quad(*triple, graph) for triple in now - self._held[window])
            self._held[window] = now

    def push(self, element: Element) -> list[list[Row]]:
        """What each query sends for an element."""
        self.arrive(element)
        sent = []
        for number, (text, width) in enumerate(self._texts):
            found = self._store.query(text)
            assert isinstance(found, pyoxigraph.QuerySolutions)
            now = Counter(tuple(each)[:width] for each in found)
            sent.append(list((now - self._before[number]).elements()))
            self._before[number] = now
        return sent

    def close(self) -> None:
        """Leave nothing of the windows in the store."""
        for graph in self._graphs.values():
            self._store.remove_graph(graph)
