"""The texts of kernels: their syntax trees, what their free names mean, and the types of all that is in them.

Which part of Python kernels may use, and what becomes of it, is said in `codegen`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

if TYPE_CHECKING:
    from cqels.kernels.compiler.kernel import Kernel

INT, BOOL, FLOAT, NOTHING = "int", "bool", "float", "nothing"
Type = str | tuple[str, ...]

WORD, DOUBLE = ir.IntType(64), ir.DoubleType()

LOWERED: dict[Any, tuple[tuple[str, ...], str, Callable[..., Any]]] = {}
"""Functions that are written as machine code: types of their arguments, of their result, and what writes it."""


def lowered(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say what machine code a function stands for: `@lowered(f) def _(builder, …)`, with the arguments of `f`."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        arguments, result = signature_of(build, skip=1)
        LOWERED[function] = arguments, result, build
        return build

    return register


def signature_of(function: Callable[..., Any], skip: int = 0) -> tuple[tuple[str, ...], str]:
    """The types of a function's parameters and result by its annotations; words where there is none."""
    notes = function.__annotations__
    names = function.__code__.co_varnames[skip : function.__code__.co_argcount]
    return tuple(_noted(notes.get(name)) for name in names), _noted(notes.get("return"))


def _noted(note: Any) -> str:
    return {None: INT, "float": FLOAT, float: FLOAT, "bool": BOOL, bool: BOOL, "None": NOTHING}.get(note, INT)


class KernelError(SyntaxError):
    """A kernel says something that the part of Python for kernels does not have."""


def native_result(result: Type) -> ir.Type:
    """What a compiled kernel gives back: truth values and nothing are words, several values a structure."""
    if isinstance(result, tuple):
        return ir.LiteralStructType([DOUBLE if each == FLOAT else WORD for each in result])
    return DOUBLE if result == FLOAT else WORD


def joined(one: Type | None, other: Type) -> Type:
    if one is None or one == other:
        return other
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(str(joined(a, b)) for a, b in zip(one, other, strict=True))
    if isinstance(one, str) and isinstance(other, str) and {one, other} <= {INT, BOOL, FLOAT}:
        return FLOAT if FLOAT in (one, other) else INT
    raise TypeError(f"{one} and {other} do not go together")


class Source:
    """A kernel's text: its syntax tree, what its free names mean, and the types of all that is in it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        text = textwrap.dedent(inspect.getsource(kernel.function))
        self.tree: ast.FunctionDef = next(
            node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
        )
        self.size = sum(1 for _ in ast.walk(self.tree))
        self.globals = kernel.function.__globals__
        self.arguments, _ = signature_of(kernel.function)
        self.names = kernel.function.__code__.co_varnames[: kernel.function.__code__.co_argcount]
        self.locals: dict[str, Type] = {
            name: INT if kind == BOOL else kind for name, kind in zip(self.names, self.arguments, strict=True)
        }
        self.result: Type | None = None
        self.inferred = False

    def infer(self) -> None:
        """Find the types of the local names and of the result."""
        if self.inferred:
            return
        self.inferred = True  # a call of itself meanwhile gives what is known so far, a word at first
        while True:
            before = dict(self.locals), self.result
            self._block(self.tree.body)
            if before == (self.locals, self.result):
                return

    def error(self, node: ast.AST, message: str) -> KernelError:
        line = self.kernel.function.__code__.co_firstlineno + getattr(node, "lineno", 1) - 1
        return KernelError(f"{self.kernel.symbol}, line {line}: {message}: {ast.unparse(node)[:80]}")

    # ------------------------------------------------------------ types

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._bind(target, self.type_of(value))
                case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                    self._bind(target, self.type_of(ast.BinOp(ast.Name(target.id), op, value)))
                case ast.For(target=target, iter=iterated, body=inner):
                    self._bind(target, INT)
                    self.type_of_loop(iterated)
                    self._block(inner)
                case ast.While(body=inner):
                    self._block(inner)
                case ast.If(body=inner, orelse=other):
                    self._block(inner)
                    self._block(other)
                case ast.Return(value=value):
                    self.result = joined(self.result, NOTHING if value is None else self.type_of(value))
                case _:
                    pass
        if body is self.tree.body and self.result is None:
            self.result = NOTHING

    def type_of_loop(self, iterated: ast.expr) -> None:
        match iterated:
            case ast.Call(func=ast.Name(id="range")) | ast.Tuple():
                return
        raise self.error(iterated, "a loop is over range(…) or a tuple")

    def _bind(self, target: ast.expr, kind: Type) -> None:
        match target:
            case ast.Name(id=name):
                if kind == NOTHING:
                    raise self.error(target, "what gives nothing has no name")
                self.locals[name] = joined(self.locals.get(name), kind)
            case ast.Tuple(elts=targets):
                if not isinstance(kind, tuple) or len(kind) != len(targets):
                    raise self.error(target, f"{kind} is not {len(targets)} values")
                for each, part in zip(targets, kind, strict=True):
                    self._bind(each, part)
            case _:
                raise self.error(target, "only names are assigned to")

    def type_of(self, node: ast.expr) -> Type:
        match node:
            case ast.Constant(value=bool()) | ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return BOOL
            case ast.Constant(value=int()):
                return INT
            case ast.Constant(value=float()):
                return FLOAT
            case ast.Name(id=name) if name in self.locals:
                return self.locals[name]
            case ast.Name() | ast.Attribute():
                return constant_type(self.constant(node))
            case ast.UnaryOp(operand=inner):
                kind = self.type_of(inner)
                return INT if kind == BOOL else kind
            case ast.BinOp(left=left, op=op, right=right):
                both = self.type_of(left), self.type_of(right)
                if both == (BOOL, BOOL) and isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
                    return BOOL
                return FLOAT if FLOAT in both or isinstance(op, ast.Div) else INT
            case ast.IfExp(body=one, orelse=other):
                return joined(self.type_of(one), self.type_of(other))
            case ast.Tuple(elts=parts):
                return tuple(str(self.type_of(part)) for part in parts)
            case ast.Subscript():
                return INT
            case ast.Call():
                return self._type_of_call(node)
        raise self.error(node, "kernels do not know this")

    def _type_of_call(self, node: ast.Call) -> Type:
        called = self.constant(node.func)
        if called in LOWERED:
            return LOWERED[called][1]
        if called in (min, max, abs):
            kinds = [self.type_of(each) for each in node.args]
            return FLOAT if FLOAT in kinds else INT
        if called is int:
            return INT
        if called in (float, math.copysign, np.floor, np.ceil):
            return FLOAT
        if called is math.isfinite:
            return BOOL
        source = getattr(called, "source", None)
        if source is None:
            raise self.error(node, "this is not a kernel")
        source.infer()
        return INT if source.result is None else source.result

    def constant(self, node: ast.expr) -> Any:
        """What a free name, or an attribute of one, stands for."""
        match node:
            case ast.Name(id=name):
                if name in self.globals:
                    return self.globals[name]
                if hasattr(builtins, name):
                    return getattr(builtins, name)
            case ast.Attribute(value=inner, attr=name):
                owner = self.constant(inner)
                if isinstance(owner, ModuleType | type):
                    return getattr(owner, name)
        raise self.error(node, "this name is not known")


def constant_type(value: Any) -> Type:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int | np.integer):
        return INT
    if isinstance(value, float):
        return FLOAT
    if isinstance(value, tuple):
        return tuple(str(constant_type(each)) for each in value)
    raise TypeError(f"{value!r} is no constant of a kernel")
