"""The answers of endpoints as a file, so that they are the same wherever and whenever a query is made again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256

from pyoxigraph import RdfFormat, parse

from cqels.io.faults import triple_of
from cqels.model.errors import CqelsError
from cqels.model.redact import redacted_url
from cqels.model.terms import Term
from cqels.plan.algebra import Project, Service, Values
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
