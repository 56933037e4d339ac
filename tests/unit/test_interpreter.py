"""Programs of expressions in the arena: term for term what `cqels.plan.functions` computes, whoever computes it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.kernels.containers.delta_queue import (
    ALWAYS,
    COLUMNS,
    COUNT,
    NEVER,
    NUMBER,
    OLDEST,
    TIME,
    WEIGHT,
    add_row,
    clear,
    make_queue,
)
from cqels.kernels.containers.delta_queue import row_at as row_place
from cqels.kernels.memory.arena import Arena
from cqels.kernels.memory.int128 import divide_wide, multiply_wide, nearest, scale_up
from cqels.kernels.operators.filter_extend import CURSOR, FILTERS, FIRST_STEP, add_step, make_select, select_step
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.lang.expressions import Call, Constant, Exists, Expression, Var
from cqels.model.dictionary import decode, encode
from cqels.model.errors import Span
from cqels.model.numbers import single
from cqels.model.terms import CQ, FALSE, TRUE, XSD, Term
from cqels.model.values import ExpressionError, Number, value_of
from cqels.physical.expression_compiler import Given, compile_expression, translate
from cqels.physical.expression_program import release
from cqels.physical.python_functions import Calls
from cqels.plan.functions import Context, evaluate, holds

from ..random_expressions import Choices

MANY = int(os.environ.get("FUZZ_EXAMPLES", "5000"))
NAMES = ("a", "b", "c", "_:d")
COLUMN_OF = {name: number for number, name in enumerate(NAMES)}
SECOND = 10**9


def typed(text: str, name: str) -> Literal:
    return Literal(text, datatype=NamedNode(XSD + name))


# --- random terms and expressions -----------------------------------------------------------------------------------

FIXED: tuple[Term | None, ...] = (
    None,
    NamedNode("http://example.org/a"),
    NamedNode("http://example.org/b"),
    BlankNode("b"),
    *(Literal(text) for text in ("", "x", "y", "xy", "x\n", "x\ty", "1", "é", "\U0001f600", " 7 ", "true", "1e400")),
    Literal("", language="en"),
    Literal("x", language="en"),
    Literal("x", datatype=NamedNode("http://example.org/type")),
    *(typed(text, "boolean") for text in ("true", "false", "1", "0", "maybe")),
    *(
        typed(text, "integer")
        for text in ("0", "1", "-1", "2", "7", "007", "+3", "x", " 5 ", str(2**57), str(-(2**57)))
    ),
    *(typed(text, "integer") for text in (str(2**63 - 1), str(-(2**63)), str(2**63), "9" * 30, "3", "10", "100")),
    *(typed("7", name) for name in ("byte", "unsignedLong", "nonNegativeInteger", "negativeInteger")),
    *(typed(text, "decimal") for text in ("0", "0.0", "-0.0", "1.0", "1.00", "2.5", "-2.5", "0.5", "-.5", "+1.50")),
    *(typed(text, "decimal") for text in ("0.333333333333333333", "1" * 30, "0." + "0" * 40 + "1", "12345.678", "x")),
    *(typed(text, "decimal") for text in ("9007199254740993", "0.1", "16777217.5", "1.5", "33.333333333333333333")),
    *(
        typed(text, "double")
        for text in ("0.0", "-0.0", "1.0", "1e0", "2.5", "-0.5", "0.1", "1.0E20", "1e300", "5e-324")
    ),
    *(
        typed(text, "double")
        for text in ("INF", "-INF", "NaN", "9007199254740993", "1.5E-7", "0.49999999999999994", "x")
    ),
    *(
        typed(text, "float")
        for text in ("0.0", "-0.0", "1.0", "0.1", "2.5", "1e10", "3e38", "1e-40", "INF", "NaN", "x")
    ),
    *(typed(text, "float") for text in ("16777217", "123456789", "0.10")),
    *(typed(text, "dateTime") for text in ("2020-02-29T12:34:56Z", "2020-02-29T12:34:56.789+05:30", "x")),
    *(
        typed(text, "dateTime")
        for text in ("2020-02-29T12:34:56", "2020-03-01T03:00:00", "2020-02-29T12:34:56.700-14:00")
    ),
    *(
        typed(text, "dateTime")
        for text in ("1969-12-31T23:59:59.999", "0001-01-01T00:00:00+00:00", "9999-12-31T24:00:00Z")
    ),
    *(
        typed(text, "dateTime")
        for text in ("2020-01-01T00:00:00.123456789Z", "-0044-03-15T00:00:00Z", "1960-01-01T00:00:00")
    ),
    *(typed(text, "dateTime") for text in ("2020-01-01T00:00:00." + "1" * 20, "99999-01-01T00:00:00.1+01:00")),
    *(typed(text, "date") for text in ("2020-02-29", "2020-02-29Z", "x")),
    *(typed(text, "time") for text in ("12:34:56", "12:34:56.5Z")),
    typed("PT1S", "dayTimeDuration"),
    typed("-P1DT0.5S", "dayTimeDuration"),
    typed("P1M", "yearMonthDuration"),
    typed("2020", "gYear"),
)


NUMBERS = tuple(term for term in FIXED if isinstance(term, Literal) and isinstance(value_of(term), Number))


def random_term(choices: Choices, pool: Sequence[Term | None] = FIXED) -> Term | None:
    kind = choices.number(0, 9)
    sign = choices.pick(["", "-"])
    if kind == 0:
        return typed(f"{sign}{choices.number(0, 10 ** choices.number(1, 20))}", "integer")
    if kind == 1:
        digits = str(choices.number(0, 10 ** choices.number(1, 20)))
        return typed(f"{sign}{choices.number(0, 10 ** choices.number(0, 4))}.{digits}", "decimal")
    if kind == 2:
        return typed(f"{sign}{choices.number(0, 10**6)}.{choices.number(0, 999)}", choices.pick(["double", "float"]))
    return choices.pick(pool)


ONE = ("NOT", "NEGATE", "PLUS", "ISIRI", "ISBLANK", "ISLITERAL", "ISNUMERIC", "ABS", "CEIL", "FLOOR", "ROUND", "YEAR")
ONE += ("MONTH", "DAY", "HOURS", "MINUTES", "SECONDS", "TIMEZONE", "TZ", "STR", "LANG", "DATATYPE", "STRLEN", "UCASE")
ONE += ("MD5", *(XSD + name for name in ("boolean", "integer", "decimal", "float", "double", "string", "dateTime")))
TWO = ("EQ", "NE", "LT", "GT", "LE", "GE", "ADD", "SUBTRACT", "MULTIPLY", "DIVIDE", "SAMETERM", "CONTAINS", "STRBEFORE")
NUMERIC = ("EQ", "LT", "GE", "ADD", "SUBTRACT", "MULTIPLY", "DIVIDE")
SOME = ("AND", "OR", "IN", "NOT_IN", "COALESCE", "CONCAT")
NONE = ("NOW", CQ + "now", "GETSTARTTIME", "GETENDTIME", "GETDURATION", "RAND", "STRUUID", "BNODE")
ANSWER = Exists("a pattern", negated=False)
STAMP = Call("TIMESTAMP", (Var("a"), Var("b"), Var("c")))


def random_expression(choices: Choices, depth: int) -> Expression:
    if depth == 0 or choices.chance(10):
        return Var(choices.pick((*NAMES, *NAMES, "nowhere"))) if choices.chance(70) else random_constant(choices)
    kind = choices.number(0, 99)
    if kind < 30:
        return Call(choices.pick(TWO), several(choices, depth, 2))
    if kind < 50:
        return Call(choices.pick(NUMERIC), several(choices, depth, 2))
    if kind < 72:
        return Call(choices.pick(ONE), several(choices, depth, 1))
    if kind < 86:
        name = choices.pick(SOME)
        return Call(name, several(choices, depth, choices.number(int(name not in ("COALESCE", "CONCAT")), 3)))
    if kind < 91:
        return Call("IF", several(choices, depth, 3))
    if kind < 94:
        return Call("BOUND", (Var(choices.pick((*NAMES, "nowhere"))),))
    if kind < 96:
        return choices.pick([ANSWER, STAMP])
    start = choices.number(0, 3)
    return Call(choices.pick(NONE), (), span=Span(start, start + 1) if choices.chance(70) else None)


def random_constant(choices: Choices) -> Expression:
    return Constant(random_term(choices) or TRUE)


def several(choices: Choices, depth: int, count: int) -> tuple[Expression, ...]:
    return tuple(random_expression(choices, depth - 1) for _ in range(count))


# --- running programs -----------------------------------------------------------------------------------------------

Row = tuple[Mapping[str, Term], tuple[int, int] | None, Term, Term | None]
"""A solution, its interval, the answer to EXISTS, and that to TIMESTAMP."""


class Bench:
    """An arena with a dictionary, calls, and queues of four variables, two given columns, and one more for results."""

    given: Mapping[Given, int] = {ANSWER: 4, STAMP: 5}

    def __init__(self, limit: int = 1 << 20) -> None:
        self.arena = Arena(size=1 << 28)
        self.dictionary = ArenaDictionary(self.arena)
        self.calls = Calls(self.dictionary, limit=limit)
        base = self.arena.base
        self.source, self.kept, self.extended = make_queue(base, 6), make_queue(base, 6), make_queue(base, 7)
        offset = self.dictionary.offset
        self.filter = make_select(base, self.source, self.kept, offset)
        add_step(base, self.filter, 0, FILTERS)
        self.extend = make_select(base, self.source, self.extended, offset)
        add_step(base, self.extend, 0, 6)

    def fill(self, rows: Sequence[Row]) -> None:
        for queue in (self.source, self.kept, self.extended):
            clear(self.arena.base, queue)
        words = self.arena.words
        for number, (solution, interval, answer, stamp) in enumerate(rows):
            row = int(add_row(self.arena.base, self.source))
            terms = [*(solution.get(name) for name in NAMES), answer, stamp]
            words = self.arena.words
            words[row + WEIGHT], words[row + NUMBER] = 1, number
            words[row + OLDEST], words[row + TIME] = interval or (ALWAYS, NEVER)
            words[row + COLUMNS : row + COLUMNS + 6] = [encode(term, self.dictionary) for term in terms]

    def compile(self, expression: Expression, identity: Sequence[str] | None = None) -> int:
        program = compile_expression(
            expression, COLUMN_OF, self.calls, given=self.given, seed="seed", identity=identity
        )
        self.arena.words[self.filter + FIRST_STEP] = self.arena.words[self.extend + FIRST_STEP] = program
        return program

    def values(self, now: int = 0) -> list[Term | None]:
        self.calls.run(select_step, self.extend, now)
        return [decode(word, self.dictionary) for word in self.column(self.extended, 6)]

    def filtered(self, now: int = 0) -> list[int]:
        """The numbers of the rows that a FILTER keeps."""
        self.calls.run(select_step, self.filter, now)
        return self.column(self.kept, NUMBER - COLUMNS)

    def column(self, queue: int, column: int) -> list[int]:
        words = self.arena.words
        rows = (int(row_place(self.arena.base, queue, number)) for number in range(int(words[queue + COUNT])))
        return [int(words[row + COLUMNS + column]) for row in rows]


def context_of(row: Row, now: int, identity: Sequence[str] | None) -> Context:
    def nanoseconds(*_: Term) -> int | None:
        raise AssertionError("given by a column")

    return Context(now, "seed", identity, row[1], lambda node, _: row[2] == TRUE, nanoseconds)


def expected(expression: Expression, row: Row, context: Context) -> Term | None:
    try:
        return evaluate(stamped(expression, row), row[0], context)
    except ExpressionError:
        return None


def stamped(expression: Expression, row: Row) -> Expression:
    """The expression with the answer to TIMESTAMP in it; an unbound variable where there is none."""
    if expression == STAMP:
        return Var("nowhere") if row[3] is None else Constant(row[3])
    if isinstance(expression, Call) and STAMP in _all(expression):
        return Call(expression.name, tuple(stamped(arg, row) for arg in expression.args), expression.span)
    return expression


def _all(expression: Expression) -> list[Expression]:
    args = expression.args if isinstance(expression, Call) else ()
    return [expression, *(node for arg in args for node in _all(arg))]


def random_row(choices: Choices) -> Row:
    pool = choices.pick([FIXED, NUMBERS])  # with all kinds of terms, most expressions are errors
    solution = {name: term for name in NAMES if (term := random_term(choices, pool)) is not None}
    start = choices.number(0, 3) * SECOND + choices.pick([0, 1, 10**6])
    interval = (start, start + choices.number(0, 2) * SECOND) if choices.chance(80) else None
    stamp = choices.pick([None, typed("2020-02-29T12:34:56Z", "dateTime")])
    return solution, interval, choices.pick([TRUE, FALSE]), stamp


BENCHES: dict[int, Bench] = {}


def check(choices: Choices, limit: int = 1 << 20) -> None:
    """A random expression on random rows: the same terms as in Python, and the same rows."""
    bench = BENCHES.setdefault(limit, Bench(limit))
    expression = random_expression(choices, choices.number(1, 4))
    rows = [random_row(choices) for _ in range(choices.number(1, 6))]
    now = choices.number(0, 2) * 86_400 * SECOND + choices.pick([0, 1, 250 * 10**6])
    identity = choices.pick([None, ("a", "b")])
    bench.fill(rows)
    program = bench.compile(expression, identity)
    contexts = [context_of(row, now, identity) for row in rows]
    terms = [expected(expression, row, context) for row, context in zip(rows, contexts, strict=True)]
    found = bench.values(now)
    assert list(map(str, found)) == list(map(str, terms)), (expression, rows)
    kept = [
        number
        for number, (row, context) in enumerate(zip(rows, contexts, strict=True))
        if holds(stamped(expression, row), row[0], context)
    ]
    assert bench.filtered(now) == kept, (expression, rows)
    release(bench.calls, program)


@settings(max_examples=300)
@given(st.data())
def test_programs_compute_what_python_does(data: st.DataObject) -> None:
    check(Choices.drawn(data.draw))


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_many_programs(limit: int) -> None:
    for seed in range(400):
        check(Choices.seeded(seed), limit)


@pytest.mark.fuzz
@pytest.mark.parametrize("start", range(4))
def test_very_many_programs(start: int) -> None:
    for seed in range(MANY):
        check(Choices.seeded(1_000_000 * (start + 1) + seed), 0 if seed % 8 == 0 else 1 << 20)
        if seed % 5000 == 0:
            BENCHES.clear()


def test_every_pair_of_terms() -> None:
    """Operators of two operands on all pairs of the fixed terms."""
    bench = BENCHES.setdefault(1 << 20, Bench())
    a, b = Var("a"), Var("b")
    terms = [term for term in FIXED if term is not None]
    rows: list[Row] = [({"a": one, "b": other}, None, TRUE, None) for one in terms for other in terms]
    quotient, double = Call("DIVIDE", (a, b)), Call(XSD + "double", (a,))
    tried = [Call(name, (a, b)) for name in ("EQ", "LT", "ADD", "DIVIDE")]
    tried += [Call(name, (quotient,)) for name in ("ROUND", "FLOOR", "CEIL")]  # two operations that are done together
    tried += [Call(name, (double, b)) for name in ("ADD", "SUBTRACT", "MULTIPLY", "DIVIDE")]
    tried += [Call(name, (Call("LT", (a, b)), Call("NE", (b, a)))) for name in ("AND", "OR")]
    for expression in tried:
        bench.fill(rows)
        bench.compile(expression)
        values = bench.values()
        for row, found in zip(rows, values, strict=True):
            assert found == expected(expression, row, Context()), (expression, row)


@given(st.integers(-(10**7), 10**7), st.integers(0, 9), st.integers(-(10**7), 10**7), st.integers(0, 9))
def test_quotients_are_rounded_as_they_are_divided(one: int, scale: int, other: int, other_scale: int) -> None:
    """ROUND(a / b) and the like of short decimals, halves among them."""
    bench = BENCHES.setdefault(1 << 20, Bench())
    numbers = [(one, scale, other, other_scale), (one * other, scale, 2 * other, scale), (one, scale, 2, scale)]
    rows: list[Row] = [({"a": _decimal(*each[:2]), "b": _decimal(*each[2:])}, None, TRUE, None) for each in numbers]
    for name in ("ROUND", "FLOOR", "CEIL"):
        bench.fill(rows)
        expression = Call(name, (Call("DIVIDE", (Var("a"), Var("b"))),))
        bench.compile(expression)
        assert bench.values() == [expected(expression, row, Context()) for row in rows]


def _decimal(digits: int, scale: int) -> Literal:
    return typed(f"{Decimal(digits).scaleb(-scale):f}", "decimal")


# --- what is asked of Python ----------------------------------------------------------------------------------------


def rows_of(*values: int) -> list[Row]:
    return [({"a": typed(str(value), "integer")}, None, TRUE, None) for value in values]


def regex(argument: Expression) -> Call:
    return Call("REGEX", (argument, Constant(Literal("^[0-4]+$"))))


def test_a_call_is_computed_once_for_each_argument() -> None:
    bench = Bench()
    bench.fill(rows_of(*range(10)) * 20)
    bench.compile(
        Call("AND", (regex(Call("STR", (Var("a"),))), Call("GT", (Var("a"), Constant(typed("1", "integer"))))))
    )
    terms = len(bench.dictionary)
    assert len(bench.filtered()) == 3 * 20
    assert bench.calls.computed == 8  # 0 and 1 are too small: no call
    assert len(bench.dictionary) == terms  # what STR makes has no number
    clear(bench.arena.base, bench.kept)
    assert len(bench.filtered()) == 3 * 20
    assert bench.calls.computed == 8
    bench.calls.forget()
    clear(bench.arena.base, bench.kept)
    assert len(bench.filtered()) == 3 * 20
    assert bench.calls.computed == 16


def test_a_part_with_few_values_is_computed_first() -> None:
    bench = Bench()
    bench.fill(rows_of(*range(100)))
    tenth = Call("FLOOR", (Call("DIVIDE", (Var("a"), Constant(typed("10", "integer")))),))
    bench.compile(Call("CONCAT", (Call("STR", (tenth,)), Constant(Literal("0s")))))
    assert [str(term) for term in bench.values()] == [f'"{value // 10}0s"' for value in range(100)]
    assert bench.calls.computed == 10


def test_a_division_of_integers_is_exact_without_python() -> None:
    bench = Bench()
    bench.fill(rows_of(1, 100, -2, 10**15 + 1))
    third = Call("DIVIDE", (Var("a"), Constant(typed("3", "integer"))))
    bench.compile(Call("GT", (Call("ADD", (third, third)), Constant(typed("0.666666666666666666", "decimal")))))
    assert bench.filtered() == [1, 3]
    assert bench.calls.computed == 0


def test_equal_functions_are_shared_and_draws_are_not() -> None:
    bench = Bench()
    first = translate(regex(Var("a")), COLUMN_OF, bench.calls)
    assert translate(regex(Var("a")), COLUMN_OF, bench.calls) == first
    draw = Call("RAND", (), span=Span(1, 2))
    other = Call("RAND", (), span=Span(5, 6))
    assert translate(draw, COLUMN_OF, bench.calls) != translate(other, COLUMN_OF, bench.calls)


def test_a_step_stops_where_python_is_needed_and_goes_on_there() -> None:
    bench = Bench()
    bench.fill(rows_of(5, 5, 6, 5, 7))
    program = bench.compile(Call("STRLEN", (Call("STR", (Var("a"),)),)))
    base, cursors = bench.arena.base, []
    while select_step(base, bench.extend, 0) != 0:
        cursors.append((int(bench.arena.words[bench.extend + CURSOR]), int(bench.arena.words[bench.extended + COUNT])))
        bench.calls.answer(program)
    assert cursors == [(0, 0), (2, 2), (4, 4)]
    assert len(bench.column(bench.extended, 6)) == 5
    assert bench.arena.words[bench.extend + CURSOR] == 0


def test_a_snapshot_in_the_middle_of_a_batch() -> None:
    bench = Bench()
    bench.fill(rows_of(*range(30)))
    expression = Call("ADD", (Call("STRLEN", (Call("STR", (Var("a"),)),)), Var("a")))
    program = bench.compile(expression)
    for _ in range(7):
        assert select_step(bench.arena.base, bench.extend, 0) == 1
        bench.calls.answer(program)
    data = bench.arena.snapshot()
    whole = bench.values()
    arena = Arena(size=1 << 27)
    arena.restore(data)
    calls = Calls(ArenaDictionary(arena, bench.dictionary.offset), memo=bench.calls.memo)
    translate(expression, COLUMN_OF, calls, seed="seed")  # makes the functions known again
    calls.run(select_step, bench.extend, 0)
    assert calls.computed == 30 - 7
    bench.arena, bench.dictionary = arena, calls.dictionary
    assert [decode(word, bench.dictionary) for word in bench.column(bench.extended, 6)] == whole
    assert whole == [typed(str(len(str(value)) + value), "integer") for value in range(30)]


def test_a_memo_that_is_too_small_for_the_batch_is_emptied() -> None:
    bench = Bench(limit=0)
    bench.fill(rows_of(*range(1000)) * 2)
    bench.compile(Call("STRLEN", (Call("STR", (Var("a"),)),)))
    assert bench.values() == [typed(str(len(str(value))), "integer") for value in range(1000)] * 2
    assert bench.calls.computed == 2000
    assert len(bench.calls) <= 128


def test_long_chains_and_long_lists() -> None:
    bench = Bench()
    bench.fill(rows_of(*range(0, 600, 3)))
    numbers = [Constant(typed(str(value), "integer")) for value in range(0, 2400, 2)]
    chain: Expression = Call("EQ", (Var("a"), numbers[0]))
    for number in numbers[1:]:
        chain = Call("OR", (chain, Call("EQ", (Var("a"), number))))
    bench.compile(chain)
    wanted = [number for number, value in enumerate(range(0, 600, 3)) if value % 2 == 0]
    assert bench.filtered() == wanted
    assert bench.calls.computed == 0
    bench.compile(Call("IN", (Var("a"), *numbers)))
    clear(bench.arena.base, bench.kept)
    assert bench.filtered() == wanted


def test_constants_are_held_as_long_as_their_program() -> None:
    bench = Bench()
    constant = NamedNode("http://example.org/constant")
    program = bench.compile(Call("EQ", (Var("a"), Constant(constant))))
    assert bench.dictionary.keep([]) == 0
    bench.fill([({"a": constant}, None, TRUE, None)])
    assert bench.filtered() == [0]
    release(bench.calls, program)
    assert bench.dictionary.keep([]) == 1


@pytest.mark.parametrize("node", [ANSWER, STAMP])
def test_what_only_the_engine_answers_must_be_given(node: Expression) -> None:
    with pytest.raises(ValueError, match="must be given in a column"):
        translate(Call("NOT", (node,)), COLUMN_OF, Bench().calls)


# --- integers of two words ------------------------------------------------------------------------------------------

WIDE = st.integers(-(2**127) + 1, 2**127 - 1) | st.integers(-(2**70), 2**70) | st.integers(-1000, 1000)


def halves(value: int) -> tuple[int, int]:
    return (value + 2**63) % 2**64 - 2**63, value >> 64


def joined(low: int, high: int) -> int:
    return high << 64 | low & 2**64 - 1


@given(st.integers(0, 2**127 - 1) | st.integers(0, 2**65), st.integers(1, 2**64 - 1) | st.integers(1, 100))
def test_divide_wide(value: int, by: int) -> None:
    low, high, rest = divide_wide(*halves(value), halves(by)[0])
    assert (joined(low, high), rest % 2**64) == divmod(value, by)


@given(WIDE, WIDE, st.integers(0, 60))
def test_multiply_wide(a: int, b: int, power: int) -> None:
    low, high, fits = multiply_wide(*halves(a), *halves(b))
    assert fits if abs(a) < 2**64 and abs(a * b) < 2**127 else not (fits and abs(a * b) >= 2**127)
    assert not fits or joined(low, high) == a * b
    low, high, fits = scale_up(*halves(a), power)
    assert fits == (abs(a * 10**power) < 2**127)
    assert not fits or joined(low, high) == a * 10**power


@given(WIDE, st.integers(0, 20))
def test_nearest(value: int, scale: int) -> None:
    exact = Decimal(value).scaleb(-scale)
    rounders: tuple[tuple[int, Callable[[Fraction], float]], ...] = ((53, float), (24, lambda _: single(exact)))
    for precision, rounder in rounders:
        found, known = nearest(*halves(value), scale, precision)
        assert known == (scale <= 18 or value == 0)
        if known:
            assert found == rounder(Fraction(value, 10**scale))
            assert math.copysign(1, found) == (-1 if value < 0 else 1)
