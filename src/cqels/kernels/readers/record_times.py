"""Kernels that read the times of records: in a form of their own, as integers, or as dateTimes."""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import load
from cqels.kernels.memory.byte_strings import byte, copy_loosely, put_byte
from cqels.kernels.readers.line_tokenizer import counted_time, dated_time
from cqels.kernels.terms.xsd_lexical import TENS, days_of, fixed_number

YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, FRACTION, OPTIONAL_FRACTION = range(256, 264)
"""Signs of a form: four digits for a year, one to six for a fraction, two for each other part of a time; a dot with one
to nine digits, or nothing; the others are bytes."""


@kernel
def _digits(address, start, end):
    """How many digits there are from a position on."""
    position = start
    while position < end and 48 <= byte(address + position) <= 57:
        position += 1
    return position - start


@kernel
def formed_time(address, start, end, signs, count):
    """Whether the text has this form, each part of a time with all its digits, and the nanoseconds since 1970.

    What is found so is what `strptime` tries first: it takes fewer digits only if there is no other way.
    """
    year, month, day, hour, minute, second, fraction = 1900, 1, 1, 0, 0, 0, 0
    for number in range(count):
        sign = load(signs, number)
        width = 4 if sign == YEAR else 2 if sign > YEAR else 1
        if sign == FRACTION:
            width = _digits(address, start, min(start + 6, end))
        if sign == OPTIONAL_FRACTION:
            if start == end or byte(address + start) != 46:
                continue
            start += 1
            width = _digits(address, start, min(start + 9, end))
        if width == 0 or start + width > end:
            return False, 0
        if sign < YEAR:
            if byte(address + start) != sign:
                return False, 0
        else:
            value = fixed_number(address, start, width)
            if value < 0:
                return False, 0
            if sign == YEAR:
                year = value
            elif sign == MONTH:
                month = value
            elif sign == DAY:
                day = value
            elif sign == HOUR:
                hour = value
            elif sign == MINUTE:
                minute = value
            elif sign == SECOND:
                second = value
            else:
                fraction = value * TENS[9 - width]
        start += width
    days = days_of(year, month, day)
    if start != end or days == -1 << 62 or year < 1678 or year > 2261 or hour > 23 or minute > 59 or second > 59:
        return False, 0
    return True, (days * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000_000 + fraction


@kernel
def stated_time(address, start, end, unit, scratch):
    """Whether the text is an integer or a dateTime, with a `T` or a blank in it, and the nanoseconds since 1970."""
    known, time = counted_time(address, start, end, unit)
    if known:
        return known, time
    return date_time(address, start, end, scratch)


@kernel
def date_time(address, start, end, scratch):
    """Whether the text is a dateTime, with a `T` or a blank in it, and the nanoseconds since 1970."""
    length = end - start
    if length < 19 or length > 40:
        return False, 0
    copy_loosely(address + start, scratch, length)
    if byte(scratch + 10) == 32:
        put_byte(scratch + 10, 84)
    return dated_time(scratch, 0, length)
