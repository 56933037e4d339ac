"""Pushes of one sender who does not wait for answers: they are taken in their order, also where the inbox is full."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from cqels.serve.reception import Busy, Order, Outcome, Reception

AHEAD, BYTES = 64, 16 << 20
"""Pushes, and bytes of them, that are taken before the first of them is acknowledged."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A push that has not been answered."""

    body: bytes
    outcome: asyncio.Future[Outcome]

    @property
    def is_refused(self) -> bool:
        return self.outcome.done() and isinstance(self.outcome.exception(), Busy)


class OrderedPushes:
    """`put` pushes from one task, and `take` what became of each from another, in the same order.

    Where one is refused since the inbox is full, those behind it are too, until it has been put again: else they would
    overtake it, and its elements would be late.
    """

    def __init__(self, reception: Reception, media_type: str) -> None:
        self._reception, self._media_type = reception, media_type
        self._order = Order()
        self._waiting: deque[_Waiting] = deque()
        self._queue: asyncio.Queue[_Waiting | None] = asyncio.Queue(AHEAD)
        self._bytes = 0
        self._answered = asyncio.Event()

    async def put(self, body: bytes) -> None:
        """Push something; where too many have not been answered, wait."""
        while self._waiting and self._bytes + len(body) > BYTES:
            self._answered.clear()
            await self._answered.wait()
        self._bytes += len(body)
        waiting = _Waiting(body, self._pushed(body))
        self._waiting.append(waiting)
        await self._queue.put(waiting)

    async def end(self) -> None:
        """No more is put."""
        await self._queue.put(None)

    async def take(self) -> Outcome | None:
        """What became of the next push; None at the end."""
        waiting = await self._queue.get()
        if waiting is None:
            return None
        try:
            while True:
                try:
                    return await waiting.outcome
                except Busy as busy:
                    await asyncio.sleep(busy.after / 4)
                    await self._put_again()
        finally:
            self._bytes -= len(self._waiting.popleft().body)
            self._answered.set()

    async def _put_again(self) -> None:
        """Push once more all that were refused."""
        while pending := [each.outcome for each in self._waiting if not each.outcome.done()]:
            await asyncio.wait(pending)
        self._order.is_held = False
        for each in self._waiting:
            if each.is_refused:
                each.outcome = self._pushed(each.body)

    def _pushed(self, body: bytes) -> asyncio.Future[Outcome]:
        return self._reception.pushed(body, self._media_type, order=self._order)
