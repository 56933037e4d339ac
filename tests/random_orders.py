"""Random scenarios that are rich in orders: sub-selects with LIMIT, keys that are computed, partitioned windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from .random_expressions import Choices, Features
from .random_queries import Part, _Queries, scenario
from .scenarios import Scenario


class _Orders(_Queries):
    """Writes one query."""

    def _order(self, names: tuple[str, ...]) -> str:
        keys = [self._key(names) for _ in range(self.pick([0, 1, 1, 2]) if names else 0)]
        limits = [
            "",
            *(f" LIMIT {self.pick([1, 2, 3, 5])}" for _ in range(4)),
            *([" LIMIT 0"] if self.chance(10) else []),
        ]
        limit, offset = self.pick(limits), self.pick(["", "", "", "", " OFFSET 1"])
        return (f" ORDER BY {' '.join(keys)}" if keys else "") + limit + offset

    def _key(self, names: tuple[str, ...]) -> str:
        key = f"?{self.pick(names)}" if self.chance(70) else f"({self.expression(names)})"
        return self.pick([key, f"DESC({key})", f"ASC({key})"])

    def _window(self, names: tuple[str, ...]) -> str:
        if not names or not self.features.partitions or not self.chance(30):
            return super()._window(names)
        by = " ".join(f"?{name}" for name in self.some(names)[:2])
        return f" [PARTITION BY {by} {self.pick(['TRIPLES', 'ELEMENTS'])} {self.number(1, 3)}]"

    def group(self, place: str, depth: int, *, stream: bool = False, given: tuple[str, ...] = ()) -> Part:
        if depth > 0 and self.features.subselects and self.chance(25):
            return self._sub_select(place, depth, stream=stream)
        return super().group(place, depth, stream=stream, given=given)


def ordered_scenario(choices: Choices, features: Features) -> Scenario:
    made = scenario(choices, features)
    return replace(made, query=_Orders(choices, features).query(), emit=choices.pick([made.emit, "snapshot"]))


@st.composite
def ordered_scenarios(draw: Any, features: Features) -> Scenario:
    return ordered_scenario(Choices.drawn(draw), features)
