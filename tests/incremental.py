"""The incremental engine behind the face of the reference: the same scenarios run on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cqels.engine.engine import Engine, Running
from cqels.io import Element, Rejected
from cqels.plan.algebra import Query
from cqels.reference.clock import Clock, Heartbeat, StreamSettings
from cqels.store.dataset import Store


class Incremental:
    """Puts elements in order with the reference's clock, and hands them to the engine one by one."""

    def __init__(
        self,
        store: Store,
        streams: Sequence[StreamSettings],
        *,
        reject: Callable[[Rejected], None] = lambda rejected: None,
    ) -> None:
        self.engine = Engine(store, [each.iri for each in streams], size=1 << 26)
        self._clock = Clock(streams, reject)

    def register(self, query: Query) -> Running:
        return self.engine.register(query)

    def push(self, element: Element) -> None:
        self._proceed(self._clock.arrive(element))

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        self._proceed(self._clock.heartbeat(time, stream))

    def update(self, change: Callable[[Store], object]) -> None:
        self.engine.update(change)

    def finish(self) -> None:
        self._proceed(self._clock.flush())

    def _proceed(self, released: Iterator[Element | Heartbeat]) -> None:
        for what in released:
            if isinstance(what, Heartbeat):
                self.engine.heartbeat(what.time)
            else:
                self.engine.push([what])
