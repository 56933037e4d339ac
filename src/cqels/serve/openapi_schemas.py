"""The schemas of what the service takes and gives as JSON, with examples."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from cqels.model.choices import Dialect, Emission, Overflow, Policy
from cqels.serve.served_stream import Clock, ServedStream

_TEXT: dict[str, Any] = {"type": "string"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_ABOUT_STREAM: dict[str, tuple[dict[str, Any], str]] = {
    "clock": (
        {"enum": [*get_args(Clock)]},
        "The time of an element: the one that it carries, and when it arrived if it carries none; or always when it "
        "arrived.",
    ),
    "lateness": ({"$ref": "#/components/schemas/Duration"}, "How late an element may be."),
    "idle": ({"$ref": "#/components/schemas/Duration"}, "After how long a silent stream is not waited for."),
    "time": ({"type": ["string", "null"], "format": "iri"}, "The predicate whose object is the time of an element."),
    "unit": ({"enum": ["ns", "us", "ms", "s", "m", "h", "d", "w"]}, "What times that are integers count."),
    "template": ({"type": ["string", "null"]}, "The lifting template of CSV and JSON, as the text of its file."),
    "overflow": ({"enum": [*get_args(Overflow)]}, "What happens to more elements than the inbox takes."),
    "inbox": ({"$ref": "#/components/schemas/Size"}, "Bytes of elements that wait to be processed at most."),
}
_PUSHED_ERROR = {
    "type": "object",
    "required": ["at", "reason", "text"],
    "properties": {
        "at": _TEXT | {"description": "The line or record of the body, where that is known."},
        "reason": _TEXT,
        "text": _TEXT | {"description": "The beginning of it."},
    },
}
_COUNTED = {
    "accepted": _COUNT | {"description": "Elements that are in the durable inbox."},
    "rejected": _COUNT,
    "errors": {"type": "array", "items": _PUSHED_ERROR, "description": "The first of what was rejected."},
}
_TERM = {
    "type": "object",
    "required": ["type", "value"],
    "properties": {
        "type": {"enum": ["uri", "literal", "bnode"]},
        "value": _TEXT,
        "xml:lang": _TEXT,
        "datatype": _TEXT,
    },
}
_RESULT = {
    "type": "object",
    "required": ["id", "time"],
    "properties": {
        "id": _TEXT | {"description": "The name of the query, and the number of the result."},
        "query": _TEXT,
        "time": _TEXT,
        "tick": {"type": "integer"},
        "sign": {"enum": ["+", "-"]},
        "bindings": {"type": "object", "additionalProperties": _TERM},
    },
    "examples": [
        {
            "id": "hot/7",
            "query": "hot",
            "time": "2026-11-18T10:00:02Z",
            "tick": 41,
            "bindings": {"room": {"type": "uri", "value": "http://ex.org/kitchen"}},
        }
    ],
}
_OF_QUERY: dict[str, Any] = {
    "name": _TEXT,
    "iri": _TEXT,
    "form": {"enum": ["select", "construct", "ask"]},
    "variables": {"type": "array", "items": _TEXT},
    "emit": {"enum": [*get_args(Emission)]},
    "policy": {"enum": [*get_args(Policy)]},
    "dialect": {"type": ["string", "null"]},
    "text": {"type": ["string", "null"]},
    "streams": {"type": "array", "items": _TEXT},
    "results": _COUNT | {"description": "How many it has sent: the number of the next."},
    "stopped": {"type": ["string", "null"], "description": "Why it was stopped, if it took more than its budget."},
}
_OF_STREAM = {"name": _TEXT, "iri": _TEXT, "waiting": _COUNT, "counts": {"type": "object"}}


def _defaults() -> dict[str, Any]:
    """The words of a declaration, each with what it is if it is left out."""
    made = {}
    for each in fields(ServedStream):
        schema, about = _ABOUT_STREAM[each.name]
        made[each.name] = schema | {"description": about, "default": each.default}
    return made


def _object(properties: dict[str, Any], *needed: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*(needed or properties)], "properties": properties, **more}


SCHEMAS: dict[str, Any] = {
    "Name": {
        "type": "string",
        "minLength": 1,
        "pattern": r"^[A-Za-z0-9_~-][A-Za-z0-9._~-]*$",
        "description": "A name, or an IRI with its characters percent-encoded.",
        "examples": ["hot", "http://ex.org/streams/obs"],
    },
    "Duration": {
        "type": "string",
        "pattern": r"^[0-9]{1,5}(ms|s|m|h|d)$",
        "examples": ["30s", "500ms"],
    },
    "Spent": {"type": "string", "pattern": r"^[1-9][0-9]{0,5}(ms|s)$", "examples": ["50ms"]},
    "Size": {"type": "string", "pattern": r"^[1-9][0-9]{0,2}(MB|GB)$", "examples": ["64MB", "1GB"]},
    "Dialect": {"type": "string", "enum": [*get_args(Dialect)]},
    "Emission": {"type": "string", "enum": [*get_args(Emission)]},
    "Policy": {"type": "string", "enum": [*get_args(Policy)]},
    "Declaration": {
        "type": "object",
        "properties": _defaults(),
        "additionalProperties": False,
        "examples": [{"clock": "arrival"}, {"lateness": "2s", "unit": "s"}],
    },
    "Stream": _object(
        _OF_STREAM
        | {name: {key: value for key, value in each.items() if key != "default"} for name, each in _defaults().items()},
        *_OF_STREAM,
        "clock",
    ),
    "Streams": _object({"streams": {"type": "array", "items": {"$ref": "#/components/schemas/Stream"}}}),
    "Pushed": _object(
        _COUNTED,
        "accepted",
        "rejected",
        examples=[
            {"accepted": 2, "rejected": 0},
            {
                "accepted": 1,
                "rejected": 1,
                "errors": [{"at": "line 2", "reason": "the line has no timestamp", "text": "<a:s> <a:p> 1 ."}],
            },
        ],
    ),
    "Query": _object(_OF_QUERY),
    "Registered": _object(
        _OF_QUERY
        | {
            "state": {"enum": ["new", "kept", "anew"], "description": "What happens to the state of the query."},
            "declared": {"type": "array", "items": _TEXT, "description": "The streams that are new with it."},
            "warnings": {"type": "array", "items": _TEXT},
        }
    ),
    "Queries": _object({"queries": {"type": "array", "items": {"$ref": "#/components/schemas/Query"}}}),
    "Result": _RESULT,
    "Results": _object(
        {
            "results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}},
            "last": {"type": "integer", "minimum": -1, "description": "The number of the last of them."},
            "missed": _COUNT | {"description": "Results before them that are no longer there."},
        }
    ),
    "SparqlForm": {
        "description": "A query or an update.",
        "type": "object",
        "properties": {
            "query": _TEXT,
            "default-graph-uri": {"type": "array", "items": _TEXT},
            "named-graph-uri": {"type": "array", "items": _TEXT},
            "update": _TEXT,
            "using-graph-uri": {"type": "array", "items": _TEXT},
            "using-named-graph-uri": {"type": "array", "items": _TEXT},
        },
        "additionalProperties": False,
    },
    "Checkpoint": _object({"batch": {"type": "integer"}, "snapshot_bytes": _COUNT}),
    "Status": _object(
        {
            "service": {"const": "cqels"},
            "release": _TEXT,
            "base": _TEXT,
            "uptime": {"type": "number", "minimum": 0},
            "queries": _COUNT,
            "streams": _COUNT,
            "watermark": {"type": ["string", "null"]},
            "links": {"type": "object", "additionalProperties": _TEXT},
        }
    ),
    "Problem": _object(
        {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": _TEXT | {"description": "What is wrong, as a sentence."},
            "hint": _TEXT | {"description": "What helps."},
            "text": _TEXT | {"description": "The place in the query, and the hint, as a terminal shows them."},
            **_COUNTED,
        },
        "type",
        "title",
        "status",
        "detail",
        examples=[
            {
                "type": "about:blank",
                "title": "Not found",
                "status": 404,
                "detail": "there is no query hto",
                "hint": "did you mean hot?",
            }
        ],
    ),
}

_TRIPLE = "<http://ex.org/s1> <http://ex.org/temp> "
_QUERY = "SELECT ?room ?t WHERE { STREAM <obs> [RANGE 10s] { ?s <http://ex.org/temp> ?t } ?s <http://ex.org/in> ?room }"
_PUSHED: dict[str, Any] = {
    "application/n-triples": f'{_TRIPLE}"31" 1000 .\n{_TRIPLE}"33" 2000 .\n',
    "application/n-quads": f'{_TRIPLE}"31" <http://ex.org/g1> .\n',
    "text/turtle": f"{_TRIPLE}31 .",
    "application/x-turtle": f"{_TRIPLE}31 .",
    "application/trig": "<http://ex.org/g1> { <http://ex.org/s1> <http://ex.org/temp> 31 }",
    "application/ld+json": {"@id": "http://ex.org/s1", "http://ex.org/temp": 31},
    "application/json": {"@id": "http://ex.org/s1", "http://ex.org/temp": 31},
    "application/x-ndjson": '{"sensor": "s1", "temp": 31}\n{"sensor": "s2", "temp": 33}\n',
    "application/jsonl": '{"sensor": "s1", "temp": 31}\n',
    "text/csv": "sensor,temp\ns1,31\ns2,33\n",
    "text/plain": f"{_TRIPLE}31 1000 .",
    "application/octet-stream": f"{_TRIPLE}31 1000 .",
    "application/x-www-form-urlencoded": f"{_TRIPLE}31 1000 .",
}
_GRAPH: dict[str, Any] = {
    "text/turtle": "<http://ex.org/s1> <http://ex.org/in> <http://ex.org/kitchen> .",
    "application/n-triples": "<http://ex.org/s1> <http://ex.org/in> <http://ex.org/kitchen> .\n",
    "application/ld+json": {"@id": "http://ex.org/s1", "http://ex.org/in": {"@id": "http://ex.org/kitchen"}},
}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "push": _PUSHED,
    "put_graph": _GRAPH,
    "add_to_graph": _GRAPH,
    "get_graph": _GRAPH,
    "register": {"application/sparql-query": _QUERY},
    "query_or_update": {
        "application/sparql-query": "SELECT * WHERE { ?s ?p ?o } LIMIT 10",
        "application/sparql-update": "INSERT DATA { <http://ex.org/s1> <http://ex.org/in> <http://ex.org/kitchen> }",
        "application/x-www-form-urlencoded": {"query": "ASK { ?s ?p ?o }"},
    },
    "results": {
        "text/event-stream": 'id: 7\ndata: {"id": "hot/7", "query": "hot", …}\n\n',
        "application/x-ndjson": '{"id": "hot/7", "query": "hot", …}\n',
    },
}


def example_of(media_type: str, use: str) -> Any:
    """An example of a body, None if there is none."""
    return _EXAMPLES.get(use, {}).get(media_type)
