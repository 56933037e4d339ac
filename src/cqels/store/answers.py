"""The answers of endpoints as a file, so that they are the same wherever and whenever a query is made again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256

from pyoxigraph import NamedNode, RdfFormat, parse

from cqels.io.faults import triple_of
from cqels.model.errors import CqelsError
from cqels.model.redact import redacted, redacted_url
from cqels.model.terms import Term
from cqels.plan.algebra import Plan, Project, Query, QueryText, Service, Values, transform_plan, walk_plan
from cqels.plan.scope import visible
from cqels.plan.sparql import to_sparql
from cqels.store.permissions import Permissions
from cqels.store.service import ServiceCache, ServiceFailure

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


class AskedOnce(ServiceCache):
    """Answers that are asked for once, whatever the user and password."""

    def __init__(self) -> None:
        super().__init__(None)
        self.answers: dict[str, Values] = {}

    def table(self, service: Service) -> Values:
        key = key_of(service)
        if key not in self.answers:
            self.answers[key] = super().table(service)
        return self.answers[key]


class KnownAnswers(ServiceCache):
    """Answers that somebody else has asked for: nothing is asked here."""

    def __init__(self, answers: Callable[[], Answers]) -> None:
        super().__init__(None)
        self.permissions = Permissions(hosts=())
        self._known = answers

    def table(self, service: Service) -> Values:
        try:
            return self._known()[key_of(service)]
        except KeyError:
            raise ServiceFailure(service, "it was not asked when the application started") from None


def write_answers(answers: Answers) -> bytes:
    """JSON, with a checksum before it; terms are in N-Triples."""
    content = {
        key: {
            "variables": table.variables,
            "rows": [[None if term is None else str(term) for term in row] for row in table.rows],
        }
        for key, table in answers.items()
    }
    text = json.dumps(content).encode()
    return sha256(text).hexdigest().encode() + b"\n" + text


def read_answers(data: bytes) -> dict[str, Values]:
    """What `write_answers` has written."""
    stamp, _, text = data.partition(b"\n")
    if stamp != sha256(text).hexdigest().encode():
        raise CqelsError("the answers of endpoints are damaged", hint="begin with a new checkpoint")
    content = json.loads(text)
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
