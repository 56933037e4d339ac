"""A query that runs: its plan, its pipeline once that is compiled, what it has a part in, and what it has sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cqels.engine.budgets import Guard, Stop
from cqels.engine.output.result_emission import Answers, Sent
from cqels.ingest.element_batch import Words
from cqels.ingest.term_codec import Terms
from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import COLUMNS, COUNT, DATA, NUMBER, WIDTH, clear
from cqels.kernels.memory.arena import Arena
from cqels.model.gc_pause import without_collection
from cqels.physical.incremental_support import computed_anew
from cqels.physical.pipeline import Pipeline
from cqels.physical.python_functions import Function
from cqels.physical.relocation import names_of, offsets_of, shape_of
from cqels.plan.algebra import Plan, Query
from cqels.plan.plan_json import fingerprint
from cqels.plan.sharing.common_joins import Occurrence
from cqels.results import Result
from cqels.store.dependencies import AnyGraph, GraphName

if TYPE_CHECKING:
    from cqels.engine.sharing.shared_pipelines import Share


@dataclass(eq=False)
class Running:
    """A query that runs: its pipeline, and what it has sent and nobody has taken yet."""

    query: Query
    name: str
    answers: Answers
    terms: Terms
    plan: Plan
    """As it is compiled."""
    known: dict[str, int]
    """The streams that there were when it was registered, with their numbers."""
    streams: frozenset[int]
    """The numbers of the streams that it reads."""
    graphs: frozenset[GraphName | AnyGraph]
    fresh: bool
    """It matters when the elements came that a solution used."""
    compiled: Pipeline | None = None
    """Its pipeline; queries that may share one have none before something happens."""
    functions: list[tuple[int, Function]] = field(default_factory=list)
    """The functions that its programs call, by their numbers."""
    output: int | None = None
    """The number of the stream that it makes."""
    raw: list[Words] = field(default_factory=list)
    """What the machine sent, rows of words; made into results when they are taken."""
    share: Share | None = None
    """That whose pipeline this is: it stands for all its members."""
    member: Share | None = None
    """That whose pipeline it has a part in, instead of one of its own."""
    uses: tuple[Occurrence, ...] = ()
    """The parts of its plan that are computed once for all queries that have them."""
    began: int = 0
    """The number of the first element that it can see."""
    guard: Guard | None = None
    """What it has taken of its budget, if it has one."""
    stopped: Stop | None = None
    """Its end, if it took more: it has no pipeline any more."""
    broken: bool = False
    """It was interrupted in the middle of a step, and cannot go on."""
    patience: int = 1024
    """Ticks and elements that are worked off at once, about as many as take some hundredths of a second."""

    ready: deque[Result] = field(default_factory=deque)
    """Results that were made of it, and not taken yet."""

    _known: tuple[Pipeline, tuple[str, ...], str] | None = None
    """A pipeline with the names of its offsets and its shape."""

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.query)

    @property
    def pipeline(self) -> Pipeline:
        """Its pipeline, which is compiled."""
        assert self.compiled is not None, f"query {self.name} is not compiled"
        return self.compiled

    @pipeline.setter
    def pipeline(self, pipeline: Pipeline) -> None:
        self.compiled = pipeline

    @cached_property
    def is_recomputed(self) -> bool:
        """Some part of it has no incremental operators."""
        return bool(computed_anew(self.plan))

    @property
    def offsets(self) -> dict[str, int]:
        """All arena offsets that Python holds of its pipeline, by their names."""
        return dict(zip(self._named()[1], offsets_of(self.pipeline), strict=True))

    @property
    def shape(self) -> str:
        """What these offsets mean: the same for pipelines that can have one another's (`physical.relocation`)."""
        return self._named()[2]

    def _named(self) -> tuple[Pipeline, tuple[str, ...], str]:
        if self._known is None or self._known[0] is not self.pipeline:
            names = tuple(names_of(self.pipeline))
            self._known = self.pipeline, names, shape_of(self.pipeline, [each for _, each in self.functions])
        return self._known

    def alike(self, query: Query, name: str) -> Running:
        """Another query that reads what this one reads, and is to have part in a pipeline."""
        answers = Answers(query, name, self.answers.columns)
        return Running(query, name, answers, self.terms, self.plan, self.known, self.streams, self.graphs, self.fresh)

    def gather(self, arena: Arena, most: int | None = None) -> None:
        """Take what its pipeline has sent, at its first `most` ticks or at all; a log is for other pipelines."""
        words = arena.words
        queue = int(words[self.pipeline.offset + scheduler.RESULTS])
        if (count := int(words[queue + COUNT])) and self.pipeline.sends:
            width, data = int(words[queue + WIDTH]), int(words[queue + DATA])
            rows = words[data : data + count * width].reshape(count, width).copy()
            clear(arena.base, queue)
            if most is not None:
                later = np.flatnonzero(rows[:, NUMBER] > most)
                rows = rows[: later[0]] if len(later) else rows  # what is behind may have no number yet
            if not len(rows):
                return
            if self.share is None:
                self.raw.append(rows)
            else:
                self.share.route(rows)

    @property
    def has_sent(self) -> bool:
        """There is something to take, or may be."""
        return bool(self.raw or self.ready)

    def make(self) -> list[Result]:
        """Make results of what the machine sent since the last time."""
        made = self._made()
        self.ready += made
        return made

    def _made(self) -> list[Result]:
        if not self.raw:
            return []
        with self.whole(), without_collection():
            return list(self.answers.results_of(self._rows(), self.terms))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Take something wholly, or if that fails or is interrupted, nothing."""
        raw, ready, known = self.raw, self.ready, {**vars(self.answers)}
        try:
            yield
        except BaseException:
            self.raw, self.ready = raw, ready
            vars(self.answers).update(known)
            raise

    def take(self) -> list[Result]:
        """The results sent and not yet taken."""
        made = self._made()
        if not self.ready:
            return made
        taken, self.ready = [*self.ready, *made], deque()
        return taken

    def take_one(self) -> Result | None:
        """The first result sent and not yet taken; None if there is none."""
        if not self.ready:
            self.make()
        return self.ready.popleft() if self.ready else None

    def take_solutions(self) -> Sent | None:
        """What `take` takes as arrays, where there are results of SELECT only, none made yet; else None."""
        if self.query.form != "select" or self.query.policy == "cqels-1" or self.ready:
            return None
        return self.answers.sent(self._rows(), self.terms)

    def _rows(self) -> Words:
        """What the machine sent since the last time."""
        rows, self.raw = self.raw, []
        if not rows:
            return np.empty((0, COLUMNS + len(self.answers.columns)), np.int64)
        return rows[0] if len(rows) == 1 else np.concatenate(rows)
