"""Migration of queries between engine instances, by the driver while the pipeline is paused.

The state of an instance is read from Spark's state store and restricted to the queries that are migrated; a new
instance begins with that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cqels.model.errors import CqelsError
from cqels.pipeline.instance.engine_instance import Instance
from cqels.pipeline.instance.instance_commands import Arrival
from cqels.pipeline.instance.program import Origin, Program
from cqels.plan.algebra import Query
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.placement import Load, another_key, linked, partition
from cqels.spark.operator.state_layouts import (
    FIVE_VARIABLES,
    Head,
    Stored,
    checked_commands,
    checked_log,
    checked_snapshot,
    stored_entries,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Migration:
    """Makes instances that begin with state of those of the manifest `before`, and adds them to the manifest `now`."""

    spark: SparkSession
    checkpoint: Checkpoint
    before: Manifest
    now: Manifest
    program: Callable[[int], Program]
    """Of an instance, with all queries that it had."""
    partitions: int

    def migrate(self, queries: Sequence[Query], wanted: Mapping[str, int | None], loads: Mapping[int, Load]) -> None:
        """Migrate queries: to the partition of another instance, or to the one with the least load."""
        groups = {query.name or "": group for group in linked(queries) for query in group}
        together: dict[tuple[int, int], list[str]] = {}
        for name, target in wanted.items():
            if name not in self.now.placed:
                raise CqelsError(f"query {name} does not run", hint=f"those that do are {', '.join(self.now.placed)}")
            if target is not None and not 0 <= target < self.before.instances:
                raise CqelsError(f"there is no instance {target}", hint=f"there are 0 to {self.before.instances - 1}")
            source = self.now.placed[name]
            where = self._least_loaded(source, loads) if target is None else self._partition(target)
            together.setdefault((source, where), []).extend(query.name or "" for query in groups[name])
        for (source, where), names in together.items():
            self.now.placed.update(dict.fromkeys(names, self._add(where, source, names)))

    def open(self) -> int:
        """Add an instance for new queries, in the partition with fewest; it begins with the watermark of another."""
        new = range(self.before.instances, self.now.instances)
        there = [self._partition(each) for each in {*self.now.placed.values(), *new}]
        where = min(range(self.partitions), key=there.count)
        return self._add(where, min(self.before.placed.values()), ())

    def _least_loaded(self, source: int, loads: Mapping[int, Load]) -> int:
        """The partition that takes least time, other than that of an instance unless there is no other."""
        spent = dict.fromkeys(range(self.partitions), 0.0)
        for each in {*self.now.placed.values()}:
            spent[self._partition(each)] += loads.get(each, Load()).seconds
        own = self._partition(source)
        return min(spent, key=lambda each: (each == own, spent[each]))

    def _partition(self, instance: int) -> int:
        return partition(self.now.keys[instance], self.partitions)

    def _add(self, where: int, source: int, names: Collection[str]) -> int:
        """One more instance, with some queries of another: its number."""
        number = self.now.instances
        origin = self._origin(source, names)
        if origin is not None:
            self.now.origins[str(number)] = self.checkpoint.keep(origin.written())
        self.now.keys.append(another_key(self.now.keys, where, self.partitions))
        self.now.instances += 1
        return number

    def _origin(self, source: int, names: Collection[str]) -> Origin | None:
        """The state of some queries of an instance; None if nothing has arrived yet."""
        known = self.before.origins.get(str(source))
        begun = None if known is None else (self.checkpoint.folder / known).read_bytes()
        key = self.before.keys[source]
        layout = self.before.layout
        return origin_of(self.program(source), lambda variable: self._read(variable, key), names, begun, layout)

    def _read(self, variable: str, key: int) -> list[Any]:
        """A variable of the state of an instance: its value or its entries; nothing before the first micro-batch."""
        if not self.checkpoint.is_begun:
            return []
        rows = self.spark.read.format("statestore").option("stateVarName", variable).load(self.checkpoint.spark)
        column = "value" if "value" in rows.columns else "list_element"
        return [row[0] for row in rows.where(rows["key"]["key"] == key).select(column).collect()]


def origin_of(
    program: Program,
    read: Callable[[str], list[Any]],
    names: Collection[str],
    begun: bytes | None = None,
    layout: int = FIVE_VARIABLES,
) -> Origin | None:
    """The state of some queries of an instance, from the variables of its state; None if there is none.

    If there is none yet, the instance may have an origin to begin with, `begun`.
    """
    head = read("head")
    if head:
        known = Head.read(head[0][0])
        stored = _stored(read, known) if layout == FIVE_VARIABLES else stored_entries(read("entries"), known)
        commands = stored.commands[: known.saved_commands]
        return _restricted(Instance.rebuild(program, commands, stored.saved, stored.log), names)
    if begun is None:
        return None
    origin = Origin.read(begun)
    return _restricted(Instance.rebuild(program, origin.commands, origin.saved), names)


def _stored(read: Callable[[str], list[Any]], head: Head) -> Stored:
    """What the variables of the first layout have."""
    saved = b"".join(bytes(chunk) for (chunk,) in read("snapshot"))
    commands, log = checked_commands(read("commands"), head), checked_log(read("log"), head)
    return Stored(commands, checked_snapshot(saved, head), log)


def _restricted(instance: Instance, names: Collection[str]) -> Origin:
    """The origin of an instance that has only some queries of another."""
    others = [name for name in reversed(instance.prints) if name not in names]
    instance.advance([Arrival(command=json.dumps({"drop": name})) for name in others])
    return Origin(tuple(instance.compact()), dict(instance.prints), instance.saved())
