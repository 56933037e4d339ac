"""The static data over HTTP: SPARQL 1.1 Protocol and Graph Store Protocol."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections.abc import Sequence
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape, quoteattr

from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad, RdfFormat, Triple, serialize
from starlette.requests import Request
from starlette.responses import Response

from cqels.ingest.parse_errors import UNREADABLE, check_nesting, quads_of, reason_of, triple_of
from cqels.model.errors import DataError
from cqels.model.terms import Term
from cqels.plan.algebra import Query
from cqels.results import Result
from cqels.results.result import json_term
from cqels.serve.problems import Problem
from cqels.serve.requests import accepted, body_of, refuse_others, require
from cqels.serve.service import NotFound, Service
from cqels.serve.xml_entities import check_entities

SPARQL_JSON = "application/sparql-results+json"
SPARQL_XML = "application/sparql-results+xml"
TABLES = (SPARQL_JSON, "application/json", SPARQL_XML, "text/csv", "text/tab-separated-values")
GRAPHS = {
    "text/turtle": RdfFormat.TURTLE,
    "application/n-triples": RdfFormat.N_TRIPLES,
    "application/rdf+xml": RdfFormat.RDF_XML,
    "application/ld+json": RdfFormat.JSON_LD,
}
_READ = GRAPHS | {"application/trig": RdfFormat.TRIG, "application/n-quads": RdfFormat.N_QUADS}
_FORM = "application/x-www-form-urlencoded"
QUERY, UPDATE = "application/sparql-query", "application/sparql-update"
_MOST_FIELDS = 100
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_KEPT = {"\r": "&#13;"}
"""What a reader of XML would change."""
_QUERY_WORDS = ("query", "default-graph-uri", "named-graph-uri")
_UPDATE_WORDS = ("update", "using-graph-uri", "using-named-graph-uri")


class DatasetRoutes:
    """Handlers of requests about the static data."""

    def __init__(self, service: Service, most_body: int) -> None:
        self._service, self._most = service, most_body

    # ------------------------------------------------------------ SPARQL protocol

    async def ask(self, request: Request) -> Response:
        """GET /sparql: a query in the query string."""
        return await self._answer(request, request.query_params.multi_items())

    async def post(self, request: Request) -> Response:
        """POST /sparql: a query or an update, as a form or by itself; the latter needs another right."""
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        given = request.query_params.multi_items()
        if media == _FORM:
            body = await body_of(request, self._most)
            try:
                form = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
            except ValueError as error:
                reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it has too many fields"
                raise Problem(400, f"the body is not a form: {reason}") from None
            given = [*given, *form]
            if any(name == "update" for name, _ in given):
                require(request, "admin")
                return await self._update(given)
            return await self._answer(request, given)
        if media not in (QUERY, UPDATE):
            raise Problem(
                415, f"the media type '{media[:100]}' is not taken", hint=f"there are {QUERY}, {UPDATE}, {_FORM}"
            )
        if media == UPDATE:
            require(request, "admin")
        try:
            text = (await body_of(request, self._most)).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise Problem(400, "the body is not UTF-8") from None
        if media == UPDATE:
            return await self._update([*given, ("update", text)])
        return await self._answer(request, [*given, ("query", text)])

    async def _answer(self, request: Request, given: Sequence[tuple[str, str]]) -> Response:
        text = _once(given, _QUERY_WORDS, "query")
        default, named = _graphs_of(given, _QUERY_WORDS)
        query, results = await asyncio.to_thread(self._service.ask, text, default, named)
        if query.form == "construct":
            media = accepted(request, [*GRAPHS])
            triples = {Triple(*triple) for result in results for triple in result.triples}
            return Response(_graph(triples, media), media_type=media)
        media = accepted(request, TABLES)
        return Response(table(query, results, media), media_type=media)

    async def _update(self, given: Sequence[tuple[str, str]]) -> Response:
        text = _once(given, _UPDATE_WORDS, "update")
        default, named = _graphs_of(given, _UPDATE_WORDS)
        await asyncio.to_thread(self._service.update, text, default, named)
        return Response(status_code=204)

    # ------------------------------------------------------------ Graph Store Protocol

    async def get_graph(self, request: Request) -> Response:
        graph = self._graph(request)
        media = accepted(request, [*GRAPHS])
        store = self._service.store

        def read() -> bytes:
            if not store.has_graph(graph):
                raise NotFound(f"there is no graph {graph}")
            return _graph({Triple(*each) for each in store.triples(graph)}, media)

        return Response(await asyncio.to_thread(read), media_type=media)

    async def put_graph(self, request: Request) -> Response:
        return await self._write_graph(request, add=False)

    async def post_graph(self, request: Request) -> Response:
        return await self._write_graph(request, add=True)

    async def _write_graph(self, request: Request, *, add: bool) -> Response:
        graph = self._graph(request)
        media = request.headers.get("content-type", "text/turtle").partition(";")[0].strip().lower()
        if media not in _READ:
            raise Problem(415, f"the media type '{media[:100]}' is not taken", hint=f"there are {', '.join(_READ)}")
        body = await body_of(request, self._most)

        def write() -> bool:
            return self._service.replace_graph(graph, self._quads(body, media, graph), add=add)

        is_new = await asyncio.to_thread(write)
        return Response(status_code=201 if is_new else 204)

    def _quads(self, body: bytes, media: str, graph: NamedNode | None) -> list[Quad]:
        """The triples of a body, all of them for one graph; its blank nodes are none of those that there are."""
        target, format = graph or DefaultGraph(), _READ[media]
        base = self._service.names.base if graph is None else graph.value
        if format == RdfFormat.RDF_XML:
            check_entities(body)
        try:
            check_nesting(body, format)
            found = [(triple_of(each), each.graph_name) for each in quads_of(body, format, base, rename=True)]
        except (*UNREADABLE, OSError) as error:
            line = error.lineno if isinstance(error, SyntaxError) else None
            place = f", line {line}" if line else ""
            raise DataError(f"the body is not {media}{place}: {reason_of(error)}") from None
        for _, name in found:
            if name not in (target, DefaultGraph()):
                raise DataError(f"the body has triples of another graph: {name}", hint="a request is about one graph")
        return [Quad(*triple, target) for triple, _ in found]

    async def delete_graph(self, request: Request) -> Response:
        await asyncio.to_thread(self._service.drop_graph, self._graph(request))
        return Response(status_code=204)

    def _graph(self, request: Request) -> NamedNode | None:
        """The graph that a request is about."""
        refuse_others(request, ("graph", "default"))
        graphs, defaults = (request.query_params.getlist(word) for word in ("graph", "default"))
        if len(graphs) + len(defaults) != 1:
            raise Problem(400, "a request is about one graph", hint="?default, or ?graph=IRI")
        if any(defaults):
            raise Problem(400, "the parameter default has no value", hint="?default, or ?graph=IRI")
        return None if defaults else NamedNode(_iris(graphs)[0])


def _once(given: Sequence[tuple[str, str]], words: Sequence[str], word: str) -> str:
    for name, _ in given:
        if name not in words:
            raise Problem(400, f"there is no parameter '{name[:40]}'", hint=f"there are: {', '.join(words)}")
    values = [value for name, value in given if name == word]
    if len(values) != 1:
        raise Problem(400, f"the parameter {word} is given {len(values)} times, and is needed once")
    return values[0]


def _graphs_of(given: Sequence[tuple[str, str]], words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The default and the named graphs of the dataset, which a request says beside its text."""
    default, named = ([value for name, value in given if name == word] for word in words[1:])
    return _iris(default), _iris(named)


