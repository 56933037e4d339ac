"""The stream: who is read where, as people walk from room to room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from cqels.scenarios.conference.floor import FLOOR_PLAN, doors, location
from cqels.scenarios.conference.people import person

STREAM = "http://deri.org/streams/rfid"
_START = 1_319_360_400_000
"""Milliseconds: 2011-10-23T09:00:00Z, when ISWC 2011 began."""
_MOVES = 0.2
"""How often someone is somewhere else than where he was read before."""
_PART = 10_000


def write_readings(
    path: Path,
    events: int,
    people: int,
    per_second: int,
    random: np.random.Generator,
    progress: Callable[[int], object],
) -> None:
    """Lines of timed N-Triples: tags are read at random, so many a second; who moves goes through a door."""
    locations = [location(number) for number in range(len(doors()))]
    lines = [f"{person(number)} <{FLOOR_PLAN}detectedAt> " for number in range(people)]
    places = [0] * people  # where one comes in
    time = float(_START)
    with path.open("w", encoding="utf-8") as file:
        for done in range(0, events, _PART):
            count = min(_PART, events - done)
            times = time + np.cumsum(random.exponential(1000 / per_second, count))
            time = float(times[-1])
            readings = zip(
                times.astype(np.int64).tolist(),
                random.integers(people, size=count).tolist(),
                (random.random(count) < _MOVES).tolist(),
                random.random(count).tolist(),
                strict=True,
            )
            text = []
            for moment, who, moves, choice in readings:
                if moves:
                    nearby = doors()[places[who]]
                    places[who] = nearby[int(choice * len(nearby))]
                text.append(f"{lines[who]}{locations[places[who]]} {moment} .\n")
            file.writelines(text)
            progress(done + count)
