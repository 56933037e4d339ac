"""SPARQL's numbers: four types, promotion between them, exact arithmetic and canonical text; no RDF terms here."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, Rounded
from enum import IntEnum

from cqels.model.limits import MOST_DIGITS


class ExpressionError(Exception):
    """SPARQL's type error: the expression has no value."""


class Kind(IntEnum):
    """The numeric types, in the order in which XPath promotes one to the other."""

    INTEGER = 0
    DECIMAL = 1
    FLOAT = 2
    DOUBLE = 3


INTEGER, DECIMAL, FLOAT, DOUBLE = Kind


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric value: an `int`, a `Decimal` or a `float` as the kind says; a FLOAT's value is rounded to 32 bits."""

    kind: Kind
    value: int | Decimal | float


# Every sum and product of decimals is exact, or traps: unlike the default context, which rounds to 28 digits.
EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, Rounded, InvalidOperation])
# Digits double in a product, and in one of products they double again: so there are no more than these.
_PRODUCT = Context(prec=MOST_DIGITS, Emax=MOST_DIGITS, Emin=-MOST_DIGITS, traps=[Inexact, Rounded, InvalidOperation])
_MOST_BITS = int(MOST_DIGITS * math.log2(10))
DIVISION_DIGITS = 18
_TOO_LONG = f"the number would have more than {MOST_DIGITS:,} digits"
_LONG_TEXT = 4000  # Python refuses to turn more than 4300 digits into an int or back; Decimal does not

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {"INF": math.inf, "+INF": math.inf, "-INF": -math.inf, "NaN": math.nan}


def integer_from(text: str) -> int | None:
    """The integer an xsd:integer's text stands for, or None if it is ill-formed."""
    if not _INTEGER.fullmatch(text):
        return None
    return int(text) if len(text) < _LONG_TEXT else int(Decimal(text))


def decimal_from(text: str) -> Decimal | None:
    """The exact value of an xsd:decimal's text, or None if it is ill-formed."""
    if not _DECIMAL.fullmatch(text):
        return None
    return Decimal(text) or Decimal(0)  # xsd:decimal has no negative zero


def double_from(text: str) -> float | None:
    """The 64-bit value of an xsd:double's text, or None if it is ill-formed."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    return float(text) if _DOUBLE.fullmatch(text) else None


def float_from(text: str) -> float | None:
    """The 32-bit value of an xsd:float's text, rounded once, or None if it is ill-formed."""
    double = double_from(text)
    if double is None or not math.isfinite(double) or double == 0:
        return double
    if abs(double) < 2.0**-200:  # far below the smallest 32-bit value, and maybe too small for Decimal's exponents
        return math.copysign(0.0, double)
    return single(Decimal(text))


def single(value: int | Decimal | float) -> float:
    """The nearest 32-bit float.

    An exact value passes through a double on its way. Rounding that double *to odd* keeps the second rounding from
    falling on a false tie.
    """
    double = as_double(value)
    if not isinstance(value, float) and math.isfinite(double) and double != value:
        (bits,) = struct.unpack("<q", struct.pack("<d", double))
        if bits % 2 == 0:
            double = math.nextafter(double, math.inf if value > double else -math.inf)
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", double))
    except OverflowError:
        return math.copysign(math.inf, double)
    return float(rounded)


