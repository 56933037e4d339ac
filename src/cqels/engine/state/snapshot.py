"""Snapshots: a page of what Python knows, the arena as it is, and what windows hold; versioned, with checksums.

The page is JSON.  In a snapshot it lies before the arena, and what windows hold (`engine.state.window_contents`) behind
it: of that an engine is made again whose layouts are others.  Where an arena is a file that another process attaches,
the page is in a block of the arena.  Python's part of a pipeline is made again when its query is registered; all that
the arena knows better are the offsets in it, so these are written down by their names (`physical.relocation`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cqels.engine.budgets import Stop, restored
from cqels.engine.engine_state import DICTIONARY_ROOT, MEMO_ROOT
from cqels.engine.event_time.watermark import Watermarks
from cqels.engine.running_query import Running
from cqels.engine.runtime import Core
from cqels.engine.sharing.shared_pipelines import Share
from cqels.engine.state.window_contents import History, NotKept, progress_of, rebuild, write_history
from cqels.ingest import StreamSettings
from cqels.ingest.element_batch import Batch, Words
from cqels.kernels.memory.arena import FIRST, ROOTS, USED, Arena, give, is_arena
from cqels.kernels.memory.layout_hash import layouts
from cqels.model.checksummed import Bytes, is_sealed, seal, unseal
from cqels.model.dictionary import term_of
from cqels.model.errors import CqelsError, Damaged, OtherLayouts
from cqels.model.release import RELEASE
from cqels.physical.relocation import with_offsets
from cqels.plan.algebra import Query, QueryText
from cqels.plan.prepare import is_same
from cqels.plan.sharing.common_joins import Occurrence
from cqels.plan.sharing.query_templates import constants_of
from cqels.results import Result
from cqels.store.service_answers import public_text

VERSION = 12
"""Of the page. What an older one says is understood; one that is newer is refused."""
_SNAPSHOT, _PAGE = "SN", "PG"
PAGE_ROOT, PAGE_BYTES_ROOT = ROOTS + 2, ROOTS + 3
WAITING_ROOT, WAITING_BYTES_ROOT = ROOTS + 4, ROOTS + 5
"""A block with the elements that wait: those of the reorder buffer, then those of the one who feeds the engine."""


@dataclass
class Aside:
    """What the one who feeds an engine wants to be kept with its state: plain values, and elements in its words."""

    note: Any = None
    elements: Batch = field(default_factory=Batch.empty)


@dataclass
class State:
    """The parts of an engine that a snapshot is of."""

    core: Core
    watermarks: Watermarks
    settings: dict[str, StreamSettings]
    late: int = 0
    aside: Aside = field(default_factory=Aside)

    def write(self) -> None:
        """Have all in the arena."""
        _write(self.core.state.arena, PAGE_ROOT, seal(_PAGE, [self._written_page()]))

    def written(self, *, most: int | None = None) -> bytes:
        """The bytes of a snapshot. The same state gives the same bytes.

        What windows hold is written in words of no layout too, unless the arena has more than so many words in use.
        """
        page, history = self._written_around(most)
        return seal(_SNAPSHOT, [page, self.core.state.arena.snapshot(), history])

    def parts(self, *, most: int | None = None) -> list[list[Bytes]]:
        """The parts of a snapshot, for `read_parts`; the arena's is in pieces that share its memory."""
        page, history = self._written_around(most)
        return [[page], [*self.core.state.arena.pieces()], [history]]

    def _written_around(self, most: int | None) -> tuple[bytes, bytes]:
        """The page, and what windows hold; then the arena is what is to be written."""
        page = self._written_page()
        history = json.dumps({"reason": "its windows are too large to be kept twice"}).encode()
        if most is None or self.core.state.arena.held <= most:
            history = write_history(self.core, self._waiting())
        self.core.state.dictionary.wipe()
        return page, history

    def read(self, data: bytes) -> None:
        """Bring an engine with the same queries to the state of a snapshot."""
        self._read(*_opened(data))

    def read_parts(self, page: bytes, arena: memoryview, history: bytes) -> None:
        """The same of the parts of a snapshot, which are whole."""
        self._read(_read_page(page), arena, history)

    def _read(self, page: dict[str, Any], arena: memoryview, history: bytes) -> None:
        _check(page, self.core, self.settings)
        if self._fits(page):
            self.core.state.arena.restore(arena)
            self._resume(page)
            self.core.registry.refresh()
        else:
            self._rebuild(page, history)

    def _rebuild(self, page: dict[str, Any], data: bytes) -> None:
        """Go on from what windows held, where the arena was laid out in another way."""
        core = self.core
        try:
            history = History(core, data)
            rebuild(core, page, history)
        except NotKept as error:
            hint = f"restore it with cqels {page['release']}, or begin anew"
            raise OtherLayouts("the snapshot", page["release"], str(error), hint=hint) from None
        self._know(page, history.waiting)

    def attach(self, path: Path) -> None:
        """Bring an engine with the same queries and the same dataset to the state of an arena, and go on in it."""
        page = _page_of(_mapped(path))
        _check(page, self.core, self.settings)
        if not self._fits(page):
            raise Damaged("the memory of the engine was laid out by another release")
        self.core.state.arena.attach(path)
        self._resume(page)

    def _written_page(self) -> bytes:
        """The page of the engine as it is; elements that wait are in the arena."""
        self.core.registry.settle()
        numbers, waiting = self.watermarks.state()[0], self._waiting()
        page = {
            **self._page(),
            "clock": numbers,
            "punctuations": self._punctuations(),
            "waiting": [[len(each), len(each.triples)] for each in waiting],
        }
        parts = [part for each in waiting for part in (each.times, each.streams, each.counts, each.triples)]
        _write(self.core.state.arena, WAITING_ROOT, np.concatenate(parts).tobytes())
        return json.dumps(page, sort_keys=True, separators=(",", ":")).encode()

    def _punctuations(self) -> list[tuple[int, str, int | None]]:
        """What was promised of subjects, by their texts."""
        known = self.watermarks.punctuations()
        terms = self.core.state.terms
        return sorted((stream, str(terms.decode(subject)), time) for stream, subject, time in known)

    def _waiting(self) -> list[Batch]:
        """The elements that wait: those of the reorder buffer, and those of the one who feeds the engine."""
        return [self.watermarks.state()[1], self.aside.elements]

    def _fits(self, page: dict[str, Any]) -> bool:
        """Have the pipelines that the page is of: False if this release cannot take its arena as it is."""
        if page["layouts"] != layouts():
            return False
        _recompile(page, self.core)
        return all(running.shape == state["shape"] for running, state in self._executed(page))

    def _executed(self, page: dict[str, Any]) -> list[tuple[Running, dict[str, Any]]]:
        """What has a pipeline, with what the page says of it."""
        core, states = self.core, {state["name"]: state for state in page["queries"]}
        executed = [(core.registry.shared_joins.feeders[state["part"]], state) for state in page["feeders"]]
        executed += [(each.running, state) for each, state in zip(core.registry.shares, page["shares"], strict=True)]
        own = (each for each in core.state.running if each.member is None and states[each.name]["stopped"] is None)
        return executed + [(each, states[each.name]) for each in own]

    def _resume(self, page: dict[str, Any]) -> None:
        """Know what the page says: the arena is as it was when this was written."""
        core = self.core
        core.state.terms.forget()
        core.state.dictionary.offset = int(core.state.arena.words[DICTIONARY_ROOT])
        core.state.calls.memo = int(core.state.arena.words[MEMO_ROOT])
        core.executor.block = tuple(page["block"])
        self._know(page, _waiting(core.state.arena, page["waiting"]))
        functions = []
        by_name = {running.name: running for running in core.state.running}
        for state in page["queries"]:
            running = by_name[state["name"]]
            running.guard = restored(running.guard, state["budget"])
            running.stopped = None if state["stopped"] is None else Stop(**state["stopped"])
            if running.stopped is not None:
                running.functions, running.compiled = [], None
            running.streams = frozenset(state["streams"])
        for running, state in self._executed(page):
            running.pipeline = with_offsets(running.pipeline, state["places"])
            running.functions = [
                (state["functions"][f"{index}"], function) for index, (_, function) in enumerate(running.functions)
            ]
            functions += running.functions
        for share in core.registry.shares:
            for member in share.members:
                member.pipeline, share.running.streams = share.running.pipeline, member.streams
        for state in page["feeders"]:
            core.registry.shared_joins.feeders[state["part"]].streams = frozenset(state["streams"])
        core.registry.shared_joins.next = page["parts"]
        core.state.calls.renumber(functions, page["function"])

    def _know(self, page: dict[str, Any], waiting: Sequence[Batch]) -> None:
        """Know what the page says beside the arena: numbers, streams, what waits, and what nobody has taken."""
        core = self.core
        core.state.number, core.state.derived, core.state.last, core.collector.released = (
            page[each] for each in ("number", "made", "last", "released")
        )
        core.state.streams, core.state.dropped_streams = _by_number(page["streams"]), _by_number(page["gone"])
        numbered = sorted({**core.state.streams, **core.state.dropped_streams}.items(), key=lambda item: item[1])
        self.watermarks.be(self.settings.get(iri, StreamSettings(iri)) for iri, _ in numbered)
        held, elements = waiting
        self.watermarks.restore(page["clock"], held)
        encode = core.state.terms.encode
        promises = page.get("punctuations", [])
        self.watermarks.restore_punctuations((stream, encode(term_of(text)), time) for stream, text, time in promises)
        self.late, self.aside = page["late"], Aside(page["aside"], elements)
        states = {state["name"]: state for state in page["queries"]}
        for running in core.state.running:
            state = states[running.name]
            running.output, running.began, running.raw = state["output"], state["clock"]["began"], []
            running.ready = deque(_result_of(running.query, running.name, each) for each in state["ready"])
            running.answers.restore(state["answers"])
        order = {name: index for index, name in enumerate(states)}
        core.state.running.sort(key=lambda running: order[running.name])

    def _page(self) -> dict[str, Any]:
        core = self.core
        return {
            "version": VERSION,
            "release": RELEASE,
            "layouts": layouts(),
            "number": core.state.number,
            "function": core.state.calls.next,
            "made": core.state.derived,
            "last": core.state.last,
            "released": core.collector.released,
            "block": list(core.executor.block),
            "late": self.late,
            "aside": self.aside.note,
            "streams": core.state.streams,
            "gone": core.state.dropped_streams,
            "settings": [[each.iri, each.lateness, each.idle, each.arrival] for each in self.settings.values()],
            "queries": [
                {
                    **({} if running.member is not None else _pipeline(running)),
                    "name": running.name,
                    "query": running.fingerprint,
                    "clock": progress_of(core, running),
                    "text": None if (text := public_text(running.query)) is None else asdict(text),
                    "streams": sorted(running.streams),
                    "output": running.output,
                    "budget": None if running.guard is None else running.guard.state(),
                    "stopped": None if running.stopped is None else asdict(running.stopped),
                    "ready": [_result(each) for each in _made(running)],
                    "answers": running.answers.state(),
                }
                for running in core.state.running
            ],
            "shares": [
                {
                    **_pipeline(share.running),
                    "varying": list(share.general.varying),
                    "widest": share.widest,
                    "loosest": [[number, [*map(str, terms)]] for number, terms in share.loosest.items()],
                    "next": share.next,
                    "classes": [
                        [each.number, each.group, [one.name for one in each.members]] for each in share.classes.values()
                    ],
                }
                for share in core.registry.shares
            ],
            "feeders": [
                {**_pipeline(each), "part": part, "streams": sorted(each.streams)}
                for part, each in core.registry.shared_joins.feeders.items()
            ],
            "parts": core.registry.shared_joins.next,
        }


