"""The rule that brings the conditions of an EXISTS that read the outside to its top, where a join can apply them."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from cqels.lang.expressions import Call, Exists, Expression, Var, calls, operands_of, transform, walk
from cqels.lang.syntax import Count
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
from cqels.plan.columns import DRAWS
from cqels.plan.scope import certain, reads, variables

_OF_THE_PLACE = DRAWS | {"GETDURATION", "GETSTARTTIME", "GETENDTIME", "NEWEST", "TIMESTAMP"}
"""What depends on where in the plan it is asked."""


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
    if isinstance(node.pattern, Union) and any(_lifted(each)[1] for each in node.pattern.inputs):
        parts = [_of_exists(replace(node, pattern=each)) for each in node.pattern.inputs]
        return reduce(lambda one, other: Call("AND" if node.negated else "OR", (one, other)), parts)
    inner, found = _lifted(node.pattern)
    while isinstance(inner, LeftJoin):
        added = frozenset(variables(inner.right)) - certain(inner.left)
        if any(reads(condition) & added for condition in found):
            break
        inner, more = _lifted(inner.left)
        found += more
    return replace(node, pattern=_with(inner, found))


def _lifted(plan: Plan) -> tuple[Plan, list[Expression]]:
    """A plan without conditions that look outside, and these, which can be asked of its solutions as well."""
    match plan:
        case Filter(input=inner, condition=condition):
            inner, found = _lifted(inner)
            bound = certain(inner)
            parts = operands_of(condition) if isinstance(condition, Call) and condition.name == "AND" else [condition]
            outside = [part for part in parts if not reads(part) <= bound and not _stays(part)]
            return _with(inner, [part for part in parts if part not in outside]), [*found, *outside]
        case Join(inputs=inputs):
            return _of_join(inputs)
        case LeftJoin(left=left, right=right):
            return _of_left(plan, left, right)
        case Minus(left=left):
            left, found = _lifted(left)
            return replace(plan, left=left), found
        case Stream(sources=sources, at=at) if not (isinstance(sources[0].window, Count) and sources[0].window.by):
            names = {source.stream.name for source in sources if isinstance(source.stream, Var)} | {at}
            return _unless_read(plan, names)
        case Graph(name=name):
            return _unless_read(plan, {name.name} if isinstance(name, Var) else set())
        case Extend(variable=name):
            return _unless_read(plan, {name})
        case Distinct() | OrderBy():
            return _unless_read(plan, set())
        case _:
            return plan, []


def _unless_read(
    plan: Stream | Graph | Extend | Distinct | OrderBy, names: set[str] | set[str | None]
) -> tuple[Plan, list[Expression]]:
    """A plan whose node binds some variables without the conditions below that do not read these."""
    inner, found = _lifted(plan.input)
    looks_around = isinstance(plan, Stream | Graph)
    back = [each for each in found if reads(each) & names or (looks_around and _asks_the_graph(each))]
    return replace(plan, input=_with(inner, back)), [each for each in found if each not in back]


def _of_join(inputs: tuple[Plan, ...]) -> tuple[Plan, list[Expression]]:
    kept, found = list[Plan](), list[Expression]()
    for place, each in enumerate(inputs):
        beside = frozenset(name for other in (*inputs[:place], *inputs[place + 1 :]) for name in variables(other))
        inner, conditions = _lifted(each)
        back = [condition for condition in conditions if reads(condition) & beside - certain(inner)]
        kept.append(_with(inner, back))
        found += [condition for condition in conditions if condition not in back]
    return Join(tuple(kept)), found


def _of_left(plan: LeftJoin, left: Plan, right: Plan) -> tuple[Plan, list[Expression]]:
    inner, conditions = _lifted(left)
    back = [condition for condition in conditions if reads(condition) & frozenset(variables(right)) - certain(inner)]
    return replace(plan, left=_with(inner, back)), [each for each in conditions if each not in back]


def _with(plan: Plan, conditions: list[Expression]) -> Plan:
    return Filter(plan, reduce(lambda one, other: Call("AND", (one, other)), conditions)) if conditions else plan


def _stays(condition: Expression) -> bool:
    return bool(calls(condition) & _OF_THE_PLACE)


def _asks_the_graph(condition: Expression) -> bool:
    return any(isinstance(node, Exists) for node in walk(condition))
