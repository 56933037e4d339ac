"""Budgets: the most memory and time that a query may take. One that takes more is stopped, and the others go on.

Memory is the words of the arena that a query's pipeline holds, counted where they are taken: so a query that grows
without end within one tick is stopped within it.  They are taken in a heap of its own, and given back together.  Terms
belong to all queries and are not counted.  Time is that of the processor, for each element of the query's streams, on
average over a stretch of work.  A query is stopped in the middle of an element that takes longer than a stretch: in a
long step of the machine, and in what Python computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from cqels.engine.arguments import refused
from cqels.ingest.element_batch import Words
from cqels.kernels import scheduler
from cqels.kernels.memory.arena import LIMIT, REACHED
from cqels.model.deadlines import check
from cqels.model.errors import CqelsError
from cqels.model.interrupts import ticking
from cqels.model.sizes import format_size, parse_size
from cqels.model.time import LATEST, SECOND, format_duration, format_time, parse_duration

if TYPE_CHECKING:
    from cqels.engine.engine_state import EngineState
    from cqels.engine.executor import Executor, Job
    from cqels.engine.registry import Registry
    from cqels.engine.running_query import Running
    from cqels.kernels.memory.arena import Arena

SLICE = 128
"""Elements after which a pipeline with a budget is looked at."""
STRETCH = SECOND // 2
"""Work of a query after which its time is judged."""


def now() -> int:
    """The processor time of this thread."""
    return thread_time_ns()


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a query may take: bytes of state, and nanoseconds for an element."""

    memory: int | None = None
    time: int | None = None

    @staticmethod
    def of(memory: int | str | None, time: int | str | None) -> Budget | None:
        """What texts such as `200MB` and `5ms` say, None if they say nothing."""
        if memory is None and time is None:
            return None
        for value in (memory, time):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | str)):
                raise refused("budget", value, "write it as in memory='200MB', time='5ms'")
        try:
            made = Budget(
                parse_size(memory) if isinstance(memory, str) else memory,
                parse_duration(time) if isinstance(time, str) else time,
            )
        except ValueError as error:
            raise CqelsError(f"the budget of a query: {error}") from None
        if any(each is not None and each <= 0 for each in (made.memory, made.time)):
            raise CqelsError("the budget of a query: there must be something to spend")
        if any(each is not None and each > LATEST for each in (made.memory, made.time)):
            raise CqelsError("the budget of a query: a number does not fit in 64 bits", hint="leave it out")
        return made


