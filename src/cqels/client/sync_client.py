"""The client of a service: the words of the engine, over HTTP. `async_client` is the same to be awaited."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Event
from types import TracebackType
from typing import Any, TypeVar

from pyoxigraph import NamedNode

from cqels.client import calls
from cqels.client.calls import Call, Pushed
from cqels.client.client_errors import NotFound
from cqels.client.connection import PATIENCE, TIMEOUT, TRIED_AGAIN, Attempts, Connection, hang_up, request_of
from cqels.client.following import QUIET, Following, OnMissed, first_number
from cqels.client.heartbeats import heartbeat_of, iri_of
from cqels.client.push_body import BATCH, Batcher, Time, body_of
from cqels.client.remote_query import RemoteQuery
from cqels.client.remote_result import RemoteResult
from cqels.client.static_data import loading
from cqels.client.taking import Taking
from cqels.ingest import Rejected
from cqels.model.errors import CqelsError
from cqels.model.terms import Triple
from cqels.results import Result

T = TypeVar("T")


class Client:
    """A service of `cqels serve`. It can be used from several threads. `connect` makes one; nothing is sent by that."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._http = connection.httpx.Client(**connection.options())
        self._closed = Event()
        self._streams: set[Any] = set()
        """The connections that readers of results wait at."""

    def __repr__(self) -> str:
        return f"<client of {self._connection.url}>"

    # ------------------------------------------------------------ streams

    def stream(
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
        """Declare a stream: what it is. One that is pushed to or that a query names is declared by that.

        With the clock `arrival` an element's time is when it comes.  Elements are held back for `lateness` and sorted;
        a stream that is silent holds others back for its `idle` time.  `time` is the predicate whose object is an
        element's time, `unit` what integers that are times count.  `template` says how JSON and CSV become triples: the
        path of a `.toml` file here, or its text.  `overflow` is what happens when the `inbox`, as in `1GB`, is full.
        """
        words: dict[str, Any] = {"clock": clock, "lateness": lateness, "idle": idle, "time": time, "unit": unit}
        words |= {"template": template, "overflow": overflow, "inbox": inbox}
        return self._send(calls.declare(stream, words))

    def streams(self) -> list[dict[str, Any]]:
        """The streams that there are, and what has come to them."""
        return self._send(calls.list_streams())

    def push(
        self,
        stream: str | NamedNode,
        data: Any,
        time: Time | Iterable[Time] | None = None,
        *,
        format: str | None = None,
        retry: bool = False,
    ) -> Pushed:
        """Elements arrive on a stream: how many. When this returns, the service has them on its disk.

        `data` is a text in Turtle, N-Triples, TriG, N-Quads, JSON-LD, JSON or CSV, whose `format` the service finds out
        where it is not given; of pyoxigraph or rdflib a triple, a list of triples or a graph: one element at one time;
        or a dict or a list of them, which the stream's template lifts.  Without a time an element has the one that it
        carries, else that of its arrival.  With a list of times, `data` is a list of as many elements.

        Where the service is too busy or is being restarted, this waits and repeats the push, up to the client's
        `patience`.  A push is not idempotent: if the connection is lost in the middle, `ConnectionLost` says that it is
        not known whether the elements arrived.  With `retry` it is repeated then too: they arrive at least once.
        """
        return self._push(calls.push(stream, body_of(data, time, format)), stream, retry=retry)

    def push_many(
        self,
        stream: str | NamedNode,
        elements: Iterable[Any],
        *,
        format: str | None = None,
        batch: int = BATCH,
        retry: bool = False,
    ) -> Pushed:
        """Push all that comes from an iterable, in requests of `batch` elements: how many were taken.

        An element is a pair of data and time, a dict, or a text: a line of timed N-Triples, of JSON (`format="ndjson"`)
        or of CSV, whose first one is the header; each other text is an element with a request of its own.  So a file of
        lines can be pushed, or what a generator makes.  What is rejected is counted, even if it is all of them.
        """
        batcher, done = Batcher(format, batch), Pushed()
        for element in elements:
            for body in batcher.add(element):
                done += self._push(calls.push(stream, body, strict=False), stream, retry=retry)
        for body in batcher.flush():
            done += self._push(calls.push(stream, body, strict=False), stream, retry=retry)
        return done

    def _push(self, call: Call[Pushed], stream: object, *, retry: bool) -> Pushed:
        return self._connection.report(stream, self._send(call, retry=retry))

    def heartbeat(self, time: Time, stream: str | NamedNode | None = None) -> None:
        """No element before this time will come, on one stream or on all."""
        if stream is None:
            known = [str(each["iri"]) for each in self.streams()]
        else:
            known = [iri_of(stream) or str(self._send(calls.show_stream(stream))["iri"])]
        for iri in known:
            self._push(calls.push(iri, heartbeat_of(iri, time)), iri, retry=True)

    # ------------------------------------------------------------ queries

    def register(
        self,
        query: str | os.PathLike[str],
        *,
        name: str | None = None,
        emit: str | None = None,
        policy: str | None = None,
        dialect: str | None = None,
        memory: int | str | None = None,
        time: int | str | None = None,
    ) -> RemoteQuery:
        """Add a query: its text, or the path of a `.rq` file with it. It sees what arrives from now on.

        Without a name it is called like its file, or by a hash of its text.  If the same query runs under the name, it
        goes on; another one is replaced, and its windows begin anew: `info["state"]` is new, kept or anew.  It is
        stopped if it takes more `memory`, as in `200MB`, or more `time` for an element, as in `5ms`.
        """
        options = {"emit": emit, "policy": policy, "dialect": dialect, "memory": memory, "time": time}
        return RemoteQuery(self, self._send(calls.register(query, name, options)))

    def query(self, name: str) -> RemoteQuery:
        """The query of a name."""
        return RemoteQuery(self, self._send(calls.show_query(calls.name_of(name))))

    def queries(self) -> list[RemoteQuery]:
        return [RemoteQuery(self, info) for info in self._send(calls.list_queries())]

    def drop(self, query: str | RemoteQuery) -> None:
        """Stop a query, and forget it."""
        self._send(calls.drop(calls.name_of(query)))

    def explain(self, query: str | RemoteQuery, format: str = "text") -> str:
        """The plan of a query, with what it has done: as `text`, `json` or `mermaid`."""
        return self._send(calls.explain(calls.name_of(query), format))

    def results(
        self,
        query: str | RemoteQuery,
        *,
        after: int | None = None,
        from_start: bool = False,
        on_missed: OnMissed | None = None,
        patience: float | None = None,
    ) -> Iterator[RemoteResult]:
        """The results of a query as they come, from now on, until it is dropped.

        `after` is the number of the last one that was read, `from_start` begins with the oldest that the service has.
        Where the connection is lost or the service restarts, the reader connects again, for `patience` seconds, without
        it for ever, and goes on behind the last result: none comes twice.  Results that the service no longer has raise
        `ResultsMissed`; `on_missed` is called with that instead, and reading goes on.  A query that is stopped by its
        budget raises `QueryStopped`.
        """
        info = self._send(calls.show_query(calls.name_of(query)))
        number = first_number(int(info["results"]), after, from_start=from_start)
        return self.follow(Following(str(info["name"]), number, on_missed=on_missed, patience=patience))

    def follow(self, following: Following) -> Iterator[RemoteResult]:
        """The results that a reader in this state gets, one by one; it moves with them."""
        shown = calls.show_query(following.name)
        while True:
            try:
                following.know(self._sent(shown))
                with self._streamed(following.call()) as chunks:
                    following.connected()
                    for chunk in chunks:
                        yield from following.feed(chunk)
                        if following.ended:
                            return
                        if following.is_quiet:
                            with suppress(NotFound):  # the next line says that it was dropped
                                following.know(self._sent(shown))
            except CqelsError as error:
                if self._connection.is_closed:
                    return
                self._closed.wait(following.failed(error))

    def take(
        self, query: str | RemoteQuery, *, after: int | None = None, limit: int | None = None, wait: float = 0
    ) -> list[RemoteResult]:
        """The results that the service has, behind a number or all; where there are none, wait so many seconds."""
        info = self._send(calls.show_query(calls.name_of(query)))
        number = first_number(0, after, from_start=after is None)
        return self.taken(info, number, limit=limit, wait=wait).results

    def taken(self, info: dict[str, Any], number: int | None, *, limit: int | None, wait: float) -> Taking:
        """The results of a query from a number on, and where they end; `info` is what the service says of the query."""
        taking = Taking(info, number, limit=limit, wait=wait, longest=self._connection.timeout)
        while (call := taking.call) is not None:
            taking.answered(self._send(call))
        return taking

    # ------------------------------------------------------------ static data

    def load(self, source: Any, graph: str | NamedNode | None = None, *, format: str | None = None) -> int:
        """Add triples to the static data, to the default graph or to a named one: how many the source has.

        That is the path of a file here, or a graph, a dataset or a list of triples of pyoxigraph or of rdflib; the
        named graphs of a dataset stay what they are, and each is added by a request of its own.
        """
        count, requests = loading(source, graph, format)
        for call in requests:
            self._send(call)
        return count

    def update(self, change: str) -> None:
        """Change the static data by a SPARQL Update. When this returns, all queries have seen it."""
        self._send(calls.update(change))

    def select(self, query: str) -> list[Result]:
        """The rows of a SELECT over the static data, now."""
        return self._send(calls.select(query))

    def ask(self, query: str) -> bool:
        """The answer of an ASK over the static data, now."""
        return self._send(calls.ask(query))

    def construct(self, query: str) -> list[Triple]:
        """The triples of a CONSTRUCT over the static data, now."""
        return self._send(calls.construct(query))

    # ------------------------------------------------------------ the service

    def status(self) -> dict[str, Any]:
        """What the service is, and what it has done."""
        return self._send(calls.status())

    def checkpoint(self) -> dict[str, Any]:
        """Have the state of all queries on the service's disk, now."""
        return self._send(calls.checkpoint())

    def close(self) -> None:
        """End the connections; readers of results, in other threads too, end with them."""
        self._connection.end()
        self._closed.set()
        for stream in [*self._streams]:
            hang_up(stream)
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ requests

    def _send(self, call: Call[T], *, retry: bool = False) -> T:
        attempts = Attempts(self._connection, call.method, retry=retry)
        while True:
            try:
                return self._sent(call)
            except TRIED_AGAIN as error:
                self._closed.wait(attempts.wait(error))

    def _sent(self, call: Call[T]) -> T:
        self._connection.check_open()
        try:
            response = self._http.request(**request_of(call))
        except self._connection.faults as error:
            raise self._connection.lost(error, call.method) from None
        return call.read(self._connection.answered(response))

    @contextmanager
    def _streamed(self, call: Call[None]) -> Iterator[Iterator[bytes]]:
        """The bytes of an answer as they come."""
        connection = self._connection
        timeout = connection.httpx.Timeout(connection.timeout, read=max(QUIET, connection.timeout))
        try:
            with self._http.stream(**request_of(call), timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    call.read(connection.answered(response))
                stream = response.extensions["network_stream"]
                self._streams.add(stream)
                try:
                    connection.check_open()
                    yield self._chunks(response.iter_bytes())
                finally:
                    self._streams.discard(stream)
        except connection.faults as error:
            raise connection.lost(error) from None

    def _chunks(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        yield from chunks
        raise self._connection.lost(EOFError())


def connect(
    url: str,
    *,
    token: str | None = None,
    timeout: float = TIMEOUT,
    patience: float = PATIENCE,
    reject: Callable[[Rejected], None] | None = None,
) -> Client:
    """A client of the service at an address, as `http://127.0.0.1:7070`.

    An answer has to come within `timeout` seconds.  Where the service is too busy for a request, or is being restarted,
    that is repeated for `patience` seconds.  `reject` is called with elements that the service has rejected; without
    it the log has warnings.
    """
    return Client(Connection(url, token, timeout, patience, reject))
