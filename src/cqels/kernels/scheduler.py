"""The scheduler: runs the program of a query for one tick after the other, over a block of elements at a time.

A query is a *pipeline*: windows that elements arrive at, operators in an order in which each comes after those it
reads from, and what becomes of the result.  One call of `run` works off many elements; it comes back early only where
an operator needs an answer from Python, and goes on at the same point.

    word   of a pipeline
    0      operators, 1 offset of triples (kind, offset, of a MATCH how many operators from it on have nothing to do
           while the queue that it reads is empty)
    2      windows, 3 offset of triples (stream, window, number of its slide or -1)
    4      slides, 5 offset of pairs (slide, last boundary closed)
    6      queues, 7 offset of them: emptied after each tick
    8      queue of the solutions' changes
    9      queue of the results: weight, the tick's time and number, 1 if due to expiry, columns
    10     how results are made: CHANGES of each tick, WHOLE, all solutions in order (ordered_result.py), or
           LOGGED, changes as they are, for the pipelines that it feeds (shared_input.py)
    11     for WHOLE, the listed operator that has the solutions in order (topk.py)
    12     ticks so far
    13     operator to go on with, -1 between ticks
    14     flags: CLOSING, evaluated only when a window closes; ALWAYS_SENT, the whole is sent when a window changed;
           EXPIRY_APART, what expiry changes is apart from what an arrival does: first all that is due leaves, then the
           element comes, in one tick; a heartbeat only lets things leave; EVERY_ELEMENT, each element is a tick, for
           windows of other pipelines read it
    15     table to add the changes of one tick up in
    16     time of the tick
    17     something has changed, so that the whole is to be sent
    18     the element of the block to be worked off next
    19     time of the last event, NEVER before the first
    20     the last boundary that was closed since then, or NEVER
    21     some window holds something
    22     phase of the tick, with EXPIRY_APART: ALL (not in two), LEAVING before an element comes, COMING, BEATING
    23     offset of the hints for each window (window_prefetch.py), 0 for none
    24     the operator that sends all its rows again for one that orders (topk.py), a join or a group, or 0
    25     outlook (join_prefetch.py), or 0 as long as all windows are near
    26     periods by which boundaries are counted (gap_skipping.py), 0 if they are not; 27 their offset

    word   of a block of elements
    0      elements
    1      offset of the elements: time, number, stream (-1 for a heartbeat, -2 for a change of the dataset, -3 where
           only boundaries before that time close), first triple, triples
    2      offset of the triples
    3      start of the boundaries

    word   of a part that Python computes anew (RECOMPUTE)
    0      1 while it waits for Python
    1      1 if it depends on the tick's time
    2      1 if the dataset has changed
    3      the time from which on it may be other than it is, though nothing comes
    4      windows it reads; 5 … for each its offset, and how many entries had left and entered it
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module

import numpy as np

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import (
    AGAIN,
    ALWAYS,
    COLUMNS,
    COUNT,
    DONE,
    FULL,
    NEED_CALL,
    NEVER,
    NUMBER,
    OLDEST,
    PAUSED,
    TIME,
    WEIGHT,
    WIDTH,
    add_row,
    clear,
    row_at,
    said,
)
from cqels.kernels.containers.hash_table import find, put, remove
from cqels.kernels.containers.row_buffer import TOGETHER
from cqels.kernels.memory.arena import call, load, store, take
from cqels.kernels.memory.interrupt_poll import ASK
from cqels.kernels.operators.gap_skipping import (
    boundary_from,
    boundary_number,
    pass_boundary,
    passed_between,
    window_due,
)
from cqels.kernels.operators.join_prefetch import KEYS_AHEAD, OUTLOOK_WORDS, ROWS_AHEAD, bring, go_on
from cqels.kernels.operators.payload_time_window import advance_payload, arrive_payload, find_times
from cqels.kernels.operators.per_query_expiry import expiry_due
from cqels.kernels.operators.shared_input import log_rows, next_logged
from cqels.kernels.operators.star_window import advance_star, arrive_star, passed
from cqels.kernels.operators.topk import has_slice
from cqels.kernels.operators.window import ENTERED, LEFT, OWN_TIME, STAR, TOLD, advance, arrive
from cqels.kernels.operators.window import FLAGS as WINDOW_FLAGS
from cqels.kernels.operators.window import KIND as WINDOW_KIND
from cqels.kernels.operators.window_prefetch import KEYS, ROWS, expect_leaving, expect_triple, is_far

MATCH, JOIN, NEGATION, DISTINCT, UNION, SELECT, GROUP, RECOMPUTE, CLOSURE, ORDERED = range(10)
NARROW, THRESHOLDS, FEED, LISTING, TELL_JOINED, TELL_GROUPS = range(10, 16)
OPERATORS, OPERATORS_AT, WINDOWS, WINDOWS_AT, SLIDES, SLIDES_AT, QUEUES, QUEUES_AT = range(8)
SOLUTIONS, RESULTS, EMIT, ORDERED_AT, TICKS, AT, FLAGS, SUM = range(8, 16)
NOW, PENDING, NEXT, LAST, BOUNDARY, FILLED, PHASE, HINTS_AT, SOURCE, OUTLOOK = range(16, 26)
PERIODS, PERIODS_AT = 26, 27
PIPELINE_WORDS = 28
CHANGES, WHOLE, LOGGED = 0, 1, 2
CLOSING, ALWAYS_SENT, EXPIRY_APART, EVERY_ELEMENT = 1, 2, 4, 8
ALL, LEAVING, COMING, BEATING = range(4)
ELEMENTS, ELEMENTS_AT, TRIPLES_AT, START = range(4)
BLOCK_WORDS = 4
HEARTBEAT, UPDATE, ADVANCE = -1, -2, -3
ELEMENT_WORDS = 5
OPERATOR_WORDS = 3
WAITING, TIMELY, CHANGED, UNTIL, READ, FIRST_READ = range(6)
READ_WORDS = 3
FEW = 6
"""Changes of a tick that are compared with each other rather than put into a table."""


_STEPS = {
    MATCH: "operators.window.match_step",
    JOIN: "operators.join.join_step",
    NEGATION: "operators.outer_semi_anti_join.negation_step",
    DISTINCT: "operators.distinct.distinct_step",
    UNION: "operators.project_union.union_step",
    SELECT: "operators.filter_extend.select_step",
    GROUP: "operators.aggregate.group_step",
    RECOMPUTE: "scheduler.recompute_step",
    CLOSURE: "operators.transitive_closure.closure_step",
    ORDERED: "operators.topk.ordered_step",
    NARROW: "operators.per_query_expiry.expiry_step",
    THRESHOLDS: "operators.threshold_router.thresholds_step",
    FEED: "operators.shared_input.shared_input_step",
    LISTING: "ordered_result.send_listing",
    TELL_JOINED: "operators.join.resend_joined",
    TELL_GROUPS: "operators.aggregate.resend_groups",
}
"""The kernels that take a step of an operator: functions of the base, its offset and the tick's time.