@dataclass(eq=False)
class Guard:
    """What a query has taken of its budget."""

    budget: Budget
    spent: int = 0
    """Nanoseconds since its time was judged."""
    elements: int = 0
    """Of its streams, since then."""
    warm: bool = False
    """Its programs have been loaded here: the stretch in which they were is not judged."""

    def state(self) -> dict[str, int | None]:
        """What is remembered, as plain values."""
        limits = {"memory": self.budget.memory, "time": self.budget.time}
        return {**limits, "spent": self.spent, "elements": self.elements}

    def overdue(self, spent: int, elements: int) -> str | None:
        """What is wrong with the time that it takes, in the middle of an element: with more work than is judged."""
        assert self.budget.time is not None
        spent, elements = self.spent + spent, max(self.elements + elements, 1)
        if spent < (STRETCH if self.warm else 2 * STRETCH) or spent // elements <= self.budget.time:
            return None
        return f"an element takes it {_short(spent // elements)}, and {format_duration(self.budget.time)} is the most"

    def judged(self, spent: int, elements: int) -> str | None:
        """Count work. What is wrong with the time that it takes, if a stretch is over; then another one begins."""
        if self.budget.time is None:
            return None
        self.spent, self.elements = self.spent + spent, self.elements + elements
        if self.spent < STRETCH:
            return None
        mean = self.spent // max(self.elements, 1)
        wrong = self.warm and mean > self.budget.time
        self.spent, self.elements, self.warm = 0, 0, True
        if not wrong:
            return None
        return f"an element takes it {_short(mean)}, and {format_duration(self.budget.time)} is the most"


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a query: why, and how many of its ticks were complete, whose results stay."""

    reason: str
    ticks: int


class _Exceeded(Exception):
    """There is no more memory, in the budget or in the whole engine: the reason."""


class _Overdue(BaseException):
    """An element takes far more time than the budget has: no function of a query is to catch this."""


def restored(guard: Guard | None, state: dict[str, Any] | None) -> Guard | None:
    """A guard as it was when its state was written; what this process knows of it stays."""
    if state is None:
        return None
    taken = {each: state[each] for each in ("spent", "elements")}
    return Guard(Budget(state["memory"], state["time"]), **taken, warm=guard is not None and guard.warm)


# ---------------------------------------------------------------- memory


@contextmanager
def within(state: EngineState, running: Running) -> Iterator[None]:
    """Take memory in the query's heap; with a budget this is the query's last if there is not enough in it."""
    if running.guard is None:
        with state.arena.heap(running.pipeline.heap):
            yield
        return
    try:
        with _limited(state, running):
            yield
    except _Exceeded as exceeded:
        stop(state, running, str(exceeded), state.elements, state.last)


@contextmanager
def _limited(state: EngineState, running: Running) -> Iterator[None]:
    """Take memory in the query's heap, as much as its budget lets it hold."""
    words, arena, heap = state.arena.words, state.arena, running.pipeline.heap
    most = _most(state, running)
    words[heap + LIMIT] = most or 0
    try:
        with arena.heap(heap):
            yield
    except MemoryError as error:
        if words[heap + LIMIT] != REACHED:
            if most is None:
                raise
            raise _Exceeded(f"{error.args[0]}, and it holds {format_size(arena.held_in(heap) * 8)}") from error
    finally:
        limit, words[heap + LIMIT] = int(words[heap + LIMIT]), 0
    if limit == REACHED or (most is not None and arena.held_in(heap) > most):
        assert running.guard is not None
        raise _Exceeded(_too_large(running.guard))


