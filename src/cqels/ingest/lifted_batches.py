"""Records lifted by a template, many lines at a time; what is not plain is read by `cqels.ingest.lifting_template`.

Both ways give the same elements, and only the second one rejects anything.  It reads single records that are not plain,
long stretches of a file in which few are, and all of it if an element is not a record or the kernel does not take the
template (`csv_layout`, `json_layout`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import IO, TypeAlias, cast

import numpy as np

from cqels.ingest import Element, Rejected, StreamDeclaration
from cqels.ingest.element_batch import Batch
from cqels.ingest.encode import Intake
from cqels.ingest.grouped_lines import ELEMENTS
from cqels.ingest.input_files import MARK, text_of_line
from cqels.ingest.lifting_template import Template, delimiter_of, lift_records
from cqels.ingest.parse_errors import UNREADABLE
from cqels.ingest.record_layout import Layout, csv_layout, json_layout
from cqels.ingest.record_readers import check_columns, csv_names, csv_records, json_records
from cqels.ingest.timed_lines import blank_scope
from cqels.kernels.memory.byte_strings import MANY
from cqels.kernels.readers.record_lifter import DONE, FULL, NO_ROOM, UNTIMED, read_records
from cqels.model.errors import ArenaFull

PIECE = 1 << 18
"""Bytes that are read at a time: not more than stay near."""
BATCH = 1 << 21
"""Bytes whose records are a batch."""
ROOM = 1 << 14
"""Records that a batch has room for at first; memory that is not written to costs nothing."""
PATIENCE = 100
"""How many more records than the plain ones may not be plain, before the next ones are read one by one."""
PAUSE = 20_000
"""Records that are then read one by one."""
_REMEMBERED = 1 << 16
_NOTHING = (-1, 0)
"""Instead of the time of a record that is given to the kernel."""


Elements: TypeAlias = Callable[[int | None], Iterator[Element]]
"""Gives the elements of so many of the next records, or of all, read one by one."""


def lifted_batches(
    declaration: StreamDeclaration,
    path: Path,
    template: Template,
    file: IO[bytes],
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
    *,
    header: list[str] | None = None,
    line: int = 0,
    size: int = sys.maxsize,
) -> Iterator[Batch]:
    """The elements of a CSV file: all of it, or of so many bytes behind its first lines.

    Then the `header` and the number of these first lines are given too.
    """
    text = Text(file, size, line)
    delimiter = delimiter_of(template, path)
    if not header:
        text.skip(MARK)
    names = header or csv_names(text, delimiter, str(path))
    check_columns(template.columns, names, str(path))

    def elements(count: int | None) -> Iterator[Element]:
        found = csv_records(
            text,
            (),
            delimiter=delimiter,
            place=str(path),
            header=names,
            first=text.line + 1,
            give_back=text.give_back,
        )
        return lift_records(declaration, str(path), islice(found, count), template, reject)

    scope = blank_scope(declaration, path)
    layout = csv_layout(template, names, delimiter, declaration.unit, scope) if _are_records(declaration) else None
    return lifted_text(text, layout, template, declaration.unit, stream, intake, elements)


def lifted_objects(
    declaration: StreamDeclaration,
    place: str,
    template: Template,
    file: IO[bytes],
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
    *,
    line: int = 0,
    size: int = sys.maxsize,
    layout: Layout | None = None,
) -> Iterator[Batch]:
    """The elements of JSON lines: all of them, or of so many bytes behind the first lines, whose number is given.

    Those who read lines as they come make the layout once (`object_layout`).
    """
    text = Text(file, size, line)
    if line == 0:
        text.skip(MARK)

    def elements(count: int | None) -> Iterator[Element]:
        found = json_records(text.numbered())
        return lift_records(declaration, place, islice(found, count), template, reject)

    layout = layout or object_layout(declaration, place, template)
    return lifted_text(text, layout, template, declaration.unit, stream, intake, elements)


def object_layout(declaration: StreamDeclaration, place: str, template: Template) -> Layout | None:
    """How the kernel reads the JSON lines at a place, if it does."""
    if not _are_records(declaration):
        return None
    return json_layout(template, declaration.unit, blank_scope(declaration, place))


def lifted_text(
    text: Text,
    layout: Layout | None,
    template: Template,
    unit: str,
    stream: int,
    intake: Intake,
    elements: Elements,
) -> Iterator[Batch]:
    """The elements of lines, by the kernel if there is a layout."""

    def one_by_one(count: int | None) -> Iterator[Batch]:
        rest = elements(count)
        while some := list(islice(rest, ELEMENTS)):
            yield intake.elements(stream, some)

    if layout is None:
        yield from one_by_one(None)
        return
    lifting = _Lifting(layout, _Times(template, unit), text, stream, intake)
    while text.more():
        batch, plain = lifting.batch(elements)
        yield batch
        if not plain:
            yield from one_by_one(PAUSE)


def _are_records(declaration: StreamDeclaration) -> bool:
    """Each record is an element."""
    return declaration.element in (None, "line")


class Text:
    """The lines of a file, of those that begin in so many bytes, that have not been taken.

    They are read into one buffer: whole lines are there from `position` to `end`, and a part of the next behind them.
    """

    def __init__(self, file: IO[bytes], size: int, line: int) -> None:
        self._file = cast(BufferedIOBase, file)
        self._left = size
        self._filled = 0
        self.before = 0
        """How many bytes were before those of the buffer."""
        self.data = bytearray()
        self._have_room(PIECE)
        self.position = self.end = 0
        self.line = line
        """How many lines have been taken."""

    @property
    def taken(self) -> int:
        """How many bytes have been taken."""
        return self.before + self.position

    def more(self) -> bool:
        """Whether a line is left."""
        if self.position == self.end:
            self._read()
        return self.position < self.end

    def skip(self, mark: bytes) -> None:
        """Take what the next line begins with, if it is this."""
        if self.more() and self.data.startswith(mark, self.position):
            self.position += len(mark)

    def _read(self) -> None:
        """Read until a line ends; the last one may have no end."""
        rest = self.data[self.end : self._filled]
        self.before += self.end
        self.data[: len(rest)] = rest
        self._filled, self.position, self.end = len(rest), 0, 0
        while self.end == 0 and (count := self._read_some()):
            self.end = self.data.rfind(b"\n", self._filled - count, self._filled) + 1
        if self.end == 0 and self._filled > 0:
            self._have_room(self._filled + 1)
            self.data[self._filled : self._filled + 1] = b"\n"
            self.end = self._filled = self._filled + 1

    def _read_some(self) -> int:
        """Read more behind what is there: how many bytes."""
        if self._left == 0:  # of the last line
            rest = self._file.readline() if self._filled > 0 else b""
            self._have_room(self._filled + len(rest))
            self.data[self._filled : self._filled + len(rest)] = rest
            count = len(rest)
        else:
            self._have_room(self._filled + 1)
            most = min(len(self.data) - MANY - self._filled, self._left)
            count = self._file.readinto(memoryview(self.data)[self._filled : self._filled + most])
            self._left -= count
        self._filled += count
        return count

    def _have_room(self, size: int) -> None:
        """Have a buffer of so many bytes at least; the kernel may look at a few more."""
        if size + MANY > len(self.data):
            larger = bytearray(max(size, 2 * len(self.data)) + MANY)
            larger[: self._filled] = self.data[: self._filled]
            self.data = larger
            self.address = np.frombuffer(larger, np.uint8).ctypes.data

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Take a line, without its end."""
        if not self.more():
            raise StopIteration
        stop = self.data.index(b"\n", self.position)
        line = self.data[self.position : stop]
        self.position, self.line = stop + 1, self.line + 1
        return text_of_line(line)

    def numbered(self) -> Iterator[tuple[int, str]]:
        """The lines with their numbers, from 1; one is taken when it is asked for."""
        for line in self:
            yield self.line, line

    def give_back(self, lines: list[str]) -> None:
        """Have lines again that were taken last."""
        data = "".join(line + ("\r\n" if line.endswith("\r") else "\n") for line in lines).encode(
            "utf-8", "surrogateescape"
        )
        rest = bytes(self.data[self.position : self._filled])
        whole = len(data) + self.end - self.position
        self.before += self.position - len(data)
        self._have_room(len(data) + len(rest))
        self.data[: len(data) + len(rest)] = data + rest
        self._filled, self.position, self.end = len(data) + len(rest), 0, whole
        self.line -= len(lines)


