"""Streams merged by time, whatever pieces they come in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

import numpy as np

from cqels.engine.batch import Batch, Words
from cqels.model.time import EARLIEST


class MergeState(TypedDict):
    """A merge as plain numbers, beside the elements that wait in it."""

    first: list[int]
    latest: list[int]
    awaited: list[int]


class _Part(NamedTuple):
    """Elements, and the time that each goes at."""

    batch: Batch
    keys: Words


@dataclass(slots=True)
class _Stream:
    """What of a stream has come and not yet gone."""

    parts: deque[_Part] = field(default_factory=deque)
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
        self._coming: set[int] = set()
        """The streams of which more comes at once: they are awaited as well."""

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
        each.parts.append(_Part(batch, keys))

    def end(self, stream: int) -> None:
        """A stream has ended: it is not waited for any more."""
        self._awaited.discard(stream)

    def due(self) -> Batch:
        """Take what nothing earlier can come before."""
        parts = [part for number in range(len(self._streams)) for part in self._taken(number)]
        if len(parts) < 2:
            return parts[0].batch if parts else Batch.empty()
        order = np.argsort(np.concatenate([part.keys for part in parts]), kind="stable")
        return Batch.concatenate(part.batch for part in parts).take(order)

    def flow(self, sources: Mapping[int, Iterator[Batch]]) -> Iterator[Batch]:
        """What is due after more of some streams has come, which is asked for as it is needed.

        It is the same as if all had been added before, but goes on in pieces.
        """
        self._coming = set(sources)
        while self._coming:
            for number in self._behind():
                following = next(sources[number], None)
                if following is None:
                    self._coming.discard(number)
                else:
                    self.add(number, following)
            if len(batch := self.due()):
                yield batch
        if len(batch := self.due()):
            yield batch

    def _behind(self) -> list[int]:
        """The streams that more comes of and that hold back the others."""
        latest = min(self._streams[number].latest for number in self._coming)
        return sorted(number for number in self._coming if self._streams[number].latest == latest)

    def _taken(self, stream: int) -> Iterator[_Part]:
        parts = self._streams[stream].parts
        while parts and (size := self._ready(stream, parts[0].keys)):
            batch, keys = parts.popleft()
            if size == len(keys):
                yield _Part(batch, keys)
            else:
                parts.appendleft(_Part(batch[size:], keys[size:]))
                yield _Part(batch[:size], keys[:size])
                return

    def _ready(self, stream: int, keys: Words) -> int:
        """How many elements of a stream can go: more of a stream before it comes before them at the same time too."""
        awaited = self._awaited | self._coming
        before = (self._streams[each].latest for each in awaited if each < stream)
        after = (self._streams[each].latest for each in awaited if each > stream)
        size = len(keys)
        if (limit := min(before, default=None)) is not None:
            size = int(np.searchsorted(keys, limit, side="left"))
        if (limit := min(after, default=None)) is not None:
            size = min(size, int(np.searchsorted(keys, limit, side="right")))
        return size

    def waiting(self) -> Batch:
        """What has come and not gone, stream by stream."""
        return Batch.concatenate(part.batch for each in self._streams for part in each.parts)

    # ------------------------------------------------------------ snapshots

    def state(self) -> MergeState:
        """All there is to know, beside what waits."""
        return MergeState(
            first=[int(each.parts[0].keys[0]) if each.parts else EARLIEST for each in self._streams],
            latest=[each.latest for each in self._streams],
            awaited=sorted(self._awaited),
        )

    def restore(self, state: MergeState, waiting: Batch) -> None:
        """Be as the merge was whose state this is."""
        self._awaited = set(state["awaited"])
        for number, each in enumerate(self._streams):
            batch = waiting.take((waiting.streams == number).nonzero()[0])
            keys = np.maximum(np.maximum.accumulate(batch.times), state["first"][number])
            each.parts = deque([_Part(batch, keys)] if len(batch) else [])
            each.latest = state["latest"][number]


def merged(
    streams: Iterable[Iterator[Batch]], hold: Callable[[Callable[[], list[Words]]], None] | None = None
) -> Iterator[Batch]:
    """All of some streams in the order of time. `hold` is told what waits here."""
    sources = dict(enumerate(streams))
    merge = Merge(len(sources))
    if hold is not None:
        hold(lambda: [merge.waiting().triples])
    return merge.flow(sources)
