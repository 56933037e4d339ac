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
from cqels.engine.event_time.subject_promises import SubjectPromises
from cqels.ingest import StreamSettings
from cqels.ingest.element_batch import HEARTBEAT, Batch, Words
from cqels.ingest.punctuations import stream_of
from cqels.model.errors import CqelsError
from cqels.model.time import EARLIEST, LATEST


class Arrived(NamedTuple):
    """What came of a batch: what it releases, in order, and which of its elements are late.

    `late` are their indexes in the batch, `times` their times (in arrival time not those they carry), `limits` the
    times that they are behind, `own` whether that is the watermark of their own stream too, not of others alone.
    `subjects` are words where the limit is a promise about that subject, else 0.
    """

    released: Batch
    late: Words
    times: list[int]
    limits: list[int]
    own: list[bool]
    subjects: list[int]


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
    subjects: SubjectPromises | None = None
    """Those that a punctuated stream has had, and what was promised of them."""

    def __post_init__(self) -> None:
        if self.settings.punctuated:
            self.subjects = SubjectPromises()

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
    from `now`, once for a batch, unless it was recorded; no heartbeat of the stream makes such an element late.
    """

    few = 24
    """Batches up to this size are quicker to walk through than to compute with."""

    def __init__(self, streams: Iterable[StreamSettings] = (), *, now: Callable[[], int] = time_ns) -> None:
        self._streams: list[_Stream] = []
        self._has_arrival = self._has_punctuations = False
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
        self._has_arrival |= settings.arrival
        self._has_punctuations |= settings.punctuated
        return len(self._streams) - 1

    # ------------------------------------------------------------ what happens

    def arrive(self, batch: Batch, *, recorded: bool = False) -> Arrived:
        """What the arrival of elements releases. A heartbeat among them speaks for all streams, a promise for its own.

        Where their times are `recorded`, those of elements in arrival time are when they arrived: else that is now.
        """
        if not len(batch):
            return Arrived(batch, _NONE, [], [], [], [])
        highest = int(batch.streams[0] if len(batch) == 1 else batch.streams.max())
        if highest >= len(self._streams):
            raise IndexError(f"stream {highest} is not one of {len(self._streams)}")
        if self._has_arrival and not recorded:
            batch = self._stamped(batch)
        if len(batch) == 1 and highest >= 0:
            return self._admit(batch)
        beats = np.flatnonzero(batch.streams < 0).tolist()
        if not beats:
            return self._admit(batch)
        parts: list[Arrived] = []
        for start, stop in zip([0, *(beat + 1 for beat in beats)], [*beats, len(batch)], strict=True):
            part = self._admit(batch[start:stop])
            parts.append(part._replace(late=part.late + start))
            if stop < len(batch):
                parts.append(Arrived(self._promise(batch[stop : stop + 1]), _NONE, [], [], [], []))
        return Arrived(
            Batch.concatenate(part.released for part in parts),
            np.concatenate([part.late for part in parts]),
            [time for part in parts for time in part.times],
            [limit for part in parts for limit in part.limits],
            [own for part in parts for own in part.own],
            [subject for part in parts for subject in part.subjects],
        )

    def _promise(self, beat: Batch) -> Batch:
        """What a heartbeat of all streams releases, or an element with promises (`punctuations.py`)."""
        if int(beat.streams[0]) == HEARTBEAT:
            return self.heartbeat(int(beat.times[0]))
        stream = stream_of(int(beat.streams[0]))
        released = [
            self.heartbeat(time, stream) if subject == 0 else self.punctuate(time, stream, subject)
            for subject, _, time in beat.triples.reshape(-1, 3).tolist()
        ]
        return Batch.concatenate(released)

    def heartbeat(self, time: int, stream: int | None = None) -> Batch:
        """What a promise that nothing before `time` will come, on one stream or on all, releases."""
        beat = Batch.of([(time, HEARTBEAT, ())])
        for each in self._streams if stream is None else [self._streams[stream]]:
            each.promised = _latest(each.promised, time)
        self._reach(time)
        self._reorder_buffer.add(beat)
        return self._release(self._horizon())

    def punctuate(self, time: int, stream: int, subject: int) -> Batch:
        """What a promise releases that no element of a stream with this subject, a word, will come before `time`.

        The stream is punctuated.  When all subjects that it has had have promised as much, that is a heartbeat.
        """
        each = self._streams[stream]
        assert each.subjects is not None
        each.subjects.promise(subject, time)
        common = each.subjects.common
        if common is None or (each.promised is not None and common <= each.promised):
            return Batch.empty()
        return self.heartbeat(common, stream)

    def limit(self, stream: int) -> int | None:
        """The time before which an element of a stream would be late now; None if none would."""
        return _latest(self._streams[stream].watermark, self._released)

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
        self._has_arrival = any(each.settings.arrival for each in self._streams)
        self._has_punctuations = any(each.settings.punctuated for each in self._streams)

    def punctuations(self) -> list[tuple[int, int, int | None]]:
        """Streams that have punctuations, words of their subjects, and what was promised of each."""
        return [
            (number, subject, time)
            for number, each in enumerate(self._streams)
            if each.subjects is not None
            for subject, time in each.subjects.times.items()
        ]

    def restore_punctuations(self, punctuations: Iterable[tuple[int, int, int | None]]) -> None:
        """Have these punctuations, and no others."""
        found: dict[int, dict[int, int | None]] = {}
        for stream, subject, time in punctuations:
            found.setdefault(stream, {})[subject] = time
        for number, each in enumerate(self._streams):
            if each.settings.punctuated:
                each.subjects = SubjectPromises(found.get(number))

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
        stamped = self._in_arrival_time(batch)
        return replace(batch, times=np.where(stamped, self._now(), batch.times)) if stamped.any() else batch

    def _in_arrival_time(self, batch: Batch) -> npt.NDArray[np.bool_]:
        arrival = np.array([each.settings.arrival for each in self._streams])
        found: npt.NDArray[np.bool_] = arrival[batch.streams] & (batch.streams >= 0)
        return found

    def _admit(self, batch: Batch) -> Arrived:
        """What elements release between two promises."""
        if self._has_arrival and len(batch):
            batch = self._not_overtaken(batch)
        if self._has_punctuations and len(batch):
            return self._let_in_promised(batch)
        return self._let_in(batch)

    def _not_overtaken(self, batch: Batch) -> Batch:
        """The batch, with no time of an element in arrival time before a heartbeat of its stream: it arrives now."""
        promised = [
            EARLIEST if each.promised is None or not each.settings.arrival else each.promised for each in self._streams
        ]
        least = np.array(promised)[batch.streams]
        return replace(batch, times=np.maximum(batch.times, least)) if np.any(least > batch.times) else batch

    def _let_in_promised(self, batch: Batch) -> Arrived:
        """What elements release where some streams have punctuations: those behind one are late."""
        owners = np.repeat(np.arange(len(batch)), batch.counts)
        subjects = batch.triples[0::3]
        limits, behind = np.full(len(subjects), EARLIEST), np.zeros(len(batch), np.bool_)
        for number in np.unique(batch.streams).tolist():
            promises = self._streams[number].subjects
            if promises is not None:
                mine = np.flatnonzero(batch.streams[owners] == number)
                limits[mine] = [promises.limit(subject) for subject in subjects[mine].tolist()]
        np.logical_or.at(behind, owners, batch.times[owners] < limits)
        arrived = self._let_in(batch.take(np.flatnonzero(~behind)) if behind.any() else batch)
        self._note_subjects(batch, owners, behind, arrived)
        if not behind.any():
            return arrived
        places = np.flatnonzero(~behind)
        found = dict(zip(places[arrived.late].tolist(), zip(*arrived[2:], strict=True), strict=True))
        for place in np.flatnonzero(behind).tolist():
            mine = np.flatnonzero(owners == place)
            worst = mine[int(np.argmax(limits[mine]))]
            found[place] = (int(batch.times[place]), int(limits[worst]), True, int(subjects[worst]))
        order = sorted(found)
        times, bounds, own, words = ([found[place][each] for place in order] for each in range(4))
        return Arrived(arrived.released, np.array(order, np.int64), times, bounds, own, words)

    def _note_subjects(self, batch: Batch, owners: Words, behind: npt.NDArray[np.bool_], arrived: Arrived) -> None:
        """Know the subjects of elements that were let in."""
        let_in = np.flatnonzero(~behind)
        let_in = np.delete(let_in, arrived.late)
        taken = np.zeros(len(batch), np.bool_)
        taken[let_in] = True
        for number in np.unique(batch.streams[let_in]).tolist():
            promises = self._streams[number].subjects
            if promises is not None:
                mine = (batch.streams[owners] == number) & taken[owners]
                promises.note(np.unique(batch.triples[0::3][mine]).tolist())

    def _let_in(self, batch: Batch) -> Arrived:
        """What elements, none of them a heartbeat, release."""
        if self._goes_through(batch):
            if len(batch):
                self._see(batch.times, batch.streams)
                self._released = int(batch.times[-1])
            return Arrived(batch, _NONE, [], [], [], [])
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
        return Arrived(
            released, np.array(late, np.int64), [times[index] for index in late], limits, own, [0] * len(late)
        )

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
        nobody = [0] * len(indexes)
        return Arrived(released, indexes, times[indexes].tolist(), limits[indexes].tolist(), own.tolist(), nobody)

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
