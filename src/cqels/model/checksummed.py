"""Bytes under a seal: what is written to be read by a later process, in parts with their sizes and checksums.

    bytes    of what is sealed
    0–5      CQELS and the version of the seal
    6–7      what it is, two letters
    8–11     how many parts there are, n
    12 …     for each part its size (8 bytes) and its CRC-32 (4 bytes)
    12+12n … the CRC-32 of all before (4 bytes), then the parts

All numbers are little-endian.  A byte that was changed, lost or added is found, before anything is believed.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias
from zlib import crc32

from cqels.model.durable_files import write_all
from cqels.model.errors import Damaged

_MAGIC = b"CQELS\x01"
_HEAD = struct.Struct("<6s2sI")
_PART = struct.Struct("<QI")
_SUM = struct.Struct("<I")

_CHECKSUM = "checksum"
_CHUNK = 4 << 20
"""Bytes that are written at a time."""

Bytes: TypeAlias = bytes | memoryview


def seal(kind: str, parts: Sequence[Bytes]) -> bytes:
    """The parts under a seal.

    >>> [bytes(part) for part in unseal("xx", seal("xx", [b"one", b""]), "it")]
    [b'one', b'']
    """
    head = _HEAD.pack(_MAGIC, kind.encode(), len(parts))
    head += b"".join(_PART.pack(memoryview(part).nbytes, crc32(part)) for part in parts)
    return b"".join([head, _SUM.pack(crc32(head)), *parts])


def write_sealed(file: int, kind: str, parts: Sequence[Sequence[Bytes]]) -> int:
    """Write to a new file what `seal` would give, each part in pieces, without a copy of them: how many bytes.

    Nothing but the pieces is touched: a process that was forked may do this while others of its threads held locks.
    """
    head_size = _HEAD.size + _PART.size * len(parts)
    os.lseek(file, head_size + _SUM.size, os.SEEK_SET)
    head, total = _HEAD.pack(_MAGIC, kind.encode(), len(parts)), head_size + _SUM.size
    for part in parts:
        size = checksum = 0
        for piece in part:
            whole = memoryview(piece).cast("B")
            for at in range(0, whole.nbytes, _CHUNK):
                chunk = whole[at : at + _CHUNK]
                checksum = crc32(chunk, checksum)
                write_all(file, chunk)
            size += whole.nbytes
        head += _PART.pack(size, checksum)
        total += size
    os.lseek(file, 0, os.SEEK_SET)
    write_all(file, head + _SUM.pack(crc32(head)))
    return total


def unseal(kind: str, data: Bytes, what: str, *, hint: str | None = None) -> list[memoryview]:
    """The parts of what was sealed; refuses what is damaged, which is called `what`."""
    whole = memoryview(data).cast("B")

    def damaged(how: str) -> Damaged:
        return Damaged(f"{what} is damaged: {how}", hint=hint)

    if whole.nbytes < _HEAD.size:
        raise damaged(f"it has {whole.nbytes} bytes")
    magic, found, count = _HEAD.unpack_from(whole)
    start = _HEAD.size + _PART.size * count
    if magic != _MAGIC or found != kind.encode():
        raise damaged("it does not begin as it should")
    if whole.nbytes < start + _SUM.size or _SUM.unpack_from(whole, start) != (crc32(whole[:start]),):
        raise damaged("its head has other bytes than were written")
    sizes = [_PART.unpack_from(whole, _HEAD.size + _PART.size * number) for number in range(count)]
    at, parts = start + _SUM.size, []
    if whole.nbytes != at + sum(size for size, _ in sizes):
        raise damaged(f"it has {whole.nbytes:,} bytes, and {at + sum(size for size, _ in sizes):,} were written")
    for size, checksum in sizes:
        part = whole[at : at + size]
        if crc32(part) != checksum:
            raise damaged(f"of its bytes {at:,} to {at + size:,} some are not those that were written")
        parts.append(part)
        at += size
    return parts


def is_sealed(kind: str, data: Bytes) -> bool:
    """Whether something begins as what is sealed does."""
    return bytes(memoryview(data)[:8]) == _MAGIC + kind.encode()


def seal_json(value: dict[str, Any], *, indent: int | None = None) -> str:
    """A JSON object with the checksum of all that is in it.

    >>> unseal_json(seal_json({"a": 1}), "it")
    {'a': 1}
    """
    return json.dumps({**value, _CHECKSUM: _sum_of(value)}, indent=indent)


def unseal_json(text: str | bytes, what: str, *, hint: str | None = None) -> dict[str, Any]:
    """What was sealed; refuses what is damaged, which is called `what`."""
    try:
        value = json.loads(text)
        checksum = value.pop(_CHECKSUM)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise Damaged(f"{what} is damaged: it is not the JSON that was written", hint=hint) from None
    if checksum != _sum_of(value):
        raise Damaged(f"{what} is damaged: it has other values than were written", hint=hint)
    assert isinstance(value, dict)
    return value


def _sum_of(value: dict[str, Any]) -> int:
    return crc32(json.dumps(value, sort_keys=True).encode())
