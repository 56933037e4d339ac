"""The 64-bit words that stand for RDF terms: their layout, and the literals that fit in a word by themselves.

A word is a signed 64-bit integer. Zero is *unbound*; a positive word is the number of an entry of the dictionary
(`cqels.model.dictionary`); a negative word holds its literal itself:

    bit   63        62 … 58       57 … 0
          1         type code     value

    code  literals      bits of the value
    1     xsd:integer   57…0 the integer, two's complement
    2     xsd:decimal   57…5 mantissa, two's complement; 4…0 scale: the value is mantissa / 10^scale, written with
                        exactly `scale` fractional digits
    3     xsd:boolean   0 false, 1 true
    4     xsd:dateTime  57…11 milliseconds since 1970 in UTC, two's complement; 10…0 zone: 0 none, 1 `Z`,
                        else 842 + minutes east of UTC; the fraction written without trailing zeros
    5     xsd:dateTime  the same, the fraction written with exactly three digits, the last of them a zero
    6     xsd:float     31…0 the IEEE 754 single
    8–11  xsd:double    57 sign; 56…52 low five bits of (exponent - 959); 51…0 fraction of the IEEE 754 double;
                        the code's low two bits are the high bits of (exponent - 959), so 2^-64 <= |x| < 2^64
    12    xsd:double    0 for 0.0, 1 for -0.0

The other codes are free. A literal has such a word only if the word prints as its exact text ("7" has, "007" has not),
so two words are equal exactly if the terms are. What has no word goes to the dictionary.
"""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from enum import IntEnum
from typing import Final, NamedTuple

from pyoxigraph import Literal

from cqels.model.datetimes import DateTime, date_time_from, moment_text, zone_text
from cqels.model.numbers import EXACT, Kind, Number, double_from, double_text, float_from, single_text
from cqels.model.terms import (
    FALSE,
    TRUE,
    XSD_BOOLEAN,
    XSD_DATE_TIME,
    XSD_DECIMAL,
    XSD_DOUBLE,
    XSD_FLOAT,
    XSD_INTEGER,
)
from cqels.model.values import Value

UNBOUND: Final = 0

VALUE_BITS: Final = 58
TYPE_BITS: Final = 5
VALUE_MASK: Final = (1 << VALUE_BITS) - 1
TYPE_MASK: Final = (1 << TYPE_BITS) - 1

CODE_INTEGER: Final = 1
CODE_DECIMAL: Final = 2
CODE_BOOLEAN: Final = 3
CODE_DATE_TIME: Final = 4
CODE_DATE_TIME_MILLIS: Final = 5
CODE_FLOAT: Final = 6
CODE_DOUBLE: Final = 8
CODE_DOUBLE_ZERO: Final = 12

SCALE_BITS: Final = 5
SCALE_MASK: Final = (1 << SCALE_BITS) - 1
ZONE_BITS: Final = 11
ZONE_MASK: Final = (1 << ZONE_BITS) - 1
ZONE_NONE: Final = 0
ZONE_Z: Final = 1
ZONE_OFFSET: Final = 842
FRACTION_BITS: Final = 52
FRACTION_MASK: Final = (1 << FRACTION_BITS) - 1
EXPONENT_MASK: Final = (1 << 11) - 1
EXPONENT_LEAST: Final = 1023 - 64
EXPONENT_LOW_BITS: Final = 5
EXPONENT_LOW_MASK: Final = (1 << EXPONENT_LOW_BITS) - 1

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,15})(?:\.([0-9]{1,31}))?")


class Tag(IntEnum):
    """What kind of term a word stands for, and how the other two fields of its register are to be read."""

    NONE = 0  # unbound, or a free entry
    IRI = 1
    BLANK = 2
    STRING = 3
    LANG_STRING = 4
    OTHER = 5  # a literal without a known value
    TEXT = 6  # a literal whose value is in its text only: it fits no register, or has no tag of its own
    BOOLEAN = 7  # bits is 0 or 1
    INTEGER = 8  # bits is the integer
    DECIMAL = 9  # the value is bits / 10^scale
    FLOAT = 10  # bits are those of the value as a *double*
    DOUBLE = 11  # bits are those of the double
    DATE_TIME = 12  # bits / 10^scale seconds since 1970 in UTC
    DATE_TIME_LOCAL = 13  # the same, without a zone


class Register(NamedTuple):
    """The value of a term in the form that arithmetic works on: `bits` is a signed 64-bit word."""

    tag: int
    bits: int = 0
    scale: int = 0


# --- words of literals ----------------------------------------------------------------------------------------------


