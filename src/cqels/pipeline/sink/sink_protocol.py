"""What a sink has to offer: it takes the results of queries, a batch at a time. None of them lives here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cqels.ingest import Rejected
from cqels.pipeline.sink.result_batch import Sent
from cqels.plan.algebra import Query

EXACTLY_ONCE = "each result arrives exactly once, whatever crashes"
AT_LEAST_ONCE = "each result arrives at least once: after a crash the last batch is sent again, under the same ids"
SHOWN_AGAIN = "after a crash the last batch is shown again"
WHILE_IT_LIVES = "results are gone with this process"
"""What sinks promise of each result, as `cqels run` says it and the docs list it."""


class Sink(Protocol):
    """Takes the results of some queries, a batch at a time."""

    @property
    def place(self) -> str:
        """What it is called in messages for people, without passwords."""

    @property
    def promise(self) -> str:
        """How often each result arrives there, whatever crashes: one sentence."""

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        """Be ready for the results of these queries, which have names. Called again when more are added.

        `run` is the id of the run, which its checkpoint keeps: it tells whether what is there
        already is of the same run.
        """

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        """The results of one batch, by query name.

        Called again with the same number and the same results after a crash.
        """

    def close(self) -> None: ...


@runtime_checkable
class Lasting(Protocol):
    """A sink whose results stay where they are written: what is gone of them is found when a run goes on."""

    def places(self, queries: Sequence[Query]) -> list[Path]:
        """Where it writes the results of these queries."""

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        """What is gone of what a run has written, in words; where that is, it begins anew when it is opened.

        `opened` are the places that the run has written to, and `done` its last complete batch.
        """

    def begin_anew(self) -> None:
        """Replace what is there: all results are written once more."""


@runtime_checkable
class Waiting(Protocol):
    """A sink that waits for a server that does not answer, as long as nobody ends it."""

    def stop_waiting(self) -> None:
        """From any thread: what waits in `write` raises `DeliveryStopped` soon, and the batch is not delivered."""


@runtime_checkable
class Refusing(Protocol):
    """A sink whose server may refuse results for good: they are dead letters, like rejected input."""

    def take_refused(self) -> list[Rejected]:
        """The results that were refused since the last call: query, place, reason and text."""


class DeliveryStopped(Exception):
    """A batch that was not delivered, since the run ends: whoever goes on from the checkpoint repeats it."""


def query_name(query: Query) -> str:
    """The name of a query that runs."""
    assert query.name is not None
    return query.name


def place_of(sink: object) -> str:
    """What a sink is called, also one of a user who says nothing of it."""
    return str(getattr(sink, "place", type(sink).__name__))


def promise_of(sink: object) -> str:
    """What a sink promises, also one of a user who says nothing of it."""
    return str(getattr(sink, "promise", "it does not say what it promises"))


class TaskWriter(Protocol):
    """Writes the results of a query on any machine, in a task of Spark; it is sent there as it is."""

    def __call__(self, batch: int, sent: Sent) -> dict[str, Any]:
        """Write some results of a batch, and say what was written, as JSON; again with the same ones after a crash."""


@runtime_checkable
class TaskWritten(Protocol):
    """A sink whose results need not come together in one process: tasks of Spark write them."""

    @property
    def task_writer(self) -> TaskWriter | None:
        """What tasks write with; None if all has to go through `write`."""

    def commit(self, batch: int, written: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """All tasks have written: query by query what they said, in the order of the results."""
