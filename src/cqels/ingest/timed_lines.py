"""Streams of lines: timed N-Triples (`s p o time .`), N-Triples whose time is a predicate's object, and N-Quads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2s
from itertools import chain, islice
from pathlib import Path
from typing import Literal as OneOf
from typing import TypeAlias

from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.element import Element, Rejected
from cqels.ingest.element_grouping import GENERATED_AT_TIME, Gap, Piece, Reject, gather, gather_graphs, stated_time
from cqels.ingest.input_files import lines_of, numbered_lines
from cqels.ingest.parse_errors import UNREADABLE, UnreadableFile, parsed, reason_of, triple_of
from cqels.model.errors import Source
from cqels.model.terms import XSD_BOOLEAN, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, Term, Triple
from cqels.model.time import no_time_reason, time_of

_IRI = r'<[^\x00-\x20<>"{}|^`]*>'
_BLANK = r"(?>_:\w(?:[\w.·\-]*[\w·\-])?)"
_LITERAL = rf'(?>"[^"\\]*(?:\\.[^"\\]*)*"(?:@[A-Za-z]+(?:-[A-Za-z0-9]+)*(?:--(?:ltr|rtl))?|\^\^{_IRI})?)'
_BARE_INTEGER = r"[+-]?[0-9]++(?![^\s.#])"
_BARE_TYPED = rf'(?>[^\s"<>^_.#][^\s"<>^]*\^\^(?:{_IRI}|[^\s"<>^]*[^\s"<>^.]))'
"""`92^^http://…#float`, which is not N-Triples but what published timed streams (CSRBench) have.

Terms are taken whole or not at all (`(?>…)`): a line costs its length, whatever it has."""
_NUMBER = r"[+-]?+(?:[0-9]++(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][+-]?[0-9]+)?+"
_BARE_VALUE = rf"(?>{_NUMBER}|true|false)(?![^\s.#])"
"""A number or a truth value as Turtle has them."""
_OBJECT = f"{_IRI}|{_BLANK}|{_LITERAL}|{_BARE_TYPED}|{_BARE_VALUE}"
_PARTS = (
    ("a subject, which is an IRI or a blank node", f"{_IRI}|{_BLANK}"),
    ("a predicate, which is an IRI", _IRI),
    ("an object, which is an IRI, a blank node or a literal", _OBJECT),
)
_FOURTH = f"{_IRI}|{_BLANK}|{_LITERAL}|{_BARE_INTEGER}"
_STATEMENT = re.compile(
    rf"(?:({_PARTS[0][1]})\s*+({_PARTS[1][1]})\s*+({_PARTS[2][1]})\s*+({_FOURTH})?|({_LITERAL}|{_BARE_INTEGER}))"
    r"\s*+(?:\.\s*+|$|(?=#))"
)
_LABEL = re.compile(r"_:([\w.·\-]++)")
_TIME_BEHIND = re.compile(rf"(.*\S)\s+({_LITERAL}|{_BARE_INTEGER})\s*+\.?+\s*+", re.DOTALL)
_FAULT_PARTS = tuple((name, re.compile(rf"(?:{pattern})\s*")) for name, pattern in _PARTS)
_FAULT_FOURTH = re.compile(rf"(?:{_FOURTH})?\s*")

LOOK_AHEAD = 100
"""Lines that are read at most to tell what a file holds."""
LEAD = 5
"""Lines of one kind, more than of the other, that tell it too."""
ODD_LINES = 4
"""Of so many lines of plain N-Triples, one may have a fourth term by mistake."""

LineKind: TypeAlias = OneOf["timed", "plain", "quads"]
"""Lines that end with their times, N-Triples whose times are stated by a predicate, and N-Quads."""
Statement: TypeAlias = tuple[Triple | None, Term | None]
"""A triple and its fourth term, either of which may be missing: a line may state its time once for all its triples."""


@dataclass(frozen=True, slots=True)
class _Line:
    place: str
    text: str
    statements: tuple[Statement, ...]
    fault: str | None = None


def blank_scope(declaration: StreamDeclaration, path: Path | str) -> str:
    """What the labels of a file's blank nodes begin with: the same in every run, different for every file."""
    name = f"{declaration.iri} {path}".encode("utf-8", "surrogateescape")
    return "f" + blake2s(name, digest_size=5).hexdigest() + "_"


