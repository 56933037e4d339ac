"""A real service on a port of this machine, in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cqels.live.live_run import LiveSettings
from cqels.serve.backend import Pipeline
from cqels.serve.server import Address, Server
from cqels.serve.service import Service
from cqels.store.dataset import Store

EX = "http://ex.org/"
OBS = EX + "obs"
PREFIX = f"PREFIX : <{EX}> "


@contextmanager
def served(state: Path, *, port: int = 0, address: Address | None = None, **options: Any) -> Iterator[Server]:
    """A service whose state is in a folder: the next one with the folder goes on from it."""
    service = Service(Pipeline(store=Store(), settings=LiveSettings(lasting=True)), state)
    with Server(service, address or Address(port=port), **options) as server:
        yield server
