"""A large stack for Oxigraph, which parses and evaluates recursively: an overflow there would end the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

Result = TypeVar("Result")

SHALLOW = 24
"""Braces inside one another that any stack has room for, a thread's of half a megabyte too."""
_STACK = 512 << 20  # bytes of addresses; memory is taken as it is used
_SIZE = threading.Lock()


def is_deep(text: str) -> bool:
    """Whether the text of a query is nested too deeply for the stack of any thread."""
    return text.count("{") > SHALLOW and nesting(text) > SHALLOW


def with_large_stack(call: Callable[[], Result]) -> Result:
    """The result of a call, made in a thread of its own."""
    results: list[Result] = []
    faults: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=work, daemon=True)
    with _SIZE:  # the size is one for all threads that start
        before = threading.stack_size(_STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if faults:
        raise faults[0]
    return results[0]


def nesting(text: str) -> int:
    """How many braces stand inside one another; those in strings count too, which does no harm.

    >>> nesting("{ { a } UNION { { b } } }")
    3
    """
    return max(accumulate((1 if mark == "{" else -1 for mark in text if mark in "{}"), initial=0))
