"""The service over HTTP and WebSocket: what each path does. `openapi.py` describes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from cqels.model.choices import Dialect, Emission, Policy
from cqels.model.errors import CqelsError
from cqels.model.time import parse_time
from cqels.pipeline.sink.result_log import Part
from cqels.serve.access import Access, Right
from cqels.serve.dataset_routes import SPARQL_JSON, DatasetRoutes
from cqels.serve.guard import SOCKET, Guard, Limits
from cqels.serve.metrics import Exposition
from cqels.serve.observation import Observed
from cqels.serve.openapi import description
from cqels.serve.ordered_pushes import OrderedPushes
from cqels.serve.problems import Problem, problem, problem_of
from cqels.serve.reception import Outcome, Reception
from cqels.serve.requests import accepted, body_of, number_of, parameter, refuse_others, seconds_of, text_of
from cqels.serve.served_stream import ServedStream
from cqels.serve.service import Service
from cqels.serve.subscriptions import Ended, Missed, Quiet, Subscriptions, Told, as_events, as_lines

EVENTS, LINES, JSON = "text/event-stream", "application/x-ndjson", "application/json"
_WAIT, _LONGEST_WAIT = 30.0, 300.0
"""Seconds that long polling waits, if nothing else is said, and at most."""
_POLLED = 10_000
"""Results that one answer of long polling has at most."""
_STREAMED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What HTTP is told: who may come, and how much of it."""

    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)


