"""What one would write in plain Python for the same work, and the reference evaluator: nothing of the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from time import process_time

import numpy as np
from pyoxigraph import NamedNode

from cqels.ingest import Element
from cqels.model.terms import Triple
from cqels.plan.prepare import prepare
from cqels.reference.event_time import StreamSettings
from cqels.reference.reference_engine import Reference
from cqels.store.dataset import Store

Row = tuple[int, int, int]
"""Time and two columns."""
Event = tuple[int, int, int]
"""Input and two columns; its place in the list is its time."""


class PythonRing:
    """A deque of rows, and a dict of deques by key."""

    def __init__(self) -> None:
        self.rows: deque[tuple[int, int]] = deque()
        self.by_key: dict[int, deque[tuple[int, int]]] = {}

    def slide(self, keys: list[int], size: int) -> None:
        rows, by_key = self.rows, self.by_key
        for number, key in enumerate(keys):
            if len(rows) >= size:
                old = rows.popleft()[0]
                bucket = by_key[old]
                bucket.popleft()
                if not bucket:
                    del by_key[old]
            row = (key, number)
            rows.append(row)
            found = by_key.get(key)
            if found is None:
                by_key[key] = deque((row,))
            else:
                found.append(row)

    def probe(self, keys: list[int]) -> int:
        total = 0
        for key in keys:
            found = self.by_key.get(key)
            if found is not None:
                total += len(found) + found[-1][0]
        return total


class Window:
    """Rows in order of arrival, and a dict of deques for each indexed column."""

    def __init__(self, indexed: tuple[int, ...]) -> None:
        self.rows: deque[Row] = deque()
        self.indexes: dict[int, dict[int, deque[Row]]] = {column: {} for column in indexed}

    def add(self, row: Row) -> None:
        self.rows.append(row)
        for column, index in self.indexes.items():
            found = index.get(row[column])
            if found is None:
                index[row[column]] = deque((row,))
            else:
                found.append(row)

    def expire(self, limit: int) -> list[Row]:
        """Let go of rows of that time and before it."""
        rows, gone = self.rows, []
        while rows and rows[0][0] <= limit:
            row = rows.popleft()
            gone.append(row)
            for column, index in self.indexes.items():
                bucket = index[row[column]]
                bucket.popleft()
                if not bucket:
                    del index[row[column]]
        return gone


class PythonStar:
    """A join of three windows on their first columns, each with an index for it."""

    def __init__(self) -> None:
        self.windows = [Window((1,)) for _ in range(3)]

    def feed(self, events: list[Event], first: int, block: int, span: int) -> int:
        """Results of the events from `first` on; expired rows are dropped."""
        found: list[Row] = []
        results = 0
        for time in range(first, first + block):
            source, key, value = events[time]
            for window in self.windows:
                if window.rows and window.rows[0][0] <= time - span:
                    window.expire(time - span)
            found.clear()
            self.join(source, key, value, found)
            results += len(found)
            self.windows[source].add((time, key, value))
        return results

    def join(self, source: int, key: int, value: int, found: list[Row]) -> None:
        one, other = (self.windows[(source + step) % 3].indexes[1].get(key) for step in (1, 2))
        if one is not None and other is not None:
            for second in one:
                for third in other:
                    found.append((value, second[2], third[2]))


class PythonChain(PythonStar):
    """A join of three windows: second column of one, first of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.windows = [Window((2,)), Window((1, 2)), Window((1,))]

    def join(self, source: int, key: int, value: int, found: list[Row]) -> None:
        left, middle, right = (window.indexes for window in self.windows)
        if source == 0:
            for second in middle[1].get(value, ()):
                for third in right[1].get(second[2], ()):
                    found.append((key, second[2], third[2]))
        elif source == 1:
            one, other = left[2].get(key), right[1].get(value)
            if one is not None and other is not None:
                for first in one:
                    for third in other:
                        found.append((first[1], value, third[2]))
        else:
            for second in middle[2].get(key, ()):
                for first in left[2].get(second[1], ()):
                    found.append((first[1], second[1], value))


