"""The log of an engine instance in files: a record for each batch with what arrived in it, and a note.

A log is a chain of *segments*, the files `log-00000001`, `log-00000002` …; a new one begins with each snapshot.

    bytes   of a segment                      bytes   of a record
    0–7     CQELSLG and the version           0–7     the batch; all ones if another segment follows
    8–15    its number                        8–15    the size of its content
    16–19   CRC-32 of these                   16–19   CRC-32 of the content
    20 …    records                           20–23   CRC-32 of these, behind that of the record before
                                              24 …    content

The content is JSON behind its size (4 bytes), then the blocks of the arrivals that it names, then a dot.  Numbers are
little-endian.

A record is on the disk before `append` returns.  So a crash leaves at most the last record incomplete: one that is cut
short, or whose missing sectors are zeros.  Such a record is cut off; nothing of its batch has left the process.
Whatever else is not as it was written is damage, and is refused.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

from cqels.model.durable_files import sync_folder, write_all
from cqels.model.errors import CqelsError, Damaged
from cqels.pipeline.instance.instance_commands import Arrival

_MAGIC = b"CQELSLG\x01"
_SEGMENT = struct.Struct("<8sQI")
_RECORD = struct.Struct("<QQII")
_SUM = struct.Struct("<I")
_SIZE = struct.Struct("<I")
_FOLLOWED = (1 << 64) - 1
"""Instead of a batch: the log goes on in the next segment."""
_SECTOR = 512
_END = b"."
"""The last byte of a record: a last sector of zeros was never written."""
_PREFIX = "log-"
_ANEW = "restore the folder from a copy, or begin with a new one"


@dataclass(frozen=True, slots=True)
class Record:
    """A batch: what arrived in it, with the stops of queries that were noted, and a note of the one who drives it."""

    batch: int
    arrivals: tuple[Arrival, ...]
    note: dict[str, Any]
    digest: str
    """Of the arrivals that were given, without what was noted of them."""

    def written(self) -> bytes:
        blocks = [each.block for each in self.arrivals if each.block is not None]
        entries = [
            [each.stream, each.sequence, None if each.block is None else len(each.block), each.command]
            for each in self.arrivals
        ]
        known = json.dumps(
            {"note": self.note, "digest": self.digest, "arrivals": entries}, separators=(",", ":")
        ).encode()
        return b"".join([_SIZE.pack(len(known)), known, *blocks, _END])

    @staticmethod
    def read(batch: int, content: bytes) -> Record:
        (size,) = _SIZE.unpack_from(content)
        at = _SIZE.size + size
        known = json.loads(content[_SIZE.size : at])
        arrivals = []
        for stream, sequence, length, command in known["arrivals"]:
            block = None if length is None else content[at : at + length]
            at += length or 0
            arrivals.append(Arrival(stream, sequence, block, command))
        return Record(batch, tuple(arrivals), known["note"], known["digest"])


def digest_of(arrivals: Sequence[Arrival]) -> str:
    """The same for the same arrivals."""
    known = sha256()
    for stream, sequence, block, command in arrivals:
        known.update(json.dumps([stream, sequence, None if block is None else len(block), command]).encode())
        known.update(block or b"")
    return known.hexdigest()


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a record is in its segment, and the checksum that the next one is chained to."""

    batch: int
    start: int
    end: int
    chain: int


