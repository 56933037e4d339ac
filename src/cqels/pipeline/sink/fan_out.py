"""Results for several sinks, of which each may take those of some queries only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from cqels.ingest import Rejected
from cqels.model.errors import CqelsError
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import Lasting, Refusing, Sink, Waiting, place_of, promise_of, query_name
from cqels.plan.algebra import Query


class ForQueries:
    """A sink that takes the results of the queries with these names, and of no others."""

    def __init__(self, sink: Sink, names: Iterable[str]) -> None:
        self.sink, self.names = sink, tuple(names)

    @property
    def place(self) -> str:
        return place_of(self.sink)

    @property
    def promise(self) -> str:
        return promise_of(self.sink)

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        self.sink.open(self._mine(queries), run=run)

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        self.sink.write(batch, {name: sent[name] for name in sent if name in self.names})

    def close(self) -> None:
        self.sink.close()

    def places(self, queries: Sequence[Query]) -> list[Path]:
        return self.sink.places(self._mine(queries)) if isinstance(self.sink, Lasting) else []

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        if not isinstance(self.sink, Lasting):
            return []
        return self.sink.lost(self._mine(queries), run=run, opened=opened, done=done)

    def begin_anew(self) -> None:
        if isinstance(self.sink, Lasting):
            self.sink.begin_anew()

    def stop_waiting(self) -> None:
        if isinstance(self.sink, Waiting):
            self.sink.stop_waiting()

    def take_refused(self) -> list[Rejected]:
        return self.sink.take_refused() if isinstance(self.sink, Refusing) else []

    def _mine(self, queries: Sequence[Query]) -> list[Query]:
        return [query for query in queries if query_name(query) in self.names]


class FanOut:
    """Several sinks as one: each gets all that comes, in their order.

    Where one fails, the batch is not delivered, and comes again to all: each drops what it has, as after a crash.
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = tuple(sinks)

    @property
    def place(self) -> str:
        return ", ".join(map(place_of, self.sinks))

    @property
    def promise(self) -> str:
        return "; ".join(f"{place_of(each)}: {promise_of(each)}" for each in self.sinks)

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        for sink in self.sinks:
            sink.open(queries, run=run)

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        for sink in self.sinks:
            sink.write(batch, sent)

    def close(self) -> None:
        failed = None
        for sink in self.sinks:
            try:
                sink.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def places(self, queries: Sequence[Query]) -> list[Path]:
        return [place for sink in self._lasting() for place in sink.places(queries)]

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        return [each for sink in self._lasting() for each in sink.lost(queries, run=run, opened=opened, done=done)]

    def begin_anew(self) -> None:
        for sink in self._lasting():
            sink.begin_anew()

    def stop_waiting(self) -> None:
        for sink in self.sinks:
            if isinstance(sink, Waiting):
                sink.stop_waiting()

    def take_refused(self) -> list[Rejected]:
        return [each for sink in self.sinks if isinstance(sink, Refusing) for each in sink.take_refused()]

    def _lasting(self) -> list[Lasting]:
        return [sink for sink in self.sinks if isinstance(sink, Lasting)]


def separate(sinks: Iterable[Sink]) -> tuple[Sink, ...]:
    """Sinks without those that are several as one."""
    return tuple(each for sink in sinks for each in (separate(sink.sinks) if isinstance(sink, FanOut) else (sink,)))


def check_names(names: Iterable[str], queries: Sequence[Query], place: str) -> None:
    """Refuse a sink for a query that there is not."""
    known = list(map(query_name, queries))
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the queries are {', '.join(known) or 'none'}"
            raise CqelsError(f"{place} is for query '{name}', which there is not", hint=hint)
