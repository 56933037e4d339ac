"""The engine's watermarks against the reference's: the same is released and the same is late, however it is cut."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqels.engine.event_time.reorder_buffer import ReorderBuffer
from cqels.engine.event_time.watermark import Arrived, Watermarks
from cqels.ingest import Element, Rejected, StreamSettings, late_reason, promise_reason
from cqels.ingest.element_batch import HEARTBEAT, Batch, Row
from cqels.ingest.punctuations import promises_of
from cqels.model.errors import CqelsError
from cqels.model.time import EARLIEST, LATEST
from cqels.reference.event_time import Heartbeat
from cqels.reference.event_time import Watermarks as ReferenceWatermarks

# ------------------------------------------------------------ batches

WORDS = st.integers(EARLIEST, LATEST)
TRIPLES = st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=3)
ROWS = st.lists(st.tuples(st.integers(-5, 5), st.integers(HEARTBEAT, 2), TRIPLES), max_size=12)


def rows_of(batch: Batch) -> list[Row]:
    return [(time, stream, [tuple(triple) for triple in triples]) for time, stream, triples in batch.rows()]


@given(ROWS)
def test_a_batch_is_its_rows(rows: list[Row]) -> None:
    batch = Batch.of(rows)
    assert len(batch) == len(rows)
    assert rows_of(batch) == rows
    assert all(words.dtype == np.int64 for words in (batch.times, batch.streams, batch.counts, batch.triples))


@given(ROWS, st.data())
def test_taking_is_indexing(rows: list[Row], data: st.DataObject) -> None:
    some = st.lists(st.integers(0, len(rows) - 1), max_size=12) if rows else st.just([])
    order = data.draw(st.permutations(range(len(rows))) | some)
    taken = Batch.of(rows).take(np.array(order, np.int64))
    assert rows_of(taken) == [rows[place] for place in order]


@given(ROWS, st.none() | st.integers(-15, 15), st.none() | st.integers(-15, 15))
def test_a_slice_is_a_slice(rows: list[Row], start: int | None, stop: int | None) -> None:
    batch = Batch.of(rows)
    assert rows_of(batch[start:stop]) == rows[start:stop]
    assert rows_of(batch[start:stop][1:]) == rows[start:stop][1:]


@given(st.lists(ROWS, max_size=4))
def test_concatenating_is_adding(parts: list[list[Row]]) -> None:
    together = Batch.concatenate(Batch.of(rows) for rows in parts)
    assert rows_of(together) == [row for rows in parts for row in rows]


def test_nothing_is_a_batch() -> None:
    assert len(Batch.empty()) == 0
    assert rows_of(Batch.empty()) == []


# ------------------------------------------------------------ what is held


@given(st.lists(st.lists(st.integers(0, 9), max_size=5) | st.integers(0, 12), max_size=20))
def test_what_is_held_comes_by_time_and_then_by_arrival(steps: list[list[int] | int]) -> None:
    """A list of times is kept; a number is a horizon."""
    held, waiting, number = ReorderBuffer(), list[tuple[int, int]](), 0
    for step in steps:
        if isinstance(step, int):
            due = [(time, stream) for time, stream, _ in held.until(step).rows()]
            assert due == sorted(pair for pair in waiting if pair[0] <= step)
            waiting = [pair for pair in waiting if pair[0] > step]
        else:
            new = [(time, number + place) for place, time in enumerate(sorted(step))]
            held.add(Batch.of([(time, place, ()) for time, place in new]))
            waiting += new
            number += len(new)
        assert bool(held) == bool(waiting)
    assert [(time, stream) for time, stream, _ in held.everything().rows()] == sorted(waiting)


# ------------------------------------------------------------ beside the reference's


@dataclass(frozen=True)
class Beat:
    time: int
    stream: int | None


@dataclass(frozen=True)
class Punctuation:
    """A promise about a subject; on a stream without punctuations it is a heartbeat."""

    time: int
    stream: int
    subject: int


@dataclass(frozen=True)
class Flush:
    pass


@dataclass(frozen=True)
class Snapshot:
    """Watermarks are replaced by others with their state, which has been a text in between."""


@dataclass(frozen=True)
class Add:
    lateness: int
    idle: int


Event: TypeAlias = tuple[int, int] | Beat | Punctuation | Flush | Snapshot | Add
"""A pair is an element: its time and the number of its stream."""


class Computing(Watermarks):
    few = 0


class Walking(Watermarks):
    few = 1 << 40


class OnlyComputing(Computing):
    def _one_by_one(self, batch: Batch) -> Arrived:
        raise AssertionError("the batch was not computed with")


MANY = int(os.environ.get("FUZZ_EXAMPLES", "5000"))
SIZES = [pytest.param(150, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]
KINDS = (Watermarks, Computing, Walking)
LATENESS = st.sampled_from([0, 0, 1, 2, 5])
IDLE = st.sampled_from([0, 0, 1, 4, 9])


@st.composite
def scenarios(draw: st.DrawFn, idle: st.SearchStrategy[int] = IDLE) -> tuple[list[StreamSettings], list[Event]]:
    flags = st.booleans()
    streams = [
        named(number, draw(LATENESS), draw(idle), punctuated=draw(flags)) for number in range(draw(st.integers(1, 3)))
    ]
    count, now = len(streams), draw(st.integers(-5, 5))
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 40))):
        now += draw(st.sampled_from([0, 0, 1, 1, 2, 6]))
        kind = draw(st.integers(0, 22))
        stream = draw(st.integers(0, count - 1))
        time = now + draw(st.sampled_from([0, 0, 0, 1, -1, -2, -4, -7]))
        if kind < 15:
            events.append((time, stream))
        elif kind < 17:
            events.append(Beat(time, draw(st.sampled_from([None, stream]))))
        elif kind < 18:
            events.append(Flush())
        elif kind < 19:
            events.append(Snapshot())
        elif kind < 20:
            events.append(Add(draw(LATENESS), draw(idle)))
            count += 1
        else:
            stream = draw(st.integers(0, len(streams) - 1))
            events.append(Punctuation(time, stream, draw(st.integers(1, 4))))
    return streams, events


def named(
    number: int, lateness: int = 0, idle: int = 0, *, arrival: bool = False, punctuated: bool = False
) -> StreamSettings:
    return StreamSettings(f"http://ex.org/{number}", lateness, idle, arrival, punctuated=punctuated)


def triples_of(number: int) -> list[tuple[int, int, int]]:
    """An element's triples tell which it is; there are one, two or three of them, with few subjects among all."""
    return [(1 + (number + place) % 4, place, number) for place in range(1 + number % 3)]


