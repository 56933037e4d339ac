"""The incremental engine behind the face of the reference: the same scenarios run on both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cqels.engine.engine import Engine
from cqels.engine.query_handle import StandingQuery
from cqels.ingest import Element, Rejected, StreamSettings
from cqels.plan.algebra import Query
from cqels.store.dataset import Store


class Incremental:
    """Hands elements to the engine one by one."""

    def __init__(
        self,
        store: Store,
        streams: Sequence[StreamSettings],
        *,
        start: int = 0,
        reject: Callable[[Rejected], None] = lambda rejected: None,
    ) -> None:
        self._streams = streams
        self._options: dict[str, Any] = {"start": start, "reject": reject}
        self.engine = Engine(store=store, size=1 << 26, start=start, reject=reject)
        for each in streams:
            self.engine.internals.declare(each)

    def register(self, query: Query) -> StandingQuery:
        return self.engine.register(query, declare=False)

    def push(self, element: Element) -> None:
        self.engine.internals.push_elements([element])

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        self.engine.heartbeat(time, stream)

    def update(self, change: Callable[[Store], object]) -> None:
        self.engine.update(change)

    def drop(self, query: StandingQuery | str) -> None:
        self.engine.drop(query)

    def query(self, name: str) -> StandingQuery:
        return self.engine.query(name)

    def snapshotted(self) -> Incremental:
        """Another engine, which goes on from what is saved here."""
        other = type(self)(self.engine.internals.store, self._streams, **self._options)
        for each in self.engine.queries:
            other.register(replace(each.query, name=each.name))
        other.engine.restore(self.engine.snapshot())
        return other

    def finish(self) -> None:
        self.engine.finish()
