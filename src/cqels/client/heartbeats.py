"""A promise about time as an element, which is how a service is told one."""

from __future__ import annotations

import re

from pyoxigraph import Literal, NamedNode

from cqels.client.calls import iri_or_name
from cqels.client.push_body import Body, Time, body_of, nanoseconds
from cqels.model.terms import CQ, XSD_DATE_TIME
from cqels.model.time import format_date_time

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def iri_of(stream: object) -> str | None:
    """The IRI of a stream, None if it is known by a short name, which is below the service's base."""
    name = iri_or_name(stream)
    return name if _SCHEME.match(name) else None


def heartbeat_of(iri: str, time: Time) -> Body:
    """The element that says that none before this time will come on the stream."""
    moment = Literal(format_date_time(nanoseconds(time)), datatype=XSD_DATE_TIME)
    return body_of((NamedNode(iri), NamedNode(CQ + "noElementBefore"), moment), time)
