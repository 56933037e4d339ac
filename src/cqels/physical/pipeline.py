"""What the compiler makes of a plan: stages in the arena, the parts that Python feeds, and the pipeline of a query."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyoxigraph import NamedNode

from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, NEVER, NUMBER, OLDEST, TIME, WEIGHT, add_row, add_rows
from cqels.kernels.memory.arena import Arena
from cqels.lang.expressions import Expression
from cqels.lang.syntax import Range
from cqels.model.errors import ArenaFull
from cqels.plan.algebra import Plan, Query, Source, Triple

RANK = "_:.key rank"
"""The column that has the rank of a solution in the order of its plan."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What an operator gives: a queue of rows, the variables of its columns, and which of them may be unbound."""

    queue: int
    columns: tuple[str, ...]
    nullable: frozenset[str] = frozenset()
    in_turn: bool = False
    """Nearly all rows go in the order in which they came."""
    timeless: bool = False
    """All rows have the stamps of what came from no element."""


@dataclass(frozen=True, slots=True)
class WholeGraph(Plan):
    """All triples of a graph of the dataset, whatever the query's FROM says: what is merged into a window."""

    name: NamedNode


@dataclass(slots=True)
class Table:
    """A static part: where its rows go, and a block with the words of the rows that are there now."""

    plan: Plan
    stage: Stage
    offset: int = 0
    room: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A window that is kept for Python: its offset and, where the query's window slides, the number of the slide.

    `seen_at` is the offset of a word for what was in it the last time, for a window over payload times.
    """

    offset: int
    slide: int
    seen_at: int = 0


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A part of a plan that Python computes anew at each tick that changes what it reads, and the reason."""

    plan: Plan
    reason: str
    offset: int
    """Of the operator."""
    stage: Stage
    before: int
    """Offset of a queue with the rows of the last time."""
    windows: dict[Source, Kept]
    ranked: bool = False
    """A last column has the rank of each solution in the order of the plan."""
    events: bool = False
    """Every occurrence of a triple is an event of its own."""
    timely: bool = False
    """It depends on the tick's time."""
    needs_windows: bool = False
    """It has no solution while its windows are empty."""

    @property
    def timed(self) -> list[tuple[Source, Kept]]:
        """The windows over payload times."""
        return [(source, kept) for source, kept in self.windows.items() if has_payload_time(source)]


def has_payload_time(source: Source) -> bool:
    return isinstance(source.window, Range) and source.window.time is not None


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a node of the plan is in the arena: the queue of its rows, its operators and windows, with those below."""

    plan: Plan
    queue: int
    counted: int
    """Where the rows are counted that it has sent, if its queue has those of a later step; else 0."""
    operators: tuple[int, ...]
    """Offsets."""
    windows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinTrace:
    """A multiway join: its offset, the queue it writes, and the queues it reads in their order."""

    offset: int
    queue: int
    inputs: tuple[int, ...]
    conditions: tuple[Expression, ...] = ()
    """Those that it applies on the way, as soon as what they read is bound."""
    programs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT: its offset, the queue it writes, the program of each step, and where rows that passed are counted."""

    offset: int
    queue: int
    in_turn: bool
    """Nearly all rows that it reads go in the order in which they came."""
    programs: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Compared:
    """A THRESHOLDS: its offset, and the programs of its comparisons."""

    offset: int
    programs: tuple[int, ...]


@dataclass(slots=True)
class Pipeline:
    """A query in the arena: the offset of its program, what Python has to know of it, and the parts that are tables."""

    offset: int
    query: Query
    columns: tuple[str, ...]
    tables: list[Table]
    selects: dict[int, Select]
    """Number of an operator (counted from 1) to what is known of it, if it is a SELECT."""
    thresholds: dict[int, Compared]
    """Number of an operator to what is known of it, if it is a THRESHOLDS."""
    groups: dict[int, int]
    """Number of a GROUP BY operator to its offset."""
    recomputed: dict[int, Recomputed]
    """Number of an operator to the part of the plan that it stands for."""
    computed: frozenset[str]
    """The variables that the query computes: draws do not depend on them."""
    fresh: bool
    traces: list[Trace]
    joins: list[JoinTrace]
    matches: dict[int, Triple]
    """Queue of a pattern's mappings to the pattern."""
    streams: tuple[str, ...]
    """The streams that there were when it was registered: those that a variable ranges over."""
    terms: int
    """Where the order of terms is known, 0 if the query does not need it."""
    shared_inputs: list[int]
    """What brings rows that other pipelines have logged."""
    sends: bool = True
    """False if it logs what it finds, for others."""
    heap: int = 0
    """The heap that its memory is taken in."""

    def asking(self, number: int) -> int:
        """The offset of an operator that runs expressions; 0 if it runs none."""
        found = self.selects.get(number) or self.thresholds.get(number)
        return 0 if found is None else found.offset

    @property
    def programs(self) -> list[int]:
        """The offsets of all expressions that operators run."""
        asking: list[Select | Compared | JoinTrace] = [*self.selects.values(), *self.thresholds.values(), *self.joins]
        return [program for each in asking for program in each.programs]

    @property
    def reasons(self) -> list[tuple[Plan, str]]:
        """The parts that are computed anew at each tick, and why."""
        return [(each.plan, each.reason) for each in self.recomputed.values()]


def put_row(arena: Arena, queue: int, words: tuple[int, ...]) -> None:
    """Put a row with its weight and stamps into a queue."""
    offset = int(add_row(arena.base, queue))
    if offset == 0:
        raise ArenaFull
    arena.words[offset : offset + len(words)] = words


def put_rows(arena: Arena, queue: int, rows: npt.NDArray[np.int64], weights: npt.NDArray[np.int64]) -> None:
    """Put rows that came from no element into a queue."""
    count = len(rows)
    first = int(add_rows(arena.base, queue, count))
    if first == 0:
        raise ArenaFull
    width = COLUMNS + rows.shape[1]
    block = arena.array(first, count * width).reshape(count, width)
    block[:, WEIGHT], block[:, TIME], block[:, NUMBER], block[:, OLDEST] = weights, NEVER, -1, ALWAYS
    block[:, COLUMNS:] = rows
