"""How the rows of any Spark source are lifted to elements: what users write (`cqels.lift`), and its `mapInArrow`.

A row has its text in the column `value` (text or bytes) and may have more columns: `time`, the source's own timestamp;
`place`, the file or partition that the row comes from; `position`, its offset there.  These give rejected input its
place, blank nodes their scope, and the blocks of a stream their order: that of position and number within a place.
Where a source has no column `place`, it is the partition of the task.  Rows of Kafka are recognized by their columns:
`timestamp`, `topic` and `partition`, `offset`.  The rows of a table (`columns`) have columns of their own instead of
`value`.

What comes out are arriving rows (`cqels.spark.lift.row_schemas`): blocks, and what was rejected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from typing import Literal as OneOf

import pyarrow
from pyoxigraph import NamedNode

from cqels.ingest.declarations import ElementKind
from cqels.ingest.lifting_template import Template, read_template
from cqels.model.errors import CqelsError
from cqels.model.time import unit_nanoseconds
from cqels.spark.lift.predicate_pushdown import PushedPatterns
from cqels.spark.lift.row_schemas import ARRIVING_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Lift", "columns", "csv", "json", "jsonld", "nquads", "ntriples", "trig", "turtle"]

Form: TypeAlias = OneOf["lines", "turtle", "trig", "jsonld", "csv", "json", "columns"]
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
    header: Sequence[str],
    time: str | None = None,
    unit: str = "ms",
) -> Lift:
    """Each row is a CSV record with these columns; the template says what becomes of them (`lifting_template.py`)."""
    lift = _record("csv", template, time, unit)
    assert lift.template is not None
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


# ---------------------------------------------------------------- what Spark does


@dataclass(frozen=True, slots=True)
class Lifting:
    """A function of batches of rows for `DataFrame.mapInArrow`: the blocks of a stream, and what was rejected."""

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

    def __call__(self, batches: Batches) -> Batches:
        from cqels.spark.lift.block_writer import table
        from cqels.spark.lift.lift_worker import lift_worker_of, runs_of

        worker = lift_worker_of(self)
        numbers = count()
        task = _task()
        for batch in batches:
            rows = [row for part in runs_of(batch, task) for row in worker.lifted(part, numbers)]
            worker.tidy()
            if rows:
                yield table(rows)

    def apply(self, rows: DataFrame) -> DataFrame:
        """The blocks of a DataFrame's rows, batch or streaming."""
        from pyspark.sql import functions

        names = {field.name for field in rows.schema}
        chosen = [self._value(names).alias("value")]
        if self.lift.own_time:
            chosen.append(functions.col(self._time(rows, names)).alias("time"))
        if {"topic", "partition", "offset"} <= names:
            chosen.append(functions.concat_ws("-", "topic", "partition").alias("place"))
            chosen.append(functions.col("offset").alias("position"))
        elif self.lift.form != "columns":
            chosen += [functions.col(name) for name in ("place", "position") if name in names]
        return rows.select(*chosen).mapInArrow(self, ARRIVING_COLUMNS)

    def _value(self, names: set[str]) -> Column:
        from pyspark.sql import functions

        if self.lift.template is not None and self.lift.form == "columns":
            wanted = dict.fromkeys(_top(name, names) for name in self.lift.template.columns)
            self._check(list(wanted), names)
            return functions.struct(*(functions.col(f"`{name}`") for name in wanted))
        self._check(["value"], names)
        return functions.col("value")

    def _time(self, rows: DataFrame, names: set[str]) -> str:
        """The column with the row's own time."""
        name = "time" if "time" in names else "timestamp"
        if name not in names:
            raise CqelsError(
                f"the source of stream <{self.stream}> has no column 'time' or 'timestamp'",
                hint=f"its columns are {', '.join(sorted(names))}",
            )
        kind = rows.schema[name].dataType.simpleString()
        if not kind.startswith("timestamp"):
            raise CqelsError(
                f"the column '{name}' of stream <{self.stream}> is an {kind}, not a timestamp",
                hint=f".withColumn('{name}', …cast('timestamp'))",
            )
        return name

    def _check(self, wanted: list[str], names: set[str]) -> None:
        for name in wanted:
            if name not in names:
                raise CqelsError(
                    f"the source of stream <{self.stream}> has no column '{name}'",
                    hint=f"its columns are {', '.join(sorted(names))}; rename one: .withColumnRenamed(…, '{name}')",
                )


def _top(name: str, names: set[str]) -> str:
    """The column that has what a template names, which may be a member of a struct."""
    return name if name in names else name.partition(".")[0]


def _task() -> str:
    """The partition of the task, which a repeated batch has again; nothing outside Spark."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return "" if context is None else str(context.partitionId())
