"""What was measured, beside what was published: as rows of named values, and as the files that a run leaves."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqels.model.errors import CqelsError
from cqels.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from cqels.scenarios.conference.experiments import Figure
    from cqels.scenarios.measured import Measured

FILE = "measured.json"
TIMES_ANEW, TIMES_PUBLISHED = "× anew", "× published"
"""How many times better ours is than evaluation anew, and than what was published."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run of `cqels bench run`: what was measured over what, when, on which machine, by which command."""

    scenario: str
    size: str
    command: str
    date: str
    machine: str
    measured: Sequence[Row]
    data: Mapping[str, int] = field(default_factory=dict)
    experiment: str = ""

    def write(self, folder: Path) -> None:
        """Leave it in a folder, as JSON that can be read again and as CSV."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        with (folder / "measured.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.measured[0])
            writer.writeheader()
            writer.writerows(self.measured)


def outcome_of(folder: Path) -> Outcome:
    """What an earlier run has left in a folder."""
    path = folder / FILE
    if not path.exists():
        raise CqelsError(f"{folder} has no {FILE}", hint="name folders that `cqels bench run` has written")
    try:
        return Outcome(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise CqelsError(f"{path} cannot be read", hint="run `cqels bench run` once more") from None


# ---------------------------------------------------------------- rows


def row(
    scenario: Scenario,
    measured: Measured,
    *,
    size: str,
    constants: Mapping[str, str] | None = None,
    anew: Measured | None = None,
) -> Row:
    """A run as named values: ours, evaluation anew beside it, and what was published of the same.

    All rows of a scenario have the same names.
    """
    known = published_of(scenario, measured.queries, size) if not constants else {}
    ours = {
        "query": " + ".join(measured.queries),
        "engine": measured.engine,
        "constants": " ".join(f"{name}={value}" for name, value in (constants or {}).items()),
        "elements": measured.elements,
        "triples": measured.triples or "",
        "results": measured.results,
        "rejected": measured.rejected,
        "seconds": round(measured.seconds, 3),
        "elements/s": round(measured.rate),
        "triples/s": round(measured.triples_rate) or "",
        "ms": rounded(measured.delay),
        "MB": rounded(measured.state / 1e6) if measured.state else "",
        "anew elements": anew.elements if anew else "",
        "anew elements/s": rounded(anew.rate) if anew else "",
        TIMES_ANEW: rounded(measured.rate / anew.rate) if anew and anew.rate else "",
    }
    published = {f"published {unit}": known.get(unit, "") for unit in units_of(scenario)}
    return ours | published | {TIMES_PUBLISHED: _times_published(ours, known)}


def figure_row(figure: Figure, x: str) -> Row:
    """A point of an experiment as named values; `x` is what the points differ in."""
    part = figure.experiment.partition(", ")[2]
    return {
        "query": f"{figure.query}, {part}" if part else figure.query,
        x: figure.x,
        "ms": rounded(figure.ours),
        "anew ms": "" if figure.baseline is None else rounded(figure.baseline),
        TIMES_ANEW: "" if figure.baseline is None else rounded(figure.baseline / figure.ours),
        "published ms": "" if figure.published is None else figure.published,
        TIMES_PUBLISHED: "" if figure.published is None else rounded(figure.published / figure.ours),
    }


def units_of(scenario: Scenario) -> list[str]:
    """The units in which something was published of the queries of a scenario."""
    return list(dict.fromkeys(unit for each in scenario.queries for unit in each.published))


def published_of(scenario: Scenario, queries: Sequence[str], size: str) -> Mapping[str, float]:
    """What was published of a query, or of all together; seconds of the whole only beside the size of the paper."""
    known = {each.name: each.published for each in scenario.queries}
    if len(queries) == 1:
        found = known[queries[0]]
    else:
        found = scenario.together if set(queries) == set(known) else {}
    whole = ("s", "anew s")
    return {unit: value for unit, value in found.items() if size == "paper" or unit not in whole}


def _times_published(ours: Row, known: Mapping[str, float]) -> float | str:
    if "triples/s" in known and ours["triples/s"]:
        return rounded(ours["triples/s"] / known["triples/s"])
    if "s" in known and ours["seconds"]:
        return rounded(known["s"] / ours["seconds"])
    if "ms" in known and ours["ms"]:
        return rounded(known["ms"] / ours["ms"])
    return ""


def rounded(value: float) -> float:
    """A number with three digits that count, or all before its point.

    >>> rounded(0.012345), rounded(12345.6)
    (0.0123, 12346)
    """
    return round(value) if abs(value) >= 100 else float(f"{value:.3g}")


def machine() -> str:
    """The machine in a few words."""
    name = platform.processor() or platform.machine()
    known = Path("/proc/cpuinfo")
    if known.exists():
        lines = known.read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}"
