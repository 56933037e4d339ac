"""The taxis' queries against the rules of the challenge, computed for each trip from all trips before it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from csv import DictReader
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache
from importlib import import_module
from math import floor
from pathlib import Path
from statistics import median

import pytest

from cqels.scenarios import Data
from cqels.scenarios.answers import answers
from cqels.scenarios.taxi import SCENARIO, STREAM
from cqels.scenarios.taxi.challenge import Lines, main, times_of
from cqels.scenarios.taxi.generate import trips

LINE = "{},L,{},{},120,0.44,{},{},CSH,{},0.50,0.50,1.00,0.00,4.50".format
HOTEL, STATION, PARK = "-73.985700,40.757700", "-73.993400,40.750600", "-73.965400,40.782900"
OUTSIDE = "-72.000000,40.750600"


@dataclass(frozen=True, eq=False)
class Trip:
    number: int
    taxi: str
    times: tuple[str, str]
    ended: datetime
    ends: tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]
    paid: Fraction


@cache
def cells(trip: Trip, metres: int) -> tuple[str, str] | None:
    """Where a trip began and ended, None if that is not in the grid."""
    found = []
    for longitude, latitude in trip.ends:
        cells_east = (longitude + Fraction("74.913585")) * 500 / metres / Fraction("0.005986")
        cells_south = (Fraction("41.474937") - latitude) * 500 / metres / Fraction("0.004491556")
        east, south = floor(cells_east + Fraction(3, 2)), floor(cells_south + Fraction(3, 2))
        if not (1 <= east <= 150_000 // metres and 1 <= south <= 150_000 // metres):
            return None
        found.append(f"{east}.{south}")
    return found[0], found[1]


def trips_of(data: Data) -> list[Trip]:
    (path,) = Path(data.declarations[0].path).iterdir()  # there are few trips
    with path.open(encoding="utf-8") as file:
        return [
            Trip(
                number,
                row["medallion"],
                (row["pickup_datetime"], row["dropoff_datetime"]),
                datetime.fromisoformat(row["dropoff_datetime"]),
                (
                    (Fraction(row["pickup_longitude"]), Fraction(row["pickup_latitude"])),
                    (Fraction(row["dropoff_longitude"]), Fraction(row["dropoff_latitude"])),
                ),
                Fraction(row["fare_amount"]) + Fraction(row["tip_amount"]),
            )
            for number, row in enumerate(DictReader(file))
        ]


def within(trips: list[Trip], minutes: int, metres: int) -> list[tuple[Trip, str, str]]:
    """The trips that ended in the minutes before the last one did, with their cells, if they are in the grid."""
    since = trips[-1].ended - timedelta(minutes=minutes)
    ends = ((trip, cells(trip, metres)) for trip in trips if trip.ended >= since)
    return [(trip, *both) for trip, both in ends if both is not None]


def routes(trips: list[Trip], window: int) -> list[str]:
    counts: Counter[str] = Counter()
    newest: dict[str, int] = {}
    for trip, start, end in within(trips, window, 500):
        counts[f"{start},{end}"] += 1
        newest[f"{start},{end}"] = trip.number
    return sorted(counts, key=lambda each: (-counts[each], -newest[each]))[:10]


def profit(trips: list[Trip], window: int) -> list[str]:
    paid: dict[str, list[Fraction]] = defaultdict(list)
    newest: dict[str, int] = {}
    for trip, start, _ in within(trips, 15, 250):
        paid[start].append(trip.paid)
        newest[start] = trip.number
    last = {trip.taxi: (trip, end) for trip, _, end in within(trips, window, 250)}
    empty = Counter(end for _, end in last.values())
    for trip, end in last.values():
        newest[end] = max(newest.get(end, 0), trip.number)
    areas = []
    for cell in paid.keys() & empty.keys():
        middle = float(median(paid[cell]))
        value = middle / empty[cell]
        areas.append((-value, -newest[cell], f"{cell},{empty[cell]},{middle:.10g},{value}"))
    return [text for _, _, text in sorted(areas)[:10]]


RULES: dict[str, Callable[[list[Trip], int], list[str]]] = {"routes": routes, "profit": profit}


def check(data: Data, window: int = 30) -> dict[str, list[str]]:
    """The engine's lines, without their delays, are those of the rules."""
    every = trips_of(data)
    queries = [SCENARIO.query(each, window=f"{window}m") for each in SCENARIO.queries]
    results = answers(queries, data)
    lines = {}
    for name, rule in RULES.items():
        before: list[str] = []
        due = []
        for number, trip in enumerate(every, 1):
            entries = rule(every[:number], window)
            if entries != before:
                due.append(",".join((*trip.times, *entries, *["NULL"] * (10 - len(entries)))))
            before = entries
        lines[name] = [line.rpartition(",")[0] for line in Lines(name, times_of(data)).of(results[name])]
        assert lines[name] == due
    return lines


