"""Queries that differ in constants alone: what they have in common, and the constants of each.

The constants stand in triple patterns, as subject or object, or are what a FILTER wants a variable to be.  In the
general plan those that vary are variables, and a table (VALUES without rows, to be told them while the queries run) is
joined in: a row for each class of queries with the same constants, and the number of that class in the column CLASS,
which every solution has.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from pyoxigraph import Literal, NamedNode

from cqels.lang.expressions import Call, Constant, Expression, Var, calls, walk
from cqels.lang.syntax import Count
from cqels.model.terms import RDF_TYPE, XSD_STRING, Term
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    Plan,
    Project,
    Query,
    Stream,
    Triple,
    Triples,
    Values,
    expressions_of,
    transform_plan,
    walk_plan,
)
from cqels.plan.columns import DRAWS
from cqels.plan.rules import conjuncts
from cqels.plan.scope import certain, variables

CLASS = "_:class"
MOST_NODES = 150
"""Nodes of a plan and its expressions up to which it is compared with others: more may be nested too deeply."""
_CONSTANT = "constant·"
"""What the columns of constants begin with: names that SPARQL allows and nobody uses."""


@dataclass(frozen=True, slots=True)
class General:
    """A query for many: the columns of its table but CLASS, and for each the number of the constant it stands for."""

    query: Query
    columns: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()


def constants_of(query: Query) -> tuple[Term, ...] | None:
    """The constants of a query that others may differ in; None if it can have nothing in common with others."""
    if query.emit not in ("istream", "dstream", "changes") or query.policy == "cqels-1" or query.form == "ask":
        return None
    size = 0
    for node in walk_plan(query.plan):
        size += 1 + sum(1 for expression in expressions_of(node) for _ in walk(expression))
        if size > MOST_NODES or any(map(is_own, variables(node))):
            return None
        if isinstance(node, Stream) and any(not isinstance(each.stream, NamedNode) for each in node.sources):
            return None
        if any(calls(expression) & DRAWS for expression in expressions_of(node)):
            return None
    search = _Search(())
    return None if search.plan(query.plan) is None else tuple(search.constants)


def general(query: Query, varying: Collection[int]) -> General:
    """The query for all that differ from it in these of its constants; the others are part of it."""
    search = _Search(varying)
    plan = search.plan(query.plan)
    assert plan is not None
    return General(replace(query, name=None, plan=plan), tuple(search.columns), tuple(search.numbers))


def is_own(column: str) -> bool:
    """Whether a column stands for a constant of a triple pattern, and not for a variable of the query."""
    return column.startswith(_CONSTANT)


def particular(plan: Plan, values: dict[str, Term]) -> Plan:
    """A static part of a general plan with values instead of some variables."""

    def node(of: Node) -> Node:
        return values.get(of.name, of) if isinstance(of, Var) else of

    def changed(each: Plan) -> Plan:
        match each:
            case Triples(patterns=patterns):
                told = [Triple(node(one.subject), one.predicate, node(one.object)) for one in patterns]
                return Triples(tuple(told))
            case Project(variables=names):
                return replace(each, variables=tuple(name for name in names if name not in values))
            case _:
                return each

    return transform_plan(plan, changed)


@dataclass
class _Wanted:
    """A FILTER wants a variable to be a constant; if that varies, the table sees to it."""

    name: str
    term: Term
    varies: bool = False


@dataclass
class _Search:
    """Goes through a plan from the top to what all solutions are made of."""

    varying: Collection[int]
    constants: list[Term] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    wanted: list[_Wanted] = field(default_factory=list)
    """What FILTERs further up want."""

    def plan(self, plan: Plan) -> Plan | None:
        match plan:
            case Project(input=inner, variables=names):
                self._see(names)
                below = self.plan(inner)
                return below and Project(below, (*names, CLASS) if self.varying else names)
            case Group(input=inner, keys=keys) if keys:
                self._see(keys)
                below = self.plan(inner)
                return below and replace(plan, input=below, keys=(*keys, CLASS) if self.varying else keys)
            case Filter(input=inner, condition=condition):
                return self._filter(inner, condition)
            case Distinct(input=inner) | Extend(input=inner) | OrderBy(input=inner):
                below = self.plan(inner)
                return below and replace(plan, input=below)
            case LeftJoin(left=left) | Minus(left=left):
                below = self.plan(left)
                return below and replace(plan, left=below)
            case Join(inputs=inputs):
                return self._joined(inputs)
            case Stream() | Triples():
                return self._joined((plan,))
            case _:
                return None

    def _see(self, names: Collection[str]) -> None:
        """Only these variables of what is below are those that stand above."""
        self.wanted = [each for each in self.wanted if each.name in names]

    def _filter(self, inner: Plan, condition: Expression) -> Plan | None:
        parts = [(part, _equality(part)) for part in conjuncts(condition)]
        self.wanted += [wanted for _, wanted in parts if wanted is not None]
        below = self.plan(inner)
        if below is None:
            return None
        for part, wanted in parts:
            if wanted is None or not wanted.varies:
                below = Filter(below, part)
        return below

    def _joined(self, inputs: tuple[Plan, ...]) -> Plan:
        bound = frozenset().union(*map(certain, inputs))
        for each in self.wanted:
            if each.name in bound and each.name not in self.columns:
                each.varies = self._constant(each.term, each.name)
        made = [self._part(each) for each in inputs]
        if self.varying:
            made.append(Values((*self.columns, CLASS), ()))
        return made[0] if len(made) == 1 else Join(tuple(made))

    def _part(self, plan: Plan) -> Plan:
        match plan:
            case Stream(sources=sources) if any(isinstance(each.window, Count) and each.window.by for each in sources):
                return plan  # which chooses among the solutions inside
            case Stream(input=inner) | Filter(input=inner):
                return replace(plan, input=self._part(inner))
            case Triples(patterns=patterns):
                return Triples(tuple(map(self._triple, patterns)))
            case _:
                return plan

    def _triple(self, triple: Triple) -> Triple:
        subject = self._node(triple.subject)
        object = triple.object if triple.predicate == RDF_TYPE else self._node(triple.object)
        return Triple(subject, triple.predicate, object)

    def _node(self, node: Node) -> Node:
        if isinstance(node, Var):
            return node
        name = f"{_CONSTANT}{len(self.constants)}"
        return Var(name) if self._constant(node, name) else node

    def _constant(self, term: Term, name: str) -> bool:
        """Count a constant; if it varies, it has a column of this name."""
        number = len(self.constants)
        self.constants.append(term)
        if number not in self.varying:
            return False
        self.columns.append(name)
        self.numbers.append(number)
        return True


def _equality(condition: Expression) -> _Wanted | None:
    """`?x = constant` where equal values are the same term."""
    match condition:
        case Call(name="EQ", args=(Var(name=name), Constant(term=term)) | (Constant(term=term), Var(name=name))):
            same = isinstance(term, NamedNode) or (isinstance(term, Literal) and term.datatype == XSD_STRING)
            return _Wanted(name, term) if same else None
        case _:
            return None
