"""Delivery to a server that may be away: again with growing pauses, and what happens when it does not come back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from threading import Event
from time import monotonic
from typing import Any, get_args

from cqels.model.choices import Undelivered
from cqels.model.errors import CqelsError
from cqels.pipeline.sink.sink_protocol import DeliveryStopped
from cqels.pipeline.sink.sink_settings import Settings

_LOG = logging.getLogger("cqels")
LONGEST_PAUSE = 30.0
"""Seconds between two tries, unless the server asks for more."""
LONGEST_ASKED = 600.0
"""Seconds that a server may ask to wait."""


class TryAgain(Exception):
    """A try that failed, in a way that may pass; `after` are the seconds that the server asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server is waited for: after `limit` seconds that is said, and `then` the run waits on.

    Or it stops, or the results are dropped and counted.
    """

    limit: float = 60.0
    then: Undelivered = "wait"
    first_pause: float = 0.1


class Delivery:
    """Delivers to one place."""

    def __init__(self, place: str, patience: Patience, *, random: Random | None = None) -> None:
        self._place, self._patience = place, patience
        self._random = random or Random()
        self._stop = Event()
        self.dropped = 0
        """Results that were not delivered, as `then` allows."""

    def stop_waiting(self) -> None:
        """Whoever waits gives up."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def deliver(self, attempt: Callable[[], None], results: int) -> bool:
        """Try until it succeeds; False if so many results were dropped."""
        began, tries, said = monotonic(), 0, 0
        while True:
            try:
                attempt()
            except TryAgain as failed:
                lasted = monotonic() - began
                if lasted >= self._patience.limit * (said + 1):
                    said += 1
                    if self._give_up(failed, lasted, results):
                        return False
                self._pause(failed, tries)
                tries += 1
                continue
            if said:
                _LOG.warning("%s takes results again, after %.0f s", self._place, monotonic() - began)
            return True

    def _give_up(self, failed: TryAgain, lasted: float, results: int) -> bool:
        """Say that a server does not answer, and whether its results are dropped."""
        match self._patience.then:
            case "stop":
                raise CqelsError(
                    f"{self._place} has not taken results for {lasted:.0f} s: {failed}",
                    hint="the run goes on from its checkpoint when it is started again",
                )
            case "drop":
                self.dropped += results
                _LOG.warning(
                    "%s has not taken results for %.0f s: %s; %s dropped, %s in all",
                    self._place, lasted, failed, f"{results:,}", f"{self.dropped:,}",
                )  # fmt: skip
                return True
            case _:
                _LOG.warning("%s has not taken results for %.0f s: %s; the run waits", self._place, lasted, failed)
                return False

    def _pause(self, failed: TryAgain, tries: int) -> None:
        """Wait before the next try: twice as long each time, and not as long as others who failed at the same time."""
        pause = min(self._patience.first_pause * 2.0 ** min(tries, 30), LONGEST_PAUSE) * self._random.uniform(0.5, 1.0)
        if failed.after is not None:
            pause = max(pause, min(failed.after, LONGEST_ASKED))
        if self._stop.wait(pause):
            raise DeliveryStopped(f"{self._place} has not taken the results: {failed}")


def patience_of(settings: Settings) -> Patience:
    """How long a server is waited for, as settings say."""
    then: Any = settings.choice("undelivered", get_args(Undelivered), "wait")
    return Patience(limit=settings.seconds("limit", 60.0), then=then)