def _most(state: EngineState, running: Running) -> int | None:
    """The words that a query may hold, None if there is no limit.

    What is repeated is not judged: a query has ends where it had then, and no more memory than it can have had.
    """
    assert running.guard is not None
    memory = running.guard.budget.memory
    if memory is None or not (state.judging or running.name in state.stops):
        return None
    return max(memory // 8 if state.judging else memory // 4, REACHED + 1)


# ---------------------------------------------------------------- running


def run_guarded(executor: Executor, running: Running, block: int) -> Job:
    """Run a pipeline over a block, as long as its budget lasts."""
    guard = running.guard
    if guard is None or running.stopped is not None:
        return
    state = executor.state
    words, pipeline = state.arena.words, running.pipeline.offset
    words[pipeline + scheduler.NEXT] = 0
    events = _events(state.arena, block)
    reasons: list[str] = []
    size = SLICE if running.name not in state.stops else 1
    for start in range(0, len(events), size):
        end = min(start + size, len(events))
        yield from executor.going_on(running, partial(_is_worked_off, executor, running, block, end, reasons))
        if reasons:
            break
    if reasons:
        last = max(int(words[pipeline + scheduler.NEXT]) - 1, 0)
        time, number, stream = events[last, :3].tolist()
        stop(state, running, reasons[0], state.elements_at(number) - (stream < 0), time)


def _is_worked_off(executor: Executor, running: Running, block: int, end: int, reasons: list[str]) -> bool:
    """Go on with a slice of a block, for a while: is it done, or is there a reason to stop?"""
    state, guard = executor.state, running.guard
    words = state.arena.words
    assert guard is not None
    known, place = state.stops.get(running.name), running.pipeline.offset
    if known is not None:
        left = known.ticks - int(words[place + scheduler.TICKS])
        if left <= 0:
            reasons.append(known.reason)
            return True
        running.patience = min(running.patience, left)  # what comes after may be what it was stopped for
    timed = state.judging and guard.budget.time is not None
    count, first, began = (
        int(words[block + scheduler.ELEMENTS]),
        int(words[place + scheduler.NEXT]),
        now() if timed else 0,
    )

    late: list[str] = []

    def is_late(time: int | None) -> bool:
        reason = guard.overdue((now() if time is None else time) - began, int(words[place + scheduler.NEXT]) - first)
        late.extend([reason] if reason else [])
        return reason is not None

    words[block + scheduler.ELEMENTS] = end
    try:
        with _limited(state, running), _watching(executor, is_late if timed else None):
            done = executor.work(running, block, None if known is None else known.ticks)
    except _Exceeded as exceeded:
        reasons.append(str(exceeded))
        return True
    except _Overdue:
        reasons.append(late[-1])
        return True
    finally:
        words[block + scheduler.ELEMENTS] = count
    if timed:
        read = np.isin(_events(state.arena, block)[first : int(words[place + scheduler.NEXT]), 2], [*running.streams])
        reason = guard.judged(now() - began, int(np.count_nonzero(read)))
        if reason is not None:
            reasons.append(reason)
    return done or bool(reasons)


@contextmanager
def _watching(executor: Executor, is_late: Callable[[int | None], bool] | None) -> Iterator[None]:
    """Have long steps of the machine, and what Python computes for them, watched."""
    if is_late is None:
        yield
        return
    executor.watch = check
    try:
        with ticking(is_late, _Overdue):
            yield
    finally:
        del executor.watch


def _events(arena: Arena, block: int) -> Words:
    """The elements of a block: time, number, stream …"""
    words = arena.words
    count, first = (int(words[block + word]) for word in (scheduler.ELEMENTS, scheduler.ELEMENTS_AT))
    return arena.array(first, count * scheduler.ELEMENT_WORDS).reshape(count, scheduler.ELEMENT_WORDS)


def stop(state: EngineState, running: Running, why: str, number: int, time: int | None) -> None:
    """End a query: results of its complete ticks can still be taken, and its memory is given back."""
    words, pipeline = state.arena.words, running.pipeline.offset
    broken = words[pipeline + scheduler.AT] >= 0 or words[pipeline + scheduler.PHASE] == scheduler.COMING
    ticks = int(words[pipeline + scheduler.TICKS]) - bool(broken)
    when = "" if time is None else f", {format_time(time)}"
    end = state.stops.pop(running.name, None) or Stop(
        f"query {running.name} was stopped at element {number:,}{when}: {why}", ticks
    )
    running.gather(state.arena, end.ticks)
    state.free_pipeline(running)
    running.stopped = end
    if state.judging:
        state.ended.append(running)


def stop_uncompiled(registry: Registry, running: Running, error: Exception) -> None:
    """End queries that could not be compiled; their registration has told all that can be known without trying."""
    reason = " ".join(str(error).split()) or type(error).__name__
    registry.state.free_pipeline(running)
    for each in registry.separated(running):
        each.stopped = Stop(f"query {each.name} was stopped: it cannot run: {reason}", 0)
        if registry.state.judging:
            registry.state.ended.append(each)


@contextmanager
def obeying(state: EngineState, stops: Mapping[str, Stop]) -> Iterator[None]:
    """Do again what was done before: queries are stopped where they were then, and nowhere else."""
    state.judging, state.stops = False, dict(stops)
    try:
        yield
        for running in state.running:
            if running.name in state.stops and running.stopped is None:
                stop(state, running, "", 0, None)
    finally:
        state.judging, state.stops = True, {}


def _too_large(guard: Guard) -> str:
    return f"its state takes more than {format_size(guard.budget.memory or 0)}"


def _short(nanoseconds: int) -> str:
    """A duration with three digits.

    >>> _short(7_123_456)
    '7.12ms'
    """
    for unit, size in (("s", SECOND), ("ms", SECOND // 1000), ("us", 1000)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g}{unit}"
    return f"{nanoseconds}ns"
