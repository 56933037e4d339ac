"""From the parser's tree to the syntax tree: names are resolved, abbreviations written out, small slips refused."""

from __future__ import annotations

from typing import Any, cast

from lark import Token, Tree
from pyoxigraph import BlankNode, NamedNode

from cqels.lang import syntax
from cqels.lang.build_patterns import PatternBuilder, label_text
from cqels.lang.expressions import Var
from cqels.lang.trees import Branch, counted, span_of, trees
from cqels.model.errors import QueryError, Span
from cqels.model.terms import CQ


class Builder(PatternBuilder):
    """Builds one query."""

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
        spans: list[tuple[NamedNode, Span]] = []
        for child in trees(tree):
            parts = trees(child)
            match child.data:
                case "from_default":
                    default.append(self.iri(parts[0]))
                    spans.append((default[-1], span_of(parts[0])))
                case "from_named":
                    named.append(self.iri(parts[0]))
                    spans.append((named[-1], span_of(parts[0])))
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
        return syntax.Dataset(tuple(default), tuple(named), tuple(streams), tuple(spans))

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
                        number = counted(cast(Token, part.children[0]))
                        limit, offset = (number, offset) if part.data == "limit" else (limit, number)
        return syntax.Modifier(group_by, having, order_by, limit, offset)

    def _group_condition(self, tree: Branch) -> syntax.Item:
        parts = trees(tree)
        name = self.var(parts[1]) if len(parts) > 1 else None
        return syntax.Item(self.expression(parts[0]), name, span_of(tree))

    def _order_condition(self, tree: Branch) -> syntax.Order:
        descending = tree.data == "directed" and str(tree.children[0]).upper() == "DESC"
        return syntax.Order(self.expression(trees(tree)[0]), descending)

    def _as_template(self, pattern: syntax.TriplePattern) -> syntax.TriplePattern:
        def node(value: syntax.Node) -> syntax.Node:
            return BlankNode(label_text(value.name)) if isinstance(value, Var) and value.hidden else value

        return syntax.TriplePattern(node(pattern.subject), pattern.predicate, node(pattern.object), pattern.span)
