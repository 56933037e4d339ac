"""A map of the areas and routes that were listed, as an SVG picture: the city, and beside it where the routes are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from csv import DictReader
from dataclasses import dataclass
from math import ceil, hypot, log, sqrt
from xml.sax.saxutils import escape, quoteattr

from cqels.ingest.input_files import files_of
from cqels.scenarios.scenario import Data
from cqels.scenarios.taxi.cells import AREA_SIDE, PLACE_POINTS, ROUTE_SIDE, Area, Cell, Point, Route, point

WIDTH, HEIGHT = 1180, 780
INK, PAPER, STREETS, ROUTES = "#22262b", "#ffffff", "#8d99a6", "#1f5fbf"
COLOURS = ((255, 236, 160), (250, 140, 60), (175, 15, 45))
"""Of areas that were hardly listed, of those between, and of those that were so for longest."""
LEAST = 6.0
"""Pixels of the side of an area, however large the region is."""
LABEL = 82, 13
"""Pixels that the name of a place takes, about."""
SCALES = 0.5, 1, 2, 5, 10, 20, 50
"""Kilometres."""
HALO = 'paint-order="stroke" stroke="#ffffff" stroke-width="3" stroke-linejoin="round"'


@dataclass(frozen=True, slots=True)
class Picture:
    """What is on the map."""

    title: str
    began: Mapping[Cell, int]
    """How many trips began in a cell."""
    minutes: Mapping[Cell, float]
    """For how long each area was listed, of those that ever were."""
    listed: Sequence[Area]
    """The areas of the last list."""
    routes: Sequence[Route]
    """Those of the last list."""


def pickups(data: Data) -> Counter[Cell]:
    """In how many trips a taxi was entered in each cell of 500 m."""
    found: Counter[Cell] = Counter()
    for path in files_of(data.declarations[0].path):
        with path.open(encoding="utf-8", newline="") as file:
            for row in DictReader(file):
                east, south = point(float(row["pickup_longitude"]), float(row["pickup_latitude"]))
                found[Cell(round(east / ROUTE_SIDE) + 1, round(south / ROUTE_SIDE) + 1, ROUTE_SIDE)] += 1
    return found


def drawn(picture: Picture) -> str:
    """The picture as SVG."""
    most = longest(picture)
    zoomed = [cell.middle for route in picture.routes for cell in route]
    city = Panel(24, 84, 700, 672, [*_central(picture.minutes), *zoomed, *PLACE_POINTS.values()], 1.2)
    near = Panel(748, 84, 408, 440, zoomed or [*PLACE_POINTS.values()], 0.8)
    parts = [
        _text(24, 38, picture.title, size=21, weight="bold"),
        _text(24, 62, "Where it pays to wait for passengers, and the ten routes with most trips", size=14),
        *city.framed([*_ground(picture, city, most), *_frame(near, city), *_names(city)]),
        *near.framed([*_ground(picture, near, most), *_names(near), *_routes(picture.routes, near)]),
        *_legend(748, 552, most),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    style = f'font-family="Helvetica, Arial, sans-serif" fill="{INK}"'
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>'
    lines = [f"{head} {style}>", f"<title>{escape(picture.title)}</title>", ARROW, paper, *parts, "</svg>", ""]
    return "\n".join(lines)


def longest(picture: Picture) -> int:
    """The end of the scale: a round number of minutes that no area was listed for longer."""
    return max(10, 10 * ceil(max(picture.minutes.values(), default=0.0) / 10))


class Panel:
    """A part of the picture that shows a part of the grid, all of these points with a margin in kilometres."""

    def __init__(self, x: float, y: float, width: float, height: float, points: Iterable[Point], margin: float) -> None:
        self.x, self.y, self.width, self.height = x, y, width, height
        east, south = zip(*points, strict=True)
        spans = [max(each) - min(each) + 2 * margin for each in (east, south)]
        self.scale = min(width / spans[0], height / spans[1])
        """Pixels of a kilometre."""
        self.west = (min(east) + max(east)) / 2 - width / self.scale / 2
        self.north = (min(south) + max(south)) / 2 - height / self.scale / 2

    def at(self, point: Point) -> Point:
        """Pixels from the panel's corner."""
        return (point[0] - self.west) * self.scale, (point[1] - self.north) * self.scale

    def shows(self, x: float, y: float, around: float = 0.0) -> bool:
        """Some of what is around a pixel, or the pixel itself, is in it."""
        return -around <= x <= self.width + around and -around <= y <= self.height + around

    def framed(self, parts: Iterable[str]) -> Iterator[str]:
        """Parts in the panel's own pixels; what is beyond its edges is cut off."""
        size = f'width="{self.width}" height="{self.height}"'
        yield f'<svg x="{self.x}" y="{self.y}" {size}>'
        yield f'<rect {size} fill="#f4f6f8"/>'
        yield from parts
        yield from self._scale()
        yield f'<rect {size} fill="none" stroke="{INK}" stroke-width="1.5"/>'
        yield "</svg>"

    def _scale(self) -> Iterator[str]:
        """A line in a corner that says how long a kilometre is, or several."""
        kilometres = max((each for each in SCALES if each * self.scale <= self.width / 4), default=SCALES[0])
        end, y = 14 + kilometres * self.scale, self.height - 12
        yield f'<path d="M14,{y - 5} V{y} H{end:.1f} V{y - 5}" fill="none" stroke="{INK}" stroke-width="1.5"/>'
        yield _text(20, y - 5, f"{kilometres:g} km", size=11.5, more=HALO)


