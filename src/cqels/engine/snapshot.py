"""Snapshots: the arena as it is, with a page in it of what Python knows; versioned, and tied to the queries.

The page is JSON in a block of the arena, so the bytes of an arena in a file are a snapshot too.  Python's part of a
pipeline is made again when its query is registered; all that the arena knows better are the places in it, so these are
written down in the order in which they are met.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from cqels.engine.batch import Batch
from cqels.engine.clock import Clock
from cqels.engine.core import DICTIONARY_ROOT, MEMO_ROOT, Core
from cqels.flow.places import places_of, with_places
from cqels.io import Result, StreamSettings
from cqels.kernels.memory import ROOTS, give
from cqels.model.dictionary import term_of
from cqels.model.errors import CqelsError
from cqels.plan.algebra import Query

VERSION = 1
PAGE_ROOT, PAGE_BYTES_ROOT = ROOTS + 2, ROOTS + 3


def written(core: Core, clock: Clock, settings: dict[str, StreamSettings], late: int) -> bytes:
    """The bytes of a snapshot. The same state gives the same bytes."""
    _write_page(core, _page(core, clock, settings, late))
    core.dictionary.wipe()
    return core.arena.snapshot()


def read(data: bytes, core: Core, clock: Clock, settings: dict[str, StreamSettings]) -> int:
    """Bring an engine with the same queries to the state of a snapshot: how many elements had been late."""
    page = _page_of(data)
    _check(page, core, settings)
    _recompile(page, core)
    core.arena.restore(data)
    core.terms.forget()
    core.dictionary.place = int(core.arena.words[DICTIONARY_ROOT])
    core.calls.memo = int(core.arena.words[MEMO_ROOT])
    core.number, core.last, core.released = page["number"], page["last"], page["released"]
    core.block = tuple(page["block"])
    core.streams, core.gone = _by_number(page["streams"]), _by_number(page["gone"])
    numbered = sorted({**core.streams, **core.gone}.items(), key=lambda item: item[1])
    clock.be(settings.get(iri, StreamSettings(iri)) for iri, _ in numbered)
    _restore_clock(page["clock"], clock)
    functions = []
    by_name = {running.name: running for running in core.running}
    for state in page["queries"]:
        running = by_name[state["name"]]
        places = iter(state["places"])
        running.pipeline = with_places(running.pipeline, places)
        running.functions = [
            (number, function) for number, (_, function) in zip(state["functions"], running.functions, strict=True)
        ]
        running.streams, running.output = frozenset(state["streams"]), state["output"]
        running.raw = [np.array(rows, np.int64).reshape(len(rows), -1) for rows in state["sent"]]
        running.ready = [_result_of(running.name, each) for each in state["ready"]]
        running.answers.restore(state["answers"], core.terms)
        functions += running.functions
    core.calls.renumber(functions)
    core.running.sort(key=lambda running: [state["name"] for state in page["queries"]].index(running.name))
    core.refresh()
    return int(page["late"])


# ---------------------------------------------------------------- the page


def _page(core: Core, clock: Clock, settings: dict[str, StreamSettings], late: int) -> dict[str, Any]:
    numbers, held = clock.state()
    return {
        "version": VERSION,
        "number": core.number,
        "last": core.last,
        "released": core.released,
        "block": list(core.block),
        "late": late,
        "streams": core.streams,
        "gone": core.gone,
        "settings": [[each.iri, each.lateness, each.idle, each.arrival] for each in settings.values()],
        "clock": [numbers, [part.tolist() for part in (held.times, held.streams, held.counts, held.triples)]],
        "queries": [
            {
                "name": running.name,
                "query": fingerprint(running.query),
                "places": list(places_of(running.pipeline)),
                "functions": [number for number, _ in running.functions],
                "known": list(running.pipeline.streams),
                "streams": sorted(running.streams),
                "output": running.output,
                "ready": [_result(each) for each in running.ready],
                "sent": [rows.tolist() for rows in running.raw],
                "answers": running.answers.state(core.terms),
            }
            for running in core.running
        ],
    }


def _result(result: Result) -> list[Any]:
    """A result that nobody has taken, as plain values."""
    values = [None if term is None else str(term) for term in result.values]
    triples = [[str(term) for term in triple] for triple in result.triples]
    return [result.time, result.tick, result.sign, values, triples, result.boolean, result.empty]


def _result_of(name: str, plain: list[Any]) -> Result:
    time, tick, sign, values, triples, boolean, empty = plain
    terms: Any = tuple(tuple(term_of(text) for text in triple) for triple in triples)
    row = tuple(None if text is None else term_of(text) for text in values)
    return Result(name, time, tick, sign, row, terms, boolean, empty)


def fingerprint(query: Query) -> str:
    """The same for queries that mean the same in the same words."""
    return sha256(repr(replace(query, name=None)).encode()).hexdigest()


def _write_page(core: Core, page: dict[str, Any]) -> None:
    words = core.arena.words
    if words[PAGE_ROOT]:
        give(core.arena.base, int(words[PAGE_ROOT]), int(words[PAGE_BYTES_ROOT]) // 8 + 1)
    text = json.dumps(page, sort_keys=True, separators=(",", ":")).encode()
    place = core.arena.take(len(text) // 8 + 1)
    words[PAGE_ROOT], words[PAGE_BYTES_ROOT] = place, len(text)
    block = core.arena.array(place, len(text) // 8 + 1)
    block[:] = np.frombuffer(text.ljust(8 * len(block), b"\0"), np.int64)


def _page_of(data: bytes) -> dict[str, Any]:
    words = np.frombuffer(data[: len(data) // 8 * 8], np.int64)
    try:
        place, size = int(words[PAGE_ROOT]), int(words[PAGE_BYTES_ROOT])
        page = json.loads(data[8 * place : 8 * place + size])
        version = page["version"]
    except (IndexError, ValueError, KeyError, TypeError):
        raise CqelsError("this is not a snapshot of an engine") from None
    if version != VERSION:
        raise CqelsError(
            f"the snapshot is of version {version}, and this engine reads version {VERSION}",
            hint="restore it with the version of cqels that wrote it",
        )
    assert isinstance(page, dict)
    return page


def _check(page: dict[str, Any], core: Core, settings: dict[str, StreamSettings]) -> None:
    there = {running.name: fingerprint(running.query) for running in core.running}
    then = {state["name"]: state["query"] for state in page["queries"]}
    faults = [f"'{name}' is not registered" for name in then if name not in there]
    faults += [f"'{name}' is not in the snapshot" for name in there if name not in then]
    faults += [f"'{name}' is another query" for name in then if name in there and there[name] != then[name]]
    if faults:
        raise CqelsError(
            f"the snapshot is of other queries: {'; '.join(faults)}",
            hint="register the queries that were running when it was taken, under their names",
        )
    before = {iri: (lateness, idle, arrival) for iri, lateness, idle, arrival in page["settings"]}
    now = {each.iri: (each.lateness, each.idle, each.arrival) for each in settings.values()}
    if before != now:
        different = ", ".join(f"<{iri}>" for iri in sorted({*before, *now}) if before.get(iri) != now.get(iri))
        raise CqelsError(f"the snapshot is of other streams: {different}", hint="declare the streams as they were")


def _recompile(page: dict[str, Any], core: Core) -> None:
    """Compile again what was registered when there were other streams: a variable ranges over them."""
    for state in page["queries"]:
        (running,) = (each for each in core.running if each.name == state["name"])
        if running.pipeline.streams != tuple(state["known"]):
            streams = {iri: number for number, iri in enumerate(state["known"])}
            again = core.compiled(running.query, running.name, streams)
            running.pipeline, running.functions = again.pipeline, again.functions


def _by_number(streams: dict[str, int]) -> dict[str, int]:
    return dict(sorted(streams.items(), key=lambda item: item[1]))


def _restore_clock(state: list[Any], clock: Clock) -> None:
    numbers, held = state
    clock.restore(numbers, Batch(*(np.array(part, np.int64) for part in held)))
