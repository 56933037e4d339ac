"""What is pushed to a stream: lifted, put into the durable inbox, and then acknowledged; many pushes at once.

Pushes that come while others are being written wait, and are lifted and written together: one synchronization with the
disk for all of them.  Who pushes is told what became of each.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count, groupby
from threading import Lock
from time import time_ns
from typing import TypeAlias
from uuid import uuid4

from cqels.model.errors import CqelsError
from cqels.pipeline.lift.block_format import elements_of
from cqels.pipeline.lift.lift_worker import LiftWorker, RowRun
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_lifts import ARRIVED, Lift, Lifting
from cqels.pipeline.lift.row_schemas import BLOCK
from cqels.pipeline.source.inbox import InboxFull
from cqels.pipeline.source.live_source import Message
from cqels.serve.push_formats import Prepared, PushFormats, line_of_fault

WAITING = 64 << 20
"""Bytes of pushes that wait to be lifted, of one stream."""
SHOWN = 10
"""Rejected elements that an answer shows; all are counted."""
_GROUP = 8 << 20
"""Bytes of pushes that are lifted together."""
_SMALL = 64 << 10
"""Bytes up to which pushes of the same kind are lifted as one."""
_EVERYTHING = (PushedPatterns(frozenset({ANYTHING})),)
_KINDS = 32
"""Ways of lifting that are remembered."""
_LOG = logging.getLogger("cqels")


@dataclass
class Outcome:
    """What became of a push."""

    accepted: int = 0
    rejected: int = 0
    errors: list[dict[str, str]] = field(default_factory=list)
    sample: int = 1
    """Of so many elements one was kept; 0 if none was."""

    def reject(self, place: str, reason: str, text: str) -> None:
        self.rejected += 1
        if len(self.errors) < SHOWN:
            self.errors.append({"at": place, "reason": reason, "text": text[:200]})


class Busy(CqelsError):
    """More is pushed than can be taken now; `after` is when to try again, in seconds."""

    def __init__(self, message: str, after: int) -> None:
        super().__init__(message, hint=f"try again in {after} s")
        self.after = after


class Stopped(CqelsError):
    """Nothing more is taken: the service ends."""


Soon: TypeAlias = Callable[[Callable[[], None]], object]


@dataclass
class Order:
    """What the pushes of one sender have in common that must not overtake each other."""

    is_held: bool = False
    """One was refused, and so are all behind it, until the sender puts them again."""


@dataclass
class _Push:
    """One push, and who waits for it."""

    body: bytes
    media_type: str
    time: int
    is_timed: bool
    """The time is that of its elements, and not when it came."""
    done: Callable[[Outcome | Exception], None]
    soon: Soon
    """Calls what it is given in the thread of who waits."""
    order: Order | None = None
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def size(self) -> int:
        return len(self.body)


Run: TypeAlias = Sequence[tuple[_Push, Prepared]]
"""Pushes that are lifted together, and how."""


@dataclass(frozen=True, slots=True)
class _Lifted:
    """Pushes as blocks."""

    messages: list[Message]
    elements: int
    is_clear: bool
    """It is known of which push each rejected element is."""


@dataclass
class Counts:
    """Of a stream, since the service was started."""

    pushes: int = 0
    elements: int = 0
    bytes: int = 0
    rejected: int = 0
    refused: int = 0
    """Pushes that were answered with 429."""
    left_out: int = 0
    """Elements that were not in the sample which was taken."""


class Reception:
    """Takes the pushes of one stream."""

    def __init__(
        self,
        iri: str,
        formats: PushFormats,
        accept: Callable[[Sequence[Message]], None],
        *,
        future: int | None,
        pool: Executor,
        sample: Callable[[], int] | None = None,
        waiting: int = WAITING,
    ) -> None:
        """`accept` puts messages into the inbox, and returns when they are durable.

        `sample` says of how many elements one is to be kept now: what does not fit is then left out and counted, and
        nobody has to wait.
        """
        self._iri, self._formats, self._accept, self._future = iri, formats, accept, future
        self._pool, self._sample, self._most = pool, sample, waiting
        self._workers: dict[tuple[Lift, bool], LiftWorker] = {}
        self._waiting: list[_Push] = []
        self._bytes = 0
        self._rate = 1
        """Of so many elements one is kept now."""
        self._is_busy = False
        self._lock = Lock()
        self._numbers, self._own = count(), uuid4().hex[:12]
        self.counts = Counts()

    async def push(self, body: bytes, media_type: str = "", time: int | None = None) -> Outcome:
        """Have a push in the inbox: what became of it."""
        return await self.pushed(body, media_type, time)

    def pushed(
        self, body: bytes, media_type: str = "", time: int | None = None, *, order: Order | None = None
    ) -> asyncio.Future[Outcome]:
        """What will become of a push."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def told(outcome: Outcome | Exception) -> None:
            if future.cancelled():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        try:
            self.submit(body, media_type, time, told, loop.call_soon_threadsafe, order)
        except CqelsError as error:
            future.set_exception(error)
        return future

    def submit(
        self,
        body: bytes,
        media_type: str,
        time: int | None,
        done: Callable[[Outcome | Exception], None],
        soon: Soon,
        order: Order | None = None,
    ) -> None:
        """Have a push wait for its turn; `done` is called with what became of it, by what `soon` is given."""
        push = _Push(body, media_type, time_ns() if time is None else time, time is not None, done, soon, order)
        with self._lock:
            if self._bytes and self._bytes + push.size > self._most:
                self.counts.refused += 1
                if order is not None:
                    order.is_held = True
                raise self._busy()
            self._waiting.append(push)
            self._bytes += push.size
            if self._is_busy:
                return
            self._is_busy = True
        try:
            self._pool.submit(self._work)
        except RuntimeError:  # of a pool that was shut down
            raise Stopped(f"nothing more is taken for <{self._iri}>: the service ends", hint="try again") from None

    # ------------------------------------------------------------ in a thread of the pool

    def _work(self) -> None:
        """Take pushes until there are none."""
        while group := self._taken():
            answers: list[tuple[_Push, Outcome | Exception]]
            try:
                answers = self._received(group)
            except Exception as error:
                answers = [(each, error) for each in group]
            for soon, found in groupby(answers, lambda answer: answer[0].soon):
                with suppress(RuntimeError):  # the loop has ended, and nobody waits
                    soon(partial(_tell, [*found]))

    def _taken(self) -> list[_Push]:
        with self._lock:
            size = number = 0
            while number < len(self._waiting) and (not number or size < _GROUP):
                size += self._waiting[number].size
                number += 1
            taken, self._waiting = self._waiting[:number], self._waiting[number:]
            self._bytes -= size
            self._is_busy = bool(taken)
            return taken

    def _busy(self) -> Busy:
        return Busy(f"too much is pushed to <{self._iri}>", 1)

    def _received(self, group: Sequence[_Push]) -> list[tuple[_Push, Outcome | Exception]]:
        if held := [each for each in group if each.order is not None and each.order.is_held]:
            others = [each for each in group if each.order is None or not each.order.is_held]
            return [*((each, self._busy()) for each in held), *self._received(others)]
        faults: dict[int, Exception] = {}
        lifting: list[tuple[_Push, Prepared]] = []
        for push in group:
            try:
                lifting.append((push, self._formats.prepare(push.body, push.media_type, timed=push.is_timed)))
            except CqelsError as error:
                faults[id(push)] = error
        sample = self._rate = 1 if self._sample is None else self._sample()
        messages = [message for run in _runs(lifting) for message in self._lifted(run)]
        offered = sum(push.outcome.accepted for push, _ in lifting)
        kept = offered if sample == 1 else sum(elements_of(each.value) for each in messages)
        try:
            if messages:
                self._accept(messages)
        except InboxFull as error:
            if self._sample is None:
                self.counts.refused += len(lifting)
                for push, _ in lifting:
                    if push.order is not None:
                        push.order.is_held = True
                busy = Busy(error.message, 1)
                return [(each, faults.get(id(each), busy)) for each in group]
            kept, sample = 0, 0
        for each in group:
            each.outcome.sample = sample
            self.counts.pushes += 1
            self.counts.bytes += each.size
            self.counts.rejected += each.outcome.rejected
        self.counts.elements += kept
        self._note_left_out(offered - kept)
        return [(each, faults.get(id(each), each.outcome)) for each in group]

    def _note_left_out(self, count: int) -> None:
        if count and not self.counts.left_out:
            _LOG.warning("stream <%s> gets more than is processed: a sample of its elements is taken", self._iri)
        self.counts.left_out += count

    def _lifted(self, run: Run) -> list[Message]:
        """The blocks of some pushes of one kind, whose outcomes are then known.

        Together they are lifted faster.  Where that does not tell of which push a rejected element is, each half is
        lifted by itself.
        """
        found = self._lifted_together(run)
        if len(run) == 1:
            run[0][0].outcome.accepted = found.elements
            return found.messages
        sizes = [_size(prepared) - push.outcome.rejected for push, prepared in run]
        if found.is_clear and found.elements == sum(sizes):
            for (push, _), size in zip(run, sizes, strict=True):
                push.outcome.accepted = size
            return found.messages
        half = len(run) // 2
        return self._lifted(run[:half]) + self._lifted(run[half:])

    def _lifted_together(self, run: Run) -> _Lifted:
        owners = [number for number, (_, prepared) in enumerate(run) for _ in prepared.values]
        values: list[bytes | None] = [value for _, prepared in run for value in prepared.values]
        for push, _ in run:
            push.outcome = Outcome()
        if not values:
            return _Lifted([], 0, True)
        worker = self._worker(run[0][1])
        worker.sample = self._rate
        place = f"{self._own}-{next(self._numbers)}"
        times: list[int | None] = [run[owner][0].time for owner in owners]
        rows = RowRun(place, 0, values, [*range(len(values))], times, named=True, is_numbered=True)
        before, far = worker.elements, 0
        messages: list[Message] = []
        lines = _line_ends(values) if worker.joins_lines else None
        pushed, prepared = run[-1]
        arrived = not pushed.is_timed and (prepared.arrival or prepared.lift.own_time)
        for row in worker.lifted(rows, count()):
            if row["kind"] == BLOCK:
                block = bytes(row["block"])  # type: ignore[call-overload]
                messages.append(Message(block, pushed.time, ARRIVED if arrived else None))
                continue
            number, line = _place(str(row["place"]), place, lines)
            far += number is None
            push, prepared = run[owners[number or 0]]
            at = ""
            if number is not None and len(push.outcome.errors) < SHOWN:
                at = _shown_place(prepared, number - owners.index(owners[number]), line)
            push.outcome.reject(at, str(row["reason"]), str(row["text"] or ""))
        worker.tidy()
        return _Lifted(messages, worker.elements - before - far, not far)

    def _worker(self, prepared: Prepared) -> LiftWorker:
        key = prepared.lift, prepared.arrival
        if key not in self._workers:
            if len(self._workers) >= _KINDS:
                self._workers.clear()
            lifting = Lifting(self._iri, 0, prepared.lift, _EVERYTHING, False, self._future, prepared.arrival)
            self._workers[key] = LiftWorker(lifting)
        return self._workers[key]


