"""Random scenarios that are rich in what is hard to do incrementally: merged windows, AT, EXISTS inside expressions,
conditions beside sides that may be unbound, orders that ask the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from .random_expressions import Choices, Features
from .random_queries import Part, _Queries, _union, scenario
from .scenarios import Scenario

_TIMESTAMP = "<http://larkc.eu/csparql/sparql/jena/ext#timestamp>"


class _Shapes(_Queries):
    """Writes one query; `_at` is where its expressions stand, for an EXISTS in them."""

    def __init__(self, choices: Choices, features: Features) -> None:
        super().__init__(choices, features)
        self._at: tuple[str, int] = ("dataset", 1)
        self._nested = 0
        self._merged = self.chance(30)

    def query(self) -> str:
        if not self._merged:
            return super().query()
        self._at = ("graph", 1)
        where = self.group("graph", 2)
        head, tail, _ = self._select(where)
        clauses = [f"FROM STREAM {name} {self._clause()}" for name in (":s1", ":s2", ":s1")[: self.number(1, 3)]]
        clauses += [f"FROM {name}" for name in (":g1", ":g2") if self.chance(40)]
        clauses += ["FROM NAMED :g2"] if self.chance(20) else []
        return f"{head} {' '.join(clauses)} WHERE {where.text}{tail}"

    def _clause(self) -> str:
        width, slide = self.number(1, 8), self.number(1, 4)
        return self.pick([f"[RANGE {width}s STEP {slide}s]", f"[RANGE TRIPLES {width}]", f"[RANGE {width}s]"])

    def group(self, place: str, depth: int, *, stream: bool = False, given: tuple[str, ...] = ()) -> Part:
        before, self._at = self._at, (place, depth)
        part = super().group(place, depth, stream=stream, given=given)
        self._at = before
        return part

    def _stream(self, depth: int, place: str) -> Part:
        if self._merged:
            return self._triples()
        part = super()._stream(depth, place)
        moment = next(each for each in ("t", "u", "e", "f") if each not in part.names)
        head, brace, rest = part.text.partition("{")
        if " AT " in head or not self.features.time or not self.chance(35):
            return part
        return Part(f"{head}AT ?{moment} {brace}{rest}", _union(part.names, (moment,)))

    def _part(self, place: str, depth: int, names: tuple[str, ...], given: tuple[str, ...]) -> Part:
        if depth > 0 and self._left > 0 and self.chance(25):
            inner = self.group(place, depth - 1, given=names)
            condition = self.condition(_union(inner.names, names), place, depth - 1)
            return Part(f"OPTIONAL {{ {inner.text} FILTER({condition}) }}", inner.names)
        return super()._part(place, depth, names, given)

    def _truth(self, names: tuple[str, ...], depth: int) -> str:
        if self._nested < 2 and self.features.exists and self.chance(10):
            self._nested += 1
            place, level = self._at
            text = f"({self.pick(['EXISTS', 'NOT EXISTS'])} {self.pattern(place, max(0, level - 1), names)})"
            self._nested -= 1
            return text
        return super()._truth(names, depth)

    def _any(self, names: tuple[str, ...], depth: int) -> str:
        if self._merged and self.features.time and self.chance(8):
            return f"{_TIMESTAMP}(?x, {self.pick([':p', ':v', '?w'])}, {self.pick(['?y', '?n'])})"
        return super()._any(names, depth)

    def _order(self, names: tuple[str, ...]) -> str:
        if not self.features.order or not names or not self.chance(20):
            return super()._order(names)
        keys = [self.pick([f"({self.expression(names)})", f"DESC({self.expression(names)})"]) for _ in range(2)]
        return f" ORDER BY {' '.join(keys)}{self._limits(ordered=True)}"


def shape(choices: Choices, features: Features) -> Scenario:
    """A scenario with such a query."""
    return replace(scenario(choices, features), query=_Shapes(choices, features).query())


@st.composite
def shapes(draw: Any, features: Features) -> Scenario:
    return shape(Choices.drawn(draw), features)
