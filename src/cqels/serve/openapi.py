"""What the service offers over HTTP, as data: `OPERATIONS`, and their description in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cqels.model.release import RELEASE
from cqels.serve.access import Right
from cqels.serve.openapi_schemas import SCHEMAS, example_of
from cqels.serve.problems import MEDIA_TYPE, TITLES
from cqels.serve.push_formats import MEDIA_TYPES

JSON, TEXT, FORM = "application/json", "text/plain", "application/x-www-form-urlencoded"
QUERY, UPDATE = "application/sparql-query", "application/sparql-update"
TABLES = (
    "application/sparql-results+json",
    "application/json",
    "application/sparql-results+xml",
    "text/csv",
    "text/tab-separated-values",
)
GRAPHS = ("text/turtle", "application/n-triples", "application/rdf+xml", "application/ld+json")
DATASETS = (*GRAPHS, "application/trig", "application/n-quads")
RESULTS = ("text/event-stream", "application/x-ndjson", JSON, TABLES[0])
_METRICS = ("text/plain", "application/openmetrics-text")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query string, or a header."""

    name: str
    about: str
    schema: Mapping[str, Any]
    place: str = "query"
    is_needed: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation gives if all is well: media types, and the schema of what is JSON."""

    about: str
    media_types: tuple[str, ...] = ()
    schema: str | None = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path."""

    method: str
    path: str
    """As in OpenAPI: with {name}."""
    id: str
    right: Right | None
    """That the token needs, if the service has tokens."""
    about: str
    answers: Mapping[int, Answer]
    errors: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: tuple[str, ...] = ()
    """The media types that are taken."""
    schema: str | None = None
    """Of a body that is JSON or a form; of others it is a text."""
    needs_body: bool = True
    streams: bool = False
    """It goes on: browsers ask for it without headers of their own."""
    more: str = ""
    """Sentences below the first."""

    @property
    def refusals(self) -> tuple[int, ...]:
        """All errors: those of its own, and what comes of tokens, sizes, limits and the service's end."""
        common = {400, 414, 503} | ({401, 403, 429} if self.right is not None else set())
        sizes = {408, 413} if self.body else set()
        return tuple(sorted(common | sizes | {*self.errors}))

    @property
    def is_named(self) -> bool:
        return "{name}" in self.path


