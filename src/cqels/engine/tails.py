"""The tail of a plan: ORDER BY and LIMIT at its top, which the engine applies to all solutions of the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

from cqels.flow.compile import RANK
from cqels.flow.obstacles import NOWS, TIMES, exists_in
from cqels.lang.expressions import Expression, Var, calls
from cqels.plan import algebra
from cqels.plan.algebra import Plan
from cqels.plan.columns import DRAWS
from cqels.plan.scope import variables


@dataclass(frozen=True, slots=True)
class Split:
    """What is below the tail, the nodes of the tail, innermost first, and why the plan below has to be ranked."""

    plan: Plan
    tail: tuple[Plan, ...] = ()
    ranked: str | None = None


def split_tail(plan: Plan) -> Split:
    """Take the outermost ORDER BY and LIMIT, with what is between them, off a plan.

    A key of the innermost ORDER BY that an engine has to answer becomes a hidden column below it.  Where the order
    goes through what only the plan itself can compute, the whole plan gives its solutions with their ranks.
    """
    chain: list[Plan] = []
    node = plan.input if isinstance(plan, algebra.Static) else plan
    while isinstance(node, algebra.Slice | algebra.OrderBy | algebra.Project | algebra.Distinct | algebra.Extend):
        chain.append(node)
        node = node.input
    ordering = [place for place, each in enumerate(chain) if isinstance(each, algebra.OrderBy | algebra.Slice)]
    if not ordering:
        return Split(plan)
    *above, last = chain[: ordering[-1] + 1]
    assert isinstance(last, algebra.OrderBy | algebra.Slice)
    if any(isinstance(each, algebra.Extend) or _asks(each) for each in above):
        names = variables(plan)
        by_rank = algebra.OrderBy(plan, ((Var(RANK), False),))
        return Split(plan, (by_rank, algebra.Project(by_rank, names)), "an order that is computed with")
    below, first = _answered(last)
    if isinstance(plan, algebra.Static):  # what is below the tail of a table is a table too
        below = algebra.Static(below, ())
    return Split(below, (*first, *reversed(above)))


def _asks(plan: Plan) -> bool:
    """The order depends on what only an engine can tell."""
    return isinstance(plan, algebra.OrderBy) and any(_needs_engine(key) for key, _ in plan.keys)


def _needs_engine(expression: Expression) -> bool:
    return bool(calls(expression) & (TIMES | NOWS | DRAWS | {"TIMESTAMP"}) or exists_in(expression))


def _answered(last: algebra.OrderBy | algebra.Slice) -> tuple[Plan, tuple[Plan, ...]]:
    """What is below the innermost node of the tail, and that node with nothing in it to ask an engine."""
    if not isinstance(last, algebra.OrderBy) or not _asks(last):
        return last.input, (last,)
    below, keys, numbers = last.input, [], count(1)
    names = variables(below)
    for key, descending in last.keys:
        if _needs_engine(key):
            name = f"_:.order{next(numbers)}"
            below, key = algebra.Extend(below, name, key), Var(name)
        keys.append((key, descending))
    ordered = replace(last, input=below, keys=tuple(keys))
    return below, (ordered, algebra.Project(ordered, names))
