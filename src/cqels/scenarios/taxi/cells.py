"""The cells of the challenge's grid, the entries of both lists made of them, and the places that people know there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import dist
from typing import NamedTuple

from cqels.scenarios.taxi.generate import KILOMETRE_EAST, KILOMETRE_NORTH, NAMES, PLACES

WEST, NORTH = -74.913585, 41.474937
"""Degrees of the middle of cell 1.1, from which all is counted."""
ROUTE_SIDE, AREA_SIDE = 0.5, 0.25
"""Kilometres."""
NEAR = 1.2
"""Kilometres from a place within which a cell is called after it."""

Point = tuple[float, float]
"""Kilometres to the east and to the south."""


class Cell(NamedTuple):
    """A square of the grid."""

    east: int
    south: int
    side: float

    def __str__(self) -> str:
        return f"{self.east}.{self.south}"

    @property
    def middle(self) -> Point:
        return (self.east - 1) * self.side, (self.south - 1) * self.side


class Route(NamedTuple):
    """An entry of the list of routes."""

    start: Cell
    end: Cell

    @classmethod
    def of(cls, values: Sequence[str]) -> Route:
        """From the values of a result.

        >>> print(*Route.of(["159", "161", "160", "155"]))
        159.161 160.155
        """
        numbers = list(map(int, values))
        return cls(Cell(numbers[0], numbers[1], ROUTE_SIDE), Cell(numbers[2], numbers[3], ROUTE_SIDE))


class Area(NamedTuple):
    """An entry of the list of areas: the profit is the median of fare and tip for each empty taxi."""

    cell: Cell
    empty: int
    median: float
    profit: float

    @classmethod
    def of(cls, values: Sequence[str]) -> Area:
        """From the values of a result.

        >>> area = Area.of(["317322", "2", "9.5", "4.75"])
        >>> str(area.cell), area.empty, area.profit
        ('317.322', 2, 4.75)
        """
        east, south = divmod(int(values[0]), 1000)
        return cls(Cell(east, south, AREA_SIDE), int(values[1]), float(values[2]), float(values[3]))


def point(longitude: float, latitude: float) -> Point:
    """Where coordinates are."""
    return (longitude - WEST) / KILOMETRE_EAST, (NORTH - latitude) / KILOMETRE_NORTH


PLACE_POINTS: dict[str, Point] = {
    name: point(float(place[0]), float(place[1])) for name, place in zip(NAMES[:-1], PLACES, strict=False)
}
"""All but the last, which is anywhere."""


@cache
def place_of(cell: Cell) -> str:
    """The known place that a cell is at, or nothing.

    >>> place_of(Cell(156, 161, ROUTE_SIDE))
    'Times Square'
    """
    near = {name: dist(at, cell.middle) for name, at in PLACE_POINTS.items()}
    name = min(near, key=near.__getitem__)
    return name if near[name] <= NEAR else ""
