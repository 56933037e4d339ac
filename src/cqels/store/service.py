"""SERVICE: a part of a query sent to a SPARQL endpoint, and the cache of what came back."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Condition, Thread
from weakref import WeakSet

from pyoxigraph import BlankNode, Literal, NamedNode, QueryResultsFormat, QuerySolutions, parse_query_results

from cqels.model.errors import QueryError
from cqels.model.redact import redacted_url
from cqels.model.terms import Term
from cqels.model.time import format_duration, format_time
from cqels.plan.algebra import Project, Service, Values
from cqels.plan.scope import visible
from cqels.plan.to_sparql.query_text import to_sparql
from cqels.store.permissions import NotAllowed, Permissions

SECOND = 1_000_000_000
LARGEST_ANSWER = 256 << 20
"""Bytes that an endpoint may send."""
NO_ANSWER = Values((), ((),))
"""What a SILENT service is worth when it fails: one solution that binds nothing."""
MOST_WORKERS = 4
"""Endpoints that are asked again at the same time."""
_LONGEST_WAIT = 5.0
"""Seconds after which a worker looks whether there still is somebody who wants to know."""
_LOG = logging.getLogger("cqels")


class ServiceFailure(QueryError):
    """An endpoint that gave no answer."""

    def __init__(self, service: Service, reason: str, hint: str | None = None) -> None:
        super().__init__(
            f"the endpoint <{redacted_url(service.endpoint.value)}> gave no answer: {reason}",
            span=service.span,
            hint=hint or "SERVICE SILENT goes on without the endpoint",
        )
        self.endpoint = service.endpoint
        self.reason = reason


def ask(service: Service, permissions: Permissions, *, timeout: float = 60.0, limit: int = LARGEST_ANSWER) -> Values:
    """Send the pattern of a SERVICE to its endpoint; the solutions that came back, or a ServiceFailure."""
    from cqels.store.http import NoAnswer, fetch  # with sockets and TLS, which few queries need

    columns = visible(service.input)
    try:
        found = fetch(
            service.endpoint.value,
            permissions,
            body=to_sparql(Project(service.input, columns)).encode(),
            headers={"Content-Type": "application/sparql-query", "Accept": "application/sparql-results+json"},
            timeout=timeout,
            limit=limit,
        )
        return _solutions(found.content, columns)
    except NotAllowed as refusal:
        raise ServiceFailure(service, refusal.message, refusal.hint) from None
    except (NoAnswer, SyntaxError, ValueError) as error:
        raise ServiceFailure(service, str(error) or type(error).__name__) from error


def _solutions(content: bytes, columns: tuple[str, ...]) -> Values:
    found = parse_query_results(content, QueryResultsFormat.JSON)
    if not isinstance(found, QuerySolutions):
        raise ValueError("it answered true or false to a SELECT")
    named = {variable.value for variable in found.variables}
    rows = tuple(tuple(_term(solution[name]) if name in named else None for name in columns) for solution in found)
    return Values(columns, rows)


def _term(term: object) -> Term | None:
    if term is None or isinstance(term, NamedNode | BlankNode | Literal):
        return term
    raise ValueError(f"{term} is not a term of RDF 1.1")


def same_solutions(one: Values, other: Values) -> bool:
    """Whether two answers have the same solutions, in any order."""
    return one.variables == other.variables and Counter(one.rows) == Counter(other.rows)


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint is worth, and when it was last asked.

    `failure` is the reason if it did not answer then, and `failures` how often it did not since it last did.
    """

    table: Values
    refreshed_at: int
    failure: str | None = None
    failures: int = 0


class Watch:
    """The services of one engine, whose answers are to be kept up to date."""

    def __init__(self, cache: ServiceCache) -> None:
        self._cache = cache
        self.services: frozenset[Service] = frozenset()
        self.changed: set[Service] = set()
        """Those whose answers have changed, and the engine does not know it yet."""

    def follow(self, services: Iterable[Service]) -> None:
        """Have these asked again from now on, and no others."""
        self.services = frozenset(services)
        self._cache.begin()

    def take_up(self) -> frozenset[Service]:
        """The services whose answers have changed since the last time; from now on the new ones are told."""
        self._cache.take_up()
        changed, self.changed = self.changed & self.services, set()
        return frozenset(changed)

    @property
    def has_news(self) -> bool:
        """There may be something to take up."""
        return bool(self.changed) or self._cache.has_news


