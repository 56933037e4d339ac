"""The receivers of a run on Spark: they run in the driver and fill inboxes below the checkpoint.

`inbox_source.py` reads these as sources of Spark.  What micro-batches have processed is removed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread

from cqels.ingest import StreamDeclaration
from cqels.model.errors import CqelsError
from cqels.pipeline.source.inbox import Inbox
from cqels.pipeline.source.inbox_marks import COMMITTED, ENDED, Mark, read_mark
from cqels.pipeline.source.received_source import ReceivedSource
from cqels.pipeline.source.source_registry import receiver_of

_TICK = 0.2
"""Seconds between looks at what has been processed, and whether a receiver has failed."""


def inbox_folder(checkpoint: Path, number: int) -> Path:
    """The folder of the inbox of a source, below that of the checkpoint.

    Spark knows sources by their order, so an inbox belongs to a number, whatever broker it is filled from.
    """
    return checkpoint / "inbox" / str(number)


class Receivers:
    """Receives for all declared sources of a run that need an inbox."""

    def __init__(self, declarations: Mapping[int, StreamDeclaration], checkpoint: Path) -> None:
        """The declarations by the numbers of their sources."""
        self._declarations, self._checkpoint = declarations, checkpoint
        self._sources: list[tuple[ReceivedSource, Mark]] = []
        self._closed = Event()
        self._thread: Thread | None = None

    def open(self, fail: Callable[[CqelsError], None]) -> None:
        """Begin to receive; `fail` is called with an error that ends the run."""
        for number, each in self._declarations.items():
            folder = inbox_folder(self._checkpoint, number)
            receiver = receiver_of(each, folder)
            inbox = Inbox(folder, place=receiver.place)
            ended = Mark(folder, ENDED)
            ended.write(0)
            self._sources.append((ReceivedSource(receiver, inbox), ended))
        self._thread = Thread(target=self._watch, args=[fail], daemon=True, name="cqels-receivers")
        self._thread.start()

    def _watch(self, fail: Callable[[CqelsError], None]) -> None:
        while not self._closed.wait(_TICK):
            for source, ended in self._sources:
                inbox = source.inbox
                inbox.commit(read_mark(inbox.folder, COMMITTED))
                if source.has_ended({"offset": inbox.end}):
                    ended.write(inbox.end + 1)
                try:
                    source.check()
                except CqelsError as error:
                    fail(error)
                    return

    @property
    def have_ended(self) -> bool:
        """There will be no more of any of them."""
        return all(source.has_ended({"offset": source.inbox.end}) for source, _ in self._sources)

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(10)
        for source, ended in self._sources:
            source.close()
            ended.close()
