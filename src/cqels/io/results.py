"""What a query sends, and the formats it is written in."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO
from urllib.parse import quote

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.model.errors import CqelsError
from cqels.model.notation import Notation
from cqels.model.terms import XSD_DATE_TIME, XSD_STRING, Term, Triple
from cqels.model.time import format_date_time, format_time


class Result(NamedTuple):
    """One solution, constructed element or boolean that a query sent at a tick.

    `sign` is "+", "-" or empty where it does not apply. `values` follow the query's variables, None being unbound.
    `empty` marks a snapshot without solutions.
    """

    query: str
    time: int
    tick: int
    sign: str
    values: tuple[Term | None, ...]
    triples: tuple[Triple, ...] = ()
    boolean: bool | None = None
    empty: bool = False


class ResultWriter(Protocol):
    """Writes the results of one query to a text stream, which it does not close."""

    def write(self, result: Result) -> None: ...

    def close(self) -> None: ...


class TextWriter:
    """A line for a person: `4s  + :kitchen 2`. The times seen so far decide the width of the first column."""

    def __init__(self, stream: TextIO, variables: Sequence[str], prefixes: Mapping[str, str]) -> None:
        self._stream = stream
        self._notation = Notation(prefixes)
        self.width = 0

    def write(self, result: Result) -> None:
        time = format_time(result.time)
        self.width = max(self.width, len(time))
        self._stream.write(" ".join(filter(None, (time.ljust(self.width + 1), result.sign, self._body(result)))) + "\n")

    def close(self) -> None:
        self._stream.flush()

    def _body(self, result: Result) -> str:
        if result.empty:
            return "(empty)"
        if result.boolean is not None:
            return str(result.boolean).lower()
        if result.triples:
            return " ".join(f"{self._notation.triple(triple)} ." for triple in result.triples)
        return " ".join(map(self._notation.term, result.values)) or "()"


class CsvWriter:
    """Comma-separated values (RFC 4180) of the terms' lexical forms, after time, tick and sign.

    A constructed triple is a row of subject, predicate and object; a boolean is a column. The sign of an empty
    snapshot's row is the word `empty`, since a solution may be all unbound.
    """

    def __init__(self, stream: TextIO, variables: Sequence[str], prefixes: Mapping[str, str]) -> None:
        self._stream = stream
        self._rows = csv.writer(stream)
        self._variables = tuple(variables)
        self._header: tuple[str, ...] | None = None

    def write(self, result: Result) -> None:
        columns: tuple[str, ...]
        if result.boolean is not None:
            columns, rows = ("boolean",), [[str(result.boolean).lower()]]
        elif result.triples:
            columns = ("subject", "predicate", "object")
            rows = [[lexical(term) for term in triple] for triple in result.triples]
        else:
            columns = self._variables
            rows = [[lexical(value) for value in result.values] if not result.empty else [""] * len(columns)]
        self._begin(columns)
        sign = "empty" if result.empty else result.sign
        self._rows.writerows([format_time(result.time), result.tick, sign, *row] for row in rows)

    def close(self) -> None:
        self._begin(self._variables)
        self._stream.flush()

    def _begin(self, columns: tuple[str, ...]) -> None:
        if self._header is None:
            self._header = columns
            self._rows.writerow(["time", "tick", "sign", *columns])


class JsonLinesWriter:
    """One JSON object for each result, its terms as in SPARQL 1.1 Query Results JSON; an unbound variable is absent."""

    def __init__(self, stream: TextIO, variables: Sequence[str], prefixes: Mapping[str, str]) -> None:
        self._stream = stream
        self._variables = tuple(variables)

    def write(self, result: Result) -> None:
        record: dict[str, Any] = {"query": result.query, "time": format_time(result.time), "tick": result.tick}
        if result.sign:
            record["sign"] = result.sign
        if result.empty:
            record["empty"] = True
        elif result.boolean is not None:
            record["boolean"] = result.boolean
        elif result.triples:
            places = ("subject", "predicate", "object")
            record["triples"] = [dict(zip(places, map(json_term, triple), strict=True)) for triple in result.triples]
        else:
            pairs = zip(self._variables, result.values, strict=True)
            record["bindings"] = {name: json_term(value) for name, value in pairs if value is not None}
        self._stream.write(json.dumps(record, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._stream.flush()


class TimedTriplesWriter:
    """Timed N-Triples, one constructed element to a line, which `read_stream` reads back as the same elements.

    The time is an xsd:dateTime: it is exact and means the same in every declared unit.
    """

    def __init__(self, stream: TextIO, variables: Sequence[str], prefixes: Mapping[str, str]) -> None:
        self._stream = stream

    def write(self, result: Result) -> None:
        if not result.triples:
            raise CqelsError("the format ntriples writes the triples of CONSTRUCT only", hint="use text, csv or jsonl")
        if result.sign == "-":
            raise CqelsError("the format ntriples cannot say that a triple is withdrawn", hint="use text, csv or jsonl")
        time = Literal(format_date_time(result.time), datatype=XSD_DATE_TIME)
        self._stream.write(" ".join(f"{s} {p} {o} {time} ." for s, p, o in result.triples) + "\n")

    def close(self) -> None:
        self._stream.flush()


_WRITERS: dict[str, Callable[[TextIO, Sequence[str], Mapping[str, str]], ResultWriter]] = {
    "text": TextWriter,
    "csv": CsvWriter,
    "jsonl": JsonLinesWriter,
    "ntriples": TimedTriplesWriter,
    "nq": TimedTriplesWriter,
}
RESULT_FORMATS = tuple(_WRITERS)
EXTENSIONS = {"csv": "csv", "jsonl": "jsonl", "text": "txt", "ntriples": "nt", "nq": "nq", "parquet": "parquet"}
"""The ends of files' names, for those of Spark too."""


