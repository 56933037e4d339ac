"""Answers of SERVICE endpoints while a pipeline runs: the driver asks again, and sends what is new to the engines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from threading import Lock
from typing import TYPE_CHECKING

from cqels.pipeline.sink.exactly_once_file import not_written
from cqels.spark.driver.dataset_updates import Updates
from cqels.store.service import same_solutions

if TYPE_CHECKING:
    from cqels.spark.driver.app import App

_LOG = logging.getLogger("cqels")


class EndpointAnswers:
    """Sends the answers of endpoints that have changed, as updates of the dataset (`dataset_updates.py`)."""

    def __init__(self, app: App, updates: Updates | None, is_closed: Callable[[], bool]) -> None:
        """`updates` are those of the checkpoint; None where it is of a release that had none."""
        self._app, self._is_closed = app, is_closed
        self._updates = updates
        self._sent = {} if self._updates is None else self._updates.answers()
        """The answers that were sent to the engines, after those that they began with."""
        self._in_flight: dict[str, int] = {}
        """Those of them that engines have not read yet, with the numbers of the updates."""
        self._read: list[int] = []
        """The updates of the last micro-batch."""
        self._lock = Lock()

    def ask_again(self) -> None:
        """Have endpoints asked from time to time, by threads of their own: no stream waits for them."""
        if self._updates is not None:
            self._app.ask_again(self.send)
        elif self._app.services:
            _LOG.warning("the checkpoint was made by a release that asked endpoints once: they are not asked again")

    def send(self) -> None:
        """Send the answers that have other solutions than those the engines know.

        While one is in flight, the next one waits: slow engines do not get more and more.
        """
        with self._lock:
            if self._updates is None or self._is_closed():
                return
            known = self._app.known_answers | self._sent
            new = {key: table for key, table in self._app.answers.items() if key not in known}
            for key, table in (new | self._app.fresh_answers()).items():
                if key in self._in_flight or (key in known and same_solutions(known[key], table)):
                    continue
                try:
                    self._in_flight[key] = self._updates.answer(key, table)
                except OSError as error:
                    _LOG.warning(
                        "%s; it is tried again when endpoints are asked again", not_written(self._updates.folder, error)
                    )
                    return
                self._sent[key] = table
                _LOG.info("an endpoint has other solutions, %s of them: they go to the engines", f"{len(table.rows):,}")

    def note_read(self, read: Collection[int]) -> None:
        """Engines have read these updates in a micro-batch; those of the micro-batch before it are not repeated."""
        with self._lock:
            self._in_flight = {key: number for key, number in self._in_flight.items() if number not in read}
        if self._updates is not None and self._read:
            self._updates.forget(max(self._read))
        self._read = sorted(read)

    def close(self) -> None:
        """Ask no more; an answer that is being sent is written first."""
        if self._updates is not None:
            with self._lock:
                self._app.ask_no_more()
