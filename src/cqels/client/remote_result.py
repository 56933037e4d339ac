"""Results as a service sends them, one JSON object to a line, made into the results of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.model.terms import Term, Triple
from cqels.model.time import parse_time
from cqels.results import Result

_NUMBER = 9
"""The place of the number, behind the fields of a result."""
_PLACES = ("subject", "predicate", "object")


class RemoteResult(Result):
    """A result of a query of a service: all that a `Result` is, and its `number`.

    Results of a query are numbered in order, through restarts of the service: `results(…, after=number)` goes on behind
    this one.
    """

    __slots__ = ()

    def __new__(
        cls,
        query: str,
        nanoseconds: int,
        tick: int,
        sign: str,
        values: tuple[Term | None, ...],
        triples: tuple[Triple, ...] = (),
        boolean: bool | None = None,
        empty: bool = False,
        variables: tuple[str, ...] = (),
        number: int = 0,
    ) -> RemoteResult:
        fields = (query, nanoseconds, tick, sign, values, triples, boolean, empty, variables, number)
        return tuple.__new__(cls, fields)

    @property
    def number(self) -> int:
        """Its place among the results of its query, from 0."""
        return int(tuple.__getitem__(self, _NUMBER))

    def _replace(self, **changes: Any) -> RemoteResult:
        names = ("query", "nanoseconds", "tick", "sign", "values", "triples", "boolean", "empty", "variables", "number")
        return RemoteResult(**(dict(zip(names, self.__getnewargs__(), strict=True)) | changes))


def number_of(record: Mapping[str, Any]) -> int:
    """The number of a result, which its id ends with.

    >>> number_of({"id": "hot/12"})
    12
    """
    return int(str(record["id"]).rpartition("/")[2])


def result_of(record: Mapping[str, Any], variables: tuple[str, ...]) -> RemoteResult:
    """The result of a line, as a row of these variables."""
    bindings: Mapping[str, Any] = record.get("bindings", {})
    if not bindings.keys() <= set(variables):  # of an earlier query of the name
        variables = tuple(bindings)
    is_row = "bindings" in record
    return RemoteResult(
        str(record["query"]),
        parse_time(record["time"]),
        int(record["tick"]),
        str(record.get("sign", "")),
        row_of(bindings, variables) if is_row else (),
        tuple(map(_triple, record.get("triples", ()))),
        record.get("boolean"),
        bool(record.get("empty", False)),
        variables,
        number_of(record),
    )


def row_of(bindings: Mapping[str, Any], variables: Sequence[str]) -> tuple[Term | None, ...]:
    """The terms of a solution in the order of the variables."""
    return tuple(None if (found := bindings.get(name)) is None else term_of(found) for name in variables)


def term_of(record: Mapping[str, str]) -> Term:
    """A term of SPARQL 1.1 Query Results JSON."""
    value = record["value"]
    match record["type"]:
        case "uri":
            return NamedNode(value)
        case "bnode":
            return BlankNode(value)
        case _:
            if (language := record.get("xml:lang")) is not None:
                return Literal(value, language=language)
            datatype = record.get("datatype")
            return Literal(value) if datatype is None else Literal(value, datatype=NamedNode(datatype))


def _triple(record: Mapping[str, Mapping[str, str]]) -> Triple:
    subject, predicate, value = (term_of(record[place]) for place in _PLACES)
    assert not isinstance(subject, Literal)
    assert isinstance(predicate, NamedNode)
    return subject, predicate, value