class Segment:
    """One file of the log, at whose end records are appended."""

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number
        self._file = -1
        self._end = self._chain = 0
        self._entries: list[_Entry] = []
        self.followed = False
        """Another segment follows."""

    @classmethod
    def create(cls, folder: Path, number: int) -> Segment:
        """A new segment, which is durable, and has no record."""
        made = cls(_path(folder, number), number)
        head = _SEGMENT.pack(_MAGIC, number, crc32(_MAGIC + number.to_bytes(8, "little")))
        made._file = os.open(made.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        made._end, made._chain = len(head), crc32(head)
        write_all(made._file, head)
        os.fdatasync(made._file)
        sync_folder(folder)
        return made

    @property
    def size(self) -> int:
        """Bytes of its records."""
        return self._end - _SEGMENT.size

    # ------------------------------------------------------------ writing

    def append(self, record: Record) -> None:
        """Add a record; it is on the disk when this returns."""
        self._append(record.batch, record.written())

    def close_followed(self) -> None:
        """Note that the log goes on in the next segment, which is there."""
        self._append(_FOLLOWED, b"")
        self.followed = True

    def _append(self, batch: int, content: bytes) -> None:
        head = struct.pack("<QQI", batch, len(content), crc32(content))
        chain = crc32(head, self._chain)
        try:
            os.lseek(self._file, self._end, os.SEEK_SET)
            write_all(self._file, head + _SUM.pack(chain) + content)
            os.fdatasync(self._file)
        except OSError as error:
            raise CqelsError(f"{self.path} cannot be written: {(error.strerror or str(error)).lower()}") from None
        end = self._end + _RECORD.size + len(content)
        self._entries.append(_Entry(batch, self._end, end, chain))
        self._end, self._chain = end, chain

    def cut(self, batch: int) -> None:
        """Remove the records of a batch and of those after it, durably, if there are any."""
        if not any(batch <= each.batch < _FOLLOWED for each in self._entries):
            return
        kept = [each for each in self._entries if each.batch < batch]
        last = kept[-1] if kept else None
        self._end = _SEGMENT.size if last is None else last.end
        self._chain = self._first_chain() if last is None else last.chain
        self._entries, self.followed = kept, False
        os.ftruncate(self._file, self._end)
        os.fsync(self._file)

    def _first_chain(self) -> int:
        return crc32(os.pread(self._file, _SEGMENT.size, 0))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    # ------------------------------------------------------------ reading

    @property
    def has_bytes(self) -> bool:
        """It has records, or what a crash has left of one."""
        return self.path.stat().st_size > _SEGMENT.size

    def cut_short(self) -> Damaged:
        return self._damaged(self._end, "its end is gone")

    def open(self) -> None:
        """Open the file of an earlier run."""
        self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def records(self, *, last: bool) -> Iterator[Record]:
        """Its records; afterwards more can be appended. What a crash has left of one at the end is cut off.

        Only the `last` segment may have that.
        """
        size = os.fstat(self._file).st_size
        head = os.pread(self._file, _SEGMENT.size, 0)
        expected = _SEGMENT.pack(_MAGIC, self.number, crc32(_MAGIC + self.number.to_bytes(8, "little")))
        if head != expected:
            if head[:7] == _MAGIC[:7] and len(head) == _SEGMENT.size and head[7] > _MAGIC[7]:
                raise CqelsError(
                    f"{self.path} was written by a newer release of cqels", hint="go on with that release, or newer"
                )
            if not last or not (expected.startswith(head) or not any(head)) or size > _SEGMENT.size:
                raise self._damaged(0, "its head has other bytes than were written")
            os.ftruncate(self._file, 0)  # it was being created
            os.pwrite(self._file, expected, 0)
            os.fsync(self._file)
            size = _SEGMENT.size
        self._entries, self._end, self._chain = [], _SEGMENT.size, crc32(expected)
        while self._end < size:
            content = self._content(self._end, size)
            if content is None:
                if not last:
                    raise self._damaged(self._end, "a record is cut short, and others follow")
                os.ftruncate(self._file, self._end)
                os.fsync(self._file)
                return
            batch, data = content
            if batch == _FOLLOWED:
                if self._end != size:
                    raise self._damaged(self._end, "records follow where none may")
                self.followed = True
                return
            yield Record.read(batch, data)

    def _content(self, at: int, size: int) -> tuple[int, bytes] | None:
        """The record at a byte, which is stepped over; None for what a crash has left of one."""
        head = os.pread(self._file, _RECORD.size, at)
        if len(head) < _RECORD.size:
            return None
        batch, length, checksum, chain = _RECORD.unpack(head)
        if chain != crc32(head[: _RECORD.size - _SUM.size], self._chain):
            if self._only_zeros(at, size):
                return None
            raise self._damaged(at, "the head of a record has other bytes than were written")
        end = at + _RECORD.size + length
        if end > size:
            return None
        content = os.pread(self._file, length, at + _RECORD.size)
        while len(content) < length:  # one call reads at most 2 GB
            content += os.pread(self._file, length - len(content), at + _RECORD.size + len(content))
        if crc32(content) != checksum:
            if end == size and _lacks_sector(content, at + _RECORD.size):
                return None
            raise self._damaged(at, "a record has other bytes than were written")
        self._entries.append(_Entry(batch, at, end, chain))
        self._end, self._chain = end, chain
        return batch, content

    def _only_zeros(self, at: int, size: int) -> bool:
        while at < size:
            chunk = os.pread(self._file, min(1 << 20, size - at), at)
            if any(chunk):
                return False
            at += len(chunk)
        return True

    def _damaged(self, at: int, how: str) -> Damaged:
        return Damaged(f"{self.path} is damaged at byte {at:,}: {how}", hint=_ANEW)


def _lacks_sector(content: bytes, at: int) -> bool:
    """Whether a sector of the disk behind that of a record's head was never written; `at` is its place in the file."""
    return any(not any(content[each : each + _SECTOR]) for each in range(-at % _SECTOR, len(content), _SECTOR))


def segments_in(folder: Path) -> list[Segment]:
    """The segments of an earlier run in their order, not yet opened; refuses a gap."""
    names = (path.name.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*"))
    numbers = sorted(int(name) for name in names if name.isdigit())
    for number, following in pairwise(numbers):
        if following != number + 1:
            raise missing_segment(folder, number + 1)
    return [Segment(_path(folder, number), number) for number in numbers]


def missing_segment(folder: Path, number: int) -> Damaged:
    return Damaged(f"{_path(folder, number)} is gone, which has what arrived", hint=_ANEW)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{_PREFIX}{number:08}"
