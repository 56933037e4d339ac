"""A static plan taken apart into parts that share no variable: tables of their own in place of their cross product.

The law: the join of the parts, with the steps applied to it in order, has the solutions of the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyoxigraph import NamedNode

from cqels.lang.expressions import Exists, Expression, calls, walk
from cqels.model.recursion import Calling, complete
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Graph,
    Join,
    LeftJoin,
    Minus,
    Plan,
    Project,
    Triple,
    Triples,
    Unit,
    expressions_of,
    walk_plan,
)
from cqels.plan.optimizer.prune_columns import DRAWS
from cqels.plan.scope import certain, mentioned, reads, variables

P = TypeVar("P", bound=Plan)
_TIMES = frozenset({"GETDURATION", "GETSTARTTIME", "GETENDTIME", "NEWEST", "TIMESTAMP"})


@dataclass(frozen=True, slots=True)
class Parts:
    """Plans that share no variable, and what is applied to their join, innermost first."""

    plans: list[Plan]
    steps: list[Filter | Extend] = field(default_factory=list)


def independent(plan: Plan, linked: frozenset[str] = frozenset()) -> Parts:
    """The smallest parts of a plan that share no variable.

    A condition or BIND that reads several parts makes them one, unless each of them has some of the variables `linked`:
    those of what the plan will be joined with.  Then it is a step, for at run time few rows of each part meet, and all
    of them would if the table were made beforehand.
    """
    if any(calls(expression) & DRAWS for node in walk_plan(plan) for expression in expressions_of(node)):
        return Parts([plan])  # a draw depends on all the bindings of its solution
    return complete(_parts(plan, linked))


def is_looked_up(plan: Plan, outside: Collection[str], *, wholly: bool = True) -> bool:
    """It is a join of parts that share variables with the outside, all (`wholly`) or one of them, none with each other.

    So what belongs to a solution outside is found by looking up each part, without their cross product.  A part without
    any variable is no more than a row that is there or not.
    """
    if not isinstance(plan, Join):
        return False
    names = [frozenset(name for each in group for name in variables(each)) for group in _linked(plan.inputs)]
    shared = [not each.isdisjoint(outside) for each in names if each]
    return len(names) > 1 and (all(shared) if wholly else any(shared))


def _parts(plan: Plan, linked: frozenset[str]) -> Calling[Parts]:
    match plan:
        case Triples(patterns=patterns):
            return Parts([Triples(group) for group in _connected(patterns)])
        case Join(inputs=inputs):
            return (yield _of_join(plan, inputs, linked))
        case Filter(input=inner) | Extend(input=inner):
            return _with_step(plan, (yield _parts(inner, linked)), linked)
        case LeftJoin(left=left, right=right):
            read = mentioned(right).union(*map(reads, expressions_of(plan)))
            return _with_right(plan, (yield _parts(left, frozenset())), read)
        case Minus(left=left, right=right):
            return _with_right(plan, (yield _parts(left, frozenset())), mentioned(right))
        case Graph(name=NamedNode(), input=inner):
            return Parts([replace(plan, input=each) for each in (yield _parts(inner, frozenset())).plans])
        case Distinct(input=inner):
            return Parts([Distinct(each) for each in (yield _parts(inner, frozenset())).plans])
        case Project(input=inner, variables=names):
            return Parts(_projected((yield _parts(inner, frozenset())).plans, names))
        case _:
            return Parts([plan])


def _of_join(plan: Plan, inputs: tuple[Plan, ...], linked: frozenset[str]) -> Calling[Parts]:
    found, steps = list[Plan](), list[Filter | Extend]()
    for place, each in enumerate(inputs):
        parts = yield _parts(each, linked)
        if parts.steps:
            beside = frozenset(name for other in (*inputs[:place], *inputs[place + 1 :]) for name in variables(other))
            if any(_changed_by(step, each, beside) for step in parts.steps):
                parts = yield _parts(each, frozenset())
        found += parts.plans
        steps += parts.steps
    groups = _linked(found)
    if len(groups) < 2:
        return Parts([plan])
    parts = Parts([_joined(group) for group in groups])
    for step in steps:  # what it reads may have become one part
        parts = _with_step(step, parts, linked)
    return parts


def _with_step(step: Filter | Extend, parts: Parts, linked: frozenset[str]) -> Parts:
    """The parts with one more step: on the one that it reads, on the join of those that it reads, or on all."""
    if len(parts.plans) < 2 and not parts.steps:
        return Parts([replace(step, input=parts.plans[0])])
    (expression,) = expressions_of(step)
    read = reads(expression)
    later = {each.variable for each in parts.steps if isinstance(each, Extend)}
    touched = [each for each in parts.plans if read & frozenset(variables(each))]
    others = [each for each in parts.plans if each not in touched]
    if read & later or (len(touched) > 1 and _can_wait(step, expression, touched, linked)):
        return Parts(parts.plans, [*parts.steps, step])
    if not touched:
        touched, others = others[:1], others[1:]
    return Parts([*others, replace(step, input=_joined(touched))], parts.steps)


def _can_wait(step: Filter | Extend, expression: Expression, touched: list[Plan], linked: frozenset[str]) -> bool:
    """A step means the same above a join with something that has the variables `linked`, and costs less there."""
    if calls(expression) & _TIMES or any(isinstance(node, Exists) for node in walk(expression)):
        return False
    if not all(linked & frozenset(variables(each)) for each in touched):
        return False
    return not _changed_by(step, _joined(touched), linked)


def _changed_by(step: Filter | Extend, below: Plan, beside: frozenset[str]) -> bool:
    """The value of a step may depend on whether it is computed before or after a join with what is beside it."""
    read = frozenset().union(*map(reads, expressions_of(step)))
    return bool(read & beside - certain(below)) or (isinstance(step, Extend) and step.variable in beside)


def _with_right(plan: LeftJoin | Minus, left: Parts, read: frozenset[str]) -> Parts:
    """OPTIONAL and MINUS decide about what shares a variable with them: the other parts on the left stay apart."""
    if len(left.plans) < 2:
        return Parts([plan])
    touched = [each for each in left.plans if read & frozenset(variables(each))] or left.plans[:1]
    others = [each for each in left.plans if each not in touched]
    return Parts([*others, replace(plan, left=_joined(touched))])


def _projected(parts: list[Plan], names: tuple[str, ...]) -> list[Plan]:
    """Each part with its own columns; one that nothing binds stays with the first."""
    bound = frozenset(name for each in parts for name in variables(each))
    found: list[Plan] = []
    for place, each in enumerate(parts):
        own = frozenset(variables(each)) | (frozenset(names) - bound if place == 0 else frozenset())
        found.append(Project(each, tuple(name for name in names if name in own)))
    return found


# ------------------------------------------------------------ what shares variables


def _connected(patterns: tuple[Triple, ...]) -> list[tuple[Triple, ...]]:
    """Patterns in groups that share variables. One without variables multiplies nothing: it stays with the first."""
    plans = [Triples((each,)) for each in patterns]
    first, *groups = _linked(each for each in plans if variables(each)) or [[]]
    if not groups:
        return [patterns]
    first += [each for each in plans if not variables(each)]
    return [tuple(pattern for each in group for pattern in each.patterns) for group in (first, *groups)]


def _linked(plans: Iterable[P]) -> list[list[P]]:
    """Plans in groups that share variables, in the order of their first members."""
    members = list(plans)
    leader = list(range(len(members)))
    owner: dict[str, int] = {}
    for number, each in enumerate(members):
        for name in variables(each):
            one, other = sorted((_leader(leader, owner.setdefault(name, number)), _leader(leader, number)))
            leader[other] = one
    groups: dict[int, list[P]] = {}
    for number, each in enumerate(members):
        groups.setdefault(_leader(leader, number), []).append(each)
    return list(groups.values())


def _leader(leader: list[int], number: int) -> int:
    """The first member of a group, with the way to it made shorter."""
    while leader[number] != number:
        leader[number] = leader[leader[number]]
        number = leader[number]
    return number


def _joined(plans: list[Plan]) -> Plan:
    """The join of plans, their triple patterns as one."""
    patterns = tuple(pattern for each in plans if isinstance(each, Triples) for pattern in each.patterns)
    rest = [each for each in plans if not isinstance(each, Triples | Unit)]
    inputs = [Triples(patterns), *rest] if patterns else rest
    return Join(tuple(inputs)) if len(inputs) > 1 else inputs[0] if inputs else Unit()


__all__ = ["Parts", "independent", "is_looked_up"]
