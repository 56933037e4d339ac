"""What `cqels bench` does: make the data of a scenario, run its queries, and write what was measured."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from cqels.plan.algebra import Query
from cqels.scenarios import NAMES, Asked, Data, Scenario, scenario
from cqels.scenarios.report import report, row

if TYPE_CHECKING:
    from cqels.scenarios.measured import Measured

_DATA = "data.json"
_FOR_FILES = ("engine", "elements", "triples", "rejected")
"""What a terminal has no room for."""
Run = Callable[[Sequence[Query], Callable[[int], None]], tuple["Measured", dict[str, list[Any]]]]


def listed() -> Table:
    """All scenarios."""
    table = Table("scenario", "what", "sizes", "queries", title_justify="left")
    for name in NAMES:
        each = scenario(name)
        table.add_row(name, each.title, ", ".join(each.sizes), ", ".join(asked.name for asked in each.queries))
    return table


def execute(
    name: str, engine: str, size: str, names: Sequence[str], seed: int, folder: Path, *, together: bool, said: Console
) -> None:
    """Run queries of a scenario one by one, or all together, and write results and a report into a folder."""
    chosen = scenario(name)
    asked = chosen.asked(names)
    folder.mkdir(parents=True, exist_ok=True)
    with _progress(said) as progress, ExitStack() as stack:
        data = made(chosen, size, seed, folder, progress)
        run = _runner(engine, data, stack)
        groups = [asked] if together else [[each] for each in asked]
        task = progress.add_task("", total=len(groups))
        found: list[Measured] = []
        for group in groups:
            title = ", ".join(each.name for each in group)
            progress.update(task, description=title)
            queries = [chosen.query(each) for each in group]
            measured, sent = run(queries, _teller(progress, task, title))
            found.append(measured)
            _write_answers(folder / "answers", sent)
            progress.advance(task)
    _write(chosen, asked, found, size, data, folder)
    said.print(_shown(chosen, asked, found, size))
    said.print(f"wrote {folder}/report.md, measured.csv and measured.json", highlight=False, soft_wrap=True)


def made(chosen: Scenario, size: str, seed: int, folder: Path, progress: Progress) -> Data:
    """The data of a size, made now or by an earlier run."""
    numbers = chosen.numbers(size)
    place = folder / "data" / f"{chosen.name}-{size}-{seed}"
    known = place / _DATA
    if known.exists():
        kept = json.loads(known.read_text())
        static = tuple((Path(path), graph) for path, graph in kept["static"])
        return Data(tuple(kept["streams"]), static, kept["until"], kept["facts"])
    rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    task = progress.add_task(f"making {size} data", total=None)
    data = chosen.make(
        place.absolute(), numbers, seed, lambda done, all: progress.update(task, completed=done, total=all)
    )
    progress.remove_task(task)
    kept = {
        "streams": data.streams,
        "static": [[str(path), graph] for path, graph in data.static],
        "until": data.until,
        "facts": dict(data.facts),
    }
    known.write_text(json.dumps(kept, indent=1))
    return data


def _runner(engine: str, data: Data, stack: ExitStack) -> Run:
    from cqels.scenarios import measured

    if engine == "embedded":
        return lambda queries, tell: measured.embedded(queries, data, tell)
    if engine == "reference":
        return lambda queries, tell: (measured.reference(queries, data, tell), {})
    from cqels.cli.on_spark import Java, check_installed, cores

    check_installed()
    java = stack.enter_context(Java("local[*]", cores(None)))
    return lambda queries, tell: (measured.on_spark(queries, data, java.start(), tell), {})


def _teller(progress: Progress, task: TaskID, title: str) -> Callable[[int], None]:
    return lambda done: progress.update(task, description=f"{title}: {done:,} elements")


@contextmanager
def _progress(said: Console) -> Iterator[Progress]:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    with Progress(*columns, TimeElapsedColumn(), console=said, transient=True) as progress:
        yield progress


# ---------------------------------------------------------------- what is written


def _write(
    chosen: Scenario, asked: Sequence[Asked], found: Sequence[Measured], size: str, data: Data, folder: Path
) -> None:
    rows = [row(chosen, asked, each) for each in found]
    with (folder / "measured.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    content = {"scenario": chosen.name, "size": size, "data": dict(data.facts), "measured": rows}
    (folder / "measured.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "report.md").write_text(report(chosen, asked, found, size, data, folder))


def _write_answers(folder: Path, sent: dict[str, list[Any]]) -> None:
    """The answers of queries as CSV, their terms as N-Triples has them."""
    if not sent:
        return
    import pyarrow
    from pyarrow.csv import write_csv

    folder.mkdir(exist_ok=True)
    for name, parts in sent.items():
        if parts:
            write_csv(pyarrow.Table.from_batches(parts), folder / f"{name}.csv")


def _shown(chosen: Scenario, asked: Sequence[Asked], found: Sequence[Measured], size: str) -> Table:
    rows = [row(chosen, asked, each) for each in found]
    table = Table(title=f"{chosen.title}, {size}", title_justify="left")
    names = [name for name in rows[0] if name not in _FOR_FILES]
    for name in names:
        table.add_column(name, justify="left" if name == "query" else "right")
    for each in rows:
        table.add_row(*(str(each[name]) for name in names))
    return table
