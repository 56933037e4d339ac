"""The dataset: a default graph and named graphs in Oxigraph, kept to the letter, with notice of every change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from threading import RLock

import pyoxigraph
from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad

from cqels.ingest.dataset_files import read_graph
from cqels.model.errors import CqelsError, DataError, QueryError
from cqels.model.terms import Triple
from cqels.plan.algebra import Plan, Query
from cqels.plan.functions import Context
from cqels.plan.scope import visible
from cqels.store.atomic_write import write
from cqels.store.dependencies import ANY, AnyGraph, GraphName
from cqels.store.exact_literals import protect_quad, reveal_triple
from cqels.store.permissions import Permissions
from cqels.store.service import ServiceCache
from cqels.store.static_evaluation import Evaluation, Row, View, services_in

Listener = Callable[[frozenset[GraphName]], None]
_VIEWS = 4
_SHOWN_GRAPHS = 5
_PART = 100_000
"""Quads of a file that are in memory at a time."""


@dataclass
class Difference:
    """The quads that a change has removed and added, in the end, and the named graphs that there are then."""

    removed: dict[Quad, None] = field(default_factory=dict)
    added: dict[Quad, None] = field(default_factory=dict)
    graphs: tuple[NamedNode, ...] = ()

    def note(self, removed: Iterable[Quad], added: Iterable[Quad]) -> None:
        for quad in removed:
            if quad in self.added:
                del self.added[quad]
            else:
                self.removed[quad] = None
        for quad in added:
            if quad in self.removed:
                del self.removed[quad]
            else:
                self.added[quad] = None


class _Undone(Exception):
    """Ends a transaction whose changes are only looked at."""


class Store:
    """RDF graphs in memory, or in a directory.

    A change is atomic: a query sees all of it or nothing, and if it fails nothing is changed.  Listeners are called
    after it, once, with the graphs whose triples (or whose existence) it really changed.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        services: ServiceCache | None = None,
        permissions: Permissions | None = None,
    ) -> None:
        """`path` is a directory to keep the graphs in; `permissions` is what SERVICE and LOAD may reach."""
        try:
            self._graphs = pyoxigraph.Store() if path is None else pyoxigraph.Store(path)
        except OSError as error:
            raise CqelsError(f"the store in {path} does not open: {error}") from error
        self.services = services or ServiceCache()
        if services is None or permissions is not None:
            self.services.permissions = permissions or Permissions()
        self._lock = RLock()
        self._undo: list[Callable[[], None]] | None = None
        self._changed: set[GraphName] = set()
        self._record: Difference | None = None
        self._filled: set[GraphName] = set()
        """Graphs that were empty when the transaction first added to them."""
        self._versions: dict[GraphName | AnyGraph, int] = {}
        self._listeners: dict[int, tuple[frozenset[GraphName] | None, Listener]] = {}
        self._merged: dict[tuple[NamedNode, ...], tuple[tuple[int, ...], pyoxigraph.Store]] = {}

    # ------------------------------------------------------------ reading

    def __len__(self) -> int:
        """The number of triples in all graphs."""
        return len(self._graphs)

    def named_graphs(self) -> tuple[NamedNode, ...]:
        names = [name for name in self._graphs.named_graphs() if isinstance(name, NamedNode)]
        return tuple(sorted(names, key=lambda name: name.value))

    def has_graph(self, graph: GraphName) -> bool:
        return graph is None or self._graphs.contains_named_graph(graph)

    def check_graphs(self, query: Query) -> None:
        """Refuse a query whose FROM or FROM NAMED names a graph that is not here, instead of reading nothing."""
        spans = dict(query.graph_spans)
        for graph in (*(query.default_graphs or ()), *(query.named_graphs or ())):
            if not self.has_graph(graph):
                error = QueryError(
                    f"the graph {graph} is not loaded", span=spans.get(graph), hint=self._graph_hint(graph)
                )
                error.query = query
                raise error

    def _graph_hint(self, graph: NamedNode) -> str:
        from difflib import get_close_matches

        names = [each.value for each in self.named_graphs()]
        if close := get_close_matches(graph.value, names, 1):
            return f"did you mean <{close[0]}>?"
        if names:
            more = ", …" if len(names) > _SHOWN_GRAPHS else ""
            return f"the loaded graphs are {', '.join(f'<{name}>' for name in names[:_SHOWN_GRAPHS])}{more}"
        return "load it before the query is registered (--graph IRI=FILE), or make an empty one with CREATE GRAPH"

    def triples(self, graph: GraphName = None) -> Iterator[Triple]:
        return map(reveal_triple, self._graphs.quads_for_pattern(None, None, None, graph or DefaultGraph()))

    def select(
        self,
        plan: Plan,
        variables: Sequence[str] | None = None,
        *,
        graph: NamedNode | None = None,
        default_graphs: Sequence[NamedNode] | None = None,
        named_graphs: Sequence[NamedNode] | None = None,
        context: Context | None = None,
    ) -> Iterator[Row]:
        """The solutions of a plan without streams: the values of `variables` (or else of all that are visible).

        `graph` is the active graph, `default_graphs` and `named_graphs` are those of FROM and FROM NAMED.  Without FROM
        (None) the store's own default graph is meant; without either, all its named graphs are.
        """
        tables = {service: self.services.table(service) for service in services_in(plan)}  # may take its time: no lock
        with self._lock:  # a query sees the state at its start, so only the start has to be between two changes
            graphs, view = self._view(default_graphs, named_graphs)
            evaluation = Evaluation(graphs, view, context or Context(), tables.__getitem__)
            return evaluation.rows(plan, visible(plan) if variables is None else tuple(variables), graph)

    def _view(
        self, default_graphs: Sequence[NamedNode] | None, named_graphs: Sequence[NamedNode] | None
    ) -> tuple[pyoxigraph.Store, View]:
        if default_graphs is None:
            names = self.named_graphs() if named_graphs is None else tuple(dict.fromkeys(named_graphs))
            return self._graphs, View(DefaultGraph(), names)
        default = tuple(dict.fromkeys(default_graphs))
        named = tuple(dict.fromkeys(named_graphs or ()))
        if len(default) > 1:
            return self._merge(default, named), View(DefaultGraph(), named)
        return self._graphs, View(default[0] if default else None, named)

    def _merge(self, default: tuple[NamedNode, ...], named: tuple[NamedNode, ...]) -> pyoxigraph.Store:
        """Copies of graphs, several of them merged: over several default graphs Oxigraph would count a triple twice."""
        key = (*default, NamedNode("http://cqels.org/named"), *named)
        versions = tuple(self.version(graph) for graph in (*default, *named))
        known = self._merged.pop(key, None)
        if known is None or known[0] != versions:
            copy = pyoxigraph.Store()
            for graph in default:
                found = self._graphs.quads_for_pattern(None, None, None, graph)
                copy.extend(Quad(quad.subject, quad.predicate, quad.object) for quad in found)
            for graph in named:
                copy.extend(self._graphs.quads_for_pattern(None, None, None, graph))
            known = versions, copy
        self._merged[key] = known
        while len(self._merged) > _VIEWS:
            del self._merged[next(iter(self._merged))]
        return known[1]

    # ------------------------------------------------------------ changing

    def load(self, path: str | Path, graph: NamedNode | None = None, *, format: str | None = None) -> int:
        """Add the triples of a file; its default graph goes to `graph`. The number of triples in the file.

        The file's name tells its `format` unless it is given, its content where the name does not.

        A large file is written in parts, so that it need not fit into memory: only a crash can come between them.
        """
        count = 0
        quads = read_graph(path, graph, format=format)
        with self.transaction():
            if graph is not None:
                self.create_graph(graph)  # of a file without triples, too
            while part := list(islice(quads, _PART)):
                self.add(part)
                count += len(part)
        return count

    def add(self, quads: Iterable[Quad]) -> None:
        self.change((), quads)

    def remove(self, quads: Iterable[Quad]) -> None:
        self.change(quads, ())

    def change(self, removed: Iterable[Quad], added: Iterable[Quad]) -> None:
        """Remove quads, then add quads."""
        with self.transaction():
            gone = dict.fromkeys(quad for quad in map(protect_quad, removed) if quad in self._graphs)
            new: dict[Quad, None] = {}
            for quad in map(protect_quad, added):
                if isinstance(quad.graph_name, BlankNode):
                    raise DataError(f"the graph {quad.graph_name} is a blank node", hint="name graphs by IRIs")
                if quad in gone:
                    del gone[quad]
                elif quad not in self._graphs:
                    new[quad] = None
            if not gone and not new:
                return
            self._note_filling({_graph_of(quad) for quad in new})
            listed = [quad for quad in new if _graph_of(quad) not in self._filled]
            self._note(lambda: write(self._graphs, listed, list(gone)), *map(_graph_of, (*gone, *new)))
            write(self._graphs, list(gone), list(new))
            if self._record is not None:
                self._record.note(gone, new)

    def _note_filling(self, graphs: set[GraphName]) -> None:
        """Graphs that are empty are undone by emptying them: what comes into them need not be remembered."""
        for graph in graphs - self._filled:
            name = graph or DefaultGraph()
            if next(self._graphs.quads_for_pattern(None, None, None, name), None) is None:
                undo = self._graphs.clear_graph if self.has_graph(graph) else self._graphs.remove_graph
                self._note(partial(undo, name), graph)
                self._filled.add(graph)

    def create_graph(self, graph: NamedNode) -> None:
        """Make an empty named graph, unless it is there."""
        with self.transaction():
            if not self.has_graph(graph):
                self._note(lambda: self._graphs.remove_graph(graph), graph)
                self._graphs.add_graph(graph)

    def clear_graph(self, graph: GraphName, *, drop: bool = False) -> None:
        """Remove all triples of a graph, and the graph itself if it is named and to be dropped."""
        with self.transaction():
            quads = list(self._graphs.quads_for_pattern(None, None, None, graph or DefaultGraph()))
            drop = drop and graph is not None and self.has_graph(graph)
            if quads or drop:
                self._note(lambda: self._restore(graph, quads), graph)
                remove = self._graphs.remove_graph if drop else self._graphs.clear_graph
                remove(graph or DefaultGraph())
                if self._record is not None:
                    self._record.note(quads, ())

    def _restore(self, graph: GraphName, quads: list[Quad]) -> None:
        if graph is not None:
            self._graphs.add_graph(graph)
        self._graphs.extend(quads)

    # ------------------------------------------------------------ transactions and notices

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several changes as one: undone if an exception leaves the block, given to the listeners once at its end."""
        with self._lock:
            if self._undo is not None:
                yield
                return
            self._undo, self._changed, self._filled = [], set(), set()
            try:
                yield
            except BaseException:
                for undo in reversed(self._undo):
                    undo()
                self._changed = set()
                raise
            finally:
                self._undo = None
            changed = frozenset(self._changed)
            for graph in changed:
                self._versions[graph] = self._versions.get(graph, 0) + 1
            if changed - {None}:
                self._versions[ANY] = self._versions.get(ANY, 0) + 1
            listeners = [
                listener for graphs, listener in self._listeners.values() if graphs is None or graphs & changed
            ]
        if changed:
            for listener in listeners:
                listener(changed)

    def difference(self, change: Callable[[Store], object]) -> Difference | None:
        """What a change would do, which is not done; None if it would do nothing."""
        with self._lock:
            self._record = found = Difference()
            try:
                with suppress(_Undone), self.transaction():
                    before = self.named_graphs()
                    change(self)
                    found.graphs = self.named_graphs()
                    raise _Undone
            finally:
                self._record = None
        found.removed, found.added = (dict.fromkeys(map(_revealed, each)) for each in (found.removed, found.added))
        return found if found.removed or found.added or found.graphs != before else None

    def _note(self, undo: Callable[[], None], *graphs: GraphName) -> None:
        assert self._undo is not None
        self._undo.append(undo)
        self._changed.update(graphs)

    def version(self, graph: GraphName | AnyGraph = None) -> int:
        """How many changes a graph has seen; for ANY, how many there were of any named graph."""
        return self._versions.get(graph, 0)

    def subscribe(self, listener: Listener, graphs: Iterable[GraphName] | None = None) -> Callable[[], None]:
        """Call `listener` with the graphs changed by each change of some of `graphs` (None: of any graph).

        The function given back ends the subscription.
        """
        key = max(self._listeners, default=0) + 1
        self._listeners[key] = (None if graphs is None else frozenset(graphs), listener)

        def end() -> None:
            self._listeners.pop(key, None)

        return end


def _revealed(quad: Quad) -> Quad:
    return Quad(*reveal_triple(quad), quad.graph_name)


def _graph_of(quad: Quad) -> GraphName:
    return quad.graph_name if isinstance(quad.graph_name, NamedNode) else None
