"""How messages lie in the segments of an inbox: frames, each with the messages that were appended together.

    bytes    of a segment
    0–7      CQELS, the version, IN
    8–15     the offset of its first frame in the inbox: how many bytes of frames there were before
    16–23    the number of its first message
    24–27    the CRC-32 of all before

    bytes    of a frame
    0–3      the size of its content
    4–7      the CRC-32 of its content
    8–15     the number of its first message; the first of an inbox has the number 1
    16–19    how many messages there are
    20–23    which columns there are besides times and values: 1 keys, 2 topics, 4 headers
    24–27    the CRC-32 of all before
    28 …     the content: the columns' numbers, then their bytes

The content has the times (8 bytes each) and the sizes of values (4 bytes each), where there are keys their sizes (−1 is
none), topics the same, where there are headers how many each message has and the sizes of their names and values; then
all values, keys, topics, names and values of headers.  All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow

from cqels.pipeline.source.live_source import ROWS, Message

MOST_CONTENT = 1 << 30
"""Bytes of the messages of a frame."""
_MAGIC = b"CQELS\x01IN"
_SEGMENT = struct.Struct("<8sQQ")
_FRAME = struct.Struct("<IIQII")
_SUM = struct.Struct("<I")
SEGMENT_HEAD = _SEGMENT.size + _SUM.size
FRAME_HEAD = _FRAME.size + _SUM.size
_KEYS, _TOPICS, _HEADERS = 1, 2, 4

Numbers: TypeAlias = npt.NDArray[np.int64]


class Unreadable(ValueError):
    """Bytes that are not what was written; the sentence says how."""


class Cut(Unreadable):
    """Bytes that end too soon."""


class FrameHead(NamedTuple):
    size: int
    """Of the content."""
    checksum: int
    number: int
    messages: int
    columns: int

    @property
    def whole(self) -> int:
        """Bytes of the frame."""
        return FRAME_HEAD + self.size


def segment_head(offset: int, number: int) -> bytes:
    head = _SEGMENT.pack(_MAGIC, offset, number)
    return head + _SUM.pack(crc32(head))


def read_segment_head(data: bytes) -> tuple[int, int]:
    """The offset of a segment's first frame, and the number of its first message."""
    if len(data) < SEGMENT_HEAD:
        raise Unreadable("it has no beginning")
    magic, offset, number = _SEGMENT.unpack_from(data)
    if magic != _MAGIC or _SUM.unpack_from(data, _SEGMENT.size) != (crc32(data[: _SEGMENT.size]),):
        raise Unreadable("it does not begin as it should")
    return offset, number


def frame(messages: Sequence[Message], number: int) -> bytes:
    """Messages as a frame, the first of them with this number."""
    values = [each.value for each in messages]
    blobs: list[Iterable[bytes]] = [values]
    numbers = [np.array([each.time for each in messages], "<i8").tobytes(), _sizes(values)]
    columns = 0
    if any(each.key is not None for each in messages):
        columns |= _KEYS
        _optional([each.key for each in messages], numbers, blobs)
    if any(each.topic is not None for each in messages):
        columns |= _TOPICS
        _optional([None if each.topic is None else each.topic.encode() for each in messages], numbers, blobs)
    if any(each.headers for each in messages):
        columns |= _HEADERS
        pairs = [pair for each in messages for pair in each.headers]
        names, contents = [name.encode() for name, _ in pairs], [content for _, content in pairs]
        numbers += [_sizes([each.headers for each in messages]), _sizes(names), _sizes(contents)]
        blobs += [names, contents]
    content = b"".join(chain(numbers, chain.from_iterable(blobs)))
    head = _FRAME.pack(len(content), crc32(content), number, len(messages), columns)
    return b"".join((head, _SUM.pack(crc32(head)), content))


def _optional(texts: list[bytes | None], numbers: list[bytes], blobs: list[Iterable[bytes]]) -> None:
    numbers.append(np.array([-1 if each is None else len(each) for each in texts], "<i4").tobytes())
    blobs.append([each for each in texts if each])


def _sizes(parts: Sequence[Sequence[object]]) -> bytes:
    return np.fromiter(map(len, parts), "<i4", len(parts)).tobytes()


