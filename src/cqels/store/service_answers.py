"""The answers of endpoints as a file, so that they are the same wherever and whenever a query is made again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from pyoxigraph import NamedNode, RdfFormat, parse

from cqels.ingest.parse_errors import triple_of
from cqels.model.errors import CqelsError
from cqels.model.redact import redacted, redacted_url
from cqels.model.terms import Term
from cqels.plan.algebra import Plan, Project, Query, QueryText, Service, Values, transform_plan, walk_plan
from cqels.plan.scope import visible
from cqels.plan.to_sparql.query_text import to_sparql
from cqels.store.permissions import Permissions
from cqels.store.service import ServiceCache, ServiceFailure, same_solutions

Answers = Mapping[str, Values]
"""What services are worth, by their keys."""


def key_of(service: Service) -> str:
    """The same for the same question to the same endpoint, whoever asks."""
    question = to_sparql(Project(service.input, visible(service.input)))
    return sha256(f"{redacted_url(service.endpoint.value)} {service.silent} {question}".encode()).hexdigest()


def without_secrets(query: Query) -> Query:
    """A query whose endpoints have been asked: whoever knows their answers needs no passwords."""

    def change(node: Plan) -> Plan:
        if not isinstance(node, Service):
            return node
        return replace(node, endpoint=NamedNode(redacted_url(node.endpoint.value)))

    if not _secrets(query):
        return query
    return replace(query, plan=transform_plan(query.plan, change), text=public_text(query))


def public_text(query: Query) -> QueryText | None:
    """The text of a query without the passwords of endpoints; None if it has some that are not written as such."""
    secrets = _secrets(query)
    if query.text is None or not secrets:
        return query.text
    text = query.text.text
    for endpoint in secrets:
        text = text.replace(endpoint, redacted_url(endpoint))
    return replace(query.text, text=text) if redacted(text) == text else None


def _secrets(query: Query) -> list[str]:
    """The endpoints whose addresses have users, passwords or tokens."""
    asked = (node.endpoint.value for node in walk_plan(query.plan) if isinstance(node, Service))
    return [each for each in asked if redacted_url(each) != each]


class Asked(ServiceCache):
    """The answers that the driver of a pipeline has: asked for when a query is added, and again while it runs."""

    def __init__(self) -> None:
        super().__init__(None)
        self._renewed: Callable[[], None] = lambda: None

    @property
    def answers(self) -> dict[str, Values]:
        """What endpoints were worth when they last answered."""
        with self._wakes:
            known = dict(self._answers)
        return {key_of(service): known[service].table for service in sorted(known, key=_address)}

    @property
    def followed(self) -> list[Service]:
        """What the queries that there are ask."""
        return sorted(self._watched(), key=_address)

    def fresh(self) -> dict[str, Values]:
        """The answers to what is followed; none of an endpoint that did not answer when it was last asked."""
        return {
            key_of(service): self._answers[service].table
            for service in self.followed
            if service in self._answers and self._answers[service].failure is None
        }

    def ask_again(self, every: int | None, renewed: Callable[[], None]) -> None:
        """From now on ask every so many nanoseconds, and call a function, in the background, after each time."""
        self._renewed, self.refresh = renewed, every
        self.begin()

    def ask_no_more(self) -> None:
        self.ask_again(None, lambda: None)

    def _renew(self, service: Service) -> bool:
        changed = super()._renew(service)
        self.take_up()
        self._renewed()
        return changed


def _address(service: Service) -> str:
    return service.endpoint.value


class KnownAnswers(ServiceCache):
    """Answers that somebody else has asked for: nothing is asked here."""

    def __init__(self, answers: Callable[[], Answers]) -> None:
        super().__init__(None)
        self.permissions = Permissions(hosts=())
        self._known = answers
        self.since: dict[str, Values] = {}
        """What endpoints have answered since then."""

    def table(self, service: Service) -> Values:
        key = key_of(service)
        try:
            return self.since[key] if key in self.since else self._known()[key]
        except KeyError:
            raise ServiceFailure(service, "it was not asked when the application started") from None

    def change(self, answers: Answers) -> None:
        """Tell other answers from now on; the engines that ask have something to take up if solutions differ."""
        asked = {each: answers[key] for each in self._watched() if (key := key_of(each)) in answers}
        others = {each for each, table in asked.items() if not same_solutions(self.table(each), table)}
        self.since |= answers
        for watch in self._watches:
            watch.changed |= others


def answers_as_json(answers: Answers) -> dict[str, Any]:
    """What `answers_of_json` reads; terms are in N-Triples."""
    return {
        key: {
            "variables": table.variables,
            "rows": [[None if term is None else str(term) for term in row] for row in table.rows],
        }
        for key, table in answers.items()
    }


def answers_of_json(content: dict[str, Any]) -> dict[str, Values]:
    texts = dict.fromkeys(
        term for table in content.values() for row in table["rows"] for term in row if term is not None
    )
    lines = "".join(f"<urn:x> <urn:x> {term} .\n" for term in texts)
    terms: dict[str | None, Term | None] = {None: None}
    for term, quad in zip(texts, parse(lines, RdfFormat.N_TRIPLES), strict=True):
        terms[term] = triple_of(quad)[2]
    return {
        key: Values(tuple(table["variables"]), tuple(tuple(terms[term] for term in row) for row in table["rows"]))
        for key, table in content.items()
    }


def write_answers(answers: Answers) -> bytes:
    """JSON, with a checksum before it."""
    text = json.dumps(answers_as_json(answers)).encode()
    return sha256(text).hexdigest().encode() + b"\n" + text


def read_answers(data: bytes) -> dict[str, Values]:
    """What `write_answers` has written."""
    stamp, _, text = data.partition(b"\n")
    if stamp != sha256(text).hexdigest().encode():
        raise CqelsError("the answers of endpoints are damaged", hint="begin with a new checkpoint")
    return answers_of_json(json.loads(text))
