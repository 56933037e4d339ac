"""Random scenarios with queries that are variants of each other: the same text with other constants, or the same."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from .random_expressions import Choices, Features
from .random_queries import LINKS, scenario
from .scenarios import EX, NAME, Drop, Event, Register, Scenario, Snapshot

_NODES = (":a", ":b", ":c")
_NODE = re.compile(r"(?<![\w:?<]):[ab]\b")
_PATTERNS = (
    "STREAM :s1 [{window}] {{ ?x {link} :a }}",
    "STREAM :s1 [{window}] {{ :a {link} ?y }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} ?y {other} :a",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} FILTER(?x = :a)",
    "STREAM :s1 [{window}] {{ ?x {link} ?y . ?y {other} :b }} FILTER(?x = :a)",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} STREAM :s2 [{window}] {{ ?y {other} :a }}",
    "STREAM :s1 [{window}] {{ ?x {link} :a OPTIONAL {{ ?x {other} ?y }} }}",
    "STREAM :s1 [{window}] {{ ?x {link} :a }} FILTER NOT EXISTS {{ STREAM :s2 [{window}] {{ ?x {other} :b }} }}",
    "STREAM :s1 [{window}] {{ ?x {link} :a }} MINUS {{ ?x {other} :b }}",
    "STREAM :s1 [{window}] {{ ?x {link} :a }} ?x {other} ?y . ?y {link} :b",
    "STREAM :s1 [PARTITION BY ?x TRIPLES 1] {{ ?x {link} :a }}",
    "STREAM :s1 [PARTITION BY ?x TRIPLES 1] {{ ?x {link} ?y }} FILTER(?y = :a)",
)
_WINDOWS = ("NOW", "RANGE 2s", "RANGE 4s", "RANGE 3s SLIDE 2s", "ELEMENTS 3", "TRIPLES 4", "ALL")
_FORMS = (
    "SELECT ?x ?y WHERE {{ {where} }}",
    "SELECT * WHERE {{ {where} }}",
    "SELECT DISTINCT ?x WHERE {{ {where} }}",
    "SELECT ?x (COUNT(*) AS ?n) WHERE {{ {where} }} GROUP BY ?x",
    "SELECT (COUNT(*) AS ?n) WHERE {{ {where} }}",
    "SELECT ?y (COUNT(DISTINCT ?x) AS ?n) WHERE {{ {where} }} GROUP BY ?y HAVING(COUNT(*) > 1)",
    "CONSTRUCT {{ ?x :p ?y . ?x :q _:b }} WHERE {{ {where} }}",
    "ASK {{ {where} }}",
    "SELECT ?x ?y WHERE {{ {where} }} ORDER BY ?x LIMIT 2",
)


class _Variants(Choices):
    def text(self, random: str) -> str:
        """A query with constants: a random one, or one of a kind that can share much."""
        if self.chance(30):
            return random
        links = [f":{link.value.removeprefix(EX)}" for link in LINKS]
        where = self.pick(_PATTERNS).format(window=self.pick(_WINDOWS), link=self.pick(links), other=self.pick(links))
        return self.pick([*_FORMS[:2], *_FORMS]).format(where=where)

    def variant(self, text: str) -> str:
        return _NODE.sub(lambda found: self.pick(_NODES) if self.chance(60) else found[0], text)

    def register(self, name: str, text: str, like: Scenario) -> Register:
        emit = like.emit if self.chance(85) else self.pick([None, "istream", "dstream", "changes", "snapshot"])
        return Register(name, self.variant(text), emit, like.policy)

    def events(self, text: str, like: Scenario, there: list[str]) -> tuple[Event, ...]:
        """What happens, and queries that come and go between: several at once, too."""
        events, running = list(like.events), [*there]
        at = 0
        for number in range(self.number(0, 6)):
            at = at if self.chance(40) else self.number(at, len(events))
            if running and self.chance(40):
                events.insert(at, Drop(running.pop(self.number(0, len(running) - 1))))
            else:
                running.append(f"late-{number}")
                events.insert(at, self.register(running[-1], text, like))
            at += 1
        for _ in range(self.pick([0, 0, 1, 2])):
            events.insert(self.number(0, len(events)), Snapshot())
        return tuple(events)


@st.composite
def variants(draw: Any) -> Scenario:
    choices = Choices.drawn(draw)
    made = scenario(choices, Features(elements=8))
    own = _Variants(choices.number)
    text = own.text(made.query)
    emit = own.pick([None, "istream", "dstream", "changes", made.emit])
    policy = own.pick([None, None, made.policy])
    made = replace(made, query=own.variant(text), emit=emit, policy=policy)
    others = tuple(own.register(f"other-{number}", text, made) for number in range(own.number(1, 6)))
    events = own.events(text, made, [NAME, *(each.name for each in others)])
    return replace(made, others=others, events=events)
