"""Expressions of a plan as calls of functions that the one who runs the text has to supply.

Patterns are left to the engine that runs the text, values are not: every expression becomes a call `f(v1, v2 …)` over
the variables it reads, so that numbers, dates, texts and errors are ours to the letter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.lang.expressions import (
    Aggregate,
    Call,
    Constant,
    Exists,
    Expression,
    Var,
    junction,
    operands_of,
    transform,
    walk,
)
from cqels.model.terms import Term
from cqels.plan.to_sparql.native_expressions import Place

EXACT = "http://cqels.org/exact#"
"""The namespace of datatypes that carry a literal past an engine that would change it."""
UNBOUND = Literal("", datatype=NamedNode(EXACT + "unbound"))
"""Passed to a function for a variable without a value; no protected literal has this datatype."""
BLANK = NamedNode(EXACT + "blank")
"""The datatype of a blank node's label, and the function that makes the blank node of it."""
_DRAWS = frozenset({"RAND", "UUID", "STRUUID", "BNODE"})
_CALL = "http://cqels.org/call#"
_MOST_FILTERS = 32
"""Conditions that are FILTERs of their own, which Oxigraph can move: its time grows with the square of them."""


@dataclass(frozen=True, slots=True)
class Function:
    """`expression`, to be called by `iri` with the values of `parameters`."""

    iri: NamedNode
    parameters: tuple[str, ...]
    expression: Expression
    boolean: bool
    """True where only the effective boolean value is asked for."""
    identity: tuple[str, ...]
    """The parameters that tell solutions apart, for the functions that draw (RAND, BNODE …)."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """An aggregate. `row` is called with the values of `parameters` for each solution and gives one term for them all;
    `iri` is the aggregate over those terms. Where `row` is None the term is the value of the only parameter, if any."""

    iri: NamedNode
    parameters: tuple[str, ...]
    aggregate: Aggregate
    row: NamedNode | None
    identity: tuple[str, ...]


class OpaqueWords:
    """Calls of functions, noted down as they are written."""

    blank: NamedNode | None = BLANK
    opaque = True

    def __init__(self, protect: Callable[[Term], Term]) -> None:
        self._protect = protect
        self.functions: list[Function] = []
        self.accumulations: list[Accumulation] = []

    def term(self, term: Term) -> str:
        if isinstance(term, BlankNode):
            return str(Literal(term.value, datatype=BLANK))
        return str(self._protect(term))

    def conditions(self, condition: Expression, place: Place) -> list[str]:
        parts = operands_of(condition) if isinstance(condition, Call) and condition.name == "AND" else []
        plain = [part for part in parts if not any(isinstance(node, Exists) for node in walk(part))]
        if len(plain) > _MOST_FILTERS and not _draws(condition):  # one call instead of a chain of filters
            others = [part for part in parts if any(isinstance(node, Exists) for node in walk(part))]
            texts = [text for part in others for text in self.conditions(part, place)]
            return [*texts, self._called(junction("AND", plain), place, boolean=True)]
        match condition:
            case Call(name="AND", args=operands) if not _draws(condition):  # what is drawn depends on the place
                return [text for operand in operands for text in self.conditions(operand, place)]
            case Exists():
                return [place.exists(condition)]
            case _ if (direct := self._direct(condition, place)) is not None:
                return [direct]
            case _:
                return [self._called(condition, place, boolean=True)]

    def value(self, expression: Expression, place: Place) -> str:
        match expression:
            case Var(name=name):
                return place.variable(name)
            case Constant(term=term) if not isinstance(term, BlankNode):
                return self.term(term)
            case _:
                return self._called(expression, place, boolean=False)

    def aggregate(self, node: Aggregate, place: Place) -> str:
        if node.argument is None and not node.distinct:
            return "COUNT(*)"
        argument: Expression | None = None
        parameters: list[str] = []
        arguments: list[str] = []
        if node.argument is not None:
            argument, parameters, arguments = _arguments(node.argument, place)
        else:
            parameters = list(place.scope)
            arguments = [_value_or_unbound(name, place) for name in parameters]
        rewritten = replace(node, argument=argument)
        number = len(self.accumulations)
        iri, row = NamedNode(f"{_CALL}aggregate{number}"), None
        if len(parameters) > 1:
            row = NamedNode(f"{_CALL}row{number}")
            arguments = [f"{row}({', '.join(arguments)})"]
        self.accumulations.append(Accumulation(iri, tuple(parameters), rewritten, row, place.identity))
        return f"{iri}({arguments[0] if arguments else UNBOUND})"

    def _direct(self, condition: Expression, place: Place) -> str | None:
        """Tests of terms, which any engine does alike: spared the call."""
        match condition:
            case Call(name="BOUND", args=(Var(name=name),)):
                return f"BOUND({place.variable(name)})"
            case Call(name="NOT", args=(Call(name="BOUND", args=(Var(name=name),)),)):
                return f"!BOUND({place.variable(name)})"
            case Call(name="SAMETERM", args=(Var() | Constant() as left, Var() | Constant() as right)):
                return f"SAMETERM({self.value(left, place)}, {self.value(right, place)})"
            case Call(name="EQ" | "NE" as name, args=(Var(name=variable), Constant(term=NamedNode() as iri))):
                return f"{place.variable(variable)} {'=' if name == 'EQ' else '!='} {iri}"
            case _:
                return None

    def _called(self, expression: Expression, place: Place, *, boolean: bool) -> str:
        rewritten, parameters, arguments = _arguments(expression, place)
        iri = NamedNode(f"{_CALL}{len(self.functions)}")
        self.functions.append(Function(iri, tuple(parameters), rewritten, boolean, place.identity))
        return f"{iri}({', '.join(arguments)})"


def _arguments(expression: Expression, place: Place) -> tuple[Expression, list[str], list[str]]:
    """The expression with a hidden variable for each EXISTS, its parameters, and their texts."""
    tests: list[Exists] = []

    def named(node: Expression) -> Expression:
        if not isinstance(node, Exists):
            return node
        tests.append(node)
        return Var(f"_:exists{len(tests) - 1}")

    rewritten = transform(expression, named)
    names = variables_in(expression)
    if _draws(expression):
        names = tuple(dict.fromkeys((*names, *place.identity)))
    parameters = [*names, *(f"_:exists{number}" for number in range(len(tests)))]
    return rewritten, parameters, [*(_value_or_unbound(name, place) for name in names), *map(place.exists, tests)]


def variables_in(expression: Expression) -> tuple[str, ...]:
    """The variables written in an expression; those of patterns inside EXISTS are not among them."""
    return tuple(dict.fromkeys(node.name for node in walk(expression) if isinstance(node, Var)))


def _draws(expression: Expression) -> bool:
    return any(isinstance(node, Call) and node.name in _DRAWS for node in walk(expression))


def _value_or_unbound(name: str, place: Place) -> str:
    return f"COALESCE({place.variable(name)}, {UNBOUND})"
