"""Files and names that outlive a crash: what is written here is on the disk when the call returns."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file at once: after a crash it is the old one or the new one, and after the return the new one."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all bytes at the place where a file is."""
    left = memoryview(data).cast("B")
    while left:
        left = left[os.write(file, left) :]
