"""The workers' side of lifting, between a source and the shuffle: rows of a source in, arriving rows with blocks out.

How a stream is to be lifted is said in `row_lifts.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2s
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
import pyarrow
from pyoxigraph import Literal, RdfFormat

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.documents import RDF_FORMATS, document_element
from cqels.ingest.element import Element, Rejected
from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.input_files import MARK
from cqels.ingest.lifted_batches import Text, lifted_text
from cqels.ingest.parse_errors import UNREADABLE, reason_of
from cqels.ingest.punctuations import placed
from cqels.ingest.record_layout import Layout, csv_layout, json_layout
from cqels.ingest.record_readers import Numbered, Value, arrow_records, csv_records, json_records
from cqels.ingest.template_values import ALONE, Surroundings, lexical
from cqels.ingest.timed_lines import blank_scope, parse_statements, read_texts
from cqels.kernels.readers.line_blocks import tokenize
from cqels.kernels.readers.line_tokenizer import EMPTY, ODD, QUAD, TIMED, TRIPLE
from cqels.model.errors import DataError
from cqels.model.terms import Triple
from cqels.model.time import EARLIEST, LATEST, parse_time
from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.block_writer import BlockWriter, Row, one_element
from cqels.pipeline.lift.row_lifts import ARRIVED, Lift, Lifting

_NOT_UTF8 = "surrogateescape"
_PLACES = 64
"""Places whose layouts are remembered."""

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
    keys: list[bytes | None] | None = None
    """Only where a template names them, and so for what follows."""
    topics: list[str | None] | None = None
    headers: list[list[tuple[str, bytes | None]] | None] | None = None
    is_numbered: bool = False
    """The source names its sequences, and numbers its rows in them."""

    def row(self, number: int) -> RowRun:
        """One of the rows by itself."""
        part = slice(number, number + 1)
        cut = None if self.records is None else self.records.slice(number, 1)
        position = self.positions[number]
        return replace(
            self,
            position=position,
            values=self.values[part],
            positions=[position],
            times=self.times[part],
            records=cut,
            keys=None if self.keys is None else self.keys[part],
            topics=None if self.topics is None else self.topics[part],
            headers=None if self.headers is None else self.headers[part],
        )

    def at(self, row: int) -> str:
        """What a person knows a row by."""
        place = self.place if self.named else "<source>"
        return f"{place}@{self.positions[row]}" if self.is_numbered or any(self.positions) else place

    def around(self, row: int, scope: str) -> Surroundings:
        """What a source knows of a row."""
        return Surroundings(
            scope,
            None if self.keys is None else self.keys[row],
            None if self.topics is None else self.topics[row],
            () if self.headers is None else tuple(self.headers[row] or ()),
            self.times[row],
        )


def runs_of(batch: pyarrow.RecordBatch, task: str, named: Sequence[str] = ()) -> Iterator[RowRun]:
    """Rows grouped by the `place` of the source; where it has none, by the task.

    Of what surrounds their values they have what is `named` (`template_values.SURROUNDINGS`).
    """
    size = batch.num_rows
    names = batch.schema.names
    value = batch.column("value")
    records = pyarrow.RecordBatch.from_struct_array(value) if pyarrow.types.is_struct(value.type) else None
    values = value.cast(pyarrow.binary()).to_pylist() if records is None else [None] * size
    places = batch.column("place").to_pylist() if "place" in names else [None] * size
    positions = batch.column("position").fill_null(0).to_pylist() if "position" in names else [0] * size
    times: list[int | None] = _nanoseconds(batch.column("time")) if "time" in names else [None] * size
    keys, topics, headers = (_column(batch, *each) for each in _around(named))
    start = 0
    for end in range(1, size + 1):
        if end == size or places[end] != places[start]:
            part = slice(start, end)
            place = places[start]
            name, is_named = (task, False) if place is None else (place, True)
            cut = None if records is None else records.slice(start, end - start)
            yield RowRun(
                name,
                positions[start],
                values[part],
                positions[part],
                times[part],
                is_named,
                cut,
                None if keys is None else keys[part],
                None if topics is None else topics[part],
                None if headers is None else headers[part],
                is_named and "position" in names,
            )
            start = end


def _around(named: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """The columns of what surrounds a value, and whether each is named."""
    return (
        ("key", "@key" in named),
        ("topic", any(name.startswith("@topic") for name in named)),
        ("headers", any(name.startswith("@header") for name in named)),
    )


def _column(batch: pyarrow.RecordBatch, name: str, is_named: bool) -> list[Any] | None:
    """The values of a column that a template names; headers as pairs, also if they are structs as Spark's Kafka has."""
    if not is_named or name not in batch.schema.names:
        return None
    column = batch.column(name)
    if name == "key":
        column = column.cast(pyarrow.binary())
    values: list[Any] = column.to_pylist()
    if name != "headers":
        return values
    return [None if row is None else [_header(each) for each in row] for row in values]