class Judge:
    """The reference's watermarks, whose elements are the numbers of events."""

    def __init__(self, streams: Sequence[StreamSettings]) -> None:
        self.late: list[tuple[str, str]] = []
        self.released: list[Row] = []
        self._streams = list(streams)
        self._watermarks = ReferenceWatermarks(streams, self._note)

    def _note(self, rejected: Rejected) -> None:
        self.late.append((rejected.text, rejected.reason))

    def happen(self, number: int, event: Event) -> None:
        match event:
            case (time, stream):
                element = Element(self._streams[stream].iri, time, tuple(triples_of(number)))  # type: ignore[arg-type]
                self._take(self._watermarks.arrive(element))
            case Beat(time, stream):
                self._take(self._watermarks.heartbeat(time, None if stream is None else self._streams[stream].iri))
            case Punctuation(time, stream, subject) if self._streams[stream].punctuated:
                self._take(self._watermarks.punctuate(time, self._streams[stream].iri, subject))  # type: ignore[arg-type]
            case Punctuation(time, stream):
                self._take(self._watermarks.heartbeat(time, self._streams[stream].iri))
            case Flush():
                self._take(self._watermarks.flush())
            case Add(lateness, idle):
                added = named(len(self._streams), lateness, idle)
                self._streams.append(added)
                self._watermarks._streams[added.iri] = added

    def _take(self, released: Iterator[Element | Heartbeat]) -> None:
        numbers = {each.iri: number for number, each in enumerate(self._streams)}
        for what in released:
            if isinstance(what, Heartbeat):
                self.released.append((what.time, HEARTBEAT, []))
            else:
                self.released.append((what.time, numbers[what.stream], list(what.triples)))


