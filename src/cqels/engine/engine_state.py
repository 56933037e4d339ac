"""What registry, executor, runtime, derived streams and term collection share; what only one of them needs is there."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from cqels.engine.budgets import Stop
from cqels.engine.running_query import Running
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import ROOTS, Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.physical.python_functions import Calls
from cqels.store.dataset import Store

if TYPE_CHECKING:
    from cqels.engine.recompute import Recomputation

DICTIONARY_ROOT, MEMO_ROOT = ROOTS, ROOTS + 1
STEP = 1 << 16
"""Between the numbers of arriving elements: so these do not depend on what queries derive from them."""


class EngineState:
    """The memory, the position in the input, the streams and the queries of one engine."""

    def __init__(self, store: Store, arena: Arena, *, start: int = 0) -> None:
        self.store = store
        self.arena = arena
        self.dictionary = ArenaDictionary(arena)
        self.calls = Calls(self.dictionary)
        arena.words[DICTIONARY_ROOT], arena.words[MEMO_ROOT] = self.dictionary.offset, self.calls.memo
        self.terms = Terms(self.dictionary)

        self.start = start
        self.number = STEP
        """Of the next element that arrives, in order of arrival over all streams, in steps."""
        self.derived = 0
        """Elements that queries derived since the last one arrived: their numbers are between its own and the next."""
        self.last: int | None = None
        """The time of the last event."""

        self.streams: dict[str, int] = {}
        """The streams that there are, with their numbers."""
        self.dropped_streams: dict[str, int] = {}
        """Derived streams whose queries were dropped."""
        self.running: list[Running] = []
        """The queries."""
        self.producers: dict[str, Running] = {}
        """Those that produce derived streams, by the names of these."""

        self.judging = True
        """Queries that exceed their budgets are stopped; False while what was done before is done again."""
        self.stops: dict[str, Stop] = {}
        """The ends that queries had when it was done before, by their names."""
        self.ended: list[Running] = []
        """Queries that were stopped, which have not been reported yet."""

    @cached_property
    def recomputation(self) -> Recomputation:
        """Recomputes the parts of plans that have no incremental operators; most queries have none."""
        from cqels.engine.recompute import Recomputation

        return Recomputation(self.dictionary, self.store)

    @property
    def elements(self) -> int:
        """How many elements have arrived."""
        return self.elements_at(self.number) - 1

    @staticmethod
    def elements_at(number: int) -> int:
        """How many elements have arrived when one with a number has."""
        return number // STEP

    def free_pipeline(self, running: Running) -> None:
        """Give the memory and the functions of a pipeline back."""
        if running.compiled is not None and running.stopped is None:
            self.calls.release(running.functions)
            self.arena.dissolve(running.compiled.heap)
            running.functions, running.compiled = [], None
