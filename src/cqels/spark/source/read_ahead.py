"""Reading ahead: while a micro-batch is evaluated, the processes that have read it read what the next one will have.

What they read is left in a file of the machine, under a name that tells what it is, for whichever process gets the
task.  Nothing depends on it: a file that is not there, or was not written to its end, is as if nobody had begun.
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
"""How far those who read ahead stand back behind those who work on what is due."""


def begin(name: str, rows: Callable[[], Iterator[pyarrow.RecordBatch]], schema: pyarrow.Schema) -> None:
    """Have rows made and left under a name, while others go on."""
    if (folder := _folder()) is not None:
        Thread(target=_write, args=(folder / f"{name}.rows", rows, schema), daemon=True).start()


def taken(name: str) -> list[pyarrow.RecordBatch] | None:
    """The rows of a name, which are waited for if they are being made; None if there are none to be had."""
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
    """What the processes of a machine share; None outside Spark."""
    try:
        return Path(SparkFiles.getRootDirectory())
    except AssertionError:
        return None
