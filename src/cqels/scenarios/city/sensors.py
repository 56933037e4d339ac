"""What the sensors of the city tell: reports of one sensor at one time, each an element of its stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cqels.scenarios.city.places import EVERY, PROPERTIES, SPREAD, START, City, Numbers
from cqels.scenarios.city.words import CITY, CT, SAO, SSN, TYPE, XSD

STREAMS = tuple(PROPERTIES)
MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class Stream:
    """Reports to come: `values` has a row for each time, in it a row for each sensor, with what it observes."""

    name: str
    values: Numbers
    speaks: Numbers
    """Whether a sensor reports at a time."""

    @property
    def elements(self) -> int:
        return int(self.speaks.sum())

    @property
    def triples(self) -> int:
        return self.elements * report(self.name, 0).count("\n")

    def rounds(self) -> Iterator[tuple[int, str]]:
        """The lines of each time, and how many elements they are."""
        every, sensors = EVERY[self.name], self.values.shape[1]
        reports = [report(self.name, number) for number in range(sensors)]
        offsets = [min(every, MINUTE) * (2 * number + 1) // (2 * sensors) for number in range(sensors)]
        for number, (values, speaks) in enumerate(zip(self.values.tolist(), self.speaks.tolist(), strict=True)):
            start = START + every * number
            told = [
                text.format(*observed, n=number, t=start + offset)
                for text, observed, offset, speaks in zip(reports, values, offsets, speaks, strict=True)
                if speaks
            ]
            yield len(told), "".join(told)


def report(stream: str, sensor: int) -> str:
    """A report as a format: `n` is its number, `t` its time, and what is observed comes by its place."""
    return "".join(_observation(stream, sensor, place, word) for place, word in enumerate(PROPERTIES[stream]))


def _observation(stream: str, sensor: int, place: int, word: str) -> str:
    name = f"{CITY}{stream}-{sensor}"
    subject = f"<{name}/{{n}}-{word}>"
    about = (
        f"{subject} <{TYPE}> <{SSN}Observation> {{t}} .\n"
        f"{subject} <{SSN}observedBy> <{name}> {{t}} .\n"
        f"{subject} <{SSN}observedProperty> <{name}-{word}> {{t}} .\n"
    )
    if word == "Location":
        node = f"<{name}/{{n}}-Node>"
        return about + (
            f"{subject} <{SAO}hasValue> {node} {{t}} .\n"
            f'{node} <{CT}hasLatitude> "{{0:.5f}}"^^<{XSD}decimal> {{t}} .\n'
            f'{node} <{CT}hasLongitude> "{{1:.5f}}"^^<{XSD}decimal> {{t}} .\n'
        )
    digits, datatype = (1, "decimal") if word in ("Temperature", "WindSpeed") else (0, "integer")
    return about + f'{subject} <{SAO}hasValue> "{{{place}:.{digits}f}}"^^<{XSD}{datatype}> {{t}} .\n'


def stream_of(name: str, city: City) -> Stream:
    """A stream of the city: the same for the same seed."""
    random = np.random.default_rng([city.seed, STREAMS.index(name)])
    times = max(1, city.minutes * MINUTE // EVERY[name])
    values = {
        "traffic": _traffic,
        "parking": _parking,
        "pollution": _pollution,
        "weather": _weather,
        "location": _location,
    }[name](city, times, random)
    speaks = np.ones(values.shape[:2], dtype=bool)
    if name == "weather":
        fails = np.less(random.random(speaks.shape), 0.08)
        for late in range(4):  # a station that fails is silent for 20 minutes
            speaks[1 + late :] &= ~fails[1 : len(fails) - late]
    return Stream(name, values, speaks)


def _waves(times: int, sensors: int, random: np.random.Generator) -> Numbers:
    """Numbers from 0 to 1 that go up and down, for each sensor in its own time."""
    periods = random.uniform(25, 120, size=sensors)
    phases = random.uniform(0, 2 * np.pi, size=sensors)
    waves = 0.5 + 0.5 * np.sin(2 * np.pi * np.arange(times)[:, None] / periods + phases)
    return np.clip(waves + random.normal(scale=0.08, size=(times, sensors)), 0, 1)


def _traffic(city: City, times: int, random: np.random.Generator) -> Numbers:
    roads = len(city.lengths)
    jam = _waves(times, roads, random)
    speed = np.round(random.choice([50, 60, 80, 110], size=roads) * (1 - 0.85 * jam))
    vehicles = np.round(jam * city.lengths / 20)
    return np.stack([speed, vehicles, np.round(3.6 * city.lengths / speed), np.round(100 * jam)], axis=2)


def _parking(city: City, times: int, random: np.random.Generator) -> Numbers:
    free = 1.6 * _waves(times, len(city.garages), random) - 0.6
    return np.stack([np.round(city.spaces * np.clip(free, 0, 1))], axis=2)


def _pollution(city: City, times: int, random: np.random.Generator) -> Numbers:
    dirt = random.uniform(10, 60, size=len(city.lengths))
    return np.stack([np.round(dirt + 60 * _waves(times, len(city.lengths), random))], axis=2)


def _weather(city: City, times: int, random: np.random.Generator) -> Numbers:
    shape = times, len(city.stations)
    temperature = 18 + np.cumsum(random.normal(scale=0.3, size=shape), axis=0)
    humidity = np.round(random.uniform(40, 90, size=shape))
    return np.stack([temperature, humidity, random.gamma(3, 1.5, size=shape)], axis=2)


def _location(city: City, times: int, random: np.random.Generator) -> Numbers:
    steps = random.normal(scale=0.05, size=(times, len(city.users), 2)) * SPREAD
    walks: Numbers = city.users + np.cumsum(steps, axis=0)
    return walks
