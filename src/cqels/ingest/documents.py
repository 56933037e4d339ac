"""Streams of Turtle, TriG and JSON-LD: a file, a line, a subject or a named graph is an element."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad, RdfFormat

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.element import Element, Rejected
from cqels.ingest.element_grouping import Gap, Piece, Reject, gather_graphs, stated_time
from cqels.ingest.input_files import MARK, open_bytes, parse_file, reading
from cqels.ingest.parse_errors import UNREADABLE, parsed, reason_of, triple_of
from cqels.ingest.timed_lines import blank_scope
from cqels.model.terms import Triple

RDF_FORMATS = {"turtle": RdfFormat.TURTLE, "trig": RdfFormat.TRIG, "jsonld": RdfFormat.JSON_LD}

_DIRECTIVE = re.compile(r"\s*(?:@prefix|@base|prefix|base)\b", re.IGNORECASE)


def read_document(declaration: StreamDeclaration, path: Path, format: RdfFormat, reject: Reject) -> Iterator[Element]:
    """The file as one element."""
    with open_bytes(path) as file, reading(path):
        content = file.read()
    text = content.decode("utf-8", "surrogateescape")
    try:
        yield document_element(declaration, content, format, blank_scope(declaration, path))
    except UNREADABLE as error:
        place = f"{path}:{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else str(path)
        reject(Rejected(declaration.iri, place, reason_of(error, text), text))


def document_element(
    declaration: StreamDeclaration, content: bytes, format: RdfFormat, scope: str, time: int | None = None
) -> Element:
    """A document as one element, with blank nodes of its own; its time, if none is given, is a predicate's object.

    Raises one of UNREADABLE if it is none.
    """
    return _element(declaration, parsed(content.removeprefix(MARK), format, declaration.iri), scope, time)


def read_document_lines(
    declaration: StreamDeclaration, place: str, lines: Iterable[tuple[int, str]], format: RdfFormat, reject: Reject
) -> Iterator[Element]:
    """Each line as one element, with blank nodes of its own; prefixes apply to the lines after them."""
    scope = blank_scope(declaration, place)
    directives = ""
    turtle = format != RdfFormat.JSON_LD
    for number, line in lines:
        if not line.strip() or (turtle and line.lstrip().startswith("#")):
            continue
        try:
            quads = parsed(directives + line, format, declaration.iri)
            if turtle and not quads and _DIRECTIVE.match(line):
                directives += line + "\n"
                continue
            yield _element(declaration, quads, f"{scope}{number}_")
        except UNREADABLE as error:
            reject(Rejected(declaration.iri, f"{place}:{number}", reason_of(error, line), line))


def read_subjects(declaration: StreamDeclaration, path: Path, format: RdfFormat, reject: Reject) -> Iterator[Element]:
    """Each subject that has a time as one element, in the order of the file, with the blank nodes that hang off it.

    The file is read whole, since triples of a subject may stand anywhere in it.
    """
    names = _NumberedBlankNodes(blank_scope(declaration, path))
    subjects: dict[NamedNode | BlankNode, list[Triple]] = {}
    last: NamedNode | BlankNode | None = None
    fault: Rejected | None = None
    with open_bytes(path) as file, reading(path):
        try:
            for quad in parse_file(file, path, format, declaration.iri):
                triple = names.triple(triple_of(quad))
                last = triple[0]
                subjects.setdefault(last, []).append(triple)
        except UNREADABLE as error:
            place = f"{path}:{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else str(path)
            fault = Rejected(declaration.iri, place, f"{reason_of(error)}; the rest of the file cannot be read", "")
    yield from _timed_subjects(declaration, path, subjects, reject, cut=last if fault is not None else None)
    if fault is not None:
        reject(fault)


def _timed_subjects(
    declaration: StreamDeclaration,
    path: Path,
    subjects: dict[NamedNode | BlankNode, list[Triple]],
    reject: Reject,
    *,
    cut: NamedNode | BlankNode | None,
) -> Iterator[Element]:
    """The elements of subjects; what has no time, or reaches the one that a fault has `cut` off, is rejected."""
    assert declaration.time is not None
    predicate = declaration.time
    timed = {subject for subject, triples in subjects.items() if any(each[1] == predicate for each in triples)}
    belong: set[NamedNode | BlankNode] = set(timed)
    for subject in subjects:
        if subject not in timed:
            continue
        parts = _hanging(subject, subjects, timed)
        belong.update(parts)
        triples = [triple for part in parts for triple in subjects[part]]
        try:
            if cut in parts:
                raise ValueError("the element has a malformed part or is next to one")
            time = stated_time(subjects[subject], predicate, declaration.unit)
            assert time is not None
        except ValueError as error:
            reject(Rejected(declaration.iri, str(path), str(error), _text(triples)))
        else:
            yield Element(declaration.iri, time, tuple(triples))
    for subject, triples in subjects.items():
        if subject not in belong:
            reject(Rejected(declaration.iri, str(path), f"the subject {subject} has no timestamp", _text(triples)))


def _hanging(
    subject: NamedNode | BlankNode, subjects: dict[NamedNode | BlankNode, list[Triple]], timed: set[Any]
) -> list[NamedNode | BlankNode]:
    """A subject and the blank nodes that can be reached from it, those with times of their own left out."""
    found: dict[NamedNode | BlankNode, None] = {subject: None}
    waiting = [subject]
    while waiting:
        for _, _, object_ in subjects[waiting.pop()]:
            if isinstance(object_, BlankNode) and object_ in subjects and object_ not in timed and object_ not in found:
                found[object_] = None
                waiting.append(object_)
    return list(found)


def _text(triples: Iterable[Triple]) -> str:
    return " ".join(" ".join(map(str, triple)) + " ." for triple in triples)


def read_graphs(declaration: StreamDeclaration, path: Path, format: RdfFormat, reject: Reject) -> Iterator[Element]:
    """Each run of one graph's quads as one element."""
    pieces = _graph_pieces(declaration, path, format, reject)
    return gather_graphs(declaration.iri, pieces, reject, predicate=declaration.time, unit=declaration.unit)


