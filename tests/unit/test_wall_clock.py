"""Heartbeats by the wall clock: who follows it, how far, and that no element is late because of them."""

from __future__ import annotations

import json
import random

import pytest

from cqels.engine.event_time.wall_clock import WallClock, settling_time
from cqels.engine.event_time.watermark import Watermarks
from cqels.ingest import StreamSettings
from cqels.ingest.element_batch import Batch
from cqels.model.time import SECOND
from cqels.plan.prepare import prepare

S = SECOND
WALL = 1_800_000_000 * S
ARRIVAL = StreamSettings("http://ex.org/a", arrival=True)


def event(idle: int = 0, lateness: int = 0) -> StreamSettings:
    return StreamSettings("http://ex.org/e", lateness * S, idle * S)


def due(clock: WallClock, seconds: float) -> list[tuple[float, int]]:
    """At a time of the wall clock, as seconds since WALL."""
    return [((time - WALL) / S, stream) for time, stream in clock.due(WALL + int(seconds * S))]


def observe(clock: WallClock, stream: int, time: float, arrived: float) -> None:
    clock.observe(stream, WALL + int(time * S), WALL + int(arrived * S))


def test_a_stream_in_arrival_time_is_where_the_wall_clock_is() -> None:
    clock = WallClock([ARRIVAL])
    assert due(clock, 0) == [(0, 0)]
    assert due(clock, 0.5) == []
    assert due(clock, 1) == [(1, 0)]
    observe(clock, 0, 1.5, 1.5)
    assert due(clock, 2) == []
    assert due(clock, 2.5) == [(2.5, 0)]


def test_a_stream_in_event_time_follows_when_it_has_been_silent_for_its_idle_time() -> None:
    clock = WallClock([event(idle=10)])
    assert due(clock, 100) == []  # what time it is there nobody knows
    observe(clock, 0, -50, 100)
    assert due(clock, 110) == []
    assert due(clock, 110.5) == [(-39.5, 0)]
    assert due(clock, 111) == []
    assert due(clock, 111.5) == [(-38.5, 0)]
    observe(clock, 0, -38, 112)
    assert due(clock, 122) == []


def test_a_stream_without_an_idle_time_follows_no_clock() -> None:
    clock = WallClock([event()])
    assert not clock.is_needed
    observe(clock, 0, 0, 0)
    assert due(clock, 1000) == []


def test_the_lateness_is_granted() -> None:
    clock = WallClock([StreamSettings("http://ex.org/a", 5 * S, arrival=True), event(idle=2, lateness=3)])
    observe(clock, 0, 10, 10)
    observe(clock, 1, 10, 10)
    assert due(clock, 10.5) == []
    assert due(clock, 13) == [(10, 1)]  # nothing is before the first element of all
    assert due(clock, 15.5) == [(10.5, 0), (12.5, 1)]


def test_a_heartbeat_does_not_overtake_a_stream_that_is_a_little_behind() -> None:
    """It is not waited for, but what it brings is not late either."""
    clock = WallClock([ARRIVAL, event()])
    observe(clock, 1, 9.8, 10)
    assert due(clock, 12) == [(pytest.approx(11.8), 0)]
    observe(clock, 1, 12.7, 13)
    assert due(clock, 14) == [(pytest.approx(13.7), 0)]


def test_a_replay_of_the_past_holds_nothing_back() -> None:
    clock = WallClock([ARRIVAL, event()])
    observe(clock, 0, 10, 10)
    observe(clock, 1, -100_000, 10)
    assert due(clock, 12) == [(12, 0)]


def test_after_a_while_nothing_can_change() -> None:
    clock = WallClock([ARRIVAL], settling=5 * S)
    observe(clock, 0, 0, 0)
    assert [time for second in range(60) for time, _ in due(clock, second)] == [1, 2, 3, 4, 5, 6]
    observe(clock, 0, 60, 60)
    assert [time for second in range(60, 120) for time, _ in due(clock, second)] == [61, 62, 63, 64, 65, 66]
    silent = WallClock([ARRIVAL], settling=5 * S)
    assert [time for second in range(9) for time, _ in due(silent, second)] == [0]


def test_the_state_is_json() -> None:
    clock = WallClock([ARRIVAL, event(idle=1)])
    observe(clock, 1, 3, 4)
    due(clock, 9)
    other = WallClock([ARRIVAL, event(idle=1)])
    other.restore(json.loads(json.dumps(clock.state())))
    assert due(clock, 12) == due(other, 12) != []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("SELECT * { STREAM <http://ex.org/a> [RANGE 10s] { ?s ?p ?o } }", 10),
        ("SELECT * { STREAM <http://ex.org/a> [RANGE 10s SLIDE 5s] { ?s ?p ?o } }", 15),
        ("SELECT * { STREAM <http://ex.org/a> [TRIPLES 3] { ?s ?p ?o } }", 0),
        ("ASK { FILTER NOT EXISTS { STREAM <http://ex.org/a> [RANGE 7s] { ?s ?p ?o } } }", 7),
        ("SELECT * { STREAM <http://ex.org/a> [RANGE 10s] { ?s ?p ?o } FILTER(NOW() > ?o) }", None),
        ("SELECT * { STREAM <http://ex.org/a> [RANGE 10s] { ?s ?p ?o } BIND(cq:now() AS ?now) }", None),
        ("SELECT * { STREAM <http://ex.org/a> [RANGE 10s @<http://ex.org/t>] { ?s ?p ?o } }", None),
    ],
)
def test_how_long_time_matters(text: str, seconds: int | None) -> None:
    assert settling_time([prepare(text)]) == (None if seconds is None else seconds * S)


@pytest.mark.parametrize("seed", range(100))
def test_no_element_is_late_because_of_the_clock(seed: int) -> None:
    """Streams that are known, with a delay that does not grow: with heartbeats no more is late than without."""
    choose = random.Random(seed)
    streams = [ARRIVAL, event(idle=choose.choice([0, 2, 5])), event(idle=choose.choice([0, 3]), lateness=1)]
    delays = [0.0, choose.uniform(0, 3), choose.uniform(0, 3)]
    clock, beaten, plain = WallClock(streams), Watermarks(streams), Watermarks(streams)
    now, late = float(choose.randint(0, 9)), [0, 0]
    for _ in range(60):
        now += choose.choice([0.01, 0.3, 1, 4, 11])
        stream = choose.randrange(3)
        delays[stream] = max(0.0, delays[stream] - choose.choice([0, 0, 0.1]))
        time = WALL + int((now - delays[stream]) * S)
        for place, each in enumerate((beaten, plain)):
            late[place] += len(each.arrive(Batch.of([(time, stream, [(1, 2, 3)])]), recorded=True).late)
        clock.observe(stream, time, WALL + int(now * S))
        if None in clock.state()["seen"]:
            continue
        for when, number in clock.due(WALL + int(now * S)):
            beaten.heartbeat(when, number)
    assert late[0] <= late[1]
