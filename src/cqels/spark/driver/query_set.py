"""The queries of an application: what is checked before one is taken, its partitions, and what endpoints answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

from pyoxigraph import NamedNode

from cqels.engine.budgets import Budget
from cqels.engine.engine import Engine
from cqels.ingest import StreamSettings
from cqels.model.errors import CqelsError, QueryError, Source
from cqels.plan.algebra import Query, Service, sources_of, walk_plan
from cqels.plan.partitioning import NotPartitionable, PartitionedQuery, partition_query
from cqels.plan.plan_json import fingerprint
from cqels.spark.driver.declared_sources import DeclaredSources
from cqels.store.dataset import Store
from cqels.store.service_answers import Asked, without_secrets


@dataclass(frozen=True, slots=True)
class _Partitioned:
    """How a query is partitioned, and into how many parts, which is known when it runs."""

    how: PartitionedQuery
    count: int | None = None


class QuerySet:
    """Queries by their names, without the passwords of their endpoints."""

    def __init__(self, sources: DeclaredSources, store: Store, part_count: Callable[[], int]) -> None:
        """`part_count` says how many parts a partitioned query has, unless a checkpoint does."""
        self.by_name: dict[str, Query] = {}
        self.budgets: dict[str, Budget] = {}
        self.services = Asked()
        self._sources, self._store, self._part_count = sources, store, part_count
        self._asking: dict[str, Query] = {}
        """The queries with the passwords of their endpoints."""
        self._partitioned: dict[str, _Partitioned] = {}

    # ------------------------------------------------------------ adding and dropping

    def add(self, planned: Query, source: Source | None, budget: Budget | None, *, spread: bool | None) -> Query:
        """Add a query that engines can run, and that has a name of its own."""
        free = (name for number in count(1) if (name := f"query-{number}") not in self.by_name)
        named = planned if planned.name else replace(planned, name=next(free))
        assert named.name is not None
        if named.name in self.by_name:
            raise CqelsError(f"there is a query {named.name} already", hint="register it under another name")
        safe = without_secrets(named)
        by = None if spread is False else self._partitioning(safe, budget, must=bool(spread))
        try:
            self._check(named)
        except QueryError as error:
            error.query = planned
            if source is not None:
                error.locate(source)
            raise
        self.by_name[named.name], self._asking[named.name] = safe, named
        if by is not None:
            self._partitioned[named.name] = by
        if budget is not None:
            self.budgets[named.name] = budget
        return safe

    def _partitioning(self, query: Query, budget: Budget | None, *, must: bool) -> _Partitioned | None:
        """How to partition a query, if that can be."""
        try:
            if budget is not None:
                raise NotPartitionable("it has a budget")
            made = self._constructed
            if any(isinstance(each.stream, NamedNode) and each.stream.value in made for each in sources_of(query)):
                raise NotPartitionable("it reads what another query makes")
            how = partition_query(query)
            if how.global_stage is not None and any(
                isinstance(node, Service) for node in walk_plan(how.global_stage.plan)
            ):
                raise NotPartitionable("what is computed of the results of its parts asks a SERVICE")
            return _Partitioned(how)
        except NotPartitionable as error:
            if not must:
                return None
            raise CqelsError(f"query {query.name} cannot be spread: {error}", hint="run it as a whole") from None

    @property
    def _constructed(self) -> list[str]:
        """The streams that queries make."""
        return [name for name, each in self.by_name.items() if each.form == "construct"]

    def drop(self, name: str) -> list[str]:
        """Drop a query. The names of its parts."""
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise CqelsError(f"there is no query {name}", hint=f"the queries are {known}")
        self._checking.drop(name)
        parts = [part for part, whole in self.parts.items() if whole == name]
        del self.by_name[name], self._asking[name]
        self.budgets.pop(name, None)
        self._partitioned.pop(name, None)
        return parts

    @contextmanager
    def undoing(self) -> Iterator[None]:
        """Where something goes wrong, have the queries that there were."""
        before = dict(self.by_name), dict(self._asking), dict(self.budgets), dict(self._partitioned)
        try:
            yield
        except BaseException:
            self.by_name, self._asking, self.budgets, self._partitioned = before
            self._checking.close()
            self._checking = self._made_checking()
            raise

    # ------------------------------------------------------------ checking

    def _check(self, query: Query) -> None:
        self._store.check_graphs(query)
        known = [*self._sources.known, *self._constructed]
        for each in sources_of(query):
            if isinstance(each.stream, NamedNode) and each.stream.value not in known:
                streams = ", ".join(f"<{iri}>" for iri in known)
                raise QueryError(
                    f"stream {each.stream} is not declared",
                    span=each.span,
                    hint=f"the streams are {streams}" if known else "app.stream(iri, rows, lift=…), or app.files(…)",
                )
        self._checking.register(query, declare=False, check_graphs=False)

    def declare(self, settings: StreamSettings) -> None:
        """Let queries read a stream that is new."""
        if "_checking" in vars(self):
            self._checking.internals.declare(settings)

    def explain(self, name: str, format: str) -> str:
        """The plan of a query, without what it has done: that is known where it runs."""
        return self._checking.query(name).explain(format)

    @cached_property
    def _checking(self) -> Engine:
        """An engine that refuses what engines cannot run, and has the endpoints of the others asked again."""
        return self._made_checking()

    def _made_checking(self) -> Engine:
        self.services.permissions = self._store.services.permissions
        engine = Engine(store=Store(services=self.services))
        for settings in self._sources.known.values():
            engine.internals.declare(settings)
        for query in self._asking.values():
            engine.register(query, declare=False, check_graphs=False)
        return engine

    # ------------------------------------------------------------ what runs

    @property
    def running(self) -> dict[str, Query]:
        """What engines run: queries, or their parts, by their names."""
        return {each.name or "": each for name in self.by_name for each in self._parts_of(name)}

    @property
    def parts(self) -> dict[str, str]:
        """What engines run: its name, and that of the query that it is or is a part of."""
        return {each.name or "": name for name in self.by_name for each in self._parts_of(name)}

    @property
    def global_stages(self) -> dict[str, Query]:
        """What is computed of the changes of all parts, by the names of the partitioned queries."""
        return {name: by.how.global_stage for name, by in self._partitioned.items() if by.how.global_stage is not None}

    def _parts_of(self, name: str) -> tuple[Query, ...]:
        query, by = self.by_name[name], self._partitioned.get(name)
        if by is None:
            return (query,)
        if by.count is None:
            by = self._partitioned[name] = replace(by, count=self._part_count())
        return by.how.partitions(by.count or 1)

    def set_part_counts(self, counts: dict[str, int]) -> None:
        """Have as many parts as a checkpoint has state of."""
        for name, parts in counts.items():
            if name in self._partitioned:
                self._partitioned[name] = replace(self._partitioned[name], count=parts)

    def for_manifest(self) -> dict[str, Any]:
        """The queries as a checkpoint knows them: the fields of its manifest."""
        return {
            "queries": {name: fingerprint(query) for name, query in self.running.items()},
            "spread": {name: len(self._parts_of(name)) for name in self._partitioned},
            "texts": {name: asdict(query.text) for name, query in self.by_name.items() if query.text is not None},
            "rests": {name: fingerprint(query) for name, query in self.global_stages.items()},
            "budgets": {name: {"memory": each.memory, "time": each.time} for name, each in self.budgets.items()},
        }
