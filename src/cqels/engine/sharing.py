"""Queries that differ in constants alone share a pipeline; what it sends goes to each by its class (`plan.templates`).

Queries share if nothing happened between their registrations: no element, no heartbeat, no change of the dataset.
Each has the results that it would have alone, since the windows of all of them have seen the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from cqels.plan.templates import CLASS, General, constants_of, general, is_own

if TYPE_CHECKING:
    from cqels.engine.core import Core, Running

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
class Share:
    """A pipeline for queries that differ in some of their constants."""

    core: Core
    first: Query
    constants: Constants
    """Those of the first query; the others differ from them in those that vary."""
    general: General
    running: Running
    classes: dict[Constants, Class] = field(default_factory=dict)
    next: int = 0
    """The number of the next class."""
    _by_word: dict[int, Class] = field(default_factory=dict)
    """The classes by the words of their numbers, which are the same in every dictionary."""

    @classmethod
    def of(
        cls, core: Core, query: Query, constants: Constants, varying: Iterable[int], streams: dict[str, int]
    ) -> Share:
        """A pipeline for queries like this one, none of which has a part in it yet."""
        made = general(query, frozenset(varying))
        share = cls(core, query, constants, made, core.compiled(made.query, "", streams))
        share.running.share = share
        return share

    @property
    def members(self) -> Iterator[Running]:
        for each in self.classes.values():
            yield from each.members

    def fits(self, constants: Constants) -> bool:
        """Whether a query with these constants differs from the first in nothing but what varies."""
        return self.differing(constants) == {*self.general.numbers}

    def differing(self, constants: Constants) -> set[int]:
        """The numbers of the constants that vary once these are among them."""
        return {*self.general.numbers, *differing(self.constants, constants)}

    def add(self, running: Running, constants: Constants) -> None:
        """Let a query have its part of what is sent."""
        if constants not in self.classes:
            self._tell(self.opened(self.next, constants), 1)
            self.next += 1
        self.join(running, self.classes[constants])

    def opened(self, number: int, constants: Constants) -> Class:
        """A class of this number, which the pipeline knows or is told of."""
        one = self.classes[constants] = self._by_word[self._word(number)] = Class(number, constants)
        return one

    def hand_over(self, other: Share) -> None:
        """Let all queries have their parts in another one."""
        for each in self.classes.values():
            for member in each.members:
                other.add(member, each.constants)

    def join(self, running: Running, one: Class) -> None:
        """Make a query a member of a class that is there."""
        one.members.append(running)
        running.member = self
        running.pipeline, running.plan, running.functions = self.running.pipeline, self.running.plan, []
        running.answers.columns = tuple(name for name in self.running.pipeline.columns if name != CLASS)

    def leave(self, running: Running) -> None:
        """Let a query go; its class with it, if it was the last one there."""
        constants = constants_of(running.query)
        assert constants is not None
        one = self.classes[constants]
        one.members.remove(running)
        running.member = None
        if not one.members:
            del self.classes[constants], self._by_word[self._word(one.number)]
            self._tell(one, -1)

    def told(self, running: Running) -> str:
        """What a query shares with whom, in a line."""
        others = [each.name for each in self.members if each is not running]
        named = ", ".join(others[:_FEW]) + (f" and {len(others) - _FEW:,} more" if len(others) > _FEW else "")
        columns = ", ".join(name if is_own(name) else f"?{name}" for name in self.general.columns)
        apart = f", told apart by {columns}" if columns else ", all of them alike"
        return f"shared with {named}{apart}"

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

    def _tell(self, one: Class, weight: int) -> None:
        """Put the row of a class into the table that is joined."""
        encode = self.core.terms.encode
        words = [*map(encode, self._key(one)), self._word(one.number)]
        for table in self.running.pipeline.tables:
            if CLASS in table.stage.columns:
                put_rows(self.core.arena, table.stage.queue, np.array([words], np.int64), np.array([weight]))

    def keys(self, plan: Plan) -> tuple[tuple[str, ...], list[Constants]]:
        """The columns that a static part has of the joined table, and their values, each once."""
        columns = self.general.columns
        places = [place for place, name in enumerate(columns) if name in variables(plan)]
        keys = (self._key(each) for each in self.classes.values())
        return tuple(columns[place] for place in places), list(
            dict.fromkeys(tuple(key[at] for at in places) for key in keys)
        )

    def _word(self, number: int) -> int:
        return self.core.terms.encode(Literal(number))

    def _key(self, one: Class) -> Constants:
        return tuple(one.constants[number] for number in self.general.numbers)


def differing(one: Constants, other: Constants) -> set[int]:
    """The numbers of the constants that are not the same."""
    return {number for number, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]}
