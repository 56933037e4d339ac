"""What `cqels bench` does: make the data of a scenario, run its queries, and write what was measured."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.plan.algebra import Query
from cqels.scenarios import NAMES, Data, Scenario, scenario
from cqels.scenarios.pages import MARKS, between, page, together
from cqels.scenarios.plots import draw
from cqels.scenarios.report import Outcome, Row, figure_row, machine, outcome_of, row

if TYPE_CHECKING:
    import pyarrow

    from cqels.scenarios.conference.experiments import Figure
    from cqels.scenarios.measured import Measured, Take, Tell

_DATA, _PLOT = "data.json", "measured.png"
_SHOWN = (
    *("query", "constants", "static triples", "queries", "results", "seconds", "elements/s", "triples/s"),
    *("published triples/s", "published s", "ms", "anew ms", "published ms", "× anew", "× published"),
)
"""What a terminal has room for; the rest is in the files."""
Run = Callable[[Sequence[Query], "Tell", "Take"], "Measured"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `cqels bench run` is asked for."""

    scenario: str
    engine: str = "embedded"
    size: str = "small"
    queries: Sequence[str] = ()
    together: bool = False
    constants: Sequence[str] = ()
    baseline: float | None = None
    experiment: str | None = None
    most: int | None = None
    answers: bool = True
    seed: int = 1

    @property
    def command(self) -> str:
        """The command that asks for this, but for its folders."""
        words = ["cqels", "bench", "run", self.scenario]
        words += ["--experiment", self.experiment] if self.experiment else []
        words += ["--engine", self.engine] if self.engine != "embedded" else []
        words += ["--size", self.size]
        words += ["--most", str(self.most)] if self.most is not None else []
        words += [word for name in self.queries for word in ("--query", name)]
        words += ["--together"] if self.together else []
        words += [word for each in self.constants for word in ("--constant", each)]
        words += ["--baseline", f"{self.baseline:g}"] if self.baseline else []
        words += ["--no-answers"] if not self.answers and self.engine == "embedded" and not self.experiment else []
        words += ["--seed", str(self.seed)] if self.seed != 1 else []
        return shlex.join(words)


def listed() -> Table:
    """All scenarios."""
    table = Table("scenario", "what", "sizes", "queries", title_justify="left")
    for name in NAMES:
        each = scenario(name)
        table.add_row(name, each.title, ", ".join(each.sizes), ", ".join(asked.name for asked in each.queries))
    return table


def execute(wanted: Wanted, folder: Path, data_folder: Path | None, *, said: Console) -> None:
    """Run queries of a scenario one by one, or all together, or an experiment; write results and a report."""
    chosen = scenario(wanted.scenario)
    _check(wanted, chosen)
    folder.mkdir(parents=True, exist_ok=True)
    place = data_folder or folder / "data"
    with _progress(said) as progress:
        if wanted.experiment:
            data, rows = _experiment(wanted, chosen, place, progress)
        else:
            data, rows = _queries(wanted, chosen, folder, place, progress)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    outcome = Outcome(chosen.name, wanted.size, wanted.command, today, machine(), rows, data, wanted.experiment or "")
    outcome.write(folder)
    drawn = draw(outcome, folder / _PLOT)
    (folder / "report.md").write_text(page(outcome, _PLOT if drawn else None), encoding="utf-8")
    said.print(_shown(chosen, outcome))
    said.print(f"wrote {folder}/report.md, measured.csv and measured.json", highlight=False, soft_wrap=True)


def write_report(folders: Sequence[Path], into: Path, *, said: Console) -> None:
    """Put what runs have found into a page, between its marks, instead of what was there."""
    outcomes = [outcome_of(each) for each in folders]
    try:
        text = into.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CqelsError(f"there is no page {into}", hint=f"make one with {MARKS[0]} and {MARKS[1]}") from None
    into.write_text(between(text, MARKS, together(outcomes)), encoding="utf-8")
    said.print(f"wrote {into}", highlight=False, soft_wrap=True)


# ---------------------------------------------------------------- what is asked for


def _check(wanted: Wanted, chosen: Scenario) -> None:
    """Refuse what does not go together, and what is not installed."""
    optional("pyarrow", "arrow")  # which answers are taken with
    if wanted.engine == "spark":
        from cqels.cli.run_spark import check_installed

        check_installed()
    if wanted.experiment is None:
        if wanted.most is not None:
            raise CqelsError("--most is for an experiment", hint="name it with --experiment")
        return
    if wanted.experiment not in chosen.experiments:
        known = ", ".join(chosen.experiments)
        hint = f"its experiments are {known}" if known else "conference has some"
        raise CqelsError(f"{chosen.name} has no experiment '{wanted.experiment}'", hint=hint)
    if wanted.engine != "embedded":
        raise CqelsError("an experiment runs in this process", hint="leave out --engine")
    if wanted.queries or wanted.together or wanted.constants or wanted.baseline is not None:
        raise CqelsError(
            "an experiment has queries, constants and a baseline of its own",
            hint="leave out --query, --together, --constant and --baseline",
        )


