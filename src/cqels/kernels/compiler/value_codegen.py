"""From expressions of kernels to LLVM's intermediate code: conditions, values and calls (statements: codegen.py)."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from cqels.kernels.compiler.type_inference import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT,
    LOWERED,
    WORD,
    Source,
    Type,
    constant_type,
    joined,
)

if TYPE_CHECKING:
    from cqels.kernels.compiler.kernel import Kernel

BIT = ir.IntType(1)
_NATIVE = {INT: WORD, BOOL: BIT, FLOAT: DOUBLE}
_MOST, _LEAST = 2**63 - 1, -(2**63)


class ValueEmitter:
    """Writes the code of a kernel's expressions. `slots` and `tuples` are where its local names are in memory."""

    def __init__(
        self,
        source: Source,
        function: ir.Function,
        call: Callable[[Kernel], ir.Function],
        slots: Mapping[str, ir.Value],
        tuples: Mapping[str, Sequence[ir.Value]],
        builder: ir.IRBuilder,
    ) -> None:
        self.source = source
        self.function = function
        self.builder = builder
        self._call = call
        self._slots = slots
        self._tuples = tuples

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
        return native(kind)(float(value) if kind == FLOAT else int(value))

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
            phi = self.builder.phi(native(each))
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


_BUILTIN: dict[Any, Callable[[ValueEmitter, ast.Call], Any]] = {
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


def native(kind: Type) -> ir.Type:
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
