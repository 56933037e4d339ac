"""The folder of a run's state: of which engine it is, and how it is forgotten; what is in it the engines know."""

from __future__ import annotations

import shutil
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from cqels.model.choices import EngineName
from cqels.model.errors import CqelsError
from cqels.model.folder_lock import LOCK, FolderLock

STATE = Path("state")
"""That of a pipeline file that runs live, beside the file, if nothing else is said."""
_OF = {"cqels.json": "spark", "state.json": "embedded"}
"""The files that tell the engine of a state."""
_PARTS = (
    *(*_OF, LOCK, "inbox", "files", "watched", "data", "log-*", "snapshot-*"),
    *("data.nq", "rests", "rests.json", "services", "updates", "instance", "clock.json", "dataset", "spark"),
    "service",
    *("*.tmp", "*.new", ".*"),
)
"""What a state may have, of both engines."""
_NAMES = {"spark": "on Spark", "embedded": "of the embedded engine"}


def check_state(folder: Path, engine: EngineName) -> None:
    """Refuse a folder with the state of the other engine, and one with something else."""
    found = next((of for file, of in _OF.items() if (folder / file).exists()), engine)
    if found != engine:
        raise CqelsError(
            f"the folder {folder} has the state of a run {_NAMES[found]}, and this one is {_NAMES.get(engine, engine)}",
            hint=f"begin anew with --fresh, name another folder with --state, or go on with --engine {found}",
        )
    if not is_begun(folder):
        _refuse_others(folder)


def is_begun(folder: Path) -> bool:
    """Whether a run has left a state there."""
    return any((folder / file).exists() for file in _OF)


def forget_state(folder: Path) -> None:
    """Remove the state of earlier runs, where there is one and no run has it."""
    if not folder.exists():
        return
    _refuse_others(folder)
    lock = FolderLock(folder, "the state", hint="end that run first")
    lock.acquire()
    try:
        begun = is_begun(folder)
        shutil.rmtree(folder)
    finally:
        lock.release()
    if begun:
        sys.stderr.write(f"the state in {folder} is removed: the run begins anew\n")


def _refuse_others(folder: Path) -> None:
    """Refuse what is no folder, or has what no state has: it would be removed with the state."""
    if folder.exists() and not folder.is_dir():
        raise CqelsError(f"{folder} is not the state of a run, and is left as it is", hint="name another folder")
    names = sorted(each.name for each in folder.iterdir()) if folder.exists() else []
    other = next((name for name in names if not any(fnmatchcase(name, part) for part in _PARTS)), None)
    if other is not None:
        raise CqelsError(
            f"{folder} is not the state of a run, or not only: it has {other}; it is left as it is",
            hint="name a folder for the state alone, as --state state",
        )