PYTHON_JOINS = {"star": PythonStar, "chain": PythonChain}


def feed_pairs(
    windows: list[Window],
    events: list[Event],
    first: int,
    block: int,
    span: int,
    change: Callable[[Row, Row, int], None],
) -> None:
    """Join two windows on their first columns: `change` is told of each pair that comes (+1) or goes (-1)."""
    for time in range(first, first + block):
        source, key, value = events[time]
        for number, window in enumerate(windows):
            if window.rows and window.rows[0][0] <= time - span:
                other = windows[1 - number].indexes[1]
                for row in window.expire(time - span):
                    for match in other.get(row[1], ()):
                        change(row, match, -1) if number == 0 else change(match, row, -1)
        row = (time, key, value)
        for match in windows[1 - source].indexes[1].get(key, ()):
            change(row, match, 1) if source == 0 else change(match, row, 1)
        windows[source].add(row)


class PythonMinimum:
    """The least value of the first rows of pairs: a dict of counts, and a heap whose dead entries go when on top."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.heap: list[int] = []
        self.shown: int | None = None

    def change(self, left: Row, right: Row, weight: int) -> None:
        counts, heap, value = self.counts, self.heap, left[2]
        before = counts.get(value, 0)
        if before + weight:
            counts[value] = before + weight
            if not before:
                heappush(heap, value)
        else:
            del counts[value]
        while heap and heap[0] not in counts:
            heappop(heap)
        least = heap[0] if heap else None
        if least != self.shown:
            self.shown = least


class PythonDistinct:
    """A dict of counts of solutions."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, int, int], int] = {}
        self.sent = 0

    def change(self, left: Row, right: Row, weight: int) -> None:
        solution = (left[1], left[2], right[2])
        before = self.counts.get(solution, 0)
        if before + weight:
            self.counts[solution] = before + weight
        else:
            del self.counts[solution]
        if not before or not before + weight:
            self.sent += 1


# --- the reference evaluator

EX = "http://example.org/"
PATTERNS = {
    "star": ("?a <{0}p> ?b", "?a <{0}p> ?c", "?a <{0}p> ?d"),
    "chain": ("?a <{0}p> ?b", "?b <{0}p> ?c", "?c <{0}p> ?d"),
}


def three_way_query(shape: str, span: str) -> str:
    """The three-way join as a query over the streams 0, 1 and 2."""
    blocks = (
        f"STREAM <{EX}{number}> [RANGE {span}] {{ {pattern.format(EX)} }}"
        for number, pattern in enumerate(PATTERNS[shape])
    )
    return f"SELECT * WHERE {{ {' '.join(blocks)} }}"


def reference_cost(shape: str, size: int, keys: int, events: int = 3) -> tuple[float, float]:
    """Seconds of the reference evaluator per event at full windows, and results per event.

    It computes everything anew at each event, so the windows are filled by one element each, of `size` triples.
    """
    random = np.random.default_rng(4)
    reference = Reference(Store(), [StreamSettings(f"{EX}{number}") for number in range(3)])
    registered = reference.register(prepare(three_way_query(shape, "1h")))

    def triples(count: int) -> tuple[Triple, ...]:
        ones, others = random.integers(1, keys + 1, (2, count)).tolist()
        return tuple((term(one), NamedNode(EX + "p"), term(other)) for one, other in zip(ones, others, strict=True))

    def term(number: int) -> NamedNode:
        return NamedNode(f"{EX}{number}")

    reference.push(Element(f"{EX}0", 0, triples(size)))
    reference.push(Element(f"{EX}1", 1, triples(size)))
    reference.push(Element(f"{EX}2", 2, triples(size)))
    registered.take()
    start = process_time()
    for number in range(events):
        reference.push(Element(f"{EX}{number % 3}", 3 + number, triples(1)))
    return (process_time() - start) / events, len(registered.take()) / events
