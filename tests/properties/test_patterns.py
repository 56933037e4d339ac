"""Regular expressions mean the same to both modules that match them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqels.model.values import ExpressionError
from cqels.plan.functions.regular_expressions import compile_pattern

ATOMS = st.sampled_from(
    [
        *"aabAB1 é^$.",
        *(r"\w", r"\D", r"\s", r"\n", r"\p{Lu}", r"\P{Ll}", r"\c", r"\1", r"\2"),
        *("[ab]", "[^a]", "[a-z-[aeiou]]", "[^a-b-[1]]", r"[\w-[a]]", "[A-Z]"),
    ]
)
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{2,}"])


def sequences(atoms: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(atoms, QUANTIFIERS).map("".join), max_size=3).map("".join)


def groups(patterns: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    inner = st.lists(patterns, min_size=1, max_size=3).map("|".join)
    return sequences(ATOMS | inner.map("({})".format) | inner.map("(?:{})".format))


PATTERNS = st.recursive(sequences(ATOMS), groups, max_leaves=6)
TEXTS = st.text("abAB1 \né!", max_size=9)


@given(PATTERNS, st.sampled_from(["", "i", "s", "m", "im"]), st.lists(TEXTS, min_size=1, max_size=5))
def test_both_modules_find_the_same(pattern: str, flags: str, texts: list[str]) -> None:
    try:
        compiled = compile_pattern(pattern, flags)
    except ExpressionError:
        return
    for text in texts:
        if len(text) <= compiled.longest:  # the quick one is asked for nothing else
            found = [[each.span(), *each.groups()] for each in compiled._patient.finditer(text, timeout=10)]
            assert found == [[each.span(), *each.groups()] for each in compiled._quick.finditer(text)]


@pytest.mark.parametrize(
    ("pattern", "quick"),
    [
        ("^[a-z]+@[a-z]+[.]org$", True),
        (r"^([0-9]{1,3}\.){3}[0-9]{1,3}$", True),
        ("one|two|three|four", True),
        ("^(ab)*$", True),
        ("^(a|b)*$", False),
        ("^(a+)+$", False),
        ("a?" * 30 + "a" * 30, False),
        ("^(a?){30}$", False),
        ("a*" * 8, False),
    ],
)
def test_what_may_go_back_often_is_not_for_the_quick_one(pattern: str, quick: bool) -> None:
    assert (compile_pattern(pattern).longest >= 20) == quick
