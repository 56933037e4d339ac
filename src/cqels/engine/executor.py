"""Runs one pipeline over one block of elements, with pauses; which run over which blocks is not known here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from time import perf_counter_ns
from typing import NoReturn, TypeAlias
from weakref import WeakSet, proxy

import numpy as np

from cqels.engine.budget_enforcement import run_guarded, stop
from cqels.engine.engine_state import EngineState
from cqels.engine.running_query import Running
from cqels.ingest.element_batch import Batch, Words
from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import DONE, FULL, PAUSED
from cqels.kernels.memory.arena import HEAP, SHARED, give
from cqels.kernels.operators.filter_extend import PROGRAM
from cqels.kernels.terms.sort_key_fallback import answer_term
from cqels.model.errors import ArenaFull
from cqels.model.interrupts import between_steps
from cqels.physical.payload_times import answer_times

Job: TypeAlias = Generator[BaseException | None]
"""Work that can be paused and resumed wherever it yields: an exception that is to be raised, or None."""

_PAUSE = 50_000_000
"""Nanoseconds after which it is time to look whether something else is wanted."""


class Executor:
    """Runs pipelines, and answers what their operators ask of Python."""

    watch: Callable[[], None] = staticmethod(lambda: None)
    """Raises an exception where the query that runs is to be stopped in the middle of a step."""

    def __init__(self, state: EngineState) -> None:
        self.state = state
        self._arena = state.arena
        itself = proxy(self)  # which does not keep it: a store is let go with its engine
        self.steps = scheduler.Steps(lambda: bool(itself.is_abandoned()))
        self.block = (0, 0)
        """Offset and words of the block that elements are written to."""
        self.dropped: WeakSet[Running] = WeakSet()
        """Queries that work was begun for and is not to be resumed."""
        self._is_alone = False
        """The query that runs shares nothing with others."""
        self._abandoned: BaseException | None = None
        """Why a step was abandoned."""

    # ------------------------------------------------------------ blocks

    def write_block(self, batch: Batch, numbers: Words) -> int:
        """Write elements with their numbers for the machine: the block's offset, the same one for every block."""
        count = len(batch)
        words = scheduler.BLOCK_WORDS + scheduler.ELEMENT_WORDS * count + len(batch.triples)
        offset, room = self.block
        if words > room:
            if offset:
                give(self._arena.base, offset, room)
            room = 1 << max(words - 1, 1023).bit_length()
            offset = self._arena.take(room)
            self.block = offset, room
        elements = offset + scheduler.BLOCK_WORDS
        triples = elements + scheduler.ELEMENT_WORDS * count
        block = self._arena.array(offset, words)
        block[: scheduler.BLOCK_WORDS] = count, elements, triples, self.state.start
        rows = block[scheduler.BLOCK_WORDS : triples - offset].reshape(count, scheduler.ELEMENT_WORDS)
        rows[:, 0], rows[:, 1], rows[:, 2] = batch.times, numbers, batch.streams
        rows[:, 3] = 0 if count == 1 else np.cumsum(batch.counts) - batch.counts
        rows[:, 4] = batch.counts
        block[triples - offset :] = batch.triples
        return offset

    def replay(self, running: Running, batch: Batch, numbers: Words) -> None:
        """Give elements with their numbers to one query, whatever others have seen, and discard its results."""
        for error in self.run(running, self.write_block(batch, numbers)):
            if error is not None:
                raise error
        running.raw = []

    # ------------------------------------------------------------ running

    def run(self, running: Running, block: int) -> Iterable[BaseException | None]:
        """Run a pipeline over a block. Most often that is done before anything is yielded."""
        if running.guard is not None:
            return run_guarded(self, running, block)
        self._arena.words[running.pipeline.offset + scheduler.NEXT] = 0
        work = partial(self._work_in_heap, running, block)
        outcome = _outcome(work)
        return () if outcome is DONE else self.going_on(running, work, outcome)

    def _work_in_heap(self, running: Running, block: int) -> bool:
        """`work` for a query without a budget."""
        words = self._arena.words
        try:
            words[HEAP] = running.pipeline.heap
            return self.work(running, block)
        finally:
            words[HEAP] = SHARED

    def going_on(self, running: Running, work: Callable[[], bool], outcome: BaseException | int = PAUSED) -> Job:
        """Work until it is done; not if the query has been dropped, which an exception may have been the cause of."""
        while outcome is not DONE:
            if running.broken:
                why = "it was interrupted in the middle of a tick"
                stop(self.state, running, why, self.state.elements, self.state.last)
            yield outcome if isinstance(outcome, BaseException) else None
            gone = running in self.dropped or running.stopped is not None
            outcome = DONE if gone else _outcome(work)

    def work(self, running: Running, block: int, most: int | None = None) -> bool:
        """Go on with a block, for a while: is it done? Only the results of the first `most` ticks are taken."""
        self._is_alone = running.share is None and not running.uses and running.pipeline.sends
        began = perf_counter_ns()
        while (status := self._stretch(running, block)) != DONE:
            if status == PAUSED:
                took = perf_counter_ns() - began
                running.patience = max(running.patience >> 1, 1) if took > 2 * _PAUSE else running.patience << 1
                if took > _PAUSE:
                    break
            elif status == FULL:
                self._raise_full(running)
            else:
                self._answer(running)
        running.gather(self._arena, most)
        return status == DONE

    def _stretch(self, running: Running, block: int) -> int:
        """Let the machine work until it has to ask, or has done enough at once."""
        offset = running.pipeline.offset
        return int(scheduler.run(self._arena.base, offset, block, self.steps.address, running.patience))

    def _answer(self, running: Running) -> None:
        """Compute what an operator asks of Python."""
        state, words, pipeline = self.state, self._arena.words, running.pipeline
        number = int(words[pipeline.offset + scheduler.AT])
        if number == 0:  # the windows come before all operators
            answer_times(state.dictionary, pipeline.offset)
        elif number in pipeline.groups:
            from cqels.kernels.operators.aggregate_setup import serve

            serve(state.dictionary, pipeline.groups[number])
        elif number in pipeline.recomputed:
            state.recomputation.serve(pipeline, pipeline.recomputed[number], running.name)
        elif asking := pipeline.asking(number):
            state.calls.answer(int(words[asking + PROGRAM]))
        else:  # an operator that orders
            answer_term(state.dictionary, pipeline.terms)

    # ------------------------------------------------------------ interrupts

    def is_abandoned(self) -> bool:
        """In the middle of a long step: is it to be abandoned, since there was a signal or it took too much time?

        A step that other queries depend on goes on: signals wait until the tick is over.
        """
        try:
            self.watch()
            if self._is_alone:
                between_steps()
        except BaseException as error:
            self._abandoned = error
        return self._abandoned is not None

    def _raise_full(self, running: Running) -> NoReturn:
        error, self._abandoned = self._abandoned, None
        if error is None:
            raise ArenaFull
        running.broken = True
        raise error


def event(time: int, kind: int) -> Batch:
    """A batch of one event that is no element."""
    return Batch.of([(time, kind, ())])


def _outcome(work: Callable[[], bool]) -> BaseException | int:
    """What comes of a stretch of work: DONE, PAUSED, or an exception, after which it can be resumed."""
    try:
        return DONE if work() else PAUSED
    except MemoryError:
        raise
    except BaseException as error:
        return error
