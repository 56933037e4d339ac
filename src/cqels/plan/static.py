"""The rule that tells the static from the streaming: what reads only the dataset becomes a table."""

from __future__ import annotations

from dataclasses import replace

from cqels.lang.expressions import Call, Exists, Expression, transform, walk
from cqels.model.terms import CQ
from cqels.plan.algebra import (
    Graph,
    Join,
    PathPattern,
    Plan,
    Sequence,
    Service,
    Slice,
    Static,
    Stream,
    Triples,
    expressions_of,
    inputs_of,
    map_expressions,
    map_inputs,
    walk_plan,
)
from cqels.plan.scope import mentioned, variables

_OF_THE_TICK = frozenset({"NOW", CQ + "now"})


def split_static(plan: Plan) -> Plan:
    """Mark the largest parts that read only the dataset as `Static`, to be evaluated once and indexed.

    In a join the static inputs that share variables become one table, those that share none stay apart.  A part whose
    value depends on the tick's time is not static, nor, inside EXISTS, one that looks at variables from outside.
    """
    return _split(plan, outside=frozenset(), windowed=False, open_to=frozenset())


def _split(plan: Plan, *, outside: frozenset[str], windowed: bool, open_to: frozenset[str]) -> Plan:
    """`outside`: variables of what this is joined with; `windowed`: the active graph is a window's; `open_to`:
    variables that an enclosing EXISTS gives values to."""
    if isinstance(plan, Static):
        return plan
    if is_static(plan, windowed=windowed) and not (_looks_at(plan) & open_to):
        return Static(plan, tuple(name for name in variables(plan) if name in outside)) if _reads_data(plan) else plan

    def exists(node: Expression) -> Expression:
        if not isinstance(node, Exists):
            return node
        given = frozenset(variables(plan)) | outside | open_to
        inner = _split(node.pattern, outside=given, windowed=windowed, open_to=given)
        return replace(node, pattern=inner)

    plan = map_expressions(plan, lambda expression: transform(expression, exists))
    match plan:
        case Join(inputs=inputs):
            return _split_join(inputs, outside=outside, windowed=windowed, open_to=open_to)
        case Stream():
            return replace(plan, input=_split(plan.input, outside=outside, windowed=True, open_to=open_to))
        case Graph():
            return replace(plan, input=_split(plan.input, outside=outside, windowed=False, open_to=open_to))
        case _:
            sides = inputs_of(plan)
            rest = {id(side): _names(*(other for other in sides if other is not side)) for side in sides}
            return map_inputs(
                plan,
                lambda side: _split(side, outside=outside | rest[id(side)], windowed=windowed, open_to=open_to),
            )


def _split_join(inputs: tuple[Plan, ...], *, outside: frozenset[str], windowed: bool, open_to: frozenset[str]) -> Plan:
    tables: list[list[Plan]] = []
    others: list[Plan] = []
    for each in inputs:
        fixed = is_static(each, windowed=windowed) and not isinstance(each, Static)
        if not fixed or _looks_at(each) & open_to or not _reads_data(each):
            others.append(each)
            continue
        linked = [table for table in tables if _names(*table) & _names(each)]
        tables = [table for table in tables if table not in linked]
        tables.append([*(part for table in linked for part in table), each])
    parts: list[Plan] = []
    for each in others:
        rest = _names(*(other for other in inputs if other is not each)) | outside
        parts.append(_split(each, outside=rest, windowed=windowed, open_to=open_to))
    for table in tables:
        whole = table[0] if len(table) == 1 else Join(tuple(table))
        rest = outside | _names(*others)
        parts.append(Static(whole, tuple(name for name in variables(whole) if name in rest)))
    return parts[0] if len(parts) == 1 else Join(tuple(parts))


def is_static(plan: Plan, *, windowed: bool = False) -> bool:
    """It reads no stream, and not the tick's time."""
    if isinstance(plan, Stream | Sequence) or (windowed and isinstance(plan, Triples | PathPattern)):
        return False
    if isinstance(plan, Graph):
        windowed = False
    for expression in expressions_of(plan):
        for node in walk(expression):
            if isinstance(node, Call) and node.name in _OF_THE_TICK:
                return False
            if isinstance(node, Exists) and not is_static(node.pattern, windowed=windowed):
                return False
            if isinstance(node, Exists) and any(isinstance(each, Slice) for each in walk_plan(node.pattern)):
                return False  # a LIMIT counts solutions that agree with the outside, which a table does not know
    return all(is_static(each, windowed=windowed) for each in inputs_of(plan))


def _reads_data(plan: Plan) -> bool:
    return any(isinstance(node, Triples | PathPattern | Graph | Service) for node in walk_plan(plan))


def _looks_at(plan: Plan) -> frozenset[str]:
    """The variables that the plan reads in expressions without binding them itself."""
    return mentioned(plan) - frozenset(variables(plan))


def _names(*plans: Plan) -> frozenset[str]:
    return frozenset(name for plan in plans for name in variables(plan))
