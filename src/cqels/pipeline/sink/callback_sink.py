"""The sink that is a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import AT_LEAST_ONCE
from cqels.plan.algebra import Query


class Callback:
    """Calls a function with each result; with `tables`, with a query's name and a table of each batch.

    At least once: after a crash the last batch is given again.
    """

    promise = AT_LEAST_ONCE

    def __init__(self, function: Callable[..., Any], *, tables: bool = False) -> None:
        self._function, self._tables = function, tables
        self._last = -1

    @property
    def place(self) -> str:
        return f"the function {getattr(self._function, '__name__', type(self._function).__name__)}"

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        pass

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if batch <= self._last:
            return
        for name, each in sent.items():
            if self._tables:
                self._function(name, each.table())
            else:
                for result in each.results():
                    self._function(result)
        self._last = batch

    def close(self) -> None:
        pass
