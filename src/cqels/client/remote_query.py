"""A query of a service as its user sees it: the handles of both clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from cqels.client.client_errors import ResultsMissed
from cqels.client.following import Following, OnMissed, first_number
from cqels.client.remote_result import RemoteResult
from cqels.client.taking import Taking

if TYPE_CHECKING:
    from cqels.client.async_client import AsyncClient
    from cqels.client.sync_client import Client


_COLUMNS = {"construct": ("subject", "predicate", "object"), "ask": ("answer",)}


class _Handle:
    """What is known of a query, and the number of the result that is read next."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info
        """What the service said of the query when this handle was made."""
        self.number = int(info.get("results", 0))
        """Of the next result that `results()` and `take()` give: at first of the next that the query sends."""

    def __repr__(self) -> str:
        return f"<query {self.name}>"

    @property
    def name(self) -> str:
        return str(self.info["name"])

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of a result, in order."""
        return _COLUMNS.get(self.info["form"]) or tuple(self.info["variables"])

    def _first(self, after: int | None, *, from_start: bool = False) -> int | None:
        return first_number(self.number, after, from_start=from_start)

    def _following(
        self, after: int | None, *, from_start: bool, on_missed: OnMissed | None, patience: float | None
    ) -> Following:
        number = self._first(after, from_start=from_start)
        return Following(self.name, number, on_missed=on_missed, patience=patience, moved=self._move)

    def _taken(self, taking: Taking) -> list[RemoteResult]:
        self._move(taking.next)
        return taking.results

    def _move(self, number: int) -> None:
        self.number = number


class RemoteQuery(_Handle):
    """A query that runs in a service. Its results are read from where the handle is, which moves with each.

    A handle is for one reader; `client.query(name)` makes another one.
    """

    def __init__(self, client: Client, info: dict[str, Any]) -> None:
        super().__init__(info)
        self._client = client

    def __iter__(self) -> Iterator[RemoteResult]:
        return self.results()

    def results(
        self,
        *,
        after: int | None = None,
        from_start: bool = False,
        on_missed: OnMissed | None = None,
        patience: float | None = None,
    ) -> Iterator[RemoteResult]:
        """The results as they come, for ever or until the query is dropped, as those of `Client.results`.

        They begin where the handle is, unless `after` or `from_start` says otherwise; `for result in query` is the
        same.
        """
        following = self._following(after, from_start=from_start, on_missed=on_missed, patience=patience)
        return self._client.follow(following)

    def take(self, *, after: int | None = None, limit: int | None = None, wait: float = 0) -> list[RemoteResult]:
        """The results that there are and that were not read yet; where there are none, wait so many seconds for some.

        QueryStopped if that is nothing, and nothing will come any more.
        """
        try:
            return self._taken(self._client.taken(self.info, self._first(after), limit=limit, wait=wait))
        except ResultsMissed as error:
            self._move(error.after + 1)
            raise

    def explain(self, format: str = "text") -> str:
        """The plan of the query, with what it has done: as `text`, `json` or `mermaid`."""
        return self._client.explain(self.name, format)

    def drop(self) -> None:
        """Stop the query, and forget it; readers of its results end."""
        self._client.drop(self.name)


class AsyncRemoteQuery(_Handle):
    """The same, whose methods are awaited."""

    def __init__(self, client: AsyncClient, info: dict[str, Any]) -> None:
        super().__init__(info)
        self._client = client

    def __aiter__(self) -> AsyncIterator[RemoteResult]:
        return self.results()

    def results(
        self,
        *,
        after: int | None = None,
        from_start: bool = False,
        on_missed: OnMissed | None = None,
        patience: float | None = None,
    ) -> AsyncIterator[RemoteResult]:
        """The results as they come, for ever or until the query is dropped, as those of `AsyncClient.results`.

        They begin where the handle is, unless `after` or `from_start` says otherwise.  `async for result in query` is
        the same.
        """
        following = self._following(after, from_start=from_start, on_missed=on_missed, patience=patience)
        return self._client.follow(following)

    async def take(self, *, after: int | None = None, limit: int | None = None, wait: float = 0) -> list[RemoteResult]:
        """The results that there are and that were not read yet; where there are none, wait so many seconds for some.

        QueryStopped if that is nothing, and nothing will come any more.
        """
        try:
            return self._taken(await self._client.taken(self.info, self._first(after), limit=limit, wait=wait))
        except ResultsMissed as error:
            self._move(error.after + 1)
            raise

    async def explain(self, format: str = "text") -> str:
        """The plan of the query, with what it has done: as `text`, `json` or `mermaid`."""
        return await self._client.explain(self.name, format)

    async def drop(self) -> None:
        """Stop the query, and forget it; readers of its results end."""
        await self._client.drop(self.name)
