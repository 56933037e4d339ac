"""The plan of a query: SPARQL's algebra with windows over streams, as frozen nodes that know nothing of execution.

The meaning of a node is a bag of solutions over the *active graph* (SPARQL 1.1 §18.3): `Graph` makes a named graph
the active one for what is inside it, `Stream` makes the graph of a window the active one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from pyoxigraph import NamedNode

from cqels.lang.expressions import Aggregate, Call, Exists, Expression, Var, transform, walk
from cqels.lang.syntax import Path, Window
from cqels.model.errors import QueryError, Span
from cqels.model.terms import Term

Node: TypeAlias = Var | Term


class Plan:
    """A node of a plan. What `plan.scope` found out about it is kept with it: nodes never change."""

    __slots__ = ("certain", "mentioned", "variables_in_order")


@dataclass(frozen=True, slots=True)
class Unit(Plan):
    """The empty group: one solution that binds nothing."""


@dataclass(frozen=True, slots=True)
class Triple:
    """A triple pattern. A blank node of the query's text is a hidden variable here."""

    subject: Node
    predicate: Var | NamedNode
    object: Node


@dataclass(frozen=True, slots=True)
class Triples(Plan):
    """A basic graph pattern over the active graph; never empty."""

    patterns: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class PathPattern(Plan):
    """A property path between two nodes over the active graph."""

    subject: Node
    path: Path
    object: Node


