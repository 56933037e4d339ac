"""Which parts of a plan have incremental operators, and why the others have none: those are computed anew at each tick.

A part is *closed* if it does not read the active graph of a window around it: only such a part can be computed alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from cqels.lang.expressions import Exists, Expression, calls, junction, walk
from cqels.lang.syntax import Count, Window
from cqels.model.limits import MOST_JOIN_COLUMNS
from cqels.model.terms import CQ
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Graph,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    PathPattern,
    Plan,
    Project,
    Sequence,
    Service,
    Slice,
    Static,
    Stream,
    Triples,
    Union,
    Unit,
    Values,
    expressions_of,
    inputs_of,
    patterns_of,
    walk_plan,
)
from cqels.plan.optimizer.prune_columns import DRAWS
from cqels.plan.optimizer.rules import conjuncts
from cqels.plan.optimizer.split_independent import is_looked_up
from cqels.plan.scope import certain, mentioned, reads, variables
from cqels.plan.to_sparql.path_text import ways_to_stay

TIMES = frozenset({"GETDURATION", "GETSTARTTIME", "GETENDTIME", "NEWEST"})
NOWS = frozenset({"NOW", CQ + "now"})
_STARTS = frozenset({"GETDURATION", "GETSTARTTIME"})
_WIDE = "more variables than a join can share"


def is_partitioned(window: Window) -> TypeGuard[Count]:
    """It has the latest solutions for each value of some variables."""
    return isinstance(window, Count) and bool(window.by)


def obstacle(plan: Plan, *, windowed: bool) -> str | None:
    """Why this part has no incremental operators, parts of it that can be computed alone left out; None if it has.

    `windowed`: the active graph is that of a window.
    """
    pending = [(plan, windowed)]
    while pending:
        node, windowed = pending.pop()
        own = _own(node) or _in_expressions(node)
        if own is not None:
            return own
        windowed = windowed or isinstance(node, Stream)
        below = (*(each.pattern for each in exists_of(node)), *inputs_of(node))
        pending += [(each, windowed) for each in reversed(below) if windowed and reads_active(each)]
    return None


def computed_anew(plan: Plan, *, windowed: bool = False) -> list[tuple[Plan, str]]:
    """The parts of a plan that are computed anew at each tick that changes what they read, and why."""
    if isinstance(plan, Static):
        return []  # a table, whatever is in it
    if not windowed or not reads_active(plan):
        reason = obstacle(plan, windowed=windowed)
        if reason is not None:
            return [(plan, reason)]
    below = [*inputs_of(plan), *(node.pattern for node in exists_of(plan))]
    inside = windowed or isinstance(plan, Stream)
    return [found for each in below for found in computed_anew(each, windowed=inside)]


def reads_active(plan: Plan) -> bool:
    """The plan reads the active graph, so that it means something else in another context."""
    pending = [plan]
    while pending:
        node = pending.pop()
        match node:
            case Triples() | PathPattern():
                return True
            case Stream() | Graph() | Service() | Static():
                continue
        if any("TIMESTAMP" in calls(expression) for expression in expressions_of(node)):
            return True
        pending += (*patterns_of(node), *inputs_of(node))
    return False


def exists_of(plan: Plan) -> list[Exists]:
    """The EXISTS in the expressions of a node itself."""
    return [node for expression in expressions_of(plan) for node in exists_in(expression)]


def exists_in(expression: Expression) -> list[Exists]:
    return [node for node in walk(expression) if isinstance(node, Exists)]


def times_matter(plan: Plan) -> bool:
    """Something in the plan depends on when the elements came that a solution used."""
    for node in walk_plan(plan):
        if isinstance(node, Sequence) or (isinstance(node, Stream) and node.at is not None):
            return True
        if isinstance(node, Group) and any(each.name in ("SAMPLE", "GROUP_CONCAT") for _, each in node.aggregates):
            return True
        if any(calls(expression) & TIMES for expression in expressions_of(node)):
            return True
    return False


def spans_matter(plan: Plan) -> bool:
    """Something in the plan depends on the oldest of the elements that a solution used."""
    return any(
        isinstance(node, Sequence) or any(calls(each) & _STARTS for each in expressions_of(node))
        for node in walk_plan(plan)
    )


def timely(plan: Plan) -> bool:
    """Some expression of the plan depends on the tick's time."""
    return any(calls(expression) & NOWS for node in walk_plan(plan) for expression in expressions_of(node))


def needs_windows(plan: Plan, *, windowed: bool = False) -> bool:
    """The plan surely has no solution while its windows are empty, whatever time it is.

    `windowed`: the active graph is that of a window.
    """
    match plan:
        case Triples(patterns=patterns):
            return windowed and bool(patterns)
        case PathPattern(path=path):
            return windowed and ways_to_stay(path) == 0
        case Stream(input=inner, graphs=graphs):
            return not graphs and needs_windows(inner, windowed=True)
        case Join(inputs=inputs):
            return any(needs_windows(each, windowed=windowed) for each in inputs)
        case Union(inputs=inputs):
            return all(needs_windows(each, windowed=windowed) for each in inputs)
        case LeftJoin(left=left) | Minus(left=left) | Sequence(left=left):
            return needs_windows(left, windowed=windowed)
        case Group(input=inner, keys=keys):
            return bool(keys) and needs_windows(inner, windowed=windowed)
        case Filter() | Extend() | Project() | Distinct() | OrderBy() | Slice():
            return needs_windows(plan.input, windowed=windowed)
        case _:
            return False


