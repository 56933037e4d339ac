"""What a stream brings: elements, and the lines or records that could not become one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cqels.model.terms import Triple
from cqels.model.time import format_duration, format_time

_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Element:
    """A non-empty graph with one timestamp, on the stream of this IRI."""

    stream: str
    time: int
    triples: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Input that is no element: its place (`file:line`), one lowercase sentence why, and the text itself.

    Bytes that are not UTF-8 are shown as `\\xff`, so that every sink can write what it is given.
    """

    stream: str
    place: str
    reason: str
    text: str

    def __post_init__(self) -> None:
        for name in ("place", "reason", "text"):
            value = getattr(self, name)
            if not value.isascii():
                object.__setattr__(self, name, _HALF.sub(_escape, value))

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"

    @property
    def line(self) -> str:
        r"""One line for a file of rejected input: place, reason and text, with tabs between them.

        >>> Rejected("s", "a.csv:2", "a quote is open", '1,"x\ny').line
        'a.csv:2\ta quote is open\t1,"x\\ny\n'
        """
        columns = (self.place, self.reason, self.text)
        return "\t".join(each.replace("\r", r"\r").replace("\n", r"\n") for each in columns) + "\n"


def late_reason(time: int, limit: int, *, own: bool) -> str:
    """Why an element is late that is behind a limit: its own stream's watermark too, or other streams alone.

    >>> late_reason(3 * 10**9, 5 * 10**9, own=True)
    'the element of 3s is late by 2s (the watermark is 5s): its stream was ahead, a larger lateness= waits'
    """
    at, mark, behind = format_time(time), format_time(limit), format_duration(limit - time)
    if own:
        help = "its stream was ahead, a larger lateness= waits"
    else:
        help = "other streams were ahead, idle= waits for this one; or push blocks of several streams in one call"
    return f"the element of {at} is late by {behind} (the watermark is {mark}): {help}"


def promise_reason(time: int, promised: int, subject: object) -> str:
    """Why an element is late that has a triple of a subject of which none before a time was promised.

    >>> promise_reason(3 * 10**9, 5 * 10**9, "<http://ex.org/s1>")
    'the element of 3s is late by 2s: a punctuation promised none of <http://ex.org/s1> before 5s'
    """
    at, mark, behind = format_time(time), format_time(promised), format_duration(promised - time)
    return f"the element of {at} is late by {behind}: a punctuation promised none of {subject} before {mark}"


def future_reason(time: int, future: int) -> str:
    """Why an element is refused that is further beyond the wall clock than its stream allows.

    >>> future_reason(5 * 10**9, 2 * 10**9)
    'the time 5s is more than 2s beyond the wall clock: a larger future= takes it'
    """
    at, most = format_time(time), format_duration(future)
    return f"the time {at} is more than {most} beyond the wall clock: a larger future= takes it"


def _escape(half: re.Match[str]) -> str:
    """A byte that was not UTF-8, or half a character that JSON had as an escape."""
    code = ord(half[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
