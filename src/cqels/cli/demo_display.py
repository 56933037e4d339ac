"""The two lists of the demonstration, in place on a terminal, or as a line now and then where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cqels.model.time import MINUTE, format_time
from cqels.scenarios.taxi.cells import Area, Cell, Route, place_of

if TYPE_CHECKING:
    from cqels.spark.driver.metrics import Metrics

Entry = TypeVar("Entry")
ROWS = 10
WIDE, NARROW = 114, 74
"""Characters from which on both lists are side by side: with the names of all places, and without those of routes."""
PLAIN = 2.0
"""Seconds between two lines where there is no terminal."""


class Lists:
    """The last list of each query, how many there were, and for how long each area was listed."""

    def __init__(self, trips: int) -> None:
        self.trips = trips
        """How many there are to replay."""
        self.routes: list[Route] = []
        self.profit: list[Area] = []
        self.counts: Counter[str] = Counter()
        self._lasted: Counter[Cell] = Counter()
        self._since = 0

    def show_routes(self, routes: list[Route]) -> None:
        self.routes = routes
        self.counts["routes"] += 1

    def show_profit(self, areas: list[Area], time: int) -> None:
        """A list that holds from a time on, in nanoseconds."""
        self._lasted.update({area.cell: time - self._since for area in self.profit})
        self.profit, self._since = areas, time
        self.counts["profit"] += 1

    def minutes(self, time: int) -> dict[Cell, float]:
        """For how long each area was listed, if the last list holds until a time."""
        lasted = self._lasted.copy()
        lasted.update({area.cell: max(0, time - self._since) for area in self.profit})
        return {cell: span / MINUTE for cell, span in lasted.items()}


@contextmanager
def screen(lists: Lists, metrics: Metrics, told: Console) -> Iterator[Callable[[str], None]]:
    """Show the lists as they change; what is given says something while there are none."""
    if not told.is_terminal:
        watch = _plain(lists, told)
        metrics.watchers.append(watch)
        yield lambda text: told.print(text, markup=False, highlight=False)
        metrics.watchers.remove(watch)
        return
    with Live(console=told, refresh_per_second=8) as live:

        def update(metrics: Metrics) -> None:
            live.update(shown(lists, metrics, told.width))

        metrics.watchers.append(update)
        yield lambda text: live.update(Text(text))
        metrics.watchers.remove(update)
        live.update(Text(""))


def shown(lists: Lists, metrics: Metrics, width: int) -> Group:
    """Both lists, what time it is in them, and how it goes."""
    from cqels.spark.driver.metrics import status_line

    totals = metrics.totals
    time = "" if totals.time is None else format_time(totals.time)
    head = Text.assemble(
        ("Taxis of New York  ", "bold"),
        (f"{time[:10]} {time[11:19]}", "bold cyan"),
        f"  {totals.elements:,} of {lists.trips:,} trips",
    )
    tables = routes_table(lists.routes, named=width >= WIDE or width < NARROW), areas_table(lists.profit)
    status = Text(status_line(metrics), style="dim", no_wrap=True, overflow="ellipsis")
    if width < NARROW:
        return Group(head, *tables, status)
    beside = Table.grid(padding=(0, 3, 0, 0))
    beside.add_row(*tables)
    return Group(head, Text(""), beside, Text(""), status)


def routes_table(routes: Sequence[Route], *, named: bool) -> Table:
    table = _table("frequent routes")
    for name in ("from", "to"):
        table.add_column(name, no_wrap=True, width=28 if named else 7)
    for rank, route in _ranked(routes):
        cells = ("", "") if route is None else (_called(cell) if named else str(cell) for cell in route)
        table.add_row(rank, *cells)
    return table


def areas_table(areas: Sequence[Area]) -> Table:
    table = _table("profitable areas")
    table.add_column("area", no_wrap=True, width=25)
    for name in ("empty", "median", "profit"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    for rank, area in _ranked(areas):
        if area is None:
            table.add_row(rank, "", "", "", "")
        else:
            table.add_row(rank, _called(area.cell), f"{area.empty}", f"{area.median:.2f}", f"{area.profit:.2f}")
    return table


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("", style="cyan", justify="right", no_wrap=True, min_width=2)
    return table


def _ranked(entries: Sequence[Entry]) -> Iterator[tuple[str, Entry | None]]:
    """The entries with their places, as many rows as a full list has."""
    for rank, entry in zip_longest(range(1, 1 + ROWS), entries[:ROWS]):
        yield str(rank), entry


def _called(cell: Cell) -> str:
    return f"{cell} {place_of(cell)}".rstrip()


def _plain(lists: Lists, told: Console) -> Callable[[Metrics], None]:
    from cqels.spark.driver.metrics import status_line

    last, batch = -PLAIN, -1

    def show(metrics: Metrics) -> None:
        nonlocal last, batch
        if monotonic() < last + PLAIN or metrics.totals.batch == batch:
            return
        last, batch = monotonic(), metrics.totals.batch
        lines = [status_line(metrics)]
        lines += (f"  first route  {_called(each.start)} → {_called(each.end)}" for each in lists.routes[:1])
        lines += (f"  first area   {_called(each.cell)}, profit {each.profit:.2f}" for each in lists.profit[:1])
        for line in lines:
            told.print(line, markup=False, highlight=False, soft_wrap=True)

    return show
