"""Random scenarios with queries that are variants of each other: the same text with other constants, other thresholds,
other widths of windows, or the same."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from cqels.model.terms import XSD

from .random_expressions import Choices, Features
from .random_queries import LINKS, scenario
from .scenarios import EX, NAME, Drop, Event, Register, Scenario, Snapshot

_NODES = (":a", ":b", ":c")
_NODE = re.compile(r"(?<![\w:?<]):[ab]\b")
_RANGE = re.compile(r"RANGE \d+s(?=\])")
_COUNT = re.compile(r"(?<=\[)(TRIPLES|ELEMENTS) \d+(?=\])")
_THRESHOLD = re.compile(r"(?<=[<>=] )1\b(?!\.)|(?<![\w.])1(?= [<>])")
_THRESHOLDS = (
    *("0", "1", "1", "2", "2", "3", "-1", "+2", "1.5", "1.0", "0.25", "2.5e0", "5e-1", "1e0", "01", "'x'"),
    *(
        f"'{text}'^^<{XSD}{name}>"
        for text, name in (("1", "byte"), ("0.25", "float"), ("2", "float"), ("z", "integer"))
    ),
    *(f"'{text}'^^<{XSD}double>" for text in ("NaN", "INF", "-INF")),
)
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
_COMPARED = (
    "STREAM :s1 [{window}] {{ ?x :v ?n }} FILTER(?n > 1)",
    "STREAM :s1 [{window}] {{ ?x :v ?n FILTER(1 >= ?n) }}",
    "STREAM :s1 [{window}] {{ ?x :v ?n }} FILTER(?n > 1 && ?n <= 1)",
    "STREAM :s1 [{window}] {{ ?x :v ?n }} FILTER(?n >= 1) FILTER(?n != 2 && ?n < 1)",
    "STREAM :s1 [{window}] {{ ?x :v ?n }} FILTER(?x = :a && ?n < 1)",
    "STREAM :s1 [{window}] {{ :a :v ?n }} FILTER(?n >= 1)",
    "STREAM :s1 [{window}] {{ ?x :v ?n }} FILTER(?n = 'x' && ?n >= 1)",
    "STREAM :s1 [{window}] {{ ?x :v ?n . ?x {link} :a }} FILTER(?n >= 1)",
    "STREAM :s1 [{window}] {{ ?x :v ?n FILTER(?n > 1) }} STREAM :s2 [{window}] {{ ?x :v ?m FILTER(?m <= 1) }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} ?y :v ?n FILTER(?n < 1)",
    "STREAM :s1 [{window}] {{ ?x {link} ?y OPTIONAL {{ ?x :v ?n }} }} FILTER(?n > 1)",
    "STREAM :s1 [{window}] {{ ?x :v ?n }} OPTIONAL {{ ?x {other} ?y }} FILTER(1 < ?n)",
    "?x :v ?n OPTIONAL {{ STREAM :s1 [{window}] {{ ?x {link} ?y }} }} FILTER(?n > 1)",
    "STREAM :s1 [PARTITION BY ?x TRIPLES 1] {{ ?x :v ?n FILTER(?n > 1) }}",
    "STREAM :s1 [PARTITION BY ?x TRIPLES 1] {{ ?x :v ?n }} FILTER(?n > 1)",
    "STREAM :s1 [{window}] {{ ?x :v ?n }} BIND(?n + 1 AS ?y) FILTER(?n > 1 && ?y < 1)",
    "STREAM :s1 [{window}] {{ ?x ?w ?n }} FILTER(?n >= 1) FILTER NOT EXISTS {{ ?x {other} :b FILTER(?n > 1) }}",
    "{{ SELECT ?x WHERE {{ STREAM :s1 [{window}] {{ ?x :v ?n }} FILTER(?n > 1) }} }} ?x {other} ?n FILTER(?n < 1)",
)
_COMPARED_FORMS = (
    "SELECT ?x ?n ?y WHERE {{ {where} }}",
    "SELECT DISTINCT ?n WHERE {{ {where} }}",
    "SELECT ?x (COUNT(*) AS ?k) (SUM(?n) AS ?s) WHERE {{ {where} }} GROUP BY ?x",
    "SELECT ?n (COUNT(*) AS ?k) WHERE {{ {where} }} GROUP BY ?n HAVING(COUNT(*) > 1 && ?n > 1)",
    "SELECT ?x ?n (getENDTIME() AS ?e) WHERE {{ {where} }}",
)
_WIDTHS = (0, 1, 2, 2, 3, 3, 4, 4, 6)
_WIDE_PATTERNS = (
    "STREAM :s1 [{window}] {{ ?x {link} ?y }}",
    "STREAM :s1 [{window}] {{ ?x {link} :a }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y . ?y {other} ?z }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y . ?x :v ?m FILTER(?m > 1) }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} STREAM :s2 [{window}] {{ ?y {other} ?z }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} STREAM :s2 [NOW] {{ ?x {other} ?z }}",
    "STREAM :s1 [NOW] {{ ?x {link} ?y }} {{ STREAM :s2 [{window}] {{ ?x {other} ?z }} }} ?y {link} ?x",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} STREAM :s1 [{window}] {{ ?y {link} :a }} STREAM :s2 [NOW] {{ ?x ?w ?z }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} ?y {other} ?z",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} FILTER(?x = :a)",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} FILTER(?x != ?y)",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} FILTER NOT EXISTS {{ ?x {other} :b }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} OPTIONAL {{ ?y {other} ?z }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} MINUS {{ ?x {other} ?y }}",
    "STREAM :s1 [{window}] {{ {{ ?x {link} ?y }} UNION {{ ?y {other} ?x }} }}",
    "STREAM :s1 [{window}] {{ {{ SELECT ?x WHERE {{ ?x {link} ?y }} }} BIND(STR(?x) AS ?y) }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y VALUES (?x ?z) {{ (:a :b) (UNDEF :a) }} }}",
    "STREAM :s1 [{window}] AT ?t {{ ?x {link} ?y . ?y {other} ?z }}",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} BIND(getSTARTTIME() AS ?t)",
    "STREAM :s1 [{window}] {{ ?x {link} ?y }} STREAM :s2 [{window}] {{ ?x {other} ?z }} BIND(getDURATION() AS ?t)",
)
_WIDE_FORMS = (
    "SELECT ?x ?y ?t WHERE {{ {where} }}",
    "SELECT ?x (SAMPLE(?y) AS ?s) (GROUP_CONCAT(?y) AS ?g) WHERE {{ {where} }} GROUP BY ?x",
    "SELECT ?x (MIN(?y) AS ?s) (COUNT(DISTINCT *) AS ?n) WHERE {{ {where} }} GROUP BY ?x",
    "SELECT DISTINCT ?x (getENDTIME() AS ?e) WHERE {{ {where} }}",
    "SELECT ?y WHERE {{ {{ SELECT DISTINCT ?y ?x WHERE {{ {where} }} }} FILTER(?x = :b) }}",
)
_MERGED = (
    "SELECT ?x ?y FROM STREAM :s1 [{window}] FROM STREAM :s2 [{window}] WHERE {{ ?x {link} ?y . ?y {other} ?z }}",
    "SELECT ?x FROM STREAM :s1 [{window}] FROM STREAM :s2 [NOW] WHERE {{ ?x {link} :a }}",
    "SELECT ?x ?y FROM STREAM :s1 [{window}] FROM :g1 WHERE {{ ?x {link} ?y }}",
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
    thresholds = True
    """Numbers that are compared with vary too."""

    def text(self, random: str) -> str:
        """A query with constants: a random one, or one of a kind that can share much."""
        if self.chance(30):
            return random
        links = [f":{link.value.removeprefix(EX)}" for link in LINKS]
        where = self.pick(_PATTERNS).format(window=self.pick(_WINDOWS), link=self.pick(links), other=self.pick(links))
        return self.pick([*_FORMS[:2], *_FORMS]).format(where=where)

    def wide_text(self) -> str:
        """A query whose windows may have another width, most of them so that the widths can share."""
        links = [f":{link.value.removeprefix(EX)}" for link in LINKS]
        window = self.pick(["RANGE 2s", "RANGE 2s", "TRIPLES 3", "ELEMENTS 2"])
        words = {"window": window, "link": self.pick(links), "other": self.pick(links)}
        if self.chance(8):
            return self.pick(_MERGED).format(**words)
        where = self.pick([*_WIDE_PATTERNS, *_WIDE_PATTERNS, *_PATTERNS]).format(**words)
        return self.pick([*_FORMS[:7], *_WIDE_FORMS]).format(where=where)

    def compared_text(self) -> str:
        """A query that compares with thresholds."""
        links = [f":{link.value.removeprefix(EX)}" for link in LINKS]
        window = self.pick([*["RANGE 2s"] * 4, *_WINDOWS])
        where = self.pick(_COMPARED).format(window=window, link=self.pick(links), other=self.pick(links))
        return self.pick(_COMPARED_FORMS).format(where=where)

    def variant(self, text: str) -> str:
        width = self.pick(_WIDTHS)

        def ranging(found: re.Match[str]) -> str:
            return f"RANGE {width if self.chance(95) else self.pick(_WIDTHS)}s"

        def counting(found: re.Match[str]) -> str:
            return f"{found[1]} {1 + (width if self.chance(95) else self.pick(_WIDTHS))}"

        if self.chance(60):
            text = _COUNT.sub(counting, _RANGE.sub(ranging, text))
        if self.thresholds:
            text = _THRESHOLD.sub(lambda found: self.pick(_THRESHOLDS) if self.chance(70) else found[0], text)
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
def variants(draw: Any, *, wide: bool = False, compared: bool = False) -> Scenario:
    """`wide`: what they have in common is such that most can have windows of several widths and share them.

    `compared`: they compare with thresholds.
    """
    return variant(Choices.drawn(draw), wide=wide, compared=compared)


def variant(choices: Choices, *, wide: bool = False, compared: bool = False) -> Scenario:
    """One of them."""
    made = scenario(choices, Features(elements=14 if wide else 8))
    own = _Variants(choices.number)
    text = own.compared_text() if compared else own.wide_text() if wide else own.text(made.query)
    emit = own.pick([None, "istream", "dstream", "changes", "changes" if wide else made.emit])
    policy = "cqels" if wide else own.pick([None, None, made.policy])
    made = replace(made, query=own.variant(text), emit=emit, policy=policy)
    others = tuple(own.register(f"other-{number}", text, made) for number in range(own.number(1, 6)))
    events = own.events(text, made, [NAME, *(each.name for each in others)])
    return replace(made, others=others, events=events)


def crowd(seed: int, count: int = 200, *, restless: int = 40, compared: bool = False) -> Scenario:
    """Many queries over the same streams: some are variants of others, and `restless` of a hundred come later or go.

    `compared`: the variants compare with thresholds, which vary.
    """
    choices = Choices.seeded(seed)
    own = _Variants(choices.number)
    own.thresholds = compared
    base = replace(scenario(choices, Features(elements=20)), policy=None)
    if compared:
        texts = [own.compared_text() for _ in range(10)]
    else:
        texts = [own.wide_text() if own.chance(50) else own.text(base.query) for _ in range(10)]
    there: list[Register] = []
    events: list[Event] = list(base.events)
    for number in range(count):
        name = NAME if number == 0 else f"{NAME}-{number}"
        if own.chance(50):
            one = own.register(name, own.pick(texts), base)
        else:
            one = replace(scenario(choices, Features(elements=1)).main, name=name)
        at = 0
        if number == 0 or own.chance(100 - restless):
            there.append(one)
        else:
            at = own.number(0, len(events))
            events.insert(at, one)
        if own.chance(restless):
            events.insert(own.number(at + 1, len(events)) if at else len(events), Drop(name))
    main, *others = there
    for _ in range(2):
        events.insert(own.number(0, len(events)), Snapshot())
    return Scenario(base.static, base.streams, tuple(events), main.text, main.emit, main.policy, tuple(others))


def alone(scenario: Scenario, name: str) -> Scenario:
    """What happens with one of the queries and no other; the main one is there, since each scenario has one."""
    mine = [each for each in scenario.others if each.name == name]
    events = [each for each in scenario.events if not isinstance(each, Register | Drop) or each.name in (name, NAME)]
    return replace(scenario, others=tuple(mine), events=tuple(events))
