"""Gaps: boundaries of sliding windows that time passes without a change, which are counted, not worked off.

Every boundary passed is a tick, whose number results carry, but one at which no window changes and no operator waits
for the time does nothing.  So a gap costs what changes in it: the scheduler (`_close_boundary` there) asks each window
and each operator when it changes next, and goes to the first boundary that is not before that.

The boundaries of several slides are counted by inclusion and exclusion: those of s and t together are

    multiples of s + multiples of t - multiples of their least common multiple

which for any number of slides is a sum over *periods*, each with how often its multiples count.

    word   of a period
    0      nanoseconds, 0 for one beyond all times: of its multiples there is the start alone
    1      how often its multiples count
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import lcm

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import ALWAYS
from cqels.kernels.memory.arena import load, store
from cqels.kernels.operators import star_window
from cqels.kernels.operators.payload_time_window import CLOSED, HEAP_COUNT, INSIDE, WAITING, top
from cqels.kernels.operators.payload_time_window import COUNT as STAGED
from cqels.kernels.operators.window import (
    COME,
    ENTERED,
    ENTRY_TIME,
    KIND,
    LEFT,
    NOW,
    RANGE,
    SLIDE,
    STAR,
    TOLD,
    TOLD_SLIDE,
    WIDTH,
    entry_of,
)

PERIOD_WORDS = 2
_MOST_PERIODS = 1 << 10
"""Periods up to which counting pays; slides that need more are worked off one by one."""


def periods_of(slides: Iterable[int]) -> list[tuple[int, int]]:
    """The periods by which the boundaries of slides are counted; none if there are too many.

    >>> periods_of([2, 3, 4])
    [(2, 1), (3, 1), (6, -1)]
    """
    counts: Counter[int] = Counter()
    for slide in slides:
        common = Counter({slide: 1})
        for period, count in counts.items():
            together = lcm(period, slide)
            common[together if together <= ALWAYS else 0] -= count
        for period, count in common.items():
            counts[period] += count
        counts = Counter({period: count for period, count in counts.items() if count != 0})
        if len(counts) > _MOST_PERIODS:
            return []
    return sorted(counts.items())


@kernel
def boundary_from(start, slide, least):
    """The first boundary that is not before a time: ALWAYS if there is none within the times there are."""
    wait = (start % slide - least % slide) % slide
    return ALWAYS if least > ALWAYS - wait else least + wait


@kernel
def _multiples(start, period, last):
    """How many boundaries are after 0 and not after a time, less those that are before it."""
    return last // period - (1 if last % period < start % period else 0)


@kernel
def passed_between(base, periods, count, start, first, end):
    """How many boundaries there are from a time on, before another."""
    total = 0
    for number in range(count):
        period = load(base, periods + PERIOD_WORDS * number)
        if period == 0:
            multiples = 1 if first <= start < end else 0
        else:
            multiples = _multiples(start, period, end - 1) - _multiples(start, period, first - 1)
        total += multiples * load(base, periods + PERIOD_WORDS * number + 1)
    return total


@kernel
def boundary_number(base, periods, count, start, first, end, number):
    """The boundary of a number, counted from 1, from a time on: the end if it is not before that."""
    low, high = first, end
    while low < high:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        if passed_between(base, periods, count, start, first, middle + 1) >= number:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def window_due(base, window, first):
    """The time, not before `first`, at which an advance of the window changes it: ALWAYS if only what comes does."""
    kind = load(base, window + KIND)
    if kind >= TOLD:
        return max(_payload_due(base, window, first), first)
    due = ALWAYS
    left, entered = load(base, window + LEFT), load(base, window + ENTERED)
    if left < entered:
        due = _leaves(base, window, kind, load(base, entry_of(base, window, left) + ENTRY_TIME))
    if entered < load(base, window + COME):
        due = min(due, load(base, entry_of(base, window, entered) + ENTRY_TIME))
    if load(base, window + STAR) != 0:
        due = min(due, _star_due(base, window, kind))
    return max(due, first)


@kernel
def _star_due(base, window, kind):
    found = load(base, window + STAR)
    left, entered = load(base, found + star_window.ROWS_LEFT), load(base, found + star_window.ROWS_ENTERED)
    due = ALWAYS
    if left < entered:
        due = _leaves(base, window, kind, load(base, star_window.row_of(base, found, left) + star_window.ROW_TIME))
    if entered < load(base, found + star_window.ROWS_COME):
        due = min(due, load(base, star_window.row_of(base, found, entered) + star_window.ROW_TIME))
    return due


@kernel
def _payload_due(base, window, first):
    if load(base, window + STAGED) > 0:
        return first
    due, kind = ALWAYS, RANGE if load(base, window + KIND) == TOLD else SLIDE
    if load(base, window + INSIDE + HEAP_COUNT) > 0:
        due = _leaves(base, window, kind, load(base, top(base, window + INSIDE) + ENTRY_TIME))
    if load(base, window + WAITING + HEAP_COUNT) > 0:
        due = min(due, load(base, top(base, window + WAITING) + ENTRY_TIME))
    return due


@kernel
def _leaves(base, window, kind, time):
    """The first time at which what is of this time is no longer in a window."""
    width = load(base, window + WIDTH)
    if kind == NOW:
        width = 0
    elif kind not in (RANGE, SLIDE):
        return ALWAYS
    if time >= 0 and width >= ALWAYS - time:
        return ALWAYS
    return time + width if kind == SLIDE else time + width + 1


@kernel
def pass_boundary(base, window, closed):
    """A boundary closes at which a window does not change: one over payload times stands still until the next one."""
    if load(base, window + KIND) == TOLD_SLIDE:
        store(base, window + CLOSED, closed)
