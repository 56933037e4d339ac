"""Random scenarios with queries of different shapes that have joins of streams in common, under other names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from .random_expressions import Choices, Features
from .random_queries import scenario
from .scenarios import NAME, Drop, Event, Register, Scenario, Snapshot

_WINDOWS = ("RANGE 2s", "RANGE 3s", "RANGE 4s", "NOW", "ALL", "RANGE 3s SLIDE 2s", "ELEMENTS 3", "TRIPLES 4")
_JOINS = (
    "?x :p ?y",
    "?x :p ?y",
    "?x :p ?y . ?x :v ?m",
    "?x :p ?y . ?x :q ?z",
    "?x :p ?y . ?y :q ?z",
    "?x :p ?y . ?x :q ?z . ?x :v ?m",
    "?x :p ?y . ?y :p ?z",
    "?x :p ?y . ?z :p ?y . ?z :v ?m",
)
_MORE = ("", "", "", ". ?y :q ?u", ". ?x :v ?n", ". ?u :p ?x", ". ?x :p ?u . ?x :v ?n", ". ?a :p ?b . ?b :q ?c")
_INSIDE = ("", "", "", "FILTER(?x != ?y)", "FILTER(?x != ?y) FILTER(?y = :a)", "FILTER EXISTS { ?y :q ?x }")
_BESIDE = (
    "",
    "",
    "?x :q ?r",
    "?y :p ?r . ?r :p ?t",
    "OPTIONAL {{ ?y :q ?r }}",
    "MINUS {{ ?x :q :b }}",
    "FILTER(?x = :a)",
    "FILTER(?y != :b)",
    "FILTER NOT EXISTS {{ ?x :q ?y }}",
    "STREAM :s2 [{window}] {{ ?x :p ?r }}",
    "STREAM :s1 [{window}] {{ ?y :p ?r . ?y :v ?k }}",
    "STREAM :s1 [{window}] {{ ?y :p ?r . ?y :v ?k }} STREAM :s1 [{window}] {{ ?r :p ?t . ?r :v ?l }}",
    "OPTIONAL {{ STREAM :s1 [{window}] {{ ?y :p ?r . ?y :v ?k }} }}",
    "OPTIONAL {{ STREAM :s2 [{window}] {{ ?x :p ?r . ?x :v ?k }} }}",
    "VALUES ?x {{ :a :c }}",
    "BIND(STR(?y) AS ?r)",
    "BIND(getENDTIME() AS ?r)",
)
_FORMS = (
    "SELECT * WHERE {{ {where} }}",
    "SELECT ?x ?y WHERE {{ {where} }}",
    "SELECT DISTINCT ?y WHERE {{ {where} }}",
    "SELECT ?x (COUNT(*) AS ?n1) WHERE {{ {where} }} GROUP BY ?x",
    "SELECT (COUNT(*) AS ?n1) (MAX(?y) AS ?n2) WHERE {{ {where} }}",
    "SELECT ?y (COUNT(DISTINCT ?x) AS ?n1) WHERE {{ {where} }} GROUP BY ?y HAVING(COUNT(*) > 1)",
    "SELECT ?x (SAMPLE(?y) AS ?n1) WHERE {{ {where} }} GROUP BY ?x",
    "SELECT ?x ?y WHERE {{ {where} }} ORDER BY ?y LIMIT 2",
    "CONSTRUCT {{ ?x :p ?y . ?y :q _:b }} WHERE {{ {where} }}",
    "ASK {{ {where} }}",
)
_VARIABLE = re.compile(r"\?([a-z]\w*)")
_NAMES = ("", "", "z", "k")


class _Joins(Choices):
    def text(self, join: str, window: str) -> str:
        """A query with a join, and more of it or beside it; what it calls its variables is its own affair."""
        if self.chance(15):
            window = self.pick(_WINDOWS)
        patterns = join.split(" . ")
        if self.chance(30):
            patterns.reverse()
        inner = f"{' . '.join(patterns)} {self.pick(_MORE)} {self.pick(_INSIDE)}"
        block = f"STREAM :s1 [{window}] {{ {inner} }}"
        if self.chance(10):
            block = " ".join(f"STREAM :s1 [{window}] {{ {each} }}" for each in patterns)
        where = f"{block} {self.pick(_BESIDE).format(window=window)}"
        text = self.pick([*_FORMS[:2], *_FORMS]).format(where=where)
        ending = self.pick(_NAMES)
        return _VARIABLE.sub(lambda found: f"?{found[1]}{ending}", text)

    def register(self, name: str, join: str, window: str, like: Scenario) -> Register:
        emit = like.emit if self.chance(60) else self.pick(["istream", "dstream", "changes", "snapshot", "rstream"])
        return Register(name, self.text(join, window), emit, like.policy)

    def events(self, join: str, window: str, like: Scenario, there: list[str]) -> tuple[Event, ...]:
        """What happens, with queries that come and go, several at once too, and snapshots."""
        events, running = list(like.events), [*there]
        at = 0
        for number in range(self.number(0, 7)):
            at = at if self.chance(50) else self.number(at, len(events))
            if running and self.chance(45):
                events.insert(at, Drop(running.pop(self.number(0, len(running) - 1))))
            else:
                running.append(f"late-{number}")
                events.insert(at, self.register(running[-1], join, window, like))
            at += 1
        for _ in range(self.pick([0, 0, 1, 2])):
            events.insert(self.number(0, len(events)), Snapshot())
        return tuple(events)


def joining(choices: Choices, elements: int = 14, most: int = 6) -> Scenario:
    """A few queries, or up to so many, over one join."""
    made = scenario(choices, Features(elements=elements))
    own = _Joins(choices.number)
    join, window = own.pick(_JOINS), own.pick(_WINDOWS)
    emit = own.pick([None, "istream", "dstream", "changes"])
    made = replace(made, emit=emit, policy=own.pick(["cqels", "cqels", "cqels", "window-close"]))
    main = own.register(NAME, join, window, made)
    others = tuple(
        own.register(f"other-{number}", join, window, made) for number in range(own.number(max(1, most - 10), most))
    )
    events = own.events(join, window, made, [NAME, *(each.name for each in others)])
    return replace(made, query=main.text, emit=main.emit, others=others, events=events)


@st.composite
def joins(draw: Any) -> Scenario:
    return joining(Choices.drawn(draw))
