"""The sink that keeps all results in this process, for notebooks and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cqels.model.errors import CqelsError
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import WHILE_IT_LIVES, query_name
from cqels.plan.algebra import Query
from cqels.results import Result


class Memory:
    """Keeps everything: for notebooks and tests."""

    place, promise = "memory", WHILE_IT_LIVES

    def __init__(self) -> None:
        self._queries: dict[str, Query] = {}
        self._batches: dict[str, dict[int, Sent]] = {}

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        for query in queries:
            self._queries[query_name(query)] = query
            self._batches.setdefault(query_name(query), {})

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        for name, each in sent.items():
            self._batches[name][batch] = each

    def close(self) -> None:
        pass

    def arrow(self, query: str | None = None) -> Any:
        """A table of Arrow. The name may be left out if there is one query."""
        return self._all(query).table()

    def pandas(self, query: str | None = None) -> Any:
        """A data frame of pandas."""
        return self.arrow(query).to_pandas()

    def results(self, query: str | None = None) -> list[Result]:
        """The results one by one."""
        return list(self._all(query).results())

    def _all(self, query: str | None) -> Sent:
        known = ", ".join(self._queries) or "none"
        if query is None and len(self._queries) != 1:
            raise CqelsError(f"there are {len(self._queries)} queries", hint=f"name one of them: {known}")
        name = next(iter(self._queries)) if query is None else query
        if name not in self._queries:
            raise CqelsError(f"there is no query '{name}'", hint=f"the queries are {known}")
        batches = [batch for _, each in sorted(self._batches[name].items()) for batch in each.batches]
        return Sent(self._queries[name], batches)
