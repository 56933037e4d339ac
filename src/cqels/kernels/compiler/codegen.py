"""From the text of a kernel to LLVM's intermediate code: a small, typed part of Python, nothing guessed.

A kernel is a function of words (64-bit integers); a parameter annotated `float` is a double.  It knows integers that
wrap around, doubles and truth values; `if`, `while`, `for … in range(…)` (or over a tuple of constants), `break`,
`continue`, `return` of one value or of several; the operators of Python with Python's meaning (`//` and `%` round
down); chained comparisons, `in` a tuple of constants; `min`, `max`, `abs`, `int`, `float` and a few functions of
`math`; names of constants and of constant arrays; calls of other kernels and of what is `lowered`.  All else is refused
when it is compiled.

Why not Numba, whose kernels these could be: it takes 75 s of processor time for what this takes 7 s for, since it types
each function as if it were any Python and optimises it anew with each of its callers.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from cqels.kernels.compiler.type_inference import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT,
    LOWERED,
    NOTHING,
    WORD,
    Source,
    Type,
    constant_type,
    joined,
    native_result,
)

if TYPE_CHECKING:
    from cqels.kernels.compiler.kernel import Kernel

BIT = ir.IntType(1)
_NATIVE = {INT: WORD, BOOL: BIT, FLOAT: DOUBLE}
_MOST, _LEAST = 2**63 - 1, -(2**63)


class Emitter:
    """Writes the code of one kernel into a module. `call` gives the function of another kernel there."""

    def __init__(self, source: Source, function: ir.Function, call: Callable[[Kernel], ir.Function]) -> None:
        source.infer()
        self.source = source
        self.function = function
        self._call = call
        self._loops: list[tuple[ir.Block, ir.Block]] = []
        entry = function.append_basic_block("entry")
        self._entry = ir.IRBuilder(entry)
        self._slots = {
            name: self._entry.alloca(_native(kind), name=name)
            for name, kind in source.locals.items()
            if isinstance(kind, str)
        }
        self._tuples = {
            name: [self._entry.alloca(_native(part), name=f"{name}.{number}") for number, part in enumerate(kind)]
            for name, kind in source.locals.items()
            if isinstance(kind, tuple)
        }
        for name, value in zip(source.names, function.args, strict=True):
            value.name = name
            self._entry.store(value, self._slots[name])
        self.builder = ir.IRBuilder(function.append_basic_block("body"))
        first = self.builder.block
        self._block(source.tree.body)
        if not self.builder.block.is_terminated:
            if source.result == NOTHING:
                self.builder.ret(WORD(0))
            else:
                self.builder.unreachable()
        self._entry.branch(first)

    # ------------------------------------------------------------ statements

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if self.builder.block.is_terminated:
                return
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                self._assign([target], ast.BinOp(ast.Name(name), op, value))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                self._value(value)
            case ast.If():
                self._if(statement)
            case ast.While(test=test, body=body, orelse=[]):
                self._while(test, body)
            case ast.For(target=ast.Name(id=name), iter=iterated, body=body, orelse=[]):
                self._for(name, iterated, body)
            case ast.Break():
                self.builder.branch(self._loops[-1][1])
            case ast.Continue():
                self.builder.branch(self._loops[-1][0])
            case ast.Return(value=value):
                self._return(value)
            case _:
                raise self.source.error(statement, "kernels do not know this statement")

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        kind = self.source.type_of(value)
        made = self._value(value)
        for target in targets:
            self._put(target, made, kind)

    def _put(self, target: ast.expr, made: Any, kind: Type) -> None:
        match target:
            case ast.Name(id=name) if name in self._tuples:
                wanted = self.source.locals[name]
                for slot, part, part_kind, into in zip(self._tuples[name], made, kind, wanted, strict=True):
                    self.builder.store(self._converted(part, part_kind, into), slot)
            case ast.Name(id=name):
                self.builder.store(self._converted(made, str(kind), str(self.source.locals[name])), self._slots[name])
            case ast.Tuple(elts=targets):
                for each, part, part_kind in zip(targets, made, kind, strict=True):
                    self._put(each, part, part_kind)

    def _if(self, statement: ast.If) -> None:
        then, after = self._new("then"), self._new("after")
        other = self._new("else") if statement.orelse else after
        self._branch(statement.test, then, other)
        for block, body in ((then, statement.body), (other, statement.orelse)):
            if block is not after:
                self.builder.position_at_end(block)
                self._block(body)
                if not self.builder.block.is_terminated:
                    self.builder.branch(after)
        self.builder.position_at_end(after)

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        check, inside, after = self._new("check"), self._new("loop"), self._new("after")
        self.builder.branch(check)
        self.builder.position_at_end(check)
        self._branch(test, inside, after)
        self._loop(inside, check, after, body)

    def _loop(self, inside: ir.Block, again: ir.Block, after: ir.Block, body: Sequence[ast.stmt]) -> None:
        self.builder.position_at_end(inside)
        self._loops.append((again, after))
        self._block(body)
        self._loops.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(again)
        self.builder.position_at_end(after)

    def _for(self, name: str, iterated: ast.expr, body: Sequence[ast.stmt]) -> None:
        if isinstance(iterated, ast.Tuple):
            for each in iterated.elts:
                self._assign([ast.Name(name)], each)
                self._block(body)
            return
        assert isinstance(iterated, ast.Call)
        bounds = [self._word(each) for each in iterated.args]
        start, end = (WORD(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = 1
        if len(bounds) == 3:
            if not isinstance(bounds[2], ir.Constant):
                raise self.source.error(iterated, "the step of a range is a constant")
            step = int(bounds[2].constant)
        counter = self._entry.alloca(WORD)
        self.builder.store(start, counter)
        check, inside, again, after = (self._new(label) for label in ("check", "loop", "again", "after"))
        self.builder.branch(check)
        self.builder.position_at_end(check)
        at = self.builder.load(counter)
        self.builder.cbranch(self.builder.icmp_signed("<" if step > 0 else ">", at, end), inside, after)
        self.builder.position_at_end(inside)
        self.builder.store(self.builder.load(counter), self._slots[name])
        self._loop(inside, again, after, body)
        self.builder.position_at_end(again)
        self.builder.store(self.builder.add(self.builder.load(counter), WORD(step)), counter)
        self.builder.branch(check)
        self.builder.position_at_end(after)

    def _return(self, value: ast.expr | None) -> None:
        result = self.source.result
        if value is None:
            self.builder.ret(WORD(0))
            return
        made, kind = self._value(value), self.source.type_of(value)
        if not isinstance(result, tuple):
            assert isinstance(result, str)
            made = WORD(0) if result == NOTHING else self._converted(made, str(kind), result)
            self.builder.ret(self.builder.zext(made, WORD) if result == BOOL else made)
            return
        whole = ir.Constant(native_result(result), ir.Undefined)
        for number, (part, part_kind, into) in enumerate(zip(made, kind, result, strict=True)):
            part = self._converted(part, part_kind, into)
            part = self.builder.zext(part, WORD) if into == BOOL else part
            whole = self.builder.insert_value(whole, part, number)
        self.builder.ret(whole)

    def _new(self, label: str) -> ir.Block:
        return self.function.append_basic_block(label)

    # ------------------------------------------------------------ conditions

    def _branch(self, test: ast.expr, then: ir.Block, other: ir.Block) -> None:
        """Go on at `then` if the test holds, else at `other`."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                self._branch(inner, other, then)
            case ast.BoolOp(op=op, values=values):
                for value in values[:-1]:
                    following = self._new("and" if isinstance(op, ast.And) else "or")
                    if isinstance(op, ast.And):
                        self._branch(value, following, other)
                    else:
                        self._branch(value, then, following)
                    self.builder.position_at_end(following)
                self._branch(values[-1], then, other)
            case ast.Compare(left=left, ops=[_, _, *_] as ops, comparators=operands):
                before = self._value(left), self.source.type_of(left)
                for number, (sign, operand) in enumerate(zip(ops, operands, strict=True)):
                    following = then if number == len(ops) - 1 else self._new("chain")
                    this = self._value(operand), self.source.type_of(operand)
                    self.builder.cbranch(self._compared(sign, *before, *this), following, other)
                    before = this
                    if following is not then:
                        self.builder.position_at_end(following)
            case _:
                self.builder.cbranch(self._truth(test), then, other)

    def _truth(self, node: ast.expr) -> ir.Value:
        return self._converted(self._value(node), str(self.source.type_of(node)), BOOL)

    def _decided(self, test: ast.expr) -> ir.Value:
        """A test with several parts as a value."""
        yes, no, after = self._new("yes"), self._new("no"), self._new("decided")
        self._branch(test, yes, no)
        for block in (yes, no):
            self.builder.position_at_end(block)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        chosen = self.builder.phi(BIT)
        chosen.add_incoming(BIT(1), yes)
        chosen.add_incoming(BIT(0), no)
        return chosen

    def _compared(self, op: ast.cmpop, one: Any, one_kind: Type, other: Any, other_kind: Type) -> ir.Value:
        signs: dict[type, str] = {
            ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
        }  # fmt: skip
        common = str(joined(one_kind, other_kind))
        a, b = self._converted(one, str(one_kind), common), self._converted(other, str(other_kind), common)
        sign = signs[type(op)]
        if common == FLOAT:
            compare = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
            return compare(sign, a, b)
        if common == BOOL and sign not in ("==", "!="):
            a, b = self.builder.zext(a, WORD), self.builder.zext(b, WORD)
        return self.builder.icmp_signed(sign, a, b)

    # ------------------------------------------------------------ values

    def _word(self, node: ast.expr) -> ir.Value:
        return self._converted(self._value(node), str(self.source.type_of(node)), INT)

    def _converted(self, value: Any, kind: str, wanted: str) -> ir.Value:
        if kind == wanted:
            return value
        if wanted == BOOL:
            if kind == FLOAT:
                return self.builder.fcmp_unordered("!=", value, DOUBLE(0.0))
            return self.builder.icmp_signed("!=", value, WORD(0))
        if wanted == INT and kind == BOOL:
            return WORD(int(value.constant)) if isinstance(value, ir.Constant) else self.builder.zext(value, WORD)
        if wanted == FLOAT and kind in (INT, BOOL):
            return self.builder.sitofp(self._converted(value, kind, INT), DOUBLE)
        raise TypeError(f"{self.source.kernel.symbol}: {kind} where {wanted} is needed")

    def _value(self, node: ast.expr) -> Any:
        """The value of an expression; a list of values for several."""
        match node:
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Name(id=name) if name in self._slots:
                return self.builder.load(self._slots[name])
            case ast.Name(id=name) if name in self._tuples:
                return [self.builder.load(slot) for slot in self._tuples[name]]
            case ast.Name() | ast.Attribute():
                return self._constant(node, self.source.constant(node))
            case ast.UnaryOp(op=op, operand=inner):
                return self._unary(op, inner)
            case ast.BinOp():
                return self._binary(node)
            case ast.BoolOp(values=values):
                if any(self.source.type_of(each) != BOOL for each in values):
                    raise self.source.error(node, "`and` and `or` are of truth values")
                return self._decided(node)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[members]):
                return self._member(left, members, negated=isinstance(op, ast.NotIn))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                one, other = self._value(left), self._value(right)
                return self._compared(op, one, self.source.type_of(left), other, self.source.type_of(right))
            case ast.Compare():
                return self._decided(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Tuple(elts=parts):
                return [self._value(part) for part in parts]
            case ast.Subscript(value=array, slice=index):
                return self._element(self.source.constant(array), index)
            case ast.Call():
                return self._called(node)
        raise self.source.error(node, "kernels do not know this")

    def _constant(self, node: ast.expr, value: Any) -> Any:
        kind = constant_type(value)
        if isinstance(value, tuple):
            return [self._constant(node, each) for each in value]
        if kind == INT and not _LEAST <= value <= _MOST:
            raise self.source.error(node, "the number does not fit in a word")
        return _native(kind)(float(value) if kind == FLOAT else int(value))

    def _unary(self, op: ast.unaryop, inner: ast.expr) -> ir.Value:
        if isinstance(op, ast.Not):
            return self.builder.not_(self._truth(inner))
        kind = self.source.type_of(inner)
        if isinstance(op, ast.USub) and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Pow):
            return self._constant(inner, -_folded(self.source, inner))
        if isinstance(op, ast.USub) and kind == FLOAT:
            return self.builder.fneg(self._value(inner))
        value = self._word(inner)
        if isinstance(op, ast.USub):
            return WORD(_wrapped(-int(value.constant))) if isinstance(value, ir.Constant) else self.builder.neg(value)
        if isinstance(op, ast.Invert):
            return self.builder.not_(value)
        raise self.source.error(inner, "kernels do not know this operator")

    def _binary(self, node: ast.BinOp) -> ir.Value:
        kind, builder = self.source.type_of(node), self.builder
        op = node.op
        if isinstance(op, ast.Pow):
            return self._constant(node, _folded(self.source, node))
        left, right = self._value(node.left), self._value(node.right)
        a = self._converted(left, str(self.source.type_of(node.left)), str(kind))
        b = self._converted(right, str(self.source.type_of(node.right)), str(kind))
        if kind == FLOAT:
            floats: dict[type, Any] = {
                ast.Add: builder.fadd, ast.Sub: builder.fsub, ast.Mult: builder.fmul, ast.Div: builder.fdiv,
            }  # fmt: skip
            if type(op) not in floats:
                raise self.source.error(node, "doubles are not combined so")
            return floats[type(op)](a, b)
        if isinstance(a, ir.Constant) and isinstance(b, ir.Constant) and kind == INT:
            return WORD(_wrapped(_fold(op, int(a.constant), int(b.constant))))
        words: dict[type, Any] = {
            ast.Add: builder.add, ast.Sub: builder.sub, ast.Mult: builder.mul, ast.BitAnd: builder.and_,
            ast.BitOr: builder.or_, ast.BitXor: builder.xor, ast.LShift: builder.shl, ast.RShift: builder.ashr,
        }  # fmt: skip
        if type(op) in words:
            return words[type(op)](a, b)
        rest = builder.srem(a, b)
        uneven = builder.and_(
            builder.icmp_signed("!=", rest, WORD(0)), builder.icmp_signed("<", builder.xor(rest, b), WORD(0))
        )
        if isinstance(op, ast.FloorDiv):
            whole = builder.sdiv(a, b)
            return builder.select(uneven, builder.sub(whole, WORD(1)), whole)
        if isinstance(op, ast.Mod):
            return builder.select(uneven, builder.add(rest, b), rest)
        raise self.source.error(node, "kernels do not know this operator")

    def _member(self, left: ast.expr, members: ast.expr, *, negated: bool) -> ir.Value:
        value = self._word(left)
        if isinstance(members, ast.Tuple):
            others = [self._word(each) for each in members.elts]
        else:
            others = [WORD(int(each)) for each in self.source.constant(members)]
        found: ir.Value = BIT(0)
        for other in others:
            found = self.builder.or_(found, self.builder.icmp_signed("==", value, other))
        return self.builder.not_(found) if negated else found

    def _choice(self, node: ast.IfExp) -> Any:
        kind = self.source.type_of(node)
        then, other, after = self._new("then"), self._new("else"), self._new("chosen")
        self._branch(node.test, then, other)
        ends: list[tuple[list[ir.Value], ir.Block]] = []
        kinds = kind if isinstance(kind, tuple) else (kind,)
        for block, branch in ((then, node.body), (other, node.orelse)):
            self.builder.position_at_end(block)
            made, made_kind = self._value(branch), self.source.type_of(branch)
            parts = made if isinstance(kind, tuple) else [made]
            part_kinds = made_kind if isinstance(made_kind, tuple) else (made_kind,)
            converted = [self._converted(*each) for each in zip(parts, part_kinds, kinds, strict=True)]
            ends.append((converted, self.builder.block))
            self.builder.branch(after)
        self.builder.position_at_end(after)
        chosen = []
        for number, each in enumerate(kinds):
            phi = self.builder.phi(_native(each))
            for values, block in ends:
                phi.add_incoming(values[number], block)
            chosen.append(phi)
        return chosen if isinstance(kind, tuple) else chosen[0]

    def _element(self, array: Any, index: ast.expr) -> ir.Value:
        values = np.asarray(array)
        small = values.dtype == np.uint8
        element = ir.IntType(8) if small else WORD
        kind = ir.ArrayType(element, len(values))
        module = self.function.module
        name = f"array.{id(array)}"
        table = module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(module, kind, name)
            table.linkage, table.global_constant = "internal", True
            table.initializer = ir.Constant(kind, [int(each) for each in values])
        found = self.builder.load(self.builder.gep(table, [WORD(0), self._word(index)], inbounds=True))
        return self.builder.zext(found, WORD) if small else found

    # ------------------------------------------------------------ calls

    def _called(self, node: ast.Call) -> Any:
        called = self.source.constant(node.func)
        if node.keywords:
            raise self.source.error(node, "arguments have no names")
        if called in LOWERED:
            kinds, _, build = LOWERED[called]
            made = build(self.builder, *self._arguments(node, kinds))
            return WORD(0) if made is None else made
        if called in _BUILTIN:
            return _BUILTIN[called](self, node)
        source = called.source
        made = self.builder.call(self._call(called), self._arguments(node, source.arguments))
        result = self.source.type_of(node)
        if isinstance(result, tuple):
            parts = [self.builder.extract_value(made, number) for number in range(len(result))]
            return [
                self.builder.icmp_signed("!=", part, WORD(0)) if kind == BOOL else part
                for part, kind in zip(parts, result, strict=True)
            ]
        return self.builder.icmp_signed("!=", made, WORD(0)) if result == BOOL else made

    def _arguments(self, node: ast.Call, kinds: Sequence[str]) -> list[ir.Value]:
        if len(node.args) != len(kinds):
            raise self.source.error(node, f"there are {len(node.args)} arguments, not {len(kinds)}")
        return [
            self._converted(self._value(each), str(self.source.type_of(each)), INT if kind == BOOL else kind)
            for each, kind in zip(node.args, kinds, strict=True)
        ]

    def _double(self, node: ast.expr) -> ir.Value:
        return self._converted(self._value(node), str(self.source.type_of(node)), FLOAT)

    def _extreme(self, node: ast.Call, sign: str) -> ir.Value:
        kind = self.source.type_of(node)
        values = [self._converted(self._value(each), str(self.source.type_of(each)), str(kind)) for each in node.args]
        best = values[0]
        for value in values[1:]:
            compare = self.builder.fcmp_ordered if kind == FLOAT else self.builder.icmp_signed
            best = self.builder.select(compare(sign, value, best), value, best)
        return best

    def _absolute(self, node: ast.Call) -> ir.Value:
        if self.source.type_of(node) == FLOAT:
            return self._math("llvm.fabs", node)
        value = self._word(node.args[0])
        return self.builder.select(self.builder.icmp_signed("<", value, WORD(0)), self.builder.neg(value), value)

    def _math(self, name: str, node: ast.Call) -> ir.Value:
        arguments = [self._double(each) for each in node.args]
        kind = ir.FunctionType(DOUBLE, [DOUBLE] * len(arguments))
        return self.builder.call(self.function.module.declare_intrinsic(name, [DOUBLE], kind), arguments)

    def _finite(self, node: ast.Call) -> ir.Value:
        value = self._double(node.args[0])
        return self.builder.fcmp_ordered("==", self.builder.fsub(value, value), DOUBLE(0.0))

    def _int(self, node: ast.Call) -> ir.Value:
        if self.source.type_of(node.args[0]) == FLOAT:
            return self.builder.fptosi(self._value(node.args[0]), WORD)
        return self._word(node.args[0])


