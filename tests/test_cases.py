"""Every case file, on every engine; `REWRITE=1` fills in what the reference engine sends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqels.io import Element, Rejected, Result
from cqels.model.errors import CqelsError
from cqels.plan.algebra import Query
from cqels.reference.engine import Reference, StreamSettings

from .cases import DIRECTORY, Case, Engine, Heartbeat, Outcome, Update, read_case, rewrite, shown, spaced
from .incremental import Incremental

FILES = sorted(DIRECTORY.rglob("*.cqt"))


def reference(case: Case) -> Outcome:
    """The reference engine: everything is computed anew at every tick."""
    return _played(case, Reference)


def incremental(case: Case) -> Outcome:
    """The incremental engine."""
    return _played(case, Incremental)


def _played(case: Case, make: Callable[..., Any]) -> Outcome:
    late: list[Element] = []
    arriving: list[Element] = []

    def reject(_: Rejected) -> None:
        late.append(arriving[-1])

    streams = [StreamSettings(each.iri, each.lateness, each.idle) for each in case.streams]
    engine = make(case.store(), streams, reject=reject)
    running: dict[str, Any] = {}
    for asked in case.queries:
        try:
            prepared = asked.prepared()
        except CqelsError as error:
            running[asked.name] = error
            continue
        try:
            running[asked.name] = engine.register(prepared)
        except CqelsError as error:
            running[asked.name] = asked.placed(error)
    for event in case.events:
        match event:
            case Element():
                arriving.append(event)
                engine.push(event)
            case Heartbeat(time=time, stream=stream):
                engine.heartbeat(time, stream)
            case Update():
                engine.update(event.apply)
    engine.finish()
    sent: dict[str, tuple[Query, list[Result]] | CqelsError] = {
        name: each if isinstance(each, CqelsError) else (each.query, each.take()) for name, each in running.items()
    }
    return Outcome(sent, late)


ENGINES: dict[str, Engine] = {"reference": reference, "incremental": incremental}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DIRECTORY).with_suffix("")))
def test_case(path: Path, engine: str) -> None:
    case = read_case(path)
    lines = shown(case, ENGINES[engine](case))
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