# ------------------------------------------------------------ one node


def _own(plan: Plan) -> str | None:
    match plan:
        case Graph():
            return "GRAPH around what is not static"
        case Service():
            return "SERVICE that is not static"
        case Join() | LeftJoin() if len(variables(plan)) > MOST_JOIN_COLUMNS:
            return _WIDE
        case _:
            return None


def _in_expressions(plan: Plan) -> str | None:
    outer = frozenset(variables(plan.input if isinstance(plan, Group | Filter | Extend) else plan))
    for expression in expressions_of(plan):
        called = calls(expression)
        if called & NOWS:
            return "an expression that depends on the tick's time"
        if "TIMESTAMP" in called:
            return "TIMESTAMP"
        if called & TIMES and isinstance(plan, LeftJoin | Group):
            return "the times of solutions in an OPTIONAL or an aggregate"
        for node in exists_in(expression):
            reason = _of_exists(node, outer)
            if reason is not None:
                return reason
    return None


# ------------------------------------------------------------ EXISTS


def parts_of(node: Exists, outer: frozenset[str]) -> tuple[Plan, list[Filter | Extend]]:
    """The pattern of an EXISTS without what is at its top and reads what is bound outside, and that, innermost first.

    So it is with all that is above parts that are looked up one by one.  What does not matter to whether there is a
    solution is left out.
    """
    inner: Plan = node.pattern
    chain: list[Filter | Extend] = []
    while True:
        match inner:
            case LeftJoin(left=left) if not chain:
                inner = left
            case Distinct(input=below) | OrderBy(input=below):
                inner = below
            case Filter(input=below):
                chain.append(inner)
                inner = below
            case Extend(input=below, variable=name) if name not in outer:
                chain.append(inner)
                inner = below
            case _:
                break
    while chain:
        bound, last = certain(inner), chain.pop()
        parts = conjuncts(last.condition) if isinstance(last, Filter) else [last.expression]
        apart = is_looked_up(inner, outer)
        own, other = list[Expression](), list[Expression]()
        for part in parts:
            (own if reads(part) & outer <= bound and not apart else other).append(part)
        if isinstance(last, Filter) and own:
            inner = Filter(inner, junction("AND", own))
        elif own:
            inner = replace(last, input=inner)
        if other:
            chain.append(replace(last, condition=junction("AND", other)) if isinstance(last, Filter) else last)
            break
    return inner, chain[::-1]


def _of_exists(node: Exists, outer: frozenset[str]) -> str | None:
    inner, steps = parts_of(node, outer)
    if not _transparent(inner, outer):
        return "an EXISTS that looks outside from deep inside"
    both = outer | frozenset(variables(inner))
    if steps and len(both) > MOST_JOIN_COLUMNS:
        return _WIDE
    for step in steps:
        for expression in expressions_of(step):
            if calls(expression) & (TIMES | NOWS | DRAWS | {"TIMESTAMP"}):
                return "times or draws in an EXISTS that looks outside"
            for each in exists_in(expression):
                reason = _of_exists(each, both)
                if reason is not None:
                    return reason
        if isinstance(step, Extend):
            both |= {step.variable}
    return None


def _transparent(plan: Plan, outer: frozenset[str]) -> bool:
    """What a plan gives inside an EXISTS is what it gives alone, as far as that agrees with the solution outside.

    `outer` are the variables that the solution outside may bind.  Where a part can lack a variable, the value from
    outside would be seen instead; where it decides about other solutions, those that disagree would not.
    """
    if not mentioned(plan) & outer:
        return True
    bound: frozenset[str]
    match plan:
        case Unit() | Triples() | Values() | Service():
            return True
        case PathPattern(path=path):
            return ways_to_stay(path) == 0  # a path of no steps begins at any node that is given
        case Join(inputs=inputs) | Union(inputs=inputs):
            return all(_transparent(each, outer) for each in inputs)
        case LeftJoin(left=left, right=right) | Minus(left=left, right=right) | Sequence(left=left, right=right):
            bound = certain(left) | certain(right)
            alone = isinstance(plan, Sequence) and not plan.optional
            return (
                (alone or frozenset(variables(right)) & outer <= certain(left))
                and all(reads(each) & outer <= bound for each in expressions_of(plan))
                and _transparent(left, outer)
                and _transparent(right, outer)
            )
        case Filter(input=inner) | Extend(input=inner):
            bound = certain(inner)
            return all(reads(each) & outer <= bound for each in expressions_of(plan)) and _transparent(inner, outer)
        case Stream(sources=sources, input=inner):
            return is_partitioned(sources[0].window) or _transparent(inner, outer)
        case Group(input=inner, keys=keys):
            return (
                frozenset(variables(inner)) & outer <= frozenset(keys)
                and all(reads(each) & outer <= certain(inner) for each in expressions_of(plan))
                and _transparent(inner, outer)
            )
        case Project(input=inner, variables=names):
            return _transparent(inner, outer & frozenset(names))
        case Slice():
            return False
        case _:
            return all(_transparent(each, outer) for each in inputs_of(plan))
