"""The rule that tells the static from the streaming: what reads only the dataset becomes a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cqels.lang.expressions import Exists, Expression, Var, calls, transform
from cqels.model.recursion import Calling, complete
from cqels.model.terms import CQ
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Graph,
    Join,
    LeftJoin,
    Minus,
    PathPattern,
    Plan,
    Project,
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
    patterns_of,
    walk_plan,
)
from cqels.plan.optimizer.split_independent import Parts, independent
from cqels.plan.scope import mentioned, variables

_OF_THE_TICK = frozenset({"NOW", CQ + "now"})


def split_static(plan: Plan) -> Plan:
    """Mark the largest parts that read only the dataset as `Static`, to be evaluated once and indexed.

    What is static and shares variables becomes one table; what shares none stays apart, where it is joined with
    something that is not static: by a join, OPTIONAL, MINUS or EXISTS (`independent`).  A part whose value depends on
    the tick's time is not static, nor, inside EXISTS, one that looks at variables from outside.
    """
    return complete(_split(plan, outside=frozenset(), windowed=False, open_to=frozenset()))


def _split(
    plan: Plan,
    *,
    outside: frozenset[str],
    windowed: bool,
    open_to: frozenset[str],
    apart: frozenset[str] | None = None,
) -> Calling[Plan]:
    """`outside`: variables of what this is joined with; `windowed`: the active graph is a window's; `open_to`:
    variables that an enclosing EXISTS gives values to; `apart`: a join of several tables will do, because whoever reads
    it looks up each, with conditions above it that read tables which have these variables."""
    if isinstance(plan, Static):
        return plan
    if is_static(plan, windowed=windowed) and not (_looks_at(plan) & open_to):
        return _tables(Parts([plan]) if apart is None else independent(plan, apart), outside)

    def exists(node: Expression) -> Expression:
        if not isinstance(node, Exists):
            return node
        given = frozenset(variables(plan)) | outside | open_to
        inner = _split(node.pattern, outside=given, windowed=windowed, open_to=given, apart=given)
        return replace(node, pattern=_of_interest(complete(inner)))

    plan = map_expressions(plan, lambda expression: transform(expression, exists))
    match plan:
        case Join(inputs=inputs):
            return (yield _split_join(inputs, outside=outside, windowed=windowed, open_to=open_to))
        case Stream():
            return replace(plan, input=(yield _split(plan.input, outside=outside, windowed=True, open_to=open_to)))
        case Graph():
            return replace(plan, input=(yield _split(plan.input, outside=outside, windowed=False, open_to=open_to)))
        case LeftJoin(left=left, right=right) | Minus(left=left, right=right):
            left = yield _split(left, outside=outside | _names(right), windowed=windowed, open_to=open_to)
            beside = outside | _names(left)
            right = yield _split(right, outside=beside, windowed=windowed, open_to=open_to, apart=frozenset())
            return replace(plan, left=left, right=_of_interest(right) if isinstance(plan, Minus) else right)
        case _:
            sides = _Sides(inputs_of(plan))
            still = apart if isinstance(plan, Filter | Extend) else None
            made: list[Plan] = []
            for side in inputs_of(plan):
                beside = outside | sides.beside(side)
                made.append((yield _split(side, outside=beside, windowed=windowed, open_to=open_to, apart=still)))
            changed = iter(made)
            return map_inputs(plan, lambda _: next(changed))


class _Sides:
    """The variables of the inputs of a node."""

    def __init__(self, inputs: tuple[Plan, ...]) -> None:
        self._counts = Counter(name for each in inputs for name in variables(each))
        self._all = frozenset(self._counts)

    def beside(self, side: Plan) -> frozenset[str]:
        """The variables of the other inputs."""
        return self._all - {name for name in variables(side) if self._counts[name] == 1}


def _split_join(
    inputs: tuple[Plan, ...], *, outside: frozenset[str], windowed: bool, open_to: frozenset[str]
) -> Calling[Plan]:
    static, others = list[Plan](), list[Plan]()
    for each in inputs:
        fixed = is_static(each, windowed=windowed) and not isinstance(each, Static)
        fixed = fixed and not _looks_at(each) & open_to and _reads_data(each)
        (static if fixed else others).append(each)
    joined: list[Plan] = []
    sides = _Sides(inputs)
    for each in others:
        rest = sides.beside(each) | outside
        joined.append((yield _split(each, outside=rest, windowed=windowed, open_to=open_to)))
    if not static:
        return Join(tuple(joined))
    linked = _names(*others)
    parts = independent(static[0] if len(static) == 1 else Join(tuple(static)), linked)
    plans = [table for each in parts.plans for table in _of_one_graph(each, linked)]
    return _tables(replace(parts, plans=plans), outside | linked, tuple(joined))


def _of_one_graph(plan: Plan, linked: frozenset[str]) -> list[Plan]:
    """`GRAPH ?g { A B }` as GRAPH ?g { A } and GRAPH ?g { B }, if A and B share nothing but are both looked up.

    The law: their join has the same solutions, for it is on ?g.
    """
    match plan:
        case Graph(name=Var(), input=inner):
            parts = independent(inner)
            if all(linked & _names(each) for each in parts.plans):
                return [replace(plan, input=each) for each in parts.plans]
    return [plan]


def _tables(parts: Parts, outside: frozenset[str], others: tuple[Plan, ...] = ()) -> Plan:
    """The join of independent parts, as tables, and others, with the steps above it."""
    inputs = (*others, *(_table(each, outside) for each in parts.plans))
    whole: Plan = inputs[0] if len(inputs) == 1 else Join(inputs)
    for step in parts.steps:
        whole = replace(step, input=whole)
    return whole


def _of_interest(plan: Plan) -> Plan:
    """Of tables that EXISTS or MINUS looks up, one that shares nothing with the outside matters if it has a row."""

    def checked(table: Plan) -> Plan:
        if not isinstance(table, Static) or not variables(table) or table.on:
            return table
        return replace(table, input=Distinct(Project(table.input, ())))

    return Join(tuple(map(checked, plan.inputs))) if isinstance(plan, Join) else plan


def _table(plan: Plan, outside: frozenset[str]) -> Plan:
    if isinstance(plan, Static) or not _reads_data(plan):
        return plan
    return Static(plan, tuple(name for name in variables(plan) if name in outside))


def is_static(plan: Plan, *, windowed: bool = False) -> bool:
    """It reads no stream, and not the tick's time."""
    pending = [(plan, windowed)]
    while pending:
        node, windowed = pending.pop()
        if isinstance(node, Stream | Sequence) or (windowed and isinstance(node, Triples | PathPattern)):
            return False
        if any(calls(expression) & _OF_THE_TICK for expression in expressions_of(node)):
            return False
        patterns = patterns_of(node)
        if any(isinstance(each, Slice) for pattern in patterns for each in walk_plan(pattern)):
            return False  # a LIMIT counts solutions that agree with the outside, which a table does not know
        pending += [(each, windowed and not isinstance(node, Graph)) for each in (*patterns, *inputs_of(node))]
    return True


def _reads_data(plan: Plan) -> bool:
    return any(isinstance(node, Triples | PathPattern | Graph | Service) for node in walk_plan(plan))


def _looks_at(plan: Plan) -> frozenset[str]:
    """The variables that the plan reads in expressions without binding them itself."""
    return mentioned(plan) - frozenset(variables(plan))


def _names(*plans: Plan) -> frozenset[str]:
    return frozenset(name for plan in plans for name in variables(plan))
