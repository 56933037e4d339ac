"""Random lives of queries: which run beside the one that a scenario is about, when they come and when they go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from cqels.plan.binder import EMISSIONS

from .random_expressions import Choices, Features
from .scenarios import EX, NAME, Drop, Event, Register, Snapshot

SOURCES = (":s1", ":s2")
EVERY = "?s"
DERIVED = ("d1", "d2")
"""The local names of streams that queries make."""
OTHERS = 3
_TEMPLATES = [f"CONSTRUCT {{ {triple} }}" for triple in ("?x ?w ?y", "?x :p ?y", "?y ?w ?x", "_:b ?w ?y", "?x ?w 1")]
_WINDOWS = ["NOW", "RANGE 1s", "RANGE 4s", "RANGE 3s SLIDE 2s", "RANGE 2s TUMBLING", "ELEMENTS 2", "TRIPLES 3"]

Write: TypeAlias = Callable[[Features, tuple[str, ...]], str]
"""A query of some features that reads some of these streams; one that stands there twice is read more often."""


class Lives(Choices):
    """Lets queries come and go so that every registration and every drop is allowed where it stands."""

    def __init__(self, choices: Choices, features: Features, write: Write) -> None:
        super().__init__(choices.number)
        self._features = features
        self._write = write
        self._derived = DERIVED[: self.pick([1, 2, 2])] if features.derived else ()
        self._running: dict[str, Register] = {}

    def before(self, beside: int) -> tuple[Register, ...]:
        """The queries that are there at the beginning: some that make streams, and so many others."""
        makers = [EX + name for name in self._derived if self.chance(85)]
        return tuple(self.come(name) for name in (*makers, *(f"other-{number}" for number in range(beside))))

    def come(self, name: str) -> Register:
        """A query that is registered now: what it names is there."""
        makes = name.startswith(EX)
        made = [f":{each}" for each in self._derived if EX + each in self._running]
        circle = makes and len(self._derived) > 1  # two that read all would read each other
        every = [EVERY] if self._features.any_stream and not circle else []
        streams = (*SOURCES, *(() if makes else SOURCES), *every, *made, *made, *made)
        if (made or makes) and self.chance(40):
            text = self._plain((*streams, *every, *every), makes=makes)
        else:
            features = replace(self._features, forms=("construct",), patterns=2) if makes else self._features
            text = self._write(features, streams)
        emit = self.pick([None, *EMISSIONS])
        if makes:
            text = f"REGISTER STREAM :{name.removeprefix(EX)} AS {text}"
            emit = emit if not made else self.pick([None, "dstream", "changes"])  # or there were too many
        self._running[name] = Register(name, text, emit, self.pick([None, *self._features.policies]))
        return self._running[name]

    def _plain(self, streams: tuple[str, ...], *, makes: bool) -> str:
        """A query that finds something in every element, so that the order in which they come is seen."""
        form = self.pick(_TEMPLATES) if makes else "SELECT *"
        read = [self.pick(streams) for _ in range(1 if makes else self.number(1, 2))]
        blocks = [f"{{ STREAM {stream} [{self.pick(_WINDOWS)}] {{ ?x ?w ?y }} }}" for stream in read]
        return f"{form} WHERE {{ {' UNION '.join(blocks)} }}"

    def among(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """The events, and between them queries that come and go, and snapshots."""
        found = list(events)
        turns = self.number(1, 5) if self._features.comings else 0
        for behind, place in enumerate(sorted(self.number(0, len(found)) for _ in range(turns))):
            found.insert(place + behind, self._turn())
        for _ in range(self.pick([0, 1, 1, 2]) if self._features.snapshots else 0):
            found.insert(self.number(0, len(found)), Snapshot())
        return tuple(found)

    def _turn(self) -> Event:
        names = [*(EX + name for name in self._derived), *(f"other-{number}" for number in range(OTHERS)), NAME]
        free = [name for name in names if name not in self._running]
        bound = [name for name in self._running if not any(each.reads(name) for each in self._running.values())]
        bound = [name for name in bound if name != NAME or self.chance(20)]
        if not free or (bound and self.chance(50)):
            del self._running[name := self.pick(bound or [NAME])]
            return Drop(name)
        return self.come(self.pick(free))
