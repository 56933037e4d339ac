"""What receivers have in common: telling of a connection that is lost, pauses between attempts, TLS, notes on disk."""

from __future__ import annotations

import json
import logging
import os
import ssl
from pathlib import Path
from random import random
from threading import Event
from time import monotonic
from typing import Any

from cqels.ingest.source_address import Address
from cqels.model.errors import CqelsError
from cqels.model.redact import redacted

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
"""Seconds between attempts to connect, which double each time."""
STEP = 0.2
"""Seconds after which a receiver that waits looks whether it is to stop."""
_LOG = logging.getLogger("cqels")


class Connection:
    """Says once why a source cannot be reached, counts the attempts, and says when it is over."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.was_open = False
        """It has been open before."""
        self.lost_count = 0
        """How many times it was lost, or could not be made."""
        self._reason: str | None = None
        self._attempts = 0
        self._since = 0.0
        self._pause = FIRST_PAUSE

    def opened(self) -> None:
        """The connection is there."""
        if self._reason is not None:
            seconds = monotonic() - self._since
            _LOG.warning("%s: connected after %d attempts in %.1f s", self.place, self._attempts + 1, seconds)
        self.was_open = True
        self._reason, self._attempts, self._pause = None, 0, FIRST_PAUSE

    def lost(self, reason: object) -> None:
        """It is lost, or cannot be made."""
        told = redacted(reason_of(reason))
        if self._reason is None:
            self._since = monotonic()
        if told != self._reason:
            _LOG.warning("%s: %s; trying again", self.place, told)
        self._reason = told
        self._attempts += 1
        self.lost_count += 1

    def pause(self, stop: Event, least: float = 0.0) -> None:
        """Wait before the next attempt."""
        stop.wait(max(self._pause * (0.75 + random() / 2), least))
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


def reason_of(error: object) -> str:
    """Why a connection failed, as a part of a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message.lower()}"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    text = str(error) or type(error).__name__
    return text[0].lower() + text[1:] if text[1:2].islower() else text


def tls_context(address: Address) -> ssl.SSLContext:
    """How a server shows who it is, and this client, as the options of its source say."""
    try:
        context = ssl.create_default_context(cafile=address.get("ca") or None)
        if certificate := address.get("certificate"):
            context.load_cert_chain(certificate, address.get("key") or None)
    except (OSError, ssl.SSLError) as error:
        raise CqelsError(f"{address.place}: its certificates cannot be read: {reason_of(error)}") from None
    if address.get("insecure") == "true":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Note:
    """A little that a receiver has to know after a restart, in a file; one that cannot be read says nothing."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.json"

    def read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, note: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(json.dumps(note))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
