"""Random expressions of SPARQL as text, and the features that random queries may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from cqels.plan.binder import POLICIES

T = TypeVar("T")


@dataclass(frozen=True)
class Features:
    """What may occur in a scenario; everything does unless it is switched off, but for queries that come and go."""

    # the query
    forms: tuple[str, ...] = ("select", "select", "select", "construct", "ask")
    policies: tuple[str, ...] = POLICIES
    patterns: int = 6
    """Triple patterns in a query, at most (an EXISTS may add a few)."""
    time: bool = True
    """AT, SEQ and its kin, cq:now() and the functions of an interval."""
    partitions: bool = True
    order: bool = True
    freshness: bool = True
    """What depends on which element is newer: LIMIT, OFFSET, SAMPLE, GROUP_CONCAT."""
    median: bool = True
    draws: bool = True
    """RAND, UUID, BNODE."""
    graphs: bool = True
    any_stream: bool = True
    """`STREAM ?s`."""
    subselects: bool = True
    aggregates: bool = True
    paths: bool = True
    expressions: bool = True
    exists: bool = True
    contested: bool = True
    """Expressions on which Oxigraph differs: `<`, MIN and MAX of terms that have no order, the truth of a string with a
    language, zero divided by a fraction (an error there), BIND in an EXISTS to a variable of the outside."""
    texts: bool = True
    """Functions that see the text of a value."""
    # the data
    elements: int = 8
    """Elements in a stream, at most."""
    doubles: bool = True
    other_forms: bool = True
    """Literals that are not in canonical form, ill-formed or of an unknown type."""
    heartbeats: bool = True
    updates: bool = True
    lateness: bool = True
    # the queries beside it
    comings: bool = False
    """Queries are registered and dropped in mid-stream."""
    derived: bool = False
    """Some of them make streams, which others read."""
    snapshots: bool = False


class Choices:
    """Where all that is random comes from: numbers, drawn by hypothesis (which can shrink them) or by a generator."""

    def __init__(self, number: Callable[[int, int], int]) -> None:
        self.number = number

    @classmethod
    def drawn(cls, draw: Callable[[st.SearchStrategy[int]], int]) -> Choices:
        return cls(lambda low, high: draw(_integers(low, high)))

    @classmethod
    def seeded(cls, seed: int) -> Choices:
        return cls(Random(seed).randint)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent  # 0 is what hypothesis shrinks to: leave it out

    def some(self, options: Sequence[T]) -> tuple[T, ...]:
        """At least one of them, in their order."""
        kept = tuple(each for each in options if self.chance(50))
        return kept or (self.pick(options),)


@cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


class Expressions(Choices):
    """Writes expressions. Whatever is written is in brackets."""

    def __init__(self, choices: Choices, features: Features) -> None:
        super().__init__(choices.number)
        self.features = features

    def pattern(self, place: str, depth: int, names: tuple[str, ...]) -> str:
        raise NotImplementedError

    # ------------------------------------------------------------ by the kind of value

    def expression(self, names: tuple[str, ...], depth: int = 2) -> str:
        kinds = [self._number, self._number, self._truth, self._any]
        return self.pick([*kinds, self._text] if self.features.texts else kinds)(names, depth)

    def condition(self, names: tuple[str, ...], place: str, depth: int) -> str:
        """The condition of a FILTER."""
        if self.features.exists and self.chance(20):
            word = self.pick(["EXISTS", "NOT EXISTS"])
            exists = f"{word} {self.pattern(place, depth, names)}"
            return self.pick([exists, f"({exists}) {self.pick(['&&', '||'])} {self._truth(names, 1)}"])
        condition = self._truth(names, 2)
        return condition if self.chance(25) else f"{condition} || BOUND({self._variable(names)})"

    def _variable(self, names: tuple[str, ...]) -> str:
        return f"?{self.pick(names)}" if names and self.chance(90) else "?x"

    def _any(self, names: tuple[str, ...], depth: int) -> str:
        if depth == 0 or self.chance(60):
            return self._variable(names) if self.chance(75) else self._constant()
        if self.features.draws and self.chance(5):
            return self.pick(["RAND()", "UUID()", "STRUUID()", "BNODE()", 'BNODE("l")'])
        if self.features.time and self.chance(10):
            return self.pick(["cq:now()", "NOW()", "getSTARTTIME()", "getENDTIME()", "getDURATION()"])
        a, b = self._any(names, depth - 1), self._any(names, depth - 1)
        functions = [f"IF({self._truth(names, depth - 1)}, {a}, {b})", f"COALESCE({a}, {b})", f"DATATYPE({a})"]
        if self.features.texts:
            functions += [
                f"IRI(CONCAT('{_IRI}', STR({a})))",
                f"STRDT(STR({a}), xsd:integer)",
                f"STRLANG(STR({a}), 'en')",
            ]
        return self.pick(functions)

    def _constant(self) -> str:
        return self.pick(["1", "2", "1.5", '"x"', '"yy"', '"x"@en', "true", ":a", ":b"])

    def _truth(self, names: tuple[str, ...], depth: int) -> str:
        if depth == 0:
            simple = [f"BOUND({self._variable(names)})", "true", "false"]
            return self.pick([*simple, self._variable(names)] if self.features.contested else simple)
        a, b = self._operand(names, depth), self._operand(names, depth)
        number = a if self.features.contested else f"(0 + {a})"
        tests = [f"({a} {each} {b})" for each in ("=", "!=", "!=")]
        tests += [f"({number} {each} {b})" for each in ("<", ">", "<=", ">=")]
        tests += [f"({a} IN ({b}, {self._constant()}))", f"({a} NOT IN ({b}, {self._constant()}))"]
        tests += [f"BOUND({self._variable(names)})", f"sameTerm({a}, {b})"]
        tests += [f"{each}({a})" for each in ("isIRI", "isBLANK", "isLITERAL", "isNUMERIC")]
        if depth > 1:
            c, d = self._truth(names, depth - 1), self._truth(names, depth - 1)
            tests += [f"({c} && {d})", f"({c} || {d})", f"(! {c})", f"({c} && {d})", f"({c} || {d})"]
        if self.features.texts:
            tests += [f"CONTAINS(STR({a}), 'x')", f"STRSTARTS(STR({a}), STR({b}))", f"REGEX(STR({a}), '^[xy0-9]+$')"]
            tests += [f"(STR({a}) < STR({b}))", f"STRENDS(STR({a}), '1')", f"LANGMATCHES(LANG({a}), '*')"]
        return self.pick(tests)

    def _operand(self, names: tuple[str, ...], depth: int) -> str:
        return self.pick([self._any, self._number, self._any])(names, depth - 1)

    def _number(self, names: tuple[str, ...], depth: int) -> str:
        if depth == 0:
            return self._variable(names) if self.chance(70) else self.pick(["1", "2", "3", "0", "0.5", "-1"])
        a, b = self._number(names, depth - 1), self._number(names, depth - 1)
        operations = [f"({a} {each} {b})" for each in "+-*"]
        operations += [f"({a} / {b})" if self.features.contested else f"IF({a} = 0, 0, {a} / {b})"]
        operations += [f"{each}({a})" for each in ("ABS", "CEIL", "FLOOR", "ROUND", "xsd:integer", "xsd:decimal")]
        operations += [f"(- {a})", f"COALESCE({a}, {b})", f"IF({self._truth(names, depth - 1)}, {a}, {b})", a, a]
        operations += [f"YEAR({self._variable(names)})", f"SECONDS({self._variable(names)})"]
        operations += [f"xsd:double({a})"] if self.features.doubles else []
        operations += [f"STRLEN(STR({a}))", f"STRLEN({a})"] if self.features.texts else []
        return self.pick(operations)

    def _text(self, names: tuple[str, ...], depth: int) -> str:
        if depth == 0:
            return self.pick([f"STR({self._variable(names)})", self._variable(names), "'x'", "'yy'", "'x'@en"])
        a, b = self._text(names, depth - 1), self._text(names, depth - 1)
        return self.pick(
            [
                f"STR({a})",
                f"CONCAT({a}, {b})",
                f"UCASE({a})",
                f"LCASE({a})",
                f"SUBSTR({a}, 2)",
                f"SUBSTR({a}, 1, {self.number(0, 3)})",
                f"STRBEFORE({a}, {b})",
                f"STRAFTER({a}, {b})",
                f"REPLACE({a}, 'x', 'y')",
                f"ENCODE_FOR_URI({a})",
                f"LANG({self._variable(names)})",
                f"xsd:string({self._variable(names)})",
                f"MD5({a})",
            ]
        )


_IRI = "http://example.org/"
