"""The conference of ISWC 2011: people with tags walk through a building, and a library knows what they wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from cqels.scenarios.conference.floor import FLOOR_PLAN, floor_plan
from cqels.scenarios.conference.readings import STREAM, write_readings
from cqels.scenarios.conference.triples import write_library
from cqels.scenarios.scenario import Asked, Data, Progress, Scenario

_TABLE = "ISWC 2011, table 2"
_NAME = {"Name": '"Paul Erdoes"'}


class Conference(Scenario):
    """Static data of 10 k to 10 M triples, a floor plan of 172, and readings of tags."""

    name = "conference"
    title = "RFID readings joined with a floor plan and a library (ISWC 2011)"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "small": {"triples": 600, "events": 120, "people": 10, "per_second": 3},
        "medium": {"triples": 100_000, "events": 100_000, "people": 200, "per_second": 20},
        "large": {"triples": 1_000_000, "events": 1_000_000, "people": 200, "per_second": 20},
        "paper": {"triples": 10_000_000, "events": 1_000_000, "people": 200, "per_second": 20},
    }
    queries = (
        Asked("q1", "name and description of the location that someone enters", {"ms": 0.47}, _TABLE, _NAME),
        Asked("q2", "who can reach whom from a location next to his own", {"ms": 3.90}, _TABLE),
        Asked("q3", "the co-authors who are where the author is", {"ms": 0.51}, _TABLE, _NAME),
        Asked("q4", "the editors of the author's papers who are nearby", {"ms": 0.53}, _TABLE, _NAME),
        Asked("q5", "how many co-authors are in each location nearby", {"ms": 21.83}, _TABLE, _NAME),
    )

    experiments = ("single", "varying", "many")

    def make(self, folder: Path, numbers: Mapping[str, int], seed: int, progress: Progress) -> Data:
        triples, events, people = numbers["triples"], numbers["events"], numbers["people"]
        plan, library, readings = folder / "floorplan.nt", folder / "library.nt", folder / "rfid.nt"
        whole = triples + events

        random = np.random.default_rng(seed)
        plan.write_text("".join(floor_plan()))
        write_library(library, triples, people, random, lambda done: progress(done, whole))
        write_readings(
            readings, events, people, numbers["per_second"], random, lambda done: progress(triples + done, whole)
        )
        return Data(
            streams=(f"<{STREAM}>={readings}",),
            static=((plan, FLOOR_PLAN), (library, None)),
            facts={
                "library triples": triples,
                "floor plan triples": len(floor_plan()),
                "elements": events,
                "people": people,
            },
        )


SCENARIO = Conference()
