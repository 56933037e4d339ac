"""Kernels mean what Python means by the same text: integers that wrap around, doubles, loops, several results."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.compiler.type_inference import KernelError

SQUARES = np.array([number * number for number in range(10)])
FLAGS = np.array([0, 1, 255], np.uint8)
LIMIT, WANTED = 7, (2, 3, 5)

words = st.integers(-(2**63), 2**63 - 1)
small = st.integers(-50, 50)


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


@kernel
def arithmetic(a, b, c):
    return (a + b * 3 - c) ^ (a & b | ~c)


@kernel
def rounded_down(a, b):
    return a // b, a % b


@kernel
def shifted(a, by):
    return a << by, a >> by


@kernel
def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n //= 2
            continue
        n = 3 * n + 1
        steps += 1
        if steps > 1000:
            break
    return steps


@kernel
def summed(start, end):
    total = 0
    for number in range(start, end):
        for other in range(number, 0, -2):
            if other == LIMIT:
                break
            total += other
    for more in (1, LIMIT, start):
        total += more
    return total


@kernel
def judged(a, b, c):
    inside = 0 <= a < b <= c or a in WANTED
    outside = a not in (b, c) and not inside
    return inside, outside, 1 if inside else 2.5 if outside else -1


@kernel
def doubles(a: float, b: float, n):
    larger = max(a, b)
    if not math.isfinite(larger):
        return 0.0, n
    return math.copysign(np.floor(abs(a)) + np.ceil(b) / 2.0, b) + float(n), int(larger)


@kernel
def looked_up(place):
    return SQUARES[place % 10] + FLAGS[place % 3]


@kernel
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@kernel
def _pair(a, b):
    return (a, b) if a < b else (b, a)


@kernel
def ordered(a, b, c):
    low, high = _pair(a, b)
    low, other = _pair(low, c)
    middle, high = _pair(other, high)
    return low, middle, high


@kernel
def _none(a):
    if a > 0:
        return
    a += 1


@kernel
def called(a):
    _none(a)
    return a == 3


@given(words, words, words)
def test_integers_wrap(a: int, b: int, c: int) -> None:
    assert arithmetic(a, b, c) == _wrapped(_wrapped(a + b * 3 - c) ^ (a & b | ~c))


@given(small, small.filter(bool), st.integers(0, 40))
def test_integers(a: int, b: int, by: int) -> None:
    assert rounded_down(a, b) == (a // b, a % b)
    assert shifted(a, by) == (a << by, a >> by)
    assert looked_up(abs(a)) == SQUARES[abs(a) % 10] + int(FLAGS[abs(a) % 3])


@given(st.integers(1, 500), small, small)
def test_loops(n: int, start: int, end: int) -> None:
    assert collatz(n) == collatz.function(n)
    assert summed(start, end) == summed.function(start, end)
    assert fibonacci(n % 20) == fibonacci.function(n % 20)


@given(small, small, small)
def test_conditions_and_several_results(a: int, b: int, c: int) -> None:
    assert judged(a, b, c) == judged.function(a, b, c)
    assert ordered(a, b, c) == tuple(sorted([a, b, c]))
    assert called(a) is (a == 3)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6) | st.just(math.inf), small)
def test_doubles(a: float, b: float, n: int) -> None:
    assert doubles(a, b, n) == doubles.function(a, b, n)


def test_numbers_of_numpy_are_taken() -> None:
    assert arithmetic(np.int64(1), np.int64(2), np.int64(3)) == arithmetic(1, 2, 3)


def test_what_kernels_do_not_know_is_refused() -> None:
    from . import kernels_refused

    with pytest.raises(KernelError, match=r"kernels_refused\.listed, line 10: this is not a kernel: len"):
        kernels_refused.listed(1)
