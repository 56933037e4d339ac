"""Weather stations and what they observe, after SRBench.  The queries are in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from cqels.scenarios.scenario import Asked, Data, Progress, Scenario
from cqels.scenarios.sensors.stations import NEAR, history_lines, place_lines, point, station_lines
from cqels.scenarios.sensors.weather import START, reports, texts

BENCHMARK = "http://www.cwi.nl/SRBench/"
DAY = 86_400_000
_TABLE = "JWS 2016, tables 1 and 2, with count windows"


def _published(speed: float, memory: float, anew: float) -> dict[str, float]:
    """The rows "CQELS", and of the speed "R-CQELS" too, which evaluates anew."""
    return {"triples/s": speed, "MB": memory, "anew triples/s": anew}


_FIGURES = {
    "q1": _published(25_147, 206, 1_214),
    "q4": _published(20_161, 327, 820),
    "q5": _published(13_966, 370, 47),
    "q8": _published(22_278, 248, 1_774),
    "q10": _published(29_463, 218, 3_343),
}
_TITLES = {
    "q1": "the rainfall of the last hour",
    "q2": "all precipitation of the last hour, whatever its kind",
    "q3": "is there a hurricane?",
    "q4": "the mean wind where it is warm",
    "q5": "stations in a blizzard",
    "q6": "stations where one can hardly see",
    "q7": "stations that have fallen silent",
    "q8": "the lowest and highest temperature of a day at one location",
    "q9": "the mean force and direction of the wind of a day at one location",
    "q10": "where snow has fallen in the last day",
    "q11": "stations that differ from their neighbours",
    "q12": "temperature and humidity of large cities, hour by hour",
    "q13": "shores of Florida with a strong wind",
    "q14": "airports of cities where one can hardly see",
    "q15": "where the wind is stronger than in a hurricane of the past",
    "q16": "heritage sites that a hurricane threatens",
    "q17": "what a hurricane may cost, by those of the past",
}


def _asked() -> Iterator[Asked]:
    lat, long, alt = point(0)
    at = {"lat": lat, "long": long, "alt": alt}
    for name, title in _TITLES.items():
        yield Asked(name, title, _FIGURES.get(name, {}), _TABLE if name in _FIGURES else "", at)
    for name, figures in _FIGURES.items():
        yield Asked(f"{name}-count", f"{_TITLES[name]}, in count windows", figures, _TABLE, {**at, "triples": "10000"})


class Sensors(Scenario):
    """Stations near cities, and one stream of what they observe."""

    name = "sensors"
    title = "Weather stations (SRBench)"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "small": {"places": 4, "rounds": 4, "minutes": 60},
        "medium": {"places": 33, "rounds": 185, "minutes": 10},
        "large": {"places": 330, "rounds": 185, "minutes": 10},
    }
    queries = tuple(_asked())

    def make(self, folder: Path, numbers: Mapping[str, int], seed: int, progress: Progress) -> Data:
        places, rounds, minutes = numbers["places"], numbers["rounds"], numbers["minutes"]
        gap = minutes * 60_000 // (places * NEAR) // 8
        facts = {"elements": 0, "triples": 0}
        file = folder / "observations.nt"
        last = START
        with file.open("w", encoding="ascii", newline="") as stream:
            for number, told in enumerate(reports(places, rounds, minutes, np.random.default_rng(seed))):
                elements = [text for report in told for text in texts(report, gap)]
                stream.write("".join(elements))
                facts["elements"] += len(elements)
                facts["triples"] += sum(text.count("\n") for text in elements)
                last = told[-1].time
                progress(number + 1, rounds)
        facts["observations"] = facts["triples"]
        static: list[tuple[Path, str | None]] = []
        for name, lines, graph in (
            ("stations", station_lines(places), None),
            ("places", place_lines(places), f"{BENCHMARK}geonames"),
            ("history", history_lines(places), f"{BENCHMARK}dbpedia"),
        ):
            path = folder / f"{name}.nt"
            path.write_text("".join(lines), encoding="ascii", newline="")
            static.append((path, graph))
        midnight = np.datetime64((last // DAY + 1) * DAY + 1000, "ms")
        return Data((f"<{BENCHMARK}observations>={file}?element=time",), tuple(static), f"{midnight}Z", facts)


SCENARIO = Sensors()
