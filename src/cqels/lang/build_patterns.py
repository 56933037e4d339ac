"""The part of the builder that reads groups, triples and paths."""

from __future__ import annotations

from typing import TypeAlias, cast

from lark import Token, Tree
from pyoxigraph import BlankNode, NamedNode

from cqels.lang import syntax
from cqels.lang.build_expressions import ExpressionBuilder
from cqels.lang.build_windows import WindowBuilder
from cqels.lang.expressions import Var
from cqels.lang.trees import Branch, span_of, trees
from cqels.model.errors import QueryError
from cqels.model.terms import RDF_FIRST, RDF_NIL, RDF_REST, RDF_TYPE, Term

Verb: TypeAlias = Var | syntax.Path


class PatternBuilder(ExpressionBuilder, WindowBuilder):
    """Reads what stands between braces. A method is named after the rule it reads."""

    def __init__(self, base: str | None) -> None:
        super().__init__(base)
        self._labels: dict[str, int] = {}
        self._block = 0
        self._blocks = 0
        self._fresh = 0
        self._template = False

    def select(self, tree: Branch, values: syntax.Values | None) -> syntax.Select:
        """A sub-select is read by the builder that inherits this."""
        raise NotImplementedError

    def values_clause(self, tree: Branch) -> syntax.Values | None:
        return self.data_block(trees(tree)[0]) if tree.children else None

    # ------------------------------------------------------------ groups

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
            return BlankNode(label_text("_:" + label))
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

    def _template_triples(self, tree: Branch) -> tuple[syntax.TriplePattern, ...]:
        found: list[syntax.TriplePattern] = []
        for child in trees(tree):
            self.same_subject(child, found)
        return tuple(found)


def label_text(name: str) -> str:
    """A blank node label that pyoxigraph accepts, from the name of a hidden variable."""
    return name.removeprefix("_:").replace(".", "fresh", 1) if name.startswith("_:.") else name.removeprefix("_:")
