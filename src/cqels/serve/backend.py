"""What a service drives: a live run of queries, in this process (`cqels.live`) or on Spark (`spark_backend.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cqels.engine.budgets import Budget
from cqels.ingest import StreamDeclaration, Tally
from cqels.live.batch_delivery import RejectSink
from cqels.live.live_run import LiveRun, LiveSettings, PushedStream
from cqels.pipeline.sink.sink_protocol import Sink
from cqels.pipeline.source.inbox import Inbox
from cqels.pipeline.source.live_source import Message
from cqels.pipeline.source.watched_data import WatchedData
from cqels.plan.algebra import Query
from cqels.store.dataset import Store


class Backend(Protocol):
    """Queries over streams from `start` to `stop`; any thread may call it, and waits."""

    @property
    def queries(self) -> Mapping[str, Query]:
        """Those that run, by their names."""

    @property
    def stopped(self) -> Mapping[str, str]:
        """The queries that took more than their budgets, with the reasons."""

    @property
    def is_running(self) -> bool:
        """It was started, and has not ended."""

    @property
    def store(self) -> Store:
        """The static data as it is now; what changes it is `update`."""

    @property
    def tally(self) -> Tally:
        """What was read, rejected, late and sent."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Counts and sizes of now."""

    def start(self) -> None:
        """Recover the state, and go on; what does not fit is refused."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False if it has not come in that many seconds. What ended the run is raised."""

    def stop(self) -> None:
        """End it; the next one with the same state goes on from there."""

    def register(self, query: Query, budget: Budget | None = None) -> None:
        """Run one more query, which has a name; it sees what comes from now on, and stays when the run goes on."""

    def replace(self, query: Query, budget: Budget | None = None) -> None:
        """Run a query instead of the one that has its name; its windows begin anew."""

    def drop(self, name: str) -> None:
        """Run a query no more."""

    def declare(self, pushed: PushedStream) -> None:
        """Have one more stream that elements can be pushed to; a run that goes on from this one is given it, too."""

    def push(self, stream: str, messages: Sequence[Message]) -> None:
        """Give blocks of elements to a stream; when this returns they are on the disk."""

    def inbox(self, stream: str) -> Inbox:
        """Where what is pushed to a stream waits."""

    def update(self, change: str | Callable[[Store], object]) -> None:
        """Change the static data, exactly once, whatever ends the process then."""

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        """No element before this time will come, on one stream or on all."""

    def explain(self, name: str, format: str = "text") -> str:
        """The plan of a query that runs, with what it has done."""

    def snapshot(self) -> None:
        """Have the state on the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What runs before anybody asks for anything."""

    store: Store
    streams: Sequence[StreamDeclaration] = ()
    queries: Sequence[Query] = ()
    sinks: Sequence[Sink] = ()
    budgets: Mapping[str, Budget] | None = None
    settings: LiveSettings | None = None
    watched: WatchedData | None = None
    rejects: RejectSink | None = None


MakeBackend = Callable[[Pipeline, Path, Sequence[PushedStream], Sequence[Sink]], Backend]
"""Makes the run of a service from its pipeline, the folder of its state, the streams that are pushed to, and sinks."""


def embedded(pipeline: Pipeline, state: Path, pushed: Sequence[PushedStream], sinks: Sequence[Sink]) -> Backend:
    """A run in this process."""
    return LiveRun(
        pipeline.streams,
        pipeline.queries,
        pipeline.store,
        sinks,
        state=state,
        rejects=pipeline.rejects,
        settings=pipeline.settings,
        budgets=pipeline.budgets,
        pushed=pushed,
        watched=pipeline.watched,
    )
