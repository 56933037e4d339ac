"""Time that goes on while nothing arrives: which heartbeats are due by the wall clock, for streams that follow it.

A stream in arrival time follows the wall clock always: its time is the present.  A stream in event time follows it if
it has an idle time and has been silent for longer than that, by the wall clock: then its time goes on from that of its
newest element, at the pace of the wall clock.  Its lateness is granted to it in both cases.  Here is only the decision:
what is decided becomes a heartbeat, which whoever drives an engine writes down before it takes effect, so that it is
the same when it is repeated.

    clock = WallClock(settings, settling=settling_time(queries))
    loop:
        read = now()                                 # before sources are asked: up to here arrivals have been read
        …read, lift; for each stream that had elements: clock.observe(number, latest time, when it arrived)
        commands = [{"heartbeat": time, "stream": number} for time, number in clock.due(read)]
        …give the elements to the engine, then the commands; `clock.state()` is JSON, for `WallClock.restore`
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypedDict

from cqels.ingest import StreamSettings
from cqels.lang.expressions import calls
from cqels.lang.syntax import Range
from cqels.model.terms import CQ
from cqels.model.time import EARLIEST, LATEST, MILLISECOND, MINUTE, SECOND
from cqels.plan.algebra import Query, Stream, expressions_of, walk_plan

TICK = SECOND
"""Time between two heartbeats, if nothing else is said."""
_MOST = MINUTE
"""A stream that is further behind than this replays what is past: no heartbeat waits for it."""
_OF_THE_TICK = frozenset({"NOW", CQ + "now"})


class ClockState(TypedDict):
    """A clock as plain numbers: of each stream its newest element's time, when that arrived, the last heartbeat."""

    first: int | None
    seen: list[int | None]
    arrived: list[int | None]
    beaten: list[int | None]


@dataclass(slots=True)
class _Stream:
    settings: StreamSettings
    seen: int | None = None
    """The time of the newest element."""
    arrived: int | None = None
    """When that arrived, by the wall clock."""
    beaten: int | None = None
    """The time of the last heartbeat."""

    @property
    def known(self) -> int | None:
        """Before what time nothing comes that is not late."""
        seen = None if self.seen is None else self.seen - self.settings.lateness
        return max((time for time in (seen, self.beaten) if time is not None), default=None)

    def reached(self, now: int) -> int | None:
        """Where the stream is if it goes on at the pace of the wall clock; None if nothing has come."""
        if self.seen is None or self.arrived is None:
            return None
        return self.seen + max(now - self.arrived, 0)