LISTING is not an operator but the sending of a whole result: of the base, the pipeline, and whether something changed.
TELL_JOINED and TELL_GROUPS are steps of a JOIN and a GROUP in which they send all their rows.
"""

_ASKED = len(_STEPS)


class Steps:
    """The addresses of the operators' steps in this process. A step is compiled when a query first needs it.

    Behind them is that of `is_abandoned`, which kernels ask that work long (interrupt_poll.py).
    """

    def __init__(self, is_abandoned: Callable[[], bool] = lambda: False) -> None:
        self._table = np.zeros(len(_STEPS) + 1, dtype=np.int64)
        self.address: int = self._table.ctypes.data
        words = [ctypes.c_int64] * 4
        self._asked = ctypes.CFUNCTYPE(*words)(lambda *_: is_abandoned())
        self._table[_ASKED] = ctypes.cast(self._asked, ctypes.c_void_p).value or 0

    def need(self, kind: int) -> None:
        if self._table[kind] == 0:
            module, _, name = _STEPS[kind].rpartition(".")
            self._table[kind] = getattr(import_module(f"cqels.kernels.{module}"), name).address


@kernel
def recompute_step(base, operator, now):
    """Ask Python once a tick for what is computed anew, if something that it reads has changed."""
    if load(base, operator + WAITING) != 0:
        store(base, operator + WAITING, 0)
        return DONE
    changed = load(base, operator + TIMELY) | load(base, operator + CHANGED)
    for number in range(load(base, operator + READ)):
        read = operator + FIRST_READ + READ_WORDS * number
        window = load(base, read)
        if load(base, read + 1) != load(base, window + LEFT) or load(base, read + 2) != load(base, window + ENTERED):
            store(base, read + 1, load(base, window + LEFT))
            store(base, read + 2, load(base, window + ENTERED))
            changed = 1
    store(base, operator + CHANGED, 0)
    store(base, operator + WAITING, changed)
    return NEED_CALL if changed != 0 else DONE


@kernel
def run(base, pipeline, block, steps, most):
    """Work off the elements of a block: DONE, NEED_CALL (answer and call again), FULL, or PAUSED between two ticks.

    `steps` is the address of a table of the operators' steps, by their kinds (`Steps`).  There is a pause after so many
    ticks and elements at `most`.
    """
    store(base, ASK, load(steps, _ASKED))
    status = _work_off(base, pipeline, block, steps, most)
    store(base, ASK, 0)
    return status


@kernel
def _work_off(base, pipeline, block, steps, most):
    while True:
        if load(base, pipeline + AT) >= 0:
            status = _tick(base, pipeline, steps)
            if status != DONE:
                return status
        number = load(base, pipeline + NEXT)
        if number == load(base, block + ELEMENTS):
            return DONE
        if most == 0:
            return PAUSED
        most -= 1
        element = load(base, block + ELEMENTS_AT) + number * ELEMENT_WORDS
        time = load(base, element)
        if _close_boundary(base, pipeline, load(base, block + START), time):
            continue
        stream = load(base, element + 2)
        if load(base, pipeline + FLAGS) & EXPIRY_APART and load(base, pipeline + PHASE) == ALL:
            if stream >= 0 and _reads(base, pipeline, stream):
                _begin(base, pipeline, time)
                store(base, pipeline + PHASE, LEAVING)
                continue
            if stream == HEARTBEAT:
                store(base, pipeline + PHASE, BEATING)
        store(base, pipeline + NEXT, number + 1)
        if stream != UPDATE:  # an update is no event of time: one before all events closes no boundary
            store(base, pipeline + LAST, time)
        if stream == ADVANCE:
            continue
        if number & (TOGETHER - 1) == 0:
            _look_ahead(base, pipeline, block, number)
        if load(base, pipeline + OUTLOOK) != 0:
            bring(base, load(base, pipeline + OUTLOOK))
        if stream >= 0:
            read = load(base, pipeline + FLAGS) & EVERY_ELEMENT != 0
            for index in range(load(base, pipeline + WINDOWS)):
                window = load(base, pipeline + WINDOWS_AT) + 3 * index
                if load(base, window) == stream:
                    read = True
                    triples = load(base, element + 4)
                    first = load(base, block + TRIPLES_AT) + 3 * load(base, element + 3)
                    if load(base, load(base, window + 1) + STAR) != 0:
                        if not arrive_star(base, load(base, window + 1), first, triples, time, load(base, element + 1)):
                            return FULL
                        continue
                    for triple in range(triples):
                        if not _arrive(
                            base,
                            load(base, window + 1),
                            first + 3 * triple,
                            time,
                            load(base, element + 1),
                            triple == triples - 1,
                        ):
                            return FULL
            if not read:
                continue
        if load(base, pipeline + FLAGS) & CLOSING and load(base, pipeline + SLIDES) > 0:
            continue
        _begin(base, pipeline, time)


@kernel
def _look_ahead(base, pipeline, block, number):
    """When a group of elements begins, have brought near what coming ones will touch, and what leaves meanwhile."""
    far = False
    for index in range(load(base, pipeline + WINDOWS)):
        window = load(base, load(base, pipeline + WINDOWS_AT) + 3 * index + 1)
        far = far or is_far(base, window, load(base, load(base, pipeline + HINTS_AT) + index))
    if not far:
        return
    if load(base, pipeline + OUTLOOK) == 0:
        store(base, pipeline + OUTLOOK, take(base, OUTLOOK_WORDS))
    outlook = load(base, pipeline + OUTLOOK)
    if outlook == 0:
        return
    go_on(base, outlook)
    _expect_elements(base, pipeline, block, number + ROWS_AHEAD * TOGETHER, ROWS)
    _expect_elements(base, pipeline, block, number + KEYS_AHEAD * TOGETHER, KEYS)
    for index in range(load(base, pipeline + WINDOWS)):
        window = load(base, load(base, pipeline + WINDOWS_AT) + 3 * index + 1)
        hints = load(base, load(base, pipeline + HINTS_AT) + index)
        if is_far(base, window, hints):
            expect_leaving(base, outlook, window, hints)


@kernel
def _expect_elements(base, pipeline, block, first, step):
    """Take a step of looking ahead for the triples of a group of elements."""
    for number in range(first, min(first + TOGETHER, load(base, block + ELEMENTS))):
        element = load(base, block + ELEMENTS_AT) + number * ELEMENT_WORDS
        time, own, stream = load(base, element), load(base, element + 1), load(base, element + 2)
        for index in range(load(base, pipeline + WINDOWS)):
            window = load(base, pipeline + WINDOWS_AT) + 3 * index
            hints = load(base, load(base, pipeline + HINTS_AT) + index)
            if load(base, window) == stream and is_far(base, load(base, window + 1), hints):
                first_triple = load(base, block + TRIPLES_AT) + 3 * load(base, element + 3)
                for triple in range(load(base, element + 4)):
                    at = first_triple + 3 * triple
                    expect_triple(
                        base, load(base, pipeline + OUTLOOK), load(base, window + 1), hints, at, time, own, step
                    )


@kernel
def _reads(base, pipeline, stream):
    for index in range(load(base, pipeline + WINDOWS)):
        if load(base, load(base, pipeline + WINDOWS_AT) + 3 * index) == stream:
            return True
    return False


@kernel
def _arrive(base, window, triple, time, number, last):
    if load(base, window + WINDOW_KIND) >= TOLD:
        return arrive_payload(base, window, triple, number, last)
    return arrive(base, window, triple, time, number, last)


@kernel
def _begin(base, pipeline, time):
    """A tick begins, or its second phase: its first step is that of the windows."""
    if load(base, pipeline + PHASE) != COMING:
        store(base, pipeline + TICKS, load(base, pipeline + TICKS) + 1)
    store(base, pipeline + NOW, time)
    store(base, pipeline + AT, 0)


@kernel
def _close_boundary(base, pipeline, start, before):
    """Begin the tick of the first boundary that time has reached and not passed before; False if there is none.

    Boundaries at which nothing happens are passed on the way.
    """
    if load(base, pipeline + LAST) == NEVER or load(base, pipeline + SLIDES) == 0:
        return False
    first, following = _next_boundary(base, pipeline, start, before)
    if following < before:
        due = _due(base, pipeline, start, first, before)
        if due > first:
            _pass_boundaries(base, pipeline, start, first, due)
            first = due
    if first >= before:
        store(base, pipeline + BOUNDARY, NEVER)
        return False
    store(base, pipeline + BOUNDARY, first)
    for index in range(load(base, pipeline + SLIDES)):
        at = load(base, pipeline + SLIDES_AT) + 2 * index
        if first % load(base, at) == start % load(base, at):
            store(base, at + 1, first)
    _begin(base, pipeline, first)
    return True


@kernel
def _next_boundary(base, pipeline, start, before):
    """The first boundary that has not been passed, and the first that is the second of its slide; or `before`."""
    done = load(base, pipeline + BOUNDARY)
    least = load(base, pipeline + LAST) if done == NEVER else done + 1
    first, following = before, before
    for index in range(load(base, pipeline + SLIDES)):
        slide = load(base, load(base, pipeline + SLIDES_AT) + 2 * index)
        boundary = boundary_from(start, slide, least)
        first = min(first, boundary)
        if boundary <= ALWAYS - slide:
            following = min(following, boundary + slide)
    return first, following


@kernel
def next_due(base, pipeline, start, before):
    """The first boundary before a time whose tick may change or send something; that time if there is none."""
    if load(base, pipeline + LAST) == NEVER or load(base, pipeline + SLIDES) == 0:
        return before
    first, _ = _next_boundary(base, pipeline, start, before)
    return _due(base, pipeline, start, first, before) if first < before else before


@kernel
def _due(base, pipeline, start, first, before):
    """The first boundary from one on whose tick may change or send something, as far as is known; or `before`."""
    flags, periods = load(base, pipeline + FLAGS), load(base, pipeline + PERIODS)
    always_sent = CLOSING | ALWAYS_SENT
    if periods == 0 or load(base, pipeline + PENDING) != 0:
        return first
    if flags & always_sent == always_sent and load(base, pipeline + FILLED) != 0 and not is_silent(base, pipeline):
        return first
    for number in range(load(base, pipeline + QUEUES)):
        if load(base, load(base, load(base, pipeline + QUEUES_AT) + number) + COUNT) != 0:
            return first
    due, time = before, ALWAYS
    for index in range(load(base, pipeline + WINDOWS)):
        entry = load(base, pipeline + WINDOWS_AT) + 3 * index
        changes, slide = window_due(base, load(base, entry + 1), first), load(base, entry + 2)
        if slide < 0:
            time = min(time, changes)
        elif changes < due:
            due = min(due, boundary_from(start, load(base, load(base, pipeline + SLIDES_AT) + 2 * slide), changes))
    for number in range(load(base, pipeline + OPERATORS)):
        operator = load(base, pipeline + OPERATORS_AT) + OPERATOR_WORDS * number
        kind, offset = load(base, operator), load(base, operator + 1)
        if kind == RECOMPUTE:
            time = min(time, first if load(base, offset + CHANGED) != 0 else load(base, offset + UNTIL))
        elif kind == NARROW:
            time = min(time, expiry_due(base, offset))
        elif kind == FEED:
            logged, at = next_logged(base, offset), load(base, pipeline + PERIODS_AT)
            if logged != ALWAYS:
                ticks = logged - load(base, pipeline + TICKS)
                due = boundary_number(base, at, periods, start, first, due, ticks)
    if time < due:
        for index in range(load(base, pipeline + SLIDES)):
            slide = load(base, load(base, pipeline + SLIDES_AT) + 2 * index)
            due = min(due, boundary_from(start, slide, max(time, first)))
    return due


@kernel
def _pass_boundaries(base, pipeline, start, first, end):
    """Let all boundaries close that are not before the first, and before the end: nothing happens at any of them."""
    periods, count = load(base, pipeline + PERIODS_AT), load(base, pipeline + PERIODS)
    ticks = passed_between(base, periods, count, start, first, end)
    store(base, pipeline + TICKS, load(base, pipeline + TICKS) + ticks)
    store(base, pipeline + BOUNDARY, end - 1)
    for index in range(load(base, pipeline + SLIDES)):
        at = load(base, pipeline + SLIDES_AT) + 2 * index
        slide = load(base, at)
        behind = ((end - 1) % slide - start % slide) % slide
        if end - 1 - behind >= first:
            store(base, at + 1, end - 1 - behind)
    for index in range(load(base, pipeline + WINDOWS)):
        entry = load(base, pipeline + WINDOWS_AT) + 3 * index
        if load(base, entry + 2) >= 0:
            closed = load(base, load(base, pipeline + SLIDES_AT) + 2 * load(base, entry + 2) + 1)
            pass_boundary(base, load(base, entry + 1), closed)


@kernel
def _tick(base, pipeline, steps):
    at = load(base, pipeline + AT)
    now = load(base, pipeline + NOW)
    if at == 0:
        status = _advance_all(base, pipeline, now)
        if status != DONE:
            return status
        at = 1
    operators = load(base, pipeline + OPERATORS)
    while at <= operators:
        operator = load(base, pipeline + OPERATORS_AT) + OPERATOR_WORDS * (at - 1)
        kind, offset = load(base, operator), load(base, operator + 1)
        if kind == MATCH and load(base, load(base, offset) + COUNT) == 0:
            at += load(base, operator + 2)
            continue
        status = call(load(steps, kind), base, offset, now)
        if status == AGAIN:  # the operators from the source on run once more, over all rows
            at = load(base, pipeline + SOURCE)
            operator = load(base, pipeline + OPERATORS_AT) + OPERATOR_WORDS * (at - 1)
            telling = TELL_JOINED if load(base, operator) == JOIN else TELL_GROUPS
            status = call(load(steps, telling), base, load(base, operator + 1), now)
        if status != DONE:
            store(base, pipeline + AT, at)
            return status
        at += 1
    status = _send(base, pipeline, steps)
    if status != DONE:
        store(base, pipeline + AT, at)
        return status
    for number in range(load(base, pipeline + QUEUES)):
        queue = load(base, load(base, pipeline + QUEUES_AT) + number)
        if load(base, queue + COUNT) != 0:
            clear(base, queue)
    store(base, pipeline + PHASE, COMING if load(base, pipeline + PHASE) == LEAVING else ALL)
    store(base, pipeline + AT, -1)
    return DONE


@kernel
def _advance_all(base, pipeline, now):
    changed = False
    filled = False
    for index in range(load(base, pipeline + WINDOWS)):
        window = load(base, load(base, pipeline + WINDOWS_AT) + 3 * index + 1)
        if load(base, window + WINDOW_KIND) >= TOLD:
            status = find_times(base, window)
            if status != DONE:
                return status
    for index in range(load(base, pipeline + WINDOWS)):
        entry = load(base, pipeline + WINDOWS_AT) + 3 * index
        window, slide = load(base, entry + 1), load(base, entry + 2)
        closed = NEVER if slide < 0 else load(base, load(base, pipeline + SLIDES_AT) + 2 * slide + 1)
        left, entered = passed(base, window)
        if load(base, window + WINDOW_KIND) >= TOLD:
            if not advance_payload(base, window, now, closed):
                return FULL
        elif load(base, window + STAR) != 0:
            if not advance_star(base, window, now, closed):
                return FULL
        elif not advance(base, window, now, closed):
            return FULL
        if load(base, window + WINDOW_FLAGS) & OWN_TIME:  # what it holds is known to Python alone
            continue
        left_now, entered_now = passed(base, window)
        holds = entered_now > left_now
        moved = left != left_now or entered != entered_now
        changed = changed or (moved and (holds or entered > left))  # what came and went at once changed nothing
        filled = filled or holds
    if changed:
        store(base, pipeline + PENDING, 1)
    store(base, pipeline + FILLED, 1 if filled else 0)
    return DONE


@kernel
def _send(base, pipeline, steps):
    """What becomes of the changes of the tick's solutions: DONE or FULL."""
    pending = load(base, pipeline + PENDING) != 0
    store(base, pipeline + PENDING, 0)
    if load(base, pipeline + EMIT) == LOGGED:
        log = load(base, pipeline + RESULTS)
        return said(log_rows(base, load(base, pipeline + SOLUTIONS), log, load(base, pipeline + TICKS)))
    if load(base, pipeline + EMIT) == CHANGES:
        if load(base, load(base, pipeline + SOLUTIONS) + COUNT) <= FEW:
            return said(_send_few(base, pipeline))
        return said(_add_up(base, pipeline) and _send_changes(base, pipeline))
    if load(base, pipeline + FLAGS) & CLOSING:  # what closes is sent if it holds something, whether it changed or not
        pending = load(base, pipeline + FILLED) != 0 and (pending or load(base, pipeline + SLIDES) > 0)
    return call(load(steps, LISTING), base, pipeline, 1 if pending else 0)


