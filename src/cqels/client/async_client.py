"""The client of a service, to be awaited: what `sync_client` has, for programs with an event loop of asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

from pyoxigraph import NamedNode

from cqels.client import calls
from cqels.client.calls import Call, Pushed
from cqels.client.client_errors import NotFound
from cqels.client.connection import PATIENCE, TIMEOUT, TRIED_AGAIN, Attempts, Connection, request_of
from cqels.client.following import QUIET, Following, OnMissed, first_number
from cqels.client.heartbeats import heartbeat_of, iri_of
from cqels.client.push_body import BATCH, Batcher, Time, body_of
from cqels.client.remote_query import AsyncRemoteQuery
from cqels.client.remote_result import RemoteResult
from cqels.client.static_data import loading
from cqels.client.taking import Taking
from cqels.ingest import Rejected
from cqels.model.errors import CqelsError
from cqels.model.terms import Triple
from cqels.results import Result

T = TypeVar("T")


class AsyncClient:
    """A service of `cqels serve`, of one event loop. `connect_async` makes one; nothing is sent by that.

    The methods are those of `Client`, where their arguments are described.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._http = connection.httpx.AsyncClient(**connection.options())
        self._closed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<client of {self._connection.url}>"

    # ------------------------------------------------------------ streams

    async def stream(
        self,
        stream: str | NamedNode,
        *,
        clock: str | None = None,
        lateness: timedelta | int | str | None = None,
        idle: timedelta | int | str | None = None,
        time: str | NamedNode | None = None,
        unit: str | None = None,
        template: str | os.PathLike[str] | None = None,
        overflow: str | None = None,
        inbox: str | None = None,
    ) -> dict[str, Any]:
        """Declare a stream: what it is. One that is pushed to or that a query names is declared by that."""
        words: dict[str, Any] = {"clock": clock, "lateness": lateness, "idle": idle, "time": time, "unit": unit}
        words |= {"template": template, "overflow": overflow, "inbox": inbox}
        return await self._send(calls.declare(stream, words))

    async def streams(self) -> list[dict[str, Any]]:
        """The streams that there are, and what has come to them."""
        return await self._send(calls.list_streams())

    async def push(
        self,
        stream: str | NamedNode,
        data: Any,
        time: Time | Iterable[Time] | None = None,
        *,
        format: str | None = None,
        retry: bool = False,
    ) -> Pushed:
        """Elements arrive on a stream: how many. When this returns, the service has them on its disk."""
        return await self._push(calls.push(stream, body_of(data, time, format)), stream, retry=retry)

    async def push_many(
        self,
        stream: str | NamedNode,
        elements: Iterable[Any] | AsyncIterable[Any],
        *,
        format: str | None = None,
        batch: int = BATCH,
        retry: bool = False,
    ) -> Pushed:
        """Push all that comes from an iterable, asynchronous or not, in requests of `batch` elements."""
        batcher, done = Batcher(format, batch), Pushed()
        async for element in _each(elements):
            for body in batcher.add(element):
                done += await self._push(calls.push(stream, body, strict=False), stream, retry=retry)
        for body in batcher.flush():
            done += await self._push(calls.push(stream, body, strict=False), stream, retry=retry)
        return done

    async def _push(self, call: Call[Pushed], stream: object, *, retry: bool) -> Pushed:
        return self._connection.report(stream, await self._send(call, retry=retry))

    async def heartbeat(self, time: Time, stream: str | NamedNode | None = None) -> None:
        """No element before this time will come, on one stream or on all."""
        if stream is None:
            known = [str(each["iri"]) for each in await self.streams()]
        else:
            known = [iri_of(stream) or str((await self._send(calls.show_stream(stream)))["iri"])]
        for iri in known:
            await self._push(calls.push(iri, heartbeat_of(iri, time)), iri, retry=True)

    # ------------------------------------------------------------ queries

    async def register(
        self,
        query: str | os.PathLike[str],
        *,
        name: str | None = None,
        emit: str | None = None,
        policy: str | None = None,
        dialect: str | None = None,
        memory: int | str | None = None,
        time: int | str | None = None,
    ) -> AsyncRemoteQuery:
        """Add a query: its text, or the path of a `.rq` file with it. It sees what arrives from now on."""
        options = {"emit": emit, "policy": policy, "dialect": dialect, "memory": memory, "time": time}
        return AsyncRemoteQuery(self, await self._send(calls.register(query, name, options)))

    async def query(self, name: str) -> AsyncRemoteQuery:
        """The query of a name."""
        return AsyncRemoteQuery(self, await self._send(calls.show_query(calls.name_of(name))))

    async def queries(self) -> list[AsyncRemoteQuery]:
        return [AsyncRemoteQuery(self, info) for info in await self._send(calls.list_queries())]

    async def drop(self, query: str | AsyncRemoteQuery) -> None:
        """Stop a query, and forget it."""
        await self._send(calls.drop(calls.name_of(query)))

    async def explain(self, query: str | AsyncRemoteQuery, format: str = "text") -> str:
        """The plan of a query, with what it has done: as `text`, `json` or `mermaid`."""
        return await self._send(calls.explain(calls.name_of(query), format))

    async def results(
        self,
        query: str | AsyncRemoteQuery,
        *,
        after: int | None = None,
        from_start: bool = False,
        on_missed: OnMissed | None = None,
        patience: float | None = None,
    ) -> AsyncIterator[RemoteResult]:
        """The results of a query as they come, from when the first is waited for, until the query is dropped.

        Those of a handle, `query.results()`, begin where the handle is.  A loop that is left leaves the connection to
        the event loop; `contextlib.aclosing` closes it at once.
        """
        info = await self._send(calls.show_query(calls.name_of(query)))
        number = first_number(int(info["results"]), after, from_start=from_start)
        following = Following(str(info["name"]), number, on_missed=on_missed, patience=patience)
        async for result in self.follow(following):
            yield result

    async def follow(self, following: Following) -> AsyncIterator[RemoteResult]:
        """The results that a reader in this state gets, one by one; it moves with them."""
        shown = calls.show_query(following.name)
        while True:
            try:
                following.know(await self._sent(shown))
                async with self._streamed(following.call()) as chunks:
                    following.connected()
                    async for chunk in chunks:
                        for result in following.feed(chunk):
                            yield result
                        if following.ended:
                            return
                        if following.is_quiet:
                            with suppress(NotFound):  # the next line says that it was dropped
                                following.know(await self._sent(shown))
            except CqelsError as error:
                if self._connection.is_closed:
                    return
                await self._pause(following.failed(error))

    async def take(
        self, query: str | AsyncRemoteQuery, *, after: int | None = None, limit: int | None = None, wait: float = 0
    ) -> list[RemoteResult]:
        """The results that the service has, behind a number or all; where there are none, wait so many seconds."""
        info = await self._send(calls.show_query(calls.name_of(query)))
        number = first_number(0, after, from_start=after is None)
        return (await self.taken(info, number, limit=limit, wait=wait)).results

    async def taken(self, info: dict[str, Any], number: int | None, *, limit: int | None, wait: float) -> Taking:
        """The results of a query from a number on, and where they end; `info` is what the service says of the query."""
        taking = Taking(info, number, limit=limit, wait=wait, longest=self._connection.timeout)
        while (call := taking.call) is not None:
            taking.answered(await self._send(call))
        return taking

    # ------------------------------------------------------------ static data

    async def load(self, source: Any, graph: str | NamedNode | None = None, *, format: str | None = None) -> int:
        """Add triples to the static data, to the default graph or to a named one: how many the source has."""
        count, requests = await asyncio.to_thread(loading, source, graph, format)
        for call in requests:
            await self._send(call)
        return count

    async def update(self, change: str) -> None:
        """Change the static data by a SPARQL Update. When this returns, all queries have seen it."""
        await self._send(calls.update(change))

    async def select(self, query: str) -> list[Result]:
        """The rows of a SELECT over the static data, now."""
        return await self._send(calls.select(query))

    async def ask(self, query: str) -> bool:
        """The answer of an ASK over the static data, now."""
        return await self._send(calls.ask(query))

    async def construct(self, query: str) -> list[Triple]:
        """The triples of a CONSTRUCT over the static data, now."""
        return await self._send(calls.construct(query))

    # ------------------------------------------------------------ the service

    async def status(self) -> dict[str, Any]:
        """What the service is, and what it has done."""
        return await self._send(calls.status())

    async def checkpoint(self) -> dict[str, Any]:
        """Have the state of all queries on the service's disk, now."""
        return await self._send(calls.checkpoint())

    async def close(self) -> None:
        """End the connections; readers of results end with them."""
        self._connection.end()
        self._closed.set()
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------ requests

    async def _send(self, call: Call[T], *, retry: bool = False) -> T:
        attempts = Attempts(self._connection, call.method, retry=retry)
        while True:
            try:
                return await self._sent(call)
            except TRIED_AGAIN as error:
                await self._pause(attempts.wait(error))

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the client."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    async def _sent(self, call: Call[T]) -> T:
        self._connection.check_open()
        try:
            response = await self._http.request(**request_of(call))
        except self._connection.faults as error:
            raise self._connection.lost(error, call.method) from None
        return call.read(self._connection.answered(response))

    @asynccontextmanager
    async def _streamed(self, call: Call[None]) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer as they come."""
        connection = self._connection
        connection.check_open()
        timeout = connection.httpx.Timeout(connection.timeout, read=max(QUIET, connection.timeout))
        try:
            async with self._http.stream(**request_of(call), timeout=timeout) as response:
                if response.status_code != 200:
                    await response.aread()
                    call.read(connection.answered(response))
                yield self._chunks(response.aiter_bytes())
        except connection.faults as error:
            raise connection.lost(error) from None

    async def _chunks(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            yield chunk
        raise self._connection.lost(EOFError())


async def _each(elements: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(elements, AsyncIterable):
        async for element in elements:
            yield element
    else:
        for element in elements:
            yield element


def connect_async(
    url: str,
    *,
    token: str | None = None,
    timeout: float = TIMEOUT,
    patience: float = PATIENCE,
    reject: Callable[[Rejected], None] | None = None,
) -> AsyncClient:
    """A client as `connect` makes it, whose methods are awaited."""
    return AsyncClient(Connection(url, token, timeout, patience, reject))
