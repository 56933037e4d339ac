"""Times and durations: every text the language accepts, and the law that a written time reads back."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode

from cqels.model.terms import XSD, XSD_DATE_TIME, XSD_DECIMAL, XSD_INTEGER
from cqels.model.time import (
    DAY,
    HOUR,
    MILLISECOND,
    MINUTE,
    SECOND,
    WEEK,
    format_time,
    parse_duration,
    parse_iso_duration,
    parse_time,
    time_of,
    unit_nanoseconds,
)

NEW_YEAR = 1356998400 * SECOND  # 2013-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10s", 10 * SECOND),
        ("250 ms", 250 * MILLISECOND),
        ("1m 30s", 90 * SECOND),
        ("1m30s", 90 * SECOND),
        ("3000ms", 3 * SECOND),
        ("30 minutes", 30 * MINUTE),
        ("2 Hours", 2 * HOUR),
        ("5 S", 5 * SECOND),
        ("1.5h", 90 * MINUTE),
        ("0.1s", 100 * MILLISECOND),
        ("7ns", 7),
        ("3us", 3000),
        ("2 milliseconds", 2 * MILLISECOND),
        ("1w", WEEK),
        ("PT2H", 2 * HOUR),
        ("P1DT12H", 36 * HOUR),
        ("PT0.5S", 500 * MILLISECOND),
        ("P2W", 14 * DAY),
        ("pt1m", MINUTE),
    ],
)
def test_durations(text: str, length: int) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a duration is empty"),
        ("10", "has no unit"),
        ("s", "is not a duration"),
        ("-4s", "is not a duration"),
        ("4 parsecs", "'parsecs' is not a unit"),
        ("1s 2", "is not a duration"),
        ("P", "is not an ISO 8601 duration"),
        ("P1DT", "is not an ISO 8601 duration"),
        ("P1M", "no fixed length"),
        ("P1Y2D", "no fixed length"),
        ("0.5ns", "finer than a nanosecond"),
        ("999999999d", "does not fit in 64 bits"),
    ],
)
def test_refused_durations(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        parse_duration(text)
    assert str(caught.value)[0] in "'" or str(caught.value)[0].islower()


def test_months_and_minutes_are_told_apart() -> None:
    assert parse_iso_duration("PT1M") == MINUTE
    with pytest.raises(ValueError, match="no fixed length"):
        parse_iso_duration("P1MT1M")


def test_units() -> None:
    assert unit_nanoseconds("Minutes") == MINUTE
    assert unit_nanoseconds("fortnight") is None


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (7, 7),
        ("4s", 4 * SECOND),
        ("-250ms", -250 * MILLISECOND),
        ("2013-01-01T00:00:00Z", NEW_YEAR),
        ("2013-01-01T01:00:00+01:00", NEW_YEAR),
        ("2012-12-31T24:00:00Z", NEW_YEAR),
        ("2013-01-01 15:11:48", NEW_YEAR + 15 * HOUR + 11 * MINUTE + 48 * SECOND),
        ("2013-01-01T00:00:00.000000001", NEW_YEAR + 1),
        (datetime(2013, 1, 1), NEW_YEAR),
        (datetime(2013, 1, 1, 0, 0, 0, 1, tzinfo=UTC), NEW_YEAR + 1000),
        (datetime(2012, 12, 31, 23, tzinfo=timezone(timedelta(hours=-1))), NEW_YEAR),
    ],
)
def test_times(value: datetime | int | str, time: int) -> None:
    assert parse_time(value) == time


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("noon", "is not a time such as"),
        ("4000", "has no unit"),
        ("2013-02-30T00:00:00Z", "not a day of the calendar"),
        ("2013-01-01T25:00:00Z", "not a time of day"),
        ("9999-01-01T00:00:00Z", "64 bits"),
    ],
)
def test_refused_times(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_time(text)


@pytest.mark.parametrize(
    ("literal", "unit", "time"),
    [
        (Literal("12000"), "ms", 12 * SECOND),
        (Literal("-3", datatype=XSD_INTEGER), "s", -3 * SECOND),
        (Literal("5", datatype=NamedNode(XSD + "long")), "ns", 5),
        (Literal("2023-02-13T09:27:26.2010", datatype=XSD_DATE_TIME), "ms", 1676280446_201_000_000),
        (Literal("2013-01-01 00:00:00"), "ms", NEW_YEAR),
        (Literal("1.5", datatype=XSD_DECIMAL), "ms", None),
        (Literal("2013-02-30T00:00:00", datatype=XSD_DATE_TIME), "ms", None),
        (Literal("12000", language="en"), "ms", None),
        (Literal("99999999999999999999"), "ms", None),
        (Literal("soon"), "ms", None),
    ],
)
def test_times_of_literals(literal: Literal, unit: str, time: int | None) -> None:
    assert time_of(literal, unit) == time


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0s"),
        (4 * SECOND, "4s"),
        (90 * SECOND, "90s"),
        (1500 * MILLISECOND, "1500ms"),
        (-1, "-1ns"),
        (2000, "2us"),
        (NEW_YEAR + 250 * MILLISECOND, "2013-01-01T00:00:00.25Z"),
    ],
)
def test_written_times(time: int, text: str) -> None:
    assert format_time(time) == text


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**6), 10**6).map(lambda n: n * MILLISECOND))
def test_a_written_time_reads_back(time: int) -> None:
    assert parse_time(format_time(time)) == time
