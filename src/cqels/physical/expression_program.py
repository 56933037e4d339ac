"""The program of an expression: the words that its code is made of, and how it gets into the arena and out again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cqels.kernels.expressions.call_cache import FIRST_ARGUMENT
from cqels.kernels.expressions.interpreter import (
    CODE,
    CONSTANTS,
    FREE_REGISTER,
    LENGTH,
    MEMO,
    NOW_REGISTER,
    REGISTERS,
    REQUEST,
)
from cqels.kernels.expressions.registers import REGISTER_WORDS, SCALE, TAG, WORD, read
from cqels.kernels.memory.arena import Arena, give
from cqels.model.ids import Tag
from cqels.model.terms import Term
from cqels.physical.python_functions import Calls


class Temporary:
    """A register for a value on its way; its number is known when that of all constants is."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Label:
    """A position in the code, known when the code up to it is written."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = 0


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a CALL: an operand; `plain` if its word is passed as it is."""

    operand: int | Temporary
    plain: bool


Word: TypeAlias = int | Temporary | Label | Argument


def resolved(word: Word, first: int) -> int:
    """A word of code as the interpreter reads it; temporaries are the registers from the `first` one on."""
    if isinstance(word, Argument):
        return resolved(word.operand, first) << 1 | word.plain
    if isinstance(word, Label):
        return word.at
    return first + word.number if isinstance(word, Temporary) else word


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is not in an arena yet: what its registers begin with, how large it is, its code."""

    constants: tuple[Term, ...]
    temporaries: int
    arguments: int
    code: tuple[int, ...]


def install(program: Program, calls: Calls) -> int:
    """Write a program into the arena: its offset. The dictionary holds its constants until `release`."""
    arena = calls.arena
    registers = FREE_REGISTER + len(program.constants) + program.temporaries
    request = REGISTERS + registers * REGISTER_WORDS
    start = request + FIRST_ARGUMENT + program.arguments
    length = start + len(program.code)
    offset = arena.take(length)
    words = arena.words
    words[offset + MEMO], words[offset + REQUEST] = calls.memo, request
    words[offset + CODE], words[offset + LENGTH] = start, length
    words[offset + start : offset + length] = program.code
    now = offset + REGISTERS + NOW_REGISTER * REGISTER_WORDS
    words[now + TAG], words[now + SCALE] = Tag.DATE_TIME, 9
    words[offset + CONSTANTS] = len(program.constants)
    for register, term in zip(_constants(arena, offset), program.constants, strict=True):
        word = calls.word_of(term)
        calls.dictionary.pin([word])
        read(arena.base, register, calls.dictionary.offset, word)
    return offset


def release(calls: Calls, offset: int) -> None:
    """Hand the memory of a program back, and let its constants go."""
    arena = calls.arena
    calls.dictionary.unpin(int(arena.words[register + WORD]) for register in _constants(arena, offset))
    give(arena.base, offset, int(arena.words[offset + LENGTH]))


def _constants(arena: Arena, offset: int) -> range:
    """The offsets of the registers of a program's constants."""
    first = offset + REGISTERS + FREE_REGISTER * REGISTER_WORDS
    return range(first, first + int(arena.words[offset + CONSTANTS]) * REGISTER_WORDS, REGISTER_WORDS)
