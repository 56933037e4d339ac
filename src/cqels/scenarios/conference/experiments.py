"""The experiments of ISWC 2011, §5.1, with the engine in this process, and with re-evaluation beside it.

Times are of the processor, from lines of the stream to results that are taken. Before the clock starts data are
loaded, queries registered and windows filled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import process_time
from typing import NamedTuple

import pyoxigraph

from cqels.engine.engine import Engine
from cqels.engine.query_handle import StandingQuery
from cqels.ingest import Element
from cqels.ingest.timed_lines import parse_timed_line
from cqels.plan.algebra import Query
from cqels.scenarios.conference import SCENARIO
from cqels.scenarios.conference.people import name
from cqels.scenarios.conference.readings import STREAM
from cqels.scenarios.conference.reevaluation import Reevaluation, bulk_loaded
from cqels.scenarios.scenario import Asked, Data, Progress
from cqels.store.dataset import Store

SIZES = (10_000, 100_000, 1_000_000, 2_000_000, 10_000_000)
"""Triples of the library in the second experiment."""
IN_MEMORY = 1_000_000
"""Larger libraries are kept in a directory."""
MANY = ("q1", "q3", "q4")
"""The templates of the third experiment."""
MOST = 1024
"""Queries at once in the third experiment."""
_PUBLISHED_MANY = {MOST: 1000.0}
"""All that the text says of figure 5: with 1,000 queries it is "still around one second"."""
_PUBLISHED_AT = 100_000
"""Triples of the library when table 2 was measured."""


@dataclass(frozen=True, slots=True)
class Length:
    """How much is measured, at the end of the stream, when people have spread over the building."""

    events: int = 20_000
    block: int = 1_000
    """Elements that are pushed at once."""
    warm: int = 1_000
    """Elements before the clock starts: more than the windows hold."""
    sample: int = 10
    """Elements that the baseline is timed with; with 0 it is left out."""
    patience: float = 5.0
    """Seconds after which the baseline of a query is timed with no more elements, though there are some left."""
    authors: int = 10
    """People that a template is asked about, one after the other."""


USUAL = Length()
SHORT = Length(events=5_000, sample=1)
"""For many queries."""


def lengths(events: int) -> tuple[Length, Length]:
    """How much is measured of a stream of so many elements: of one query, and of many."""
    if events >= USUAL.warm + USUAL.events:
        return USUAL, SHORT
    few = Length(events=events // 4, block=events // 8, warm=events // 2, sample=2, authors=1)
    return few, few


class Figure(NamedTuple):
    """A point of a table or a plot, ours beside the baseline's and the published one."""

    experiment: str
    query: str
    x: int
    """Static triples, or queries in the third experiment."""
    ours: float
    baseline: float | None
    published: float | None
    unit: str


def _silent(done: int, whole: int) -> None:
    """Tells nobody."""


def single(data: Data, length: Length = USUAL, *, progress: Progress = _silent) -> list[Figure]:
    """Experiment 1: each template about several authors, one query at a time."""
    return _averages("single", SCENARIO.queries, data, length, progress=progress)


def varying(
    folder: Path,
    sizes: Sequence[int] = SIZES,
    length: Length = USUAL,
    *,
    seed: int = 1,
    progress: Progress = _silent,
) -> list[Figure]:
    """Experiment 2: the same over libraries of several sizes, which are made in a folder. Q2 does not read them."""
    found: list[Figure] = []
    asked = [each for each in SCENARIO.queries if each.constants]
    for number, triples in enumerate(sizes):
        here = folder / str(triples)
        here.mkdir(parents=True)
        events = 2 * (length.warm + length.events)
        numbers = {**SCENARIO.numbers("medium"), "triples": triples, "events": events}
        data = SCENARIO.make(here, numbers, seed, _silent)
        place = here / "store" if triples > IN_MEMORY else None
        found += _averages("varying", asked, data, length, place, _part(progress, number, len(sizes)))
    return found


def _part(progress: Progress, number: int, parts: int) -> Progress:
    """Tells of one of several equal parts."""
    return lambda done, whole: progress(number * whole + done, parts * whole)


