"""Folders that belong to the user and to nobody else: what lies in them is run or trusted."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from cqels.model.errors import CqelsError

_LOG = logging.getLogger("cqels")
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def private_folder(path: str | os.PathLike[str], *, below: str | os.PathLike[str] | None = None) -> Path:
    """A folder of this user's own, made with mode 0700 if it is not there; its path without links.

    One that is a link, belongs to another user or can be written by others is refused, and so is one that others could
    exchange: because a folder above it is theirs, or is writable for all without the sticky bit.  The folders above
    `below` (that one included) are trusted.
    """
    path = Path(os.path.abspath(path))
    try:
        _make(path)
        path = path.parent.resolve() / path.name
        _check(path)
        trusted = None if below is None else Path(below).resolve()
        for above in path.parents:
            if above == trusted:
                break
            _check_above(path, above)
    except OSError as error:
        raise CqelsError(f"the folder {path} cannot be made or read: {error.strerror or error}") from None
    return path


def _make(path: Path) -> None:
    """Make a folder and those above it that are missing, each for this user alone."""
    missing = [each for each in (path, *path.parents) if not os.path.lexists(each)]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def _check(path: Path) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path, "it is a link", "remove it, or choose another folder")
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(path, "it is not a folder", "remove it, or choose another folder")
    if found.st_uid != os.geteuid():
        raise _refused(path, f"it belongs to {_user(found.st_uid)}", "choose a folder of your own")
    if found.st_mode & _WRITABLE:
        raise _refused(path, "others can write in it", f"empty it, then chmod 700 {path}")


def _check_above(path: Path, above: Path) -> None:
    found = above.stat()
    if found.st_uid not in (0, os.geteuid(), Path("/").stat().st_uid):
        raise _refused(path, f"{above} belongs to {_user(found.st_uid)}", "choose a folder of your own")
    writable = found.st_mode & _WRITABLE
    if found.st_gid in (0, os.getegid()):  # a group that is the user's own in most systems
        writable &= stat.S_IWOTH
    if writable and not found.st_mode & stat.S_ISVTX:
        raise _refused(path, f"others can rename what is in {above}", "choose a folder of your own")


def _refused(path: Path, reason: str, hint: str) -> CqelsError:
    return CqelsError(f"the folder {path} is not used: {reason}", hint=hint)


def _user(number: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


# ---------------------------------------------------------------- the cache


def cache_part(part: str) -> Path | None:
    """A private folder for what is kept between runs, as `kernels`; None if there is none that can be written."""
    root = cache_root()
    if root is None:
        return None
    try:
        return private_folder(root / part)
    except CqelsError as error:
        _LOG.warning("%s", error)
        return None


@cache
def cache_root() -> Path | None:
    """The first that can be used of `CQELS_CACHE_DIR`, the user's cache folder, and one in the temporary folder.

    One that is refused is logged, with the reason.
    """
    for folder in _roots():
        try:
            found = private_folder(folder)
        except CqelsError as error:
            if os.path.lexists(folder):
                _LOG.warning("%s", error)
            continue
        if os.access(found, os.W_OK):
            return found
    return None


def _roots() -> Iterator[Path]:
    if chosen := os.environ.get("CQELS_CACHE_DIR"):
        yield Path(chosen)
    if home := os.environ.get("XDG_CACHE_HOME"):
        yield Path(home) / "cqels"
    with suppress(RuntimeError):  # there is no home
        yield Path.home() / ".cache" / "cqels"
    yield Path(tempfile.gettempdir()) / f"cqels-{os.geteuid()}"