def _iris(texts: Sequence[str]) -> list[str]:
    for text in texts:
        try:
            NamedNode(text)
        except ValueError:
            raise Problem(400, f"'{text[:100]}' is not an IRI") from None
    return list(texts)


def _graph(triples: set[Triple], media: str) -> bytes:
    return serialize(triples, format=GRAPHS[media]) or b""


# ---------------------------------------------------------------- tables


def table(query: Query, results: Sequence[Result], media: str) -> bytes:
    """The answer of SELECT or ASK in a format of SPARQL 1.1."""
    if query.form == "ask":
        answer = bool(results and results[-1].boolean)
        if media == SPARQL_XML:
            return _xml(f"<head/><boolean>{str(answer).lower()}</boolean>")
        if media in (SPARQL_JSON, "application/json"):
            return json.dumps({"head": {}, "boolean": answer}).encode()
        return str(answer).lower().encode()
    names, rows = query.variables, [each.values for each in results if not each.empty]
    if media == SPARQL_XML:
        head = "".join(f"<variable name={quoteattr(name)}/>" for name in names)
        body = "".join(f"<result>{_xml_row(names, row)}</result>" for row in rows)
        return _xml(f"<head>{head}</head><results>{body}</results>")
    if media == "text/csv":
        stream = io.StringIO(newline="")
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows([["" if term is None else _plain(term) for term in row] for row in rows])
        return stream.getvalue().encode()
    if media == "text/tab-separated-values":
        lines = ["\t".join(f"?{name}" for name in names)]
        lines += ["\t".join("" if term is None else str(term) for term in row) for row in rows]
        return ("\n".join(lines) + "\n").encode()
    bindings = [
        {name: json_term(term) for name, term in zip(names, row, strict=True) if term is not None} for row in rows
    ]
    return json.dumps({"head": {"vars": [*names]}, "results": {"bindings": bindings}}, ensure_ascii=False).encode()


def _xml(inner: str) -> bytes:
    if (found := _NOT_XML.search(inner)) is not None:
        raise Problem(406, f"the answer has the character U+{ord(found[0]):04X}, which XML has not", hint=SPARQL_JSON)
    return f'<?xml version="1.0"?>\n<sparql xmlns="http://www.w3.org/2005/sparql-results#">{inner}</sparql>\n'.encode()


def _xml_row(names: Sequence[str], row: Sequence[Term | None]) -> str:
    pairs = ((name, term) for name, term in zip(names, row, strict=True) if term is not None)
    return "".join(f"<binding name={quoteattr(name)}>{_xml_term(term)}</binding>" for name, term in pairs)


def _xml_term(term: Term) -> str:
    match term:
        case NamedNode():
            return f"<uri>{escape(term.value)}</uri>"
        case BlankNode():
            return f"<bnode>{escape(term.value)}</bnode>"
        case Literal():
            kind = ""
            if term.language:
                kind = f" xml:lang={quoteattr(term.language)}"
            elif term.datatype.value != "http://www.w3.org/2001/XMLSchema#string":
                kind = f" datatype={quoteattr(term.datatype.value)}"
            return f"<literal{kind}>{escape(term.value, _KEPT)}</literal>"


def _plain(term: Term) -> str:
    return f"_:{term.value}" if isinstance(term, BlankNode) else str(getattr(term, "value", term))
