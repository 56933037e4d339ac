"""From the syntax tree to the plan: SPARQL 1.1 §18.2, with windows; what cannot run as written is refused here."""

from __future__ import annotations

from pyoxigraph import NamedNode

from cqels.lang import syntax
from cqels.lang.expressions import Aggregate, Call, Expression, Var, junction, transform, walk
from cqels.model.errors import QueryError, Span
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query, walk_plan
from cqels.plan.bind_patterns import PatternBinder, joined, known_variables
from cqels.plan.functions import arity, supported
from cqels.plan.grouping import grouped_only, has_aggregate, no_aggregate
from cqels.plan.scope import variables, visible

EMISSIONS = ("istream", "dstream", "rstream", "changes", "snapshot")
POLICIES = ("cqels", "window-close", "cqels-1")
_CLOSING = ("c-sparql", "sparqlstream", "rsp-ql")


def bind(
    query: syntax.Query,
    *,
    name: str | None = None,
    emit: str | None = None,
    policy: str | None = None,
    lenient: bool = False,
) -> Query:
    """The plan of a query, as written: no rule has changed it yet.

    A variable that is selected, ordered or grouped by and bound nowhere is an error, or else a warning if `lenient`.
    """
    return Binder(query, lenient=lenient).query(name, emit, policy)


def bind_group(group: syntax.Group) -> Plan:
    """The plan of a group that reads only the dataset (the WHERE of an update)."""
    binder = Binder(None)
    plan = binder.group(group)
    stream = next((node for node in walk_plan(plan) if isinstance(node, algebra.Stream)), None)
    if stream is not None:
        raise QueryError("an update cannot read a stream", span=stream.sources[0].span)
    return plan


