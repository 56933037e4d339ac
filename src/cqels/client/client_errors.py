"""What goes wrong between a client and a service, as the errors of this package: never those of httpx."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cqels.model.errors import CqelsError, DataError, QueryError, Source, Span

_PLACE = re.compile(r"^  --> .*:(\d+):(\d+)$", re.MULTILINE)
_MARKER = re.compile(r"^   \| [ \t]*(\^+)$", re.MULTILINE)
_PASSING = (502, 503, 504)
"""Statuses of a service that is starting or stopping, or of a proxy before it."""


class ConnectionLost(CqelsError):
    """No answer came: the service does not run, or went away, or takes too long.

    What was asked may have been done, unless `is_sent` says that not even the request has arrived.
    """

    def __init__(self, message: str, *, hint: str | None = None, is_sent: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.is_sent = is_sent


class AccessDenied(CqelsError):
    """The service does not know the token, or the token does not have the right."""


class NotFound(CqelsError):
    """The service has no query, stream or graph of this name."""


class Conflict(CqelsError):
    """The service has something that what is asked for does not go together with."""


class ServiceBusy(CqelsError):
    """The service takes no more now; `after` is when to try again, in seconds. Nothing was done."""

    def __init__(self, message: str, *, hint: str | None = None, after: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.after = after


class ServiceFailed(CqelsError):
    """The service, or a proxy before it, could not answer."""


class ServiceUnavailable(ServiceFailed):
    """The service does not answer now; it may do so later."""


class ResultsMissed(CqelsError):
    """Results that the service no longer has: `count` of them. To go on behind them, read `after` this number."""

    def __init__(self, query: str, count: int, after: int) -> None:
        super().__init__(
            f"{count:,} results of query {query} are gone, those up to number {after}",
            hint=f"results(…, after={after}) goes on, on_missed=function is called instead of this error; the service "
            "keeps results up to a size, and this reader was too slow or away for too long",
        )
        self.query, self.count, self.after = query, count, after


def error_of(
    status: int, headers: Mapping[str, str], body: bytes, fault: type[CqelsError], source: Source | None = None
) -> CqelsError:
    """The error that an answer is. `fault` is that of a request which was refused, `source` the text that it had."""
    problem = problem_of(body)
    message = str(problem.get("detail") or f"the service answered with {status}")
    hint = problem.get("hint")
    match status:
        case 401 | 403:
            return AccessDenied(message, hint=hint or "connect(url, token=…)")
        case 404:
            return NotFound(message, hint=hint)
        case 409:
            return Conflict(message, hint=hint)
        case 429:
            return ServiceBusy(message, hint=hint, after=_seconds(headers.get("retry-after", "")))
        case 413 | 415:
            return DataError(message, hint=hint)
        case _ if status in _PASSING:
            return ServiceUnavailable(message, hint=hint)
        case _ if status >= 500:
            return ServiceFailed(message, hint=hint)
        case _ if issubclass(fault, QueryError) and "text" not in problem:
            return CqelsError(message, hint=hint)
        case _:
            return located(fault(message, hint=hint), str(problem.get("text", "")), source)


def located(error: CqelsError, shown: str, source: Source | None) -> CqelsError:
    """The error with the place that a service shows for it, in the text as it is here."""
    place, marker = _PLACE.search(shown), _MARKER.search(shown)
    if source is None or place is None:
        return error
    row, column = int(place[1]), int(place[2])
    lines = source.text.split("\n")
    start = sum(len(line) + 1 for line in lines[: row - 1]) + column - 1
    error.span = Span(start, start + (len(marker[1]) if marker else 1))
    error.locate(source)
    return error


def problem_of(body: bytes) -> dict[str, Any]:
    """Problem details (RFC 9457); a proxy may answer with something else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: str) -> float:
    """The header Retry-After, where it is a number."""
    return float(text) if text.isascii() and text.isdigit() else 1.0
