"""The manifest of a checkpoint: what it belongs to when a run begins, and when its queries change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cqels.model.errors import CqelsError
from cqels.options import AppOptions
from cqels.plan.algebra import Query, QueryText
from cqels.plan.prepare import is_same
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.declared_sources import DeclaredSources
from cqels.spark.driver.placement import Load, keys, placed
from cqels.spark.driver.query_set import QuerySet
from cqels.spark.operator.state_layouts import TWO_VARIABLES

if TYPE_CHECKING:
    from cqels.spark.driver.migration import Migration

_LOG = logging.getLogger("cqels")


def check_outputs(
    checkpoint: Checkpoint, queries: Sequence[Query], sources: DeclaredSources, sinks: Sequence[object], choice: str
) -> Manifest | None:
    """The manifest that is there. Where results that were written are gone, do what was chosen; None begins anew."""
    from cqels.spark.sinks import Lasting

    before = checkpoint.read()
    if before is None:
        return None
    lasting = [each for each in sinks if isinstance(each, Lasting)]
    known: dict[str, Any] = {"run": before.id, "opened": before.outputs, "done": checkpoint.done}
    gone = [each for sink in lasting for each in sink.lost(queries, **known)]
    if not gone:
        return before
    told = "; ".join(gone)
    if choice == "stop":
        raise CqelsError(
            told,
            hint="put it back, or choose with --lost (app.run: lost=): continue goes on with what comes from now "
            "on, rebuild reads all once more and writes all anew",
        )
    if choice == "continue":
        _LOG.warning("%s: it goes on with what comes from now on", told)
        return before
    if sources.is_served:
        raise CqelsError(f"{told}, and cannot be rebuilt: what was pushed is not kept", hint="--lost continue")
    if unread := sources.not_files:
        raise CqelsError(
            f"{told}, and cannot be rebuilt: <{unread[0]}> is not read from files",
            hint="begin with a new checkpoint and a source that begins where results should, or lost=continue",
        )
    aside = checkpoint.put_aside(before)
    _LOG.warning("%s: all is read once more; what the checkpoint had is in %s", told, aside)
    for sink in lasting:
        sink.begin_anew()
    return None


def _check_latency(checkpoint: Checkpoint, before: Manifest, now: Manifest) -> None:
    """Refuse to go on with an engine that is elsewhere, whose state is too."""
    if before.latency != now.latency:
        raise CqelsError(
            f"the checkpoint {checkpoint.folder} is of a run with {before.latency} latency, and this one has "
            f"{now.latency}",
            hint=f"go on with latency {before.latency}, or begin with a new checkpoint",
        )


def _check_served(checkpoint: Checkpoint, before: Manifest, now: Manifest) -> None:
    """Refuse to go on where commands have added what this run does not know, or would add what it cannot have."""
    if before.served != now.served:
        whose, this = ("a service", "none") if before.served else ("a run", "a service")
        raise CqelsError(
            f"the checkpoint {checkpoint.folder} is of {whose}, and this is {this}",
            hint="go on as before, or begin with a new checkpoint",
        )


@dataclass(frozen=True)
class ManifestBuilder:
    """Makes manifests of the sources and queries that there are."""

    options: AppOptions
    sources: DeclaredSources
    queries: QuerySet
    partitions: Callable[[], int]
    """Spark's tasks for the engine instances."""

    def begin(self, checkpoint: Checkpoint, before: Manifest | None, data: str) -> Manifest:
        """What the checkpoint belongs to when a run begins; `data` is the digest of the dataset."""
        if before is not None:
            if self.sources.is_served:
                before = self._without_gone(before)
            self.queries.set_part_counts(before.spread)
        groups = self.new_keys(self.instance_count()) if before is None else before.keys
        now = Manifest(
            id=uuid4().hex if before is None else before.id,
            instances=len(groups),
            keys=groups,
            start=self.options.start,
            data=data,
            streams=self.sources.for_manifest(),
            updates=before is None or before.updates,
            latency=self.options.latency,
            clock=self._has_clock(before),
            layout=TWO_VARIABLES if before is None else before.layout,
            partitions=self.fewest_partitions(len(groups)) if before is None else before.partitions,
            served=self.sources.is_served,
            **self.queries.for_manifest(),
        )
        if before is not None:
            _check_latency(checkpoint, before, now)
            _check_served(checkpoint, before, now)
            self.recognize(before, now)
            checkpoint.check(before, now)
            now.ended, now.origins, now.again = before.ended, before.origins, before.again
            now.finished = before.finished and before.queries == now.queries
            now.stopped, now.outputs = before.stopped, before.outputs
            now.queries = before.queries | now.queries
        running = self.queries.running
        now.placed = self.placed([running[name] for name in now.queries], now.instances, before)
        return now

    def _without_gone(self, before: Manifest) -> Manifest:
        """What there was without the queries that are no longer asked for: a service drops them when it is started."""
        gone = {*before.queries} - {*self.queries.running}
        return replace(
            before,
            queries={name: print for name, print in before.queries.items() if name not in gone},
            placed={name: at for name, at in before.placed.items() if name not in gone},
            budgets={name: each for name, each in before.budgets.items() if name not in gone},
            stopped={name: reason for name, reason in before.stopped.items() if name not in gone},
            again=before.again | {name: before.again.get(name, 0) + 1 for name in gone},
        )

    def _has_clock(self, before: Manifest | None) -> bool:
        """Whether time goes on by the wall clock; the sources of a checkpoint stay what they are."""
        wanted = self.sources.is_served or (self.sources.follow_the_clock and self.options.speed is None)
        if before is None:
            return wanted
        if wanted and not before.clock:
            _LOG.warning("the checkpoint was made without a clock: time stands still while nothing arrives")
        return before.clock

    def recognize(self, before: Manifest, now: Manifest) -> None:
        """Know queries whose text is as it was by the fingerprints that they had: another release planned them."""
        parts = self.queries.parts
        for name, text in before.texts.items():
            mine = [part for part, whole in parts.items() if whole == name and part in before.queries]
            changed = any(now.queries[part] != before.queries[part] for part in mine)
            if changed and is_same(QueryText(**text), self.queries.by_name[name]):
                now.queries |= {part: before.queries[part] for part in mine}
                if name in now.rests and name in before.rests:
                    now.rests[name] = before.rests[name]

    def check_change(self, before: Manifest) -> None:
        """Refuse to go on with these queries."""
        if not self.queries.by_name:
            raise CqelsError("no query would be left", hint="stop the run")
        if self.sources.holds_back and not self.options.changing and {*self.queries.running} - {*before.placed}:
            raise CqelsError(
                "elements are held back, with the triples alone that the queries there were can match",
                hint="App(…, changing=True) lets all triples travel, so that queries can be added",
            )

    def change(
        self,
        before: Manifest,
        dropped: Collection[str],
        move: Mapping[str, int | None],
        loads: Mapping[int, Load],
        migration: Callable[[Manifest], Migration],
    ) -> Manifest:
        """What the checkpoint belongs to when it had other queries, while nothing runs.

        `migration` moves queries from what was before into the manifest that it is given.
        """
        running = [*self.queries.running.values()]
        kept = {name: at for name, at in before.placed.items() if name not in dropped}
        again = {name: before.again.get(name, 0) + 1 for name in dropped}
        now = replace(
            before,
            placed=kept,
            keys=[*before.keys],
            origins=dict(before.origins),
            again=before.again | again,
            stopped={name: reason for name, reason in before.stopped.items() if name not in dropped},
            **self.queries.for_manifest(),
        )
        moving = migration(now)
        moving.migrate(running, move, loads)
        there_are = now.instances
        more = max(0, self.instance_count() - (there_are - len(now.closed)))
        places = self.placed(running, there_are + more, now, loads)
        opened = {each: moving.open() for each in sorted({*places.values()}) if each >= there_are}
        now.placed = {name: opened.get(at, at) for name, at in places.items()}
        return now

    # ------------------------------------------------------------ placement

    def placed(
        self,
        queries: Sequence[Query],
        instances: int,
        before: Manifest | None,
        loads: Mapping[int, Load] | None = None,
    ) -> dict[str, int]:
        """The engine instance of each query; those that run already stay where they are."""
        known, closed = ({}, set[int]()) if before is None else (before.placed, before.closed)
        return placed(queries, instances, known, strategy=self.options.placement, loads=loads, closed=closed)

    def instance_count(self) -> int:
        if self.options.is_low_latency:
            return 1
        if self.options.instances is not None:
            return self.options.instances
        running = [*self.queries.running.values()]
        apart = placed(running, 1 + len(running), strategy=self.options.placement)
        return max(1, min(self.partitions(), len(set(apart.values()))))

    def new_keys(self, instances: int) -> list[int]:
        """The keys of the instances of a new checkpoint."""
        return keys(instances, self.fewest_partitions(instances))

    def fewest_partitions(self, instances: int) -> int:
        """Spark's tasks for so many instances: no more, since one without an instance costs as much as any.

        Where queries will be added, there are as many as the session has.
        """
        return self.partitions() if self.options.changing else min(instances, self.partitions())
