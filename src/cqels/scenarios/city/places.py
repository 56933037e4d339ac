"""What stands still in the city: roads, garages, areas and events, where they are, and the files that tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np

from cqels.scenarios.city.words import CITY, PREFIXES

Numbers = np.ndarray[Any, np.dtype[Any]]
CENTRE = np.array([56.15, 10.2])
"""Latitude and longitude; a degree is about 111 km to the north and 62 km to the east."""
SPREAD = np.array([0.006, 0.01])
"""How far from the centre garages, events and people are, in degrees; roads go on to three times as far."""
START = 1_406_880_000_000
"""Milliseconds: 2014-08-01T08:00:00Z."""
PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "traffic": ("AvgSpeed", "VehicleCount", "EstimatedTime", "CongestionLevel"),
    "parking": ("ParkingVacancy",),
    "pollution": ("API",),
    "weather": ("Temperature", "Humidity", "WindSpeed"),
    "location": ("Location",),
}
"""What the sensors of each stream observe, as classes of `ct:`. API is an index of the air's pollution."""
EVERY = {"traffic": 60_000, "parking": 60_000, "pollution": 60_000, "weather": 300_000, "location": 10_000}
"""Milliseconds between two reports of a sensor."""


@dataclass(frozen=True, slots=True)
class City:
    """Places as rows of latitude and longitude, and what is known of them."""

    graphs: ClassVar[tuple[tuple[str, str | None], ...]] = (
        ("repository", None),
        ("culture", f"{CITY}culture"),
        ("library", f"{CITY}library"),
    )
    minutes: int
    seed: int
    starts: Numbers
    ends: Numbers
    lengths: Numbers
    """Metres of each road."""
    areas: Numbers
    """The area of each road."""
    destination: Numbers
    """Where my journey ends."""
    garages: Numbers
    spaces: Numbers
    stations: Numbers
    """A weather station for each area, at its middle."""
    users: Numbers
    """Where they set out from."""
    events: Numbers
    times: Numbers
    """When each event starts and ends, in seconds."""
    prices: Numbers

    def static(self) -> dict[str, str]:
        """The text of each static file."""
        return {
            "repository": PREFIXES + "".join(self._repository()),
            "culture": PREFIXES + "".join(self._events("culture", 0)),
            "library": PREFIXES + "".join(self._events("library", 1)),
        }

    def _repository(self) -> Iterable[str]:
        for number, area in enumerate(self.areas):
            road = f"city:road-{number}"
            yield from _sensor("traffic", number, road)
            yield from _sensor("pollution", number, road)
            yield f"{road} a ct:Street ; city:area city:area-{area} ; city:length {self.lengths[number]} .\n"
            yield from _node(road, "First", self.starts[number])
            yield from _node(road, "Second", self.ends[number])
        for number, place in enumerate(self.garages):
            garage = f"city:garage-{number}"
            yield from _sensor("parking", number, garage)
            yield f"{garage} a city:Garage ; city:spaces {self.spaces[number]} .\n"
            yield from _node(garage, "First", place)
        for number, place in enumerate(self.stations):
            yield from _sensor("weather", number, f"city:area-{number}")
            yield f"city:weather-{number} a city:WeatherStation .\n"
            yield from _node(f"city:area-{number}", "First", place)
        for number in range(len(self.users)):
            yield from _sensor("location", number, f"city:user-{number}")
        for number in range(0, len(self.starts), max(2, len(self.starts) // 6)):
            yield f"city:journey city:along city:road-{number} .\n"
        yield from _node("city:destination", "First", self.destination)
        yield "city:journey city:to city:destination .\n"

    def _events(self, kind: str, first: int) -> Iterable[str]:
        for number, event in enumerate(range(first, len(self.events), 2)):
            name = f"city:{kind}-{number}"
            start, end = (f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%SZ}" for time in self.times[event])
            yield f'{name} a sao:Point ; sao:value "{kind} {number}" ; city:price {self.prices[event]} ;\n'
            yield f'  tl:start "{start}"^^xsd:dateTime ; tl:end "{end}"^^xsd:dateTime ;\n'
            yield f"  ssn:featureOfInterest {name}-place .\n"
            yield from _node(f"{name}-place", "First", self.events[event])


def _sensor(stream: str, number: int, place: str) -> Iterable[str]:
    sensor = f"city:{stream}-{number}"
    yield f"{sensor} a ssn:Sensor ; city:interval {EVERY[stream] // 1000} .\n"
    for word in PROPERTIES[stream]:
        yield f"{sensor} ssn:observes {sensor}-{word} .\n"
        yield f"{sensor}-{word} a ct:{word} ; ssn:isPropertyOf {place} .\n"


def _node(place: str, which: str, position: Numbers) -> Iterable[str]:
    node = f"{place}-{which.lower()}"
    latitude, longitude = position
    yield f"{place} ct:has{which}Node {node} .\n"
    yield f"{node} a ct:Node ; ct:hasLatitude {latitude:.5f} ; ct:hasLongitude {longitude:.5f} .\n"


def city_of(numbers: Mapping[str, int], seed: int) -> City:
    """The city of a size: the same for the same seed."""
    random = np.random.default_rng(seed)

    def places(count: int, spread: float = 1.0) -> Numbers:
        return np.round(CENTRE + spread * SPREAD * np.clip(random.normal(size=(count, 2)), -2.5, 2.5), 5)

    roads, areas, events = numbers["roads"], numbers["areas"], numbers["events"]
    starts = places(roads, 3.0)
    stations = places(areas, 3.0)
    begins = START // 1000 + 60 * random.integers(-60, numbers["minutes"], size=events)
    return City(
        minutes=numbers["minutes"],
        seed=seed,
        starts=starts,
        ends=np.round(starts + random.normal(size=(roads, 2)) * SPREAD, 5),
        lengths=random.integers(200, 3000, size=roads),
        areas=np.argmin(((starts[:, None] - stations) ** 2).sum(2), axis=1),
        destination=places(1)[0],
        garages=places(numbers["garages"]),
        spaces=random.integers(40, 400, size=numbers["garages"]),
        stations=stations,
        users=places(numbers["users"]),
        events=places(events),
        times=np.stack([begins, begins + 60 * random.integers(20, 90, size=events)], axis=1),
        prices=random.integers(5, 60, size=events) * 10,
    )
