"""From the syntax tree to the plan: SPARQL 1.1 §18.2, with windows; what cannot run as written is refused here."""

from __future__ import annotations

from dataclasses import replace

from pyoxigraph import NamedNode

from cqels.lang import syntax
from cqels.lang.expressions import Aggregate, Call, Constant, Exists, Expression, Var, children, transform, walk
from cqels.model.errors import QueryError, Span
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query, Source, walk_plan
from cqels.plan.functions import arity, supported
from cqels.plan.scope import variables, visible

EMISSIONS = ("istream", "dstream", "rstream", "changes", "snapshot")
POLICIES = ("cqels", "window-close", "cqels-1")
_CLOSING = ("c-sparql", "sparqlstream", "rsp-ql")


def bind(query: syntax.Query, *, name: str | None = None, emit: str | None = None, policy: str | None = None) -> Query:
    """The plan of a query, as written: no rule has changed it yet."""
    return Binder(query).query(name, emit, policy)


def bind_group(group: syntax.Group) -> Plan:
    """The plan of a group that reads only the dataset (the WHERE of an update)."""
    binder = Binder(None)
    plan = binder.group(group)
    stream = next((node for node in walk_plan(plan) if isinstance(node, algebra.Stream)), None)
    if stream is not None:
        raise QueryError("an update cannot read a stream", span=stream.sources[0].span)
    return plan


