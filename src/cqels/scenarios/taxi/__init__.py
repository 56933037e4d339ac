"""Taxis of New York, the DEBS 2015 Grand Challenge: the routes driven most, and the areas where waiting pays most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from cqels.scenarios.scenario import Asked, Data, Progress, Scenario
from cqels.scenarios.taxi.clean import clean
from cqels.scenarios.taxi.generate import CHUNK, trips

__all__ = ["SCENARIO", "STREAM", "Taxi"]

STREAM = "http://ex.org/taxi/trips"
_SOURCE = "DEBS 2015, table 1, the first 20 days on two cores; with both at once the delays are 0.023 and 0.075 ms"


class Taxi(Scenario):
    """Trips in the form and with the shape of the challenge's, or the challenge's own."""

    name = "taxi"
    title = "Taxis of New York: frequent routes and profitable areas (DEBS 2015 Grand Challenge)"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "small": {"trips": 200, "taxis": 16, "hours": 8, "places": 2},
        "medium": {"trips": 100_000, "taxis": 13_000, "hours": 24, "places": 20},
        "paper": {"trips": 2_000_000, "taxis": 13_000, "hours": 480, "places": 20},
    }
    queries = (
        Asked(
            "routes",
            "the ten routes with most trips in the last 30 minutes",
            {"s": 65.77, "delay ms": 0.022, "anew s": 5_000},
            _SOURCE,
            {"window": "30m"},
        ),
        Asked(
            "profit",
            "the ten areas with the highest median of fare and tip for each empty taxi",
            {"s": 69.02, "delay ms": 0.068, "anew s": 22_000},
            _SOURCE,
            {"fares": "15m", "window": "30m"},
        ),
    )
    together: ClassVar[Mapping[str, float]] = {"s": 76.64, "anew s": 28_000}

    def make(self, folder: Path, numbers: Mapping[str, int], seed: int, progress: Progress) -> Data:
        count = numbers["trips"]
        made = trips(count, numbers["taxis"], numbers["hours"], numbers["places"], seed)
        return self.read(_told(made, count, progress), folder)

    def read(self, lines: Iterable[str], folder: Path) -> Data:
        """Lines of the challenge's file, without their ends, as data in a folder."""
        path = folder / "trips"
        facts = clean(lines, path)
        template = Path(__file__).with_name("trips.toml")
        return Data((f"<{STREAM}>={path}?template={template}",), facts={**facts, "triples": 9 * facts["trips"]})


def _told(lines: Iterable[str], count: int, progress: Progress) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number % CHUNK == 0:
            progress(number, count)
        yield line
    progress(count, count)


SCENARIO = Taxi()