def _header(header: Any) -> tuple[str, bytes | None]:
    name, value = header.values() if isinstance(header, dict) else header
    return name, value.encode() if isinstance(value, str) else value


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
            lifting.number,
            lifting.patterns,
            iri=lifting.stream,
            future=lifting.future,
            strict=lifting.strict,
            unit=lifting.lift.unit,
        )
        self._arrival = lifting.arrival
        self._terms, self._intake = self._writer.terms, self._writer.intake
        template = lifting.lift.template
        self._has_blank_nodes = template is not None and template.has_blank_nodes
        self._layout = _layout(lifting.lift, "")
        self._layouts: dict[str, Layout] = {}
        """Those of places, where the template has blank nodes."""
        self.elements = 0
        """How many it has lifted."""
        self.least: int | None = None
        """Where elements are late that are before this time, those that came by themselves have it at least."""
        self.sample = 1
        """Of so many elements one is kept."""
        self._plain = (TRIPLE, QUAD, TIMED) if self._lift.drops_times else (TRIPLE, QUAD)
        """The kinds of lines that a row may have which has a time of its own."""

    @property
    def joins_lines(self) -> bool:
        """Each line is an element, and lines are counted through all rows."""
        lift = self._lift
        return lift.form == "lines" and lift.element == "line" and lift.time is None and not lift.own_time

    def tidy(self) -> None:
        self._writer.tidy()

    def ends(self) -> list[Row]:
        """What tells all instances that the source has ended."""
        return [*self._writer.ends()]

    def lifted(self, run: RowRun, numbers: Iterator[int]) -> Iterator[Row]:
        """The blocks of some rows, if they have elements, and what was rejected of them."""
        rejected: list[Row] = []

        def reject(place: str, reason: str, text: str) -> None:
            found = Rejected(self._declaration.iri, place, reason, text)
            rejected.append(self._writer.rejected(found, run.position, next(numbers)))

        batch = self._arriving(run, reject) if self._arrival else self._batch(run, reject)
        self.elements += len(batch)
        if self.sample > 1:
            batch = batch.take(np.arange(-self.elements % self.sample, len(batch), self.sample))
        yield from self._writer.blocks(batch, run.place, run.position, next(numbers))
        yield from rejected

    def _arriving(self, run: RowRun, reject: RejectCallback) -> Batch:
        """Elements with the time at which their rows arrived, as the source has recorded it, whatever they carry."""
        if self._lift.own_time:
            return self._batch(run, reject)
        parts = []
        for number, time in enumerate(run.times):
            if time is None:
                reject(run.at(number), "the row has no time of its arrival", "")
                continue
            batch = self._batch(run.row(number), reject)
            parts.append(replace(batch, times=np.full(len(batch), parse_time(time))))
        return Batch.concatenate(parts)

    def _batch(self, run: RowRun, reject: RejectCallback) -> Batch:
        lift = self._lift
        match lift.form:
            case "csv" | "json" | "columns":
                return self._records(run, reject)
            case "turtle" | "trig" | "jsonld":
                return self._whole(run, reject)
            case "blocks":
                return self._unpacked(run, reject)
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
        taken = np.isin(kinds, self._plain)
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
        taken = np.isin(kinds, self._plain)
        if np.all(taken | (kinds == EMPTY)):
            return np.ascontiguousarray(block.records[taken, :3]).reshape(-1)
        parts = []
        for number, kind in enumerate(kinds.tolist()):
            if kind in self._plain:
                parts.append(block.records[number, :3])
            elif kind == ODD:
                for triple, fourth in parse_statements(block.line(number).decode("utf-8", _NOT_UTF8), scope):
                    if triple is None or (isinstance(fourth, Literal) and not self._lift.drops_times):
                        raise ValueError("a line has a time, and so has its row")
                    parts.append(np.array(self._terms.encode_all(triple), np.int64))
            elif kind != EMPTY:
                raise ValueError("a line has a time, and so has its row")
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _unpacked(self, run: RowRun, reject: RejectCallback) -> Batch:
        """Each row is a block of elements."""
        parts = []
        for number, value in enumerate(run.values):
            try:
                part = placed(unpack(value or b"", self._terms.dictionary), self._stream)
                if self.least is not None and run.keys is not None and run.keys[number] == ARRIVED:
                    part = replace(part, times=np.maximum(part.times, self.least))
                parts.append(part)
            except DataError as error:
                reject(run.at(number), error.message, "")
        return Batch.concatenate(parts)

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
        if (rows := self._plain_records(run)) is not None:
            return self._lifted_records(run, rows, reject)
        found = enumerate(self._found(run, row) for row in range(len(run.values)))
        if run.records is not None:
            found = enumerate(iter([(1, text, record)]) for _, text, record in arrow_records(run.records))
        return Batch.concatenate(
            self._intake.triples(self._stream, time, triples)
            for row, records in found
            for time, triples in self._lifted_row(run, row, records, reject)
        )

    def _lifted_row(
        self, run: RowRun, row: int, records: Iterator[Numbered], reject: RejectCallback
    ) -> Iterator[tuple[int, tuple[Triple, ...]]]:
        """The times and triples of the records of a row."""
        template = self._lift.template
        assert template is not None
        around = ALONE if template.is_flat else run.around(row, "")
        for number, text, record in records:
            numbered = around
            if template.has_blank_nodes:
                scope = self._record_scope(run, row, text)
                numbered = replace(around, scope=scope if number == 1 else f"{scope}_{number}")
            try:
                if isinstance(record, str):
                    raise ValueError(record)
                own = self._own(run, row)
                time = template.time(record, self._lift.unit, numbered) if own is None else own
                triples = template.triples(record, numbered)
            except UNREADABLE as error:
                reject(run.at(row), reason_of(error, text), text)
                continue
            yield time, triples

    def _record_scope(self, run: RowRun, row: int, text: str) -> str:
        """What the labels of the blank nodes of a row begin with: its place and position, or else its content."""
        if run.is_numbered:
            return f"{blank_scope(self._declaration, run.place)}{run.positions[row]}"
        return blank_scope(self._declaration, _digest(text.encode("utf-8", _NOT_UTF8)))

    def _found(self, run: RowRun, row: int) -> Iterator[Numbered]:
        """The records of a row."""
        template = self._lift.template
        assert template is not None
        value = run.values[row]
        if value is None:
            yield 1, "", "the row has no value"
            return
        text = value.decode("utf-8", _NOT_UTF8).removeprefix("\ufeff")
        if self._lift.form == "json":
            yield from json_records([(1, text)]) if text.strip() else iter([(1, text, "the row has no record")])
        else:
            lines = text.removesuffix("\n").split("\n")
            header, delimiter = list(self._lift.header) or None, template.delimiter or ","
            found = csv_records(lines, template.columns, delimiter=delimiter, place=run.at(row), header=header)
            try:
                yield from list(found)
            except DataError as error:  # its header is none, or of other columns
                yield 1, lines[0], error.message

    def _plain_records(self, run: RowRun) -> list[bytes] | None:
        """The rows, if each is one line with a record, and the kernel reads such."""
        if self._layout is None or run.records is not None or (self._has_blank_nodes and not run.is_numbered):
            return None
        values = [value for value in run.values if value is not None and value.strip()]
        if len(values) < len(run.values) or any(b"\n" in value or value.startswith(MARK) for value in values):
            return None
        if self._lift.own_time:
            times = [time for time in run.times if time is not None]
            if len(times) < len(values) or not EARLIEST <= min(times) <= max(times) <= LATEST:
                return None
        return self._with_surroundings(run, values)

    def _with_surroundings(self, run: RowRun, values: list[bytes]) -> list[bytes] | None:
        """JSON objects with what surrounds them as more members, if the template names that."""
        assert self._lift.template is not None
        names = self._lift.template.surroundings
        if not names:
            return values
        made: list[bytes] = []
        try:
            for row, text in enumerate(values):
                around = run.around(row, "")
                given = ((name, around.value(name)) for name in names)
                members = [f"{_json(name)}:{_json(value)}," for name, value in given]
                whole = text.lstrip(b" \t\r")
                made.append(b"{" + "".join(members).encode() + whole[1:] if whole.startswith(b"{") else whole)
        except UNREADABLE:  # a key that is no text
            return None
        return made

    def _lifted_records(self, run: RowRun, rows: list[bytes], reject: RejectCallback) -> Batch:
        """The same as record by record, many at a time."""
        assert self._lift.template is not None
        own = self._lift.own_time
        layout = self._layout
        if self._has_blank_nodes:
            layout = self._layout_of(run.place)
            layout.number_lines(np.array(run.positions, np.int64))
        text = Text(BytesIO(b"\n".join(rows) + b"\n"), sys.maxsize, 0)

        def elements(count: int | None) -> Iterator[Element]:
            done = 0
            while (count is None or done < count) and text.more():
                begin, row = text.taken, text.line
                next(text)
                done += 1
                for time, triples in self._lifted_row(run, row, self._found(run, row), reject):
                    yield Element(self._declaration.iri, begin if own else time, triples)

        found = lifted_text(text, layout, self._lift.template, self._lift.unit, self._stream, self._intake, elements)
        batch = Batch.concatenate(found)
        if not own or not len(batch):
            return batch
        begins = np.cumsum([0, *(len(row) + 1 for row in rows[:-1])])
        times = np.array(run.times, np.int64)[np.searchsorted(begins, batch.times, "right") - 1]
        return Batch(times, batch.streams, batch.counts, batch.triples)

    def _layout_of(self, place: str) -> Layout:
        """The layout with the blank nodes of a place."""
        if place not in self._layouts:
            if len(self._layouts) >= _PLACES:
                self._layouts.clear()
            made = _layout(self._lift, blank_scope(self._declaration, place))
            assert made is not None
            self._layouts[place] = made
        return self._layouts[place]

    def _own(self, run: RowRun, number: int) -> int | None:
        """The time of a row, if it is to be used."""
        if not self._lift.own_time:
            return None
        time = run.times[number]
        if time is None:
            raise ValueError("the row has no time")
        return parse_time(time)


def _layout(lift: Lift, scope: str) -> Layout | None:
    """How the kernel reads the records of a lift, if it does, with blank nodes of a scope."""
    if lift.template is None or lift.form not in ("csv", "json") or (lift.form == "csv" and not lift.header):
        return None
    timed = not lift.own_time
    if lift.form == "json":
        return json_layout(lift.template, lift.unit, scope, timed=timed, surroundings=True)
    return csv_layout(lift.template, lift.header, lift.template.delimiter or ",", lift.unit, scope, timed=timed)


def _json(value: Value) -> str:
    return "null" if value is None else json.dumps(lexical(value)[0], ensure_ascii=False)


def _digest(data: bytes) -> str:
    return blake2s(data, digest_size=8).hexdigest()
