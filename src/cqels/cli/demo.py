"""What `cqels demo` does: an evening of a city's taxis through two queries on Spark, live in the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cqels.cli.demo_display import Lists, screen
from cqels.cli.run_spark import Java, attend, check_installed, cores
from cqels.cli.signals import Stopping
from cqels.model.errors import CqelsError
from cqels.model.time import format_time
from cqels.plan.algebra import Query
from cqels.results.result import lexical
from cqels.scenarios.taxi import SCENARIO
from cqels.scenarios.taxi.cells import Area, Cell, Route
from cqels.scenarios.taxi.generate import trips
from cqels.scenarios.taxi.map import Picture, drawn, pickups

if TYPE_CHECKING:
    from cqels.pipeline.sink.result_batch import Sent
    from cqels.scenarios import Data
    from cqels.spark.driver.metrics import Metrics

FIRST, HOURS = 17, 4
"""The hour at which the evening begins, and how many it has; the last half hour is not replayed."""
TAXI = 10
"""Trips of a taxi."""
SEED = 1
_NEXT = """\
Try next:
  cqels bench run taxi    the same queries over another day, measured
  cqels run --help        your own queries over your own streams
The queries and a page about them are in {folder}"""


def demonstrate(size: int, speed: float, place: Path) -> None:
    """Generate so many trips, replay them so many times faster than they were, and show what the queries say.

    The map is saved at the place.
    """
    check_installed()
    _check_place(place)
    told = Console(stderr=False)
    with ExitStack() as stack:
        data = evening(size, Path(stack.enter_context(TemporaryDirectory(prefix="cqels-demo-"))))
        began = pickups(data)
        java = stack.enter_context(Java(f"local[{cores(None)}]", 2, brief=True))
        stopping = stack.enter_context(Stopping(java.kill))
        seen = _run(data, java, stopping, speed, told)
    saved = seen.first is not None
    if saved:
        _save(place, drawn(_picture(seen, began)))
    told.print(_summary(seen, data.facts, speed, place if saved else None))
    told.print(_NEXT.format(folder=_short(SCENARIO.folder)), markup=False, highlight=False, soft_wrap=True)
    if stopping.asked:
        raise typer.Exit(stopping.code)


def evening(size: int, folder: Path) -> Data:
    """So many lines about trips of an evening, cleaned and written to a folder.

    More are made than are taken: the last ones ended when hardly any others were under way.
    """
    made = trips(size + size // 7, max(1, size // TAXI), HOURS, 20, SEED, first=FIRST)
    return SCENARIO.read(islice(made, size), folder)


def _run(data: Data, java: Java, stopping: Stopping, speed: float, told: Console) -> Seen:
    from cqels.pipeline.sink.reject_files import Rejects
    from cqels.spark.driver.app import App
    from cqels.spark.driver.metrics import Metrics

    app = App(java.start, instances=2, speed=speed)
    for stream in data.streams:
        app.files(stream)
    for asked in SCENARIO.queries:
        app.add(SCENARIO.query(asked))
    metrics = Metrics()
    seen = Seen(metrics, Lists(data.facts["trips"]))
    with screen(seen.lists, metrics, told) as say:
        say("starting Spark …")
        java.start()
        stopping.listen()
        say(f"loading the engines; then time runs {speed:g} times faster …")
        seen.began = monotonic()
        if not stopping.asked:
            attend(app.run(seen, rejects=Rejects(lambda rejected: None), metrics=metrics), stopping)
    return seen


@dataclass
class Seen:
    """A sink that keeps the last list of each query, and counts."""

    place: ClassVar[str] = "the terminal"
    promise: ClassVar[str] = "the lists are those of now"
    metrics: Metrics
    lists: Lists
    began: float = 0.0
    ended: dict[int, tuple[float, int]] = field(default_factory=dict)
    """When each micro-batch was done, and with it how many trips."""
    took: dict[int, float] = field(default_factory=dict)
    """The seconds of each, from when it begins to read."""
    first: int | None = None
    """The time of the first list."""

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        self.metrics.watchers.insert(0, self._measured)

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        for name, each in sent.items():
            for _, rows in groupby(each.results(), attrgetter("tick")):
                found = list(rows)
                self.first = found[0].nanoseconds if self.first is None else self.first
                values = ([lexical(value) for value in row.values] for row in found if not row.empty)
                match name:
                    case "routes":
                        self.lists.show_routes([Route.of(each) for each in values])
                    case _:
                        self.lists.show_profit([Area.of(each) for each in values], found[0].nanoseconds)

    def close(self) -> None:
        self.metrics.watchers.remove(self._measured)

    def _measured(self, metrics: Metrics) -> None:
        totals = metrics.totals
        if totals.batch >= 0:
            self.ended.setdefault(totals.batch, (monotonic(), totals.elements))
            self.took[totals.batch] = totals.batch_seconds


# ---------------------------------------------------------------- at its end


def _summary(seen: Seen, facts: Mapping[str, int], speed: float, place: Path | None) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _facts(seen, facts, speed, place):
        table.add_row(name, Text(text))
    return table


def _facts(seen: Seen, facts: Mapping[str, int], speed: float, place: Path | None) -> Iterator[tuple[str, str]]:
    totals = seen.metrics.totals
    yield "trips", f"{totals.elements:,}{_rate(seen)}; time ran {speed:g} times faster"
    faults = {name: count for name, count in facts.items() if name not in ("trips", "skipped", "triples")}
    reasons = ", ".join(f"{name} {count:,}" for name, count in faults.items())
    yield "skipped", f"{facts['skipped']:,} lines that cannot be trips" + (f": {reasons}" if reasons else "")
    yield "rejected", f"{totals.rejected:,} malformed, {totals.late:,} late"
    yield "delay", _delay([seconds for batch, seconds in seen.took.items() if batch > 0])
    for asked in SCENARIO.queries:
        counts = totals.queries.get(asked.name)
        rows = counts.sent if counts else 0
        yield f"{asked.name}.rq", f"{seen.lists.counts[asked.name]:,} lists, {rows:,} results: {asked.title}"
    yield "map", "none: no list was seen" if place is None else _short(place)


def _rate(seen: Seen) -> str:
    """Without the first micro-batch, which has hardly a trip, and waits for all that is loaded."""
    if len(seen.ended) < 2:
        return ""
    (first, few), *_, (last, all) = seen.ended.values()
    seconds = last - first
    rate = (all - few) / seconds
    return f" in {seconds:.0f} s, {rate:,.0f} a second, after {first - seen.began:.0f} s of loading for the first"


def _delay(took: list[float]) -> str:
    """Of micro-batches after the first."""
    if not took:
        return "not measured: there was no micro-batch but the first"
    return (
        f"median {median(took):.2g} s, longest {max(took):.2g} s of {len(took):,} micro-batches, from reading trips to "
        "having their lists; a trip also waits for the one before its own"
    )


def _picture(seen: Seen, began: Mapping[Cell, int]) -> Picture:
    end = seen.metrics.totals.time or 0
    first, last = format_time(seen.first or 0), format_time(end)
    title = f"Taxis of New York, {first[:10]}, {first[11:16]} to {last[11:16]} (generated trips)"
    return Picture(title, began, seen.lists.minutes(end), seen.lists.profit, seen.lists.routes)


def _check_place(path: Path) -> None:
    """Refuse before anything is done."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise CqelsError(f"the map cannot be written to {path}", hint="name a file in a folder: --map city.svg")


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CqelsError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


def _short(path: Path) -> str:
    """A path as one would write it here."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