_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
_DURATION: dict[str, Any] = {"$ref": "#/components/schemas/Duration"}
_IRI: dict[str, Any] = {"type": "string", "format": "iri", "minLength": 1}
_IRIS: dict[str, Any] = {"type": "array", "items": _IRI}
_NAME = Parameter("name", "A name, below the service's base, or an IRI.", {"$ref": "#/components/schemas/Name"}, "path")
_WORDS: dict[str, tuple[str, str]] = {
    "dialect": ("Dialect", "Insist on a dialect; by default the query's own words tell which it is."),
    "emit": ("Emission", "What is sent of the query's answer; by default the query tells."),
    "policy": ("Policy", "When a query is evaluated; by default the dialect tells."),
    "memory": ("Size", "Memory that the query may use; it is stopped when it takes more."),
    "time": ("Spent", "Time that the query may need for a batch; it is stopped when it takes more."),
}
_REGISTERED = tuple(
    Parameter(word, about, {"$ref": f"#/components/schemas/{schema}"}) for word, (schema, about) in _WORDS.items()
)
_RESULTS = (
    Parameter("after", "The number of the last result that is known: those behind it are sent.", _NUMBER),
    Parameter("from", "Where results begin, if `after` is not given.", {"type": "string", "enum": ["now", "start"]}),
    Parameter("limit", "How many results are sent.", _NUMBER | {"minimum": 1}),
    Parameter("wait", "How long the first is waited for, where results do not stream. At most 5 minutes.", _DURATION),
    Parameter(
        "Last-Event-ID",
        "As `after`; EventSource sends it.",
        {"type": "string", "pattern": "^([0-9]{1,18})?$"},
        "header",
    ),
)
_GRAPH = (
    Parameter("graph", "The IRI of a named graph.", _IRI),
    Parameter("default", "The default graph is meant.", {"type": "string", "maxLength": 0}),
)
_DATASET = (
    Parameter("default-graph-uri", "Graphs that are the default graph of the query.", _IRIS),
    Parameter("named-graph-uri", "Named graphs of the query.", _IRIS),
)
_UPDATED = (
    Parameter("using-graph-uri", "Graphs that are the default graph of WHERE.", _IRIS),
    Parameter("using-named-graph-uri", "Named graphs of WHERE.", _IRIS),
)
_ANSWERED = Answer("The answer: a table of SELECT or ASK, or the triples of CONSTRUCT or DESCRIBE.", (*TABLES, *GRAPHS))
_DONE = Answer("It is done, and running queries have seen it.")
_MADE = Answer("The graph is new.")
_PUSHED = tuple(media for media in MEDIA_TYPES if media)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/",
        "status",
        "read",
        "What the service is doing.",
        {200: Answer("Counts and sizes of now.", (JSON,), "Status")},
    ),
    Operation("GET", "/health", "health", None, "Whether the process answers.", {200: Answer("It does.", (TEXT,))}),
    Operation("GET", "/ready", "ready", None, "Whether queries run; 503 if not.", {200: Answer("They do.", (TEXT,))}),
    Operation("GET", "/metrics", "metrics", "read", "Metrics for Prometheus.", {200: Answer("The metrics.", _METRICS)}),
    Operation("GET", "/openapi.json", "openapi", None, "This description.", {200: Answer("OpenAPI 3.1.", (JSON,))}),
    Operation(
        "POST",
        "/checkpoint",
        "checkpoint",
        "admin",
        "Have a snapshot of the state on the disk, now.",
        {200: Answer("It is there.", (JSON,), "Checkpoint")},
    ),
    Operation(
        "GET",
        "/sparql",
        "query",
        "read",
        "Ask a query of the static data.",
        {200: _ANSWERED},
        (406,),
        (Parameter("query", "The query.", _TEXT, is_needed=True), *_DATASET),
        more="SPARQL 1.1 Protocol. A query that reads streams is registered instead.",
    ),
    Operation(
        "POST",
        "/sparql",
        "query_or_update",
        "read",
        "Ask a query of the static data, or change it.",
        {200: _ANSWERED, 204: _DONE},
        (406, 415),
        (*_DATASET, *_UPDATED),
        (QUERY, UPDATE, FORM),
        "SparqlForm",
        more="SPARQL 1.1 Protocol. An update needs the right `admin`. All of its operations take effect, or none.",
    ),
    Operation(
        "GET",
        "/data",
        "get_graph",
        "read",
        "The triples of a graph.",
        {200: Answer("The triples.", GRAPHS)},
        (404, 406),
        _GRAPH,
        more="SPARQL 1.1 Graph Store Protocol: `?default`, or `?graph=` and an IRI.",
    ),
    Operation(
        "PUT",
        "/data",
        "put_graph",
        "admin",
        "Put triples into a graph instead of what it has.",
        {201: _MADE, 204: _DONE},
        (415,),
        _GRAPH,
        DATASETS,
        needs_body=False,
    ),
    Operation(
        "POST",
        "/data",
        "add_to_graph",
        "admin",
        "Add triples to a graph.",
        {201: _MADE, 204: _DONE},
        (415,),
        _GRAPH,
        DATASETS,
        needs_body=False,
        more="Blank nodes are new ones.",
    ),
    Operation("DELETE", "/data", "delete_graph", "admin", "Remove a graph.", {204: _DONE}, (404,), _GRAPH),
    Operation(
        "GET", "/streams", "list_streams", "read", "All streams.", {200: Answer("The streams.", (JSON,), "Streams")}
    ),
    Operation(
        "GET",
        "/streams/{name}",
        "show_stream",
        "read",
        "What a stream is, and what has come to it.",
        {200: Answer("The stream.", (JSON,), "Stream")},
        (404,),
    ),
    Operation(
        "PUT",
        "/streams/{name}",
        "declare_stream",
        "register",
        "Declare a stream.",
        {200: Answer("It was there, the same.", (JSON,), "Stream"), 201: Answer("It is new.", (JSON,), "Stream")},
        (409,),
        body=(JSON,),
        schema="Declaration",
        needs_body=False,
        more="One that is not declared is when it is first used. A stream stays as it is.",
    ),
    Operation(
        "POST",
        "/streams/{name}",
        "push",
        "push",
        "Push elements: one or many.",
        {200: Answer("They are in the durable inbox; some may have been rejected.", (JSON,), "Pushed")},
        (409, 415),
        (
            Parameter(
                "time",
                "When the elements are from, if they do not say so.",
                _TEXT | {"examples": ["2026-11-18T10:00:00Z"]},
            ),
        ),
        _PUSHED,
        more="Without a media type the first bytes tell what it is. 400 with reasons if nothing of it was accepted.",
    ),
    Operation(
        "GET", "/queries", "list_queries", "read", "All queries.", {200: Answer("The queries.", (JSON,), "Queries")}
    ),
    Operation(
        "GET",
        "/queries/{name}/results",
        "results",
        "read",
        "Results of a query, as they come, or those that there are.",
        {
            200: Answer(
                "The results: a stream of events or lines that goes on, or one answer.",
                RESULTS,
                "Results",
                ("Cqels-Last-Id", "Cqels-Missed"),
            )
        },
        (404, 406),
        _RESULTS,
        streams=True,
        more="A reader goes on with `Last-Event-ID` or `after`, and is told how many results it has missed.",
    ),
    Operation(
        "GET",
        "/queries/{name}/explain",
        "explain",
        "read",
        "The plan of a query, with what it has done.",
        {200: Answer("The plan.", (TEXT, JSON))},
        (404,),
        (Parameter("format", "How it is written.", {"type": "string", "enum": ["text", "json", "mermaid"]}),),
    ),
    Operation(
        "GET",
        "/queries/{name}",
        "show_query",
        "read",
        "What a query is.",
        {200: Answer("The query.", (JSON,), "Query")},
        (404,),
    ),
    Operation(
        "PUT",
        "/queries/{name}",
        "register",
        "register",
        "Run a query, instead of one that has the name.",
        {
            200: Answer("It was there, or it replaces one.", (JSON,), "Registered"),
            201: Answer("It is new.", (JSON,), "Registered"),
        },
        (409,),
        _REGISTERED,
        (QUERY,),
        more="`state` says what happens to the state: `new`, `kept` if the text is the same, `anew` if windows begin "
        "again. Any media type is taken, and streams that are not there are declared.",
    ),
    Operation(
        "DELETE",
        "/queries/{name}",
        "drop",
        "register",
        "Run a query no more.",
        {204: Answer("It is gone.")},
        (404, 409),
    ),
)
"""In the order in which they are described."""

