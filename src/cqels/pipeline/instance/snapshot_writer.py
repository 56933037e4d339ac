"""Snapshots in files that are written beside a run: by a forked process, which has all memory as it was at the fork.

The process that is forked writes bytes that were made ready before, and nothing else: it takes no lock, logs nothing,
allocates little, and ends without the ends of Python.  The one that forked it puts the file in its place.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import warnings
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic, sleep

from cqels.model.checksummed import Bytes, write_sealed
from cqels.model.durable_files import sync_folder

_LOG = logging.getLogger("cqels")
_TICK = 0.002
_NICE = 5
"""What the process that writes leaves to others."""


class SnapshotWriter:
    """Writes one file after the other."""

    def __init__(self, *, fork: bool = True) -> None:
        self._forks = fork and hasattr(os, "fork")
        self._child = 0
        self._path = self._temporary = Path()
        self._began = 0.0
        self.seconds = 0.0
        """What the last file has taken."""
        self.failed = -inf
        """When one was not written, by the monotonic clock."""

    @property
    def is_busy(self) -> bool:
        """A file is being written, or is not yet in its place."""
        return self._child != 0

    def begin(self, path: Path, kind: str, parts: Sequence[Sequence[Bytes]]) -> bool:
        """Write a file with parts under a seal (`checksummed`): True if it is in its place, False if that is begun."""
        assert not self._child
        self._path, self._temporary = path, path.with_name(f"{path.name}.tmp")
        self._began = monotonic()
        file = -1
        try:
            file = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            child = _forked() if self._forks else None
            if child == 0:
                _write_and_exit(file, kind, parts)
            if child is not None:
                self._child = child
                return False
            write_sealed(file, kind, parts)
            os.fsync(file)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return False
        finally:
            if file >= 0:
                os.close(file)
        self._place()
        return True

    def poll(self) -> bool:
        """Whether the file that was begun is in its place since this call."""
        if not self._child:
            return False
        child, status = os.waitpid(self._child, os.WNOHANG)
        if not child:
            return False
        self._child = 0
        if status != 0:
            code = os.waitstatus_to_exitcode(status)
            self._fail(os.strerror(code) if code > 0 else f"its process was ended by signal {-code}")
            return False
        self._place()
        return True

    def wait(self) -> bool:
        """Wait for the file that was begun: whether it is in its place."""
        while self._child:
            if self.poll():
                return True
            sleep(_TICK)
        return False

    def abandon(self) -> None:
        """End the process that writes, and leave no file of it."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = 0
            self._temporary.unlink(missing_ok=True)

    def _fail(self, why: str) -> None:
        """Go on without the file: what it was to replace is still there."""
        _LOG.warning("%s could not be written, and the log goes on: %s", self._path, why.lower())
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
        self.failed = monotonic()

    def _place(self) -> None:
        os.replace(self._temporary, self._path)
        sync_folder(self._path.parent)
        self.seconds = monotonic() - self._began


def _forked() -> int | None:
    """0 in a new process, its id in this one; None where there can be none.

    No signal reaches the new one: its handlers are those of this one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = -1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which hold nothing that it needs
            child = os.fork()
        return child
    except OSError:  # there is no room for one more
        return None
    finally:
        if child != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write_and_exit(file: int, kind: str, parts: Sequence[Sequence[Bytes]]) -> None:
    """In the new process: write, and end; whatever this one has open, a lock or a port, ends with the other."""
    code = errno.EIO
    try:
        os.closerange(0, file)
        os.closerange(file + 1, os.sysconf("SC_OPEN_MAX"))
        os.nice(_NICE)
        write_sealed(file, kind, parts)
        os.fsync(file)
        code = 0
    except OSError as error:
        code = error.errno or code
    finally:
        os._exit(code)
