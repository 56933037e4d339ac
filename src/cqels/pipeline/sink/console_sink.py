"""The sink that shows results on the terminal, or in a text stream, as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import SHOWN_AGAIN, query_name
from cqels.pipeline.sink.text_formats import check
from cqels.plan.algebra import Query
from cqels.results import InTime, Result, ResultWriter, writer_for


class Console:
    """Shows results as they come, those of a batch in the order of time.

    With `exact`, what all queries send is in one order, whatever the batches are; so results of the latest time
    wait for the next batch.  A batch that is repeated after a crash is shown again.
    """

    place, promise = "the terminal", SHOWN_AGAIN

    def __init__(self, format: str = "text", stream: TextIO | None = None, *, exact: bool = False) -> None:
        self._format = format
        self._stream = stream or sys.stdout
        self._exact = exact
        self._writers: dict[str, ResultWriter] = {}
        self._order = InTime(0)
        self._last = -1

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        for query in queries:
            check(query, self._format)
            columns = ("boolean",) if query.form == "ask" else query.variables
            self._writers[query_name(query)] = writer_for(self._format, self._stream, columns, dict(query.prefixes))
        self._show(self._order.rest())
        self._order = InTime(len(self._writers))

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if batch <= self._last:
            return
        self._show(self._order.add([list(sent[name].results()) if name in sent else [] for name in self._writers]))
        if not self._exact:
            self._show(self._order.rest())
        self._stream.flush()
        self._last = batch

    def _show(self, results: Iterable[tuple[int, Result]]) -> None:
        writers = list(self._writers.items())
        for number, result in results:
            name, writer = writers[number]
            if self._format == "text" and len(writers) > 1:
                self._stream.write(f"{name}  ")
            writer.write(result)

    def close(self) -> None:
        self._show(self._order.rest())
        for writer in self._writers.values():
            writer.close()
