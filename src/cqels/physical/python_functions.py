"""What kernels ask of Python: the functions that need text, computed once per distinct argument and remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from cqels.kernels.containers.delta_queue import NEVER
from cqels.kernels.expressions.call_cache import (
    ARGUMENTS,
    COUNT,
    FIRST_ARGUMENT,
    FUNCTION,
    RESULT,
    forget,
    make_memo,
    remember,
)
from cqels.kernels.expressions.interpreter import DONE, FIRST_FUNCTION, FULL, MATERIALISE, REQUEST, SETTLE, TRUTH
from cqels.kernels.expressions.opcodes import Operation
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.filter_extend import PROGRAM
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.lang.expressions import Call, Expression, Var
from cqels.model.dictionary import decode, encode
from cqels.model.errors import ArenaFull
from cqels.model.ids import Register, Tag, register_value
from cqels.model.interrupts import exposed
from cqels.model.terms import XSD, Term, boolean
from cqels.model.values import ExpressionError, effective_boolean, literal_of
from cqels.plan.functions import Context, evaluate

NATIVE_NAMES: Final = {
    **{operation.name: operation for operation in Operation if Operation.EQ <= operation <= Operation.DIVIDE},
    **{operation.name: operation for operation in Operation if Operation.NEGATE <= operation <= Operation.SECONDS},
    "ISNUMERIC": Operation.IS_NUMERIC,
    XSD + "boolean": Operation.TO_BOOLEAN,
    XSD + "integer": Operation.TO_INTEGER,
    XSD + "decimal": Operation.TO_DECIMAL,
    XSD + "float": Operation.TO_FLOAT,
    XSD + "double": Operation.TO_DOUBLE,
}
"""The functions that kernels compute where they can, and ask of Python where they cannot."""


_MOST_RELEASED = 256
"""Functions that are forgotten before the memo is emptied of what it knows of them."""


@dataclass(frozen=True, slots=True)
class Function:
    """A part of a query that Python computes, from the values of its parameters.

    After them come, as plain numbers, the tick's time if it needs `now`, and the times of the newest and the oldest
    element of the row if it needs its `interval`.
    """

    expression: Expression
    parameters: tuple[str, ...]
    now: bool = False
    interval: bool = False
    seed: str = ""
    identity: frozenset[str] | None = None

    def compute(self, arguments: list[Term | None], numbers: list[int]) -> Term:
        solution = {name: term for name, term in zip(self.parameters, arguments, strict=True) if term is not None}
        now = numbers[0] if self.now else 0
        interval = None
        if self.interval and numbers[-2] != NEVER:
            interval = numbers[-1], numbers[-2]
        return evaluate(self.expression, solution, Context(now, self.seed, self.identity, interval))


class Calls:
    """The functions of an engine by their numbers, and the memo of their results.

    The memo holds words of terms: `forget` it before the dictionary releases any.
    """

    def __init__(self, dictionary: ArenaDictionary, *, limit: int = 1 << 24, memo: int | None = None) -> None:
        """The memo has at most `limit` words; `memo` is the offset of one that is in the arena already."""
        self.arena: Arena = dictionary.arena
        self.dictionary = dictionary
        self.memo: int = make_memo(self.arena.base, limit) if memo is None else memo
        if self.memo == 0:
            raise ArenaFull
        self.computed = 0
        self.asked: list[tuple[int, Function]] = []
        """The functions asked for since this was emptied, with their numbers."""
        self._functions: dict[int, Function] = {}
        self._numbers: dict[Function, int] = {}
        self._uses: Counter[int] = Counter()
        """How often functions were asked for and not released."""
        self._released = 0
        """Functions that were forgotten, whose results the memo may still have."""
        self.next = FIRST_FUNCTION
        """The number of the next function; none is ever given twice, since the memo may know results of any."""

    def __len__(self) -> int:
        """How many results are remembered."""
        return int(self.arena.words[self.memo + COUNT])

    def number(self, function: Function, *, shared: bool) -> int:
        """The number of a function; that of an equal one, if it may be `shared`."""
        known = self._numbers.get(function) if shared else None
        if known is None:
            known, self.next = self.next, self.next + 1
            self._functions[known] = function
            if shared:
                self._numbers[function] = known
        self._uses[known] += 1
        self.asked.append((known, function))
        return known

    def renumber(self, functions: Iterable[tuple[int, Function]], next: int) -> None:
        """Know these functions by these numbers, and no others: those of an arena that was restored."""
        used = list(functions)
        self._functions = dict(used)
        self._numbers = {function: number for number, function in self._functions.items()}
        self._uses = Counter(number for number, _ in used)
        self.next = next

    def release(self, functions: Iterable[tuple[int, Function]]) -> None:
        """Forget functions that a pipeline had asked for, unless another one has too."""
        for number, function in functions:
            self._uses[number] -= 1
            if self._uses[number] == 0:
                del self._uses[number], self._functions[number]
                self._released += 1
                if self._numbers.get(function) == number:
                    del self._numbers[function]
        if self._released > _MOST_RELEASED:
            self.forget()

    def word_of(self, term: Term) -> int:
        """The word of a term, of which the dictionary knows the value."""
        word = encode(term, self.dictionary)
        if word > 0:
            self.dictionary.register(word)  # settles it
        return word

    def forget(self) -> None:
        """Empty the memo."""
        self._released = 0
        forget(self.arena.base, self.memo)

    def run(self, step: Callable[[int, int, int], int], operator: int, now: int) -> None:
        """Run the step of an operator to its end, answering what it asks."""
        while (status := step(self.arena.base, operator, now)) != DONE:
            if status == FULL:
                raise ArenaFull
            self.answer(int(self.arena.words[operator + PROGRAM]))

    def answer(self, program: int) -> None:
        """Compute what a program asks, and put it into the memo."""
        words = self.arena.words
        request = program + int(words[program + REQUEST])
        first = request + FIRST_ARGUMENT
        arguments = words[first : first + int(words[request + ARGUMENTS])].tolist()
        if words[request + FUNCTION] == SETTLE:
            self.dictionary.register(arguments[0])
            return
        try:
            result = self.word_of(exposed(self._compute, int(words[request + FUNCTION]), arguments))
        except ExpressionError:
            result = 0
        words[request + RESULT] = result
        self.computed += 1
        if not remember(self.arena.base, self.memo, request):
            raise ArenaFull

    def _compute(self, number: int, arguments: list[int]) -> Term:
        if number == MATERIALISE:
            return _term_of(*arguments)
        if number >= FIRST_FUNCTION:
            function = self._functions[number]
            count = len(function.parameters)
            return function.compute([decode(word, self.dictionary) for word in arguments[:count]], arguments[count:])
        terms = [decode(word, self.dictionary) for word in arguments]
        return boolean(effective_boolean(terms[0])) if number == TRUTH else _OPERATIONS[number].compute(terms, [])


def _term_of(tag: int, low: int, high: int, scale: int) -> Term:
    """The literal of a computed value."""
    whole = Tag.DECIMAL, Tag.INTEGER
    value = register_value(Register(tag, high << 64 | low & (1 << 64) - 1 if tag in whole else low, scale))
    if value is None:
        raise ValueError(f"a register with the tag {tag} is not computed")
    return literal_of(value)


def _operation(name: str, operation: Operation) -> Function:
    names = ("a", "b") if operation <= Operation.DIVIDE else ("a",)
    return Function(Call(name, tuple(map(Var, names))), names)


_OPERATIONS: Final = {int(operation): _operation(name, operation) for name, operation in NATIVE_NAMES.items()}
