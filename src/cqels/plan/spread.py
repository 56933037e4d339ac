"""One query as several, each with a part of the solutions: a variable that everything from streams is joined on.

Let ?k stand in every triple pattern over a stream.  Then a solution with some ?k comes from triples with that ?k alone,
and so do all that it is compared with: the other side of OPTIONAL and MINUS, the rest of its group.  So the solutions
are those of queries with another FILTER in each, that wants ?k to belong to one part (`cqels.model.parts`):

    R = R[FILTER(PART(?k, n) = 0)] + … + R[FILTER(PART(?k, n) = n - 1)]

and so are differences of bags where ?k is selected, since solutions of different parts are not the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyoxigraph import Literal, NamedNode

from cqels.lang.expressions import Call, Constant, Exists, Expression, Var, calls, walk
from cqels.lang.syntax import Count, Range
from cqels.plan import algebra
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    Plan,
    Project,
    Query,
    Stream,
    Triples,
    Union,
    Values,
    expressions_of,
    transform_plan,
    walk_plan,
)
from cqels.plan.columns import DRAWS


class NotSpread(Exception):
    """Why a query cannot be spread, in words."""


def key_of(query: Query) -> str:
    """The variable to spread a query by, the first that will do; raises NotSpread if there is none.

    >>> from cqels.plan.prepare import prepare
    >>> key_of(prepare("PREFIX : <urn:> SELECT ?s ?v { STREAM :a [NOW] { ?o :of ?s ; :is ?v } ?s :in :r }"))
    Traceback (most recent call last):
    ...
    cqels.plan.spread.NotSpread: ?o is not selected
    >>> key_of(prepare("PREFIX : <urn:> SELECT ?o ?v { STREAM :a [NOW] { ?o :of ?s ; :is ?v } ?s :in :r }"))
    'o'
    """
    if query.form != "select" or query.emit not in ("istream", "dstream", "changes") or query.policy != "cqels":
        raise NotSpread("only solutions of SELECT that are sent as they come and go can be divided")
    if any(calls(each) & (DRAWS | {"TIMESTAMP"}) for node in walk_plan(query.plan) for each in expressions_of(node)):
        raise NotSpread("it draws a value, or asks for the time of a triple")
    reasons = []
    for name in _candidates(query.plan):
        try:
            if not _Spreading(name).is_divided(query.plan):
                raise NotSpread("it reads no stream")
            return name
        except NotSpread as error:
            reasons.append(str(error))
    # that a variable could have been selected says more than that it is not everywhere
    raise NotSpread(min(reasons, key=lambda each: "is not in" in each) if reasons else "no triple of a stream is named")


def parts_of(query: Query, key: str, count: int) -> tuple[Query, ...]:
    """The queries that together have the solutions of one, each with a name of its own."""
    return tuple(
        replace(query, name=f"{query.name} ({number + 1} of {count})", plan=_divided(query.plan, key, number, count))
        for number in range(count)
    )


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
class _Spreading:
    """Goes through a plan and asks of each part: is it divided by the key, so that each solution has it?

    What reads no stream is not divided: it is the same for all parts.
    """

    key: str

    def is_divided(self, plan: Plan, *, inside: bool = False) -> bool:
        """Whether a plan, over the windows of streams if it is inside one, is divided; raises NotSpread if neither."""
        found = self._is_divided(plan, inside=inside)
        for expression in expressions_of(plan):
            for pattern in _patterns(expression):
                if self.is_divided(pattern, inside=inside) and not found:
                    raise NotSpread("a stream decides on what is the same for all")
        return found

    def _is_divided(self, plan: Plan, *, inside: bool) -> bool:
        match plan:
            case Triples(patterns=patterns):
                for each in patterns if inside else ():
                    if Var(self.key) not in (each.subject, each.object):
                        raise NotSpread(f"?{self.key} is not in all triple patterns over streams")
                return inside
            case Values():
                return False
            case Stream(input=inner, sources=sources, graphs=graphs):
                if graphs or any(not _is_timed(each) for each in sources):
                    raise NotSpread("a window counts, or follows times that triples tell, or is of no one stream")
                return self.is_divided(inner, inside=True)
            case Join(inputs=inputs):
                return True in {self.is_divided(each, inside=inside) for each in inputs}
            case Union(inputs=inputs):
                found = {self.is_divided(each, inside=inside) for each in inputs}
                if len(found) > 1:
                    raise NotSpread("an alternative reads no stream")
                return found == {True}
            case LeftJoin(left=left, right=right) | Minus(left=left, right=right):
                found = {self.is_divided(left, inside=inside)}
                if self.is_divided(right, inside=inside) and found == {False}:
                    raise NotSpread("a stream decides on what is the same for all")
                return found == {True}
            case Filter(input=inner):
                return self.is_divided(inner, inside=inside)
            case Extend(input=inner, variable=name):
                if name == self.key:
                    raise NotSpread(f"?{name} is computed")
                return self.is_divided(inner, inside=inside)
            case Project(input=inner, variables=names) | Group(input=inner, keys=names):
                divided = self.is_divided(inner, inside=inside)
                if divided and self.key not in names:
                    raise NotSpread(
                        f"?{self.key} is not {'selected' if isinstance(plan, Project) else 'what is grouped by'}"
                    )
                return divided
            case Distinct(input=inner):
                return self.is_divided(inner, inside=inside)
            case _ if not inside and not any(isinstance(each, Stream) for each in walk_plan(plan)):
                return False
            case _:
                raise NotSpread(f"{_in_words(plan)} is computed over all solutions")


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
