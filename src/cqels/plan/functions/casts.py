"""The constructor functions of XML Schema's types, called by their IRIs (SPARQL 17.5, XPath's casting rules)."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.model.datetimes import DAY
from cqels.model.datetimes import floor as whole
from cqels.model.numbers import EXACT, as_double, decimal_text, number_text, single
from cqels.model.terms import XSD, Term
from cqels.model.values import (
    DECIMAL,
    DOUBLE,
    FLOAT,
    INTEGER,
    Date,
    DateTime,
    Duration,
    ExpressionError,
    Length,
    Number,
    Time,
    Value,
    literal_of,
    value_of,
)


def cast_to(name: str) -> Callable[[Term], Term]:
    """The constructor of a type, by its name in XML Schema. What it makes has the canonical text of its value."""
    target = NamedNode(XSD + name)

    def cast(term: Term) -> Term:
        value = value_of(term) if isinstance(term, Literal) else None
        # A string is read as the text of the new type; white space around it does not count.
        result = value_of(Literal(value, datatype=target)) if isinstance(value, str) else _converted(name, value)
        if result is None:
            raise ExpressionError(f"{term} cannot become an xsd:{name}")
        return literal_of(result)

    return _cast_to_string if name == "string" else cast


def _cast_to_string(term: Term) -> Term:
    """An IRI, or the canonical text of a value; a literal of another type keeps the text it has."""
    if isinstance(term, BlankNode):
        raise ExpressionError("a blank node has no text")
    match value_of(term) if isinstance(term, Literal) else None:
        case Number(value=float() as number) as value if math.isfinite(number):
            return Literal(_float_text(Decimal(number_text(value))))
        case Number() | bool() | DateTime() | Date() | Time() | Duration() as value:
            return Literal(literal_of(value).value)
        case _:
            return Literal(term.value)


def _float_text(value: Decimal) -> str:
    """A float or double as XPath writes it: 1E0 is "1", and from a million on, or below a millionth, "1.0E6"."""
    if not value:
        return "-0" if value.is_signed() else "0"
    if Decimal("1e-6") <= abs(value) < Decimal("1e6"):
        return decimal_text(value)
    sign, digits, _ = value.normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{value.adjusted()}"


def _converted(name: str, value: Value | None) -> Value | None:
    match name, value:
        case _, bool() | Number():
            return _from_number(name, Number(INTEGER, int(value)) if isinstance(value, bool) else value)
        case "dateTime", DateTime() | Date():
            return DateTime(value.local, value.zone)
        case "date", DateTime() | Date():
            return Date(Decimal(whole(value.local) // DAY * DAY), value.zone)
        case "time", DateTime():
            return Time(EXACT.subtract(value.local, Decimal(whole(value.local) // DAY * DAY)), value.zone)
        case "time", Time():
            return value
        case "duration", Duration():
            return Duration(value.months, value.seconds, Length.DURATION)
        case "dayTimeDuration", Duration():
            return Duration(0, value.seconds, Length.DAY_TIME)
        case "yearMonthDuration", Duration():
            return Duration(value.months, Decimal(0), Length.YEAR_MONTH)
        case _:
            return None


def _from_number(name: str, number: Number) -> Value | None:
    value = number.value
    finite = not isinstance(value, float) or math.isfinite(value)
    match name:
        case "boolean":
            return bool(value) and value == value
        case "integer" if finite:
            return Number(INTEGER, int(value))
        case "decimal" if finite:
            # The shortest text that reads back as the same float, not its exact binary expansion: 0.1e0 becomes 0.1.
            return Number(DECIMAL, Decimal(number_text(number)) or Decimal(0))
        case "float":
            return Number(FLOAT, single(value))
        case "double":
            return Number(DOUBLE, as_double(value))
        case _:
            return None


CASTS: dict[str, Callable[[Term], Term]] = {
    XSD + name: cast_to(name)
    for name in (
        *("string", "boolean", "integer", "decimal", "float", "double"),
        *("dateTime", "date", "time", "duration", "dayTimeDuration", "yearMonthDuration"),
    )
}
"""The constructors by their IRIs."""