def read_texts(
    declaration: StreamDeclaration,
    path: Path | str,
    texts: Iterable[tuple[int, str]],
    reject: Reject,
    *,
    kind: LineKind | None = None,
    live: bool = False,
) -> Iterator[Element]:
    """The elements of numbered lines, from a file or from elsewhere.

    What they are, unless it is known, is told by most fourth terms: a literal is a time, an IRI or blank node is a
    graph; without any, the declared predicate has the time and a subject's lines are an element.  The first line of
    `live` ones that tells it decides, since those behind it may be long in coming.
    """
    lines = _lines(declaration, path, texts)
    if kind is None:
        kind, lines = _kind_of(declaration, path, lines, live=live)
    stream, unit, predicate = declaration.iri, declaration.unit, declaration.time
    element = declaration.element or {"timed": "line", "plain": "subject", "quads": "graph"}[kind]
    match kind:
        case "quads":
            return gather_graphs(stream, _quads(stream, lines, reject), reject, predicate=predicate, unit=unit)
        case "timed":
            timed = _timed(stream, lines, unit, reject, by_subject=element == "subject")
            return _one_by_one(stream, timed) if element == "line" else gather(stream, timed, reject)
        case "plain":
            assert predicate is not None
            plain = _plain(stream, lines, reject, None if element == "subject" else (predicate, unit))
            if element == "line":
                return _one_by_one(stream, plain)
            return gather(stream, plain, reject, predicate=predicate, unit=unit)


def parse_statements(line: str, scope: str = "") -> tuple[Statement, ...]:
    """The statements of a line; the final dot may be missing, a comment may follow.

    A line that is not N-Triples may be Turtle, with a time behind it. Raises ValueError with the column of the first
    fault.
    """
    statements: list[Statement] = []
    text = line.strip()
    position = 0
    while position < len(text) and text[position] != "#":
        match = _STATEMENT.match(text, position)
        if match is None:
            return _turtle(text, scope, _fault(text, position))
        subject, predicate, object_, fourth, alone = match.groups()
        if alone is not None:
            statements.append((None, _term(alone)))
        else:
            triple = (_resource(subject, scope), _iri(predicate), _scoped(object_, scope))
            statements.append((triple, None if fourth is None else _scoped(fourth, scope)))
        position = match.end()
    return tuple(statements)


def _turtle(text: str, scope: str, fault: str) -> tuple[Statement, ...]:
    """A line of Turtle, perhaps with a time behind its last object, where Turtle has no other term."""
    timed = _TIME_BEHIND.fullmatch(text)
    for body, fourth in ((f"{timed[1]} .", timed[2]) if timed else ("", ""), (text, "")):
        try:
            triples = [triple_of(quad) for quad in parsed(body, RdfFormat.TURTLE)]
            if triples:
                time, labels = _term(fourth) if fourth else None, {each.rstrip(".") for each in _LABEL.findall(text)}
                return tuple((_named(triple, labels, scope), time) for triple in triples)
        except UNREADABLE:
            continue
    raise ValueError(fault)


def _named(triple: Triple, labels: set[str], scope: str) -> Triple:
    """The triple with the labels of the file. A blank node without a label would have another one at each reading."""
    subject, predicate, object_ = triple
    for node in (subject, object_):
        if isinstance(node, BlankNode) and node.value not in labels:
            raise ValueError("a blank node has no label")
    return (
        BlankNode(scope + subject.value) if isinstance(subject, BlankNode) else subject,
        predicate,
        BlankNode(scope + object_.value) if isinstance(object_, BlankNode) else object_,
    )


def _scoped(token: str, scope: str) -> Term:
    return BlankNode(scope + token[2:]) if token[0] == "_" else _term(token)


def _resource(token: str, scope: str) -> NamedNode | BlankNode:
    return BlankNode(scope + token[2:]) if token[0] == "_" else _iri(token)


@lru_cache(maxsize=1 << 14)
def _iri(token: str) -> NamedNode:
    iri = _escaped(token) if "\\" in token else NamedNode(token[1:-1])
    assert isinstance(iri, NamedNode)
    return iri


@lru_cache(maxsize=1 << 14)
def _term(token: str) -> Term:
    if token[0] == "<":
        return _iri(token)
    if token[0] != '"':
        value, _, datatype = token.partition("^^")
        return Literal(value, datatype=_iri(f"<{datatype.strip('<>')}>") if datatype else _bare_type(value))
    if "\\" in token or "--" in token:
        return _escaped(token)
    end = token.rindex('"')
    match token[end + 1 : end + 2]:
        case "@":
            return Literal(token[1:end], language=token[end + 2 :])
        case "^":
            return Literal(token[1:end], datatype=_iri(token[end + 3 :]))
        case _:
            return Literal(token[1:end])


def _bare_type(value: str) -> NamedNode:
    if value in ("true", "false"):
        return XSD_BOOLEAN
    if "e" in value or "E" in value:
        return XSD_DOUBLE
    return XSD_DECIMAL if "." in value else XSD_INTEGER


