"""Real servers for the tests of live sources, on ports that the system picks, and what receives from them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cqels.ingest import parse_declaration
from cqels.pipeline.source.live_source import ReplayableSource
from cqels.pipeline.source.source_registry import open_source

PATIENCE = 20.0
"""Seconds in which anything here happens."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(what: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait until something is so."""
    limit = time.monotonic() + within
    while not what():
        assert time.monotonic() < limit, "it has not happened"
        time.sleep(0.01)


@contextmanager
def opened(declared: str, folder: Path) -> Iterator[ReplayableSource]:
    """A live source, as a run opens it."""
    source = open_source(parse_declaration(f"<http://ex.org/s>={declared}"), folder)
    try:
        yield source
    finally:
        source.close()


def rows_of(source: ReplayableSource, count: int) -> list[dict[str, object]]:
    """At least so many rows of a source from its beginning on, as soon as they are there."""
    found: list[dict[str, object]] = []
    position = source.start()
    limit = time.monotonic() + PATIENCE
    while len(found) < count:
        rows, position = source.read(position, 1 << 20)
        found += rows.to_pylist()
        assert time.monotonic() < limit, f"there are {len(found)} of {count}"
        time.sleep(0.005)
    return found


def rows_so_far(source: ReplayableSource) -> Callable[[], list[dict[str, object]]]:
    """What gives the rows of a source from its beginning on, more with each call."""
    found: list[dict[str, object]] = []
    position = source.start()

    def more() -> list[dict[str, object]]:
        nonlocal position
        rows, position = source.read(position, 1 << 20)
        found.extend(rows.to_pylist())
        return found

    return more


def values_of(source: ReplayableSource, count: int) -> list[str]:
    values = [row["value"] for row in rows_of(source, count)]
    return [value.decode() for value in values if isinstance(value, bytes)]
