"""Bytes of texts at raw addresses: reading, scanning, comparing, copying and hashing them, not what they mean.

Addresses are integers; nothing checks that they lie in memory that is alive. A kernel reads no byte at or past the end
that it is given.
"""

from __future__ import annotations

import ctypes

from llvmlite import ir

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.compiler.type_inference import WORD, lowered

LANES = 16
"""Bytes that a scan looks at together."""

MANY = 64
"""Bytes that a scan for what is everywhere looks at together."""

_BYTE = ir.IntType(8)


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


def many_lanes(address, wanted):
    """Which of the 64 bytes at an address are the wanted one: bit k for byte k."""
    found = sum(1 << k for k, value in enumerate(ctypes.string_at(address, MANY)) if value == wanted)
    return found - (found >> 63 << 64)


def lanes_between(address, least, most):
    """Which of the sixteen bytes at an address are from `least` to `most`: bit k for byte k."""
    return sum(1 << k for k, value in enumerate(ctypes.string_at(address, LANES)) if least <= value <= most)


def low_zeros(value):
    """How many zero bits a word ends with."""
    return (value & -value).bit_length() - 1 if value else 64


def bit_length(value):
    """How many bits a number that is not negative has."""
    return value.bit_length()


@lowered(byte)
def _byte(builder, address):
    return builder.zext(builder.load(builder.inttoptr(address, _BYTE.as_pointer())), WORD)


@lowered(word)
def _word(builder, address):
    return builder.load(builder.inttoptr(address, WORD.as_pointer()), align=1)


@lowered(put_byte)
def _put_byte(builder, address, value) -> None:
    builder.store(builder.trunc(value, _BYTE), builder.inttoptr(address, _BYTE.as_pointer()))


@lowered(put_word)
def _put_word(builder, address, value) -> None:
    builder.store(value, builder.inttoptr(address, WORD.as_pointer()), align=1)


@lowered(lanes)
def _lanes(builder, address, wanted):
    return _hits(builder, "==", _bytes(builder, address, LANES), _every(builder, wanted, LANES))


@lowered(many_lanes)
def _many_lanes(builder, address, wanted):
    return _hits(builder, "==", _bytes(builder, address, MANY), _every(builder, wanted, MANY))


@lowered(lanes_between)
def _lanes_between(builder, address, least, most):
    first = _every(builder, least, LANES)
    above = builder.sub(_bytes(builder, address, LANES), first)
    return _hits(builder, "<=", above, builder.sub(_every(builder, most, LANES), first))


def _bytes(builder, address, count):
    return builder.load(builder.inttoptr(address, ir.VectorType(_BYTE, count).as_pointer()), align=1)


def _every(builder, value, count):
    """A byte in all lanes."""
    nothing = ir.Constant(ir.VectorType(_BYTE, count), ir.Undefined)
    single = builder.insert_element(nothing, builder.trunc(value, _BYTE), ir.IntType(32)(0))
    return builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count))


def _hits(builder, sign, one, other):
    hits = builder.icmp_unsigned(sign, one, other)
    mask = builder.bitcast(hits, ir.IntType(one.type.count))
    return builder.zext(mask, WORD) if one.type.count < 64 else mask


@lowered(low_zeros)
def _low_zeros(builder, value):
    return builder.cttz(value, ir.IntType(1)(0))


@lowered(bit_length)
def _bit_length(builder, value):
    return builder.sub(WORD(64), builder.ctlz(value, ir.IntType(1)(0)))


def word_of(text: bytes) -> int:
    """The word that `word` reads where a text of at most eight bytes is, zeros behind it."""
    return int.from_bytes(text.ljust(8, b"\0"), "little", signed=True)


@kernel
def copy_loosely(source, target, length):
    """Copy bytes, and up to seven that follow them, which may be read and overwritten."""
    position = 0
    while position < length:
        put_word(target + position, word(source + position))
        position += 8


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
    """Copy bytes; the two ranges do not overlap."""
    position = 0
    while position + 8 <= length:
        put_word(target + position, word(source + position))
        position += 8
    while position < length:
        put_byte(target + position, byte(source + position))
        position += 1
