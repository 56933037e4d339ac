"""The timestamp of a record, as a lifting template says how it is written: several forms, numbers, zones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from zoneinfo import ZoneInfo

from pyoxigraph import Literal

from cqels.ingest.parse_errors import UNREADABLE
from cqels.ingest.record_readers import Instant, Value
from cqels.model.time import SECOND, no_time_reason, parse_time, time_of, unit_nanoseconds

ISO, EPOCH = "iso", "epoch"
"""Words for forms: a dateTime; a number of units since 1970, which may have a fraction."""
OPTIONAL_FRACTION = "%.f"
"""In a form, a fraction of a second with its dot, up to nine digits, or nothing."""
_FRACTION = re.compile(r"\.([0-9]{1,9})(?![0-9])")
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
_ZONED = re.compile(r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})$")


@dataclass(frozen=True, slots=True)
class TimeTemplate:
    """Where the time of a record is and how it is written.

    The forms are tried in their order; without one it is a dateTime or an integer.  An integer counts `unit`, or what
    the stream's integers do; a time without a zone is one of `zone`, or of UTC.
    """

    column: str
    formats: tuple[str, ...] = ()
    unit: str | None = None
    zone: str | None = None

    def read(self, value: Value, unit: str) -> int:
        """The time that a value states, in nanoseconds; ValueError if it states none."""
        if value is None or value == "":
            raise ValueError("the record has no timestamp")
        if isinstance(value, Instant):
            return parse_time(value.nanoseconds)
        if isinstance(value, date):
            return parse_time(datetime.combine(value, time(), UTC))
        counted = self.unit or unit
        if not self.formats:
            return self._stated(str(value), counted)
        for form in self.formats:
            try:
                return self._formed(str(value), form, counted)
            except UNREADABLE:
                continue
        if len(self.formats) == 1:
            raise ValueError(f"the timestamp '{value}' does not have the form {self.formats[0]}")
        raise ValueError(f"the timestamp '{value}' has none of the forms {', '.join(self.formats)}")

    def _stated(self, text: str, unit: str) -> int:
        """The time of a dateTime or an integer."""
        literal = Literal(text)
        if (found := time_of(literal, unit)) is None:
            raise ValueError(no_time_reason(literal, "'"))
        if self.zone is None or text.strip().lstrip("+-").isdecimal() or _ZONED.search(text.strip()):
            return found
        whole, fraction = divmod(found, SECOND)
        local = datetime(1970, 1, 1) + timedelta(seconds=whole)
        return parse_time(parse_time(local.replace(tzinfo=zone_of(self.zone))) + fraction)

    def _formed(self, text: str, form: str, unit: str) -> int:
        if form == ISO:
            if text.strip().lstrip("+-").isdecimal():
                raise ValueError("it is a number")
            return self._stated(text, unit)
        if form == EPOCH or form.startswith(f"{EPOCH}-"):
            return epoch_time(text, form.removeprefix(EPOCH).removeprefix("-") or unit)
        if OPTIONAL_FRACTION not in form:
            return self._zoned(datetime.strptime(text, form))
        form = form.replace(OPTIONAL_FRACTION, "")
        try:
            return self._zoned(datetime.strptime(text, form))
        except ValueError:
            for found in reversed(list(_FRACTION.finditer(text))):
                try:
                    whole = datetime.strptime(text[: found.start()] + text[found.end() :], form)
                except ValueError:
                    continue
                return parse_time(self._zoned(whole) + int(found[1].ljust(9, "0")))
            raise

    def _zoned(self, moment: datetime) -> int:
        if moment.tzinfo is None and self.zone is not None:
            moment = moment.replace(tzinfo=zone_of(self.zone))
        return parse_time(moment)


def epoch_time(text: str, unit: str) -> int:
    """The time that a number of units since 1970 states.

    >>> epoch_time("1407800000.25", "s")
    1407800000250000000
    """
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"'{text}' is not a number") from None
    if not number.is_finite() or abs(number.adjusted()) > 40:
        raise ValueError(f"'{text}' is not a time")
    size = unit_nanoseconds(unit)
    assert size is not None
    return parse_time(int(number * size))


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    """The zone of a name, such as `Europe/Copenhagen`, or of an offset, such as `+02:00`; ValueError if there is none.

    A local time that a change of the clocks repeats is the first of the two.
    """
    if (offset := _OFFSET.fullmatch(name)) is not None:
        shift = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(shift if offset[1] == "+" else -shift)
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError(f"'{name}' is not a time zone") from None
