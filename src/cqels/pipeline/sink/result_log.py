"""The sink that people subscribe to: the last results of each query, on the disk and in memory, by their numbers.

The results of a query are numbered, through restarts and through queries of the same name.  A reader names the number
that it has read up to, and gets what comes behind it: from memory where it keeps up, else from the disk, and where not
even that has it any more, it is told how many it has missed.  Nobody waits for a reader.

On the disk there is one log for all queries (`cqels.pipeline.source.inbox`), whose oldest segments go when it has more
bytes than it may: a message is the results of one query in one batch, or some of them, as lines of JSON.  A batch is in
it before `write` returns, so that the run, which delivers its last batch again after a crash, leaves no gap.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from time import time_ns

from cqels.model.errors import Damaged
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import EXACTLY_ONCE, WHILE_IT_LIVES, query_name
from cqels.pipeline.sink.text_formats import lines_with_ids
from cqels.pipeline.source.inbox import Inbox
from cqels.pipeline.source.live_source import Message
from cqels.plan.algebra import Query

LIMIT = 256 << 20
"""Bytes that the log has on the disk, if nothing else is said."""
MEMORY = 16 << 20
"""Bytes of the last results that are in memory."""
MOST = 1 << 20
"""Bytes that a reader gets at once, about."""
_MARK = 1 << 20
"""Bytes between two places of the log at which the number of a query is known."""
_PART = 1 << 12
"""Results in one message."""
_WRITTEN = 4 << 20
"""Bytes of results that are written at once."""
_ENDS = b""
"""The key of a message that has the numbers of the next results of all queries."""


@dataclass(frozen=True)
class Part:
    """Results that follow each other, each as a line of JSON."""

    first: int
    """The number of the first."""
    ndjson: bytes
    """The lines, one after the other."""
    count: int

    @classmethod
    def of(cls, first: int, lines: Sequence[bytes]) -> Part:
        return cls(first, b"".join(line + b"\n" for line in lines), len(lines))

    @property
    def end(self) -> int:
        """The number behind the last."""
        return self.first + self.count

    @cached_property
    def lines(self) -> list[bytes]:
        return self.ndjson.split(b"\n")[:-1]

    @cached_property
    def events(self) -> bytes:
        """As server-sent events, made once for all who read them."""
        return b"".join(b"id: %d\ndata: %s\n\n" % each for each in enumerate(self.lines, self.first))

    def behind(self, number: int) -> Part:
        """What of it has this number or a larger one."""
        return self if number <= self.first else Part.of(number, self.lines[number - self.first :])

    def limited(self, count: int) -> Part:
        """The first of it, at most so many."""
        return self if self.count <= count else Part.of(self.first, self.lines[:count])


@dataclass(frozen=True, slots=True)
class Found:
    """What a reader gets: the results from a number on, and how many before them are gone."""

    parts: tuple[Part, ...]
    next: int
    """What to ask for next."""
    missed: int = 0


@dataclass
class _Known:
    """What is known of the results of one query."""

    query: Query | None = None
    end: int = 0
    """The number of the next result."""
    recent: deque[Part] = field(default_factory=deque)
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Numbers, and where in the log the results from there on are."""


