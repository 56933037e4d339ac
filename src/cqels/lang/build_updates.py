"""The part of the builder that reads SPARQL updates."""

from __future__ import annotations

from lark import Token
from pyoxigraph import BlankNode, NamedNode

from cqels.lang import syntax
from cqels.lang.build import Builder
from cqels.lang.expressions import Var
from cqels.lang.trees import Branch, span_of, trees
from cqels.model.errors import QueryError


class UpdateBuilder(Builder):
    """Builds one update."""

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
