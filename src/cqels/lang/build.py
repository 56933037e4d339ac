"""From the parser's tree to the syntax tree: names are resolved, abbreviations written out, small slips refused."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from lark import Token, Tree
from pyoxigraph import BlankNode, NamedNode

from cqels.lang import syntax
from cqels.lang.build_expressions import ExpressionBuilder
from cqels.lang.build_windows import WindowBuilder
from cqels.lang.expressions import Var
from cqels.lang.trees import span_of, trees
from cqels.model.errors import QueryError
from cqels.model.terms import CQ, RDF_FIRST, RDF_NIL, RDF_REST, RDF_TYPE, Term

Branch: TypeAlias = "Tree[Token]"
Verb: TypeAlias = Var | syntax.Path


class Builder(ExpressionBuilder, WindowBuilder):
    """Builds one query or update. A method is named after the rule it reads."""

    def __init__(self, base: str | None) -> None:
        super().__init__(base)
        self._labels: dict[str, int] = {}
        self._block = 0
        self._blocks = 0
        self._fresh = 0
        self._template = False

    # ------------------------------------------------------------ queries

    def query(self, tree: Branch) -> syntax.Query:
        registration: syntax.Registration | None = None
        form: Branch | None = None
        values: syntax.Values | None = None
        pending: Branch | None = None
        for child in trees(tree):
            match child.data:
                case "prologue":
                    self.prologue(child)
                case "registration":
                    pending = child
                case "values_clause":
                    values = self.values_clause(child)
                case _:
                    form = child
        if pending is not None:
            registration = self.registration(pending)
        assert form is not None
        dataset = self.dataset(form)
        body: syntax.Select | syntax.Construct | syntax.Ask | syntax.Describe
        match form.data:
            case "select_query":
                body = self.select(form, values)
            case "construct_query" | "construct_short":
                body = self.construct(form, values)
            case "ask_query":
                body = syntax.Ask(self._where(form), self._modifier(form), values, span_of(form))
            case _:
                body = syntax.Describe(span_of(form.children[0]))
        prefixes = tuple((name, iri) for name, iri in self.prefixes.items() if name != "cq" or iri != CQ)
        return syntax.Query(registration, body, dataset, "", prefixes)

    def prologue(self, tree: Branch) -> None:
        for child in trees(tree):
            if child.data == "base_decl":
                self.base = self._resolved(str(child.children[0])[1:-1], span_of(child.children[0]))
            else:
                prefix, iri = child.children
                self.prefixes[str(prefix)[:-1]] = self._resolved(str(iri)[1:-1], span_of(iri))

    def registration(self, tree: Branch) -> syntax.Registration:
        kind: str | None = None
        for child in trees(tree):
            match child.data:
                case "query_kind":
                    kind = "query"
                case "stream_kind":
                    kind = "stream"
                case "r2s_kind":
                    kind = str(child.children[0]).lower()
                case _:
                    token = cast(Token, child.children[0])
                    name: str | NamedNode = str(token) if token.type == "NAME" else self._iri_of(token)
        return syntax.Registration(kind, name, span_of(tree))

    def dataset(self, tree: Branch) -> syntax.Dataset:
        default: list[NamedNode] = []
        named: list[NamedNode] = []
        streams: list[syntax.StreamClause] = []
        for child in trees(tree):
            parts = trees(child)
            match child.data:
                case "from_default":
                    default.append(self.iri(parts[0]))
                case "from_named":
                    named.append(self.iri(parts[0]))
                case "from_stream" | "from_named_stream":
                    window = self.window(parts[1]) if len(parts) > 1 else None
                    is_named = child.data == "from_named_stream"
                    streams.append(
                        syntax.StreamClause(
                            self.iri(parts[0]), window, is_named, None, span_of(child), span_of(parts[0])
                        )
                    )
                case "from_named_window":
                    window = self.window(parts[2], bare=True)
                    name, stream = self.iri(parts[0]), self.iri(parts[1])
                    if any(other.name == name for other in streams):
                        raise QueryError(f"window {name} is declared twice", span=span_of(parts[0]))
                    self.used.add("rsp-ql")
                    streams.append(syntax.StreamClause(stream, window, True, name, span_of(child), span_of(parts[1])))
        return syntax.Dataset(tuple(default), tuple(named), tuple(streams))

    def select(self, tree: Branch, values: syntax.Values | None) -> syntax.Select:
        clause = trees(tree)[0]
        quantifier, *rest = clause.children
        word = str(quantifier).upper() if quantifier is not None else ""
        where = self._where(tree)
        items: tuple[syntax.Item, ...] | None = None
        if not (len(rest) == 1 and isinstance(rest[0], Token)):
            items = tuple(self._item(child) for child in rest if isinstance(child, Tree))
        return syntax.Select(
            items, word == "DISTINCT", word == "REDUCED", where, self._modifier(tree), values, span_of(tree)
        )

    def _item(self, tree: Branch) -> syntax.Item:
        parts = trees(tree)
        if len(parts) == 1:
            return syntax.Item(self.var(parts[0]), None, span_of(tree))
        return syntax.Item(self.expression(parts[0]), self.var(parts[1]), span_of(tree))

    def construct(self, tree: Branch, values: syntax.Values | None) -> syntax.Construct:
        template: tuple[syntax.TriplePattern, ...] = ()
        if tree.data == "construct_query":
            self._template = True
            for child in trees(trees(tree)[0]):
                template = self._template_triples(child)
            self._template = False
            where = self._where(tree)
        else:
            found = [child for child in trees(tree) if child.data == "triples_template"]
            patterns = tuple(self._template_triples(found[0])) if found else ()
            span = span_of(found[0]) if found else span_of(tree)
            where = syntax.Group((syntax.Triples(patterns, span),) if patterns else (), span)
            template = tuple(self._as_template(pattern) for pattern in patterns)
        return syntax.Construct(template, where, self._modifier(tree), values, span_of(tree))

    def _as_template(self, pattern: syntax.TriplePattern) -> syntax.TriplePattern:
        def node(value: syntax.Node) -> syntax.Node:
            return BlankNode(_label_text(value.name)) if isinstance(value, Var) and value.hidden else value

        return syntax.TriplePattern(node(pattern.subject), pattern.predicate, node(pattern.object), pattern.span)

    def _template_triples(self, tree: Branch) -> tuple[syntax.TriplePattern, ...]:
        found: list[syntax.TriplePattern] = []
        for child in trees(tree):
            self.same_subject(child, found)
        return tuple(found)

    def _where(self, tree: Branch) -> syntax.Group:
        for child in trees(tree):
            if child.data == "where_clause":
                return self.group(trees(child)[0])
        return syntax.Group((), span_of(tree))

    def _modifier(self, tree: Branch) -> syntax.Modifier:
        found = next(child for child in trees(tree) if child.data == "solution_modifier")
        group_by: tuple[syntax.Item, ...] = ()
        having: tuple[Any, ...] = ()
        order_by: tuple[syntax.Order, ...] = ()
        limit: int | None = None
        offset: int | None = None
        for clause in trees(found):
            match clause.data:
                case "group_clause":
                    group_by = tuple(self._group_condition(child) for child in trees(clause))
                case "having_clause":
                    having = tuple(self.expression(child) for child in trees(clause))
                case "order_clause":
                    order_by = tuple(self._order_condition(child) for child in trees(clause))
                case "limit_offset":
                    for part in trees(clause):
                        number = int(str(part.children[0]))
                        limit, offset = (number, offset) if part.data == "limit" else (limit, number)
        return syntax.Modifier(group_by, having, order_by, limit, offset)

    def _group_condition(self, tree: Branch) -> syntax.Item:
        parts = trees(tree)
        name = self.var(parts[1]) if len(parts) > 1 else None
        return syntax.Item(self.expression(parts[0]), name, span_of(tree))

    def _order_condition(self, tree: Branch) -> syntax.Order:
        descending = tree.data == "directed" and str(tree.children[0]).upper() == "DESC"
        return syntax.Order(self.expression(trees(tree)[0]), descending)

    def values_clause(self, tree: Branch) -> syntax.Values | None:
        return self.data_block(trees(tree)[0]) if tree.children else None

    # ------------------------------------------------------------ patterns

    def group(self, tree: Branch) -> syntax.Group:
        outer, self._block = self._block, self._next_block()
        (body,) = trees(tree)
        parts: tuple[syntax.Pattern, ...]
        if body.data == "sub_select":
            values = self.values_clause(trees(body)[-1])
            parts = (syntax.SubSelect(self.select(body, values), span_of(body)),)
        else:
            parts = self._parts(body)
        self._block = outer
        return syntax.Group(parts, span_of(tree))

    def _next_block(self) -> int:
        self._blocks += 1
        return self._blocks

    def _parts(self, body: Branch) -> tuple[syntax.Pattern, ...]:
        parts: list[syntax.Pattern] = []
        for child in trees(body):
            if child.data == "triples_block":
                found: list[syntax.TriplePattern] = []
                for same in trees(child):
                    self.same_subject(same, found)
                parts.append(syntax.Triples(tuple(found), span_of(child)))
            else:
                parts.append(self._part(child))
                if child.data != "filter":  # a FILTER does not end a basic graph pattern, anything else does
                    self._block = self._next_block()
        return tuple(parts)

    def _part(self, tree: Branch) -> syntax.Pattern:
        span = span_of(tree)
        parts = trees(tree)
        match tree.data:
            case "group_or_union":
                groups = tuple(self.group(part) for part in parts)
                return groups[0] if len(groups) == 1 else syntax.Union(groups, span)
            case "sequence":
                return self._sequence(tree)
            case "optional":
                return syntax.Optional(self.group(parts[0]), span)
            case "minus":
                return syntax.Minus(self.group(parts[0]), span)
            case "graph_pattern":
                name = self.var_or_iri(parts[0])
                return syntax.GraphPattern(name, self.group(parts[1]), span, span_of(parts[0]))
            case "stream_pattern":
                return self._stream(tree)
            case "window_pattern":
                self.used.add("rsp-ql")
                name = self.var_or_iri(parts[0])
                return syntax.WindowPattern(name, self.group(parts[1]), span, span_of(parts[0]))
            case "service":
                silent = tree.children[0] is not None
                name = self.var_or_iri(parts[0])
                return syntax.ServicePattern(name, silent, self.group(parts[1]), span, span_of(parts[0]))
            case "filter":
                return syntax.Filter(self.expression(parts[0]), span)
            case "bind":
                return syntax.Bind(self.expression(parts[0]), self.var(parts[1]), span)
            case "inline_data":
                return self.data_block(parts[0])
            case other:
                raise AssertionError(f"no pattern {other}")

    def _sequence(self, tree: Branch) -> syntax.Sequence:
        self.used.add("seq")
        left: syntax.Group | syntax.Sequence | None = None
        kind = ""
        for child in tree.children:
            if isinstance(child, Token):
                kind = str(child).lower()
            elif left is None:
                left = self.group(child)
            else:
                left = syntax.Sequence(left, self.group(child), kind, span_of(tree))
        assert isinstance(left, syntax.Sequence)
        return left

    def _stream(self, tree: Branch) -> syntax.StreamPattern:
        self.used.add("stream")
        window: syntax.Window | None = None
        at: Var | None = None
        for child in trees(tree):
            match child.data:
                case "window":
                    window = self.window(child)
                case "at_clause":
                    at = self.var(trees(child)[0])
                case "group":
                    pattern = self.group(child)
                case _:
                    name, name_span = self.var_or_iri(child), span_of(child)
        return syntax.StreamPattern(name, window, at, pattern, span_of(tree), name_span)

    def data_block(self, tree: Branch) -> syntax.Values:
        parts = trees(tree)
        variables = tuple(self.var(part) for part in parts if part.data == "var")
        if tree.data == "one_column":
            rows = tuple((self._data_value(part),) for part in parts if part.data == "data_value")
            return syntax.Values(variables, rows, span_of(tree))
        found: list[tuple[Term | None, ...]] = []
        # a token here is NIL: the first child when there are no variables, a row of nothing after that
        for index, child in enumerate(tree.children):
            if isinstance(child, Token) and index > 0:
                found.append(())
            elif isinstance(child, Tree) and child.data == "data_row":
                found.append(tuple(self._data_value(value) for value in trees(child)))
            else:
                continue
            if len(found[-1]) != len(variables):
                raise QueryError(
                    f"this row has {len(found[-1])} values for {len(variables)} variables", span=span_of(child)
                )
        return syntax.Values(variables, tuple(found), span_of(tree))

    def _data_value(self, tree: Branch) -> Term | None:
        (child,) = tree.children
        return None if isinstance(child, Token) else self.term(child)

    # ------------------------------------------------------------ triples

    def same_subject(self, tree: Branch, found: list[syntax.TriplePattern]) -> None:
        first, *rest = trees(tree)
        subject = self.node(first, found)
        for properties in rest:
            self._property_list(subject, properties, found)

    def _property_list(self, subject: syntax.Node, tree: Branch, found: list[syntax.TriplePattern]) -> None:
        verb: Verb | None = None
        for child in trees(tree):
            if child.data in ("object_list", "object_list_path"):
                assert verb is not None
                for each in trees(child):
                    # the triple of the node comes before those inside it, as it was written
                    place = len(found)
                    value = self.node(each, found)
                    found.insert(place, syntax.TriplePattern(subject, verb, value, span_of(tree)))
            else:
                verb = self._verb(child)

    def _verb(self, tree: Branch) -> Verb:
        match tree.data:
            case "verb":
                node = self.var_or_iri(trees(tree)[0])
                return node if isinstance(node, Var) else syntax.Link(node)
            case "type_verb":
                return syntax.Link(RDF_TYPE)
            case "var":
                return self.var(tree)
            case _:
                return self.path(tree)

    def node(self, tree: Branch, found: list[syntax.TriplePattern]) -> syntax.Node:
        match tree.data:
            case "var":
                return self.var(tree)
            case "blank_node":
                return self._blank(tree)
            case "collection":
                return self._collection(tree, found)
            case "blank_node_property_list" | "blank_node_property_list_path":
                subject = self._new_blank()
                self._property_list(subject, trees(tree)[0], found)
                return subject
            case _:
                return self.term(tree)

    def _collection(self, tree: Branch, found: list[syntax.TriplePattern]) -> syntax.Node:
        span = span_of(tree)
        cells = [self._new_blank() for _ in trees(tree)]
        for index, child in enumerate(trees(tree)):
            found.append(syntax.TriplePattern(cells[index], syntax.Link(RDF_FIRST), self.node(child, found), span))
            rest: syntax.Node = cells[index + 1] if index + 1 < len(cells) else RDF_NIL
            found.append(syntax.TriplePattern(cells[index], syntax.Link(RDF_REST), rest, span))
        return cells[0]

    def _blank(self, tree: Branch) -> syntax.Node:
        token = cast(Token, tree.children[0])
        if token.type == "ANON":
            return self._new_blank()
        label = self._name(str(token)[2:], span_of(token))
        if self._template:
            return BlankNode(_label_text("_:" + label))
        if self._labels.setdefault(label, self._block) != self._block:
            raise QueryError(
                f"blank node _:{label} is used in two graph patterns",
                span=span_of(token),
                hint="a blank node's label means the same only within one group of triples; use a variable",
            )
        return Var(f"_:{label}", span_of(token))

    def _new_blank(self) -> syntax.Node:
        self._fresh += 1
        # a dot cannot begin a label, so these never meet one that was written
        return BlankNode(f"fresh{self._fresh}") if self._template else Var(f"_:.{self._fresh}")

    # ------------------------------------------------------------ property paths

    def path(self, tree: Branch) -> syntax.Path:
        parts = trees(tree)
        match tree.data:
            case "path":
                return syntax.Choice(tuple(self.path(part) for part in parts))
            case "path_sequence":
                return syntax.Steps(tuple(self.path(part) for part in parts))
            case "path_inverse":
                return syntax.Inverse(self.path(parts[0]))
            case "path_repeat":
                modifier = str(tree.children[1])
                return syntax.Repeat(self.path(parts[0]), int(modifier == "+"), modifier != "?")
            case "path_link":
                return syntax.Link(self.iri(parts[0]))
            case "path_type":
                return syntax.Link(RDF_TYPE)
            case "path_negated":
                return self._negated(parts[0])
            case other:
                raise AssertionError(f"no path {other}")

    def _negated(self, tree: Branch) -> syntax.Negated:
        forward: list[NamedNode] = []
        backward: list[NamedNode] = []
        for one in trees(tree):
            iri = self.iri(trees(one)[0]) if one.children else RDF_TYPE
            (backward if "backward" in one.data else forward).append(iri)
        return syntax.Negated(tuple(forward), tuple(backward))

    # ------------------------------------------------------------ updates

    def update(self, tree: Branch) -> syntax.Update:
        operations: list[syntax.Operation] = []
        for child in trees(tree):
            if child.data == "prologue":
                self.prologue(child)
            else:
                self._labels.clear()
                operations.append(self._operation(child))
        return syntax.Update(tuple(operations))

    def _operation(self, tree: Branch) -> syntax.Operation:
        parts = trees(tree)
        silent = bool(tree.children) and isinstance(tree.children[0], Token)
        match tree.data:
            case "load":
                graph = self.iri(parts[1]) if len(parts) > 1 else None
                return syntax.Load(self.iri(parts[0]), graph, silent)
            case "clear" | "drop":
                which = {"named_graphs": "named", "all_graphs": "all"}.get(parts[0].data, "one")
                return syntax.Clear(self._graph_name(parts[0]), which, tree.data == "drop", silent)
            case "create":
                return syntax.Create(self.iri(parts[0]), silent)
            case "add" | "move" | "copy":
                origin, target = self._graph_name(parts[0]), self._graph_name(parts[1])
                return syntax.Transfer(tree.data, origin, target, silent)
            case "insert_data":
                return syntax.InsertData(self._data(parts[0], blank_nodes=True))
            case "delete_data":
                return syntax.DeleteData(self._data(parts[0], blank_nodes=False))
            case "delete_where":
                return self._delete_where(parts[0])
            case _:
                return self._modify(tree)

    def _graph_name(self, tree: Branch) -> NamedNode | None:
        return self.iri(trees(tree)[0]) if tree.data == "one_graph" else None

    def _data(self, tree: Branch, *, blank_nodes: bool) -> tuple[syntax.QuadPattern, ...]:
        quads = self._quads(tree, template=True)
        for quad in quads:
            for node in (quad.subject, quad.predicate, quad.object, quad.graph):
                if isinstance(node, Var):
                    raise QueryError(f"variable {node} is not allowed in DATA", span=node.span)
                if isinstance(node, BlankNode) and not blank_nodes:
                    raise QueryError("a blank node cannot be named in DELETE DATA", span=span_of(tree))
        return quads

    def _quads(self, tree: Branch, *, template: bool) -> tuple[syntax.QuadPattern, ...]:
        self._template = template
        found: list[syntax.QuadPattern] = []
        for child in trees(tree):
            graph: Var | NamedNode | None = None
            block = [child]
            if child.data == "quads_not_triples":
                name, *block = trees(child)
                graph = self.var_or_iri(name)
            for each in block:
                for triple in self._template_triples(each):
                    predicate = triple.predicate.iri if isinstance(triple.predicate, syntax.Link) else triple.predicate
                    assert isinstance(predicate, Var | NamedNode)
                    found.append(syntax.QuadPattern(triple.subject, predicate, triple.object, graph))
        self._template = False
        return tuple(found)

    def _delete_where(self, tree: Branch) -> syntax.Modify:
        quads = self._quads(tree, template=False)
        span = span_of(tree)
        by_graph: dict[Var | NamedNode | None, list[syntax.TriplePattern]] = {}
        for quad in quads:
            verb = quad.predicate if isinstance(quad.predicate, Var) else syntax.Link(quad.predicate)
            triple = syntax.TriplePattern(quad.subject, verb, quad.object, span)
            by_graph.setdefault(quad.graph, []).append(triple)
        parts: list[syntax.Pattern] = []
        for graph, triples in by_graph.items():
            block = syntax.Triples(tuple(triples), span)
            group = syntax.Group((block,), span)
            parts.append(block if graph is None else syntax.GraphPattern(graph, group, span, span))
        return syntax.Modify(quads, (), syntax.Dataset(), syntax.Group(tuple(parts), span))

    def _modify(self, tree: Branch) -> syntax.Modify:
        home: NamedNode | None = None
        delete: tuple[syntax.QuadPattern, ...] = ()
        insert: tuple[syntax.QuadPattern, ...] = ()
        default: list[NamedNode] = []
        named: list[NamedNode] = []
        for child in trees(tree):
            parts = trees(child)
            match child.data:
                case "with_clause":
                    home = self.iri(parts[0])
                case "delete_clause":
                    delete = self._quads(parts[0], template=True)
                    self._no_blank_nodes(delete, child)
                case "insert_clause":
                    insert = self._quads(parts[0], template=True)
                case "using":
                    default.append(self.iri(parts[0]))
                case "using_named":
                    named.append(self.iri(parts[0]))
                case _:
                    where = self.group(child)

        def at_home(quad: syntax.QuadPattern) -> syntax.QuadPattern:
            graph = home if quad.graph is None else quad.graph
            return syntax.QuadPattern(quad.subject, quad.predicate, quad.object, graph)

        if home is not None and not default and not named:
            default = [home]
        return syntax.Modify(
            tuple(map(at_home, delete)),
            tuple(map(at_home, insert)),
            syntax.Dataset(tuple(default), tuple(named)),
            where,
        )

    def _no_blank_nodes(self, quads: tuple[syntax.QuadPattern, ...], tree: Branch) -> None:
        if any(isinstance(node, BlankNode) for quad in quads for node in (quad.subject, quad.object)):
            raise QueryError("a blank node cannot be named in DELETE", span=span_of(tree), hint="use a variable")


def _label_text(name: str) -> str:
    """A blank node label that pyoxigraph accepts, from the name of a hidden variable."""
    return name.removeprefix("_:").replace(".", "fresh", 1) if name.startswith("_:.") else name.removeprefix("_:")
