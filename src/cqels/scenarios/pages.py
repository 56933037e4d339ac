"""What runs have found, as Markdown: the page of one run, and a part of a larger page for many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from cqels.model.errors import CqelsError
from cqels.scenarios import NAMES, scenario
from cqels.scenarios.report import Outcome, Row

MARKS = "<!-- scenarios: written by cqels bench report -->", "<!-- end of scenarios -->"
COMPARED = 100_000
"""Static triples that growth is counted from: those of the paper's other experiments."""
_AXES = {"varying": "static triples", "many": "queries"}
"""What the columns of an experiment's table are."""
_SOURCES = {
    "varying": 'ISWC 2011, table 2, at 100,000 triples; of others the text says "only marginally affected" (figure 4)',
    "many": 'ISWC 2011, §5.2: "still around one second" with 1,000 queries (figure 5)',
}
"""Where something was published of an experiment, if that is not where it was of its queries."""
_TIMES = "*×*: how many times better ours is"
_WORDS = {
    "seconds": "*seconds*: from the first byte to the last result, in processor time; on Spark by the wall clock",
    "elements/s": "*elements/s*: of the whole run; on Spark of its last four fifths",
    "ms": "*ms*: the time for an element, on average",
    "MB": "*MB*: the most that the engines held, windows, indexes, groups and terms; published is that of a process",
    "anew elements": "*anew*: the whole query evaluated at each element by the reference engine, over so many elements "
    "from the start of the streams, where windows are not yet full",
    "anew ms": "*anew* in an experiment: the whole query evaluated at each element by Oxigraph, windows being full",
    "published delay ms": "*delay*: from an element to its result, which is not the time for an element",
    "× anew": _TIMES,
    "× published": _TIMES,
}
"""What columns mean."""


def page(outcome: Outcome, plot: str | None = None) -> str:
    """The page of a run; `plot` is a picture beside it."""
    chosen = scenario(outcome.scenario)
    names = {name for each in outcome.measured for name in str(each["query"]).split(" + ")}
    titles = [f"- **{each.name}**: {each.title}" for each in chosen.queries if each.name in names]
    lines = [*section([outcome], "#"), *legend([outcome])]
    lines += [f"![what was measured]({plot})", ""] if plot else []
    return "\n".join([*lines, *titles, ""])


def together(outcomes: Sequence[Outcome], heading: str = "###") -> str:
    """A section for each scenario, in the order of `cqels bench list`; the runs of one in the order given."""
    lines = legend(outcomes)
    for name in NAMES:
        if chosen := [each for each in outcomes if each.scenario == name]:
            lines += section(chosen, heading)
    return "\n".join(lines).rstrip("\n")


def between(text: str, marks: tuple[str, str], content: str) -> str:
    """A page with other content between two marks.

    >>> between("a <1> old <2> b", ("<1>", "<2>"), "new")
    'a <1>\\nnew\\n<2> b'
    """
    before, first, rest = text.partition(marks[0])
    _, second, after = rest.partition(marks[1])
    if not first or not second:
        raise CqelsError("the page has no place for this", hint=f"put {marks[0]} and {marks[1]} there")
    return f"{before}{marks[0]}\n{content}\n{marks[1]}{after}"


# ---------------------------------------------------------------- the parts of a page


def section(outcomes: Sequence[Outcome], heading: str) -> list[str]:
    """The lines of one scenario: a table for all runs over the same data, one for each experiment."""
    chosen = scenario(outcomes[0].scenario)
    lines = [f"{heading} {chosen.title}", ""]
    groups: dict[tuple[Any, ...], list[Outcome]] = {}
    for each in outcomes:
        key = each.experiment, each.size, each.machine, each.date, *each.data.items()
        groups.setdefault(key, []).append(each)
    for group in groups.values():
        lines += _block(group)
    return lines


def legend(outcomes: Iterable[Outcome]) -> list[str]:
    """What the columns of their tables mean."""
    shown = {
        name
        for each in outcomes
        for name in _columns(each.measured)
        if each.experiment not in _AXES or name == "anew ms"  # of the axis there are only columns of milliseconds
    }
    words = dict.fromkeys(text for name, text in _WORDS.items() if name in shown)
    return [*(f"- {text}" for text in words), ""]


def _block(group: Sequence[Outcome]) -> Iterator[str]:
    """Runs over the same data, with a table for all of them."""
    first = group[0]
    facts = ", ".join(f"{count:,} {name}" for name, count in first.data.items())
    what = f"Experiment *{first.experiment}*" if first.experiment else f"Size {first.size}"
    yield from wrap(f"{what}{': ' + facts if facts else ''}. {first.machine}; {first.date}.", 120)
    yield from ("", "```console")
    yield from (f"$ {each.command}" for each in group)
    yield from ("```", "")
    rows = [row for each in group for row in each.measured]
    axis = _AXES.get(first.experiment)
    if axis is None:
        yield from table(rows)
    else:
        yield f"Milliseconds for an element, by {axis}:"
        yield ""
        yield from table(pivoted(rows, axis))
    yield ""
    if source := _SOURCES.get(first.experiment) or _source(first.scenario, rows):
        yield from (f"Published: {source}.", "")


def _source(name: str, rows: Sequence[Row]) -> str:
    """Where something was published of the queries that were run."""
    asked = {query for each in rows for query in str(each["query"]).split(" + ")}
    return "; ".join(
        dict.fromkeys(each.source for each in scenario(name).queries if each.source and each.name in asked)
    )


def pivoted(rows: Sequence[Row], axis: str) -> list[Row]:
    """A row for each query and one for its evaluation anew, a column for each place on the axis.

    >>> pivoted([{"query": "q1", "queries": 1, "ms": 0.5, "anew ms": ""}], "queries")
    [{'query': 'q1', '1': 0.5}]
    """
    places = list(dict.fromkeys(each[axis] for each in rows))
    base = COMPARED if COMPARED in places[:-1] else places[0]
    found = []
    for query in dict.fromkeys(each["query"] for each in rows):
        for name, title in (("ms", query), ("anew ms", f"{query}, anew"), ("published ms", f"{query}, published")):
            values = {each[axis]: each[name] for each in rows if each["query"] == query and each.get(name, "") != ""}
            if not values:
                continue
            line: Row = {"query": title, **{f"{place:,}": values.get(place, "") for place in places}}
            if axis == _AXES["varying"] and base != places[-1] and {base, places[-1]} <= values.keys():
                line[f"growth from {base:,}"] = f"{values[places[-1]] / values[base]:.2f}×"
            found.append(line)
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as a table of Markdown, without columns in which nothing is.

    >>> table([{"query": "q1", "ms": 0.5, "MB": ""}])
    ['| query | ms |', '|---|---|', '| q1 | 0.5 |']
    """
    names = _columns(rows)
    lines = [names, *([_cell(each.get(name, "")) for name in names] for each in rows)]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    return [drawn[0], "|" + "---|" * len(names), *drawn[1:]]


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns that say something, in order; that nothing was rejected goes without saying."""
    names = dict.fromkeys(name for each in rows for name in each)
    return [
        name
        for name in names
        if any(each.get(name, "") != "" and not (name == "rejected" and each[name] == 0) for each in rows)
    ]


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
