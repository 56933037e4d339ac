"""What a live run counts for those who watch it: by streams and by queries, and how long batches and pushes take."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from time import monotonic
from typing import Protocol, runtime_checkable

from cqels.ingest import Rejected
from cqels.pipeline.instance.driven_instance import Outcome
from cqels.pipeline.instance.instance_commands import Arrival
from cqels.pipeline.lift.block_format import elements_of

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds up to which times are counted together."""
QUERY_BOUNDS = (0.005, 0.02, 0.1, 0.5, 2.5, 10.0)
"""The same for each query, of which there may be many."""
_WAITING = 1 << 16
"""Pushes of a stream whose delivery is timed at once."""
_LOOK = 1.0
"""Seconds between looks at what queries hold."""


@dataclass
class Histogram:
    """How often something was how much: seconds, if nothing else is said."""

    bounds: tuple[float, ...] = BOUNDS
    counts: list[int] = field(default_factory=list)
    """Of what is up to each bound; the last is of all that is more."""
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def note(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        return Histogram(self.bounds, [*self.counts], self.total)


@dataclass
class StreamCounts:
    """Of a stream, whatever it comes from."""

    elements: int = 0
    rejected: int = 0
    late: int = 0
    last: float | None = None
    """When its last element was read, in seconds since 1970."""


@dataclass
class QueryCounts:
    """Of a query: the elements of its streams, what it holds now, and how long its results took."""

    elements: int = 0
    bytes: int = 0
    latency: Histogram = field(default_factory=lambda: Histogram(QUERY_BOUNDS))


@dataclass
class Measures:
    """Everything since the process began."""

    streams: dict[str, StreamCounts] = field(default_factory=dict)
    queries: dict[str, QueryCounts] = field(default_factory=dict)
    batch: Histogram = field(default_factory=Histogram)
    """From reading a batch to its delivery."""
    push: Histogram = field(default_factory=Histogram)
    """From when pushes are given to the run to the delivery of the batch that they are in."""


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A batch, for who follows them: the times are nanoseconds since 1970."""

    batch: int
    began: int
    evaluated: int
    delivered: int
    elements: int
    results: int


@runtime_checkable
class Measured(Protocol):
    """A run that counts so."""

    @property
    def measures(self) -> Measures:
        """A copy of what was counted until now."""

    def follow(self, follower: Callable[[BatchDone], None]) -> None:
        """Have a function called behind each batch, by the thread of the run."""


class Measuring:
    """Counts; one thread does the batches, and any may push and read."""

    def __init__(self) -> None:
        self._found = Measures()
        self._lock = Lock()
        self._waiting: dict[str, deque[tuple[int, float]]] = {}
        """Pushes that are not delivered: where they end in the inbox, and when they began."""
        self._looked = 0.0

    @property
    def measures(self) -> Measures:
        with self._lock:
            found = self._found
            streams = {iri: replace(each) for iri, each in found.streams.items()}
            queries = {name: replace(each, latency=each.latency.copy()) for name, each in found.queries.items()}
            return Measures(streams, queries, found.batch.copy(), found.push.copy())

    def pushed(self, stream: str, end: int, began: float) -> None:
        """Something was pushed: the inbox has it before this offset."""
        with self._lock:
            waiting = self._waiting.setdefault(stream, deque())
            if len(waiting) < _WAITING:
                waiting.append((end, began))

    def done(
        self,
        outcome: Outcome,
        arrivals: Sequence[Arrival],
        rejected: Sequence[Rejected],
        streams: Mapping[int, str],
        committed: Callable[[str], int],
        *,
        began: float,
        now: float,
    ) -> None:
        """A batch was delivered, which `began` by the monotonic clock; `now` is the time of day.

        `streams` are those of the sources, `committed` how far the inbox of one has been read.
        """
        elements: dict[str, int] = {}
        for each in arrivals:
            if each.block is not None:
                iri = streams[each.stream]
                elements[iri] = elements.get(iri, 0) + elements_of(each.block)
        with self._lock:
            found, delivered = self._found, monotonic()
            for iri, count in elements.items():
                counts = self._stream(iri)
                counts.elements += count
                counts.last = now
            for refused in rejected:
                self._stream(refused.stream).rejected += 1
            for late in outcome.late:
                self._stream(late.stream).late += 1
            first = min([began, *self._taken(committed, delivered)])
            found.batch.note(delivered - began)
            for name, counted in outcome.report.queries.items():
                query = found.queries.setdefault(name, QueryCounts())
                query.elements += counted["in"]
                if counted["out"]:
                    query.latency.note(delivered - first)

    def _stream(self, iri: str) -> StreamCounts:
        return self._found.streams.setdefault(iri, StreamCounts())

    def _taken(self, committed: Callable[[str], int], delivered: float) -> list[float]:
        """When the first pushes began of those that are delivered now, by streams."""
        firsts = []
        for stream, waiting in self._waiting.items():
            if not waiting:
                continue
            limit = committed(stream)
            if waiting[0][0] <= limit:
                firsts.append(waiting[0][1])
            while waiting and waiting[0][0] <= limit:
                self._found.push.note(delivered - waiting.popleft()[1])
        return firsts

    def look(self, held: Callable[[], Mapping[str, int]]) -> None:
        """See from time to time what queries hold; of those that run no more nothing is kept."""
        if monotonic() < self._looked + _LOOK:
            return
        self._looked = monotonic()
        bytes_of, queries = held(), self._found.queries
        with self._lock:
            for name in [name for name in queries if name not in bytes_of]:
                del queries[name]
            for name, size in bytes_of.items():
                queries.setdefault(name, QueryCounts()).bytes = size
