"""The webhook sink: the results of a batch are posted to a URL, query by query, at least once.

A request has a JSON array of results, or a line for each (`format="jsonl"`).  Every result has its `id`,
`<query>/<number>`, and every request the header `Idempotency-Key: <run>/<query>/<batch>`, the same when it is sent
again: by either of them the receiver drops what it has.  What the receiver refuses for good is a dead letter.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from cqels.ingest import Rejected
from cqels.model.errors import CqelsError
from cqels.model.extras import optional
from cqels.model.redact import redacted_url
from cqels.model.release import RELEASE
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.retried_delivery import Delivery, Patience, TryAgain, patience_of
from cqels.pipeline.sink.sink_protocol import AT_LEAST_ONCE, Sink
from cqels.pipeline.sink.sink_settings import Settings, SinkAddress
from cqels.pipeline.sink.text_formats import json_lines_with_ids
from cqels.plan.algebra import Query

_LOG = logging.getLogger("cqels")
_TYPES = {"json": "application/json", "jsonl": "application/x-ndjson"}
_PASSING = (408, 425, 429)
"""Statuses of a request that may succeed later, besides those of a failing server."""


class Webhook:
    """Posts results to a URL, at least once.

    `headers` go with every request.  `timeout` is the seconds that an answer may take, `most` the results of one
    request; a batch with more of a query is several requests, whose keys end with their numbers.
    """

    promise = AT_LEAST_ONCE

    def __init__(
        self,
        url: str,
        format: str = "json",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        most: int = 1000,
        patience: Patience | None = None,
    ) -> None:
        if format not in _TYPES:
            raise CqelsError(f"a webhook has no format '{format}'", hint=f"the formats are {', '.join(_TYPES)}")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CqelsError(f"'{url}' is not the URL of a webhook", hint="write https://host/path")
        self._url, self._format, self._most, self._timeout = url, format, most, timeout
        self._headers = {"User-Agent": f"cqels/{RELEASE}", **dict(headers or {}), "Content-Type": _TYPES[format]}
        self.place = redacted_url(url)
        self._delivery = Delivery(self.place, patience or Patience())
        self._client: Any = None
        self._httpx: Any = None
        self._run = ""
        self._last = -1
        self._refused: list[Rejected] = []
        self.refused = 0
        """Results that the receiver did not take, and that were not sent again."""

    @property
    def dropped(self) -> int:
        """Results that were not delivered since the receiver did not answer for too long."""
        return self._delivery.dropped

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        self._run = run or self._run or uuid4().hex
        if self._client is None:
            self._httpx = optional("httpx", "http")
            self._client = self._httpx.Client(headers=self._headers, timeout=self._timeout, follow_redirects=False)

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if batch <= self._last:
            return
        for name, each in sent.items():
            lines = json_lines_with_ids(each).to_pylist() if len(each) else []
            for part, start in enumerate(range(0, len(lines), self._most)):
                key = "/".join([self._run, quote(name, safe=""), str(batch), *([str(part)] if part else [])])
                self._deliver(name, key, lines[start : start + self._most])
        self._last = batch

    def _deliver(self, query: str, key: str, lines: list[str]) -> None:
        text = "\n".join(lines) + "\n" if self._format == "jsonl" else f"[{', '.join(lines)}]"
        body = text.encode("utf-8", "backslashreplace")

        def attempt() -> None:
            try:
                answer = self._client.post(self._url, content=body, headers={"Idempotency-Key": key})
            except self._httpx.TransportError as error:
                raise TryAgain(f"{type(error).__name__}: {error}".removesuffix(": ")) from None
            status = answer.status_code
            if status >= 500 or status in _PASSING:
                raise TryAgain(f"it answers {status} {answer.reason_phrase}", _seconds_asked(answer.headers))
            if not 200 <= status < 300:
                self._refuse(query, f"{status} {answer.reason_phrase}".strip(), lines)

        self._delivery.deliver(attempt, len(lines))

    def _refuse(self, query: str, status: str, lines: list[str]) -> None:
        reason = f"the webhook answers {status}"
        self.refused += len(lines)
        self._refused += [Rejected(query, self.place, reason, line) for line in lines]
        _LOG.warning("%s refused %s results of query %s: %s", self.place, f"{len(lines):,}", query, status)

    def take_refused(self) -> list[Rejected]:
        taken, self._refused = self._refused, []
        return taken

    def stop_waiting(self) -> None:
        self._delivery.stop_waiting()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _seconds_asked(headers: Mapping[str, str]) -> float | None:
    """What Retry-After says: seconds, or a date."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isdigit():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max((at - datetime.now(UTC if at.tzinfo else None)).total_seconds(), 0.0)


def webhook_of(address: SinkAddress, settings: Settings, format: str | None, number: str) -> Sink:
    """The webhook of an address: settings stand behind `#`."""
    token, headers = settings.secret("token"), settings.texts("headers")
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return Webhook(
        address.rest,
        format or "json",
        headers=headers,
        timeout=settings.seconds("timeout", 10.0),
        most=settings.number("most", 1000),
        patience=patience_of(settings),
    )
