"""The rule that brings the conditions of an EXISTS that read the outside to its top, where a join can apply them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from cqels.lang.expressions import Call, Exists, Expression, Var, calls, junction, operands_of, transform, walk
from cqels.lang.syntax import Count
from cqels.model.recursion import Calling, complete
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Graph,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    Plan,
    Stream,
    Union,
    map_expressions,
    transform_plan,
)
from cqels.plan.optimizer.prune_columns import DRAWS
from cqels.plan.scope import certain, reads, variables

_OF_THE_PLACE = DRAWS | {"GETDURATION", "GETSTARTTIME", "GETENDTIME", "NEWEST", "TIMESTAMP"}
"""What depends on where in the plan it is asked."""

Lifted: TypeAlias = tuple[Plan, list[Expression]]
"""A plan, and conditions that were inside and can be asked of its solutions as well."""


def lift_correlated(plan: Plan) -> Plan:
    """Move the conditions inside EXISTS that read what the pattern around them need not bind to the top of the pattern.

    There they see the solution outside together with one inside: `EXISTS { STREAM s { P FILTER(c) } }` becomes
    `EXISTS { STREAM s { P } FILTER(c) }`.  A condition crosses only what neither binds its variables nor decides by it:
    no sub-select, right side of an OPTIONAL or MINUS, and no window of the latest n solutions.  A UNION of which a part
    looks outside becomes an EXISTS for each part.  An OPTIONAL that does not matter there goes.
    """

    def lifted(node: Expression) -> Expression:
        return _of_exists(node) if isinstance(node, Exists) else node

    return transform_plan(plan, lambda node: map_expressions(node, lambda each: transform(each, lifted)))


def _of_exists(node: Exists) -> Expression:
    branches = _branches(node.pattern)
    if len(branches) == 1 or not any(complete(_lifted(each))[1] for each in branches):
        return replace(node, pattern=_of_pattern(node.pattern))
    parts = [replace(node, pattern=_of_pattern(each)) for each in branches]
    return junction("AND" if node.negated else "OR", parts)


def _branches(plan: Plan) -> list[Plan]:
    """The parts of a UNION, and of those that are parts of it."""
    found, pending = list[Plan](), [plan]
    while pending:
        each = pending.pop()
        if isinstance(each, Union):
            pending += reversed(each.inputs)
        else:
            found.append(each)
    return found


def _of_pattern(plan: Plan) -> Plan:
    inner, found = complete(_lifted(plan))
    while isinstance(inner, LeftJoin):
        added = frozenset(variables(inner.right)) - certain(inner.left)
        if any(reads(condition) & added for condition in found):
            break
        inner, more = complete(_lifted(inner.left))
        found += more
    return _with(inner, found)


def _lifted(plan: Plan) -> Calling[Lifted]:
    """A plan without conditions that look outside, and these, which can be asked of its solutions as well."""
    match plan:
        case Filter(input=inner, condition=condition):
            inner, found = yield _lifted(inner)
            bound = certain(inner)
            parts = operands_of(condition) if isinstance(condition, Call) and condition.name == "AND" else [condition]
            own, outside = _divided(parts, lambda part: reads(part) <= bound or _stays(part))
            return _with(inner, own), [*found, *outside]
        case Join(inputs=inputs):
            return (yield _of_join(inputs))
        case LeftJoin(left=left, right=right):
            return _of_left(plan, (yield _lifted(left)), right)
        case Minus(left=left):
            left, found = yield _lifted(left)
            return replace(plan, left=left), found
        case Stream(sources=sources, at=at) if not (isinstance(sources[0].window, Count) and sources[0].window.by):
            names = {source.stream.name for source in sources if isinstance(source.stream, Var)} | {at}
            return _unless_read(plan, (yield _lifted(plan.input)), names)
        case Graph(name=name):
            return _unless_read(plan, (yield _lifted(plan.input)), {name.name} if isinstance(name, Var) else set())
        case Extend(variable=name):
            return _unless_read(plan, (yield _lifted(plan.input)), {name})
        case Distinct() | OrderBy():
            return _unless_read(plan, (yield _lifted(plan.input)), set())
        case _:
            return plan, []


def _unless_read(
    plan: Stream | Graph | Extend | Distinct | OrderBy, below: Lifted, names: set[str] | set[str | None]
) -> Lifted:
    """A plan whose node binds some variables without the conditions below that do not read these."""
    inner, found = below
    looks_around = isinstance(plan, Stream | Graph)
    back, found = _divided(found, lambda each: bool(reads(each) & names) or (looks_around and _asks_the_graph(each)))
    return replace(plan, input=_with(inner, back)), found


def _of_join(inputs: tuple[Plan, ...]) -> Calling[Lifted]:
    kept, found = list[Plan](), list[Expression]()
    for place, each in enumerate(inputs):
        inner, conditions = yield _lifted(each)
        if not conditions:
            kept.append(inner)
            continue
        beside = frozenset(name for other in (*inputs[:place], *inputs[place + 1 :]) for name in variables(other))
        back, others = _divided(conditions, _reading(beside - certain(inner)))
        kept.append(_with(inner, back))
        found += others
    return Join(tuple(kept)), found


def _of_left(plan: LeftJoin, left: Lifted, right: Plan) -> Lifted:
    inner, conditions = left
    if not conditions:
        return replace(plan, left=inner), []
    back, others = _divided(conditions, _reading(frozenset(variables(right)) - certain(inner)))
    return replace(plan, left=_with(inner, back)), others


def _reading(names: frozenset[str]) -> Callable[[Expression], bool]:
    return lambda condition: bool(reads(condition) & names)


def _divided(
    conditions: list[Expression], test: Callable[[Expression], bool]
) -> tuple[list[Expression], list[Expression]]:
    """The conditions that pass a test, and the others."""
    passed, others = list[Expression](), list[Expression]()
    for each in conditions:
        (passed if test(each) else others).append(each)
    return passed, others


def _with(plan: Plan, conditions: list[Expression]) -> Plan:
    return Filter(plan, junction("AND", conditions)) if conditions else plan


def _stays(condition: Expression) -> bool:
    return bool(calls(condition) & _OF_THE_PLACE)


def _asks_the_graph(condition: Expression) -> bool:
    return any(isinstance(node, Exists) for node in walk(condition))
