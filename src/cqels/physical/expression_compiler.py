"""The compiler of expressions: SPARQL's expressions become programs of `cqels.kernels.expressions.interpreter`.

What has values in registers is computed by the kernels; what needs text becomes a call.  A call is as large as it can
be without more variables, so that no text on the way gets into the dictionary.  But a part of it that takes few values
(ROUND, YEAR, a comparison) is computed by the kernels and passed as an argument: so the memo knows the call more often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from cqels.kernels.containers.delta_queue import COLUMNS, NUMBER, OLDEST, TIME
from cqels.kernels.expressions.interpreter import (
    ERROR_REGISTER,
    FREE_REGISTER,
    NOW_REGISTER,
    RESULT_REGISTER,
)
from cqels.kernels.expressions.opcodes import Operation
from cqels.lang.expressions import Aggregate, Call, Constant, Exists, Expression, Var, children, operands_of, walk
from cqels.model.terms import CQ, FALSE, Term
from cqels.model.values import ExpressionError
from cqels.physical.expression_program import Argument, Label, Program, Temporary, Word, install, resolved
from cqels.physical.python_functions import NATIVE_NAMES, Calls, Function
from cqels.plan.functions import Context, evaluate
from cqels.plan.optimizer.prune_columns import DRAWS

_NOWS: Final = frozenset({"NOW", CQ + "now"})
_STAMPS: Final = {"GETSTARTTIME": OLDEST, "GETENDTIME": TIME, "NEWEST": NUMBER}
_INTERVALS: Final = frozenset({*_STAMPS, "GETDURATION"})
_ENGINES: Final = frozenset({"TIMESTAMP"})
"""What only the engine can answer."""
_TESTS: Final = {
    "ISIRI": Operation.IS_IRI,
    "ISURI": Operation.IS_IRI,
    "ISBLANK": Operation.IS_BLANK,
    "ISLITERAL": Operation.IS_LITERAL,
    "SAMETERM": Operation.SAME_TERM,
    "PART": Operation.PART,
}
_LISTS: Final = frozenset({"IN", "NOT_IN"})
_STRICT: Final = frozenset({*NATIVE_NAMES, *_TESTS, *_LISTS})
"""Native functions that need the values of all their arguments."""
_NATIVE: Final = _STRICT | _NOWS | _STAMPS.keys() | {"AND", "OR", "NOT", "IF", "COALESCE", "BOUND"}
_FEW_VALUED: Final = frozenset(
    {*("EQ", "NE", "LT", "GT", "LE", "GE", "FLOOR", "CEIL", "ROUND", "YEAR", "MONTH", "DAY", "HOURS", "MINUTES")}
    | _TESTS.keys()
)
"""Native functions that take few values, whatever their arguments are."""
_LONG_LIST: Final = 16

Given: TypeAlias = Exists | Call
"""An EXISTS, or a call that only the engine can answer (TIMESTAMP), which a column of the row holds the answer of."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the value of an expression depends on."""

    variables: frozenset[str] = frozenset()
    given: frozenset[Given] = frozenset()
    now: bool = False
    interval: bool = False

    def __or__(self, other: Parameters) -> Parameters:
        return Parameters(
            self.variables | other.variables,
            self.given | other.given,
            self.now or other.now,
            self.interval or other.interval,
        )

    def __le__(self, other: Parameters) -> bool:
        return self | other == other


def compile_expression(
    expression: Expression,
    columns: Mapping[str, int],
    calls: Calls,
    *,
    given: Mapping[Given, int] | None = None,
    seed: str = "",
    identity: Collection[str] | None = None,
) -> int:
    """Write the program of an expression into the arena: its offset.

    - `columns` are the columns of the rows' variables; any other variable is unbound;
    - `given` are the columns of the answers to EXISTS and the like;
    - `seed` and `identity` are those of the context of draws (`cqels.plan.functions.Context`).
    """
    words = translate(expression, columns, calls, given=given, seed=seed, identity=identity)
    return install(words, calls)


def is_native(expression: Expression) -> bool:
    """Whether kernels compute the expression from its variables, in most cases without asking Python."""
    return all(
        isinstance(node, Var | Constant) or (isinstance(node, Call) and node.name in _NATIVE - _NOWS - _STAMPS.keys())
        for node in walk(expression)
    )


