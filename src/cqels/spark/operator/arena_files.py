"""The arenas of engine instances as files of a machine, which one worker process leaves and the next one attaches.

A file is named after its engine and a token of the last micro-batch that the engine has seen.  A process that takes a
file renames it first, so no two processes ever have the same; a process that dies leaves a name that nobody asks for.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from cqels.model.folders import private_folder

FOLDER = "arenas"


class Arenas:
    """The files of one engine, in a folder of ours in one that Spark gives to its application on a machine."""

    def __init__(self, folder: Path, engine: str) -> None:
        self._folder = folder / FOLDER
        self._engine = engine

    def take(self, token: str) -> Path | None:
        """The file of a token, now under a name of its own; None if it is not here."""
        mine = self._file(f"taken-{uuid4().hex}")
        try:
            self._file(token).rename(mine)
        except FileNotFoundError:
            return None
        return mine

    def make(self) -> Path:
        """A new file, where all others of the engine are of no use any more."""
        self._folder = private_folder(self._folder, below=self._folder.parent)  # Spark runs what lies above
        for old in self._folder.glob(f"{self._engine}.*"):
            old.unlink(missing_ok=True)
        return self._file(f"taken-{uuid4().hex}")

    def leave(self, file: Path, token: str) -> bool:
        """Leave a file for whoever asks for the token; False if another process has made it useless."""
        try:
            file.rename(self._file(token))
        except FileNotFoundError:
            return False
        return True

    def _file(self, token: str) -> Path:
        return self._folder / f"{self._engine}.{token}"
