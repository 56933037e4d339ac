"""The naive evaluator: every node of a plan by its definition, over the graphs of one tick.

It is the judge of every other evaluator, so it is written to be read beside SPARQL 1.1 §18 and the language
reference.  Nothing is remembered from one tick to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyoxigraph import Literal, NamedNode

from cqels.lang.expressions import Aggregate, Exists, Expression, Var
from cqels.lang.syntax import Count
from cqels.model.terms import Term, Triple, text_of
from cqels.model.values import ExpressionError, date_time_literal, order_key
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Source, walk_plan
from cqels.plan.functions import Context, aggregate, evaluate, holds
from cqels.plan.scope import is_ordered, variables
from cqels.reference.graphs import StampedGraph
from cqels.reference.path_evaluation import walks
from cqels.reference.solutions import (
    NEVER,
    Bag,
    Partners,
    Solution,
    agree,
    freshest_first,
    merged_duplicates,
)

Bindings = Mapping[str, Term]


@dataclass(frozen=True)
class World:
    """All that a query can look at in one tick."""

    default: StampedGraph
    named: Mapping[NamedNode, StampedGraph]
    streams: tuple[NamedNode, ...]
    window: Callable[[tuple[Source, ...], tuple[NamedNode, ...]], StampedGraph]
    """The merged graph of some sources, each a stream (or all of them) under a window, and of some dataset graphs."""
    service: Callable[[algebra.Service], Bag]
    now: int = 0
    seed: str = ""


@dataclass(frozen=True)
class Scope:
    """Where a node stands: the active graph, the bindings given by an EXISTS around it, are events told apart."""

    active: StampedGraph
    given: Bindings = field(default_factory=dict)
    events: bool = False


class Evaluator:
    """Evaluates plans over one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._computed: frozenset[str] = frozenset()

    def solutions(self, plan: Plan, *, computed: Collection[str] | None = None, events: bool = False) -> Bag:
        """The solutions of a whole plan; their order means something only where the plan has an ORDER BY.

        For a part of a plan, `computed` are the variables that the whole computes: draws do not depend on them;
        with `events` the part is below a Sequence.
        """
        if computed is None:
            computed = {node.variable for node in walk_plan(plan) if isinstance(node, algebra.Extend)}
        self._computed = frozenset(computed)
        return self.bag(plan, Scope(self.world.default, events=events))

    def bag(self, plan: Plan, scope: Scope) -> Bag:
        match plan:
            case algebra.Unit():
                return [Solution({})]
            case algebra.Triples(patterns=patterns):
                return self._triples(patterns, scope)
            case algebra.PathPattern():
                return list(self._path(plan, scope))
            case algebra.Values(variables=names, rows=rows):
                return self._values(names, rows, scope)
            case algebra.Join(inputs=inputs):
                result = self.bag(inputs[0], scope)
                for each in inputs[1:]:
                    result = _join(result, self.bag(each, scope))
                return result
            case algebra.Sequence():
                return self._sequence(plan, scope)
            case algebra.LeftJoin():
                return self._left_join(plan, scope)
            case algebra.Minus(left=left, right=right):
                return _minus(self.bag(left, scope), self.bag(right, scope))
            case algebra.Union(inputs=inputs):
                return [each for inner in inputs for each in self.bag(inner, scope)]
            case algebra.Filter(input=inner, condition=condition):
                return [each for each in self.bag(inner, scope) if self._holds(condition, each, scope)]
            case algebra.Extend():
                return list(self._extend(plan, scope))
            case algebra.Graph():
                return self._graph(plan, scope)
            case algebra.Stream():
                return self._stream(plan, scope)
            case algebra.Service():
                return [each for each in self.world.service(plan) if agree(each.bindings, scope.given)]
            case algebra.Group():
                return list(self._group(plan, scope))
            case algebra.Project(input=inner, variables=names):
                kept = {name: term for name, term in scope.given.items() if name in names}
                inside = replace(scope, given=kept)
                return [_project(each, names) for each in self.bag(inner, inside)]
            case algebra.Distinct(input=inner):
                return merged_duplicates(self.bag(inner, scope))
            case algebra.OrderBy():
                return self._order(plan, scope)
            case algebra.Slice(input=inner, offset=offset, limit=limit):
                bag = self.bag(inner, scope)
                if not is_ordered(inner):
                    bag = freshest_first(bag, variables(inner))
                return bag[offset : None if limit is None else offset + limit]
            case algebra.Static(input=inner):
                return self.bag(inner, scope)
            case _:
                raise AssertionError(f"no plan {plan}")

    # ------------------------------------------------------------ leaves

    def _triples(self, patterns: tuple[algebra.Triple, ...], scope: Scope) -> Bag:
        names = {node.name for each in patterns for node in _nodes(each) if isinstance(node, Var)}
        result = [Solution({name: term for name, term in scope.given.items() if name in names})]
        for pattern in patterns:
            result = [found for each in result for found in self._matches(pattern, each, scope)]
        return result

    def _matches(self, pattern: algebra.Triple, so_far: Solution, scope: Scope) -> Iterator[Solution]:
        wanted = [so_far.bindings.get(node.name) if isinstance(node, Var) else node for node in _nodes(pattern)]
        for triple in scope.active.match(*wanted):
            found: dict[str, Term] = {}
            for node, term in zip(_nodes(pattern), triple, strict=True):
                if isinstance(node, Var) and found.setdefault(node.name, term) != term:
                    break
            else:
                for stamped in _occurrences(scope, triple):
                    joined = so_far.joined(stamped.bound(found))
                    if joined is not None:
                        yield joined

    def _path(self, plan: algebra.PathPattern, scope: Scope) -> Iterator[Solution]:
        ends = (plan.subject, plan.object)
        wanted = [scope.given.get(node.name) if isinstance(node, Var) else node for node in ends]
        for walk in walks(plan.path, scope.active, *wanted, events=scope.events):
            found: dict[str, Term] = {}
            for node, term in zip(ends, (walk.start, walk.end), strict=True):
                if isinstance(node, Var) and found.setdefault(node.name, term) != term:
                    break
            else:
                yield Solution(found, walk.newest, walk.oldest)

    def _values(self, names: tuple[str, ...], rows: tuple[tuple[Term | None, ...], ...], scope: Scope) -> Bag:
        bag = [
            Solution({name: term for name, term in zip(names, row, strict=True) if term is not None}) for row in rows
        ]
        return [each for each in bag if agree(each.bindings, scope.given)]

    # ------------------------------------------------------------ graphs and windows

    def _graph(self, plan: algebra.Graph, scope: Scope) -> Bag:
        if not isinstance(plan.name, Var):
            graph = self.world.named.get(plan.name)
            return [] if graph is None else self.bag(plan.input, replace(scope, active=graph))
        result: Bag = []
        for name, graph in self.world.named.items():
            here = _join(self.bag(plan.input, replace(scope, active=graph)), [Solution({plan.name.name: name})])
            result += [each for each in here if agree(each.bindings, scope.given)]
        return result

    def _stream(self, plan: algebra.Stream, scope: Scope) -> Bag:
        (first, *_) = plan.sources
        if not isinstance(first.stream, Var):
            return self._windowed(plan, plan.sources, scope)
        result: Bag = []
        for iri in self.world.streams:
            bag = self._windowed(plan, (Source(iri, first.window),), scope)
            here = _join(bag, [Solution({first.stream.name: iri})])
            result += [each for each in here if agree(each.bindings, scope.given)]
        return result

    def _windowed(self, plan: algebra.Stream, sources: tuple[Source, ...], scope: Scope) -> Bag:
        active = self.world.window(sources, plan.graphs)
        window = sources[0].window
        if isinstance(window, Count) and window.by:
            # which solutions are the latest must not depend on what is asked for from outside
            bag = _latest(self.bag(plan.input, Scope(active, {}, scope.events)), window)
            bag = [each for each in bag if agree(each.bindings, scope.given)]
        else:
            bag = self.bag(plan.input, replace(scope, active=active))
        if plan.at is None:
            return bag
        timed = []
        for each in bag:
            if each.newest != NEVER:
                each = each.bound({**each.bindings, plan.at: date_time_literal(each.newest[0])})
            if agree(each.bindings, scope.given):
                timed.append(each)
        return timed

    # ------------------------------------------------------------ joins

    def _sequence(self, plan: algebra.Sequence, scope: Scope) -> Bag:
        inside = replace(scope, events=True)
        left, right = self.bag(plan.left, inside), self.bag(plan.right, inside)
        partners = Partners(right, left)
        result: Bag = []
        for one in left:
            found = []
            for other in partners.of(one):
                joined = one.joined(other)
                if joined is not None and _in_time(plan.kind, one, other):
                    found.append(joined)
            result += found if found or not plan.optional else [one]
        return result

    def _left_join(self, plan: algebra.LeftJoin, scope: Scope) -> Bag:
        left, right = self.bag(plan.left, scope), self.bag(plan.right, scope)
        partners = Partners(right, left)
        result: Bag = []
        for one in left:
            found = []
            for other in partners.of(one):
                joined = one.joined(other)
                if joined is not None and (plan.condition is None or self._holds(plan.condition, joined, scope)):
                    found.append(joined)
            result += found or [one]
        return result

    # ------------------------------------------------------------ expressions

    def _context(self, solution: Solution, scope: Scope) -> Context:
        def exists(node: Exists, bindings: Bindings) -> bool:
            inside = replace(scope, given=bindings)
            found = any(agree(each.bindings, bindings) for each in self.bag(node.pattern, inside))
            return found != node.negated

        def timestamp(subject: Term, predicate: Term, target: Term) -> int | None:
            if isinstance(subject, Literal) or not isinstance(predicate, NamedNode):
                return None
            stamps = scope.active.stamps.get((subject, predicate, target))
            return stamps[-1][0] if stamps else None

        return Context(
            now=self.world.now,
            seed=self.world.seed,
            interval=solution.interval,
            exists=exists,
            timestamp=timestamp,
            identity=self._drawn(solution.bindings),
        )

    def _drawn(self, names: Iterable[str]) -> list[str]:
        """A draw belongs to the solution of the patterns, whatever was computed beside it."""
        return [name for name in names if name not in self._computed and not name.startswith("_:")]

    def _holds(self, condition: Expression, solution: Solution, scope: Scope) -> bool:
        return holds(condition, {**scope.given, **solution.bindings}, self._context(solution, scope))

    def _value(self, expression: Expression, solution: Solution, scope: Scope) -> Term | None:
        try:
            return evaluate(expression, {**scope.given, **solution.bindings}, self._context(solution, scope))
        except ExpressionError:
            return None

    def _extend(self, plan: algebra.Extend, scope: Scope) -> Iterator[Solution]:
        for each in self.bag(plan.input, scope):
            value = self._value(plan.expression, each, scope)
            if value is not None:
                each = each.bound({**each.bindings, plan.variable: value})
            if agree(each.bindings, scope.given):
                yield each

    # ------------------------------------------------------------ groups and order

    def _group(self, plan: algebra.Group, scope: Scope) -> Iterator[Solution]:
        groups: dict[tuple[Term | None, ...], Bag] = {}
        for each in self.bag(plan.input, scope):
            groups.setdefault(tuple(each.bindings.get(key) for key in plan.keys), []).append(each)
        if not plan.keys:
            groups.setdefault((), [])
        drawn = self._drawn(variables(plan.input))
        for key, members in groups.items():
            bindings = {name: term for name, term in zip(plan.keys, key, strict=True) if term is not None}
            whole = Solution({})
            for each in members:
                whole = whole.as_fresh_as(each)
            for name, node in plan.aggregates:
                try:
                    rows = [each.bindings for each in self._oldest_first(members, node, scope)]
                    bindings[name] = aggregate(node, rows, replace(self._context(whole, scope), identity=drawn))
                except ExpressionError:
                    continue
            yield whole.bound(bindings)

    def _oldest_first(self, members: Bag, node: Aggregate, scope: Scope) -> Bag:
        """The order that SAMPLE and GROUP_CONCAT see; at one time, by the text of what is aggregated."""
        if node.argument is None:
            return members
        argument = node.argument
        return sorted(members, key=lambda each: (each.newest, text_of(self._value(argument, each, scope))))

    def _order(self, plan: algebra.OrderBy, scope: Scope) -> Bag:
        bag = freshest_first(self.bag(plan.input, scope), plan.ties)
        for expression, descending in reversed(plan.keys):  # stable sorts, the first key last
            bag.sort(key=lambda each, e=expression: order_key(self._value(e, each, scope)), reverse=descending)  # type: ignore[misc]
        return bag


