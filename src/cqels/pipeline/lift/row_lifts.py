"""How the rows of a source are lifted to elements: what users write (`cqels.lift`), and the function of row batches.

A row has its text in the column `value` (text or bytes) and may have more columns: `time`, the source's own timestamp;
`place`, the file or partition that the row comes from; `position`, its offset there.  These give rejected input its
place, blank nodes their scope, and the blocks of a stream their order: that of position and number within a place.
Where a source has no column `place`, it is the partition of the task.  Rows of Kafka are recognized by their columns:
`timestamp`, `topic` and `partition`, `offset`.  A lifting template may name what else a source knows of a row, in the
columns `key`, `topic` and `headers` (`cqels.pipeline.source.live_source.ROWS`).  The rows of a table (`columns`) have
columns of their own instead of `value`.

What comes out are arriving rows (`cqels.pipeline.lift.row_schemas`): blocks, and what was rejected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from typing import Literal as OneOf

import pyarrow
from pyoxigraph import NamedNode

from cqels.ingest.declarations import ElementKind
from cqels.ingest.lifting_template import Template, read_template
from cqels.model.errors import CqelsError
from cqels.model.time import unit_nanoseconds
from cqels.pipeline.lift.predicate_pushdown import PushedPatterns

if TYPE_CHECKING:
    from cqels.pipeline.lift.lift_worker import LiftWorker

__all__ = ["Lift", "columns", "csv", "json", "jsonld", "nquads", "ntriples", "trig", "turtle"]

Form: TypeAlias = OneOf["lines", "turtle", "trig", "jsonld", "csv", "json", "columns", "blocks"]
Batches: TypeAlias = Iterator["pyarrow.RecordBatch"]
_OWN = ("source", "kafka")
"""Words for a time that is the row's own."""
_TIME_HINT = "it is source or kafka for the row's own, or a predicate's IRI in full"


@dataclass(frozen=True, slots=True)
class Lift:
    """How the rows of a source become elements.

    With `own_time` the time of an element is in its row.  Lines have an `element`: with `line`, a row is any number of
    lines, each an element; with `document`, a row is an element; with others, a row is a document with elements in it.
    In other forms a row is an element.
    """

    form: Form
    element: ElementKind | None = None
    time: NamedNode | None = None
    unit: str = "ms"
    own_time: bool = False
    template: Template | None = None
    header: tuple[str, ...] = ()
    """Of CSV; empty where each row begins with it."""
    drops_times: bool = False
    """The row's own time holds for lines that carry one, too."""


BLOCKS = Lift("blocks")
"""Rows whose values are blocks (`block_format.py`): they were lifted before."""
ARRIVED = b"arrived"
"""The key of a block whose elements have the times at which they arrived, since they carried none."""


# ---------------------------------------------------------------- what users write


def ntriples(*, element: ElementKind = "line", time: str | None = None, unit: str = "ms") -> Lift:
    """Lines of timed N-Triples (`s p o time .`), or of N-Triples whose time is the row's or a predicate's object.

    `time` is `source` or `kafka` for the row's own: then a row is an element; or the IRI of the predicate.  `unit` is
    what a time that is an integer counts.
    """
    if time in _OWN:
        return Lift("lines", "document", own_time=True)
    return _checked(Lift("lines", element, _predicate(time), unit))


def nquads(*, time: str | None = None, unit: str = "ms") -> Lift:
    """N-Quads: each graph of a document is an element; or each row is, whatever its graphs are, if it has the time.

    An element's time is the prov:generatedAtTime of its graph, or the object of the predicate with the IRI `time`, or
    with `source` or `kafka` the row's own.
    """
    if time in _OWN:
        return Lift("lines", "document", own_time=True)
    return _checked(Lift("lines", "graph", _predicate(time), unit))


def turtle(*, time: str, unit: str = "ms") -> Lift:
    """Each row is a Turtle document and an element; `time` is the row's own, or the object of a predicate."""
    return _document("turtle", time, unit)


def trig(*, time: str, unit: str = "ms") -> Lift:
    """Each row is a TriG document and an element; `time` is the row's own, or the object of a predicate."""
    return _document("trig", time, unit)


