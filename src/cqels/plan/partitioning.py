"""Partitioned queries: one query as several, each with the solutions of one hash partition of a variable.

Let ?k stand in every triple pattern over a stream.  Then a solution with some ?k comes from triples with that ?k alone,
and so do all that it is compared with: the other side of OPTIONAL and MINUS, the rest of its group.  So the solutions
are those of queries with another FILTER in each, for ?k of one partition (`cqels.model.hash_partition`):

    R = R[FILTER(PART(?k, n) = 0)] + … + R[FILTER(PART(?k, n) = n - 1)]

and so are differences of bags where ?k is selected, since solutions of different partitions are not the same.

What is computed over all solutions, as an order with a LIMIT or groups of others than ?k, is the *global stage*.  The
partitions send the deltas of the solutions below it, the *local stage*; below a LIMIT only those that each partition
would send.  The global stage (`engine.global_stage`) merges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyoxigraph import Literal, NamedNode

from cqels.lang.expressions import Call, Constant, Exists, Expression, Var, calls, walk
from cqels.lang.syntax import Count, Range
from cqels.model.terms import CQ
from cqels.plan import algebra
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    Plan,
    Project,
    Query,
    Reused,
    Slice,
    Stream,
    Triples,
    Union,
    Values,
    expressions_of,
    transform_plan,
    walk_plan,
)
from cqels.plan.optimizer.prune_columns import DRAWS
from cqels.plan.scope import reads, variables


class NotPartitionable(Exception):
    """Why a query cannot be partitioned, in words."""


@dataclass(frozen=True, slots=True)
class PartitionedQuery:
    """A query partitioned by a variable: the local stage is the query itself, or the input of the global stage."""

    key: str
    local_stage: Query
    global_stage: Query | None = None
    """What is computed of the deltas of all partitions: it reads them as `Reused`, part 0."""

    def partitions(self, count: int) -> tuple[Query, ...]:
        """The queries that together have the solutions of the local stage, each with a name of its own."""
        query = self.local_stage
        return tuple(
            replace(
                query,
                name=f"{query.name} ({number + 1} of {count})",
                plan=_divided(query.plan, self.key, number, count),
                text=None,
            )
            for number in range(count)
        )


def partition_query(query: Query) -> PartitionedQuery:
    """Partition a query by the first variable that will do; raises NotPartitionable if there is none.

    >>> from cqels.plan.prepare import prepare
    >>> few = prepare("PREFIX : <urn:> SELECT ?s ?v { STREAM :a [NOW] { ?o :of ?s ; :is ?v } ?s :in :r }")
    >>> found = partition_query(few)
    >>> found.key, found.local_stage.variables, found.global_stage.variables
    ('o', ('s', 'v'), ('s', 'v'))
    >>> all_ = prepare("PREFIX : <urn:> SELECT ?o ?v { STREAM :a [NOW] { ?o :of ?s ; :is ?v } ?s :in :r }")
    >>> partition_query(all_) == PartitionedQuery("o", all_)
    True
    """
    if query.form != "select" or query.emit == "rstream" or query.policy != "cqels":
        raise NotPartitionable("only solutions of SELECT that are sent when they change can be divided")
    if any(calls(each) & (DRAWS | {"TIMESTAMP"}) for node in walk_plan(query.plan) for each in expressions_of(node)):
        raise NotPartitionable("it draws a value, or asks for the time of a triple")
    names = _candidates(query.plan)
    if query.emit != "snapshot":
        for name in names:
            with suppress(NotPartitionable):
                if _Partitioning(name).is_divided(query.plan):
                    return PartitionedQuery(name, query)
    reasons = []
    for name in names:
        try:
            return _with_global_stage(query, name)
        except NotPartitionable as error:
            reasons.append(str(error))
    # what else is in the way says more than that a variable is not everywhere
    raise NotPartitionable(
        min(reasons, key=lambda each: "is not in" in each) if reasons else "no triple of a stream is named"
    )


# ---------------------------------------------------------------- the global stage

NEWEST_NAME = "_:.newest"
"""The column of a divided query that says how fresh a solution is, where that matters to the global stage."""
FIRST_NAME = "_:.first"
"""The column of what is no solution, but says which the first tick is, where a global stage has rows without one."""


_Above: TypeAlias = Slice | Distinct | Project | OrderBy | Extend | Filter | Group


def _with_global_stage(query: Query, key: str) -> PartitionedQuery:
    """Divide what is below all that is computed over all solutions."""
    above: list[_Above] = []
    inner, reason = query.plan, NotPartitionable("it reads no stream")
    while True:
        try:
            if not _Partitioning(key).is_divided(inner):
                raise reason
            break
        except NotPartitionable as error:
            if not isinstance(inner, _Above) or error is reason:
                raise
            reason = error
            above.append(inner)
            inner = inner.input
    for node in above:
        _check_global(node)
    inner = _fewest(above, inner)
    columns = _columns(above, inner)
    fresh = any(isinstance(node, OrderBy | Slice) or _is_by_time(node) for node in above)
    changes: Plan = Project(inner, columns)
    names = columns
    if any(isinstance(node, Group) and not node.keys for node in above):  # a group that is there before a solution is
        changes = Union((changes, Values((FIRST_NAME,), ((Literal(True),),))))
        names = (*names, FIRST_NAME)
    if fresh:
        changes = Extend(changes, NEWEST_NAME, Call("NEWEST", ()))
        names = (*names, NEWEST_NAME)
    stage: Plan = Reused(Values(columns, ((None,) * len(columns),)), 0, columns)
    for node in reversed(above):
        stage = replace(node, input=stage)
    divided = replace(query, plan=changes, variables=names, emit="changes", warnings=(), text=None)
    return PartitionedQuery(key, divided, replace(query, plan=stage, warnings=(), text=None))


def _check_global(node: _Above) -> None:
    """Refuse what depends on more than the solutions that it is computed of, and how fresh they are."""
    for expression in expressions_of(node):
        if any(isinstance(each, Exists) for each in walk(expression)):
            raise NotPartitionable("EXISTS is asked of what is computed over all solutions")
        if calls(expression) & _OF_TICKS:
            raise NotPartitionable("what is computed over all solutions depends on times")


_OF_TICKS = frozenset({"GETDURATION", "GETSTARTTIME", "GETENDTIME", "NOW", CQ + "now"})


def _is_by_time(node: _Above) -> bool:
    return isinstance(node, Group) and any(each.name in ("SAMPLE", "GROUP_CONCAT") for _, each in node.aggregates)


def _columns(above: Sequence[_Above], inner: Plan) -> tuple[str, ...]:
    """The variables that what is above looks at."""
    read: set[str] = set()
    for node in above:
        read.update(*(reads(each) for each in expressions_of(node)))
        match node:
            case Project(variables=names) | Group(keys=names) | OrderBy(ties=names):
                read.update(names)
        if isinstance(node, Group) and any(each.distinct and each.argument is None for _, each in node.aggregates):
            return variables(inner)  # COUNT(DISTINCT *)
    bounds = any(isinstance(node, Project | Group) for node in above)
    return tuple(name for name in variables(inner) if name in read or not bounds)


def _fewest(above: Sequence[_Above], inner: Plan) -> Plan:
    """The solutions that what is above may need: of those behind a LIMIT in order, none does."""
    order: list[OrderBy | Project] = []
    for node in reversed(above):
        match node:
            case OrderBy() if not order:
                order.append(node)
            case Project() if order and isinstance(order[0], OrderBy):
                continue  # what the order is by is needed
            case Project():
                order.append(node)
            case Slice(limit=int() as limit, offset=offset):
                for each in order:
                    inner = replace(each, input=inner)
                return Slice(inner, 0, offset + limit)
            case _:
                break
    return inner


# ---------------------------------------------------------------- parts


def _candidates(plan: Plan) -> Sequence[str]:
    """The variables of the first triple pattern over a stream."""
    for node in walk_plan(plan):
        if isinstance(node, Stream):
            for inner in walk_plan(node.input):
                if isinstance(inner, Triples):
                    first = inner.patterns[0]
                    return [each.name for each in (first.subject, first.object) if isinstance(each, Var)]
    return []


def _divided(plan: Plan, key: str, number: int, count: int) -> Plan:
    """The plan with a filter at every triple pattern over a stream."""
    part = Call("PART", (Var(key), Constant(Literal(count))))
    condition = Call("EQ", (part, Constant(Literal(number))))

    def filtered(each: Plan) -> Plan:
        return Filter(each, condition) if isinstance(each, Triples) else each

    def changed(each: Plan) -> Plan:
        return replace(each, input=transform_plan(each.input, filtered)) if isinstance(each, Stream) else each

    return transform_plan(plan, changed)


@dataclass(frozen=True, slots=True)
class _Partitioning:
    """Goes through a plan and asks of each part: is it divided by the key, so that each solution has it?

    What reads no stream is not divided: it is the same for all parts.
    """

    key: str

    def is_divided(self, plan: Plan, *, inside: bool = False) -> bool:
        """Whether a plan is divided, over windows if it is inside a stream; raises NotPartitionable if neither."""
        found = self._is_divided(plan, inside=inside)
        for expression in expressions_of(plan):
            for pattern in _patterns(expression):
                if self.is_divided(pattern, inside=inside) and not found:
                    raise NotPartitionable("a stream decides on what is the same for all")
        return found

    def _is_divided(self, plan: Plan, *, inside: bool) -> bool:
        match plan:
            case Triples(patterns=patterns):
                for each in patterns if inside else ():
                    if Var(self.key) not in (each.subject, each.object):
                        raise NotPartitionable(f"?{self.key} is not in all triple patterns over streams")
                return inside
            case Values():
                return False
            case Stream(input=inner, sources=sources, graphs=graphs):
                if graphs or any(not _is_timed(each) for each in sources):
                    raise NotPartitionable(
                        "a window counts, or follows times that triples tell, or is of no one stream"
                    )
                return self.is_divided(inner, inside=True)
            case Join(inputs=inputs):
                return True in {self.is_divided(each, inside=inside) for each in inputs}
            case Union(inputs=inputs):
                found = {self.is_divided(each, inside=inside) for each in inputs}
                if len(found) > 1:
                    raise NotPartitionable("an alternative reads no stream")
                return found == {True}
            case LeftJoin(left=left, right=right) | Minus(left=left, right=right):
                found = {self.is_divided(left, inside=inside)}
                if self.is_divided(right, inside=inside) and found == {False}:
                    raise NotPartitionable("a stream decides on what is the same for all")
                return found == {True}
            case Filter(input=inner):
                return self.is_divided(inner, inside=inside)
            case Extend(input=inner, variable=name):
                if name == self.key:
                    raise NotPartitionable(f"?{name} is computed")
                return self.is_divided(inner, inside=inside)
            case Project(input=inner, variables=names) | Group(input=inner, keys=names):
                divided = self.is_divided(inner, inside=inside)
                if divided and self.key not in names:
                    raise NotPartitionable(
                        f"?{self.key} is not {'selected' if isinstance(plan, Project) else 'what is grouped by'}"
                    )
                return divided
            case Distinct(input=inner):
                return self.is_divided(inner, inside=inside)
            case _ if not inside and not any(isinstance(each, Stream) for each in walk_plan(plan)):
                return False
            case _:
                raise NotPartitionable(f"{_in_words(plan)} is computed over all solutions")


def _is_timed(source: algebra.Source) -> bool:
    window = source.window
    if isinstance(window, Count) or (isinstance(window, Range) and window.time is not None):
        return False
    return isinstance(source.stream, NamedNode)


def _patterns(expression: Expression) -> Iterator[Plan]:
    return (node.pattern for node in walk(expression) if isinstance(node, Exists))


def _in_words(plan: Plan) -> str:
    match plan:
        case algebra.OrderBy() | algebra.Slice():
            return "an order"
        case algebra.PathPattern():
            return "a path"
        case _:
            return type(plan).__name__.lower()
