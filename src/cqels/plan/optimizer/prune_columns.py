"""The rule that drops what nobody reads: computed variables, columns of sub-selects, columns of static tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cqels.lang.expressions import Var, calls
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Graph,
    Group,
    Join,
    LeftJoin,
    Minus,
    Narrow,
    OrderBy,
    Plan,
    Project,
    Sequence,
    Service,
    Slice,
    Static,
    Stream,
    Thresholds,
    Union,
    expressions_of,
    walk_plan,
)
from cqels.plan.scope import reads, variables

DRAWS = frozenset({"RAND", "UUID", "STRUUID", "BNODE"})
"""The functions whose value is drawn once for each solution."""


def prune_columns(plan: Plan) -> Plan:
    """Remove the columns that nothing above reads. Bags keep their multiplicities: rows stay, only columns go.

    Below DISTINCT, LIMIT and a window of the latest n every column counts, because it tells rows apart.
    """
    if any(calls(expression) & DRAWS for node in walk_plan(plan) for expression in expressions_of(node)):
        return plan  # a draw depends on all the bindings of its solution
    return _pruned(plan, frozenset(variables(plan)))


def _pruned(plan: Plan, wanted: frozenset[str]) -> Plan:
    for expression in expressions_of(plan):
        wanted |= reads(expression)
    match plan:
        case Extend(input=inner, variable=name, expression=expression):
            if name not in wanted - (reads(expression) - {name}):
                return _pruned(inner, wanted)
            return replace(plan, input=_pruned(inner, wanted))
        case Project(input=inner, variables=names):
            kept = tuple(name for name in names if name in wanted)
            return replace(plan, input=_pruned(inner, frozenset(kept)), variables=kept)
        case Group(input=inner, keys=keys, aggregates=aggregates):
            kept_aggregates = tuple(each for each in aggregates if each[0] in wanted)
            needed = frozenset(keys).union(*(reads(node) for _, node in kept_aggregates))
            whole = any(node.argument is None and node.distinct for _, node in kept_aggregates)
            inside = frozenset(variables(inner)) if whole else needed
            return replace(plan, input=_pruned(inner, inside), aggregates=kept_aggregates)
        case Join(inputs=inputs):
            wanted |= _shared(inputs)
            return Join(tuple(_pruned(each, wanted) for each in inputs))
        case LeftJoin(left=left, right=right) | Sequence(left=left, right=right):
            return replace(
                plan,
                left=_pruned(left, wanted | frozenset(variables(right))),
                right=_pruned(right, wanted | frozenset(variables(left))),
            )
        case Minus(left=left, right=right):
            # which variables the two sides share decides what is removed, so both keep them all
            shared = frozenset(variables(left)) & frozenset(variables(right))
            return Minus(_pruned(left, wanted | shared), _pruned(right, shared))
        case Static(input=inner):
            kept = tuple(name for name in variables(inner) if name in wanted or name in plan.on)
            inner = _pruned(inner, frozenset(kept))
            return replace(plan, input=inner if set(variables(inner)) <= set(kept) else Project(inner, kept))
        case Filter(input=inner):
            return replace(plan, input=_pruned(inner, wanted))
        case Narrow(input=inner, width=width):
            return replace(plan, input=_pruned(inner, wanted | {width}))
        case Thresholds(input=inner, group=group):
            return replace(plan, input=_pruned(inner, wanted | {group} if group is not None else wanted))
        case Graph(name=name, input=inner):  # a variable that ranges over graphs is joined with the inside
            return replace(plan, input=_pruned(inner, wanted | {name.name} if isinstance(name, Var) else wanted))
        case Union(inputs=inputs):
            return Union(tuple(_pruned(each, wanted) for each in inputs))
        case OrderBy(input=inner):
            return replace(plan, input=_pruned(inner, wanted | frozenset(plan.ties)))
        case Distinct(input=inner) | Slice(input=inner) | Service(input=inner) | Stream(input=inner):
            return replace(plan, input=_pruned(inner, frozenset(variables(inner))))
        case _:
            return plan


def _shared(inputs: tuple[Plan, ...]) -> frozenset[str]:
    """The variables that several inputs have."""
    counts = Counter(name for each in inputs for name in variables(each))
    return frozenset(name for name, count in counts.items() if count > 1)
