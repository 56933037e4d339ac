"""Rejected and late elements that no sink takes: Python's log tells of them, the first of each stream in full."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cqels.ingest.element import Rejected

SHOWN = 5
"""How many elements of a stream are shown one by one; all of them are counted."""
STEP = 10
"""After these, a line at each count that is so many times the one before."""
_LOG = logging.getLogger("cqels")


class RejectLog:
    """Warns of what is rejected or late: the first of each stream with place and reason, then counts, less and less."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._next: dict[str, int] = {}

    def __call__(self, rejected: Rejected) -> None:
        self.add(rejected.stream, lambda: rejected)

    def add(self, stream: str, rejected: Callable[[], Rejected]) -> None:
        """One more; `rejected` is made only if it is shown."""
        count = self._counts[stream] = self._counts.get(stream, 0) + 1
        if count <= SHOWN:
            _LOG.warning("rejected: %s", rejected())
        elif count >= self._next.get(stream, STEP):
            self._next[stream] = STEP * count
            self._say(stream, f" so far; the last: {rejected()}")

    def close(self) -> None:
        """How many there were, where that was not said."""
        for stream, count in self._counts.items():
            if count > SHOWN and STEP * count != self._next.get(stream):
                self._say(stream, "")
        self._counts.clear()
        self._next.clear()

    def _say(self, stream: str, more: str) -> None:
        where = f"of stream <{stream}> " if stream else ""
        _LOG.warning("rejected: %s elements %swere rejected or late%s", f"{self._counts[stream]:,}", where, more)
