"""Random sequences of register, drop, push, update, snapshot and restore: the engine sends what the reference does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random

from cqels.ingest import Element
from cqels.store.dataset import Store

from ..incremental import Incremental
from ..random_expressions import Choices, Features
from ..random_joins import joining
from ..random_lookups import lookup
from ..random_orders import ordered_scenario
from ..random_queries import scenario
from ..random_shapes import shape
from ..random_stars import star
from ..random_variants import variant
from ..scenarios import Scenario, run
from .harness import Kind

COMPANY = Features(patterns=4, elements=6, comings=True, derived=True, snapshots=True)
LONG = replace(COMPANY, elements=20)
MADE: dict[str, Callable[[Choices], Scenario]] = {
    "company": lambda choices: scenario(choices, COMPANY, beside=2),
    "long": lambda choices: scenario(choices, LONG, beside=1),
    "any": lambda choices: scenario(choices, Features()),
    "ordered": lambda choices: ordered_scenario(choices, Features(elements=12)),
    "shapes": lambda choices: shape(choices, Features()),
    "stars": lambda choices: star(choices, choices.number(3, 14), choices.pick([2, 5, 50]), choices.pick([60, 95])),
    "variants": variant,
    "widths": lambda choices: variant(choices, wide=True),
    "thresholds": lambda choices: variant(choices, wide=True, compared=True),
    "lookups": lookup,
    "joins": joining,
}


class GoingBack(Incremental):
    """After a snapshot it takes a few elements, goes back to what was saved, and takes them again."""

    again = 2
    _data: bytes | None = None
    _since: list[Element]

    def snapshotted(self) -> Incremental:
        data = self.engine.snapshot()
        other = super().snapshotted()
        assert isinstance(other, GoingBack)
        other._data, other._since = data, []
        return other

    def push(self, element: Element) -> None:
        super().push(element)
        if self._data is None:
            return
        self._since.append(element)
        if len(self._since) == self.again:
            data, self._data = self._data, None
            for query in self.engine.queries:
                query.take()
            self.engine.restore(data)
            for each in self._since:
                super().push(each)

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        self._data = None
        super().heartbeat(time, stream)

    def update(self, change: Callable[[Store], object]) -> None:
        self._data = None
        super().update(change)

    def drop(self, query: object) -> None:
        self._data = None
        super().drop(query)  # type: ignore[arg-type]

    def register(self, query: object) -> object:  # type: ignore[override]
        self._data = None
        return super().register(query)  # type: ignore[arg-type]


def draw(random: Random) -> bytes:
    kind = random.choice(["company", "company", *MADE])
    seed = random.randrange(1 << 48)
    return json.dumps({"kind": kind, "seed": seed, "back": random.random() < 0.5}).encode()


def check(case: bytes) -> None:
    content = json.loads(case)
    made = MADE[content["kind"]](Choices.seeded(content["seed"]))
    engine = GoingBack if content["back"] else Incremental
    assert run(made, engine=engine) == run(made), repr(made)


SEQUENCES = Kind("sequences", draw, check, limit=120)
