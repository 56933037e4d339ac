"""Elements of several lines of a file (of one graph, one time, or one time and subject), many of them at once.

As long as all is plain, a chunk of lines is taken apart by arrays; from the first element on that is not (a malformed
line, a time that is in no graph), `cqels.ingest.timed_lines` reads the rest line by line.  Both give the same elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cqels.ingest import Rejected, StreamDeclaration
from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.element_grouping import GENERATED_AT_TIME
from cqels.ingest.encode import Intake
from cqels.ingest.input_files import numbered_lines
from cqels.ingest.timed_lines import LineKind, blank_scope, read_texts
from cqels.kernels.readers.line_blocks import Block, tokenize
from cqels.kernels.readers.line_tokenizer import EMPTY, QUAD, TIMED
from cqels.model.time import unit_nanoseconds

LONGEST = 1 << 24
"""Bytes of an element that is still read as bytes."""
ELEMENTS = 1000
"""Elements that are encoded at a time where lines are read one by one."""


def run_batches(
    declaration: StreamDeclaration,
    path: Path | str,
    kind: LineKind,
    chunks: Iterator[bytes],
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
) -> Iterator[Batch]:
    """The elements of a file, given in chunks of whole lines."""
    runs = _Runs(declaration, path, kind, stream, intake)
    held, line = b"", 1
    for data in chain(chunks, [b""]):
        text = held + data
        found = runs.taken(text, final=not data)
        if found is None:
            numbered = numbered_lines(chain([text], chunks), line)
            yield from _one_by_one(declaration, path, kind, numbered, stream, intake, reject)
            return
        batch, read, lines = found
        held, line = text[read:], line + lines
        yield batch


def _one_by_one(
    declaration: StreamDeclaration,
    path: Path | str,
    kind: LineKind,
    texts: Iterable[tuple[int, str]],
    stream: int,
    intake: Intake,
    reject: Callable[[Rejected], None],
) -> Iterator[Batch]:
    elements = read_texts(declaration, path, texts, reject, kind=kind)
    while some := list(islice(elements, ELEMENTS)):
        yield Batch.concatenate(intake.triples(stream, each.time, each.triples) for each in some)


class _Runs:
    """Takes chunks apart."""

    def __init__(
        self, declaration: StreamDeclaration, path: Path | str, kind: LineKind, stream: int, intake: Intake
    ) -> None:
        self._declaration = declaration
        self._scope = blank_scope(declaration, path)
        self._quads = kind == "quads"
        self._stream = stream
        self._terms = intake.terms
        size = unit_nanoseconds(declaration.unit)
        assert size is not None
        self._unit = size

    def taken(self, text: bytes, *, final: bool) -> tuple[Batch, int, int] | None:
        """The elements that are complete, the bytes of their lines and how many these are; None if not all is plain."""
        if len(text) > LONGEST:
            return None
        block = tokenize(self._terms.dictionary, text, unit=self._unit, scope=self._scope)
        full = block.kind == (QUAD if self._quads else TIMED)
        if not np.all(full | (block.kind == EMPTY)):
            return None
        rows = np.flatnonzero(full)
        starts = self._starts(block, rows)
        if final:
            end, lines = len(text), len(block)
            ends = len(rows)
        elif len(starts):
            ends = int(starts[-1])
            lines = int(rows[ends])
            end = int(block.start[lines])
            starts = starts[:-1]
        else:
            return Batch.empty(), 0, 0
        batch = self._batch(block.records[rows[:ends]], starts)
        return None if batch is None else (batch, end, lines)

    def _starts(self, block: Block, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Which of the rows begin an element."""
        if not len(rows):
            return rows
        keys = block.records[rows]
        new = keys[1:, 3] != keys[:-1, 3]
        if self._declaration.element == "subject":
            new |= keys[1:, 0] != keys[:-1, 0]
        return np.concatenate([[0], np.flatnonzero(new) + 1])

    def _batch(self, records: Words, starts: npt.NDArray[np.intp]) -> Batch | None:
        if not len(starts):
            return Batch.empty()
        times = self._stated(records, starts) if self._quads else records[starts, 3]
        if times is None:
            return None
        counts = np.diff(np.append(starts, len(records)))
        streams = np.full(len(starts), self._stream, np.int64)
        return Batch(times, streams, counts, np.ascontiguousarray(records[:, :3]).reshape(-1))

    def _stated(self, records: Words, starts: npt.NDArray[np.intp]) -> Words | None:
        """The time that each graph states, None if one does not state one time."""
        clock = self._terms.encode(self._declaration.time or GENERATED_AT_TIME)
        found = records[:, 1] == clock
        if self._declaration.time is None:
            found &= records[:, 0] == records[:, 3]
        rows = np.flatnonzero(found)
        words, places = np.unique(records[rows, 2], return_inverse=True)
        known = self._times(words)
        if known is None:
            return None
        times = known[places]
        owners = np.searchsorted(starts, rows, side="right") - 1
        made = np.zeros(len(starts), np.int64)
        made[owners] = times
        each_has_one = len(np.unique(owners)) == len(starts) and bool(np.all(made[owners] == times))
        return made if each_has_one else None

    def _times(self, words: Words) -> Words | None:
        """The times that literals stand for, None if one of them is no time: read as the ends of lines."""
        inside = words < 0  # negative words hold their literals
        texts = [str(term).encode() for (term,) in self._terms.decode_rows(words[inside].reshape(-1, 1))]
        texts += (text or b"" for text in self._terms.dictionary.texts(words[~inside]))
        lines = b"".join(b"<x:s> <x:p> <x:o> " + text + b" .\n" for text in texts)
        block = tokenize(self._terms.dictionary, lines, unit=self._unit)
        if len(block) != len(words) or not np.all(block.kind == TIMED):
            return None
        times = np.empty(len(words), np.int64)
        times[inside], times[~inside] = np.split(block.fourth, [int(inside.sum())])
        return times
