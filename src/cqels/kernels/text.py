"""Bytes of texts at raw addresses: reading, scanning, comparing, copying and hashing them, not what they mean.

Addresses are integers; nothing checks that they lie in memory that is alive. A kernel reads no byte at or past the end
that it is given.
"""

from __future__ import annotations

import ctypes

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from cqels.kernels.jit import kernel

LANES = 16
"""Bytes that a scan looks at together."""

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_BYTE, LANES)


@intrinsic
def _byte(typingctx, address):
    def code(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], _BYTE.as_pointer())
        return builder.zext(builder.load(pointer), _WORD)

    return types.int64(types.int64), code


@intrinsic
def _word(typingctx, address):
    def code(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], _WORD.as_pointer())
        return builder.load(pointer, align=1)

    return types.int64(types.int64), code


@intrinsic
def _put_byte(typingctx, address, value):
    def code(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], _BYTE.as_pointer())
        builder.store(builder.trunc(args[1], _BYTE), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def _put_word(typingctx, address, value):
    def code(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], _WORD.as_pointer())
        builder.store(args[1], pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def _lanes(typingctx, address, wanted):
    def code(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], _VECTOR.as_pointer())
        single = builder.insert_element(
            ir.Constant(_VECTOR, ir.Undefined), builder.trunc(args[1], _BYTE), ir.IntType(32)(0)
        )
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        every = builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), zeros)
        hits = builder.icmp_unsigned("==", builder.load(pointer, align=1), every)
        return builder.zext(builder.bitcast(hits, ir.IntType(LANES)), _WORD)

    return types.int64(types.int64, types.int64), code


@intrinsic
def _low_zeros(typingctx, value):
    def code(context, builder, signature, args):
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.int64), code


@intrinsic
def _high_zeros(typingctx, value):
    def code(context, builder, signature, args):
        return builder.ctlz(args[0], ir.IntType(1)(0))

    return types.int64(types.int64), code


def byte(address):
    """The byte at an address."""
    return ctypes.c_uint8.from_address(address).value


def word(address):
    """The eight bytes at an address, as one word; it need not be aligned."""
    return int.from_bytes(ctypes.string_at(address, 8), "little", signed=True)


def put_byte(address, value):
    """Write a byte."""
    ctypes.c_uint8.from_address(address).value = value


def put_word(address, value):
    """Write eight bytes."""
    ctypes.memmove(address, value.to_bytes(8, "little", signed=True), 8)


def lanes(address, wanted):
    """Which of the sixteen bytes at an address are the wanted one: bit k for byte k."""
    return sum(1 << k for k, value in enumerate(ctypes.string_at(address, LANES)) if value == wanted)


def low_zeros(value):
    """How many zero bits a word ends with."""
    return (value & -value).bit_length() - 1 if value else 64


def bit_length(value):
    """How many bits a number that is not negative has."""
    return value.bit_length()


@overload(byte)
def _byte_compiled(address):
    return lambda address: _byte(address)


@overload(word)
def _word_compiled(address):
    return lambda address: _word(address)


@overload(put_byte)
def _put_byte_compiled(address, value):
    return lambda address, value: _put_byte(address, value)


@overload(put_word)
def _put_word_compiled(address, value):
    return lambda address, value: _put_word(address, value)


@overload(lanes)
def _lanes_compiled(address, wanted):
    return lambda address, wanted: _lanes(address, wanted)


@overload(low_zeros)
def _low_zeros_compiled(value):
    return lambda value: _low_zeros(value)


@overload(bit_length)
def _bit_length_compiled(value):
    return lambda value: 64 - _high_zeros(value)


def word_of(text: bytes) -> int:
    """The word that `word` reads where a text of at most eight bytes is, zeros behind it."""
    return int.from_bytes(text.ljust(8, b"\0"), "little", signed=True)


@kernel
def find_byte(address, position, limit, end, wanted):
    """Where the first wanted byte is, counted from the address, or `limit`. Bytes before `end` may be looked at."""
    while position < limit and position + LANES <= end:
        hits = lanes(address + position, wanted)
        if hits != 0:
            return min(position + low_zeros(hits), limit)
        position += LANES
    while position < limit and byte(address + position) != wanted:
        position += 1
    return min(position, limit)


@kernel
def find_either(address, position, limit, end, one, other):
    """As `find_byte`, for either of two bytes."""
    while position < limit and position + LANES <= end:
        hits = lanes(address + position, one) | lanes(address + position, other)
        if hits != 0:
            return min(position + low_zeros(hits), limit)
        position += LANES
    while position < limit and byte(address + position) != one and byte(address + position) != other:
        position += 1
    return min(position, limit)


@kernel
def short_word(address, length):
    """The first bytes of a text as one word, zeros behind them if it has fewer than eight."""
    if length >= 8:
        return word(address)
    value = 0
    for position in range(length):
        value |= byte(address + position) << 8 * position
    return value


@kernel
def hash_text(address, length):
    """A hash of a text, all of whose bits depend on all bytes."""
    value = length * -7046029254386353131
    if length < 8:
        value = _mixed(value, short_word(address, length))
    else:
        position = 0
        while position + 8 < length:
            value = _mixed(value, word(address + position))
            position += 8
        value = _mixed(value, word(address + length - 8))
    return (value ^ value >> 32) * -4265267296055464877


@kernel
def _mixed(value, more):
    value = (value ^ more) * -7046029254386353131
    return value ^ value >> 29


@kernel
def same_text(one, other, length):
    """Whether two texts of the same length are the same."""
    if length < 8:
        return short_word(one, length) == short_word(other, length)
    position = 0
    while position + 8 < length:
        if word(one + position) != word(other + position):
            return False
        position += 8
    return word(one + length - 8) == word(other + length - 8)


@kernel
def copy_text(source, target, length):
    """Copy bytes; the two places do not overlap."""
    position = 0
    while position + 8 <= length:
        put_word(target + position, word(source + position))
        position += 8
    while position < length:
        put_byte(target + position, byte(source + position))
        position += 1