def _escaped(token: str) -> Term:
    (quad,) = parsed(f"<x:s> <x:p> {token} .", RdfFormat.N_TRIPLES)
    return triple_of(quad)[2]


def _fault(text: str, start: int) -> str:
    position = start
    for name, pattern in _FAULT_PARTS:
        match = pattern.match(text, position)
        if match is None:
            return f"expected {name}, at column {position + 1}"
        position = match.end()
    fourth = _FAULT_FOURTH.match(text, position)
    position = fourth.end() if fourth else position
    return f"expected the end of the statement, at column {position + 1}"


def _lines(declaration: StreamDeclaration, path: Path | str, texts: Iterable[tuple[int, str]]) -> Iterator[_Line]:
    scope = blank_scope(declaration, path)
    for number, text in texts:
        place = f"{path}:{number}"
        try:
            statements = parse_statements(text, scope)
        except UNREADABLE as error:
            yield _Line(place, text, (), reason_of(error, text))
        else:
            if statements:
                yield _Line(place, text, statements)


def _kind_of(
    declaration: StreamDeclaration, path: Path | str, lines: Iterator[_Line], *, live: bool = False
) -> tuple[LineKind, Iterator[_Line]]:
    """Look at the first lines to tell what the file holds, and give the lines back with it.

    Most lines decide, since one may be malformed: without a declared predicate, the first kind that is ahead.  Of
    `live` lines, the first that tells it.
    """
    if declaration.element == "graph":
        return "quads", lines
    seen: list[_Line] = []
    votes: dict[LineKind | None, int] = {"timed": 0, "quads": 0, None: 0}
    most, enough = (LEAD, 1) if live else (LOOK_AHEAD, LEAD)
    for line in lines:
        seen.append(line)
        votes[_vote(declaration, line)] += bool(line.statements)
        lead = abs(votes["timed"] - votes["quads"])
        if len(seen) == most or (declaration.time is None and lead >= enough):
            break
        if live and declaration.time is not None and line.statements:
            break
    decided = votes["timed"] + votes["quads"]
    if decided == 0 or (declaration.time is not None and decided * ODD_LINES < votes[None]):
        kind: LineKind = "plain" if declaration.time is not None else "timed"
    else:
        kind = "timed" if votes["timed"] >= votes["quads"] else "quads"
    _check(declaration, kind, path)
    return kind, chain(seen, lines)


def _vote(declaration: StreamDeclaration, line: _Line) -> LineKind | None:
    """What a line is by itself, None if it may be plain."""
    for triple, fourth in line.statements:
        if fourth is not None:
            return "timed" if isinstance(fourth, Literal) else "quads"
        if triple is not None and triple[1] == GENERATED_AT_TIME and declaration.time is None:
            return "quads"
    return None


def _check(declaration: StreamDeclaration, kind: LineKind, path: Path | str) -> None:
    """Refuse a declaration that does not fit what the file holds."""
    source = Source("", str(path))
    element = declaration.element
    if kind == "timed" and declaration.time is not None:
        message = "the lines end with their time, so no predicate gives it"
        raise UnreadableFile(message, source=source, hint="remove time=")
    if kind == "quads" and element is not None:
        hint = "write element=graph, or leave it out"
        raise UnreadableFile(f"element={element} does not fit N-Quads", source=source, hint=hint)
    if kind == "plain" and element == "time":
        hint = "write element=subject or element=line"
        raise UnreadableFile("element=time needs lines that end with their time", source=source, hint=hint)


def _timed(
    stream: str, lines: Iterable[_Line], unit: str, reject: Reject, *, by_subject: bool
) -> Iterator[Piece | Gap]:
    """One piece for each line of timed N-Triples; its key is its time and, if asked for, its subject."""
    for line in lines:
        try:
            if line.fault is not None:
                raise ValueError(line.fault)
            time, triples = _with_time(line.statements, unit)
        except ValueError as error:
            reject(Rejected(stream, line.place, str(error), line.text))
            yield Gap()
            continue
        yield Piece((time, triples[0][0]) if by_subject else time, time, triples, line.place, line.text)


def _with_time(statements: Iterable[Statement], unit: str) -> tuple[int, tuple[Triple, ...]]:
    """The one time of a line's statements, and their triples."""
    triples = tuple(triple for triple, _ in statements if triple is not None)
    if not triples:
        raise ValueError("the line has no triple")
    times = {_line_time(fourth, unit) for _, fourth in statements if fourth is not None}
    if len(times) != 1:
        raise ValueError("the line has two timestamps" if times else "the line has no timestamp")
    return times.pop(), triples