class WallClock:
    """Says which heartbeats are due. It reads no clock: the present is given to it."""

    def __init__(
        self, streams: Iterable[StreamSettings] = (), *, tick: int = TICK, settling: int | None = None
    ) -> None:
        """`tick` is the time between two heartbeats of a stream.

        `settling` is how long after the last element heartbeats can change results (`settling_time`); None is for ever.
        """
        self._streams = [_Stream(each) for each in streams]
        self._first: int | None = None
        """The time of the first element of all."""
        self.tick, self.settling = tick, settling

    def add(self, settings: StreamSettings) -> None:
        """One more stream, with the next number."""
        self._streams.append(_Stream(settings))

    @property
    def is_needed(self) -> bool:
        """Some stream may follow the wall clock."""
        return any(follows(each.settings) for each in self._streams)

    @property
    def is_present(self) -> bool:
        """All streams that may follow the wall clock do so always."""
        following = [each.settings for each in self._streams if follows(each.settings)]
        return bool(following) and all(each.arrival for each in following)

    def observe(self, stream: int, time: int, arrived: int) -> None:
        """Elements of a stream have arrived, the newest of this time, at this time of the wall clock."""
        each = self._streams[stream]
        self._first = time if self._first is None else self._first
        each.seen = time if each.seen is None else max(each.seen, time)
        each.arrived = arrived if each.arrived is None else max(each.arrived, arrived)

    def due(self, now: int) -> list[tuple[int, int]]:
        """The heartbeats that are due: times, and the numbers of streams.

        `now` is the time of the wall clock up to which all that has arrived has been read and observed.
        """
        limit, end = self._limit(now), self._end
        found = []
        for number, each in enumerate(self._streams):
            time = self._time(each, now)
            if time is None or (end is not None and each.beaten is not None and each.beaten > end):
                continue
            time = (time if limit is None else min(time, limit)) - each.settings.lateness
            if self.tick >= MILLISECOND:
                time -= time % MILLISECOND  # which reads better in results
            if self._first is not None and time < self._first:
                continue  # what is before the first element of all is late by this alone
            if each.known is None or time >= each.known + self.tick:
                each.beaten = time
                found.append((time, number))
        return sorted(found)

    def _time(self, each: _Stream, now: int) -> int | None:
        """Where a stream is that follows the wall clock; None if it does not."""
        if each.settings.arrival:
            return now
        if each.arrived is None or each.settings.idle <= 0 or now - each.arrived <= each.settings.idle:
            return None
        return each.reached(now)

    def _limit(self, now: int) -> int | None:
        """What no heartbeat overtakes: where streams in event time are, if they have gone on at the wall clock's pace.

        A heartbeat is the time of all streams that are not waited for.  So without this, an element of such a stream
        would be late that is a little behind the wall clock, though no element of another stream has overtaken it.
        """
        if self._latest is None:
            return None
        event = (each.reached(now) for each in self._streams if not each.settings.arrival)
        return min((time for time in event if time is not None and self._latest - time <= _MOST), default=None)

    @property
    def _latest(self) -> int | None:
        return max((each.seen for each in self._streams if each.seen is not None), default=None)

    @property
    def _end(self) -> int | None:
        """Heartbeats after this time change nothing; None if there is no such time."""
        if self.settling is None:
            return None
        latest = self._latest
        return EARLIEST if latest is None else min(latest + self.settling, LATEST)

    # ------------------------------------------------------------ state

    def state(self) -> ClockState:
        return ClockState(
            first=self._first,
            seen=[each.seen for each in self._streams],
            arrived=[each.arrived for each in self._streams],
            beaten=[each.beaten for each in self._streams],
        )

    def restore(self, state: ClockState) -> None:
        """Go on as a clock of the same streams, or of fewer."""
        self._first = state.get("first")
        known = zip(self._streams, state["seen"], state["arrived"], state["beaten"], strict=False)
        for each, seen, arrived, beaten in known:
            each.seen, each.arrived, each.beaten = seen, arrived, beaten


def follows(settings: StreamSettings) -> bool:
    """Whether a stream may follow the wall clock."""
    return settings.arrival or settings.idle > 0


def unclocked(settings: StreamSettings) -> StreamSettings:
    """The settings for a clock of a stream that does not follow it: of files that end."""
    return replace(settings, arrival=False, idle=0)


def settling_time(queries: Iterable[Query]) -> int | None:
    """How long after the last element time that passes can change a result of queries; None is for ever.

    A window is empty, or stays as it is, when its width and its SLIDE have passed; what a query makes of that and sends
    to others stays in their windows as long again.
    """
    longest, chained = 0, 0
    for query in queries:
        if any(calls(each) & _OF_THE_TICK for node in walk_plan(query.plan) for each in expressions_of(node)):
            return None
        sources = [source for node in walk_plan(query.plan) if isinstance(node, Stream) for source in node.sources]
        ranges = [source.window for source in sources if isinstance(source.window, Range)]
        if any(window.time is not None for window in ranges):
            return None  # times of another clock, which may be far ahead
        width = max((window.width + (window.slide or 0) for window in ranges), default=0)
        longest = max(longest, width)
        chained += width if query.form == "construct" else 0
    return longest + chained


def fitting_tick(queries: Iterable[Query]) -> int:
    """A tick where each heartbeat costs: a tenth of the shortest window or SLIDE, from a second to a minute."""
    sources = [
        source
        for query in queries
        for node in walk_plan(query.plan)
        if isinstance(node, Stream)
        for source in node.sources
    ]
    ranges = [source.window for source in sources if isinstance(source.window, Range)]
    shortest = min((window.slide or window.width for window in ranges), default=MINUTE)
    return min(max(shortest // 10, TICK), MINUTE)
