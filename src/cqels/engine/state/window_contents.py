"""What windows hold, in words of no layout, and engines that are made again of it: snapshots of other layouts go on so.

Written down are the elements that some window still has, with their times and numbers, and those that wait; and of each
query when it began, its ticks, and the times of its last tick and event.  To rebuild a query, its pipeline is given
these elements once more, in silence, and let come to the time of its last tick: all that operators keep is a function
of what is in windows.  Elements that only other queries have do no harm: they are too old, or match nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from zlib import compress, decompress

import numpy as np

from cqels.engine.running_query import Running
from cqels.engine.runtime import Core
from cqels.ingest.element_batch import Batch, Words
from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import NEVER
from cqels.kernels.operators import star_window, window
from cqels.model.dictionary import term_of
from cqels.model.errors import CqelsError

MOST_WORDS = 1 << 19
"""Words of an arena up to which the state of an engine on Spark is written so."""
_CHUNK = 1 << 12
"""Elements that a pipeline is given at once."""


class NotKept(Exception):
    """Why what a query needs is not in its windows alone."""


# ---------------------------------------------------------------- writing


def write_history(core: Core, waiting: Iterable[Batch]) -> bytes:
    """The elements of all windows, and those that wait, as bytes; or why they are not enough, in words."""
    try:
        held, numbers = elements_of(core)
    except NotKept as error:
        return json.dumps({"reason": str(error)}).encode()
    batches = [held, *waiting]
    triples = np.concatenate([each.triples for each in batches])
    distinct, codes = np.unique(triples, return_inverse=True)
    texts = b"\n".join(core.state.terms.texts(distinct))  # N-Triples: there is no line end in a term
    columns = [numbers, codes.reshape(-1)]
    columns += [column for each in batches for column in (each.times, each.streams, each.counts)]
    head = {"sizes": [len(each) for each in columns], "bytes": len(texts)}
    body = np.concatenate(columns).astype("<i8").tobytes()
    written = json.dumps(head).encode()
    return compress(b"".join([len(written).to_bytes(8, "little"), written, texts, body]), 1)


def elements_of(core: Core) -> tuple[Batch, Words]:
    """The elements that some window has, in order, and their numbers."""
    words = core.state.arena.words
    found: list[tuple[bool, Words]] = []
    for running in core.registry.pipelines:
        offset = running.pipeline.offset
        at = int(words[offset + scheduler.WINDOWS_AT])
        for each in range(int(words[offset + scheduler.WINDOWS])):
            stream, one, _ = words[at + 3 * each : at + 3 * each + 3].tolist()
            kind = int(words[one + window.KIND])
            if kind >= window.TOLD:
                raise NotKept("a window follows times that triples tell")
            for rows in (_entries(words, one), _rows_of_star(words, one)):
                counted = np.column_stack([np.full(len(rows), stream), rows])
                found.append((kind in (window.TRIPLES, window.ELEMENTS), counted))
    found.sort(key=lambda each: (not each[0], -len(each[1])))  # windows that count know the order within an element
    rows = np.concatenate([each for _, each in found]) if found else np.zeros((0, 6), np.int64)
    counts = np.concatenate([np.full(len(each), is_count) for is_count, each in found]) if found else np.zeros(0, bool)
    _, first = np.unique(rows, axis=0, return_index=True)
    rows, counts = rows[first], counts[first]
    order = np.lexsort((first, counts, rows[:, 1]))  # what a window that counts has lost came first
    rows = rows[order]
    starts = np.flatnonzero(np.diff(rows[:, 1], prepend=-1))
    sizes = np.diff(np.append(starts, len(rows)))
    heads = rows[starts]
    return Batch(heads[:, 2], heads[:, 0], sizes, rows[:, 3:].reshape(-1)), heads[:, 1]


def _entries(words: Words, one: int) -> Words:
    """The triples in the ring of a window, behind the numbers and times of their elements."""
    ring, room, left, come = (int(words[one + each]) for each in (window.RING, window.ROOM, window.LEFT, window.COME))
    entries = words[ring : ring + room * window.ENTRY_WORDS].reshape(room, window.ENTRY_WORDS)
    taken = entries[np.arange(left, come) & (room - 1)]
    chosen: Words = taken[:, [window.ENTRY_NUMBER, window.ENTRY_TIME, 0, 1, 2]]
    return chosen


def _rows_of_star(words: Words, one: int) -> Words:
    """The triples of elements that are whole, in the same way."""
    offset = int(words[one + window.STAR])
    if offset == 0:
        return np.zeros((0, 5), np.int64)
    patterns = int(words[offset + star_window.PATTERNS])
    width = star_window.OBJECTS + patterns
    ring, room, left, come = (
        int(words[offset + each])
        for each in (star_window.RING, star_window.ROOM, star_window.ROWS_LEFT, star_window.ROWS_COME)
    )
    rows = words[ring : ring + room * width].reshape(room, width)[np.arange(left, come) & (room - 1)]
    parts = []
    for number in range(patterns):
        predicate = int(words[offset + star_window.FIRST_PATTERN + star_window.PATTERN_WORDS * number])
        stamps = rows[:, star_window.ROW_NUMBER], rows[:, star_window.ROW_TIME]
        objects = rows[:, star_window.OBJECTS + number]
        parts.append(np.column_stack([*stamps, rows[:, 0], np.full(len(rows), predicate), objects]))
    return np.stack(parts, axis=1).reshape(-1, 5) if parts else np.zeros((0, 5), np.int64)


def progress_of(core: Core, running: Running) -> dict[str, int]:
    """When a query began, how many ticks it has had, and the times of the last one and of the last event."""
    if running.stopped is not None:
        return {"began": running.began}
    unit = running if running.member is None else running.member.running
    words, offset = core.state.arena.words, unit.pipeline.offset
    fields = {"ticks": scheduler.TICKS, "now": scheduler.NOW, "last": scheduler.LAST, "pending": scheduler.PENDING}
    slides, at = int(words[offset + scheduler.SLIDES]), int(words[offset + scheduler.SLIDES_AT])
    closed = [int(words[at + 2 * each + 1]) for each in range(slides)]
    values = {name: int(words[offset + field]) for name, field in fields.items()}
    return {"began": running.began, "closed": min([each for each in closed if each != NEVER], default=NEVER), **values}


# ---------------------------------------------------------------- reading


class History:
    """The elements that a snapshot has, in the words of an engine that is to go on."""

    def __init__(self, core: Core, data: bytes) -> None:
        if data[:1] == b"{":
            raise NotKept(json.loads(data)["reason"])
        content = decompress(data)
        size = int.from_bytes(content[:8], "little")
        head = json.loads(content[8 : 8 + size])
        end = 8 + size + head["bytes"]
        texts = content[8 + size : end].decode().split("\n") if head["bytes"] else []
        body = np.frombuffer(content, "<i8", offset=end).astype(np.int64)
        columns = np.split(body, np.cumsum(head["sizes"])[:-1])
        words = np.array([core.state.terms.encode(term_of(text)) for text in texts], np.int64)
        self.numbers, codes, *rest = columns
        triples, at, batches = words[codes], 0, []
        for times, streams, counts in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            end = at + 3 * int(counts.sum())
            batches.append(Batch(times, streams, counts, triples[at:end]))
            at = end
        self.held, *self.waiting = batches


def rebuild(core: Core, page: dict[str, Any], history: History) -> None:
    """Let the queries of a new engine know what those knew that a page is of."""
    if core.state.last is not None or core.state.elements:
        raise CqelsError("the snapshot is of other layouts, and this engine has seen elements", hint="use a new engine")
    if core.state.streams != page["streams"]:
        raise NotKept("the streams were numbered in another way")
    states = {state["name"]: state for state in page["queries"]}
    if any(state["stopped"] is not None for state in states.values()):
        raise NotKept("a query was stopped by its budget")
    core.registry.close_shares()
    core.registry.shares.clear()
    core.registry.shared_joins.feeders.clear()
    core.state.dropped_streams, core.state.judging = dict(page["gone"]), False
    try:
        for running in core.state.running:
            state = states[running.name]
            if running.guard is None:
                known = (
                    {iri: number for number, iri in enumerate(state["known"])} if "known" in state else running.known
                )
                core.registry.recompile(running, known)
                core.registry.begin(running)
            _replay(core, running, state["clock"], history)
    finally:
        core.state.judging = True


def _replay(core: Core, running: Running, progress: dict[str, int], history: History) -> None:
    words, offset = core.state.arena.words, running.pipeline.offset
    if progress["last"] == NEVER and progress["ticks"] == 0:
        return
    mine = np.isin(history.held.streams, list(running.streams)) & (history.numbers >= progress["began"])
    chosen = np.flatnonzero(mine)
    first = int(history.held.times[chosen[0]]) if len(chosen) else NEVER
    if progress["closed"] != NEVER:
        _event(core, running, min(progress["closed"], first) if len(chosen) else progress["closed"], scheduler.ADVANCE)
    for at in range(0, len(chosen), _CHUNK):
        part = chosen[at : at + _CHUNK]
        _run(core, running, history.held.take(part), history.numbers[part])
    if progress["ticks"] > 0:
        _event(core, running, progress["now"], scheduler.ADVANCE)
        words[offset + scheduler.PENDING] = 1
        _event(core, running, progress["now"], scheduler.UPDATE)
    if progress["last"] != NEVER:
        _event(core, running, progress["last"], scheduler.ADVANCE)
    words[offset + scheduler.TICKS], words[offset + scheduler.LAST] = progress["ticks"], progress["last"]
    words[offset + scheduler.PENDING] = progress["pending"]


def _event(core: Core, running: Running, time: int, kind: int) -> None:
    _run(core, running, Batch.of([(time, kind, ())]), np.zeros(1, np.int64))


def _run(core: Core, running: Running, batch: Batch, numbers: Words) -> None:
    core.executor.replay(running, batch, numbers)
