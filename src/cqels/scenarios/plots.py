"""Plots of what was measured, ours beside what was published; without matplotlib there are none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cqels.scenarios.report import Outcome, Row

_COLOURS = {"cqels": "C0", "published": "0.6", "anew": "C1"}
_WIDE = 0.8
"""Of the bars of a query, of which the next is 1 away."""


def draw(outcome: Outcome, path: Path) -> bool:
    """Draw a run into a file; False without matplotlib (`pip install 'cqels[bench]'`)."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    x = {"varying": "static triples", "many": "queries"}.get(outcome.experiment)
    wide = 7.0 if x else max(6.0, 0.6 * len(outcome.measured))
    canvas, axes = pyplot.subplots(figsize=(wide, 4))
    if x is None:
        _bars(axes, outcome.measured)
    else:
        _curves(axes, outcome.measured, x)
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    canvas.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(canvas)
    return True


def _bars(axes: Any, rows: Sequence[Row]) -> None:
    """Speeds of each query: ours, published, evaluated anew."""
    unit = (
        "triples/s" if any(each.get("triples/s") and each.get("published triples/s") for each in rows) else "events/s"
    )
    kinds = {
        "cqels": [_ours(each, unit) for each in rows],
        "published": [_published(each, unit) for each in rows],
        "anew": [_anew(each, unit) for each in rows],
    }
    there = {name: values for name, values in kinds.items() if any(values)}
    width = _WIDE / len(there)
    for number, (name, values) in enumerate(there.items()):
        shift = (number - (len(there) - 1) / 2) * width
        known = [(place + shift, value) for place, value in enumerate(values) if value]
        axes.bar(*zip(*known, strict=True), width, label=name, color=_COLOURS[name])
    labels = [f"{each['query']} {each.get('constants', '')}".replace(" + ", "\n").strip() for each in rows]
    axes.set_xticks(range(len(rows)), labels, rotation=45 if len(rows) > 8 else 0)
    axes.set(ylabel=unit, yscale="log")


def _ours(row: Row, unit: str) -> float:
    if "elements/s" not in row:
        return 1000 / float(row["ms"])
    return float(row["triples/s" if unit == "triples/s" else "elements/s"] or 0)


def _published(row: Row, unit: str) -> float:
    """What was published, as a speed; 0 if nothing was."""
    if unit == "triples/s":
        return float(row.get("published triples/s") or 0)
    if seconds := row.get("published s"):
        return float(row["elements"] / seconds)
    return 1000 / float(row["published ms"]) if row.get("published ms") else 0.0


def _anew(row: Row, unit: str) -> float:
    if row.get("anew ms"):
        return 1000 / float(row["anew ms"])
    if not row.get("anew elements/s"):
        return 0.0
    each = (row["triples"] or 0) / row["elements"] if unit == "triples/s" else 1
    return float(row["anew elements/s"] * each)


def _curves(axes: Any, rows: Sequence[Row], x: str) -> None:
    """Times over what grows: ours solid, evaluated anew dashed, published as points; not what follows from these."""
    for number, query in enumerate(dict.fromkeys(each["query"] for each in rows if ", each" not in each["query"])):
        for name, style, more in (("ms", "o-", ""), ("anew ms", "x--", ", anew"), ("published ms", "v", ", published")):
            points = [(each[x], each[name]) for each in rows if each["query"] == query and each[name] != ""]
            if points:
                axes.plot(*zip(*points, strict=True), style, color=f"C{number}", label=query + more)
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel="ms for an element")