def translate(
    expression: Expression,
    columns: Mapping[str, int],
    calls: Calls,
    *,
    given: Mapping[Given, int] | None = None,
    seed: str = "",
    identity: Collection[str] | None = None,
) -> Program:
    """The program of an expression, not yet in an arena: alone, it makes the numbers of functions known again."""
    drawn = frozenset(identity) if identity is not None else None
    compiler = _Compiler(columns, given or {}, calls, seed, drawn)
    return compiler.program(expression)


# --- analysis -------------------------------------------------------------------------------------------------------


@dataclass
class _Compiler:
    columns: Mapping[str, int]
    given: Mapping[Given, int]
    calls: Calls
    seed: str
    identity: frozenset[str] | None
    code: list[Word] = field(default_factory=list)
    constants: dict[Term, int] = field(default_factory=dict)
    arguments: int = 4  # of a request, at most; the kernels' own has four
    used: int = 0
    temporaries: int = 0
    known: dict[int, tuple[Expression, Parameters]] = field(default_factory=dict)

    def program(self, root: Expression) -> Program:
        if self._drawn_by_position(root):
            self._call(root, RESULT_REGISTER)  # its draws depend on where they stand in all of it
        else:
            self._into(root, RESULT_REGISTER)
        self.code.append(Operation.END)
        first = FREE_REGISTER + len(self.constants)
        code = tuple(resolved(word, first) for word in self.code)
        return Program(tuple(self.constants), self.temporaries, self.arguments, code)

    # --- what an expression depends on

    def _drawn_by_position(self, root: Expression) -> bool:
        """Whether there is a draw that does not know its position in the query's text."""
        return any(isinstance(node, Call) and node.name in DRAWS and node.span is None for node in self._nodes(root))

    def _nodes(self, root: Expression, *, stop: Collection[int] = ()) -> Iterator[Expression]:
        """The expression and everything in it but what columns give, and nodes to stop at; it may be deeply nested."""
        pending = [root]
        while pending:
            node = pending.pop()
            if id(node) in stop:
                continue
            yield node
            if not self._is_given(node):
                pending += reversed(children(node))

    def _is_given(self, node: Expression) -> bool:
        if isinstance(node, Call) and node.name not in _ENGINES:
            return False  # not even looked up: an expression may be nested deeper than its hash can go
        return isinstance(node, Exists | Call) and node in self.given

    def _parameters(self, root: Expression, *, stop: Collection[int] = ()) -> Parameters:
        """What the value of an expression depends on, parts to stop at left out."""
        variables: set[str] = set()
        given: set[Given] = set()
        now = interval = False
        for node in self._nodes(root, stop=stop):
            match node:
                case Exists() | Call() if self._is_given(node):
                    given.add(node)
                case Var(name=name) if name in self.columns:
                    variables.add(name)
                case Call(name=name):
                    now |= name in _NOWS
                    interval |= name in _INTERVALS
                    if name in DRAWS:
                        variables |= self._identity()
                    if name in _ENGINES:
                        raise ValueError(f"{name} must be given in a column")
                case Exists():
                    raise ValueError("EXISTS must be given in a column")
                case Aggregate(name=name):
                    raise ValueError(f"{name} is computed over a group, not for a row")
                case _:
                    pass
        return Parameters(frozenset(variables), frozenset(given), now, interval)

    def _identity(self) -> set[str]:
        """The variables that a draw depends on."""
        return {
            name
            for name in self.columns
            if not name.startswith("_:") and (self.identity is None or name in self.identity)
        }

    def _depends(self, expression: Expression) -> Parameters:
        """`_parameters` of the whole expression, remembered."""
        known = self.known.get(id(expression))
        if known is None:
            known = self.known[id(expression)] = expression, self._parameters(expression)
        return known[1]

    def _is_constant(self, expression: Expression) -> bool:
        drawn = any(isinstance(node, Call) and node.name in DRAWS for node in self._nodes(expression))
        return not drawn and self._depends(expression) == Parameters()

    # --- what is computed where

    def _is_called(self, expression: Expression) -> bool:
        """Whether Python computes the expression as a whole."""
        if not isinstance(expression, Call) or self._is_given(expression):
            return False
        if expression.name not in _NATIVE:
            return True
        if expression.name not in _STRICT:
            return False
        args = expression.args
        if expression.name in _LISTS and len(args) > _LONG_LIST and all(isinstance(arg, Constant) for arg in args[1:]):
            return True
        called = [arg for arg in args if not isinstance(arg, Var | Constant) and self._is_called(arg)]
        if not called:
            return False
        # it costs no more to compute all of it, and less if no text on the way gets a number
        return self._depends(expression) <= _union(self._depends(arg) for arg in called)

    def _has_call(self, expression: Expression) -> bool:
        return any(self._is_called(node) for node in self._nodes(expression))

    def _has_few_values(self, node: Expression) -> bool:
        """Whether a part of a call is native and takes few values, so that it is computed first."""
        if not isinstance(node, Call) or self._is_given(node):
            return False
        few = node.name in _FEW_VALUED or (
            node.name == "IF" and all(isinstance(branch, Constant) for branch in node.args[1:])
        )
        return few and not self._has_call(node)

    # --- code

    def _emit(self, operation: Operation, *words: Word) -> None:
        self.code += (int(operation), *words)

    def _bind(self, label: Label) -> None:
        label.at = len(self.code)

    def _temporary(self) -> Temporary:
        self.used += 1
        self.temporaries = max(self.temporaries, self.used)
        return Temporary(self.used - 1)

    def _constant(self, term: Term) -> int:
        return self.constants.setdefault(term, FREE_REGISTER + len(self.constants))

    def _operand(self, expression: Expression) -> int | Temporary:
        """Where the value of an expression is, computed into a temporary register if it must be."""
        match expression:
            case Exists() | Call() if self._is_given(expression):
                return _column(self.given[expression])
            case Var(name=name):
                return _column(self.columns[name]) if name in self.columns else ERROR_REGISTER
            case Constant(term=term):
                return self._constant(term)
            case Call(name=name) if name in _NOWS:
                return NOW_REGISTER
            case _ if self._is_constant(expression):
                try:
                    return self._constant(evaluate(expression, {}, Context()))
                except ExpressionError:
                    return ERROR_REGISTER
            case _:
                target = self._temporary()
                self._into(expression, target)
                return target

    def _into(self, expression: Expression, target: Target) -> None:
        """Compute an expression into a register; temporary ones used on the way are free again."""
        used = self.used
        simple = not isinstance(expression, Call) or self._is_given(expression) or expression.name in _NOWS
        if simple or self._is_constant(expression):
            self._emit(Operation.MOVE, target, self._operand(expression), 0)
        elif self._is_called(expression):
            self._call(expression, target)
        elif isinstance(expression, Call):
            self._native(expression, target)
        self.used = used

    def _native(self, call: Call, target: Target) -> None:
        match call.name, call.args:
            case ("AND" | "OR") as name, _:
                self._junction(name, operands_of(call), target)
            case "NOT", (operand,):
                self._emit(Operation.NOT, target, self._operand(operand), 0)
            case ("IN" | "NOT_IN") as name, (tested, *listed):
                self._membership(tested, listed, target)
                if name == "NOT_IN":
                    self._emit(Operation.NOT, target, target, 0)
            case "IF", (condition, then, otherwise):
                self._choice(condition, then, otherwise, target)
            case "COALESCE", operands:
                end = Label()
                self._emit(Operation.MOVE, target, ERROR_REGISTER, 0)
                for operand in operands:
                    self._into(operand, target)
                    self._emit(Operation.UNLESS_ERROR, target, target, end)
                self._bind(end)
            case "BOUND", (Var() as variable,):
                self._emit(Operation.BOUND, target, self._operand(variable), 0)
            case name, () if name in _STAMPS:
                self._emit(Operation.STAMP, target, _STAMPS[name], 0)
            case name, (operand,):
                self._emit(_operation(name), target, self._operand(operand), 0)
            case name, (first, second):
                self._emit(_operation(name), target, self._operand(first), self._operand(second))
            case _:
                raise TypeError(f"{call.name} with {len(call.args)} arguments is no function")

    def _junction(self, name: str, operands: list[Expression], target: Target) -> None:
        """`&&` and `||`: in any order the value is the same, so what may need no call comes first."""
        first, following = _JUNCTIONS[name]
        end = Label()
        for position, operand in enumerate(sorted(operands, key=self._has_call)):
            used = self.used
            self._emit(following if position else first, target, self._operand(operand), end)
            self.used = used
        self._bind(end)

    def _membership(self, tested: Expression, listed: list[Expression], target: Target) -> None:
        value, end = self._operand(tested), Label()
        self._emit(Operation.IF_ERROR, target, value, end)
        test = self._temporary()
        for position, item in enumerate(listed):
            used = self.used
            self._emit(Operation.EQ, test, value, self._operand(item))
            self._emit(Operation.OR if position else Operation.OR_FIRST, target, test, end)
            self.used = used
        if not listed:
            self._emit(Operation.MOVE, target, self._constant(FALSE), 0)
        self._bind(end)

    def _choice(self, condition: Expression, then: Expression, otherwise: Expression, target: Target) -> None:
        other, end = Label(), Label()
        self._emit(Operation.BRANCH, target, self._operand(condition), other, end)
        self._into(then, target)
        self._emit(Operation.JUMP, target, 0, end)
        self._bind(other)
        self._into(otherwise, target)
        self._bind(end)

    def _call(self, root: Expression, target: Target) -> None:
        """Have Python compute an expression from its variables, and from its parts that take few values."""
        drawn = any(isinstance(node, Call) and node.name in DRAWS for node in self._nodes(root))
        few_valued = [] if self._drawn_by_position(root) else self._few_valued_parts(root)
        needed = self._parameters(root, stop={id(part) for part in few_valued})
        names: list[str] = sorted(needed.variables)
        arguments = [Argument(_column(self.columns[name]), plain=True) for name in names]
        replaced: dict[Expression, Var] = {}
        for node in sorted(needed.given, key=lambda each: self.given[each]):
            replaced[node] = Var(f"_:given {len(replaced)}")
            arguments.append(Argument(_column(self.given[node]), plain=True))
        for part in few_valued:
            if part not in replaced:
                replaced[part] = Var(f"_:part {len(replaced)}")
                value = self._temporary()
                self._into(part, value)
                arguments.append(Argument(value, plain=False))
        names += [variable.name for variable in replaced.values()]
        if needed.now:
            arguments.append(Argument(NOW_REGISTER, plain=True))
        if needed.interval:
            arguments += [Argument(~TIME, plain=True), Argument(~OLDEST, plain=True)]
        expression = _replaced(root, replaced) if replaced else root
        function = Function(expression, tuple(names), needed.now, needed.interval, self.seed, self.identity)
        # equal draws at two positions of the query draw differently
        number = self.calls.number(function, shared=not drawn)
        self.arguments = max(self.arguments, len(arguments))
        self._emit(Operation.CALL, target, number, len(arguments), *arguments)

    def _few_valued_parts(self, root: Expression) -> list[Expression]:
        """The outermost parts to compute first: not those that depend on nothing but what the rest needs anyway."""
        parts: list[Expression] = []
        for node in self._nodes(root):
            if node is not root and self._has_few_values(node) and not any(self._inside(node, part) for part in parts):
                parts.append(node)
        rest = self._parameters(root, stop={id(part) for part in parts})
        return [part for part in parts if not self._depends(part) <= rest]

    def _inside(self, node: Expression, whole: Expression) -> bool:
        return any(part is node for part in self._nodes(whole))


Target: TypeAlias = int | Temporary
_JUNCTIONS: Final = {"AND": (Operation.AND_FIRST, Operation.AND), "OR": (Operation.OR_FIRST, Operation.OR)}


def _union(parameters: Iterable[Parameters]) -> Parameters:
    result = Parameters()
    for each in parameters:
        result |= each
    return result


def _column(number: int) -> int:
    return ~(COLUMNS + number)


def _operation(name: str) -> Operation:
    return NATIVE_NAMES.get(name) or _TESTS[name]


def _replaced(node: Expression, parts: Mapping[Expression, Var]) -> Expression:
    """An expression with variables instead of some of its parts."""
    if node in parts:
        return parts[node]
    return replace(node, args=tuple(_replaced(arg, parts) for arg in node.args)) if isinstance(node, Call) else node
