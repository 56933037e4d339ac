"""What a run has done so far, for those who watch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cqels.ingest.element import Rejected
from cqels.model.errors import DataError


@dataclass
class Tally:
    """What a run has seen: shown while it goes on and at its end."""

    elements: int = 0
    rejected: int = 0
    late: int = 0
    results: int = 0
    time: int | None = None
    stopped: int = 0
    """Queries that took more than their budgets."""
    watch: Callable[[Tally], None] = field(default=lambda tally: None, repr=False)


@dataclass
class Rejects:
    """What becomes of input that cannot be used: it is counted and reported; with `strict` the first ends the run."""

    tally: Tally
    reject: Callable[[Rejected], None]
    strict: bool
    _fault: Rejected | None = None

    def malformed(self, rejected: Rejected) -> None:
        self.tally.rejected += 1
        self._report(rejected)

    def live(self, rejected: Rejected) -> None:
        """Of live input: the run ends now if it has to, since nobody knows when more comes."""
        self.malformed(rejected)
        self.check()

    def of(self, *, live: bool) -> Callable[[Rejected], None]:
        """What malformed input is given to."""
        return self.live if live else self.malformed

    def late(self, rejected: Rejected) -> None:
        self.tally.late += 1
        self._report(rejected)

    def _report(self, rejected: Rejected) -> None:
        self.reject(rejected)
        if self.strict and self._fault is None:
            self._fault = rejected

    def check(self) -> None:
        """End the run if it has to end."""
        if self._fault is not None:
            raise DataError(str(self._fault), hint="without --strict such input is counted, reported and left out")
