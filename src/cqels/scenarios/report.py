"""What was measured, beside what was published: as rows, and as a page with a plot."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cqels.scenarios.measured import Measured
from cqels.scenarios.scenario import Asked, Data, Scenario

_PLOT = "rates.png"


def row(scenario: Scenario, asked: Sequence[Asked], measured: Measured) -> dict[str, Any]:
    """A run as named values: ours, and what was published of the same in the same unit."""
    published = published_of(asked, measured)
    ours = {
        "query": " + ".join(measured.queries),
        "engine": measured.engine,
        "elements": measured.elements,
        "triples": measured.triples or "",
        "results": measured.results,
        "rejected": measured.rejected,
        "seconds": round(measured.seconds, 3),
        "elements/s": round(measured.rate),
        "triples/s": round(measured.triples_rate) or "",
        "ms": round(measured.delay, 5),
    }
    return ours | {f"published {unit}": published.get(unit, "") for unit in units_of(asked)}


def units_of(asked: Sequence[Asked]) -> list[str]:
    """The units in which something was published of the queries."""
    return list(dict.fromkeys(unit for each in asked for unit in each.published))


def published_of(asked: Sequence[Asked], measured: Measured) -> Mapping[str, float]:
    """What was published of the query that ran; of several together nothing is known here."""
    known = {each.name: each.published for each in asked}
    return known[measured.queries[0]] if len(measured.queries) == 1 else {}


def machine() -> str:
    """The machine in a few words."""
    name = platform.processor() or platform.machine()
    known = Path("/proc/cpuinfo")
    if known.exists():
        lines = known.read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}"


def report(
    scenario: Scenario, asked: Sequence[Asked], found: Sequence[Measured], size: str, data: Data, folder: Path
) -> str:
    """A page in Markdown; a plot is drawn beside it if there is something to draw it with."""
    facts = ", ".join(f"{count:,} {name}" for name, count in data.facts.items())
    lines = [f"# {scenario.title}", "", f"Size {size}: {facts}.", "", f"{machine()}.", ""]
    lines += table([row(scenario, asked, each) for each in found])
    sources = dict.fromkeys(f"{each.name}: {each.source}" for each in asked if each.source)
    lines += ["", "What is published is from " + "; ".join(sources) + "."] if sources else []
    if draw(asked, found, folder / _PLOT):
        lines += ["", f"![rates]({_PLOT})"]
    lines += ["", *(f"- **{each.name}**: {each.title}" for each in asked), ""]
    return "\n".join(lines)


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as a table of Markdown.

    >>> table([{"query": "q1", "ms": 0.5}])
    ['| query | ms |', '|---|---|', '| q1 | 0.5 |']
    """
    cells = [[_cell(value) for value in each.values()] for each in rows]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *cells]
    return [f"|{'|'.join(line)}|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines]


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def draw(asked: Sequence[Asked], found: Sequence[Measured], path: Path) -> bool:
    """A plot of triples a second, ours and published; False without matplotlib (`pip install 'cqels[bench]'`)."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(figsize=(8, 4))
    names = ["\n".join(each.queries) for each in found]
    axes.bar(names, [each.triples_rate or each.rate for each in found], label="cqels")
    known = [(name, published_of(asked, each).get("triples/s")) for name, each in zip(names, found, strict=True)]
    if any(rate for _, rate in known):
        axes.plot([name for name, rate in known if rate], [rate for _, rate in known if rate], "kv", label="published")
        axes.set_yscale("log")
    axes.set(ylabel="triples/s")
    axes.legend(fontsize="small")
    canvas.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(canvas)
    return True
