"""Random scenarios about stars: several patterns about one subject, and elements of which most bring all that is asked
for; the others bring less, more, the same again, or what another element has brought."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode

from cqels.ingest import Element
from cqels.model.terms import XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, Triple
from cqels.model.time import SECOND
from cqels.reference.event_time import StreamSettings

from .random_expressions import Choices
from .scenarios import EX, Beat, Event, Scenario, Snapshot

_NAMES = ("a", "b", "c")
_VALUES = [
    *(Literal(text, datatype=XSD_INTEGER) for text in ("1", "2", "-3", "4503599")),
    *(
        Literal(text, datatype=XSD_DECIMAL)
        for text in ("1.5", "-0.25", "41.474937", "0.000000001", "9007199254.740993")
    ),
    Literal("2.5", datatype=XSD_DOUBLE),
    Literal("x"),
]
_WINDOWS = (
    "[NOW]",
    "[RANGE 3s]",
    "[RANGE 3s]",
    "[RANGE 8s]",
    "[RANGE 60s]",
    "[RANGE 6s SLIDE 2s]",
    "[ALL]",
    "[TRIPLES 4]",
    "[ELEMENTS 3]",
)
_NUMBERS = (
    "ROUND((?a + 74.913585) / 0.005986) + 1",
    "FLOOR((41.474937 - ?b) / 0.002245778)",
    "(?a - ?b) / 0.7",
    "?a * ?b + ?a / ?b",
    "STRLEN(STR(?a)) + ?b",
    "IF(?a > ?b, ?a, ?b)",
)
_TESTS = ("?a > 0", "?b <= 1.50", "?a < ?b", "?a = ?b", "?a != 1.5", "?b >= -0.2500000000", 'STR(?b) != "x"')


class _Stars(Choices):
    def query(self) -> str:
        width = self.number(2, 3)
        objects = [f"?{name}" for name in _NAMES[:width]]
        if self.chance(15):
            objects[-1] = self.pick(["1", "1.5"])
        patterns = " ; ".join(f":{name} {each}" for name, each in zip(_NAMES, objects, strict=False))
        inside = f" FILTER({self.pick(_TESTS)})" if self.chance(30) else ""
        parts = [f"STREAM :s1 {self.pick(_WINDOWS)} {{ ?x {patterns} .{inside} }}"]
        names = ["?x", *(each for each in objects if each.startswith("?"))]
        for number in range(self.pick([0, 1, 2, 3])):
            parts.append(f"BIND({self.pick(_NUMBERS)} AS ?v{number})")
            names.append(f"?v{number}")
            if self.chance(30):
                parts.append(f"FILTER({self.pick([*_TESTS, f'?v{number} > 1'])})")
        where = f"WHERE {{ {' '.join(parts)} }}"
        match self.pick(["plain", "plain", "group", "order", "sample"]):
            case "group":
                return f"SELECT {names[-1]} (COUNT(?x) AS ?n) (MEDIAN(?a) AS ?m) {where} GROUP BY {names[-1]}"
            case "order":
                return f"SELECT {' '.join(names)} {where} ORDER BY DESC({self.pick(names)}) LIMIT {self.number(1, 3)}"
            case "sample":
                return f"SELECT ?x (SAMPLE({names[-1]}) AS ?last) (SUM(?a) AS ?all) {where} GROUP BY ?x"
            case _:
                return f"SELECT {' '.join(self.some(names))} {where}"

    def events(self, count: int, subjects: int, whole: int) -> tuple[Event, ...]:
        time, found = 0, []
        events: list[Event] = []
        for _ in range(count):
            time += self.pick([0, 1, 1, 1, 2, 5]) * SECOND
            subject = NamedNode(f"{EX}t{self.number(1, subjects)}")
            triples = [(subject, NamedNode(EX + name), self.pick(_VALUES)) for name in _NAMES]
            if not self.chance(whole):
                triples = self._other(triples, found)
            found += triples
            events.append(Element(EX + "s1", time, tuple(dict.fromkeys(triples))))
            if self.chance(5):
                events.append(self.pick([Beat(time + 2 * SECOND), Snapshot()]))
                time += 2 * SECOND
        return tuple(events)

    def _other(self, triples: list[Triple], found: list[Triple]) -> list[Triple]:
        match self.pick(["less", "more", "again", "mixed", "none"]):
            case "less":
                return list(self.some(triples))
            case "more":
                return [*triples, (triples[0][0], triples[0][1], self.pick(_VALUES))]
            case "again":
                return list(self.some(found[-9:])) if found else triples
            case "mixed":
                return [*triples, *(found[-2:])][::-1]
            case _:
                return [(triples[0][0], NamedNode(EX + "other"), self.pick(_VALUES))]


def star(choices: Choices, count: int, subjects: int, whole: int) -> Scenario:
    """So many elements about so many subjects, and how many in a hundred bring all."""
    made = _Stars(choices.number)
    return Scenario((), (StreamSettings(EX + "s1"),), made.events(count, subjects, whole), made.query())


@st.composite
def stars(draw: Any) -> Scenario:
    choices = Choices.drawn(draw)
    return star(choices, choices.number(3, 14), choices.pick([2, 5, 50]), choices.pick([60, 95]))