@dataclass(frozen=True, slots=True)
class Values(Plan):
    """A table written in the query; None is UNDEF."""

    variables: tuple[str, ...]
    rows: tuple[tuple[Term | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Join(Plan):
    """Natural join of two or more inputs; bag multiplicities multiply."""

    inputs: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class LeftJoin(Plan):
    """OPTIONAL; the condition (the filters of the optional group) sees both sides. None is `true`."""

    left: Plan
    right: Plan
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Minus(Plan):
    """The solutions of `left` with no compatible solution in `right` that shares a bound variable with them."""

    left: Plan
    right: Plan


@dataclass(frozen=True, slots=True)
class Union(Plan):
    inputs: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class Filter(Plan):
    input: Plan
    condition: Expression


@dataclass(frozen=True, slots=True)
class Extend(Plan):
    """BIND and `(expression AS ?name)`: an error leaves the variable unbound."""

    input: Plan
    variable: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Graph(Plan):
    """`GRAPH`: a variable ranges over the named graphs of the query's dataset."""

    name: NamedNode | Var
    input: Plan


@dataclass(frozen=True, slots=True)
class Stream(Plan):
    """The active graph inside is that of one or several windows, merged.

    `sources` are the streams with their windows; a variable as the stream (then the only source) ranges over every
    registered stream, each with its own solutions.  `graphs` are dataset graphs that are merged in as well
    (C-SPARQL's FROM beside FROM STREAM).
    `at` is bound to the time of the newest element that a solution used.
    """

    sources: tuple[Source, ...]
    input: Plan
    at: str | None = None
    graphs: tuple[NamedNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One stream under one window. A stream that is None stands for all registered streams merged."""

    stream: NamedNode | Var | None
    window: Window
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Service(Plan):
    """A pattern that an endpoint matches."""

    endpoint: NamedNode
    input: Plan
    silent: bool
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sequence(Plan):
    """`left SEQ right` and its kin: a join with a condition on the times of the two sides.

    A solution has an interval: from the oldest to the newest element it used.  `seq`: left ends no later than right
    starts; `equals`: the intervals are the same.  `optional` keeps a left solution that has no partner.  Below a
    Sequence every occurrence of a triple is an event of its own.
    """

    left: Plan
    right: Plan
    kind: str
    optional: bool


@dataclass(frozen=True, slots=True)
class Group(Plan):
    """GROUP BY and the aggregates: one solution a group. With no keys there is exactly one group, even of nothing."""

    input: Plan
    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, slots=True)
class Project(Plan):
    input: Plan
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distinct(Plan):
    """DISTINCT, and REDUCED, which is the same here: the most it may remove is removed."""

    input: Plan


@dataclass(frozen=True, slots=True)
class OrderBy(Plan):
    """Order by the expressions (True: descending), then the freshest first, then the text of the variables `ties`."""

    input: Plan
    keys: tuple[tuple[Expression, bool], ...]
    ties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice(Plan):
    """OFFSET and LIMIT. Over anything but an OrderBy the order is the tie-breaking one: freshest first, then text."""

    input: Plan
    offset: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Static(Plan):
    """A part that reads only the dataset: evaluated once and kept as a table, indexed on the variables `on`."""

    input: Plan
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Narrow(Plan):
    """The solutions whose oldest element is not older than the column `width` says, in nanoseconds; it ends here.

    So what is inside may have the widest of many windows, and each solution is there as long as in a narrower one.
    Where windows count (`counted`), all of them triples or elements of one stream, the width is how many may have come
    since that element.
    """

    input: Plan
    width: str
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Thresholds(Plan):
    """The solutions, each once for every class of queries whose thresholds it passes; these are given while it runs.

    A comparison is one of a variable with a threshold, which has a name that stands nowhere else.  The column `group`
    says which classes are asked, all if it is None; it ends here.  A solution has `columns` more: those of its
    class.
    """

    input: Plan
    comparisons: tuple[Call, ...]
    group: str | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reused(Plan):
    """A join of streams that other queries have too: it is computed once for all of them (`plan.sharing.common_joins`).

    `part` is its number, and `columns` are its variables, in the order in which all know them.
    """

    input: Plan
    part: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryText:
    """What a query was prepared from: its text, and what was said beside it."""

    text: str
    base: str | None = None
    dialect: str | None = None
    emit: str | None = None
    policy: str | None = None
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A planned query: what to compute, how to speak of it, when to emit.

    `form` is `select`, `construct` or `ask`.  `variables` are the columns of a result, in order.  `template` has the
    triples of a CONSTRUCT.  `default_graphs` and `named_graphs` are None where the query has no FROM clause at all.
    `emit` is `istream`, `dstream`, `rstream`, `changes` or `snapshot`, `policy` is `cqels`, `window-close` or
    `cqels-1`.
    """

    form: str
    plan: Plan
    variables: tuple[str, ...]
    emit: str
    policy: str
    dialect: str
    name: str | None = None
    template: tuple[Triple, ...] = ()
    default_graphs: tuple[NamedNode, ...] | None = None
    named_graphs: tuple[NamedNode, ...] | None = None
    graph_spans: tuple[tuple[NamedNode, Span], ...] = field(default=(), compare=False, repr=False)
    """Where FROM and FROM NAMED name graphs."""
    prefixes: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    warnings: tuple[QueryError, ...] = field(default=(), compare=False, repr=False)
    """What is allowed and yet is probably not meant, such as a selected variable that nothing binds."""
    text: QueryText | None = field(default=None, compare=False, repr=False)
    """What it was prepared from; None if that is not all of it."""

    @property
    def selected(self) -> tuple[str, ...]:
        """The variables that a result has values of: none but for SELECT."""
        return self.variables if self.form == "select" else ()


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """The plans directly below a node, EXISTS patterns not among them."""
    match plan:
        case Join(inputs=inputs) | Union(inputs=inputs):
            return inputs
        case LeftJoin(left=left, right=right) | Minus(left=left, right=right) | Sequence(left=left, right=right):
            return (left, right)
        case _:
            inner = getattr(plan, "input", None)
            return () if inner is None else (inner,)


def map_inputs(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """The same node over changed inputs."""
    match plan:
        case Join(inputs=inputs) | Union(inputs=inputs):
            return replace(plan, inputs=tuple(change(each) for each in inputs))
        case LeftJoin(left=left, right=right) | Minus(left=left, right=right) | Sequence(left=left, right=right):
            return replace(plan, left=change(left), right=change(right))
        case _:
            unary: Any = plan
            return replace(unary, input=change(unary.input)) if inputs_of(plan) else plan


def expressions_of(plan: Plan) -> tuple[Expression, ...]:
    """The expressions written on a node itself."""
    match plan:
        case Filter(condition=condition) | LeftJoin(condition=condition) if condition is not None:
            return (condition,)
        case Extend(expression=expression):
            return (expression,)
        case Group(aggregates=aggregates):
            return tuple(aggregate for _, aggregate in aggregates)
        case OrderBy(keys=keys):
            return tuple(expression for expression, _ in keys)
        case Thresholds(comparisons=comparisons):
            return comparisons
        case _:
            return ()


def map_expressions(plan: Plan, change: Callable[[Expression], Expression]) -> Plan:
    """The same node with changed expressions."""
    match plan:
        case Filter(condition=condition):
            return replace(plan, condition=change(condition))
        case LeftJoin(condition=condition) if condition is not None:
            return replace(plan, condition=change(condition))
        case Extend(expression=expression):
            return replace(plan, expression=change(expression))
        case OrderBy(keys=keys):
            return replace(plan, keys=tuple((change(expression), descending) for expression, descending in keys))
        case Group(aggregates=aggregates):
            changed = tuple((name, cast(Aggregate, change(aggregate))) for name, aggregate in aggregates)
            return replace(plan, aggregates=changed)
        case Thresholds(comparisons=comparisons):
            return replace(plan, comparisons=tuple(cast(Call, change(each)) for each in comparisons))
        case _:
            return plan


def transform_plan(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """Apply `change` to every node, innermost first, those inside EXISTS too."""

    pending = [(plan, False)]
    done: list[Plan] = []
    while pending:
        node, is_ready = pending.pop()
        below = (*inputs_of(node), *patterns_of(node))
        if below and not is_ready:
            pending.append((node, True))
            pending += [(each, False) for each in reversed(below)]
            continue
        if below:
            made = done[-len(below) :]
            del done[-len(below) :]
            if any(new is not old for new, old in zip(made, below, strict=True)):
                node = _over(node, iter(made))
        done.append(change(node))
    return done[0]


def _over(plan: Plan, made: Iterator[Plan]) -> Plan:
    """The same node over changed inputs and patterns of EXISTS."""

    def inside(node: Expression) -> Expression:
        return replace(node, pattern=next(made)) if isinstance(node, Exists) else node

    plan = map_inputs(plan, lambda _: next(made))
    return map_expressions(plan, lambda expression: transform(expression, inside))


def patterns_of(plan: Plan) -> list[Plan]:
    """The patterns of EXISTS in the expressions written on a node itself."""
    return [
        node.pattern for expression in expressions_of(plan) for node in walk(expression) if isinstance(node, Exists)
    ]


def walk_plan(plan: Plan) -> Iterator[Plan]:
    """Every node, outermost first, those inside EXISTS too."""
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed((*patterns_of(node), *inputs_of(node)))


def sources_of(query: Query) -> list[Source]:
    """The streams with their windows that a query reads."""
    return [source for node in walk_plan(query.plan) if isinstance(node, Stream) for source in node.sources]
