"""Which module reads which live source: the one place that knows them all.

A new source is a module with a function `source_of(declaration, folder)` that makes a `Receiver` or a
`ReplayableSource` (`live_source.py`), its line here, and its options in `cqels.ingest.source_options`.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2s
from importlib import import_module
from pathlib import Path
from typing import Any

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_address import shown_place
from cqels.ingest.source_options import scheme_name
from cqels.model.errors import CqelsError
from cqels.pipeline.source.inbox import LIMIT, Inbox
from cqels.pipeline.source.live_source import Receiver, ReplayableSource
from cqels.pipeline.source.received_source import ReceivedSource

MODULES = {
    "kafka": "kafka_source",
    "mqtt": "mqtt_receiver",
    "mqtts": "mqtt_receiver",
    "ws": "websocket_receiver",
    "wss": "websocket_receiver",
    "http": "sse_receiver",
    "https": "sse_receiver",
    "sse+http": "sse_receiver",
    "sse+https": "sse_receiver",
    "tcp": "socket_receiver",
    "-": "standard_input_receiver",
}
"""By the schemes of URLs."""
REPLAYABLE = ("kafka",)
"""Those that need no inbox."""


def is_received(declaration: StreamDeclaration) -> bool:
    """Whether a live source goes through an inbox."""
    return scheme_name(declaration.path) not in REPLAYABLE


def source_name(declaration: StreamDeclaration) -> str:
    """A name for a declared source: the same in every run, whatever its password, and fit for a folder."""
    digest = blake2s(f"{declaration.iri} {shown_place(declaration)}".encode(), digest_size=6).hexdigest()
    scheme = scheme_name(declaration.path) or "files"
    return f"{'stdin' if scheme == '-' else scheme.replace('+', '-')}-{digest}"


def receiver_of(declaration: StreamDeclaration, folder: Path) -> Receiver:
    """The receiver of a declared source; `folder` is for what it has to know after a restart."""
    made: Receiver = _module(declaration).source_of(declaration, folder)
    return made


def open_source(
    declaration: StreamDeclaration,
    folder: Path,
    *,
    limit: int | None = LIMIT,
    notify: Callable[[], None] = lambda: None,
) -> ReplayableSource:
    """A declared live source, which receives from now on until it is closed.

    `folder` is its own, for its inbox and for what it has to know after a restart.  An inbox keeps at most `limit`
    bytes that are not committed.  `notify` is called, by another thread, whenever there may be more to read, and when
    the source has ended or failed.
    """
    if not is_received(declaration):
        made: ReplayableSource = _module(declaration).source_of(declaration, folder, notify=notify)
        return made
    receiver = receiver_of(declaration, folder)
    return ReceivedSource(receiver, Inbox(folder, place=receiver.place, limit=limit, notify=notify))


def _module(declaration: StreamDeclaration) -> Any:
    name = scheme_name(declaration.path)
    if name not in MODULES:
        raise CqelsError(f"stream <{declaration.iri}>: '{shown_place(declaration)}' is not a live source")
    return import_module(f"cqels.pipeline.source.{MODULES[name]}")
