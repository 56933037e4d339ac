"""Passwords and tokens in texts that are shown: they never reach a log, an error, a metric or a checkpoint."""

from __future__ import annotations

import logging
import re
from functools import partial

HIDDEN = "…"
_WORDS = r"(?:password|passwd|passphrase|secret|token|credential|jaas|api[-_.]?key|access[-_.]?key|private[-_.]?key)"
_NAME = rf"[\w.\-]*{_WORDS}[\w.\-]*"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s<>\"'{}|^`]+")
_USER = re.compile(r"(?<=://)[^/?#]*(?=@)")
_BROKERS = re.compile(r"(kafka:)([^/\s]*)(?=@)")
_PARAMETER = re.compile(rf"(?i)(?<=[?&;#])({_NAME}=)([^&;#]+)")
_OPTION = re.compile(rf"(?i)(?<![?$&\w.\-])({_NAME}\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s&;,)\]}}]+)")
_ENTRY = re.compile(rf"(?i)([\"']{_NAME}[\"']\s*:\s*)(\"[^\"]*\"|'[^']*'|[^\s,}}]+)")
_SENT = re.compile(r"(?i)(?<=[?&])((?:header=[^:&\s]*:\s*|send=))([^&\"']+)")
"""What an option says is sent to a server."""
_HEADER = re.compile(r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|digest)\s+)?)([^\s\"',}]+)")


def redacted(text: str, *, aligned: bool = False) -> str:
    """A text without its secrets.

    These are the users and passwords of URLs, and the values of parameters, options and entries whose names say that
    they are secret.  If the text has to stay `aligned`, what is hidden keeps its length.

    >>> redacted("http://me:abc@ex.org/sparql?token=abc&n=1 says no")
    'http://…@ex.org/sparql?token=…&n=1 says no'
    >>> redacted('kafka.sasl.jaas.config=module required username="me" password="abc";')
    'kafka.sasl.jaas.config=… required username="me" password=…;'
    """
    if "=" not in text and ":" not in text:
        return text
    text = _URL.sub(lambda found: redacted_url(found[0], aligned=aligned), text)
    for pattern in (_BROKERS, _SENT, _OPTION, _ENTRY, _HEADER):
        text = pattern.sub(partial(_second, aligned=aligned), text)
    return text


def redacted_url(url: str, *, aligned: bool = False) -> str:
    """A URL without its user, password and secret parameters: the same endpoint, whoever asks it."""
    url = _USER.sub(lambda found: _hidden(found[0], aligned=aligned), url)
    return _PARAMETER.sub(partial(_second, aligned=aligned), url)


def _hide(record: logging.LogRecord) -> bool:
    """A filter of a logger: what it lets pass has no secrets."""
    text = record.getMessage()
    if (shown := redacted(text)) != text:
        record.msg, record.args = shown, None
    return True


logging.getLogger("cqels").addFilter(_hide)


def _second(found: re.Match[str], *, aligned: bool) -> str:
    return found[1] + _hidden(found[2], aligned=aligned)


def _hidden(secret: str, *, aligned: bool) -> str:
    return "*" * len(secret) if aligned else HIDDEN