def _nodes(pattern: algebra.Triple) -> tuple[algebra.Node, algebra.Node, algebra.Node]:
    return (pattern.subject, pattern.predicate, pattern.object)


def _occurrences(scope: Scope, triple: Triple) -> list[Solution]:
    """A triple is there once, as new as its newest element; where events are told apart, once for each element."""
    stamps = scope.active.stamps[triple]
    if not stamps:
        return [Solution({})]
    return [Solution({}, stamp, stamp[0]) for stamp in (stamps if scope.events else stamps[-1:])]


def _join(left: Bag, right: Bag) -> Bag:
    partners = Partners(right, left)
    pairs = (one.joined(other) for one in left for other in partners.of(one))
    return [pair for pair in pairs if pair is not None]


def _minus(left: Bag, right: Bag) -> Bag:
    return [
        one
        for one in left
        if not any(
            one.bindings.keys() & other.bindings.keys() and agree(one.bindings, other.bindings) for other in right
        )
    ]


def _in_time(kind: str, one: Solution, other: Solution) -> bool:
    if one.interval is None or other.interval is None:
        return False
    if kind == "equals":
        return one.interval == other.interval
    return one.interval[1] <= other.interval[0]


def _latest(bag: Bag, window: Count) -> Bag:
    names = sorted({name for each in bag for name in each.bindings if not name.startswith("_:")})
    kept: dict[tuple[Term | None, ...], Bag] = {}
    for each in freshest_first(bag, names):
        members = kept.setdefault(tuple(each.bindings.get(name) for name in window.by), [])
        if len(members) < window.size:
            members.append(each)
    return [each for members in kept.values() for each in members]


def _project(solution: Solution, names: tuple[str, ...]) -> Solution:
    return solution.bound({name: solution.bindings[name] for name in names if name in solution.bindings})
