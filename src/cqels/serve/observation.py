"""Each request of a service as others see it: counted and timed, a line in the log, and a trace if they are wanted."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from time import monotonic
from typing import Any

from starlette.routing import compile_path

from cqels.live.run_measures import Measured
from cqels.serve.logs import ACCESS, FIELDS
from cqels.serve.metrics import Exposition
from cqels.serve.service import Service
from cqels.serve.tracing import tracing

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_QUIET = frozenset({"/health", "/ready", "/metrics"})
"""Paths that machines ask for again and again."""
_PUSH = "/streams/{name}"
_STARTS = {
    "http.response.start": 0,
    "websocket.http.response.start": 0,
    "websocket.accept": 101,
    "websocket.close": 403,
}
"""Messages that begin an answer, and the status of those that do not say it: who closes first, has denied."""
_LOG = logging.getLogger(ACCESS)


class Observed:
    """An application whose requests are seen."""

    def __init__(self, app: App, service: Service, exposition: Exposition, paths: Iterable[str]) -> None:
        """`paths` are those of its routes, longer ones first."""
        self._app, self._exposition = app, exposition
        self._paths = [(path.replace(":path}", "}"), compile_path(path)[0]) for path in dict.fromkeys(paths)]
        self._tracing = tracing()
        if self._tracing is not None and isinstance(service.run, Measured):
            service.run.follow(self._tracing.batch)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        method, path = _method(scope), self._path(scope["path"])
        if self._tracing is None:
            await self._observed(scope, receive, send, method, path, lambda status: None)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        traces = self._tracing
        with traces.request(method, path, headers) as span:
            is_push = path == _PUSH and method == "POST"

            def answered(status: int) -> None:
                traces.answered(span, status, is_push=is_push)

            await self._observed(scope, receive, send, method, path, answered)

    async def _observed(
        self,
        scope: Message,
        receive: Receive,
        send: Send,
        method: str,
        path: str,
        answered: Callable[[int], None],
    ) -> None:
        began = monotonic()
        known: list[int] = []

        def begins(status: int) -> None:
            known.append(status)
            self._exposition.answered(method, path, status, monotonic() - began)
            answered(status)

        async def sent(message: Message) -> None:
            if not known and (status := _STARTS.get(message["type"])) is not None:
                begins(status or int(message["status"]))
            await send(message)

        self._exposition.began()
        try:
            await self._app(scope, receive, sent)
        except Exception:
            if not known:
                begins(500)
            raise
        finally:
            self._exposition.ended()
            _log(scope, method, path, known[0] if known else 0, monotonic() - began)

    def _path(self, path: str) -> str:
        """The template of a path: there are few of them, whatever is asked for."""
        for template, regex in self._paths:
            if regex.match(path):
                return template
        return "other"


def _method(scope: Message) -> str:
    if scope["type"] == "websocket":
        return "WEBSOCKET"
    method: str = scope["method"]
    return method if method in _METHODS else "other"


def _log(scope: Message, method: str, path: str, status: int, seconds: float) -> None:
    """A line for a request. Pushes that were taken and what machines ask for are many: only a verbose log has them."""
    is_quiet = path in _QUIET or (path == _PUSH and method == "POST")
    level = logging.DEBUG if is_quiet and 200 <= status < 300 else logging.INFO
    if not _LOG.isEnabledFor(level):
        return
    client = (scope.get("client") or ("", 0))[0]
    milliseconds = round(1000 * seconds, 1)
    parts = {"method": method, "path": path, "status": status, "ms": milliseconds, "client": client}
    shown = f"{method} {path} {status} {milliseconds} ms {client}"
    _LOG.log(level, "%s", shown, extra={FIELDS: parts})
