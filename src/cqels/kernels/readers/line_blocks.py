"""The tokenizer of lines as Python sees it: bytes in, blocks of lines out, as arrays of words (line_tokenizer.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cqels.kernels.readers.line_tokenizer import (
    FOURTH,
    FULL,
    KIND,
    NO_ROOM,
    OBJECT,
    ODD,
    PREDICATE,
    RECORD_WORDS,
    START,
    SUBJECT,
    read_lines,
)
from cqels.kernels.terms.arena_dictionary import ArenaDictionary, Words
from cqels.model.errors import ArenaFull

LONGEST_SCOPE = 128
"""Bytes that a scope of blank nodes can have."""
_TYPICAL_LINE = 64
_MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of some bytes, each a row of `records`; `kernels.readers.line_tokenizer` says what its words are."""

    data: bytes
    records: Words
    end: int
    """Where the first line that is not complete begins."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def subject(self) -> Words:
        return self.records[:, SUBJECT]

    @property
    def predicate(self) -> Words:
        return self.records[:, PREDICATE]

    @property
    def object(self) -> Words:
        return self.records[:, OBJECT]

    @property
    def fourth(self) -> Words:
        """Times of TIMED lines, graphs of QUAD lines."""
        return self.records[:, FOURTH]

    @property
    def kind(self) -> Words:
        return self.records[:, KIND]

    @property
    def start(self) -> Words:
        return self.records[:, START]

    @property
    def odd(self) -> npt.NDArray[np.intp]:
        """The numbers, from 0, of the lines that Python has to read."""
        return np.flatnonzero(self.kind == ODD)

    def line(self, number: int) -> bytes:
        """The bytes of a line, without its end."""
        last = int(self.start[number + 1]) if number + 1 < len(self) else self.end
        return self.data[int(self.start[number]) : last].removesuffix(b"\n").removesuffix(b"\r")


def tokenize(
    dictionary: ArenaDictionary,
    data: bytes,
    *,
    unit: int = _MILLISECOND,
    scope: str = "",
    final: bool = True,
    room: int | None = None,
) -> Block:
    """Read lines of N-Triples, N-Quads or timed N-Triples; their terms are interned.

    `unit` is how many nanoseconds a time that is an integer counts, `scope` what blank nodes' labels are to begin with.
    Unless the data is `final`, a last line without its end is left for the next call: `data[block.end:]`. `room` is the
    number of lines that memory is taken for at first.
    """
    prefix = b"_:" + scope.encode()
    if len(prefix) > LONGEST_SCOPE:
        raise ValueError(f"the scope of blank nodes is longer than {LONGEST_SCOPE - 2} bytes")
    if final and data and not data.endswith(b"\n"):
        data += b"\n"
    end = data.rfind(b"\n") + 1
    dictionary.put_text(prefix)
    address = np.frombuffer(data, np.uint8).ctypes.data if data else 0
    base, offset = dictionary.arena.base, dictionary.offset
    records: np.ndarray[Any, np.dtype[np.int64]] = np.empty((room or end // _TYPICAL_LINE + 16, RECORD_WORDS), np.int64)
    position = lines = 0
    while True:
        out = records.ctypes.data + 8 * RECORD_WORDS * lines
        state, more, position = read_lines(
            base, offset, address, position, end, out, len(records) - lines, unit, len(prefix)
        )
        lines += more
        if state == FULL:
            raise ArenaFull
        if state != NO_ROOM:
            break
        records = np.concatenate([records, np.empty_like(records)])
    return Block(data, records[:lines], end)
