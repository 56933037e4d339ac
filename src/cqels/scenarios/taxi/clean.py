"""From the challenge's file to those that are lifted: a header, a number for each trip, and no impossible trips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path

COLUMNS = (
    "medallion",
    "hack_license",
    "pickup_datetime",
    "dropoff_datetime",
    "trip_time_in_secs",
    "trip_distance",
    "pickup_longitude",
    "pickup_latitude",
    "dropoff_longitude",
    "dropoff_latitude",
    "payment_type",
    "fare_amount",
    "surcharge",
    "mta_tax",
    "tip_amount",
    "tolls_amount",
    "total_amount",
)
MALFORMED, ZERO, NEGATIVE = "malformed", "zero coordinates", "negative fare or tip"
BACKWARDS, LATE = "drop-off before pickup", "drop-off before that of the line above"
FILE = 50_000
"""Trips in a file: each is read by one task of Spark, several of them at a time."""
_TIME = len("2013-01-01 00:02:00")


def clean(lines: Iterable[str], folder: Path) -> Counter[str]:
    """Write the possible trips among lines, which have no ends, to files; how many, and what was skipped why."""
    skipped: Counter[str] = Counter()
    possible = enumerate(_possible(lines, skipped), 1)
    folder.mkdir()
    number = 0
    for place in count():
        some = list(islice(possible, FILE))
        if some or place == 0:
            with (folder / f"{place:05d}.csv").open("w", encoding="utf-8", newline="\n") as file:
                file.write(",".join(("trip", *COLUMNS)) + "\n")
                file.writelines(f"{number},{line}\n" for number, line in some)
            number += len(some)
        if len(some) < FILE:
            break
    return Counter({"trips": number, "skipped": skipped.total(), **skipped})


def _possible(lines: Iterable[str], skipped: Counter[str]) -> Iterator[str]:
    latest = ""
    for line in lines:
        values = line.split(",")
        if fault := fault_of(values, latest):
            skipped[fault] += 1
        else:
            latest = values[3]
            yield line


def fault_of(values: list[str], latest: str) -> str | None:
    """Why a trip cannot have been, None if it can. `latest` is the drop-off of the trip before it."""
    if len(values) != len(COLUMNS) or not values[0]:
        return MALFORMED
    _, _, pickup, dropoff, _, _, *places, _, fare, _, _, tip, _, _ = values
    try:
        if not all(map(float, places)):
            return ZERO
        if float(fare) < 0 or float(tip) < 0:
            return NEGATIVE
    except ValueError:
        return MALFORMED
    if len(pickup) != _TIME or len(dropoff) != _TIME:
        return MALFORMED
    if dropoff < pickup:
        return BACKWARDS
    return LATE if dropoff < latest else None