class Candidate:
    """The engine's watermarks; elements wait until they are sent together, and so do heartbeats if they are to."""

    def __init__(self, kind: type[Watermarks], streams: Sequence[StreamSettings]) -> None:
        self.late: list[tuple[str, str]] = []
        self.released: list[Row] = []
        self._streams = list(streams)
        self._watermarks = kind(streams)
        self._rows: list[Row] = []

    def happen(self, number: int, event: Event, *, together: bool) -> None:
        match event:
            case (time, stream):
                self._rows.append((time, stream, triples_of(number)))
            case Beat(time, None) if together:
                self._rows.append((time, HEARTBEAT, []))
            case Beat(time, stream):
                self.send()
                self.released += rows_of(self._watermarks.heartbeat(time, stream))
            case Punctuation(time, stream, subject):
                punctuated = self._streams[stream].punctuated
                if together:
                    promise = (subject if punctuated else 0, 0, time)
                    self._rows.append((number, promises_of(stream), [promise]))
                    return
                self.send()
                promised = self._watermarks.punctuate if punctuated else self._watermarks.heartbeat
                self.released += rows_of(promised(time, stream, *[subject][: int(punctuated)]))
            case Flush():
                self.send()
                self.released += rows_of(self._watermarks.flush())
            case Snapshot():
                self.send()
                numbers, held = self._watermarks.state()
                promises = self._watermarks.punctuations()
                self._watermarks = type(self._watermarks)(self._streams)
                self._watermarks.restore(json.loads(json.dumps(numbers)), Batch.of(rows_of(held)))
                self._watermarks.restore_punctuations(promises)
            case Add(lateness, idle):
                self.send()
                added = named(len(self._streams), lateness, idle)
                self._streams.append(added)
                assert self._watermarks.add(added) == len(self._streams) - 1

    def send(self) -> None:
        arrived = self._watermarks.arrive(Batch.of(self._rows))
        self.released += rows_of(arrived.released)
        for place, time, limit, own, subject in zip(
            arrived.late.tolist(), arrived.times, arrived.limits, arrived.own, arrived.subjects, strict=True
        ):
            assert time == self._rows[place][0]
            text = " ".join(" ".join(map(str, triple)) + " ." for triple in self._rows[place][2])
            reason = promise_reason(time, limit, subject) if subject else late_reason(time, limit, own=own)
            self.late.append((text, reason))
        self._rows = []

    def state(self) -> str:
        numbers, held = self._watermarks.state()
        return json.dumps([numbers, rows_of(held), sorted(self._watermarks.punctuations(), key=str)])


def run(
    kind: type[Watermarks], streams: list[StreamSettings], events: list[Event], cuts: set[int], *, together: bool
) -> str:
    """Both go through the events, and have done the same after each batch. The state before the end is given."""
    judge, candidate = Judge(streams), Candidate(kind, streams)
    for number, event in enumerate(events):
        judge.happen(number, event)
        candidate.happen(number, event, together=together)
        if number in cuts:
            candidate.send()
            assert (candidate.released, candidate.late) == (judge.released, judge.late)
    candidate.send()
    state = candidate.state()
    judge.happen(len(events), Flush())
    candidate.happen(len(events), Flush(), together=together)
    assert (candidate.released, candidate.late) == (judge.released, judge.late)
    return state


CUTS = st.sets(st.integers(0, 39))


@pytest.mark.parametrize("examples", SIZES)
def test_watermarks_release_what_the_reference_does(examples: int) -> None:
    @settings(max_examples=examples)
    @given(scenarios(), CUTS, st.sampled_from(KINDS), st.booleans())
    def law(
        scenario: tuple[list[StreamSettings], list[Event]], cuts: set[int], kind: type[Watermarks], together: bool
    ) -> None:
        run(kind, *scenario, cuts, together=together)

    law()


