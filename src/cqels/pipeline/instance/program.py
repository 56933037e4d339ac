"""What the driver gives an engine instance to run: its queries, streams, dataset, and the state that it begins with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

import pyoxigraph
from pyoxigraph import DefaultGraph, NamedNode, Quad, RdfFormat, parse, serialize

from cqels.engine.budgets import Budget
from cqels.ingest import StreamSettings
from cqels.model.checksummed import seal, unseal
from cqels.plan.algebra import Query
from cqels.plan.plan_json import fingerprint, read, write
from cqels.store.dataset import Store
from cqels.store.service_answers import Answers, read_answers

VERSION = 1
"""Of a written `Origin`."""
_ORIGIN = "OR"
"""The kind of a written `Origin` under its seal."""
_ANEW = "begin with a new checkpoint"


@dataclass(frozen=True, slots=True)
class ShippedBytes:
    """Bytes for an engine instance, which may be on another machine: those in memory travel with each task.

    `cqels.spark.operator.fetched_bytes` has those that each machine fetches once.
    """

    content: bytes = b""

    def read(self) -> bytes:
        return self.content


@dataclass(frozen=True, slots=True)
class Dataset:
    """Static data for the engines: N-Quads, and the names of all named graphs."""

    quads: ShippedBytes = ShippedBytes()
    graphs: tuple[str, ...] = ()

    @staticmethod
    def of(store: Store) -> Dataset:
        """The dataset of a store."""
        named = store.named_graphs()
        quads = [
            Quad(*triple, DefaultGraph() if graph is None else graph)
            for graph in (None, *named)
            for triple in store.triples(graph)
        ]
        text = serialize(quads, format=RdfFormat.N_QUADS) or b""
        return Dataset(ShippedBytes(text), tuple(name.value for name in named))

    @property
    def digest(self) -> str:
        """The same for the same data, whatever its blank nodes are called."""
        quads = self.quads.read()
        if self.has_blank_nodes:
            canonical = pyoxigraph.Dataset(parse(quads, RdfFormat.N_QUADS))
            canonical.canonicalize(pyoxigraph.CanonicalizationAlgorithm.RDFC_1_0)
            quads = serialize(canonical, format=RdfFormat.N_QUADS) or b""
        names = [name.encode() for name in self.graphs]
        return sha256(b"\n".join([*sorted(quads.splitlines()), *names])).hexdigest()

    @property
    def has_blank_nodes(self) -> bool:
        return b"_:" in self.quads.read()

    def store(self) -> Store:
        store = Store()
        for name in self.graphs:  # an empty one too
            store.create_graph(NamedNode(name))
        store.add(parse(self.quads.read(), RdfFormat.N_QUADS))
        return store


@dataclass(frozen=True, slots=True)
class Program:
    """What an instance runs: queries in the order of registration, over streams in the order of their numbers.

    A task of Spark gets it with every micro-batch, and needs most of it only when something is new: so the queries are
    bytes.  A stream has one source or several, merged by time.  `bounded` are the sources that end: they are waited
    for, and when all have ended time goes on until `until`.
    """

    name: str
    digest: str
    """The same for the same queries."""
    queries: ShippedBytes
    streams: tuple[StreamSettings, ...]
    sources: tuple[int, ...] = ()
    """The stream of each source; each stream has one if nothing is said."""
    bounded: frozenset[int] = frozenset()
    firsts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of bounded sources of several files: the times of the files' first elements."""
    dataset: Dataset = field(default_factory=Dataset)
    start: int = 0
    until: int | None = None
    origin: ShippedBytes | None = None
    """An `Origin` to begin with."""
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    """Of the queries that have one, by their names."""
    parts: frozenset[str] = frozenset()
    """The queries that are parts of a partitioned query."""
    services: ShippedBytes | None = None
    """What endpoints answered first, which engines do not ask themselves; what they answer later comes by commands."""

    @staticmethod
    def of(
        name: str,
        queries: Sequence[Query],
        streams: Iterable[StreamSettings],
        *,
        again: Mapping[str, int] | None = None,
        prints: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Program:
        """The program of some queries, all of which have names; some may come `again`, for so many times.

        `prints` are the fingerprints by which a checkpoint knows some.
        """
        known = {query.name or "": (prints or {}).get(query.name or "") or fingerprint(query) for query in queries}
        known = {name: f"{print}-{again[name]}" if again and name in again else print for name, print in known.items()}
        digest = sha256(json.dumps([*known.items()]).encode()).hexdigest()
        plans = {query.name: [known[query.name or ""], write(query)] for query in queries}
        return Program(name, digest, ShippedBytes(json.dumps(plans).encode()), tuple(streams), **options)

    @property
    def answers(self) -> Answers:
        """What endpoints answered first."""
        return {} if self.services is None else _answers(self.services)

    def read(self) -> dict[str, tuple[str, Query]]:
        """The queries by their names, each with its fingerprint."""
        return {name: (print, read(query)) for name, (print, query) in json.loads(self.queries.read()).items()}


@dataclass(frozen=True, slots=True)
class Origin:
    """The state that an instance begins with if queries were migrated to it: commands and a snapshot."""

    commands: tuple[str, ...]
    prints: dict[str, str]
    saved: bytes

    def written(self) -> bytes:
        """For a file: the names of this class and its fields are not in it."""
        known = json.dumps({"version": VERSION, "commands": self.commands, "prints": self.prints})
        return seal(_ORIGIN, [known.encode(), self.saved])

    @staticmethod
    def read(data: bytes) -> Origin:
        known, saved = unseal(_ORIGIN, data, "what an engine begins with", hint=_ANEW)
        content = json.loads(bytes(known))
        return Origin(tuple(content["commands"]), content["prints"], bytes(saved))


@lru_cache(maxsize=8)
def _answers(services: ShippedBytes) -> Answers:
    return read_answers(services.read())
