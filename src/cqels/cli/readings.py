"""The stream of the demonstration: readings of sensors in some buildings, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from math import sin
from random import Random

BUILDINGS = ("north", "south", "tower", "lab")
ROOMS = 8
"""Of each building."""
_ROOMS = tuple(f"{building}-{number}" for building in BUILDINGS for number in range(1, 1 + ROOMS))
PER_SECOND = 3 * len(_ROOMS)
START = 1_769_850_000_000
"""Milliseconds: 2026-01-31T09:00:00Z."""
LATENESS = 2_000
_XSD = "http://www.w3.org/2001/XMLSchema#"


def readings(count: int, seed: int = 1) -> Iterator[str]:
    """Lines of timed N-Triples: each room has its temperature, its humidity and its people told once a second.

    Rooms become hot now and then.  Few lines come out of order, fewer too late, and some are no triples at all.
    """
    random = Random(seed)
    heat = dict.fromkeys(_ROOMS, 0.0)
    for number in range(count):
        second, place = divmod(number, PER_SECOND)
        if place == 0 and random.random() < 0.15:  # a heater is left on
            heat[random.choice(_ROOMS)] = 60 + random.random() * 60
        room = _ROOMS[place // 3]
        heat[room] = max(0.0, heat[room] - 1 / 3)
        time = START + second * 1000 + place * 1000 // PER_SECOND
        if random.random() < 0.01:
            time -= random.randrange(LATENESS)
        elif random.random() < 0.0003:
            time -= 10 * LATENESS
        line = _line(room, place % 3, second, heat[room] > 0, random, time)
        yield line[: len(line) // 2] + "\n" if random.random() < 0.0003 else line


def _line(room: str, what: int, second: int, hot: bool, random: Random, time: int) -> str:
    match what:
        case 0:
            degrees = 22 + sin(second / 90 + len(room)) + random.random() + (8 if hot else 0)
            sensor, predicate, value = "t", "temperature", f'"{degrees:.1f}"^^<{_XSD}decimal>'
        case 1:
            sensor, predicate, value = "h", "humidity", f'"{random.randrange(35, 55)}"^^<{_XSD}integer>'
        case _:
            sensor, predicate, value = "o", "occupancy", f'"{max(0, random.randrange(-6, 5))}"^^<{_XSD}integer>'
    return f"<http://ex.org/{room}-{sensor}> <http://ex.org/{predicate}> {value} {time} .\n"