def falling_behind(choose: random.Random) -> tuple[list[StreamSettings], list[Event]]:
    """Streams that go on each at its own pace, so that they are overtaken, fall silent and are heard of again."""
    streams = [
        named(number, choose.choice([0, 0, 2, 5, 9]), choose.choice([0, 1, 4, 9, 30]), punctuated=choose.random() < 0.3)
        for number in range(choose.randint(1, 4))
    ]
    now = [choose.randint(-6, 6) for _ in streams]
    events: list[Event] = []
    stream = 0
    for _ in range(choose.randint(2, 60)):
        if choose.random() < 0.4:
            stream = choose.randrange(len(streams))
        now[stream] = choose.choice([now[stream] + choose.randint(0, 3), max(now) - choose.randint(0, 6)])
        time = now[stream] - choose.choice([0, 0, 0, 1, 3, 8])
        if choose.random() < 0.9:
            events.append((time, stream))
        else:
            promise = Punctuation(time, stream, choose.randint(1, 4))
            events.append(choose.choice([Beat(time, stream), Beat(time, None), Flush(), Snapshot(), promise, promise]))
    return streams, events


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_streams_that_fall_behind(kind: type[Watermarks], examples: int) -> None:
    for seed in range(examples):
        choose = random.Random(seed)
        streams, events = falling_behind(choose)
        cuts = {place for place in range(len(events)) if choose.random() < 0.1}
        run(kind, streams, events, cuts, together=choose.random() < 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_promise_of_zero_is_a_promise(kind: type[Watermarks]) -> None:
    streams = [named(0, 2), named(1, 1)]
    events: list[Event] = [(-2, 0), Beat(0, 0), (0, 0), (1, 0)]
    run(kind, streams, events, set(), together=True)


@given(scenarios(), CUTS, CUTS, st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_the_state_does_not_depend_on_the_cuts(
    scenario: tuple[list[StreamSettings], list[Event]],
    one: set[int],
    other: set[int],
    kind: type[Watermarks],
    other_kind: type[Watermarks],
) -> None:
    assert run(kind, *scenario, one, together=True) == run(other_kind, *scenario, other, together=False)


@given(scenarios(idle=st.just(0)), CUTS)
def test_without_idle_times_no_element_is_looked_at_alone(
    scenario: tuple[list[StreamSettings], list[Event]], cuts: set[int]
) -> None:
    run(OnlyComputing, *scenario, cuts, together=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("far", [EARLIEST, EARLIEST + 1, EARLIEST + 6, LATEST - 40])
def test_the_ends_of_time(kind: type[Watermarks], far: int) -> None:
    """A lateness may reach back further than 64 bits do."""
    streams = [named(0, 5), named(1, 2, LATEST), named(2, LATEST, 3)]
    events: list[Event] = [(far + step % 7 + step // 2, step % 3) for step in range(30)]
    for cuts in (set[int](), {3, 17}, set(range(30))):
        run(kind, streams, events, cuts, together=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("idle", [0, 60])
def test_large_batches(seed: int, idle: int) -> None:
    draws = np.random.default_rng(seed)
    times = np.arange(3000) + draws.integers(-25, 25, 3000) * (draws.random(3000) < 0.5)
    numbers = draws.choice(4, 3000, p=[0.5, 0.3, 0.19, 0.01])
    streams = [named(0, 20, idle), named(1, 0, idle), named(2, 30, idle), named(3, 10)]
    events: list[Event] = list(zip(times.tolist(), numbers.tolist(), strict=True))
    run(Watermarks, streams, events, set(range(0, 3000, 700)), together=True)


# ------------------------------------------------------------ what the reference's watermarks does not show


def batch_of(*elements: tuple[int, int]) -> Batch:
    return Batch.of((time, stream, triples_of(place)) for place, (time, stream) in enumerate(elements))


@pytest.mark.parametrize("lateness", [0, 5])
def test_what_is_in_order_and_not_held_is_not_copied(lateness: int) -> None:
    watermarks = Computing([named(0, lateness), named(1)])
    watermarks.heartbeat(20)
    watermarks.flush()
    batch = batch_of((20, 0), (20, 1), (20, 0))
    released = watermarks.arrive(batch).released
    assert np.shares_memory(released.triples, batch.triples)
    assert rows_of(released) == rows_of(batch)


def test_a_change_of_settings_does_not_lose_what_is_held() -> None:
    before = Watermarks([named(0, 5)])
    assert len(before.arrive(batch_of((3, 0), (7, 0), (4, 0))).released) == 0
    after = Watermarks([named(0)])
    after.restore(*before.state())
    assert after.arrive(batch_of((8, 0))).released.times.tolist() == [3, 4, 7, 8]


def test_arrival_time_looks_only_at_the_arrival() -> None:
    present = iter([10, 20, 15])
    watermarks = Watermarks([named(0, arrival=True), named(1)], now=lambda: next(present))
    assert watermarks.arrive(batch_of((99, 0), (10, 1), (1, 0))).released.times.tolist() == [10, 10, 10]
    assert watermarks.arrive(batch_of((11, 1))).released.times.tolist() == [11]
    assert watermarks.arrive(batch_of((1, 0), (30, HEARTBEAT))).released.times.tolist() == [20, 30]
    arrived = watermarks.arrive(batch_of((99, 0)))
    assert (arrived.late.tolist(), arrived.released.times.tolist()) == ([], [30])  # time does not go back


def test_an_arrival_that_was_recorded_is_not_stamped() -> None:
    watermarks = Watermarks([named(0, arrival=True), named(1)], now=lambda: 1 // 0)
    assert watermarks.arrive(batch_of((9, 0), (10, 1)), recorded=True).released.times.tolist() == [9, 10]
    assert watermarks.heartbeat(20, 0).times.tolist() == [20]
    assert watermarks.arrive(batch_of((15, 0), (21, 0)), recorded=True).released.times.tolist() == [20, 21]
    arrived = watermarks.arrive(batch_of((15, 1)), recorded=True)
    assert (arrived.late.tolist(), arrived.times, arrived.limits) == ([0], [15], [21])


def test_punctuations_of_all_subjects_are_a_heartbeat() -> None:
    watermarks = Watermarks([named(0, lateness=100, punctuated=True)])
    elements = [(1, 0, [(7, 1, 1)]), (2, 0, [(8, 1, 1), (9, 1, 1)])]
    assert len(watermarks.arrive(Batch.of(elements)).released) == 0
    assert [len(watermarks.punctuate(5, 0, subject)) for subject in (7, 8)] == [0, 0]
    assert watermarks.punctuate(4, 0, 9).times.tolist() == [1, 2, 4]
    arrived = watermarks.arrive(Batch.of([(4, 0, [(9, 1, 1)]), (4, 0, [(9, 1, 1), (8, 1, 1)]), (5, 0, [(8, 1, 1)])]))
    assert (arrived.late.tolist(), arrived.limits, arrived.subjects) == ([1], [5], [8])
    assert watermarks.punctuate(6, 0, 9).times.tolist() == [5, 5]
    assert len(watermarks.arrive(Batch.of([(7, 0, [(1, 1, 1)])])).released) == 0
    assert [len(watermarks.punctuate(9, 0, subject)) for subject in (7, 8, 9)] == [0, 0, 0]
    assert watermarks.punctuate(9, 0, 1).times.tolist() == [7, 9]


def test_only_streams_that_were_added_have_elements() -> None:
    with pytest.raises(IndexError, match="stream 1 is not one of 1"):
        Watermarks([named(0)]).arrive(batch_of((1, 0), (2, 1)))


def test_a_state_is_of_the_same_streams() -> None:
    with pytest.raises(CqelsError, match="the state is of 1 streams, and there are 2"):
        Watermarks([named(0), named(1)]).restore(*Watermarks([named(0)]).state())