def as_double(value: int | Decimal | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def promote(number: Number, kind: Kind) -> int | Decimal | float:
    """The value of a number as a type at or above its own."""
    if number.kind == kind or kind == INTEGER:
        return number.value
    match kind:
        case Kind.DECIMAL:
            return Decimal(number.value)
        case Kind.FLOAT:
            return single(number.value)
        case _:
            return as_double(number.value)


def _combine(
    a: Number,
    b: Number,
    integers: Callable[[int, int], int],
    decimals: Callable[[Decimal, Decimal], Decimal],
    floats: Callable[[float, float], float],
) -> Number:
    kind = max(a.kind, b.kind)
    left, right = promote(a, kind), promote(b, kind)
    if isinstance(left, int) and isinstance(right, int):
        return Number(INTEGER, integers(left, right))
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return Number(DECIMAL, decimals(left, right) or Decimal(0))
    return _rounded(kind, floats(float(left), float(right)))


def _rounded(kind: Kind, value: float) -> Number:
    return Number(kind, single(value) if kind == FLOAT else value)


def add(a: Number, b: Number) -> Number:
    return _combine(a, b, int.__add__, EXACT.add, float.__add__)


def subtract(a: Number, b: Number) -> Number:
    return _combine(a, b, int.__sub__, EXACT.subtract, float.__sub__)


def multiply(a: Number, b: Number) -> Number:
    return _combine(a, b, _product, _decimal_product, float.__mul__)


def _product(a: int, b: int) -> int:
    if a.bit_length() + b.bit_length() > _MOST_BITS:
        raise ExpressionError(_TOO_LONG)
    return a * b


def _decimal_product(a: Decimal, b: Decimal) -> Decimal:
    try:
        return _PRODUCT.multiply(a, b)
    except (Inexact, Rounded):
        raise ExpressionError(_TOO_LONG) from None


def divide(a: Number, b: Number) -> Number:
    """`a / b`; integers divide as decimals, and a decimal quotient is cut, toward zero, after 18 fractional digits."""
    kind = max(a.kind, b.kind)
    if kind <= DECIMAL:
        return Number(DECIMAL, _divide_decimals(Decimal(a.value), Decimal(b.value)))
    return _rounded(kind, _divide_floats(float(promote(a, kind)), float(promote(b, kind))))


def negate(a: Number) -> Number:
    if isinstance(a.value, Decimal):
        return Number(a.kind, EXACT.minus(a.value) or Decimal(0))
    return Number(a.kind, -a.value)


def _divide_decimals(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise ExpressionError("division by zero")
    above, below = a.as_integer_ratio()
    times, over = b.as_integer_ratio()
    numerator, denominator = above * over * 10**DIVISION_DIGITS, below * times
    quotient = abs(numerator) // abs(denominator)
    if quotient.bit_length() > _MOST_BITS:
        raise ExpressionError(_TOO_LONG)
    return EXACT.scaleb(Decimal(quotient if (numerator < 0) == (denominator < 0) else -quotient), -DIVISION_DIGITS)


def _divide_floats(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def numbers_equal(a: Number, b: Number) -> bool:
    """Equality after promotion; NaN equals nothing."""
    kind = max(a.kind, b.kind)
    return promote(a, kind) == promote(b, kind)


def compare_numbers(a: Number, b: Number) -> int | None:
    """-1, 0 or 1 after promotion, None beside a NaN."""
    kind = max(a.kind, b.kind)
    left, right = promote(a, kind), promote(b, kind)
    if left != left or right != right:
        return None
    return (left > right) - (left < right)


def is_nan(number: Number) -> bool:
    return number.value != number.value


def number_text(number: Number) -> str:
    """The canonical text of a number: one text for each value of each type.

    - integer: `5`, `-12`;
    - decimal: no trailing zeros, and no point when integral: `2.5`, `5`;
    - float and double: the fewest digits that read back as the same value, with a point always: `83.0`,
      `92.33333333333333`; below 1e-4 and from 1e16 on with an exponent: `1.0E21`, `1.5E-7`; and `INF`, `-INF`, `NaN`.
    """
    value = number.value
    if isinstance(value, int):
        return integer_text(value)
    if isinstance(value, Decimal):
        return decimal_text(value)
    return single_text(value) if number.kind == FLOAT else double_text(value)


def integer_text(value: int) -> str:
    return str(value) if value.bit_length() < 3 * _LONG_TEXT else f"{Decimal(value):f}"


def decimal_text(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def double_text(value: float) -> str:
    return _float_text(value, repr(value))


def single_text(value: float) -> str:
    """As `double_text`, with the fewest digits that tell 32-bit values apart: six are often enough, nine always are."""
    text = f"{value:.9g}"
    for digits in range(1, 9):
        shorter = f"{value:.{digits}g}"
        if float_from(shorter) == value:
            text = shorter
            break
    return _float_text(value, repr(float(text)))


def _float_text(value: float, digits: str) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    mantissa, mark, exponent = digits.partition("e")
    if not mark:
        return mantissa
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"
