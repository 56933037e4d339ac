"""Where a reader of results is, whatever becomes of its connection: each result once, in order, and no gap in silence.

The service numbers the results of a query.  A reader knows the number it wants next, so after a lost connection it asks
for what comes behind the last one that it has read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from inspect import iscoroutinefunction
from random import random
from time import monotonic
from typing import Any

from cqels.client import calls
from cqels.client.calls import Call
from cqels.client.client_errors import (
    Conflict,
    ConnectionLost,
    NotFound,
    ResultsMissed,
    ServiceBusy,
    ServiceUnavailable,
)
from cqels.client.remote_result import RemoteResult, number_of, result_of
from cqels.model.errors import CqelsError, QueryStopped

QUIET = 45.0
"""Seconds without a byte after which a connection counts as lost; the service sends an empty line each 15 s."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_DROPPED, _STOPS = "the query was dropped", "the service stops"
_LOG = logging.getLogger("cqels")

OnMissed = Callable[[ResultsMissed], None]
Moved = Callable[[int], None]
"""Called with the number that a reader wants next, whenever that is another one."""


class Following:
    """The state of one reader; it sends nothing itself."""

    def __init__(
        self,
        name: str,
        number: int | None,
        *,
        on_missed: OnMissed | None = None,
        patience: float | None = None,
        moved: Moved = lambda number: None,
    ) -> None:
        """`number` is that of the first result that is wanted, None being the oldest that there is."""
        if iscoroutinefunction(on_missed):
            raise CqelsError("on_missed cannot be a coroutine: nothing would await it", hint="give a plain function")
        self.name = name
        self.next = number or 0
        self.ended = False
        self.is_quiet = False
        """The service has said that there is nothing new."""
        self._any = number is None
        """It does not matter which result comes first."""
        self._on_missed, self._patience, self._moved = on_missed, patience, moved
        self._variables: tuple[str, ...] = ()
        self._info: dict[str, Any] = {}
        self._part = b""
        self._wait = 0.0
        self._lost_at: float | None = None

    # ------------------------------------------------------------ connections

    def call(self) -> Call[None]:
        """What to ask for now."""
        self._part = b""
        return calls.follow(self.name, self.next)

    def know(self, info: dict[str, Any]) -> None:
        """Take up what the service says of the query, when there is a new connection, or on the old one nothing new."""
        self._info, self._variables = info, tuple(info.get("variables", ()))
        check_info(info, self.next, may_lag=not self.is_quiet)
        self.is_quiet = False

    def connected(self) -> None:
        """The service answers; the next wait is short again when it has sent something."""
        self._lost_at = None

    def failed(self, error: CqelsError) -> float:
        """Something went wrong: how many seconds to wait before the next connection; the error, if there is none."""
        match error:
            case NotFound():
                raise NotFound(
                    f"the results of query {self.name} cannot be read on: {error.message}",
                    hint=f"what it sent from number {self.next} on was not read",
                ) from None
            case ServiceBusy():
                return max(self._lost(error), error.after)
            case ConnectionLost() | ServiceUnavailable():
                return self._lost(error)
            case _:
                raise error

    def _lost(self, error: CqelsError) -> float:
        self.is_quiet = False
        now = monotonic()
        if self._lost_at is None:
            self._lost_at = now
            _LOG.warning("results of query %s: %s; trying again", self.name, error.message)
        if self._patience is not None and now - self._lost_at >= self._patience:
            raise error
        self._wait = min(max(2 * self._wait, _FIRST_WAIT), _LONGEST_WAIT)
        return self._wait * (0.5 + random() / 2)

    # ------------------------------------------------------------ lines

    def feed(self, data: bytes) -> Iterator[RemoteResult]:
        """The results of some more bytes."""
        self._wait = 0.0
        *lines, self._part = (self._part + data).split(b"\n")
        for line in lines:
            if not line:
                self.is_quiet = True
                continue
            record = _record(line)
            if "id" in record:
                yield from self._result(record)
            elif "missed" in record:
                self._missed(int(record["next"]))
            elif self._is_over(str(record.get("end", ""))):
                return

    def _result(self, record: Mapping[str, Any]) -> Iterator[RemoteResult]:
        number = number_of(record)
        if number < self.next:
            return  # it was read before the connection was lost
        self._missed(number)
        self._move(number + 1)
        yield result_of(record, self._variables)
        if self._info.get("stopped"):
            check_info(self._info, self.next, may_lag=True)

    def _missed(self, number: int) -> None:
        """Go on with a number, and say so if there is a gap before it."""
        count, is_first = number - self.next, self._any
        self._move(max(number, self.next))
        self._any = False
        if count <= 0 or is_first:
            return
        missed = ResultsMissed(self.name, count, number - 1)
        if self._on_missed is None:
            raise missed
        self._on_missed(missed)

    def _move(self, number: int) -> None:
        self.next = number
        self._moved(number)

    def _is_over(self, reason: str) -> bool:
        if reason == _STOPS:
            raise ConnectionLost(reason)
        if reason != _DROPPED:
            raise QueryStopped(reason or "there are no more results")
        self.ended = True
        return True


def first_number(end: int, after: int | None, *, from_start: bool) -> int | None:
    """The number of the first result that is wanted, None for the oldest; `end` if nothing is said."""
    if from_start and after is not None:
        raise CqelsError("results begin at one place", hint="give after= or from_start=True")
    if after is None:
        return None if from_start else end
    return checked_number(after) + 1


def checked_number(after: object) -> int:
    """The number of a result that a user gives; -1 is before the first."""
    if not isinstance(after, int) or isinstance(after, bool) or not -1 <= after < 10**18:
        raise CqelsError(f"'{after}' is not the number of a result", hint="a result has it as result.number")
    return after


def check_info(info: Mapping[str, Any], number: int, *, may_lag: bool) -> None:
    """Raise QueryStopped if a reader who wants a number next has read all that the query will ever send.

    If the service has fewer results than were read, its state is gone.  It may lag after a crash: then it delivers
    again what readers had before the disk.
    """
    end = int(info.get("results", 0))
    if info.get("stopped") and number >= end:
        raise QueryStopped(str(info["stopped"]), hint="register it again with a larger budget, or smaller windows")
    if end < number and not may_lag:
        raise Conflict(
            f"the results of query {info['name']} have begun anew: {number:,} were read, and the service has {end:,}",
            hint="results(from_start=True) reads those; is its state another one?",
        )


def _record(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CqelsError("a line of results is not a JSON object", hint="is this the address of a service of cqels?")
    return found