class ServiceCache:
    """The answers of endpoints: asked when they are first needed, and again when `refresh` nanoseconds have passed.

    Those that an engine watches are asked again in the background, so that no stream waits for an endpoint.  What one
    answers then is put aside until the engine takes it up, between two ticks.  One that fails keeps its former answer:
    that is logged and counted, and it is asked again after a second, after two, after four, up to `refresh`.

    `allow` are the hosts that may be asked (`Permissions`); without it, those of the public Internet and this machine:
    a cache is made by a program, which knows its endpoints.
    """

    def __init__(
        self,
        refresh: int | None = 300 * SECOND,
        clock: Callable[[], int] = time.time_ns,
        *,
        timeout: float = 60.0,
        limit: int = LARGEST_ANSWER,
        allow: Iterable[str] | None = None,
    ) -> None:
        self.refresh = refresh
        """Nanoseconds; None if no endpoint is asked again."""
        self.permissions = Permissions.of(allow, loopback=True)
        self.failures = 0
        """How often an endpoint gave no answer when it was asked again."""
        self._clock = clock
        self._timeout, self._limit = timeout, limit
        self._answers: dict[Service, Answer] = {}
        self._arrived: dict[Service, Answer] = {}
        """What was answered and is not taken up yet."""
        self._watches: WeakSet[Watch] = WeakSet()
        self._asking: set[Service] = set()
        self._workers = 0
        self._wakes = Condition()

    def table(self, service: Service) -> Values:
        """The endpoint's solutions: those that are known, unless they are too old and nobody keeps them up to date."""
        known = self._answers.get(service)
        if known is None or (self._is_due(known) and service not in self._watched()):
            known = self._answers[service] = self._asked(service)
        return known.table

    def due(self) -> tuple[Service, ...]:
        """The services whose answers are too old."""
        return tuple(each for each in self._answers if self._is_due(self._latest(each)))

    def refresh_due(self) -> tuple[Service, ...]:
        """Ask again what is due, now and here. The services whose solutions have changed."""
        changed = [service for service in self.due() if self._renew(service)]
        watched = self._watched()
        with self._wakes:
            for service in [each for each in self._arrived if each not in watched]:
                self._answers[service] = self._arrived.pop(service)
        return tuple(changed)

    def refreshed_at(self, service: Service) -> int | None:
        """When the endpoint was last asked, by the cache's clock."""
        known = self._answers.get(service)
        return None if known is None else self._latest(service).refreshed_at

    def failure(self, service: Service) -> str | None:
        """Why the endpoint gave no answer when it was last asked, if it gave none."""
        known = self._answers.get(service)
        return None if known is None else self._latest(service).failure

    def notes(self, service: Service) -> Iterator[tuple[str, str]]:
        """What EXPLAIN says: how often the endpoint is asked, when it last was, and whether it failed."""
        yield "asked", "once" if self.refresh is None else f"every {format_duration(self.refresh)}"
        if service in self._answers:
            latest = self._latest(service)
            yield "last", format_time(latest.refreshed_at)
            yield "rows", f"{len(latest.table.rows):,}"
            if latest.failure is not None:
                yield "failed", f"{latest.failures} times, {latest.failure}"

    # ------------------------------------------------------------ in the background

    def watch(self) -> Watch:
        """For an engine: what it is to tell, and to be told. It ends with the engine."""
        made = Watch(self)
        self._watches.add(made)
        return made

    @property
    def has_news(self) -> bool:
        return bool(self._arrived)

    def begin(self) -> None:
        """Begin to ask again what is watched, if nobody does yet."""
        with self._wakes:
            wanted = 0 if self.refresh is None else min(MOST_WORKERS, len(self._watched()))
            for _ in range(wanted - self._workers):
                self._workers += 1
                Thread(target=self._work, name="cqels-service", daemon=True).start()
            self._wakes.notify_all()

    def take_up(self) -> None:
        """Tell the answers that have come, from now on, and those who watch which are others than before."""
        with self._wakes:
            arrived, self._arrived = self._arrived, {}
            for service, answer in arrived.items():
                before = self._answers.get(service)
                self._answers[service] = answer
                if before is None or before.table is not answer.table:
                    for watch in self._watches:
                        watch.changed.add(service)

    def _work(self) -> None:
        while (service := self._next()) is not None:
            try:
                self._renew(service)
            finally:
                with self._wakes:
                    self._asking.discard(service)

    def _next(self) -> Service | None:
        """Wait for the next service to be asked; None if nobody watches any."""
        with self._wakes:
            while self.refresh is not None and (watched := self._watched()):
                ready = [each for each in watched if each in self._answers and each not in self._asking]
                first = min(ready, key=lambda each: self._due_at(self._latest(each)), default=None)
                wait = _LONGEST_WAIT
                if first is not None:
                    wait = min(wait, (self._due_at(self._latest(first)) - self._clock()) / SECOND)
                    if wait <= 0:
                        self._asking.add(first)
                        return first
                self._wakes.wait(wait)
            self._workers -= 1
            return None

    def _renew(self, service: Service) -> bool:
        """Ask again: whether the solutions have changed. They are put aside; one that fails keeps what it had."""
        before, asked_at = self._latest(service), self._clock()
        try:
            table = ask(service, self.permissions, timeout=self._timeout, limit=self._limit)
        except ServiceFailure as failure:
            self.failures += 1
            _LOG.warning("%s; its last answer is kept", failure.message)
            after = Answer(before.table, asked_at, failure.reason, before.failures + 1)
        else:
            after = Answer(before.table if same_solutions(before.table, table) else table, asked_at)
        with self._wakes:
            self._arrived[service] = after
        return after.table is not before.table

    def _asked(self, service: Service) -> Answer:
        asked_at = self._clock()
        try:
            return Answer(ask(service, self.permissions, timeout=self._timeout, limit=self._limit), asked_at)
        except ServiceFailure as failure:
            if not service.silent:
                raise
            _LOG.warning("%s (%s); the query goes on without it", failure.message, failure.hint)
            return Answer(NO_ANSWER, asked_at, failure.reason, 1)

    def _latest(self, service: Service) -> Answer:
        return self._arrived.get(service) or self._answers[service]

    def _watched(self) -> set[Service]:
        return {service for watch in list(self._watches) for service in watch.services}

    def _is_due(self, answer: Answer) -> bool:
        return self.refresh is not None and self._clock() >= self._due_at(answer)

    def _due_at(self, answer: Answer) -> int:
        assert self.refresh is not None
        wait = SECOND << min(answer.failures - 1, 30) if answer.failures else self.refresh
        return answer.refreshed_at + min(wait, self.refresh)
