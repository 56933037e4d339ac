"""Queries that differ in constants, thresholds and widths of windows alone: what they share, and what each has.

The constants stand in triple patterns, as subject or object, or are what a FILTER wants a variable to be.  In the
general plan those that vary are variables, and a table (VALUES without rows, filled while the queries run) is
joined in: a row for each class of queries with the same constants, and the number of that class in the column CLASS,
which every solution has.

Where a query has windows of one width, `[RANGE d]`, that is its last constant: a number of nanoseconds; or of one size,
`[TRIPLES n]` or `[ELEMENTS n]` of one stream: a number of those that came before the last.  If it varies,
the windows of the general plan are as wide as the widest, the table has a column WIDTH, and right above the join a
Narrow lets solutions go when the windows of their class would.  A solution then has to be there exactly as long as the
elements that it came from are in the window: so all that reads streams has to be in that join, and nothing in it may
depend on what is *not* in a window.  Where elements are joined with each other, the wider a window the more solutions
does an element make, in vain for those who have a narrow one: so these share with others of about their width.

The numbers that FILTERs compare variables with (`?v > 30`) are *thresholds*.  If some vary, the table has a row for
each *group* of classes that do not differ in anything else, with its number in the column GROUP, or there is no table
if there is one group; and right above the join a Thresholds gives each solution to the classes that it is for, with
their WIDTH if that varies.  What no class lets pass need not be joined: a FILTER with the loosest threshold sees to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from pyoxigraph import Literal, NamedNode

from cqels.lang.expressions import Call, Constant, Exists, Expression, Var, calls, junction, walk
from cqels.lang.syntax import Count, Now, Range, Window
from cqels.model.numbers import Number
from cqels.model.terms import RDF_TYPE, XSD_STRING, Term
from cqels.model.values import value_of
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    Narrow,
    Node,
    OrderBy,
    Plan,
    Project,
    Query,
    Service,
    Stream,
    Thresholds,
    Triple,
    Triples,
    Union,
    Values,
    expressions_of,
    transform_plan,
    walk_plan,
)
from cqels.plan.optimizer.prune_columns import DRAWS
from cqels.plan.optimizer.rules import conjuncts
from cqels.plan.optimizer.split_static import is_static
from cqels.plan.scope import certain, variables

CLASS, WIDTH, GROUP = "_:.class", "_:.width", "_:.group"
"""Columns with names that no blank node of a query has."""
WIDEST = 1 << 62
"""Nanoseconds of a window from which on it is not compared with others: times are words of 64 bits."""
MOST_NODES = 150
"""Nodes of a plan and its expressions up to which it is compared with others: more may be nested too deeply."""
_CONSTANT = "constant·"
"""What the columns of constants begin with: names that SPARQL allows and nobody uses."""
_TURNED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
"""The operators that compare with a threshold, and what they are with their operands in the other order."""


@dataclass(frozen=True, slots=True)
class General:
    """A query for many: the columns of each class but CLASS, and for each column the number of its constant.

    WIDTH is the last of them, if it is there.  Then what is compared with thresholds, and the numbers of these.
    """

    query: Query
    columns: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    comparisons: tuple[Call, ...] = ()
    thresholds: tuple[int, ...] = ()

    @property
    def varying(self) -> tuple[int, ...]:
        """The numbers of all constants that vary."""
        return self.numbers + self.thresholds

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the table, but CLASS or GROUP."""
        return _keys(self.columns, self.comparisons)


def constants_of(query: Query) -> tuple[Term, ...] | None:
    """The constants of a query that others may differ in; None if it can have nothing in common with others."""
    if query.emit not in ("istream", "dstream", "changes") or query.policy == "cqels-1" or query.form == "ask":
        return None
    size = 0
    for node in walk_plan(query.plan):
        if isinstance(node, Service):  # what an endpoint is asked is what is written
            return None
        size += 1 + sum(1 for expression in expressions_of(node) for _ in walk(expression))
        if size > MOST_NODES or any(map(is_own, variables(node))):
            return None
        if isinstance(node, Stream) and any(not isinstance(each.stream, NamedNode) for each in node.sources):
            return None
        if any(calls(expression) & DRAWS for expression in expressions_of(node)):
            return None
    search = _Search(query)
    return None if search.plan(query.plan) is None else tuple(search.constants)


