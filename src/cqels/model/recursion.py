"""Recursion over trees whose depth a user chooses: calls are generators, and wait in a list, not on the stack."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

Result = TypeVar("Result")
Calling: TypeAlias = Generator[Any, Result, Result]
"""A recursive call that is not made yet: `result = yield call` makes it, and gives what it returns."""


def complete(call: Calling[Result]) -> Result:
    """Make a recursive call, and all that it makes.

    >>> def depth(nested: list) -> Calling[int]:
    ...     below = 0
    ...     for each in nested:
    ...         below = max(below, (yield depth(each)))
    ...     return below + 1
    >>> nested = []
    >>> for _ in range(100_000):
    ...     nested = [nested]
    >>> complete(depth(nested))
    100001
    """
    waiting: list[Generator[Any, Any, Any]] = [call]
    result: Any = None
    while waiting:
        try:
            waiting.append(waiting[-1].send(result))
            result = None
        except StopIteration as done:
            waiting.pop()
            result = done.value
    final: Result = result
    return final
