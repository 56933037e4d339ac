"""The part of the builder that reads expressions."""

from __future__ import annotations

from typing import cast

from lark import Token, Tree

from cqels.lang.build_terms import TermBuilder
from cqels.lang.builtins import ARITY, BY_SIGN
from cqels.lang.expressions import Aggregate, Call, Constant, Exists, Expression, junction
from cqels.lang.syntax import Group
from cqels.lang.trees import Branch, span_of, trees
from cqels.model.errors import QueryError
from cqels.model.terms import CSPARQL_TIMESTAMP

_SPELLINGS = {"AVERAGE": "AVG"}
_TIME_OF_SOLUTION = {"GETDURATION", "GETSTARTTIME", "GETENDTIME"}


class ExpressionBuilder(TermBuilder):
    """Reads expressions; groups inside EXISTS are read by the builder that inherits this."""

    def group(self, tree: Branch) -> Group:
        raise NotImplementedError

    def expression(self, tree: Branch) -> Expression:
        span = span_of(tree)
        parts = trees(tree)
        match tree.data:
            case "var":
                return self.var(tree)
            case "expression":
                return self._chain("OR", parts)
            case "and_expression":
                return self._chain("AND", parts)
            case "comparison":
                name = BY_SIGN[str(tree.children[1])]
                return Call(name, (self.expression(parts[0]), self.expression(parts[1])), span)
            case "in_list" | "not_in_list":
                name = "IN" if tree.data == "in_list" else "NOT_IN"
                return Call(name, (self.expression(parts[0]), *self._list(parts[1])), span)
            case "numeric":
                return self._additive(parts)
            case "multiplicative":
                return self._multiplied(self.expression(parts[0]), parts[1:])
            case "not_expression":
                return Call("NOT", (self.expression(parts[0]),), span)
            case "plus_expression":
                return Call("PLUS", (self.expression(parts[0]),), span)
            case "minus_expression":
                return Call("NEGATE", (self.expression(parts[0]),), span)
            case "built_in_call":
                return self._built_in(tree)
            case "exists" | "not_exists":
                return Exists(self.group(parts[0]), tree.data == "not_exists", span)
            case "count" | "fold" | "group_concat":
                return self._aggregate(tree)
            case "iri_or_function" if len(parts) == 1:
                return Constant(self.iri(parts[0]), span)
            case "iri_or_function" | "function_call":
                return self._function(tree)
            case _:
                return Constant(self.term(tree), span)

    def _chain(self, name: str, parts: list[Branch]) -> Expression:
        return junction(name, [self.expression(part) for part in parts])

    def _additive(self, parts: list[Branch]) -> Expression:
        result = self.expression(parts[0])
        for tail in parts[1:]:
            span = span_of(parts[0]).to(span_of(tail))
            first, *rest = tail.children
            if isinstance(first, Token):
                result = Call(BY_SIGN[str(first)], (result, self.expression(cast(Branch, rest[0]))), span)
            else:  # `?x -1 * ?y`: the sign was read as part of the number
                right = self._multiplied(self.expression(first), [part for part in rest if isinstance(part, Tree)])
                result = Call("ADD", (result, right), span)
        return result

    def _multiplied(self, result: Expression, tails: list[Branch]) -> Expression:
        for tail in tails:
            operator, operand = tail.children
            result = Call(BY_SIGN[str(operator)], (result, self.expression(cast(Branch, operand))), span_of(tail))
        return result

    def _list(self, tree: Branch) -> tuple[Expression, ...]:
        return tuple(self.expression(part) for part in trees(tree))

    def _built_in(self, tree: Branch) -> Expression:
        name = str(tree.children[0]).upper()
        args = self._list(trees(tree)[0])
        low, high = ARITY[name]
        if not (low <= len(args) and (high is None or len(args) <= high)):
            wanted = f"{low}" if low == high else f"{low} or {high}" if high is not None else f"at least {low}"
            raise QueryError(
                f"{name} takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(args)}", span=span_of(tree)
            )
        if name == "BOUND" and trees(trees(tree)[0])[0].data != "var":
            raise QueryError("BOUND asks about a variable", span=span_of(trees(tree)[0]))
        if name in _TIME_OF_SOLUTION:
            self.used.add("interval")
        if name in ("IRI", "URI") and self.base is not None:
            base = Constant(self._named(self.base, span_of(tree)))
            return Call("RESOLVE", (*args, base), span_of(tree))
        return Call(name, args, span_of(tree))

    def _function(self, tree: Branch) -> Expression:
        target, arguments = trees(tree)
        iri = self.iri(target)
        if arguments.children and isinstance(arguments.children[0], Token) and arguments.children[0].type == "DISTINCT":
            raise QueryError("DISTINCT is for aggregates, and this function is none", span=span_of(arguments))
        args = self._list(arguments)
        if iri.value == CSPARQL_TIMESTAMP:
            if len(args) != 3:
                raise QueryError(
                    "the timestamp function takes a subject, a predicate and an object", span=span_of(tree)
                )
            return Call("TIMESTAMP", args, span_of(tree))
        return Call(iri.value, args, span_of(tree))

    def _aggregate(self, tree: Branch) -> Aggregate:
        span = span_of(tree)
        if tree.data == "count":
            distinct, argument = tree.children
            inner = None if isinstance(argument, Token) else self.expression(argument)
            return Aggregate("COUNT", inner, distinct is not None, span=span)
        if tree.data == "fold":
            name, distinct, argument = tree.children
            word = str(name).upper()
            inner = self.expression(cast(Branch, argument))
            return Aggregate(_SPELLINGS.get(word, word), inner, distinct is not None, span=span)
        parts = trees(tree)
        separator = self.string(parts[1]) if len(parts) > 1 else " "
        distinct = tree.children[0]
        return Aggregate("GROUP_CONCAT", self.expression(parts[0]), distinct is not None, separator, span=span)
