"""Errors as answers: problem details (RFC 9457), with the sentence and the hint, and never a trace."""

from __future__ import annotations

import logging
from typing import Any

from starlette.responses import JSONResponse, Response

from cqels.live.change_requests import RunEnded
from cqels.model.errors import CqelsError, DataError, QueryError
from cqels.serve.push_formats import UnknownMediaType
from cqels.serve.reception import Busy, Stopped
from cqels.serve.service import Conflict, NotFound

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timeout",
    409: "Conflict",
    413: "Content too large",
    414: "URI too long",
    415: "Unsupported media type",
    421: "Misdirected request",
    429: "Too many requests",
    431: "Request header fields too large",
    500: "Internal error",
    503: "Service unavailable",
}
_LOG = logging.getLogger("cqels")


class Problem(Exception):
    """What ends a request, and with which answer."""

    def __init__(
        self, status: int, detail: str, *, hint: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint, self.headers = status, detail, hint, headers

    def response(self) -> Response:
        return problem(self.status, self.detail, hint=self.hint, headers=self.headers)


def problem(
    status: int, detail: str, *, hint: str | None = None, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    content: dict[str, Any] = {"type": "about:blank", "title": TITLES.get(status, "Error"), "status": status}
    content["detail"] = detail
    if hint:
        content["hint"] = hint
    return JSONResponse(content | more, status, headers, MEDIA_TYPE)


def problem_of(error: Exception) -> Response:
    """The answer to a request that has failed."""
    match error:
        case Problem():
            return error.response()
        case Busy():
            return problem(429, error.message, hint=error.hint, headers={"Retry-After": str(error.after)})
        case Stopped() | RunEnded():
            return problem(503, error.message, hint=error.hint, headers={"Retry-After": "5"})
        case NotFound():
            return problem(404, error.message, hint=error.hint)
        case Conflict():
            return problem(409, error.message, hint=error.hint)
        case UnknownMediaType():
            return problem(415, error.message, hint=error.hint)
        case QueryError():
            return problem(400, error.message, hint=error.hint, text=str(error))
        case DataError():
            return problem(400, error.message, hint=error.hint)
        case CqelsError():
            return problem(400, error.message, hint=error.hint, text=str(error))
        case _:
            _LOG.error("a request has failed: %s", error, exc_info=error)
            return problem(500, "the service has failed", hint="its log says why")
