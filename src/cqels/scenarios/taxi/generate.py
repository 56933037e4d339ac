"""Trips of New York's taxis with the shape of the real ones, as lines of the challenge's CSV."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

START = np.datetime64("2013-01-01T00:00:00", "s")
DAY = 86_400
LINE = "{},{},{},{},{},{:.2f},{:.6f},{:.6f},{:.6f},{:.6f},{},{:.2f},{:.2f},0.50,{:.2f},{:.2f},{:.2f}".format
CHUNK = 50_000
"""Lines that are made at a time."""

HOURS = np.array([39, 28, 21, 15, 11, 9, 20, 36, 45, 46, 44, 45, 48, 48, 50, 48, 41, 50, 60, 62, 59, 58, 56, 49], float)
"""Trips of each hour of a day, to scale."""

_PLACES = (
    # longitude, latitude, trips to scale, kilometres around it
    ("Times Square", -73.9857, 40.7577, 10.0, 0.5),
    ("Grand Central", -73.9772, 40.7527, 8.0, 0.4),
    ("Penn Station", -73.9934, 40.7506, 8.0, 0.3),
    ("Union Square", -73.9903, 40.7359, 5.0, 0.6),
    ("Columbus Circle", -73.9819, 40.7681, 5.0, 0.4),
    ("Upper East Side", -73.9654, 40.7829, 4.0, 0.9),
    ("Upper West Side", -73.9787, 40.7870, 4.0, 0.9),
    ("Chelsea", -73.9967, 40.7423, 4.0, 0.6),
    ("Greenwich Village", -74.0027, 40.7336, 4.0, 0.5),
    ("East Village", -73.9871, 40.7233, 3.0, 0.6),
    ("Wall Street", -74.0088, 40.7075, 3.0, 0.5),
    ("59th Street", -73.9690, 40.7614, 4.0, 0.4),
    ("Meatpacking District", -74.0060, 40.7411, 3.0, 0.3),
    ("Lincoln Center", -73.9822, 40.7736, 2.0, 0.3),
    ("LaGuardia", -73.8740, 40.7740, 3.0, 0.3),
    ("Kennedy", -73.7822, 40.6441, 2.0, 0.4),
    ("Williamsburg", -73.9571, 40.7139, 1.5, 0.8),
    ("Harlem", -73.9445, 40.8116, 1.0, 1.0),
    ("Brooklyn", -73.9857, 40.6895, 1.0, 1.0),
    ("anywhere else", -73.9400, 40.7500, 4.0, 9.0),
)
NAMES = tuple(name for name, *_ in _PLACES)
PLACES = np.array([numbers for _, *numbers in _PLACES])
KILOMETRE_EAST, KILOMETRE_NORTH = 0.011972, 0.008983112
"""Degrees."""
ZERO, BACKWARDS, NEGATIVE, FAR = 0.015, 0.005, 0.005, 0.005
"""How many of the lines have zero coordinates, a drop-off before the pickup, a fare below nothing, an end far away."""


def trips(count: int, taxis: int, hours: int, places: int, seed: int, *, first: int = 0) -> Iterator[str]:
    """The lines of trips between the first of the places, in the order of drop-offs. A taxi has one trip at a time.

    `first` is the hour of the day in which the first ones begin.
    """
    random = np.random.default_rng(seed)
    taxi, pickup, room = _schedule(random, count, taxis, hours, first)
    east, north = _ends(random, count, PLACES[:places])
    to_east, to_north = _ends(random, count, PLACES[:places])
    across = np.hypot((to_east - east) / KILOMETRE_EAST, (to_north - north) / KILOMETRE_NORTH)
    kilometres = 0.2 + 1.3 * across * random.lognormal(0, 0.1, count)
    busy = HOURS[pickup // 3600 % 24] / HOURS.mean()
    seconds = np.minimum(60 + kilometres / (24 - 5 * busy) * 3600 * random.lognormal(0, 0.2, count), 0.9 * room)
    seconds = np.maximum(seconds, 1).astype(np.int64)

    fare = np.round(5 + 2 * (kilometres / 1.609 * 2.0 + seconds / 400)) / 2
    card = random.random(count) < 0.54
    tip = np.where(card, np.round(fare * random.choice([0, 0.1, 0.2, 0.25], count, p=[0.05, 0.15, 0.6, 0.2]), 2), 0)
    toll = np.where((kilometres > 12) & (random.random(count) < 0.4), 4.8, 0)
    surcharge = random.choice([0, 0.5, 1.0], count)
    dropoff = pickup + seconds

    fault = random.choice(5, count, p=[1 - ZERO - BACKWARDS - NEGATIVE - FAR, ZERO, BACKWARDS, NEGATIVE, FAR])
    east, north = np.where(fault == 1, 0, east), np.where(fault == 1, 0, north)
    pickup = np.where(fault == 2, dropoff + 60, pickup)
    fare = np.where(fault == 3, -fare, fare)
    to_east = np.where(fault == 4, to_east + 2, to_east)
    total = fare + surcharge + 0.5 + tip + toll

    medallions, licences = _names(random, taxis), _names(random, 2 * taxis)
    driver = 2 * taxi + (pickup // (DAY // 2)) % 2
    order = np.argsort(dropoff, kind="stable")
    for start in range(0, count, CHUNK):
        some = order[start : start + CHUNK]
        columns = (
            [medallions[each] for each in taxi[some]],
            [licences[each] for each in driver[some]],
            _texts(pickup[some]),
            _texts(dropoff[some]),
            seconds[some].tolist(),
            (kilometres[some] / 1.609).tolist(),
            *(each[some].tolist() for each in (east, north, to_east, to_north)),
            ["CRD" if each else "CSH" for each in card[some].tolist()],
            *(each[some].tolist() for each in (fare, surcharge, tip, toll, total)),
        )
        for row in zip(*columns, strict=True):
            yield LINE(*row)


def _schedule(
    random: np.random.Generator, count: int, taxis: int, hours: int, first: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """The taxi and the second of each pickup, and the seconds until the next pickup of the same taxi.

    Each taxi's pickups are spread over the hours by gaps, most of them short, some of them breaks; then time is bent so
    that each hour of a day has its share of pickups.
    """
    each = -(-count // taxis)
    breaks = random.random((taxis, each)) < 0.12
    gaps = np.cumsum(random.exponential(np.where(breaks, 15, 1)) + 0.5, axis=1)
    at = np.sort((gaps / gaps[:, -1:] + random.random((taxis, 1))) % 1, axis=1)
    bent = np.concatenate(([0], np.cumsum(np.resize(np.roll(HOURS, -first), hours))))
    seconds = np.interp(at * bent[-1], bent, first + np.arange(hours + 1)) * 3600
    after = np.concatenate((seconds[:, 1:], seconds[:, -1:] + DAY), axis=1)
    kept = np.sort(random.permutation(taxis * each)[:count])
    pickup = seconds.ravel()[kept].astype(np.int64)
    return kept // each, pickup, after.ravel()[kept] - pickup


def _ends(random: np.random.Generator, count: int, places: Floats) -> tuple[Floats, Floats]:
    """Longitudes and latitudes around places."""
    place = places[random.choice(len(places), count, p=places[:, 2] / places[:, 2].sum())]
    east = place[:, 0] + random.normal(0, 1, count) * place[:, 3] * KILOMETRE_EAST
    north = place[:, 1] + random.normal(0, 1, count) * place[:, 3] * KILOMETRE_NORTH
    return east, north


def _names(random: np.random.Generator, count: int) -> list[str]:
    """Hexadecimal names of 32 digits, as medallions and licences have in the real data."""
    return [random.bytes(16).hex().upper() for _ in range(count)]


def _texts(seconds: NDArray[np.int64]) -> list[str]:
    """Times as `2013-01-01 00:02:00`."""
    texts = np.datetime_as_string(START + seconds, unit="s")
    texts.view("U1").reshape(len(texts), -1)[:, 10] = " "
    found: list[str] = texts.tolist()
    return found