def many(
    data: Data, exponents: Sequence[int] = range(11), length: Length = SHORT, *, progress: Progress = _silent
) -> list[Figure]:
    """Experiment 3: 2^M queries of a template at once, each about another author; for all of them, and for each."""
    store = data.store()
    whole = bulk_loaded(data) if length.sample else None
    found: list[Figure] = []
    for asked in SCENARIO.asked(MANY):
        for count in (2**exponent for exponent in exponents):
            progress(len(found) // 2, len(MANY) * len(exponents))
            queries = [_about(asked, number) for number in range(count)]
            ours = _engine_time(store, queries, data, length)
            again = None if whole is None else _baseline_time(whole, queries, data, length)
            each = None if again is None else again / count
            found.append(Figure("many", asked.name, count, ours, again, _PUBLISHED_MANY.get(count), "ms"))
            found.append(Figure("many, each", asked.name, count, ours / count, each, None, "ms"))
    return found


def _averages(
    experiment: str,
    asked: Sequence[Asked],
    data: Data,
    length: Length,
    folder: Path | None = None,
    progress: Progress = _silent,
) -> list[Figure]:
    """The times of templates, each with several authors; static data are kept in a folder, or else in memory."""
    triples = data.facts["library triples"]
    instances = [_instances(each, data, length.authors) for each in asked]
    steps = 2 * len(asked)
    store = data.store(folder)
    ours: list[float] = []
    for queries in instances:
        progress(len(ours), steps)
        ours.append(mean(_engine_time(store, [query], data, length) for query in queries))
    del store  # and a directory is free for the other
    again: list[float | None] = []
    whole = None if not length.sample else bulk_loaded(data) if folder is None else pyoxigraph.Store(folder)
    for queries in instances:
        progress(len(asked) + len(again), steps)
        times = (_baseline_time(whole, [query], data, length) for query in queries) if whole is not None else None
        again.append(None if times is None else mean(times))
    known = triples == _PUBLISHED_AT
    return [
        Figure(experiment, each.name, triples, time, other, each.published["ms"] if known else None, "ms")
        for each, time, other in zip(asked, ours, again, strict=True)
    ]


def _instances(asked: Asked, data: Data, count: int) -> list[Query]:
    """A template about some of the people who are there; one that names nobody just once."""
    if not asked.constants:
        return [SCENARIO.query(asked)]
    people = data.facts["people"]
    return [_about(asked, number) for number in range(0, people, people // count)]


def _about(asked: Asked, number: int) -> Query:
    """A query about a person. The low numbers are those who come to the conference."""
    return SCENARIO.query(asked, name=f"{asked.name}-{number}", Name=f'"{name(number)}"')


def _engine_time(store: Store, queries: Sequence[Query], data: Data, length: Length) -> float:
    """Milliseconds that the engine takes for an element."""
    lines = _last_lines(data, length.warm + length.events)
    with Engine(store=store) as engine:
        standing = [engine.register(query) for query in queries]
        _push(engine, standing, lines[: length.warm], length.block)
        return _push(engine, standing, lines[length.warm :], length.block)


def _push(engine: Engine, standing: Sequence[StandingQuery], lines: list[bytes], block: int) -> float:
    """Push lines and take what they bring: milliseconds for each."""
    blocks = [b"".join(lines[start : start + block]) for start in range(0, len(lines), block)]
    began = process_time()
    for each in blocks:
        engine.push(STREAM, each)
        for query in standing:
            query.take()
    return (process_time() - began) * 1000 / len(lines)


def _baseline_time(store: pyoxigraph.Store, queries: Sequence[Query], data: Data, length: Length) -> float:
    """Milliseconds that re-evaluation takes for an element."""
    elements = [_element(line) for line in _last_lines(data, length.warm + length.sample)]
    again = Reevaluation(store, queries)
    for each in elements[: length.warm - 1]:
        again.arrive(each)
    again.push(elements[length.warm - 1])
    spent, count = 0.0, 0
    began = process_time()
    for each in elements[length.warm :]:
        again.push(each)
        spent, count = process_time() - began, count + 1
        if spent > length.patience:
            break
    again.close()
    return spent * 1000 / count


def _last_lines(data: Data, count: int) -> list[bytes]:
    with Path(data.declarations[0].path).open("rb") as file:
        return list(deque(file, count))


def _element(line: bytes) -> Element:
    found = parse_timed_line(line.decode(), "ms", "")
    assert found is not None
    return Element(STREAM, *found)
