"""A plan as one SPARQL query, so that a SPARQL engine can evaluate it.

Every input of a node is written as a group of its own, so that scopes, multiplicities and errors are those of the
plan whatever the text around it.  Where engines are known to stray from SPARQL (GRAPH with a variable around anything
but plain patterns, paths of length zero at a term that the graph lacks), the text says the same in other words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.lang.expressions import Exists, Expression, Var
from cqels.lang.syntax import Choice, Count, Inverse, Link, Negated, Repeat, Steps
from cqels.model.recursion import Calling, complete
from cqels.model.terms import Term
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Graph,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    Plan,
    Project,
    Service,
    Slice,
    Static,
    Stream,
    Triple,
    Triples,
    Union,
    Unit,
    Values,
    walk_plan,
)
from cqels.plan.algebra import Sequence as Following
from cqels.plan.scope import certain, mentioned, reads, variables, visible
from cqels.plan.to_sparql.native_expressions import NativeWords, NotExpressible, Words
from cqels.plan.to_sparql.opaque_expressions import Accumulation, Function, OpaqueWords
from cqels.plan.to_sparql.path_text import path_text, ways_to_stay
from cqels.plan.to_sparql.plan_properties import base_declaration, meets_every_graph, names_in

__all__ = ["NotExpressible", "OpaqueQuery", "Windows", "to_opaque_sparql", "to_sparql"]

Windows: TypeAlias = Callable[[Stream], Sequence[tuple[NamedNode | None, NamedNode]]]
"""The graphs that stand for a Stream's windows: one for each stream (with its IRI) that a variable ranges over,
otherwise a single one (with None) in which all its sources and graphs are merged."""

_NOTHING = "FILTER(false)"
_MOST_JOINED = 30
"""Groups side by side for Oxigraph, whose choice of an order of joins takes the fourth power of their number."""
_MOST_UNITED = 16
"""Alternatives in a row: an engine nests as deep as there are of them, so more are written as a balanced tree."""


@dataclass(frozen=True, slots=True)
class OpaqueQuery:
    """A text, the columns of its result, and the functions that have to be supplied to run it."""

    text: str
    columns: tuple[str, ...]
    functions: tuple[Function, ...]
    accumulations: tuple[Accumulation, ...]


def to_sparql(plan: Plan, *, windows: Windows | None = None, named_graphs: Sequence[NamedNode] | None = None) -> str:
    """The plan as plain SPARQL. Its columns are the plan's visible variables.

    `named_graphs` are those that a variable of GRAPH ranges over; None leaves that to the one who evaluates the text.
    """
    return base_declaration(plan) + _Text(plan, NativeWords(), windows, named_graphs).query(plan)


def to_opaque_sparql(
    plan: Plan,
    protect: Callable[[Term], Term],
    *,
    named_graphs: Sequence[NamedNode],
    windows: Windows | None = None,
) -> OpaqueQuery:
    """The plan as SPARQL over protected terms, every expression a call of a function to be supplied."""
    words = OpaqueWords(protect)
    text = _Text(plan, words, windows, named_graphs).query(plan)
    return OpaqueQuery(text, _columns(plan), tuple(words.functions), tuple(words.accumulations))


def _columns(plan: Plan) -> tuple[str, ...]:
    match plan:
        case Slice(input=inner) | Distinct(input=inner) | Graph(name=NamedNode(), input=inner):
            return _columns(inner)
        case Project(variables=names):
            return names
        case _:
            return visible(plan)


def _braces(text: str) -> str:
    return f"{{ {text} }}"


def _united(groups: Sequence[str]) -> str:
    """The union of groups, written with their braces."""
    if len(groups) <= _MOST_UNITED:
        return " UNION ".join(groups) or _NOTHING
    half = len(groups) // 2
    return f"{_braces(_united(groups[:half]))} UNION {_braces(_united(groups[half:]))}"


@dataclass(frozen=True, slots=True)
class _Here:
    """The place of an expression in the text of a plan."""

    text: _Text
    graph: NamedNode | None
    input: Plan

    @property
    def scope(self) -> tuple[str, ...]:
        return visible(self.input)

    @property
    def identity(self) -> tuple[str, ...]:
        return self.text.identity(self.input)

    def variable(self, name: str) -> str:
        return self.text.variable(name)

    def exists(self, node: Exists) -> str:
        inner = self.text.given(node.pattern, self.graph, variables(self.input))
        if self.graph is not None:
            inner = f"GRAPH {self.graph} {_braces(inner)}"
        return f"{'NOT ' if node.negated else ''}EXISTS {_braces(inner)}"


class _Text:
    """The writer: `_pattern` gives what stands between the braces of a group."""

    def __init__(
        self, plan: Plan, words: Words, windows: Windows | None, named_graphs: Sequence[NamedNode] | None
    ) -> None:
        self._words = words
        self._windows = windows
        self._named_graphs = named_graphs
        self._computed = {node.variable for node in walk_plan(plan) if isinstance(node, Extend)}
        self._given: frozenset[str] = frozenset()
        self._written: dict[str, str] = {}
        self._outermost = True
        self._numbers = count()
        self._prefix = "hidden"
        names = names_in(plan)
        while any(name.startswith(self._prefix) for name in names):
            self._prefix += "_"

    def variable(self, name: str) -> str:
        """A variable as it is written at this place."""
        written = self._written.get(name)
        if written is None:
            kept = self._outermost and not name.startswith("_:")
            written = self._written[name] = f"?{name}" if kept else f"?{self._prefix}{next(self._numbers)}"
        return written

    @contextmanager
    def _inside(self, columns: Iterable[str]) -> Iterator[None]:
        """Within a sub-select, which shares `columns` with the outside and nothing else.

        Oxigraph pushes filters into a sub-select and would take a variable that is local there for one outside of the
        same name, so for Oxigraph local variables are renamed.
        """
        if not self._words.opaque:
            yield
            return
        outside = self._written, self._outermost
        self._written, self._outermost = {name: self.variable(name) for name in columns}, False
        yield
        self._written, self._outermost = outside

    def _new_name(self) -> str:
        """A hidden name that nothing else has."""
        return f"_:new {next(self._numbers)}"

    def _fresh(self) -> str:
        return f"?{self._prefix}{next(self._numbers)}"

    def identity(self, plan: Plan) -> tuple[str, ...]:
        """The visible variables that patterns bind: a draw belongs to them, whatever else was computed beside it."""
        return tuple(name for name in visible(plan) if name not in self._computed)

    def given(self, plan: Plan, graph: NamedNode | None, names: Iterable[str]) -> str:
        """The pattern of an EXISTS, where variables may have values from outside."""
        before, self._given = self._given, self._given.union(names)
        text = complete(self._pattern(plan, graph))
        self._given = before
        return text

    def _node(self, node: Node) -> str:
        return self.variable(node.name) if isinstance(node, Var) else self._words.term(node)

    def query(self, plan: Plan) -> str:
        match plan:
            case Slice() | Distinct() | Project() | OrderBy():
                return complete(self._select(plan, None, outermost=True))
            case _:
                return complete(self._select(Project(plan, _columns(plan)), None, outermost=True))

    def _pattern(self, plan: Plan, graph: NamedNode | None) -> Calling[str]:
        """What stands between the braces of a group. As in all of the methods it calls, `yield` makes the call."""
        match plan:
            case Unit():
                return ""
            case Triples(patterns=patterns) if len(patterns) > _MOST_JOINED and self._words.opaque:
                return (yield self._join(tuple(Triples((each,)) for each in patterns), graph))
            case Triples():
                return self._triples(plan)
            case PathPattern():
                return self._path(plan, graph)
            case Values():
                return self._values(plan)
            case Join(inputs=inputs):
                return (yield self._join(inputs, graph))
            case Union(inputs=inputs):
                groups = []
                for each in inputs:
                    groups.append((yield self._group(each, graph)))
                return _united(groups)
            case LeftJoin(left=left, right=right, condition=condition):
                written = self._left_join(left, right, condition, graph)
                return (yield self._fenced(plan, Join((left, right)), condition, written))
            case Minus(left=left, right=right):
                if not set(variables(left)) & set(variables(right)):  # Oxigraph counts what an EXISTS has from outside
                    return (yield self._pattern(left, graph))
                kept = yield self._group(left, graph)
                return f"{kept} MINUS {yield self._group(right, graph)}"
            case Filter(input=inner, condition=condition):
                return (yield self._fenced(plan, inner, condition, self._filtered(plan, graph)))
            case Extend(input=inner, expression=expression):
                return (yield self._fenced(plan, inner, expression, self._extended(plan, graph)))
            case Group():
                return (yield self._grouping(plan, graph))
            case Slice() | Distinct() | Project():
                return (yield self._select(plan, graph))
            case OrderBy(input=inner) | Static(input=inner):  # an order inside of a pattern is lost in any case
                return (yield self._pattern(inner, graph))
            case Graph(name=NamedNode() as iri, input=inner):
                return f"GRAPH {iri} {yield self._group(inner, iri)}"
            case Graph(name=Var() as name, input=inner):
                return (yield self._any_graph(name, inner, graph))
            case Stream():
                return (yield self._stream(plan))
            case Service():
                return (yield self._service(plan, graph))
            case Following():
                raise NotExpressible("the order of events in time (SEQ, EQUALS) is not expressible in SPARQL")
            case _:
                raise NotExpressible(f"{type(plan).__name__} is not expressible in SPARQL")

    def _group(self, plan: Plan, graph: NamedNode | None) -> Calling[str]:
        return _braces((yield self._pattern(plan, graph)))

    def _fenced(self, plan: Plan, inner: Plan, expression: Expression | None, written: Calling[str]) -> Calling[str]:
        """A sub-select around an expression over `inner` that reads what may be unbound there.

        Oxigraph hands the bindings of one side of a join to the other, and would show them to the expression as well.
        """
        seen = frozenset() if expression is None else reads(expression)
        if not self._words.opaque or seen <= certain(inner):
            return (yield written)
        return (yield self._apart((*variables(plan), *sorted(seen & self._given)), written))

    def _apart(self, names: Iterable[str], written: Calling[str]) -> Calling[str]:
        """A sub-select that shares these variables with the outside."""
        columns = tuple(dict.fromkeys(names))
        selected = " ".join(map(self.variable, columns)) or f"(1 AS {self._fresh()})"
        with self._inside(columns):
            return f"SELECT {selected} WHERE {_braces((yield written))}"

    def _join(self, inputs: tuple[Plan, ...], graph: NamedNode | None) -> Calling[str]:
        groups = []
        if len(inputs) <= _MOST_JOINED or not self._words.opaque:
            for each in inputs:
                groups.append((yield self._group(each, graph)))
            return " ".join(groups)
        size = max(_MOST_JOINED, -(-len(inputs) // _MOST_JOINED))
        for at in range(0, len(inputs), size):
            groups.append((yield self._joined_apart(inputs[at : at + size], graph)))
        return " ".join(groups)

    def _joined_apart(self, inputs: tuple[Plan, ...], graph: NamedNode | None) -> Calling[str]:
        """Some inputs of a join in a sub-select, so that Oxigraph orders them by themselves."""
        together = Join(inputs)
        given = sorted(mentioned(together) & self._given)
        return _braces((yield self._apart((*variables(together), *given), self._join(inputs, graph))))

    def _left_join(
        self, left: Plan, right: Plan, condition: Expression | None, graph: NamedNode | None
    ) -> Calling[str]:
        filters = "" if condition is None else self._filters(condition, Join((left, right)), graph)
        kept = yield self._group(left, graph)
        return f"{kept} OPTIONAL {_braces((yield self._group(right, graph)) + filters)}"

    def _extended(self, plan: Extend, graph: NamedNode | None) -> Calling[str]:
        value = self._words.value(plan.expression, _Here(self, graph, plan.input))
        return f"{yield self._group(plan.input, graph)} BIND({value} AS {self.variable(plan.variable)})"

    def _filtered(self, plan: Filter, graph: NamedNode | None) -> Calling[str]:
        return (yield self._group(plan.input, graph)) + self._filters(plan.condition, plan.input, graph)

    def _filters(self, condition: Expression, inner: Plan, graph: NamedNode | None) -> str:
        here = _Here(self, graph, inner)
        return "".join(f" FILTER({each})" for each in self._words.conditions(condition, here))

    def _triples(self, plan: Triples) -> str:
        if any(isinstance(each.subject, Literal) for each in plan.patterns):
            return _NOTHING
        return " ".join(
            f"{self._node(each.subject)} {self._node(each.predicate)} {self._node(each.object)} ."
            for each in plan.patterns
        )

    def _path(self, plan: PathPattern, graph: NamedNode | None) -> str:
        walked = self._walked(plan, graph)
        terms = [node for node in (plan.subject, plan.object) if not isinstance(node, Var)]
        ways = ways_to_stay(plan.path) if terms and terms[0] == terms[-1] else 0
        if not ways or not self._words.opaque:
            return walked
        bound = [self.variable(node.name) for node in (plan.subject, plan.object) if isinstance(node, Var)]
        return _united([_braces(walked)] + [_braces(self._staying(bound, terms[0])) for _ in range(ways)])

    def _staying(self, bound: list[str], term: Term) -> str:
        """The solution of a path of length zero at a term that the graph does not have: Oxigraph has none there."""
        named, one, other = self._words.term(term), self._fresh(), self._fresh()
        edges = [] if isinstance(term, Literal) else [_braces(f"{named} {one} {other}")]
        edges.append(_braces(f"{one} {other} {named}"))
        values = "".join(f"VALUES {variable} {_braces(named)} " for variable in bound)
        return f"{values}FILTER(NOT EXISTS {_braces(' UNION '.join(edges))})"

    def _walked(self, plan: PathPattern, graph: NamedNode | None) -> str:
        """A path in patterns, as §18.2.2.3 has it: engines differ in how often they count what `|` and `!` match."""
        subject, value = plan.subject, plan.object
        match plan.path:
            case Link(iri=iri):
                return self._triples(Triples((Triple(subject, iri, value),)))
            case Inverse(path=inner):
                return self._walked(PathPattern(value, inner, subject), graph)
            case Choice(paths=paths):
                return self._either((PathPattern(subject, each, value) for each in paths), graph)
            case Steps(paths=paths):
                between = [Var(self._new_name()) for _ in paths[1:]]
                ends = zip((subject, *between), paths, (*between, value), strict=True)
                return " ".join(_braces(self._walked(PathPattern(*each), graph)) for each in ends)
            case Negated(forward=forward, backward=backward) if backward:
                back = PathPattern(value, Negated(backward, ()), subject)
                ahead = (PathPattern(subject, Negated(forward, ()), value),) if forward else ()
                return self._either((*ahead, back), graph)
            case Negated(forward=forward):
                predicate = Var(self._new_name())
                others = "".join(f" FILTER({self.variable(predicate.name)} != {iri})" for iri in forward)
                return self._triples(Triples((Triple(subject, predicate, value),))) + others
            case Repeat() as path:
                return self._repeated(subject, path, value)

    def _repeated(self, subject: Node, path: Repeat, value: Node) -> str:
        text = f"{self._node(subject)} {path_text(path)} {self._node(value)} ."
        if isinstance(subject, Literal):  # no parser takes one as a subject, so walk the path backwards
            other = self._node(value) if isinstance(value, Var) else self._fresh()
            text = f"{other} ^({path_text(path)}) {self._node(subject)} ."
            if not isinstance(value, Var):
                text += f" FILTER(SAMETERM({other}, {self._node(value)}))"
        return text

    def _either(self, plans: Iterable[PathPattern], graph: NamedNode | None) -> str:
        return _united([_braces(self._walked(each, graph)) for each in plans])

    def _values(self, plan: Values) -> str:
        written = [self.variable(name) for name in plan.variables]
        blank = {index for row in plan.rows for index, term in enumerate(row) if isinstance(term, BlankNode)}
        selected = list(written)
        if blank and self._words.blank is not None:  # VALUES has no blank nodes: write labels, make nodes of them
            for index in blank:
                written[index] = self._fresh()
                selected[index] = f"({self._words.blank}({written[index]}) AS {selected[index]})"
        rows = " ".join(
            "(" + " ".join("UNDEF" if term is None else self._words.term(term) for term in row) + ")"
            for row in plan.rows
        )
        table = f"VALUES ({' '.join(written)}) {_braces(rows)}"
        return f"SELECT {' '.join(selected)} WHERE {_braces(table)}" if blank else table

    def _grouping(self, plan: Group, graph: NamedNode | None) -> Calling[str]:
        inner = plan.input
        if any(node.argument is None and node.distinct for _, node in plan.aggregates):
            inner = Project(
                inner, tuple(dict.fromkeys((*visible(inner), *plan.keys)))
            )  # COUNT(DISTINCT *) sees no more
        keys = [self.variable(name) for name in plan.keys]
        names = [self.variable(name) for name, _ in plan.aggregates]
        with self._inside(plan.keys):
            body = yield self._group(inner, graph)
            here = _Here(self, graph, plan.input)
            computed = [self._words.aggregate(node, here) for _, node in plan.aggregates] or ["COUNT(*)"]
        named = (f"({value} AS {name})" for value, name in zip(computed, names or [self._fresh()], strict=True))
        by = f" GROUP BY {' '.join(keys)}" if keys else ""
        return f"SELECT {' '.join([*keys, *named])} WHERE {body}{by}"

    def _select(self, plan: Plan, graph: NamedNode | None, *, outermost: bool = False) -> Calling[str]:
        """One SELECT for Slice, Distinct, Project and OrderBy, as far as they nest in the order SPARQL gives them."""
        columns = _columns(plan)
        selected = " ".join(map(self.variable, columns)) or f"(1 AS {self._fresh()})"
        distinct = order = limits = ""
        if isinstance(plan, Slice):
            limits = f" OFFSET {plan.offset}" if plan.offset else ""
            limits += "" if plan.limit is None else f" LIMIT {plan.limit}"
            plan = plan.input
        if isinstance(plan, Distinct):
            distinct, plan = "DISTINCT ", plan.input
        if isinstance(plan, Project):
            plan = plan.input
        if self._words.opaque and (limits or (outermost and isinstance(plan, OrderBy))):
            raise NotExpressible("the order of exact values is not one that a SPARQL engine knows")
        with nullcontext() if outermost else self._inside(columns):
            if isinstance(plan, OrderBy):
                if limits or outermost:
                    order = " ORDER BY" + "".join(self._order_key(key, plan.input, graph) for key in plan.keys)
                plan = plan.input
            return f"SELECT {distinct}{selected} WHERE {yield self._group(plan, graph)}{order}{limits}"

    def _order_key(self, key: tuple[Expression, bool], inner: Plan, graph: NamedNode | None) -> str:
        expression, descending = key
        return f" {'DESC' if descending else 'ASC'}({self._words.value(expression, _Here(self, graph, inner))})"

    def _any_graph(self, name: Var, inner: Plan, graph: NamedNode | None) -> Calling[str]:
        variable = self.variable(name.name)
        if self._named_graphs is None:
            return f"GRAPH {variable} {yield self._group(inner, graph)}"
        if meets_every_graph(inner, name.name):
            listed = " ".join(map(str, self._named_graphs))
            return f"VALUES {variable} {_braces(listed)} GRAPH {variable} {yield self._group(inner, graph)}"
        return (yield self._each(name, [(iri, iri) for iri in self._named_graphs], inner))

    def _stream(self, plan: Stream) -> Calling[str]:
        if plan.at is not None:
            raise NotExpressible(f"AT ?{plan.at} asks for the time of stream elements, which SPARQL does not know")
        if any(isinstance(source.window, Count) and source.window.by for source in plan.sources):
            raise NotExpressible("a window of solutions (PARTITION BY) is not a graph")
        if self._windows is None:
            raise NotExpressible("a STREAM pattern needs the graphs that stand for its windows")
        graphs = self._windows(plan)
        stream = plan.sources[0].stream if plan.sources else None
        if isinstance(stream, Var):
            return (yield self._each(stream, [(iri, graph) for iri, graph in graphs if iri is not None], plan.input))
        groups = []
        for _, graph in graphs:
            groups.append(f"GRAPH {graph} {yield self._group(plan.input, graph)}")
        return " ".join(groups) or _NOTHING

    def _each(self, name: Var, graphs: Sequence[tuple[NamedNode, NamedNode]], inner: Plan) -> Calling[str]:
        """The union over graphs, each with the IRI that the variable has there."""
        groups = []
        for iri, graph in graphs:
            inside = _braces(f"GRAPH {graph} {yield self._group(inner, graph)}")
            groups.append(_braces(f"VALUES {self.variable(name.name)} {_braces(str(iri))} {inside}"))
        return _united(groups)

    def _service(self, plan: Service, graph: NamedNode | None) -> Calling[str]:
        if self._words.opaque:
            raise NotExpressible("another endpoint does not know our functions")
        return f"SERVICE {'SILENT ' if plan.silent else ''}{plan.endpoint} {yield self._group(plan.input, graph)}"
