"""Queries that differ in constants, thresholds and widths alone share a pipeline, and what it sends goes to each.

Queries share if nothing happened between their registrations: no element, no heartbeat, no change of the dataset.
Each has the results that it would have alone, since the windows of all of them have seen the same.  So the pipeline is
made when something happens: then it is known who shares it, what varies (`plan.sharing.query_templates`), how wide
the widest windows are, and which thresholds (`engine.sharing.threshold_order`) are the loosest.  Which queries share is
decided by `Registry` (`engine.registry`); here is what they share, and how its results are routed to each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from pyoxigraph import Literal

from cqels.engine.sharing.threshold_order import listed, loosest
from cqels.ingest.element_batch import Words
from cqels.kernels.containers.delta_queue import COLUMNS
from cqels.kernels.operators.threshold_router import Listed, set_thresholds
from cqels.model.terms import Term
from cqels.physical.pipeline import put_rows
from cqels.plan.algebra import Plan, Query
from cqels.plan.plan_text import Show
from cqels.plan.scope import variables
from cqels.plan.sharing.query_templates import CLASS, GROUP, WIDTH, General, constants_of, general, is_own

if TYPE_CHECKING:
    from cqels.engine.registry import Registry
    from cqels.engine.running_query import Running

Constants: TypeAlias = tuple[Term, ...]
_FEW = 5
"""Queries that are named where there are many."""


@dataclass(eq=False, repr=False)
class Class:
    """Queries with the same constants, which are sent the same."""

    number: int
    constants: Constants
    group: int = 0
    """That of the classes that differ in thresholds alone, or in widths too."""
    members: list[Running] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Made:
    """The pipeline that queries share: the query for all of them, and that as it runs."""

    general: General
    widest: int
    """Nanoseconds of its windows, if their width varies."""
    loosest: Mapping[int, Collection[Term]]
    """Thresholds by their numbers, those that vary: every solution passes one of each."""
    running: Running


@dataclass(eq=False, repr=False)
class Share:
    """Queries that differ in some of their constants, and their pipeline when they have it."""

    registry: Registry
    classes: dict[Constants, Class] = field(default_factory=dict)
    next: int = 0
    """The number of the next class."""
    made: Made | None = None
    _by_word: dict[int, Class] = field(default_factory=dict)
    """The classes by the words of their numbers, which are the same in every dictionary."""
    _groups: Counter[int] = field(default_factory=Counter)
    """How many classes are in each group."""

    @property
    def members(self) -> Iterator[Running]:
        for each in self.classes.values():
            yield from each.members

    def add(self, running: Running, constants: Constants) -> None:
        """Let a query have its part of what will be sent."""
        if constants not in self.classes:
            self.opened(self.next, constants)
            self.next += 1
        self.join(running, self.classes[constants])

    def opened(self, number: int, constants: Constants, group: int = 0) -> Class:
        """A new class of this number."""
        one = self.classes[constants] = self._by_word[self._word(number)] = Class(number, constants, group)
        self._groups[group] += 1
        return one

    def join(self, running: Running, one: Class) -> None:
        """Make a query a member of a class that is there."""
        one.members.append(running)
        running.member = self

    def leave(self, running: Running) -> None:
        """Let a query go; its class with it, if it was the last one there."""
        constants = constants_of(running.query)
        assert constants is not None
        one = self.classes[constants]
        one.members.remove(running)
        running.member = None
        if not one.members:
            del self.classes[constants], self._by_word[self._word(one.number)]
            self._groups[one.group] -= 1
            if self.made is not None and not (self.general.comparisons and self._groups[one.group]):
                with self.registry.state.arena.heap(self.running.pipeline.heap):
                    self._put_rows([one], -1)

    # ------------------------------------------------------------ the pipeline

    @property
    def general(self) -> General:
        """The query for all that have a part in it."""
        if self.made is not None:
            return self.made.general
        return general(self._any, self._varying(), self._widest(), self._loosest())

    @property
    def running(self) -> Running:
        """What runs for all of them, when it is made."""
        assert self.made is not None
        return self.made.running

    @property
    def widest(self) -> int:
        """Nanoseconds of its windows, if their width varies, when it is made."""
        assert self.made is not None
        return self.made.widest

    @property
    def loosest(self) -> Mapping[int, Collection[Term]]:
        """The loosest thresholds by their numbers, when it is made."""
        assert self.made is not None
        return self.made.loosest

    def plan(self) -> None:
        """Have the query for those who are here, which can be compiled."""
        self._plan(self._varying(), self._widest(), self._loosest(), dict(self.registry.state.streams))

    def add_classes(self) -> None:
        """Give a new pipeline the rows of the classes that there are."""
        with self.registry.state.arena.heap(self.running.pipeline.heap):
            self._put_rows(self._grouped() if self.general.comparisons else self.classes.values(), 1)

    def compile(
        self, varying: Collection[int], widest: int, loosest: Mapping[int, Collection[Term]], streams: dict[str, int]
    ) -> None:
        """Have the pipeline for queries that differ in these constants; nothing is known to it yet."""
        self._plan(varying, widest, loosest, streams)
        self.registry.compile(self.running)
        self.fit()

    def _plan(
        self, varying: Collection[int], widest: int, loosest: Mapping[int, Collection[Term]], streams: dict[str, int]
    ) -> None:
        of_all = general(self._any, varying, widest, loosest)
        running = self.registry.planned(of_all.query, "", streams)
        running.share, self.made = self, Made(of_all, widest, loosest, running)

    def fit(self) -> None:
        """Let all who have a part in it know the pipeline."""
        running = self.running
        columns = tuple(name for name in running.pipeline.columns if name != CLASS)
        for member in self.members:
            member.pipeline, member.plan, member.functions = running.pipeline, running.plan, []
            member.answers.columns = columns

    @property
    def _any(self) -> Query:
        return next(self.members).query

    def _varying(self) -> frozenset[int]:
        """The numbers of the constants that are not the same for all."""
        return frozenset(number for number, terms in enumerate(zip(*self.classes, strict=True)) if len({*terms}) > 1)

    def _widest(self) -> int:
        """The widest windows; 0 if that is not known to vary."""
        of_all = general(self._any, self._varying())
        if WIDTH not in of_all.columns:
            return 0
        return max(_nanoseconds(constants[of_all.numbers[-1]]) for constants in self.classes)

    def _loosest(self) -> dict[int, Collection[Term]]:
        of_all = general(self._any, self._varying())
        return {
            number: loosest(comparison, {constants[number] for constants in self.classes})
            for comparison, number in zip(of_all.comparisons, of_all.thresholds, strict=True)
        }

    # ------------------------------------------------------------ EXPLAIN

    def describe(self, running: Running) -> str:
        """What a query shares with whom, in a line."""
        others = [each.name for each in self.members if each is not running]
        thresholds = map(Show({}).threshold, self.general.comparisons)
        columns = ", ".join(dict.fromkeys((*map(_in_words, self.general.columns), *thresholds)))
        apart = f", told apart by {columns}" if columns else ", all of them alike"
        return f"shared with {named(others)}{apart}"

    def route(self, rows: Words) -> None:
        """Give rows that were sent to the queries that they are for."""
        if not self.general.varying:
            for each in self.members:
                each.raw.append(rows)
            return
        at = COLUMNS + self.running.pipeline.columns.index(CLASS)
        order = np.argsort(rows[:, at], kind="stable")
        rows = rows[order]
        starts = np.flatnonzero(np.diff(rows[:, at], prepend=rows[0, at] - 1))
        words = rows[starts, at].tolist()
        rows = np.delete(rows, at, axis=1)
        for word, part in zip(words, np.split(rows, starts[1:]), strict=True):
            one = self._by_word.get(word)
            if one is not None:  # or all of the class have been dropped
                for member in one.members:
                    member.raw.append(part)

    # ------------------------------------------------------------ tables

    def _put_rows(self, classes: Collection[Class], weight: int) -> None:
        """Put the rows of classes, or of their groups, into the table that is joined, if there is one."""
        for table in self.running.pipeline.tables:
            if CLASS in table.stage.columns or GROUP in table.stage.columns:
                rows = np.array([self._words(each) for each in classes], np.int64)
                put_rows(self.registry.state.arena, table.stage.queue, rows, np.full(len(rows), weight))

    def _grouped(self) -> list[Class]:
        """Put the classes into groups, and give their thresholds to the routers: the first class of each group."""
        groups: dict[Constants, list[Class]] = {}
        for each in self.classes.values():
            groups.setdefault(self._key(each)[: len(self.general.keys)], []).append(each)
        lists: list[list[Listed]] = []
        for number, classes in enumerate(groups.values()):
            for each in classes:
                each.group = number
            rows = [([each.constants[at] for at in self.general.thresholds], self._added(each)) for each in classes]
            lists.append(listed(self.general.comparisons, rows, self.registry.state.calls.word_of))
        self._groups = Counter(each.group for each in self.classes.values())
        for compared in self.running.pipeline.thresholds.values():
            set_thresholds(self.registry.state.arena, compared.offset, lists)
        return [classes[0] for classes in groups.values()]

    def _added(self, one: Class) -> list[int]:
        """What those who compare add to a solution for a class: its number, and the width if that varies."""
        widths = [] if WIDTH not in self.general.columns else [_nanoseconds(self._key(one)[-1])]
        return [self._word(one.number), *widths]

    def keys(self, plan: Plan) -> tuple[tuple[str, ...], list[Constants]]:
        """The columns that a static part has of the joined table, and their values, each once."""
        columns = self.general.columns
        indexes = [index for index, name in enumerate(columns) if name in variables(plan)]
        keys = (self._key(each) for each in self.classes.values())
        return tuple(columns[index] for index in indexes), list(
            dict.fromkeys(tuple(key[at] for at in indexes) for key in keys)
        )

    def _words(self, one: Class) -> list[int]:
        """The row of a class: terms, the width as a plain number, and the number of the class or its group."""
        encode = self.registry.state.terms.encode
        named = zip(self.general.keys, self._key(one), strict=False)
        row = [_nanoseconds(term) if name == WIDTH else encode(term) for name, term in named]
        return [*row, one.group if self.general.comparisons else self._word(one.number)]

    def _word(self, number: int) -> int:
        return self.registry.state.terms.encode(Literal(number))

    def _key(self, one: Class) -> Constants:
        return tuple(one.constants[number] for number in self.general.numbers)


def named(queries: list[str]) -> str:
    """The names of queries, the first ones where there are many."""
    return ", ".join(queries[:_FEW]) + (f" and {len(queries) - _FEW:,} more" if len(queries) > _FEW else "")


def _nanoseconds(width: Term) -> int:
    assert isinstance(width, Literal)
    return int(width.value)


def _in_words(column: str) -> str:
    return "the width of windows" if column == WIDTH else column if is_own(column) else f"?{column}"
