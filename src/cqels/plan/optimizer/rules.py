"""The rewrite rules: each a pure function from plan to plan that never changes what a query means.

`RULES` is the order in which they are applied.  Bags, errors, the times of solutions and the draws of RAND() stay
what they were; where a rule needs a condition for that, its docstring says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from pyoxigraph import NamedNode

from cqels.lang.expressions import Call, Exists, Expression, Var, calls, junction, operands_of, walk
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
    inputs_of,
    map_inputs,
    transform_plan,
)
from cqels.plan.optimizer.lift_correlated import lift_correlated
from cqels.plan.optimizer.prune_columns import DRAWS, prune_columns
from cqels.plan.optimizer.split_static import split_static
from cqels.plan.scope import certain, is_ordered, reads, variables

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
        return _push(node.input, conjuncts(node.condition)) if isinstance(node, Filter) else node

    return transform_plan(plan, pushed)


def conjuncts(condition: Expression) -> list[Expression]:
    """The parts of a && b && c: a filter keeps a solution if every one of them is true."""
    return operands_of(condition) if isinstance(condition, Call) and condition.name == "AND" else [condition]


_OF_THE_SOLUTION = DRAWS | {"GETDURATION", "GETSTARTTIME", "GETENDTIME", "NEWEST"}


def _push(plan: Plan, conditions: list[Expression]) -> Plan:
    """Filter(plan, all of the conditions), with each of them as deep as it can go."""
    if isinstance(plan, Filter):
        return _push(plan.input, conjuncts(plan.condition) + conditions)
    if isinstance(plan, OrderBy) and not all(map(_is_of_the_solution, conditions)):  # what is filtered has no order
        return _push(plan.input, conditions)
    above: list[Expression] = []
    below: dict[int, list[Expression]] = {}
    sides = _Sides(inputs_of(plan))
    for condition in conditions:
        places = () if _is_of_the_solution(condition) else _places(plan, condition, sides)
        for place in places:
            below.setdefault(place, []).append(condition)
        if not places:
            above.append(condition)
    if below:
        numbers = count()
        plan = map_inputs(plan, lambda each: _push(each, below[at]) if (at := next(numbers)) in below else each)
    return Filter(plan, junction("AND", above)) if above else plan


def _is_of_the_solution(condition: Expression) -> bool:
    return bool(calls(condition) & _OF_THE_SOLUTION)


def _places(plan: Plan, condition: Expression, sides: _Sides) -> Iterable[int]:
    """The inputs that the condition goes into, by their numbers; none where it has to stay above."""
    wanted = reads(condition)
    match plan:
        case Union() | Distinct() | Narrow() | Thresholds():
            return range(len(sides.inputs))
        case Join():
            place = sides.settling(wanted)
            return () if place is None else (place,)
        case Sequence(optional=optional):
            place = sides.settling(wanted)
            return () if place is None or (optional and place) else (place,)
        case LeftJoin():
            return (0,) if sides.settling(wanted) == 0 else ()
        case Minus():  # what comes out is what was on the left
            return (0,)
        case Extend(variable=name):
            return (0,) if name not in wanted else ()
        case Project(variables=names):
            return (0,) if wanted <= set(names) else ()
        case Group(keys=keys):
            return (0,) if keys and wanted <= set(keys) else ()
        case Graph(name=name):
            return (0,) if not _looks_around(condition) and not _is_one_of(name, wanted) else ()
        case Stream():
            return (0,) if not _looks_around(condition) and _into_window(plan, wanted) else ()
        case _:
            return ()


class _Sides:
    """The inputs of a node, and which of them can bind a variable."""

    def __init__(self, inputs: tuple[Plan, ...]) -> None:
        self.inputs = inputs
        self._binding: dict[str, list[int]] = {}
        for place, each in enumerate(inputs):
            for name in variables(each):
                self._binding.setdefault(name, []).append(place)

    def settling(self, wanted: frozenset[str]) -> int | None:
        """The first input that binds for good every variable wanted that is bound at all.

        That is so if each of its solutions binds it, or if no other input can.
        """
        bound = [name for name in wanted if name in self._binding]
        for place in self._binding[bound[0]] if bound else range(len(self.inputs)):
            sure = certain(self.inputs[place])
            if all(name in sure or self._binding[name] == [place] for name in bound):
                return place
        return None


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
    lift_correlated,
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
