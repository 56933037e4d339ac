"""Elements that wait for their time, in order of it; when that has come `watermark` decides."""

from __future__ import annotations

import numpy as np

from cqels.ingest.element_batch import Batch


class ReorderBuffer:
    """Runs of elements, each by time and at one time by arrival; what arrived earlier is in an earlier run.

    A run is merged with the one before unless that is longer, so an element is moved a logarithmic number of times,
    whether elements come one by one or in large batches.
    """

    def __init__(self) -> None:
        self._runs: list[Batch] = []
        self._head: int | None = None

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, batch: Batch) -> None:
        """Keep elements, by time and then by arrival, that have arrived after all others of their times."""
        if not len(batch):
            return
        while self._runs and len(self._runs[-1]) <= len(batch):
            batch = _by_time([self._runs.pop(), batch])
        self._runs.append(batch)
        self._find_head()

    def until(self, horizon: int) -> Batch:
        """Take out what is not after the horizon, by time and then by arrival."""
        if self._head is None or self._head > horizon:
            return Batch.empty()
        due, rest = [], []
        for run in self._runs:
            cut = int(np.searchsorted(run.times, horizon, side="right"))
            due.append(run[:cut])
            rest.append(run[cut:])
        self._runs = [run for run in rest if len(run)]
        self._find_head()
        return _by_time(due)

    def everything(self) -> Batch:
        """All that waits, by time and then by arrival; it goes on waiting."""
        self._runs = [_by_time(self._runs)] if self._runs else []
        return self._runs[0] if self._runs else Batch.empty()

    def _find_head(self) -> None:
        self._head = min((int(run.times[0]) for run in self._runs), default=None)


def _by_time(runs: list[Batch]) -> Batch:
    together = Batch.concatenate(runs)
    return together.take(np.argsort(together.times, kind="stable"))
