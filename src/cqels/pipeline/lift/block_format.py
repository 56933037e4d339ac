"""The format of a block: many elements in one binary value, which lifts write and engines on any machine read.

Elements are encoded by words (`cqels.model.ids`), and the words of literals mean the same everywhere; those of a
dictionary do not.  So a block has a table of the distinct words of its triples: first literals by themselves, then the
N-Triples texts of the others.  The triples are numbers in that table.

    bytes   of a block
    0–2     CQB
    3       version
    4       0, or 1 if all behind is compressed (LZ4; first 8 bytes: the size of what was compressed)
    5 …     the numbers of elements, triples, literals and texts; the columns times (see below), streams, counts,
            subjects, predicates, objects, literals, lengths of texts; the texts

A column is written as the least of its values (8 bytes), the bytes of a number (1 byte: 0, 1, 2, 4 or 8), and the
differences from the least, which are all 0 if a number has no bytes.  Times are the first one (8 bytes), a unit (8
bytes), and a column of the differences between one and the next, counted in units.  All numbers are little-endian, and
differences wrap around, so that every 64-bit number can be written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow

from cqels.ingest.element_batch import Batch, Words
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import DataError

MAGIC = b"CQB"
VERSION = 1
PLAIN, COMPRESSED = 0, 1
_HEAD = 5
_LEAST_COMPRESSED = 512
"""Bytes below which a block is left as it is."""
_SIZES: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


def pack(batch: Batch, dictionary: ArenaDictionary, *, compress: bool = True) -> bytes:
    """The block of some elements: `unpack(pack(batch, one), other)` has the same elements in the words of `other`."""
    codes, words = _coded(batch.triples)
    is_literal = words < 0
    ranks = np.empty(len(words), np.int64)
    ranks[is_literal] = np.arange(int(is_literal.sum()))
    ranks[~is_literal] = np.arange(int(is_literal.sum()), len(words))
    texts, lengths = dictionary.joined_texts(words[~is_literal])
    literals = words[is_literal]
    triples = ranks[codes].reshape(-1, 3)
    content = b"".join(
        [
            np.array([len(batch), len(triples), len(literals), len(lengths)], "<i8").tobytes(),
            _times(batch.times),
            *(_column(each) for each in (batch.streams, batch.counts, *triples.T, literals, lengths)),
            texts,
        ]
    )
    if not compress or len(content) < _LEAST_COMPRESSED:
        return MAGIC + bytes([VERSION, PLAIN]) + content
    small: bytes = pyarrow.compress(content, codec="lz4", asbytes=True)
    return MAGIC + bytes([VERSION, COMPRESSED]) + len(content).to_bytes(8, "little") + small


def unpack(data: bytes, dictionary: ArenaDictionary) -> Batch:
    """The elements of a block; their terms are interned.

    The dictionary must forget none of them before they have been given to the engine: what travels together is unpacked
    together, then pushed.
    """
    reader = _Reader(_content(data))
    try:
        elements, triples, literals, texts = reader.words(4).tolist()
        times = reader.times(elements)
        streams, counts = reader.column(elements), reader.column(elements)
        if int(counts.sum()) != triples:
            raise ValueError("the elements have more or fewer triples than there are")
        codes = [reader.column(triples) for _ in range(3)]
        table = np.concatenate([reader.column(literals), reader.texts(texts, dictionary)])
        return Batch(times, streams, counts, table[np.stack(codes, axis=1).reshape(-1)])
    except (ValueError, IndexError) as error:
        raise DataError(f"the block is cut off or changed: {error}") from None


def latest_of(data: bytes) -> int:
    """The largest time in a block, which has elements."""
    reader = _Reader(_content(data))
    elements = int(reader.words(4)[0])
    return int(reader.times(elements).max())


def elements_of(data: bytes) -> int:
    """How many elements a block has."""
    return int(_Reader(_content(data)).words(1)[0])


# ---------------------------------------------------------------- writing


def _coded(words: Words) -> tuple[Words, Words]:
    """The distinct words in the order in which they come, and for each word its number among them."""
    coded = pyarrow.array(words).dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_numpy()


def _column(values: Words) -> bytes:
    if not len(values):
        return b""
    values = np.ascontiguousarray(values)
    least = values.min()
    differences = values.view(np.uint64) - least.view(np.uint64)
    most = int(differences.max())
    size = next((size for size in (0, 1, 2, 4) if most < 1 << 8 * size), 8)
    kept = differences.astype(_SIZES[size]).tobytes() if size else b""
    return bytes(least.astype("<i8").tobytes() + bytes([size]) + kept)


def _times(times: Words) -> bytes:
    if not len(times):
        return b""
    with np.errstate(over="ignore"):
        steps = np.diff(times)
    unit = max(abs(int(np.gcd.reduce(steps))), 1) if len(steps) else 1
    if unit > 1 << 62:  # the size of the smallest number of 64 bits is no such number
        unit = 1
    return np.array([times[0], unit], "<i8").tobytes() + _column(steps // unit)


# ---------------------------------------------------------------- reading


def _content(data: bytes) -> bytes:
    if data[:3] != MAGIC or len(data) < _HEAD:
        raise DataError("this is not a block of elements")
    if data[3] != VERSION:
        raise DataError(
            f"the block is of version {data[3]}, and this is version {VERSION}",
            hint="all machines need the same version of cqels",
        )
    if data[4] == PLAIN:
        return data[_HEAD:]
    size = int.from_bytes(data[_HEAD : _HEAD + 8], "little")
    try:
        content = pyarrow.decompress(data[_HEAD + 8 :], decompressed_size=size, codec="lz4", asbytes=True)
    except (OSError, MemoryError, OverflowError, pyarrow.ArrowException) as error:
        raise DataError(f"the block is cut off or changed: {error}") from None
    assert isinstance(content, bytes)
    return content


class _Reader:
    """Takes part after part from the content of a block."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def words(self, count: int) -> Words:
        return self._array(np.dtype("<i8"), count).astype(np.int64)

    def column(self, count: int) -> Words:
        if count == 0:
            return np.empty(0, np.int64)
        least = self.words(1)
        (size,) = self._array(_SIZES[1], 1).tolist()
        if size == 0:
            return np.repeat(least, count)
        if size not in _SIZES:
            raise ValueError(f"a number of {size} bytes")
        differences = self._array(_SIZES[size], count).astype(np.uint64)
        return (differences + least.view(np.uint64)).view(np.int64)

    def times(self, count: int) -> Words:
        if count == 0:
            return np.empty(0, np.int64)
        first, unit = self.words(2)
        with np.errstate(over="ignore"):
            return np.cumsum(np.concatenate([[first], self.column(count - 1) * unit]), dtype=np.int64)

    def texts(self, count: int, dictionary: ArenaDictionary) -> Words:
        lengths = self.column(count)
        size = int(lengths.sum())
        if np.any(lengths < 0) or self._at + size > len(self._content):
            raise ValueError("the texts are longer than the block")
        texts = self._content[self._at : self._at + size]
        self._at += size
        return dictionary.intern_texts(texts, lengths)

    def _array(self, kind: np.dtype[Any], count: int) -> npt.NDArray[Any]:
        found = np.frombuffer(self._content, kind, count, self._at)
        self._at += kind.itemsize * count
        return found