class Routes:
    """Handlers of requests, each of which waits in threads where the service has to."""

    def __init__(self, service: Service, settings: HttpSettings) -> None:
        self.service, self._settings = service, settings
        self._most = settings.limits.body
        self.data = DatasetRoutes(service, self._most)
        self.subscriptions: Subscriptions
        self.exposition = Exposition(service)

    # ------------------------------------------------------------ streams

    async def list_streams(self, request: Request) -> Response:
        refuse_others(request, ())
        return JSONResponse({"streams": await asyncio.to_thread(self.service.streams)})

    async def show_stream(self, request: Request) -> Response:
        refuse_others(request, ())
        return JSONResponse(await asyncio.to_thread(self.service.stream, request.path_params["name"]))

    async def declare_stream(self, request: Request) -> Response:
        refuse_others(request, ())
        name, text = request.path_params["name"], await text_of(request, self._most)
        try:
            words = ServedStream.read(json.loads(text or "{}"))
        except (ValueError, RecursionError) as error:
            raise Problem(400, f"the body is not JSON: {error}") from None
        is_new = await asyncio.to_thread(self.service.declare, name, words)
        stream = await asyncio.to_thread(self.service.stream, name)
        return JSONResponse(stream, 201 if is_new else 200)

    async def push(self, request: Request) -> Response:
        """Acknowledge elements when they are in the inbox."""
        if request.query_params:
            refuse_others(request, ("time",))
        reception = await self._reception(request.path_params["name"])
        body = await body_of(request, self._most)
        outcome = await reception.push(body, request.headers.get("content-type", ""), _time(request))
        self.exposition.pushed(outcome)
        return _answered(outcome)

    async def _reception(self, name: str) -> Reception:
        known = self.service.known_reception(name)
        return known if known is not None else await asyncio.to_thread(self.service.reception, name)

    # ------------------------------------------------------------ queries

    async def list_queries(self, request: Request) -> Response:
        refuse_others(request, ())
        return JSONResponse({"queries": await asyncio.to_thread(self.service.queries)})

    async def show_query(self, request: Request) -> Response:
        refuse_others(request, ())
        return JSONResponse(await asyncio.to_thread(self.service.query, request.path_params["name"]))

    async def register(self, request: Request) -> Response:
        words: dict[str, Any] = {"dialect": Dialect, "emit": Emission, "policy": Policy}
        refuse_others(request, (*words, "memory", "time"))
        options = {name: _choice(request, name, kind) for name, kind in words.items()}
        options |= {name: parameter(request, name) for name in ("memory", "time")}
        name, text = request.path_params["name"], await text_of(request, self._most)
        if not text.strip():
            raise Problem(400, "there is no query in the body", hint="curl -T hot.rq …/queries/hot")
        found = await asyncio.to_thread(lambda: self.service.register(name, text, **options))
        return JSONResponse(found, 201 if found["state"] == "new" else 200)

    async def drop(self, request: Request) -> Response:
        refuse_others(request, ())
        await asyncio.to_thread(self.service.drop, request.path_params["name"])
        return Response(status_code=204)

    async def explain(self, request: Request) -> Response:
        refuse_others(request, ("format",))
        given = parameter(request, "format")
        format = "text" if given is None else given
        if format not in ("text", "json", "mermaid"):
            raise Problem(400, f"there is no format '{format[:40]}'", hint="there are text, json, mermaid")
        text = await asyncio.to_thread(self.service.explain, request.path_params["name"], format)
        return Response(text, media_type=JSON) if format == "json" else PlainTextResponse(text + "\n")

    # ------------------------------------------------------------ results

    async def results(self, request: Request) -> Response:
        """Results as they come, or those that there are."""
        refuse_others(request, ("after", "from", "limit", "wait", "access_token"))
        streams, documents = (EVENTS, LINES), (JSON, SPARQL_JSON)
        waits = "wait" in request.query_params  # which only a document does
        media = accepted(request, documents + streams if waits else streams + documents)
        name = await asyncio.to_thread(self.service.result_name, request.path_params["name"])
        number, limit = await self._number(request, name), number_of(request, "limit", 1)
        if media in (EVENTS, LINES):
            encode, media = (as_events, EVENTS) if media == EVENTS else (as_lines, LINES)
            stream = self._streamed(name, number, limit, encode)
            return StreamingResponse(stream, media_type=media, headers=_STREAMED)
        seconds = seconds_of(request, "wait", _WAIT, _LONGEST_WAIT)
        return await self._polled(name, number, limit or _POLLED, seconds, media)

    async def _number(self, request: Request, name: str) -> int:
        """The number that a reader begins with."""
        after = number_of(request, "after")
        begin = parameter(request, "from")
        last = request.headers.get("last-event-id", "").strip()
        if begin not in (None, "now", "start"):
            raise Problem(400, f"results begin now or at the start, and not at '{begin[:40]}'")
        if last:
            if not (last.isascii() and last.isdigit()) or len(last) > 18:
                raise Problem(400, f"Last-Event-ID is not the id of a result: '{last[:40]}'")
            return int(last) + 1
        if after is not None:
            return after + 1
        if begin == "start":
            return await asyncio.to_thread(self.service.results.first, name)
        return self.service.results.end(name)

    async def _streamed(
        self, name: str, number: int, limit: int | None, encode: Callable[[Told], bytes]
    ) -> AsyncIterator[bytes]:
        if encode is as_events:
            yield b"retry: 1000\n: connected\n\n"
        async for told in _limited(self.subscriptions.follow(name, number), limit):
            yield encode(told)

    async def _polled(self, name: str, number: int, limit: int, seconds: float, media: str) -> Response:
        await self.subscriptions.wait(name, number, seconds)
        found = await self.subscriptions.read(name, number)
        lines = [line for part in found.parts for line in part.lines][:limit]
        following = found.next if not found.parts else found.parts[0].first + len(lines)
        headers = {"Cqels-Last-Id": str(following - 1), "Cache-Control": "no-store"}
        if found.missed:
            headers["Cqels-Missed"] = str(found.missed)
        results = [json.loads(line) for line in lines]
        if media == JSON:
            content: dict[str, Any] = {"results": results, "last": following - 1, "missed": found.missed}
            return JSONResponse(content, headers=headers)
        query = self.service.query(name)
        bindings = [each.get("bindings", {}) for each in results if not each.get("empty")]
        content = {"head": {"vars": query["variables"]}, "results": {"bindings": bindings}}
        return JSONResponse(content, headers=headers, media_type=SPARQL_JSON)

    async def results_socket(self, socket: WebSocket) -> None:
        """Results over a WebSocket: a message for each."""
        try:
            name = await asyncio.to_thread(self.service.result_name, socket.path_params["name"])
            after = socket.query_params.get("after", "")
            begin = socket.query_params.get("from", "now")
            if after:
                if not (after.isascii() and after.isdigit()):
                    raise Problem(400, f"'{after[:40]}' is not the id of a result")
                number = int(after) + 1
            elif begin == "start":
                number = await asyncio.to_thread(self.service.results.first, name)
            else:
                number = self.service.results.end(name)
        except (CqelsError, Problem) as error:
            await socket.close(4404, str(getattr(error, "message", error))[:120])
            return
        await socket.accept()
        left = asyncio.ensure_future(_left(socket))
        sending = asyncio.ensure_future(self._send_all(socket, name, number))
        try:
            await asyncio.wait([left, sending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
            sending.cancel()

    async def _send_all(self, socket: WebSocket, name: str, number: int) -> None:
        async for told in self.subscriptions.follow(name, number):
            if isinstance(told, Part):
                for line in told.lines:
                    await socket.send_text(line.decode())
            elif not isinstance(told, Quiet):
                await socket.send_text(told.line().decode())
        await socket.close()

    async def push_socket(self, socket: WebSocket) -> None:
        """Elements over a WebSocket: each message is a push, and is acknowledged by one."""
        try:
            reception = await self._reception(socket.path_params["name"])
        except CqelsError as error:
            await socket.close(4400, error.message[:120])
            return
        await socket.accept()
        media = socket.query_params.get("format", "")
        pushes = OrderedPushes(reception, media)
        answering = asyncio.ensure_future(self._acknowledge(socket, pushes))
        try:
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    break
                text = message.get("text")
                await pushes.put(message.get("bytes") or b"" if text is None else text.encode())
        except WebSocketDisconnect:
            pass
        finally:
            await pushes.end()
            await answering

    async def _acknowledge(self, socket: WebSocket, pushes: OrderedPushes) -> None:
        while True:
            try:
                outcome = await pushes.take()
                if outcome is None:
                    return
                self.exposition.pushed(outcome)
                answer: dict[str, Any] = {"accepted": outcome.accepted}
                if outcome.rejected:
                    answer |= {"rejected": outcome.rejected, "errors": outcome.errors}
                if outcome.sample != 1:
                    answer["sample"] = outcome.sample
            except CqelsError as error:
                answer = {"accepted": 0, "error": error.message}
            try:
                await socket.send_text(json.dumps(answer))
            except (RuntimeError, WebSocketDisconnect):
                continue  # it has gone; what it has pushed is in the inbox

    # ------------------------------------------------------------ the service

    async def root(self, request: Request) -> Response:
        content = await asyncio.to_thread(self.service.status)
        links = {name: f"/{name}" for name in ("streams", "queries", "sparql", "data", "metrics", "openapi.json")}
        return JSONResponse({"service": "cqels", **content, "links": links})

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        if not self.service.is_ready():
            raise Problem(503, "the run has ended", hint="the log of the service says why")
        return PlainTextResponse("ready\n")

    async def metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        text, media = await asyncio.to_thread(self.exposition.text, self.subscriptions, accept)
        return Response(text, media_type=media)

    async def checkpoint(self, request: Request) -> Response:
        refuse_others(request, ())
        return JSONResponse(await asyncio.to_thread(self.service.checkpoint))

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(description(self.service.names.base))


def application(service: Service, settings: HttpSettings | None = None) -> Observed:
    """The ASGI application of a service, which is started and stopped by others."""
    chosen = settings or HttpSettings()
    routes = Routes(service, chosen)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        routes.subscriptions = Subscriptions(service, asyncio.get_running_loop())
        yield
        routes.subscriptions.stop()

    table = _table(routes)
    made: list[BaseRoute] = []
    for path in dict.fromkeys(path for _, path, *_ in table):
        handlers = {method: handler for method, known, _, handler in table if known == path}
        # a longer path has all methods: another one is not that of a query whose name ends like it
        methods = _METHODS if path.startswith("/queries/{name:path}/") else [*handlers]
        made.append(Route(path, _dispatch(handlers), methods=methods))
    sockets: list[tuple[str, Right, Callable[[WebSocket], Awaitable[None]]]] = [
        ("/queries/{name:path}/results", "read", routes.results_socket),
        ("/streams/{name:path}", "push", routes.push_socket),
    ]
    made += [WebSocketRoute(path, handler) for path, _, handler in sockets]
    rights = [(method, path, right) for method, path, right, _ in table]
    rights += [(SOCKET, path, right) for path, right, _ in sockets]
    faults: dict[Any, Any] = {404: _no_path, 405: _no_method, Exception: _failed}
    app = Starlette(routes=made, exception_handlers=faults, lifespan=lifespan)
    app.router.redirect_slashes = False
    guard = Guard(app, chosen.access, chosen.limits, rights)
    return Observed(guard, service, routes.exposition, [path for _, path, *_ in table])


def _table(routes: Routes) -> list[tuple[str, str, Right | None, Handler]]:
    """Methods, paths, the right that each needs, and what it does; longer paths come first."""
    data = routes.data
    return [
        # they are looked through from the top, and most requests are pushes
        ("POST", "/streams/{name:path}", "push", routes.push),
        ("GET", "/streams/{name:path}", "read", routes.show_stream),
        ("PUT", "/streams/{name:path}", "register", routes.declare_stream),
        ("GET", "/", "read", routes.root),
        ("GET", "/health", None, routes.health),
        ("GET", "/ready", None, routes.ready),
        ("GET", "/metrics", "read", routes.metrics),
        ("GET", "/openapi.json", None, routes.openapi),
        ("POST", "/checkpoint", "admin", routes.checkpoint),
        ("GET", "/sparql", "read", data.ask),
        ("POST", "/sparql", "read", data.post),  # an update needs admin, which the handler looks at
        ("GET", "/data", "read", data.get_graph),
        ("PUT", "/data", "admin", data.put_graph),
        ("POST", "/data", "admin", data.post_graph),
        ("DELETE", "/data", "admin", data.delete_graph),
        ("GET", "/streams", "read", routes.list_streams),
        ("GET", "/queries", "read", routes.list_queries),
        ("GET", "/queries/{name:path}/results", "read", routes.results),
        ("GET", "/queries/{name:path}/explain", "read", routes.explain),
        ("GET", "/queries/{name:path}", "read", routes.show_query),
        ("PUT", "/queries/{name:path}", "register", routes.register),
        ("DELETE", "/queries/{name:path}", "register", routes.drop),
    ]


def _dispatch(handlers: dict[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            if method not in handlers:
                raise _no_such_method(request, handlers)
            return await handlers[method](request)
        except Exception as error:
            return problem_of(error)

    return handle


def _no_such_method(request: Request, handlers: Iterable[str]) -> Problem:
    allowed = {*handlers} | ({"HEAD"} if "GET" in handlers else set())
    detail = f"{request.method} is not for {request.url.path[:200]}"
    return Problem(405, detail, headers={"Allow": ", ".join(sorted(allowed))})


async def _no_path(request: Request, error: Exception) -> Response:
    return problem(404, f"there is nothing at {request.url.path[:200]}", hint="GET / says what there is")


async def _no_method(request: Request, error: Exception) -> Response:
    headers = getattr(error, "headers", None)
    return problem(405, f"{request.method} is not for {request.url.path[:200]}", headers=headers)


async def _failed(request: Request, error: Exception) -> Response:
    return problem_of(error)


async def _limited(told: AsyncIterator[Told], limit: int | None) -> AsyncIterator[Told]:
    """What comes up to so many results."""
    left = limit
    async for each in told:
        if left is None or not isinstance(each, Part):
            yield each
            continue
        yield each.limited(left)
        left -= each.count
        if left <= 0:
            return


async def _left(socket: WebSocket) -> None:
    """Wait until the other side has gone."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _answered(outcome: Outcome) -> Response:
    if outcome.rejected and not outcome.accepted:
        first = outcome.errors[0]
        reason = f"{first['at']}: {first['reason']}" if first["at"] else first["reason"]
        return problem(400, reason, accepted=0, rejected=outcome.rejected, errors=outcome.errors)
    content: dict[str, Any] = {"accepted": outcome.accepted, "rejected": outcome.rejected}
    if outcome.errors:
        content["errors"] = outcome.errors
    if outcome.sample != 1:
        content["sample"] = outcome.sample
    return JSONResponse(content)


def _choice(request: Request, name: str, kind: Any) -> str | None:
    value = parameter(request, name)
    if value is not None and value not in get_args(kind):
        raise Problem(400, f"'{value[:40]}' is no {name}", hint=f"there are {', '.join(get_args(kind))}")
    return value


def _time(request: Request) -> int | None:
    text = parameter(request, "time") if request.query_params else None
    if text is None:
        return None
    try:
        return parse_time(text)
    except (ValueError, CqelsError) as error:
        raise Problem(400, f"the parameter time is not a time: {error}", hint="as in 2026-11-18T10:00:00Z") from None


__all__ = ["Ended", "HttpSettings", "Missed", "Routes", "application"]
