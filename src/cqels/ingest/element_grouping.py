"""Elements gathered from pieces that follow each other, such as the lines of one time or the quads of one graph.

An element arrives whole or not at all: where a malformed piece may have belonged to an element, the element is rejected
with it. A malformed piece between two elements may have belonged to either, so it costs both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.ingest.element import Element, Rejected
from cqels.model.terms import Triple
from cqels.model.time import no_time_reason, time_of

GENERATED_AT_TIME = NamedNode("http://www.w3.org/ns/prov#generatedAtTime")

Reject: TypeAlias = Callable[[Rejected], None]


@dataclass(frozen=True, slots=True)
class Piece:
    """Triples that belong to the element of `key`; the time is None where the whole element states it."""

    key: Hashable
    time: int | None
    triples: tuple[Triple, ...]
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Gap:
    """The place of a malformed piece, which has been rejected."""


@dataclass(slots=True)
class _OpenElement:
    """The element being gathered."""

    key: Hashable
    time: int | None
    place: str
    broken: bool
    complete: bool = False
    triples: list[Triple] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        self.triples += piece.triples
        self.texts.append(piece.text)

    def close(self, stream: str, state_time: Callable[[Iterable[Triple]], int | None], reject: Reject) -> list[Element]:
        """The element, or none if it had to be rejected."""
        try:
            if self.broken:
                raise ValueError("the element has a malformed part or is next to one")
            stated = state_time(self.triples)
            if stated is not None and self.time is not None and stated != self.time:
                raise ValueError("the element has two timestamps")
            time = self.time if stated is None else stated
            if time is None:
                raise ValueError("the element has no timestamp")
        except ValueError as error:
            reject(Rejected(stream, self.place, str(error), "\n".join(self.texts)))
            return []
        return [Element(stream, time, tuple(self.triples))]


def stated_time(
    triples: Iterable[Triple], predicate: NamedNode, unit: str, subject: Hashable | None = None
) -> int | None:
    """The time that the triples state with a predicate (about one subject, if it is given), None if they state none."""
    found: int | None = None
    for triple in triples:
        if triple[1] != predicate or (subject is not None and triple[0] != subject):
            continue
        if not isinstance(triple[2], Literal):
            raise ValueError(f"the timestamp {triple[2]} is neither a dateTime nor an integer")
        if (time := time_of(triple[2], unit)) is None:
            raise ValueError(no_time_reason(triple[2]))
        if found is not None and found != time:
            raise ValueError("the element has two timestamps")
        found = time
    return found


def gather(
    stream: str, pieces: Iterable[Piece | Gap], reject: Reject, *, predicate: NamedNode | None = None, unit: str = "ms"
) -> Iterator[Element]:
    """Join consecutive pieces of one key; with a predicate, its object is the element's time."""

    def state_time(triples: Iterable[Triple]) -> int | None:
        return None if predicate is None else stated_time(triples, predicate, unit)

    current: _OpenElement | None = None
    gap = False
    for piece in pieces:
        if isinstance(piece, Gap):
            gap = True
            continue
        if current is not None and gap:
            current.broken = True
        if current is None or current.key != piece.key:
            if current is not None:
                yield from current.close(stream, state_time, reject)
            current = _OpenElement(piece.key, piece.time, piece.place, broken=gap)
        current.add(piece)
        gap = False
    if current is not None:
        current.broken |= gap
        yield from current.close(stream, state_time, reject)


def gather_graphs(
    stream: str, pieces: Iterable[Piece | Gap], reject: Reject, *, predicate: NamedNode | None = None, unit: str = "ms"
) -> Iterator[Element]:
    """Join consecutive quads of one graph; a piece's key is its graph name, None for the default graph.

    An element's time is the object of the declared predicate in the graph, or of prov:generatedAtTime about the graph's
    name. A statement of that predicate about the graph's name may also stand in the default graph, anywhere before the
    graph's quads or directly after them; it is then the timestamp and not part of the element. Nothing else in the
    default graph belongs to an element, so it is rejected.
    """
    clock = predicate or GENERATED_AT_TIME
    before: dict[Hashable, Piece] = {}
    current: _OpenElement | None = None
    gap = False

    def close(element: _OpenElement) -> list[Element]:
        subject = element.key if predicate is None else None
        return element.close(stream, lambda triples: stated_time(triples, clock, unit, subject), reject)

    def refuse(piece: Piece, reason: str) -> None:
        reject(Rejected(stream, piece.place, reason, piece.text))

    for piece in pieces:
        if isinstance(piece, Gap):
            gap = True
        elif piece.key is None:
            timed = _timestamp(piece, clock, unit)
            if isinstance(timed, str):
                refuse(piece, timed)
                continue
            if current is not None and current.key == timed.key:
                current.complete = True
                if current.time is None:
                    current.time = timed.time
                    continue
            if timed.key in before:
                refuse(before[timed.key], "the graph of this timestamp does not follow")
            before[timed.key] = timed
        else:
            if current is not None and gap:
                current.broken = True
            if current is None or current.complete or current.key != piece.key:
                if current is not None:
                    yield from close(current)
                stamp = before.pop(piece.key, None)
                current = _OpenElement(piece.key, stamp.time if stamp else None, piece.place, broken=gap)
            current.add(piece)
            gap = False
    if current is not None:
        current.broken |= gap
        yield from close(current)
    for unused in before.values():
        refuse(unused, "the graph of this timestamp does not follow")


def _timestamp(piece: Piece, clock: NamedNode, unit: str) -> Piece | str:
    """The piece as the time of the graph its subject names, or why it is none."""
    subject, predicate, _ = piece.triples[0]
    if predicate != clock or not isinstance(subject, NamedNode | BlankNode):
        return f"the statement is in no graph and is not the {clock} of one"
    try:
        return Piece(subject, stated_time(piece.triples, clock, unit), piece.triples, piece.place, piece.text)
    except ValueError as error:
        return str(error)