@pytest.mark.parametrize(("seed", "window"), [(1, 30), (2, 30), (1, 60), (1, 120), (1, 240)])
def test_lines_are_those_of_the_rules(tmp_path: Path, seed: int, window: int) -> None:
    numbers = {"trips": 250, "taxis": 40, "hours": 2, "places": 5}
    lines = check(SCENARIO.make(tmp_path, numbers, seed, lambda done, all: None), window)
    assert all(len(each) > 50 for each in lines.values())


def made(folder: Path, *trips: tuple[str, str, str, str, str]) -> Data:
    """Trips: taxi, minute and second of the pickup and of the drop-off, where from, where to."""
    lines = (
        LINE(taxi, f"2013-01-01 {began}", f"2013-01-01 {ended}", start, end, "9.00")
        for taxi, began, ended, start, end in trips
    )
    return SCENARIO.read(lines, folder)


def test_a_list_ends_with_null_and_changes_when_trips_leave(tmp_path: Path) -> None:
    data = made(
        tmp_path,
        ("A", "00:00:00", "00:10:00", HOTEL, STATION),
        ("B", "00:20:00", "00:40:00", HOTEL, PARK),
        ("C", "00:20:00", "00:40:01", HOTEL, OUTSIDE),
    )
    start, station, park = "156.161", "155.162", "159.155"
    assert check(data)["routes"] == [
        f"2013-01-01 00:00:00,2013-01-01 00:10:00,{start},{station}" + 9 * ",NULL",
        f"2013-01-01 00:20:00,2013-01-01 00:40:00,{start},{park},{start},{station}" + 8 * ",NULL",
        f"2013-01-01 00:20:00,2013-01-01 00:40:01,{start},{park}" + 9 * ",NULL",
    ]


def test_a_taxi_is_empty_where_its_last_trip_ended(tmp_path: Path) -> None:
    data = made(
        tmp_path,
        ("A", "00:00:00", "00:10:00", PARK, HOTEL),
        ("B", "00:01:00", "00:11:00", HOTEL, STATION),
        ("A", "00:10:00", "00:12:00", HOTEL, PARK),
        ("A", "00:10:00", "00:12:00", HOTEL, STATION),
        ("E", "00:10:00", "00:12:00", HOTEL, STATION),
        ("E", "00:10:00", "00:12:00", HOTEL, PARK),
        ("B", "00:12:00", "00:12:00", STATION, OUTSIDE),
        ("C", "00:12:00", "00:13:00", STATION, STATION),
        ("D", "00:30:00", "00:41:00", STATION, PARK),
        ("D", "00:50:00", "00:59:00", STATION, STATION),
    )
    assert check(data)["profit"]


def test_impossible_trips_are_skipped_and_counted(tmp_path: Path) -> None:
    early, late = "2013-01-01 00:00:00", "2013-01-01 00:02:00"
    lines = [
        LINE("A", early, late, HOTEL, PARK, "3.50"),
        LINE("A", early, late, "0,0", PARK, "3.50"),
        LINE("A", early, late, HOTEL, PARK, "-3.50"),
        LINE("A", late, early, HOTEL, PARK, "3.50"),
        LINE("A", early, early, HOTEL, PARK, "3.50"),
        LINE("A", early, late, HOTEL, f"here,{PARK}", "3.50"),
        LINE("A", early, late, HOTEL, "here,40.7", "3.50"),
        "",
    ]
    data = SCENARIO.read(lines, tmp_path)
    assert data.facts == {
        "trips": 1,
        "triples": 9,
        "skipped": 7,
        "zero coordinates": 1,
        "negative fare or tip": 1,
        "drop-off before pickup": 1,
        "drop-off before that of the line above": 1,
        "malformed": 3,
    }


def test_the_challenge_is_answered_for_a_file(tmp_path: Path) -> None:
    raw = tmp_path / "sorted_data.csv"
    raw.write_text("".join(f"{line}\n" for line in trips(200, 16, 8, 2, 1)))
    main([str(raw), str(tmp_path / "out")])
    data = Data((f"<{STREAM}>={tmp_path / 'out' / 'trips'}?template={SCENARIO.folder / 'trips.toml'}",))
    for name, lines in check(data).items():
        written = (tmp_path / "out" / f"{name}.txt").read_text().splitlines()
        assert [line.rpartition(",")[0] for line in written] == lines
        assert all(float(line.rpartition(",")[2]) > 0 for line in written)


def test_many_trips_are_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("cqels.scenarios.taxi.clean"), "FILE", 7)
    numbers = {"trips": 21, "taxis": 5, "hours": 2, "places": 2}
    data = SCENARIO.make(tmp_path, numbers, 1, lambda done, all: None)
    files = sorted((tmp_path / "trips").iterdir())
    trips = [row["trip"] for path in files for row in DictReader(path.read_text().splitlines())]
    assert trips == [str(number) for number in range(1, data.facts["trips"] + 1)]
    assert len(files) == -(-len(trips) // 7)
