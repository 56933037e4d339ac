"""What the run of a service on Spark counts for those who watch it, from the reports of its engines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from time import monotonic, time_ns
from typing import Any

from cqels.live.run_measures import BatchDone, Measures, QueryCounts, StreamCounts
from cqels.model.time import SECOND

_WAITING = 1 << 16
"""Pushes of a stream whose delivery is timed at once."""


class SparkMeasures:
    """Counts; one thread delivers micro-batches, and any may push and read."""

    def __init__(self) -> None:
        self._found = Measures()
        self._lock = Lock()
        self._waiting: dict[str, deque[tuple[int, float, int]]] = {}
        """Pushes that are not delivered: where they end in the inbox, when they began, and their elements."""
        self._followers: list[Callable[[BatchDone], None]] = []

    @property
    def measures(self) -> Measures:
        """A copy of what was counted until now."""
        with self._lock:
            found = self._found
            streams = {iri: replace(each) for iri, each in found.streams.items()}
            queries = {name: replace(each, latency=each.latency.copy()) for name, each in found.queries.items()}
            return Measures(streams, queries, found.batch.copy(), found.push.copy())

    def follow(self, follower: Callable[[BatchDone], None]) -> None:
        """Have a function called behind each micro-batch, by the thread that delivers it."""
        self._followers.append(follower)

    def pushed(self, stream: str, end: int, began: float, elements: int) -> None:
        """Something was pushed: the inbox has it before this offset."""
        with self._lock:
            waiting = self._waiting.setdefault(stream, deque())
            if len(waiting) < _WAITING:
                waiting.append((end, began, elements))
            else:  # the time of the first one counts
                last, first, count = waiting.pop()
                waiting.append((max(last, end), first, count + elements))

    def delivered(
        self, batch: int, reports: Sequence[Mapping[str, Any]], offsets: Mapping[str, int], seconds: float
    ) -> None:
        """A micro-batch was delivered after so many seconds, in which inboxes were read so far."""
        now, done = monotonic(), time_ns()
        with self._lock:
            found = self._found
            first = min([now - seconds, *self._taken(offsets, now, done / SECOND)])
            found.batch.note(seconds)
            for report in reports:
                for name, counted in report["queries"].items():
                    query = found.queries.setdefault(name, QueryCounts())
                    query.elements += counted["in"]
                    if counted["out"]:
                        query.latency.note(now - first)
                for name, size in report["query_bytes"].items():
                    found.queries.setdefault(name, QueryCounts()).bytes = size
        if self._followers:
            began, evaluated = done - round(seconds * SECOND), done
            elements = max((report["elements"] for report in reports), default=0)
            results = sum(counted["out"] for report in reports for counted in report["queries"].values())
            for follower in self._followers:
                follower(BatchDone(batch, began, evaluated, done, elements, results))

    def _taken(self, offsets: Mapping[str, int], now: float, day: float) -> list[float]:
        """When the first pushes began of those that are delivered now, by streams."""
        firsts = []
        for stream, limit in offsets.items():
            waiting = self._waiting.get(stream)
            if not waiting or waiting[0][0] > limit:
                continue
            firsts.append(waiting[0][1])
            counts = self._found.streams.setdefault(stream, StreamCounts())
            counts.last = day
            while waiting and waiting[0][0] <= limit:
                _, began, elements = waiting.popleft()
                counts.elements += elements
                self._found.push.note(now - began)
        return firsts

    def forget(self, queries: Mapping[str, object]) -> None:
        """Keep nothing of other queries than these."""
        with self._lock:
            known = self._found.queries
            for name in [name for name in known if name not in queries]:
                del known[name]