def format_of_file(name: str) -> str | None:
    """The format that the end of a file's name tells.

    >>> format_of_file("out.csv"), format_of_file("out")
    ('csv', None)
    """
    extension = Path(name).suffix.removeprefix(".")
    return next((format for format, each in EXTENSIONS.items() if each == extension), None)


def file_name(query: str, format: str) -> str:
    """The name of the file of a query's results in a folder. In Parquet it is a folder itself.

    >>> file_name("http://ex.org/alert", "jsonl")
    'http%3A%2F%2Fex.org%2Falert.jsonl'
    """
    name = quote(query, safe=" ")
    name = name.replace(".", "%2E", 1) if name.startswith(".") else name
    return name if format == "parquet" else f"{name}.{EXTENSIONS[format]}"


def writer_for(format: str, stream: TextIO, variables: Sequence[str], prefixes: Mapping[str, str]) -> ResultWriter:
    """The writer of a format, for a query with these variables (without `?`) and prefixes."""
    if format not in _WRITERS:
        hint = f"the formats are {', '.join(RESULT_FORMATS)}"
        raise CqelsError(f"results have no format '{format}'", hint=hint)
    return _WRITERS[format](stream, variables, prefixes)


def lexical(term: Term | None) -> str:
    """The text of a term in a table: an IRI without brackets, a literal without quotes and type."""
    match term:
        case None:
            return ""
        case BlankNode():
            return str(term)
        case _:
            return term.value


def json_term(term: Term) -> dict[str, str]:
    """A term as in SPARQL 1.1 Query Results JSON."""
    match term:
        case NamedNode():
            return {"type": "uri", "value": term.value}
        case BlankNode():
            return {"type": "bnode", "value": term.value}
        case Literal():
            record = {"type": "literal", "value": term.value}
            if term.language is not None:
                record["xml:lang"] = term.language
            elif term.datatype != XSD_STRING:
                record["datatype"] = term.datatype.value
            return record
