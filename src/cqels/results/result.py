"""What a query sends, and the formats it is written in."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, SupportsIndex, TextIO, overload
from urllib.parse import quote

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.model.conversion import Plain, plain
from cqels.model.errors import CqelsError
from cqels.model.terms import XSD_DATE_TIME, XSD_STRING, Term, Triple
from cqels.model.time import date_time_at, format_date_time, format_time
from cqels.model.turtle_text import Notation

_GENERATED_AT_TIME = NamedNode("http://www.w3.org/ns/prov#generatedAtTime")


class _Fields(NamedTuple):
    query: str
    nanoseconds: int
    tick: int
    sign: str
    values: tuple[Term | None, ...]
    triples: tuple[Triple, ...]
    boolean: bool | None
    empty: bool
    variables: tuple[str, ...]


class Result(tuple[Any, ...]):
    """One solution, constructed element or boolean that a query sent at a tick.

    A solution is a row of the query's variables, None being unbound: `row["room"]`, `row.room` and `row[0]` are terms,
    and so are those that one gets by iterating.  An attribute of this class goes before a variable of its name, which
    `row["time"]` reaches.  An element has its `triples`, the answer of an ASK is `boolean`.  `sign` is "+", "-" or
    empty where it does not apply, and `empty` marks a snapshot without solutions.

    Underneath it is the tuple of its fields, since millions are made; equal are results whose fields are.
    """

    __slots__ = ()

    query = _Fields.query
    nanoseconds = _Fields.nanoseconds
    tick = _Fields.tick
    sign = _Fields.sign
    values = _Fields.values
    triples = _Fields.triples
    boolean = _Fields.boolean
    empty = _Fields.empty
    variables = _Fields.variables

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
    ) -> Result:
        fields = (query, nanoseconds, tick, sign, values, triples, boolean, empty, variables)
        return tuple.__new__(cls, fields)

    @property
    def time(self) -> datetime:
        """When it was sent, in UTC, to the microsecond; `nanoseconds` since 1970 are exact."""
        return date_time_at(self.nanoseconds)

    # ------------------------------------------------------------ the row

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return True  # an answer and an element have no values, and are results

    def __iter__(self) -> Iterator[Term | None]:
        return iter(self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values

    @overload
    def __getitem__(self, key: SupportsIndex | str, /) -> Term | None: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[Term | None, ...]: ...
    def __getitem__(self, key: Any, /) -> Any:
        if not isinstance(key, str):
            return self.values[key]
        if key not in self.variables or self.empty:
            raise KeyError(self._missing(key))
        return self.values[self.variables.index(key)]

    def __getattr__(self, name: str) -> Term | None:
        if name not in self.variables or self.empty:
            raise AttributeError(self._missing(name), name=name, obj=self)
        return self.values[self.variables.index(name)]

    count = property(lambda self: self.__getattr__("count"))  # which tuples have as methods
    index = property(lambda self: self.__getattr__("index"))

    def _missing(self, name: str) -> str:
        if self.empty:
            return "the result marks an empty snapshot: it has no values"
        known = " ".join(f"?{each}" for each in self.variables)
        return f"the result has no variable ?{name}, " + (f"the variables are {known}" if known else "and no others")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.variables})

    def keys(self) -> tuple[str, ...]:
        """The names of the variables, so that `dict(row)` is `row.asdict()`."""
        return () if self.empty else self.variables

    def asdict(self) -> dict[str, Term | None]:
        """The terms by their variables."""
        return dict(zip(self.keys(), self.values, strict=True))

    def python(self) -> dict[str, Plain | None]:
        """Python's own values by their variables, as `plain` makes them: int, Decimal, float, bool, datetime, str …"""
        return {name: None if term is None else plain(term) for name, term in self.asdict().items()}

    # ------------------------------------------------------------ the tuple

    def __repr__(self) -> str:
        names = self.variables or map(str, range(len(self.values)))
        parts: list[str] = [self.sign] if self.sign else []
        parts += [f"?{name}={'unbound' if term is None else term}" for name, term in zip(names, self, strict=False)]
        parts += [" ".join(map(str, triple)) + " ." for triple in self.triples]
        parts += [] if self.boolean is None else [str(self.boolean).lower()]
        parts += ["(empty)"] if self.empty else []
        return f"<result of {self.query} at {format_time(self.nanoseconds)}, tick {self.tick}: {' '.join(parts)}>"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(tuple.__iter__(self))

    def _replace(self, **changes: Any) -> Result:
        """The same with other fields."""
        return Result(**(dict(zip(_Fields._fields, self.__getnewargs__(), strict=True)) | changes))


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
        time = format_time(result.nanoseconds)
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
        self._rows.writerows([format_time(result.nanoseconds), result.tick, sign, *row] for row in rows)

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
        record: dict[str, Any] = {"query": result.query, "time": format_time(result.nanoseconds), "tick": result.tick}
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
        time = Literal(format_date_time(result.nanoseconds), datatype=XSD_DATE_TIME)
        self._stream.write(" ".join(f"{s} {p} {o} {time} ." for s, p, o in result.triples) + "\n")

    def close(self) -> None:
        self._stream.flush()


