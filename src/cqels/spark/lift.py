"""From rows of any Spark source to blocks of elements, in parallel and without state: `DataFrame.mapInArrow`.

A row has its text in the column `value` (text or bytes) and may have more columns: `time`, the source's own timestamp;
`place`, where the row comes from (a file, a topic with its partition); `position`, where in it (an offset).  These give
rejected input its place, blank nodes their scope, and the blocks of a stream their order: the one of (place, position,
number).

What comes out are rows of two kinds.  A block has its elements in `block`; a rejected line or row has none, but its
`reason` and its `text`.
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
from cqels.engine.intake import Intake
from cqels.engine.terms import Terms
from cqels.io.declare import ElementKind, StreamDeclaration
from cqels.io.element import Rejected
from cqels.io.faults import reason_of
from cqels.io.ntriples import blank_scope, parse_statements, read_texts
from cqels.kernels.memory import Arena
from cqels.kernels.terms import ArenaDictionary, tokenize
from cqels.kernels.tokenizer import EMPTY, ODD, QUAD, TRIPLE
from cqels.model.errors import CqelsError, DataError
from cqels.model.time import unit_nanoseconds
from cqels.spark.blocks import pack
from cqels.spark.wanted import Wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_TERMS = 1 << 20
"""Terms that a worker remembers between batches."""
LONGEST_TEXT = 2000
"""Characters of a rejected text that are kept."""
SCHEMA = pyarrow.schema(
    [
        ("stream", pyarrow.int32()),
        ("place", pyarrow.string()),
        ("position", pyarrow.int64()),
        ("number", pyarrow.int64()),
        ("block", pyarrow.binary()),
        ("reason", pyarrow.string()),
        ("text", pyarrow.string()),
    ]
)
COLUMNS = "stream int, place string, position long, number long, block binary, reason string, text string"
"""The same for Spark."""
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
    wanted: Wanted

    def __call__(self, batches: Batches) -> Batches:
        workshop = _workshop(self)
        numbers = count()
        for batch in batches:
            rows = [row for part in _runs(batch) for row in workshop.lifted(part, numbers)]
            workshop.tidy()
            if rows:
                yield pyarrow.RecordBatch.from_pylist(rows, SCHEMA)

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
        return rows.select(*used).mapInArrow(self, COLUMNS)


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


def _runs(batch: pyarrow.RecordBatch) -> Iterator[_Run]:
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
            yield _Run(place or "", positions[start], values[part], positions[part], times[part], place is not None)
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
    """Where a worker makes blocks: a dictionary, which blocks do not depend on, and the patterns in its words."""

    def __init__(self, lifting: Lifting) -> None:
        self._lifting = lifting
        self._declaration = StreamDeclaration(
            lifting.stream, "", lifting.lift.element, lifting.lift.time, lifting.lift.unit
        )
        self._terms = Terms(ArenaDictionary(Arena()))
        self._intake = Intake(self._terms)
        self._matcher = None if lifting.wanted.everything else lifting.wanted.matcher(self._terms)

    def tidy(self) -> None:
        """Forget the terms of earlier batches if they are many."""
        if len(self._terms.dictionary) > MOST_TERMS:
            self._terms.forget()
            self._terms.dictionary.keep(())

    def lifted(self, run: _Run, numbers: Iterator[int]) -> Iterator[dict[str, object]]:
        """The block of some rows, if they have elements, and what was rejected of them."""
        stream = self._lifting.number
        rejected: list[dict[str, object]] = []

        def reject(place: str, reason: str, text: str) -> None:
            shown = text.encode("utf-8", _NOT_UTF8).decode("utf-8", "replace")[:LONGEST_TEXT]
            told = {"place": place, "position": run.position, "reason": reason, "text": shown}
            rejected.append({**told, "stream": stream, "number": next(numbers)})

        lift = self._lifting.lift
        if lift.own_time:
            batch = self._rows(run, reject)
        elif lift.element == "line" and lift.time is None:
            batch = self._lines(run, reject)
        else:
            batch = self._documents(run, reject)
        if self._matcher is not None:
            batch = self._matcher.kept(batch)
        if len(batch):
            block = pack(batch, self._terms.dictionary)
            place = {"stream": stream, "place": run.place, "position": run.position}
            yield {**place, "number": next(numbers), "block": block}
        yield from rejected

    def _lines(self, run: _Run, reject: Told) -> Batch:
        """Each line is an element, however they are cut into rows."""
        for number, value in enumerate(run.values):
            if value is None:
                reject(f"{run.at(0)}:{number + 1}", "the row has no value", "")
        data = b"\n".join(value or b"" for value in run.values).removeprefix(b"\xef\xbb\xbf")
        scope = blank_scope(self._declaration, run.place if run.named else _digest(data))
        batch, _, _ = self._intake.lines(
            self._lifting.number,
            data,
            unit=self._lifting.lift.unit,
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
            parts += [self._intake.triples(self._lifting.number, each.time, each.triples) for each in found]
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
            parts.append(_one(time, self._lifting.number, words))
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
        streams = np.full(len(values), self._lifting.number, np.int64)
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


def _one(time: int, stream: int, words: Words) -> Batch:
    return Batch(np.array([time]), np.array([stream]), np.array([len(words) // 3]), words)


def _digest(data: bytes) -> str:
    return blake2s(data, digest_size=8).hexdigest()
