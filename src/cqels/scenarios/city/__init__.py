"""A city and its sensors, after CityBench: traffic, parking, pollution, weather, and people on their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from cqels.scenarios.city.places import START, city_of
from cqels.scenarios.city.sensors import STREAMS, stream_of
from cqels.scenarios.city.words import CITY
from cqels.scenarios.scenario import Asked, Data, Progress, Scenario


class CityBench(Scenario):
    name: ClassVar[str] = "city"
    title: ClassVar[str] = "Sensors of a city (CityBench)"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "small": {"roads": 4, "garages": 4, "areas": 3, "users": 2, "events": 8, "minutes": 24},
        "medium": {"roads": 449, "garages": 8, "areas": 9, "users": 50, "events": 200, "minutes": 120},
        "large": {"roads": 449, "garages": 8, "areas": 9, "users": 100, "events": 200, "minutes": 720},
    }
    queries: ClassVar[Sequence[Asked]] = (
        Asked("q1", "the congestion of each road of my journey"),
        Asked("q2", "the congestion of each road of my journey, and the weather there"),
        Asked("q3", "the mean congestion of my journey, and how long it takes"),
        Asked("q4", "the cultural event that goes on now, closest to where I am"),
        Asked("q5", "the congestion of the roads around a cultural event", constants={"event": "city:culture-0"}),
        Asked("q6", "the free places of garages within a kilometre of each user"),
        Asked("q7", "a garage near my destination is full"),
        Asked("q8", "garages with free places near a library event", constants={"event": "city:library-0"}),
        Asked("q9", "the free places of the garages nearest to the cheapest cultural event"),
        Asked("q10", "every ten minutes, the most polluted area"),
        Asked("q11", "a weather station has told nothing for ten minutes"),
        Asked("q12", "a road was congested more than three times in twenty minutes"),
        Asked("q13", "sensors of polluted roads are told to report more often"),
    )

    def make(self, folder: Path, numbers: Mapping[str, int], seed: int, progress: Progress) -> Data:
        city = city_of(numbers, seed)
        streams = [stream_of(name, city) for name in STREAMS]
        elements = sum(each.elements for each in streams)
        facts = {"elements": elements, "triples": sum(each.triples for each in streams)}
        done = 0
        for stream in streams:
            with (folder / f"{stream.name}.nt").open("w") as file:
                for count, text in stream.rounds():
                    file.write(text)
                    progress(done := done + count, elements)
        for name, text in city.static().items():
            (folder / f"{name}.ttl").write_text(text)
        end = datetime.fromtimestamp(START // 1000 + 60 * city.minutes + 1, UTC)
        return Data(
            streams=tuple(f"<{CITY}{each.name}>={folder / each.name}.nt?element=time" for each in streams),
            static=tuple((folder / f"{name}.ttl", graph) for name, graph in city.graphs),
            until=f"{end:%Y-%m-%dT%H:%M:%SZ}",
            facts=facts,
        )


SCENARIO = CityBench()
