"""The requests of the service's interface, and what their answers mean; nothing is sent here.

Both clients send these: what a method does is said once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2s
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, parse

from cqels.client.client_errors import error_of, problem_of
from cqels.client.push_body import MEDIA_TYPES, Body
from cqels.client.remote_result import row_of
from cqels.ingest.rdf_objects import term_of
from cqels.model.errors import CqelsError, DataError, QueryError, Source
from cqels.model.terms import Triple
from cqels.model.time import format_duration
from cqels.results import Result

T = TypeVar("T")
JSON, LINES = "application/json", "application/x-ndjson"
_TABLE, _GRAPH = "application/sparql-results+json", "application/n-triples"
_URL = 2_000
"""Characters of a query that goes into a URL; a longer one is a body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise CqelsError("the answer is not JSON", hint="is this the address of a service of cqels?") from None


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its answer is read."""

    method: str
    path: str
    answer: Callable[[Reply], T]
    params: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    fault: type[CqelsError] = CqelsError
    """The error of a request that the service refuses."""
    source: Source | None = None
    """The text that the service may find at fault."""
    refused: Callable[[Reply], T | None] = lambda reply: None
    """What a refusal means, where that is no error."""

    def read(self, reply: Reply) -> T:
        """What the answer means; an error if that is what it is."""
        if reply.status >= 300:
            if reply.status == 400 and (found := self.refused(reply)) is not None:
                return found
            raise error_of(reply.status, reply.headers, reply.body, self.fault, self.source)
        return self.answer(reply)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push. What is rejected is given to the client's `reject` function, too."""

    accepted: int = 0
    """Elements that the service has on its disk."""
    rejected: int = 0
    errors: tuple[Mapping[str, str], ...] = ()
    """Of the first that were rejected: `at`, `reason` and `text`."""

    def __add__(self, other: Pushed) -> Pushed:
        return Pushed(
            self.accepted + other.accepted, self.rejected + other.rejected, (*self.errors, *other.errors)[:10]
        )


# ---------------------------------------------------------------- streams


def push(stream: object, body: Body, *, strict: bool = True) -> Call[Pushed]:
    """Elements of which not one is taken are an error, or if it is not `strict` so many that were rejected."""
    headers = {} if body.media_type is None else {"Content-Type": body.media_type}
    params = {} if body.time is None else {"time": body.time}
    refused = _none if strict else _rejected
    return Call("POST", _stream(stream), _pushed, params, headers, body.content, DataError, refused=refused)