_REASONS = {
    400: "The request is malformed, and `detail` says where.",
    401: "There is no token, or none that is known.",
    403: "The token has not the right that is needed.",
    404: "What is named is not there.",
    406: "Nothing of what is accepted can be sent.",
    408: "The body does not come.",
    409: "It does not go together with what is there.",
    413: "The body is too large.",
    414: "The path and its parameters are too long.",
    415: "The media type is not taken.",
    429: "More comes than can be taken now: `Retry-After` says when to try again.",
    503: "The service ends, or too much is open.",
}
_HEADERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "Retry-After": ("Seconds after which to try again.", {"type": "integer", "minimum": 0}),
    "WWW-Authenticate": ("How a token is given: `Bearer`.", {"type": "string"}),
    "Cqels-Last-Id": ("The number of the last result that was sent: what `after` is next.", {"type": "integer"}),
    "Cqels-Missed": ("Results that are no longer there.", {"type": "integer", "minimum": 1}),
}
_OF_ERROR = {401: ("WWW-Authenticate",), 403: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}
_ABOUT = """Continuous SPARQL queries over RDF streams, as a service.

A stream or query that is named without a scheme is that name below the service's base IRI. Errors are problem details
(RFC 9457): `detail` is a sentence, `hint` says what helps. A method that a path does not have is answered with 405 and
the header `Allow`, a path that there is not with 404. Parameters that there are not are refused.

Over WebSocket, `/streams/{name}` takes a push in each message and answers each with one, and `/queries/{name}/results`
sends a message for each result."""


