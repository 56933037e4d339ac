"""Joins on the times of rows, and the spans of what is made distinct, against naive recomputation."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqels.kernels.containers.delta_queue import EQUALS, NEVER, SEQ, make_queue
from cqels.kernels.containers.row_buffer import make_bag
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.distinct import make_distinct, step_distinct
from cqels.kernels.operators.join import step_join
from cqels.kernels.operators.join_setup import Input, make_join
from cqels.kernels.operators.outer_semi_anti_join import ANTI_JOIN, LEFT_JOIN, make_negation, step_negation

from .test_join import NO_ELEMENT, Bag, Harness, Row, check, histories, joined_stamps, many

COLUMNS = [(0, 1), (1, 2)]
"""The two sides share one column."""


def in_time(timing: int, left: Row, right: Row) -> bool:
    if NEVER in (left[0], right[0]):
        return False
    return left[0] <= right[2] if timing == SEQ else (left[0], left[2]) == (right[0], right[2])


def naive(timing: int, bags: list[Bag], *, optional: bool) -> Bag:
    found: Bag = Counter()
    for one, times in bags[0].items():
        partners = [(other, weight) for other, weight in bags[1].items() if one[4] == other[3]]
        matches = [(other, weight) for other, weight in partners if in_time(timing, one, other)]
        for other, weight in matches:
            found[(*joined_stamps(one, other), *one[3:], other[4])] += times * weight
        if optional and not matches:
            found[(*one, 0)] += times
    return found


def harness(timing: int, *, optional: bool) -> Harness:
    def build(arena: Arena, queues: list[int], out: int) -> int:
        if optional:
            return make_negation(arena, LEFT_JOIN, out, *queues, [1, 2], timing=timing)
        sides = [Input(make_bag(arena, 2), columns, queue) for columns, queue in zip(COLUMNS, queues, strict=True)]
        return make_join(arena, out, sides, timing=timing)

    return Harness([2, 2], 3, build, step_negation if optional else step_join)


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("timing", [SEQ, EQUALS])
@settings(max_examples=30)
@given(data=st.data())
def test_pairs_in_time(timing: int, optional: bool, data: st.DataObject) -> None:
    ticks = data.draw(histories([2, 2], [set(), set()], values=2))
    check(harness(timing, optional=optional), ticks, lambda bags: naive(timing, bags, optional=optional))


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("timing", [SEQ, EQUALS])
def test_pairs_in_time_through_indexes(timing: int, optional: bool) -> None:
    ticks = many([2, 2], [set(), set()])
    check(harness(timing, optional=optional), ticks, lambda bags: naive(timing, bags, optional=optional))


@pytest.mark.parametrize("optional", [False, True])
def test_what_came_from_no_element_is_at_no_time(optional: bool) -> None:
    first = [(0, 1, (*NO_ELEMENT, 1, 2)), (1, 1, (5, 0, 5, 2, 3)), (1, 1, (*NO_ELEMENT, 2, 4))]
    ticks = [first, [(0, 1, (5, 1, 5, 1, 2))]]
    check(harness(SEQ, optional=optional), ticks, lambda bags: naive(SEQ, bags, optional=optional))


def test_only_two_inputs_and_only_optional() -> None:
    arena = Arena(size=1 << 20)
    queues = [int(make_queue(arena.base, 1)) for _ in range(4)]
    sides = [Input(make_bag(arena, 1), (0,), queue) for queue in queues[:3]]
    with pytest.raises(ValueError, match="2 inputs"):
        make_join(arena, queues[3], sides, timing=SEQ)
    with pytest.raises(ValueError, match="OPTIONAL"):
        make_negation(arena, ANTI_JOIN, queues[2], *queues[:2], [0], timing=SEQ)


@settings(max_examples=30)
@given(ticks=histories([1], [set()], values=2))
def test_a_span_is_that_of_all_duplicates(ticks: list[list[tuple[int, int, Row]]]) -> None:
    def spans(bags: list[Bag]) -> Bag:
        found: dict[Row, Row] = {}
        for row in bags[0]:
            found[row[3:]] = joined_stamps(found.get(row[3:], NO_ELEMENT), row)
        return Counter({(*stamps, *columns): 1 for columns, stamps in found.items()})

    made = Harness(
        [1],
        1,
        lambda arena, queues, out: make_distinct(arena, out, queues[0], freshness=True, spans=True),
        step_distinct,
    )
    check(made, ticks, spans)
