"""The solutions of a plan over graphs in Oxigraph.

Patterns, joins and groups are Oxigraph's work, expressions are ours.  What SPARQL text cannot say exactly (an order
with its ties, SERVICE) is evaluated first and put into the text as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyoxigraph
from pyoxigraph import DefaultGraph, NamedNode

from cqels.lang.expressions import Exists, Expression, Var, transform, walk
from cqels.model.recursion import Calling, complete
from cqels.model.terms import Term, text_of
from cqels.model.values import order_key
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Graph,
    Join,
    OrderBy,
    Plan,
    Project,
    Service,
    Slice,
    Static,
    Stream,
    Union,
    Values,
    inputs_of,
    map_expressions,
    map_inputs,
    patterns_of,
    walk_plan,
)
from cqels.plan.functions import Context
from cqels.plan.scope import visible
from cqels.plan.to_sparql.opaque_expressions import variables_in
from cqels.plan.to_sparql.query_text import Windows, to_opaque_sparql
from cqels.store.exact_literals import protect, reveal
from cqels.store.expression_callbacks import Calls, value_or_none
from cqels.store.large_stack import is_deep, with_large_stack

_NOTHING = Values((), ())
Row: TypeAlias = tuple[Term | None, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The dataset that a plan sees: its default graph (None: an empty one) and its named graphs.

    The graphs of windows are there too, but a variable of GRAPH does not range over them.
    """

    default: NamedNode | DefaultGraph | None
    named: tuple[NamedNode, ...]
    windows: Windows | None = None
    window_graphs: tuple[NamedNode, ...] = ()


