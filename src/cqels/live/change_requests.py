"""Changes of a run that other threads ask for: its own thread makes them, between two batches, and they wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

from cqels.model.errors import CqelsError

_LOOK = 1.0
"""Seconds between looks at whether the run has ended."""

T = TypeVar("T")


class RunEnded(CqelsError):
    """There is no run any more that could do what it is asked for."""


@dataclass
class Request:
    """A change: what makes its commands, and what follows when they are executed."""

    commands: Callable[[], list[str]]
    then: Callable[[], None] = lambda: None
    changes_data: bool = False
    drops: bool = False
    """A query ends: nothing follows in the batch, so that all results of its name there are its own."""
    done: Event = field(default_factory=Event)
    fault: BaseException | None = None

    def refuse(self, fault: BaseException) -> None:
        self.fault = fault
        self.done.set()


class Requests:
    """Those that wait, and those whose commands are in the batch that is being done."""

    def __init__(self, notify: Callable[[], None], ended: Event) -> None:
        """`notify` wakes the thread of the run; `ended` is set when it is no more."""
        self._notify, self._ended = notify, ended
        self._waiting: deque[Request] = deque()
        self._taken: list[Request] = []

    # ------------------------------------------------------------ any thread

    def ask(self, request: Request) -> None:
        """Have a change made, and wait for it."""
        self._waiting.append(request)
        self._notify()
        while not request.done.wait(_LOOK):
            if self._ended.is_set():
                raise has_ended()
        if request.fault is not None:
            raise request.fault

    def look(self, look: Callable[[], T]) -> T:
        """What a function gives that looks at the run between two batches."""
        found: list[T] = []

        def commands() -> list[str]:
            found.append(look())
            return []

        self.ask(Request(commands))
        return found[0]

    # ------------------------------------------------------------ the thread of the run

    def commands(self, *, alone: bool) -> list[str]:
        """The commands of what waits; what cannot be is told to who asks.

        What an update removes and adds depends on the data before it: a batch has one, if nothing else changes data.
        """
        commands: list[str] = []
        while self._waiting and (alone or not self._waiting[0].changes_data):
            request = self._waiting.popleft()
            alone = alone and not request.changes_data
            try:
                made = request.commands()
            except Exception as error:
                request.refuse(error)
                continue
            commands += made
            if not made:
                request.done.set()
                continue
            self._taken.append(request)
            if request.drops:
                break
        return commands

    def executed(self) -> None:
        """The batch with their commands is done, and not yet delivered."""
        for each in self._taken:
            each.then()

    def delivered(self) -> None:
        while self._taken:
            self._taken.pop().done.set()

    def refuse_all(self) -> None:
        """Nobody waits any more for what is not done."""
        for each in (*self._taken, *self._waiting):
            each.refuse(has_ended())


def has_ended() -> RunEnded:
    return RunEnded("the run has ended", hint="wait() tells why")
