"""Read-ahead of a file source: while a micro-batch is evaluated, the workers that have read it prefetch the next one.

The rows are left in a local file, named after the task, for whichever process gets that task.  Nothing depends on it:
a file that is missing or incomplete means that the task is read as usual.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread, get_native_id

import pyarrow
from pyspark.files import SparkFiles

_NICE = 10
"""How much lower the priority of reading ahead is than that of work that is due."""


def begin(name: str, rows: Callable[[], Iterator[pyarrow.RecordBatch]], schema: pyarrow.Schema) -> None:
    """Make rows in a thread of low priority, and leave them under a name."""
    if (folder := _folder()) is not None:
        Thread(target=_write, args=(folder / f"{name}.rows", rows, schema), daemon=True).start()


def taken(name: str) -> list[pyarrow.RecordBatch] | None:
    """The rows that were left under a name, after a wait if they are being made; None if there are none."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / f"{name}.rows"
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        fcntl.flock(file, fcntl.LOCK_SH)
        path.unlink(missing_ok=True)
        try:
            reader = pyarrow.ipc.open_file(pyarrow.py_buffer(file.read()))
        except pyarrow.ArrowInvalid:  # its writer has not come to the end
            return None
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _write(path: Path, rows: Callable[[], Iterator[pyarrow.RecordBatch]], schema: pyarrow.Schema) -> None:
    os.setpriority(os.PRIO_PROCESS, get_native_id(), _NICE)
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # which ends with the process, whatever that dies of
            writer = pyarrow.ipc.new_file(file, schema)
            for each in rows():
                writer.write_batch(each)
            writer.close()  # only now it is what it should be
    except FileExistsError:  # another process is at it
        pass
    except Exception:  # the one who has the task will see for itself
        path.unlink(missing_ok=True)


def _folder() -> Path | None:
    """The folder that the processes of an application share on a machine; None outside Spark."""
    try:
        return Path(SparkFiles.getRootDirectory())
    except AssertionError:
        return None
