"""A figure: measured points beside rivals and published values, shown as a table, a plot or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from measure import CONSOLE, machine, nanoseconds, per_second
from rich.table import Table

UNITS: dict[str, Callable[[float], str]] = {
    "events/s": per_second,
    "seconds": nanoseconds,
    "MB": lambda value: f"{value:.2f}",
    "bytes": lambda value: f"{value:,.0f}",
}
SMALLER_IS_BETTER = ("seconds", "MB", "bytes")


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: of a line of the plot, at an x; what rivals took in the same run, and what was published."""

    line: str
    x: float
    ours: float
    rivals: dict[str, float] = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """Points of one kind, and what the paper says about them."""

    name: str
    title: str
    lines: str
    """What the lines differ in: the heading of their column."""
    x: str
    unit: str
    points: tuple[Point, ...]
    note: str = ""

    def headings(self, part: str) -> list[str]:
        """The names that occur in a part of the points, in order."""
        return list(dict.fromkeys(name for point in self.points for name in getattr(point, part)))


def table_of(figure: Figure) -> Table:
    """Our figure, each rival and the ratio to the first of them, what was published."""
    rivals, published, more = (figure.headings(part) for part in ("rivals", "published", "more"))
    shown = UNITS[figure.unit]
    table = Table(title=figure.title, title_justify="left", caption=figure.note or None, caption_justify="left")
    for name in (figure.lines, figure.x):
        table.add_column(name, justify="right")
    for name in ("cqels", *rivals, *(["ratio"] if rivals else []), *published, *more):
        table.add_column(name, justify="right", style="bold" if name == "cqels" else None)
    for point in figure.points:
        cells = [point.line, f"{point.x:,.10g}", shown(point.ours)]
        cells += [shown(point.rivals[name]) if name in point.rivals else "" for name in rivals]
        cells += [_ratio(figure.unit, point, rivals[0])] if rivals else []
        cells += [shown(point.published[name]) if name in point.published else "" for name in published]
        cells += [point.more.get(name, "") for name in more]
        table.add_row(*cells)
    return table


def _ratio(unit: str, point: Point, rival: str) -> str:
    """How many times better ours is."""
    if rival not in point.rivals:
        return ""
    better = point.ours / point.rivals[rival]
    return f"{1 / better if unit in SMALLER_IS_BETTER else better:.1f}"


def write_json(figures: Iterable[Figure], path: Path) -> None:
    content: dict[str, Any] = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def plotter() -> Any:
    """matplotlib's pyplot, drawing into files."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("error: matplotlib is not installed\n  = hint: pip install 'cqels[bench]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def write_plots(figures: Iterable[Figure], folder: Path) -> None:
    """One PNG per figure: ours is solid, rivals dashed, what was published grey and dotted."""
    pyplot = plotter()
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        canvas, axes = pyplot.subplots(figsize=(8, 5))
        for number, line in enumerate(dict.fromkeys(point.line for point in figure.points)):
            _draw(axes, figure, line, f"C{number}")
        for name, marker in zip(figure.headings("published"), "v^sd", strict=False):
            known = sorted(
                {point.x: point.published[name] for point in figure.points if name in point.published}.items()
            )
            axes.plot(*zip(*known, strict=True), marker + ":", color="grey", label=name)
        places = [point.x for point in figure.points]
        scale = "log" if max(places) >= 20 * min(places) else "linear"
        axes.set(xscale=scale, yscale=scale, xlabel=figure.x, ylabel=figure.unit, title=figure.title)
        if scale == "linear":
            axes.set_ylim(bottom=0)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5), title=figure.lines)
        path = folder / f"{figure.name}.png"
        canvas.savefig(path, dpi=120, bbox_inches="tight")
        pyplot.close(canvas)
        CONSOLE.print(f"wrote {path}")


def _draw(axes: Any, figure: Figure, line: str, colour: str) -> None:
    points = [point for point in figure.points if point.line == line]
    axes.plot([p.x for p in points], [p.ours for p in points], "o-", color=colour, label=f"cqels, {line}")
    for name, style in zip(figure.headings("rivals"), ("x--", "+-."), strict=False):
        known = [(p.x, p.rivals[name]) for p in points if name in p.rivals]
        if known:
            axes.plot(*zip(*known, strict=True), style, color=colour, alpha=0.6, label=f"{name}, {line}")