class ResultLog:
    """Keeps results for readers, who may be in any thread."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        limit: int = LIMIT,
        memory: int = MEMORY,
        shown: Callable[[str], str] = str,
        notify: Callable[[Sequence[str]], None] = lambda names: None,
    ) -> None:
        """Without a folder there is only what is in memory.

        `notify` is called with the names of queries that have more, by the thread that writes; `shown` is what a name
        is called in results.
        """
        self._limit, self._memory, self._shown, self._notify = limit, memory, shown, notify
        self._segment = max(limit // 8, 1)
        self._known: dict[str, _Known] = {}
        self._order: deque[str] = deque()
        """The queries of the parts in memory, the oldest first."""
        self._bytes = 0
        self._lock = Lock()
        self._log = None if folder is None else Inbox(folder, limit=None, segment_bytes=self._segment)
        if self._log is not None:
            self._read_log(self._log)

    # ------------------------------------------------------------ as a sink

    @property
    def place(self) -> str:
        return "subscriptions"

    @property
    def promise(self) -> str:
        return WHILE_IT_LIVES if self._log is None else EXACTLY_ONCE

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        with self._lock:
            for query in queries:
                self._known.setdefault(query_name(query), _Known()).query = query

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        new: list[tuple[str, Part]] = []
        size = 0
        for name, each in sent.items():
            called = self._shown(name)
            named = each if called == name else Sent(replace(each.query, name=called), each.batches, each.number)
            for part in self._new_parts(name, named):
                new.append((name, part))
                size += len(part.ndjson)
                if size >= _WRITTEN:
                    self._keep(new)
                    new, size = [], 0
        if new:
            self._keep(new)

    def _new_parts(self, name: str, sent: Sent) -> Iterator[Part]:
        """The results that are not known from before a crash, in parts."""
        end = self._known[name].end
        if sent.number + len(sent) <= end:
            return
        for each in (sent if sent.number >= end else sent.from_number(end)).divided(_PART):
            yield Part(each.number, lines_with_ids(each), len(each))

    def _keep(self, new: Sequence[tuple[str, Part]]) -> None:
        fits = sum(len(part.ndjson) for _, part in new) <= self._memory
        if self._log is not None and not fits:  # readers find its beginning on the disk alone
            self._append(self._log, new)
        with self._lock:
            for name, part in new:
                self._remember(name, part)
        # readers need not wait for the disk: a batch that is not there comes again after a crash
        self._notify([*dict.fromkeys(name for name, _ in new)])
        if self._log is not None and fits:
            self._append(self._log, new)

    def _remember(self, name: str, part: Part) -> None:
        known = self._known[name]
        known.recent.append(part)
        known.end = part.end
        self._order.append(name)
        self._bytes += len(part.ndjson)
        while self._bytes > self._memory and len(self._order) > 1:
            gone = self._known[self._order.popleft()].recent.popleft()
            self._bytes -= len(gone.ndjson)

    def _append(self, log: Inbox, new: Sequence[tuple[str, Part]]) -> None:
        at, now, messages = log.end, time_ns(), []
        for name, part in new:
            self._mark(name, part.first, at)
            messages.append(Message(part.ndjson, now, name.encode(), None, (("number", b"%d" % part.first),)))
        log.append(messages)
        if log.end - self._limit >= log.first + self._segment:  # what goes may be all that there was of a query
            ends = {name: known.end for name, known in self._known.items()} | {name: part.end for name, part in new}
            log.append([Message(json.dumps(ends).encode(), now, _ENDS)])
            log.commit(log.end - self._limit)

    def _mark(self, name: str, number: int, at: int) -> None:
        marks = self._known[name].marks
        if not marks or at >= marks[-1][1] + _MARK:
            with self._lock:
                marks.append((number, at))

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    # ------------------------------------------------------------ as readers see it

    def end(self, name: str) -> int:
        """The number of the next result of a query."""
        with self._lock:
            known = self._known.get(name)
            return 0 if known is None else known.end

    def first(self, name: str) -> int:
        """The number of the oldest result of a query that is still there."""
        found = self.read(name, 0, 1)
        return found.parts[0].first if found.parts else found.next

    def recent(self, name: str, number: int, most: int = MOST) -> Found | None:
        """The same as `read` where memory has it, else None: it does not wait for a disk."""
        with self._lock:
            known = self._known.get(name)
            if known is None or number >= known.end:
                return Found((), number)
            if known.recent and known.recent[0].first <= number:
                return _found(_since(known.recent, number), number, most)
            return None

    def read(self, name: str, number: int, most: int = MOST) -> Found:
        """The results of a query from a number on, about so many bytes."""
        if (recent := self.recent(name, number, most)) is not None:
            return recent
        with self._lock:
            known = self._known[name]
            self._forget_marks(known)
            at = bisect_right(known.marks, number, key=lambda mark: mark[0]) - 1
            offset = known.marks[max(at, 0)][1] if known.marks else None
        if self._log is not None and offset is not None:
            parts = self._parts_on_disk(self._log, name, number, offset)
            if (found := _found(parts, number, most)).parts:
                return found
        with self._lock:
            if known.recent:
                return _found(_since(known.recent, number), number, most)
            return Found((), known.end, known.end - number)

    def _forget_marks(self, known: _Known) -> None:
        """Leave out what is no longer in the log; what was before its beginning may go on behind it."""
        first, marks = 0 if self._log is None else self._log.first, known.marks
        while len(marks) > 1 and marks[1][1] <= first:
            marks.pop(0)
        if marks and marks[0][1] < first:
            marks[0] = marks[0][0], first

    def _parts_on_disk(self, log: Inbox, name: str, number: int, offset: int) -> Iterator[Part]:
        """The parts of a query from an offset of the log on that have a number or a larger one."""
        key = name.encode()
        while offset < log.end:
            at = max(offset, log.first)
            try:
                rows, offset = log.read(at, MOST)
            except Damaged:
                if log.first <= at:
                    raise
                continue  # it was removed meanwhile
            for part in _parts_of(rows, key):
                if part.end > number:
                    yield part

    # ------------------------------------------------------------ opening

    def _read_log(self, log: Inbox) -> None:
        """Know the numbers of what earlier runs have left."""
        offset = log.first
        while offset < log.end:
            at = offset
            rows, offset = log.read(offset, MOST)
            for key, number, lines in _rows_of(rows):
                if key == _ENDS:
                    for name, end in json.loads(lines).items():
                        known = self._known.setdefault(name, _Known())
                        known.end = max(known.end, end)
                    continue
                known = self._known.setdefault(key.decode(), _Known())
                known.end = max(known.end, number + lines.count(b"\n"))
                if not known.marks or at >= known.marks[-1][1] + _MARK:
                    known.marks.append((number, at))


def _since(parts: Sequence[Part], number: int) -> Iterator[Part]:
    """The parts with a number or a larger one; most readers want the last few."""
    wanted: list[Part] = []
    for part in reversed(parts):
        if part.end <= number:
            break
        wanted.append(part)
    return reversed(wanted)


def _found(parts: Iterator[Part], number: int, most: int) -> Found:
    """Some parts, about so many bytes; what they do not have of the numbers before them is missed."""
    found: list[Part] = []
    size, next, missed = 0, number, 0
    for part in parts:
        if found and size >= most:
            break
        if part.first > next:
            if found:
                break
            missed = part.first - next
        found.append(part.behind(next))
        next = part.end
        size += len(part.ndjson)
    return Found(tuple(found), next, missed)


def _rows_of(rows: object) -> Iterator[tuple[bytes, int, bytes]]:
    columns = [rows.column(name).to_pylist() for name in ("key", "headers", "value")]  # type: ignore[attr-defined]
    for key, headers, value in zip(*columns, strict=True):
        yield key, int(dict(headers).get("number", 0)), value


def _parts_of(rows: object, key: bytes) -> Iterator[Part]:
    for name, number, lines in _rows_of(rows):
        if name == key:
            yield Part(number, lines, lines.count(b"\n"))
