"""Readers of results: each at its own pace, woken when there is more, told what it has missed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cqels.pipeline.sink.result_log import Found, Part
from cqels.serve.service import Service

_LOOK = 15.0
"""Seconds after which a reader for whom there is nothing is told that it is still connected."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Results that are no longer there: how many, and the number of the next that is."""

    count: int
    next: int

    def line(self) -> bytes:
        return json.dumps({"missed": self.count, "next": self.next}).encode()


@dataclass(frozen=True, slots=True)
class Ended:
    """There will be no more."""

    reason: str

    def line(self) -> bytes:
        return json.dumps({"end": self.reason}).encode()


class Quiet:
    """There was nothing for a while."""


Told = Part | Missed | Ended | Quiet


class Subscriptions:
    """Wakes those who wait for results; it belongs to one event loop."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self._service, self._loop = service, loop
        self._events: dict[str, asyncio.Event] = {}
        self._stopping = False
        self.readers: dict[str, int] = {}
        """How many there are of each query."""
        self.missed = 0
        """Results that readers were told to have missed."""
        service.notify, service.ending = self._notified, self._ending

    def _notified(self, names: Sequence[str]) -> None:
        """Called by another thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake, [*names])

    def _ending(self) -> None:
        """Called by another thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.stop)

    def _wake(self, names: Sequence[str]) -> None:
        for name in names:
            if (event := self._events.pop(name, None)) is not None:
                event.set()

    def stop(self) -> None:
        """End all readers."""
        self._stopping = True
        self._wake([*self._events])

    async def read(self, name: str, number: int) -> Found:
        """What there is from a number on; what is on the disk is read by another thread."""
        return await asyncio.to_thread(self._service.results.read, name, number)

    async def wait(self, name: str, number: int, timeout: float) -> bool:
        """Wait for a result with a number: whether it has come."""
        event = self._events.get(name)
        if event is None:
            event = self._events[name] = asyncio.Event()
        if self._service.results.end(name) > number:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # `wait_for` makes a task: half as dear again, for each reader
                await event.wait()
        return self._service.results.end(name) > number

    async def follow(self, name: str, number: int, quiet: float = _LOOK) -> AsyncIterator[Told]:
        """What comes from a number on, for ever, or until the query is dropped."""
        results = self._service.results
        self.readers[name] = self.readers.get(name, 0) + 1
        try:
            while not self._stopping:
                recent = results.recent(name, number)
                found = await self.read(name, number) if recent is None else recent
                if found.missed:
                    self.missed += found.missed
                    yield Missed(found.missed, found.next if not found.parts else found.parts[0].first)
                for part in found.parts:
                    yield part
                number = found.next
                if found.parts or found.missed:
                    continue
                if not self._service.runs(name):
                    yield Ended(self._service.end_of(name))
                    return
                if not await self.wait(name, number, quiet) and not self._stopping:
                    yield Quiet()
            yield Ended("the service stops")
        finally:
            self.readers[name] -= 1
            if not self.readers[name]:
                del self.readers[name]


Encoder = Callable[[Told], bytes]


def as_events(told: Told) -> bytes:
    """Server-sent events."""
    match told:
        case Part():
            return told.events
        case Missed():
            return b"id: %d\nevent: missed\ndata: %s\n\n" % (told.next - 1, told.line())
        case Ended():
            return b"event: end\ndata: %s\n\n" % told.line()
        case _:
            return b": nothing new\n\n"


def as_lines(told: Told) -> bytes:
    """Lines of JSON."""
    match told:
        case Part():
            return told.ndjson
        case Missed() | Ended():
            return told.line() + b"\n"
        case _:
            return b"\n"
