"""The values behind RDF literals: reading and writing them, SPARQL's `=`, `<` and ORDER BY, and truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

from pyoxigraph import BaseDirection, BlankNode, Literal, NamedNode

from cqels.model.datetimes import (
    Date,
    DateTime,
    Duration,
    Length,
    Moment,
    Time,
    add_durations,
    compare_durations,
    compare_moments,
    date_from,
    date_time_from,
    difference,
    duration_from,
    duration_key,
    duration_text,
    durations_equal,
    floor,
    moment_text,
    negate_duration,
    shift,
    time_from,
)
from cqels.model.limits import LONGEST_TEXT, LONGEST_VALUE
from cqels.model.numbers import (
    DECIMAL,
    DOUBLE,
    EXACT,
    FLOAT,
    INTEGER,
    ExpressionError,
    Kind,
    Number,
    add,
    compare_numbers,
    decimal_from,
    divide,
    double_from,
    float_from,
    integer_from,
    is_nan,
    multiply,
    negate,
    number_text,
    numbers_equal,
    subtract,
)
from cqels.model.terms import (
    XSD,
    XSD_DATE,
    XSD_DATE_TIME,
    XSD_DECIMAL,
    XSD_DOUBLE,
    XSD_FLOAT,
    XSD_INTEGER,
    XSD_TIME,
    Term,
    boolean,
)

__all__ = [
    "DECIMAL",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "Date",
    "DateTime",
    "Duration",
    "ExpressionError",
    "Kind",
    "LangString",
    "Length",
    "Moment",
    "Number",
    "Time",
    "Value",
    "add",
    "add_durations",
    "compare",
    "date_time_literal",
    "difference",
    "divide",
    "effective_boolean",
    "equal",
    "joined_texts",
    "literal_of",
    "multiply",
    "nanoseconds_of",
    "negate",
    "negate_duration",
    "number_of",
    "order",
    "order_key",
    "shift",
    "subtract",
    "value_of",
]


@dataclass(frozen=True, slots=True)
class LangString:
    """A text in a language; pyoxigraph keeps language tags in lower case."""

    text: str
    language: str
    direction: BaseDirection | None = None


Value: TypeAlias = Number | bool | str | LangString | DateTime | Date | Time | Duration

# --- reading --------------------------------------------------------------------------------------------------------

_WHITESPACE = " \t\n\r"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

# The integer types of XML Schema, with the least and the greatest value that each allows.
_INTEGERS: dict[str, tuple[int | None, int | None]] = {
    "integer": (None, None),
    "nonPositiveInteger": (None, 0),
    "negativeInteger": (None, -1),
    "nonNegativeInteger": (0, None),
    "positiveInteger": (1, None),
    "long": (-(2**63), 2**63 - 1),
    "int": (-(2**31), 2**31 - 1),
    "short": (-(2**15), 2**15 - 1),
    "byte": (-(2**7), 2**7 - 1),
    "unsignedLong": (0, 2**64 - 1),
    "unsignedInt": (0, 2**32 - 1),
    "unsignedShort": (0, 2**16 - 1),
    "unsignedByte": (0, 2**8 - 1),
}
_EFFECTIVE = {"boolean", "decimal", "float", "double", *_INTEGERS}
"""The datatypes whose ill-formed literals are false as conditions."""


@lru_cache(maxsize=65_536)
def value_of(literal: Literal) -> Value | None:
    """The value of a literal, or None if its datatype is not known here or its text is not of its datatype.

    Known are SPARQL's datatypes (the numeric ones with all integer types, xsd:boolean, xsd:string, xsd:dateTime and
    language-tagged strings), xsd:date, xsd:time and the durations. White space around the text does not count.
    """
    if literal.language is not None:
        return LangString(literal.value, literal.language, literal.direction)
    datatype = literal.datatype.value
    if not datatype.startswith(XSD):
        return None
    name = datatype[len(XSD) :]
    return literal.value if name == "string" else _read(name, literal.value.strip(_WHITESPACE))


def _read(name: str, text: str) -> Value | None:
    if len(text) > LONGEST_VALUE:
        return None
    match name:
        case "boolean":
            return _BOOLEANS.get(text)
        case "decimal":
            return _number(DECIMAL, decimal_from(text))
        case "double":
            return _number(DOUBLE, double_from(text))
        case "float":
            return _number(FLOAT, float_from(text))
        case "dateTime":
            return date_time_from(text)
        case "date":
            return date_from(text)
        case "time":
            return time_from(text)
        case "duration" | "dayTimeDuration" | "yearMonthDuration":
            return duration_from(text, Length(name))
        case _ if name in _INTEGERS:
            least, greatest = _INTEGERS[name]
            value = integer_from(text)
            if value is None or (least is not None and value < least) or (greatest is not None and value > greatest):
                return None
            return Number(INTEGER, value)
        case _:
            return None


def _number(kind: Kind, value: Decimal | float | None) -> Number | None:
    return None if value is None else Number(kind, value)


def number_of(term: Term | None) -> Number:
    """The number a term stands for; a type error if it stands for none."""
    value = value_of(term) if isinstance(term, Literal) else None
    if isinstance(value, Number):
        return value
    raise ExpressionError(f"not a number: {term}")


# --- writing --------------------------------------------------------------------------------------------------------

_NUMERIC_TYPES = {INTEGER: XSD_INTEGER, DECIMAL: XSD_DECIMAL, FLOAT: XSD_FLOAT, DOUBLE: XSD_DOUBLE}
_DURATION_TYPES = {length: NamedNode(XSD + length.value) for length in Length}


def literal_of(value: Value) -> Literal:
    """The literal of a computed value, in canonical text (`number_text`, `moment_text`, `duration_text` say which).

    >>> literal_of(divide(Number(INTEGER, 10), Number(INTEGER, 4))).value
    '2.5'
    """
    match value:
        case Number():
            return Literal(number_text(value), datatype=_NUMERIC_TYPES[value.kind])
        case bool():
            return boolean(value)
        case str():
            return Literal(value)
        case LangString():
            return Literal(value.text, language=value.language, direction=value.direction)
        case Duration():
            return Literal(duration_text(value), datatype=_DURATION_TYPES[value.length])
        case Date():
            return Literal(moment_text(value), datatype=XSD_DATE)
        case Time():
            return Literal(moment_text(value), datatype=XSD_TIME)
        case DateTime():
            return Literal(moment_text(value), datatype=XSD_DATE_TIME)


def date_time_literal(nanoseconds: int) -> Literal:
    """The xsd:dateTime, in UTC, of a count of nanoseconds since 1970."""
    return literal_of(DateTime(EXACT.scaleb(Decimal(nanoseconds), -9), 0))


def nanoseconds_of(literal: Literal) -> int | None:
    """Nanoseconds since 1970 of an xsd:dateTime, rounded down; UTC where it has no zone; None for other literals."""
    value = value_of(literal)
    return floor(EXACT.scaleb(value.instant, 9)) if isinstance(value, DateTime) else None


def joined_texts(separator: str, texts: Sequence[str]) -> str:
    """Texts put together, if that is not too long: the length is known before any of it is copied."""
    if sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0) > LONGEST_TEXT:
        raise ExpressionError(f"the text would be longer than {LONGEST_TEXT:,} characters")
    return separator.join(texts)


# --- SPARQL's operators ---------------------------------------------------------------------------------------------


def equal(a: Term, b: Term) -> bool:
    """SPARQL's `a = b`: the same term or the same value.

    Two values of different classes (1 and "a") differ. A literal without a known value is equal to itself; beside any
    other literal it is a type error, as they could be equal, except beside a language-tagged string, which cannot be.
    """
    if not isinstance(a, Literal) or not isinstance(b, Literal):
        return a == b
    if a == b:
        value = value_of(a)
        return not (isinstance(value, Number) and is_nan(value))
    if a.language is not None or b.language is not None:
        return False
    first, second = value_of(a), value_of(b)
    if first is None or second is None:
        raise ExpressionError(f"cannot tell whether {a} and {b} are equal")
    return values_equal(first, second)


def values_equal(a: Value, b: Value) -> bool:
    """Whether two values are equal; a type error for times with and without a zone less than 14 hours apart."""
    match a, b:
        case Number(), Number():
            return numbers_equal(a, b)
        case Duration(), Duration():
            return durations_equal(a, b)
        case Moment(), Moment() if type(a) is type(b):
            return compare_moments(a, b) == 0
        case _:
            return type(a) is type(b) and a == b


def compare(a: Term, b: Term) -> int | None:
    """-1, 0 or 1 for `a < b`, `a = b`, `a > b`, and None beside a NaN, where none of them holds; else a type error."""
    if isinstance(a, Literal) and isinstance(b, Literal):
        return compare_values(value_of(a), value_of(b))
    raise ExpressionError("only literals can be compared")


def compare_values(a: Value | None, b: Value | None) -> int | None:
    match a, b:
        case Number(), Number():
            return compare_numbers(a, b)
        case (str(), str()) | (bool(), bool()):
            return (a > b) - (a < b)  # type: ignore[operator]
        case Moment(), Moment() if type(a) is type(b):
            return compare_moments(a, b)
        case Duration(), Duration():
            return compare_durations(a, b)
        case _:
            raise ExpressionError("these values have no order")


def effective_boolean(term: Term | None) -> bool:
    """SPARQL's effective boolean value of a term."""
    if isinstance(term, Literal):
        match value_of(term):
            case bool() as truth:
                return truth
            case Number() as number:
                return bool(number.value) and not is_nan(number)
            case str() as text:
                return bool(text)
            case LangString() as tagged:
                return bool(tagged.text)
            case None if term.datatype.value.removeprefix(XSD) in _EFFECTIVE:
                return False
    raise ExpressionError(f"neither true nor false: {term}")


