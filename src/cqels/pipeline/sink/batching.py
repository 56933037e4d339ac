"""Results that come one by one, for sinks that take them a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from uuid import uuid4

from cqels.ingest import Rejected
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import Refusing, Sink, query_name
from cqels.plan.algebra import Query
from cqels.results import Result

_MOST = 20_000
"""Results of a batch."""
_LONGEST = 1.0
"""Seconds from the first result of a batch until it is written, when the next one comes."""


class ResultBatches:
    """Gives the results of a run that no other goes on from to a sink, in batches of its own making.

    What the sink's server refuses is given to `reject`.
    """

    def __init__(self, sink: Sink, queries: Sequence[Query], reject: Callable[[Rejected], None]) -> None:
        self._sink, self._reject = sink, reject
        self._queries = {query_name(query): query for query in queries}
        self._waiting: dict[str, list[Result]] = {}
        self._count, self._began = 0, 0.0
        self._sent = dict.fromkeys(self._queries, 0)
        self._batch = 0
        sink.open(queries, run=uuid4().hex)

    def write(self, result: Result) -> None:
        """Take a result."""
        if not self._count:
            self._began = monotonic()
        self._waiting.setdefault(result.query, []).append(result)
        self._count += 1
        if self._count >= _MOST or monotonic() - self._began > _LONGEST:
            self.flush()

    def flush(self) -> None:
        """Give the sink what it has not got."""
        if not self._count:
            return
        waiting, self._waiting, self._count = self._waiting, {}, 0
        sent = {name: Sent.of(self._queries[name], each, self._sent[name]) for name, each in waiting.items()}
        self._sink.write(self._batch, sent)
        if isinstance(self._sink, Refusing):
            for refused in self._sink.take_refused():
                self._reject(refused)
        for name, each in waiting.items():
            self._sent[name] += len(each)
        self._batch += 1

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._sink.close()