def _constants(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise CqelsError(f"--constant {text}: this is not a constant", hint="write --constant window=60m")
        found[name] = value
    return found


# ---------------------------------------------------------------- runs


def made(chosen: Scenario, size: str, seed: int, folder: Path, progress: Progress) -> Data:
    """The data of a size, made now or by an earlier run."""
    numbers = chosen.numbers(size)
    place = folder / f"{chosen.name}-{size}-{seed}"
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


def _queries(
    wanted: Wanted, chosen: Scenario, folder: Path, place: Path, progress: Progress
) -> tuple[Mapping[str, int], list[Row]]:
    """Queries one by one or together, each with its baseline if that is asked for: the data's facts, and rows."""
    from cqels.scenarios.measured import reference

    asked = chosen.asked(wanted.queries)
    constants = chosen.checked(_constants(wanted.constants), asked)
    rows: list[Row] = []
    with ExitStack() as stack:
        data = made(chosen, wanted.size, wanted.seed, place, progress)
        run = _runner(wanted.engine, data, stack)
        groups = [asked] if wanted.together else [[each] for each in asked]
        task = progress.add_task("", total=len(groups))
        for group in groups:
            title = ", ".join(each.name for each in group)
            queries = [chosen.query(each, **constants) for each in group]
            with _Answers(folder / "answers" if wanted.answers else None) as answers:
                found = run(queries, _teller(progress, task, title), answers.take)
            anew = None
            if wanted.baseline:
                anew = reference(queries, data, _teller(progress, task, f"{title} anew"), seconds=wanted.baseline)
            own = {name: value for name, value in constants.items() if any(name in each.constants for each in group)}
            rows.append(row(chosen, found, size=wanted.size, constants=own, anew=anew))
            progress.advance(task)
    return data.facts, rows


def _runner(engine: str, data: Data, stack: ExitStack) -> Run:
    from cqels.scenarios import measured

    if engine == "embedded":
        return lambda queries, tell, take: measured.embedded(queries, data, tell, take)
    if engine == "reference":
        return lambda queries, tell, take: measured.reference(queries, data, tell)
    from cqels.cli.run_spark import Java, check_installed, cores

    check_installed()
    java = stack.enter_context(Java("local[*]", cores(None)))
    return lambda queries, tell, take: measured.on_spark(queries, data, java.start(), tell)


def _experiment(
    wanted: Wanted, chosen: Scenario, place: Path, progress: Progress
) -> tuple[Mapping[str, int], list[Row]]:
    """One of the experiments of the conference: the data's facts, and rows."""
    from cqels.scenarios.conference import experiments

    length, shorter = experiments.lengths(chosen.numbers(wanted.size)["events"])
    task = progress.add_task(wanted.experiment or "", total=None)

    def tell(done: int, whole: int) -> None:
        progress.update(task, completed=done, total=whole)

    def rows(figures: Sequence[Figure], x: str) -> list[Row]:
        return [figure_row(each, x) for each in figures]

    if wanted.experiment == "varying":
        sizes = [each for each in experiments.SIZES if each <= (wanted.most or max(experiments.SIZES))]
        if not sizes:
            raise CqelsError(
                f"--most {wanted.most} is less than the smallest data", hint=f"that is {min(experiments.SIZES)} triples"
            )
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place) as folder:
            found = experiments.varying(Path(folder), sizes, length, seed=wanted.seed, progress=tell)
        return {}, rows(found, "static triples")
    data = made(chosen, wanted.size, wanted.seed, place, progress)
    if wanted.experiment == "many":
        exponents = range((wanted.most or experiments.MOST).bit_length())
        return data.facts, rows(experiments.many(data, exponents, shorter, progress=tell), "queries")
    return data.facts, rows(experiments.single(data, length, progress=tell), "static triples")


def _teller(progress: Progress, task: TaskID, title: str) -> Callable[[int], None]:
    progress.update(task, description=title)
    return lambda done: progress.update(task, description=f"{title}: {done:,} elements")


@contextmanager
def _progress(said: Console) -> Iterator[Progress]:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    # drawn rarely: what it takes is measured too
    with Progress(*columns, TimeElapsedColumn(), console=said, transient=True, refresh_per_second=1) as progress:
        yield progress


# ---------------------------------------------------------------- what is written


class _Answers:
    """The answers of queries as CSV files in a folder, their terms as N-Triples has them; without a folder nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def __enter__(self) -> _Answers:
        return self

    def take(self, name: str, rows: pyarrow.RecordBatch) -> None:
        if self._folder is None:
            return
        from pyarrow.csv import CSVWriter

        if name not in self._writers:
            self._folder.mkdir(exist_ok=True)
            self._writers[name] = CSVWriter(self._folder / f"{name}.csv", rows.schema)
        self._writers[name].write_batch(rows)

    def __exit__(self, *error: object) -> None:
        for each in self._writers.values():
            each.close()


def _shown(chosen: Scenario, outcome: Outcome) -> Table:
    """The rows for a terminal, without what is only in the files and without columns in which nothing is."""
    table = Table(title=f"{chosen.title}, {outcome.experiment or outcome.size}", title_justify="left")
    rows = outcome.measured
    names = [name for name in _SHOWN if any(each.get(name, "") != "" for each in rows)]
    if "elements/s" in names and "published ms" not in names:
        names.remove("ms")
    if "published triples/s" in names:
        names.remove("elements/s")
    for name in names:
        table.add_column(name, justify="left" if name == "query" else "right")
    for each in rows:
        table.add_row(*(str(each[name]) for name in names))
    return table
