"""Random scenarios with several windows, static lookups that share nothing with each other, and conditions over both.

OPTIONAL, MINUS and EXISTS look up parts that only the outside connects; conditions in EXISTS read what is outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from pyoxigraph import DefaultGraph, Literal, Quad

from cqels.model.terms import XSD_INTEGER

from .random_expressions import Choices, Features
from .random_queries import GRAPHS, LINKS, NODES, VALUE, scenario
from .scenarios import Scenario

_GRAPHS = (DefaultGraph(), DefaultGraph(), *GRAPHS)
_WINDOWS = (
    "NOW",
    "ALL",
    "ALL",
    "ALL",
    "RANGE 9s",
    "RANGE 2s",
    "RANGE 4s",
    "RANGE 3s SLIDE 2s",
    "ELEMENTS 2",
    "TRIPLES 3",
)
_STREAMS = ("s1", "s1", "s2")
_BLOCKS = (
    ("?x :v ?a", "x", "a"),
    ("?y :v ?b", "y", "b"),
    ("?x :p ?y", "x", "y"),
    ("?y :p ?z", "y", "z"),
    ("?z :v ?c", "z", "c"),
    ("?x :q ?z . ?x :v ?a", "x", "z", "a"),
)
_LOOKUPS = (
    ("?x :p ?rx", "x", "rx"),
    ("?x :q ?rx", "x", "rx"),
    ("?y :p ?ry", "y", "ry"),
    ("?y :v ?n", "y", "n"),
    ("?z :p ?rz", "z", "rz"),
    ("?u :q ?ru", "u", "ru"),
    ("GRAPH :g1 {{ ?x :p ?rx . ?y :p ?ry }}", "x", "rx", "y", "ry"),
    ("GRAPH ?g {{ ?x :v ?m . ?y :p ?ry }}", "g", "x", "m", "y", "ry"),
    ("OPTIONAL {{ ?y :q ?ry }}", "y", "ry"),
    ("OPTIONAL {{ ?x :q ?rx }}", "x", "rx"),
    (":a :p :b", "x"),
    ("VALUES ?rx {{ :a :b }}", "rx"),
)
_CONDITIONS = (
    "?{0} != ?{1}",
    "?{0} != ?{1}",
    "STR(?{0}) <= STR(?{1})",
    "STR(?{0}) < STR(?{1})",
    "?{0} >= ?{1}",
    "?{0} = ?{1}",
    "BOUND(?{0}) || ?{1} = 1",
    "!BOUND(?{0}) || BOUND(?{1})",
)
_FORMS = (
    "SELECT * WHERE {{ {where} }}",
    "SELECT * WHERE {{ {where} }}",
    "SELECT ?x ?y WHERE {{ {where} }}",
    "SELECT ?x (COUNT(*) AS ?k) WHERE {{ {where} }} GROUP BY ?x",
    "SELECT ?x ?y ?z WHERE {{ {where} }} ORDER BY ?y LIMIT 3",
    "CONSTRUCT {{ ?x :p ?y }} WHERE {{ {where} }}",
)


class _Lookups(Choices):
    """Writes one query."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices.number)
        self._names: list[str] = []

    def query(self) -> str:
        parts = [self._window() for _ in range(self.pick([1, 1, 2, 2, 3]))]
        kinds = [self._tables, self._tables, self._nested, self._condition, self._exists, self._optional, self._minus]
        for _ in range(self.number(1, 2)):
            parts.insert(self.number(0, len(parts)) if self.chance(30) else len(parts), self.pick(kinds)())
        if self.chance(40):
            parts.append(self._condition())
        return self.pick(_FORMS).format(where=" ".join(parts))

    def _window(self) -> str:
        block, *names = self.pick(_BLOCKS)
        self._names += names
        inner = f"{block} {self._condition(names)}" if self.chance(15) else block
        return f"STREAM :{self.pick(_STREAMS)} [{self.pick(_WINDOWS)}] {{ {inner} }}"

    def _patterns(self) -> tuple[str, list[str]]:
        chosen = [self.pick(_LOOKUPS) for _ in range(self.number(1, 3))]
        text = " ".join(f"{each[0]} ." if "{" not in each[0] else each[0] for each in chosen)
        return text.replace("{{", "{").replace("}}", "}"), [name for each in chosen for name in each[1:]]

    def _tables(self) -> str:
        text, names = self._patterns()
        self._names += names
        return text

    def _nested(self) -> str:
        """Tables in a group of their own, or in a sub-select, with conditions that may read several of them."""
        text, names = self._patterns()
        self._names += names
        inner = text + (self._condition(names) if self.chance(50) else "")
        inner += f" BIND({self._either(names)} AS ?{self._new()})" if self.chance(25) else ""
        shown = " ".join(f"?{name}" for name in dict.fromkeys(names))
        return self.pick(["{{ {0} }}", "{{ {0} }}", "{{ SELECT DISTINCT {1} {{ {0} }} }}"]).format(inner, shown)

    def _exists(self) -> str:
        word = self.pick(["EXISTS", "NOT EXISTS"])
        return f"FILTER {word} {{ {self._around(self._names)} }}"

    def _optional(self) -> str:
        return f"OPTIONAL {{ {self._around(self._names)} }}"

    def _minus(self) -> str:
        text, _ = self._patterns()
        return f"MINUS {{ {text} }}"

    def _around(self, outer: list[str]) -> str:
        """What EXISTS and OPTIONAL have inside: windows and tables, and conditions that read what is outside too."""
        before, self._names = self._names, []
        parts = [self.pick([self._tables, self._window])() for _ in range(self.number(1, 2))]
        inside = self._names
        if self.chance(70):
            condition = self._condition([*outer, *inside])
            at = self.number(0, len(parts) - 1)
            if self.chance(40) and parts[at].startswith("STREAM"):
                parts[at] = f"{parts[at][:-1]}{condition} }}"
            elif self.chance(30):
                parts[at] = f"{{ {parts[at]} {condition} }}"
            else:
                parts.append(condition)
        self._names = before
        return " ".join(parts)

    def _condition(self, names: list[str] | None = None) -> str:
        names = self._names if names is None else names
        one = self.pick(names)
        other = self.pick([name for name in names if name != one] or names)
        return f"FILTER({self.pick(_CONDITIONS).format(one, other)})"

    def _either(self, names: list[str]) -> str:
        return f"COALESCE(?{self.pick(names)} + ?{self.pick(names)}, STR(?{self.pick(names)}))"

    def _new(self) -> str:
        return self.pick([f"e{number}" for number in range(20)])


def lookup(choices: Choices) -> Scenario:
    """A scenario with such a query."""
    made = scenario(choices, Features(elements=6))
    links = [(one, verb, other) for one in NODES for verb in LINKS for other in NODES if choices.chance(60)]
    links += [(one, VALUE, Literal(str(number), datatype=XSD_INTEGER)) for number, one in enumerate(NODES)]
    static = dict.fromkeys((*made.static, *(Quad(*each, choices.pick(_GRAPHS)) for each in links)))
    return replace(made, static=tuple(static), query=_Lookups(choices).query())


@st.composite
def lookups(draw: Any) -> Scenario:
    return lookup(Choices.drawn(draw))
