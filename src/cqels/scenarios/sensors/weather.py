"""The weather, and how stations tell of it: a stream of observations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cqels.scenarios.sensors.stations import (
    BLIZZARD,
    FOG,
    HURRICANE,
    NEAR,
    OM,
    PROPERTIES,
    RDF,
    SSW,
    WEATHER,
    XSD,
    kind_of,
    station_name,
)

START = 1_221_328_800_000
"""Milliseconds: 2008-09-13T18:00:00Z, the day of the hurricane Ike."""
HOUR = 3600_000
CYCLE = 8 * HOUR
"""Storms come again after so many milliseconds."""
STORMS = {BLIZZARD: (0, 5 * HOUR), HURRICANE: (HOUR, 5 * HOUR), FOG: (HOUR, 3 * HOUR)}
"""From when to when in a cycle the weather of a place is what it may be."""
SILENT = (2 * HOUR, 6 * HOUR)
"""From when to when a station that breaks says nothing."""
INSTANT = "http://www.w3.org/2006/time#inXSDDateTime"
CLASSES = ("Temperature", "WindSpeed", "WindDirection", "Humidity", "Visibility")
UNITS = ("fahrenheit", "milesPerHour", "degrees", "percent", "centimeters")
BROKEN, WRONG = 4, 6
"""Of ten stations, one falls silent, and one tells of temperatures that are far too high."""

Random = np.random.Generator
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Report:
    """What a station told of one moment, in milliseconds: for each observation its property, class, unit, value."""

    station: int
    time: int
    observations: list[tuple[str, str, str, float]]


def reports(places: int, rounds: int, minutes: int, random: Random) -> Iterator[list[Report]]:
    """All stations report in each round, one after another."""
    stations = np.arange(places * NEAR)
    kinds = np.array([kind_of(place) for place in range(places)])[stations // NEAR]
    period = minutes * 60_000
    for number in range(rounds):
        since = number * period + stations * period // len(stations)
        phase = since % CYCLE
        now = {kind: (kinds == kind) & (phase >= begin) & (phase < end) for kind, (begin, end) in STORMS.items()}
        values = _values(now, since, random)
        values[:, 1] += np.where((kinds == HURRICANE) & ~now[HURRICANE], 28, 0)  # a strong wind before and after
        rain = np.where(random.random(len(stations)) < 0.3, random.uniform(0.1, 5, len(stations)), 0)
        rain[now[HURRICANE]] *= 10
        snow = np.where(now[BLIZZARD], random.uniform(1, 20, len(stations)), 0)
        silent = (stations % 10 == BROKEN) & (phase >= SILENT[0]) & (phase < SILENT[1])
        yield [
            Report(station, START + int(since[station]), _observations(values[station], rain[station], snow[station]))
            for station in np.flatnonzero(~silent).tolist()
        ]


def _values(now: dict[int, NDArray[np.bool_]], since: NDArray[np.int64], random: Random) -> Values:
    """A row for each station, a column for each property, as the weather is at its place now."""
    count = len(since)
    blizzard, hurricane, fog = now[BLIZZARD], now[HURRICANE], now[FOG]
    day = 8 * np.sin(2 * np.pi * since / 86_400_000)
    temperature = np.where(blizzard, 20, 60) + day + random.uniform(-2, 2, count)
    temperature[np.arange(count) % 10 == WRONG] += 60
    speed = random.uniform(0, 20, count)
    speed[blizzard] += 42
    speed[hurricane] += 85
    visibility = np.where(fog | blizzard, random.uniform(2, 9, count), random.uniform(500, 3000, count))
    columns = temperature, speed, random.uniform(0, 360, count), random.uniform(30, 95, count), visibility
    return np.round(np.column_stack(columns), 1)


def _observations(values: Values, rain: float, snow: float) -> list[tuple[str, str, str, float]]:
    """The five that every station has, and what fell."""
    told = list(zip(PROPERTIES, CLASSES, UNITS, values.tolist(), strict=True))
    if rain:
        told.append(("Precipitation", "Rainfall", "centimeters", round(float(rain), 1)))
    if snow:
        told.append(("Precipitation", "Snowfall", "centimeters", round(float(snow), 1)))
    return told


def texts(report: Report, gap: int) -> list[str]:
    """Each observation is ten lines of one time; those of a report are `gap` milliseconds apart."""
    date = str(np.datetime64(report.time, "ms"))[:19]
    stamp = date.replace("-", "_").replace("T", "_").replace(":", "_")
    name = station_name(report.station)
    return [
        _text(name, stamp, date, report.time + number * gap, *each) for number, each in enumerate(report.observations)
    ]


def _text(station: str, stamp: str, date: str, time: int, measured: str, kind: str, unit: str, value: float) -> str:
    system, moment, end = f"<{SSW}System_{station}>", f"<{SSW}Instant_{stamp}>", f" {time} .\n"
    observation = f"<{SSW}Observation_{kind}_{station}_{stamp}>"
    result = f"<{SSW}MeasureData_{kind}_{station}_{stamp}>"
    return (
        f"{observation} <{RDF}type> <{WEATHER}{kind}Observation>{end}"
        f"{observation} <{OM}observedProperty> <{WEATHER}_{measured}>{end}"
        f"{observation} <{OM}procedure> {system}{end}"
        f"{observation} <{OM}result> {result}{end}"
        f"{observation} <{OM}samplingTime> {moment}{end}"
        f"{result} <{RDF}type> <{OM}MeasureData>{end}"
        f'{result} <{OM}floatValue> "{value}"^^<{XSD}float>{end}'
        f"{result} <{OM}uom> <{WEATHER}{unit}>{end}"
        f"{system} <{OM}generatedObservation> {observation}{end}"
        f'{moment} <{INSTANT}> "{date}Z"^^<{XSD}dateTime>{end}'
    )