def jsonld(*, time: str, unit: str = "ms") -> Lift:
    """Each row is a JSON-LD document and an element; `time` is the row's own, or the object of a predicate."""
    return _document("jsonld", time, unit)


def csv(
    template: str | os.PathLike[str] | Template,
    *,
    header: Sequence[str] | None,
    time: str | None = None,
    unit: str = "ms",
) -> Lift:
    """Each row is a CSV record with these columns; the template says what becomes of them (`lifting_template.py`).

    With the header None, each row begins with a header of its own, and has any number of records.
    """
    lift = _record("csv", template, time, unit)
    assert lift.template is not None
    if header is None:
        return lift
    for name in lift.template.columns:
        if name not in header:
            raise CqelsError(f"the header has no column '{name}'", hint=f"the columns are {', '.join(header)}")
    return replace(lift, header=tuple(header))


def json(template: str | os.PathLike[str] | Template, *, time: str | None = None, unit: str = "ms") -> Lift:
    """Each row is a JSON object; the template says what becomes of its members (`cqels.ingest.lifting_template`)."""
    return _record("json", template, time, unit)


def columns(template: str | os.PathLike[str] | Template, *, time: str | None = None, unit: str = "ms") -> Lift:
    """Each row is a record with columns of its own: Parquet, Delta, JDBC. The template says what becomes of them."""
    return _record("columns", template, time, unit)


def _document(form: Form, time: str, unit: str) -> Lift:
    if time in _OWN:
        return Lift(form, "document", own_time=True)
    return _checked(Lift(form, "document", _predicate(time), unit))


def _record(form: Form, template: str | os.PathLike[str] | Template, time: str | None, unit: str) -> Lift:
    if time is not None and time not in _OWN:
        raise CqelsError(
            f"the time '{time}' is not that of a row", hint="it is source or kafka, or a column that the template names"
        )
    own = time is not None
    known = template if isinstance(template, Template) else read_template(Path(template), timed=not own)
    return _checked(Lift(form, "document", unit=unit, own_time=own, template=known))


def _predicate(time: str | None) -> NamedNode | None:
    if time is None:
        return None
    try:
        return NamedNode(time.removeprefix("<").removesuffix(">"))
    except ValueError:
        raise CqelsError(f"the time '{time}' is not an IRI", hint=_TIME_HINT) from None


def _checked(lift: Lift) -> Lift:
    if lift.form == "lines":
        if lift.element not in ("line", "time", "subject", "graph"):
            raise CqelsError(f"element={lift.element} does not fit lines", hint="it is line, time or subject")
        if lift.element == "time" and lift.time is not None:
            raise CqelsError("element=time needs lines that end with their time", hint="write element=subject")
    if unit_nanoseconds(lift.unit) is None:
        raise CqelsError(f"'{lift.unit}' is not a unit of time", hint="the units are ns, us, ms, s, m, h, d, w")
    return lift


# ---------------------------------------------------------------- what is done with rows


@dataclass(frozen=True, slots=True)
class Lifting:
    """A function of batches of rows: the blocks of a stream, and what was rejected."""

    stream: str
    number: int
    """Of the stream, in the application."""
    lift: Lift
    patterns: tuple[PushedPatterns | None, ...]
    """Of each engine instance."""
    strict: bool = False
    """What is malformed ends the run."""
    future: int | None = None
    """Nanoseconds beyond the wall clock from which on an element is rejected."""
    arrival: bool = False
    """The time of an element is when its row arrived: what the column `time` says."""

    def blocks(self, batches: Batches, task: str = "", worker: LiftWorker | None = None) -> Batches:
        """The blocks of batches of rows; `task` names the sequence of rows that have no `place`.

        Without a worker of one's own it is one of the process.
        """
        from cqels.pipeline.lift.block_writer import table
        from cqels.pipeline.lift.lift_worker import lift_worker_of, runs_of

        worker = worker or lift_worker_of(self)
        numbers = count()
        named: Sequence[str] = ("@key",) if self.lift.form == "blocks" else ()
        if self.lift.template is not None:
            named = self.lift.template.surroundings
        for batch in batches:
            rows = [row for part in runs_of(batch, task, named) for row in worker.lifted(part, numbers)]
            worker.tidy()
            if rows:
                yield table(rows)
