"""The inboxes of an application that is served, one for each stream that is pushed to, in the driver.

`pushed_source.py` reads them as one source of Spark.  What a micro-batch has processed is removed here as soon as Spark
has written down that it is done, and makes room for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Condition, Thread

from cqels.pipeline.source.inbox import LIMIT, Inbox, WhenFull
from cqels.pipeline.source.inbox_marks import COMMITTED, Mark, read_mark

_TICK = 0.02
"""Seconds between looks at whether a micro-batch is done."""


def pushed_folder(checkpoint: Path) -> Path:
    """The folder with the inboxes, below that of the checkpoint."""
    return checkpoint / "pushed"


class PushedInboxes:
    """Inboxes by the numbers of their sources."""

    def __init__(self, folder: Path, is_done: Callable[[int], bool]) -> None:
        """`is_done` says whether a micro-batch will not be repeated."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._is_done = is_done
        self._inboxes: dict[int, Inbox] = {}
        self._marks: dict[int, Mark] = {}
        """How far they were processed, for the next run."""
        self._delivered: dict[int, int] = {}
        """How far they were read in micro-batches that are delivered."""
        self._read: list[tuple[int, Mapping[int, int]]] = []
        """The micro-batches that were delivered, and how far they have read."""
        self._changed, self._closed = Condition(), False
        self._thread = Thread(target=self._commit, name="cqels-inboxes", daemon=True)
        self._thread.start()

    def open(self, source: int, iri: str, limit: int | None = LIMIT, when_full: WhenFull = "wait") -> Inbox:
        """The inbox of a source, which nobody else may have."""
        folder = self.folder / str(source)
        made = Inbox(folder, place=f"<{iri}>", limit=limit, when_full=when_full)
        made.commit(read_mark(folder, COMMITTED))
        self._inboxes[source], self._marks[source] = made, Mark(folder, COMMITTED)
        return made

    def note_read(self, batch: int, offsets: Mapping[int, int]) -> None:
        """A micro-batch is delivered that has read the inboxes of these sources so far."""
        if offsets:
            with self._changed:
                self._delivered |= offsets
                self._read.append((batch, offsets))
                self._changed.notify_all()

    @property
    def has_more(self) -> bool:
        """Something is in an inbox that was not in a micro-batch that is delivered."""
        with self._changed:
            return any(
                each.end > max(each.committed, self._delivered.get(source, 0)) for source, each in self._inboxes.items()
            )

    def _commit(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._read or self._closed)
                if self._closed:
                    return
                batch, offsets = self._read[0]
                if not self._is_done(batch):
                    self._changed.wait(_TICK)
                    continue
                self._read.pop(0)
            for source, offset in offsets.items():
                if (inbox := self._inboxes.get(source)) is not None:
                    inbox.commit(offset)
                    self._marks[source].write(offset)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        for inbox in self._inboxes.values():
            inbox.close()
        for mark in self._marks.values():
            mark.close()
