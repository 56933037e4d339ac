"""What becomes of a batch after it is done: results to sinks, rejected input to its own, and both counted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from cqels.ingest import Rejected, RejectLog, Tally
from cqels.model.errors import CqelsError, DataError
from cqels.pipeline.instance.driven_instance import Outcome
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import DeliveryStopped, Lasting, Refusing, Sink, Waiting, place_of
from cqels.plan.algebra import Query


class RejectSink(Protocol):
    """Takes rejected input, a batch at a time: `cqels.pipeline.sink.reject_files.Rejects`."""

    def open(self, *, run: str = "") -> None: ...

    def write(self, batch: int, rejected: Sequence[Rejected]) -> None: ...

    def close(self) -> None: ...


@dataclass
class Delivery:
    """Delivers batches; one that comes again after a crash has the same number and the same results."""

    sinks: Sequence[Sink]
    rejects: RejectSink | None
    strict: bool
    tally: Tally
    queries: dict[str, Query]
    """All that have sent results, by their names."""

    def __post_init__(self) -> None:
        self._log = RejectLog()
        self._run = ""

    def open(self, queries: Sequence[Query], run: str) -> None:
        self._run = run
        self.add(queries)
        if self.rejects is not None:
            self.rejects.open(run=run)

    def add(self, queries: Sequence[Query]) -> None:
        """Be ready for the results of these queries too."""
        for sink in self.sinks:
            sink.open(tuple(queries), run=self._run)
        self.queries |= {query.name or "": query for query in queries}

    def places(self) -> list[str]:
        """Files and folders that results are written to."""
        return [f"{path.absolute()}" for each in self._lasting() for path in each.places([*self.queries.values()])]

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        """What is gone of what the run has written, in words."""
        return [lost for each in self._lasting() for lost in each.lost(queries, run=run, opened=opened, done=done)]

    def _lasting(self) -> list[Lasting]:
        there: tuple[object, ...] = (*self.sinks, self.rejects)
        return [each for each in there if isinstance(each, Lasting)]

    def deliver(self, outcome: Outcome, *, again: bool = False) -> None:
        """Deliver a batch; it is counted unless it was before, in an earlier run."""
        rejected = [Rejected(*each) for each in outcome.note.get("rejected", ())]
        if self.strict and (rejected or outcome.late):
            first = next(iter([*rejected, *outcome.late]))
            raise DataError(str(first), hint="without --strict such input is counted, reported and left out")
        sent = self._sent(outcome)
        for sink in self.sinks:
            with _named(sink):
                sink.write(outcome.batch, sent)
        refused = [each for sink in self.sinks if isinstance(sink, Refusing) for each in sink.take_refused()]
        everything = [*rejected, *outcome.late, *refused]
        if self.rejects is not None:
            self.rejects.write(outcome.batch, everything)
        else:
            for each in everything:
                self._log(each)
        if not again:
            self._count(outcome, len(rejected) + len(refused))

    def _sent(self, outcome: Outcome) -> Mapping[str, Sent]:
        payloads: dict[str, list[bytes]] = {}
        numbers: dict[str, int] = {}
        for each in outcome.chunks:
            payloads.setdefault(each.query, []).append(each.payload)
            numbers.setdefault(each.query, each.number)
        known = self.queries | outcome.dropped
        return {name: Sent.read(known[name], numbers[name], found) for name, found in payloads.items()}

    def _count(self, outcome: Outcome, rejected: int) -> None:
        tally, report = self.tally, outcome.report
        tally.elements += report.elements
        tally.rejected += rejected
        tally.late += report.late
        tally.results += sum(each.count for each in outcome.chunks)
        tally.stopped = len(report.stopped)
        tally.time = report.time if report.time is not None else tally.time
        tally.watch(tally)

    def stop_waiting(self) -> None:
        """Whatever waits for a server gives up: its batch is delivered again by the next run."""
        for sink in self.sinks:
            if isinstance(sink, Waiting):
                sink.stop_waiting()

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()
        if self.rejects is not None:
            self.rejects.close()
        self._log.close()


@contextmanager
def _named(sink: Any) -> Iterator[None]:
    """Say which sink failed, whatever it raises."""
    try:
        yield
    except (CqelsError, DeliveryStopped, BrokenPipeError):
        raise
    except Exception as error:
        raise CqelsError(f"the sink {place_of(sink)} failed: {type(error).__name__}: {error}") from error
