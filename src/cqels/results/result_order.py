"""The results of several queries in one order, however their input was cut into pieces."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from cqels.results.result import Result


class InTime:
    """Puts results in the order of time, those of the same time in the order of the queries.

    Each query's results come in the order of time.  Those of the latest time wait, since the next piece of input may
    have the same time: so the order does not depend on the pieces.
    """

    def __init__(self, queries: int) -> None:
        self._waiting: list[list[Result]] = [[] for _ in range(queries)]

    def add(self, sent: Sequence[Sequence[Result]]) -> Iterator[tuple[int, Result]]:
        """What can go now that each query has sent some more: the query's number, and the result."""
        for waiting, more in zip(self._waiting, sent, strict=True):
            waiting += more
        times = [waiting[-1].nanoseconds for waiting in self._waiting if waiting]
        if not times:
            return iter(())
        latest = max(times)
        alone = len(self._waiting) == 1
        return self._taken([len(each) if alone else bisect_left(each, latest, key=_time) for each in self._waiting])

    def rest(self) -> Iterator[tuple[int, Result]]:
        """What waits, when nothing more will come."""
        return self._taken([len(each) for each in self._waiting])

    def _taken(self, counts: list[int]) -> Iterator[tuple[int, Result]]:
        gone = [
            [(number, result) for result in waiting[:count]]
            for number, (waiting, count) in enumerate(zip(self._waiting, counts, strict=True))
        ]
        self._waiting = [waiting[count:] for waiting, count in zip(self._waiting, counts, strict=True)]
        return heapq.merge(*gone, key=lambda pair: pair[1].nanoseconds)


def _time(result: Result) -> int:
    return result.nanoseconds