class Evaluation:
    """One evaluation of plans over one state of the graphs."""

    def __init__(
        self,
        graphs: pyoxigraph.Store,
        view: View,
        context: Context,
        service: Callable[[Service], Values],
    ) -> None:
        self._graphs = graphs
        self._view = view
        self._context = context
        self._service = service
        self._readable = frozenset((*view.named, *view.window_graphs))

    def rows(self, plan: Plan, variables: tuple[str, ...], graph: NamedNode | None = None) -> Iterator[Row]:
        """The values of some variables, in the plan's order where it has one; `graph` is the active graph."""
        columns, rows = self._solve(plan, graph)
        indexes = [columns.index(name) if name in columns else None for name in variables]
        if indexes == list(range(len(columns))):
            return rows
        return (tuple(None if index is None else row[index] for index in indexes) for row in rows)

    def _solve(self, plan: Plan, graph: NamedNode | None) -> tuple[tuple[str, ...], Iterator[Row]]:
        """Columns and rows. The nodes that make an order are walked here, what is below them is Oxigraph's."""
        match plan:
            case Slice(input=inner, offset=offset, limit=limit):
                columns, rows = self._solve(inner, graph)
                ordered = list(rows) if _is_ordered(inner) else sorted(rows, key=_texts)
                return columns, iter(ordered[offset : None if limit is None else offset + limit])
            case OrderBy():
                return self._ordered(plan, graph)
            case Project(input=inner, variables=variables) if _is_ordered(inner):
                return variables, self.rows(inner, variables, graph)
            case Static(input=inner):
                return self._solve(inner, graph)
            case Distinct(input=inner) if _is_ordered(inner):
                columns, rows = self._solve(inner, graph)
                return columns, iter(dict.fromkeys(rows))
            case _:
                return self._run(complete(self._settled(plan if graph is None else Graph(graph, plan), None)))

    def _ordered(self, plan: OrderBy, graph: NamedNode | None) -> tuple[tuple[str, ...], Iterator[Row]]:
        inner, keys = plan.input, list[tuple[Expression, bool]]()
        for expression, descending in plan.keys:
            if any(isinstance(node, Exists) for node in walk(expression)):  # only the graphs can answer it
                name = f"_:order{len(keys)}"
                inner, expression = Extend(inner, name, expression), Var(name)
            keys.append((expression, descending))
        shown = visible(plan.input)
        columns = tuple(dict.fromkeys((*shown, *(name for key, _ in keys for name in variables_in(key)))))
        rows = list(self.rows(Project(inner, columns), columns, graph))
        ties = [columns.index(name) for name in plan.ties if name in columns]
        rows.sort(key=lambda row: [text_of(row[index]) for index in ties])
        computed = {node.variable for node in walk_plan(plan) if isinstance(node, Extend)}
        context = replace(self._context, identity=[name for name in shown if name not in computed])
        for expression, descending in reversed(keys):  # sorting is stable, in reverse too: the last key is the weakest
            decorated = [(order_key(_value(expression, columns, row, context)), row) for row in rows]
            decorated.sort(key=lambda pair: pair[0], reverse=descending)
            rows = [row for _, row in decorated]
        return columns, iter(rows)

    def _run(self, plan: Plan) -> tuple[tuple[str, ...], Iterator[Row]]:
        view = self._view
        query = to_opaque_sparql(plan, protect, named_graphs=view.named, windows=view.windows)
        calls = Calls(query, self._context)

        def found() -> Iterator[Row]:
            solutions = self._graphs.query(
                query.text,
                default_graph=[] if view.default is None else [view.default],
                named_graphs=[*view.named, *view.window_graphs],
                custom_functions=calls.functions,
                custom_aggregate_functions=calls.aggregates,
            )
            assert isinstance(solutions, pyoxigraph.QuerySolutions)
            return _revealed(solutions, len(query.columns), calls)

        if is_deep(query.text):  # its solutions are made as deep in the stack as it was parsed
            return query.columns, iter(with_large_stack(lambda: list(found())))
        return query.columns, found()

    def _settled(self, plan: Plan, graph: NamedNode | None) -> Calling[Plan]:
        """The plan with tables in place of what the text cannot say; `graph` is the active graph."""
        match plan:
            case Service():
                return self._service(plan)
            case Slice():
                columns, rows = self._solve(plan, graph)
                return Values(columns, tuple(rows))
            case Graph(name=NamedNode() as name) if name not in self._readable:
                return _NOTHING  # the text alone would let a GRAPH inside of it look at that other graph
            case Graph(name=NamedNode() as name, input=inner):
                return Graph(name, (yield self._settled(inner, name)))
            case Graph(name=Var() as name, input=inner) if _has_slice(inner):
                return (yield self._each(name, [(iri, iri) for iri in self._view.named], inner))
            case Stream(sources=sources, input=inner) if _has_slice(inner) and self._view.windows is not None:
                stream = sources[0].stream if sources else None
                return (yield self._each(stream if isinstance(stream, Var) else None, self._view.windows(plan), inner))
        made: list[Plan] = []
        for each in inputs_of(plan):
            made.append((yield self._settled(each, graph)))
        settled = iter(made)
        below = map_inputs(plan, lambda _: next(settled))
        return map_expressions(below, lambda each: self._settled_exists(each, graph))

    def _each(
        self, name: Var | None, graphs: Sequence[tuple[NamedNode | None, NamedNode]], inner: Plan
    ) -> Calling[Plan]:
        """A plan for each graph on its own, with the IRI that the variable has there."""
        parts: list[Plan] = []
        for iri, graph in graphs:
            part: Plan = Graph(graph, (yield self._settled(inner, graph)))
            parts.append(part if name is None else Join((Values((name.name,), ((iri,),)), part)))
        return Union(tuple(parts)) if parts else _NOTHING

    def _settled_exists(self, expression: Expression, graph: NamedNode | None) -> Expression:
        def settle(node: Expression) -> Expression:
            if not isinstance(node, Exists):
                return node
            return replace(node, pattern=complete(self._settled(node.pattern, graph)))

        return transform(expression, settle)


def services_in(plan: Plan) -> Iterator[Service]:
    """The services that the plan itself calls; what they call in turn is theirs."""
    pending = [plan]
    while pending:
        node = pending.pop()
        if isinstance(node, Service):
            yield node
        else:
            pending += reversed((*patterns_of(node), *inputs_of(node)))


def _has_slice(plan: Plan) -> bool:
    return any(isinstance(node, Slice) for node in walk_plan(plan))


def _is_ordered(plan: Plan) -> bool:
    match plan:
        case OrderBy() | Slice():
            return True
        case Project(input=inner) | Distinct(input=inner) | Static(input=inner):
            return _is_ordered(inner)
        case _:
            return False


def _texts(row: Row) -> list[str]:
    return [text_of(term) for term in row]


def _value(expression: Expression, columns: tuple[str, ...], row: Row, context: Context) -> Term | None:
    solution = {name: term for name, term in zip(columns, row, strict=True) if term is not None}
    return value_or_none(expression, solution, context)


def _revealed(found: pyoxigraph.QuerySolutions, width: int, calls: Calls) -> Iterator[Row]:
    for solution in found:
        calls.check()
        values = tuple(solution)[:width]  # a query without columns has one that means nothing
        yield tuple(None if term is None else reveal(term) for term in values)
    calls.check()
