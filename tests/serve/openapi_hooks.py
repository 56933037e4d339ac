"""What schemathesis sends where a schema cannot say it: queries, updates and RDF. It is loaded by its process alone."""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.core.parameters import ParameterLocation

EX = "http://ex.org/"
_ASKED = ["SELECT * WHERE { ?s ?p ?o }", "ASK { ?s ?p ?o }", "CONSTRUCT WHERE { ?s ?p ?o }"]
_VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=10)
_TRIPLES = st.builds('<{}s> <{}p> "{}" .'.format, st.just(EX), st.just(EX), _VALUES)
_RECORDS = ("application/x-ndjson", "application/jsonl", "text/csv")
"""What only a stream with a lifting template takes: the test has declared one."""
_LINKED = st.fixed_dictionaries({"@id": st.just(f"{EX}s"), f"{EX}p": _VALUES}).map(json.dumps)
_BODIES = {
    "application/sparql-query": st.sampled_from(_ASKED),
    "application/sparql-update": st.builds("INSERT DATA {{ {} }}".format, _TRIPLES),
    "text/turtle": _TRIPLES,
    "application/x-turtle": _TRIPLES,
    "application/n-triples": st.lists(_TRIPLES, min_size=1, max_size=3).map("\n".join),
    "application/n-quads": _TRIPLES,
    "application/trig": _TRIPLES,
    "application/rdf+xml": st.just('<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>'),
    "application/ld+json": _LINKED,
    "application/x-ndjson": st.just('{"id": "a", "v": 1}\n{"id": "b", "v": 2}'),
    "application/jsonl": st.just('{"id": "a", "v": 1}'),
    "text/csv": st.just("id,v\na,1\nb,2\n"),
    "text/plain": _TRIPLES,
    "application/octet-stream": _TRIPLES,
}


for _media, _strategy in _BODIES.items():
    schemathesis.openapi.media_type(_media, _strategy.map(str.encode))


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Leave out names that are none: an array in a path is a text as any other, and a name."""
    path = None if case.meta is None else case.meta.components.get(ParameterLocation.PATH)
    return path is None or path.mode.is_positive


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:
    """Say what schemas cannot: which parameters go together, and which texts are queries and times."""
    path = case.operation.path
    if path == "/queries/{name}/results":  # those that are there: a stream of those to come does not end
        case.headers["Accept"] = "application/json"
        if "wait" in (case.query or {}):
            case.query = {**case.query, "wait": "0s" if case.query["wait"] == "30s" else case.query["wait"]}
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return case
    query = dict(case.query or {})
    if path == "/queries/{name}/results":
        query["wait"] = "0s"
    if path == "/data" and ("graph" in query) == ("default" in query):
        query = {"default": ""}
    if path == "/sparql":
        query = _of_sparql(case, query)
    if path == "/streams/{name}" and case.method == "POST":
        if "time" in query:
            query["time"] = "2026-01-01T00:00:00Z"
        if case.media_type in _RECORDS:
            case.path_parameters["name"] = "records"
        if case.media_type in ("application/json", "application/x-www-form-urlencoded"):
            case.body = {"@id": f"{EX}s", f"{EX}p": 1}
            case.path_parameters["name"] = "linked"
    if path == "/streams/{name}" and case.method == "PUT" and isinstance(case.body, dict) and case.body.get("template"):
        case.body = {**case.body, "template": None}
    case.query = query
    return case


def _of_sparql(case: Any, query: dict[str, Any]) -> dict[str, Any]:
    """A query has other parameters than an update."""
    wanted = {"default-graph-uri", "named-graph-uri"}
    if case.method == "GET":
        return {"query": _ASKED[len(query) % len(_ASKED)]} | {name: query[name] for name in wanted & {*query}}
    if case.media_type == "application/x-www-form-urlencoded":
        case.body = {"query": _ASKED[0]} if len(query) % 2 else {"update": "CLEAR DEFAULT"}
        is_update = "update" in case.body
    else:
        is_update = case.media_type == "application/sparql-update"
    wanted = {"using-graph-uri", "using-named-graph-uri"} if is_update else wanted
    return {name: query[name] for name in wanted & {*query}}
