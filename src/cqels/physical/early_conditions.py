"""Which conditions above a join can be applied before all its inputs are joined."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cqels.lang.expressions import Expression, junction
from cqels.physical.expression_compiler import is_native
from cqels.plan.scope import reads

MOST_CONDITIONS = 16
"""Sets of variables whose conditions a join applies; others wait for the SELECT behind it."""


def early_conditions(
    conditions: Sequence[Expression], inputs: Sequence[Collection[str]]
) -> dict[frozenset[str], Expression]:
    """The conditions over several, but not all, inputs of a join, by the variables that they read.

    Only such as kernels compute by themselves, and whose variables the inputs can bind: in the middle of a probe nobody
    can be asked.
    """
    found: dict[frozenset[str], list[Expression]] = {}
    names = frozenset(name for each in inputs for name in each)
    for condition in conditions:
        read = reads(condition)
        if not read or not read <= names or not is_native(condition) or not _early(read, inputs):
            continue
        if read in found or len(found) < MOST_CONDITIONS:
            found.setdefault(read, []).append(condition)
    return {read: junction("AND", conditions) for read, conditions in found.items()}


def _early(read: frozenset[str], inputs: Sequence[Collection[str]]) -> bool:
    """Some inputs, but not one alone, have all that is read, and one more input has to be joined with them."""
    if any(read <= frozenset(each) for each in inputs):
        return False
    others = (frozenset(name for other in inputs if other is not each for name in other) for each in inputs)
    return any(read <= names for names in others)
