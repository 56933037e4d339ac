"""What a stream brings: elements, and the lines or records that could not become one."""

from __future__ import annotations

from dataclasses import dataclass

from cqels.model.terms import Triple


@dataclass(frozen=True, slots=True)
class Element:
    """A non-empty graph with one timestamp, on the stream of this IRI."""

    stream: str
    time: int
    triples: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Input that is no element: its place (`file:line`), one lowercase sentence why, and the text itself."""

    stream: str
    place: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"
