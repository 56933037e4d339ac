"""The step of GROUP BY as the machine takes it: apart from it, since its many kernels are compiled when imported."""

from __future__ import annotations

from cqels.kernels.group import step_group
from cqels.kernels.sorting import DONE as GROUP_DONE
from cqels.kernels.sorting import FULL as GROUP_FULL

DONE, NEED_CALL, FULL = 0, 1, 2


def group(base, operator, now):
    """DONE, FULL, or NEED_CALL where Python has to do something first (`folds.serve`)."""
    status = step_group(base, operator)
    if status == GROUP_DONE:
        return DONE
    return FULL if status == GROUP_FULL else NEED_CALL