def colour(share: float) -> str:
    """At such a part of the scale.

    >>> colour(0.0), colour(0.5), colour(1.0)
    ('#ffeca0', '#fa8c3c', '#af0f2d')
    """
    low, high, part = (COLOURS[0], COLOURS[1], 2 * share) if share < 0.5 else (COLOURS[1], COLOURS[2], 2 * share - 1)
    return "#" + "".join(f"{round(one + (other - one) * part):02x}" for one, other in zip(low, high, strict=True))


# ---------------------------------------------------------------- layers


def _central(areas: Iterable[Cell]) -> list[Point]:
    """The middles of cells but for the outermost: a few that are far away would make all others small."""
    middles = [cell.middle for cell in areas]
    cut = len(middles) // 20
    for axis in (0, 1):
        middles.sort(key=lambda middle: middle[axis])
        middles = middles[cut : len(middles) - cut]
    return middles


def _ground(picture: Picture, panel: Panel, most: int) -> Iterator[str]:
    """Where trips began, in grey, and on it the areas in their colours."""
    top = log(1 + max(picture.began.values(), default=1))
    for cell, count in picture.began.items():
        yield from _square(panel, cell, 0, f'fill="{STREETS}" fill-opacity="{0.75 * log(1 + count) / top:.2f}"')
    listed = {area.cell: area for area in picture.listed}
    for cell, minutes in sorted(picture.minutes.items(), key=lambda each: (each[0] in listed, each[1])):
        edge = f'stroke="{INK}" stroke-width="1.6"' if cell in listed else 'stroke="#ffffff" stroke-width="0.5"'
        told = f"area {cell}, among the ten for {minutes:.0f} minutes"
        if cell in listed:
            told += f"; at the end its profit is {listed[cell].profit:.2f}"
        yield from _square(panel, cell, LEAST, f'fill="{colour(sqrt(minutes / most))}" {edge}', told)


def _square(panel: Panel, cell: Cell, least: float, style: str, told: str = "") -> Iterator[str]:
    x, y = panel.at(cell.middle)
    side = max(cell.side * panel.scale, least)
    if panel.shows(x, y, side / 2):
        title = f"<title>{escape(told)}</title>" if told else ""
        place = f'x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}"'
        yield f"<rect {place} {style}>{title}</rect>" if title else f"<rect {place} {style}/>"


def _frame(part: Panel, panel: Panel) -> Iterator[str]:
    """What part of a panel another one shows."""
    x, y = panel.at((part.west, part.north))
    width, height = (pixels / part.scale * panel.scale for pixels in (part.width, part.height))
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    yield f'<rect {place} fill="none" stroke="{INK}" stroke-dasharray="5 3"/>'


