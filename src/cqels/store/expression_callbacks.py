"""The functions and aggregates that an opaque query calls, over the exact evaluator of expressions.

Oxigraph takes any exception of a function for an error of the expression; one that is not an ExpressionError is a
fault of ours or an interruption, so it is kept and raised at the next solution, or when the query has run; until then
nothing more is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyoxigraph import BlankNode, Literal, NamedNode
from pyoxigraph import Triple as QuotedTriple

from cqels.lang.expressions import Expression
from cqels.model.terms import Term, boolean, text_of
from cqels.model.values import ExpressionError
from cqels.plan.functions import Context, aggregate, evaluate, holds
from cqels.plan.to_sparql.opaque_expressions import BLANK, UNBOUND, Accumulation, Function
from cqels.plan.to_sparql.query_text import OpaqueQuery
from cqels.store.exact_literals import protect, reveal

if TYPE_CHECKING:
    from pyoxigraph import AggregateFunctionAccumulator

Solution = dict[str, Term]
_Call = Callable[..., Term | QuotedTriple | None]


_ORDERED = frozenset({"SAMPLE", "GROUP_CONCAT"})
"""The aggregates that depend on the order of solutions: without times, it is that of the text of what is aggregated."""


class Calls:
    """The `functions` and `aggregates` to give to `pyoxigraph.Store.query`; `check` is to be called after it."""

    def __init__(self, query: OpaqueQuery, context: Context) -> None:
        self._context = context
        self._faults: list[BaseException] = []
        self.functions: dict[NamedNode, _Call] = {BLANK: _blank}
        self.aggregates: dict[NamedNode, Callable[[], AggregateFunctionAccumulator]] = {}
        for function in query.functions:
            self.functions[function.iri] = self._function(function)
        for accumulation in query.accumulations:
            self._add(accumulation)

    def check(self) -> None:
        if self._faults:
            raise self._faults[0]

    def _guarded(self, compute: Callable[[], Term]) -> Term | None:
        if self._faults:
            return None
        try:
            return protect(compute())
        except ExpressionError:
            return None
        except BaseException as fault:
            self._faults.append(fault)
            return None

    def _function(self, function: Function) -> _Call:
        context = replace(self._context, identity=function.identity)
        expression, parameters = function.expression, function.parameters
        compute: Callable[[Solution], Term]
        if function.boolean:

            def compute(solution: Solution) -> Term:
                return boolean(holds(expression, solution, context))
        else:

            def compute(solution: Solution) -> Term:
                return evaluate(expression, solution, context)

        return lambda *values: self._guarded(lambda: compute(_solution(parameters, values)))

    def _add(self, accumulation: Accumulation) -> None:
        """An aggregate sees one term a solution: its only parameter, or the number of a row that is kept here."""
        context = replace(self._context, identity=accumulation.identity)
        parameters, rows = accumulation.parameters, list[tuple[Term, ...]]()

        def number_of_row(*values: Term) -> Term:
            rows.append(values)
            return Literal(str(len(rows) - 1))

        def solution_of(term: Term) -> Solution:
            assert isinstance(term, Literal) or accumulation.row is None
            return _solution(parameters, (term,) if accumulation.row is None else rows[int(term.value)])

        def value(solutions: list[Solution]) -> Term:
            node, argument = accumulation.aggregate, accumulation.aggregate.argument
            if argument is not None and node.name in _ORDERED:
                solutions.sort(key=lambda solution: text_of(value_or_none(argument, solution, context)))
            return aggregate(node, solutions, context)

        def finish(solutions: list[Solution]) -> Term | None:
            return self._guarded(lambda: value(solutions))

        if accumulation.row is not None:
            self.functions[accumulation.row] = number_of_row
        self.aggregates[accumulation.iri] = lambda: _Group(solution_of, finish)


class _Group:
    """The solutions of one group, while Oxigraph goes through them."""

    def __init__(
        self, solution_of: Callable[[Term], Solution], finish: Callable[[list[Solution]], Term | None]
    ) -> None:
        self._solution_of = solution_of
        self._finish = finish
        self._solutions: list[Solution] = []

    def accumulate(self, element: NamedNode | BlankNode | Literal | QuotedTriple) -> None:
        assert not isinstance(element, QuotedTriple)
        self._solutions.append(self._solution_of(element))

    def finish(self) -> Term | None:
        return self._finish(self._solutions)


def value_or_none(expression: Expression, solution: Solution, context: Context) -> Term | None:
    try:
        return evaluate(expression, solution, context)
    except ExpressionError:
        return None


def _solution(parameters: Sequence[str], values: Sequence[Term]) -> Solution:
    # An aggregate without parameters is still called with one value a solution, so the lengths may differ.
    return {name: reveal(value) for name, value in zip(parameters, values, strict=False) if value != UNBOUND}


def _blank(label: Term) -> Term:
    """A column with some blank nodes has other terms too, and those stay as they are."""
    return BlankNode(label.value) if isinstance(label, Literal) and label.datatype == BLANK else label