def _graph_pieces(
    declaration: StreamDeclaration, path: Path, format: RdfFormat, reject: Reject
) -> Iterator[Piece | Gap]:
    names = _LabelledBlankNodes(blank_scope(declaration, path))
    with open_bytes(path) as file:
        try:
            with reading(path):
                for quad in parse_file(file, path, format, declaration.iri):
                    graph = None if isinstance(quad.graph_name, DefaultGraph) else names.resource(quad.graph_name)
                    yield Piece(graph, None, (names.triple(triple_of(quad)),), str(path), f"{quad} .")
        except UNREADABLE as error:
            place = f"{path}:{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else str(path)
            # After a fault the parser may take the rest of a graph for statements of the default graph.
            reason = f"{reason_of(error)}; the rest of the file cannot be read"
            reject(Rejected(declaration.iri, place, reason, ""))
            yield Gap()


def _element(declaration: StreamDeclaration, quads: Iterable[Quad], scope: str, time: int | None = None) -> Element:
    """The triples of all graphs of a document, with the time that is given or that the declared predicate states."""
    names = _NumberedBlankNodes(scope)
    triples = tuple(names.triple(triple_of(quad)) for quad in quads)
    if not triples:
        raise ValueError("the element has no triple")
    if time is None and declaration.time is not None:
        time = stated_time(triples, declaration.time, declaration.unit)
    if time is None:
        raise ValueError("the element has no timestamp")
    return Element(declaration.iri, time, triples)


_RANDOM = re.compile("[a-f][0-9a-f]{23,31}")
"""The names that the parser gives: 128 bits in hexadecimal."""
_REMEMBERED = 100_000


class _PrefixedBlankNodes:
    """Blank nodes named by a scope and the label they have in the file."""

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def name(self, node: BlankNode) -> str:
        return node.value

    def resource(self, term: NamedNode | BlankNode) -> NamedNode | BlankNode:
        return BlankNode(self.scope + self.name(term)) if isinstance(term, BlankNode) else term

    def triple(self, triple: Triple) -> Triple:
        subject, predicate, object_ = triple
        return self.resource(subject), predicate, self.resource(object_) if isinstance(object_, BlankNode) else object_


class _LabelledBlankNodes(_PrefixedBlankNodes):
    """Labels keep their text, since a table of them would grow with the stream; what has none is numbered.

    Nothing but its own statement can refer to a node without a label, which the parser names at random.
    """

    def __init__(self, scope: str) -> None:
        super().__init__(scope)
        self.numbers: dict[str, int] = {}
        self.count = 0

    def name(self, node: BlankNode) -> str:
        if _RANDOM.fullmatch(node.value) is None:
            return node.value
        if node.value not in self.numbers:
            if len(self.numbers) == _REMEMBERED:
                del self.numbers[next(iter(self.numbers))]
            self.numbers[node.value] = self.count
            self.count += 1
        return f"-{self.numbers[node.value]}"  # no label begins with that


class _NumberedBlankNodes(_PrefixedBlankNodes):
    """Blank nodes numbered in the order they appear, since the parser names `[ ]` at random."""

    def __init__(self, scope: str) -> None:
        super().__init__(scope)
        self.numbers: dict[str, int] = {}

    def name(self, node: BlankNode) -> str:
        return str(self.numbers.setdefault(node.value, len(self.numbers)))