def description(base: str) -> dict[str, Any]:
    """The description of a service whose names are below `base`."""
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        path = paths.setdefault(each.path, {"parameters": [_parameter(_NAME)]} if each.is_named else {})
        path[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "cqels", "version": RELEASE, "description": f"{_ABOUT}\n\nNames are below `{base}`."},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(map(_tag, OPERATIONS))],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "Needed if the service has tokens."},
                "parameter": {
                    "type": "apiKey",
                    "in": "query",
                    "name": "access_token",
                    "description": "The token for EventSource and WebSocket of browsers, which send no header.",
                },
            },
            "schemas": SCHEMAS,
            "headers": {name: {"description": about, "schema": schema} for name, (about, schema) in _HEADERS.items()},
            "responses": {_named(status): _problem(status) for status in _REASONS},
        },
    }


def _operation(each: Operation) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": each.id, "summary": each.about, "tags": [_tag(each)]}
    if each.more:
        made["description"] = each.more
    if each.parameters:
        made["parameters"] = [_parameter(parameter) for parameter in each.parameters]
    if each.body:
        content = {media: _content(media, each.schema, each.id) for media in each.body}
        made["requestBody"] = {"required": each.needs_body, "content": content}
    made["responses"] = {str(status): _answer(each, answer) for status, answer in each.answers.items()} | {
        str(status): {"$ref": f"#/components/responses/{_named(status)}"} for status in each.refusals
    }
    if each.right is not None:
        made["security"] = [{scheme: [each.right]} for scheme in ("bearer", *(["parameter"] if each.streams else []))]
    return made


def _parameter(each: Parameter) -> dict[str, Any]:
    is_needed = each.is_needed or each.place == "path"
    return {
        "name": each.name,
        "in": each.place,
        "description": each.about,
        "required": is_needed,
        "schema": each.schema,
    }


def _answer(operation: Operation, answer: Answer) -> dict[str, Any]:
    made: dict[str, Any] = {"description": answer.about}
    if answer.headers:
        made["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in answer.headers}
    if answer.media_types:
        made["content"] = {media: _content(media, answer.schema, operation.id) for media in answer.media_types}
    return made


def _content(media: str, schema: str | None, use: str) -> dict[str, Any]:
    """What a media type has in it: JSON and forms have a schema, what streams has examples, others are texts."""
    found = example_of(media, use)
    made: dict[str, Any] = {} if found is None else {"example": found}
    if schema is not None and media in (JSON, FORM):
        return {"schema": {"$ref": f"#/components/schemas/{schema}"}} | made
    if media.endswith("json") and media != "application/x-ndjson":
        return {"schema": {}} | made
    return {"schema": {"type": "string"}} | made


def _problem(status: int) -> dict[str, Any]:
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in _OF_ERROR.get(status, ())}
    schema = {"$ref": "#/components/schemas/Problem"}
    made: dict[str, Any] = {"description": _REASONS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
    return made | ({"headers": headers} if headers else {})


def _named(status: int) -> str:
    return TITLES.get(status, str(status)).title().replace(" ", "")


def _tag(each: Operation) -> str:
    first = each.path.split("/")[1]
    return {"streams": "streams", "queries": "queries", "sparql": "static data", "data": "static data"}.get(
        first, "service"
    )
