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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from cqels.kernels.compiler.type_inference import BOOL, NOTHING, WORD, Source, Type, native_result
from cqels.kernels.compiler.value_codegen import ValueEmitter, native

if TYPE_CHECKING:
    from cqels.kernels.compiler.kernel import Kernel


class Emitter(ValueEmitter):
    """Writes the code of one kernel into a module. `call` gives the function of another kernel there."""

    def __init__(self, source: Source, function: ir.Function, call: Callable[[Kernel], ir.Function]) -> None:
        source.infer()
        self._loops: list[tuple[ir.Block, ir.Block]] = []
        entry = function.append_basic_block("entry")
        self._entry = ir.IRBuilder(entry)
        slots = {
            name: self._entry.alloca(native(kind), name=name)
            for name, kind in source.locals.items()
            if isinstance(kind, str)
        }
        tuples = {
            name: [self._entry.alloca(native(part), name=f"{name}.{number}") for number, part in enumerate(kind)]
            for name, kind in source.locals.items()
            if isinstance(kind, tuple)
        }
        for name, value in zip(source.names, function.args, strict=True):
            value.name = name
            self._entry.store(value, slots[name])
        super().__init__(source, function, call, slots, tuples, ir.IRBuilder(function.append_basic_block("body")))
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
