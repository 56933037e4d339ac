"""Event time over batches: elements are put in order, late elements are separated, silent streams are not waited for.

What is released, and what is late, is the same however the elements are cut into batches.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import repeat
from time import time_ns
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from cqels.engine.event_time.reorder_buffer import ReorderBuffer
from cqels.ingest import StreamSettings
from cqels.ingest.element_batch import HEARTBEAT, Batch, Words
from cqels.model.errors import CqelsError
from cqels.model.time import EARLIEST, LATEST


class Arrived(NamedTuple):
    """What came of a batch: what it releases, in order, and which of its elements are late.

    `late` are their indexes in the batch, `times` their times (in arrival time not those they carry), `limits` the
    times that they are behind, `own` whether that is the watermark of their own stream too, not of others alone.
    """

    released: Batch
    late: Words
    times: list[int]
    limits: list[int]
    own: list[bool]


class WatermarkState(TypedDict):
    """Watermarks as plain numbers, beside the elements that are held. None is what has not come yet."""

    first: int | None
    latest: int
    released: int | None
    seen: list[int | None]
    promised: list[int | None]


@dataclass(slots=True)
class _Stream:
    """How far a stream has come: the latest of its elements, and before what time no more of them will come."""

    settings: StreamSettings
    seen: int | None = None
    promised: int | None = None

    @property
    def watermark(self) -> int | None:
        return _latest(self.promised, None if self.seen is None else self.seen - self.settings.lateness)

    @property
    def last(self) -> int | None:
        return _latest(self.promised, self.seen)


@dataclass(frozen=True, slots=True)
class _Course:
    """How time goes on if a batch is let in, element by element.

    `watermarks` and `lasts` are those of an element's stream before the element, EARLIEST if there are none; `lasts`
    is LATEST for a stream whose silence holds nothing back. `horizons` are those after the element.
    """

    watermarks: Words
    lasts: Words
    horizons: Words


class Watermarks:
    """Holds elements until nothing earlier can come, then releases them by time and, at one time, by arrival.

    Streams have numbers in the order in which they are added. A stream in arrival time takes the time of an element
    from `now`, once for a batch.
    """

    few = 24
    """Batches up to this size are quicker to walk through than to compute with."""

    def __init__(self, streams: Iterable[StreamSettings] = (), *, now: Callable[[], int] = time_ns) -> None:
        self._streams: list[_Stream] = []
        self._now = now
        self._reorder_buffer = ReorderBuffer()
        self._first: int | None = None
        self._latest = 0
        self._released: int | None = None
        for each in streams:
            self.add(each)

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, settings: StreamSettings) -> int:
        """One more stream, from now on; its number."""
        self._streams.append(_Stream(settings))
        return len(self._streams) - 1

    # ------------------------------------------------------------ what happens

    def arrive(self, batch: Batch) -> Arrived:
        """What the arrival of elements releases. A heartbeat among them speaks for all streams."""
        if not len(batch):
            return Arrived(batch, _NONE, [], [], [])
        highest = int(batch.streams[0] if len(batch) == 1 else batch.streams.max())
        if highest >= len(self._streams):
            raise IndexError(f"stream {highest} is not one of {len(self._streams)}")
        batch = self._stamped(batch)
        if len(batch) == 1 and highest >= 0:
            return self._let_in(batch)
        beats = np.flatnonzero(batch.streams < 0).tolist()
        if not beats:
            return self._let_in(batch)
        parts: list[Arrived] = []
        for start, stop in zip([0, *(beat + 1 for beat in beats)], [*beats, len(batch)], strict=True):
            part = self._let_in(batch[start:stop])
            parts.append(part._replace(late=part.late + start))
            if stop < len(batch):
                parts.append(Arrived(self.heartbeat(int(batch.times[stop])), _NONE, [], [], []))
        return Arrived(
            Batch.concatenate(part.released for part in parts),
            np.concatenate([part.late for part in parts]),
            [time for part in parts for time in part.times],
            [limit for part in parts for limit in part.limits],
            [own for part in parts for own in part.own],
        )

    def heartbeat(self, time: int, stream: int | None = None) -> Batch:
        """What a promise that nothing before `time` will come, on one stream or on all, releases."""
        beat = Batch.of([(time, HEARTBEAT, ())])
        for each in self._streams if stream is None else [self._streams[stream]]:
            each.promised = _latest(each.promised, time)
        self._reach(time)
        self._reorder_buffer.add(beat)
        return self._release(self._horizon())

    def flush(self) -> Batch:
        """The end of the input: nothing is held back any more."""
        return self._release(LATEST)

    # ------------------------------------------------------------ snapshots

    def state(self) -> tuple[WatermarkState, Batch]:
        """All there is to know, and the elements that are held, by time and then by arrival."""
        numbers = WatermarkState(
            first=self._first,
            latest=self._latest,
            released=self._released,
            seen=[each.seen for each in self._streams],
            promised=[each.promised for each in self._streams],
        )
        return numbers, self._reorder_buffer.everything()

    def be(self, streams: Iterable[StreamSettings]) -> None:
        """Have these streams, in the order of their numbers, and no others."""
        self._streams = [_Stream(each) for each in streams]

    def restore(self, numbers: WatermarkState, held: Batch) -> None:
        """Restore this state; the streams are the same and have been added."""
        if len(numbers["seen"]) != len(self._streams):
            raise CqelsError(f"the state is of {len(numbers['seen'])} streams, and there are {len(self._streams)}")
        self._first, self._latest, self._released = numbers["first"], numbers["latest"], numbers["released"]
        for each, seen, promised in zip(self._streams, numbers["seen"], numbers["promised"], strict=True):
            each.seen, each.promised = seen, promised
        self._reorder_buffer = ReorderBuffer()
        self._reorder_buffer.add(held)

    # ------------------------------------------------------------ time

    def _reach(self, time: int) -> None:
        self._latest = time if self._first is None else max(self._latest, time)
        self._first = time if self._first is None else self._first

    def _release(self, horizon: int) -> Batch:
        due = self._reorder_buffer.until(horizon)
        due = due[self._overtaken(due) :]
        if len(due):
            self._released = int(due.times[-1])
        return due

    def _overtaken(self, due: Batch) -> int:
        """How many are before what was released: they are heartbeats, and say nothing new."""
        return 0 if self._released is None else int(np.searchsorted(due.times, self._released))

    def _horizon(self) -> int:
        """Nothing earlier than this can come, but from streams that have been silent for too long.

        A stream that has been silent for its idle time is taken to be where the others are: it holds nothing back any
        more, but its lateness is still granted to it.
        """
        first = self._first or 0
        horizon: int | None = None
        for each in self._streams:
            last, watermark = each.last, each.watermark
            if self._latest - (first if last is None else last) >= each.settings.idle:
                granted = self._latest - each.settings.lateness
                bound = granted if watermark is None else max(granted, watermark)
            else:
                bound = first - 1 if watermark is None else watermark
            horizon = bound if horizon is None else min(horizon, bound)
        return self._latest if horizon is None else horizon

    # ------------------------------------------------------------ elements

    def _stamped(self, batch: Batch) -> Batch:
        """The batch, with the present as the time of elements in arrival time."""
        if not len(batch) or not any(each.settings.arrival for each in self._streams):
            return batch
        arrival = np.array([each.settings.arrival for each in self._streams])
        stamped = arrival[batch.streams] & (batch.streams >= 0)
        return replace(batch, times=np.where(stamped, self._now(), batch.times)) if stamped.any() else batch

    def _let_in(self, batch: Batch) -> Arrived:
        """What elements, none of them a heartbeat, release."""
        if self._goes_through(batch):
            if len(batch):
                self._see(batch.times, batch.streams)
                self._released = int(batch.times[-1])
            return Arrived(batch, _NONE, [], [], [])
        if len(batch) > self.few and self._is_computable(batch):
            arrived = self._all_at_once(batch)
            if arrived is not None:
                return arrived
        return self._one_by_one(batch)

    def _goes_through(self, batch: Batch) -> bool:
        """No stream is waited for, none is behind, and all is in order."""
        if not len(batch):
            return True
        if self._reorder_buffer or any(each.settings.lateness or each.settings.idle for each in self._streams):
            return False
        times = batch.times
        if self._first is not None and int(times[0]) < self._latest:
            return False
        return len(times) == 1 or bool(np.all(times[1:] >= times[:-1]))

    def _see(self, times: Words, streams: Words) -> None:
        """Elements have been let in, in this order."""
        if not len(times):
            return
        self._reach(int(times[0]))
        if len(times) == 1:
            stream = self._streams[int(streams[0])]
            stream.seen = _latest(stream.seen, int(times[0]))
            return
        self._reach(int(times.max()))
        came = np.bincount(streams, minlength=len(self._streams))
        newest = np.full(len(self._streams), EARLIEST)
        np.maximum.at(newest, streams, times)
        for number in np.flatnonzero(came).tolist():
            stream = self._streams[number]
            stream.seen = _latest(stream.seen, int(newest[number]))

    def _one_by_one(self, batch: Batch) -> Arrived:
        times: list[int] = batch.times.tolist()
        due = self._reorder_buffer.until(self._furthest(max(times)))
        together = Batch.concatenate([due, batch])
        waiting = list(zip(due.times.tolist(), range(len(due)), strict=True))
        late: list[int] = []
        limits: list[int] = []
        own: list[bool] = []
        leaves: list[int] = []
        for index, (time, number) in enumerate(zip(times, batch.streams.tolist(), strict=True)):
            stream = self._streams[number]
            watermark = stream.watermark
            limit = _latest(watermark, self._released)
            if limit is not None and time < limit:
                late.append(index)
                limits.append(limit)
                own.append(watermark is not None and time < watermark)
                continue
            stream.seen = _latest(stream.seen, time)
            self._reach(time)
            heapq.heappush(waiting, (time, len(due) + index))
            horizon = self._horizon()
            while waiting and waiting[0][0] <= horizon:
                passed, leaving = heapq.heappop(waiting)
                if self._released is None or passed >= self._released:  # not so for overtaken heartbeats
                    self._released = passed
                    leaves.append(leaving)
        self._reorder_buffer.add(together.take(np.array([index for _, index in sorted(waiting)], np.int64)))
        released = together.take(np.array(leaves, np.int64))
        return Arrived(released, np.array(late, np.int64), [times[index] for index in late], limits, own)

    def _furthest(self, latest: int) -> int:
        """No horizon is after this until something after `latest` comes."""
        if self._first is None:
            return latest
        latest, first = max(latest, self._latest), self._first
        promises = [first if each.promised is None else each.promised for each in self._streams]
        granted = [latest - each.settings.lateness for each in self._streams]
        return min(map(max, granted, promises, repeat(first)))

    # ------------------------------------------------------------ elements, computed with as arrays

    def _is_computable(self, batch: Batch) -> bool:
        """No time minus a lateness or an idle time is out of the range of 64 bits, or looks like none."""
        times = [self._first, *(time for each in self._streams for time in (each.seen, each.promised))]
        earliest = min([int(batch.times.min()), *(time for time in times if time is not None)])
        return earliest - max(max(each.settings.lateness, each.settings.idle) for each in self._streams) - 1 > EARLIEST

    def _all_at_once(self, batch: Batch) -> Arrived | None:
        """The same as one by one, but None where one element decides about others.

        Late elements are let in here at first. Time goes on as if they were not, for they are behind it: that is so
        but for a stream that others have overtaken, of which more is heard, and which may hold back others again.

        An element is released at the first horizon that is not before it. Horizons go back where a stream is heard
        of again; then None is given too, if there is an element between the horizon and where it was.
        """
        times = batch.times
        course = self._course(batch)
        reached = np.maximum.accumulate(course.horizons)
        if np.any((course.horizons < times) & (times <= reached)):
            return None
        end = int(reached[-1])
        due = self._reorder_buffer.until(end)
        limits = self._limits(times, course.watermarks, reached, due.times)
        late = times < limits
        if np.any(late & (times > course.lasts)):
            self._reorder_buffer.add(due)
            return None

        indexes = np.flatnonzero(late)
        own = self._behind_own(batch, late)[indexes]
        self._see(times[~late], batch.streams[~late])
        stays = np.flatnonzero(~late & (times > end))
        self._reorder_buffer.add(batch.take(stays[np.argsort(times[stays], kind="stable")]))
        goes = np.flatnonzero(~late & (times <= end))
        together = Batch.concatenate([due, batch])
        order = np.concatenate([np.arange(self._overtaken(due), len(due)), goes + len(due)])
        order = order[np.argsort(together.times[order], kind="stable")]
        released = together.take(order)
        if len(released):
            self._released = int(released.times[-1])
        return Arrived(released, indexes, times[indexes].tolist(), limits[indexes].tolist(), own.tolist())

    def _limits(self, times: Words, watermarks: Words, reached: Words, due: Words) -> Words:
        """What each element must not be behind: the watermark of its stream, and what was released before it.

        Nothing after a horizon is released: where no element is behind that either, it will do as a limit.
        """
        size = len(times)
        released = np.full(size + 2, EARLIEST)
        if self._released is not None:
            released[0] = self._released
        limits: Words = np.maximum(watermarks, np.maximum(released[0], np.concatenate([released[:1], reached[:-1]])))
        if np.any(times < limits):
            leaves = np.maximum(np.searchsorted(reached, times), np.arange(size))
            leaves[times < watermarks] = size
            np.maximum.at(released, leaves + 1, times)
            np.maximum.at(released, np.searchsorted(reached, due) + 1, due)
            limits = np.maximum(watermarks, np.maximum.accumulate(released)[:size])
        return limits

    def _behind_own(self, batch: Batch, late: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which elements are behind the watermark of their own stream, which late ones do not move."""
        behind = np.zeros(len(batch), np.bool_)
        for number in np.unique(batch.streams[late]).tolist():
            stream = self._streams[number]
            came = batch.streams == number
            times = batch.times[came]
            marks = np.where(late[came], EARLIEST, times - stream.settings.lateness)
            behind[came] = times < _running(stream.watermark, marks)[:-1]
        return behind

    def _course(self, batch: Batch) -> _Course:
        times = batch.times
        first = int(times[0]) if self._first is None else self._first
        latest = np.maximum.accumulate(times)
        if self._first is not None:
            latest = np.maximum(latest, self._latest)
        watermarks = np.empty_like(times)
        lasts = np.full_like(times, LATEST)
        horizons = np.full_like(times, LATEST)
        for number, stream in enumerate(self._streams):
            lateness, idle = stream.settings.lateness, stream.settings.idle
            came = batch.streams == number
            own = times[came]
            known = _running(stream.watermark, own - lateness)
            watermarks[came] = known[:-1]
            if idle == 0:
                promised = EARLIEST if stream.promised is None else stream.promised
                bounds = np.maximum(latest - lateness, promised)
            else:
                heard = _running(stream.last, own)
                lasts[came] = heard[:-1]
                so_far = np.cumsum(came)
                known, heard = known[so_far], heard[so_far]
                is_silent = np.where(heard == EARLIEST, first, heard) <= latest - idle
                awaited = np.where(known == EARLIEST, first - 1, known)
                bounds = np.where(is_silent, np.maximum(latest - lateness, known), awaited)
            np.minimum(horizons, bounds, out=horizons)
        return _Course(watermarks, lasts, horizons)


_NONE = np.empty(0, np.int64)


def _latest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def _running(start: int | None, times: Words) -> Words:
    """The latest time before each, and after all; EARLIEST is none."""
    return np.maximum.accumulate(np.concatenate([[EARLIEST if start is None else start], times]))