# --- the order of solutions -----------------------------------------------------------------------------------------


def order(a: Term | None, b: Term | None) -> int:
    """-1, 0 or 1 in the order of ORDER BY, MIN and MAX: the order of `order_key`."""
    first, second = order_key(a), order_key(b)
    return (first > second) - (first < second)


@lru_cache(maxsize=65_536)
def order_key(term: Term | None) -> tuple[object, ...]:
    """A sort key for any term: a total preorder.

    Unbound, then blank nodes (which all tie), then IRIs by code point, then literals by class: booleans, numbers,
    strings, language-tagged strings, dateTimes, dates, times, durations, and the literals without a known value by
    datatype and text. Numbers of all types go by their exact value, NaN first; times without a zone count as UTC.
    """
    match term:
        case None:
            return (0,)
        case BlankNode():
            return (1,)
        case NamedNode():
            return (2, term.value)
        case Literal():
            value = value_of(term)
            return (3, 8, term.datatype.value, term.value) if value is None else (3, *value_key(value))


def value_key(value: Value) -> tuple[object, ...]:
    match value:
        case bool():
            return (0, value)
        case Number():
            return (1, 0) if is_nan(value) else (1, 1, value.value)
        case str():
            return (2, value)
        case LangString():
            return (3, value.text, value.language, str(value.direction or ""))
        case DateTime():
            return (4, value.instant)
        case Date():
            return (5, value.instant)
        case Time():
            return (6, value.instant)
        case Duration():
            return (7, *duration_key(value))
