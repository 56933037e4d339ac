"""Numbers of an inbox that other processes look at: where it ends, how far it was processed, whether it has ended.

A mark is a small file that is mapped into memory; it says nothing about a crash, after which it is written anew.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_MARK = struct.Struct("<QQ")
_SECOND = 0x5D1E_A5ED_1F2E_3D4C
"""What the second number differs by: one that is being written is noticed."""
_TRIES = 1000

END, COMMITTED, ENDED = "end", "committed", "ended"
"""The names of marks: the offset behind what is on the disk; that before which nobody reads; that of the last message
there will ever be, plus one."""


class Mark:
    """A number that this process writes."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.mark"
        path.touch()
        with path.open("r+b") as file:
            file.truncate(_MARK.size)
            self._memory = mmap.mmap(file.fileno(), _MARK.size)

    def write(self, number: int) -> None:
        self._memory[: _MARK.size] = _MARK.pack(number, number ^ _SECOND)

    def close(self) -> None:
        self._memory.close()


def read_mark(folder: Path, name: str) -> int:
    """The number that another process has written; 0 if none."""
    for _ in range(_TRIES):
        try:
            data = (folder / f"{name}.mark").read_bytes()
        except OSError:
            return 0
        if len(data) == _MARK.size:
            number, second = _MARK.unpack(data)
            if number ^ second == _SECOND:
                return int(number)
            if not any(data):
                return 0
    return 0
