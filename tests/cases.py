"""Case files: a timeline of input, queries and what they must send; docs/testing.md has the format."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyoxigraph
from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad, RdfFormat

from cqels.ingest import Element
from cqels.model.errors import CqelsError, Source, Span
from cqels.model.terms import Term, Triple
from cqels.model.time import EARLIEST, format_time, parse_duration, parse_time
from cqels.model.turtle_text import Notation
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.results import Result, writer_for
from cqels.store.dataset import Store
from cqels.store.script import execute

DIRECTORY = Path(__file__).parent / "cases"
PREFIXES = {
    "": "http://ex.org/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "foaf": "http://xmlns.com/foaf/0.1/",
}
_SEPARATOR = re.compile(r"^----(?:[ ]+(\S+))?[ ]*$", re.MULTILINE)


@dataclass(frozen=True)
class Names:
    """The prefixes that a case has, in its data and in its queries."""

    prefixes: dict[str, str]

    @property
    def prologue(self) -> str:
        return " ".join(f"PREFIX {name}: <{iri}>" for name, iri in self.prefixes.items()) + "\n"

    def iri(self, text: str) -> NamedNode:
        if text.startswith("<"):
            return NamedNode(text[1:-1])
        prefix, local = text.split(":", 1)
        return NamedNode(self.prefixes[prefix] + local)

    def triples(self, turtle: str) -> Iterator[Triple]:
        declared = "".join(f"@prefix {name}: <{iri}> . " for name, iri in self.prefixes.items())
        for quad in pyoxigraph.parse(declared + turtle, format=RdfFormat.TURTLE):
            assert isinstance(quad.subject, NamedNode | BlankNode)
            yield quad.subject, quad.predicate, quad.object

    def quads(self, turtle: str, graph: str | None = None) -> list[Quad]:
        return [Quad(*triple, self.iri(graph) if graph else DefaultGraph()) for triple in self.triples(turtle)]


@dataclass(frozen=True)
class Heartbeat:
    """No element before `time` will come, on one stream or, where it is None, on all."""

    time: int
    stream: str | None


@dataclass(frozen=True)
class Update:
    """A change of the dataset: SPARQL Update, or quads to remove and add."""

    text: str
    removed: tuple[Quad, ...] = ()
    added: tuple[Quad, ...] = ()

    def apply(self, store: Store) -> None:
        if self.text:
            execute(store, self.text)
        else:
            store.change(self.removed, self.added)


@dataclass(frozen=True)
class Stream:
    iri: str
    lateness: int = 0
    idle: int = 0


@dataclass(frozen=True)
class Asked:
    """A query of a case, as it is written."""

    name: str
    text: str
    names: Names
    label: str = ""
    """Where its results stand: its name or, if others before it had the same, that and a number."""
    emit: str | None = None
    policy: str | None = None
    dialect: str | None = None
    lenient: bool = False
    """Variables that are bound nowhere are warned of."""
    ticks: bool = False
    """The rows show the number of the tick."""

    def prepared(self) -> Query:
        """The plan; the prefixes that every case has are declared, and an error counts from the written text."""
        registered = re.match(r"\s*(?:(?:PREFIX|BASE)\s[^>]*>\s*)*REGISTER\b", self.text, re.IGNORECASE)
        name = None if registered else self.names.iri(self.name).value if self.name[0] in ":<" else self.name
        text = self.names.prologue + self.text
        try:
            query = prepare(
                text, name=name, emit=self.emit, policy=self.policy, dialect=self.dialect, lenient=self.lenient
            )
        except CqelsError as error:
            raise self.placed(error) from None
        for warning in query.warnings:
            self.placed(warning)
        return query

    def placed(self, error: CqelsError) -> CqelsError:
        error.source = Source(self.text, "query")
        if error.span is not None:
            before = len(self.names.prologue)
            error.span = Span(error.span.start - before, error.span.end - before)
        return error


@dataclass(frozen=True)
class Register:
    """A query is registered."""

    asked: Asked


@dataclass(frozen=True)
class Drop:
    """The query that runs under this name, as the case writes it, is dropped."""

    name: str


@dataclass(frozen=True)
class Snapshot:
    """An engine that can is saved here, and a new one goes on from what was saved."""


Event = Element | Heartbeat | Update | Register | Drop | Snapshot


@dataclass(frozen=True)
class Case:
    """What a file says: the dataset, the events in order of arrival (registrations first), all the queries."""

    names: Names
    graphs: tuple[Quad, ...]
    streams: tuple[Stream, ...]
    events: tuple[Event, ...]
    queries: tuple[Asked, ...]
    expected: dict[str, list[str]]
    named: tuple[NamedNode, ...] = ()
    """The named graphs, empty ones too."""

    def store(self) -> Store:
        store = Store()
        for name in self.named:
            store.create_graph(name)
        store.add(self.graphs)
        return store


@dataclass(frozen=True)
class Outcome:
    """What an engine made of a case: for each query its plan and results, or why it was refused; the late elements;
    why queries could not be dropped."""

    sent: dict[str, tuple[Query, list[Result]] | CqelsError]
    late: list[Element]
    kept: list[CqelsError]


# ---------------------------------------------------------------- reading


def read_case(path: Path) -> Case:
    """The case in a file."""
    text = path.read_text(encoding="utf-8")
    head, *rest = _SEPARATOR.split(text)
    graphs: list[Quad] = []
    named: list[NamedNode] = []
    streams: list[Stream] = []
    timed: list[tuple[int, Event]] = []
    queries: list[Asked] = []
    names = Names(dict(PREFIXES))
    for words, body in _sections(head):
        match words:
            case ["prefix", name, iri]:
                names.prefixes[name.rstrip(":")] = iri.strip("<>")
            case ["static", *graph]:
                graphs += names.quads(body, *graph)
                named += [names.iri(each) for each in graph]
            case ["stream", name, *options]:
                streams.append(_stream(names.iri(name), options))
                timed += _arrivals(names, streams[-1].iri, body)
            case ["heartbeat", written]:
                word, _, late = written.partition("@")
                timed.append((parse_time(late or word), Heartbeat(parse_time(word), None)))
            case ["update", written]:
                timed.append((parse_time(written), _update(names, body)))
            case ["query", *options]:
                asked, time = _query(Asked(f"q{len(queries) + 1}", body, names), options)
                before = sum(each.name == asked.name for each in queries)
                queries.append(replace(asked, label=f"{asked.name}#{before + 1}" if before else asked.name))
                timed.append((time, Register(queries[-1])))
            case ["drop", written, name]:
                timed.append((parse_time(written), Drop(name)))
            case ["snapshot", written]:
                timed.append((parse_time(written), Snapshot()))
            case _:
                raise ValueError(f"{path}: there is no section {' '.join(words)!r}")
    events = tuple(event for _, event in sorted(timed, key=lambda each: each[0]))
    labels = [query.label for query in queries]
    expected = {
        name or labels[0]: [line.strip() for line in part.splitlines() if line.strip()]
        for name, part in zip(rest[::2], rest[1::2], strict=True)
    }
    if unknown := expected.keys() - {*labels, "late", "kept"}:
        raise ValueError(f"{path}: results are expected of {sorted(unknown)}, which do not exist")
    return Case(names, tuple(graphs), tuple(streams), events, tuple(queries), expected, tuple(named))


def _sections(text: str) -> Iterator[tuple[list[str], str]]:
    """A line that is not indented begins a section; what is indented below it is its body."""
    words: list[str] = []
    body: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line.strip() and not line[0].isspace():
            if words:
                yield words, _dedented(body)
            words, body = line.split(), []
        else:
            body.append(line)
    if words:
        yield words, _dedented(body)


def _dedented(lines: list[str]) -> str:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines).strip("\n")


def _stream(name: NamedNode, options: list[str]) -> Stream:
    values = dict(option.split("=", 1) for option in options)
    return Stream(name.value, **{key: parse_duration(value) for key, value in values.items()})


def _arrivals(names: Names, stream: str, body: str) -> Iterator[tuple[int, Event]]:
    """The elements of a stream with their times of arrival.

    `3s@7s` is an element of 3s that arrives at 7s. Without that it arrives at its time, or if the line before it is
    later than that, right after it.
    """
    entries: list[list[str]] = []
    for line in body.splitlines():
        if line.strip() and not line[0].isspace():
            entries.append(line.split(None, 1))
        elif line.strip():
            entries[-1][1] += "\n" + line
    clock: int | None = None
    for written, what in entries:
        word, _, late = written.partition("@")
        time = parse_time(word)
        clock = parse_time(late) if late else max(time, time if clock is None else clock)
        if what.strip() == "heartbeat":
            yield clock, Heartbeat(time, stream)
        else:
            yield clock, Element(stream, time, tuple(names.triples(what)))


def _update(names: Names, body: str) -> Update:
    """`insert …` and `delete …` with Turtle, or else SPARQL Update."""
    changes: dict[str, list[Quad]] = {"insert": [], "delete": []}
    for line in body.splitlines():
        word, _, turtle = line.partition(" ")
        if word not in changes:
            return Update(names.prologue + body)
        graph = re.match(r"graph (\S+) ", turtle)
        changes[word] += names.quads(turtle[graph.end() :], graph[1]) if graph else names.quads(turtle)
    return Update("", tuple(changes["delete"]), tuple(changes["insert"]))


def _query(asked: Asked, options: list[str]) -> tuple[Asked, int]:
    """The query with its options, and when it is registered: before everything, unless a time is told."""
    time = EARLIEST
    for option in options:
        key, _, value = option.partition("=")
        match key:
            case "ticks":
                asked = replace(asked, ticks=True)
            case "lenient":
                asked = replace(asked, lenient=True)
            case "at":
                time = parse_time(value)
            case "name" | "policy" | "dialect":
                asked = replace(asked, **{key: value})
            case emission:
                asked = replace(asked, emit=emission)
    return asked, time


# ---------------------------------------------------------------- showing


def shown(case: Case, outcome: Outcome) -> dict[str, list[str]]:
    """The lines that a case file has below `----`, for each query, under `late` those of the late elements, under
    `kept` why queries were not dropped."""
    lines: dict[str, list[str]] = {}
    for asked in case.queries:
        sent = outcome.sent[asked.label]
        if isinstance(sent, CqelsError):
            lines[asked.label] = f"error: {sent}".splitlines()
        else:
            told = [line for warning in sent[0].warnings for line in f"warning: {warning}".splitlines()]
            lines[asked.label] = told + _rows(*sent, ticks=asked.ticks)
    if outcome.late:
        lines["late"] = [f"{format_time(each.time)}  {_element(case.names, each)}" for each in outcome.late]
    if outcome.kept:
        lines["kept"] = [line for error in outcome.kept for line in f"error: {error}".splitlines()]
    return lines


def _rows(query: Query, results: Iterable[Result], *, ticks: bool) -> list[str]:
    blank: dict[BlankNode, BlankNode] = {}

    def named(term: Term | None) -> Term | None:
        return blank.setdefault(term, BlankNode(f"b{len(blank) + 1}")) if isinstance(term, BlankNode) else term

    rows: list[tuple[str, str]] = []
    for result in results:
        text = io.StringIO()
        triples = tuple(tuple(map(named, triple)) for triple in result.triples)
        result = result._replace(values=tuple(map(named, result.values)), triples=triples)
        writer_for("text", text, query.variables, dict(query.prefixes)).write(result)
        time, row = text.getvalue().rstrip("\n").split(None, 1)
        rows.append((f"{time} #{result.tick}" if ticks else time, row))
    width = max((len(time) for time, _ in rows), default=0)
    return [f"{time.ljust(width)}  {row}" for time, row in rows]


def _element(names: Names, element: Element) -> str:
    notation = Notation(names.prefixes)
    triples = " ".join(f"{notation.triple(triple)} ." for triple in element.triples)
    return f"{notation.iri(NamedNode(element.stream))} {triples}"


def spaced(lines: Iterable[str]) -> list[str]:
    """The lines with one space between their words, strings apart: what a comparison looks at."""
    return [re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda found: found[1] or " ", line).strip() for line in lines]


# ---------------------------------------------------------------- writing


def rewrite(path: Path, case: Case, lines: dict[str, list[str]]) -> None:
    """Fill in what is expected; what stands above `----` is kept."""
    text = path.read_text(encoding="utf-8")
    separator = _SEPARATOR.search(text)
    head = text[: separator.start()] if separator else text.rstrip("\n") + "\n"
    single = len(case.queries) == 1
    parts = []
    for name, rows in lines.items():
        title = "----" if single and name not in ("late", "kept") else f"---- {name}"
        parts += [title, *(f"  {row}" for row in rows)]
    path.write_text(head + "\n".join(parts) + "\n", encoding="utf-8")