def general(
    query: Query,
    varying: Collection[int],
    widest: int | None = None,
    loosest: Mapping[int, Collection[Term]] | None = None,
) -> General:
    """The query for all that differ from it in these of its constants; the others are part of it.

    `widest` are the nanoseconds of its windows, if their width varies.  Without it, what stands there is the same for
    all that can share: if all constants vary, so is the whole query, and only for them.  `loosest` has, for the numbers
    of thresholds that vary, some of which every solution passes one.
    """
    search = _Search(query, varying, widest, loosest or {})
    plan = search.plan(query.plan)
    assert plan is not None
    found = search.columns, search.numbers, search.comparisons, search.thresholds
    return General(replace(query, name=None, plan=plan), *map(tuple, found))  # type: ignore[arg-type]


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
                made = [Triple(node(one.subject), one.predicate, node(one.object)) for one in patterns]
                return Triples(tuple(made))
            case Project(variables=names):
                return replace(each, variables=tuple(name for name in names if name not in values))
            case _:
                return each

    return transform_plan(plan, changed)


def _keys(columns: Collection[str], comparisons: Collection[Call]) -> tuple[str, ...]:
    return tuple(name for name in columns if name != WIDTH or not comparisons)


@dataclass
class _Wanted:
    """A FILTER wants a variable to be a constant, or compares it with one; if that varies, others see to it."""

    name: str
    term: Term
    comparison: str = ""
    """The operator that has the variable on its left and a threshold on its right, if it is not `=`."""
    varies: bool = False


@dataclass
class _Search:
    """Goes through the plan of a query from the top to what all solutions are made of."""

    query: Query
    varying: Collection[int] = ()
    widest: int | None = None
    loosest: Mapping[int, Collection[Term]] = field(default_factory=dict)
    constants: list[Term] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    comparisons: list[Call] = field(default_factory=list)
    thresholds: list[int] = field(default_factory=list)
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
        parts = [(part, _wanted(part)) for part in conjuncts(condition)]
        self.wanted += [wanted for _, wanted in parts if wanted is not None]
        below = self.plan(inner)
        if below is None:
            return None
        kept = [part for part, wanted in parts if wanted is None or not wanted.varies]
        return Filter(below, junction("AND", kept)) if kept else below

    def _joined(self, inputs: tuple[Plan, ...]) -> Plan:
        if all(map(is_static, inputs)):  # a table of the dataset, which has no columns of classes
            return inputs[0] if len(inputs) == 1 else Join(inputs)
        bound = set[str]().union(*map(certain, inputs))
        equal = set(bound)
        for each in self.wanted:
            if each.comparison:
                each.varies = each.name in bound and self._threshold(each)
            elif each.name in equal:
                equal.remove(each.name)  # what else is wanted of it stays what it is
                each.varies = self._constant(each.term, each.name)
        made = [self._part(each) for each in inputs]
        window = _window(self.query.plan, inputs) if self.query.policy == "cqels" else None
        width = None if window is None else window.width if isinstance(window, Range) else window.size - 1
        varies = width is not None and self._constant(Literal(width), WIDTH)
        keys = _keys(self.columns, self.comparisons)
        if keys:
            made.append(Values((*keys, GROUP if self.comparisons else CLASS), ()))
        joined = made[0] if len(made) == 1 else Join(tuple(made))
        if self.comparisons:
            joined = self._compared(joined, GROUP if keys else None, (CLASS, WIDTH) if varies else (CLASS,))
        if width is None or not varies:
            return joined
        widened = _widened(joined, _kin(width, inputs) if self.widest is None else self.widest)
        return Narrow(widened, WIDTH, isinstance(window, Count))

    def _compared(self, joined: Plan, group: str | None, columns: tuple[str, ...]) -> Plan:
        for comparison, number in zip(self.comparisons, self.thresholds, strict=True):
            variable = comparison.args[0]
            loose = [Call(comparison.name, (variable, Constant(term))) for term in self.loosest.get(number, ())]
            if loose:
                joined = Filter(joined, junction("OR", loose))
        return Thresholds(joined, tuple(self.comparisons), group, columns)

    def _part(self, plan: Plan) -> Plan:
        match plan:
            case Stream(sources=sources) if any(isinstance(each.window, Count) and each.window.by for each in sources):
                return plan  # which chooses among the solutions inside
            case Stream(input=inner):
                return replace(plan, input=self._part(inner))
            case Filter(input=inner, condition=condition):
                return self._part_filter(inner, condition)
            case Join(inputs=inputs):
                return Join(tuple(map(self._part, inputs)))
            case Triples(patterns=patterns):
                return Triples(tuple(map(self._triple, patterns)))
            case _:
                return plan

    def _part_filter(self, inner: Plan, condition: Expression) -> Plan:
        """A FILTER inside the join: a threshold that varies may as well be compared with above it."""
        bound, parts = certain(inner), conjuncts(condition)
        wanted = [(part, _wanted(part)) for part in parts]
        kept = [
            part
            for part, each in wanted
            if each is None or not each.comparison or each.name not in bound or not self._threshold(each)
        ]
        below = self._part(inner)
        if len(kept) == len(parts):
            return Filter(below, condition)
        return Filter(below, junction("AND", kept)) if kept else below

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

    def _threshold(self, wanted: _Wanted) -> bool:
        """Count a threshold: whether it varies."""
        number = len(self.constants)
        self.constants.append(wanted.term)
        if number not in self.varying:
            return False
        self.comparisons.append(Call(wanted.comparison, (Var(wanted.name), Var(f"_:.threshold{number}"))))
        self.thresholds.append(number)
        return True


