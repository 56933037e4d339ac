"""Streams merged by time: the order does not depend on the pieces that they come in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cqels.engine.event_time.stream_merge import Files, Merge, merged, merged_files
from cqels.ingest.element_batch import Batch

Streams = list[list[int]]
TIMES = st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=3)


def batch(stream: int, times: list[int], first: int = 0) -> Batch:
    """Elements without triples but for one, whose number tells them apart."""
    return Batch.of([(time, stream, [(first + place,) * 3]) for place, time in enumerate(times)])


def rows(*batches: Batch) -> list[tuple[int, int, int]]:
    return [(time, stream, triples[0][0]) for each in batches for time, stream, triples in each.rows()]


def expected(streams: Streams) -> list[tuple[int, int, int]]:
    keyed = [
        (key, stream, place, time)
        for stream, times in enumerate(streams)
        for place, (time, key) in enumerate(zip(times, accumulate(times, max), strict=True))
    ]
    return [(time, stream, place) for _, stream, place, time in sorted(keyed)]


@given(TIMES, st.integers())
def test_pieces_do_not_matter(streams: Streams, seed: int) -> None:
    random = Random(seed)
    merge = Merge(len(streams), range(len(streams)))
    done = [0] * len(streams)
    found = []
    while merge.awaited:
        number = random.choice(sorted(merge.awaited))
        size = random.randint(0, 3)
        if done[number] == len(streams[number]):
            merge.end(number)
        merge.add(number, batch(number, streams[number][done[number] : done[number] + size], done[number]))
        done[number] = min(done[number] + size, len(streams[number]))
        found += rows(merge.due())
        if random.random() < 0.5:
            state, waiting = json.loads(json.dumps(merge.state())), merge.waiting()
            merge = Merge(len(streams))
            merge.restore(state, waiting)
    found += rows(merge.due())
    assert found == expected(streams)
    assert not len(merge.waiting())


@given(TIMES, st.integers(1, 3))
def test_iterators(streams: Streams, size: int) -> None:
    parts = [
        iter([batch(number, times[at : at + size], at) for at in range(0, len(times), size)])
        for number, times in enumerate(streams)
    ]
    assert rows(*merged(parts)) == expected(streams)


@given(TIMES, st.sets(st.integers(0, 2)), st.integers(1, 3), st.integers(1, 4))
def test_what_flows_is_what_is_due_after_all_was_added(
    streams: Streams, awaited: set[int], size: int, rounds: int
) -> None:
    """Whatever pieces it comes in; also of streams that nobody awaits from one round to the next."""
    flowing, added = (Merge(len(streams), awaited & set(range(len(streams)))) for _ in range(2))
    for turn in range(rounds):
        parts = {number: times[turn::rounds] for number, times in enumerate(streams) if times[turn::rounds]}
        pieces = {
            number: iter([batch(number, times[at : at + size], at) for at in range(0, len(times), size)])
            for number, times in parts.items()
        }
        found = rows(*flowing.flow(pieces))
        for number, times in parts.items():
            added.add(number, batch(number, times))
        assert found == rows(added.due())


FILES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=5).map(
    lambda files: sorted(files, key=lambda times: times[0])
)


@given(FILES, st.integers(1, 3))
def test_files_are_merged_and_opened_when_their_first_time_has_come(files: Streams, size: int) -> None:
    opened: list[int] = []
    found: list[tuple[int, int, int]] = []

    def read(number: int) -> Iterator[Batch]:
        opened.append(number)
        times = files[number]
        yield from (batch(number, times[at : at + size], at) for at in range(0, len(times), size))

    for each in merged_files([times[0] for times in files], read, lambda waiting: None):
        found += rows(each)
        following = len(opened)
        if following < len(files):  # what is not opened is not before anything that has gone
            assert max(time for time, _, _ in found) <= files[following][0]
    assert found == expected(files)
    assert opened == list(range(len(files)))


@given(FILES, st.integers(1, 3), st.integers())
def test_files_read_one_after_the_other_are_merged_the_same(files: Streams, size: int, seed: int) -> None:
    """As on Spark: also where neighbours that do not overlap share blocks, and from snapshot to snapshot."""
    random = Random(seed)
    firsts = [times[0] for times in files]
    merge = Files(firsts)
    found = []
    at = 0
    while at < len(files):
        last = at
        while last + 1 < len(files) and max(files[last]) <= firsts[last + 1] and random.random() < 0.5:
            last += 1
        for number in range(at, last + 1):
            times = files[number]
            pieces = [(start, times[start : start + size]) for start in range(0, len(times), size)]
            for start, piece in pieces:
                merge.go_on(at if start == 0 else number, number, batch(number, piece, start))
                found += rows(merge.due())
                if random.random() < 0.5:
                    state, waiting = json.loads(json.dumps(merge.state())), merge.waiting()
                    merge = Files(firsts)
                    merge.restore(state, waiting)
        at = last + 1
    merge.end_before(len(files))
    found += rows(merge.due())
    assert found == expected(files)
    assert not len(merge.waiting())


def test_a_stream_that_is_not_awaited_holds_nothing_back() -> None:
    merge = Merge(2, [0])
    merge.add(0, batch(0, [1, 4]))
    merge.add(1, batch(1, [2, 4, 5]))
    assert rows(merge.due()) == [(1, 0, 0), (2, 1, 0), (4, 0, 1)]
    merge.end(0)
    assert rows(merge.due()) == [(4, 1, 1), (5, 1, 2)]


def test_nothing_comes_of_nothing() -> None:
    assert not len(Merge(0).due())
    assert np.array_equal(Merge(2).waiting().times, [])
