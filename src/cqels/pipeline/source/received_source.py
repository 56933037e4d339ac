"""A receiver with its thread and its inbox: for those who read it, one more source that can be read again."""

from __future__ import annotations

import logging
from threading import Event, Thread

import pyarrow

from cqels.model.errors import CqelsError
from cqels.pipeline.source.inbox import Inbox, InboxReader
from cqels.pipeline.source.live_source import Position, Receiver

_LONGEST_END = 5.0
"""Seconds that a receiver has to end."""
_LOG = logging.getLogger("cqels")


class ReceivedSource:
    """Receives from when it is made until it is closed; closes the inbox then."""

    def __init__(self, receiver: Receiver, inbox: Inbox) -> None:
        self.inbox = inbox
        self._receiver, self._reader = receiver, InboxReader(inbox)
        self._stop = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name=f"cqels {receiver.place}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._receiver.run(self.inbox.append, self._stop)
        except BaseException as error:
            if not self._stop.is_set():
                self._failure = error
                _LOG.error("%s: %s", self.place, getattr(error, "message", error))
        finally:
            self.inbox.announce()

    @property
    def place(self) -> str:
        return self._receiver.place

    def start(self) -> Position:
        return self._reader.start()

    def read(self, position: Position, most: int) -> tuple[pyarrow.RecordBatch, Position]:
        """As `ReplayableSource.read`; if the receiver has failed, an error as soon as all it received is read."""
        rows, end = self._reader.read(position, most)
        if not rows.num_rows:
            self.check()
        return rows, end

    def check(self) -> None:
        """Raise the error with which the receiver has failed, if it has."""
        if isinstance(self._failure, CqelsError):
            raise self._failure
        if self._failure is not None:
            raise CqelsError(f"{self.place}: {self._failure}") from self._failure

    def has_ended(self, position: Position) -> bool:
        return not self._thread.is_alive() and self._failure is None and position["offset"] >= self.inbox.end

    def commit(self, position: Position) -> None:
        self._reader.commit(position)

    def close(self) -> None:
        self._stop.set()
        self.inbox.announce()
        self._thread.join(_LONGEST_END)
        self.inbox.close()
        self._thread.join(_LONGEST_END)  # one that waited for room in the inbox
