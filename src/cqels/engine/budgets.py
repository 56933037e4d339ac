"""The budget of a query: the most memory and time that it may take, what it has taken, and how it ended.

How a query is held to it is in `engine.budget_enforcement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cqels.engine.arguments import refused
from cqels.model.errors import CqelsError
from cqels.model.sizes import parse_size
from cqels.model.time import LATEST, SECOND, format_duration, parse_duration

STRETCH = SECOND // 2
"""Work of a query after which its time is judged."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a query may take: bytes of state, and nanoseconds for an element."""

    memory: int | None = None
    time: int | None = None

    @staticmethod
    def of(memory: int | str | None, time: int | str | None) -> Budget | None:
        """What texts such as `200MB` and `5ms` say, None if they say nothing."""
        if memory is None and time is None:
            return None
        for value in (memory, time):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | str)):
                raise refused("budget", value, "write it as in memory='200MB', time='5ms'")
        try:
            made = Budget(
                parse_size(memory) if isinstance(memory, str) else memory,
                parse_duration(time) if isinstance(time, str) else time,
            )
        except ValueError as error:
            raise CqelsError(f"the budget of a query: {error}") from None
        if any(each is not None and each <= 0 for each in (made.memory, made.time)):
            raise CqelsError("the budget of a query: there must be something to spend")
        if any(each is not None and each > LATEST for each in (made.memory, made.time)):
            raise CqelsError("the budget of a query: a number does not fit in 64 bits", hint="leave it out")
        return made


@dataclass(eq=False)
class Guard:
    """What a query has taken of its budget."""

    budget: Budget
    spent: int = 0
    """Nanoseconds since its time was judged."""
    elements: int = 0
    """Of its streams, since then."""
    warm: bool = False
    """Its programs have been loaded here: the stretch in which they were is not judged."""

    def state(self) -> dict[str, int | None]:
        """What is remembered, as plain values."""
        limits = {"memory": self.budget.memory, "time": self.budget.time}
        return {**limits, "spent": self.spent, "elements": self.elements}

    def overdue(self, spent: int, elements: int) -> str | None:
        """What is wrong with the time that it takes, in the middle of an element: with more work than is judged."""
        assert self.budget.time is not None
        spent, elements = self.spent + spent, max(self.elements + elements, 1)
        if spent < (STRETCH if self.warm else 2 * STRETCH) or spent // elements <= self.budget.time:
            return None
        return f"an element takes it {_short(spent // elements)}, and {format_duration(self.budget.time)} is the most"

    def judged(self, spent: int, elements: int) -> str | None:
        """Count work. What is wrong with the time that it takes, if a stretch is over; then another one begins."""
        if self.budget.time is None:
            return None
        self.spent, self.elements = self.spent + spent, self.elements + elements
        if self.spent < STRETCH:
            return None
        mean = self.spent // max(self.elements, 1)
        wrong = self.warm and mean > self.budget.time
        self.spent, self.elements, self.warm = 0, 0, True
        if not wrong:
            return None
        return f"an element takes it {_short(mean)}, and {format_duration(self.budget.time)} is the most"


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a query: why, and how many of its ticks were complete, whose results stay."""

    reason: str
    ticks: int


def restored(guard: Guard | None, state: dict[str, Any] | None) -> Guard | None:
    """A guard as it was when its state was written; what this process knows of it stays."""
    if state is None:
        return None
    taken = {each: state[each] for each in ("spent", "elements")}
    return Guard(Budget(state["memory"], state["time"]), **taken, warm=guard is not None and guard.warm)


def _short(nanoseconds: int) -> str:
    """A duration with three digits.

    >>> _short(7_123_456)
    '7.12ms'
    """
    for unit, size in (("s", SECOND), ("ms", SECOND // 1000), ("us", 1000)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g}{unit}"
    return f"{nanoseconds}ns"
