"""What `take` has so far: the results that there are, asked for a part at a time, until there are no more."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

from cqels.client import calls
from cqels.client.calls import Call
from cqels.client.client_errors import ResultsMissed
from cqels.client.following import check_info
from cqels.client.remote_result import RemoteResult, number_of, result_of
from cqels.model.errors import CqelsError

_LONGEST_POLL = 10.0
"""Seconds that one request waits for results, so that a connection is not silent for too long."""
_LAG = 1.0
"""Seconds after which a service that was started again has all results that it had before."""


class Taking:
    """The state of one `take`; it sends nothing itself."""

    def __init__(
        self,
        info: Mapping[str, Any],
        number: int | None,
        *,
        limit: int | None,
        wait: float,
        longest: float,
    ) -> None:
        """`number` is that of the first result that is wanted, None being the oldest; no request waits `longest`."""
        if limit is not None and limit < 1:
            raise CqelsError(f"a limit of {limit} results is not taken", hint="it is at least 1")
        self.results: list[RemoteResult] = []
        self.next = number or 0
        self._info, self._any, self._left = info, number is None, limit
        self._longest = min(_LONGEST_POLL, longest / 2)
        self._until = monotonic() + wait
        self._is_asked = self._lags = False
        """The service was asked whether more will come; it had fewer results than were read."""
        self._call: Call[dict[str, Any]] | None = self._poll()

    @property
    def call(self) -> Call[dict[str, Any]] | None:
        """What to ask for now; None if there is nothing more to ask for."""
        return self._call

    def answered(self, answer: dict[str, Any]) -> None:
        """Take up an answer; an error, where results are gone, or none will ever come."""
        if self._is_asked:
            self._know(answer)
            return
        found = answer["results"]
        count = (number_of(found[0]) if found else int(answer["last"]) + 1) - self.next
        if count > 0 and self.results:  # what there is behind a gap is taken another time
            self._call = None
            return
        self._skip(count)
        variables = tuple(self._info.get("variables", ()))
        self.results += (result_of(each, variables) for each in found)
        self.next += len(found)
        self._left = None if self._left is None else self._left - len(found)
        if found:
            self._call = None if self._left == 0 else self._poll()
        elif self.results or monotonic() < self._until:
            self._call = None if self.results else self._poll()
        else:
            self._is_asked, self._call = True, calls.show_query(str(self._info["name"]))

    def _poll(self) -> Call[dict[str, Any]]:
        """Some of the results; where there are none, wait for them, unless others were there."""
        seconds = 0.0 if self.results else max(self._until - monotonic(), 0.0)
        return calls.poll(str(self._info["name"]), self.next, self._left, min(seconds, self._longest))

    def _skip(self, count: int) -> None:
        """So many results are gone; those behind them can be taken after the error."""
        is_any, self._any = self._any, False
        if count <= 0:
            return
        self.next += count
        if not is_any:
            raise ResultsMissed(str(self._info["name"]), count, self.next - 1)

    def _know(self, info: Mapping[str, Any]) -> None:
        """There were no results: is that for now, or for good?"""
        check_info(info, self.next, may_lag=not self._lags)
        self._call = None
        if not self._lags and int(info.get("results", 0)) < self.next:
            self._lags, self._is_asked = True, False
            self._until = monotonic() + _LAG
            self._call = self._poll()
