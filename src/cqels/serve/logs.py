"""The log of a service: lines of text or of JSON on standard error, one for each message, and never a secret."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from cqels.model.choices import LogFormat
from cqels.model.redact import HIDDEN, redacted

ACCESS = "cqels.access"
"""The logger that has a message for each request."""
FIELDS = "fields"
"""The attribute of a message that has its parts by names."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029]")
_TOKEN = re.compile(r"(?i)([?&;]access_token=)[^&;\s\"']+")
"""In the path of a request, which is no whole URL."""
_LOUD = {"cqels": logging.INFO, "uvicorn": logging.WARNING, "asyncio": logging.WARNING}
"""Loggers, and what is said of them."""


@contextmanager
def log_to(stream: TextIO, format: LogFormat = "text", *, verbose: bool = False) -> Iterator[None]:
    """Write the log until the service ends; with `verbose` also each push and each look at metrics and health."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    root = logging.getLogger()
    before = {name: logging.getLogger(name).level for name in _LOUD}
    root.addHandler(handler)
    for name, level in _LOUD.items():
        logging.getLogger(name).setLevel(logging.DEBUG if verbose and name == "cqels" else level)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
        root.removeHandler(handler)


class TextLines(logging.Formatter):
    """`2026-11-18T10:00:00.000Z warning cqels: what has happened`; what a message shows of input stays in its line."""

    def format(self, record: logging.LogRecord) -> str:
        text = _hidden(_CONTROL.sub(_escaped, record.getMessage()))
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {text}"
        fault = _fault(self, record)
        return line if fault is None else f"{line}\n{fault}"


class JsonLines(logging.Formatter):
    """An object in each line: time, level, logger, message, the parts of a message, and the exception as text."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] = getattr(record, FIELDS, {})
        found = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _hidden(record.getMessage()),
            **{name: _hidden(value) if isinstance(value, str) else value for name, value in fields.items()},
        }
        if (fault := _fault(self, record)) is not None:
            found["exception"] = fault
        return json.dumps(found, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()


def _time(record: logging.LogRecord) -> str:
    return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03}Z"


def _fault(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    return _hidden(formatter.formatException(record.exc_info)) if record.exc_info else None


def _hidden(text: str) -> str:
    return _TOKEN.sub(rf"\1{HIDDEN}", redacted(text))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
