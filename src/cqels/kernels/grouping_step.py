"""The step of GROUP BY as the machine takes it; apart from it because its kernels are many and compiled when imported."""

from __future__ import annotations

from cqels.kernels.group import step_group
from cqels.kernels.sorting import DONE as GROUP_DONE
from cqels.kernels.sorting import FULL as GROUP_FULL

DONE, NEED_CALL, FULL = 0, 1, 2


def group(base, operator, now):
    """DONE, FULL, or NEED_CALL where Python has to finish the step (`folds.run_group`)."""
    status = step_group(base, operator)
    if status == GROUP_DONE:
        return DONE
    return FULL if status == GROUP_FULL else NEED_CALL
