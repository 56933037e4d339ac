"""The durable inbox: an append-only log of messages in segments, for sources that cannot be read again.

A receiver appends what it has got, and acknowledges it afterwards; an embedded run and Spark read it from their
positions, and commit them.  Whole segments before a committed position are removed.  How messages lie in a segment is
said in `inbox_format.py`.

One process writes an inbox at a time.  What has been appended is synchronized with the disk before anybody reads it, so
a position never lies beyond what a crash leaves.  Each write is one frame and is synchronized before the next one: a
crash can cut off the last frame alone, whose messages nobody has acknowledged.  Anything else that is not as it was
written is damage, and refused.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Condition, Lock
from typing import IO, TypeAlias
from typing import Literal as OneOf

import pyarrow

from cqels.model.errors import CqelsError
from cqels.model.sizes import format_size
from cqels.pipeline.source.inbox_format import (
    MOST_CONTENT,
    SEGMENT_HEAD,
    Cut,
    Unreadable,
    frame,
    frames,
    rows_of,
    segment_head,
)
from cqels.pipeline.source.inbox_marks import END, Mark
from cqels.pipeline.source.inbox_segments import (
    SUFFIX,
    checked_head,
    damaged,
    is_unwritten,
    read_frames,
    segment_path,
    segments_of,
    sync_folder,
)
from cqels.pipeline.source.live_source import ROWS, Message, Position

SEGMENT_BYTES = 64 << 20
"""Bytes from which on a segment is not appended to."""
FRAME_BYTES = 1 << 20
"""Bytes of values from which on the messages of one append are divided into several frames."""
LIMIT = 4 << 30
"""Bytes that an inbox keeps, if nothing else is said."""
_LOG = logging.getLogger("cqels")

_NOTHING = pyarrow.RecordBatch.from_pylist([], ROWS)

WhenFull: TypeAlias = OneOf["wait", "refuse", "drop"]


class InboxFull(CqelsError):
    """An inbox has as many bytes as it may, and nobody has read them."""


class InboxClosed(CqelsError):
    """Nothing is put into an inbox any more."""


class Inbox:
    """An inbox that this process writes.

    It keeps at most `limit` bytes that nobody has committed.  `when_full` says what `append` does with more: it waits
    for a commit, it is refused with `InboxFull`, or it drops the oldest segments, of which `dropped` is given the rows
    that nobody has read.  `notify` is called, by the appending thread, whenever there is more.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        place: str = "",
        limit: int | None = LIMIT,
        when_full: WhenFull = "wait",
        segment_bytes: int = SEGMENT_BYTES,
        notify: Callable[[], None] = lambda: None,
        dropped: Callable[[pyarrow.RecordBatch], None] = lambda rows: None,
    ) -> None:
        self.folder = Path(folder)
        self.place = place or self.folder.name
        """What it is called in messages for people."""
        self._limit, self._when_full, self._notify, self._dropped = limit, when_full, notify, dropped
        self._reading, self._read_to = Lock(), 0
        self._segment_bytes = segment_bytes if limit is None else max(min(segment_bytes, limit // 4), 1)
        self._waiting: list[_Appended] = []
        self._is_writing = False
        self._changed = Condition()
        self._broken: CqelsError | None = None
        self._is_closed = False
        self._number = 1
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = self._locked()
        try:
            self._segments = segments_of(self.folder)
            self._file, self._end = self._open()
        except BaseException:
            self._lock_file.close()
            raise
        self._committed = self._segments[0]
        self._end_mark = Mark(self.folder, END)
        self._end_mark.write(self._end)

    # ------------------------------------------------------------ what there is

    @property
    def first(self) -> int:
        """The offset of the first message that is still there."""
        return self._segments[0]

    @property
    def end(self) -> int:
        """The offset behind the last message that is on the disk."""
        return self._end

    @property
    def count(self) -> int:
        """How many messages have ever been appended."""
        return self._number - 1

    @property
    def committed(self) -> int:
        """The offset before which nobody will read again."""
        return self._committed

    @property
    def uncommitted(self) -> int:
        """Bytes that nobody has committed."""
        return self._end - self._committed

    # ------------------------------------------------------------ writing

    def append(self, messages: Sequence[Message]) -> None:
        """Append messages; when it returns they survive a crash. Any thread may call it.

        What several threads append meanwhile is synchronized with the disk once.
        """
        if not messages:
            return
        mine = _Appended(messages)
        with self._changed:
            self._waiting.append(mine)
            self._changed.wait_for(lambda: mine.is_done or not self._is_writing)
            if not mine.is_done:
                self._is_writing = True
                batch, self._waiting = self._waiting, []
        if not mine.is_done:
            self._write_all(batch)
        if mine.error is not None:
            raise mine.error

    def _write_all(self, batch: list[_Appended]) -> None:
        error: CqelsError | None = None
        try:
            messages = [message for each in batch for message in each.messages]
            parts = [*_parts(messages)]
            refuses = self._when_full == "refuse"
            if refuses:  # all or nothing: who is refused sends all of it again
                self._make_room(sum(len(each.value) for each in messages))
            for part in parts:
                self._write(part, has_room=refuses)
        except CqelsError as problem:
            error = problem
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            error = CqelsError(f"the inbox {self.folder} cannot be written: {reason}")
            self._undo(error)
        except BaseException as problem:
            error = CqelsError(f"the inbox {self.folder} cannot be written: {problem}")
            self._undo(error)
            raise
        finally:
            with self._changed:
                for each in batch:
                    each.is_done, each.error = True, error
                self._is_writing = False
                self._changed.notify_all()

    def _write(self, messages: Sequence[Message], *, has_room: bool) -> None:
        data = frame(messages, self._number)
        if not has_room:
            self._make_room(len(data))
        if self._end - self._segments[-1] >= self._segment_bytes:
            self._file.close()
            self._file = self._begin_segment(self._end)
        written = 0
        while written < len(data):
            written += os.write(self._file.fileno(), memoryview(data)[written:])
        os.fdatasync(self._file.fileno())
        with self._changed:
            self._number += len(messages)
            self._end += len(data)
            self._end_mark.write(self._end)
            self._changed.notify_all()
        self._notify()

    def _make_room(self, size: int) -> None:
        """Wait until so many bytes fit; more than the limit fit where there is nothing else."""
        if self._when_full == "drop":
            self._drop_oldest(size)
            return
        with self._changed:
            self._check_open()
            if self._limit is None or not self._is_full(size):
                return
            told = f"the inbox {self.place} is full: {format_size(self.uncommitted)} have not been processed"
            if self._when_full == "refuse":
                raise InboxFull(told, hint="the sender has to wait; a larger limit only puts that off")
            _LOG.warning("%s; its source has to wait", told)
            self._changed.wait_for(lambda: self._is_closed or not self._is_full(size))
            self._check_open()
            _LOG.warning("the inbox %s has room again", self.place)

    def _drop_oldest(self, size: int) -> None:
        """Remove segments from the beginning until so many bytes fit, or nothing else is left."""
        with self._reading:
            while True:
                with self._changed:
                    self._check_open()
                    first, *others = self._segments
                    if not self._is_full(size):
                        return
                if not others:  # all is in the segment that is written to
                    if self._end == first:
                        return
                    self._file.close()
                    self._file = self._begin_segment(self._end)
                    continue
                start = max(first, self._read_to)
                if start < others[0]:
                    self._dropped(rows_of(read_frames(self.folder, start, others[0], others[0] - start)[0], self.place))
                self.commit(others[0])

    def _is_full(self, size: int) -> bool:
        assert self._limit is not None
        return self.uncommitted > 0 and self.uncommitted + size > self._limit

    def _check_open(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._is_closed:
            raise InboxClosed(f"the inbox {self.place} is closed")

    def _undo(self, error: CqelsError) -> None:
        """Remove what was written of a frame; where not even that goes, or nobody knows what the disk has, end here."""
        try:
            os.ftruncate(self._file.fileno(), SEGMENT_HEAD + self._end - self._segments[-1])
            os.fsync(self._file.fileno())
        except OSError:
            self._broken = error

    # ------------------------------------------------------------ reading

    def read(self, offset: int, most: int) -> tuple[pyarrow.RecordBatch, int]:
        """The messages from an offset on, about `most` bytes of them and at least one frame, and where they end."""
        if self._when_full == "drop":
            with self._reading:
                rows, stop = self._read(max(offset, self.first), most)
                self._read_to = max(self._read_to, stop)
                return rows, stop
        return self._read(offset, most)

    def _read(self, offset: int, most: int) -> tuple[pyarrow.RecordBatch, int]:
        with self._changed:
            end = self._end
        if offset > end:
            raise damaged(self.folder, f"it ends at byte {end:,}, and has been read to byte {offset:,}")
        if offset == end:
            return _NOTHING, end
        found, stop = read_frames(self.folder, offset, end, most)
        return rows_of(found, self.place), stop

    def wait(self, offset: int, timeout: float | None = None) -> bool:
        """Wait until there are messages behind an offset: whether there are."""
        with self._changed:
            self._changed.wait_for(lambda: self._end > offset or self._is_closed, timeout)
            return self._end > offset

    def announce(self) -> None:
        """Have those look who wait for messages: there will be no more."""
        with self._changed:
            self._changed.notify_all()
        self._notify()

    def commit(self, offset: int) -> None:
        """Nobody will read before an offset again: whole segments there are removed."""
        with self._changed:
            self._committed = max(self._committed, min(offset, self._end))
            gone = [each for each, after in zip(self._segments, self._segments[1:], strict=False) if after <= offset]
            del self._segments[: len(gone)]
            self._changed.notify_all()
        for each in gone:
            segment_path(self.folder, each).unlink(missing_ok=True)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_writing)
            self._file.close()
            self._end_mark.close()
            self._lock_file.close()

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    # ------------------------------------------------------------ opening

    def _locked(self) -> IO[bytes]:
        file = (self.folder / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise CqelsError(
                f"the inbox {self.folder} is used by another process", hint="one run at a time has it"
            ) from None
        return file

    def _open(self) -> tuple[IO[bytes], int]:
        """The last segment, and the offset behind its last message; what a crash has cut off is removed."""
        for unfinished in self.folder.glob(f"*{SUFFIX}.new"):
            unfinished.unlink()
        if not self._segments:
            return self._begin_segment(0), 0
        begin = self._segments[-1]
        path = segment_path(self.folder, begin)
        data = memoryview(path.read_bytes())
        self._number = checked_head(self.folder, begin, bytes(data[:SEGMENT_HEAD]))
        end = SEGMENT_HEAD
        try:
            for head, _ in frames(data[SEGMENT_HEAD:], self._number):
                end, self._number = end + head.whole, head.number + head.messages
        except Unreadable as error:
            if not isinstance(error, Cut) and not is_unwritten(data, end):
                raise damaged(self.folder, f"{path.name}, byte {end:,}: {error}") from None
            _LOG.warning("the inbox %s ended with %d bytes of an append that was cut off", self.place, len(data) - end)
        file = path.open("ab", buffering=0)
        file.truncate(end)
        os.fsync(file.fileno())  # a process that was killed may have written more than it synchronized
        return file, begin + end - SEGMENT_HEAD

    def _begin_segment(self, offset: int) -> IO[bytes]:
        path = segment_path(self.folder, offset)
        fresh = path.with_suffix(f"{SUFFIX}.new")
        with fresh.open("wb") as file:
            file.write(segment_head(offset, self._number))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(self.folder)
        with self._changed:
            self._segments.append(offset)
        return path.open("ab", buffering=0)


class InboxReader:
    """An inbox as a `ReplayableSource`, in the process that writes it. A position is `{"offset": bytes}`."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox

    @property
    def place(self) -> str:
        return self.inbox.place

    def start(self) -> Position:
        return {"offset": self.inbox.first}

    def read(self, position: Position, most: int) -> tuple[pyarrow.RecordBatch, Position]:
        rows, end = self.inbox.read(position["offset"], most)
        return rows, {"offset": end}

    def wait(self, position: Position, timeout: float | None = None) -> bool:
        """Wait until there are rows behind a position: whether there are."""
        return self.inbox.wait(position["offset"], timeout)

    def has_ended(self, position: Position) -> bool:
        """Somebody may always put more into it."""
        return False

    def commit(self, position: Position) -> None:
        self.inbox.commit(position["offset"])

    def close(self) -> None:
        """The inbox is closed by whoever has opened it, behind its receiver."""


class _Appended:
    """What a thread has given to `append`, and what became of it."""

    __slots__ = ("error", "is_done", "messages")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.is_done = False
        self.error: CqelsError | None = None


def _parts(messages: list[Message]) -> Iterator[list[Message]]:
    """Messages divided into those of one frame each."""
    part: list[Message] = []
    size = 0
    for each in messages:
        if len(each.value) > MOST_CONTENT:
            raise CqelsError(f"a message of {format_size(len(each.value))} is larger than an inbox takes")
        if size and size + len(each.value) > FRAME_BYTES:
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each.value)
    if part:
        yield part
