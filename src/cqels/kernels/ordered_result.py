"""Sending a whole result in its order: the slice of a listed operator (topk.py), when it differs from the last sent.

It is written behind the results there are and compared with what was sent before, row by row; if it is the same it is
taken back.  With ALWAYS_SENT it is sent whenever something changed, the same or not, but for what expiry changes and,
unless an ASK answers with it, for one without rows.
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import COLUMNS, COUNT, DONE, FULL, WIDTH, add_row, clear, row_at
from cqels.kernels.memory.arena import copy, load, store
from cqels.kernels.operators.topk import LISTED, MOVED, list_slice
from cqels.kernels.scheduler import (
    ALWAYS_SENT,
    FLAGS,
    ORDERED_AT,
    RESULTS,
    by_expiry,
    is_silent,
    stamp_result,
    write_result,
)


@kernel
def send_listing(base, pipeline, pending):
    """A result of weight 0 that says that a whole follows, then the whole: DONE or FULL."""
    operator, results = load(base, pipeline + ORDERED_AT), load(base, pipeline + RESULTS)
    always = load(base, pipeline + FLAGS) & ALWAYS_SENT
    moved = load(base, operator + MOVED)
    store(base, operator + MOVED, 0)
    if always != 0:
        moved = 0 if by_expiry(base, pipeline) or is_silent(base, pipeline) else pending
    if moved == 0:
        return DONE
    first = load(base, results + COUNT) + 1
    if not write_result(base, pipeline, 0, 0) or not list_slice(base, operator, results):
        return FULL
    if always == 0:
        last = load(base, operator + LISTED)
        if _is_same(base, results, first, last):
            store(base, results + COUNT, first - 1)
            return DONE
        if not _remember(base, results, first, last):
            return FULL
    for number in range(first, load(base, results + COUNT)):
        stamp_result(base, pipeline, row_at(base, results, number))
    return DONE


@kernel
def _is_same(base, results, first, last):
    count = load(base, last + COUNT)
    if load(base, results + COUNT) - first != count:
        return False
    width = load(base, results + WIDTH)
    for number in range(count):
        one, other = row_at(base, results, first + number), row_at(base, last, number)
        for word in range(COLUMNS, width):
            if load(base, one + word) != load(base, other + word):
                return False
    return True


@kernel
def _remember(base, results, first, last):
    clear(base, last)
    for number in range(first, load(base, results + COUNT)):
        row = add_row(base, last)
        if row == 0:
            return False
        copy(base, row_at(base, results, number), row, load(base, results + WIDTH))
    return True
