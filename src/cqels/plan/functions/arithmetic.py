"""SPARQL's operators and functions on numbers, dates and durations (17.3, 17.4.4, 17.4.5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from pyoxigraph import Literal

from cqels.model.datetimes import zone_text
from cqels.model.numbers import EXACT
from cqels.model.terms import Term
from cqels.model.values import (
    DECIMAL,
    INTEGER,
    Date,
    DateTime,
    Duration,
    ExpressionError,
    Length,
    Moment,
    Number,
    Time,
    Value,
    add,
    add_durations,
    difference,
    divide,
    literal_of,
    multiply,
    negate,
    negate_duration,
    number_of,
    shift,
    subtract,
    value_of,
)

# --- operators ------------------------------------------------------------------------------------------------------


def _value(term: Term) -> Value | None:
    return value_of(term) if isinstance(term, Literal) else None


def sum_of(first: Term, second: Term) -> Term:
    """`first + second`, for numbers, for a moment and a duration, and for durations."""
    match _value(first), _value(second):
        case Number() as a, Number() as b:
            return literal_of(add(a, b))
        case (DateTime() | Date() | Time() as moment, Duration() as length) | (
            Duration() as length,
            DateTime() | Date() | Time() as moment,
        ):
            return literal_of(shift(moment, length))
        case Duration() as a, Duration() as b:
            return literal_of(add_durations(a, b))
        case _:
            raise ExpressionError(f"{first} and {second} have no sum")


def difference_of(first: Term, second: Term) -> Term:
    """`first - second`, for numbers, moments and durations."""
    match _value(first), _value(second):
        case Number() as a, Number() as b:
            return literal_of(subtract(a, b))
        case DateTime() | Date() | Time() as moment, Duration() as length:
            return literal_of(shift(moment, negate_duration(length)))
        case Moment() as a, Moment() as b:
            return literal_of(difference(a, b))
        case Duration() as a, Duration() as b:
            return literal_of(add_durations(a, negate_duration(b)))
        case _:
            raise ExpressionError(f"{first} and {second} have no difference")


def product_of(first: Term, second: Term) -> Term:
    return literal_of(multiply(number_of(first), number_of(second)))


def quotient_of(first: Term, second: Term) -> Term:
    return literal_of(divide(number_of(first), number_of(second)))


def negative_of(term: Term) -> Term:
    value = _value(term)
    return literal_of(negate_duration(value) if isinstance(value, Duration) else negate(number_of(term)))


def plus(term: Term) -> Term:
    """Unary plus: the number or duration itself, as it was written."""
    if not isinstance(_value(term), Duration):
        number_of(term)
    return term


# --- rounding -------------------------------------------------------------------------------------------------------


def absolute(term: Term) -> Term:
    number = number_of(term)
    value = number.value
    return literal_of(Number(number.kind, value.copy_abs() if isinstance(value, Decimal) else abs(value)))


def ceiling(term: Term) -> Term:
    return _whole(term, lambda value: value.to_integral_value(ROUND_CEILING), math.ceil)


def floor(term: Term) -> Term:
    return _whole(term, lambda value: value.to_integral_value(ROUND_FLOOR), math.floor)


def nearest(term: Term) -> Term:
    """ROUND: to the nearest integer; of two, the one nearer to positive infinity."""
    return _whole(
        term,
        lambda value: EXACT.add(value, Decimal("0.5")).to_integral_value(ROUND_FLOOR),
        lambda value: math.floor(value) + (value - math.floor(value) >= 0.5),
    )


def _whole(term: Term, decimals: Callable[[Decimal], Decimal], floats: Callable[[float], int]) -> Term:
    """A number made whole in its own type. A negative float that becomes zero keeps its sign, as in XPath."""
    number = number_of(term)
    match number.value:
        case Decimal() as value:
            return literal_of(Number(DECIMAL, decimals(value) or Decimal(0)))
        case float() as value if math.isfinite(value):
            return literal_of(Number(number.kind, math.copysign(floats(value), value)))
        case value:
            return literal_of(Number(number.kind, value))


# --- parts of moments -----------------------------------------------------------------------------------------------


def year(term: Term) -> Term:
    return literal_of(Number(INTEGER, _moment(term, dated=True).year))


def month(term: Term) -> Term:
    return literal_of(Number(INTEGER, _moment(term, dated=True).month))


def day(term: Term) -> Term:
    return literal_of(Number(INTEGER, _moment(term, dated=True).day))


def hours(term: Term) -> Term:
    return literal_of(Number(INTEGER, _moment(term, timed=True).hour))


def minutes(term: Term) -> Term:
    return literal_of(Number(INTEGER, _moment(term, timed=True).minute))


def seconds(term: Term) -> Term:
    return literal_of(Number(DECIMAL, _moment(term, timed=True).second))


def timezone(term: Term) -> Term:
    zone = _moment(term).zone
    if zone is None:
        raise ExpressionError(f"no time zone: {term}")
    return literal_of(Duration(0, Decimal(60 * zone), Length.DAY_TIME))


def tz(term: Term) -> Term:
    return Literal(zone_text(_moment(term).zone))


def _moment(term: Term, *, dated: bool = False, timed: bool = False) -> Moment:
    """The moment a term stands for: an xsd:dateTime, or an xsd:date or xsd:time that has what is asked for."""
    match _value(term):
        case DateTime() as moment:
            return moment
        case Date() as moment if not timed:
            return moment
        case Time() as moment if not dated:
            return moment
        case _:
            raise ExpressionError(f"not a date or time with this part: {term}")
