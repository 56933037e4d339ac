"""Where the memory of an arena comes from: a file that is mapped, or address space that the system reserves."""

from __future__ import annotations

import mmap
import os
import shutil
from contextlib import suppress
from pathlib import Path

RESERVE = 1 << 38
"""Bytes of address space reserved for an arena in memory, where the system allows it."""
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: address space that is not counted as memory until it is touched


def head_of(path: Path) -> bytes:
    """The first word of a file, as bytes."""
    with path.open("rb") as file:
        return file.read(8)


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else may read: it holds the data of streams. A link is not followed."""
    number = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    os.fchmod(number, 0o600)
    return number


def mapped(path: Path | None, size: int | None) -> mmap.mmap:
    """Memory of so many bytes: a file that any process can map, or address space that becomes real as it is touched."""
    if path is not None:
        # a page that does not fit on the disk would end the process: an arena that is full says so
        length = size or min(RESERVE, shutil.disk_usage(path.parent).free * 9 // 10 & -mmap.PAGESIZE)
        with open(path, "a+b", opener=_private) as file:
            if (there := os.fstat(file.fileno()).st_size) and size is None:
                length = there
            elif there < length:
                file.truncate(length)  # a sparse file: what is not written takes no space
            return mmap.mmap(file.fileno(), length)
    length = size or RESERVE
    while True:
        try:
            made = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
            break
        except OSError:
            length //= 2  # a system that counts address space as memory: ask for less
            if length < 1 << 24:
                raise
    with suppress(OSError, AttributeError):  # a system without large pages
        made.madvise(mmap.MADV_HUGEPAGE)
    return made