# ---------------------------------------------------------------- the page


def _made(running: Running) -> list[Result]:
    """The results that nobody has taken: what the machine sent is said in words of the arena until it is made."""
    running.make()
    return list(running.ready)


def _pipeline(running: Running) -> dict[str, Any]:
    return {
        "places": {} if running.compiled is None else running.offsets,
        "shape": "" if running.compiled is None else running.shape,
        "functions": {f"{index}": number for index, (number, _) in enumerate(running.functions)},
        "known": list(running.known),
        "uses": [[each.part, each.site, each.patterns, each.conditions] for each in running.uses],
    }


def _result(result: Result) -> list[Any]:
    """A result that nobody has taken, as plain values."""
    values = [None if term is None else str(term) for term in result.values]
    triples = [[str(term) for term in triple] for triple in result.triples]
    return [result.nanoseconds, result.tick, result.sign, values, triples, result.boolean, result.empty]


def _result_of(query: Query, name: str, plain: list[Any]) -> Result:
    time, tick, sign, values, triples, boolean, empty = plain
    terms: Any = tuple(tuple(term_of(text) for text in triple) for triple in triples)
    row = tuple(None if text is None else term_of(text) for text in values)
    return Result(name, time, tick, sign, row, terms, boolean, empty, query.selected)


def _write(arena: Arena, root: int, data: bytes) -> None:
    """Put bytes in a block of the arena, whose offset is at a root and whose size is behind it, instead of others."""
    words = arena.words
    if words[root]:
        give(arena.base, int(words[root]), int(words[root + 1]) // 8 + 1)
    room = len(data) // 8 + 1
    offset = arena.take(room)
    words[root], words[root + 1] = offset, len(data)
    arena.array(offset, room)[:] = np.frombuffer(data.ljust(8 * room, b"\0"), np.int64)


def _waiting(arena: Arena, sizes: list[list[int]]) -> list[Batch]:
    words = arena.array(int(arena.words[WAITING_ROOT]), int(arena.words[WAITING_BYTES_ROOT]) // 8).copy()
    at, batches = 0, []
    for elements, triples in sizes:
        ends = np.cumsum([at, elements, elements, elements, triples]).tolist()
        batches.append(Batch(*(words[start:end] for start, end in pairwise(ends))))
        at = ends[-1]
    return batches


def _opened(data: bytes) -> tuple[dict[str, Any], memoryview, bytes]:
    """The page, the arena and the history of a snapshot, which is whole."""
    if is_arena(data[:8]):
        raise CqelsError(
            "the snapshot is of a release before 0.2, which told neither its layouts nor its checksums",
            hint="restore it with cqels 0.1, or begin anew",
        )
    if not is_sealed(_SNAPSHOT, data):
        raise CqelsError("this is not a snapshot of an engine", hint="engine.snapshot() makes one")
    page, arena, history = unseal(_SNAPSHOT, data, "the snapshot", hint="restore another one, or begin anew")
    return _read_page(bytes(page)), arena, bytes(history)


def _mapped(path: Path) -> Words:
    """The words of an arena in a file, which has all that it says it has."""
    size = path.stat().st_size
    words = np.memmap(path, np.int64, "r", shape=size // 8) if size >= 8 * FIRST else np.zeros(FIRST, np.int64)
    if not is_arena(words[:1].tobytes()) or not FIRST <= int(words[USED]) <= len(words):
        raise Damaged(f"the memory of an engine in {path} is damaged")
    return words


def _page_of(words: Words) -> dict[str, Any]:
    """The page in an arena."""
    offset, size = int(words[PAGE_ROOT]), int(words[PAGE_BYTES_ROOT])
    if offset < FIRST or size < 0 or offset + size // 8 >= len(words):
        raise Damaged("the memory of the engine is damaged: its page is not in it")
    (page,) = unseal(_PAGE, words[offset : offset + size // 8 + 1].tobytes()[:size], "the memory of the engine")
    return _read_page(bytes(page))


def _read_page(written: bytes) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(written)
    if page["version"] > VERSION:
        raise CqelsError(
            f"the snapshot was written by a newer release, cqels {page['release']}",
            hint=f"restore it with cqels {page['release']} or newer",
        )
    return page


def _check(page: dict[str, Any], core: Core, settings: dict[str, StreamSettings]) -> None:
    there = {running.name: running.fingerprint for running in core.state.running}
    then = {state["name"]: state["query"] for state in page["queries"]}
    texts = {state["name"]: QueryText(**state["text"]) for state in page["queries"] if state.get("text")}
    for running in core.state.running:
        if there[running.name] != then.get(running.name) and is_same(texts.get(running.name), running.query):
            there[running.name] = then[running.name]
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
    """Have the pipelines that there were then, each compiled for the streams that there were at its registration.

    A variable ranges over streams, and who shared a pipeline depends on what happened between registrations.
    """
    core.registry.close_shares()
    by_name = {running.name: running for running in core.state.running}
    core.registry.shares = [_share(state, core, by_name) for state in page["shares"]]
    shared = {running for share in core.registry.shares for running in share.members}
    for state in page["queries"]:
        running = by_name[state["name"]]
        if running in shared:
            continue
        core.registry.recompile(running, _numbered(state["known"]), compile=bool(state["places"]))
        running.uses = _uses(state)
    core.registry.shared_joins.restore([(state["part"], _numbered(state["known"])) for state in page["feeders"]])


def _share(state: dict[str, Any], core: Core, by_name: dict[str, Running]) -> Share:
    share = Share(core.registry, next=state["next"])
    for number, group, names in state["classes"]:
        members = [by_name[name] for name in names]
        constants = constants_of(members[0].query)
        assert constants is not None
        one = share.opened(number, constants, group)
        for member in members:
            share.join(member, one)
    loosest = {number: [*map(term_of, texts)] for number, texts in state["loosest"]}
    share.compile(state["varying"], state["widest"], loosest, _numbered(state["known"]))
    share.running.uses = _uses(state)
    return share


def _uses(state: dict[str, Any]) -> tuple[Occurrence, ...]:
    """The parts of a plan that were computed once for all that have them."""
    return tuple(
        Occurrence(part, site, tuple(patterns), tuple(conditions))
        for part, site, patterns, conditions in state.get("uses", ())
    )


def _numbered(streams: list[str]) -> dict[str, int]:
    return {iri: number for number, iri in enumerate(streams)}


def _by_number(streams: dict[str, int]) -> dict[str, int]:
    return dict(sorted(streams.items(), key=lambda item: item[1]))