# ---------------------------------------------------------------- widths


def _window(plan: Plan, inputs: tuple[Plan, ...]) -> Range | Count | None:
    """The one window of a plan, if solutions of the join of these inputs are there as long as it says.

    The oldest element of such a solution then tells when it goes, whatever the width.
    """
    streams = [node for node in walk_plan(plan) if isinstance(node, Stream)]
    if len(streams) > sum(map(_joined_streams, inputs)) or not all(map(_is_additive, streams)):
        return None
    sources = [source for node in streams for source in node.sources]
    windows = {source.window for source in sources}
    match [*(windows - {Now()})]:
        case [Range(width=width, slide=None, time=None) as window] if width < WIDEST:
            return window
        case [Count(size=size, by=()) as window] if 0 < size < WIDEST and Now() not in windows:
            one = len({source.stream for source in sources}) == 1
            return window if one and not _has_starts(plan) else None
        case _:
            return None


def _has_starts(plan: Plan) -> bool:
    """It asks for the time of the oldest element of a solution."""
    called = (calls(each) for node in walk_plan(plan) for each in expressions_of(node))
    return any(each & {"GETSTARTTIME", "GETDURATION"} for each in called)


def _kin(width: int, inputs: tuple[Plan, ...]) -> int:
    """The same number for widths that one window may serve.

    That is for all if a solution is of one triple; else the widest is less than four times as wide as the narrowest.
    """
    streams = (node for each in inputs for node in walk_plan(each) if isinstance(node, Stream))
    found = (node.patterns for each in streams for node in walk_plan(each) if isinstance(node, Triples))
    return 0 if sum(map(len, found)) == 1 else (width.bit_length() + 1) // 2


def _joined_streams(plan: Plan) -> int:
    """How many streams a part of a join is of, those apart that it is more than joined with."""
    match plan:
        case Stream():
            return 1
        case Join(inputs=inputs):
            return sum(map(_joined_streams, inputs))
        case Filter(input=inner) | Extend(input=inner):
            return _joined_streams(inner)
        case _:
            return 0


def _is_additive(plan: Plan) -> bool:
    """What a window adds to a plan adds to its solutions, and each is there as long as the elements that it is of."""
    if any(isinstance(node, Exists) for expression in expressions_of(plan) for node in walk(expression)):
        return False
    match plan:
        case Stream(input=inner, graphs=()) | Filter(input=inner) | Extend(input=inner) | Project(input=inner):
            return _is_additive(inner)
        case Join(inputs=inputs) | Union(inputs=inputs):
            return all(map(_is_additive, inputs))
        case Triples() | Values():
            return True
        case _:
            return False


def _widened(plan: Plan, width: int) -> Plan:
    """The plan with windows of this width."""

    def widened(each: Plan) -> Plan:
        if not isinstance(each, Stream):
            return each
        return replace(each, sources=tuple(replace(one, window=wide(one.window)) for one in each.sources))

    def wide(window: Window) -> Window:
        match window:
            case Range():
                return Range(width)
            case Count():
                return replace(window, size=width + 1)
            case _:
                return window

    return transform_plan(plan, widened)


def _wanted(condition: Expression) -> _Wanted | None:
    """`?x = constant` where equal values are the same term, and `?x < number` and the like."""
    match condition:
        case Call(name="EQ", args=(Var(name=name), Constant(term=term)) | (Constant(term=term), Var(name=name))):
            same = isinstance(term, NamedNode) or (isinstance(term, Literal) and term.datatype == XSD_STRING)
            return _Wanted(name, term) if same else None
        case Call(name=sign, args=(Var(name=name), Constant(term=term))) if sign in _TURNED and _is_finite(term):
            return _Wanted(name, term, sign)
        case Call(name=sign, args=(Constant(term=term), Var(name=name))) if sign in _TURNED and _is_finite(term):
            return _Wanted(name, term, _TURNED[sign])
        case _:
            return None


def _is_finite(term: Term) -> bool:
    """It is a number that may be a threshold."""
    value = value_of(term) if isinstance(term, Literal) else None
    return isinstance(value, Number) and not (isinstance(value.value, float) and not isfinite(value.value))