_BUILTIN: dict[Any, Callable[[Emitter, ast.Call], Any]] = {
    min: lambda emitter, node: emitter._extreme(node, "<"),
    max: lambda emitter, node: emitter._extreme(node, ">"),
    abs: lambda emitter, node: emitter._absolute(node),
    int: lambda emitter, node: emitter._int(node),
    float: lambda emitter, node: emitter._double(node.args[0]),
    math.isfinite: lambda emitter, node: emitter._finite(node),
    math.copysign: lambda emitter, node: emitter._math("llvm.copysign", node),
    np.floor: lambda emitter, node: emitter._math("llvm.floor", node),
    np.ceil: lambda emitter, node: emitter._math("llvm.ceil", node),
}


def _native(kind: Type) -> ir.Type:
    assert isinstance(kind, str)
    return _NATIVE[kind]


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _fold(op: ast.operator, a: int, b: int) -> int:
    operations: dict[type, Callable[[int, int], int]] = {
        ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
        ast.BitAnd: lambda a, b: a & b, ast.BitOr: lambda a, b: a | b, ast.BitXor: lambda a, b: a ^ b,
        ast.LShift: lambda a, b: a << b, ast.RShift: lambda a, b: a >> b,
        ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
    }  # fmt: skip
    return operations[type(op)](a, b)


def _folded(source: Source, node: ast.expr) -> Any:
    """The value of an expression of constants alone."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            return source.constant(node)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _folded(source, left) ** _folded(source, right)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_folded(source, inner)
    raise source.error(node, "a power is of constants")
