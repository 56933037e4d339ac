"""The thresholds of classes in the order in which solutions pass them: the lists that the kernel searches.

A comparison of two numbers is made in the wider of their types (XPath's promotion), which rounds: 16777217 is equal to
"16777216"^^xsd:float, and greater than 16777216.  So thresholds have an order for all values only within one *kind*:
integers and decimals, floats, doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import TypeAlias

from cqels.kernels.operators.threshold_router import Listed
from cqels.lang.expressions import Call
from cqels.model.numbers import DECIMAL, Kind
from cqels.model.terms import Term
from cqels.model.values import number_of

Encode: TypeAlias = Callable[[Term], int]
ClassThresholds: TypeAlias = tuple[Sequence[Term], Sequence[int]]
"""Of a class: its thresholds, and the words that it adds to a solution."""


def loosest(comparison: Call, terms: Collection[Term]) -> list[Term]:
    """Of the thresholds of a comparison, the loosest of each kind: what passes any passes one of them."""
    found: dict[Kind, Term] = {}
    for term in terms:
        kind = _kind(term)
        if kind not in found or _tightness(comparison, term) < _tightness(comparison, found[kind]):
            found[kind] = term
    return [term for _, term in sorted(found.items())]


def listed(comparisons: Sequence[Call], classes: Collection[ClassThresholds], encode: Encode) -> list[Listed]:
    """The classes of a group as lists of words."""
    kinds: dict[tuple[Kind, ...], list[ClassThresholds]] = {}
    for one in classes:
        kinds.setdefault(tuple(map(_kind, one[0])), []).append(one)
    return [_list(comparisons, each, encode) for each in kinds.values()]


def _list(comparisons: Sequence[Call], classes: list[ClassThresholds], encode: Encode) -> Listed:
    first, *others = comparisons
    classes = sorted(classes, key=lambda one: _tightness(first, one[0][0]))
    words = [[encode(terms[0]), *added] for terms, added in classes]
    if not others:
        return words, []
    leaves = 1 << (len(classes) - 1).bit_length()
    columns = [
        _tree(comparison, [terms[index] for terms, _ in classes], leaves, encode)
        for index, comparison in enumerate(others, 1)
    ]
    return words, list(zip(*columns, strict=True))


def _tree(comparison: Call, terms: list[Term], leaves: int, encode: Encode) -> list[int]:
    """The loosest of the thresholds below each node; 0 where there is none."""
    nodes: list[tuple[Fraction, int] | None] = [None] * (2 * leaves)
    nodes[leaves : leaves + len(terms)] = [(_tightness(comparison, term), encode(term)) for term in terms]
    for node in range(leaves - 1, 0, -1):
        one, other = nodes[2 * node], nodes[2 * node + 1]  # what is missing is on the right
        nodes[node] = one if one is None or other is None or one[0] <= other[0] else other
    return [0 if each is None else each[1] for each in nodes]


def _kind(term: Term) -> Kind:
    return max(number_of(term).kind, DECIMAL)


def _tightness(comparison: Call, term: Term) -> Fraction:
    """The greater, the fewer values pass the threshold."""
    value = Fraction(number_of(term).value)
    return value if comparison.name in ("GT", "GE") else -value
