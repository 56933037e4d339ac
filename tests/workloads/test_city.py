"""Answers of the city scenario, computed once more in plain Python from its files: arithmetic, negation, counts."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from pathlib import Path

import pytest
from pyoxigraph import parse

from cqels.scenarios import Data, scenario
from cqels.scenarios.answers import answers, written
from cqels.scenarios.city.places import START

CITY = scenario("city")
SECOND, MINUTE = 1000, 60_000
END = START + CITY.numbers("small")["minutes"] * MINUTE
_VALUE = re.compile(r'city/[a-z]+-(\d+)/\d+-(\w+)> <[^>]*[/#](?:hasValue|hasL\w+)> "([^"]*)".* (\d+) \.$')

Readings = list[tuple[int, int, Decimal]]
"""The time, the sensor's number and the value of each observation."""
Rows = list[tuple[int, tuple[str, ...]]]
"""The time and the values of each result; IRIs of the city without what they begin with."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return CITY.make(tmp_path_factory.mktemp("city"), CITY.numbers("small"), 1, lambda done, all: None)


@pytest.fixture(scope="module")
def found(data: Data) -> dict[str, Rows]:
    """What the engine answers."""
    queries = [CITY.query(each) for each in CITY.queries]
    results = answers(queries, data)
    rows = {}
    for query in queries:
        lines = list(csv.reader(StringIO(written(query, results[query.name or ""]))))[1:]
        rows[query.name or ""] = [
            (_milliseconds(time), tuple(value.removeprefix("http://cqels.org/city/") for value in values))
            for time, _tick, _sign, *values in lines
        ]
    return rows


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class Facts:
    """Static triples by subject and predicate, and readings by property; both by the last part of their IRIs."""

    def __init__(self, data: Data) -> None:
        self.objects: dict[tuple[str, str], list[str]] = {}
        for path, _graph in data.static:
            for triple in parse(path=path):
                self.objects.setdefault((_last(triple.subject), _last(triple.predicate)), []).append(
                    _last(triple.object)
                )
        self.readings: dict[str, Readings] = {}
        for stream in data.declarations:
            for line in Path(stream.path).read_text().splitlines():
                if found := _VALUE.search(line):
                    sensor, word, value, time = found.groups()
                    if word == "Node":
                        word = "latitude" if "hasLatitude" in line else "longitude"
                    self.readings.setdefault(word, []).append((int(time), int(sensor), Decimal(value)))

    def one(self, subject: str, predicate: str) -> str:
        (value,) = self.objects[subject, predicate]
        return value

    def place(self, subject: str) -> tuple[Decimal, Decimal]:
        node = self.one(subject, "hasFirstNode")
        return Decimal(self.one(node, "hasLatitude")), Decimal(self.one(node, "hasLongitude"))

    def within(self, word: str, start: int, end: int) -> dict[int, Decimal]:
        """The reading of each sensor after `start`, until `end`; the last if there are several."""
        return {sensor: value for time, sensor, value in self.readings[word] if start < time <= end}


def _last(term: object) -> str:
    return str(getattr(term, "value", term)).rpartition("#")[2].removeprefix("http://cqels.org/city/")


@pytest.fixture(scope="module")
def facts(data: Data) -> Facts:
    return Facts(data)


def _rounded(value: Fraction) -> int:
    return int((value + Fraction(1, 2)) // 1)


def _appearing(
    contents: Callable[[int], Counter[tuple[str, ...]]], every: int
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """What each boundary of a sliding window has more than the one before, in the order of the texts."""
    before: Counter[tuple[str, ...]] = Counter()
    for boundary in range(START + every, END + 1, every):
        now = contents(boundary)
        yield from ((boundary, row) for row in sorted((now - before).elements()))
        before = now


def _distance(one: tuple[Decimal, Decimal], other: tuple[Decimal, Decimal]) -> Decimal:
    up, right = (one[0] - other[0]) * Decimal("111.2"), (one[1] - other[1]) * 62
    return up * up + right * right


def test_the_journey_takes_as_long_as_its_roads(found: dict[str, Rows], facts: Facts) -> None:
    """Q3: arithmetic in BIND."""
    roads = [int(road.removeprefix("road-")) for road in facts.objects["journey", "along"]]

    def content(end: int) -> Counter[tuple[str, ...]]:
        levels, speeds = (facts.within(word, end - MINUTE, end) for word in ("CongestionLevel", "AvgSpeed"))
        metres = {road: int(facts.one(f"road-{road}", "length")) for road in roads}
        seconds = sum(_rounded(Fraction(metres[road]) * Fraction(18, 5) / Fraction(speeds[road])) for road in roads)
        level = sum(Fraction(levels[road]) for road in roads) / len(roads)
        return Counter([(str(_rounded(level)), str(_rounded(Fraction(seconds, 60))))])

    assert found["q3"] == list(_appearing(content, MINUTE))


def test_the_closest_event_goes_on(found: dict[str, Rows], facts: Facts) -> None:
    """Q4: arithmetic in BIND, an order, the time of an element."""
    events = [subject for subject, predicate in facts.objects if predicate == "start" and "culture" in subject]
    expected: Rows = []
    for (time, user, latitude), (_, _, longitude) in zip(
        facts.readings["latitude"], facts.readings["longitude"], strict=True
    ):
        if user != 0:
            continue
        here = latitude, longitude
        near = sorted(
            (_distance(facts.place(f"{event}-place"), here), event)
            for event in events
            if _milliseconds(facts.one(event, "start")) <= time < _milliseconds(facts.one(event, "end"))
        )
        boundary = -(-time // (10 * SECOND)) * 10 * SECOND
        distance, event = near[0]
        expected.append((boundary, (event, event.replace("-", " "), f"{distance.normalize():f}")))
    assert found["q4"] == expected


def test_garages_are_within_a_kilometre(found: dict[str, Rows], facts: Facts) -> None:
    """Q6: two streams whose distance is computed."""

    def content(end: int) -> Counter[tuple[str, ...]]:
        north, east = (facts.within(word, end - 10 * SECOND, end) for word in ("latitude", "longitude"))
        free = facts.within("ParkingVacancy", end - MINUTE, end)
        return Counter(
            (f"user-{user}", f"garage-{garage}", str(places))
            for user in north
            for garage, places in free.items()
            if _distance(facts.place(f"garage-{garage}"), (north[user], east[user])) < 1
        )

    assert found["q6"] == list(_appearing(content, 10 * SECOND))


def test_the_most_polluted_area(found: dict[str, Rows], facts: Facts) -> None:
    """Q10: the largest of several means, of tumbling windows."""
    expected: Rows = []
    for end in range(START + 10 * MINUTE, END + 1, 10 * MINUTE):
        by_area: dict[str, list[Fraction]] = {}
        for time, road, value in facts.readings["API"]:
            if end - 10 * MINUTE < time <= end:
                by_area.setdefault(facts.one(f"road-{road}", "area"), []).append(Fraction(value))
        means = {area: _rounded(sum(values) / len(values)) for area, values in by_area.items()}
        worst = max(means, key=lambda area: means[area])
        expected.append((end, (worst, str(means[worst]))))
    assert found["q10"] == expected


def test_a_station_that_is_silent_is_told_of_once(found: dict[str, Rows], facts: Facts) -> None:
    """Q11: negation.  Before the first boundary the window is empty, so at first every station is silent."""
    stations = range(CITY.numbers("small")["areas"])

    def silent(end: int) -> set[int]:
        return set(stations) - facts.within("Humidity", end - 10 * MINUTE, end).keys()

    expected: Rows = [(facts.readings["Humidity"][0][0], (f"weather-{station}",)) for station in stations]
    before = set(stations)
    for boundary in range(START + MINUTE, END + 1, MINUTE):
        now = silent(boundary)
        expected += [(boundary, (f"weather-{station}",)) for station in sorted(now - before)]
        before = now
    assert found["q11"] == expected
    assert len(expected) > len(stations), "no station was silent for long"


def test_a_road_is_congested_more_than_three_times(found: dict[str, Rows], facts: Facts) -> None:
    """Q12: counts in a window that moves with every element."""
    levels = facts.readings["CongestionLevel"]
    expected: Rows = []
    before: set[int] = set()
    for now, _, _ in levels:
        counts = Counter(road for time, road, level in levels if now - 20 * MINUTE <= time <= now and level > 75)
        often = {road for road, count in counts.items() if count > 3}
        expected += [(now, (f"road-{road}",)) for road in sorted(often - before)]
        before = often
    assert found["q12"] == expected
