"""The W3C's SPARQL test suites as Python values: the entries of the manifests and the results they want."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyoxigraph
from pyoxigraph import BlankNode, Literal, NamedNode, QueryBoolean

from cqels.ingest import read_graph
from cqels.model.terms import RDF_FIRST, RDF_NIL, RDF_REST, RDF_TYPE, Term, Triple

SUITE = Path(__file__).resolve().parents[2].parent / "shared" / "suites" / "w3c"
MISSING = "the W3C suites are not beside the repository (../shared/suites/w3c)"

_MF = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#"
_QT = "http://www.w3.org/2001/sw/DataAccess/tests/test-query#"
_RS = "http://www.w3.org/2001/sw/DataAccess/tests/result-set#"

Row = dict[str, Term]


@dataclass(frozen=True)
class Test:
    """One entry of a manifest. `id` is its folder and the end of its IRI; `kind` the end of the IRI of its class."""

    __test__ = False  # it is no test of pytest's

    id: str
    kind: str
    query: Path
    data: tuple[Path, ...] = ()
    graphs: tuple[Path, ...] = ()
    result: Path | None = None
    lax: bool = False
    """A duplicate of the result may be missing (REDUCED)."""

    @property
    def text(self) -> str:
        return self.query.read_bytes().decode()  # line ends as they are

    @property
    def base(self) -> str:
        return self.query.as_uri()


@dataclass(frozen=True)
class Expected:
    """What a test wants: solutions, a boolean, or a graph.

    Solutions are `ordered` where the result numbers them, and `listed` where it could not but write them in an order,
    which counts if the query asks for one.
    """

    variables: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    ordered: bool = False
    listed: bool = False
    boolean: bool | None = None
    graph: tuple[Triple, ...] | None = None


class _Graph:
    """A small graph, asked for the objects of a subject and a predicate."""

    def __init__(self, triples: list[Triple]) -> None:
        self.triples = triples
        self._objects: dict[tuple[Term, str], list[Term]] = {}
        for subject, predicate, target in triples:
            self._objects.setdefault((subject, predicate.value), []).append(target)

    def objects(self, subject: Term, predicate: str) -> list[Term]:
        return self._objects.get((subject, predicate), [])

    def object(self, subject: Term, predicate: str) -> Term | None:
        return next(iter(self.objects(subject, predicate)), None)

    def members(self, cell: Term | None) -> Iterator[Term]:
        while cell is not None and cell != RDF_NIL:
            yield from self.objects(cell, RDF_FIRST.value)
            cell = self.object(cell, RDF_REST.value)


def manifests() -> list[Path]:
    return sorted(SUITE.glob("*/*/manifest.ttl"))


@cache
def entries() -> tuple[Test, ...]:
    """Every test of every manifest, in the order of the folders and of the entries; none when the suites are absent."""
    return tuple(test for path in manifests() for test in _manifest(path))


def _manifest(path: Path) -> Iterator[Test]:
    graph = _Graph(list(_triples(path)))
    (listed,) = (target for _, predicate, target in graph.triples if predicate.value == _MF + "entries")
    for entry in graph.members(listed):
        action = graph.object(entry, _MF + "action")
        kind = graph.object(entry, RDF_TYPE.value)
        query = graph.object(action, _QT + "query") or action
        result = graph.object(entry, _MF + "result")
        yield Test(
            id=f"{path.parent.parent.name}/{path.parent.name}/{entry.value.rpartition('#')[2]}",
            kind=kind.value.removeprefix(_MF),
            query=path_of(query.value),
            data=tuple(path_of(each.value) for each in graph.objects(action, _QT + "data")),
            graphs=tuple(path_of(each.value) for each in graph.objects(action, _QT + "graphData")),
            result=None if result is None else path_of(result.value),
            lax=graph.object(entry, _MF + "resultCardinality") == NamedNode(_MF + "LaxCardinality"),
        )


def path_of(iri: str) -> Path:
    """The file that a `file:` IRI names."""
    return Path(unquote(urlsplit(iri).path))


def _triples(path: Path) -> Iterator[Triple]:
    return ((quad.subject, quad.predicate, quad.object) for quad in read_graph(path))


# ---------------------------------------------------------------- expected results


def expected(test: Test) -> Expected:
    assert test.result is not None
    match test.result.suffix:
        case ".srx" | ".srj" | ".tsv":
            return _results(test.result)
        case ".csv":
            return _csv(test.result)
        case _:
            graph = _Graph(list(_triples(test.result)))
            sets = [s for s, p, o in graph.triples if p == RDF_TYPE and o == NamedNode(_RS + "ResultSet")]
            return _result_set(graph, sets[0]) if sets else Expected(graph=tuple(graph.triples))


def _results(path: Path) -> Expected:
    found = pyoxigraph.parse_query_results(path=path)
    if isinstance(found, QueryBoolean):
        return Expected(boolean=bool(found))
    names = tuple(variable.value for variable in found.variables)
    rows = tuple({name: each[name] for name in names if each[name] is not None} for each in found)
    return Expected(names, rows, listed=True)


def _csv(path: Path) -> Expected:
    """CSV has no types: a cell is a simple literal, except that a blank node can be told."""
    names, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines())
    rows = [{name: csv_term(cell) for name, cell in zip(names, line, strict=True) if cell} for line in lines]
    return Expected(tuple(names), tuple(rows), listed=True)


def csv_term(cell: str) -> Term:
    return BlankNode(cell[2:]) if cell.startswith("_:") else Literal(cell)


def _result_set(graph: _Graph, root: Term) -> Expected:
    boolean = graph.object(root, _RS + "boolean")
    if boolean is not None:
        return Expected(boolean=boolean.value == "true")
    names = tuple(each.value for each in graph.objects(root, _RS + "resultVariable"))
    rows: list[tuple[int, Row]] = []
    ordered = False
    for solution in graph.objects(root, _RS + "solution"):
        row: Row = {}
        for binding in graph.objects(solution, _RS + "binding"):
            name, value = graph.object(binding, _RS + "variable"), graph.object(binding, _RS + "value")
            assert name is not None
            assert value is not None
            row[name.value] = value
        index = graph.object(solution, _RS + "index")
        ordered = ordered or index is not None
        rows.append((0 if index is None else int(index.value), row))
    if ordered:
        rows.sort(key=lambda each: each[0])
    return Expected(names, tuple(row for _, row in rows), ordered)