class QuadsWriter:
    """N-Quads: each constructed element is a graph, whose prov:generatedAtTime is in the default graph before it.

    The graph of the twelfth element of query `hot` is `<urn:cqels:hot/11>`.  `read_stream` reads the same elements
    back, and any other tool reads RDF.
    """

    def __init__(self, stream: TextIO, variables: Sequence[str], prefixes: Mapping[str, str]) -> None:
        self._stream = stream
        self.number = 0
        """Of the next element."""

    def write(self, result: Result) -> None:
        if not result.triples:
            raise CqelsError("quads are of the triples of CONSTRUCT only", hint="use text, csv or jsonl")
        if result.sign == "-":
            raise CqelsError("quads cannot say that a triple is withdrawn", hint="use text, csv or jsonl")
        graph = graph_name(result.query, self.number)
        self._stream.write(generated_at(graph, result.nanoseconds) + self._element(graph, result.triples))
        self.number += 1

    def _element(self, graph: str, triples: tuple[Triple, ...]) -> str:
        return "".join(f"{s} {p} {o} {graph} .\n" for s, p, o in triples)

    def close(self) -> None:
        self._stream.flush()


class TrigWriter(QuadsWriter):
    """The same in TriG, one graph to a line."""

    def _element(self, graph: str, triples: tuple[Triple, ...]) -> str:
        return f"{graph} {{ {' '.join(f'{s} {p} {o} .' for s, p, o in triples)} }}\n"


def graph_name(query: str, number: int) -> str:
    """The graph of a constructed element in quads.

    >>> graph_name("http://ex.org/alert", 3)
    '<urn:cqels:http%3A%2F%2Fex.org%2Falert/3>'
    """
    return f"<urn:cqels:{quote(query, safe='')}/{number}>"


def generated_at(graph: str, nanoseconds: int) -> str:
    """The line that says when the element of a graph was sent."""
    return f'{graph} {_GENERATED_AT_TIME} "{format_date_time(nanoseconds)}"^^{XSD_DATE_TIME} .\n'


_WRITERS: dict[str, Callable[[TextIO, Sequence[str], Mapping[str, str]], ResultWriter]] = {
    "text": TextWriter,
    "csv": CsvWriter,
    "jsonl": JsonLinesWriter,
    "ntriples": TimedTriplesWriter,
    "nquads": QuadsWriter,
    "trig": TrigWriter,
}
RESULT_FORMATS = tuple(_WRITERS)
EXTENSIONS = {
    "csv": "csv",
    "jsonl": "jsonl",
    "text": "txt",
    "ntriples": "nt",
    "nquads": "nq",
    "trig": "trig",
    "parquet": "parquet",
}
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