def inline_word(literal: Literal) -> int | None:
    """The word that holds a literal, or None if only the dictionary can keep its exact text."""
    maker = _WORD_MAKERS.get(literal.datatype)
    return maker(literal.value) if maker else None


def inline_literal(word: int) -> Literal:
    """The literal that a negative word holds: the inverse of `inline_word`."""
    code = code_of(word)
    if code == CODE_INTEGER:
        return Literal(str(signed_value(word)), datatype=XSD_INTEGER)
    if code == CODE_DECIMAL:
        return Literal(_decimal_text(*decimal_parts(word)), datatype=XSD_DECIMAL)
    if CODE_DOUBLE <= code <= CODE_DOUBLE_ZERO:
        return Literal(double_text(bits_double(double_bits_of(word))), datatype=XSD_DOUBLE)
    if code == CODE_FLOAT:
        return Literal(single_text(_float_of(word)), datatype=XSD_FLOAT)
    if code == CODE_BOOLEAN:
        return TRUE if word & 1 else FALSE
    if code in (CODE_DATE_TIME, CODE_DATE_TIME_MILLIS):
        return Literal(_date_time_text(word), datatype=XSD_DATE_TIME)
    raise ValueError(f"no literal has the type code {code}")


def inline_register(word: int) -> Register:
    """The register of a negative word."""
    code = code_of(word)
    if code == CODE_INTEGER:
        return Register(Tag.INTEGER, signed_value(word))
    if code == CODE_DECIMAL:
        return Register(Tag.DECIMAL, *decimal_parts(word))
    if code >= CODE_DOUBLE:
        return Register(Tag.DOUBLE, double_bits_of(word))
    if code == CODE_FLOAT:
        return Register(Tag.FLOAT, double_bits(_float_of(word)))
    if code == CODE_BOOLEAN:
        return Register(Tag.BOOLEAN, word & 1)
    local = word & ZONE_MASK == ZONE_NONE
    return Register(Tag.DATE_TIME_LOCAL if local else Tag.DATE_TIME, signed_value(word) >> ZONE_BITS, 3)


def _pack(code: int, value: int) -> int:
    return (code << VALUE_BITS | value & VALUE_MASK) - (1 << 63)


def code_of(word: int) -> int:
    return word >> VALUE_BITS & TYPE_MASK


def signed_value(word: int) -> int:
    """The 58 bits of the value as a two's complement integer."""
    half = 1 << VALUE_BITS - 1
    return ((word & VALUE_MASK) ^ half) - half


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1


def _boolean_word(text: str) -> int | None:
    return _pack(CODE_BOOLEAN, int(text == "true")) if text in ("true", "false") else None


