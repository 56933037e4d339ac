"""The building: 28 locations in four rows of seven, with doors between neighbours."""

from __future__ import annotations

from functools import cache

FLOOR_PLAN = "http://deri.org/floorplan/"
"""The IRI of its graph, and of its vocabulary `lv:`."""
_ROWS, _COLUMNS = 4, 7
_USES = ("Registration", "Keynotes", "Sessions", "Posters", "Demos", "Coffee", "Meetings")
_WALL = {(10, 17)}
"""Where there is no door: what makes it 172 triples, as many as the paper has."""


def location(number: int) -> str:
    return f"<{FLOOR_PLAN}r{number + 1}>"


@cache
def doors() -> tuple[tuple[int, ...], ...]:
    """The numbers of the locations that each location has a door to."""
    found: list[set[int]] = [set() for _ in range(_ROWS * _COLUMNS)]
    for here in range(_ROWS * _COLUMNS):
        row, column = divmod(here, _COLUMNS)
        beside = [here + 1] if column + 1 < _COLUMNS else []
        below = [here + _COLUMNS] if row + 1 < _ROWS else []
        for there in beside + below:
            if (here, there) not in _WALL:
                found[here].add(there)
                found[there].add(here)
    return tuple(tuple(sorted(each)) for each in found)


def floor_plan() -> list[str]:
    """Its triples, a line of N-Triples each."""
    lines = []
    for here, nearby in enumerate(doors()):
        row, column = divmod(here, _COLUMNS)
        subject = location(here)
        lines += [
            f"{subject} <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{FLOOR_PLAN}Location> .\n",
            f'{subject} <{FLOOR_PLAN}name> "Room {row + 1}.{column + 1}" .\n',
            f'{subject} <{FLOOR_PLAN}desc> "{_USES[column]} in row {row + 1}" .\n',
        ]
        lines += [f"{subject} <{FLOOR_PLAN}connected> {location(there)} .\n" for there in nearby]
    return lines
