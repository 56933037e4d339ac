"""A block of encoded elements as arrays; what time they are released at is the clock's business."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.int64]
Row: TypeAlias = tuple[int, int, Sequence[Sequence[int]]]
"""An element as Python sees it: its time, the number of its stream, its triples of three words."""

HEARTBEAT = -1
"""In the place of a stream's number: time has come this far, and there is no element."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Elements one after the other. No array is ever written to, so batches may share their memory.

    `times` (nanoseconds), `streams` (numbers) and `counts` (of triples) have an entry for each element; `triples` has
    three words for each triple, those of an element together and in the order of the elements.
    """

    times: Words
    streams: Words
    counts: Words
    triples: Words

    @staticmethod
    def empty() -> Batch:
        return _EMPTY

    @staticmethod
    def of(rows: Iterable[Row]) -> Batch:
        listed = list(rows)
        return Batch(
            np.array([time for time, _, _ in listed], np.int64),
            np.array([stream for _, stream, _ in listed], np.int64),
            np.array([len(triples) for _, _, triples in listed], np.int64),
            np.array([word for _, _, triples in listed for triple in triples for word in triple], np.int64),
        )

    @staticmethod
    def concatenate(batches: Iterable[Batch]) -> Batch:
        """The elements of all; the batch itself where the others are empty."""
        parts = [each for each in batches if len(each)]
        if len(parts) < 2:
            return parts[0] if parts else Batch.empty()
        return Batch(
            np.concatenate([each.times for each in parts]),
            np.concatenate([each.streams for each in parts]),
            np.concatenate([each.counts for each in parts]),
            np.concatenate([each.triples for each in parts]),
        )

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, part: slice) -> Batch:
        """Consecutive elements, without a copy."""
        start, stop, _ = part.indices(len(self))
        first = int(self.counts[:start].sum())
        last = first + int(self.counts[start:stop].sum())
        return Batch(
            self.times[start:stop],
            self.streams[start:stop],
            self.counts[start:stop],
            self.triples[3 * first : 3 * last],
        )

    def take(self, order: Words) -> Batch:
        """The elements at these indexes, in this order."""
        if not len(order):
            return Batch.empty()
        if np.all(order[1:] - order[:-1] == 1):
            return self[int(order[0]) : int(order[-1]) + 1]
        counts = self.counts[order]
        if self.counts.min() == self.counts.max():
            triples = np.take(self.triples.reshape(len(self), 3 * int(counts[0])), order, axis=0)
        else:
            ends = np.cumsum(counts)
            moved = np.cumsum(self.counts)[order] - ends
            rows = np.repeat(moved, counts) + np.arange(ends[-1])
            triples = np.take(self.triples.reshape(-1, 3), rows, axis=0)
        return Batch(self.times[order], self.streams[order], counts, triples.reshape(-1))

    def rows(self) -> Iterator[Row]:
        """The elements as Python sees them: `Batch.of(batch.rows())` is the batch again."""
        triples = iter(self.triples.reshape(-1, 3).tolist())
        for time, stream, count in zip(self.times.tolist(), self.streams.tolist(), self.counts.tolist(), strict=True):
            yield time, stream, [next(triples) for _ in range(count)]


_EMPTY = Batch.of(())
