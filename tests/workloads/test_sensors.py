"""The weather stations: what their queries answer is what plain Python finds in the file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest

from cqels.scenarios import Data, scenario
from cqels.scenarios.answers import answers, written

SENSORS = scenario("sensors")
MILLISECOND = 1_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE
Row = tuple[int, tuple[str, ...]]


@dataclass(frozen=True)
class Observation:
    time: int
    """In milliseconds."""
    kind: str
    station: str
    value: str
    unit: str


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return SENSORS.make(tmp_path_factory.mktemp("sensors"), SENSORS.numbers("small"), 1, lambda done, all: None)


@pytest.fixture(scope="module")
def observations(data: Data) -> list[Observation]:
    """What the file has, ten lines for each."""
    found: dict[int, dict[str, str]] = defaultdict(dict)
    for line in Path(data.declarations[0].path).read_text().splitlines():
        _, predicate, rest = line.removesuffix(" .").split(" ", 2)
        value, _, time = rest.rpartition(" ")
        found[int(time)].setdefault(predicate.strip("<>").rsplit("#", 1)[1], value)
    return [
        Observation(
            time,
            each["type"].strip("<>").rsplit("#", 1)[1].removesuffix("Observation"),
            each["procedure"],
            each["floatValue"],
            each["uom"],
        )
        for time, each in found.items()
    ]


def number(value: str) -> float:
    return float(value.split('"')[1])


def answered(data: Data, name: str) -> list[Row]:
    """The times and rows that a query sends."""
    query = SENSORS.query(SENSORS.asked([name])[0])
    return [(each.nanoseconds // MILLISECOND, tuple(map(str, each.values))) for each in answers([query], data)[name]]


def boundaries(observations: list[Observation]) -> range:
    """Every ten minutes from the first observation to the midnight after the last."""
    midnight = (observations[-1].time // (24 * HOUR) + 1) * 24 * HOUR
    first = -(-observations[0].time // (10 * MINUTE)) * 10 * MINUTE
    return range(first, midnight + 1, 10 * MINUTE)


def test_rainfall(data: Data, observations: list[Observation]) -> None:
    """q1: different rows of the last hour, told when they are new."""
    expected: list[Row] = []
    before: set[tuple[str, ...]] = set()
    for now in [each.time for each in observations]:
        window = [each for each in observations if now - HOUR <= each.time <= now and each.kind == "Rainfall"]
        rows = {(each.station, each.value, each.unit) for each in window}
        expected += [(now, row) for row in rows - before]
        before = rows
    assert sorted(answered(data, "q1")) == sorted(expected)


def test_wind_where_it_is_warm(data: Data, observations: list[Observation]) -> None:
    """q4: each station's mean wind and temperature of an hour, where they are not what they were."""
    expected: list[tuple[int, str, float, float]] = []
    before: dict[str, tuple[float, float]] = {}
    for now in boundaries(observations):
        values: dict[tuple[str, str], list[float]] = defaultdict(list)
        for each in observations:
            if now - HOUR < each.time <= now:
                values[each.station, each.kind].append(number(each.value))
        rows = {}
        for station in {station for station, _ in values}:
            speeds = values[station, "WindSpeed"]
            warm = [value for value in values[station, "Temperature"] if value > 32]
            if speeds and warm:
                rows[station] = round(mean(speeds), 2), round(mean(warm), 2)
        expected += [(now, station, *row) for station, row in rows.items() if before.get(station) != row]
        before = rows
    found = [
        (time, station, number(speed), number(degrees)) for time, (station, speed, degrees) in answered(data, "q4")
    ]
    assert [each[:2] for each in sorted(found)] == [each[:2] for each in sorted(expected)]
    for one, other in zip(sorted(found), sorted(expected), strict=True):
        assert one[2:] == pytest.approx(other[2:], abs=0.02)


def test_stations_that_fall_silent(data: Data, observations: list[Observation]) -> None:
    """q7: who has told something in three hours, but nothing in the last of them."""
    expected: list[Row] = []
    before: set[str] = set()
    for now in boundaries(observations):
        long, short = (
            {each.station for each in observations if now - hours * HOUR < each.time <= now} for hours in (3, 1)
        )
        expected += [(now, (station,)) for station in long - short - before]
        before = long - short
    assert sorted(answered(data, "q7")) == sorted(expected)


def test_lowest_and_highest_of_a_day(data: Data, observations: list[Observation]) -> None:
    """q8: at midnight, of the one station at the location."""
    station = "<http://knoesis.wright.edu/ssw/System_S0000>"
    told = [each for each in observations if each.station == station and each.kind == "Temperature"]
    ordered = sorted((each.value for each in told), key=number)
    midnight = (observations[-1].time // (24 * HOUR) + 1) * 24 * HOUR
    assert answered(data, "q8") == [(midnight, (station, ordered[0], ordered[-1]))]


@pytest.mark.parametrize("name", [each.name for each in SENSORS.queries if each.name.endswith("-count")])
def test_count_windows_that_fill(data: Data, name: str) -> None:
    """The judge agrees where windows are so small that triples leave them."""
    query = SENSORS.query(SENSORS.asked([name])[0], triples="300")
    found, judged = (
        written(query, answers([query], data, engine=engine)[name]) for engine in ("embedded", "reference")
    )
    assert found == judged
