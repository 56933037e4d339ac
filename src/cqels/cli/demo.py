"""What `cqels demo` does: a stream of sensors through four queries on Spark, live in the terminal, to its end."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cqels.cli.on_spark import Java, attend, check_installed, cores
from cqels.cli.readings import LATENESS, readings
from cqels.cli.stopping import Stopping
from cqels.io import Result
from cqels.model.notation import Notation
from cqels.model.time import format_time
from cqels.plan.algebra import Query

if TYPE_CHECKING:
    from cqels.spark.metrics import Metrics
    from cqels.spark.sent import Sent

QUERIES = ("hot", "mean", "alerts", "evacuate")
STREAM = "http://ex.org/readings"
SHOWN = 4
"""Answers of a query that are on the screen."""
_FAST_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Java's quick compiler alone: half the work in the first half minute, which is all there is."""
_PLAIN = 2.0
"""Seconds between two lines where there is no terminal."""
_NEXT = """\
Try next:
  cqels explain {folder}/hot.rq
  cqels run --help
The queries are in {folder}"""


def demonstrate(size: int, speed: float) -> None:
    """Generate so many readings, replay them so many times faster than they were, and show what the queries say."""
    check_installed()
    told = Console(stderr=False)
    with ExitStack() as stack:
        place = stack.enter_context(as_file(files("cqels") / "demo"))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cqels-demo-")))
        with (folder / "readings.nt").open("w") as file:
            file.writelines(readings(size))
        java = stack.enter_context(Java(f"local[{cores(None)}]", 2, settings=_FAST_START))
        stopping = stack.enter_context(Stopping(java.kill))
        seen = _run(place, folder, java, stopping, speed, told)
    _conclude(seen, told)
    told.print(_NEXT.format(folder=_short(place)), markup=False, highlight=False)
    if stopping.asked:
        raise typer.Exit(stopping.code)


def _run(place: Path, folder: Path, java: Java, stopping: Stopping, speed: float, told: Console) -> Seen:
    from cqels.spark.app import App
    from cqels.spark.metrics import Metrics
    from cqels.spark.rejects import Rejects

    app = App(java.start, instances=2, speed=speed)
    app.files(f"<{STREAM}>={folder}/readings.nt?lateness={LATENESS}ms")
    app.load(place / "rooms.ttl")
    for name in QUERIES:
        app.add(place / f"{name}.rq")
    metrics = Metrics()
    seen = Seen(metrics, names={query.name or "": name for query, name in zip(app.queries, QUERIES, strict=True)})
    with _screen(seen, told, f"starting Spark, then {speed:g} times the pace of the data …"):
        java.start()
        stopping.listen()
        seen.began = monotonic()
        if not stopping.asked:
            attend(app.run(seen, rejects=Rejects(lambda rejected: None), metrics=metrics), stopping)
        seen.seconds = monotonic() - seen.began
    return seen


@dataclass
class Seen:
    """A sink that keeps the last answers of each query, and counts."""

    metrics: Metrics
    names: Mapping[str, str]
    began: float = 0.0
    seconds: float = 0.0
    batches: dict[int, float] = field(default_factory=dict)
    """How long each took."""
    latest: dict[str, deque[Result]] = field(default_factory=dict)
    watch: Callable[[], None] = lambda: None
    _queries: dict[str, Query] = field(default_factory=dict)

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        self._queries = {query.name or "": query for query in queries}
        self.latest = {name: deque(maxlen=SHOWN) for name in self._queries}
        self.metrics.watchers.append(self._measured)

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        for name, each in sent.items():
            self.latest[name].extend(each.results())

    def close(self) -> None:
        self.metrics.watchers.remove(self._measured)

    def _measured(self, metrics: Metrics) -> None:
        self.batches[metrics.totals.batch] = metrics.totals.batch_seconds
        self.watch()

    def lines(self, name: str) -> Iterator[str]:
        """The last answers of a query, for people."""
        notation = Notation(dict(self._queries[name].prefixes))
        for result in self.latest[name]:
            if result.triples:
                said = " ".join(notation.triple(triple) for triple in result.triples)
            else:
                pairs = zip(self._queries[name].variables, result.values, strict=True)
                said = "  ".join(f"{variable} {notation.term(value)}" for variable, value in pairs)
            yield f"{format_time(result.time)[11:19]}  {said}"


# ---------------------------------------------------------------- while it runs


@contextmanager
def _screen(seen: Seen, told: Console, begin: str) -> Iterator[None]:
    """The latest answers of all queries, on a terminal in place; elsewhere a line now and then."""
    if not told.is_terminal:
        told.print(begin, markup=False, highlight=False)
        seen.watch = _plain(seen, told)
        yield
        return
    with Live(Text(begin), console=told, refresh_per_second=8) as live:
        seen.watch = lambda: live.update(_picture(seen))
        yield
        seen.watch = lambda: None
        live.update(Text(""))


def _picture(seen: Seen) -> Group:
    from cqels.spark.metrics import status_line

    table = Table(box=None, padding=(0, 2, 0, 0), expand=True)
    table.add_column("query", style="bold cyan", no_wrap=True)
    table.add_column("results", justify="right")
    table.add_column("the latest", ratio=1, no_wrap=True)
    for name, shown in seen.names.items():
        counts = seen.metrics.totals.queries.get(name)
        answers = [*seen.lines(name), *[""] * SHOWN][:SHOWN]
        table.add_row(shown, f"{counts.sent if counts else 0:,}", Text("\n".join(answers)))
    return Group(table, Text(status_line(seen.metrics), style="dim", no_wrap=True, overflow="ellipsis"))


def _plain(seen: Seen, told: Console) -> Callable[[], None]:
    from cqels.spark.metrics import status_line

    last = -_PLAIN

    def show() -> None:
        nonlocal last
        if monotonic() < last + _PLAIN:
            return
        last = monotonic()
        told.print(status_line(seen.metrics), markup=False, highlight=False, soft_wrap=True)
        for name, shown in seen.names.items():
            for answer in islice(reversed([*seen.lines(name)]), 1):
                told.print(f"  {shown:<9} {answer}", markup=False, highlight=False, soft_wrap=True)

    return show


# ---------------------------------------------------------------- at its end


def _conclude(seen: Seen, told: Console) -> None:
    totals = seen.metrics.totals
    rate = totals.elements / seen.seconds if seen.seconds else 0.0
    took = list(seen.batches.values()) or [0.0]
    rows: dict[str, Any] = {
        "readings": f"{totals.elements:,} in {seen.seconds:.0f} s, {rate:,.0f} a second",
        "late": f"{totals.late:,}, more than {LATENESS // 1000} s behind: left out of the answers, and counted",
        "rejected": f"{totals.rejected:,} malformed lines: the same",
        "micro-batches": f"{len(seen.batches):,}, half of them in {median(took):.2g} s, the longest {max(took):.2g} s",
    }
    for name, shown in seen.names.items():
        counts = totals.queries.get(name)
        rows[f"{shown}.rq"] = f"{counts.sent if counts else 0:,} results"
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    for name, text in rows.items():
        table.add_row(name, Text(text))
    told.print(table)


def _short(path: Path) -> str:
    """A path as one would write it here."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