class _Times:
    """The times that texts state, as a template reads them, with a memory."""

    def __init__(self, template: Template, unit: str) -> None:
        self._template = template
        self._unit = unit
        self._known: dict[bytes, int | None] = {}

    def of(self, text: bytes) -> int | None:
        """The time of a text, None if it is none."""
        if text not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            value = text.decode("utf-8", "surrogateescape")
            try:
                self._known[text] = self._template.time(lambda name: value, self._unit)
            except UNREADABLE:
                self._known[text] = None
        return self._known[text]


class _Lifting:
    """Lifts batch after batch."""

    def __init__(self, layout: Layout, times: _Times, text: Text, stream: int, intake: Intake) -> None:
        self._layout = layout
        self._times = times
        self._text = text
        self._stream = stream
        self._intake = intake
        self._room = ROOM

    def batch(self, elements: Elements) -> tuple[Batch, bool]:
        """The elements of the next lines, up to where few are plain; whether enough of them are.

        `elements` gives those of the next records, where these are not plain.
        """
        text, layout, dictionary = self._text, self._layout, self._intake.terms.dictionary
        layout.encode(self._intake.terms)
        room, end = self._room, text.taken + BATCH
        words = np.empty((3 + 3 * layout.most) * room, np.int64)
        times, streams, counts, triples = np.split(words, (room, 2 * room, 3 * room))
        times_at, counts_at, triples_at = times.ctypes.data, counts.ctypes.data, triples.ctypes.data
        records = made = 0
        patience = PATIENCE
        given = _NOTHING
        while patience >= 0 and records < room and text.taken < end and text.more():
            layout.give_time(*given, text.line)
            given = _NOTHING
            state, text.position, lines, more, found = read_records(
                dictionary.arena.base,
                dictionary.offset,
                text.address,
                text.position,
                text.end,
                layout.address,
                times_at + 8 * records,
                counts_at + 8 * records,
                triples_at + 24 * made,
                room - records,
            )
            if layout.is_untimed:
                times[records : records + more] += text.before
            text.line, records, made = text.line + lines, records + more, made + found
            patience += more
            if state in (DONE, NO_ROOM):
                continue
            if state == FULL:
                raise ArenaFull
            if state == UNTIMED and (time := self._next_time()) is not None:
                given = text.position, time
                continue
            patience -= 1
            for element in elements(1):
                one = self._intake.triples(self._stream, element.time, element.triples)
                times[records], counts[records] = element.time, len(element.triples)
                triples[3 * made : 3 * made + len(one.triples)] = one.triples
                records, made = records + 1, made + len(element.triples)
        if records == room:
            self._room = 2 * room
        streams[:records] = self._stream
        return Batch(times[:records], streams[:records], counts[:records], triples[: 3 * made]), patience >= 0

    def _next_time(self) -> int | None:
        """The time of the record that was taken apart last, if it has one."""
        field = 2 * self._layout.time_field
        start, end = self._layout.fields[field : field + 2].tolist()
        return self._times.of(bytes(self._text.data[start:end]))
