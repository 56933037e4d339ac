"""Queries of different shapes that have joins of streams in common: each join is a pipeline that feeds theirs.

As with those that share a whole pipeline, they have been registered with nothing happening between, and what they have
in common is known when something happens (`plan.sharing.common_joins`).  They read the same streams under the same
slides, so that all have the same ticks.  A pipeline that feeds others works a block of elements off before
them, and logs what changed at each tick (`kernels.operators.shared_input`); the others go through the same block and
find it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pyoxigraph import NamedNode

from cqels.engine.sharing.shared_pipelines import named
from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import COUNT, clear
from cqels.kernels.operators.shared_input import AHEAD, LOG, ROW
from cqels.lang.expressions import walk
from cqels.lang.syntax import Range
from cqels.plan.algebra import Plan, Project, Stream, expressions_of, walk_plan
from cqels.plan.optimizer.rules import rewrite
from cqels.plan.sharing.common_joins import Site, columns_of, part_of, reused, sites_of, with_parts
from cqels.plan.sharing.query_templates import MOST_NODES

if TYPE_CHECKING:
    from cqels.engine.registry import Registry
    from cqels.engine.running_query import Running

_Kind: TypeAlias = tuple[frozenset[int], tuple[int, ...], str]
"""The streams that a query reads, its slides and its policy: on these it depends when there is a tick."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a pipeline is made that feeds others or is fed by them."""

    plan: Plan
    fresh: bool
    logs: Mapping[int, int]
    """The parts that others compute, by their numbers, and the queues of their logs."""
    slides: tuple[int, ...]
    logged: bool = False
    """It feeds others."""


