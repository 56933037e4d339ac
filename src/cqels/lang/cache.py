"""Where the compiled grammar is kept between runs, so that a command answers at once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import lark


def grammar_cache(grammar: str) -> str | bool:
    """A file in the user's cache directory, named by the grammar's content; False when no place can be written."""
    stamp = hashlib.sha256((grammar + lark.__version__).encode()).hexdigest()[:16]
    for find in (_user_folder, _temporary_folder):
        folder = find()
        if folder is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder / f"grammar-{stamp}.pickle")
    return False


def _user_folder() -> Path | None:
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home) / "cqels"
    try:
        return Path.home() / ".cache" / "cqels"
    except RuntimeError:
        return None


def _temporary_folder() -> Path | None:
    import getpass
    import tempfile

    # another user's folder of this name must not be trusted: the cache is unpickled
    try:
        folder = Path(tempfile.gettempdir()) / f"cqels-{getpass.getuser()}"
        return folder if not folder.exists() or folder.stat().st_uid == os.getuid() else None
    except (OSError, KeyError, AttributeError):
        return None
