"""A file that grows by one micro-batch at a time, each exactly once, whatever crashes in between.

Beside the file `out.csv` stands `.out.csv.progress`.  Before the bytes of a batch are appended, it durably says which
batch that is, and where in the file its bytes begin and will end.  A batch that comes again is cut off there first.  A
batch is done when its bytes are on the disk, and only then is its successor asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from cqels.model.checksummed import seal_json, unseal_json
from cqels.model.durable_files import write_all, write_durably
from cqels.model.errors import CqelsError

_REMOVE = "remove it and the file"
HEAD = -1
"""The batch of what a file begins with."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batch that was begun: its bytes, and what was to be remembered before and after it.

    `run` is what stays the same when a run goes on from its checkpoint; empty if that is not known.
    """

    run: str
    batch: int
    start: int
    end: int
    before: int = 0
    after: int = 0


def lost(path: Path, run: str, *, opened: bool, done: int) -> str | None:
    """What is gone of a file that this run has written, if something is; it has `opened` one here before.

    Batches up to `done` are complete; a later one may have been cut off by a crash, and comes again.
    """
    try:
        progress = read_progress(_side(path))
        size = path.stat().st_size if path.exists() else None
    except OSError as error:
        raise not_written(path, error) from None
    if progress is None or progress.run != run:
        return f"{path} is gone, which this run has written" if opened and size is None and progress is None else None
    written = progress.end if size is None or progress.batch <= done else progress.start
    if size is None:
        return f"{path} is gone, which had {written:,} bytes"
    return f"{path} has {size:,} bytes, where {written:,} were written" if size < written else None


def progress_of(path: Path) -> Progress | None:
    """What was recorded beside a file, if something was."""
    return read_progress(_side(path))


def _side(path: Path) -> Path:
    return path.with_name(f".{path.name}.progress")


class GrowingFile:
    """A file of the results of one run."""

    def __init__(
        self, path: Path, head: bytes = b"", *, run: str = "", replace: bool = False, anew: bool = False
    ) -> None:
        """Go on with the file of this run, or begin one; `replace` that of another run.

        With `anew`, what comes from now on goes to a new file: what this run has written is gone (`lost`).
        """
        self._path, self._head, self._run, self._replace = path, head, run, replace
        self._side = _side(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            progress = read_progress(self._side)
            size = path.stat().st_size if path.exists() else 0
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        except OSError as error:
            raise not_written(path, error) from None
        if progress is None or progress.run != run:
            if not replace and size:
                self._refuse("has the results of another run")
            self._begin()
        elif progress.batch == HEAD:
            self._begin()
        elif anew:
            self._begin(progress)
        else:
            self._progress = progress

    def append(self, batch: int, made: Callable[[int], tuple[bytes, int]]) -> None:
        """Add a batch. `made` gives its bytes and a number to remember, from the number that was remembered before."""
        if batch < self._progress.batch:
            if self._run:
                return  # it is there
            if not self._replace:
                self._refuse(f"has the results of batch {self._progress.batch}, and this is batch {batch}")
            self._begin()
        last = self._progress
        if batch == last.batch:
            start, before = last.start, last.before
        else:
            start, before = last.end, last.after
        size = os.fstat(self._file).st_size
        if not (start <= size <= last.end) or (batch != last.batch and size < last.end):
            self._refuse(f"has {size} bytes, where {last.end} were written")
        data, after = made(before)
        self._put(Progress(self._run, batch, start, start + len(data), before, after), data)

    def close(self) -> None:
        os.close(self._file)

    def _begin(self, last: Progress | None = None) -> None:
        """Write what a file begins with; the `last` batch, if there was one, may still come again."""
        size = len(self._head)
        self._put(Progress(self._run, HEAD, 0, size), self._head)
        if last is not None:
            self._put(Progress(self._run, last.batch, size, size, last.before, last.after), b"")

    def _put(self, progress: Progress, data: bytes) -> None:
        try:
            write_durably(self._side, seal_json(asdict(progress)).encode())
            self._progress = progress
            os.ftruncate(self._file, progress.start)
            os.lseek(self._file, progress.start, os.SEEK_SET)
            write_all(self._file, data)
            os.fsync(self._file)
        except OSError as error:
            raise not_written(self._path, error) from None

    def _refuse(self, why: str) -> None:
        raise CqelsError(
            f"{self._path} {why}", hint="results of a new checkpoint need a new place: remove the file, or name another"
        )


class PassingFile:
    """A file of the results of a run that no other goes on from: it replaces what is there."""

    def __init__(self, path: Path, head: bytes = b"") -> None:
        self._path = path
        self._after, self._last = 0, HEAD
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
            self._file.write(head)
        except OSError as error:
            raise not_written(path, error) from None

    def append(self, batch: int, made: Callable[[int], tuple[bytes, int]]) -> None:
        """Add a batch, as to a growing file."""
        if batch <= self._last:
            return
        data, self._after = made(self._after)
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise not_written(self._path, error) from None
        self._last = batch

    def close(self) -> None:
        self._file.close()


def read_progress(path: Path) -> Progress | None:
    """What was recorded, if something was."""
    try:
        return Progress(**unseal_json(path.read_bytes(), str(path), hint=_REMOVE))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise CqelsError(f"{path} is not the progress of a file of results", hint=_REMOVE) from None


def not_written(path: Path, error: OSError) -> CqelsError:
    return CqelsError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}")
