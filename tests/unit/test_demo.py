"""What the demonstration shows: its trips, its lists on terminals of any width, and its map."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from cqels.cli.demo import evening
from cqels.cli.demo_display import Lists, shown
from cqels.model.time import MINUTE
from cqels.scenarios.taxi.cells import AREA_SIDE, ROUTE_SIDE, Area, Cell, Route, place_of
from cqels.scenarios.taxi.map import HEIGHT, WIDTH, Picture, drawn, pickups
from cqels.spark.driver.metrics import Metrics

SVG = "{http://www.w3.org/2000/svg}"
STATION, SQUARE, AIRPORT = Cell(155, 162, ROUTE_SIDE), Cell(156, 161, ROUTE_SIDE), Cell(379, 371, AREA_SIDE)
ROUTES = [Route(STATION, SQUARE), Route(SQUARE, STATION), Route(STATION, STATION)]
AREAS = [Area(AIRPORT, 1, 50.25, 50.25), Area(Cell(310, 322, AREA_SIDE), 3, 12.0, 4.0)]


def test_the_evening_is_the_same_each_time(tmp_path: Path) -> None:
    texts = []
    for name in "ab":
        folder = tmp_path / name
        folder.mkdir()
        facts = evening(2000, folder).facts
        assert facts["trips"] + facts["skipped"] == 2000
        texts.append((folder / "trips" / "00000.csv").read_text())
    assert texts[0] == texts[1]
    times = [line.split(",")[4] for line in texts[0].splitlines()[1:]]
    assert times == sorted(times)
    assert times[0] < "2013-01-01 17:30"
    assert "2013-01-01 20:00" < times[-1] < "2013-01-01 21:00"


def test_places_have_names() -> None:
    assert place_of(STATION) == "Penn Station"
    assert place_of(AIRPORT) == "Kennedy"
    assert place_of(Cell(1, 1, AREA_SIDE)) == ""


def test_areas_are_listed_until_the_next_list() -> None:
    lists = Lists(10)
    first, second = AREAS
    lists.show_profit([first], 10 * MINUTE)
    lists.show_profit([second, first], 12 * MINUTE)
    lists.show_profit([], 13 * MINUTE)
    lists.show_profit([second], 20 * MINUTE)
    assert lists.minutes(25 * MINUTE) == {first.cell: 3.0, second.cell: 6.0}
    assert lists.minutes(19 * MINUTE) == {first.cell: 3.0, second.cell: 1.0}
    assert lists.counts == {"profit": 4}


@pytest.mark.parametrize(("width", "height"), [(130, 16), (80, 16), (60, 26)])
def test_lists_fit_the_terminal(width: int, height: int) -> None:
    """One beside the other where there is room, and always as high."""
    lists, metrics = Lists(39_000), Metrics()
    heights = set()
    for routes, areas in (([], []), (ROUTES, AREAS), (4 * ROUTES, 5 * AREAS)):
        lists.show_routes(routes)
        lists.show_profit(areas, 0)
        file = StringIO()
        Console(file=file, width=width).print(shown(lists, metrics, width))
        lines = file.getvalue().splitlines()
        heights.add(len(lines))
        assert max(map(len, lines)) <= width
        beside = any("frequent routes" in line and "profitable areas" in line for line in lines)
        assert beside == (width > 60)
        if routes:
            assert re.search(r" 1 +379\.371 Kennedy +1 +50\.25 +50\.25", file.getvalue())
            assert ("155.162 Penn Station" in file.getvalue()) == (width != 80)
    assert heights == {height}


def numbers(svg: ElementTree.Element, name: str) -> Iterator[float]:
    return (float(each.get(name, "0")) for each in svg.iter())


def test_the_map_is_a_picture_of_areas_and_routes(tmp_path: Path) -> None:
    began = pickups(evening(500, tmp_path))
    assert 400 < began.total() <= 500
    picture = Picture("Taxis & “trips” <made>", began, {area.cell: 7.5 for area in AREAS}, AREAS[:1], ROUTES)
    svg = ElementTree.fromstring(drawn(picture))
    assert svg.findtext(f"{SVG}title") == picture.title
    titles = {each.text for each in svg.iter(f"{SVG}title")}
    assert "area 379.371, among the ten for 8 minutes; at the end its profit is 50.25" in titles
    assert {"1: from 155.162 to 156.161", "3: from 155.162 to 155.162"} <= titles
    assert {"Times Square", "Kennedy"} <= {each.text for each in svg.iter(f"{SVG}text")}
    for axis, size in (("x", WIDTH), ("y", HEIGHT), ("width", WIDTH), ("height", HEIGHT)):
        assert all(-100 <= number <= size for number in numbers(svg, axis))


def test_a_map_of_little_is_one_too() -> None:
    for minutes, listed, routes in (({}, [], []), ({AIRPORT: 0.0}, AREAS[:1], []), ({}, [], ROUTES[2:])):
        svg = ElementTree.fromstring(drawn(Picture("little", {}, minutes, listed, routes)))
        assert svg.tag == f"{SVG}svg"
