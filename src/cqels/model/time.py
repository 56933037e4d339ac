"""Times and durations as 64-bit counts of nanoseconds, and the texts that stand for them; clocks live elsewhere."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from pyoxigraph import Literal

from cqels.model.terms import XSD

NANOSECOND = 1
MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

EARLIEST = -(2**63)
LATEST = 2**63 - 1

_SYMBOLS = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
    "d": DAY,
    "w": WEEK,
}
_WORDS = {
    "nanosecond": NANOSECOND,
    "microsecond": MICROSECOND,
    "millisecond": MILLISECOND,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": WEEK,
}
_UNITS = _SYMBOLS | _WORDS | {word + "s": size for word, size in _WORDS.items()}

_NUMBER = r"[0-9]{1,40}(?:\.[0-9]{1,40})?"
_PART = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]+)\s*")
_ISO_DURATION = re.compile(
    rf"P(?=[0-9T])(?P<years>{_NUMBER}Y)?(?P<months>{_NUMBER}M)?(?:({_NUMBER})W)?(?:({_NUMBER})D)?"
    rf"(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DATE_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))?"
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")

_TEXT = XSD + "string"
_DATE_TIMES = frozenset(XSD + name for name in ("dateTime", "dateTimeStamp"))
_INTEGERS = frozenset(
    XSD + name
    for name in (
        "integer",
        "long",
        "int",
        "short",
        "byte",
        "nonNegativeInteger",
        "positiveInteger",
        "nonPositiveInteger",
        "negativeInteger",
        "unsignedLong",
        "unsignedInt",
        "unsignedShort",
        "unsignedByte",
    )
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DURATION_LIMIT = 10 * 365 * DAY
"""Times nearer to 0 than this are logical times and written as durations; a real clock is past it since 1980."""


def unit_nanoseconds(word: str) -> int | None:
    """The length of one unit (`ms`, `Minutes`), or None if the word names none."""
    return _UNITS.get(word.lower())


def parse_duration(text: str) -> int:
    """The length that `10s`, `1m 30s`, `1.5 hours` or `PT2H` stands for.

    >>> parse_duration("1m 30s") == parse_duration("PT1M30S") == 90 * SECOND
    True
    """
    body = text.strip()
    if body[:1] in ("P", "p"):
        return parse_iso_duration(body)
    if not body:
        raise ValueError("a duration is empty, write one such as 10s or 1m 30s")
    total, position = 0, 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            if _INTEGER.fullmatch(body) and body[0] not in "+-":
                raise ValueError(f"the duration '{body}' has no unit, write {body}s or {body}ms")
            raise ValueError(f"'{body}' is not a duration such as 10s, 1m 30s or PT2H")
        size = unit_nanoseconds(part[2])
        if size is None:
            raise ValueError(f"'{part[2]}' is not a unit of time, the units are {', '.join(_SYMBOLS)}")
        total += _scaled(part[1], size, body)
        position = part.end()
    return _within_range(total, body)


def parse_iso_duration(text: str) -> int:
    """The length of an ISO 8601 duration such as `PT2H`; years and months are refused, their length varies."""
    body = text.strip()
    parts = _ISO_DURATION.fullmatch(body)
    if parts is None:
        raise ValueError(f"'{body}' is not an ISO 8601 duration such as PT2H or P1DT12H")
    if parts["years"] or parts["months"]:
        raise ValueError(f"the duration '{body}' has no fixed length, use days instead of years and months")
    sizes = zip(parts.groups()[2:], (WEEK, DAY, HOUR, MINUTE, SECOND), strict=True)
    return _within_range(sum(_scaled(number, size, body) for number, size in sizes if number), body)


def parse_time(value: object) -> int:
    """The time that a datetime (UTC unless it says otherwise), a number of nanoseconds or a text stands for.

    A text is an ISO dateTime or a duration since 0, `-4s` being before 0.  Nanoseconds of a pandas Timestamp count.
    """
    if isinstance(value, datetime):
        if value != value:  # NaT of pandas
            raise ValueError("the time is missing")
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        microseconds = (aware - _EPOCH) // timedelta(microseconds=1)
        return _within_range(microseconds * MICROSECOND + getattr(value, "nanosecond", 0), str(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return _within_range(int(value), str(value))
    if not isinstance(value, str):
        raise ValueError(f"a time of type {type(value).__name__} is not taken")
    body = value.strip()
    if _DATE_TIME.fullmatch(body):
        return _within_range(_date_time(body), body)
    try:
        return -parse_duration(body[1:]) if body.startswith("-") else parse_duration(body)
    except ValueError as error:
        if _PART.match(body.lstrip("-")) or _INTEGER.fullmatch(body):
            raise
        raise ValueError(f"'{body}' is not a time such as 4s, 250ms or 2013-01-01T00:00:00Z") from error


def time_of(literal: Literal, unit: str = "ms") -> int | None:
    """The time a literal states: a dateTime, or an integer counted in `unit`; None if it states none.

    Plain strings are read like the typed literals: many files write `"12000"` or `"2013-01-01 15:11:48"`.
    """
    datatype, text = literal.datatype.value, literal.value.strip()
    if (datatype in _INTEGERS or datatype == _TEXT) and _INTEGER.fullmatch(text):
        time = int(text) * _UNITS[unit.lower()]
    elif (datatype in _DATE_TIMES or datatype == _TEXT) and _DATE_TIME.fullmatch(text):
        try:
            time = _date_time(text)
        except ValueError:
            return None
    else:
        return None
    return time if EARLIEST <= time <= LATEST else None


def no_time_reason(literal: Literal, quote: str = "") -> str:
    """Why `time_of` finds no time in a literal; a value of a record is shown in another kind of quotes.

    >>> no_time_reason(Literal("1500-01-01T00:00:00Z"))
    'the timestamp "1500-01-01T00:00:00Z" is not between the years 1677 and 2262, as 64 bits of nanoseconds are'
    """
    datatype, text = literal.datatype.value, literal.value.strip()
    if len(text) > 100:
        shown = f"{text[:100]}…"
    else:
        shown = f"{quote}{literal.value}{quote}" if quote else str(literal)
    if (datatype in _DATE_TIMES or datatype == _TEXT) and _DATE_TIME.fullmatch(text):
        try:
            _date_time(text)
        except ValueError as error:
            return str(error)
    elif not ((datatype in _INTEGERS or datatype == _TEXT) and text.lstrip("+-").isdecimal()):
        return f"the timestamp {shown} is neither a dateTime nor an integer"
    return f"the timestamp {shown} is not between the years 1677 and 2262, as 64 bits of nanoseconds are"


def format_duration(nanoseconds: int) -> str:
    """A duration in the largest unit that gives a whole number.

    >>> format_duration(1_800_000_000_000), format_duration(1_500_000_000)
    ('30m', '1500ms')
    """
    units = (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND), ("us", MICROSECOND))
    for name, size in units:
        if nanoseconds and nanoseconds % size == 0:
            return f"{nanoseconds // size}{name}"
    return f"{nanoseconds}ns" if nanoseconds else "0s"


def format_time(time: int) -> str:
    """The shortest exact text of a time. Law: `parse_time(format_time(t)) == t`.

    >>> format_time(4 * SECOND), format_time(1500 * MILLISECOND), format_time(1356998400 * SECOND)
    ('4s', '1500ms', '2013-01-01T00:00:00Z')
    """
    if abs(time) >= _DURATION_LIMIT:
        return format_date_time(time)
    for unit in ("s", "ms", "us"):
        if time % _UNITS[unit] == 0:
            return f"{time // _UNITS[unit]}{unit}"
    return f"{time}ns"


def format_date_time(time: int) -> str:
    """The time as an xsd:dateTime in UTC, with the fraction digits it needs."""
    seconds, fraction = divmod(time, SECOND)
    days, second = divmod(seconds, 86_400)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{date.fromordinal(_EPOCH_DAY + days).isoformat()}T{hour:02d}:{minute:02d}:{second:02d}{digits}Z"


def date_time_at(time: int) -> datetime:
    """The time as Python's datetime in UTC, cut after its microseconds. Every time of 64 bits has one.

    >>> date_time_at(4 * SECOND).isoformat()
    '1970-01-01T00:00:04+00:00'
    """
    return _EPOCH + timedelta(microseconds=time // MICROSECOND)


def _date_time(text: str) -> int:
    """Nanoseconds of a text that `_DATE_TIME` matches."""
    parts = _DATE_TIME.fullmatch(text)
    assert parts is not None
    year, month, day, hour, minute, second = (int(part) for part in parts.groups()[:6])
    fraction = (parts[7] or "").rstrip("0")
    midnight = hour == 24 and minute == second == 0 and not fraction  # XSD writes the end of a day as 24:00:00
    if (hour > 23 and not midnight) or minute > 59 or second > 59:
        raise ValueError(f"'{text}' is not a time of day")
    if len(fraction) > 9:
        raise ValueError(f"the time '{text}' is finer than a nanosecond")
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError(f"'{text}' is not a day of the calendar") from None
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second
    if parts[8]:
        offset = int(parts[9]) * 3_600 + int(parts[10]) * 60
        seconds += -offset if parts[8] == "+" else offset
    return seconds * SECOND + int(fraction.ljust(9, "0"))


def _scaled(number: str, size: int, text: str) -> int:
    whole, _, fraction = number.partition(".")
    scaled, rest = divmod(int(whole + fraction) * size, int("1".ljust(len(fraction) + 1, "0")))
    if rest:
        raise ValueError(f"the duration '{text}' is finer than a nanosecond")
    return scaled


def _within_range(time: int, text: str) -> int:
    if not EARLIEST <= time <= LATEST:
        raise ValueError(f"the time '{text}' does not fit in 64 bits of nanoseconds")
    return time
