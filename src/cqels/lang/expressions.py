"""Expressions of SPARQL, shared by the syntax tree and the plan.

Names are resolved when these are made: an IRI is absolute, a built-in is in upper case (`STRLEN`), an operator has the
name of a function (`ADD`, `LT`, `AND`), and any other function is called by its IRI.  An expression knows its place
in the query's text, but two expressions that say the same are equal wherever they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from cqels.model.errors import Span
from cqels.model.terms import Term


@dataclass(frozen=True, slots=True)
class Var:
    """A variable. A name that begins with `_:` stands for a blank node of a pattern and is never visible outside."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def hidden(self) -> bool:
        return self.name.startswith("_:")

    def __str__(self) -> str:
        return self.name if self.hidden else f"?{self.name}"


@dataclass(frozen=True, slots=True)
class Constant:
    term: Term
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, a built-in or a function called by its IRI.

    Operators: OR AND NOT EQ NE LT GT LE GE IN NOT_IN ADD SUBTRACT MULTIPLY DIVIDE NEGATE PLUS.
    `IN` and `NOT_IN` have the tested expression first, the list after it.
    RESOLVE(x, <base>) is the `IRI(x)` of a query that has a base.
    Time: TIMESTAMP(s, p, o), GETSTARTTIME, GETENDTIME, GETDURATION, and cq:now by its IRI.
    Not of the language: PART(x, n), which of n parts a term belongs to; NEWEST(), the number of the newest element.
    """

    name: str
    args: tuple[Expression, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """EXISTS or NOT EXISTS. `pattern` is a syntax group before binding and a plan after it."""

    pattern: Any
    negated: bool
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """COUNT SUM AVG MIN MAX SAMPLE GROUP_CONCAT MEDIAN; `argument` is None for COUNT(*)."""

    name: str
    argument: Expression | None
    distinct: bool = False
    separator: str = " "
    span: Span | None = field(default=None, compare=False, repr=False)


Expression: TypeAlias = Var | Constant | Call | Exists | Aggregate


def children(expression: Expression) -> tuple[Expression, ...]:
    match expression:
        case Call(args=args):
            return args
        case Aggregate(argument=argument) if argument is not None:
            return (argument,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it, outermost first; patterns inside EXISTS are not entered."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(children(node))


def calls(expression: Expression) -> set[str]:
    """The names of all functions and operators called in an expression, not inside EXISTS."""
    return {node.name for node in walk(expression) if isinstance(node, Call)}


def junction(name: str, operands: Sequence[Expression]) -> Expression:
    """`a && b && c …` of calls with two operands, nested as deep as the logarithm of their number.

    >>> junction("AND", [Var("a"), Var("b"), Var("c")]) == Call("AND", (Call("AND", (Var("a"), Var("b"))), Var("c")))
    True
    """
    if len(operands) == 1:
        return operands[0]
    half = (len(operands) + 1) // 2
    left, right = junction(name, operands[:half]), junction(name, operands[half:])
    return Call(name, (left, right), left.span.to(right.span) if left.span and right.span else None)


def operands_of(call: Call) -> list[Expression]:
    """The operands of a chain `a || b || c`, which may be longer than Python can nest calls."""
    operands: list[Expression] = []
    pending: list[Expression] = [call]
    while pending:
        node = pending.pop()
        if isinstance(node, Call) and node.name == call.name:
            pending += reversed(node.args)
        else:
            operands.append(node)
    return operands


def transform(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Apply `change` to every node, innermost first; patterns inside EXISTS are not entered."""
    pending = [(expression, False)]
    done: list[Expression] = []
    while pending:
        node, is_ready = pending.pop()
        below = children(node)
        if below and not is_ready:
            pending.append((node, True))
            pending += [(each, False) for each in reversed(below)]
            continue
        if below:
            made = tuple(done[-len(below) :])
            del done[-len(below) :]
            node = _over(node, made)
        done.append(change(node))
    return done[0]


def _over(node: Expression, made: tuple[Expression, ...]) -> Expression:
    """The same operator over changed operands."""
    if all(new is old for new, old in zip(made, children(node), strict=True)):
        return node
    return replace(node, args=made) if isinstance(node, Call) else replace(cast(Aggregate, node), argument=made[0])
