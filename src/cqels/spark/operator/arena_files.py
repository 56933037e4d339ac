"""The arenas of engine instances as files of a machine, which one worker process leaves and the next one attaches.

A file is named after its engine and a token of the last micro-batch that the engine has seen.  A process that takes a
file renames it first, so no two processes ever have the same; a process that dies leaves a name that nobody asks for.
The commands that the engine was given lie beside it, so that whoever attaches it need not read them from the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from cqels.model.folders import private_folder
from cqels.pipeline.instance.instance_commands import hash_commands

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

    def commands(self, commanded: str) -> list[str] | None:
        """The commands with this hash that were left beside the arena; None if they are not here."""
        try:
            found: list[str] = json.loads(self._file(f"commands-{commanded}").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return found if hash_commands(found) == commanded else None

    def leave_commands(self, commanded: str, commands: Sequence[str]) -> None:
        """Leave the commands that an engine was given, for a process that attaches its arena."""
        path = self._file(f"commands-{commanded}")
        if not path.exists():
            draft = self._file(f"draft-{uuid4().hex}")
            draft.write_text(json.dumps(commands))
            draft.replace(path)
            for old in self._folder.glob(f"{self._engine}.commands-*"):
                if old != path:
                    old.unlink(missing_ok=True)

    def _file(self, token: str) -> Path:
        return self._folder / f"{self._engine}.{token}"
