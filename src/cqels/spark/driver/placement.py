"""Placement: which query runs on which engine instance, and the key by which the shuffle sends rows to an instance."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, islice

from pyoxigraph import NamedNode

from cqels.model.errors import CqelsError
from cqels.plan.algebra import Query, sources_of
from cqels.plan.plan_json import fingerprint
from cqels.plan.sharing.query_templates import constants_of, general

BUFFERS, LATENCY, ROTATION = STRATEGIES = ("buffers", "latency", "rotation")
"""The instance with the smallest buffers, the one that takes least time, or one after the other."""
_WORD = (1 << 32) - 1


def checked(strategy: str) -> str:
    """A strategy that there is."""
    if strategy not in STRATEGIES:
        raise CqelsError(f"there is no placement '{strategy}'", hint=f"there are {', '.join(STRATEGIES)}")
    return strategy


@dataclass(frozen=True, slots=True)
class Load:
    """What an instance had to do lately: the bytes that it holds, and the seconds that a micro-batch takes it."""

    bytes: int = 0
    seconds: float = 0.0


def placed(
    queries: Sequence[Query],
    instances: int,
    before: Mapping[str, int] | None = None,
    *,
    strategy: str = ROTATION,
    loads: Mapping[int, Load] | None = None,
    closed: Collection[int] = (),
) -> dict[str, int]:
    """The instance of each query; queries that read what others make are where those are.

    A query that is placed already stays where it is.  None of the others goes to a `closed` instance.
    """
    where = dict(before or {})
    open = [number for number in range(instances) if number not in closed]
    scheduler = _Scheduler(strategy, open, loads or {}, turn=len(where))
    groups = linked(queries)
    if strategy != ROTATION:
        for query in queries:
            if query.name in where:
                scheduler.note(query, where[query.name])
    for group in groups:
        names = [query.name or "" for query in group]
        known = {name: where[name] for name in names if name in where}
        if len({*known.values()}) > 1:
            raise CqelsError(
                f"{', '.join(known)} run on different engine instances, and a query reads what they make",
                hint="begin with all of them",
            )
        instance = min(known.values()) if known else scheduler.choice(group)
        for query, name in zip(group, names, strict=True):
            if name not in where:
                where[name] = instance
                scheduler.add(query, instance)
    return where


@dataclass
class _Scheduler:
    """Chooses instances for queries, one after the other.

    What an instance will have to do is what it did lately, and for each pipeline that has come since the average of all
    pipelines.  A query goes where it can share a pipeline (`plan.sharing.query_templates`); else to the instance with
    least to do, and among such that differ by less than half a pipeline to one that has its streams already.
    """

    strategy: str
    open: Sequence[int]
    loads: Mapping[int, Load]
    turn: int = 0
    streams: dict[int, set[str]] = field(default_factory=dict)
    kinds: dict[int, set[str]] = field(default_factory=dict)
    new: dict[int, int] = field(default_factory=dict)
    """Pipelines that came since the loads were measured."""

    def note(self, query: Query, instance: int) -> None:
        """A query is there already."""
        self.streams.setdefault(instance, set()).update(_streams(query))
        self.kinds.setdefault(instance, set()).add(_kind(query))

    def add(self, query: Query, instance: int) -> None:
        if self.strategy == ROTATION:
            return
        if _kind(query) not in self.kinds.get(instance, ()):
            self.new[instance] = self.new.get(instance, 0) + 1
        self.note(query, instance)

    def choice(self, group: Sequence[Query]) -> int:
        self.turn += 1
        if self.strategy == ROTATION:
            return self.open[(self.turn - 1) % len(self.open)]
        scores = self._scores()
        kinds = set(map(_kind, group))
        if sharing := [each for each in self.open if kinds <= self.kinds.get(each, set())]:
            return min(sharing, key=scores.__getitem__)
        streams = set().union(*map(_streams, group))
        least = min(scores.values())
        near = [each for each in self.open if scores[each] < least + 0.5]
        return min(near, key=lambda each: (not streams <= self.streams.get(each, set()), scores[each]))

    def _scores(self) -> dict[int, float]:
        """What each instance has to do, in pipelines."""
        measured = {each: self._measured(each) for each in self.open}
        known = sum(len(self.kinds.get(each, ())) - self.new.get(each, 0) for each in self.open)
        unit = sum(measured.values()) / known if known else 0.0
        return {each: (measured[each] / unit if unit else 0.0) + self.new.get(each, 0) for each in self.open}

    def _measured(self, instance: int) -> float:
        load = self.loads.get(instance, Load())
        return load.bytes if self.strategy == BUFFERS else load.seconds


@lru_cache(maxsize=1 << 14)
def _kind(query: Query) -> str:
    """The same for queries that can share a pipeline."""
    constants = constants_of(query)
    return fingerprint(query if constants is None else general(query, range(len(constants))).query)


def _streams(query: Query) -> set[str]:
    return {source.stream.value for source in sources_of(query) if isinstance(source.stream, NamedNode)}


def linked(queries: Sequence[Query]) -> list[list[Query]]:
    """The queries in groups: those of a group read what others of it make, and nothing that is made elsewhere."""
    made = {query.name for query in queries if query.form == "construct" and query.name and ":" in query.name}
    touching = [(query, _reads(query, made) | ({query.name or ""} & made)) for query in queries]
    together: dict[str | None, frozenset[str]] = {name: frozenset([name]) for name in made}
    for _, names in touching:
        whole = frozenset[str]().union(*(together[name] for name in names))
        together.update(dict.fromkeys(whole, whole))
    groups: dict[object, list[Query]] = {}
    for number, (query, names) in enumerate(touching):
        groups.setdefault(together[min(names)] if names else number, []).append(query)
    return list(groups.values())


def _reads(query: Query, made: set[str]) -> set[str]:
    """Which of the streams that are made a query reads; a variable ranges over all streams."""
    if not made:
        return set()
    streams = [source.stream for source in sources_of(query)]
    if any(not isinstance(each, NamedNode) for each in streams):
        return made
    return {each.value for each in streams if isinstance(each, NamedNode)} & made


def keys(instances: int, partitions: int) -> list[int]:
    """Numbers for the groups of rows, one for each instance, that Spark distributes evenly over its partitions."""
    return list(islice(_balanced_keys(partitions), instances))


def another_key(keys: Collection[int], where: int, partitions: int) -> int:
    """A number that is none of these, for rows that Spark puts into a partition."""
    return next(key for key in count() if key not in keys and partition(key, partitions) == where)


def partition(key: int, partitions: int) -> int:
    """Where Spark puts the rows of a group."""
    return _hash(key) % partitions


def _balanced_keys(partitions: int) -> Iterator[int]:
    loads = [0] * partitions
    for key in count():
        there = partition(key, partitions)
        if loads[there] == min(loads):
            loads[there] += 1
            yield key


def _hash(key: int) -> int:
    """Spark's hash of an integer (Murmur3 of one word with the seed 42), by which it chooses a partition."""
    word = _rotated_left(key * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    mixed = (_rotated_left(42 ^ word, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated_left(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _WORD
