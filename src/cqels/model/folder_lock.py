"""A folder that one run at a time may have: a checkpoint on Spark, the state of a live run."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from time import sleep

from cqels.model.errors import CqelsError

LOCK = "lock"
"""The name of the file in the folder."""
_TRIES, _PAUSE = 50, 0.02
_LOG = logging.getLogger("cqels")


class FolderLock:
    """A lock that ends with the process that has it, whatever that dies of; the file says who it is."""

    def __init__(self, folder: Path, what: str, *, hint: str) -> None:
        """`what` the folder is called in messages; the `hint` is for the second run."""
        self._folder, self._what, self._hint = folder, what, hint
        self.file: int | None = None
        """Its open file, while this process has the lock."""

    def acquire(self) -> None:
        """Have the folder for this run alone, until `release` or the end of the process; refuse if another has it."""
        if self.file is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / LOCK
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(file, path)
        except BlockingIOError:
            owner = _owner(path)
            os.close(file)
            raise CqelsError(f"{self._what} {self._folder} is in use by {owner}", hint=self._hint) from None
        except OSError as error:  # a file system without locks
            _LOG.warning("%s %s cannot be locked: %s", self._what, self._folder, error.strerror)
        run = {"pid": os.getpid(), "host": gethostname(), "started": datetime.now(UTC).isoformat(timespec="seconds")}
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(run).encode(), 0)
        self.file = file

    def release(self) -> None:
        """Let another run have it."""
        if self.file is not None:
            os.ftruncate(self.file, 0)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(self.file, fcntl.LOCK_UN)  # also where a process that was forked has it open
            os.close(self.file)
            self.file = None


def _lock(file: int, path: Path) -> None:
    """Lock a file; of an owner that was killed some process may still have it open for a moment."""
    tries = _TRIES
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            tries -= 1
            if not tries or _lives(path):
                raise
            sleep(_PAUSE)


def _lives(lock: Path) -> bool:
    """Whether the owner of a lock is at work, as far as one can tell."""
    try:
        owner = json.loads(lock.read_text())
        if owner["host"] == gethostname():
            os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, KeyError):
        return True
    return True


def _owner(lock: Path) -> str:
    """Who has a lock, in words."""
    try:
        owner = json.loads(lock.read_text())
        return f"process {owner['pid']} on {owner['host']}, since {owner['started']}"
    except (OSError, ValueError, KeyError):
        return "another run"
