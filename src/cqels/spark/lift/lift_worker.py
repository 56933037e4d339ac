"""The workers' side of lifting, between a source and the shuffle: rows of a source in, arriving rows with blocks out.

How a stream is to be lifted is said in `row_lifts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2s
from typing import TypeAlias

import numpy as np
import pyarrow
from pyoxigraph import Literal, RdfFormat

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.documents import RDF_FORMATS, document_element
from cqels.ingest.element import Rejected
from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.parse_errors import UNREADABLE, reason_of
from cqels.ingest.record_readers import Numbered, arrow_records, csv_records, json_records
from cqels.ingest.timed_lines import blank_scope, parse_statements, read_texts
from cqels.kernels.readers.line_blocks import tokenize
from cqels.kernels.readers.line_tokenizer import EMPTY, ODD, QUAD, TRIPLE
from cqels.model.errors import DataError
from cqels.model.time import EARLIEST, LATEST, parse_time
from cqels.spark.lift.block_writer import BlockWriter, Row, one_element
from cqels.spark.lift.row_lifts import Lifting

_NOT_UTF8 = "surrogateescape"

RejectCallback: TypeAlias = Callable[[str, str, str], None]
"""Called with the place, the reason and the text of rejected input."""


@dataclass(frozen=True, slots=True)
class RowRun:
    """Consecutive rows of one sequence of the source: of a file, or of a partition of Kafka."""

    place: str
    position: int
    values: list[bytes | None]
    positions: list[int]
    times: list[int | None]
    named: bool
    """The source names its sequences, in the column `place`."""
    records: pyarrow.RecordBatch | None = None
    """Instead of values."""

    def at(self, row: int) -> str:
        """What a person knows a row by."""
        if not self.named:
            return f"<source>@{self.positions[row]}" if any(self.positions) else "<source>"
        return f"{self.place}@{self.positions[row]}" if any(self.positions) else self.place


def runs_of(batch: pyarrow.RecordBatch, task: str) -> Iterator[RowRun]:
    """Rows grouped by the `place` of the source; where it has none, by the task."""
    size = batch.num_rows
    names = batch.schema.names
    value = batch.column("value")
    records = pyarrow.RecordBatch.from_struct_array(value) if pyarrow.types.is_struct(value.type) else None
    values = value.cast(pyarrow.binary()).to_pylist() if records is None else [None] * size
    places = batch.column("place").to_pylist() if "place" in names else [None] * size
    positions = batch.column("position").fill_null(0).to_pylist() if "position" in names else [0] * size
    times: list[int | None] = _nanoseconds(batch.column("time")) if "time" in names else [None] * size
    start = 0
    for end in range(1, size + 1):
        if end == size or places[end] != places[start]:
            part = slice(start, end)
            place = places[start]
            name, named = (task, False) if place is None else (place, True)
            cut = None if records is None else records.slice(start, end - start)
            yield RowRun(name, positions[start], values[part], positions[part], times[part], named, cut)
            start = end


def _nanoseconds(column: pyarrow.Array) -> list[int | None]:
    kind = column.type
    if not pyarrow.types.is_timestamp(kind):
        raise DataError(f"the source's own time is of the type {kind}, and not a timestamp")
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
    return [None if each is None else each * scale for each in column.cast(pyarrow.int64()).to_pylist()]


@lru_cache(maxsize=32)
def lift_worker_of(lifting: Lifting) -> LiftWorker:
    """The worker of a stream, made once in a process, which Spark uses for many tasks."""
    return LiftWorker(lifting)


class LiftWorker:
    """Lifts the rows of one stream."""

    def __init__(self, lifting: Lifting) -> None:
        self._stream = lifting.number
        self._lift = lifting.lift
        self._declaration = StreamDeclaration(
            lifting.stream, "", lifting.lift.element, lifting.lift.time, lifting.lift.unit
        )
        self._writer = BlockWriter(
            lifting.number, lifting.patterns, iri=lifting.stream, future=lifting.future, strict=lifting.strict
        )
        self._terms, self._intake = self._writer.terms, self._writer.intake

    def tidy(self) -> None:
        self._writer.tidy()

    def lifted(self, run: RowRun, numbers: Iterator[int]) -> Iterator[Row]:
        """The blocks of some rows, if they have elements, and what was rejected of them."""
        rejected: list[Row] = []

        def reject(place: str, reason: str, text: str) -> None:
            found = Rejected(self._declaration.iri, place, reason, text)
            rejected.append(self._writer.rejected(found, run.position, next(numbers)))

        batch = self._batch(run, reject)
        yield from self._writer.blocks(batch, run.place, run.position, next(numbers))
        yield from rejected

    def _batch(self, run: RowRun, reject: RejectCallback) -> Batch:
        lift = self._lift
        match lift.form:
            case "csv" | "json" | "columns":
                return self._records(run, reject)
            case "turtle" | "trig" | "jsonld":
                return self._whole(run, reject)
            case _ if lift.own_time:
                return self._rows(run, reject)
            case _ if lift.element == "line" and lift.time is None:
                return self._lines(run, reject)
            case _:
                return self._documents(run, reject)

    # ------------------------------------------------------------ lines

    def _lines(self, run: RowRun, reject: RejectCallback) -> Batch:
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

    def _documents(self, run: RowRun, reject: RejectCallback) -> Batch:
        """Each row is a document with any number of elements."""
        parts = []
        for number, value in enumerate(run.values):
            place = run.at(number)
            if value is None:
                reject(place, "the row has no value", "")
                continue

            def reject_line(rejected: Rejected, place: str = place) -> None:
                reject(f"{place}:{rejected.place.rpartition(':')[2]}", rejected.reason, rejected.text)

            lines = enumerate(value.decode("utf-8", _NOT_UTF8).removeprefix("\ufeff").split("\n"), 1)
            texts = ((line, text.removesuffix("\r")) for line, text in lines)
            try:
                found = list(read_texts(self._declaration, self._document(run, number), texts, reject_line))
            except DataError as error:  # the document is not what was declared
                reject(place, error.message, "")
                continue
            parts += [self._intake.triples(self._stream, each.time, each.triples) for each in found]
        return Batch.concatenate(parts)

    def _document(self, run: RowRun, number: int) -> str:
        """A name for a row that is a document: the same whenever it is read."""
        return run.at(number) if run.named else _digest(run.values[number] or b"")

    def _rows(self, run: RowRun, reject: RejectCallback) -> Batch:
        """Each row is an element; one with a malformed line is rejected whole."""
        if (batch := self._plain_rows(run)) is not None:
            return batch
        parts = []
        for number, (value, time) in enumerate(zip(run.values, run.times, strict=True)):
            text = (value or b"").decode("utf-8", _NOT_UTF8)
            try:
                if value is None or time is None:
                    raise ValueError("the row has no value" if value is None else "the row has no time")
                time = parse_time(time)
                words = self._row(value, blank_scope(self._declaration, self._document(run, number)), time)
            except UNREADABLE as error:
                reject(run.at(number), reason_of(error, text), text)
                continue
            parts.append(one_element(time, self._stream, words))
        return Batch.concatenate(parts)

    def _plain_rows(self, run: RowRun) -> Batch | None:
        """The same all at once; None where a row is not plain, or has blank nodes, whose scope is their row."""
        values = [value for value in run.values if value is not None]
        times = [time for time in run.times if time is not None]
        data = b"\n".join(values) + b"\n"
        if min(len(values), len(times)) < len(run.values) or b"_:" in data:
            return None
        if times and not EARLIEST <= min(times) <= max(times) <= LATEST:
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

    def _row(self, value: bytes, scope: str, time: int) -> Words:
        """The words of a row: of its lines, or of a Turtle document if they are none."""
        try:
            words = self._triples(value, scope)
            if not len(words):
                raise ValueError("the row has no triple")
            return words
        except UNREADABLE:
            try:
                element = document_element(self._declaration, value, RdfFormat.TURTLE, scope, time)
            except UNREADABLE:
                element = None
            if element is None:
                raise
        return np.array([word for triple in element.triples for word in self._terms.encode_all(triple)], np.int64)

    def _triples(self, data: bytes, scope: str) -> Words:
        """The words of the triples of some lines, whatever graphs they are in."""
        block = tokenize(self._terms.dictionary, data, scope=scope)
        kinds = block.kind
        taken = (kinds == TRIPLE) | (kinds == QUAD)
        if np.all(taken | (kinds == EMPTY)):
            return np.ascontiguousarray(block.records[taken, :3]).reshape(-1)
        parts = []
        for number, kind in enumerate(kinds.tolist()):
            if kind in (TRIPLE, QUAD):
                parts.append(block.records[number, :3])
            elif kind == ODD:
                for triple, fourth in parse_statements(block.line(number).decode("utf-8", _NOT_UTF8), scope):
                    if triple is None or isinstance(fourth, Literal):
                        raise ValueError("a line has a time, and so has its row")
                    parts.append(np.array(self._terms.encode_all(triple), np.int64))
            elif kind != EMPTY:
                raise ValueError("a line has a time, and so has its row")
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    # ------------------------------------------------------------ documents and records

    def _whole(self, run: RowRun, reject: RejectCallback) -> Batch:
        """Each row is a document and an element."""
        assert self._lift.form in RDF_FORMATS
        format = RDF_FORMATS[self._lift.form]
        parts = []
        for number, value in enumerate(run.values):
            try:
                if value is None:
                    raise ValueError("the row has no value")
                scope = blank_scope(self._declaration, self._document(run, number))
                element = document_element(self._declaration, value, format, scope, self._own(run, number))
            except UNREADABLE as error:
                text = (value or b"").decode("utf-8", _NOT_UTF8)
                reject(run.at(number), reason_of(error, text), text)
                continue
            parts.append(self._intake.triples(self._stream, element.time, element.triples))
        return Batch.concatenate(parts)

    def _records(self, run: RowRun, reject: RejectCallback) -> Batch:
        """Each row is a record; one of CSV may also be several."""
        template = self._lift.template
        assert template is not None
        parts = []
        for number, (_, text, record) in self._found(run):
            try:
                if isinstance(record, str):
                    raise ValueError(record)
                own = self._own(run, number)
                time = template.time(record, self._lift.unit) if own is None else own
                triples = template.triples(record)
            except UNREADABLE as error:
                reject(run.at(number), reason_of(error, text), text)
                continue
            parts.append(self._intake.triples(self._stream, time, triples))
        return Batch.concatenate(parts)

    def _found(self, run: RowRun) -> Iterator[tuple[int, Numbered]]:
        """The number of each row, and its records."""
        template = self._lift.template
        assert template is not None
        if run.records is not None:
            yield from enumerate(arrow_records(run.records))
            return
        delimiter = template.delimiter or ","
        for number, value in enumerate(run.values):
            if value is None:
                yield number, (1, "", "the row has no value")
                continue
            text = value.decode("utf-8", _NOT_UTF8).removeprefix("\ufeff")
            if self._lift.form == "json":
                found = json_records([(1, text)]) if text.strip() else iter([(1, text, "the row has no record")])
            else:
                lines = text.removesuffix("\n").split("\n")
                header = list(self._lift.header)
                found = csv_records(lines, template.columns, delimiter=delimiter, place=run.at(number), header=header)
            yield from ((number, each) for each in found)

    def _own(self, run: RowRun, number: int) -> int | None:
        """The time of a row, if it is to be used."""
        if not self._lift.own_time:
            return None
        time = run.times[number]
        if time is None:
            raise ValueError("the row has no time")
        return parse_time(time)


def _digest(data: bytes) -> str:
    return blake2s(data, digest_size=8).hexdigest()
