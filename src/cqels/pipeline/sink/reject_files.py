"""The sink of rejected input, malformed or late: a file, the terminal, or a function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import TextIO

from cqels.ingest import Rejected
from cqels.pipeline.sink.exactly_once_file import GrowingFile, PassingFile, lost
from cqels.plan.algebra import Query

SHOWN = 5
"""How many are shown on the terminal one by one; all of them are counted."""


class Rejects:
    """Takes what was rejected, a micro-batch at a time.

    To a file, a line of each (`Rejected.line`), each exactly once (see `exactly_once_file.py`); to a
    function, or to the terminal if nothing is named, again when a batch is repeated after a crash.
    """

    def __init__(
        self,
        to: str | PathLike[str] | Callable[[Rejected], object] | None = None,
        *,
        stream: TextIO | None = None,
        replace: bool = False,
        passing: bool = False,
    ) -> None:
        """A file of another run is refused unless it may be replaced; `passing`: as in `cqels.spark.sinks.Files`."""
        self._to, self._stream, self._replace, self._passing = to, stream or sys.stderr, replace, passing
        self._file: GrowingFile | PassingFile | None = None
        self._gone = False
        self._last = -1
        self.count = 0

    def open(self, *, run: str = "") -> None:
        if isinstance(self._to, str | PathLike) and self._passing:
            self._file = PassingFile(Path(self._to))
        elif isinstance(self._to, str | PathLike):
            self._file = GrowingFile(Path(self._to), run=run, replace=self._replace, anew=self._gone)

    def places(self, queries: Sequence[Query]) -> list[Path]:
        """The file, if it stays."""
        return [Path(self._to)] if isinstance(self._to, str | PathLike) and not self._passing else []

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        """What is gone of the file, in words (`cqels.spark.sinks.Lasting`)."""
        found = [lost(path, run, opened=str(path.absolute()) in opened, done=done) for path in self.places(queries)]
        gone = [each for each in found if each is not None]
        self._gone = bool(gone)
        return gone

    def begin_anew(self) -> None:
        """Replace the file."""
        self._replace = True

    def write(self, batch: int, rejected: Sequence[Rejected]) -> None:
        """What a micro-batch rejected. Called again with the same number and the same rows after a crash."""
        if batch <= self._last or not rejected:
            return
        if self._file is not None:
            data = "".join(each.line for each in rejected)
            self._file.append(batch, lambda _: (data.encode("utf-8", "backslashreplace"), 0))
        for each in rejected:
            self.count += 1
            if callable(self._to):
                self._to(each)
            elif self._file is None:
                self._show(each)
        self._last = batch

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _show(self, rejected: Rejected) -> None:
        if self.count <= SHOWN:
            self._stream.write(f"rejected: {rejected}\n")
        elif self.count == SHOWN + 1:
            self._stream.write("rejected: … (--rejects FILE keeps them all)\n")