def _tell(answers: Sequence[tuple[_Push, Outcome | Exception]]) -> None:
    for push, answer in answers:
        push.done(answer)


def _runs(lifting: Sequence[tuple[_Push, Prepared]]) -> list[list[tuple[_Push, Prepared]]]:
    """Pushes that can be lifted as one: small ones of one kind, whose elements can be told from each other.

    Blank nodes are those of their push, so one that has some is lifted alone.
    """
    runs: list[list[tuple[_Push, Prepared]]] = []
    joins = False
    for push, prepared in lifting:
        before, joins = joins, _joins(push, prepared)
        last = runs[-1][-1] if runs else None
        if joins and before and last and last[1].lift == prepared.lift and last[0].is_timed == push.is_timed:
            runs[-1].append((push, prepared))
        else:
            runs.append([(push, prepared)])
    return runs


def _joins(push: _Push, prepared: Prepared) -> bool:
    lift = prepared.lift
    if push.size > _SMALL or lift.form != "lines" or b"_:" in prepared.values[0]:
        return False
    return lift.own_time or (lift.element == "line" and not prepared.arrival)


def _line_ends(values: Sequence[bytes | None]) -> list[int]:
    """The number of the last line of each value, where all are put together."""
    return [*accumulate((value or b"").count(b"\n") + 1 for value in values)]


def _place(where: str, place: str, lines: list[int] | None) -> tuple[int | None, int | None]:
    """Which value a rejected element is of, None if that is not known, and its line there."""
    if not where.startswith(f"{place}@"):
        return None, None
    number, _, text = where.removeprefix(f"{place}@").partition(":")
    line = int(text) if text.isdigit() else None
    if lines is None or line is None:
        return int(number), line
    owner = bisect_left(lines, line)
    return owner, line - (lines[owner - 1] if owner else 0)


def _shown_place(prepared: Prepared, number: int, line: int | None) -> str:
    """Where a rejected element is in the body of its push."""
    if prepared.places:
        return prepared.places[number]
    if not prepared.has_lines:
        return ""
    found = line or line_of_fault(prepared.values[number], prepared.lift)
    return f"line {found}" if found else ""


def _size(prepared: Prepared) -> int:
    """How many elements a push would have if none were rejected."""
    if prepared.lift.own_time:
        return len(prepared.values)
    lines = (line.strip() for value in prepared.values for line in value.split(b"\n"))
    return sum(bool(line) and not line.startswith(b"#") for line in lines)