def _names(panel: Panel) -> Iterator[str]:
    """The places, those that have room."""
    taken: list[Point] = []
    for name, place in PLACE_POINTS.items():
        x, y = panel.at(place)
        if panel.shows(x, y) and all(abs(x - left) > LABEL[0] or abs(y - top) > LABEL[1] for left, top in taken):
            taken.append((x, y))
            x = min(max(x, LABEL[0] / 2), panel.width - LABEL[0] / 2)
            yield _text(x, max(y - 8, 14), name, size=12, anchor="middle", more=HALO)


ARROW = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="9" markerHeight="9" '
    f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{ROUTES}"/></marker></defs>'
)


def _routes(routes: Sequence[Route], panel: Panel) -> Iterator[str]:
    """Bent to the right, so that there and back are two lines; one that ends where it begins is a ring."""
    numbers = []
    for rank, route in enumerate(routes, 1):
        (x1, y1), (x2, y2) = (panel.at(cell.middle) for cell in route)
        told = f"<title>{rank}: from {route.start} to {route.end}</title>"
        style = f'fill="none" stroke="{ROUTES}" stroke-opacity="0.85" stroke-width="{4.6 - 0.35 * rank:.2f}"'
        long = hypot(x2 - x1, y2 - y1)
        if long == 0:
            ring = 0.3 * ROUTE_SIDE * panel.scale
            yield f'<circle cx="{x1:.1f}" cy="{y1:.1f}" r="{ring:.1f}" {style}>{told}</circle>'
            numbers.append((x1, y1 + ring))
            continue
        x, y = (x1 + x2) / 2 - 0.3 * (y2 - y1), (y1 + y2) / 2 + 0.3 * (x2 - x1)
        curve = f"M{x1:.1f},{y1:.1f} Q{x:.1f},{y:.1f} {x2:.1f},{y2:.1f}"
        yield f'<path d="{curve}" {style} marker-end="url(#tip)">{told}</path>'
        numbers.append(((x1 + 2 * x + x2) / 4, (y1 + 2 * y + y2) / 4))
    for rank, (x, y) in enumerate(numbers, 1):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="{ROUTES}"/>'
        yield _text(x, y + 3.7, str(rank), size=10.5, anchor="middle", weight="bold", more='fill="#ffffff"')


def _legend(x: float, y: float, most: int) -> Iterator[str]:
    yield _text(x, y, "Minutes among the ten areas with the highest profit", size=13, weight="bold")
    for step in range(51):
        yield f'<rect x="{x + 8 * step}" y="{y + 10}" width="8.5" height="16" fill="{colour(step / 50)}"/>'
    for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        yield _text(x + 408 * part, y + 42, f"{most * part**2:g}", size=12, anchor=anchor)
    side = 'width="14" height="14"'
    entries = (
        (f'<rect {side} fill="{colour(0.7)}" stroke="{INK}" stroke-width="1.6"/>', "among the ten at the end"),
        (f'<rect {side} fill="{STREETS}" fill-opacity="0.6"/>', "where trips began: the more, the darker"),
        (
            f'<path d="M0,11 Q8,-2 22,5" fill="none" stroke="{ROUTES}" stroke-width="3.5" marker-end="url(#tip)"/>',
            "the ten routes at the end: 1 has most trips",
        ),
    )
    for number, (sign, meaning) in enumerate(entries):
        yield f'<g transform="translate({x},{y + 60 + 24 * number})">{sign}</g>'
        yield _text(x + 34, y + 72 + 24 * number, meaning, size=12.5)
    notes = (
        "Profit: the median of fare and tip of trips that began in an area of",
        f"{1000 * AREA_SIDE:.0f} m in the last 15 minutes, for each taxi that is empty there.",
        "Routes: trips of the last 30 minutes, between squares of 500 m.",
    )
    for number, note in enumerate(notes):
        yield _text(x, y + 152 + 17 * number, note, size=12)


def _text(
    x: float, y: float, text: str, *, size: float, anchor: str = "start", weight: str = "normal", more: str = ""
) -> str:
    style = f'font-size="{size}" text-anchor={quoteattr(anchor)} font-weight="{weight}" {more}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style.strip()}>{escape(text)}</text>'
