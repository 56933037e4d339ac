"""Every case file, on every engine; `REWRITE=1` fills in what the reference engine sends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cqels.ingest import Element, Rejected
from cqels.model.errors import CqelsError
from cqels.plan.algebra import Query
from cqels.reference.reference_engine import Reference, StreamSettings
from cqels.results import Result

from .cases import (
    DIRECTORY,
    Asked,
    Case,
    Drop,
    Event,
    Heartbeat,
    Outcome,
    Register,
    Snapshot,
    Update,
    read_case,
    rewrite,
    shown,
    spaced,
)
from .incremental import Incremental

FILES = sorted(DIRECTORY.rglob("*.cqt"))


class _Run:
    """A case on an engine."""

    def __init__(self, case: Case, make: Callable[..., Any]) -> None:
        self._late: list[Element] = []
        self._arriving: Element | None = None
        streams = [StreamSettings(each.iri, each.lateness, each.idle) for each in case.streams]
        self._engine = make(case.store(), streams, reject=self._reject)
        self._made: dict[str, Any] = {}
        self._running: dict[str, Any] = {}
        self._kept: list[CqelsError] = []

    def _reject(self, _: Rejected) -> None:
        assert self._arriving is not None
        self._late.append(self._arriving)

    def outcome(self, events: Iterable[Event]) -> Outcome:
        for event in events:
            self._happens(event)
        self._engine.finish()
        sent: dict[str, tuple[Query, list[Result]] | CqelsError] = {
            label: each if isinstance(each, CqelsError) else (each.query, each.take())
            for label, each in self._made.items()
        }
        return Outcome(sent, self._late, self._kept)

    def _happens(self, event: Event) -> None:
        match event:
            case Element():
                self._arriving = event
                self._engine.push(event)
            case Heartbeat(time=time, stream=stream):
                self._engine.heartbeat(time, stream)
            case Update():
                self._engine.update(event.apply)
            case Register(asked=asked):
                self._made[asked.label] = self._register(asked)
            case Drop(name=name):
                try:
                    self._engine.drop(self._running.get(name, name))
                except CqelsError as error:
                    self._kept.append(error)
            case Snapshot():
                pass  # the reference keeps everything as it is

    def _register(self, asked: Asked) -> Any:
        try:
            prepared = asked.prepared()
        except CqelsError as error:
            return error
        try:
            registered = self._running[asked.name] = self._engine.register(prepared)
        except CqelsError as error:
            return asked.placed(error)
        return registered


def play(case: Case, make: Callable[..., Any]) -> Outcome:
    """What an engine makes of a case: it is made of a store and streams, and has the face of the reference."""
    return _Run(case, make).outcome(case.events)


ENGINES: dict[str, Callable[..., Any]] = {"reference": Reference, "incremental": Incremental}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DIRECTORY).with_suffix("")))
def test_case(path: Path, engine: str) -> None:
    case = read_case(path)
    lines = shown(case, play(case, ENGINES[engine]))
    if os.environ.get("REWRITE") and engine == "reference":
        rewrite(path, case, lines)
        return
    found = {name: spaced(rows) for name, rows in lines.items() if rows}
    expected = {name: spaced(rows) for name, rows in case.expected.items() if rows}
    assert found == expected


def test_every_case_begins_with_what_it_shows() -> None:
    assert FILES
    silent = [path.name for path in FILES if not path.read_text(encoding="utf-8").startswith("# ")]
    assert not silent
