"""What a live source has to offer; none of them lives here.

There are two kinds.  A *replayable* source can be read again from a position: Kafka, followed files, an inbox.  A
*receiver* gets messages that their sender forgets once they are acknowledged: MQTT, WebSocket, SSE, a socket.  What it
receives is written to a durable inbox (`inbox.py`) before it is acknowledged, and read from there, so that for
all that follows every source is replayable.

Rows have the columns of `ROWS`; `cqels.pipeline.lift.row_lifts` makes elements of them, in this process or on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow

ROWS = pyarrow.schema(
    [
        ("value", pyarrow.binary()),
        ("time", pyarrow.timestamp("ns")),  # when it arrived; what Kafka says of its records
        ("place", pyarrow.string()),  # the sequence that it belongs to: a partition, an inbox
        ("position", pyarrow.int64()),  # its order there
        ("key", pyarrow.binary()),
        ("topic", pyarrow.string()),
        ("headers", pyarrow.map_(pyarrow.string(), pyarrow.binary())),
    ]
)
"""The rows of live sources."""

Position: TypeAlias = dict[str, Any]
"""How far a source has been read, as JSON; what it means is known to the source alone."""


class Message(NamedTuple):
    """What a receiver gets at once: bytes, when they came (nanoseconds since 1970), and what the protocol adds."""

    value: bytes
    time: int
    key: bytes | None = None
    topic: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


Accept: TypeAlias = Callable[[Sequence[Message]], None]
"""Takes messages; when it returns they are durable, and may be acknowledged."""


class Receiver(Protocol):
    """Gets messages of one declared stream."""

    @property
    def place(self) -> str:
        """What it is called in messages for people, without passwords."""

    def run(self, accept: Accept, stop: Event) -> None:
        """Receive until `stop` is set; connect again, with growing pauses, whenever the connection is lost.

        It returns before that only where there will never be more: at the end of standard input.  What cannot get
        better by waiting (a password that is refused, a library that is not installed) is raised.
        """


class ReplayableSource(Protocol):
    """A source that gives the same rows whenever it is read from the same position."""

    @property
    def place(self) -> str:
        """What it is called in messages for people, without passwords."""

    def start(self) -> Position:
        """Where a new run begins."""

    def read(self, position: Position, most: int) -> tuple[pyarrow.RecordBatch, Position]:
        """At most about `most` bytes of rows from a position on, and where the next ones begin.

        It does not wait: where there is nothing new, the batch is empty.  (`registry.open_source` takes a function that
        is called when there is.)  What cannot get better by waiting is raised, as soon as nothing is left to read.
        """

    def has_ended(self, position: Position) -> bool:
        """Whether there will never be more behind a position: at the end of standard input."""

    def commit(self, position: Position) -> None:
        """Nothing before a position will be read again: what is kept for that may go."""

    def close(self) -> None: ...
