"""Enforcement of budgets: a query that takes more memory or time than it may is stopped, and the others go on.

Memory is the words of the arena that a query's pipeline holds, counted where they are taken: so a query that grows
without end within one tick is stopped within it.  They are taken in a heap of its own, and given back together.  Terms
belong to all queries and are not counted.  Time is that of the processor, for each element of the query's streams, on
average over a stretch of work.  A query is stopped in the middle of an element that takes longer than a stretch: in a
long step of the machine, and in what Python computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import thread_time_ns
from typing import TYPE_CHECKING

import numpy as np

from cqels.engine.budgets import Guard, Stop
from cqels.ingest.element_batch import Words
from cqels.kernels import scheduler
from cqels.kernels.memory.arena import LIMIT, REACHED
from cqels.model.deadlines import check
from cqels.model.interrupts import ticking
from cqels.model.sizes import format_size
from cqels.model.time import format_time

if TYPE_CHECKING:
    from cqels.engine.engine_state import EngineState
    from cqels.engine.executor import Executor, Job
    from cqels.engine.running_query import Running
    from cqels.kernels.memory.arena import Arena

SLICE = 128
"""Elements after which a pipeline with a budget is looked at."""


def now() -> int:
    """The processor time of this thread."""
    return thread_time_ns()


class _Exceeded(Exception):
    """There is no more memory, in the budget or in the whole engine: the reason."""


class _Overdue(BaseException):
    """An element takes far more time than the budget has: no function of a query is to catch this."""


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
    known, offset = state.stops.get(running.name), running.pipeline.offset
    if known is not None:
        left = known.ticks - int(words[offset + scheduler.TICKS])
        if left <= 0:
            reasons.append(known.reason)
            return True
        running.patience = min(running.patience, left)  # what comes after may be what it was stopped for
    timed = state.judging and guard.budget.time is not None
    count, first, began = (
        int(words[block + scheduler.ELEMENTS]),
        int(words[offset + scheduler.NEXT]),
        now() if timed else 0,
    )

    late: list[str] = []

    def is_late(time: int | None) -> bool:
        reason = guard.overdue((now() if time is None else time) - began, int(words[offset + scheduler.NEXT]) - first)
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
        read = np.isin(_events(state.arena, block)[first : int(words[offset + scheduler.NEXT]), 2], [*running.streams])
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
