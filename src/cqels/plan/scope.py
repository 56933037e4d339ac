"""Which variables a plan can bind, which it always binds, whether it has an order; which an expression reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cqels.lang.expressions import Call, Exists, Expression, Var, operands_of, walk
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
    PathPattern,
    Plan,
    Project,
    Reused,
    Sequence,
    Service,
    Slice,
    Static,
    Stream,
    Thresholds,
    Triples,
    Union,
    Values,
    expressions_of,
    inputs_of,
)


def variables(plan: Plan) -> tuple[str, ...]:
    """The variables that some solution of the plan can bind, hidden ones too, in the order in which they appear."""
    found: tuple[str, ...] = _known(plan, "variables_in_order", lambda each: tuple(dict.fromkeys(_variables(each))))
    return found


def visible(plan: Plan) -> tuple[str, ...]:
    """The variables in scope: those that `SELECT *` gives."""
    return tuple(name for name in variables(plan) if not name.startswith("_:"))


def _known(plan: Plan, what: str, found_out: Callable[[Plan], Any]) -> Any:
    """What is known of a node; found out of those below it first, where it is not known yet."""
    pending = [plan]
    while not hasattr(plan, what):
        node = pending[-1]
        unknown = [each for each in inputs_of(node) if not hasattr(each, what)]
        if unknown:
            pending += unknown
            continue
        object.__setattr__(node, what, found_out(node))
        pending.pop()
    return getattr(plan, what)


def _variables(plan: Plan) -> Iterable[str]:
    match plan:
        case Triples(patterns=patterns):
            for triple in patterns:
                yield from _names(triple.subject, triple.predicate, triple.object)
        case PathPattern(subject=subject, object=target):
            yield from _names(subject, target)
        case Values(variables=names) | Project(variables=names):
            yield from names
        case Minus(left=left):
            yield from variables(left)
        case Extend(input=inner, variable=name):
            yield from variables(inner)
            yield name
        case Graph(name=name, input=inner):
            yield from _names(name)
            yield from variables(inner)
        case Stream(sources=sources, input=inner, at=at):
            yield from _names(*(source.stream for source in sources))
            yield from variables(inner)
            if at is not None:
                yield at
        case Narrow(input=inner, width=width):
            yield from (name for name in variables(inner) if name != width)
        case Thresholds(input=inner, group=group, columns=columns):
            yield from (name for name in variables(inner) if name != group)
            yield from columns
        case Group(keys=keys, aggregates=aggregates):
            yield from keys
            yield from (name for name, _ in aggregates)
        case _:
            for child in inputs_of(plan):
                yield from variables(child)


def _names(*nodes: object) -> Iterable[str]:
    return (node.name for node in nodes if isinstance(node, Var))


def certain(plan: Plan) -> frozenset[str]:
    """The variables that every solution of the plan binds."""
    found: frozenset[str] = _known(plan, "certain", _certain)
    return found


def _certain(plan: Plan) -> frozenset[str]:
    match plan:
        case Join(inputs=inputs):
            return frozenset().union(*map(certain, inputs))
        case Union(inputs=inputs):
            return frozenset.intersection(*map(certain, inputs))
        case LeftJoin(left=left) | Minus(left=left):
            return certain(left)
        case Sequence(left=left, right=right, optional=optional):
            return certain(left) if optional else certain(left) | certain(right)
        case Filter(input=inner) | Distinct(input=inner) | OrderBy(input=inner) | Slice(input=inner):
            return certain(inner)
        case Extend(input=inner) | Static(input=inner) | Reused(input=inner):
            return certain(inner)  # the expression of an Extend may fail and leave its variable unbound
        case Narrow(input=inner, width=width):
            return certain(inner) - {width}
        case Thresholds(input=inner, group=group, columns=columns):
            return certain(inner) - {group} | frozenset(columns)
        case Service(input=inner, silent=silent):
            return frozenset() if silent else certain(inner)
        case Values(variables=names, rows=rows):
            return frozenset(name for place, name in enumerate(names) if all(row[place] is not None for row in rows))
        case Project(input=inner, variables=names):
            return certain(inner) & frozenset(names)
        case Group(input=inner, keys=keys):
            return certain(inner) & frozenset(keys)
        case Graph(name=name, input=inner):
            return certain(inner) | frozenset(_names(name))
        case Stream(sources=sources, input=inner):
            return certain(inner) | frozenset(_names(*(source.stream for source in sources)))
        case _:
            return frozenset(variables(plan))


_STRICT = frozenset({"EQ", "NE", "LT", "GT", "LE", "GE", "ADD", "SUBTRACT", "MULTIPLY", "DIVIDE", "NEGATE", "PLUS"})
"""Operators that have no value if one of their operands has none."""


def needed(condition: Expression) -> frozenset[str]:
    """Variables without which a condition does not hold: an unbound one would make it an error.

    >>> from cqels.lang.expressions import Call
    >>> sorted(needed(Call("AND", (Call("LT", (Var("a"), Var("b"))), Call("OR", (Var("c"), Var("d")))))))
    ['a', 'b']
    """
    match condition:
        case Var(name=name) | Call(name="BOUND", args=(Var(name=name),)):
            return frozenset({name})
        case Call(name="AND"):
            return frozenset().union(*map(needed, operands_of(condition)))
        case Call(name="OR"):
            return frozenset.intersection(*map(needed, operands_of(condition)))
        case Call(name=name, args=args) if name in _STRICT:
            return frozenset().union(*(needed(each) for each in args if not _is_boolean(each)))
        case _:
            return frozenset()


def _is_boolean(expression: Expression) -> bool:
    """It has a value, true or false, where a variable in it has none."""
    return isinstance(expression, Call) and expression.name in ("AND", "OR", "BOUND")


def is_ordered(plan: Plan) -> bool:
    """The order of the solutions was asked for."""
    match plan:
        case OrderBy() | Slice():
            return True
        case Project(input=inner) | Distinct(input=inner) | Extend(input=inner) | Static(input=inner):
            return is_ordered(inner)
        case _:
            return False


def reads(expression: Expression) -> frozenset[str]:
    """The variables an expression looks at, those that a pattern of EXISTS shares with the outside too."""
    found: set[str] = set()
    for node in walk(expression):
        match node:
            case Var(name=name):
                found.add(name)
            case Exists(pattern=pattern):
                found.update(mentioned(pattern))
            case _:
                pass
    return frozenset(found)


def mentioned(plan: Plan) -> frozenset[str]:
    """Every variable that stands anywhere in a plan and is not hidden behind the projection of a sub-select."""
    found: frozenset[str] = _known(plan, "mentioned", _mentioned)
    return found


def _mentioned(plan: Plan) -> frozenset[str]:
    if isinstance(plan, Project):
        return frozenset(plan.variables)
    found = set(variables(plan))
    for expression in expressions_of(plan):
        found |= reads(expression)
    for child in inputs_of(plan):
        found |= mentioned(child)
    return frozenset(found)
