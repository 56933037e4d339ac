"""Queries that differ in constants and widths of windows alone share a pipeline, and what it sends goes to each.

Queries share if nothing happened between their registrations: no element, no heartbeat, no change of the dataset.
Each has the results that it would have alone, since the windows of all of them have seen the same.  So the pipeline is
made when something happens: then it is known who shares it, what varies (`plan.templates`), and how wide the widest
windows are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from pyoxigraph import Literal

from cqels.engine.batch import Words
from cqels.flow.stages import put_rows
from cqels.kernels.rows import COLUMNS
from cqels.model.terms import Term
from cqels.plan.algebra import Plan, Query
from cqels.plan.scope import variables
from cqels.plan.templates import CLASS, WIDTH, General, constants_of, general, is_own

if TYPE_CHECKING:
    from cqels.engine.core import Core
    from cqels.engine.running import Running

Constants: TypeAlias = tuple[Term, ...]
_FEW = 5
"""Queries that are named where there are many."""


@dataclass(eq=False, repr=False)
class Class:
    """Queries with the same constants, which are sent the same."""

    number: int
    constants: Constants
    members: list[Running] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Made:
    """The pipeline that queries share: the query for all of them, and that as it runs."""

    general: General
    widest: int
    """Nanoseconds of its windows, if their width varies."""
    running: Running


@dataclass(eq=False, repr=False)
class Share:
    """Queries that differ in some of their constants, and their pipeline when they have it."""

    core: Core
    classes: dict[Constants, Class] = field(default_factory=dict)
    next: int = 0
    """The number of the next class."""
    made: Made | None = None
    _by_word: dict[int, Class] = field(default_factory=dict)
    """The classes by the words of their numbers, which are the same in every dictionary."""

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

    def opened(self, number: int, constants: Constants) -> Class:
        """A new class of this number."""
        one = self.classes[constants] = self._by_word[self._word(number)] = Class(number, constants)
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
            self._tell([one], -1)

    # ------------------------------------------------------------ the pipeline

    @property
    def general(self) -> General:
        """The query for all that have a part in it."""
        return self.made.general if self.made is not None else general(self._any, self._varying(), self._widest())

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

    def make(self) -> None:
        """Have the pipeline that those who are here need."""
        self.compile(self._varying(), self._widest(), dict(self.core.streams))
        self.tell()

    def tell(self) -> None:
        """Let a new pipeline know the classes that there are."""
        self._tell(self.classes.values(), 1)

    def compile(self, varying: Collection[int], widest: int, streams: dict[str, int]) -> None:
        """Have the pipeline for queries that differ in these constants; nothing is known to it yet."""
        of_all = general(self._any, varying, widest)
        running = self.core.compiled(of_all.query, "", streams)
        running.share, self.made = self, Made(of_all, widest, running)
        self.fit()

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

    # ------------------------------------------------------------ what is told

    def told(self, running: Running) -> str:
        """What a query shares with whom, in a line."""
        others = [each.name for each in self.members if each is not running]
        columns = ", ".join(map(_in_words, self.general.columns))
        apart = f", told apart by {columns}" if columns else ", all of them alike"
        return f"shared with {named(others)}{apart}"

    def route(self, rows: Words) -> None:
        """Give rows that were sent to the queries that they are for."""
        if not self.general.columns:
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

    def _tell(self, classes: Collection[Class], weight: int) -> None:
        """Put the rows of classes into the table that is joined, if there is one."""
        if self.made is None:
            return
        for table in self.running.pipeline.tables:
            if CLASS in table.stage.columns:
                rows = np.array([self._words(each) for each in classes], np.int64)
                put_rows(self.core.arena, table.stage.queue, rows, np.full(len(rows), weight))

    def keys(self, plan: Plan) -> tuple[tuple[str, ...], list[Constants]]:
        """The columns that a static part has of the joined table, and their values, each once."""
        columns = self.general.columns
        places = [place for place, name in enumerate(columns) if name in variables(plan)]
        keys = (self._key(each) for each in self.classes.values())
        return tuple(columns[place] for place in places), list(
            dict.fromkeys(tuple(key[at] for at in places) for key in keys)
        )

    def _words(self, one: Class) -> list[int]:
        """The row of a class: terms, the width as a plain number, and the number of the class."""
        encode = self.core.terms.encode
        named = zip(self.general.columns, self._key(one), strict=True)
        told = [_nanoseconds(term) if name == WIDTH else encode(term) for name, term in named]
        return [*told, self._word(one.number)]

    def _word(self, number: int) -> int:
        return self.core.terms.encode(Literal(number))

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
