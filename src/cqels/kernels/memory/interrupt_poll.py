"""Kernels that work long ask now and then whether to go on: Python looks at signals and budgets meanwhile.

What says no is in the middle of a step, which cannot be gone on with.  So it says that the arena is full, and whoever
called the scheduler knows better.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import ROOTS, call, load

ASK = ROOTS + 8
"""The word of the arena that has the address of a function to ask while the scheduler runs, and else 0."""
ROWS = (1 << 16) - 1
"""After so many rows of a queue, and one, it is asked."""


@kernel
def is_abandoned(base):
    """Ask whether to go on: True if not."""
    ask = load(base, ASK)
    return ask != 0 and call(ask, base, 0, 0) != 0
