"""Where the compiled grammar is kept between runs, so that a command answers at once."""

from __future__ import annotations

import getpass
import hashlib
import os
import tempfile
from importlib import metadata, resources
from pathlib import Path

from cqels.lang.names import CLASSES


def grammar_cache() -> str | bool:
    """A file in the user's cache directory, named by the grammar's content; False when no place can be written."""
    grammar = resources.files("cqels.lang").joinpath("grammar.lark").read_bytes()
    stamp = hashlib.sha256(repr(CLASSES).encode() + grammar + metadata.version("lark").encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME")
    for folder in (Path(home) / "cqels" if home else _user_folder(), _temporary_folder()):
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
    try:
        return Path.home() / ".cache" / "cqels"
    except RuntimeError:
        return None


def _temporary_folder() -> Path | None:
    # another user's folder of this name must not be trusted: the cache is unpickled
    try:
        folder = Path(tempfile.gettempdir()) / f"cqels-{getpass.getuser()}"
        return folder if not folder.exists() or folder.stat().st_uid == os.getuid() else None
    except (OSError, KeyError, AttributeError):
        return None
