"""Both clients for the same tests: one that is awaited is driven from a thread that has its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from inspect import isawaitable
from threading import Thread
from time import monotonic, sleep
from typing import Any

import cqels
from cqels.client import AsyncRemoteQuery

KINDS = ("sync", "async")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Awaited:
    """Something with coroutines, used as if they were functions; queries that it gives are such things too."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._called(found) if callable(found) else found

    def __repr__(self) -> str:
        return repr(self._inner)

    def __iter__(self) -> Iterator[Any]:
        return self._each(aiter(self._inner))

    def _called(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            given = tuple(each._inner if isinstance(each, Awaited) else each for each in given)
            made = method(*given, **named)
            if isinstance(made, AsyncIterator):
                return self._each(made)
            return self._shown(self._loop.run(_awaited(made))) if isawaitable(made) else made

        return call

    def _shown(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._shown(each) for each in value]
        return Awaited(value, self._loop) if isinstance(value, AsyncRemoteQuery) else value

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop.run(_awaited(anext(items)))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(items.aclose())  # type: ignore[attr-defined]


class AwaitedClient(Awaited):
    """An asynchronous client, and its loop."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(cqels.connect_async(url, **options), Loop())

    def close(self) -> None:
        self._loop.run(self._inner.close())

    def end(self) -> None:
        self._loop.close()


async def _awaited(value: Any) -> Any:
    return await value


def connected(kind: str, url: str, **options: Any) -> Any:
    """A client of one of the kinds."""
    return cqels.connect(url, **options) if kind == "sync" else AwaitedClient(url, **options)


def ended(client: Any) -> None:
    """Close a client, whatever it is."""
    client.close()
    if isinstance(client, AwaitedClient):
        client.end()


def eventually(what: Callable[[], object], within: float = 20.0) -> None:
    """Wait until something is so."""
    limit = monotonic() + within
    while not what():
        assert monotonic() < limit, "it has not happened"
        sleep(0.005)


class Reader:
    """Reads results in a thread, up to the end or to an error."""

    def __init__(self, results: Iterator[Any]) -> None:
        self.results: list[Any] = []
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run, args=(results,), daemon=True)
        self._thread.start()

    def _run(self, results: Iterator[Any]) -> None:
        try:
            for result in results:
                self.results.append(result)
        except Exception as error:
            self.error = error

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, seconds: float = 20.0) -> None:
        self._thread.join(seconds)
        assert self.has_ended
