"""Streams merged by time, whatever pieces they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from cqels.engine.batch import Batch, Words
from cqels.model.time import EARLIEST


class MergeState(TypedDict):
    """A merge as plain numbers, beside the elements that wait in it."""

    first: list[int]
    latest: list[int]
    awaited: list[int]


@dataclass(slots=True)
class _Stream:
    """What of a stream has come and not yet gone, and the time that each element goes at."""

    batch: Batch = field(default_factory=Batch.empty)
    keys: Words = field(default_factory=lambda: np.empty(0, np.int64))
    latest: int = EARLIEST


class Merge:
    """Puts the elements of streams in the order of time; at equal times the earlier stream goes first.

    Each stream keeps its own order, sorted or not: an element goes as if its time were the largest so far of its
    stream.  A stream that is *awaited* holds the others back until it has come as far, or has ended; so the order does
    not depend on the pieces that streams come in.
    """

    def __init__(self, streams: int, awaited: Iterable[int] = ()) -> None:
        self._streams = [_Stream() for _ in range(streams)]
        self._awaited = set(awaited)

    @property
    def awaited(self) -> frozenset[int]:
        return frozenset(self._awaited)

    def add(self, stream: int, batch: Batch) -> None:
        """More of a stream."""
        if not len(batch):
            return
        each = self._streams[stream]
        keys = np.maximum(np.maximum.accumulate(batch.times), each.latest)
        each.latest = int(keys[-1])
        each.keys = np.concatenate([each.keys, keys]) if len(each.keys) else keys
        each.batch = Batch.concatenate([each.batch, batch])

    def end(self, stream: int) -> None:
        """A stream has ended: it is not waited for any more."""
        self._awaited.discard(stream)

    def due(self) -> Batch:
        """Take what nothing earlier can come before."""
        parts, keys = [], []
        for number, each in enumerate(self._streams):
            if len(each.batch) and (size := self._ready(number)):
                keys.append(each.keys[:size])
                parts.append(_taken(each, size))
        if len(parts) < 2:
            return parts[0] if parts else Batch.empty()
        order = np.argsort(np.concatenate(keys), kind="stable")
        return Batch.concatenate(parts).take(order)

    def behind(self) -> list[int]:
        """The awaited streams that hold back the others."""
        latest = min((self._streams[number].latest for number in self._awaited), default=0)
        return sorted(number for number in self._awaited if self._streams[number].latest == latest)

    def _ready(self, stream: int) -> int:
        """How many elements of a stream can go: more of a stream before it comes before them at the same time too."""
        keys = self._streams[stream].keys
        before = (self._streams[each].latest for each in self._awaited if each < stream)
        after = (self._streams[each].latest for each in self._awaited if each > stream)
        size = len(keys)
        if (limit := min(before, default=None)) is not None:
            size = int(np.searchsorted(keys, limit, side="left"))
        if (limit := min(after, default=None)) is not None:
            size = min(size, int(np.searchsorted(keys, limit, side="right")))
        return size

    def waiting(self) -> Batch:
        """What has come and not gone, stream by stream."""
        return Batch.concatenate(each.batch for each in self._streams)

    # ------------------------------------------------------------ snapshots

    def state(self) -> MergeState:
        """All there is to know, beside what waits."""
        return MergeState(
            first=[int(each.keys[0]) if len(each.keys) else EARLIEST for each in self._streams],
            latest=[each.latest for each in self._streams],
            awaited=sorted(self._awaited),
        )

    def restore(self, state: MergeState, waiting: Batch) -> None:
        """Be as the merge was whose state this is."""
        self._awaited = set(state["awaited"])
        for number, each in enumerate(self._streams):
            each.batch = waiting.take((waiting.streams == number).nonzero()[0])
            each.keys = np.maximum(np.maximum.accumulate(each.batch.times), state["first"][number])
            each.latest = state["latest"][number]


def _taken(stream: _Stream, size: int) -> Batch:
    taken = stream.batch[:size]
    stream.batch, stream.keys = stream.batch[size:], stream.keys[size:]
    return taken


def merged(
    streams: Iterable[Iterator[Batch]], hold: Callable[[Callable[[], list[Words]]], None] | None = None
) -> Iterator[Batch]:
    """All of some streams in the order of time. `hold` is told what waits here."""
    sources = list(streams)
    merge = Merge(len(sources), range(len(sources)))
    if hold is not None:
        hold(lambda: [merge.waiting().triples])
    while merge.awaited:
        for number in merge.behind():
            following = next(sources[number], None)
            if following is None:
                merge.end(number)
            else:
                merge.add(number, following)
        if len(batch := merge.due()):
            yield batch
    if len(batch := merge.due()):
        yield batch
