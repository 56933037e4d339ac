"""From rows of any Spark source to blocks of elements, in parallel and without state: `DataFrame.mapInArrow`.

A row has its text in the column `value` (text or bytes) and may have more columns: `time`, the source's own timestamp;
`place`, where the row comes from (a file, a topic with its partition); `position`, where in it (an offset).  These give
rejected input its place, blank nodes their scope, and the blocks of a stream their order: that of position and number
within a place.  Where a source tells no place, it is the partition of the task.

What comes out are arriving rows (`cqels.spark.rows`): blocks, and what was rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2s
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow
from pyoxigraph import Literal, NamedNode

from cqels.engine.batch import Batch, Words
from cqels.io.declare import ElementKind, StreamDeclaration
from cqels.io.element import Rejected
from cqels.io.faults import reason_of
from cqels.io.ntriples import blank_scope, parse_statements, read_texts
from cqels.kernels.terms import tokenize
from cqels.kernels.tokenizer import EMPTY, ODD, QUAD, TRIPLE
from cqels.model.errors import CqelsError, DataError
from cqels.model.time import unit_nanoseconds
from cqels.spark.packing import Packer, Row, one_element, table
from cqels.spark.rows import ARRIVING_COLUMNS
from cqels.spark.wanted import Wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOT_UTF8 = "surrogateescape"

Batches: TypeAlias = Iterator["pyarrow.RecordBatch"]
Told: TypeAlias = Callable[[str, str, str], None]
"""Is told the place, the reason and the text of what is rejected."""


# ---------------------------------------------------------------- what users write


@dataclass(frozen=True, slots=True)
class Lift:
    """How the rows of a source become elements.

    With `own_time` a row is an element, and its time is in the row.  Else, where `element` is `line`, a row is any
    number of lines; where it is something else, a row is a whole document.
    """

    element: ElementKind | None
    time: NamedNode | None = None
    unit: str = "ms"
    own_time: bool = False


def ntriples(*, element: ElementKind = "line", time: str | None = None, unit: str = "ms") -> Lift:
    """Lines of timed N-Triples (`s p o time .`), or of N-Triples whose time is the row's or a predicate's object.

    `time` is `source`, or the IRI of the predicate.  `unit` is what a time that is an integer counts.
    """
    if time == "source":
        return Lift("document", own_time=True)
    return _checked(Lift(element, _predicate(time), unit))


def nquads(*, time: str | None = None, unit: str = "ms") -> Lift:
    """N-Quads: each graph of a document is an element; or, if `time` is `source`, each row is, whatever its graphs are.

    An element's time is the prov:generatedAtTime of its graph, or the object of the predicate with the IRI `time`.
    """
    if time == "source":
        return Lift("document", own_time=True)
    return _checked(Lift("graph", _predicate(time), unit))


def _predicate(time: str | None) -> NamedNode | None:
    if time is None:
        return None
    try:
        return NamedNode(time.removeprefix("<").removesuffix(">"))
    except ValueError:
        raise CqelsError(
            f"the time '{time}' is not an IRI", hint="it is source, or a predicate's IRI in full"
        ) from None


def _checked(lift: Lift) -> Lift:
    if lift.element not in ("line", "time", "subject", "graph"):
        raise CqelsError(f"element={lift.element} does not fit lines", hint="it is line, time or subject")
    if lift.element == "time" and lift.time is not None:
        raise CqelsError("element=time needs lines that end with their time", hint="write element=subject")
    if unit_nanoseconds(lift.unit) is None:
        raise CqelsError(f"'{lift.unit}' is not a unit of time", hint="the units are ns, us, ms, s, m, h, d, w")
    return lift


# ---------------------------------------------------------------- what workers do


@dataclass(frozen=True, slots=True)
class Lifting:
    """A function of batches of rows for `DataFrame.mapInArrow`: the blocks of a stream, and what was rejected."""

    stream: str
    number: int
    """Of the stream, in the application."""
    lift: Lift
    wants: tuple[Wanted, ...]
    """Of each engine instance."""
    strict: bool = False
    """What is malformed ends the run."""

    def __call__(self, batches: Batches) -> Batches:
        workshop = _workshop(self)
        numbers = count()
        task = _task()
        for batch in batches:
            rows = [row for part in _runs(batch, task) for row in workshop.lifted(part, numbers)]
            workshop.tidy()
            if rows:
                yield table(rows)

    def apply(self, rows: DataFrame) -> DataFrame:
        """The blocks of a DataFrame's rows, batch or streaming."""
        names = {field.name for field in rows.schema}
        if "value" not in names:
            raise CqelsError(
                f"the source of stream <{self.stream}> has no column 'value'",
                hint=f"its columns are {', '.join(sorted(names))}; rename one: .withColumnRenamed(…, 'value')",
            )
        if self.lift.own_time and "time" not in names:
            raise CqelsError(
                f"the source of stream <{self.stream}> has no column 'time'", hint="that of Kafka is 'timestamp'"
            )
        used = [name for name in ("value", "time", "place", "position") if name in names]
        return rows.select(*used).mapInArrow(self, ARRIVING_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive rows of one place."""

    place: str
    position: int
    values: list[bytes | None]
    positions: list[int]
    times: list[int | None]
    named: bool
    """The source tells places."""

    def at(self, row: int) -> str:
        """What a person knows a row by."""
        if not self.named:
            return f"<source>@{self.positions[row]}" if any(self.positions) else "<source>"
        return f"{self.place}@{self.positions[row]}" if any(self.positions) else self.place


def _task() -> str:
    """The partition of the task, which a repeated batch has again; nothing outside Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "" if context is None else str(context.partitionId())


def _runs(batch: pyarrow.RecordBatch, task: str) -> Iterator[_Run]:
    size = batch.num_rows
    names = batch.schema.names
    values = batch.column("value").cast(pyarrow.binary()).to_pylist()
    places = batch.column("place").to_pylist() if "place" in names else [None] * size
    positions = batch.column("position").fill_null(0).to_pylist() if "position" in names else [0] * size
    times: list[int | None] = _nanoseconds(batch.column("time")) if "time" in names else [None] * size
    start = 0
    for end in range(1, size + 1):
        if end == size or places[end] != places[start]:
            part = slice(start, end)
            place = places[start]
            name, named = (task, False) if place is None else (place, True)
            yield _Run(name, positions[start], values[part], positions[part], times[part], named)
            start = end


def _nanoseconds(column: pyarrow.Array) -> list[int | None]:
    kind = column.type
    if not pyarrow.types.is_timestamp(kind):
        raise DataError(f"the column 'time' is of the type {kind}, and not a timestamp")
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
    return [None if each is None else each * scale for each in column.cast(pyarrow.int64()).to_pylist()]


@lru_cache(maxsize=32)
def _workshop(lifting: Lifting) -> _Workshop:
    """One for each stream in each process; Spark uses a process for many tasks."""
    return _Workshop(lifting)


class _Workshop:
    """Where a worker makes the rows of a stream."""

    def __init__(self, lifting: Lifting) -> None:
        self._stream = lifting.number
        self._lift = lifting.lift
        self._declaration = StreamDeclaration(
            lifting.stream, "", lifting.lift.element, lifting.lift.time, lifting.lift.unit
        )
        self._packer = Packer(lifting.number, lifting.wants, strict=lifting.strict)
        self._terms, self._intake = self._packer.terms, self._packer.intake

    def tidy(self) -> None:
        self._packer.tidy()

    def lifted(self, run: _Run, numbers: Iterator[int]) -> Iterator[Row]:
        """The blocks of some rows, if they have elements, and what was rejected of them."""
        rejected: list[Row] = []

        def reject(place: str, reason: str, text: str) -> None:
            told = Rejected(self._declaration.iri, place, reason, text)
            rejected.append(self._packer.rejected(told, run.position, next(numbers)))

        if self._lift.own_time:
            batch = self._rows(run, reject)
        elif self._lift.element == "line" and self._lift.time is None:
            batch = self._lines(run, reject)
        else:
            batch = self._documents(run, reject)
        yield from self._packer.blocks(batch, run.place, run.position, next(numbers))
        yield from rejected

    def _lines(self, run: _Run, reject: Told) -> Batch:
        """Each line is an element, however they are cut into rows."""
        for number, value in enumerate(run.values):
            if value is None:
                reject(f"{run.at(0)}:{number + 1}", "the row has no value", "")
        data = b"\n".join(value or b"" for value in run.values).removeprefix(b"\xef\xbb\xbf")
        scope = blank_scope(self._declaration, run.place if run.named else _digest(data))
        batch, _, _ = self._intake.lines(
            self._stream,
            data,
            unit=self._lift.unit,
            scope=scope,
            reject=lambda line, reason, text: reject(f"{run.at(0)}:{line + 1}", reason, text),
        )
        return batch

    def _documents(self, run: _Run, reject: Told) -> Batch:
        """Each row is a document with any number of elements."""
        parts = []
        for number, value in enumerate(run.values):
            place = run.at(number)
            if value is None:
                reject(place, "the row has no value", "")
                continue

            def told(rejected: Rejected, place: str = place) -> None:
                reject(f"{place}:{rejected.place.rpartition(':')[2]}", rejected.reason, rejected.text)

            lines = enumerate(value.decode("utf-8", _NOT_UTF8).removeprefix("\ufeff").split("\n"), 1)
            texts = ((line, text.removesuffix("\r")) for line, text in lines)
            try:
                found = list(read_texts(self._declaration, self._document(run, number), texts, told))
            except DataError as error:  # the document is not what was declared
                reject(place, error.message, "")
                continue
            parts += [self._intake.triples(self._stream, each.time, each.triples) for each in found]
        return Batch.concatenate(parts)

    def _document(self, run: _Run, number: int) -> str:
        """A name for a row that is a document: the same whenever it is read."""
        return run.at(number) if run.named else _digest(run.values[number] or b"")

    def _rows(self, run: _Run, reject: Told) -> Batch:
        """Each row is an element; one with a malformed line is rejected whole."""
        if (batch := self._plain_rows(run)) is not None:
            return batch
        parts = []
        for number, (value, time) in enumerate(zip(run.values, run.times, strict=True)):
            text = (value or b"").decode("utf-8", _NOT_UTF8)
            try:
                if value is None or time is None:
                    raise ValueError("the row has no value" if value is None else "the row has no time")
                words = self._triples(value, blank_scope(self._declaration, self._document(run, number)))
                if not len(words):
                    raise ValueError("the row has no triple")
            except (ValueError, SyntaxError) as error:
                reject(run.at(number), reason_of(error, text), text)
                continue
            parts.append(one_element(time, self._stream, words))
        return Batch.concatenate(parts)

    def _plain_rows(self, run: _Run) -> Batch | None:
        """The same all at once; None where a row is not plain, or has blank nodes, whose scope is their row."""
        values = [value for value in run.values if value is not None]
        times = [time for time in run.times if time is not None]
        data = b"\n".join(values) + b"\n"
        if min(len(values), len(times)) < len(run.values) or b"_:" in data:
            return None
        kinds = (block := tokenize(self._terms.dictionary, data)).kind
        taken = (kinds == TRIPLE) | (kinds == QUAD)
        owners = np.repeat(np.arange(len(values)), [value.count(b"\n") + 1 for value in values])
        counts = np.bincount(owners[taken], minlength=len(values))
        if not np.all(taken | (kinds == EMPTY)) or not counts.all():
            return None
        streams = np.full(len(values), self._stream, np.int64)
        words = np.ascontiguousarray(block.records[taken, :3]).reshape(-1)
        return Batch(np.array(times, np.int64), streams, counts.astype(np.int64), words)

    def _triples(self, data: bytes, scope: str) -> Words:
        """The words of the triples of some lines, whatever graphs they are in."""
        block = tokenize(self._terms.dictionary, data, scope=scope)
        kinds = block.kind
        taken = (kinds == TRIPLE) | (kinds == QUAD)
        if np.all(taken | (kinds == EMPTY)):
            return np.ascontiguousarray(block.records[taken, :3]).reshape(-1)
        parts = []
        for place, kind in enumerate(kinds.tolist()):
            if kind in (TRIPLE, QUAD):
                parts.append(block.records[place, :3])
            elif kind == ODD:
                for triple, fourth in parse_statements(block.line(place).decode("utf-8", _NOT_UTF8), scope):
                    if triple is None or isinstance(fourth, Literal):
                        raise ValueError("a line has a time, and so has its row")
                    parts.append(np.array(self._terms.encode_all(triple), np.int64))
            elif kind != EMPTY:
                raise ValueError("a line has a time, and so has its row")
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _digest(data: bytes) -> str:
    return blake2s(data, digest_size=8).hexdigest()
