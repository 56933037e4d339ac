"""The queries of a live run: checked before they reach its engine, and the endpoints that they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyoxigraph import NamedNode

from cqels.engine.engine import Engine
from cqels.ingest import StreamSettings
from cqels.model.errors import CqelsError, QueryError
from cqels.pipeline.instance.instance_commands import answers_command
from cqels.plan.algebra import Query, Service, Values, sources_of, walk_plan
from cqels.store.dataset import Store
from cqels.store.service import same_solutions
from cqels.store.service_answers import Answers, Asked, without_secrets


class QuerySet:
    """Queries by their names, in an engine without data: it refuses what engines cannot run, and asks endpoints."""

    def __init__(self, streams: Iterable[StreamSettings], store: Store) -> None:
        self._services = Asked()
        self._services.permissions = store.services.permissions
        self._refresh = store.services.refresh
        self._engine = Engine(store=Store(services=self._services))
        for each in streams:
            self._engine.internals.declare(each)
        self.by_name: dict[str, Query] = {}
        self._sent: dict[str, Values] = {}
        """The answers that the engine of the run knows, or is about to."""

    def declare(self, settings: StreamSettings) -> None:
        """Know one more stream."""
        self._engine.internals.declare(settings)

    def add(self, query: Query) -> Query:
        """Check a query that has a name: what the engine of the run is given, without secrets."""
        assert query.name is not None
        if query.name in self.by_name:
            raise CqelsError(f"there is a query {query.name} already", hint="drop it, or give this one another name")
        known = {*self._engine.streams, query.name}
        for each in sources_of(query):
            if isinstance(each.stream, NamedNode) and each.stream.value not in known:
                streams = ", ".join(f"<{iri}>" for iri in self._engine.streams)
                hint = f"the streams are {streams}" if streams else "declare it"
                raise QueryError(f"stream {each.stream} is not declared", span=each.span, hint=hint)
        self._engine.register(query, declare=False, check_graphs=False)
        self.by_name[query.name] = public = without_secrets(query)
        return public

    def drop(self, name: str) -> None:
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise CqelsError(f"there is no query {name}", hint=f"the queries are {known}")
        self._engine.drop(name)
        del self.by_name[name]

    # ------------------------------------------------------------ endpoints

    @property
    def asks(self) -> bool:
        """Some query asks an endpoint."""
        return any(isinstance(node, Service) for query in self.by_name.values() for node in walk_plan(query.plan))

    def know(self, answers: Answers) -> None:
        """The engine of the run knows these answers."""
        self._sent |= answers

    def news(self) -> list[str]:
        """The command with the answers that have other solutions than those the engine knows, if there are any."""
        answers = self._services.answers if self.asks else {}
        new = {
            key: table
            for key, table in answers.items()
            if key not in self._sent or not same_solutions(self._sent[key], table)
        }
        self._sent |= new
        return [answers_command(new)] if new else []

    def ask_again(self, renewed: Callable[[], None]) -> None:
        """Have endpoints asked from time to time, by threads of their own, and call a function after each time."""
        if self.asks:
            self._services.ask_again(self._refresh, renewed)

    def close(self) -> None:
        self._services.ask_no_more()
        self._engine.close()
