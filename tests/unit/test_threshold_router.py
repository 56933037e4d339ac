"""THRESHOLDS against its law: a row goes to the classes of its group whose comparisons all hold, whatever it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode

from cqels.engine.sharing.threshold_order import listed, loosest
from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, COUNT, add_row, clear, make_queue, row_at
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.threshold_router import make_thresholds, set_thresholds, thresholds_step
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.lang.expressions import Call, Constant, Var
from cqels.model.dictionary import encode
from cqels.model.terms import XSD, Term
from cqels.physical.expression_compiler import compile_expression
from cqels.physical.python_functions import Calls
from cqels.plan.functions import Context, holds


def typed(text: str, name: str) -> Literal:
    return Literal(text, datatype=NamedNode(XSD + name))


NUMBERS = [
    *(typed(text, "integer") for text in ("0", "1", "-1", "2", "007", "16777217", "9007199254740993", "9" * 30)),
    *(typed(text, "integer") for text in ("16777216", "9007199254740992", "9007199254740995", str(2**63), "9" * 400)),
    *(typed(text, "decimal") for text in ("0.5", "1.0", "-2.50", "16777216.5", "9007199254740995.5", "1" * 30)),
    *(typed(text, "double") for text in ("0.5", "1e0", "-0.0", "9007199254740992", "9007199254740996", "1e300")),
    *(typed(text, "float") for text in ("0.5", "1", "16777216", "16777220", "3e38", "0.1")),
    typed("1", "byte"),
]
VALUES: list[Term | None] = [
    *NUMBERS,
    *(typed(text, kind) for text in ("NaN", "INF", "-INF") for kind in ("double", "float")),
    *(typed(text, "integer") for text in ("x", "")),
    *(Literal("x"), Literal("x", language="en"), typed("true", "boolean"), typed("2020-01-01T00:00:00Z", "dateTime")),
    *(NamedNode("http://ex.org/a"), typed("1", "what"), None),
]
SIGNS = ("LT", "LE", "GT", "GE")
COMPARISONS = st.lists(st.tuples(st.sampled_from(SIGNS), st.sampled_from("vw")), min_size=1, max_size=3)


class Comparing:
    """The operator over rows of two values with a column between them, their group if there are several."""

    def __init__(self, signs: Sequence[tuple[str, str]], groups: Sequence[Sequence[Sequence[Term]]]) -> None:
        self.arena = Arena(size=1 << 24)
        self.dictionary = ArenaDictionary(self.arena)
        self.calls = Calls(self.dictionary)
        self.comparisons = [
            Call(sign, (Var(name), Var(f"threshold {index}"))) for index, (sign, name) in enumerate(signs)
        ]
        self.grouped = len(groups) > 1
        self.width = 4 if self.grouped else 5
        self.queue, self.out = int(make_queue(self.arena.base, 3)), int(make_queue(self.arena.base, self.width))
        columns = {name: index for index, name in enumerate(("v", "g", "w", *(f"threshold {n}" for n in range(9))))}
        programs = [compile_expression(each, columns, self.calls) for each in self.comparisons]
        group = 1 if self.grouped else None
        self.offset = make_thresholds(self.arena, self.out, self.queue, programs, group, 2, self.dictionary.offset)
        told = [
            listed(
                self.comparisons,
                [(terms, (1000 * number + one, 7)) for one, terms in enumerate(classes)],
                self.calls.word_of,
            )
            for number, classes in enumerate(groups)
        ]
        set_thresholds(self.arena, self.offset, told)

    def sent(self, rows: Sequence[tuple[int, int, Term | None, Term | None]]) -> list[tuple[int, ...]]:
        """What is sent for rows of a weight, a group and two values: all words of it."""
        words = self.arena.words
        for weight, group, *terms in rows:
            v, w = (0 if term is None else encode(term, self.dictionary) for term in terms)
            offset = int(add_row(self.arena.base, self.queue))
            words[offset : offset + COLUMNS + 3] = [weight, 5, 6, ALWAYS, v, group, w]
        self.calls.run(thresholds_step, self.offset, 0)
        found = []
        for number in range(int(words[self.out + COUNT])):
            offset = int(row_at(self.arena.base, self.out, number))
            found.append(tuple(words[offset : offset + COLUMNS + self.width].tolist()))
        for queue in (self.queue, self.out):
            clear(self.arena.base, queue)
        return found

    def law(self, group: int, classes: Sequence[Sequence[Term]], v: Term | None, w: Term | None) -> list[int]:
        solution = {name: term for name, term in (("v", v), ("w", w)) if term is not None}
        return [
            1000 * group + number
            for number, terms in enumerate(classes)
            if all(
                holds(Call(each.name, (each.args[0], Constant(term))), solution, Context())
                for each, term in zip(self.comparisons, terms, strict=True)
            )
        ]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_row_goes_to_the_classes_that_let_it_pass(data: st.DataObject) -> None:
    signs = data.draw(COMPARISONS)
    one = st.tuples(*(st.sampled_from(NUMBERS) for _ in signs))
    groups = data.draw(st.lists(st.lists(one, max_size=12), min_size=1, max_size=3))
    comparing = Comparing(signs, groups)
    rows = data.draw(
        st.lists(
            st.tuples(st.integers(0, len(groups) - 1), st.sampled_from(VALUES), st.sampled_from(VALUES)), max_size=6
        )
    )
    came = comparing.sent([(1, *row) for row in rows])
    at = COLUMNS + comparing.width - 2
    wanted = [number for group, v, w in rows for number in comparing.law(group, groups[group], v, w)]
    assert Counter(row[at] for row in came) == Counter(wanted)
    assert all(row[at + 1] == 7 and row[1:COLUMNS] == (5, 6, ALWAYS) for row in came)
    went = comparing.sent([(-2, *row) for row in rows])
    assert [(-2, *row[1:]) for row in came] == went


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("second", [None, *SIGNS])
def test_many_classes(sign: str, second: str | None) -> None:
    """As many as are passed, from none to all, and of these the ones whose other thresholds are."""
    signs = [(sign, "v"), *([(second, "w")] if second else [])]
    classes = [(Literal(each), *([Literal(each * 37 % 100)] if second else [])) for each in range(100)]
    comparing = Comparing(signs, [classes])
    for value in (-1, 0, 1, 2, 3, 49, 50, 62, 63, 64, 65, 98, 99, 100):
        for other in (-1, 0, 50, 99, 100) if second else (0,):
            v, w = Literal(value), Literal(other)
            found = [row[-2] for row in comparing.sent([(1, 0, v, w)])]
            assert sorted(found) == comparing.law(0, classes, v, w)


@given(st.sampled_from(SIGNS), st.sets(st.sampled_from(NUMBERS), min_size=1), st.sampled_from(VALUES))
@settings(max_examples=300)
def test_what_passes_any_passes_one_of_the_loosest(sign: str, terms: set[Literal], value: Term | None) -> None:
    comparison = Call(sign, (Var("v"), Var("threshold")))
    solution = {} if value is None else {"v": value}

    def passes(some: Sequence[Term]) -> bool:
        return any(holds(Call(sign, (Var("v"), Constant(term))), solution, Context()) for term in some)

    found = loosest(comparison, terms)
    assert len(found) <= 3
    assert passes(found) == passes([*terms])