def declare(stream: object, words: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """`words` are those of the service; the ones that are None are left to it."""
    given = {word: _word(word, value) for word, value in words.items() if value is not None}
    return Call("PUT", _stream(stream), _object, headers={"Content-Type": JSON}, content=json.dumps(given).encode())


def show_stream(stream: object) -> Call[dict[str, Any]]:
    return Call("GET", _stream(stream), _object)


def list_streams() -> Call[list[dict[str, Any]]]:
    return Call("GET", "/streams", lambda reply: list(_object(reply)["streams"]))


# ---------------------------------------------------------------- queries


def register(query: str | os.PathLike[str], name: str | None, options: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """A query without a name is called like its file, and one that is a text by a hash of it."""
    source, file = _query_text(query)
    given = {word: str(value) for word, value in options.items() if value is not None}
    chosen = name or file or _name_of(source.text, given)
    content = source.text.encode("utf-8", "surrogatepass")
    headers = {"Content-Type": "application/sparql-query"}
    return Call("PUT", query_path(chosen), _object, given, headers, content, QueryError, source)


def show_query(name: str) -> Call[dict[str, Any]]:
    return Call("GET", query_path(name), _object)


def list_queries() -> Call[list[dict[str, Any]]]:
    return Call("GET", "/queries", lambda reply: list(_object(reply)["queries"]))


def drop(name: str) -> Call[None]:
    return Call("DELETE", query_path(name), _nothing)


def explain(name: str, format: str) -> Call[str]:
    return Call("GET", f"{query_path(name)}/explain", _text, {"format": format})


def follow(name: str, number: int) -> Call[None]:
    """Results from a number on, as they come: lines of JSON."""
    headers = {"Accept": LINES, "Accept-Encoding": "identity"}  # what compresses would hold results back
    return Call("GET", f"{query_path(name)}/results", _nothing, _from(number), headers)


def poll(name: str, number: int, limit: int | None, wait: float) -> Call[dict[str, Any]]:
    """The results that there are from a number on, some of them; where there are none, they are waited for."""
    params = _from(number) | {"wait": f"{round(wait * 1000)}ms"}
    if limit is not None:
        params["limit"] = str(limit)
    return Call("GET", f"{query_path(name)}/results", _object, params, {"Accept": JSON})


def _from(number: int) -> dict[str, str]:
    return {"after": str(number - 1)} if number > 0 else {"from": "start"}


# ---------------------------------------------------------------- static data


def select(text: str) -> Call[list[Result]]:
    return _sparql(text, _rows)


def ask(text: str) -> Call[bool]:
    return _sparql(text, _boolean)


def construct(text: str) -> Call[list[Triple]]:
    return _sparql(text, _triples)


def update(text: object) -> Call[None]:
    if not isinstance(text, str):
        raise CqelsError(f"an update of type {type(text).__name__} is not taken", hint="give a SPARQL Update as a text")
    headers = {"Content-Type": "application/sparql-update"}
    return Call("POST", "/sparql", _nothing, {}, headers, text.encode(), QueryError, Source(text, "<update>"))


def add_to_graph(graph: str | None, lines: bytes) -> Call[None]:
    """Add N-Triples to a graph."""
    params = {"default": ""} if graph is None else {"graph": graph}
    return Call("POST", "/data", _nothing, params, {"Content-Type": MEDIA_TYPES["ntriples"]}, lines, DataError)


def _sparql(text: str, answer: Callable[[Reply], T]) -> Call[T]:
    headers = {"Accept": f"{_TABLE}, {_GRAPH};q=0.9"}
    source = Source(text)
    if len(text) <= _URL:
        return Call("GET", "/sparql", answer, {"query": text}, headers, fault=QueryError, source=source)
    headers["Content-Type"] = "application/sparql-query"
    return Call("POST", "/sparql", answer, {}, headers, text.encode(), QueryError, source)


# ---------------------------------------------------------------- the service


def status() -> Call[dict[str, Any]]:
    return Call("GET", "/", _object)


def checkpoint() -> Call[dict[str, Any]]:
    return Call("POST", "/checkpoint", _object)


# ---------------------------------------------------------------- names and texts


def name_of(query: object) -> str:
    """The name of a query: a text, or that of a handle."""
    name = query if isinstance(query, str) else getattr(query, "name", None)
    if not isinstance(name, str) or not name:
        raise CqelsError(f"a query of type {type(query).__name__} is not taken", hint="give its name, or its handle")
    return str(name)


def query_path(name: str) -> str:
    return f"/queries/{quote(name, safe='')}"


def _stream(stream: object) -> str:
    if isinstance(stream, Mapping):
        raise CqelsError("blocks of several streams are not taken at once", hint="push to one stream after the other")
    return f"/streams/{quote(iri_or_name(stream), safe='')}"


def iri_or_name(value: object) -> str:
    """What names a stream or a graph: a short name, an IRI in angle brackets or not, or a term."""
    if isinstance(value, str):
        text = str(value)
    else:
        term = term_of(value)
        text = term.value if isinstance(term, NamedNode) else ""
    text = text[1:-1] if text.startswith("<") and text.endswith(">") else text
    if not text:
        raise CqelsError("a stream has a name", hint="as in push('obs', …), or its IRI")
    return text


def _query_text(query: object) -> tuple[Source, str | None]:
    """The text of a query and where it is, and the name of its file."""
    if not isinstance(query, str | os.PathLike):
        hint = "give its text, or the path of a file with it"
        raise QueryError(f"a query of type {type(query).__name__} is not taken", hint=hint)
    text = str(os.fspath(query))
    if isinstance(query, str) and not _is_file(text, ".rq"):
        return Source(text), None
    path = Path(text)
    return Source(_read(path, "utf-8-sig"), text), path.stem


def _is_file(text: str, ending: str) -> bool:
    return text.endswith(ending) and "\n" not in text and "{" not in text


def _read(path: Path, encoding: str = "utf-8") -> str:
    try:
        return path.read_text(encoding=encoding)
    except UnicodeDecodeError as error:
        raise CqelsError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise CqelsError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _name_of(text: str, options: Mapping[str, str]) -> str:
    """The same query has the same name, so that a program that registers it again goes on with it."""
    content = json.dumps([text, sorted(options.items())]).encode()
    return f"query-{blake2s(content, digest_size=5).hexdigest()}"


def _word(word: str, value: Any) -> str:
    """A value of a stream's declaration as the service wants it: texts."""
    if word in ("lateness", "idle"):
        if isinstance(value, timedelta):
            return format_duration(value // timedelta(microseconds=1) * 1_000)
        return format_duration(value) if isinstance(value, int) else str(value)
    if word == "template":
        text = os.fspath(value)
        return _read(Path(text)) if isinstance(value, os.PathLike) or _is_file(text, ".toml") else text
    return iri_or_name(value) if word == "time" else str(value)


# ---------------------------------------------------------------- answers


def _nothing(reply: Reply) -> None:
    return None


def _none(reply: Reply) -> None:
    return None


def _text(reply: Reply) -> str:
    return reply.body.decode().removesuffix("\n")


def _object(reply: Reply) -> dict[str, Any]:
    found = reply.json()
    if not isinstance(found, dict):
        raise CqelsError("the answer is not that of a service of cqels", hint="is this its address?")
    return found


def _pushed(reply: Reply) -> Pushed:
    found = _object(reply)
    return Pushed(int(found["accepted"]), int(found.get("rejected", 0)), tuple(found.get("errors", ())))


def _rejected(reply: Reply) -> Pushed | None:
    """What became of elements that were all rejected, None if the request was at fault."""
    found = problem_of(reply.body)
    return _pushed(reply) if found.get("rejected") and found.get("errors") else None


def _rows(reply: Reply) -> list[Result]:
    found = _table(reply, "select")
    if "results" not in found:
        raise _other_form("an ASK query", "ask")
    names = tuple(found["head"]["vars"])
    rows = found["results"]["bindings"]
    return [Result("query", 0, 0, "", row_of(each, names), variables=names) for each in rows]


def _boolean(reply: Reply) -> bool:
    found = _table(reply, "ask")
    if "boolean" not in found:
        raise _other_form("a SELECT query", "select")
    return bool(found["boolean"])


def _table(reply: Reply, wanted: str) -> dict[str, Any]:
    if _media_type(reply) == _GRAPH:
        raise _other_form("a CONSTRUCT query", "construct")
    return _object(reply)


def _triples(reply: Reply) -> list[Triple]:
    if _media_type(reply) != _GRAPH:
        is_table = "results" in _object(reply)
        raise _other_form("a SELECT query", "select") if is_table else _other_form("an ASK query", "ask")
    made: list[Triple] = []
    for quad in parse(reply.body, RdfFormat.N_TRIPLES):
        subject, value = quad.subject, quad.object
        assert isinstance(subject, NamedNode | BlankNode)
        assert isinstance(value, NamedNode | BlankNode | Literal)
        made.append((subject, quad.predicate, value))
    return made


def _media_type(reply: Reply) -> str:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _other_form(what: str, method: str) -> CqelsError:
    return CqelsError(f"this is {what}", hint=f"client.{method}(…) has its answer")
