"""The rewrite rules: each a pure function from plan to plan that never changes what a query means.

`RULES` is the order in which they are applied.  Bags, errors, the times of solutions and the draws of RAND() stay
what they were; where a rule needs a condition for that, its docstring says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from pyoxigraph import NamedNode

from cqels.lang.expressions import Call, Exists, Expression, Var, calls, operands_of, walk
from cqels.lang.syntax import Choice, Count, Inverse, Link, Path, Steps
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
    Node,
    OrderBy,
    PathPattern,
    Plan,
    Project,
    Query,
    Sequence,
    Stream,
    Thresholds,
    Triple,
    Triples,
    Union,
    Unit,
    map_inputs,
    transform_plan,
)
from cqels.plan.columns import DRAWS, prune_columns
from cqels.plan.scope import certain, is_ordered, reads, variables
from cqels.plan.static import split_static

Rule: TypeAlias = Callable[[Plan], Plan]


# ---------------------------------------------------------------- paths


def simplify_paths(plan: Plan) -> Plan:
    """Turn `^p`, `p/q` and `p|q` into triples, joins and unions; what repeats (`?`, `*`, `+`, `!`) stays a path.

    >>> from cqels.plan.algebra import PathPattern
    >>> p = NamedNode("http://ex.org/p")
    >>> simplify_paths(PathPattern(Var("x"), Inverse(Link(p)), Var("y"))).patterns[0].subject
    Var(name='y')
    """
    fresh = count(1)

    def simpler(node: Plan) -> Plan:
        return _path(node.subject, node.path, node.object, fresh) if isinstance(node, PathPattern) else node

    return transform_plan(plan, simpler)


def _path(subject: Node, path: Path, target: Node, fresh: Iterator[int]) -> Plan:
    match path:
        case Link(iri=iri):
            return Triples((Triple(subject, iri, target),))
        case Inverse(path=inner):
            return _path(target, inner, subject, fresh)
        case Choice(paths=paths):
            return Union(tuple(_path(subject, each, target, fresh) for each in paths))
        case Steps(paths=paths):
            between: list[Node] = [Var(f"_:.step{next(fresh)}") for _ in paths[1:]]
            ends = [subject, *between, target]
            return Join(tuple(_path(ends[i], each, ends[i + 1], fresh) for i, each in enumerate(paths)))
        case _:
            return PathPattern(subject, path, target)


# ---------------------------------------------------------------- joins


def flatten_joins(plan: Plan) -> Plan:
    """Turn Join(Join(a, b), c) into Join(a, b, c), drop empty groups from it, and gather its triples into one pattern.

    An empty group beside nothing but ordered solutions stays, for a join has no order.

    >>> from cqels.plan.algebra import Values
    >>> one = Values(("x",), ())
    >>> flatten_joins(Join((Join((one, Unit())), one))) == Join((one, one))
    True
    """
    return transform_plan(plan, _flatter)


def _flatter(node: Plan) -> Plan:
    if not isinstance(node, Join):
        return node
    inputs: list[Plan] = []
    for each in node.inputs:
        inputs += each.inputs if isinstance(each, Join) else [each]
    inputs = [each for each in inputs if not isinstance(each, Unit)]
    patterns = tuple(pattern for each in inputs if isinstance(each, Triples) for pattern in each.patterns)
    gathered: list[Plan] = []
    for each in inputs:
        if not isinstance(each, Triples):
            gathered.append(each)
        elif patterns:
            gathered.append(Triples(patterns))
            patterns = ()
    if len(gathered) == 1 and is_ordered(gathered[0]):
        return Join((gathered[0], Unit()))
    return Join(tuple(gathered)) if len(gathered) > 1 else gathered[0] if gathered else Unit()


# ---------------------------------------------------------------- filters


def merge_filters(plan: Plan) -> Plan:
    """Turn Filter(Filter(x, a), b) into Filter(x, a && b).

    >>> from cqels.lang.expressions import Constant
    >>> from cqels.model.terms import TRUE, FALSE
    >>> merged = merge_filters(Filter(Filter(Unit(), Constant(TRUE)), Constant(FALSE)))
    >>> merged.condition.name, type(merged.input).__name__
    ('AND', 'Unit')
    """

    def merged(node: Plan) -> Plan:
        match node:
            case Filter(Filter(inner, first), second):
                return Filter(inner, Call("AND", (first, second)))
            case _:
                return node

    return transform_plan(plan, merged)


def push_filters(plan: Plan) -> Plan:
    """Move each condition of a filter down to the first place where its variables have their final values.

    A condition that asks for the time of its solution or draws at random stays where it is; one with EXISTS does not
    cross a change of the active graph; nothing crosses a LIMIT, or a window of the latest n solutions unless it reads
    only what that is partitioned by.  An ORDER BY below a filter, which no LIMIT looks at, goes.
    """

    def pushed(node: Plan) -> Plan:
        if not isinstance(node, Filter):
            return node
        result = node.input
        for condition in conjuncts(node.condition):
            result = _push(result, condition)
        return result

    return transform_plan(plan, pushed)


def conjuncts(condition: Expression) -> list[Expression]:
    """The parts of a && b && c: a filter keeps a solution if every one of them is true."""
    return operands_of(condition) if isinstance(condition, Call) and condition.name == "AND" else [condition]


_OF_THE_SOLUTION = DRAWS | {"GETDURATION", "GETSTARTTIME", "GETENDTIME", "NEWEST"}


def _push(plan: Plan, condition: Expression) -> Plan:
    """Filter(plan, condition), with the condition as deep as it can go."""
    lower = None if calls(condition) & _OF_THE_SOLUTION else _below(plan, condition)
    return Filter(plan, condition) if lower is None else lower


def _below(plan: Plan, condition: Expression) -> Plan | None:
    """The plan with the condition inside it, or None where it has to stay above."""
    wanted = reads(condition)
    match plan:
        case Union() | Distinct() | Narrow() | Thresholds():
            return map_inputs(plan, lambda each: _push(each, condition))
        case OrderBy(input=inner):  # what is filtered has no order
            return _push(inner, condition)
        case Filter(input=inner, condition=other):
            return Filter(_push(inner, condition), other)
        case Join(inputs=inputs):
            for place, each in enumerate(inputs):
                before, after = inputs[:place], inputs[place + 1 :]
                if _settled(condition, each, *before, *after):
                    return Join((*before, _push(each, condition), *after))
            return None
        case Sequence(left=left, right=right, optional=optional):
            if _settled(condition, left, right):
                return replace(plan, left=_push(left, condition))
            if not optional and _settled(condition, right, left):
                return replace(plan, right=_push(right, condition))
            return None
        case LeftJoin(left=left, right=right) if _settled(condition, left, right):
            return replace(plan, left=_push(left, condition))
        case Minus(left=left):  # what comes out is what was on the left
            return replace(plan, left=_push(left, condition))
        case Extend(input=inner, variable=name) if name not in wanted:
            return replace(plan, input=_push(inner, condition))
        case Project(input=inner, variables=names) if wanted <= set(names):
            return replace(plan, input=_push(inner, condition))
        case Group(input=inner, keys=keys) if keys and wanted <= set(keys):
            return replace(plan, input=_push(inner, condition))
        case Graph(name=name, input=inner) if not _looks_around(condition) and not _is_one_of(name, wanted):
            return replace(plan, input=_push(inner, condition))
        case Stream() if not _looks_around(condition) and _into_window(plan, wanted):
            return replace(plan, input=_push(plan.input, condition))
        case _:
            return None


def _settled(condition: Expression, part: Plan, *others: Plan) -> bool:
    """Every variable of the condition that is bound at all is bound by the part for good.

    That is so if each of its solutions binds it, or if no other part can.
    """
    elsewhere = frozenset().union(*map(variables, others))
    return reads(condition) & (elsewhere | set(variables(part))) <= certain(part) | (set(variables(part)) - elsewhere)


def _looks_around(condition: Expression) -> bool:
    """It asks the active graph."""
    return "TIMESTAMP" in calls(condition) or any(isinstance(node, Exists) for node in walk(condition))


def _is_one_of(name: NamedNode | Var | None, wanted: frozenset[str]) -> bool:
    return isinstance(name, Var) and name.name in wanted


def _into_window(plan: Stream, wanted: frozenset[str]) -> bool:
    if plan.at in wanted or any(_is_one_of(source.stream, wanted) for source in plan.sources):
        return False
    window = plan.sources[0].window
    return not (isinstance(window, Count) and window.by) or wanted <= set(window.by)


RULES: tuple[Rule, ...] = (
    simplify_paths,
    flatten_joins,
    push_filters,
    merge_filters,
    split_static,
    prune_columns,
    merge_filters,
)


def rewrite(query: Query) -> Query:
    """The query with every rule applied, in order."""
    plan = query.plan
    for rule in RULES:
        plan = rule(plan)
    return replace(query, plan=plan)
