"""SERVICE: a part of a query sent to a SPARQL endpoint, and the cache of what came back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyoxigraph import BlankNode, Literal, NamedNode, QueryResultsFormat, QuerySolutions, parse_query_results

from cqels.model.errors import CqelsError
from cqels.model.terms import Term
from cqels.plan.algebra import Project, Service, Values
from cqels.plan.scope import visible
from cqels.plan.sparql import to_sparql

SECOND = 1_000_000_000
NO_ANSWER = Values((), ((),))
"""What a SILENT service is worth when it fails: one solution that binds nothing."""


class ServiceFailure(CqelsError):
    """An endpoint that gave no answer."""

    def __init__(self, endpoint: NamedNode, reason: str) -> None:
        super().__init__(
            f"the endpoint {endpoint} gave no answer: {reason}", hint="SERVICE SILENT goes on without the endpoint"
        )
        self.endpoint = endpoint
        self.reason = reason


def ask(service: Service, *, timeout: float = 60.0) -> Values:
    """Send the pattern of a SERVICE to its endpoint; the solutions that came back, or a ServiceFailure."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    columns = visible(service.input)
    request = Request(
        service.endpoint.value,
        data=to_sparql(Project(service.input, columns)).encode(),
        headers={"Content-Type": "application/sparql-query", "Accept": "application/sparql-results+json"},
        method="POST",
    )
    try:
        if not service.endpoint.value.startswith(("http://", "https://")):
            raise ValueError("it is not an HTTP address")
        with urlopen(request, timeout=timeout) as response:
            found = parse_query_results(response.read(), QueryResultsFormat.JSON)
            if not isinstance(found, QuerySolutions):
                raise ValueError("it answered true or false to a SELECT")
            named = {variable.value for variable in found.variables}
            rows = tuple(
                tuple(_term(solution[name]) if name in named else None for name in columns) for solution in found
            )
            return Values(columns, rows)
    except HTTPError as error:
        with error:
            raise ServiceFailure(service.endpoint, f"HTTP {error.code} {error.reason}") from error
    except (OSError, HTTPException, SyntaxError, ValueError) as error:
        raise ServiceFailure(service.endpoint, str(error) or type(error).__name__) from error


def _term(term: object) -> Term | None:
    if term is None or isinstance(term, NamedNode | BlankNode | Literal):
        return term
    raise ValueError(f"{term} is not a term of RDF 1.1")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint is worth, and when it was last asked; `failure` is the reason if it did not answer then."""

    table: Values
    refreshed_at: int
    failure: str | None = None


class ServiceCache:
    """The answers of endpoints, each asked again when its answer is older than `refresh` nanoseconds."""

    def __init__(
        self,
        refresh: int = 300 * SECOND,
        clock: Callable[[], int] = time.time_ns,
        *,
        timeout: float = 60.0,
    ) -> None:
        self.refresh = refresh
        self._clock = clock
        self._timeout = timeout
        self._answers: dict[Service, Answer] = {}

    def table(self, service: Service) -> Values:
        """The endpoint's solutions: those that are known, unless they are too old."""
        known = self._answers.get(service)
        if known is None or self._clock() - known.refreshed_at >= self.refresh:
            known = self._renewed(service)
        return known.table

    def due(self) -> tuple[Service, ...]:
        """The services whose answers are too old."""
        now = self._clock()
        return tuple(each for each, answer in self._answers.items() if now - answer.refreshed_at >= self.refresh)

    def refresh_due(self) -> tuple[Service, ...]:
        """Ask again what is due: a timer's work. The services whose solutions have changed.

        An endpoint that fails now keeps its former answer, and the failure is noted.
        """
        changed = []
        for service in self.due():
            before = self._answers[service]
            try:
                after = self._renewed(service)
            except ServiceFailure as failure:
                after = Answer(before.table, self._clock(), failure.reason)
                self._answers[service] = after
            if after.table != before.table:
                changed.append(service)
        return tuple(changed)

    def refreshed_at(self, service: Service) -> int | None:
        """When the endpoint was last asked, by the cache's clock."""
        known = self._answers.get(service)
        return None if known is None else known.refreshed_at

    def failure(self, service: Service) -> str | None:
        """Why the endpoint gave no answer when it was last asked, if it gave none."""
        known = self._answers.get(service)
        return None if known is None else known.failure

    def _renewed(self, service: Service) -> Answer:
        asked_at = self._clock()
        try:
            answer = Answer(ask(service, timeout=self._timeout), asked_at)
        except ServiceFailure as failure:
            if not service.silent:
                raise
            answer = Answer(NO_ANSWER, asked_at, failure.reason)
        self._answers[service] = answer
        return answer
