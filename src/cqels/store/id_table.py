"""A static part of a query as a table of node ids, and whether the graphs it came from have changed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyoxigraph import NamedNode

from cqels.model.dictionary import Dictionary, encode
from cqels.model.terms import Term
from cqels.plan.algebra import Plan, Service
from cqels.plan.functions import Context
from cqels.plan.scope import visible
from cqels.store.dataset import Store
from cqels.store.dependencies import AnyGraph, GraphName, graphs_of
from cqels.store.static_evaluation import services_in


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of ids, 0 for unbound; `rows[i, j]` is the value of `variables[j]`."""

    variables: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    versions: Mapping[GraphName | AnyGraph, int]
    """The graphs it depends on, as they were."""
    answers: Mapping[Service, int | None]
    """The services it depends on, and when each was asked."""

    @property
    def graphs(self) -> frozenset[GraphName | AnyGraph]:
        return frozenset(self.versions)

    def stale(self, store: Store) -> bool:
        """Whether something it depends on has changed."""
        return any(store.version(graph) != version for graph, version in self.versions.items()) or any(
            store.services.refreshed_at(service) != asked_at for service, asked_at in self.answers.items()
        )


def materialise(
    store: Store,
    plan: Plan,
    variables: Sequence[str] | None,
    dictionary: Dictionary,
    *,
    graph: NamedNode | None = None,
    default_graphs: Sequence[NamedNode] | None = None,
    named_graphs: Sequence[NamedNode] | None = None,
    context: Context | None = None,
) -> Table:
    """Evaluate a static plan once; `variables` are the columns, or None for all that are visible."""
    columns = visible(plan) if variables is None else tuple(variables)
    read = graphs_of(plan, graph, default_graphs=default_graphs, named_graphs=named_graphs)
    # Taken before the rows are: a change in between makes the table stale, never wrongly fresh.
    versions = {each: store.version(each) for each in read}
    rows = store.select(
        plan, columns, graph=graph, default_graphs=default_graphs, named_graphs=named_graphs, context=context
    )
    ids = _ids(rows, len(columns), dictionary)
    answers = {service: store.services.refreshed_at(service) for service in services_in(plan)}
    return Table(columns, ids, versions, answers)


def _ids(rows: Iterable[tuple[Term | None, ...]], width: int, dictionary: Dictionary) -> npt.NDArray[np.int64]:
    known: dict[Term, int] = {}
    flat: list[int] = []
    count = 0
    for row in rows:
        count += 1
        for term in row:
            if term is None:
                flat.append(0)
                continue
            word = known.get(term)
            if word is None:
                word = known[term] = encode(term, dictionary)
            flat.append(word)
    return np.array(flat, np.int64).reshape(count, width)