def silent_when_empty(flags: int) -> int:
    """The flags of a query that sends whole results, and nothing for one without rows: any but an ASK.

    The flag is one that older snapshots do not have, and no part of the layouts: without it the same is sent.
    """
    return flags | 16


@kernel
def is_silent(base, pipeline):
    """The whole result has no rows, and nothing is sent for that (`silent_when_empty`)."""
    return load(base, pipeline + FLAGS) & 16 != 0 and not has_slice(base, load(base, pipeline + ORDERED_AT))


@kernel
def by_expiry(base, pipeline):
    """What is sent now is due to expiry, where that is told apart."""
    return load(base, pipeline + PHASE) in (LEAVING, BEATING)


@kernel
def _add_up(base, pipeline):
    """Add the weights of the changes of each solution up."""
    solutions, table = load(base, pipeline + SOLUTIONS), load(base, pipeline + SUM)
    for number in range(load(base, solutions + COUNT)):
        row = row_at(base, solutions, number)
        entry = put(base, table, row + COLUMNS)
        if entry == 0:
            return False
        weight = load(base, entry) + load(base, row + WEIGHT)
        store(base, entry, weight)
        if weight == 0:
            remove(base, table, entry)
    return True


@kernel
def _send_few(base, pipeline):
    """What `_add_up` and `_send_changes` do, for a few solutions: each is compared with those behind it."""
    solutions = load(base, pipeline + SOLUTIONS)
    count, width = load(base, solutions + COUNT), load(base, solutions + WIDTH)
    for number in range(count):
        row = row_at(base, solutions, number)
        weight = load(base, row + WEIGHT)
        for other in range(number + 1, count):
            offset = row_at(base, solutions, other)
            same = True
            for word in range(COLUMNS, width):
                if load(base, row + word) != load(base, offset + word):
                    same = False
                    break
            if same:
                weight += load(base, offset + WEIGHT)
                store(base, offset + WEIGHT, 0)  # the queue is emptied next
        if weight != 0 and not write_result(base, pipeline, weight, row + COLUMNS):
            return False
    return True