@dataclass(eq=False, repr=False)
class SharedJoins:
    """The pipelines that compute shared joins, and feed those of queries with them."""

    registry: Registry
    feeders: dict[int, Running] = field(default_factory=dict)
    """By the numbers of their parts; a part comes after those that it is made of."""
    next: int = 0
    """The number of the next part."""

    def settle(self, units: Iterable[Running]) -> list[tuple[list[Running], Callable[[], None]]]:
        """What is to be compiled so that these have joins in common where they can, and the queries that it is for."""
        made = {NamedNode(each) for each in self.registry.state.producers}
        kinds: dict[_Kind, dict[Running, list[Site]]] = {}
        rest: dict[Running, None] = {}
        for unit in units:
            rest[unit] = None
            if _is_eligible(unit, made):
                sites = sites_of(unit.plan, fresh=unit.fresh)
                if sites:
                    kind = unit.streams, _slides(unit.plan), unit.query.policy
                    kinds.setdefault(kind, {})[unit] = sites
        tasks: list[tuple[list[Running], Callable[[], None]]] = []
        for alike in kinds.values():
            found = reused([*alike.values()], self.next)
            fed = {unit: tuple(own) for unit, own in zip(alike, found, strict=True) if own}
            for unit, own in fed.items():
                unit.uses = own
                del rest[unit]
            plans = {unit: unit.plan for unit in fed}
            for part in sorted({each.part for own in fed.values() for each in own}):
                tasks.append((_users(part, plans), partial(self._feed, part, plans, dict(self.registry.state.streams))))
                self.next = part + 1
            tasks += [([unit], partial(self._make, unit, plan)) for unit, plan in plans.items()]
        return [*tasks, *(([unit], partial(self.registry.make, unit)) for unit in rest)]

    def restore(self, parts: list[tuple[int, dict[str, int]]]) -> None:
        """Have pipelines for these parts, made when there were these streams, and for all that use them."""
        self.feeders.clear()
        plans = {each: rewrite(each.query).plan for each in self.registry.units if each.uses}
        for part, streams in parts:
            self._feed(part, plans, streams)
        for unit, plan in plans.items():
            self.registry.compile(unit, self._fit(unit, plan))
            if unit.share is not None:
                unit.share.fit()

    def _make(self, unit: Running, plan: Plan) -> None:
        self.registry.make(unit, self._fit(unit, plan))

    def _fit(self, unit: Running, plan: Plan) -> Fit:
        """How a query is fed, whose plan this is without any parts."""
        return Fit(with_parts(plan, unit.uses), unit.fresh, self._logs(), _slides(plan))

    def _feed(self, part: int, plans: Mapping[Running, Plan], streams: dict[str, int]) -> None:
        """Have a pipeline for a part that occurs in some of these plans."""
        users = _users(part, plans)
        unit, plan = users[0], plans[users[0]]
        one = next(each for each in unit.uses if each.part == part)
        site = sites_of(plan, fresh=unit.fresh)[one.site]
        columns = columns_of(site, one.patterns)
        own = Project(part_of(plan, unit.uses, part), columns)
        query = replace(unit.query, form="select", emit="changes", plan=own, variables=columns, template=(), name=None)
        made = self.registry.planned(query, "", streams)
        made.streams, made.graphs = unit.streams, frozenset().union(*(each.graphs for each in users))
        self.registry.make(made, Fit(own, site.fresh, self._logs(), _slides(plan), logged=True))
        self.feeders[part] = made

    def let_go(self) -> None:
        """Forget the pipelines that feed nobody any more."""
        used = {each.part for unit in self.registry.units for each in unit.uses}
        for part in [each for each in self.feeders if each not in used]:
            self.registry.state.free_pipeline(self.feeders.pop(part))

    def _logs(self) -> dict[int, int]:
        return {part: self._log(each) for part, each in self.feeders.items()}

    def _log(self, feeder: Running) -> int:
        """The queue of its log."""
        return int(self.registry.state.arena.words[feeder.pipeline.offset + scheduler.RESULTS])

    # ------------------------------------------------------------ blocks

    def align(self, pipelines: Iterable[Running]) -> None:
        """Ticks are to come: let each that is fed know how its count of them differs from that of who feeds it.

        What is fed by none of them counts the ticks of its log as its own.
        """
        words = self.registry.state.arena.words
        ticks: dict[int, int] = {}
        for each in pipelines:  # who feeds comes before who is fed
            if each.compiled is None:
                continue
            count = int(words[each.pipeline.offset + scheduler.TICKS])
            if not each.pipeline.sends:
                ticks[self._log(each)] = count
            for feed in each.pipeline.shared_inputs:
                words[feed + AHEAD] = count - ticks.get(int(words[feed + LOG]), count)

    def clear(self, pipelines: Iterable[Running]) -> None:
        """Ticks are over: empty the logs of which all has been taken. Who reads a log is among these, or none is."""
        words = self.registry.state.arena.words
        readers: dict[int, list[int]] = {}
        for each in pipelines:
            for feed in [] if each.compiled is None else each.compiled.shared_inputs:
                log = int(words[feed + LOG])
                if words[log + COUNT]:
                    readers.setdefault(log, []).append(feed)
        for log, feeds in readers.items():
            if all(words[feed + ROW] == words[log + COUNT] for feed in feeds):
                clear(self.registry.state.arena.base, log)
                for feed in feeds:
                    words[feed + ROW] = 0

    # ------------------------------------------------------------ EXPLAIN

    def describe(self, unit: Running) -> str:
        """What a query has in common with whom, in a line."""
        parts = {each.part for each in unit.uses}
        others = [
            each.name
            for other in self.registry.units
            if other is not unit and parts & {one.part for one in other.uses}
            for each in ([other] if other.share is None else other.share.members)
        ]
        return f"joins of streams shared with {named(others)}" if others else ""


def _users(part: int, units: Iterable[Running]) -> list[Running]:
    """Those that a part is computed for."""
    return [each for each in units if any(one.part == part for one in each.uses)]


def _is_eligible(unit: Running, made: set[NamedNode]) -> bool:
    """Others may have its joins of streams: it sends changes, and nothing of it is computed anew by Python."""
    query = unit.query
    whole = query.emit == "rstream" or (query.emit == "snapshot" and query.form != "ask")
    if whole or query.policy == "cqels-1" or unit.is_recomputed or unit.guard is not None or unit.stopped is not None:
        return False
    size = 0
    for node in walk_plan(unit.plan):
        size += 1 + sum(1 for expression in expressions_of(node) for _ in walk(expression))
        if size > MOST_NODES:
            return False
        if isinstance(node, Stream) and any(
            not isinstance(each.stream, NamedNode) or each.stream in made for each in node.sources
        ):
            return False
    return True


def _slides(plan: Plan) -> tuple[int, ...]:
    """The slides of the windows of a plan."""
    windows = (source.window for node in walk_plan(plan) if isinstance(node, Stream) for source in node.sources)
    return tuple(sorted({each.slide for each in windows if isinstance(each, Range) and each.slide is not None}))
