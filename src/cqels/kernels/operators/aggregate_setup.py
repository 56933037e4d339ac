"""Making GROUP BY operators, and Python's part in their steps: literals only it can write, sums of hard numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import groupby

import numpy as np
import numpy.typing as npt
from pyoxigraph import Literal, NamedNode

from cqels.kernels.containers.hash_table import make_table, put
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators import aggregate as g
from cqels.kernels.operators.exact_sum import (
    COUNTS,
    DECIMAL_LIMBS,
    FIRST,
    FLOATS,
    FOR_DOUBLES,
    FOR_FLOATS,
    HARD_TREE,
    INFINITE,
    LIMBS,
    NAN,
    ONE,
    PLACE,
    PLACE_OF_DECIMALS,
    SCALE,
    SUM_WORDS,
    WHOLE,
    WHOLE_LIMBS,
    make_sum,
)
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.counted_btree import TERM, TERM_TEXT, UP, keys_of, make_shape
from cqels.kernels.terms.sort_key_fallback import answer_term
from cqels.kernels.terms.sort_keys import ASKING, DONE
from cqels.model import ids
from cqels.model.dictionary import decode, encode
from cqels.model.errors import ArenaFull
from cqels.model.numbers import (
    DECIMAL,
    DOUBLE,
    EXACT,
    FLOAT,
    INTEGER,
    ExpressionError,
    Number,
    add,
    as_double,
    divide,
    promote,
    single,
)
from cqels.model.terms import Term, text_of
from cqels.model.values import joined_texts, literal_of, number_of

KINDS = {
    "COUNT": g.COUNT_,
    "SUM": g.SUM,
    "AVG": g.AVG,
    "MIN": g.MIN,
    "MAX": g.MAX,
    "MEDIAN": g.MEDIAN,
    "SAMPLE": g.SAMPLE,
    "GROUP_CONCAT": g.CONCAT,
}
_FAMILIES = {g.AVG: g.SUM, g.MAX: g.MIN, g.MEDIAN: g.MIN, g.CONCAT: g.SAMPLE}
_RESULT_WORDS = 32


@dataclass(frozen=True, slots=True)
class Fold:
    """An aggregate of a column; of whole rows, told apart by `columns`, where the column is None (COUNT only)."""

    name: str
    column: int | None = None
    distinct: bool = False
    separator: str = " "
    columns: tuple[int, ...] = ()
    bound: bool = False
    """The column is never unbound."""


def make_grouping(
    dictionary: ArenaDictionary,
    terms: int,
    queues: tuple[int, int],
    keys: Sequence[int],
    folds: Sequence[Fold],
    *,
    fresh: int = 0,
) -> int:
    """A GROUP BY operator between two queues: its offset.  Rows written are the keys, then a column for each fold.

    `fresh` says which times of a group its row has: NEWEST, or with SPANS that of its oldest element too.
    """
    arena = dictionary.arena
    words = arena.words
    operator = arena.take(g.KEY_COLUMNS + len(keys) + g.AGGREGATE_WORDS * len(folds))
    words[operator + g.INPUT], words[operator + g.OUTPUT] = queues
    words[operator + g.TERMS] = terms
    stamped = [number for number, fold in enumerate(folds) if fold.bound and fold.name in ("SAMPLE", "GROUP_CONCAT")]
    words[operator + g.FRESH] = g.SAMPLED if fresh == g.NEWEST and stamped else fresh
    words[operator + g.KEYS], words[operator + g.AGGREGATES] = len(keys), len(folds)
    words[operator + g.TABLE] = make_table(arena.base, len(keys), 1)
    words[operator + g.REQUEST_ROOM] = 8
    words[operator + g.REQUEST_PLACE] = arena.take(8 * g.REQUEST_WORDS)
    words[operator + g.STAMP_SHAPE] = make_shape(arena, [UP, UP], roomy=True)
    words[operator + g.TIME_SHAPE] = make_shape(arena, [UP], roomy=True)
    words[operator + g.ID_SHAPE] = make_shape(arena, [UP])
    words[operator + g.TERM_SHAPE] = make_shape(arena, [TERM], terms)
    longest = max([len(keys), 4, *(1 + len(fold.columns) for fold in folds)])
    words[operator + g.SCRATCH] = arena.take(_RESULT_WORDS + longest) + _RESULT_WORDS
    words[operator + g.PAIR] = pair = arena.take(SUM_WORDS)
    make_sum(arena.base, pair, int(words[operator + g.ID_SHAPE]))
    words[operator + g.KEY_COLUMNS : operator + g.KEY_COLUMNS + len(keys)] = keys
    _place_folds(dictionary, terms, operator, folds)
    if stamped:  # it has every row, by its stamps
        words[operator + g.SAMPLED_AT] = words[int(g.aggregate_at(arena.base, operator, stamped[0])) + g.STATE]
    if not keys:  # the group of everything is there before anything is
        key = int(words[operator + g.SCRATCH])
        group = int(g.make_group(arena.base, operator, key))
        words[int(put(arena.base, int(words[operator + g.TABLE]), key))] = group
        g.touch(arena.base, operator, group)
    return operator


def _place_folds(dictionary: ArenaDictionary, terms: int, operator: int, folds: Sequence[Fold]) -> None:
    """Write the aggregates; those that need the same state share it."""
    arena = dictionary.arena
    words = arena.words
    offset = g.GROUP_KEYS + int(words[operator + g.KEYS]) + 2 * len(folds)
    fresh = int(words[operator + g.FRESH])
    offset += {g.NEWEST: g.STAMP_TREE_WORDS, g.SPANS: g.STAMP_TREE_WORDS + g.TIME_TREE_WORDS}.get(fresh, 0)
    states: dict[tuple[int, int | None, bool, tuple[int, ...]], tuple[int, int]] = {}
    shapes = {
        g.MIN: make_shape(arena, [TERM_TEXT], terms, roomy=True),
        g.SAMPLE: make_shape(arena, [UP, UP, UP], roomy=True),
    }
    for number, fold in enumerate(folds):
        kind = _kind_of(fold)
        family = _FAMILIES.get(kind, kind)
        distinct = fold.distinct and (kind in (g.COUNT_, g.COUNT_ROWS, g.SUM, g.AVG, g.MEDIAN))
        shared = (family, fold.column, distinct, tuple(fold.columns))
        aggregate = int(g.aggregate_at(arena.base, operator, number))
        if shared not in states:
            states[shared] = number, offset
            offset += _state_words(family)
            if distinct:
                key = 1 + (len(fold.columns) if kind == g.COUNT_ROWS else 1)
                words[aggregate + g.DISTINCT] = make_table(arena.base, key, 1)
        words[aggregate + g.KIND] = kind
        words[aggregate + g.COLUMN] = -1 if fold.column is None else fold.column
        words[aggregate + g.OWNER], words[aggregate + g.STATE] = states[shared]
        words[aggregate + g.SHAPE] = shapes.get(family, 0)
        if kind == g.COUNT_ROWS:
            block = arena.take(max(len(fold.columns), 1))
            words[block : block + len(fold.columns)] = fold.columns
            words[aggregate + g.EXTRA], words[aggregate + g.EXTRA_PLACE] = len(fold.columns), block
        elif kind == g.CONCAT:
            separator = encode(Literal(fold.separator), dictionary)
            dictionary.pin([separator])
            words[aggregate + g.EXTRA], words[aggregate + g.EXTRA_PLACE] = separator, fold.distinct
    words[operator + g.GROUP_WORDS] = offset


def _kind_of(fold: Fold) -> int:
    if fold.column is not None:
        return KINDS[fold.name]
    return g.COUNT_ROWS if fold.distinct else g.ROWS_


def _state_words(family: int) -> int:
    if family == g.ROWS_:
        return 0
    if family in (g.COUNT_, g.COUNT_ROWS):
        return 1
    return SUM_WORDS if family == g.SUM else g.TREE_STATE_WORDS


def run_group(dictionary: ArenaDictionary, operator: int) -> None:
    """A whole step of a GROUP BY operator, with all that Python has to do."""
    arena = dictionary.arena
    while (status := g.step_group(arena.base, operator)) != DONE:
        if status == ASKING:
            answer_term(dictionary, int(arena.words[operator + g.TERMS]))
        elif status == g.WANTED:
            answer(dictionary, operator)
        else:
            raise ArenaFull


def serve(dictionary: ArenaDictionary, operator: int) -> None:
    """Do what a step that stopped asks for, whatever it is; then it can be taken again."""
    words = dictionary.arena.words
    if words[operator + g.PHASE] == g.PHASE_SENDING and words[operator + g.REQUESTS] != 0:
        answer(dictionary, operator)
    else:
        answer_term(dictionary, int(words[operator + g.TERMS]))


def answer(dictionary: ArenaDictionary, operator: int) -> None:
    """Write the ids of the values that a step wants."""
    words = dictionary.arena.words
    offset = int(words[operator + g.REQUEST_PLACE])
    for request in range(int(words[operator + g.REQUESTS])):
        at = offset + request * g.REQUEST_WORDS
        kind, target, number, first, second = map(int, words[at : at + g.REQUEST_WORDS])
        try:
            term: Term | None = _wanted(dictionary, operator, kind, number, first, second)
        except ExpressionError:
            term = None
        words[target] = encode(term, dictionary)


def _wanted(dictionary: ArenaDictionary, operator: int, kind: int, number: int, first: int, second: int) -> Term:
    match kind:
        case g.NUMBER_WANTED:
            return literal_of(Number(DOUBLE, ids.bits_double(second)))
        case g.SUM_WANTED:
            return literal_of(_hard_sum(dictionary, first, mean=bool(second)))
        case g.HALF_WANTED:
            one, other = (number_of(decode(id, dictionary)) for id in (first, second))
            return literal_of(divide(add(one, other), Number(INTEGER, 2)))
        case _:
            aggregate = int(g.aggregate_at(dictionary.arena.base, operator, number))
            return _joined(dictionary, first, aggregate)


def _joined(dictionary: ArenaDictionary, tree: int, aggregate: int) -> Literal:
    """GROUP_CONCAT: the oldest first, at one time by text."""
    words = dictionary.arena.words
    separator = decode(int(words[aggregate + g.EXTRA]), dictionary)
    assert isinstance(separator, Literal)
    found: list[Term] = []
    for _, keys in groupby(keys_of(dictionary.arena, tree), key=lambda key: key[:2]):
        found += sorted((_term(key[2], dictionary) for key in keys), key=text_of)
    if words[aggregate + g.EXTRA_PLACE]:
        found = list(dict.fromkeys(found))
    return Literal(joined_texts(separator.value, [_plain(term) for term in found]))


def _term(id: int, dictionary: ArenaDictionary) -> Term:
    term = decode(id, dictionary)
    assert term is not None
    return term


def _plain(term: Term) -> str:
    assert isinstance(term, (NamedNode, Literal))  # a group with a blank node is an error
    return term.value


# --- sums with numbers that fit in no register ----------------------------------------------------------------------


def _hard_sum(dictionary: ArenaDictionary, sum_: int, *, mean: bool) -> Number:
    """The sum or mean, as `cqels.plan.functions.aggregates` has it, from what the kernels added up and the rest."""
    arena = dictionary.arena
    words = arena.words
    hard = [number_of(decode(id, dictionary)) for (id,) in keys_of(arena, sum_ + HARD_TREE)]
    counts = [int(count) for count in words[sum_ + COUNTS : sum_ + COUNTS + 4]]
    for number in hard:
        counts[number.kind] += 1
    kind = max((kind for kind in (INTEGER, DECIMAL, FLOAT, DOUBLE) if counts[kind]), default=INTEGER)
    count = sum(counts)
    whole = _limbs(words[sum_ + WHOLE : sum_ + WHOLE + WHOLE_LIMBS])
    if kind <= DECIMAL:
        exact = _decimals(arena, sum_) + whole + sum(Fraction(number.value) for number in hard)
        total = Number(kind, int(exact) if kind == INTEGER else _decimal(exact))
        return divide(total, Number(INTEGER, count)) if mean and count else total
    promoted = [float(promote(number, kind)) for number in hard]
    odd = [value for value in promoted if value - value != 0]
    odd += [float("nan")] * bool(words[sum_ + NAN])
    odd += [float("inf")] * bool(words[sum_ + INFINITE]) + [-float("inf")] * bool(words[sum_ + INFINITE + 1])
    if odd:
        return Number(kind, sum(odd))
    part = FOR_FLOATS if kind == FLOAT else FOR_DOUBLES
    exact = whole + _row(arena, sum_ + FLOATS) + _row(arena, sum_ + part) + sum(map(Fraction, promoted))
    rounded = single if kind == FLOAT else as_double
    return Number(kind, rounded(exact / (count if mean else 1)))  # type: ignore[arg-type]  # they round any exact number


def _limbs(limbs: npt.NDArray[np.int64]) -> int:
    return sum(int(limb) << 32 * number for number, limb in enumerate(limbs))


def _decimals(arena: Arena, sum_: int) -> Fraction:
    offset = int(arena.words[sum_ + PLACE_OF_DECIMALS])
    if offset == 0:
        return Fraction(0)
    return Fraction(_limbs(arena.array(offset, DECIMAL_LIMBS)), 10 ** int(arena.words[sum_ + SCALE]))


def _row(arena: Arena, part: int) -> Fraction:
    first, limbs, offset = (int(arena.words[part + word]) for word in (FIRST, LIMBS, PLACE))
    return _limbs(arena.array(offset, limbs)) * Fraction(2) ** (32 * (first - ONE)) if offset else Fraction(0)


def _decimal(exact: Fraction) -> Decimal:
    """A fraction whose denominator is a power of two and five."""
    power = 0
    while exact.denominator != 1:
        exact *= 10
        power += 1
    return Decimal(int(exact)).scaleb(-power, EXACT)