@kernel
def _send_changes(base, pipeline):
    """Every solution whose number changed becomes a result; the table they were added up in is empty again."""
    solutions, table = load(base, pipeline + SOLUTIONS), load(base, pipeline + SUM)
    for number in range(load(base, solutions + COUNT)):
        columns = row_at(base, solutions, number) + COLUMNS
        entry = find(base, table, columns)
        if entry != 0:
            if not write_result(base, pipeline, load(base, entry), columns):
                return False
            remove(base, table, entry)
    return True


@kernel
def write_result(base, pipeline, weight, columns):
    """One result, of the columns at an offset (0: none is bound); False if the arena is full."""
    results = load(base, pipeline + RESULTS)
    row = add_row(base, results)
    if row == 0:
        return False
    store(base, row + WEIGHT, weight)
    stamp_result(base, pipeline, row)
    for word in range(load(base, results + WIDTH) - COLUMNS):
        store(base, row + COLUMNS + word, load(base, columns + word) if columns != 0 else 0)
    return True


@kernel
def stamp_result(base, pipeline, row):
    """Say in a result which tick it is of."""
    store(base, row + TIME, load(base, pipeline + NOW))
    store(base, row + NUMBER, load(base, pipeline + TICKS))
    store(base, row + OLDEST, 1 if by_expiry(base, pipeline) else 0)
