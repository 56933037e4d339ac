"""The set functions over a group: COUNT, SUM, AVG, MIN, MAX, SAMPLE, GROUP_CONCAT and MEDIAN."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce

from pyoxigraph import Literal

from cqels.lang.expressions import Aggregate, Expression
from cqels.model.numbers import as_double, promote, single
from cqels.model.terms import Term, text_of
from cqels.model.values import (
    DECIMAL,
    FLOAT,
    INTEGER,
    ExpressionError,
    Kind,
    Number,
    add,
    divide,
    joined_texts,
    literal_of,
    number_of,
    order_key,
)
from cqels.plan.functions.context import Context
from cqels.plan.functions.evaluation import evaluate
from cqels.plan.functions.strings import text

_ZERO, _TWO = Number(INTEGER, 0), Number(INTEGER, 2)
_FINEST = 2**1074
"""Every finite double is a whole number of parts of this size: 1 / 2**1074."""


def aggregate(node: Aggregate, solutions: Sequence[Mapping[str, Term]], context: Context) -> Term:
    """The value of an aggregate for a group, or an ExpressionError.

    `solutions` come oldest first, then by text; only SAMPLE, which takes the last, and GROUP_CONCAT depend on that.
    A solution for which the argument is an error does not count for COUNT and SAMPLE, and makes the others an error.
    DISTINCT is by RDF term.
    """
    if node.argument is None:
        return _integer(len({_visible(each) for each in solutions}) if node.distinct else len(solutions))
    match node.name:
        case "COUNT":
            return _integer(len(_chosen(_without_errors(node.argument, solutions, context), node)))
        case "SAMPLE":
            for term in _without_errors(node.argument, reversed(solutions), context):
                return term
            raise ExpressionError("SAMPLE of nothing")
    terms = _chosen((evaluate(node.argument, each, context) for each in solutions), node)
    match node.name:
        case "SUM":
            return literal_of(total([number_of(term) for term in terms]))
        case "AVG":
            return literal_of(mean([number_of(term) for term in terms]))
        case "MIN" | "MAX":
            return _extreme(node.name, terms)
        case "MEDIAN":
            return median(terms)
        case "GROUP_CONCAT":
            return Literal(joined_texts(node.separator, [text(term) for term in terms]))
        case _:
            raise TypeError(f"{node.name} is no aggregate")


def _integer(count: int) -> Literal:
    return literal_of(Number(INTEGER, count))


def _visible(solution: Mapping[str, Term]) -> frozenset[tuple[str, Term]]:
    return frozenset((name, term) for name, term in solution.items() if not name.startswith("_:"))


def _without_errors(argument: Expression, solutions: Iterable[Mapping[str, Term]], context: Context) -> Iterable[Term]:
    for solution in solutions:
        try:
            yield evaluate(argument, solution, context)
        except ExpressionError:
            continue


def _chosen(terms: Iterable[Term], node: Aggregate) -> list[Term]:
    return list(dict.fromkeys(terms)) if node.distinct else list(terms)


def total(numbers: Sequence[Number]) -> Number:
    """The sum, in the highest type among the numbers; zero for none.

    Floats and doubles are added exactly and rounded once, so the order in which they come does not matter.
    """
    kind = max((number.kind for number in numbers), default=INTEGER)
    return reduce(add, numbers, _ZERO) if kind <= DECIMAL else _exactly(numbers, kind, share=1)


def mean(numbers: Sequence[Number]) -> Number:
    """The sum by the count, rounded once for floats and doubles, a decimal for integers; zero for none."""
    kind = max((number.kind for number in numbers), default=INTEGER)
    if not numbers:
        return _ZERO
    if kind <= DECIMAL:
        return divide(total(numbers), Number(INTEGER, len(numbers)))
    return _exactly(numbers, kind, share=len(numbers))


def _exactly(numbers: Sequence[Number], kind: Kind, *, share: int) -> Number:
    """The sum of floats or doubles, each number promoted first, divided by `share` and then rounded."""
    values = [float(promote(number, kind)) for number in numbers]
    if not all(map(math.isfinite, values)):
        return Number(kind, sum(value for value in values if not math.isfinite(value)))
    parts = 0
    for value in values:
        numerator, denominator = value.as_integer_ratio()
        parts += numerator * (_FINEST // denominator)
    exact = Fraction(parts, _FINEST * share)
    rounded = single if kind == FLOAT else as_double
    return Number(kind, rounded(exact))  # type: ignore[arg-type]  # they round any exact number


def _extreme(name: str, terms: Sequence[Term]) -> Term:
    """MIN and MAX in the order of ORDER BY; of terms that tie (1 and 1.0) the one with the smallest text."""
    if not terms:
        raise ExpressionError(f"{name} of nothing")
    choose = min if name == "MIN" else max
    best = choose(map(order_key, terms))
    return min((term for term in terms if order_key(term) == best), key=text_of)


def median(terms: Sequence[Term]) -> Term:
    """The middle number as it was written, or half the sum of the two in the middle."""
    for term in terms:
        number_of(term)
    if not terms:
        raise ExpressionError("MEDIAN of nothing")
    ordered = sorted(terms, key=lambda term: (order_key(term), text_of(term)))
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return literal_of(divide(add(number_of(ordered[middle - 1]), number_of(ordered[middle])), _TWO))