def _integer_word(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return _pack(CODE_INTEGER, value) if _fits(value, VALUE_BITS) else None


def _decimal_word(text: str) -> int | None:
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return None
    whole, fraction = match[1], match[2] or ""
    mantissa = int(whole + fraction)
    if text[0] == "-":
        if mantissa == 0:
            return None  # "-0.0" is not how zero is written
        mantissa = -mantissa
    if not _fits(mantissa, VALUE_BITS - SCALE_BITS):
        return None
    return _pack(CODE_DECIMAL, mantissa << SCALE_BITS | len(fraction))


def decimal_parts(word: int) -> tuple[int, int]:
    """Mantissa and scale of a decimal."""
    return signed_value(word) >> SCALE_BITS, word & SCALE_MASK


def _decimal_text(mantissa: int, scale: int) -> str:
    digits = str(abs(mantissa)).rjust(scale + 1, "0")
    sign = "-" if mantissa < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def _double_word(text: str) -> int | None:
    value = double_from(text)
    if value is None or double_text(value) != text:
        return None
    bits = double_bits(value)
    sign = int(bits < 0)
    if value == 0:
        return _pack(CODE_DOUBLE_ZERO, sign)
    exponent = (bits >> FRACTION_BITS & EXPONENT_MASK) - EXPONENT_LEAST
    if not 0 <= exponent < 4 << EXPONENT_LOW_BITS:
        return None
    low = exponent & EXPONENT_LOW_MASK
    value_bits = sign << VALUE_BITS - 1 | low << FRACTION_BITS | bits & FRACTION_MASK
    return _pack(CODE_DOUBLE + (exponent >> EXPONENT_LOW_BITS), value_bits)


def double_bits_of(word: int) -> int:
    """The IEEE 754 bits, as a signed word, of a double held in a word."""
    code = code_of(word)
    if code == CODE_DOUBLE_ZERO:
        return -(1 << 63) if word & 1 else 0
    high = (code - CODE_DOUBLE) << EXPONENT_LOW_BITS
    exponent = EXPONENT_LEAST + (high | word >> FRACTION_BITS & EXPONENT_LOW_MASK)
    return -(word >> VALUE_BITS - 1 & 1) << 63 | exponent << FRACTION_BITS | word & FRACTION_MASK


def double_bits(value: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def bits_double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value


def _float_word(text: str) -> int | None:
    value = float_from(text)
    if value is None or single_text(value) != text:
        return None
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return _pack(CODE_FLOAT, bits)


def _float_of(word: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", word & 0xFFFF_FFFF))[0]
    return value


def _date_time_word(text: str) -> int | None:
    moment = date_time_from(text)
    if moment is None:
        return None
    milliseconds = EXACT.scaleb(moment.instant, 3)
    if milliseconds != int(milliseconds) or not _fits(int(milliseconds), VALUE_BITS - ZONE_BITS):
        return None
    if moment.zone is None:
        zone = ZONE_NONE
    else:
        zone = ZONE_Z if text.endswith("Z") else ZONE_OFFSET + moment.zone
    value = int(milliseconds) << ZONE_BITS | zone
    for code in (CODE_DATE_TIME, CODE_DATE_TIME_MILLIS):
        word = _pack(code, value)
        if _date_time_text(word) == text:
            return word
    return None


def _date_time_text(word: int) -> str:
    zone = word & ZONE_MASK
    minutes = zone - ZONE_OFFSET if zone > ZONE_Z else 0
    local = (signed_value(word) >> ZONE_BITS) + 60_000 * minutes
    text = moment_text(DateTime(EXACT.scaleb(Decimal(local), -3), None))
    if code_of(word) == CODE_DATE_TIME_MILLIS:
        seconds, _, fraction = text.partition(".")
        text = f"{seconds}.{fraction:0<3}"
    if zone <= ZONE_Z:
        return text + ("Z" if zone == ZONE_Z else "")
    return text + (zone_text(minutes) if minutes else "+00:00")


_WORD_MAKERS: Final = {
    XSD_INTEGER: _integer_word,
    XSD_DECIMAL: _decimal_word,
    XSD_DOUBLE: _double_word,
    XSD_FLOAT: _float_word,
    XSD_BOOLEAN: _boolean_word,
    XSD_DATE_TIME: _date_time_word,
}

# --- registers and values -------------------------------------------------------------------------------------------

_LARGEST_SCALE: Final = 255


def register_of(value: Value) -> Register | None:
    """The register of a number, a truth value or a dateTime, or None where it does not fit exactly."""
    match value:
        case bool():
            return Register(Tag.BOOLEAN, int(value))
        case Number(_, int() as integer):
            return Register(Tag.INTEGER, integer) if _fits(integer, 64) else None
        case Number(_, Decimal() as decimal):
            return _scaled_register(Tag.DECIMAL, decimal)
        case Number(kind, number):
            return Register(Tag.FLOAT if kind == Kind.FLOAT else Tag.DOUBLE, double_bits(float(number)))
        case DateTime():
            return _scaled_register(Tag.DATE_TIME_LOCAL if value.zone is None else Tag.DATE_TIME, value.instant)
        case _:
            return None


def _scaled_register(tag: Tag, value: Decimal) -> Register | None:
    exponent = value.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 0
    if not 0 <= scale <= _LARGEST_SCALE:
        return None
    mantissa = int(EXACT.scaleb(value, scale))
    return Register(tag, mantissa, scale) if _fits(mantissa, 64) else None


def register_value(register: Register) -> Number | bool | DateTime | None:
    """The value in a register, or None if its tag says that it holds none. A dateTime is given in UTC."""
    match register.tag:
        case Tag.INTEGER:
            return Number(Kind.INTEGER, register.bits)
        case Tag.DECIMAL:
            return Number(Kind.DECIMAL, _scaled(register))
        case Tag.FLOAT:
            return Number(Kind.FLOAT, bits_double(register.bits))
        case Tag.DOUBLE:
            return Number(Kind.DOUBLE, bits_double(register.bits))
        case Tag.BOOLEAN:
            return bool(register.bits)
        case Tag.DATE_TIME:
            return DateTime(_scaled(register), 0)
        case Tag.DATE_TIME_LOCAL:
            return DateTime(_scaled(register), None)
        case _:
            return None


def _scaled(register: Register) -> Decimal:
    return EXACT.scaleb(Decimal(register.bits), -register.scale)
