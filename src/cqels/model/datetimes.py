"""Points and lengths of time: xsd:dateTime, date, time and the durations, exact to any fraction of a second."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeVar

from cqels.model.numbers import EXACT, ExpressionError, decimal_text, integer_from

DAY = 86_400
_INDETERMINATE = 14 * 3600
"""A time without a zone can be this many seconds off UTC, either way."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time as its own clock shows it.

    `local` is in seconds since 1970-01-01T00:00:00 on that clock; `zone` is its lead over UTC in minutes, or None.
    """

    local: Decimal
    zone: int | None

    @property
    def instant(self) -> Decimal:
        """Seconds since the epoch in UTC; a time without a zone counts as UTC."""
        return EXACT.subtract(self.local, Decimal(60 * self.zone)) if self.zone else self.local

    @property
    def year(self) -> int:
        return civil(self._day)[0]

    @property
    def month(self) -> int:
        return civil(self._day)[1]

    @property
    def day(self) -> int:
        return civil(self._day)[2]

    @property
    def hour(self) -> int:
        return int(self._second_of_day) // 3600

    @property
    def minute(self) -> int:
        return int(self._second_of_day) // 60 % 60

    @property
    def second(self) -> Decimal:
        return EXACT.remainder(self._second_of_day, Decimal(60))

    @property
    def _day(self) -> int:
        return floor(self.local) // DAY

    @property
    def _second_of_day(self) -> Decimal:
        return EXACT.subtract(self.local, Decimal(self._day * DAY))


class DateTime(Moment):
    """An xsd:dateTime."""

    __slots__ = ()


class Date(Moment):
    """An xsd:date: the moment at which the day begins."""

    __slots__ = ()


class Time(Moment):
    """An xsd:time: a moment of 1970-01-01."""

    __slots__ = ()


class Length(Enum):
    """The three types of durations."""

    DURATION = "duration"
    DAY_TIME = "dayTimeDuration"
    YEAR_MONTH = "yearMonthDuration"


@dataclass(frozen=True, slots=True)
class Duration:
    """A number of months and a number of seconds, both at least zero or both at most zero."""

    months: int
    seconds: Decimal
    length: Length = Length.DURATION


AnyMoment = TypeVar("AnyMoment", bound=Moment)

# --- the calendar ---------------------------------------------------------------------------------------------------


def floor(value: Decimal) -> int:
    whole = int(value)
    return whole - (value < whole)


def days_of(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a day of the proleptic Gregorian calendar; year 0 is 1 BCE."""
    year -= month <= 2  # a year that begins in March has its leap day at the end
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day: the inverse of `days_of`."""
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def days_in_month(year: int, month: int) -> int:
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return days_of(*following, 1) - days_of(year, month, 1)


def add_months(days: int, months: int) -> int:
    """The day so many months later; the last day of the month where that month is too short."""
    year, month, day = civil(days)
    years, month = divmod(month - 1 + months, 12)
    year, month = year + years, month + 1
    return days_of(year, month, min(day, days_in_month(year, month)))


# --- reading --------------------------------------------------------------------------------------------------------

_YEAR_TO_DAY = r"(?P<year>-?(?:[1-9][0-9]{3,}|0[0-9]{3}))-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"(?:(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9](?:\.[0-9]+)?)|24:00:00(?:\.0+)?)"
_ZONE = r"(?P<zone>Z|[+-](?:(?:0[0-9]|1[0-3]):[0-5][0-9]|14:00))?"
_DATE_TIME = re.compile(f"{_YEAR_TO_DAY}T{_CLOCK}{_ZONE}")
_DATE = re.compile(_YEAR_TO_DAY + _ZONE)
_TIME = re.compile(_CLOCK + _ZONE)
_DURATION = re.compile(
    r"(?P<sign>-)?P(?=.)(?:(?P<years>[0-9]+)Y)?(?:(?P<months>[0-9]+)M)?(?:(?P<days>[0-9]+)D)?"
    r"(?P<clock>T(?=.)(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+(?:\.[0-9]+)?)S)?)?"
)


def date_time_from(text: str) -> DateTime | None:
    match = _DATE_TIME.fullmatch(text)
    day = match and _read_day(match)
    if match is None or day is None:
        return None
    return DateTime(EXACT.add(Decimal(day * DAY), _read_clock(match)), _read_zone(match))


def date_from(text: str) -> Date | None:
    match = _DATE.fullmatch(text)
    day = match and _read_day(match)
    if match is None or day is None:
        return None
    return Date(Decimal(day * DAY), _read_zone(match))


def time_from(text: str) -> Time | None:
    match = _TIME.fullmatch(text)
    return Time(EXACT.remainder(_read_clock(match), Decimal(DAY)), _read_zone(match)) if match else None


def duration_from(text: str, length: Length) -> Duration | None:
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    dated = match["years"] or match["months"]
    timed = match["days"] or match["clock"]
    if (length is Length.DAY_TIME and dated) or (length is Length.YEAR_MONTH and timed):
        return None
    months = 12 * _read_count(match["years"]) + _read_count(match["months"])
    minutes = 1440 * _read_count(match["days"]) + 60 * _read_count(match["hours"]) + _read_count(match["minutes"])
    seconds = EXACT.add(Decimal(60 * minutes), Decimal(match["seconds"] or 0))
    if match["sign"]:
        months, seconds = -months, EXACT.minus(seconds)
    return Duration(months, seconds, length)


def _read_count(digits: str | None) -> int:
    return (integer_from(digits) or 0) if digits else 0


def _read_day(match: re.Match[str]) -> int | None:
    year, month, day = integer_from(match["year"]) or 0, int(match["month"]), int(match["day"])
    return days_of(year, month, day) if day <= days_in_month(year, month) else None


def _read_clock(match: re.Match[str]) -> Decimal:
    if match["hour"] is None:
        return Decimal(DAY)  # 24:00:00
    return EXACT.add(Decimal(3600 * int(match["hour"]) + 60 * int(match["minute"])), Decimal(match["second"]))


def _read_zone(match: re.Match[str]) -> int | None:
    zone = match["zone"]
    if zone is None or zone == "Z":
        return None if zone is None else 0
    minutes = 60 * int(zone[1:3]) + int(zone[4:6])
    return -minutes if zone[0] == "-" else minutes


# --- writing --------------------------------------------------------------------------------------------------------


def moment_text(moment: Moment) -> str:
    """The canonical text: no trailing zeros in the fraction, `Z` for a zone of zero."""
    match moment:
        case Date():
            return _day_text(moment) + zone_text(moment.zone)
        case Time():
            return _clock_text(moment) + zone_text(moment.zone)
        case _:
            return f"{_day_text(moment)}T{_clock_text(moment)}{zone_text(moment.zone)}"


def _day_text(moment: Moment) -> str:
    year, month, day = civil(floor(moment.local) // DAY)
    return f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day:02}"


def _clock_text(moment: Moment) -> str:
    second = decimal_text(moment.second)
    return f"{moment.hour:02}:{moment.minute:02}:{second if moment.second >= 10 else '0' + second}"


def zone_text(zone: int | None) -> str:
    if not zone:
        return "" if zone is None else "Z"
    return f"{'-' if zone < 0 else '+'}{abs(zone) // 60:02}:{abs(zone) % 60:02}"


def duration_text(duration: Duration) -> str:
    """The canonical text, in the largest units: `P1Y2M3DT4H5M6.7S`, and `PT0S` or `P0M` for nothing."""
    months, seconds = abs(duration.months), duration.seconds.copy_abs()  # abs() would round
    days, clock = divmod(int(seconds), DAY)
    rest = EXACT.subtract(seconds, Decimal(int(seconds) - clock % 60))
    parts = [(months // 12, "Y"), (months % 12, "M"), (days, "D")]
    clock_parts = [(clock // 3600, "H"), (clock // 60 % 60, "M")]
    text = "".join(f"{count}{unit}" for count, unit in parts if count)
    clock_text = "".join(f"{count}{unit}" for count, unit in clock_parts if count)
    clock_text += f"{decimal_text(rest)}S" if rest else ""
    if not text and not clock_text:
        return "P0M" if duration.length is Length.YEAR_MONTH else "PT0S"
    sign = "-" if duration.months < 0 or duration.seconds < 0 else ""
    return f"{sign}P{text}{'T' + clock_text if clock_text else ''}"


# --- comparing ------------------------------------------------------------------------------------------------------


def compare_moments(a: Moment, b: Moment) -> int:
    """-1, 0 or 1. With a zone on one side only, the answer must hold for every zone of the other."""
    first, second = a.instant, b.instant
    if (a.zone is None) != (b.zone is None) and EXACT.subtract(first, second).copy_abs() <= _INDETERMINATE:
        raise ExpressionError("the order of times with and without a zone is indeterminate within 14 hours")
    return (first > second) - (first < second)


# XSD's four starting points: between them, every number of months has its shortest and its longest number of days.
_STARTS = tuple(days_of(*start, 1) for start in ((1696, 9), (1697, 2), (1903, 3), (1903, 7)))


def compare_durations(a: Duration, b: Duration) -> int:
    """-1, 0 or 1 where every month of the calendar gives the same answer (a month is longer than 27 days)."""
    answers = {(x > y) - (x < y) for x, y in ((_end(a, start), _end(b, start)) for start in _STARTS)}
    if len(answers) > 1:
        raise ExpressionError("the order of these durations depends on the month they start in")
    return answers.pop()


def durations_equal(a: Duration, b: Duration) -> bool:
    return a.months == b.months and a.seconds == b.seconds


def duration_key(duration: Duration) -> tuple[Decimal, int]:
    """A sort key that agrees with every determinate comparison, as it is one of the four that decide it."""
    return _end(duration, _STARTS[0]), duration.months


def _end(duration: Duration, start: int) -> Decimal:
    return EXACT.add(Decimal(add_months(start, duration.months) * DAY), duration.seconds)


# --- arithmetic -----------------------------------------------------------------------------------------------------


def shift(moment: AnyMoment, duration: Duration) -> AnyMoment:
    """`moment + duration`: first the months, then the seconds. A date keeps to midnight, a time of day wraps around."""
    kind = type(moment)
    if isinstance(moment, Time):
        if duration.length is not Length.DAY_TIME:
            raise ExpressionError("a time of day moves by an xsd:dayTimeDuration only")
        local = EXACT.add(moment.local, duration.seconds)
        return kind(EXACT.subtract(local, Decimal(floor(local) // DAY * DAY)), moment.zone)
    day = floor(moment.local) // DAY
    months = (add_months(day, duration.months) - day) * DAY
    local = EXACT.add(EXACT.add(moment.local, Decimal(months)), duration.seconds)
    if isinstance(moment, Date):
        local = Decimal(floor(local) // DAY * DAY)
    return kind(local, moment.zone)


def difference(a: Moment, b: Moment) -> Duration:
    """`a - b` for two moments of the same type, as an xsd:dayTimeDuration."""
    if type(a) is not type(b) or (a.zone is None) != (b.zone is None):
        raise ExpressionError("only two moments of one type, both with a zone or both without, have a difference")
    return Duration(0, EXACT.subtract(a.instant, b.instant), Length.DAY_TIME)


def add_durations(a: Duration, b: Duration) -> Duration:
    """`a + b`; the sum of two types is an xsd:duration."""
    months, seconds = a.months + b.months, EXACT.add(a.seconds, b.seconds)
    if (months > 0 > seconds) or (months < 0 < seconds):
        raise ExpressionError("a duration cannot have months and seconds of opposite signs")
    return Duration(months, seconds, a.length if a.length is b.length else Length.DURATION)


def negate_duration(a: Duration) -> Duration:
    return Duration(-a.months, EXACT.minus(a.seconds), a.length)