def parse_timed_line(text: str, unit: str = "ms", scope: str = "") -> tuple[int, tuple[Triple, ...]] | None:
    """The time and the triples of a line of timed N-Triples; None of an empty one. Raises ValueError with a reason."""
    try:
        statements = parse_statements(text, scope)
    except UNREADABLE as error:
        raise ValueError(reason_of(error, text)) from None
    return _with_time(statements, unit) if statements else None


def line_kind(declaration: StreamDeclaration, path: Path) -> LineKind:
    """What the lines of a file are; an UnreadableFile if the declaration does not fit them."""
    return _kind_of(declaration, path, _lines(declaration, path, lines_of(path)))[0]


def live_line_kind(
    declaration: StreamDeclaration, place: str, chunks: Iterator[bytes]
) -> tuple[LineKind, Iterator[bytes]]:
    """What the lines of a live source are, and its chunks from the first on; an UnreadableFile as `line_kind`."""
    seen: list[bytes] = []

    def noted() -> Iterator[bytes]:
        for chunk in chunks:
            seen.append(chunk)
            yield chunk

    kind, _ = _kind_of(declaration, place, _lines(declaration, place, numbered_lines(noted())), live=True)
    return kind, chain(seen, chunks)


def lines_hold(text: str) -> OneOf["timed", "nquads"] | None:
    """Whether most lines of a text end with their times, or with graphs; None if they are something else."""
    lines = [line for line in text.splitlines()[:LOOK_AHEAD] if line.strip() and not line.lstrip().startswith("#")]
    found = [match[4] for line in lines if (match := _STATEMENT.match(line.strip())) is not None and match[1]]
    fourths = [fourth for fourth in found if fourth is not None]
    if 2 * len(fourths) <= len(lines):
        return None
    graphs = sum(fourth[0] in "<_" for fourth in fourths)
    return "nquads" if 2 * graphs > len(fourths) else "timed"


def check_lines(declaration: StreamDeclaration, path: Path) -> None:
    """Refuse a file whose first lines all lack a timestamp, or are not what is declared."""
    kind, lines = _kind_of(declaration, path, _lines(declaration, path, lines_of(path)))
    first = [line for line in islice(lines, LOOK_AHEAD) if line.statements]
    if first and kind == "timed" and all(fourth is None for line in first for _, fourth in line.statements):
        raise UnreadableFile(
            "a triple without a timestamp",
            source=Source("", first[0].place),
            hint="end each line with its time, or declare the predicate that has it: time=<iri>",
        )


@lru_cache(maxsize=1 << 10)
def _line_time(fourth: Term, unit: str) -> int:
    if not isinstance(fourth, Literal):
        raise ValueError("the fourth term is a graph, where the lines before have a time")
    time = time_of(fourth, unit)
    if time is None:
        raise ValueError(no_time_reason(fourth))
    return time


def _plain(
    stream: str, lines: Iterable[_Line], reject: Reject, clock: tuple[NamedNode, str] | None
) -> Iterator[Piece | Gap]:
    """One piece for each line of N-Triples, its key the subject; with a clock, each line states its own time."""
    for line in lines:
        try:
            if line.fault is not None:
                raise ValueError(line.fault)
            if any(fourth is not None for _, fourth in line.statements):
                raise ValueError("the line has a fourth term, where the lines before have none")
            triples = tuple(triple for triple, _ in line.statements if triple is not None)
            time = stated_time(triples, *clock) if clock is not None else None
            if clock is not None and time is None:
                raise ValueError("the line has no timestamp")
        except ValueError as error:
            reject(Rejected(stream, line.place, str(error), line.text))
            yield Gap()
            continue
        yield Piece(triples[0][0], time, triples, line.place, line.text)


def _quads(stream: str, lines: Iterable[_Line], reject: Reject) -> Iterator[Piece | Gap]:
    """One piece for each quad, its key the graph."""
    for line in lines:
        fault = line.fault
        if any(triple is None or isinstance(fourth, Literal) for triple, fourth in line.statements):
            fault = "the fourth term is a literal, where the lines before have a graph"
        if fault is not None:
            reject(Rejected(stream, line.place, fault, line.text))
            yield Gap()
            continue
        for triple, graph in line.statements:
            assert triple is not None
            yield Piece(graph, None, (triple,), line.place, line.text)


def _one_by_one(stream: str, pieces: Iterable[Piece | Gap]) -> Iterator[Element]:
    """Each line an element: a malformed line costs no other."""
    for piece in pieces:
        if isinstance(piece, Piece) and piece.time is not None:
            yield Element(stream, piece.time, piece.triples)