class Binder:
    """Binds one query; it remembers where it stands (inside a STREAM, a GRAPH, a SERVICE) and counts fresh names."""

    def __init__(self, query: syntax.Query | None) -> None:
        self._query = query
        self._dialect = query.dialect if query is not None else "cqels-ql"
        self._streams = query.dataset.streams if query is not None else ()
        self._inside: tuple[str, ...] = ()
        self._fresh = 0
        self._windows_used: set[NamedNode] = set()
        self._warnings: list[QueryError] = []

    # ------------------------------------------------------------ the whole query

    def query(self, name: str | None, emit: str | None, policy: str | None) -> Query:
        query = self._query
        assert query is not None
        form = query.form
        if isinstance(form, syntax.Describe):
            raise QueryError(
                "DESCRIBE has no continuous meaning",
                span=form.span,
                hint="say which triples you want with CONSTRUCT",
            )
        template: tuple[algebra.Triple, ...] = ()
        columns: tuple[str, ...]
        match form:
            case syntax.Select():
                kind, plan = "select", self.select(form, outermost=True)
                columns = variables(plan)
            case syntax.Construct():
                kind = "construct"
                plan = self._solutions(form.where, form.modifier, form.values)
                template = self._template(form.template, plan)
                columns = ("subject", "predicate", "object")
            case syntax.Ask():
                kind, columns = "ask", ("answer",)
                plan = self._solutions(form.where, form.modifier, form.values)
        self._every_window_used()
        self._check_calls(plan)
        return Query(
            form=kind,
            plan=plan,
            variables=columns,
            emit=self._emission(emit, form),
            policy=self._policy(policy),
            dialect=query.dialect,
            name=name or self._name(),
            template=template,
            default_graphs=query.dataset.default or None,
            named_graphs=query.dataset.named or (() if query.dataset.default else None),
            prefixes=query.prefixes,
            warnings=tuple(self._warnings),
        )

    def _name(self) -> str | None:
        registration = self._query.registration if self._query else None
        if registration is None:
            return None
        return registration.name.value if isinstance(registration.name, NamedNode) else registration.name

    def _emission(self, emit: str | None, form: syntax.Select | syntax.Construct | syntax.Ask) -> str:
        if emit is not None:
            if emit not in EMISSIONS:
                raise QueryError(f"there is no emission {emit!r}", hint=f"the emissions are {', '.join(EMISSIONS)}")
            return emit
        registration = self._query.registration if self._query else None
        if registration is not None and registration.kind in ("istream", "dstream", "rstream"):
            return registration.kind
        if self._dialect in _CLOSING:
            return "rstream"
        if isinstance(form, syntax.Select) and (form.modifier.order_by or form.modifier.limit is not None):
            return "snapshot"
        return "istream"

    def _policy(self, policy: str | None) -> str:
        if policy is not None and policy not in POLICIES:
            raise QueryError(f"there is no policy {policy!r}", hint=f"the policies are {', '.join(POLICIES)}")
        return policy or ("window-close" if self._dialect in _CLOSING else "cqels")

    def _template(self, patterns: tuple[syntax.TriplePattern, ...], plan: Plan) -> tuple[algebra.Triple, ...]:
        known = set(visible(plan))
        triples = []
        for pattern in patterns:
            predicate = pattern.predicate.iri if isinstance(pattern.predicate, syntax.Link) else pattern.predicate
            assert isinstance(predicate, Var | NamedNode)
            for node in (pattern.subject, predicate, pattern.object):
                if isinstance(node, Var) and node.name not in known:
                    message = f"{node} is in the template but no pattern binds it"
                    self._warn(message, node.span, _known_variables(known))
            triples.append(algebra.Triple(pattern.subject, predicate, pattern.object))
        return tuple(triples)

    def _every_window_used(self) -> None:
        for clause in self._streams:
            if clause.name is not None and clause.name not in self._windows_used:
                raise QueryError(
                    f"window {clause.name} is declared and never used",
                    span=clause.span,
                    hint="read it with WINDOW { … }, or remove it",
                )
            if self._dialect == "c-sparql" and clause.named and clause.stream not in self._windows_used:
                raise QueryError(
                    f"the named stream {clause.stream} is never used",
                    span=clause.span,
                    hint="read it with GRAPH <stream> { … }, or leave NAMED out",
                )

    def _check_calls(self, plan: Plan) -> None:
        for node in walk_plan(plan):
            for expression in algebra.expressions_of(node):
                for part in walk(expression):
                    if isinstance(part, Call):
                        _check_call(part)

    # ------------------------------------------------------------ SELECT, grouping, modifiers

    def select(self, form: syntax.Select, *, outermost: bool = False) -> Plan:
        plan = self.where(form.where) if outermost else self.group(form.where)
        items = form.items
        modifier = form.modifier
        grouped = self._is_grouped(form)
        if items is None:
            if grouped:
                raise QueryError(
                    "SELECT * cannot be grouped",
                    span=form.span,
                    hint="name the variables and aggregates that each group gives",
                )
            names = visible(plan)
            aliases: dict[str, Expression] = {}
        else:
            names, aliases = self._items(items, plan, grouped=grouped)
        order = [(self.expression(each.expression), each.descending) for each in modifier.order_by]
        having = [self.expression(each) for each in modifier.having]
        if grouped:
            plan, aliases, having, order = self._grouped(form, plan, aliases, having, order)
        else:
            for each in (*aliases.values(), *(key for key, _ in order)):
                _no_aggregate(each)
        for condition in having:
            plan = algebra.Filter(plan, condition)
        if form.values is not None:
            plan = _joined(plan, self._values(form.values))
        for alias, expression in aliases.items():
            plan = algebra.Extend(plan, alias, expression)
        return self._modified(plan, names, order, form.distinct or form.reduced, modifier)

    def _modified(
        self,
        plan: Plan,
        names: tuple[str, ...],
        order: list[tuple[Expression, bool]],
        distinct: bool,
        modifier: syntax.Modifier,
    ) -> Plan:
        if order:
            plan = algebra.OrderBy(plan, tuple(order), names)
        plan = algebra.Project(plan, names)
        if distinct:
            plan = algebra.Distinct(plan)
        if modifier.limit is not None or modifier.offset is not None:
            plan = algebra.Slice(plan, modifier.offset or 0, modifier.limit)
        return plan

    def _is_grouped(self, form: syntax.Select) -> bool:
        expressions = [item.expression for item in form.items or ()]
        expressions += [*form.modifier.having, *(order.expression for order in form.modifier.order_by)]
        return (
            bool(form.modifier.group_by)
            or bool(form.modifier.having)
            or any(isinstance(part, Aggregate) for expression in expressions for part in walk(expression))
        )

    def _items(
        self, items: tuple[syntax.Item, ...], plan: Plan, *, grouped: bool
    ) -> tuple[tuple[str, ...], dict[str, Expression]]:
        """The columns in order, and the expressions of those that are computed."""
        known = set(visible(plan))
        names: list[str] = []
        aliases: dict[str, Expression] = {}
        for item in items:
            if item.name is None:
                assert isinstance(item.expression, Var)
                name = item.expression.name
                if name not in known and name not in aliases and not grouped:
                    self._warn(f"?{name} is selected but no pattern binds it", item.span, _known_variables(known))
            else:
                name = item.name.name
                if name in known or name in names:
                    raise QueryError(f"?{name} has a value already", span=item.name.span, hint="choose another name")
                aliases[name] = self.expression(item.expression)
            names.append(name)
        return tuple(dict.fromkeys(names)), aliases

    def _warn(self, message: str, span: Span | None, hint: str | None) -> None:
        self._warnings.append(QueryError(message, span=span, hint=hint))

    def _grouped(
        self,
        form: syntax.Select,
        plan: Plan,
        aliases: dict[str, Expression],
        having: list[Expression],
        order: list[tuple[Expression, bool]],
    ) -> tuple[Plan, dict[str, Expression], list[Expression], list[tuple[Expression, bool]]]:
        keys: list[str] = []
        known = set(visible(plan))
        for item in form.modifier.group_by:
            expression = self.expression(item.expression)
            _no_aggregate(expression)
            if item.name is not None:
                if item.name.name in known:
                    raise QueryError(f"{item.name} has a value already", span=item.name.span)
                plan = algebra.Extend(plan, item.name.name, expression)
                keys.append(item.name.name)
            elif isinstance(expression, Var):
                # the papers group by a name that SELECT computes: the computation moves below the grouping
                given = aliases.get(expression.name)
                if expression.name not in known and given is not None and not _has_aggregate(given):
                    plan = algebra.Extend(plan, expression.name, given)
                    del aliases[expression.name]
                keys.append(expression.name)
            else:
                keys.append(self._name_for("key"))
                plan = algebra.Extend(plan, keys[-1], expression)
        aggregates: dict[Aggregate, str] = {}

        def folded(node: Expression) -> Expression:
            if not isinstance(node, Aggregate):
                return node
            if node.argument is not None:
                _no_aggregate(node.argument, "an aggregate cannot stand inside another")
            return Var(aggregates.setdefault(node, self._name_for("aggregate")), node.span)

        given_before = dict(aliases)
        for alias, expression in given_before.items():
            # an aggregate that has a name needs no other, unless VALUES gives that name values of its own
            taken = form.values is not None and any(each.name == alias for each in form.values.variables)
            if isinstance(expression, Aggregate) and expression not in aggregates and not taken:
                folded(expression)
                aggregates[expression] = alias
                del aliases[alias]

        def named(node: Expression) -> Expression:
            # HAVING may speak of what SELECT computes, as the papers do
            if isinstance(node, Var) and node.name in given_before and node.name not in known:
                return given_before[node.name]
            return node

        self._only_keys(form, keys, given_before)
        having = [transform(transform(condition, named), folded) for condition in having]
        aliases = {name: transform(expression, folded) for name, expression in aliases.items()}
        order = [(transform(expression, folded), descending) for expression, descending in order]
        grouped = algebra.Group(
            plan, tuple(dict.fromkeys(keys)), tuple((name, aggregate) for aggregate, name in aggregates.items())
        )
        return grouped, aliases, having, order

    def _only_keys(self, form: syntax.Select, keys: list[str], aliases: dict[str, Expression]) -> None:
        """Outside an aggregate a grouped SELECT may use the keys and what it has named before."""
        allowed = set(keys)
        for item in form.items or ():
            if item.name is None or item.name.name in keys:
                _grouped_only(item.expression if item.name is None else item.name, allowed)
            else:
                _grouped_only(aliases[item.name.name], allowed)
                allowed.add(item.name.name)

    def _solutions(self, where: syntax.Group, modifier: syntax.Modifier, values: syntax.Values | None) -> Plan:
        """The solutions that a CONSTRUCT or an ASK is made from: every visible variable."""
        if modifier.group_by or modifier.having:
            raise QueryError("GROUP BY needs SELECT", span=where.span, hint="group in a sub-select")
        plan = self.where(where)
        order = [(self.expression(each.expression), each.descending) for each in modifier.order_by]
        for key, _ in order:
            _no_aggregate(key)
        if values is not None:
            plan = _joined(plan, self._values(values))
        return self._modified(plan, visible(plan), order, False, modifier)

    # ------------------------------------------------------------ groups

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
        for condition in filters:
            plan = algebra.Filter(plan, condition)
        return plan

    def _unfiltered(self, group: syntax.Group) -> tuple[Plan, list[Expression]]:
        plan: Plan = algebra.Unit()
        filters: list[Expression] = []
        for part in group.parts:
            match part:
                case syntax.Filter(condition=condition):
                    bound = self.expression(condition)
                    _no_aggregate(bound, "an aggregate cannot stand in a FILTER", hint="use HAVING after GROUP BY")
                    filters.append(bound)
                case syntax.Optional(pattern=inner):
                    right, conditions = self._unfiltered(inner)
                    plan = algebra.LeftJoin(plan, right, _conjunction(conditions))
                case syntax.Minus(pattern=inner):
                    plan = algebra.Minus(plan, self.group(inner))
                case syntax.Bind(expression=expression, variable=variable):
                    if variable.name in visible(plan):
                        raise QueryError(f"{variable} has a value already in this group", span=variable.span)
                    bound = self.expression(expression)
                    _no_aggregate(bound, "an aggregate cannot stand in a BIND")
                    plan = algebra.Extend(plan, variable.name, bound)
                case _:
                    plan = _joined(plan, self._part(part))
        return plan, filters

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
        plan: Plan = algebra.Unit()
        run: list[algebra.Triple] = []
        for pattern in patterns:
            match pattern.predicate:
                case Var() as predicate:
                    run.append(algebra.Triple(pattern.subject, predicate, pattern.object))
                case syntax.Link(iri=iri):
                    run.append(algebra.Triple(pattern.subject, iri, pattern.object))
                case path:
                    if run:
                        plan, run = _joined(plan, algebra.Triples(tuple(run))), []
                    plan = _joined(plan, algebra.PathPattern(pattern.subject, path, pattern.object))
        return _joined(plan, algebra.Triples(tuple(run))) if run else plan

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
        inner = self._within("STREAM", part.pattern)
        window = part.window or syntax.Now()
        names = visible(inner)
        if isinstance(window, syntax.Count):
            for name in window.by:
                if name not in names:
                    raise QueryError(
                        f"the window is partitioned by ?{name}, which its pattern does not bind",
                        span=part.span,
                        hint=_known_variables(set(names)),
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
                branches.append(_joined(branch, algebra.Values((part.name.name,), ((name,),))))
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
        source = Source(clause.stream, clause.window, clause.stream_span)
        return algebra.Stream((source,), self._within("STREAM", part.pattern))

    def _service(self, part: syntax.ServicePattern) -> Plan:
        if isinstance(part.name, Var):
            raise QueryError(
                "SERVICE needs the IRI of an endpoint, not a variable",
                span=part.name_span,
                hint="write one SERVICE <endpoint> for each endpoint and combine them with UNION",
            )
        return algebra.Service(part.name, self._within("SERVICE", part.pattern), part.silent)

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

    # ------------------------------------------------------------ expressions

    def expression(self, expression: Expression) -> Expression:
        """Binds the patterns inside EXISTS; everything else is bound already."""

        def bound(node: Expression) -> Expression:
            if isinstance(node, Exists):
                return replace(node, pattern=self.group(node.pattern))
            return node

        return transform(expression, bound)

    def _name_for(self, what: str) -> str:
        self._fresh += 1
        return f"_:.{what}{self._fresh}"


_DECLARE = "declare it before WHERE: FROM NAMED WINDOW <name> ON <stream> [RANGE PT10S STEP PT5S]"


def _joined(left: Plan, right: Plan) -> Plan:
    if isinstance(left, algebra.Unit):
        return right
    return algebra.Join((left, right))


def _events(plan: Plan, span: Span) -> Plan:
    return algebra.Stream((Source(None, syntax.All(), span),), plan)


def _check_call(call: Call) -> None:
    if not supported(call.name):
        raise QueryError(
            f"there is no function <{call.name}>",
            span=call.span,
            hint="besides SPARQL's own there are the casts of xsd: and cq:now()",
        )
    low, high = arity(call.name)
    if not (low <= len(call.args) and (high is None or len(call.args) <= high)):
        raise QueryError(f"the function takes {low} argument(s), not {len(call.args)}", span=call.span)


def _conjunction(conditions: list[Expression]) -> Expression | None:
    if not conditions:
        return None
    result = conditions[0]
    for condition in conditions[1:]:
        result = Call("AND", (result, condition))
    return result


def _has_aggregate(expression: Expression) -> bool:
    return any(isinstance(part, Aggregate) for part in walk(expression))


def _no_aggregate(
    expression: Expression, message: str = "an aggregate cannot stand here", hint: str | None = None
) -> None:
    for part in walk(expression):
        if isinstance(part, Aggregate):
            raise QueryError(message, span=part.span, hint=hint)


def _has_sequence(group: syntax.Group) -> bool:
    return any(
        isinstance(part, syntax.Sequence)
        or (isinstance(part, syntax.Group) and _has_sequence(part))
        or (isinstance(part, syntax.SubSelect) and _has_sequence(part.query.where))
        or (isinstance(part, syntax.Optional | syntax.Minus) and _has_sequence(part.pattern))
        or (isinstance(part, syntax.Union) and any(map(_has_sequence, part.patterns)))
        for part in group.parts
    )


def _grouped_only(expression: Expression, allowed: set[str]) -> None:
    match expression:
        case Var(name=name) if name not in allowed:
            raise QueryError(
                f"?{name} is neither grouped by nor inside an aggregate",
                span=expression.span,
                hint=f"add it to GROUP BY, or take for example SAMPLE(?{name})",
            )
        case Exists() | Constant() | Aggregate():
            return
        case _:
            for child in children(expression):
                _grouped_only(child, allowed)


def _known_variables(known: set[str]) -> str | None:
    return f"the patterns bind {', '.join('?' + name for name in sorted(known))}" if known else None