class Binder(PatternBinder):
    """Binds one query: its form, grouping and modifiers."""

    def __init__(self, query: syntax.Query | None, *, lenient: bool = False) -> None:
        super().__init__(query)
        self._lenient = lenient
        self._fresh = 0
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
            emit=self._emission(emit, self._policy(policy), form),
            policy=self._policy(policy),
            dialect=query.dialect,
            name=name or self._name(),
            template=template,
            default_graphs=query.dataset.default or None,
            graph_spans=query.dataset.spans,
            named_graphs=query.dataset.named or (() if query.dataset.default else None),
            prefixes=query.prefixes,
            warnings=tuple(self._warnings),
        )

    def _name(self) -> str | None:
        registration = self._query.registration if self._query else None
        if registration is None:
            return None
        return registration.name.value if isinstance(registration.name, NamedNode) else registration.name

    def _emission(self, emit: str | None, policy: str, form: syntax.Select | syntax.Construct | syntax.Ask) -> str:
        if emit is not None:
            if emit not in EMISSIONS:
                raise QueryError(f"there is no emission {emit!r}", hint=f"the emissions are {', '.join(EMISSIONS)}")
            return emit
        registration = self._query.registration if self._query else None
        if registration is not None and registration.kind in ("istream", "dstream", "rstream"):
            return registration.kind
        if policy == "window-close":
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
                    self._warn(message, node.span, known_variables(known))
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
            given = {variable.name for variable in form.values.variables} if form.values is not None else set()
            names, aliases = self._items(items, plan, given, grouped=grouped)
        order = [(self.expression(each.expression), each.descending) for each in modifier.order_by]
        self._bound_outside(form, plan, aliases, order)
        having = [self.expression(each) for each in modifier.having]
        if grouped:
            plan, aliases, having, order = self._grouped(form, plan, aliases, having, order)
        else:
            for each in (*aliases.values(), *(key for key, _ in order)):
                no_aggregate(each)
        if having:
            plan = algebra.Filter(plan, junction("AND", having))
        if form.values is not None:
            plan = joined(plan, self._values(form.values))
        for alias, expression in aliases.items():
            plan = algebra.Extend(plan, alias, expression)
        return self._modified(plan, names, order, form.distinct or form.reduced, modifier)

    def _bound_outside(
        self, form: syntax.Select, plan: Plan, aliases: dict[str, Expression], order: list[tuple[Expression, bool]]
    ) -> None:
        """What the solutions are grouped and ordered by may have a value."""
        known = {*visible(plan), *aliases, *(each.name for each in (form.values.variables if form.values else ()))}
        for item in form.modifier.group_by:
            self._bound(item.expression, known, "grouped by")
            known |= {item.name.name} if item.name is not None else set()
        for key, _ in order:
            self._bound(key, known, "ordered by")

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
        self, items: tuple[syntax.Item, ...], plan: Plan, given: set[str], *, grouped: bool
    ) -> tuple[tuple[str, ...], dict[str, Expression]]:
        """The columns in order, and the expressions of those that are computed."""
        known = set(visible(plan)) | given
        names: list[str] = []
        aliases: dict[str, Expression] = {}
        for item in items:
            if item.name is None:
                assert isinstance(item.expression, Var)
                name = item.expression.name
                if name not in aliases and not grouped:
                    self._bound(item.expression, known, "selected")
            else:
                name = item.name.name
                if name in known or name in names:
                    raise QueryError(f"?{name} has a value already", span=item.name.span, hint="choose another name")
                aliases[name] = self.expression(item.expression)
            names.append(name)
        return tuple(dict.fromkeys(names)), aliases

    def _bound(self, expression: Expression, known: set[str], how: str) -> None:
        """Every variable of an expression may have a value; those of EXISTS belong to its pattern."""
        for variable in walk(expression):
            if isinstance(variable, Var) and not variable.name.startswith("_:") and variable.name not in known:
                message = f"{variable} is {how} but no pattern binds it"
                if not self._lenient:
                    raise QueryError(message, span=variable.span, hint=_meant(variable.name, known))
                self._warn(message, variable.span, known_variables(known))

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
        known = set(visible(plan))
        plan, keys = self._group_keys(form, plan, aliases)
        aggregates: dict[Aggregate, str] = {}

        def folded(node: Expression) -> Expression:
            if not isinstance(node, Aggregate):
                return node
            if node.argument is not None:
                no_aggregate(node.argument, "an aggregate cannot stand inside another")
            return Var(aggregates.setdefault(node, self._name_for("aggregate")), node.span)

        given_before = dict(aliases)
        for alias, expression in given_before.items():
            if isinstance(expression, Aggregate) and expression not in aggregates:  # it needs no other name
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

    def _group_keys(self, form: syntax.Select, plan: Plan, aliases: dict[str, Expression]) -> tuple[Plan, list[str]]:
        """The plan with what GROUP BY computes, and the names of the keys; aliases that are keys are taken out."""
        keys: list[str] = []
        known = set(visible(plan))
        for item in form.modifier.group_by:
            expression = self.expression(item.expression)
            no_aggregate(expression)
            if item.name is not None:
                if item.name.name in known or item.name.name in aliases or item.name.name in keys:
                    raise QueryError(f"{item.name} has a value already", span=item.name.span)
                plan = algebra.Extend(plan, item.name.name, expression)
                keys.append(item.name.name)
            elif isinstance(expression, Var):
                # the papers group by a name that SELECT computes: the computation moves below the grouping
                given = aliases.get(expression.name)
                if given is not None and has_aggregate(given):
                    raise QueryError(
                        f"{expression} is what SELECT computes from each group: it cannot make the groups",
                        span=item.span,
                        hint="group by what the patterns bind",
                    )
                if expression.name not in known and given is not None:
                    plan = algebra.Extend(plan, expression.name, given)
                    del aliases[expression.name]
                keys.append(expression.name)
            else:
                keys.append(self._name_for("key"))
                plan = algebra.Extend(plan, keys[-1], expression)
        return plan, keys

    def _only_keys(self, form: syntax.Select, keys: list[str], aliases: dict[str, Expression]) -> None:
        """Outside an aggregate a grouped SELECT may use the keys and what it has named before."""
        allowed = set(keys)
        for item in form.items or ():
            if item.name is None or item.name.name in keys:
                grouped_only(item.expression if item.name is None else item.name, allowed)
            else:
                grouped_only(aliases[item.name.name], allowed)
                allowed.add(item.name.name)

    def _solutions(self, where: syntax.Group, modifier: syntax.Modifier, values: syntax.Values | None) -> Plan:
        """The solutions that a CONSTRUCT or an ASK is made from: every visible variable."""
        if modifier.group_by or modifier.having:
            raise QueryError("GROUP BY needs SELECT", span=where.span, hint="group in a sub-select")
        plan = self.where(where)
        order = [(self.expression(each.expression), each.descending) for each in modifier.order_by]
        if values is not None:
            plan = joined(plan, self._values(values))
        for key, _ in order:
            no_aggregate(key)
            self._bound(key, set(visible(plan)), "ordered by")
        return self._modified(plan, visible(plan), order, False, modifier)

    def _name_for(self, what: str) -> str:
        self._fresh += 1
        return f"_:.{what}{self._fresh}"


def _meant(name: str, known: set[str]) -> str | None:
    """What may be meant by a variable that has no value."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), {each.lower(): each for each in sorted(known)}, n=1)
    meant = next((each for each in sorted(known) if near and each.lower() == near[0]), None)
    return known_variables(known) if meant is None else f"did you mean ?{meant}"


def _check_call(call: Call) -> None:
    if not supported(call.name):
        raise QueryError(
            f"there is no function <{call.name}>",
            span=call.span,
            hint="besides SPARQL's own there are the casts of xsd: and cq:now()",
        )
    low, high = arity(call.name)
    if not (low <= len(call.args) and (high is None or len(call.args) <= high)):
        wanted = "no arguments" if high == 0 else "one argument" if low == high == 1 else f"{low} arguments"
        raise QueryError(f"the function takes {wanted}, not {len(call.args)}", span=call.span)