def read_frame_head(data: bytes | memoryview, at: int = 0) -> FrameHead:
    """The head of a frame; refuses what is damaged."""
    if len(data) - at < FRAME_HEAD:
        raise Cut("it ends within the head of a frame")
    if _SUM.unpack_from(data, at + _FRAME.size) != (crc32(data[at : at + _FRAME.size]),):
        raise Unreadable("a frame does not begin as it should")
    return FrameHead(*_FRAME.unpack_from(data, at))


def frames(data: memoryview, number: int | None = None) -> Iterator[tuple[FrameHead, memoryview]]:
    """The frames that lie one behind the other, with their contents; raises where one is cut off or damaged.

    The first message has the `number`, if that is known.
    """
    at = 0
    while at < len(data):
        head = read_frame_head(data, at)
        if number not in (None, head.number):
            raise Unreadable("a frame does not follow the one before it")
        number = head.number + head.messages
        content = data[at + FRAME_HEAD : at + head.whole]
        if len(content) < head.size:
            raise Cut("it ends within a frame")
        if crc32(content) != head.checksum:
            raise Unreadable("a frame has other bytes than were written")
        yield head, content
        at += head.whole


# ---------------------------------------------------------------- rows


@dataclass(slots=True)
class _Column:
    """Texts or bytes of many frames: their sizes, −1 where there is none, and what they are, joined."""

    sizes: list[Numbers]
    blobs: list[memoryview]

    def array(self, kind: pyarrow.DataType) -> pyarrow.Array:
        sizes = np.concatenate(self.sizes) if self.sizes else np.empty(0, np.int64)
        there = sizes >= 0
        offsets = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
        valid = None if there.all() else pyarrow.py_buffer(np.packbits(there, bitorder="little"))
        data = self.blobs[0] if len(self.blobs) == 1 else b"".join(self.blobs)
        buffers = [valid, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
        return pyarrow.Array.from_buffers(kind, len(sizes), buffers)


def rows_of(parts: Iterable[tuple[FrameHead, memoryview]], place: str) -> pyarrow.RecordBatch:
    """The messages of frames as rows (`ROWS`); a message's position is its number."""
    values, keys, topics = _Column([], []), _Column([], []), _Column([], [])
    names, contents = _Column([], []), _Column([], [])
    times: list[Numbers] = []
    positions: list[Numbers] = []
    counts: list[Numbers] = []
    for head, content in parts:
        cursor = _Cursor(content)
        n = head.messages
        positions.append(np.arange(head.number, head.number + n, dtype=np.int64))
        times.append(cursor.numbers(n, "<i8"))
        waiting = [(values, cursor.numbers(n, "<i4"))]
        for column, bit in ((keys, _KEYS), (topics, _TOPICS)):
            sizes = cursor.numbers(n, "<i4") if head.columns & bit else np.full(n, -1, np.int64)
            waiting.append((column, sizes))
        if head.columns & _HEADERS:
            counts.append(cursor.numbers(n, "<i4"))
            pairs = int(counts[-1].sum())
            waiting += [(names, cursor.numbers(pairs, "<i4")), (contents, cursor.numbers(pairs, "<i4"))]
        else:
            counts.append(np.zeros(n, np.int64))
        for column, sizes in waiting:
            column.sizes.append(sizes)
            if len(blob := cursor.bytes(int(sizes[sizes > 0].sum()))):
                column.blobs.append(blob)
    total = sum(map(len, positions))
    if not total:
        return pyarrow.RecordBatch.from_pylist([], schema=ROWS)
    pairs_before = np.zeros(total + 1, np.int32)
    np.cumsum(np.concatenate(counts), out=pairs_before[1:])
    arrays = [
        values.array(pyarrow.binary()),
        pyarrow.array(np.concatenate(times)).cast(pyarrow.timestamp("ns")),
        pyarrow.repeat(pyarrow.scalar(place, pyarrow.string()), total),
        pyarrow.array(np.concatenate(positions)),
        keys.array(pyarrow.binary()),
        topics.array(pyarrow.string()),
        pyarrow.MapArray.from_arrays(
            pyarrow.array(pairs_before), names.array(pyarrow.string()), contents.array(pyarrow.binary())
        ),
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=ROWS)


class _Cursor:
    """Takes a content apart, from its first byte on."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._at = 0

    def numbers(self, count: int, kind: str) -> Numbers:
        found = np.frombuffer(self.bytes(count * np.dtype(kind).itemsize), kind)
        return found.astype(np.int64)

    def bytes(self, size: int) -> memoryview:
        self._at += size
        return self._content[self._at - size : self._at]
