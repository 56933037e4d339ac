"""What users push: texts, triples, blocks of either, lines that carry their times; all become batches of words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
from pyoxigraph import RdfFormat

from cqels.ingest.element import Element
from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.input_files import MARK
from cqels.ingest.parse_errors import UNREADABLE, parsed, triple_of
from cqels.ingest.rdf_objects import triples_of
from cqels.ingest.term_codec import Terms
from cqels.ingest.timed_lines import parse_timed_line
from cqels.kernels.readers.line_blocks import Block, tokenize
from cqels.kernels.readers.line_tokenizer import EMPTY, TIMED, TRIPLE
from cqels.model.errors import CqelsError, DataError
from cqels.model.terms import Triple
from cqels.model.time import parse_time, unit_nanoseconds

Text: TypeAlias = str | bytes
Data: TypeAlias = Any
"""Text, or what `cqels.ingest.rdf_objects` takes: triples, graphs and datasets of pyoxigraph and rdflib."""
Time: TypeAlias = datetime | int | str | np.datetime64 | np.integer[Any]
StreamBlock: TypeAlias = Text | tuple[Iterable[Data], Iterable[Time]]
"""Elements of a stream: lines of timed N-Triples, or a list of data with a list of times."""


class Intake:
    """Encodes what comes in."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def one(self, stream: int, data: Data, time: Time) -> Batch:
        """One element."""
        words = self._words(data)
        if not words:
            raise DataError("an element has at least one triple")
        return _batch([nanoseconds(time)], stream, [len(words) // 3], words)

    def several(self, stream: int, data: Iterable[Data], times: Iterable[Time]) -> Batch:
        """A block of elements, each with its time."""
        if isinstance(data, str | bytes) or not isinstance(data, Iterable):
            raise CqelsError("there is one element and a list of times", hint="give a list of elements")
        data, moments = list(data), [*map(nanoseconds, times)]
        if len(data) != len(moments):
            raise CqelsError(f"there are {len(data)} elements and {len(moments)} times")
        if all(isinstance(each, str | bytes) for each in data):
            texts = [bytes_of(each) for each in data]
            counts, words = self._texts(texts)
        else:
            parts = self._parts(data)
            counts = [len(part) // 3 for part in parts]
            words = [word for part in parts for word in part]
        if 0 in counts:
            raise DataError(f"element {counts.index(0) + 1} of the block has no triple")
        return _batch(moments, stream, counts, words)

    def lines(
        self,
        stream: int,
        data: bytes,
        *,
        unit: str = "ms",
        scope: str = "",
        final: bool = True,
        reject: Callable[[int, str, str], None],
    ) -> tuple[Batch, int, int]:
        """Timed N-Triples, each line an element: the batch, the bytes that were read, and the lines.

        What is no such line goes to `reject`: its number from 0, the reason, the line.
        """
        size = unit_nanoseconds(unit)
        assert size is not None
        block = tokenize(self.terms.dictionary, data, unit=size, scope=scope, final=final)
        kinds = block.kind
        if np.all(kinds == TIMED):
            batch = Batch(
                block.fourth.copy(),
                np.full(len(block), stream, np.int64),
                np.ones(len(block), np.int64),
                np.ascontiguousarray(block.records[:, :3]).reshape(-1),
            )
            return batch, block.end, len(block)
        parts = []
        start = 0
        for place in np.flatnonzero(kinds != TIMED).tolist():
            parts.append(_timed(block, stream, start, place))
            start = place + 1
            if kinds[place] != EMPTY:
                parts.append(self._odd(block, stream, place, unit, scope, reject))
        parts.append(_timed(block, stream, start, len(block)))
        return Batch.concatenate(parts), block.end, len(block)

    def _odd(
        self, block: Block, stream: int, place: int, unit: str, scope: str, reject: Callable[[int, str, str], None]
    ) -> Batch:
        """A line that the tokenizer did not take for one with a time."""
        line = block.line(place).decode("utf-8", "surrogateescape")
        try:
            found = parse_timed_line(line, unit, scope)
        except ValueError as error:
            reject(place, str(error), line)
            return Batch.empty()
        return Batch.empty() if found is None else self.triples(stream, *found)

    def triples(self, stream: int, time: int, triples: Sequence[Triple]) -> Batch:
        """One element of terms."""
        words = [word for triple in triples for word in self.terms.encode_all(triple)]
        return _batch([time], stream, [len(triples)], words)

    def elements(self, stream: int, elements: Iterable[Element]) -> Batch:
        """Elements of terms, one after the other."""
        encode = self.terms.encode
        times: list[int] = []
        counts: list[int] = []
        words: list[int] = []
        for each in elements:
            times.append(each.time)
            counts.append(len(each.triples))
            for subject, predicate, object in each.triples:
                words += (encode(subject), encode(predicate), encode(object))
        return _batch(times, stream, counts, words)

    def _words(self, data: Data) -> list[int]:
        return self._text(bytes_of(data)) if isinstance(data, str | bytes) else self._triples(triples_of(data))

    def _parts(self, block: Sequence[Data]) -> list[list[int]]:
        """The words of each element; what is wrong with one is told with its place."""
        parts = []
        for number, data in enumerate(block, 1):
            try:
                parts.append(self._words(data))
            except DataError as error:
                raise DataError(f"element {number} of the block: {error.message}", hint=error.hint) from None
        return parts

    def _triples(self, data: Iterable[Triple]) -> list[int]:
        encode = self.terms.encode
        found: list[int] = []
        for triple in data:
            subject, predicate, value = triple
            found += (encode(subject), encode(predicate), encode(value))
        return found

    def _texts(self, texts: list[bytes]) -> tuple[list[int], list[int] | Words]:
        """All texts at once where each is plain N-Triples, else one by one."""
        lines = [text.count(b"\n") + 1 for text in texts]
        block = tokenize(self.terms.dictionary, b"\n".join(texts) + b"\n")
        kinds = block.kind
        if len(block) == sum(lines) and np.all((kinds == TRIPLE) | (kinds == EMPTY)):
            full = kinds == TRIPLE
            owners = np.repeat(np.arange(len(texts)), lines)
            counts = np.bincount(owners[full], minlength=len(texts))
            return counts.tolist(), np.ascontiguousarray(block.records[full, :3]).reshape(-1)
        parts = self._parts(texts)
        return [len(part) // 3 for part in parts], [word for part in parts for word in part]

    def _text(self, text: bytes) -> list[int]:
        """The words of N-Triples or Turtle."""
        try:
            triples = [triple_of(quad) for quad in parsed(text, RdfFormat.TURTLE)]
        except UNREADABLE as error:
            raise DataError(f"the data is neither N-Triples nor Turtle: {error}") from None
        return self._triples(triples)


def _timed(block: Block, stream: int, start: int, end: int) -> Batch:
    if start == end:
        return Batch.empty()
    records = block.records[start:end]
    return Batch(
        block.fourth[start:end].copy(),
        np.full(end - start, stream, np.int64),
        np.ones(end - start, np.int64),
        np.ascontiguousarray(records[:, :3]).reshape(-1),
    )


def _batch(times: list[int], stream: int, counts: Sequence[int], words: Sequence[int] | Words) -> Batch:
    return Batch(
        np.array(times, np.int64),
        np.full(len(times), stream, np.int64),
        np.array(counts, np.int64),
        np.asarray(words, np.int64),
    )


def bytes_of(text: Text) -> bytes:
    """A text in UTF-8, without the mark that some programs begin one with."""
    try:
        return (text.encode() if isinstance(text, str) else text).removeprefix(MARK)
    except UnicodeEncodeError as error:
        raise DataError(f"character {error.start + 1} of the text is half a character: it is not Unicode") from None


def nanoseconds(time: Time) -> int:
    """A time that a user gives."""
    try:
        match time:
            case np.datetime64() if not np.isnat(time):
                return parse_time(np.datetime_as_string(time, unit="ns"))
            case np.integer():
                return parse_time(int(time))
            case _:
                return parse_time(time)
    except ValueError as error:
        raise CqelsError(str(error), hint=_TIMES) from None


_TIMES = "a time is a datetime (in UTC unless it has a zone), an int of nanoseconds since 1970, or a text such as '4s'"
