"""Terms as Python's own values, for programs that have no use for RDF's."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TypeAlias

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.model.datetimes import Date, DateTime, Duration, Length, Moment, Time, floor
from cqels.model.numbers import Number
from cqels.model.terms import Term
from cqels.model.values import value_of

Plain: TypeAlias = str | bool | int | Decimal | float | datetime | date | time | timedelta

_EPOCH = datetime(1970, 1, 1)


def plain(term: Term) -> Plain:
    """The value of a term: numbers, truth values, points and lengths of time as Python has them, all else as a str.

    That is an IRI, a blank node (`_:b`), a text without its language, and the text of a literal that has no value, or
    one that Python's types have no room for: a year that is not of four digits, a duration in months.  A fraction of a
    second is cut after its microseconds, and an xsd:date has no zone.

    >>> plain(Literal(31)), plain(NamedNode("http://ex.org/kitchen"))
    (31, 'http://ex.org/kitchen')
    """
    match term:
        case NamedNode():
            return term.value
        case BlankNode():
            return str(term)
    try:
        return _plain(term)
    except OverflowError:  # beyond the calendar
        return term.value


def _plain(literal: Literal) -> Plain:
    match value := value_of(literal):
        case bool():
            return value
        case Number():
            return value.value
        case DateTime():
            return _local(value).replace(tzinfo=_zone(value))
        case Date():
            return _local(value).date()
        case Time():
            return _local(value).time().replace(tzinfo=_zone(value))
        case Duration(months=0, length=Length.DURATION | Length.DAY_TIME):
            return timedelta(microseconds=floor(value.seconds * 1_000_000))
        case _:
            return literal.value


def _local(moment: Moment) -> datetime:
    return _EPOCH + timedelta(microseconds=floor(moment.local * 1_000_000))


def _zone(moment: Moment) -> timezone | None:
    if moment.zone is None:
        return None
    return timezone(timedelta(minutes=moment.zone)) if moment.zone else UTC
