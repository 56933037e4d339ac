"""Slices of which only what is near is kept in order send the same, with so little to spare that edges move often."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyoxigraph import Literal, NamedNode, Quad

from cqels.ingest import Element, StreamSettings
from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import ALWAYS
from cqels.kernels.operators import topk
from cqels.model.terms import XSD_DECIMAL, XSD_INTEGER
from cqels.model.time import SECOND

from ..incremental import Incremental
from ..random_expressions import Choices
from ..scenarios import EX, Scenario, run

MANY = int(os.environ.get("FUZZ_EXAMPLES", "400"))
SIZES = [pytest.param(6, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]
READINGS = "STREAM :s1 [RANGE %ds] { ?x :in ?g ; :value ?v }"
QUERIES = {
    "groups": f"SELECT ?g (COUNT(*) AS ?n) WHERE {{ {READINGS} }} GROUP BY ?g ORDER BY DESC(?n)",
    "the least": f"SELECT ?g (SUM(?v) AS ?n) WHERE {{ {READINGS} }} GROUP BY ?g ORDER BY ?n DESC(?g)",
    "having": f"SELECT ?g (MAX(?v) AS ?n) WHERE {{ {READINGS} }} GROUP BY ?g HAVING (COUNT(*) > 1) ORDER BY ?n",
    "two groups": f"""SELECT ?g ?m ?n WHERE {{
        {{ SELECT ?g (MEDIAN(?v) AS ?m) WHERE {{ {READINGS} }} GROUP BY ?g }}
        {{ SELECT ?g (COUNT(*) AS ?n) WHERE {{ STREAM :s1 [RANGE 9s] {{ ?y :in ?g }} }} GROUP BY ?g }} }}
        ORDER BY DESC(?m / ?n)""",
    "a join": f"SELECT ?x ?v ?k WHERE {{ {READINGS} ?g :kind ?k BIND(?v * 2 AS ?w) FILTER(?w > 3) }} ORDER BY ?w",
    "the freshest": f"SELECT ?x ?k WHERE {{ {READINGS} ?g :kind ?k }}",
}
STATIC = tuple(
    Quad(NamedNode(f"{EX}g{number}"), NamedNode(EX + "kind"), Literal(str(number % 3))) for number in range(9)
)


class Watched(Incremental):
    """Notes after each event whether there is an edge, and whether it was moved after asking for all rows."""

    def push(self, element: Element) -> None:
        super().push(element)
        self.seen = {*getattr(self, "seen", set()), *self._edges()}

    def _edges(self) -> Iterator[str]:
        words = self.engine.internals.arena.words
        for query in self.engine.queries:
            pipeline = query.running.pipeline.offset
            operators, place = int(words[pipeline + scheduler.OPERATORS]), int(words[pipeline + scheduler.OPERATORS_AT])
            for kind, at, _ in words[place : place + 3 * operators].reshape(-1, 3):
                if kind == scheduler.ORDERED and words[at + topk.NEAR]:
                    yield "cut" if words[at + topk.EDGE] != ALWAYS else "none"
                    yield "asked" if words[at + topk.NEXT_EDGE] else "not asked"


def scenario(choices: Choices, query: str) -> Scenario:
    """Readings of nine groups, whose sizes drift: those that were far behind come to the front."""
    events = []
    for number in range(60):
        group = min(choices.number(0, 9), choices.number(0, 2 + number // 8)) % 9
        value = choices.pick([Literal(str(choices.number(1, 9)), datatype=XSD_INTEGER), _decimal(choices)])
        about = NamedNode(f"{EX}x{choices.number(0, 90)}")
        triples = ((about, NamedNode(EX + "in"), NamedNode(f"{EX}g{group}")), (about, NamedNode(EX + "value"), value))
        events.append(Element(EX + "s1", number * SECOND, triples))
    limit = choices.pick([" LIMIT 1", " LIMIT 2", " LIMIT 2 OFFSET 1"])
    text = query.replace("%d", str(choices.pick([4, 9, 20]))) + limit
    emit = choices.pick(["snapshot", "changes", "istream"])
    return Scenario(STATIC, (StreamSettings(EX + "s1"),), tuple(events), text, emit=emit)


def _decimal(choices: Choices) -> Literal:
    return Literal(f"{choices.number(0, 5)}.{choices.number(1, 9)}", datatype=XSD_DECIMAL)


@pytest.mark.parametrize("examples", SIZES)
def test_what_is_far_is_not_missed(examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topk, "SPARE", -1)
    monkeypatch.setattr(topk, "CROWD", 1)
    seen = []

    class Noted(Watched):
        def finish(self) -> None:
            seen.append(self.seen)
            super().finish()

    for seed in range(examples):
        for name, query in QUERIES.items():
            made = scenario(Choices.seeded(seed), query)
            assert run(made, engine=Noted) == run(made), (name, seed)
    assert sum("asked" in each for each in seen) > examples  # of six queries
    assert sum("cut" in each for each in seen) > 4 * examples
