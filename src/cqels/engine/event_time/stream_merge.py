"""Streams merged by time, whatever pieces they come in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypedDict

import numpy as np

from cqels.ingest.element_batch import Batch, Words
from cqels.model.time import EARLIEST

Hold: TypeAlias = Callable[[Callable[[], list[Words]]], None]
"""Is given what waits, so that its terms are not collected."""


class MergeState(TypedDict):
    """A merge as plain numbers, beside the elements that wait in it."""

    first: list[int]
    counts: list[int]
    latest: list[int]
    awaited: list[int]


class FilesState(TypedDict):
    """The files of a stream that are being merged, as plain numbers, beside the elements that wait."""

    open: list[tuple[int, int]]
    following: int
    waiting: list[tuple[int, int, int]]


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

    def extend(self) -> None:
        """One more stream, which is not awaited."""
        self._streams.append(_Stream())

    @property
    def awaited(self) -> frozenset[int]:
        return frozenset(self._awaited)

    def add(self, stream: int, batch: Batch) -> None:
        """More of a stream."""
        if not len(batch):
            return
        each = self._streams[stream]
        part = _keyed(batch, each.latest)
        each.latest = int(part.keys[-1])
        each.parts.append(part)

    def end(self, stream: int) -> None:
        """A stream has ended: it is not waited for any more."""
        self._awaited.discard(stream)

    def due(self) -> Batch:
        """Take what nothing earlier can come before."""
        return _sorted([part for number in range(len(self._streams)) for part in self._taken(number)])

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
        return _cut(self._streams[stream].parts, lambda keys: self._ready(stream, keys))

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
            counts=[sum(len(part.keys) for part in each.parts) for each in self._streams],
            latest=[each.latest for each in self._streams],
            awaited=sorted(self._awaited),
        )

    def restore(self, state: MergeState, waiting: Batch) -> None:
        """Be as the merge was whose state this is."""
        self._awaited = set(state["awaited"])
        at = 0
        for each, count, first, latest in zip(
            self._streams, state["counts"], state["first"], state["latest"], strict=True
        ):
            each.parts = deque([_keyed(waiting[at : at + count], first)] if count else [])
            each.latest = latest
            at += count


class Files:
    """The files of one stream, in the order of their first times, merged by time; at equal times an earlier one first.

    A file is *open* from its first element to its end. What is not before the first time of the next file, or not
    before what an open file has come to, waits.
    """

    def __init__(self, firsts: Sequence[int]) -> None:
        """`firsts` are the times of the files' first elements, in their order."""
        self._firsts = firsts
        self._following = 0
        """The file that is opened next."""
        self._open: dict[int, int] = {}
        """How far the open files have come."""
        self._parts: dict[int, deque[_Part]] = {}

    @property
    def behind(self) -> int | None:
        """The file that holds back the others; None after the end of all."""
        return min(self._bounds(), default=(0, None))[1]

    def begin(self, file: int) -> None:
        """A file is opened; those before it have been."""
        self._following = max(self._following, file + 1)
        self._open.setdefault(file, self._firsts[file])

    def add(self, file: int, batch: Batch) -> None:
        """More of an open file."""
        if len(batch):
            part = _keyed(batch, self._open[file])
            self._open[file] = int(part.keys[-1])
            self._parts.setdefault(file, deque()).append(part)

    def go_on(self, file: int, last: int, batch: Batch) -> None:
        """More of a file, or of all files from it to the last, each of which begins where the one before it ends.

        Those before have been read to their ends.
        """
        self.end_before(file)
        self.begin(file)
        self.add(file, batch)
        latest = self._open[file]
        self.end_before(last)
        self.begin(last)
        self._open[last] = max(latest, self._open[last])

    def end(self, file: int) -> None:
        """A file has ended."""
        self._open.pop(file, None)

    def end_before(self, file: int) -> None:
        """All files before this one have been read to their ends."""
        self._following = max(self._following, file)
        self._open = {each: latest for each, latest in self._open.items() if each >= file}

    def due(self) -> Batch:
        """Take what nothing earlier can come before."""
        bounds = sorted(self._bounds())[:2]
        parts = [part for file in sorted(self._parts) for part in self._taken(file, bounds)]
        self._parts = {file: parts for file, parts in self._parts.items() if parts}
        return _sorted(parts)

    def _bounds(self) -> list[tuple[int, int]]:
        """Before what time, and at that time before what file, no more comes."""
        bounds = [(latest, file) for file, latest in self._open.items()]
        if self._following < len(self._firsts):
            bounds.append((self._firsts[self._following], self._following))
        return bounds

    def _taken(self, file: int, bounds: list[tuple[int, int]]) -> Iterator[_Part]:
        limit = next((bound for bound in bounds if bound[1] != file), None)

        def ready(keys: Words) -> int:
            if limit is None:
                return len(keys)
            return int(np.searchsorted(keys, limit[0], side="right" if file < limit[1] else "left"))

        return _cut(self._parts[file], ready)

    def waiting(self) -> Batch:
        """What has come and not gone, file by file."""
        return Batch.concatenate(part.batch for _, parts in sorted(self._parts.items()) for part in parts)

    def state(self) -> FilesState:
        """All there is to know, beside what waits."""
        return FilesState(
            open=sorted(self._open.items()),
            following=self._following,
            waiting=[
                (file, sum(len(part.keys) for part in parts), int(parts[0].keys[0]))
                for file, parts in sorted(self._parts.items())
            ],
        )

    def restore(self, state: FilesState, waiting: Batch) -> None:
        """Be as the files were whose state this is."""
        self._following = state["following"]
        self._open = dict(map(tuple, state["open"]))  # type: ignore[arg-type]
        self._parts = {}
        at = 0
        for file, count, first in state["waiting"]:
            self._parts[file] = deque([_keyed(waiting[at : at + count], first)])
            at += count


