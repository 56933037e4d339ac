"""The segments of an inbox as files: which there are, their frames and rows, for any process that can read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow

from cqels.model.errors import Damaged
from cqels.pipeline.source.inbox_format import (
    FRAME_HEAD,
    SEGMENT_HEAD,
    Cut,
    FrameHead,
    Unreadable,
    frames,
    read_frame_head,
    read_segment_head,
    rows_of,
)

SUFFIX = ".inbox"
_PAGE = 4096
_HINT = "restore the folder from a copy, or remove it: what it has and was not processed is then lost"


def segment_path(folder: Path, offset: int) -> Path:
    """The segment whose first frame has this offset."""
    return folder / f"{offset:020}{SUFFIX}"


def segments_of(folder: Path) -> list[int]:
    """The offsets of the segments that there are."""
    names = [each.name.removesuffix(SUFFIX) for each in folder.glob(f"*{SUFFIX}")]
    return sorted(int(name) for name in names if name.isdigit())


def read_frames(folder: Path, start: int, end: int, most: int) -> tuple[list[tuple[FrameHead, memoryview]], int]:
    """The frames between two offsets at which frames begin, about `most` bytes and at least one, and where they end."""
    found: list[tuple[FrameHead, memoryview]] = []
    at = start
    for begin, limit in _segments_between(folder, start, end):
        if found and at >= start + most:
            break
        stop = min(limit, max(start + most, at + FRAME_HEAD))
        data = _bytes(folder, begin, at, stop)
        try:
            if not found and (first := read_frame_head(data)).whole > len(data):
                stop = min(limit, at + first.whole)
                data = _bytes(folder, begin, at, stop)
            for head, content in frames(data):
                found.append((head, content))
                at += head.whole
        except Cut as error:
            if stop == limit or not found:
                raise damaged(folder, f"byte {at:,}: {error}") from None
            break
        except Unreadable as error:
            raise damaged(folder, f"byte {at:,}: {error}") from None
    return found, at


def read_rows(folder: Path, start: int, end: int, place: str) -> pyarrow.RecordBatch:
    """All messages between two offsets at which frames begin, as rows."""
    return rows_of(read_frames(folder, start, end, end - start)[0], place)


def boundary(folder: Path, start: int, end: int, most: int) -> int:
    """The last offset at which a frame ends, not more than about `most` bytes behind another, and at least a frame."""
    if end - start <= most:
        return end
    return next((at for at in _frame_ends(folder, start, end) if at - start >= most), end)


def cuts(folder: Path, start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """The ranges between two offsets, divided at frames into about so many parts of about the same size."""
    if parts <= 1:
        return [(start, end)] if start < end else []
    size = -(-(end - start) // parts)
    ranges: list[tuple[int, int]] = []
    begin = start
    for at in _frame_ends(folder, start, end):
        if at - begin >= size or at == end:
            ranges.append((begin, at))
            begin = at
    return ranges


def _frame_ends(folder: Path, start: int, end: int) -> Iterator[int]:
    """The offsets between two others at which frames end."""
    at = start
    for first, limit in _segments_between(folder, start, end):
        with segment_path(folder, first).open("rb") as file:
            while at < limit:
                file.seek(SEGMENT_HEAD + at - first)
                try:
                    at += read_frame_head(file.read(FRAME_HEAD)).whole
                except Unreadable as error:
                    raise damaged(folder, f"byte {at:,}: {error}") from None
                yield at


def _segments_between(folder: Path, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The segments with bytes between two offsets, each with the offset at which it or the range ends."""
    begins = segments_of(folder)
    if begins and start < begins[0]:
        raise damaged(folder, f"it begins at byte {begins[0]:,}, and is read from byte {start:,}")
    for begin, after in zip(begins, [*begins[1:], end], strict=True):
        if begin < end and start < after:
            yield begin, min(after, end)


def _bytes(folder: Path, begin: int, start: int, end: int) -> memoryview:
    """The bytes of a segment between two offsets."""
    try:
        with segment_path(folder, begin).open("rb") as file:
            if start == begin:
                checked_head(folder, begin, file.read(SEGMENT_HEAD))
            else:
                file.seek(SEGMENT_HEAD + start - begin)
            data = memoryview(file.read(end - start))
            if len(data) < end - start:
                raise damaged(folder, f"it ends at byte {start + len(data):,}, and more was written")
            return data
    except OSError as error:
        raise damaged(folder, f"a segment cannot be read: {(error.strerror or str(error)).lower()}") from None


def checked_head(folder: Path, begin: int, head: bytes) -> int:
    """The number of the first message of a segment."""
    try:
        offset, number = read_segment_head(head)
        if offset != begin:
            raise Unreadable("it is named as another")
    except Unreadable as error:
        raise damaged(folder, f"{segment_path(folder, begin).name}: {error}") from None
    return number


def is_unwritten(data: memoryview, start: int) -> bool:
    """Whether a part of the last frame, which begins at a byte, never reached the disk before the power failed.

    Then a page of the file, or what the frame has of it, is all zeros.
    """
    try:
        end = min(start + read_frame_head(data, start).whole, len(data))
    except Unreadable:
        end = len(data)
    if end < len(data):
        return False  # there is another frame behind it
    pages = [start, *range(start - start % _PAGE + _PAGE, end, _PAGE)]
    return any(
        not any(data[page : min(page - page % _PAGE + _PAGE, end)]) for page in pages if end - page >= FRAME_HEAD
    )


def sync_folder(folder: Path) -> None:
    """Have the names of new files on the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def damaged(folder: Path, how: str) -> Damaged:
    return Damaged(f"the inbox {folder} is damaged: {how}", hint=_HINT)
