"""Which query runs on which engine instance, and which group of rows is which instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice

from pyoxigraph import NamedNode

from cqels.engine.core import sources_of
from cqels.plan.algebra import Query

_WORD = (1 << 32) - 1


def placed(queries: Sequence[Query], instances: int, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """The instance of each query, by rotation; queries that read what others make are where those are.

    A query that is placed already stays where it is.
    """
    where = dict(before or {})
    turn = len(where)
    for group in _linked(queries):
        names = [query.name or "" for query in group]
        known = [where[name] for name in names if name in where]
        instance = known[0] if known else turn % instances
        turn += not known
        for name in names:
            where.setdefault(name, instance)
    return where


def _linked(queries: Sequence[Query]) -> list[list[Query]]:
    """The queries in groups: those of a group read what others of it make, and nothing that is made elsewhere."""
    made = {query.name for query in queries if query.form == "construct" and query.name and ":" in query.name}
    touching = [(query, _reads(query, made) | ({query.name or ""} & made)) for query in queries]
    together: dict[str | None, frozenset[str]] = {name: frozenset([name]) for name in made}
    for _, names in touching:
        whole = frozenset[str]().union(*(together[name] for name in names))
        together.update(dict.fromkeys(whole, whole))
    groups: dict[object, list[Query]] = {}
    for place, (query, names) in enumerate(touching):
        groups.setdefault(together[min(names)] if names else place, []).append(query)
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
    """Numbers for the groups of rows, one for each instance, that Spark spreads evenly over its partitions."""
    return list(islice(_spread(partitions), instances))


def _spread(partitions: int) -> Iterator[int]:
    loads = [0] * partitions
    for key in count():
        partition = _hash(key) % partitions
        if loads[partition] == min(loads):
            loads[partition] += 1
            yield key


def _hash(key: int) -> int:
    """Spark's hash of an integer (Murmur3 of one word with the seed 42), by which it chooses a partition."""
    word = _turned(key * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    mixed = (_turned(42 ^ word, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _turned(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _WORD
