"""The part of the binder that gives patterns their algebra: groups, graphs, windows, sequences."""

from __future__ import annotations

from dataclasses import replace
from itertools import dropwhile

from pyoxigraph import NamedNode

from cqels.lang import syntax
from cqels.lang.expressions import Exists, Expression, Var, junction, transform
from cqels.model.errors import QueryError, Span
from cqels.model.limits import MOST_WINDOWS
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Source, walk_plan
from cqels.plan.grouping import no_aggregate
from cqels.plan.scope import variables, visible

_DECLARE = "declare it before WHERE: FROM NAMED WINDOW <name> ON <stream> [RANGE PT10S STEP PT5S]"


class PatternBinder:
    """Binds groups; it remembers where it stands (inside a STREAM, a GRAPH, a SERVICE) and which windows were read."""

    def __init__(self, query: syntax.Query | None) -> None:
        self._query = query
        self._dialect = query.dialect if query is not None else "cqels-ql"
        self._streams = query.dataset.streams if query is not None else ()
        self._inside: tuple[str, ...] = ()
        self._windows_used: set[NamedNode] = set()
        self._window_count = 0

    def select(self, form: syntax.Select) -> Plan:
        """A sub-select is bound by the binder that inherits this."""
        raise NotImplementedError

    def where(self, group: syntax.Group) -> Plan:
        """The outermost group: in the dialects that name streams before WHERE it reads their windows."""
        query = self._query
        assert query is not None
        merged = [
            clause
            for clause in self._streams
            if clause.name is None and not (clause.named and self._dialect == "c-sparql")
        ]
        if merged:
            sources = tuple(Source(each.stream, each.window or syntax.Now(), each.stream_span) for each in merged)
            return algebra.Stream(sources, self.group(group), None, query.dataset.default)
        if self._dialect == "ep-sparql" and not _has_sequence(group):
            return _events(self.group(group), group.span)
        return self.group(group)

    def group(self, group: syntax.Group) -> Plan:
        plan, filters = self._unfiltered(group)
        return algebra.Filter(plan, junction("AND", filters)) if filters else plan

    def _unfiltered(self, group: syntax.Group) -> tuple[Plan, list[Expression]]:
        plan: Plan = algebra.Unit()
        beside: list[Plan] = []
        filters: list[Expression] = []
        for part in group.parts:
            if isinstance(part, syntax.Optional | syntax.Minus | syntax.Bind):
                plan, beside = joined(plan, *beside), []
            match part:
                case syntax.Filter(condition=condition):
                    bound = self.expression(condition)
                    no_aggregate(bound, "an aggregate cannot stand in a FILTER", hint="use HAVING after GROUP BY")
                    filters.append(bound)
                case syntax.Optional(pattern=inner):
                    right, conditions = self._unfiltered(inner)
                    plan = algebra.LeftJoin(plan, right, junction("AND", conditions) if conditions else None)
                case syntax.Minus(pattern=inner):
                    plan = algebra.Minus(plan, self.group(inner))
                case syntax.Bind(expression=expression, variable=variable):
                    if variable.name in variables(plan):
                        raise QueryError(f"{variable} has a value already in this group", span=variable.span)
                    bound = self.expression(expression)
                    no_aggregate(bound, "an aggregate cannot stand in a BIND")
                    plan = algebra.Extend(plan, variable.name, bound)
                case _:
                    beside.append(self._part(part))
        return joined(plan, *beside), filters

    def _part(self, part: syntax.Pattern) -> Plan:
        match part:
            case syntax.Triples(patterns=patterns):
                return self._triples(patterns)
            case syntax.Group():
                return self.group(part)
            case syntax.Union(patterns=patterns):
                return algebra.Union(tuple(self.group(each) for each in patterns))
            case syntax.Values():
                return self._values(part)
            case syntax.SubSelect(query=query):
                return self.select(query)
            case syntax.GraphPattern():
                return self._graph(part)
            case syntax.StreamPattern():
                return self._stream(part)
            case syntax.WindowPattern():
                return self._window(part)
            case syntax.ServicePattern():
                return self._service(part)
            case syntax.Sequence():
                return self._sequence(part)
            case _:
                raise AssertionError(f"no pattern {part}")

    def _within(self, place: str, group: syntax.Group) -> Plan:
        self._inside += (place,)
        plan = self.group(group)
        self._inside = self._inside[:-1]
        return plan

    def _triples(self, patterns: tuple[syntax.TriplePattern, ...]) -> Plan:
        parts: list[Plan] = []
        run: list[algebra.Triple] = []
        for pattern in patterns:
            match pattern.predicate:
                case Var() as predicate:
                    run.append(algebra.Triple(pattern.subject, predicate, pattern.object))
                case syntax.Link(iri=iri):
                    run.append(algebra.Triple(pattern.subject, iri, pattern.object))
                case path:
                    if run:
                        parts.append(algebra.Triples(tuple(run)))
                        run = []
                    parts.append(algebra.PathPattern(pattern.subject, path, pattern.object))
        return joined(*parts, *([algebra.Triples(tuple(run))] if run else []))

    def _values(self, part: syntax.Values) -> Plan:
        names = tuple(variable.name for variable in part.variables)
        if len(set(names)) < len(names):
            raise QueryError("a variable stands twice in this VALUES", span=part.span)
        return algebra.Values(names, part.rows)

    def _graph(self, part: syntax.GraphPattern) -> Plan:
        if "STREAM" in self._inside:
            raise QueryError(
                "GRAPH cannot stand inside STREAM",
                span=part.name_span,
                hint="close the STREAM block first: what is outside is joined with it",
            )
        for clause in self._streams:
            if self._dialect == "c-sparql" and clause.named and clause.stream == part.name:
                self._windows_used.add(clause.stream)
                source = Source(clause.stream, clause.window or syntax.Now(), clause.stream_span)
                return algebra.Stream((source,), self._within("STREAM", part.pattern))
        return algebra.Graph(part.name, self._within("GRAPH", part.pattern))

    def _stream(self, part: syntax.StreamPattern) -> Plan:
        for place in ("STREAM", "SERVICE"):
            if place in self._inside:
                raise QueryError(f"STREAM cannot stand inside {place}", span=part.name_span)
        self._count_window(part.name_span)
        inner = self._within("STREAM", part.pattern)
        window = part.window or syntax.Now()
        names = visible(inner)
        if isinstance(window, syntax.Count):
            for name in window.by:
                if name not in names:
                    raise QueryError(
                        f"the window is partitioned by ?{name}, which its pattern does not bind",
                        span=part.span,
                        hint=known_variables(set(names)),
                    )
        if part.at is not None and part.at.name in names:
            raise QueryError(f"{part.at} has a value already in this block", span=part.at.span)
        source = Source(part.name, window, part.name_span)
        return algebra.Stream((source,), inner, part.at.name if part.at else None)

    def _window(self, part: syntax.WindowPattern) -> Plan:
        if "STREAM" in self._inside:
            raise QueryError("WINDOW cannot stand inside another window", span=part.name_span)
        declared = {clause.name: clause for clause in self._streams if clause.name is not None}
        if isinstance(part.name, Var):
            branches = []
            for name, clause in declared.items():
                branch = self._one_window(clause, part)
                branches.append(joined(branch, algebra.Values((part.name.name,), ((name,),))))
            if not branches:
                raise QueryError("the query declares no window", span=part.name_span, hint=_DECLARE)
            return branches[0] if len(branches) == 1 else algebra.Union(tuple(branches))
        if part.name not in declared:
            names = ", ".join(str(name) for name in declared)
            many = "one window" if len(declared) == 1 else f"{len(declared)} windows"
            raise QueryError(
                f"window {part.name} does not exist",
                span=part.name_span,
                hint=f"the query declares {many}, {names}" if declared else _DECLARE,
            )
        return self._one_window(declared[part.name], part)

    def _one_window(self, clause: syntax.StreamClause, part: syntax.WindowPattern) -> Plan:
        assert clause.name is not None
        assert clause.window is not None
        self._windows_used.add(clause.name)
        self._count_window(part.name_span)
        source = Source(clause.stream, clause.window, clause.stream_span)
        return algebra.Stream((source,), self._within("STREAM", part.pattern))

    def _count_window(self, span: Span) -> None:
        self._window_count += 1
        if self._window_count > MOST_WINDOWS:
            raise QueryError(
                f"the query reads more than {MOST_WINDOWS:,} windows",
                span=span,
                hint="read a window once, with a pattern that covers all cases",
            )

    def _service(self, part: syntax.ServicePattern) -> Plan:
        if isinstance(part.name, Var):
            raise QueryError(
                "SERVICE needs the IRI of an endpoint, not a variable",
                span=part.name_span,
                hint="write one SERVICE <endpoint> for each endpoint and combine them with UNION",
            )
        return algebra.Service(part.name, self._within("SERVICE", part.pattern), part.silent, part.name_span)

    def _sequence(self, part: syntax.Sequence) -> Plan:
        left = self._sequence(part.left) if isinstance(part.left, syntax.Sequence) else self._side(part.left)
        kind, optional = {
            "seq": ("seq", False),
            "optionalseq": ("seq", True),
            "equals": ("equals", False),
            "equalsoptional": ("equals", True),
        }[part.kind]
        return algebra.Sequence(left, self._side(part.right), kind, optional)

    def _side(self, group: syntax.Group) -> Plan:
        """One side of a SEQ. EP-SPARQL names no streams: there it reads every stream, as far back as it goes."""
        plan = self.group(group)
        if any(isinstance(node, algebra.Stream) for node in walk_plan(plan)) or "STREAM" in self._inside:
            return plan
        if self._dialect == "ep-sparql":
            return _events(plan, group.span)
        if self._streams:
            return plan  # the whole WHERE reads the windows that were named before it
        raise QueryError(
            "this side of the sequence reads no stream", span=group.span, hint="write STREAM <…> [RANGE …] { … } in it"
        )

    def expression(self, expression: Expression) -> Expression:
        """Binds the patterns inside EXISTS; everything else is bound already."""

        def bound(node: Expression) -> Expression:
            if isinstance(node, Exists):
                return replace(node, pattern=self.group(node.pattern))
            return node

        return transform(expression, bound)


def joined(*plans: Plan) -> Plan:
    """The join of plans. Empty groups before the others add nothing."""
    inputs = tuple(dropwhile(lambda each: isinstance(each, algebra.Unit), plans))
    if len(inputs) < 2:
        return inputs[0] if inputs else algebra.Unit()
    return algebra.Join(inputs)


def _events(plan: Plan, span: Span) -> Plan:
    return algebra.Stream((Source(None, syntax.All(), span),), plan)


def _has_sequence(group: syntax.Group) -> bool:
    return any(
        isinstance(part, syntax.Sequence)
        or (isinstance(part, syntax.Group) and _has_sequence(part))
        or (isinstance(part, syntax.SubSelect) and _has_sequence(part.query.where))
        or (isinstance(part, syntax.Optional | syntax.Minus) and _has_sequence(part.pattern))
        or (isinstance(part, syntax.Union) and any(map(_has_sequence, part.patterns)))
        for part in group.parts
    )


def known_variables(known: set[str]) -> str | None:
    return f"the patterns bind {', '.join('?' + name for name in sorted(known))}" if known else None