def merged_files(firsts: Sequence[int], opened: Callable[[int], Iterator[Batch]], hold: Hold) -> Iterator[Batch]:
    """The files of a stream merged by time, each opened when its first time has come. `hold` is given what waits."""
    files = Files(firsts)
    hold(lambda: [files.waiting().triples])
    sources: dict[int, Iterator[Batch]] = {}
    while (file := files.behind) is not None:
        if file not in sources:
            sources[file] = opened(file)
            files.begin(file)
        batch = next(sources[file], None)
        if batch is None:
            del sources[file]
            files.end(file)
        else:
            files.add(file, batch)
        if len(due := files.due()):
            yield due


def _keyed(batch: Batch, latest: int) -> _Part:
    """Each element goes as if its time were the largest so far."""
    return _Part(batch, np.maximum(np.maximum.accumulate(batch.times), latest))


def _cut(parts: deque[_Part], ready: Callable[[Words], int]) -> Iterator[_Part]:
    """Take from some parts what is ready of them."""
    while parts and (size := ready(parts[0].keys)):
        batch, keys = parts.popleft()
        if size == len(keys):
            yield _Part(batch, keys)
        else:
            parts.appendleft(_Part(batch[size:], keys[size:]))
            yield _Part(batch[:size], keys[:size])
            return


def _sorted(parts: list[_Part]) -> Batch:
    """The elements of parts in the order of their keys, at equal ones in the order of the parts."""
    if len(parts) < 2:
        return parts[0].batch if parts else Batch.empty()
    order = np.argsort(np.concatenate([part.keys for part in parts]), kind="stable")
    return Batch.concatenate(part.batch for part in parts).take(order)


def merged(streams: Iterable[Iterator[Batch]], hold: Hold | None = None) -> Iterator[Batch]:
    """All of some streams in the order of time. `hold` is given what waits here."""
    sources = dict(enumerate(streams))
    merge = Merge(len(sources))
    if hold is not None:
        hold(lambda: [merge.waiting().triples])
    return merge.flow(sources)
